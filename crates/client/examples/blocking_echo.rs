//! An echo server with a thread for each connection, on blocking sockets: as with `std::net`, but for the `Sockets` that it opens first.
//!
//! ```text
//! cargo run --release --example blocking_echo -- --socket /run/sidecore.sock --listen 10.77.0.2:7
//! ```

mod common;

use std::io::{self, Read, Write};

use sidecore_client::Sockets;
use sidecore_client::blocking::{TcpListener, TcpStream};

fn echo(mut stream: TcpStream) -> io::Result<u64> {
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(total),
            n => {
                stream.write_all(&buffer[..n])?;
                total += n as u64;
            }
        }
    }
}

fn main() -> io::Result<()> {
    let options = common::options("0.0.0.0:7");
    let sockets = Sockets::open(&options.socket)?;
    let listener = TcpListener::bind(&sockets, options.address)?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept()?;
        stream.set_nodelay(true)?;
        std::thread::spawn(move || match echo(stream) {
            Ok(bytes) => println!("{peer}: {bytes} bytes"),
            Err(error) => eprintln!("{peer}: {error}"),
        });
    }
}
