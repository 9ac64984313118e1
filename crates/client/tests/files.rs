//! Files to streams, read into the memory that the engine sends from, over an engine's loopback.

mod engine;

use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use engine::{ADDRESS, group, start};
use sidecore_client::blocking::{TcpListener, TcpStream};
use sidecore_client::{RawSocket, Shut, Sockets};

const PATIENCE: Duration = Duration::from_secs(60);

/// A file of the system's memory with these bytes.
fn file(bytes: &[u8]) -> File {
    let fd = rustix::fs::memfd_create("files", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(fd);
    file.write_all(bytes).unwrap();
    file
}

/// Bytes that differ wherever they are cut.
fn pattern(len: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    (0..len).map(byte).collect()
}

fn pair(ours: &Sockets, theirs: &Sockets) -> (RawSocket, TcpStream) {
    let listener = TcpListener::bind(theirs, (ADDRESS, 0)).unwrap();
    let raw = RawSocket::connect(ours, None, &[], listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    raw.block(None, || raw.connected()).unwrap();
    (raw, peer)
}

/// Sends from byte `at` of a file on, `len` bytes of it or to its end.
fn send(raw: &RawSocket, file: &File, mut at: u64, mut len: usize) -> usize {
    let mut sent = 0;
    while len > 0 {
        let one = || raw.send_file(file.as_fd(), at, len, 0);
        match raw.block(None, one).unwrap() {
            0 => break,
            n => {
                assert!(n <= len);
                (at, len, sent) = (at + n as u64, len - n, sent + n);
            }
        }
    }
    sent
}

/// Waits until all memory of sends was given back.
fn wait_for_memory(sockets: &Sockets) {
    let last = Instant::now() + PATIENCE;
    while sockets.send_blocks_used() > 0 {
        assert!(
            Instant::now() < last,
            "{} blocks",
            sockets.send_blocks_used()
        );
        let _ = sockets.turn(Duration::from_millis(1));
    }
}

#[test]
fn a_file_arrives_as_it_is_and_its_memory_comes_back() {
    let engine = start();
    let (ours, theirs) = (group(&engine), group(&engine));
    let (raw, mut peer) = pair(&ours, &theirs);
    // More than a stream may have in flight, of which the reader takes some at a time.
    let bytes = pattern(5 << 20);
    let file = file(&bytes);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        let mut part = vec![0; 100_000];
        loop {
            match peer.read(&mut part).unwrap() {
                0 => return all,
                n => all.extend_from_slice(&part[..n]),
            }
        }
    });
    // From the middle on, across the end, and the beginning.
    assert_eq!(
        send(&raw, &file, 1_000_001, usize::MAX),
        bytes.len() - 1_000_001
    );
    assert_eq!(send(&raw, &file, bytes.len() as u64, 10), 0);
    assert_eq!(send(&raw, &file, 1 << 40, 10), 0);
    assert_eq!(send(&raw, &file, 0, 1_000_001), 1_000_001);
    wait_for_memory(&ours);
    raw.shutdown(Shut::Write).unwrap();
    let all = reader.join().unwrap();
    assert!(all[..bytes.len() - 1_000_001] == bytes[1_000_001..]);
    assert!(all[bytes.len() - 1_000_001..] == bytes[..1_000_001]);
}

#[test]
fn what_is_no_file_to_be_sent_is_told_and_costs_no_memory() {
    let engine = start();
    let (ours, theirs) = (group(&engine), group(&engine));
    let (raw, mut peer) = pair(&ours, &theirs);
    let folder = File::open("/").unwrap();
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let writable = File::options().write(true).open("/dev/null").unwrap();
    let isdir = raw.send_file(folder.as_fd(), 0, 10, 0).unwrap_err();
    assert_eq!(
        isdir.raw_os_error(),
        Some(rustix::io::Errno::ISDIR.raw_os_error())
    );
    let piped = raw.send_file(pipe.as_fd(), 0, 10, 0).unwrap_err();
    assert_eq!(
        piped.raw_os_error(),
        Some(rustix::io::Errno::SPIPE.raw_os_error())
    );
    let closed = raw.send_file(writable.as_fd(), 0, 10, 0).unwrap_err();
    assert_eq!(
        closed.raw_os_error(),
        Some(rustix::io::Errno::BADF.raw_os_error())
    );
    let far = file(b"far");
    let beyond = raw.send_file(far.as_fd(), u64::MAX, 10, 0).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::InvalidInput);
    assert_eq!(raw.send_file(far.as_fd(), 0, 0, 0).unwrap(), 0);
    assert_eq!(ours.send_blocks_used(), 0);
    // The stream is as it was.
    assert_eq!(send(&raw, &far, 0, 3), 3);
    raw.shutdown(Shut::Write).unwrap();
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"far");
    let late = raw.send_file(far.as_fd(), 0, 3, 0).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::BrokenPipe);
    wait_for_memory(&ours);
}

#[test]
fn threads_that_send_files_and_bytes_on_one_stream_keep_their_pieces_whole() {
    const PIECE: usize = 5000;
    const PIECES: usize = 400;
    let engine = start();
    let (ours, theirs) = (group(&engine), group(&engine));
    let (raw, mut peer) = pair(&ours, &theirs);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    });
    // Each piece is of one letter. A part of one that was sent for want of room is told apart by the next letter only, so parts are counted.
    let files = |letter: u8| {
        let raw = raw.clone();
        thread::spawn(move || {
            let file = file(&[letter; PIECE]);
            (0..PIECES).for_each(|_| assert_eq!(send(&raw, &file, 0, PIECE), PIECE));
        })
    };
    let bytes = |letter: u8| {
        let raw = raw.clone();
        thread::spawn(move || {
            for _ in 0..PIECES {
                let mut left = PIECE;
                while left > 0 {
                    let piece = [letter; PIECE];
                    let one = || raw.write(&[IoSlice::new(&piece[..left])], 0);
                    left -= raw.block(None, one).unwrap();
                }
            }
        })
    };
    let threads = [files(b'a'), bytes(b'b'), files(b'c'), bytes(b'd')];
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    raw.shutdown(Shut::Write).unwrap();
    let all = reader.join().unwrap();
    for letter in b'a'..=b'd' {
        let count = all.iter().filter(|byte| **byte == letter).count();
        assert_eq!(count, PIECE * PIECES, "{}", char::from(letter));
    }
    assert_eq!(all.len(), 4 * PIECE * PIECES);
    wait_for_memory(&ours);
}

#[test]
fn a_connection_that_ends_while_its_file_is_sent_costs_no_memory() {
    let engine = start();
    let (ours, theirs) = (group(&engine), group(&engine));
    let file = file(&pattern(1 << 20));
    for _ in 0..10 {
        let (raw, peer) = pair(&ours, &theirs);
        let sender = {
            let (raw, file) = (raw.clone(), file.try_clone().unwrap());
            thread::spawn(move || {
                loop {
                    let one = || raw.send_file(file.as_fd(), 0, 1 << 20, 0);
                    if let Err(error) = raw.block(None, one) {
                        return error.kind();
                    }
                }
            })
        };
        thread::sleep(Duration::from_millis(5));
        drop(peer);
        let end = sender.join().unwrap();
        assert!(
            matches!(end, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
            "{end}"
        );
    }
    wait_for_memory(&ours);
}
