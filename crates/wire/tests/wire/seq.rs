//! Sequence numbers on the circle.

use proptest::prelude::*;
use sidecore_wire::SeqNumber;

use crate::strategies::config;

#[test]
fn order_holds_across_the_wrap() {
    let last = SeqNumber(u32::MAX);
    let first = SeqNumber(0);
    assert!(
        last.before(first) && last.before_eq(first) && !last.after(first) && !last.after_eq(first)
    );
    assert!(first.after(last) && first.after_eq(last));
    assert_eq!(last.add(1), first);
    assert_eq!(first.sub(1), last);
    assert_eq!(first.distance_from(last), 1);
    assert_eq!(last.distance_from(first), u32::MAX);
    assert_eq!((last.max(first), last.min(first)), (first, last));
    assert_eq!((first.max(last), first.min(last)), (first, last));
}

#[test]
fn a_number_is_neither_before_nor_after_itself() {
    let n = SeqNumber(0x8000_0000);
    assert!(!n.before(n) && !n.after(n) && n.before_eq(n) && n.after_eq(n));
}

#[test]
fn windows() {
    let start = SeqNumber(u32::MAX - 1);
    let inside: Vec<bool> = (0..5)
        .map(|n| (start - 1 + n).in_window(start, 3))
        .collect();
    assert_eq!(inside, [false, true, true, true, false]);
    assert!(!start.in_window(start, 0), "an empty window holds nothing");
}

#[test]
fn operators_are_their_methods() {
    let mut n = SeqNumber(u32::MAX);
    n += 2;
    assert_eq!(n, SeqNumber(1));
    assert_eq!(n + 1, SeqNumber(2));
    assert_eq!(n - 2, SeqNumber(u32::MAX));
    assert_eq!(n.to_string(), "1");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn less_than_half_the_circle_ahead_is_after(n: u32, distance in 1..0x8000_0000u32) {
        let (here, there) = (SeqNumber(n), SeqNumber(n) + distance);
        prop_assert!(here.before(there) && there.after(here));
        prop_assert!(!there.before(here) && !here.after(there));
        prop_assert!(!there.before_eq(here) && !here.after_eq(there));
        prop_assert_eq!(there.distance_from(here), distance);
        prop_assert_eq!((here.max(there), here.min(there)), (there, here));
    }

    #[test]
    fn a_window_is_what_lies_between_its_edges(start: u32, len in 0..0x8000_0000u32, n: u32) {
        let (left, right, n) = (SeqNumber(start), SeqNumber(start) + len, SeqNumber(n));
        // By comparison with the edges; those are fine within half the circle of the left one.
        let between = n.after_eq(left) && n.before(right);
        prop_assert_eq!(n.in_window(left, len), between && n.distance_from(left) < 0x8000_0000);
    }
}
