use std::time::Duration;

use super::*;

const MS: u64 = 1_000_000;

fn link(model: LinkModel) -> Link {
    Link::new(model)
}

/// Pushes `count` numbered frames of `len` bytes, one each `every_ns`, and gives what arrives until nothing is left: the
/// arrival time and number of each frame.
fn run(link: &mut Link, count: u32, len: usize, every_ns: u64) -> Vec<(u64, u32)> {
    let mut arrived = Vec::new();
    let mut bytes = vec![0; len];
    for number in 0..count {
        let now = u64::from(number) * every_ns;
        drain(link, now, &mut arrived);
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        link.push(now, &bytes);
    }
    drain(link, u64::MAX - 1, &mut arrived);
    assert_eq!(link.in_transit(), 0);
    assert_eq!(link.bytes, 0);
    arrived
}

fn drain(link: &mut Link, until: u64, arrived: &mut Vec<(u64, u32)>) {
    while let Some(at) = link.next_arrival_ns().filter(|&at| at <= until) {
        assert!(at == 0 || link.pop(at - 1).is_none(), "nothing comes early");
        let frame = link.pop(at).expect("what was announced arrives");
        let number = u32::from_be_bytes(frame.bytes[..4].try_into().unwrap());
        arrived.push((at, number));
        link.recycle(frame);
    }
}

fn numbers(arrived: &[(u64, u32)]) -> Vec<u32> {
    arrived.iter().map(|&(_, number)| number).collect()
}

#[test]
fn a_perfect_link_passes_everything_at_once() {
    assert!(LinkModel::default().is_perfect());
    let arrived = run(&mut link(LinkModel::default()), 100, 60, 10);
    let expected: Vec<_> = (0..100).map(|n| (u64::from(n) * 10, n)).collect();
    assert_eq!(arrived, expected);
}

#[test]
fn delay_moves_all_frames_alike() {
    let model = LinkModel {
        delay: Duration::from_millis(20),
        ..LinkModel::default()
    };
    assert!(!model.is_perfect());
    let arrived = run(&mut link(model), 100, 60, 10);
    assert!(
        arrived
            .iter()
            .all(|&(at, n)| at == 20 * MS + u64::from(n) * 10)
    );
}

#[test]
fn accidents_happen_as_often_as_asked() {
    let model = LinkModel {
        loss: 0.02,
        duplicate: 0.05,
        reorder: 0.1,
        corrupt: 0.03,
        seed: 7,
        ..LinkModel::default()
    };
    let mut link = link(model);
    let n = 100_000;
    let arrived = run(&mut link, n, 60, 1000);
    let c = *link.counters();
    // Five standard deviations of a binomial distribution.
    let near = |count: u64, p: f64, of: u64| {
        let mean = of as f64 * p;
        let deviation = (mean * (1.0 - p)).sqrt();
        assert!(
            (count as f64 - mean).abs() < 5.0 * deviation,
            "{count} for {mean}"
        );
    };
    let passed = u64::from(n) - c.lost;
    near(c.lost, 0.02, n.into());
    near(c.duplicated, 0.05, passed);
    near(c.reordered, 0.1, passed);
    near(c.corrupted, 0.03, passed);
    assert_eq!(arrived.len() as u64, passed + c.duplicated);
    assert_eq!((c.pushed, c.popped), (n.into(), arrived.len() as u64));
    assert_eq!((c.full, c.queue_dropped), (0, 0));
}

#[test]
fn losses_are_independent_of_each_other() {
    let model = LinkModel {
        loss: 0.25,
        seed: 3,
        ..LinkModel::default()
    };
    let arrived = numbers(&run(&mut link(model), 40_000, 60, 10));
    let pairs = arrived.windows(2).filter(|w| w[1] == w[0] + 1).count();
    // Of the frames that arrive, 75 % are followed by the next one.
    let share = pairs as f64 / arrived.len() as f64;
    assert!((share - 0.75).abs() < 0.01, "{share}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let model = |seed| LinkModel {
        loss: 0.1,
        duplicate: 0.1,
        reorder: 0.1,
        jitter: Duration::from_micros(50),
        rate_bps: 1_000_000_000,
        seed,
        ..LinkModel::default()
    };
    let one = run(&mut link(model(1)), 1000, 500, 3000);
    assert_eq!(one, run(&mut link(model(1)), 1000, 500, 3000));
    assert_ne!(one, run(&mut link(model(2)), 1000, 500, 3000));
}

#[test]
fn changing_one_probability_leaves_the_other_accidents() {
    let losing = |duplicate| {
        let model = LinkModel {
            loss: 0.1,
            duplicate,
            seed: 5,
            ..LinkModel::default()
        };
        let mut arrived = numbers(&run(&mut link(model), 2000, 60, 10));
        arrived.dedup();
        arrived
    };
    assert_eq!(losing(0.0), losing(0.3));
}

#[test]
fn jitter_is_uniform_and_never_reorders() {
    let model = LinkModel {
        delay: Duration::from_millis(1),
        jitter: Duration::from_micros(100),
        ..LinkModel::default()
    };
    // Far apart: no frame waits for the one before it.
    let arrived = run(&mut link(model), 10_000, 60, MS);
    let extra: Vec<u64> = arrived
        .iter()
        .map(|&(at, n)| at - MS - u64::from(n) * MS)
        .collect();
    assert!(extra.iter().all(|&e| e <= 100_000));
    let mean = extra.iter().sum::<u64>() / extra.len() as u64;
    assert!((48_000..52_000).contains(&mean), "{mean}");
    // Close together: they do, but stay in order.
    let arrived = numbers(&run(&mut link(model), 10_000, 60, 1000));
    assert!(arrived.iter().copied().eq(0..10_000));
}

#[test]
fn a_held_frame_is_overtaken_by_as_many_as_asked() {
    let model = LinkModel {
        reorder: 0.01,
        reorder_distance: 4,
        reorder_hold: Duration::from_secs(1),
        seed: 11,
        ..LinkModel::default()
    };
    let mut link = link(model);
    let arrived = numbers(&run(&mut link, 10_000, 60, 10));
    assert!(link.counters().reordered > 50);
    let mut late = 0;
    for (index, &number) in arrived.iter().enumerate() {
        let overtakers = arrived[..index]
            .iter()
            .rev()
            .take(40)
            .filter(|&&n| n > number);
        match overtakers.count() {
            0 => {}
            // Another frame held back at the same time makes it one more or fewer.
            n @ 3..=5 => late += usize::from(n == 4),
            n => panic!("{n} frames overtook {number}"),
        }
    }
    assert!(late > 50);
}

#[test]
fn a_held_frame_that_nobody_overtakes_arrives_in_the_end() {
    let model = LinkModel {
        reorder: 1.0,
        reorder_hold: Duration::from_millis(5),
        delay: Duration::from_millis(1),
        ..LinkModel::default()
    };
    let mut link = link(model);
    link.push(0, &[0; 60]);
    assert_eq!(link.next_arrival_ns(), Some(6 * MS));
    assert_eq!(link.pop(6 * MS - 1), None);
    assert!(link.pop(6 * MS).is_some());
    assert_eq!(link.next_arrival_ns(), None);
}

#[test]
fn the_rate_spaces_frames_exactly() {
    // 1250 bytes at 3 Gb/s take 3333.3 ns: no rounding adds up.
    let model = LinkModel {
        rate_bps: 3_000_000_000,
        delay: Duration::from_nanos(500),
        ..LinkModel::default()
    };
    let mut link = link(model);
    let arrived = run(&mut link, 3000, 1250, 0);
    assert_eq!(arrived[0].0, 3334 + 500);
    assert_eq!(arrived[2999].0, 10_000_000 + 500);
}

#[test]
fn an_idle_line_saves_nothing_up() {
    let model = LinkModel {
        rate_bps: 8_000_000,
        ..LinkModel::default()
    };
    let mut link = link(model);
    link.push(0, &[0; 100]);
    link.push(MS, &[0; 100]);
    link.push(MS, &[0; 100]);
    let times: Vec<_> = std::iter::from_fn(|| {
        let at = link.next_arrival_ns()?;
        link.pop(at).map(|_| at)
    })
    .collect();
    assert_eq!(times, [100_000, MS + 100_000, MS + 200_000]);
}

#[test]
fn the_queue_holds_its_bytes_and_no_more() {
    let model = LinkModel {
        rate_bps: 8_000_000,
        queue_bytes: 10_000,
        ..LinkModel::default()
    };
    let mut link = link(model);
    for _ in 0..15 {
        link.push(0, &[0; 1000]);
    }
    assert_eq!(link.counters().queue_dropped, 5);
    assert_eq!(link.in_transit(), 10);
    // A millisecond later one frame has gone, so that one fits.
    link.push(MS, &[0; 1000]);
    link.push(MS, &[0; 1000]);
    assert_eq!(link.counters().queue_dropped, 6);
}

#[test]
fn a_frame_larger_than_the_queue_passes_when_the_line_is_idle() {
    let model = LinkModel {
        rate_bps: 8_000_000,
        queue_bytes: 500,
        ..LinkModel::default()
    };
    let mut link = link(model);
    link.push(0, &[0; 1000]);
    link.push(0, &[0; 1000]);
    assert_eq!((link.in_transit(), link.counters().queue_dropped), (1, 1));
}

#[test]
fn corruption_flips_the_bits_it_should_and_spares_the_ethernet_header() {
    for bits in [1, 3, 64] {
        let model = LinkModel {
            corrupt: 1.0,
            corrupt_bits: bits,
            seed: u64::from(bits),
            ..LinkModel::default()
        };
        let mut link = link(model);
        for _ in 0..200 {
            link.push(0, &[0; 60]);
            let frame = link.pop(0).unwrap();
            assert!(frame.bytes[..14].iter().all(|&b| b == 0));
            let flipped: u32 = frame.bytes.iter().map(|b| b.count_ones()).sum();
            assert_eq!(flipped, bits);
        }
    }
    let mut link = link(LinkModel {
        corrupt: 1.0,
        ..LinkModel::default()
    });
    link.push(0, &[0; 14]);
    link.push(0, &[]);
    assert_eq!(link.pop(0).unwrap().bytes, [0; 14]);
    assert_eq!(link.pop(0).unwrap().bytes, []);
}

#[test]
fn what_travels_with_a_frame_arrives_with_it() {
    let mut link = link(LinkModel {
        duplicate: 1.0,
        ..LinkModel::default()
    });
    let info = FrameInfo {
        checksum_valid: true,
        gso_size: 1448,
    };
    link.push_with(0, &[1; 20], info);
    let frames = [link.pop(0).unwrap(), link.pop(0).unwrap()];
    assert!(frames.iter().all(|f| f.info == info && f.bytes == [1; 20]));
    assert!(link.pop(0).is_none());
}

#[test]
fn a_full_link_drops_and_counts() {
    let mut link = link(LinkModel {
        delay: Duration::from_secs(1),
        ..LinkModel::default()
    });
    for _ in 0..FRAMES_MAX + 3 {
        link.push(0, &[0; 14]);
    }
    assert_eq!(link.in_transit(), FRAMES_MAX);
    assert_eq!(link.counters().full, 3);
}

#[test]
fn probabilities_out_of_range_are_the_nearest_ones() {
    for (p, hit) in [
        (-1.0, false),
        (f64::NAN, false),
        (0.0, false),
        (1.0, true),
        (9.0, true),
    ] {
        assert_eq!(Threshold::new(p).hit(0), hit, "{p}");
        assert_eq!(Threshold::new(p).hit(u64::MAX), hit, "{p}");
    }
}

/// An IPv4 packet of `len` bytes to 10.0.0.2 in a frame, with this ECN field.
fn packet(ecn: u8, len: usize) -> Vec<u8> {
    let header = sidecore_wire::Ipv4Header {
        dscp_ecn: ecn,
        ..sidecore_wire::Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6)
    };
    let mut frame = vec![0; 14 + len];
    frame[12..14].copy_from_slice(&[8, 0]);
    header.emit(&mut frame[14..], len - 20);
    frame
}

fn is_marked(frame: &Frame) -> bool {
    frame.bytes[15] & 3 == 3
}

fn pop_all(link: &mut Link, until: u64) -> Vec<Frame> {
    std::iter::from_fn(|| link.pop(until)).collect()
}

#[test]
fn a_queue_of_frames_has_an_end() {
    // A frame of 1000 bytes takes a millisecond.
    let mut link = link(LinkModel {
        rate_bps: 8_000_000,
        queue_frames: 10,
        ..LinkModel::default()
    });
    for _ in 0..30 {
        link.push(0, &[0; 1000]);
    }
    assert_eq!(link.counters().queue_dropped, 20);
    assert_eq!(link.counters().queue_bytes_max, 10_000);
    assert_eq!(pop_all(&mut link, 3 * MS).len(), 3);
    for _ in 0..30 {
        link.push(3 * MS, &[0; 60]);
    }
    assert_eq!(link.counters().queue_dropped, 20 + 27);
    assert_eq!(pop_all(&mut link, 20 * MS).len(), 10);
}

#[test]
fn a_step_marks_what_is_capable_and_drops_the_rest() {
    for (bytes, frames) in [(5 * 1014, 0), (0, 5)] {
        let mut link = link(LinkModel {
            rate_bps: 8_000_000,
            mark_bytes: bytes,
            mark_frames: frames,
            ..LinkModel::default()
        });
        for _ in 0..5 {
            link.push(0, &packet(2, 1000));
        }
        assert_eq!(link.counters().marked, 0);
        link.push(0, &packet(2, 1000));
        link.push(0, &packet(0, 1000));
        link.push(0, &[0xff; 60]);
        let c = *link.counters();
        assert_eq!((c.marked, c.mark_dropped), (1, 1));
        let marked: Vec<bool> = pop_all(&mut link, 100 * MS).iter().map(is_marked).collect();
        let mut expected = [false; 7];
        expected[5] = true;
        // The last is no packet: full of ones as it was.
        expected[6] = true;
        assert_eq!(marked, expected);
        link.push(100 * MS, &packet(2, 1000));
        assert_eq!(link.counters().marked, 1, "the queue is short again");
    }
}

#[test]
fn chance_marks_as_often_as_asked() {
    let mut link = link(LinkModel {
        mark: 0.1,
        ..LinkModel::default()
    });
    for n in 0..10_000 {
        link.push(n, &packet(u8::from(n % 2 == 0), 40));
    }
    let c = *link.counters();
    assert!((430..570).contains(&c.marked), "{c:?}");
    assert!((430..570).contains(&c.mark_dropped), "{c:?}");
    let marked = pop_all(&mut link, MS)
        .iter()
        .filter(|f| is_marked(f))
        .count();
    assert_eq!(marked as u64, c.marked);
}

#[test]
fn what_is_too_big_does_not_pass_and_its_sender_is_told_or_not() {
    for tell in [true, false] {
        let mut link = link(LinkModel {
            mtu: 1400,
            tell_too_big: tell,
            ..LinkModel::default()
        });
        link.push(0, &packet(0, 1400));
        link.push(0, &packet(0, 1401));
        // No packet.
        link.push(0, &[0xff; 2000]);
        let c = *link.counters();
        assert_eq!((c.too_big, c.answered), (1, u64::from(tell)));
        assert_eq!(pop_all(&mut link, 0).len(), 2);
        assert_eq!(link.take_answer().is_some(), tell);
        assert_eq!(link.take_answer(), None);
        for _ in 0..1000 {
            link.push(0, &packet(0, 1500));
        }
        let answers = std::iter::from_fn(|| link.take_answer()).count();
        assert_eq!(answers, if tell { ANSWERS_MAX } else { 0 });
    }
}

#[test]
fn nothing_passes_in_an_outage() {
    let outage = |every| {
        Some(Outage {
            after: Duration::from_millis(2),
            length: Duration::from_millis(3),
            every: Duration::from_millis(every),
        })
    };
    for (every, expected) in [(0, "..xxx........"), (4, "..xxx.xxx.xxx")] {
        let mut link = link(LinkModel {
            outage: outage(every),
            ..LinkModel::default()
        });
        let seen: String = (0..13)
            .map(|ms| {
                link.push(ms * MS, &[0; 60]);
                let passed = link.pop(ms * MS).is_some();
                if passed { '.' } else { 'x' }
            })
            .collect();
        assert_eq!(seen, expected);
        let lost = expected.matches('x').count();
        assert_eq!(link.counters().outage, lost as u64);
    }
}

#[test]
fn jitter_reorders_if_it_may() {
    let model = LinkModel {
        jitter: Duration::from_micros(50),
        jitter_reorders: true,
        ..LinkModel::default()
    };
    let arrived = run(&mut link(model), 1000, 60, 1000);
    assert!(!numbers(&arrived).is_sorted());
    assert!(arrived.is_sorted_by_key(|(at, _)| *at));
    for (at, number) in arrived {
        let sent = u64::from(number) * 1000;
        assert!((sent..=sent + 50_000).contains(&at));
    }
}

#[test]
fn a_link_changes_and_what_waits_keeps_its_time() {
    let slow = LinkModel {
        rate_bps: 8_000_000,
        ..LinkModel::default()
    };
    let mut link = link(slow);
    link.push(0, &[0; 1000]);
    let fast = LinkModel {
        rate_bps: 80_000_000,
        ..LinkModel::default()
    };
    link.set_model(fast);
    link.push(0, &[0; 1000]);
    assert_eq!(link.next_arrival_ns(), Some(MS));
    assert_eq!(pop_all(&mut link, MS).len(), 1);
    assert_eq!(link.next_arrival_ns(), Some(MS + MS / 10));
    link.set_model(LinkModel {
        loss: 1.0,
        ..LinkModel::default()
    });
    link.push(0, &[0; 60]);
    assert_eq!(link.counters().lost, 1);
    assert_eq!(pop_all(&mut link, 2 * MS).len(), 1);
}
