//! One of the drivers, chosen at run time.

use std::os::fd::BorrowedFd;

use crate::{Caps, Nic, NicCounters, Null, RxBurst, RxFrame, Tap, TxFrame, Wire};

/// One of the drivers, chosen at run time; calls are dispatched by `match`.
// With a tag of its own, which is read by one load, and not worked out from a value that no capacity has.
#[repr(u8)]
pub enum AnyNic {
    /// No device.
    Null(Null),
    /// A TAP device.
    Tap(Tap),
    /// One end of a wire.
    Wire(Wire),
}

macro_rules! each {
    ($self:expr, $nic:ident => $call:expr) => {
        match $self {
            AnyNic::Null($nic) => $call,
            AnyNic::Tap($nic) => $call,
            AnyNic::Wire($nic) => $call,
        }
    };
}

impl From<Null> for AnyNic {
    fn from(nic: Null) -> Self {
        Self::Null(nic)
    }
}

impl From<Tap> for AnyNic {
    fn from(nic: Tap) -> Self {
        Self::Tap(nic)
    }
}

impl From<Wire> for AnyNic {
    fn from(nic: Wire) -> Self {
        Self::Wire(nic)
    }
}

impl Nic for AnyNic {
    #[inline]
    fn caps(&self) -> &Caps {
        each!(self, nic => nic.caps())
    }

    #[inline]
    fn receive(&mut self, burst: &mut RxBurst) -> usize {
        each!(self, nic => nic.receive(burst))
    }

    #[inline]
    fn frame(&self, frame: &RxFrame) -> &[u8] {
        each!(self, nic => nic.frame(frame))
    }

    #[inline]
    fn release(&mut self, burst: &mut RxBurst) {
        each!(self, nic => nic.release(burst));
    }

    #[inline]
    fn has_room(&self) -> bool {
        each!(self, nic => nic.has_room())
    }

    #[inline]
    fn submit(&mut self, frame: &TxFrame<'_>) {
        each!(self, nic => nic.submit(frame));
    }

    #[inline]
    fn flush(&mut self) {
        each!(self, nic => nic.flush());
    }

    #[inline]
    fn in_flight(&self) -> bool {
        each!(self, nic => nic.in_flight())
    }

    fn sleep_fd(&self) -> Option<BorrowedFd<'_>> {
        each!(self, nic => nic.sleep_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        each!(self, nic => nic.prepare_sleep())
    }

    fn awake(&mut self) {
        each!(self, nic => nic.awake());
    }

    fn next_arrival_ns(&self) -> Option<u64> {
        each!(self, nic => nic.next_arrival_ns())
    }

    fn counters(&self) -> &NicCounters {
        each!(self, nic => nic.counters())
    }
}
