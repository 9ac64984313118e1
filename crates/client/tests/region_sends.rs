//! Sends from memory of the program's own, by a group's sockets: what becomes of each is told once.

mod engine;

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use engine::{ADDRESS, group, start};
use sidecore_client::{RawSocket, Region, Share, Shut, Sockets};

const PATIENCE: Duration = Duration::from_secs(30);
const LEN: u32 = 1 << 20;

/// Two connected sockets of a group.
fn pair(sockets: &Sockets) -> (RawSocket, RawSocket) {
    let any: SocketAddr = format!("{ADDRESS}:0").parse().unwrap();
    let listener = RawSocket::listen(sockets, any, &[], 16, Share::default()).unwrap();
    let peer = listener.local_address().unwrap();
    let client = RawSocket::connect(sockets, None, &[], peer).unwrap();
    let deadline = Some(Instant::now() + PATIENCE);
    let (server, _) = listener.block(deadline, || listener.accept()).unwrap();
    client.block(deadline, || client.connected()).unwrap();
    (client, server)
}

/// A region of bytes that no two places have alike.
fn region(sockets: &Sockets) -> (Region, Vec<u8>) {
    let region = sockets.ual().allocate_region(LEN.into(), false).unwrap();
    let bytes: Vec<u8> = (0..LEN).map(|n| (n * 31 + n / 256) as u8).collect();
    region.write(0, &bytes).unwrap();
    (region, bytes)
}

type Told = (u32, Result<(), ErrorKind>);

fn tell(to: &Sender<Told>, which: u32) -> impl Fn(io::Result<()>) + Send + Sync + 'static {
    let to = to.clone();
    move |result| {
        to.send((which, result.map_err(|error| error.kind())))
            .unwrap()
    }
}

/// The next that is told, while this thread looks after the event queue.
fn told(sockets: &Sockets, by: &Receiver<Told>) -> Told {
    let begun = Instant::now();
    loop {
        if let Ok(told) = by.try_recv() {
            return told;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing is told");
        // The engine's end is told by the sends.
        let _ = sockets.turn(Duration::from_millis(10));
    }
}

fn receive(socket: &RawSocket, len: usize) -> Vec<u8> {
    let mut all = vec![0; len];
    let mut got = 0;
    let deadline = Some(Instant::now() + PATIENCE);
    while got < len {
        let rest = &mut all[got..];
        let read = socket.block(deadline, || {
            socket.read(&mut [IoSliceMut::new(&mut *rest)], false)
        });
        let n = read.unwrap();
        assert!(n > 0, "the end after {got}");
        got += n;
    }
    all
}

#[test]
fn bytes_arrive_and_are_told_of_in_order() {
    let engine = start();
    let sockets = group(&engine);
    let (client, server) = pair(&sockets);
    let (region, bytes) = region(&sockets);
    let (to, by) = channel();
    let half = LEN / 2;
    client
        .send_region(&region, (0, half), true, tell(&to, 1))
        .unwrap();
    // A written one between.
    assert_eq!(client.write(&[io::IoSlice::new(b"between")], 0).unwrap(), 7);
    client
        .send_region(&region, (half.into(), half), false, tell(&to, 2))
        .unwrap();
    let got = receive(&server, LEN as usize + 7);
    assert_eq!(&got[..half as usize], &bytes[..half as usize]);
    assert_eq!(&got[half as usize..][..7], b"between");
    assert_eq!(&got[half as usize + 7..], &bytes[half as usize..]);
    assert_eq!(told(&sockets, &by), (1, Ok(())));
    assert_eq!(told(&sockets, &by), (2, Ok(())));
    // Given back, the engine knows it no more: a send from it is refused, and that is told, too.
    sockets.deregister(&region);
    client
        .send_region(&region, (0, 10), false, tell(&to, 3))
        .unwrap();
    let (which, result) = told(&sockets, &by);
    assert_eq!((which, result.is_err()), (3, true));
    engine.stop();
}

#[test]
fn what_cannot_be_sent_is_not_told_of() {
    let engine = start();
    let sockets = group(&engine);
    let (client, _server) = pair(&sockets);
    let (region, _) = region(&sockets);
    let (to, by) = channel();
    let send = |socket: &RawSocket, piece| {
        let sent = socket.send_region(&region, piece, false, tell(&to, 9));
        sent.map_err(|error| error.kind())
    };
    for piece in [(0, LEN + 1), (LEN.into(), 1), (u64::MAX, 1)] {
        assert_eq!(send(&client, piece), Err(ErrorKind::InvalidInput));
    }
    assert_eq!(send(&client, (0, 0)), Err(ErrorKind::Unsupported));
    let any: SocketAddr = format!("{ADDRESS}:0").parse().unwrap();
    let datagram = RawSocket::datagram(&sockets, any, &[]).unwrap();
    assert_eq!(send(&datagram, (0, 1)), Err(ErrorKind::Unsupported));
    client.shutdown(Shut::Write).unwrap();
    assert_eq!(send(&client, (0, 1)), Err(ErrorKind::BrokenPipe));
    let _ = sockets.turn(Duration::from_millis(20));
    assert!(by.try_recv().is_err());
    engine.stop();
}

#[test]
fn many_wait_and_an_engine_that_ends_tells_of_all() {
    let engine = start();
    let sockets = group(&engine);
    let (client, _server) = pair(&sockets);
    let (region, _) = region(&sockets);
    let (to, by) = channel();
    // Nobody reads: the window closes, and then no more are taken.
    let mut posted = 0;
    let full = loop {
        match client.send_region(&region, (0, LEN), false, tell(&to, posted)) {
            Ok(()) => posted += 1,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(full, ErrorKind::WouldBlock);
    assert!(!client.ready().write);
    engine.stop();
    let mut failed = 0;
    for n in 0..posted {
        let (which, result) = told(&sockets, &by);
        assert_eq!(which, n, "in order");
        failed += u32::from(result.is_err());
    }
    assert!(failed > 0);
    assert!(by.try_recv().is_err(), "once each");
}
