//! Echo over a ring, and its rules.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use super::*;

const LISTENER: FileSlot = FileSlot(0);
const SECOND: Duration = Duration::from_secs(1);

fn small() -> Ring {
    let config = RingConfig {
        entries: 8,
        completions: 64,
        buffers: 4,
        buffer_bytes: 16,
        files: 8,
    };
    Ring::new(&config).unwrap()
}

fn next(ring: &mut Ring) -> Completion {
    for _ in 0..50 {
        if let Some(completion) = ring.complete() {
            return completion;
        }
        ring.submit(1, Some(SECOND / 10)).unwrap();
    }
    panic!("nothing completed");
}

/// A ring with one accepted connection that receives, and the peer's end.
fn connected() -> (Ring, TcpStream, FileSlot) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut ring = small();
    ring.register(LISTENER, listener.as_fd()).unwrap();
    ring.accept(LISTENER, 7).unwrap();
    let accepted = next(&mut ring);
    assert_eq!(
        (accepted.operation, accepted.token, accepted.more),
        (Operation::Accept, 7, true)
    );
    let slot = FileSlot(accepted.result.unwrap());
    ring.receive(slot, 9).unwrap();
    ring.submit(0, None).unwrap();
    (ring, peer, slot)
}

#[test]
fn what_is_received_is_sent_back_from_the_same_buffer() {
    let (mut ring, mut peer, slot) = connected();
    for round in 0..20u8 {
        peer.write_all(&[round; 10]).unwrap();
        let received = next(&mut ring);
        assert_eq!(
            (received.operation, received.token),
            (Operation::Receive, 9)
        );
        let buffer = received.buffer.unwrap();
        assert_eq!(ring.bytes(&buffer), [round; 10]);
        ring.send(slot, 9, buffer).unwrap();
        let sent = next(&mut ring);
        assert_eq!(
            (sent.operation, sent.result.unwrap()),
            (Operation::Send, 10)
        );
        ring.provide(sent.buffer.unwrap());
        let mut back = [0; 10];
        peer.read_exact(&mut back).unwrap();
        assert_eq!(back, [round; 10]);
    }
}

#[test]
fn receiving_stops_when_no_buffer_is_left_and_can_be_asked_again() {
    let (mut ring, mut peer, slot) = connected();
    peer.write_all(&[1; 16 * 4 + 5]).unwrap();
    let mut held = Vec::new();
    loop {
        let completion = next(&mut ring);
        match completion.buffer {
            Some(buffer) => held.push(buffer),
            None => {
                let error = completion.result.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
                assert!(!completion.more);
                break;
            }
        }
    }
    assert_eq!(held.len(), 4);
    held.into_iter().for_each(|buffer| ring.provide(buffer));
    ring.receive(slot, 9).unwrap();
    let rest = next(&mut ring).buffer.unwrap();
    assert_eq!(ring.bytes(&rest), [1; 5]);
}

#[test]
fn shared_bytes_arrive_whole_and_the_end_is_seen() {
    let (mut ring, mut peer, slot) = connected();
    let bytes: Arc<[u8]> = (0..1_000_000u32).map(|i| i as u8).collect();
    ring.send_shared(slot, 3, &bytes).unwrap();
    ring.submit(0, None).unwrap();
    let reader = std::thread::spawn(move || {
        let mut back = vec![0; 1_000_000];
        peer.read_exact(&mut back).unwrap();
        back
    });
    let sent = next(&mut ring);
    assert_eq!((sent.token, sent.result.unwrap()), (3, 1_000_000));
    assert!(sent.buffer.is_none());
    assert_eq!(Arc::strong_count(&bytes), 1);
    assert_eq!(reader.join().unwrap()[..], bytes[..]);
    let end = next(&mut ring);
    assert_eq!(
        (end.operation, end.result.unwrap()),
        (Operation::Receive, 0)
    );
    ring.close(slot, 4).unwrap();
    assert_eq!(next(&mut ring).operation, Operation::Close);
}

#[test]
fn a_ring_can_be_dropped_with_operations_in_flight() {
    let (ring, mut peer, _) = connected();
    drop(ring);
    // The connection is closed with the ring, sooner or later.
    peer.set_read_timeout(Some(SECOND * 5)).unwrap();
    assert!(matches!(peer.read(&mut [0; 8]), Ok(0) | Err(_)));
}

#[test]
#[should_panic(expected = "another ring")]
fn a_buffer_of_another_ring_is_refused() {
    let mut ring = small();
    ring.provide(Buffer { id: 2, len: 0 });
}

#[test]
fn odd_sizes_are_refused() {
    let config = RingConfig {
        buffers: 3,
        ..RingConfig::default()
    };
    assert!(Ring::new(&config).is_err());
}
