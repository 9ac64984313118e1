//! Sockets with the calls of POSIX beneath, against a real engine, over its loopback.

mod engine;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use engine::{ADDRESS, group, start};
use sidecore_client::blocking::{TcpListener, TcpStream};
use sidecore_client::{Opt, RawSocket, Share};
use sidecore_engine::EngineHandle;

#[test]
fn an_error_behind_bytes_is_told_by_the_next_call() {
    let engine = start();
    let sockets = group(&engine);
    let listener = TcpListener::bind(&sockets, (ADDRESS, 0)).unwrap();
    let local = listener.local_addr().unwrap();
    let ours = RawSocket::connect(&sockets, None, &[], local).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    theirs.set_option(Opt::Linger, 0).unwrap();
    drop(theirs);
    let read = || ours.read(&mut [IoSliceMut::new(&mut [0; 8])], false);
    let error = ours.block(None, read).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // It came behind bytes, say, and nobody saw it.
    ours.tell_again(&error);
    let write = || ours.write(&[IoSlice::new(b"x")], 0).unwrap_err();
    assert_eq!(write().kind(), ErrorKind::ConnectionReset);
    assert_eq!(write().kind(), ErrorKind::BrokenPipe);
    // That it was told is nothing to tell again.
    ours.tell_again(&write());
    assert_eq!(write().kind(), ErrorKind::BrokenPipe);
    engine.stop();
}

#[test]
fn a_connection_that_came_to_a_listener_at_its_end_ends_with_it() {
    let engine = start();
    let (ours, theirs) = (group(&engine), group(&engine));
    let address = (ADDRESS.parse::<IpAddr>().unwrap(), 0).into();
    let listener = RawSocket::listen(&ours, address, &[], 4, Share::default()).unwrap();
    let local = listener.local_address().unwrap();
    // It has an accept waiting, and looks after its queue no more.
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let client = TcpStream::connect(&theirs, local).unwrap();
    listener.finish_listening(Duration::from_secs(20));
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // By a FIN or a reset, as the engine had it accepted already or not.
    match (&client).read(&mut [0; 1]) {
        Ok(n) => assert_eq!(n, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    engine.stop();
}

#[test]
fn what_nobody_took_is_for_a_copy_of_the_listener() {
    let engine = start();
    let (ours, others, theirs) = (group(&engine), group(&engine), group(&engine));
    let address = (ADDRESS.parse::<IpAddr>().unwrap(), 0).into();
    let share = Share { key: 9, copies: 9 };
    let listener = RawSocket::listen(&ours, address, &[], 4, share).unwrap();
    let local = listener.local_address().unwrap();
    let copy = RawSocket::listen(&others, local, &[], 4, share).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut clients = Vec::new();
    for word in [b"one", b"two"] {
        let client = TcpStream::connect(&theirs, local).unwrap();
        (&client).write_all(word).unwrap();
        clients.push(client);
    }
    // One is known here, the other is in the event queue, perhaps.
    let known = || match listener.ready().read {
        true => Ok(()),
        false => Err(ErrorKind::WouldBlock.into()),
    };
    listener.block(None, known).unwrap();
    listener.finish_listening(Duration::from_secs(20));
    for word in [b"one", b"two"] {
        let (taken, _) = copy.block(None, || copy.accept()).unwrap();
        let mut bytes = [0; 3];
        let read = || taken.read(&mut [IoSliceMut::new(&mut bytes)], false);
        assert_eq!(taken.block(None, read).unwrap(), 3);
        assert_eq!(&bytes, word);
    }
    engine.stop();
}

#[test]
fn datagrams_of_one_call_go_all_or_not_at_all() {
    const EACH: usize = 100;
    let engine = start();
    let (ours, theirs) = (group(&engine), group(&engine));
    let local = (ADDRESS.parse::<IpAddr>().unwrap(), 0).into();
    let sender = RawSocket::datagram(&ours, local, &[]).unwrap();
    let receiver = RawSocket::datagram(&theirs, local, &[]).unwrap();
    let to = Some(receiver.local_address().unwrap());
    // Each says which it is; the last is shorter.
    let call: Vec<u8> = (0..EACH as u64).flat_map(u64::to_be_bytes).collect();
    let call = &call[..call.len() - 1];
    // Nobody looks at what became of them meanwhile, so that they count as on their way: before there are too many, one call still finds
    // room for all of its own, and the next for none.
    for _ in 0..3 {
        assert_eq!(sender.send_each_to(call, 8, to).unwrap(), call.len());
    }
    let refused = sender.send_each_to(call, 8, to).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    let end = || sender.send_each_to(b"", 0, to);
    assert_eq!(sender.block(None, end).unwrap(), 0);
    let mut room = [0; 100];
    let mut next = || {
        let one = || receiver.receive_from(&mut room, false);
        let (len, _, _) = receiver.block(None, one).unwrap();
        room[..len].to_vec()
    };
    for _ in 0..3 {
        assert!(call.chunks(8).all(|one| next() == one));
    }
    assert_eq!(next(), b"", "of the refused one none came");
    let many = sender.send_each_to(&[0; 129], 1, to).unwrap_err();
    assert_eq!(many.kind(), ErrorKind::InvalidInput);
    engine.stop();
}

/// Commands that the engine has read so far.
fn commands(engine: &EngineHandle) -> u64 {
    let stat = engine.stat_json().unwrap();
    let (_, after) = stat.split_once("\"commands\":").unwrap();
    let digits = after.trim_start().split(|c: char| !c.is_ascii_digit());
    digits.into_iter().next().unwrap().parse().unwrap()
}

#[test]
fn options_that_wait_are_set_soon_though_nobody_looks_any_more() {
    let engine = start();
    let sockets = group(&engine);
    let listener = TcpListener::bind(&sockets, (ADDRESS, 0)).unwrap();
    let local = listener.local_addr().unwrap();
    let ours = RawSocket::connect(&sockets, None, &[], local).unwrap();
    let (_theirs, _) = listener.accept().unwrap();
    ours.block(None, || ours.connected()).unwrap();
    // As it is once a thread has slept.
    sockets.prepare_rest().unwrap();
    for _ in 0..2 {
        // What was posted before was read.
        assert_eq!(ours.option(Opt::NoDelay).unwrap(), 0);
        let before = commands(&engine);
        ours.set_option(Opt::Keepalive, 1);
        ours.set_option(Opt::KeepaliveIdle, 300_000_000);
        let end = Instant::now() + Duration::from_secs(60);
        while commands(&engine) == before && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(commands(&engine), before + 1, "one for both");
    }
    engine.stop();
}

#[test]
fn options_that_wait_are_set_when_somebody_looks_or_asks() {
    let engine = start();
    let sockets = group(&engine);
    let listener = TcpListener::bind(&sockets, (ADDRESS, 0)).unwrap();
    let local = listener.local_addr().unwrap();
    let ours = RawSocket::connect(&sockets, None, &[], local).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    ours.block(None, || ours.connected()).unwrap();
    let options = [
        (Opt::Keepalive, 1),
        (Opt::KeepaliveIdle, 300_000_000),
        (Opt::KeepaliveProbes, 3),
    ];
    for (option, value) in options {
        ours.set_option(option, value);
    }
    for (option, value) in options {
        assert_eq!(ours.option(option).unwrap(), value, "{option:?}");
    }

    // One command for all, and that when somebody looks.
    let before = commands(&engine);
    for (option, value) in options {
        ours.set_option(option, value);
    }
    assert_eq!(commands(&engine), before);
    ours.turn();
    let end = Instant::now() + Duration::from_secs(20);
    while commands(&engine) == before && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(commands(&engine), before + 1);

    // Once bytes are on their way, what may let them go is told at once.
    ours.write(&[IoSlice::new(b"x")], 0).unwrap();
    // The write was read, too.
    assert_eq!(ours.option(Opt::NoDelay).unwrap(), 0);
    let before = commands(&engine);
    ours.set_option(Opt::NoDelay, 1);
    while commands(&engine) == before && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(commands(&engine), before + 1);
    drop(theirs);
    engine.stop();
}
