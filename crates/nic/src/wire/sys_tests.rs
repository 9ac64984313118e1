use super::*;

/// The mark that the tests use: the frame's length.
fn put(sender: &mut Sender, frame: &[u8]) -> bool {
    match sender.begin(frame.len() as u64) {
        Some(memory) => {
            memory.copy_from_slice(frame);
            sender.commit(frame.len() as u64);
            true
        }
        None => false,
    }
}

fn take(receiver: &mut Receiver) -> Option<(u32, u32)> {
    let len = receiver.peek()?;
    Some((receiver.take(len), len as u32))
}

#[test]
fn frames_come_out_as_they_went_in() {
    let (mut sender, mut receiver) = ring(0, 1514);
    assert!(receiver.is_empty() && receiver.peek().is_none());
    assert!(put(&mut sender, b"one") && put(&mut sender, &[2; 1514]));
    assert!(!receiver.is_empty());
    let first = take(&mut receiver).unwrap();
    let second = take(&mut receiver).unwrap();
    assert_eq!(take(&mut receiver), None);
    assert_eq!(receiver.frame(first.0, first.1), b"one");
    assert_eq!(receiver.frame(second.0, second.1), [2; 1514]);
    receiver.release();
    assert_eq!(receiver.frame(first.0, first.1), b"");
}

#[test]
fn the_ring_fills_up_and_empties_at_every_offset() {
    let (mut sender, mut receiver) = ring(0, 1000);
    let mut sent = 0u32;
    let mut received = 0u32;
    for round in 0..if cfg!(miri) { 10 } else { 500u32 } {
        // Lengths of 4 to 1000 bytes, so that records end everywhere.
        let frame = |n: u32| vec![n as u8; 4 + (n as usize * 37 + round as usize) % 997];
        let mut pending = Vec::new();
        while put(&mut sender, &frame(sent)) {
            pending.push(frame(sent));
            sent += 1;
        }
        assert!(!sender.has_room());
        assert!(
            pending.len() >= 3,
            "at least three records of the greatest length fit"
        );
        let mut taken = Vec::new();
        while let Some((token, len)) = take(&mut receiver) {
            taken.push((token, len));
            received += 1;
        }
        assert_eq!(taken.len(), pending.len());
        for ((token, len), frame) in taken.iter().zip(&pending) {
            assert_eq!(receiver.frame(*token, *len), frame);
        }
        receiver.release();
    }
    assert_eq!(sent, received);
    assert!(sender.has_room());
}

#[test]
fn room_promised_is_room() {
    let (mut sender, mut receiver) = ring(0, 3000);
    for n in 0..if cfg!(miri) { 300 } else { 10_000usize } {
        if sender.has_room() {
            assert!(put(
                &mut sender,
                &vec![1; if n % 3 == 0 { 3000 } else { n % 200 + 1 }]
            ));
        } else {
            assert!(take(&mut receiver).is_some());
            receiver.release();
        }
    }
}

#[test]
fn too_long_and_empty_frames_are_refused() {
    let (mut sender, _receiver) = ring(0, 100);
    assert!(sender.begin(101).is_none() && sender.begin(0).is_none());
    assert!(sender.begin(100).is_some());
}

#[test]
fn what_is_begun_and_not_committed_is_not_sent() {
    let (mut sender, mut receiver) = ring(0, 100);
    sender.begin(50).unwrap().fill(9);
    assert!(receiver.is_empty());
    assert!(put(&mut sender, b"x"));
    let (token, len) = take(&mut receiver).unwrap();
    assert_eq!(receiver.frame(token, len), b"x");
    sender.commit(5);
    assert!(take(&mut receiver).is_none(), "nothing was begun");
}

#[test]
fn forged_tokens_see_nothing_but_taken_records() {
    let (mut sender, mut receiver) = ring(0, 1000);
    for _ in 0..3 {
        put(&mut sender, &[7; 1000]);
        take(&mut receiver).unwrap();
        receiver.release();
    }
    put(&mut sender, &[1; 54]);
    let (token, len) = take(&mut receiver).unwrap();
    assert_eq!(receiver.frame(token, len), [1; 54]);
    for token in (0..200).chain([u32::MAX]) {
        for len in [0, 1, 54, 55, 1000, u32::MAX] {
            let frame = receiver.frame(token, len);
            assert!(frame.len() <= 54);
        }
    }
}

#[test]
fn two_threads_exchange_whole_frames_in_order() {
    const FRAMES: u32 = if cfg!(miri) { 300 } else { 200_000 };
    let (mut sender, mut receiver) = ring(0, 700);
    let length = |n: u32| 8 + (n.wrapping_mul(2_654_435_761) >> 8) as usize % 690;
    let writer = std::thread::spawn(move || {
        let mut n = 0;
        while n < FRAMES {
            let mut frame = vec![n as u8; length(n)];
            frame[..4].copy_from_slice(&n.to_ne_bytes());
            if put(&mut sender, &frame) {
                n += 1;
            } else {
                std::thread::yield_now();
            }
        }
    });
    let mut n = 0;
    while n < FRAMES {
        let mut burst = 0;
        while burst < 5 {
            let Some((token, len)) = take(&mut receiver) else {
                break;
            };
            let frame = receiver.frame(token, len);
            assert_eq!(frame.len(), length(n));
            assert_eq!(frame[..4], n.to_ne_bytes());
            assert!(frame[4..].iter().all(|&b| b == n as u8));
            n += 1;
            burst += 1;
        }
        receiver.release();
        if burst == 0 {
            std::thread::yield_now();
        }
    }
    assert!(receiver.is_empty());
    writer.join().unwrap();
}
