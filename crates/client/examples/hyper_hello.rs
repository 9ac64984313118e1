//! An HTTP server: hyper over the engine, tasks by tokio, events by a reactor thread.
//!
//! ```text
//! cargo run --release --features hyper --example hyper_hello -- --socket /run/sidecore.sock --listen 10.77.0.2:8080
//! ```

mod common;

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use sidecore_client::Sockets;
use sidecore_client::asynchronous::TcpListener;

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!("Hello. You asked for {}.\n", request.uri().path());
    Ok(Response::new(Full::new(Bytes::from(text))))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = common::options("0.0.0.0:8080");
    let sockets = Sockets::open(&options.socket)?;
    let _reactor = sockets.spawn_reactor()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&sockets, options.address).await?;
        println!("listening on {}", listener.local_addr().await?);
        loop {
            let (stream, peer) = listener.accept().await?;
            stream.set_nodelay(true);
            tokio::spawn(async move {
                let connection = http1::Builder::new().serve_connection(stream, service_fn(hello));
                if let Err(error) = connection.await {
                    eprintln!("{peer}: {error}");
                }
            });
        }
    })
}
