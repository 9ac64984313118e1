//! Options of sockets against a real engine, over its loopback: what is set is what is in force.

mod engine;

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use engine::{ADDRESS, group, start};
use sidecore_client::abi::info::options;
use sidecore_client::blocking::{TcpListener, TcpStream};
use sidecore_client::{Opt, Sockets, asynchronous};
use sidecore_engine::{Engine, EngineConfig, Ipv6Config};

fn pair(sockets: &Sockets, options: &[(Opt, u64)]) -> (TcpStream, TcpStream, TcpListener) {
    let listener = TcpListener::bind_with(sockets, (ADDRESS, 0), options).unwrap();
    let client = TcpStream::connect(sockets, listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server, listener)
}

/// Sets an option that the engine takes, and reads it back.
fn set(stream: &TcpStream, option: Opt, value: u64) -> u64 {
    stream.set_option(option, value).unwrap();
    let answer = stream.option(option).unwrap();
    assert!(stream.take_error().unwrap().is_none(), "{option:?}");
    answer
}

#[test]
fn options_of_a_connection_are_what_was_set() {
    let engine = start();
    let sockets = group(&engine);
    let (client, _server, _listener) = pair(&sockets, &[]);
    let kept = [
        (Opt::NotsentLowat, 16_384),
        (Opt::WindowClamp, 20_000),
        (Opt::SynRetries, 3),
        (Opt::FinWait2, 5_000_000),
        (Opt::FinWait2, u64::MAX),
        (Opt::HopLimit, 12),
        (Opt::UserTimeout, 30_000_000),
        (Opt::KeepaliveIdle, 9_000_000),
        (Opt::KeepaliveInterval, 2_000_000),
        (Opt::KeepaliveProbes, 4),
        (Opt::Linger, 1_000_000),
        (Opt::QuickAck, 1),
    ];
    for (option, value) in kept {
        assert_eq!(set(&client, option, value), value, "{option:?}");
    }
    // What is in force is not always what was asked for.
    assert_eq!(set(&client, Opt::TrafficClass, 0xbb), 0xb8);
    assert_eq!(set(&client, Opt::HopLimit, 0), 64);
    assert_eq!(set(&client, Opt::FinWait2, 0), 60_000_000);
    assert_eq!(set(&client, Opt::WindowClamp, 1), 1152);
    let mss = client.option(Opt::MaxSegment).unwrap();
    assert!(mss > 60_000, "the loopback's: {mss}");
    assert_eq!(set(&client, Opt::MaxSegment, 1000), 988);
    for (option, value) in [
        (Opt::MaxSegment, 87),
        (Opt::SynRetries, 128),
        (Opt::TrafficClass, 256),
        (Opt::HopLimit, 256),
        (Opt::V6Only, 1),
        (Opt::DeferAccept, 1),
    ] {
        client.set_option(option, value).unwrap();
        client.option(option).unwrap();
        assert!(client.take_error().unwrap().is_some(), "{option:?} {value}");
    }
    engine.stop();
}

#[test]
fn children_have_what_their_listener_was_set_to() {
    let engine = start();
    let sockets = group(&engine);
    let options = [
        (Opt::MaxSegment, 900),
        (Opt::TrafficClass, 0x20),
        (Opt::FinWait2, 7_000_000),
        (Opt::NotsentLowat, 5000),
        (Opt::WindowClamp, 9000),
    ];
    let (client, server, listener) = pair(&sockets, &options);
    for (option, value) in options {
        assert_eq!(listener.option(option).unwrap(), value, "{option:?}");
        let of_child = server.option(option).unwrap();
        let expected = match option {
            Opt::MaxSegment => value - 12,
            _ => value,
        };
        assert_eq!(of_child, expected, "{option:?}");
    }
    assert_eq!(client.option(Opt::MaxSegment).unwrap(), 888);
    let defaults = listener.option(Opt::SynRetries).unwrap();
    assert!(defaults > 2, "{defaults}");
    listener.set_option(Opt::SynRetries, 2).unwrap();
    assert_eq!(listener.option(Opt::SynRetries).unwrap(), 2);
    let refused = listener.set_option(Opt::V6Only, 1).unwrap_err();
    assert_ne!(refused.kind(), ErrorKind::WouldBlock, "it listens already");
    engine.stop();
}

#[test]
fn a_deferred_listener_accepts_with_the_data() {
    let engine = start();
    let sockets = group(&engine);
    let defer = [(Opt::DeferAccept, 30_000_000)];
    let listener = TcpListener::bind_with(&sockets, (ADDRESS, 0), &defer).unwrap();
    assert_eq!(listener.option(Opt::DeferAccept).unwrap(), 30_000_000);
    let mut client = TcpStream::connect(&sockets, listener.local_addr().unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    for _ in 0..20 {
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        std::thread::sleep(Duration::from_millis(1));
    }
    client.write_all(b"question").unwrap();
    listener.set_nonblocking(false).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut question = [0; 8];
    server.read_exact(&mut question).unwrap();
    assert_eq!(&question, b"question");
    engine.stop();
}

/// Writes until nothing is taken any more; returns how much was.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (data, mut written) = ([7; 8192], 0);
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(150) {
        match stream.write(&data) {
            Ok(n) => (written, last) = (written + n, Instant::now()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    stream.set_nonblocking(false).unwrap();
    written
}

#[test]
fn little_waits_unsent() {
    const LOWAT: u64 = 10_000;
    let engine = start();
    let sockets = group(&engine);
    // The peer does not read: its window, which is small, fills, and then what waits here may be little only.
    let small = [(Opt::WindowClamp, 20_000)];
    let (mut client, mut server, _listener) = pair(&sockets, &small);
    assert_eq!(set(&client, Opt::NotsentLowat, LOWAT), LOWAT);
    let written = fill(&mut client);
    let in_window = 20_000..=20_000 + LOWAT as usize;
    assert!(in_window.contains(&written), "{written}");
    // All that was written arrives, and then there is room again.
    let mut received = vec![0; written];
    server.read_exact(&mut received).unwrap();
    client.write_all(&[8; 8192]).unwrap();
    let mut rest = [0; 8192];
    server.read_exact(&mut rest).unwrap();
    assert_eq!(rest, [8; 8192]);
    // Without it more waits.
    assert_eq!(set(&client, Opt::NotsentLowat, 0), 0);
    assert!(fill(&mut client) > 20_000 + LOWAT as usize);
    engine.stop();
}

#[test]
fn a_listener_at_ipv6_takes_both_or_its_own() {
    let config = EngineConfig {
        addresses: vec!["10.9.0.1/24".parse().unwrap()],
        ipv6: Ipv6Config {
            enabled: true,
            ..Ipv6Config::default()
        },
        seed: Some([7; 32]),
        ..EngineConfig::default()
    };
    let engine = Engine::spawn(config).unwrap();
    let sockets = group(&engine);
    for (v6_only, v4_connects) in [(0, true), (1, false)] {
        let options = [(Opt::V6Only, v6_only)];
        let listener = TcpListener::bind_with(&sockets, "[::]:0", &options).unwrap();
        assert_eq!(listener.option(Opt::V6Only).unwrap(), v6_only);
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect(&sockets, ("::1", port)).unwrap();
        let v4 = TcpStream::connect(&sockets, (ADDRESS, port));
        assert_eq!(v4.is_ok(), v4_connects);
    }
    engine.stop();
}

#[test]
fn a_request_goes_with_the_syn_to_a_server_that_is_known() {
    let engine = start();
    let sockets = group(&engine);
    let listener = TcpListener::bind_with(&sockets, (ADDRESS, 0), &[(Opt::FastOpen, 8)]).unwrap();
    assert_eq!(listener.option(Opt::FastOpen).unwrap(), 8);
    let address = listener.local_addr().unwrap();
    let request = vec![7; 3000];
    for round in 0..3 {
        let client = TcpStream::connect_with(&sockets, address, &request).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut got = vec![0; request.len()];
        server.read_exact(&mut got).unwrap();
        assert_eq!(got, request);
        server.write_all(b"answer").unwrap();
        let mut answer = [0; 6];
        (&client).read_exact(&mut answer).unwrap();
        // The first time a cookie is asked for.
        let early = client.info().unwrap().options & options::SYN_DATA != 0;
        assert_eq!(early, round > 0, "round {round}");
    }
    let nothing = TcpStream::connect_with(&sockets, address, &[]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::InvalidInput);
    sockets.block_on(async {
        let client = asynchronous::TcpStream::connect_with(&sockets, address, b"hello").await;
        let client = client.unwrap();
        assert!(client.info().await.unwrap().options & options::SYN_DATA != 0);
    });
    engine.stop();
}

#[test]
fn the_engine_tells_what_monitoring_tools_ask_for() {
    let engine = start();
    let sockets = group(&engine);
    let (mut client, mut server, listener) = pair(&sockets, &[]);
    client.write_all(&[7; 10_000]).unwrap();
    let mut got = [0; 10_000];
    server.read_exact(&mut got).unwrap();
    server.write_all(b"answer").unwrap();
    client.read_exact(&mut got[..6]).unwrap();
    let info = client.info().unwrap();
    assert_eq!(
        (info.state, info.ca_state, info.unacked, info.total_retrans),
        (1, 0, 0, 0)
    );
    assert_eq!(
        (info.bytes_acked, info.bytes_sent, info.bytes_received),
        (10_000, 10_000, 6)
    );
    let agreed = options::TIMESTAMPS | options::SACK | options::WSCALE;
    assert_eq!((info.options, info.wscale), (agreed, 0x77));
    assert_eq!(
        info.snd_mss,
        u32::try_from(client.option(Opt::MaxSegment).unwrap()).unwrap()
    );
    assert!(info.rtt > 0 && info.min_rtt <= info.rtt && info.rto >= 200_000);
    assert!(info.snd_cwnd >= 2 && info.snd_ssthresh >= info.snd_cwnd);
    assert!(info.pmtu > 60_000 && info.advmss > 60_000 && info.snd_wnd > 0 && info.rcv_wnd > 0);
    assert!(info.last_data_sent < 10_000 && info.last_data_recv < 10_000);
    assert_eq!(
        sockets.send_blocks_used(),
        0,
        "the answer's place was given back"
    );
    drop((client, server, listener));
    engine.stop();
}

#[test]
fn futures_have_the_same_options() {
    let engine = start();
    let sockets = group(&engine);
    sockets.block_on(async {
        let local = format!("{ADDRESS}:0").parse().unwrap();
        let options = [(Opt::DeferAccept, 0), (Opt::HopLimit, 3)];
        let listener = asynchronous::TcpListener::bind_with(&sockets, local, &options);
        let listener = listener.await.unwrap();
        let address = listener.local_addr().await.unwrap();
        let client = asynchronous::TcpStream::connect(&sockets, address)
            .await
            .unwrap();
        let (server, _) = listener.accept().await.unwrap();
        assert_eq!(server.option(Opt::HopLimit).await.unwrap(), 3);
        client.set_option(Opt::HopLimit, 4);
        assert_eq!(client.option(Opt::HopLimit).await.unwrap(), 4);
    });
    engine.stop();
}
