//! What was taken for loss and was none: the sender goes back to where it was.
//!
//! A retransmission, by timer or not, was spurious if
//! - the ACK that covers it echoes a timestamp from before it: Eifel (RFC 3522);
//! - D-SACK says of every byte that was sent again that it arrived twice (RFC 2883, RFC 3708);
//! - after a timeout, ACKs cover what was never sent again: F-RTO (RFC 5682).
//!
//! The answer is that of RFC 4015: ssthresh as it was, cwnd up to what was, without a burst; after a timeout also RTO, without
//! its backoff.

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::congestion::CongestionControl;
use crate::flags::Flags;
use crate::rack::Delivery;
use crate::range_pool::RangePool;
use crate::recovery::Phase;
use crate::time::Instant;

/// F-RTO (RFC 5682 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Frto {
    #[default]
    Off,
    /// Step 1: the first segment was sent again, or is about to be.
    Resent,
    /// Step 2b: SND.UNA has moved; new data is sent instead of what seems lost.
    NewData,
}

/// What to go back to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Undo {
    /// SND.UNA when the window was reduced, modulo 2^32.
    from: u32,
    /// Once the recovery is over: until SND.UNA is here (modulo 2^32), D-SACK may still tell.
    until: u32,
    cwnd: u32,
    ssthresh: u32,
    /// Bytes sent again of which D-SACK has not told.
    resent: u32,
    /// The timestamp of the first retransmission.
    stamp: u32,
    active: bool,
    any_resent: bool,
    pub(crate) frto: Frto,
}

impl Connection {
    /// The window is about to be reduced.
    pub(crate) fn undo_save(&mut self) {
        self.cold.undo = Undo {
            from: self.snd_una as u32,
            until: 0,
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            resent: 0,
            stamp: 0,
            active: true,
            any_resent: false,
            frto: Frto::Off,
        };
    }

    /// The recovery is over, and nothing has been undone: what was sent again may still turn out to have arrived twice.
    pub(crate) fn undo_wait(&mut self) {
        self.cold.undo.until = self.snd_nxt as u32;
        self.cold.undo.frto = Frto::Off;
    }

    /// Whether an ACK may still tell that nothing was lost.
    pub(crate) fn undo_is_possible(&self) -> bool {
        self.cold.undo.active
    }

    pub(crate) fn undo_forget(&mut self) {
        self.cold.undo.active = false;
    }

    /// So much was sent again.
    pub(crate) fn undo_note_resent(&mut self, now: Instant, bytes: u32) {
        let stamp = self.timestamp(now);
        let undo = &mut self.cold.undo;
        if self.phase == Phase::Open || !undo.active {
            return;
        }
        if !undo.any_resent {
            undo.any_resent = true;
            undo.stamp = stamp;
        }
        undo.resent = undo.resent.saturating_add(bytes);
    }

    /// Whether this ACK says that nothing was lost; then all is as before.
    pub(crate) fn undo_on_ack(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        ranges: &mut RangePool,
    ) -> bool {
        if !self.cold.undo.active {
            return false;
        }
        // It is no further than SND.NXT; if it seems to be, SND.UNA went past it long ago.
        let left = self.cold.undo.until.wrapping_sub(self.snd_una as u32);
        if self.phase == Phase::Open && left > self.outstanding() {
            self.cold.undo.active = false;
            return false;
        }
        let spurious = self.eifel_detects(delivery)
            || self.all_arrived_twice(delivery)
            || self.frto_detects(delivery);
        if spurious {
            self.undo(now, ranges);
        }
        spurious
    }

    /// RFC 3522 section 3.2 step 4: "If the value of the Timestamp Echo Reply field of the acceptable ACK's Timestamps option is smaller than the
    /// value of RetransmitTS".
    fn eifel_detects(&self, delivery: &Delivery) -> bool {
        let undo = &self.cold.undo;
        let echo = delivery.echo.filter(|echo| *echo != 0);
        self.flags.any(Flags::TIMESTAMPS)
            && undo.any_resent
            && delivery.resent
            && echo.is_some_and(|echo| (echo.wrapping_sub(undo.stamp) as i32) < 0)
    }

    /// RFC 3708 section 2, for every segment that was sent again.
    fn all_arrived_twice(&mut self, delivery: &Delivery) -> bool {
        let undo = &mut self.cold.undo;
        let Some(duplicate) = delivery.duplicate else {
            return false;
        };
        let before = ((duplicate.start as u32).wrapping_sub(undo.from) as i32) < 0;
        if !undo.any_resent || undo.resent == 0 || before {
            return false;
        }
        let bytes = duplicate.len().min(undo.resent.into()) as u32;
        undo.resent -= bytes;
        undo.resent == 0
    }

    /// Step 3b of RFC 5682 section 3.1: "the acknowledgment … acknowledges … data that was not retransmitted after the timeout".
    fn frto_detects(&self, delivery: &Delivery) -> bool {
        // Step 2a: at first, an ACK that does not move SND.UNA proves nothing.
        let step = match self.cold.undo.frto {
            Frto::Off => false,
            Frto::Resent => delivery.advanced,
            Frto::NewData => true,
        };
        self.phase == Phase::Loss && step && delivery.original
    }

    /// RFC 4015, and RFC 9438 section 4.9.
    fn undo(&mut self, now: Instant, ranges: &mut RangePool) {
        let undo = self.cold.undo;
        let by_timer = self.phase == Phase::Loss;
        self.cold.counters.undos = self.cold.counters.undos.wrapping_add(1);
        self.cold.undo.active = false;
        self.ecn_withdraw_reduction();
        self.cold.controller.on_undo(&mut self.window, now);
        if self.phase != Phase::Open {
            self.rack_unmark_all(ranges);
            // Which of two transmissions was delivered is in doubt.
            self.cold.rack.any = false;
            self.reopen();
        }
        if by_timer {
            // "RTO restoring": the backoff answered a loss that there was not.
            self.rto_us = self.base_rto_us();
            self.flags.clear(Flags::BACKED_OFF);
        } else {
            // What was taken for lost was late: it arrived out of order (RACK.reordering_seen of RFC 8985 section 5.3).
            self.cold.rack.reordering_seen = true;
        }
        if self.cold.controller.is_model() {
            return;
        }
        let calm = self.outstanding().saturating_add(self.burst());
        self.window.ssthresh = self.window.ssthresh.max(undo.ssthresh);
        self.room_due = crate::transmit::ROOM_UNKNOWN;
        self.window.cwnd = self.window.cwnd.max(undo.cwnd.min(calm));
        if self.window.cwnd < undo.cwnd {
            // The rest by slow start.
            self.window.ssthresh = self.window.ssthresh.max(undo.cwnd);
        }
    }

    /// After a timeout: steps 2 and 3a of RFC 5682 section 3.1. Returns whether new data is to be sent now, and nothing again.
    pub(crate) fn frto_on_ack(&mut self, acked: u32, delivery: &Delivery, duplicate: bool) {
        let undo = &mut self.cold.undo;
        match undo.frto {
            Frto::Off => {}
            Frto::Resent => {
                let new_data = self.snd_nxt < self.send_limit
                    && self.snd_nxt < self.snd_una + u64::from(self.snd_wnd);
                let advanced = acked > 0 && self.snd_una < self.cold.recover;
                if advanced && new_data && delivery.sacked == 0 {
                    undo.frto = Frto::NewData;
                    self.cold.recover = self.snd_nxt;
                } else {
                    // "the conventional RTO recovery"
                    undo.frto = Frto::Off;
                }
            }
            // Step 3a, a duplicate ACK: the loss was real.
            Frto::NewData if acked == 0 && duplicate => undo.frto = Frto::Off,
            Frto::NewData => {}
        }
    }

    /// Whether new data goes out rather than what is deemed lost.
    pub(crate) fn frto_prefers_new_data(&self) -> bool {
        self.phase == Phase::Loss && self.cold.undo.frto == Frto::NewData
    }
}
