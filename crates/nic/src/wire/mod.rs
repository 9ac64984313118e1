//! A wire between two engines of one process: frames cross in memory.
//!
//! Each direction is a ring with one writer and one reader (see `sys.rs`). A frame is copied once, when it is submitted,
//! and read where it lies. Checksums are not computed, and the receiver is told that they are valid, as a device tells
//! that has verified them; if the link's model corrupts frames, they are computed by the sender and left to the receiver.
//!
//! With a [`LinkModel`] that is not perfect, frames pass through a [`Link`] at the receiving end, at one more copy. The
//! time on the link begins when the receiver looks for frames.

#[allow(unsafe_code)]
mod sys;
mod wake;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use sidecore_sys::clock::monotonic_ns;
use sidecore_wire::MacAddress;

use crate::frame::{HEADER_MAX, complete_checksum};
use crate::link::{Frame, FrameInfo, Link, LinkCounters, LinkModel};
use crate::{BURST, Caps, Nic, NicCounters, NicError, RxBurst, RxFrame, TxFrame};
use wake::Wakes;

const ETHERNET_LEN: u16 = 14;
/// Payload bytes of the largest super-segment: what an IPv4 packet holds beside the largest headers.
const TSO_MAX: u32 = 65_535 - 60 - 60;
/// Payload pieces of a frame. Nothing depends on it but the callers' arrays.
const FRAGMENTS_MAX: usize = 64;

/// What [`pair`] makes.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Frames of the greatest ordinary length that each direction holds at least. More small frames fit.
    pub capacity: usize,
    /// Largest IP packet in bytes, at least 576.
    pub mtu: u16,
    /// Whether TCP super-segments pass, whole.
    pub tso: bool,
    /// Checksums are computed by the sender and left to the receiver, as on a line that may damage frames: for ends that pass frames on to
    /// somebody else. So it is anyway if the link's model corrupts.
    pub checksums: bool,
    /// How each direction behaves; super-segments count as one frame. Its seed is not used, but [`seed`](Self::seed); an outage counts from the
    /// making of the wire; there is no router that would know an MTU ([`join`](crate::link::join) has one).
    pub link: LinkModel,
    /// Seed of the links; each direction has a stream of chance of its own.
    pub seed: u64,
    /// The station addresses of the two ends.
    pub macs: [MacAddress; 2],
}

impl Default for WireConfig {
    /// 512 frames, MTU 1500, super-segments, a perfect link.
    fn default() -> Self {
        Self {
            capacity: 512,
            mtu: 1500,
            tso: true,
            checksums: false,
            link: LinkModel::default(),
            seed: 1,
            macs: [
                MacAddress([0x02, 0x5c, 0, 1, 0, 1]),
                MacAddress([0x02, 0x5c, 0, 1, 0, 2]),
            ],
        }
    }
}

/// Makes a wire and gives its two ends, for two threads.
///
/// # Errors
///
/// The capacity or MTU is out of range, the link's model has an MTU, or the system has no descriptors left.
pub fn pair(config: &WireConfig) -> Result<(Wire, Wire), NicError> {
    if config.mtu < 576 || !(1..=1 << 20).contains(&config.capacity) {
        return Err(NicError::BadConfig(format!(
            "a wire of {} frames with MTU {} is impossible: use 1 to 1048576 frames, MTU 576 or more",
            config.capacity, config.mtu
        )));
    }
    if config.link.mtu != 0 {
        return Err(NicError::BadConfig(
            "a wire has no router that would drop what is too big: give the wire itself an MTU, or join devices by a link".into(),
        ));
    }
    let frame_max = u64::from(config.mtu) + u64::from(ETHERNET_LEN);
    let longest = if config.tso {
        frame_max.max(HEADER_MAX as u64 + u64::from(TSO_MAX))
    } else {
        frame_max
    };
    let bytes = (frame_max + sys::LINE) * config.capacity as u64;
    let (from_a, to_b) = sys::ring(bytes, longest);
    let (from_b, to_a) = sys::ring(bytes, longest);
    let wakes = Arc::new(Wakes::new()?);
    let end = |index: usize, out, input| Wire {
        caps: Caps {
            mac: config.macs[index],
            mtu: config.mtu,
            tso_max: if config.tso { TSO_MAX } else { 0 },
            tx_checksum: true,
            max_fragments: FRAGMENTS_MAX,
        },
        counters: NicCounters::default(),
        frame_max: frame_max as usize,
        checksums: config.checksums || config.link.corrupt > 0.0,
        out,
        input,
        link: LinkEnd::new(config, index as u64),
        wakes: Arc::clone(&wakes),
        index,
        submitted: false,
    };
    Ok((end(0, from_a, to_a), end(1, from_b, to_b)))
}

/// One end of a wire.
pub struct Wire {
    caps: Caps,
    counters: NicCounters,
    /// Bytes of the longest frame that is no super-segment.
    frame_max: usize,
    /// Whether to compute checksums.
    checksums: bool,
    out: sys::Sender,
    input: sys::Receiver,
    link: Option<Box<LinkEnd>>,
    wakes: Arc<Wakes>,
    /// Which end this is: 0 or 1.
    index: usize,
    /// Something was submitted since the last flush.
    submitted: bool,
}

impl Wire {
    /// What the link did to the frames that came (or did not come) here. All zero for a perfect link.
    pub fn link_counters(&self) -> LinkCounters {
        self.link
            .as_ref()
            .map_or_else(LinkCounters::default, |end| *end.link.counters())
    }

    /// Copies the frame into the ring. `None`: it breaks the rules of [`TxFrame`].
    #[inline]
    fn copy(memory: &mut [u8], frame: &TxFrame<'_>, checksums: bool) -> Option<()> {
        let (header, mut rest) = memory.split_at_mut_checked(frame.header.len())?;
        header.copy_from_slice(frame.header);
        for piece in frame.payload {
            let (place, after) = rest.split_at_mut_checked(piece.len())?;
            piece.copy_to(place);
            rest = after;
        }
        if !rest.is_empty() {
            return None;
        }
        match frame.checksum {
            Some((start, offset)) if checksums => complete_checksum(memory, start, offset),
            _ => Some(()),
        }
    }
}

/// A record's mark: what travels with a frame. Never 0, as no frame is empty, and never all ones.
#[derive(Clone, Copy)]
struct Mark {
    len: u32,
    info: FrameInfo,
}

impl Mark {
    #[inline]
    const fn pack(self) -> u64 {
        self.len as u64
            | (self.info.gso_size as u64) << 32
            | (self.info.checksum_valid as u64) << 48
    }

    #[inline]
    const fn unpack(word: u64) -> Self {
        Self {
            len: word as u32,
            info: FrameInfo {
                gso_size: (word >> 32) as u16,
                checksum_valid: word >> 48 & 1 != 0,
            },
        }
    }
}

impl Nic for Wire {
    #[inline]
    fn caps(&self) -> &Caps {
        &self.caps
    }

    #[inline]
    fn receive(&mut self, burst: &mut RxBurst) -> usize {
        if let Some(end) = &mut self.link {
            return end.receive(&mut self.input, burst, &mut self.counters);
        }
        let before = burst.len();
        while burst.room() > 0 {
            let Some(word) = self.input.peek() else {
                break;
            };
            let mark = Mark::unpack(word);
            let frame = RxFrame {
                token: self.input.take(mark.len.into()),
                len: mark.len,
                checksum_valid: mark.info.checksum_valid,
                gso_size: mark.info.gso_size,
            };
            burst.push(frame);
            self.counters.count_received(&frame);
        }
        burst.len() - before
    }

    #[inline]
    fn frame(&self, frame: &RxFrame) -> &[u8] {
        match &self.link {
            None => self.input.frame(frame.token, frame.len),
            Some(end) => end.frame(frame),
        }
    }

    #[inline]
    fn release(&mut self, burst: &mut RxBurst) {
        match &mut self.link {
            None => self.input.release(),
            Some(end) => end.release(),
        }
        burst.clear();
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    #[inline]
    fn submit(&mut self, frame: &TxFrame<'_>) {
        let len = frame.len();
        let too_long = if frame.segment_size == 0 {
            len > self.frame_max
        } else {
            frame.payload_len > self.caps.tso_max
        };
        if too_long || !frame.is_sound(FRAGMENTS_MAX) {
            self.counters.tx_dropped_invalid += 1;
            return;
        }
        if self.wakes.is_gone(1 - self.index) {
            self.counters.tx_dropped_down += 1;
            return;
        }
        let Some(memory) = self.out.begin(len as u64) else {
            self.counters.tx_dropped_full += 1;
            return;
        };
        if Self::copy(memory, frame, self.checksums).is_none() {
            self.counters.tx_dropped_invalid += 1;
            return;
        }
        let mark = Mark {
            len: len as u32,
            info: FrameInfo {
                checksum_valid: !self.checksums,
                gso_size: frame.segment_size,
            },
        };
        self.out.commit(mark.pack());
        self.counters.count_sent(len, frame.segment_size != 0);
        self.submitted = true;
    }

    /// Frames cross when they are submitted; this wakes the other end, if it sleeps.
    #[inline]
    fn flush(&mut self) {
        if core::mem::take(&mut self.submitted) && self.wakes.wake(1 - self.index) {
            self.counters.wakeups += 1;
            self.counters.syscalls += 1;
        }
    }

    #[inline]
    fn in_flight(&self) -> bool {
        false
    }

    fn sleep_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wakes.fd(self.index))
    }

    fn prepare_sleep(&mut self) -> bool {
        self.wakes.announce_sleep(self.index);
        if self.input.is_empty() {
            return true;
        }
        self.wakes.cancel_sleep(self.index);
        false
    }

    fn awake(&mut self) {
        self.wakes.awake(self.index);
        self.counters.syscalls += 1;
    }

    fn next_arrival_ns(&self) -> Option<u64> {
        let end = self.link.as_ref()?;
        Some(end.link.next_arrival_ns()?.saturating_add(end.start_ns))
    }

    fn counters(&self) -> &NicCounters {
        &self.counters
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.wakes.leave(self.index);
    }
}

/// The receiving end of a direction with an imperfect link.
struct LinkEnd {
    link: Link,
    /// When it was made: time 0 of the link.
    start_ns: u64,
    /// The frames that the engine has; a token is an index.
    held: [Frame; BURST],
    held_len: usize,
}

impl LinkEnd {
    /// `None` for a perfect link.
    fn new(config: &WireConfig, index: u64) -> Option<Box<Self>> {
        let model = LinkModel {
            seed: config.seed.wrapping_mul(2).wrapping_add(index),
            ..config.link
        };
        (!model.is_perfect()).then(|| {
            Box::new(Self {
                link: Link::new(model),
                start_ns: monotonic_ns(),
                held: core::array::from_fn(|_| Frame::default()),
                held_len: 0,
            })
        })
    }

    fn receive(
        &mut self,
        input: &mut sys::Receiver,
        burst: &mut RxBurst,
        counters: &mut NicCounters,
    ) -> usize {
        let now = monotonic_ns().saturating_sub(self.start_ns);
        while let Some(word) = input.peek() {
            let mark = Mark::unpack(word);
            let token = input.take(mark.len.into());
            self.link
                .push_with(now, input.frame(token, mark.len), mark.info);
            input.release();
        }
        let before = burst.len();
        while burst.room() > 0
            && let Some(place) = self.held.get_mut(self.held_len)
            && let Some(frame) = self.link.pop(now)
        {
            let description = RxFrame {
                token: self.held_len as u32,
                len: frame.bytes.len() as u32,
                checksum_valid: frame.info.checksum_valid,
                gso_size: frame.info.gso_size,
            };
            *place = frame;
            self.held_len += 1;
            burst.push(description);
            counters.count_received(&description);
        }
        burst.len() - before
    }

    fn frame(&self, frame: &RxFrame) -> &[u8] {
        let held = self.held.get(..self.held_len).unwrap_or_default();
        held.get(frame.token as usize)
            .map_or(&[], |held| held.bytes.as_slice())
    }

    fn release(&mut self) {
        for frame in self.held.iter_mut().take(self.held_len) {
            self.link.recycle(core::mem::take(frame));
        }
        self.held_len = 0;
    }
}

#[cfg(test)]
mod tests;
