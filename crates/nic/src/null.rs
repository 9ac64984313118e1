//! No device at all: for engines that serve loopback connections only.

use std::os::fd::BorrowedFd;

use sidecore_wire::MacAddress;

use crate::{Caps, Nic, NicCounters, RxBurst, RxFrame, TxFrame};

/// A device that receives nothing; what it is given is dropped and counted.
#[derive(Debug)]
pub struct Null {
    caps: Caps,
    counters: NicCounters,
}

impl Null {
    /// A device with the given station address and an MTU of 1500.
    pub fn new(mac: MacAddress) -> Self {
        Self {
            caps: Caps {
                mac,
                mtu: 1500,
                tso_max: 0,
                tx_checksum: true,
                max_fragments: 64,
            },
            counters: NicCounters::default(),
        }
    }
}

impl Default for Null {
    fn default() -> Self {
        Self::new(MacAddress([2, 0, 0, 0, 0, 0]))
    }
}

impl Nic for Null {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    #[inline]
    fn receive(&mut self, _burst: &mut RxBurst) -> usize {
        0
    }

    fn frame(&self, _frame: &RxFrame) -> &[u8] {
        &[]
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.clear();
    }

    /// True: what is submitted is dropped and counted, so that nothing waits for room that never comes.
    #[inline]
    fn has_room(&self) -> bool {
        true
    }

    fn submit(&mut self, _frame: &TxFrame<'_>) {
        self.counters.tx_dropped_down += 1;
    }

    #[inline]
    fn flush(&mut self) {}

    #[inline]
    fn in_flight(&self) -> bool {
        false
    }

    fn sleep_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> &NicCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_and_counts() {
        let mut nic = Null::default();
        let mut burst = RxBurst::new();
        assert_eq!(nic.receive(&mut burst), 0);
        assert!(nic.has_room());
        nic.submit(&TxFrame {
            header: &[0; 60],
            payload: &[],
            payload_len: 0,
            checksum: None,
            segment_size: 0,
        });
        nic.flush();
        assert!(!nic.in_flight());
        assert_eq!(nic.counters().tx_dropped(), 1);
        assert_eq!(nic.frame(&RxFrame::default()), b"");
        assert!(nic.sleep_fd().is_none());
    }
}
