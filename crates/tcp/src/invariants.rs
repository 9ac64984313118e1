//! What must hold between calls.

use crate::Connection;
use crate::ecn;
use crate::flags::Flags;
use crate::range_pool::{Range, RangePool};
use crate::recovery::Phase;
use crate::time::Instant;

impl Connection {
    /// Panics if the control block contradicts itself. For tests and fuzzers; debug builds call it after every segment that
    /// is not predicted.
    pub fn check_invariants(&self, ranges: &RangePool) {
        self.check_send_side(ranges);
        self.check_receive_side(ranges);
    }

    fn check_send_side(&self, ranges: &RangePool) {
        assert!(self.snd_una <= self.snd_nxt, "SND.UNA <= SND.NXT");
        let fin = u64::from(self.flags.any(Flags::FIN_SENT));
        assert!(
            self.snd_nxt <= self.send_limit + fin,
            "sent what was not written"
        );
        assert!(fin == 0 || self.flags.any(Flags::FIN_QUEUED));
        assert!(
            self.snd_nxt - self.snd_una <= 1 << 31,
            "too much outstanding"
        );
        assert!(
            self.window.cwnd >= self.mss.into() || self.window.cwnd == ecn::HELD,
            "a window of {} bytes",
            self.window.cwnd
        );
        assert!(
            !self.flags.any(Flags::URGENT) || self.cold.seldom.is_some(),
            "urgent up to where?"
        );
        assert!(self.mss > 0);
        let sacked = check_list(self.cold.sacked.iter(ranges), self.cold.sacked.len());
        assert_eq!(sacked, u64::from(self.cold.sacked_bytes));
        assert_eq!(sacked > 0, self.flags.any(Flags::SACKED));
        if let (Some(first), Some(last)) = (
            self.cold.sacked.first(ranges),
            self.cold.sacked.last(ranges),
        ) {
            assert!(
                first.start > self.snd_una,
                "SND.UNA is not selectively acknowledged"
            );
            assert!(last.end <= self.snd_nxt, "acknowledged what was not sent");
        }
        assert!(self.transmit_times_fit(ranges), "transmit times");
        let overlap = self.cold.flight.iter(ranges).any(|(range, _)| {
            let mut sacked = self.cold.sacked.iter(ranges);
            sacked.any(|sacked| sacked.overlap(range.start, range.end) > 0)
        });
        assert!(!overlap, "in flight and selectively acknowledged");
        assert_eq!(self.phase != Phase::Open, self.flags.any(Flags::RECOVERING));
        assert_eq!(
            self.state.is_synchronized(),
            !self.flags.any(Flags::UNSYNCHRONIZED)
        );
        if self.state.is_synchronized() && self.snd_una < self.snd_nxt {
            assert!(
                self.retransmit_at != Instant::NEVER,
                "outstanding data without a timer"
            );
            assert!(
                !self.flags.any(Flags::PROBING),
                "probing with data outstanding"
            );
        }
    }

    fn check_receive_side(&self, ranges: &RangePool) {
        let fin = u64::from(self.flags.any(Flags::FIN_RECEIVED));
        assert!(
            self.rcv_nxt <= self.rcv_adv + fin,
            "RCV.NXT within the window"
        );
        assert!(
            self.rcv_adv <= self.rcv_limit.max(self.rcv_nxt),
            "advertised what is not there"
        );
        assert!(self.last_ack_sent <= self.rcv_nxt);
        let held = check_list(
            self.cold.out_of_order.iter(ranges),
            self.cold.out_of_order.len(),
        );
        assert_eq!(held > 0, self.flags.any(Flags::OUT_OF_ORDER));
        if let (Some(first), Some(last)) = (
            self.cold.out_of_order.first(ranges),
            self.cold.out_of_order.last(ranges),
        ) {
            assert!(first.start > self.rcv_nxt, "in-order data is not held");
            assert!(last.end <= self.rcv_adv, "held what was not advertised");
        }
    }
}

/// Sorted, disjoint, not adjacent, not empty. Returns the bytes.
fn check_list(list: impl Iterator<Item = Range>, len: u16) -> u64 {
    let mut bytes = 0;
    let mut count = 0;
    let mut end = None;
    for range in list {
        assert!(range.start < range.end, "empty range");
        assert!(
            end.is_none_or(|end| end < range.start),
            "ranges out of order"
        );
        end = Some(range.end);
        bytes += range.len();
        count += 1;
    }
    assert_eq!(count, len);
    bytes
}
