//! hyper's server and client over a real engine.

mod engine;

use std::convert::Infallible;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use sidecore_client::Sockets;
use sidecore_client::asynchronous::{TcpListener, TcpStream};

/// Answers with as many bytes as the path says.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let len: usize = request.uri().path()[1..].parse().unwrap();
    let posted = request.into_body().collect().await.unwrap().to_bytes();
    let mut body = posted.to_vec();
    body.resize(len.max(posted.len()), b'.');
    Ok(Response::new(Full::new(Bytes::from(body))))
}

async fn requests(sockets: &Sockets, address: std::net::SocketAddr) {
    let stream = TcpStream::connect(sockets, address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    let connection = tokio::task::spawn_local(connection);
    for len in [0usize, 1, 1000, 100_000, 3_000_000, 5] {
        let request = Request::builder()
            .uri(format!("/{len}"))
            .header("host", "test")
            .body(Full::new(Bytes::from(vec![b'q'; len / 2])))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), len);
        assert!(body[..len / 2].iter().all(|b| *b == b'q'));
        assert!(body[len / 2..].iter().all(|b| *b == b'.'));
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}

#[test]
fn hyper_serves_and_asks() {
    let engine = engine::start();
    let sockets = engine::group(&engine);
    let reactor = sockets.spawn_reactor().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let local = (std::net::Ipv4Addr::new(10, 9, 0, 1), 0).into();
        let listener = TcpListener::bind(&sockets, local).await.unwrap();
        let address = listener.local_addr().await.unwrap();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    http.serve_connection(stream, service_fn(answer))
                        .await
                        .unwrap();
                });
            }
        });
        requests(&sockets, address).await;
        requests(&sockets, address).await;
    });
    drop(tasks);
    drop(reactor);
    engine.stop();
}
