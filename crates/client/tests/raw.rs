//! Sockets with the calls of POSIX beneath, against a real engine, over its loopback.

mod engine;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read};
use std::net::IpAddr;
use std::time::Duration;

use engine::{ADDRESS, group, start};
use sidecore_client::blocking::{TcpListener, TcpStream};
use sidecore_client::{Opt, RawSocket, Share};

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
