//! Urgent data (RFC 9293 section 3.8.5, RFC 6093): a mark in the stream, in each direction. The data itself is data like all other: it is
//! sent and received in line, in its order.
//!
//! The urgent pointer points to the octet *after* the urgent data, as RFC 6093 section 3.1 settled it and every widely used TCP has it.
//!
//! ```text
//!  send     SND.UNA ── URG, pointer = SND.UP − SEG.SEQ ── SND.UP ── no URG ──►
//!  receive  RCV.NXT ── there is urgent data ahead ─────── RCV.UP ── none ────►
//! ```

use serde::{Deserialize, Serialize};
use sidecore_wire::{SackBlocks, TcpFlags};

use crate::Connection;
use crate::connection::Seldom;
use crate::flags::Flags;
use crate::range_pool::RangePool;
use crate::time::Instant;
use crate::types::{TxLimits, TxSegment};

/// The marks of both directions, as stream offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Urgent {
    /// SND.UP: the urgent data that was written ends before it. Meaningful with Flags::URGENT.
    send: u64,
    /// RCV.UP: the urgent data that the peer told of ends before it; 0: it told of none.
    receive: u64,
}

impl Connection {
    /// What the application has written, or is about to write with the next [`Connection::set_send_limit`], is urgent up to stream offset
    /// `end` (RFC 9293 section 3.8.5, MUST-30, 31). Going back is ignored, and so is what is acknowledged already.
    ///
    /// Until all before `end` is acknowledged, segments of what lies before it carry URG, and none is cut by the device: its pointer holds
    /// for one place only. The last partial segment does not wait for Nagle's algorithm, cork, or a larger window. Where the peer's
    /// window keeps data back, an ACK tells of it at once.
    pub fn set_urgent(&mut self, end: u64) {
        let known = self.urgent_send_end().unwrap_or(self.snd_una);
        if end <= known {
            return;
        }
        self.seldom().urgent.send = end;
        self.flags.set(Flags::URGENT);
        if end > self.snd_nxt {
            self.flags.set(Flags::FLUSH);
        }
        if self.state.is_synchronized() {
            self.flags.set(Flags::ACK_NOW);
        }
    }

    /// SND.UP, while anything before it is not acknowledged: the stream offset after the urgent data.
    pub fn urgent_send_end(&self) -> Option<u64> {
        let seldom = self.cold.seldom.as_deref()?;
        (self.flags.any(Flags::URGENT) && self.snd_una < seldom.urgent.send)
            .then_some(seldom.urgent.send)
    }

    /// RCV.UP: the stream offset after the last urgent data that the peer told of, whether it was received by now or not; `None`: it told
    /// of none so far (MUST-33).
    pub fn urgent_receive_end(&self) -> Option<u64> {
        let seldom = self.cold.seldom.as_deref()?;
        (seldom.urgent.receive > 0).then_some(seldom.urgent.receive)
    }

    /// What few connections have; made when it is needed first.
    pub(crate) fn seldom(&mut self) -> &mut Seldom {
        self.cold.seldom.get_or_insert_default()
    }

    /// RFC 9293 section 3.10.7.4, sixth: "If the URG bit is set, RCV.UP <- max(RCV.UP, SEG.UP)". Whether it moved, and lies ahead of what
    /// was received: then the application is to be told (MUST-32).
    ///
    /// `seq` is the segment's own, as a stream offset: the pointer counts from there, wherever the window begins.
    pub(crate) fn take_urgent_pointer(&mut self, seq: i64, pointer: u16) -> bool {
        let up = seq + i64::from(pointer);
        let known = self.urgent_receive_end().unwrap_or(0).max(self.rcv_nxt);
        if up <= known as i64 {
            return false;
        }
        self.seldom().urgent.receive = up as u64;
        true
    }

    /// poll_transmit while Flags::URGENT is set.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll_urgent(
        &mut self,
        now: Instant,
        tx: &TxLimits,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        let Some(up) = self.urgent_send_end() else {
            self.flags.clear(Flags::URGENT);
            return self.poll_not_urgent(now, tx, ranges);
        };
        // One by one: the device would give all that it cuts the same pointer.
        let mut segment = self.poll_not_urgent(now, &TxLimits::default(), ranges)?;
        let header = &mut segment.header;
        let at = self.snd_offset(header.seq);
        let ahead = up as i64 - at;
        if ahead > 0 && !header.flags.intersects(TcpFlags::SYN | TcpFlags::RST) {
            header.flags |= TcpFlags::URG;
            // No pointer reaches further: it moves on with the segments (MUST-31).
            header.urgent = ahead.min(u16::MAX.into()) as u16;
            if segment.payload.end - segment.payload.start > segment.segment_size.into() {
                // SACK blocks would have it cut in two. They go with an ACK of their own.
                header.options.sack = SackBlocks::new();
                segment.segment_size = self.mss;
                self.flags.set(Flags::ACK_NOW);
            }
            if at < self.snd_una as i64 {
                // A probe lies before the window, where the peer looks at nothing: an ACK in its window says what it cannot.
                self.flags.set(Flags::ACK_NOW);
            }
        }
        Some(segment)
    }
}
