//! Blocking sockets against a real engine, over its loopback.

mod engine;

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use engine::{ADDRESS, group, start};
use sidecore_client::blocking::{TcpListener, TcpStream, UdpSocket};
use sidecore_client::{Sockets, SocketsConfig};

fn listen(sockets: &Sockets) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(sockets, (ADDRESS, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    assert_ne!(address.port(), 0);
    (listener, address)
}

/// Bytes that tell where in a stream they belong.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as u8
        })
        .collect()
}

#[test]
fn a_conversation_as_with_std() {
    let engine = start();
    let sockets = group(&engine);
    let (listener, address) = listen(&sockets);
    let mut client = TcpStream::connect(&sockets, address).unwrap();
    let (mut server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    assert_eq!(server.peer_addr().unwrap(), peer);
    assert_eq!(server.local_addr().unwrap(), address);
    assert_eq!(client.peer_addr().unwrap(), address);

    client.set_nodelay(true).unwrap();
    assert!(client.nodelay().unwrap());
    client.write_all(b"ping").unwrap();
    let mut out = [0; 16];
    assert_eq!(server.peek(&mut out).unwrap(), 4);
    assert_eq!(server.read(&mut out[..1]).unwrap(), 1);
    assert_eq!(server.read(&mut out[1..]).unwrap(), 3);
    assert_eq!(&out[..4], b"ping");
    let n = server
        .write_vectored(&[
            IoSlice::new(b"a "),
            IoSlice::new(b""),
            IoSlice::new(&[b'x'; 100]),
        ])
        .unwrap();
    assert_eq!(n, 102);
    let mut answer = [0; 102];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[..4], b"a xx");

    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut out).unwrap(), 0, "the end of the stream");
    assert_eq!(server.read(&mut out).unwrap(), 0, "and it stays");
    assert_eq!(
        client.write(b"x").unwrap_err().kind(),
        ErrorKind::BrokenPipe
    );
    server.write_all(b"still open").unwrap();
    drop(server);
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "still open");
    assert!(client.take_error().unwrap().is_none());
    engine.stop();
}

#[test]
fn urgent_data_in_line() {
    let engine = start();
    let sockets = group(&engine);
    let (listener, address) = listen(&sockets);
    let mut client = TcpStream::connect(&sockets, address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    assert_eq!(
        (server.at_mark().unwrap(), server.urgent_left().unwrap()),
        (false, None)
    );
    client.write_all(b"before").unwrap();
    assert_eq!(client.send_urgent(b"now!").unwrap(), 4);
    client.write_all(b"after").unwrap();
    assert_eq!(server.wait_urgent().unwrap(), Some(10));
    // A look does not go beyond the mark either.
    let mut out = [0; 99];
    while server.peek(&mut out).unwrap() < 9 {}
    assert_eq!(server.peek(&mut out).unwrap(), 9);
    let mut bytes = [0; 9];
    server.read_exact(&mut bytes).unwrap();
    assert_eq!((&bytes, server.at_mark().unwrap()), (b"beforenow", true));
    assert_eq!(server.urgent_left().unwrap(), Some(1));
    let refused = server.read_urgent(true).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "it is in line");
    let mut bytes = [0; 6];
    server.read_exact(&mut bytes).unwrap();
    assert_eq!((&bytes, server.urgent_left().unwrap()), (b"!after", None));
    // The other way, and then the end: nobody waits for ever.
    drop(server);
    assert_eq!(client.wait_urgent().unwrap(), None);
    engine.stop();
}

#[test]
fn urgent_data_out_of_band() {
    let engine = start();
    let sockets = group(&engine);
    let (listener, address) = listen(&sockets);
    let mut client = TcpStream::connect(&sockets, address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.set_oob_inline(false).unwrap();
    assert!(!server.oob_inline().unwrap());
    let none = server.read_urgent(true).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput, "there is none");
    // The first mark is passed by; the second is read before the stream is, the third after.
    for octet in *b"123" {
        client.write_all(b"data ").unwrap();
        assert_eq!(client.send_urgent(&[octet]).unwrap(), 1);
        let mut bytes = [0; 5];
        server.wait_urgent().unwrap();
        if octet == b'2' {
            while server.read_urgent(false).is_err() {
                std::thread::yield_now();
            }
            assert_eq!(server.read_urgent(true).unwrap(), Some(octet));
            let again = server.read_urgent(true).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::InvalidInput, "it was read");
        }
        server.read_exact(&mut bytes).unwrap();
        assert_eq!((&bytes, server.at_mark().unwrap()), (b"data ", true));
        client.write_all(b"rest").unwrap();
        server.read_exact(&mut bytes[..4]).unwrap();
        assert_eq!(
            (&bytes[..4], server.at_mark().unwrap()),
            (&b"rest"[..], false)
        );
    }
    assert_eq!(server.read_urgent(true).unwrap(), Some(b'3'), "it was kept");
    engine.stop();
}

#[test]
fn there_is_room_for_urgent_data() {
    let engine = start();
    let config = SocketsConfig {
        stream_bytes: 100_000,
        ..SocketsConfig::default()
    };
    let sockets = engine::group_with(&engine, 1024, config);
    let (listener, address) = listen(&sockets);
    let mut client = TcpStream::connect(&sockets, address).unwrap();
    let (server, _) = listener.accept().unwrap();
    server
        .set_option(sidecore_client::Opt::ReceiveBuffer, 4096)
        .unwrap();
    client.set_nonblocking(true).unwrap();
    let bytes = pattern(1 << 20, 1);
    let mut sent = 0;
    let full = Instant::now() + Duration::from_millis(200);
    while Instant::now() < full {
        sent += client.write(&bytes[sent..]).unwrap_or(0);
    }
    assert!(sent < bytes.len());
    assert_eq!(client.send_urgent(b"stop").unwrap(), 4);
    assert!(server.wait_urgent().unwrap().is_some());
    engine.stop();
}

#[test]
fn timeouts_and_nonblocking() {
    let engine = start();
    let sockets = group(&engine);
    let (listener, address) = listen(&sockets);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut client = TcpStream::connect(&sockets, address).unwrap();
    let begun = Instant::now();
    let (server, _) = loop {
        match listener.accept() {
            Ok(accepted) => break accepted,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    };
    client
        .set_read_timeout(Some(Duration::from_millis(10)))
        .unwrap();
    assert!(client.set_read_timeout(Some(Duration::ZERO)).is_err());
    let begun = Instant::now();
    assert_eq!(
        client.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    assert!(begun.elapsed() >= Duration::from_millis(10));
    client.set_read_timeout(None).unwrap();
    client.set_nonblocking(true).unwrap();
    assert_eq!(
        client.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    // The receiver does not read: the sender's memory, then the windows, fill up.
    let block = pattern(100_000, 1);
    let mut sent = 0usize;
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(50) {
        match client.write(&block[sent % block.len()..]) {
            Ok(n) => (sent, quiet) = (sent + n, Instant::now()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert!(sent >= 1 << 20, "only {sent}");
    // And drain when it does.
    let mut received = 0;
    let mut buffer = vec![0; 64 << 10];
    (&server).read_exact(&mut buffer).unwrap();
    for byte in &buffer {
        assert_eq!(*byte, block[received % block.len()]);
        received += 1;
    }
    while received < sent {
        let n = (&server).read(&mut buffer).unwrap();
        assert!(n > 0);
        assert!(
            buffer[..n]
                .iter()
                .enumerate()
                .all(|(i, b)| *b == block[(received + i) % block.len()])
        );
        received += n;
    }
    assert_eq!(received, sent);
    engine.stop();
}

#[test]
fn failures_have_stds_kinds() {
    let engine = start();
    let sockets = group(&engine);
    let (listener, address) = listen(&sockets);
    let error = TcpListener::bind(&sockets, address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let error = TcpListener::bind(&sockets, "192.0.2.1:80").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    drop(listener);
    let begun = Instant::now();
    // The close is on its way; it may be that a connection still gets through and is reset.
    loop {
        match TcpStream::connect(&sockets, address) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
            _ => assert!(begun.elapsed() < Duration::from_secs(10)),
        }
    }
    let nowhere = "192.0.2.1:9".parse().unwrap();
    let error =
        TcpStream::connect_timeout(&sockets, &nowhere, Duration::from_millis(200)).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::TimedOut | ErrorKind::HostUnreachable
        ),
        "{error:?}"
    );

    let (listener, address) = listen(&sockets);
    let client = TcpStream::connect(&sockets, address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    // Unread data at close is a reset, as everywhere.
    server.write_all(&[1; 1000]).unwrap();
    client.peek(&mut [0; 1]).unwrap();
    drop(client);
    let begun = Instant::now();
    let error = loop {
        match server.write(&[2; 100]) {
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(10)),
            Err(error) => break error,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ),
        "{error:?}"
    );
    engine.stop();
}

#[test]
fn many_threads_share_one_group() {
    const CLIENTS: usize = 16;
    let engine = start();
    let sockets = group(&engine);
    let (listener, address) = listen(&sockets);
    std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            let sockets = &sockets;
            scope.spawn(move || {
                let mut stream = TcpStream::connect(sockets, address).unwrap();
                let data = pattern(200_000 + 7777 * n, n as u64);
                let mut reader = stream.try_clone().unwrap();
                let expected = data.clone();
                let reading = std::thread::spawn(move || {
                    let mut back = Vec::new();
                    reader.read_to_end(&mut back).unwrap();
                    assert!(back == expected, "stream {n} came back changed");
                });
                for piece in data.chunks(1 + 997 * (n + 1)) {
                    stream.write_all(piece).unwrap();
                }
                stream.shutdown(Shutdown::Write).unwrap();
                reading.join().unwrap();
            });
        }
        for stream in listener.incoming().take(CLIENTS) {
            let mut stream = stream.unwrap();
            scope.spawn(move || {
                let mut buffer = vec![0; 10_000];
                loop {
                    let n = stream.read(&mut buffer).unwrap();
                    if n == 0 {
                        break;
                    }
                    stream.write_all(&buffer[..n]).unwrap();
                }
            });
        }
    });
    // Everything was acknowledged, so no memory is held.
    let begun = Instant::now();
    while sockets.send_blocks_used() > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{} blocks",
            sockets.send_blocks_used()
        );
        sockets.turn(Duration::from_millis(10)).unwrap();
    }
    engine.stop();
}

#[test]
fn connections_come_and_go_and_handles_are_used_again() {
    let engine = start();
    let sockets = engine::group_with(
        &engine,
        24,
        SocketsConfig {
            accepts: 4,
            ..SocketsConfig::default()
        },
    );
    let (listener, address) = listen(&sockets);
    let server = std::thread::spawn(move || {
        for stream in listener.incoming().take(200) {
            let mut stream = stream.unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        }
    });
    for n in 0..200u8 {
        let mut stream = TcpStream::connect(&sockets, address).unwrap();
        stream.write_all(&[n]).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert_eq!(back, [n]);
    }
    server.join().unwrap();
    engine.stop();
}

#[test]
fn what_was_written_goes_out_after_the_last_handle_is_dropped() {
    let engine = start();
    let receiver = group(&engine);
    let (listener, address) = listen(&receiver);
    let data = pattern(700_000, 3);
    let sent = data.clone();
    let sender = {
        let sockets = group(&engine);
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(&sockets, address).unwrap();
            stream.write_all(&sent).unwrap();
        })
    };
    let (mut stream, _) = listener.accept().unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == data);
    drop(stream);
    sender.join().unwrap();
    engine.stop();
}

#[test]
fn datagrams() {
    let engine = start();
    let sockets = group(&engine);
    let a = UdpSocket::bind(&sockets, (ADDRESS, 0)).unwrap();
    let b = UdpSocket::bind(&sockets, (ADDRESS, 0)).unwrap();
    let (at_a, at_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    assert_ne!(at_a.port(), at_b.port());
    assert_eq!(a.send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
    a.send_to(b"hello", at_b).unwrap();
    let mut out = [0; 2000];
    assert_eq!(b.peek_from(&mut out[..3]).unwrap(), (3, at_a));
    assert_eq!(b.recv_from(&mut out).unwrap(), (5, at_a));
    assert_eq!(&out[..5], b"hello");
    b.connect(at_a).unwrap();
    assert_eq!(b.peer_addr().unwrap(), at_a);
    for n in 0..100u8 {
        b.send(&[n; 1000]).unwrap();
        assert_eq!(a.recv(&mut out).unwrap(), 1000);
        assert_eq!(out[999], n);
    }
    let large = a.send_to(&[0; 65508], at_b).unwrap_err();
    assert_eq!(large.kind(), ErrorKind::InvalidInput);
    a.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    assert_eq!(a.recv(&mut out).unwrap_err().kind(), ErrorKind::WouldBlock);
    engine.stop();
}

#[test]
fn the_engines_end_is_an_error_and_no_hang() {
    let engine = start();
    let sockets = group(&engine);
    let (listener, address) = listen(&sockets);
    let mut client = TcpStream::connect(&sockets, address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let reading = std::thread::spawn(move || server.read(&mut [0]));
    let accepting = std::thread::spawn(move || listener.accept().map(|_| ()));
    std::thread::sleep(Duration::from_millis(20));
    engine.stop();
    // The engine may still reset connections as it goes: either error, but no waiting.
    assert!(accepting.join().unwrap().is_err());
    let end = reading.join().unwrap();
    assert!(matches!(&end, Ok(0)) || end.is_err(), "{end:?}");
    let begun = Instant::now();
    while client.write(&[0; 100]).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert!(TcpStream::connect(&sockets, address).is_err());
    assert!(TcpListener::bind(&sockets, address).is_err());
}

#[test]
fn the_lead_is_never_lost() {
    const ROUNDS: usize = 400;
    let engine = start();
    let sockets = group(&engine);
    let (listener, address) = listen(&sockets);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Threads that come and go as leaders and followers, and never get anything.
        let impatient: Vec<_> = (0..4)
            .map(|_| {
                let client = TcpStream::connect(&sockets, address).unwrap();
                (client, listener.accept().unwrap().0)
            })
            .collect();
        for (n, (client, server)) in impatient.into_iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                let timeout = Duration::from_micros(50 + 300 * n as u64);
                client.set_read_timeout(Some(timeout)).unwrap();
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let error = (&client).read(&mut [0]).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                }
                drop(server);
            });
        }
        // Threads that would wait for ever if nobody served the queue.
        let patient: Vec<_> = (0..4)
            .map(|_| {
                let client = TcpStream::connect(&sockets, address).unwrap();
                (client, listener.accept().unwrap().0)
            })
            .map(|(mut client, mut server)| {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let mut byte = [0];
                        server.read_exact(&mut byte).unwrap();
                        server.write_all(&byte).unwrap();
                    }
                });
                scope.spawn(move || {
                    client.set_nodelay(true).unwrap();
                    client
                        .set_read_timeout(Some(Duration::from_secs(10)))
                        .unwrap();
                    for n in 0..ROUNDS {
                        let mut byte = [n as u8];
                        client.write_all(&byte).unwrap();
                        client
                            .read_exact(&mut byte)
                            .expect("nobody served the queue");
                        assert_eq!(byte, [n as u8]);
                    }
                })
            })
            .collect();
        for thread in patient {
            thread.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    engine.stop();
}
