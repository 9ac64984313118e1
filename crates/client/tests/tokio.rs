//! tokio's traits over a real engine.

mod engine;

use sidecore_client::asynchronous::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn copies_through_tokios_helpers() {
    let engine = engine::start();
    let sockets = engine::group(&engine);
    let reactor = sockets.spawn_reactor().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let local = (std::net::Ipv4Addr::new(10, 9, 0, 1), 0).into();
        let listener = TcpListener::bind(&sockets, local).await.unwrap();
        let address = listener.local_addr().await.unwrap();
        let echo = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut writer = stream.clone();
            tokio::io::copy(&mut stream, &mut writer).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let mut stream = TcpStream::connect(&sockets, address).await.unwrap();
        let data: Vec<u8> = (0..1_500_000u32).map(|n| (n % 251) as u8).collect();
        let (mut reader, expected) = (stream.clone(), data.clone());
        let reading = tokio::spawn(async move {
            let mut back = Vec::new();
            reader.read_to_end(&mut back).await.unwrap();
            assert!(back == expected);
        });
        stream.write_all(&data).await.unwrap();
        stream.shutdown().await.unwrap();
        reading.await.unwrap();
        echo.await.unwrap();
    });
    drop(reactor);
    engine.stop();
}
