//! RACK: loss detection by time (RFC 8985 sections 5 and 6).
//!
//! A segment is lost "if another segment that was sent later has been delivered and the reordering window has passed". What was sent when is in
//! the [`crate::flight::Flight`] and, for the segments sent last, in `run_at`:
//!
//! ```text
//!   snd_una                                   run_start                    snd_nxt
//!  ────┼──────────────────────────────────────────┼────────────────────────────┼────
//!      │ cold.flight: ranges, each with its time   │ the run: sent at run_at     │
//! ```
//!
//! A run is what was sent for the first time within a sixty-fourth of a round trip; a connection that sends and is answered
//! has one run and no list. Acknowledgments that header prediction takes do not come here: what they acknowledge was sent
//! before everything that is still out, and says nothing about it.
//!
//! Where the pool has no ranges left, the connection goes on by RFC 6675 until nothing is amiss ([`Mode::Resting`]).

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::config::{Config, LossDetection};
use crate::congestion::Lost;
use crate::connection::Cold;
use crate::flags::Flags;
use crate::flight::{Sent, Tick};
use crate::range_pool::{Range, RangePool};
use crate::recovery::Phase;
use crate::rtt::MAX_RTT_US;
use crate::time::{Instant, millis};

/// DupThresh (RFC 8985 section 5.2).
pub(crate) const DUP_THRESH: u64 = 3;
/// RACK.reo_wnd_persist: recoveries without D-SACK after which the reordering window starts small again.
const PERSIST: u8 = 16;
/// Nodes that taking up one SACK block may need: to close the run, to cut it out, and on the scoreboard.
const NODES_PER_BLOCK: u16 = 3;

/// Whether loss is found by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// No: RFC 6675 is configured, or the peer knows no SACK.
    Off,
    /// Yes.
    On,
    /// Not until nothing is amiss any more: there were no ranges, or the peer has reneged.
    Resting,
}

/// The state of RFC 8985 section 5.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Rack {
    /// Where the run begins, or before SND.UNA.
    pub(crate) run_start: u64,
    /// The reordering timer.
    pub(crate) due: Instant,
    /// RACK.end_seq, modulo 2^32: of the segment that was sent last, among those delivered. Meaningful with `any`.
    end: u32,
    /// RACK.fack, modulo 2^32: the highest offset delivered.
    pub(crate) fack: u32,
    /// RACK.dsack_round, modulo 2^32; over unless it lies ahead of SND.UNA and not beyond SND.NXT.
    dsack_round: u32,
    /// RACK.xmit_ts.
    pub(crate) sent_at: Tick,
    /// RACK.rtt, in microseconds.
    rtt_us: u32,
    /// A delivered segment is known that says something about what is out.
    pub(crate) any: bool,
    pub(crate) mode: Mode,
    /// RACK.reo_wnd_mult and RACK.reo_wnd_persist.
    multiplier: u8,
    persist: u8,
    /// RACK.reordering_seen.
    pub(crate) reordering_seen: bool,
    /// How much later the reordering timer fires.
    slack_ms: u16,
}

impl Rack {
    pub(crate) fn new(config: &Config) -> Self {
        let enabled = config.loss_detection == LossDetection::Rack;
        Self {
            run_start: 0,
            due: Instant::NEVER,
            end: 0,
            fack: 0,
            dsack_round: 0,
            sent_at: Tick::default(),
            rtt_us: 0,
            any: false,
            mode: if enabled { Mode::On } else { Mode::Off },
            multiplier: 1,
            persist: 0,
            reordering_seen: false,
            slack_ms: millis(config.reordering_slack).min(1_000) as u16,
        }
    }
}

/// What one segment's ACK field and SACK option have delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes newly acknowledged, cumulatively or selectively.
    pub(crate) bytes: u64,
    /// Of them, selectively.
    pub(crate) sacked: u64,
    /// SND.UNA moves.
    pub(crate) advanced: bool,
    /// Something was delivered that was sent once only.
    pub(crate) original: bool,
    /// The cumulative acknowledgment covers something that was sent again.
    pub(crate) resent: bool,
    /// What arrived twice (RFC 2883).
    pub(crate) duplicate: Option<Range>,
    /// The round-trip time of what was sent once only and delivered last, in microseconds; 0: not known.
    pub(crate) rtt_us: u32,
    /// The timestamp that was echoed.
    pub(crate) echo: Option<u32>,
    /// When that was sent which was sent last of all that is delivered.
    pub(crate) newest: Option<Tick>,
    /// RACK.fack before this ACK.
    pub(crate) fack: u32,
}

impl Delivery {
    /// Nothing yet.
    pub(crate) fn begin(echo: Option<u32>, fack: u32) -> Self {
        Self {
            echo,
            fack,
            ..Self::default()
        }
    }
}

impl Connection {
    /// Whether loss is found by time right now.
    #[inline]
    pub(crate) fn rack_is_on(&self) -> bool {
        self.flags.any(Flags::RACK)
    }

    /// The peer's SYN is taken: whether there will be SACK is known.
    pub(crate) fn agree_on_rack(&mut self) {
        if !self.flags.any(Flags::SACK) {
            self.cold.rack.mode = Mode::Off;
        }
        let on = self.cold.rack.mode == Mode::On;
        self.flags.assign(Flags::RACK, on);
    }

    /// New data goes out, and what was sent before it is still out: notes when. See [`Self::note_sent`].
    #[inline(never)]
    fn begin_run(&mut self, now: Instant, ranges: &mut RangePool) {
        if self.snd_nxt == self.snd_una {
            self.run_at = now;
            return;
        }
        // A sixty-fourth of SRTT, or nearly so.
        let granularity = u64::from(self.rtt.srtt_x8) * 2;
        if now.as_nanos().saturating_sub(self.run_at.as_nanos()) <= granularity {
            return;
        }
        if !self.flags.any(Flags::RACK) || (ranges.is_plentiful() && self.close_run(ranges)) {
            self.run_at = now;
        }
    }

    /// New data from SND.NXT on goes out.
    #[inline]
    pub(crate) fn note_sent(&mut self, now: Instant, ranges: &mut RangePool) {
        if self.run_at != now {
            self.begin_run(now, ranges);
        }
    }

    /// The run, as far as it is not acknowledged.
    fn run(&self) -> Range {
        Range::new(self.cold.rack.run_start.max(self.snd_una), self.snd_nxt)
    }

    /// That everything that is out is accounted for, once: it has a transmit time, or is selectively acknowledged.
    pub(crate) fn transmit_times_fit(&self, ranges: &RangePool) -> bool {
        let flight = &self.cold.flight;
        let last = flight.iter(ranges).last();
        if !self.rack_is_on() {
            return flight.is_empty() && !self.flags.any(Flags::RUNS);
        }
        let known: u64 = flight.iter(ranges).map(|(range, _)| range.len()).sum();
        known + self.run().len() + u64::from(self.cold.sacked_bytes)
            == u64::from(self.outstanding())
            && last.is_none_or(|(range, _)| range.end <= self.run().start)
            && self.flags.any(Flags::RUNS) != flight.is_empty()
    }

    /// Writes the run down in the list. False: there is no node.
    fn close_run(&mut self, ranges: &mut RangePool) -> bool {
        let run = self.run();
        if run.len() > 0 {
            let sent = Sent::first(Tick::at(self.run_at));
            if self.cold.flight.push(ranges, run, sent).is_err() {
                return false;
            }
            self.flags.set(Flags::RUNS);
        }
        self.cold.rack.run_start = self.snd_nxt;
        true
    }

    /// Before a SACK block is taken up: whether there are nodes for what it may do.
    pub(crate) fn rack_has_room(&mut self, ranges: &mut RangePool) -> bool {
        self.cold.flight.has_room(ranges, NODES_PER_BLOCK) && self.close_run(ranges)
    }

    /// `range` was delivered. Nodes were seen to ([`Self::rack_has_room`]), or it starts at the first one.
    pub(crate) fn rack_deliver(
        &mut self,
        now: Instant,
        range: Range,
        ranges: &mut RangePool,
        delivery: &mut Delivery,
    ) {
        let mut rack = self.cold.rack;
        // What one ACK delivers may have come in any order: only what earlier ones delivered tells of reordering.
        let fack = delivery.fack;
        let seen = Seen {
            now: Tick::at(now),
            min_rtt_us: self.min_rtt_us,
            // The echo of a timestamp says which of two transmissions arrived; not that of a SACK, as a receiver echoes the
            // last segment that was in order (RFC 7323 section 4.3).
            echo: delivery
                .echo
                .filter(|_| self.flags.any(Flags::TIMESTAMPS) && delivery.advanced)
                .map(|echo| self.timestamp(now).wrapping_sub(echo)),
        };
        let run = self.run();
        let mut take = |part: Range, sent: Sent| {
            if delivery
                .newest
                .is_none_or(|newest| sent.at().since(newest) > 0)
            {
                delivery.newest = Some(sent.at());
            }
            if sent.is_resent() {
                delivery.resent |= delivery.advanced;
            } else {
                delivery.original = true;
                delivery.rtt_us = seen.now.since(sent.at()).max(1) as u32;
            }
            // RACK_detect_reordering () (section 6.2 step 3).
            let end = part.end as u32;
            rack.reordering_seen |= is_after(fack, end) && !sent.is_resent();
            if is_after(end, rack.fack) {
                rack.fack = end;
            }
            rack.update(&seen, end, sent);
        };
        let taken = self.cold.flight.take(ranges, range, &mut take);
        debug_assert!(taken.is_ok());
        if run.start.max(range.start) < run.end.min(range.end) {
            let part = Range::new(run.start.max(range.start), run.end.min(range.end));
            take(part, Sent::first(Tick::at(self.run_at)));
        }
        self.cold.rack = rack;
        let any = !self.cold.flight.is_empty();
        self.flags.assign(Flags::RUNS, any);
    }

    /// SND.UNA moved on the fast path. Returns when the data was sent that was acknowledged last, if that is known.
    pub(crate) fn drop_acknowledged_runs(&mut self, ranges: &mut RangePool) -> Option<Tick> {
        let mut newest = None;
        if self.flags.any(Flags::RUNS) {
            let last = self.cold.flight.drop_before(ranges, self.snd_una);
            newest = last.filter(|sent| !sent.is_resent()).map(Sent::at);
            let any = !self.cold.flight.is_empty();
            self.flags.assign(Flags::RUNS, any);
        }
        if self.snd_una > self.cold.rack.run_start {
            newest = Some(Tick::at(self.run_at));
        }
        newest
    }

    /// Before an ACK is looked at: where nothing is amiss, nothing that was delivered before says anything about what is out,
    /// and times that are old would not compare.
    pub(crate) fn forget_stale_rack(&mut self) {
        let rack = &mut self.cold.rack;
        if self.phase == Phase::Open && !self.flags.any(Flags::SACKED) && rack.due == Instant::NEVER
        {
            rack.any = false;
            // What was selectively acknowledged is acknowledged by now.
            rack.fack = self.snd_una as u32;
        }
    }

    /// RACK_update_reo_wnd (): D-SACK says that something was sent again for nothing (section 6.2 step 4).
    pub(crate) fn rack_note_dsack(&mut self) {
        let rack = &mut self.cold.rack;
        let left = rack.dsack_round.wrapping_sub(self.snd_una as u32);
        if left != 0 && left <= (self.snd_nxt - self.snd_una) as u32 {
            return;
        }
        rack.dsack_round = self.snd_nxt as u32;
        rack.multiplier = rack.multiplier.saturating_add(1);
        rack.persist = PERSIST;
    }

    /// "exiting Fast or RTO recovery": after sixteen without D-SACK, the window is the smallest again.
    pub(crate) fn rack_recovery_over(&mut self) {
        let rack = &mut self.cold.rack;
        rack.persist = rack.persist.saturating_sub(1);
        if rack.persist == 0 {
            rack.multiplier = 1;
        }
    }

    /// RACK.reo_wnd, in microseconds (section 6.2 step 4).
    fn reordering_window(&self) -> u32 {
        let rack = &self.cold.rack;
        let mss = u64::from(self.mss);
        let many_sacked = u64::from(self.cold.sacked_bytes) > (DUP_THRESH - 1) * mss
            || u64::from(self.cold.sacked.len()) >= DUP_THRESH;
        if !rack.reordering_seen && (self.phase != Phase::Open || many_sacked) {
            return 0;
        }
        let quarter = self.min_rtt_us.min(MAX_RTT_US) / 4;
        quarter
            .saturating_mul(rack.multiplier.into())
            .min(self.rtt.srtt_us())
    }

    /// RACK_detect_loss (): marks what is lost, and sets the reordering timer for what may be (section 6.2 step 5). Returns
    /// whether something was marked.
    pub(crate) fn rack_detect_loss(&mut self, now: Instant, ranges: &mut RangePool) -> bool {
        self.cold.rack.due = Instant::NEVER;
        if !self.cold.rack.any {
            return false;
        }
        let rack = self.cold.rack;
        let newest = rack.sent_at;
        if newest.since(Tick::at(self.run_at)) >= 0 {
            // Without a node the run is not looked at; the retransmission timer is left for it.
            self.close_run(ranges);
        }
        let wait = rack.rtt_us.saturating_add(self.reordering_window()) as i32;
        let now_tick = Tick::at(now);
        let (mut marked, mut longest) = (false, 0);
        let (window, sack) = (self.window, self.flags.any(Flags::SACK));
        let Cold {
            flight, controller, ..
        } = &mut self.cold;
        flight.update(ranges, |range, sent| {
            let order = newest.since(sent.at());
            let sent_before = order > 0 || (order == 0 && !is_after(range.end as u32, rack.end));
            if sent.is_lost() || !sent_before {
                return sent;
            }
            let remaining = wait - now_tick.since(sent.at());
            if remaining > 0 {
                longest = longest.max(remaining);
                return sent;
            }
            marked = true;
            controller.on_lost(&window, &Lost::range(now, range, sent.at(), sack));
            sent.lost()
        });
        if longest > 0 {
            let slack_us = u32::from(self.cold.rack.slack_ms) * 1_000;
            self.cold.rack.due = now.after_micros(longest as u32 + slack_us);
        }
        marked
    }

    /// The retransmission timer fired: "If SEG.SEQ == SND.UNA OR Segment.xmit_ts + RACK.rtt + RACK.reo_wnd - Now() <= 0:
    /// Segment.lost = TRUE" (section 6.3). False: there are no nodes for it.
    pub(crate) fn rack_mark_on_timeout(&mut self, now: Instant, ranges: &mut RangePool) -> bool {
        self.cold.rack.due = Instant::NEVER;
        if !self.close_run(ranges) {
            return false;
        }
        // Header prediction keeps no RACK.rtt.
        let rtt = self.cold.rack.rtt_us.max(self.rtt.srtt_us());
        let wait = rtt.saturating_add(self.reordering_window()) as i32;
        let now_tick = Tick::at(now);
        let (window, sack) = (self.window, self.flags.any(Flags::SACK));
        let Cold {
            flight, controller, ..
        } = &mut self.cold;
        flight.update(ranges, |range, sent| {
            if sent.is_lost() || now_tick.since(sent.at()) < wait {
                return sent;
            }
            controller.on_lost(&window, &Lost::range(now, range, sent.at(), sack));
            sent.lost()
        });
        let first = self.cold.flight.iter(ranges).next();
        if let Some((range, sent)) = first
            && !sent.is_lost()
        {
            let end = range.end.min(range.start + u64::from(self.mss));
            let segment = Range::new(range.start, end);
            let lost = Lost::range(now, segment, sent.at(), sack);
            self.cold.controller.on_lost(&window, &lost);
            return self
                .cold
                .flight
                .resend(ranges, segment, sent.lost())
                .is_ok();
        }
        true
    }

    /// The range that was sent last of all that is out, as far as it was sent at one time.
    pub(crate) fn rack_last_range(&mut self, ranges: &mut RangePool) -> Option<Range> {
        if !self.close_run(ranges) {
            return None;
        }
        self.cold.flight.iter(ranges).last().map(|(range, _)| range)
    }

    /// All that is out and not selectively acknowledged is lost.
    pub(crate) fn rack_mark_all(&mut self, ranges: &mut RangePool) -> bool {
        let closed = self.close_run(ranges);
        self.cold.flight.update(ranges, |_, sent| sent.lost());
        closed
    }

    /// Nothing is lost after all.
    pub(crate) fn rack_unmark_all(&mut self, ranges: &mut RangePool) {
        self.cold.flight.update(ranges, |_, sent| sent.not_lost());
    }

    /// What is in flight: sent, not selectively acknowledged, not lost.
    pub(crate) fn rack_pipe(&self, ranges: &RangePool) -> u64 {
        let listed = self.cold.flight.iter(ranges);
        let alive = listed.filter(|(_, sent)| !sent.is_lost());
        alive.map(|(range, _)| range.len()).sum::<u64>() + self.run().len()
    }

    /// `range` was sent again.
    pub(crate) fn rack_note_resent(&mut self, now: Instant, range: Range, ranges: &mut RangePool) {
        let sent = Sent::again(Tick::at(now));
        if self.cold.flight.resend(ranges, range, sent).is_err() {
            self.rest_rack(ranges);
            self.cold.high_rxt = range.end;
        }
    }

    /// Goes on by RFC 6675: what was lost, and all before it, is lost and not sent again yet.
    pub(crate) fn rest_rack(&mut self, ranges: &mut RangePool) {
        if !self.rack_is_on() {
            return;
        }
        let listed = self.cold.flight.iter(ranges);
        let lost_end = listed
            .filter(|(_, sent)| sent.is_lost())
            .map(|(range, _)| range.end)
            .last();
        self.cold.lost_edge = lost_end.unwrap_or(self.snd_una).max(self.snd_una);
        self.cold.high_rxt = self.snd_una;
        self.cold.flight.clear(ranges);
        self.cold.rack.due = Instant::NEVER;
        self.cold.rack.mode = Mode::Resting;
        self.flags.clear(Flags::RACK.or(Flags::RUNS));
    }

    /// Nothing is amiss: by time again. When what is out was sent is not known; now is late enough.
    pub(crate) fn resume_rack(&mut self, now: Instant) {
        if self.cold.rack.mode != Mode::Resting || self.flags.any(Flags::LOSSY) {
            return;
        }
        self.cold.rack.mode = Mode::On;
        self.cold.rack.run_start = self.snd_una;
        self.cold.rack.any = false;
        self.run_at = now;
        self.flags.set(Flags::RACK);
    }
}

/// Whether `a` lies after `b`: stream offsets modulo 2^32, within 2^31 of each other.
const fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

/// What judges the round trips of one ACK.
struct Seen {
    now: Tick,
    min_rtt_us: u32,
    /// How long ago, in milliseconds, the segment was sent whose timestamp was echoed.
    echo: Option<u32>,
}

impl Rack {
    /// RACK_update (): section 6.2 step 2.
    fn update(&mut self, seen: &Seen, end: u32, sent: Sent) {
        let rtt = seen.now.since(sent.at());
        if rtt < 0 {
            return;
        }
        if sent.is_resent() {
            // "If ACK.ts_option.echo_reply < SEG.xmit_ts" it was the first transmission that arrived; without timestamps, a
            // round trip less than the least one says the same.
            let earlier = seen.echo.is_some_and(|ago| ago > rtt as u32 / 1_000 + 1);
            if earlier || (rtt as u32) < seen.min_rtt_us {
                return;
            }
        }
        let order = sent.at().since(self.sent_at);
        if !self.any || order > 0 || (order == 0 && is_after(end, self.end)) {
            self.any = true;
            self.rtt_us = rtt as u32;
            self.sent_at = sent.at();
            self.end = end;
        }
    }
}
