//! `RUSTFLAGS="--cfg loom" cargo test --release -p sidecore-nic --lib wire::sys`

use loom::thread;

use super::*;

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

/// The writer sends frames of these lengths, the reader takes `burst` at a time. The ring has 4 to 8 lines, so that
/// records wrap and room runs out.
fn exchange(frame_max: u64, lengths: &'static [usize], burst: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let (mut sender, mut receiver) = ring(0, frame_max);
        let writer = thread::spawn(move || {
            for (n, &len) in lengths.iter().enumerate() {
                while !put(&mut sender, &vec![n as u8 + 1; len]) {
                    thread::yield_now();
                }
            }
        });
        let mut taken = 0;
        while taken < lengths.len() {
            let mut held = Vec::new();
            while held.len() < burst
                && let Some(len) = receiver.peek()
            {
                held.push((receiver.take(len), len as u32));
            }
            for &(token, len) in &held {
                let frame = receiver.frame(token, len);
                assert_eq!(frame.len(), lengths[taken]);
                assert!(frame.iter().all(|&b| b == taken as u8 + 1));
                taken += 1;
            }
            if held.is_empty() {
                thread::yield_now();
            }
            receiver.release();
        }
        assert!(receiver.is_empty());
        writer.join().unwrap();
    });
}

#[test]
fn small_frames_that_fill_the_ring() {
    exchange(50, &[10, 20, 30, 40, 50], 1);
}

#[test]
fn bursts_of_small_frames() {
    exchange(50, &[10, 20, 30, 40], 2);
}

#[test]
fn frames_of_two_lines_that_wrap() {
    exchange(100, &[100, 10, 100, 100], 1);
}
