use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

struct Nodes(Vec<TimerNode>);

impl Timers for Nodes {
    fn timer(&mut self, index: u32) -> &mut TimerNode {
        &mut self.0[index as usize]
    }
}

/// The wheel beside what it must behave like.
struct Checked {
    wheel: TimerWheel,
    nodes: Nodes,
    /// Elements by tick, and the tick of each element.
    model: BTreeMap<u64, BTreeSet<u32>>,
    ticks: BTreeMap<u32, u64>,
    now: u64,
}

impl Checked {
    fn new(now: u64, elements: usize) -> Self {
        Self {
            wheel: TimerWheel::new(Instant::from_nanos(now)),
            nodes: Nodes(vec![TimerNode::UNARMED; elements]),
            model: BTreeMap::new(),
            ticks: BTreeMap::new(),
            now,
        }
    }

    fn cancel(&mut self, index: u32) {
        self.wheel.cancel(&mut self.nodes, index);
        self.forget(index);
    }

    fn forget(&mut self, index: u32) {
        if let Some(tick) = self.ticks.remove(&index) {
            let set = self.model.get_mut(&tick).unwrap();
            set.remove(&index);
            if set.is_empty() {
                self.model.remove(&tick);
            }
        }
    }

    fn arm(&mut self, index: u32, deadline: u64) {
        let deadline = Instant::from_nanos(deadline);
        self.wheel.arm(&mut self.nodes, index, deadline);
        self.forget(index);
        if deadline == Instant::NEVER {
            return;
        }
        let tick = tick_after(deadline);
        self.model.entry(tick).or_default().insert(index);
        self.ticks.insert(index, tick);
        assert!(self.nodes.0[index as usize].covers(deadline) || tick <= self.now >> TICK_SHIFT);
    }

    /// All that must fire by `now` fires, in order (all that is overdue counts as one tick), and nothing else.
    fn advance(&mut self, now: u64, budget_each: usize) {
        let elapsed = self.now >> TICK_SHIFT;
        self.now = now;
        let now = Instant::from_nanos(now);
        let mut last = 0;
        let mut spent = 0;
        loop {
            let before = self.wheel.next();
            let mut budget = budget_each;
            match self.wheel.pop(&mut self.nodes, now, &mut budget) {
                Some(index) => {
                    let tick = self.ticks[&index];
                    assert!(start_of(tick) <= now, "early");
                    assert!(
                        before.unwrap() <= start_of(tick.max(elapsed)),
                        "next() was late"
                    );
                    assert!(tick.max(elapsed) >= last, "out of order");
                    last = tick.max(elapsed);
                    self.forget(index);
                }
                None if budget > 0 => break,
                None => {}
            }
            spent += budget_each - budget;
            assert!(spent <= 100_000, "no progress");
        }
        if let Some((tick, _)) = self.model.first_key_value() {
            assert!(start_of(*tick) > now, "{tick} was left");
        }
        assert_eq!(self.wheel.next().is_none(), self.model.is_empty());
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Arm(u32, u64),
    Cancel(u32),
    Advance(u64),
    JumpToNext,
}

fn span() -> impl Strategy<Value = u64> {
    // All magnitudes, from nanoseconds to years.
    (0..56u32, any::<u64>()).prop_map(|(bits, value)| value & ((1 << bits) - 1))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0..24u32, span()).prop_map(|(index, after)| Operation::Arm(index, after)),
        1 => (0..24u32).prop_map(Operation::Cancel),
        1 => span().prop_map(Operation::Advance),
        2 => Just(Operation::JumpToNext),
    ]
}

proptest! {
    #![proptest_config(sidecore_testkit::property_config(256))]

    #[test]
    fn behaves_like_a_sorted_map(
        start in 0..1u64 << 60,
        operations in prop::collection::vec(operation(), 0..200),
        budget in 1..5usize,
    ) {
        let mut checked = Checked::new(start, 24);
        for operation in operations {
            match operation {
                Operation::Arm(index, after) => checked.arm(index, checked.now.saturating_add(after)),
                Operation::Cancel(index) => checked.cancel(index),
                Operation::Advance(by) => checked.advance((checked.now + by).min(1 << 62), budget),
                Operation::JumpToNext => if let Some(next) = checked.wheel.next() {
                    let next = next.as_nanos();
                    checked.advance(next.max(checked.now), budget);
                },
            }
        }
        checked.advance(1 << 63, budget);
        prop_assert!(checked.model.is_empty());
    }
}

#[test]
fn the_past_fires_at_once_and_never_does_not() {
    let mut checked = Checked::new(1 << 40, 3);
    checked.wheel.arm(&mut checked.nodes, 0, Instant::ZERO);
    checked.wheel.arm(&mut checked.nodes, 1, Instant::NEVER);
    let mut budget = 10;
    let now = Instant::from_nanos(1 << 40);
    assert_eq!(
        checked.wheel.pop(&mut checked.nodes, now, &mut budget),
        Some(0)
    );
    assert_eq!(
        checked.wheel.pop(&mut checked.nodes, now, &mut budget),
        None
    );
    assert_eq!(checked.wheel.next(), None);
    assert!(!checked.nodes.0[1].is_armed());
}

#[test]
fn sleeping_until_next_reaches_a_distant_timer_in_few_steps() {
    let mut checked = Checked::new(12_345, 1);
    let deadline = 7_200_000_000_000;
    checked.arm(0, deadline);
    let mut wakes = 0;
    while let Some(next) = checked.wheel.next() {
        checked.advance(next.as_nanos(), 100);
        wakes += 1;
    }
    assert!(wakes <= LEVELS + 1, "{wakes}");
    assert!(checked.now >= deadline && checked.now < deadline + (1 << TICK_SHIFT));
}

#[test]
fn a_full_slot_is_moved_down_within_the_budget() {
    const COUNT: usize = 10_000;
    let mut wheel = TimerWheel::new(Instant::ZERO);
    let mut nodes = Nodes(vec![TimerNode::UNARMED; COUNT]);
    for index in 0..COUNT as u32 {
        wheel.arm(&mut nodes, index, Instant::from_secs(3600));
    }
    let mut fired = 0;
    for _ in 0..COUNT {
        let mut budget = 64;
        while wheel
            .pop(&mut nodes, Instant::from_secs(3601), &mut budget)
            .is_some()
        {
            fired += 1;
        }
        if wheel.next().is_none() {
            break;
        }
        assert_eq!(budget, 0, "stopped without need");
    }
    assert_eq!(fired, COUNT);
}
