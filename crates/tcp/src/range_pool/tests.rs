//! Lists of ranges against sets of numbers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn collect(list: &RangeList, pool: &RangePool) -> Vec<(u64, u64)> {
    list.iter(pool).map(|r| (r.start, r.end)).collect()
}

#[test]
fn ranges_merge_when_they_touch() {
    let pool = &mut RangePool::new(8);
    let mut list = RangeList::new();
    for (start, end, new) in [(10, 20, 10), (30, 40, 10), (20, 25, 5), (50, 60, 10)] {
        let inserted = list.insert(pool, Range::new(start, end)).unwrap();
        assert_eq!(inserted.new_bytes, new);
    }
    assert_eq!(collect(&list, pool), [(10, 25), (30, 40), (50, 60)]);
    let inserted = list.insert(pool, Range::new(25, 55)).unwrap();
    assert_eq!(inserted.merged, Range::new(10, 60));
    assert_eq!(inserted.new_bytes, 15);
    assert_eq!(collect(&list, pool), [(10, 60)]);
    assert_eq!(pool.available(), 7);
    assert_eq!(list.first(pool), list.last(pool));
}

#[test]
fn a_full_pool_refuses_and_changes_nothing() {
    let pool = &mut RangePool::new(2);
    let mut list = RangeList::new();
    let mut other = RangeList::new();
    list.insert(pool, Range::new(10, 20)).unwrap();
    other.insert(pool, Range::new(1, 2)).unwrap();
    assert_eq!(list.insert(pool, Range::new(30, 40)), Err(NoRanges));
    assert_eq!(pool.refused(), 1);
    assert_eq!(collect(&list, pool), [(10, 20)]);
    // What needs no range is taken.
    assert!(list.insert(pool, Range::new(15, 30)).is_ok());
    other.clear(pool);
    assert!(list.insert(pool, Range::new(40, 50)).is_ok());
    assert_eq!(collect(&list, pool), [(10, 30), (40, 50)]);
}

#[test]
fn what_is_trimmed() {
    let pool = &mut RangePool::new(8);
    let mut list = RangeList::new();
    for start in [10, 30, 50] {
        list.insert(pool, Range::new(start, start + 10)).unwrap();
    }
    let trim = |start, end| {
        list.trim(pool, Range::new(start, end))
            .map(|r| (r.start, r.end))
    };
    assert_eq!(trim(0, 5), Some((0, 5)));
    assert_eq!(trim(0, 10), Some((0, 10)));
    assert_eq!(trim(0, 15), Some((0, 10)));
    assert_eq!(trim(15, 18), None);
    assert_eq!(trim(10, 20), None);
    assert_eq!(trim(15, 25), Some((20, 25)));
    assert_eq!(trim(15, 35), Some((20, 30)));
    // A range wholly inside is not cut out.
    assert_eq!(trim(25, 45), Some((25, 45)));
    assert_eq!(trim(55, 100), Some((60, 100)));
    assert_eq!(trim(60, 100), Some((60, 100)));
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(usize, u64, u64),
    RemoveBefore(usize, u64),
    PopFront(usize),
    Clear(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let which = 0..2usize;
    prop_oneof![
        20 => (which.clone(), 0..400u64, 1..30u64).prop_map(|(l, s, n)| Operation::Insert(l, s, n)),
        2 => (which.clone(), 0..400u64).prop_map(|(l, o)| Operation::RemoveBefore(l, o)),
        1 => which.clone().prop_map(Operation::PopFront),
        1 => which.prop_map(Operation::Clear),
    ]
}

/// The runs of a set.
fn runs(set: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &n in set {
        match runs.last_mut() {
            Some((_, end)) if *end == n => *end = n + 1,
            _ => runs.push((n, n + 1)),
        }
    }
    runs
}

proptest! {
    #[test]
    fn two_lists_behave_as_sets(operations in proptest::collection::vec(operation(), 0..200)) {
        let pool = &mut RangePool::new(20);
        let mut lists = [RangeList::new(), RangeList::new()];
        let mut sets = [BTreeSet::new(), BTreeSet::new()];
        for operation in operations {
            match operation {
                Operation::Insert(which, start, len) => {
                    let before = sets[which].len() as u64;
                    match lists[which].insert(pool, Range::new(start, start + len)) {
                        Ok(inserted) => {
                            sets[which].extend(start..start + len);
                            prop_assert_eq!(inserted.new_bytes, sets[which].len() as u64 - before);
                            prop_assert!(inserted.merged.start <= start);
                            prop_assert!(inserted.merged.end >= start + len);
                        }
                        Err(NoRanges) => prop_assert_eq!(pool.available(), 0),
                    }
                }
                Operation::RemoveBefore(which, offset) => {
                    let kept = sets[which].split_off(&offset);
                    let removed = lists[which].remove_before(pool, offset);
                    prop_assert_eq!(removed, sets[which].len() as u64);
                    sets[which] = kept;
                }
                Operation::PopFront(which) => {
                    if let Some(&(start, end)) = runs(&sets[which]).first() {
                        sets[which].retain(|n| !(start..end).contains(n));
                    }
                    lists[which].pop_front(pool);
                }
                Operation::Clear(which) => {
                    lists[which].clear(pool);
                    sets[which].clear();
                }
            }
            let mut held = 0;
            for (list, set) in lists.iter().zip(&sets) {
                let expected = runs(set);
                prop_assert_eq!(collect(list, pool), expected.clone());
                prop_assert_eq!(usize::from(list.len()), expected.len());
                let ends = (list.first(pool), list.last(pool));
                let first = expected.first().map(|&(s, e)| Range::new(s, e));
                let last = expected.last().map(|&(s, e)| Range::new(s, e));
                prop_assert_eq!(ends, (first, last));
                held += expected.len();
            }
            prop_assert_eq!(pool.available(), pool.capacity() - held);
        }
    }
}
