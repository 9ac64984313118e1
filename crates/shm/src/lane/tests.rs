use super::*;

const ORDER: u32 = 3;

/// Both ends of a fresh lane, and its memory.
fn lane(order: u32) -> (Producer, Consumer, Shared) {
    let memory = Shared::heap(LINE + (LINE << order));
    let ends = || MappedLane::new(&memory, 0, order).unwrap();
    (Writer::new(ends()), Reader::new(ends()), memory.clone())
}

fn entry(n: u64) -> Entry {
    Entry::new(n as u8, 2, 3, [n; 7])
}

#[test]
fn entries_arrive_in_order_over_many_laps() {
    let (mut writer, mut reader, _) = lane(ORDER);
    let (mut sent, mut got) = (0u64, 0u64);
    for round in 0..200u64 {
        for _ in 0..round % 9 {
            if writer.push(entry(sent)).is_ok() {
                sent += 1;
            }
        }
        for _ in 0..round % 7 {
            if let Some(one) = reader.pop() {
                assert_eq!(one.0[1..], [got; 7]);
                assert_eq!((one.code(), one.flags(), one.aux()), (got as u8, 2, 3));
                got += 1;
            }
        }
    }
    assert!(got > 300 && sent - got <= 8, "{sent} {got}");
    assert_eq!((writer.pushed(), reader.taken()), (sent, got));
}

#[test]
fn a_full_lane_refuses_and_credit_comes_by_the_quarter() {
    let (mut writer, mut reader, _) = lane(ORDER);
    for n in 0..8 {
        writer.push(entry(n)).unwrap();
    }
    assert_eq!(writer.push(entry(8)), Err(Full));
    assert_eq!((writer.free(), writer.outstanding()), (0, 8));
    reader.pop().unwrap();
    assert_eq!(writer.free(), 0, "one of two for a quarter");
    reader.pop().unwrap();
    assert_eq!(writer.free(), 2);
    writer.push(entry(8)).unwrap();
    reader.pop().unwrap();
    reader.publish_credit();
    assert_eq!(
        writer.free(),
        2,
        "who waits for room for two must not wait on old news"
    );
    writer.push(entry(9)).unwrap();
    assert_eq!(writer.free(), 1);
    assert!(!writer.poisoned());
    assert_eq!(writer.capacity(), 8);
}

#[test]
fn lies_about_credit_poison_the_lane() {
    for (lie, why) in [
        (9u32, "more than was written"),
        (u32::MAX, "fewer than nothing"),
        (1 << 31, "nonsense"),
    ] {
        let (mut writer, _, memory) = lane(ORDER);
        for n in 0..8 {
            writer.push(entry(n)).unwrap();
        }
        memory.atomic_u32(0).unwrap().store(lie, Ordering::Relaxed);
        assert_eq!(writer.push(entry(8)), Err(Full), "{why}");
        assert!(writer.poisoned(), "{why}");
        memory.atomic_u32(0).unwrap().store(8, Ordering::Relaxed);
        assert_eq!(writer.push(entry(8)), Err(Full), "for ever");
        assert_eq!(writer.free(), 0);
    }
    // Backwards.
    let (mut writer, _, memory) = lane(ORDER);
    let taken = memory.atomic_u32(0).unwrap();
    (0..8).for_each(|n| writer.push(entry(n)).unwrap());
    taken.store(5, Ordering::Relaxed);
    (8..13).for_each(|n| writer.push(entry(n)).unwrap());
    taken.store(4, Ordering::Relaxed);
    assert_eq!(writer.push(entry(13)), Err(Full));
    assert!(writer.poisoned());
}

#[test]
fn a_reader_that_claims_too_early_harms_only_itself() {
    let (mut writer, reader, memory) = lane(ORDER);
    (0..8).for_each(|n| writer.push(entry(n)).unwrap());
    memory.atomic_u32(0).unwrap().store(8, Ordering::Relaxed);
    (8..16).for_each(|n| writer.push(entry(n)).unwrap());
    assert!(!writer.poisoned(), "it may say so");
    assert!(reader.is_empty(), "and finds a lap it does not expect");
}

#[test]
fn marks_of_other_laps_are_no_entries() {
    let (mut writer, mut reader, memory) = lane(ORDER);
    assert!(reader.is_empty(), "fresh memory");
    for lap in 0..3 {
        for n in 0..8 {
            writer.push(entry(n)).unwrap();
            assert!(reader.pop().is_some(), "lap {lap}");
        }
        assert!(
            reader.is_empty(),
            "lap {lap}: the last lap's entries lie there still"
        );
    }
    // A hostile writer: every mark but the expected one.
    for mark in [0, 1, 2, 3, 5, 6, u32::MAX] {
        memory
            .atomic_u64(LINE as u64)
            .unwrap()
            .store(mark as u64, Ordering::Relaxed);
        assert!(reader.is_empty() && reader.pop().is_none(), "{mark}");
    }
    memory
        .atomic_u64(LINE as u64)
        .unwrap()
        .store(4, Ordering::Relaxed);
    assert_eq!(reader.pop().unwrap().mark(), 4);
}

#[test]
fn lanes_lie_inside_their_memory_or_are_refused() {
    let memory = Shared::heap(LINE * 9);
    assert!(MappedLane::new(&memory, 0, 3).is_some());
    assert!(MappedLane::new(&memory, 0, 4).is_none());
    assert!(MappedLane::new(&memory, 64, 3).is_none());
    assert!(MappedLane::new(&memory, 32, 2).is_none(), "not aligned");
    assert!(MappedLane::new(&memory, u64::MAX - 63, 3).is_none());
    for order in [31, 32, 57, 58, 63, 64, u32::MAX] {
        assert!(MappedLane::new(&memory, 0, order).is_none(), "{order}");
    }
}

#[test]
fn the_count_of_taken_entries_wraps() {
    let (mut writer, mut reader, _) = lane(ORDER);
    // As if 2^32 - 20 entries had gone through.
    let start = (1u64 << 32) - 24;
    (writer.position, writer.limit) = (start, start + 8);
    writer.mark = mark_at(start, ORDER);
    (reader.position, reader.published) = (start, start);
    reader.mark = mark_at(start, ORDER);
    reader.publish_credit();
    for n in 0..64 {
        writer.push(entry(n)).unwrap();
        assert_eq!(reader.pop().unwrap().0[1], n);
    }
    assert!(!writer.poisoned());
}
