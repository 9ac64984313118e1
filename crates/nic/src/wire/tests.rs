use std::time::{Duration, Instant};

use sidecore_wire::checksum;

use super::*;
use crate::MemRef;

fn frame<'a>(header: &'a [u8], payload: &'a [MemRef<'a>]) -> TxFrame<'a> {
    TxFrame {
        header,
        payload,
        payload_len: payload.iter().map(|p| p.len() as u32).sum(),
        checksum: None,
        segment_size: 0,
    }
}

fn received(wire: &mut Wire) -> Vec<(Vec<u8>, bool, u16)> {
    let mut burst = RxBurst::new();
    wire.receive(&mut burst);
    let frames = burst
        .into_iter()
        .map(|f| (wire.frame(f).to_vec(), f.checksum_valid, f.gso_size))
        .collect();
    wire.release(&mut burst);
    assert!(burst.is_empty());
    frames
}

fn readable(wire: &Wire, timeout: Duration) -> bool {
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(
        wire.sleep_fd().unwrap(),
        rustix::event::PollFlags::IN,
    )];
    let timeout = timeout.try_into().unwrap();
    rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
}

#[test]
fn frames_cross_both_ways_and_are_gathered() {
    let (mut a, mut b) = pair(&WireConfig::default()).unwrap();
    assert_ne!(a.caps().mac, b.caps().mac);
    let pieces = [b"pay".as_slice(), b"", b"load"].map(MemRef::from_bytes);
    a.submit(&frame(&[1; 54], &pieces));
    a.submit(&frame(&[2; 60], &[]));
    b.submit(&frame(&[3; 14], &[]));
    a.flush();
    b.flush();
    let mut expected = vec![1; 54];
    expected.extend(b"payload");
    assert_eq!(
        received(&mut b),
        [(expected, true, 0), (vec![2; 60], true, 0)]
    );
    assert_eq!(received(&mut a), [(vec![3; 14], true, 0)]);
    assert_eq!(a.counters().tx_frames, 2);
    assert_eq!(a.counters().tx_bytes, 61 + 60);
    assert_eq!((b.counters().rx_frames, b.counters().rx_bytes), (2, 121));
    assert_eq!(a.counters().syscalls + b.counters().syscalls, 0);
}

#[test]
fn super_segments_pass_whole_where_they_may() {
    let payload = vec![5; TSO_MAX as usize];
    let pieces = [MemRef::from_bytes(&payload)];
    let super_segment = TxFrame {
        checksum: Some((34, 16)),
        segment_size: 1448,
        ..frame(&[4; 128], &pieces)
    };
    let (mut a, mut b) = pair(&WireConfig::default()).unwrap();
    a.submit(&super_segment);
    let got = received(&mut b);
    assert_eq!((got[0].0.len(), got[0].2), (128 + payload.len(), 1448));

    let (mut a, mut b) = pair(&WireConfig {
        tso: false,
        ..WireConfig::default()
    })
    .unwrap();
    assert_eq!(a.caps().tso_max, 0);
    a.submit(&super_segment);
    assert_eq!(a.counters().tx_dropped_invalid, 1);
    assert_eq!(received(&mut b), []);
}

#[test]
fn frames_that_break_the_rules_are_dropped_and_counted() {
    let (mut a, mut b) = pair(&WireConfig::default()).unwrap();
    let long = [0; 1501 - 40];
    let pieces = [MemRef::from_bytes(&long)];
    let bad = [
        frame(&[0; 54], &pieces),
        frame(&[0; 13], &[]),
        frame(&[0; 129], &[]),
        TxFrame {
            payload_len: 3,
            ..frame(&[0; 54], &[])
        },
        TxFrame {
            payload_len: 3,
            ..frame(&[0; 54], &pieces)
        },
        TxFrame {
            checksum: Some((34, 19)),
            ..frame(&[0; 54], &[])
        },
        TxFrame {
            checksum: Some((u16::MAX, u16::MAX)),
            ..frame(&[0; 54], &[])
        },
        TxFrame {
            segment_size: 9,
            ..frame(&[0; 54], &[])
        },
    ];
    for bad in &bad {
        a.submit(bad);
    }
    assert_eq!(a.counters().tx_dropped_invalid, bad.len() as u64);
    assert_eq!(received(&mut b), []);
    a.submit(&frame(&[8; 54], &[]));
    assert_eq!(received(&mut b).len(), 1);
}

#[test]
fn a_full_wire_says_so_and_loses_nothing() {
    let config = WireConfig {
        capacity: 8,
        tso: false,
        ..WireConfig::default()
    };
    let (mut a, mut b) = pair(&config).unwrap();
    let payload = [0; 1460];
    let pieces = [MemRef::from_bytes(&payload)];
    let mut sent = 0;
    while a.has_room() {
        a.submit(&frame(&[0; 54], &pieces));
        sent += 1;
    }
    assert!(sent >= 8, "{sent}");
    a.submit(&frame(&[0; 54], &pieces));
    a.submit(&frame(&[0; 54], &pieces));
    assert!(a.counters().tx_dropped_full >= 1);
    sent = a.counters().tx_frames;
    assert_eq!(received(&mut b).len() as u64, sent);
    assert!(a.has_room());
}

#[test]
fn a_burst_is_held_until_released() {
    let (mut a, mut b) = pair(&WireConfig::default()).unwrap();
    for n in 0..100u8 {
        a.submit(&frame(&[n; 60], &[]));
    }
    let mut burst = RxBurst::new();
    assert_eq!(b.receive(&mut burst), BURST);
    assert_eq!(b.receive(&mut burst), 0, "a full burst takes no more");
    assert_eq!(b.frame(&burst.get(63).unwrap()), [63; 60]);
    let old = burst.get(0).unwrap();
    b.release(&mut burst);
    assert_eq!(b.frame(&old), b"");
    assert_eq!(b.receive(&mut burst), 36);
    assert_eq!(b.frame(&burst.get(35).unwrap()), [99; 60]);
}

#[test]
fn corruption_makes_checksums_real() {
    let config = WireConfig {
        link: LinkModel {
            corrupt: 0.5,
            ..LinkModel::default()
        },
        ..WireConfig::default()
    };
    let (mut a, mut b) = pair(&config).unwrap();
    let mut header = [0; 54];
    // A pseudo-header that sums up to 0x1234 in the field at 34 + 16.
    header[50..52].copy_from_slice(&[0x12, 0x34]);
    let payload = [7; 101];
    let pieces = [
        MemRef::from_bytes(&payload[..3]),
        MemRef::from_bytes(&payload[3..]),
    ];
    let segment = TxFrame {
        checksum: Some((34, 16)),
        ..frame(&header, &pieces)
    };
    let (mut good, mut bad) = (0, 0);
    for _ in 0..40 {
        a.submit(&segment);
        for (bytes, valid, _) in received(&mut b) {
            assert!(!valid);
            match checksum::fold(checksum::sum(&bytes[34..], 0x1234)) {
                0xffff => good += 1,
                _ => bad += 1,
            }
        }
    }
    let corrupted = b.link_counters().corrupted;
    assert_eq!(good + bad, 40);
    assert!(
        bad > 5 && good > 5 && corrupted >= bad,
        "{good} {bad} {corrupted}"
    );
}

#[test]
fn a_slow_link_delays_and_announces() {
    let config = WireConfig {
        link: LinkModel {
            delay: Duration::from_millis(3),
            ..LinkModel::default()
        },
        ..WireConfig::default()
    };
    let (mut a, mut b) = pair(&config).unwrap();
    a.submit(&frame(&[1; 60], &[]));
    let start = Instant::now();
    assert_eq!(received(&mut b), []);
    let due = b.next_arrival_ns().unwrap();
    assert!(due > monotonic_ns());
    let got = loop {
        let got = received(&mut b);
        if !got.is_empty() {
            break got;
        }
        assert!(start.elapsed() < Duration::from_secs(2));
    };
    assert_eq!(got, [(vec![1; 60], true, 0)]);
    assert!(start.elapsed() >= Duration::from_millis(3) && monotonic_ns() >= due);
    assert_eq!(b.next_arrival_ns(), None);
}

#[test]
fn the_two_directions_have_different_luck() {
    let config = WireConfig {
        link: LinkModel {
            loss: 0.5,
            ..LinkModel::default()
        },
        ..WireConfig::default()
    };
    let fates = |from: &mut Wire, to: &mut Wire| -> Vec<bool> {
        (0..64)
            .map(|_| {
                from.submit(&frame(&[0; 60], &[]));
                !received(to).is_empty()
            })
            .collect()
    };
    let (mut a, mut b) = pair(&config).unwrap();
    let (there, back) = (fates(&mut a, &mut b), fates(&mut b, &mut a));
    assert_ne!(there, back);
    let (mut a, mut b) = pair(&config).unwrap();
    assert_eq!(there, fates(&mut a, &mut b), "the same seed, the same luck");
}

#[test]
fn a_sleeper_is_woken_once_and_a_spinner_never() {
    let (mut a, mut b) = pair(&WireConfig::default()).unwrap();
    a.submit(&frame(&[0; 60], &[]));
    a.flush();
    assert!(!b.prepare_sleep(), "there is a frame already");
    received(&mut b);
    assert_eq!(a.counters().wakeups, 0);

    assert!(b.prepare_sleep());
    assert!(!readable(&b, Duration::ZERO));
    a.flush();
    assert_eq!(
        a.counters().wakeups,
        0,
        "a flush without frames wakes nobody"
    );
    a.submit(&frame(&[0; 60], &[]));
    a.flush();
    a.submit(&frame(&[0; 60], &[]));
    a.flush();
    assert_eq!(a.counters().wakeups, 1);
    assert!(readable(&b, Duration::ZERO));
    b.awake();
    assert!(!readable(&b, Duration::ZERO));
    assert_eq!(received(&mut b).len(), 2);
}

#[test]
fn two_threads_that_sleep_lose_no_wake_up() {
    let (a, b) = pair(&WireConfig::default()).unwrap();
    const ROUNDS: u32 = 3000;
    let turn = |mut wire: Wire, mut starts: bool| {
        move || {
            let mut burst = RxBurst::new();
            for n in 0..ROUNDS {
                if starts || n > 0 {
                    let mut header = [0; 60];
                    header[..4].copy_from_slice(&n.to_ne_bytes());
                    wire.submit(&frame(&header, &[]));
                    wire.flush();
                }
                starts = true;
                while wire.receive(&mut burst) == 0 {
                    if wire.prepare_sleep() {
                        assert!(readable(&wire, Duration::from_secs(5)), "lost wake-up");
                        wire.awake();
                    }
                }
                wire.release(&mut burst);
            }
            wire.submit(&frame(&[0; 60], &[]));
            wire.flush();
            wire
        }
    };
    let other = std::thread::spawn(turn(b, false));
    let a = turn(a, true)();
    let b = other.join().unwrap();
    assert!(a.counters().wakeups + b.counters().wakeups > 0);
}

#[test]
fn sending_to_nobody_is_counted() {
    let (mut a, b) = pair(&WireConfig::default()).unwrap();
    drop(b);
    a.submit(&frame(&[0; 60], &[]));
    a.flush();
    assert_eq!(a.counters().tx_dropped_down, 1);
}

#[test]
fn impossible_wires_are_refused() {
    for (capacity, mtu) in [(0, 1500), (1 << 21, 1500), (8, 100)] {
        let config = WireConfig {
            capacity,
            mtu,
            ..WireConfig::default()
        };
        assert!(matches!(pair(&config), Err(NicError::BadConfig(_))));
    }
}
