//! Connections change hands between UALs, and are carried by the custodian, over an engine's loopback.

mod engine;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use engine::{ADDRESS, group, start};
use sidecore_client::blocking::{TcpListener, TcpStream};
use sidecore_client::custody::{Adopted, Release};
use sidecore_client::{HandedOver, Opt, RawSocket, Share, Shut, Sockets, is_elsewhere};
use sidecore_engine::EngineHandle;

const PATIENCE: Duration = Duration::from_secs(60);
const MEGABYTE: usize = 1 << 20;

/// An engine with a custodian.
fn ground() -> EngineHandle {
    let engine = start();
    sidecore_proxy::spawn(engine.connect().unwrap()).unwrap();
    engine
}

/// Bytes of a stream that differ wherever it is cut.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    (from..from + len).map(byte).collect()
}

/// A connection: one end as the preload library has it, with the descriptor that stands for it; the other an ordinary stream.
struct Pair {
    raw: RawSocket,
    number: u64,
    fd: OwnedFd,
    peer: TcpStream,
}

fn pair(ours: &Sockets, theirs: &Sockets) -> Pair {
    let listener = TcpListener::bind(theirs, (ADDRESS, 0)).unwrap();
    let at: SocketAddr = listener.local_addr().unwrap();
    let raw = RawSocket::connect(ours, None, &[], at).unwrap();
    let (peer, _) = listener.accept().unwrap();
    raw.block(None, || raw.connected()).unwrap();
    let (number, mut fds) = ours.ual().descriptors(1).unwrap();
    raw.set_number(number);
    Pair {
        raw,
        number,
        fd: fds.pop().unwrap(),
        peer,
    }
}

fn read_some(raw: &RawSocket, out: &mut [u8]) -> usize {
    let mut list = [IoSliceMut::new(out)];
    raw.block(None, || raw.read(&mut list, false)).unwrap()
}

fn read_exact(raw: &RawSocket, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut at = 0;
    while at < len {
        let n = read_some(raw, &mut bytes[at..]);
        assert_ne!(n, 0, "the end after {at} of {len} bytes");
        at += n;
    }
    bytes
}

fn write_all(raw: &RawSocket, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = raw
            .block(None, || raw.write(&[IoSlice::new(bytes)], 0))
            .unwrap();
        bytes = &bytes[n..];
    }
}

/// Hands over as the library does when it closes its last number: the descriptor is for `holders` others.
fn release(sockets: &Sockets, pair: &Pair, holders: u32, left: bool) {
    let socket = pair.raw.hand_over(pair.number, 0).unwrap();
    let released = Release {
        socket,
        holders,
        left,
        ..Release::default()
    };
    sockets.ual().release(pair.number, &released).unwrap();
}

/// What a holder does that has the connection for itself from now on.
fn adopt(sockets: &Sockets, number: u64, fd: &OwnedFd) -> Option<RawSocket> {
    match sockets.ual().adopt(fd.as_fd(), number, 0, false).unwrap() {
        Adopted::Yours { from, bytes, .. } => {
            let mut before = rest_of(fd);
            before.extend(bytes);
            Some(sockets.take_over(from, number, before).unwrap())
        }
        Adopted::Shared { .. } => None,
        other => panic!("{other:?}"),
    }
}

/// What is in a descriptor now.
fn rest_of(fd: &OwnedFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut part = [0; 65536];
    loop {
        match rustix::net::recv(fd, &mut part[..], rustix::net::RecvFlags::DONTWAIT) {
            Ok((n, _)) if n > 0 => bytes.extend_from_slice(&part[..n]),
            _ => return bytes,
        }
    }
}

fn adopt_in_time(sockets: &Sockets, number: u64, fd: &OwnedFd) -> RawSocket {
    let begun = Instant::now();
    loop {
        if let Some(raw) = adopt(sockets, number, fd) {
            return raw;
        }
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the engine's figures of connections are as wished.
fn wait_for_modes(engine: &EngineHandle, wished: &[&str]) {
    let begun = Instant::now();
    loop {
        let text = engine.stat_json().unwrap();
        let count = |mode: &str| text.matches(&format!("\"mode\":\"{mode}\"")).count();
        let all = ["fast", "proxied", "shared"].map(count);
        let wish = ["fast", "proxied", "shared"]
            .map(|mode| wished.iter().filter(|wish| **wish == mode).count());
        if all == wish {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{all:?}, not {wish:?}: {text}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_is_handed_over_in_the_middle_of_transfers_and_no_byte_is_lost() {
    let engine = ground();
    let (ours, theirs) = (group(&engine), group(&engine));
    let pair = pair(&ours, &theirs);
    let len = 8 * MEGABYTE;
    let (reader, writer) = (
        pair.peer.try_clone().unwrap(),
        pair.peer.try_clone().unwrap(),
    );
    let sender = thread::spawn(move || {
        let mut writer = writer;
        writer.write_all(&pattern(0, len)).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let receiver = thread::spawn(move || {
        let mut reader = reader;
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        all
    });
    let up = pattern(7, 4 * MEGABYTE);
    let mut got = read_exact(&pair.raw, MEGABYTE);
    // More than what a window lets out at once, so that some is not acknowledged.
    let n = pair.raw.write(&[IoSlice::new(&up)], 0).unwrap();
    release(&ours, &pair, 1, true);
    let error = pair.raw.read(&mut [IoSliceMut::new(&mut [0])], false);
    assert!(is_elsewhere(&error.unwrap_err()));
    assert!(is_elsewhere(&pair.raw.hand_over(1, 0).unwrap_err()));
    let fd = UnixStream::from(pair.fd);
    let rest = up[n..].to_vec();
    let mut into = fd.try_clone().unwrap();
    let writing = thread::spawn(move || {
        into.write_all(&rest).unwrap();
        into.shutdown(std::net::Shutdown::Write).unwrap();
    });
    (&fd).read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    sender.join().unwrap();
    assert!(got == pattern(0, len), "{} bytes came", got.len());
    let received = receiver.join().unwrap();
    assert!(received == up, "{} bytes went", received.len());
    drop((fd, pair.peer, pair.raw));
    wait_for_modes(&engine, &[]);
}

#[test]
fn a_connection_goes_on_to_the_last_holder_and_is_fast_there() {
    let engine = ground();
    let (ours, theirs, child) = (group(&engine), group(&engine), group(&engine));
    let mut pair = pair(&ours, &theirs);
    wait_for_modes(&engine, &["fast", "fast"]);
    let len = 6 * MEGABYTE;
    let mut writer = pair.peer.try_clone().unwrap();
    let sender = thread::spawn(move || writer.write_all(&pattern(0, len)).unwrap());
    let mut got = read_exact(&pair.raw, 1000);
    release(&ours, &pair, 1, false);
    // Both hold it now.
    wait_for_modes(&engine, &["fast", "shared"]);
    assert!(adopt(&child, pair.number, &pair.fd).is_none());
    let mut some = vec![0; 100_000];
    let n = rustix::io::read(&pair.fd, &mut some[..]).unwrap();
    got.extend_from_slice(&some[..n]);
    rustix::io::write(&pair.fd, b"from the first, ").unwrap();
    ours.ual().leave(pair.number, 0, false).unwrap();
    wait_for_modes(&engine, &["fast", "proxied"]);
    rustix::io::write(&pair.fd, b"from the second, ").unwrap();
    let raw = adopt_in_time(&child, pair.number, &pair.fd);
    write_all(&raw, b"from the fast one");
    wait_for_modes(&engine, &["fast", "fast"]);
    got.extend(read_exact(&raw, len - got.len()));
    assert!(got == pattern(0, len));
    sender.join().unwrap();
    let mut text = [0; 50];
    pair.peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"from the first, from the second, from the fast one");
    // And back again, with bytes that were not read.
    pair.peer.write_all(b"unread").unwrap();
    raw.block(None, || match raw.available() {
        6 => Ok(()),
        _ => Err(ErrorKind::WouldBlock.into()),
    })
    .unwrap();
    let back = Pair { raw, ..pair };
    release(&child, &back, 0, false);
    let mut text = [0; 6];
    UnixStream::from(back.fd).read_exact(&mut text).unwrap();
    assert_eq!(&text, b"unread");
}

#[test]
fn a_connection_goes_to_and_fro_many_times() {
    let engine = ground();
    let (ours, theirs) = (group(&engine), group(&engine));
    let mut pair = pair(&ours, &theirs);
    for round in 0..50u8 {
        pair.peer.write_all(&[round; 3]).unwrap();
        assert_eq!(read_exact(&pair.raw, 1), [round]);
        release(&ours, &pair, 0, false);
        let mut byte = [0];
        rustix::io::read(&pair.fd, &mut byte[..]).unwrap();
        rustix::io::write(&pair.fd, &[round]).unwrap();
        pair.raw = adopt_in_time(&ours, pair.number, &pair.fd);
        assert_eq!((byte, read_exact(&pair.raw, 1)), ([round], vec![round]));
        write_all(&pair.raw, &[round]);
        let mut both = [0; 2];
        pair.peer.read_exact(&mut both).unwrap();
        assert_eq!(both, [round; 2]);
    }
}

#[test]
fn ends_reach_the_other_side() {
    let engine = ground();
    let (ours, theirs) = (group(&engine), group(&engine));
    // The last holder closes: what was written arrives, then the end.
    let mut first = pair(&ours, &theirs);
    release(&ours, &first, 1, true);
    let mut fd = UnixStream::from(first.fd);
    fd.write_all(&pattern(0, 300_000)).unwrap();
    drop(fd);
    let mut all = Vec::new();
    first.peer.read_to_end(&mut all).unwrap();
    assert!(all == pattern(0, 300_000));
    drop((first.peer, first.raw));
    wait_for_modes(&engine, &[]);
    // It was closed for writing before it was handed over.
    let mut second = pair(&ours, &theirs);
    write_all(&second.raw, b"last words");
    second.raw.shutdown(Shut::Write).unwrap();
    release(&ours, &second, 1, true);
    let mut all = Vec::new();
    second.peer.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"last words");
    second.peer.write_all(b"an answer").unwrap();
    second.peer.shutdown(std::net::Shutdown::Write).unwrap();
    let mut fd = UnixStream::from(second.fd);
    let mut all = Vec::new();
    fd.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"an answer");
    drop((fd, second.peer, second.raw));
    wait_for_modes(&engine, &[]);
    // The peer ended before: the end is told again to the next owner.
    let third = pair(&ours, &theirs);
    third.peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_some(&third.raw, &mut [0; 8]), 0);
    release(&ours, &third, 1, true);
    let raw = adopt_in_time(&theirs, third.number, &third.fd);
    assert_eq!(read_some(&raw, &mut [0; 8]), 0);
    write_all(&raw, b"still open");
    drop(raw);
    let mut all = Vec::new();
    let mut peer = third.peer;
    peer.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"still open");
}

#[test]
fn a_reset_ends_the_holders_descriptor_after_what_came_before() {
    let engine = ground();
    let (ours, theirs) = (group(&engine), group(&engine));
    let pair = pair(&ours, &theirs);
    let mut peer = pair.peer;
    peer.write_all(b"before the reset").unwrap();
    let mut start = [0; 6];
    assert_eq!(read_some(&pair.raw, &mut start), 6);
    let released = Release {
        socket: pair.raw.hand_over(pair.number, 0).unwrap(),
        holders: 1,
        left: true,
        ..Release::default()
    };
    assert_eq!(released.socket.bytes, b" the reset");
    ours.ual().release(pair.number, &released).unwrap();
    let fd = UnixStream::from(pair.fd);
    fd.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = [0; 10];
    (&fd).read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b" the reset");
    peer.set_option(Opt::Linger, 0).unwrap();
    drop(peer);
    let end = (&fd).read(&mut [0; 10]);
    let reset = end
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    assert!(reset || end.is_ok_and(|n| n == 0));
    wait_for_modes(&engine, &[]);
}

#[test]
fn what_was_over_already_is_read_from_the_descriptor() {
    let engine = ground();
    let (ours, theirs) = (group(&engine), group(&engine));
    let mut pair = pair(&ours, &theirs);
    pair.peer.write_all(b"all there is").unwrap();
    pair.raw.shutdown(Shut::Write).unwrap();
    pair.peer.read_to_end(&mut Vec::new()).unwrap();
    drop(pair.peer);
    // Both directions have ended: the engine knows the connection no more.
    pair.raw
        .block(None, || match pair.raw.ready().hung_up {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        })
        .unwrap();
    let left = pair.raw.hand_over(pair.number, 0).unwrap();
    assert_eq!(left.bytes, b"all there is");
    let released = Release {
        socket: left,
        left: true,
        holders: 1,
        ..Release::default()
    };
    ours.ual().release(pair.number, &released).unwrap();
    let mut all = Vec::new();
    UnixStream::from(pair.fd).read_to_end(&mut all).unwrap();
    assert_eq!(all, b"all there is");
}

/// Writes until it would have waited for some time; how much.
fn fill(mut write: impl FnMut(&[u8]) -> std::io::Result<usize>) -> usize {
    let (mut total, mut quiet) = (0, Instant::now());
    while quiet.elapsed() < Duration::from_millis(300) {
        match write(&pattern(total, 65536)) {
            Ok(n) => {
                total += n;
                quiet = Instant::now();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(total < 64 * MEGABYTE, "nothing stops it");
    }
    total
}

#[test]
fn who_does_not_read_stops_whoever_writes() {
    let engine = ground();
    let (ours, theirs) = (group(&engine), group(&engine));
    let pair = pair(&ours, &theirs);
    release(&ours, &pair, 1, true);
    // Down: the peer writes until it would wait.
    let peer = pair.peer;
    peer.set_nonblocking(true).unwrap();
    let down = fill(|bytes| (&peer).write(bytes));
    let fd = UnixStream::from(pair.fd);
    fd.set_nonblocking(true).unwrap();
    let up = fill(|bytes| (&fd).write(bytes));
    peer.set_nonblocking(false).unwrap();
    fd.set_nonblocking(false).unwrap();
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; down];
        (&fd).read_exact(&mut bytes).unwrap();
        (bytes, fd)
    });
    let mut bytes = vec![0; up];
    (&peer).read_exact(&mut bytes).unwrap();
    assert!(bytes == pattern(0, up));
    let (bytes, _fd) = reader.join().unwrap();
    assert!(bytes == pattern(0, down));
}

#[test]
fn an_owner_is_asked_to_hand_over_by_another_holder_and_by_bytes_in_the_descriptor() {
    let engine = ground();
    let (ours, theirs, child) = (group(&engine), group(&engine), group(&engine));
    let (tell, asked) = mpsc::channel();
    ours.ual()
        .on_recall(move |number| tell.send(number).unwrap())
        .unwrap();
    let error = ours.ual().on_recall(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "once only");
    let mut first = pair(&ours, &theirs);
    assert!(adopt(&child, first.number, &first.fd).is_none());
    assert!(adopt(&child, first.number, &first.fd).is_none());
    // Each wish is told.
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), first.number);
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), first.number);
    // A thread that waits in a read is sent elsewhere.
    let raw = first.raw.clone();
    let blocked = thread::spawn(move || {
        let mut byte = [0];
        raw.block(None, || raw.read(&mut [IoSliceMut::new(&mut byte)], false))
    });
    release(&ours, &first, 1, true);
    assert!(is_elsewhere(&blocked.join().unwrap().unwrap_err()));
    first.peer.write_all(b"for the child").unwrap();
    let raw = adopt_in_time(&child, first.number, &first.fd);
    assert_eq!(read_exact(&raw, 13), b"for the child");

    let mut second = pair(&ours, &theirs);
    rustix::io::write(&second.fd, b"raw").unwrap();
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), second.number);
    release(&ours, &second, 0, false);
    let mut text = [0; 3];
    second.peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"raw");
}

#[test]
fn others_keep_the_connections_of_a_process_that_died() {
    let engine = ground();
    let (parent, theirs, child) = (group(&engine), group(&engine), group(&engine));
    let mut pair = pair(&parent, &theirs);
    parent.ual().spread().unwrap();
    write_all(&pair.raw, b"the parent's, ");
    // A process that dies closes nothing by itself.
    std::mem::forget(pair.raw);
    parent.ual().disconnect();
    let fd = UnixStream::from(pair.fd.try_clone().unwrap());
    wait_for_modes(&engine, &["fast", "proxied"]);
    (&fd).write_all(b"the child's").unwrap();
    let mut text = [0; 25];
    pair.peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"the parent's, the child's");
    drop(fd);
    // Nobody told of the child, so it is not sure that it is alone; it says so itself.
    pair.peer.write_all(b"hello").unwrap();
    let raw = adopt_in_time(&child, pair.number, &pair.fd);
    assert_eq!(read_exact(&raw, 5), b"hello");
}

#[test]
fn without_other_holders_connections_die_with_their_process() {
    let engine = ground();
    let (parent, theirs) = (group(&engine), group(&engine));
    let mut pair = pair(&parent, &theirs);
    std::mem::forget(pair.raw);
    parent.ual().disconnect();
    let end = pair.peer.read(&mut [0; 8]);
    assert!(matches!(end, Ok(0) | Err(_)));
    // Whoever finds the descriptor afterwards is told that there is nothing behind it.
    let error = theirs
        .ual()
        .adopt(pair.fd.as_fd(), pair.number, 0, false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
}

#[test]
fn an_engine_without_a_custodian_says_so_and_the_connection_goes_on() {
    let engine = start();
    let (ours, theirs) = (group(&engine), group(&engine));
    let mut pair = pair(&ours, &theirs);
    let error = pair.raw.hand_over(pair.number, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    write_all(&pair.raw, b"here");
    let mut text = [0; 4];
    pair.peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"here");
}

#[test]
fn who_asks_about_a_connection_that_is_gone_is_told_so() {
    let engine = ground();
    let (ours, theirs) = (group(&engine), group(&engine));
    let pair = pair(&ours, &theirs);
    assert!(pair.raw.info().is_ok());
    release(&ours, &pair, 1, true);
    assert!(is_elsewhere(&pair.raw.info().unwrap_err()));
    let option = pair.raw.option(Opt::NotsentLowat);
    assert!(is_elsewhere(&option.unwrap_err()));
}

#[test]
fn listeners_are_described_to_other_holders() {
    let engine = ground();
    let (ours, other) = (group(&engine), group(&engine));
    let (number, fds) = ours.ual().descriptors(1).unwrap();
    let at: SocketAddr = "10.9.0.1:8080".parse().unwrap();
    let share = Share {
        key: 0xfeed,
        copies: 0xbead,
    };
    ours.ual()
        .describe_listener(fds[0].as_fd(), number, at, 17, share, 3)
        .unwrap();
    let found = other.ual().adopt(fds[0].as_fd(), number, 0, false).unwrap();
    let Adopted::Listener {
        address,
        backlog,
        share: found,
        flags,
    } = found
    else {
        panic!("{found:?}");
    };
    assert_eq!((address, backlog, found, flags), (at, 17, share, 3));
    let (_, others) = other.ual().descriptors(1).unwrap();
    let pretended = others[0].as_fd();
    let refused = [
        other
            .ual()
            .describe_listener(pretended, number, at, 1, share, 0),
        other.ual().describe_connection(pretended, number, at),
    ];
    for error in refused {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NotConnected);
    }
    // Who holds it may use it otherwise: a socket that only had its port is connected.
    let held = fds[0].as_fd();
    other.ual().describe_connection(held, number, at).unwrap();
    let error = other.ual().adopt(held, number, 0, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "it is the asker's");
}

#[test]
fn false_claims_are_refused_and_lose_nothing() {
    let engine = ground();
    let (ours, theirs, thief) = (group(&engine), group(&engine), group(&engine));
    let mut victim = pair(&ours, &theirs);
    let own = pair(&thief, &theirs);
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    let adopt = |fd: &OwnedFd, number| {
        let adopted = thief.ual().adopt(fd.as_fd(), number, 0, false);
        adopted.map(|_| ())
    };
    // Without the descriptor, with another, with something else.
    assert_eq!(
        kind(adopt(&own.fd, victim.number)),
        ErrorKind::PermissionDenied
    );
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    assert_eq!(
        kind(adopt(&file, victim.number)),
        ErrorKind::PermissionDenied
    );
    assert_eq!(kind(adopt(&own.fd, u64::MAX)), ErrorKind::PermissionDenied);
    // What is the thief's already.
    assert_eq!(kind(adopt(&own.fd, own.number)), ErrorKind::NotConnected);
    // Somebody else's connection, a number that there is not.
    let nothing = Release::default();
    for number in [victim.number, 0, 4711] {
        assert_eq!(
            kind(thief.ual().release(number, &nothing)),
            ErrorKind::NotConnected
        );
        assert_eq!(
            kind(thief.ual().leave(number, 0, false)),
            ErrorKind::NotConnected
        );
    }
    // Nothing was given to it; and it is no custodian.
    let error = thief.take_over(ours.ual().id(), victim.number, Vec::new());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NotConnected);
    let error = own.raw.hand_over(own.number, ours.ual().id());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(
        own.raw.hand_over(0, 0).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        thief.ual().custody().unwrap_err().kind(),
        ErrorKind::NotConnected
    );
    // It hands its own over under the victim's number, and claims to hold a million more.
    let handed = own.raw.hand_over(victim.number, 0).unwrap();
    assert_eq!(handed, HandedOver::default());
    // Twice.
    release(&ours, &victim, 1, true);
    assert_eq!(
        kind(ours.ual().release(victim.number, &nothing)),
        ErrorKind::NotConnected
    );
    victim.peer.write_all(b"for the victim").unwrap();
    let mut fd = UnixStream::from(victim.fd);
    let mut text = [0; 14];
    fd.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"for the victim");
    fd.write_all(b"from it").unwrap();
    let mut text = [0; 7];
    victim.peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"from it");
}
