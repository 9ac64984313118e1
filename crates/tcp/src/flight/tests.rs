use proptest::prelude::*;

use super::*;

const T: Tick = Tick(7);

fn list(flight: &Flight, pool: &RangePool) -> Vec<(u64, u64, u32)> {
    flight
        .iter(pool)
        .map(|(range, sent)| (range.start, range.end, sent.0))
        .collect()
}

fn flight(pool: &mut RangePool, ranges: &[(u64, u64, u32)]) -> Flight {
    let mut flight = Flight::new();
    for &(start, end, tag) in ranges {
        flight
            .push(pool, Range::new(start, end), Sent(tag))
            .expect("room");
    }
    flight
}

#[test]
fn what_was_sent_together_is_one_range() {
    let mut pool = RangePool::new(8);
    let flight = flight(&mut pool, &[(0, 10, 1), (10, 20, 1), (20, 30, 2)]);
    assert_eq!(list(&flight, &pool), [(0, 20, 1), (20, 30, 2)]);
}

#[test]
fn a_hole_is_cut_out_of_a_range() {
    let mut pool = RangePool::new(8);
    let mut flight = flight(&mut pool, &[(0, 30, 1), (30, 60, 2), (70, 80, 3)]);
    let mut seen = Vec::new();
    flight
        .take(&mut pool, Range::new(10, 20), |range, sent| {
            seen.push((range.start, range.end, sent.0));
        })
        .unwrap();
    flight
        .take(&mut pool, Range::new(25, 75), |range, sent| {
            seen.push((range.start, range.end, sent.0));
        })
        .unwrap();
    assert_eq!(seen, [(10, 20, 1), (25, 30, 1), (30, 60, 2), (70, 75, 3)]);
    assert_eq!(list(&flight, &pool), [(0, 10, 1), (20, 25, 1), (75, 80, 3)]);
}

#[test]
fn what_is_sent_again_becomes_a_range_of_its_own() {
    let mut pool = RangePool::new(8);
    let mut flight = flight(&mut pool, &[(0, 30, LOST | 1)]);
    let again = Sent::again(T);
    flight
        .resend(&mut pool, Range::new(0, 10), again)
        .expect("room");
    flight
        .resend(&mut pool, Range::new(10, 20), again)
        .expect("room");
    assert_eq!(
        list(&flight, &pool),
        [(0, 20, RESENT | 7), (20, 30, LOST | 1)]
    );
    flight
        .resend(&mut pool, Range::new(20, 30), again)
        .expect("room");
    assert_eq!(list(&flight, &pool), [(0, 30, RESENT | 7)]);
    flight
        .resend(&mut pool, Range::new(12, 18), Sent::first(T))
        .expect("room");
    assert_eq!(
        list(&flight, &pool),
        [(0, 12, RESENT | 7), (12, 18, 7), (18, 30, RESENT | 7)]
    );
}

#[test]
fn without_nodes_the_list_stays_as_it_is() {
    let mut pool = RangePool::new(1);
    let mut flight = flight(&mut pool, &[(0, 30, 1)]);
    let before = list(&flight, &pool);
    assert_eq!(
        flight.resend(&mut pool, Range::new(0, 10), Sent::again(T)),
        Err(NoRanges)
    );
    assert_eq!(
        flight.take(&mut pool, Range::new(10, 20), |_, _| panic!("taken")),
        Err(NoRanges)
    );
    assert_eq!(
        flight.push(&mut pool, Range::new(30, 40), Sent(2)),
        Err(NoRanges)
    );
    assert_eq!(list(&flight, &pool), before);
    flight.clear(&mut pool);
    assert_eq!(pool.available(), 1);
}

#[test]
fn ticks_compare_across_their_end() {
    let early = Tick::at(Instant::from_micros((1 << 30) - 5));
    let late = Tick::at(Instant::from_micros((1 << 30) + 7));
    assert_eq!((late.since(early), early.since(late)), (12, -12));
    assert_eq!(Sent::first(early).shifted(12).at(), late);
    assert!(Sent::again(early).lost().shifted(12).is_lost());
}

proptest! {
    /// Against a model of one tag for each byte.
    #[test]
    fn ranges_say_what_was_said_of_each_byte(
        operations in proptest::collection::vec((0u8..4, 0u64..64, 1u64..16, 1u32..4), 0..60),
    ) {
        let mut pool = RangePool::new(64);
        let mut flight = Flight::new();
        let mut model = [None; 256];
        let mut end = 0;
        for (kind, at, len, tag) in operations {
            match kind {
                0 if end + len <= 256 => {
                    flight.push(&mut pool, Range::new(end, end + len), Sent(tag)).unwrap();
                    model[end as usize..(end + len) as usize].fill(Some(tag));
                    end += len;
                }
                1 => {
                    let mut taken = 0;
                    flight.take(&mut pool, Range::new(at, at + len), |range, _| taken += range.len()).unwrap();
                    let range = &mut model[at as usize..(at + len) as usize];
                    prop_assert_eq!(taken as usize, range.iter().flatten().count());
                    range.fill(None);
                }
                2 => {
                    let before = model[..at as usize].iter().flatten().last().copied();
                    let last = flight.drop_before(&mut pool, at).map(|sent| sent.0);
                    prop_assert_eq!(last, before);
                    model[..at as usize].fill(None);
                }
                _ => {
                    let node = flight.iter(&pool).find(|(range, _)| range.end > at);
                    if let Some((range, _)) = node {
                        let part = Range::new(range.start.max(at), range.end.min(at.max(range.start) + len));
                        flight.resend(&mut pool, part, Sent(tag)).unwrap();
                        model[part.start as usize..part.end as usize].fill(Some(tag));
                    }
                }
            }
            let mut found = [None; 256];
            for (range, sent) in flight.iter(&pool) {
                found[range.start as usize..range.end as usize].fill(Some(sent.0));
            }
            prop_assert_eq!(found, model);
            prop_assert_eq!(flight.iter(&pool).count(), usize::from(flight.len));
            prop_assert_eq!(pool.capacity() - pool.available(), usize::from(flight.len));
        }
        flight.clear(&mut pool);
        prop_assert_eq!(pool.available(), 64);
    }
}
