//! Sockets with the calls of POSIX beneath, against a real engine, over its loopback.

mod engine;

use std::io::{ErrorKind, IoSlice, IoSliceMut};

use engine::{ADDRESS, group, start};
use sidecore_client::blocking::TcpListener;
use sidecore_client::{Opt, RawSocket};

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
