//! A program as others write them: on `std::net` and on tokio, and with no word of an engine. The tests run it with the preload library.
//!
//! `sidecore-e2e-net std|tokio ADDRESS` echoes what it gets; with a second address it is a proxy to there. `… client ADDRESS CONNECTIONS BYTES`
//! (on `std::net`) sends so many bytes over each of so many connections at once, and compares what comes back.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use anyhow::{Result, bail, ensure};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["std", at] => serve(at.parse()?, None),
        ["std", at, to] => serve(at.parse()?, Some(to.parse()?)),
        ["tokio", at] => tokio_serve(at.parse()?, None),
        ["tokio", at, to] => tokio_serve(at.parse()?, Some(to.parse()?)),
        ["client", to, connections, bytes] => {
            clients(to.parse()?, connections.parse()?, bytes.parse()?)
        }
        _ => bail!(
            "usage: sidecore-e2e-net std|tokio ADDRESS [TO] | client ADDRESS CONNECTIONS BYTES"
        ),
    }
}

fn serve(at: SocketAddr, to: Option<SocketAddr>) -> Result<()> {
    let listener = TcpListener::bind(at)?;
    loop {
        let (near, _) = listener.accept()?;
        std::thread::spawn(move || match to {
            None => echo(&near),
            Some(to) => proxy(near, to),
        });
    }
}

fn echo(stream: &TcpStream) -> std::io::Result<()> {
    std::io::copy(&mut &*stream, &mut &*stream)?;
    stream.shutdown(Shutdown::Write)
}

fn proxy(near: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    let far = TcpStream::connect(to)?;
    let (from_far, to_near) = (far.try_clone()?, near.try_clone()?);
    let back = std::thread::spawn(move || {
        std::io::copy(&mut &from_far, &mut &to_near)?;
        to_near.shutdown(Shutdown::Write)
    });
    std::io::copy(&mut &near, &mut &far)?;
    far.shutdown(Shutdown::Write)?;
    // A panic there was printed.
    back.join().unwrap_or(Ok(()))
}

fn tokio_serve(at: SocketAddr, to: Option<SocketAddr>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(at).await?;
        loop {
            let (mut near, _) = listener.accept().await?;
            tokio::spawn(async move {
                match to {
                    None => {
                        let (mut reader, mut writer) = near.split();
                        tokio::io::copy(&mut reader, &mut writer).await?;
                        tokio::io::AsyncWriteExt::shutdown(&mut writer).await?;
                    }
                    Some(to) => {
                        let mut far = tokio::net::TcpStream::connect(to).await?;
                        tokio::io::copy_bidirectional(&mut near, &mut far).await?;
                    }
                }
                std::io::Result::Ok(())
            });
        }
    })
}

fn clients(to: SocketAddr, connections: usize, bytes: usize) -> Result<()> {
    let each = |number: usize| -> Result<()> {
        let stream = TcpStream::connect(to)?;
        let sent: Vec<u8> = (0..bytes)
            .map(|at| (at * 31 + at / 251 + number) as u8)
            .collect();
        let mut came = Vec::with_capacity(bytes);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| -> std::io::Result<()> {
                (&stream).write_all(&sent)?;
                stream.shutdown(Shutdown::Write)
            });
            (&stream).read_to_end(&mut came)?;
            match writer.join() {
                Ok(done) => done,
                Err(_) => Err(std::io::Error::other("the writer panicked")),
            }
        })?;
        ensure!(came == sent, "connection {number}: other bytes came back");
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..connections)
            .map(|n| scope.spawn(move || each(n)))
            .collect();
        all.into_iter().try_for_each(|one| match one.join() {
            Ok(done) => done,
            Err(_) => bail!("a client panicked"),
        })
    })?;
    println!("same");
    Ok(())
}
