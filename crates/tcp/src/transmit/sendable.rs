//! How much new data may go out, and if none, what holds it back (RFC 9293 sections 3.8.6.2.1 and 3.7.4).

use sidecore_wire::TcpFlags;

use crate::Connection;
use crate::flags::Flags;
use crate::time::Instant;

/// How long cork and MSG_MORE hold a partial segment back.
const CORK_MS: u32 = 200;

/// Why no new data can go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// There is none.
    Nothing,
    /// The congestion window.
    Congestion,
    /// The peer's window is closed, or too small to be worth a segment.
    Window,
    /// Nagle's algorithm: a small segment waits for the ACK of the one before.
    Nagle,
    /// The application holds it back.
    Cork,
}

/// New data to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// How many bytes from SND.NXT on.
    pub(super) len: u32,
    /// What the congestion window leaves after it.
    pub(super) room: u32,
    /// Whether it moves [`Connection::snd_sml`].
    pub(super) small: bool,
    /// ACK, and PSH if it goes to the end of what there is, or is a super-segment, which is delivered at its end where the peer puts segments
    /// together again.
    pub(super) flags: TcpFlags,
}

pub(super) const PUSHED: TcpFlags = TcpFlags::ACK.union(TcpFlags::PSH);

impl Connection {
    /// So many of the bytes that wait, wherever they end.
    pub(super) fn plan(&self, len: u32, room: u32) -> Plan {
        let mss = u32::from(self.mss);
        Plan {
            len,
            room,
            small: self.is_small(len),
            flags: if len > mss || self.snd_nxt + u64::from(len) == self.send_limit {
                PUSHED
            } else {
                TcpFlags::ACK
            },
        }
    }

    /// How much new data may go out as one (super-)segment.
    #[inline]
    pub(super) fn sendable<const LOSSY: bool>(
        &self,
        max_segments_bytes: u32,
    ) -> Result<Plan, Hold> {
        let unsent = self.send_limit.saturating_sub(self.snd_nxt);
        if unsent == 0 {
            return Err(Hold::Nothing);
        }
        self.sendable_of::<LOSSY>(unsent, max_segments_bytes)
    }

    /// The same, where so many bytes wait.
    #[inline(always)]
    pub(super) fn sendable_of<const LOSSY: bool>(
        &self,
        unsent: u64,
        max_segments_bytes: u32,
    ) -> Result<Plan, Hold> {
        // D and U of RFC 9293 section 3.8.6.2.1, and what the congestion window leaves.
        let usable = (self.snd_una + u64::from(self.snd_wnd)).saturating_sub(self.snd_nxt);
        let in_flight = if LOSSY {
            self.in_flight()
        } else {
            self.outstanding()
        };
        let room = self.window.cwnd.saturating_sub(in_flight);
        let mss = u32::from(self.mss);
        let most = u64::from(room.min(max_segments_bytes.max(mss))).min(usable);
        let (len, small, flags) = if most < unsent {
            // Not to the end: full segments.
            let most = most as u32;
            if most < mss {
                return self.sendable_below_mss(unsent.min(usable), room);
            }
            let len = most - most % mss;
            let flags = if len > mss { PUSHED } else { TcpFlags::ACK };
            (len, false, flags)
        } else {
            // "PUSHed and D <= U": to the end, with a partial segment last.
            let unsent = unsent as u32;
            match self.hold_partial() {
                None => (unsent, self.is_small(unsent), PUSHED),
                Some(_) if unsent >= mss => {
                    let len = unsent - unsent % mss;
                    return Ok(self.plan(len, room - len));
                }
                Some(hold) => return Err(hold),
            }
        };
        Ok(Plan {
            len,
            room: room - len,
            small,
            flags,
        })
    }

    /// Sender's silly window avoidance, where a window leaves less than a segment (RFC 9293 section 3.8.6.2.1).
    #[cold]
    fn sendable_below_mss(&self, wanted: u64, room: u32) -> Result<Plan, Hold> {
        if u64::from(room) < wanted {
            return Err(Hold::Congestion);
        }
        let len = wanted as u32;
        // "min(D,U) >= Fs * Max(SND.WND)" with Fs = 1/2, "or if … the override timeout occurs".
        let enough = len >= self.max_snd_wnd / 2 || self.flags.any(Flags::FLUSH);
        if len > 0 && enough {
            return Ok(self.plan(len, room - len));
        }
        Err(Hold::Window)
    }

    /// Whether the last, partial segment must wait.
    #[inline]
    fn hold_partial(&self) -> Option<Hold> {
        if self.flags.any(Flags::FLUSH.or(Flags::FIN_QUEUED)) {
            return None;
        }
        if self.flags.any(Flags::CORK.or(Flags::MORE)) {
            return Some(Hold::Cork);
        }
        // Nagle's algorithm (RFC 9293 section 3.7.4) as amended by Minshall and used by Linux: what waits for an ACK is not
        // any small segment, but only one that follows another small one.
        // Its end lies in (SND.UNA, SND.NXT]; `snd_sml` may be of any age.
        let behind = self
            .snd_sml
            .wrapping_sub(self.snd_una as u32)
            .wrapping_sub(1);
        let small_is_out = behind < self.outstanding();
        (small_is_out && !self.flags.any(Flags::NO_DELAY)).then_some(Hold::Nagle)
    }

    /// Whether so many bytes are less than a segment, or, where Nagle's algorithm has to know of that, end with less than one.
    #[inline]
    fn is_small(&self, len: u32) -> bool {
        let mss = u32::from(self.mss);
        len < mss || (!self.flags.any(Flags::NO_DELAY) && !len.is_multiple_of(mss))
    }

    /// No data can go out: if nothing else will wake the connection, a timer must.
    #[inline]
    pub(super) fn note_hold(&mut self, now: Instant, hold: Hold) {
        match hold {
            Hold::Nothing | Hold::Nagle => {}
            Hold::Congestion => {
                self.flags.set(Flags::CWND_LIMITED);
                if self.outstanding() == 0 {
                    self.wait_for_a_segment(now);
                }
            }
            Hold::Window => self.enter_persist(now),
            Hold::Cork => {
                if !self.flags.any(Flags::CORKED) {
                    self.flags.set(Flags::CORKED);
                    self.cold.cork_at = now.after_millis(CORK_MS);
                }
            }
        }
    }

    /// Whether the congestion window holds everything back, nothing is out whose ACK could open it, and no timer runs that does.
    pub(super) fn stands_still(&self) -> bool {
        let timed = self.retransmit_at != Instant::NEVER && !self.flags.any(Flags::PROBING);
        self.outstanding() == 0 && !timed
    }

    /// The congestion window is less than a segment (an echo of a mark, when it was one segment): the retransmission timer ends that
    /// ([`Connection::ecn_release`]). It may have been stopped since by an ACK of everything, or served as persist timer.
    #[cold]
    #[inline(never)]
    fn wait_for_a_segment(&mut self, now: Instant) {
        if self.stands_still() {
            self.flags.clear(Flags::PROBING);
            self.retransmit_at = now.after_micros(self.rto_us);
            self.rto_after_us = 0;
        }
    }
}
