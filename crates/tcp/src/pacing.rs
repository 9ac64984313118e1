//! Pacing: data goes out no faster than a rate, in quanta of about a millisecond's worth.
//!
//! The rate is the controller's (BBR), or derived from the window and the round-trip time as Linux does it ([`crate::Config::pacing`]), and in any
//! case no more than [`crate::Config::max_pacing_rate`]. Before the next quantum may go, [`Connection::poll_transmit`] gives nothing but ACKs, and
//! [`Connection::next_timeout`] says when it may. Acknowledgments, SYNs, resets and probes are not held back, nor is the first
//! retransmission of a recovery; but what they carry counts.
//!
//! ```text
//!   C.next_send_time = max(Now(), C.next_send_time) + size / rate
//! ```
//!
//! While data waits, `Now()` is not looked at: a timer that fires late must not cost throughput. What was not sent for want of data, or for the
//! window's sake, is not made up for.
//!
//! A connection that is not paced has no state for it, and [`Flags::PACED`] keeps it from all this.

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::congestion::{Setting, Transmission, initial_window};
use crate::flags::Flags;
use crate::flight::Tick;
use crate::range_pool::RangePool;
use crate::recovery::Phase;
use crate::time::Instant;
use crate::types::{TxLimits, TxSegment};

/// How much a late timer may make up for. Timers are expected to be no later than that.
const MAX_CATCH_UP_US: u32 = 2_000;
/// The largest quantum, in bytes.
const MAX_QUANTUM: u64 = 65_536;

/// C.send_quantum, in bytes: "C.pacing_rate * 1ms", at most 64 KB and at least two segments (draft-ietf-ccwg-bbr, "Send Quantum").
pub(crate) fn quantum(rate: u64, mss: u32) -> u32 {
    ((rate / 1_000).min(MAX_QUANTUM) as u32).max(2 * mss)
}

/// The state of a paced connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Pacing {
    /// C.next_send_time.
    next: Instant,
    /// In bytes a second.
    max_rate: u64,
    /// [`crate::Config::pacing`].
    configured: bool,
    /// Data waits for `next`, and the timer for it runs.
    waiting: bool,
    /// Since the last data nothing waited for its time: what might have been sent is forfeit.
    idle: bool,
}

impl Pacing {
    /// What a connection needs that is set up so; `None`: it is not paced.
    pub(crate) fn new(configured: bool, model: bool, max_rate: Option<u64>) -> Option<Box<Self>> {
        (configured || model || max_rate.is_some()).then(|| {
            Box::new(Self {
                next: Instant::ZERO,
                max_rate: max_rate.map_or(u64::MAX, |rate| rate.max(1)),
                configured,
                waiting: false,
                idle: true,
            })
        })
    }

    pub(crate) fn change_clock(&mut self, from: Instant, to: Instant) {
        self.next = self.next.on_other_clock(from, to);
    }
}

impl Connection {
    /// Bounds the rate at which data goes out, in bytes a second (SO_MAX_PACING_RATE); `None`: no bound. A connection that has one is
    /// paced, whatever its controller.
    pub fn set_max_pacing_rate(&mut self, rate: Option<u64>) {
        let model = self.cold.controller.is_model();
        match &mut self.cold.pacing {
            Some(pacing) if rate.is_some() || pacing.configured || model => {
                pacing.max_rate = rate.map_or(u64::MAX, |rate| rate.max(1));
            }
            pacing => *pacing = Pacing::new(false, model, rate),
        }
        let paced = self.cold.pacing.is_some();
        self.flags.assign(Flags::PACED, paced);
    }

    /// As last set: [`Connection::set_max_pacing_rate`].
    pub fn max_pacing_rate(&self) -> Option<u64> {
        let rate = self.cold.pacing.as_ref()?.max_rate;
        (rate != u64::MAX).then_some(rate)
    }

    /// The rate at which data goes out at most, in bytes a second; `None`: it is not paced.
    pub fn pacing_rate(&self) -> Option<u64> {
        let pacing = self.cold.pacing.as_ref()?;
        let rate = match self.cold.controller.pacing_rate() {
            Some(rate) if rate > 0 => rate,
            _ => self.window_rate(),
        };
        Some(rate.min(pacing.max_rate))
    }

    /// Linux's `tcp_update_pacing_rate`: 200 % of a window for each round trip in slow start, and 120 % near its end and after it. Without a
    /// round trip there is no rate.
    fn window_rate(&self) -> u64 {
        let srtt_us = self.rtt.srtt_us();
        if srtt_us == 0 {
            return u64::MAX;
        }
        let percent = if self.window.cwnd < self.window.ssthresh / 2 {
            200
        } else {
            120
        };
        let window = self.window.cwnd.max(self.outstanding());
        (u64::from(window) * percent * 10_000 / u64::from(srtt_us)).max(1)
    }

    /// When data that waits may go out.
    #[cold]
    pub(crate) fn pacing_due(&self) -> Instant {
        match &self.cold.pacing {
            Some(pacing) if pacing.waiting => pacing.next,
            _ => Instant::NEVER,
        }
    }

    #[cold]
    pub(crate) fn pacing_timeout(&mut self, now: Instant) {
        if let Some(pacing) = &mut self.cold.pacing
            && pacing.next <= now
        {
            pacing.waiting = false;
        }
    }

    /// Whether data waits for its time, as far as is known.
    #[cold]
    pub(crate) fn pacing_waits(&self) -> bool {
        self.pacing_due() != Instant::NEVER
    }

    /// Whether data must wait; then the timer runs.
    fn pacing_holds(&mut self, now: Instant) -> bool {
        let Some(pacing) = &mut self.cold.pacing else {
            return false;
        };
        pacing.waiting = false;
        if now >= pacing.next || self.flags.any(Flags::RETRANSMIT_NOW) {
            return false;
        }
        let waiting = self.wants_transmit_data();
        if let Some(pacing) = &mut self.cold.pacing {
            pacing.waiting = waiting;
        }
        waiting
    }

    /// What [`Connection::poll_transmit`] gives where data is paced: as it would be otherwise, but not too early, and not too much at a time.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll_paced(
        &mut self,
        now: Instant,
        tx: &TxLimits,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        if self.pacing_holds(now) {
            return self.poll_ack(now);
        }
        let before = self.in_flight();
        self.tell_model_of_transmission(now, before);
        let mss = u32::from(self.mss);
        let rate = self.pacing_rate().unwrap_or(u64::MAX);
        let limits = TxLimits {
            max_segments_bytes: tx.max_segments_bytes.min(quantum(rate, mss)),
        };
        let segment = self.poll_data(now, &limits, ranges);
        let bytes = segment.as_ref().map_or(0, |segment| {
            (segment.payload.end - segment.payload.start) as u32
        });
        if bytes > 0 {
            self.note_paced(now, bytes, rate);
        }
        // What follows SND.UNA may be lost; nothing else keeps a window from being filled but the application.
        let in_flight = self.in_flight();
        let nothing_left = self.snd_nxt >= self.send_limit && !self.lost_left(ranges);
        if bytes == 0 || nothing_left {
            if let Some(pacing) = &mut self.cold.pacing {
                pacing.idle = true;
            }
            if nothing_left && in_flight < self.window.cwnd {
                self.cold.controller.mark_app_limited(in_flight);
            }
        }
        segment
    }

    /// Pacing leaves room in a window that was used up and will be again: it counts as used as long as half of it is (as RFC 7661 section 4.3
    /// has it). Otherwise most ACKs of a paced sender would not count.
    pub(crate) fn is_paced_at_the_window(&self, len: u32) -> bool {
        self.flags.any(Flags::PACED)
            && self.flags.any(Flags::CWND_LIMITED)
            && !self.cold.controller.is_model()
            && self.in_flight().saturating_add(len) >= self.window.cwnd / 2
    }

    /// Data goes out: when may the next?
    fn note_paced(&mut self, now: Instant, bytes: u32, rate: u64) {
        let Some(pacing) = &mut self.cold.pacing else {
            return;
        };
        let earliest = if pacing.idle {
            now
        } else {
            now - core::time::Duration::from_micros(MAX_CATCH_UP_US.into())
        };
        let takes = u64::from(bytes) * 1_000_000_000 / rate;
        pacing.next = pacing.next.max(earliest) + core::time::Duration::from_nanos(takes);
        pacing.idle = false;
    }

    /// Whether something lost waits to be sent again.
    fn lost_left(&self, ranges: &RangePool) -> bool {
        self.phase != Phase::Open && self.next_lost(ranges).is_some()
    }

    fn tell_model_of_transmission(&mut self, now: Instant, in_flight: u32) {
        if !self.cold.controller.is_model() {
            return;
        }
        let mss = u32::from(self.mss);
        let setting = Setting {
            mss,
            initial_window: initial_window(self.cold.settings.initial_window_segments, mss),
            srtt_us: self.rtt.srtt_us(),
            in_flight,
        };
        let controller = &mut self.cold.controller;
        controller.on_transmit(now, &setting, &mut self.window);
    }

    /// Data up to `end` goes out, before it is counted. `retransmission`: not in the current run.
    #[cold]
    pub(crate) fn sample_transmission(&mut self, now: Instant, end: u64, len: u32, again: bool) {
        if !self.cold.controller.is_model() || len == 0 {
            return;
        }
        let before = self.in_flight();
        let sent = Transmission {
            at: Tick::at(if again { now } else { self.run_at }),
            before,
            in_flight: before.saturating_add(len),
            end: end as u32,
            granularity_us: self.rtt.srtt_us() / 64,
        };
        self.cold.controller.on_sent(&sent);
    }
}
