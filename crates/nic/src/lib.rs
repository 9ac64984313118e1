//! Network drivers behind one trait: TAP, and a wire that joins two engines in memory.
//!
//! # The shape of a driver
//!
//! Every driver is a module of its own with the same parts:
//!
//! * a `*Config` and a constructor that returns the device ready for use, or a [`NicError`] that names the mend;
//! * one type that implements [`Nic`], is `Send` (made on one thread, used on another) and is not shared;
//! * a `sys.rs` that holds all of its `unsafe` code;
//! * tests that run without special hardware.
//!
//! | driver | what is at the other end |
//! |---|---|
//! | [`tap`] | the kernel of this machine, through a TAP device with the virtio-net header |
//! | [`wire`] | another engine of this process, through memory |
//! | [`null`] | nothing: for engines that serve loopback connections only |
//!
//! [`AnyNic`] chooses among them at run time by `match`, so that the engine's loop needs no `dyn`. [`link`] is the
//! model of an imperfect link (loss, delay, reordering, rate) that the wire and the laboratory use.
//!
//! # Calling order
//!
//! Once a turn of the engine: [`Nic::receive`], then [`Nic::frame`] for each frame of the burst, [`Nic::release`],
//! then [`Nic::submit`] as often as [`Nic::has_room`] allows, then one [`Nic::flush`]. Before sleeping:
//! [`Nic::prepare_sleep`], and if it says so wait until [`Nic::sleep_fd`] is readable, then [`Nic::awake`].

#![deny(unsafe_code)]

mod any;
mod burst;
mod counters;
mod error;
mod frame;
pub mod link;
pub mod null;
pub mod tap;
pub mod wire;

use std::os::fd::BorrowedFd;

pub use any::AnyNic;
pub use burst::{BURST, RxBurst, RxFrame};
pub use counters::NicCounters;
pub use error::NicError;
pub use frame::{HEADER_MAX, TxFrame, complete_checksum};
pub use link::{Link, LinkModel};
pub use null::Null;
pub use sidecore_shm::MemRef;
pub use tap::{Tap, TapConfig, TapIo};
pub use wire::{Wire, WireConfig};

use sidecore_wire::MacAddress;

/// What a device can do. It does not change while the device is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// The station address of our end.
    pub mac: MacAddress,
    /// Largest IP packet in bytes, without the Ethernet header. Super-segments may exceed it.
    pub mtu: u16,
    /// Payload bytes of the largest TCP super-segment that the device cuts into segments; 0: it cuts none.
    pub tso_max: u32,
    /// Whether the device completes transport checksums ([`TxFrame::checksum`]) at no cost to the caller's core.
    pub tx_checksum: bool,
    /// How many pieces [`TxFrame::payload`] may have.
    pub max_fragments: usize,
}

/// A network device with one receive and one transmit queue, owned by one engine thread. See the crate's page for
/// the calling order.
///
/// No call blocks. What a peer sends cannot make any of them panic.
pub trait Nic {
    /// What the device can do.
    fn caps(&self) -> &Caps;

    /// Takes up to [`BURST`] frames off the device, as far as `burst` has room, and says how many. Each is ours until
    /// [`release`](Self::release).
    fn receive(&mut self, burst: &mut RxBurst) -> usize;

    /// The bytes of a frame that [`receive`](Self::receive) gave, from the Ethernet header on, contiguous. Nobody
    /// writes to them before they are released. Empty if `frame` is not a frame of this device.
    fn frame(&self, frame: &RxFrame) -> &[u8];

    /// Gives all frames of `burst` back and empties it.
    fn release(&mut self, burst: &mut RxBurst);

    /// Whether the next [`submit`](Self::submit) is taken. What the device drops later is counted, not reported here.
    fn has_room(&self) -> bool;

    /// Hands a frame over; it may wait until [`flush`](Self::flush). `frame.header` is copied. The memory of
    /// `frame.payload` must stay mapped until `flush` has returned and [`in_flight`](Self::in_flight) is false. A
    /// frame that breaks the rules of [`TxFrame`], or for which there is no room, is dropped and counted.
    fn submit(&mut self, frame: &TxFrame<'_>);

    /// Sends what was submitted: called once a turn.
    fn flush(&mut self);

    /// Whether the driver still refers to memory of submitted payloads.
    fn in_flight(&self) -> bool;

    /// Becomes readable when frames are there, after [`prepare_sleep`](Self::prepare_sleep). `None`: there will never
    /// be any.
    fn sleep_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Announces that the caller is about to wait on [`sleep_fd`](Self::sleep_fd). False: frames are there already
    /// (or nearly), do not sleep.
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// Ends what [`prepare_sleep`](Self::prepare_sleep) began, slept or not.
    fn awake(&mut self) {}

    /// When frames will arrive without [`sleep_fd`](Self::sleep_fd) saying so, in nanoseconds of the monotonic clock:
    /// a sleep must not be longer. `None`: no such frames. Only a wire with a slow link has any.
    fn next_arrival_ns(&self) -> Option<u64> {
        None
    }

    /// Counts since the device was opened.
    fn counters(&self) -> &NicCounters;
}
