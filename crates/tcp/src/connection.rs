//! The control block: its fields, how it is opened, and what it tells about itself.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use sidecore_wire::{SeqNumber, TcpFlags, TcpHeader, WindowScale};

use crate::challenge::Challenges;
use crate::config::{Algorithm, Config, Settings};
use crate::congestion::{Controller, Window};
use crate::ecn::{self, EcnMarks, EcnState};
use crate::fast_open::FastOpen;
use crate::flags::Flags;
use crate::flight::Flight;
use crate::pacing::Pacing;
use crate::path::Path;
use crate::prr::Prr;
use crate::rack::Rack;
use crate::range_pool::{RangeList, RangePool};
use crate::recovery::Phase;
use crate::rtt::RttEstimator;
use crate::sack::RecentBlocks;
use crate::time::{Instant, micros, millis};
use crate::tlp::Tlp;
use crate::types::{CloseReason, State};
use crate::undo::Undo;
use crate::urgent::Urgent;
use crate::window::Autotune;

/// What RFC 9293 section 3.7.1 assumes of a peer over IPv4 that announces no MSS (MUST-15).
pub(crate) const DEFAULT_PEER_MSS: u16 = 536;
/// The least segment that we let a peer or an ICMP message talk us into; smaller ones serve attacks only.
pub(crate) const MIN_MSS: u16 = 88;
/// Bytes of the timestamps option, padded.
pub(crate) const TIMESTAMPS_LEN: u16 = 12;
/// No stream offset.
pub(crate) const NO_OFFSET: u64 = u64::MAX;

/// One TCP connection's control block.
///
/// All positions are *stream offsets*: 64-bit, byte 0 is the first data byte after the SYN, in each direction. They
/// never wrap; sequence numbers are `snd_base + offset` (`snd_base` = ISS + 1) and `rcv_base + offset` (`rcv_base` =
/// IRS + 1), modulo 2^32. A FIN takes one offset after the last byte. A SYN takes none: it is what the states SYN-SENT
/// and SYN-RECEIVED are about.
///
/// ```text
///  send     acknowledged │ sent, not acknowledged │ may be sent │ written, must wait │ not written
///  ──────────────────────┼────────────────────────┼─────────────┼────────────────────┼────────────►
///                     snd_una                  snd_nxt   snd_una + min(     send_limit
///                                                        snd_wnd, cwnd)
///
///  receive  received in order │ advertised: may arrive │ buffer that is not advertised yet │
///  ───────────────────────────┼────────────────────────┼───────────────────────────────────┼─────►
///      last_ack_sent ≤ rcv_nxt                      rcv_adv                            rcv_limit
/// ```
///
/// The order of calls: what came in (`handle_segment`, `handle_icmp`, `handle_timeout`), what the application did
/// (`set_send_limit`, …), then at the end of the turn `poll_transmit` until it gives `None`; then sleep until
/// `next_timeout` at the latest. When `state` is Closed and `wants_transmit` is false, call `release` and drop it.
///
/// The fields before `cold` are the hot part: 208 bytes, all that the steady state touches.
#[derive(Debug, Serialize, Deserialize)]
#[repr(C)]
pub struct Connection {
    pub(crate) flags: Flags,
    pub(crate) state: State,
    pub(crate) phase: Phase,
    /// Snd.Wind.Shift and Rcv.Wind.Shift (RFC 7323 section 2.2).
    #[serde(with = "crate::snapshot::scale")]
    pub(crate) snd_scale: WindowScale,
    #[serde(with = "crate::snapshot::scale")]
    pub(crate) rcv_scale: WindowScale,
    /// ISS + 1 and IRS + 1.
    #[serde(with = "crate::snapshot::seq")]
    pub(crate) snd_base: SeqNumber,
    #[serde(with = "crate::snapshot::seq")]
    pub(crate) rcv_base: SeqNumber,
    /// SND.WND, in bytes.
    pub(crate) snd_wnd: u32,

    /// RCV.NXT; after the peer's FIN is in order, it lies after that.
    pub(crate) rcv_nxt: u64,
    /// The right edge that the peer was told: RCV.NXT + RCV.WND.
    pub(crate) rcv_adv: u64,
    /// Last.ACK.sent (RFC 7323 section 4.3).
    pub(crate) last_ack_sent: u64,
    /// SND.UNA.
    pub(crate) snd_una: u64,
    /// SND.NXT; nothing beyond it was ever sent.
    pub(crate) snd_nxt: u64,
    /// Up to where the application has written. Fixed once FIN_QUEUED is set: then it is the FIN's offset.
    pub(crate) send_limit: u64,
    /// Up to where there is receive buffer.
    pub(crate) rcv_limit: u64,

    /// SND.WL1 and SND.WL2, as stream offsets modulo 2^32.
    pub(crate) snd_wl1: u32,
    pub(crate) snd_wl2: u32,
    /// MAX.SND.WND: the largest window that the peer ever offered.
    pub(crate) max_snd_wnd: u32,
    pub(crate) window: Window,
    /// The end, modulo 2^32, of the last segment sent that was smaller than the MSS (Minshall's variant of Nagle); without Nagle's algorithm,
    /// those at the end of a super-segment are left out.
    pub(crate) snd_sml: u32,
    /// TS.Recent; it is as old as `last_received`.
    pub(crate) ts_recent: u32,
    pub(crate) ts_offset: u32,

    /// Eff.snd.MSS: what one segment carries, all options but SACK taken off.
    pub(crate) mss: u16,
    /// What the peer's full segments carry, as far as seen.
    pub(crate) rcv_mss: u16,
    /// By how much the right edge must be able to move before it moves: min(RCV.BUFF / 2, MSS).
    pub(crate) rcv_sws: u16,
    pub(crate) delayed_ack_ms: u16,
    /// Segments that are still acknowledged quickly.
    pub(crate) quick_acks: u8,
    pub(crate) ecn_marks: EcnMarks,
    /// With less room than this in the congestion window, in KiB and rounded up, it may count as used. Looked at instead of what it
    /// follows from (`room_unused`), which changes rarely: whatever lets that grow sets this to ROOM_UNKNOWN.
    pub(crate) room_due: u16,

    /// How long after `retransmit_at` the retransmission timer proper fires, in microseconds.
    pub(crate) rto_after_us: u32,
    /// RTO, backoff included.
    pub(crate) rto_us: u32,
    pub(crate) min_rto_us: u32,
    pub(crate) max_rto_us: u32,
    pub(crate) min_rtt_us: u32,
    pub(crate) rtt: RttEstimator,

    /// Retransmission or persist timer, or what comes before it: a tail loss probe, the reordering timer.
    pub(crate) retransmit_at: Instant,
    /// Delayed ACK.
    pub(crate) ack_at: Instant,
    /// Keepalive, FIN-WAIT-2 or TIME-WAIT. May fire early.
    pub(crate) idle_at: Instant,
    /// When data was last sent for the first time, or up to a sixty-fourth of a round trip before that.
    pub(crate) run_at: Instant,
    /// The data up to `rtt_end` is being timed; NO_OFFSET: none is.
    pub(crate) rtt_end: u64,
    /// When that was sent. While nothing is timed: about when data was sent last.
    pub(crate) rtt_started: Instant,
    pub(crate) last_received: Instant,

    pub(crate) cold: Cold,
}

/// What only the opening, loss, probing, closing and statistics touch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cold {
    /// When a partial segment that is held back by cork goes out; meaningful with Flags::CORKED.
    pub(crate) cork_at: Instant,
    pub(crate) controller: Controller,
    pub(crate) pacing: Option<Box<Pacing>>,
    pub(crate) settings: Settings,
    pub(crate) autotune: Autotune,

    /// Received out of order: all after RCV.NXT.
    #[serde(skip)]
    pub(crate) out_of_order: RangeList,
    /// What the next SACK option says.
    pub(crate) recent: RecentBlocks,
    /// Where the peer's FIN is, if known.
    pub(crate) rcv_fin: u64,

    /// The scoreboard: selectively acknowledged ranges, all within SND.UNA..SND.NXT.
    #[serde(skip)]
    pub(crate) sacked: RangeList,
    /// Bytes of `sacked`.
    pub(crate) sacked_bytes: u32,
    /// What is out and not selectively acknowledged, with its transmit times; empty without RACK.
    #[serde(skip)]
    pub(crate) flight: Flight,
    pub(crate) rack: Rack,
    pub(crate) tlp: Tlp,
    pub(crate) prr: Prr,
    pub(crate) undo: Undo,
    pub(crate) ecn: EcnState,
    /// RecoveryPoint (RFC 6675), `recover` (RFC 6582).
    pub(crate) recover: u64,
    /// HighRxt: up to where was retransmitted in this recovery.
    pub(crate) high_rxt: u64,
    /// What is not selectively acknowledged before this is deemed lost.
    pub(crate) lost_edge: u64,
    /// RFC 6675's estimate of the bytes in flight; kept while one of Flags::LOSSY is set.
    pub(crate) pipe: u32,
    /// Without SACK: bytes that duplicate ACKs say have left the network.
    pub(crate) reno_sacked: u32,

    /// When the oldest unanswered transmission or probe was made; the user timeout counts from it.
    pub(crate) unanswered_since: Instant,
    /// The SEG.SEQ of Flags::RESET_REPLY.
    #[serde(with = "crate::snapshot::seq")]
    pub(crate) reset_reply_seq: SeqNumber,
    pub(crate) challenges: Challenges,
    pub(crate) path: Path,
    pub(crate) duplicate_acks: u8,
    /// Retransmissions by timer, or zero-window probes, in a row.
    pub(crate) attempts: u8,
    /// What was in flight when data was sent last with most of the congestion window used, in bytes.
    pub(crate) window_used: u32,
    /// By how many bits the interval of zero-window probes is shifted.
    pub(crate) probe_backoff: u8,
    pub(crate) keepalive_probes: u8,
    /// ICMP said that the peer cannot be reached.
    pub(crate) soft_error: bool,
    /// The connection was opened by the peer.
    pub(crate) passive: bool,
    /// All that is out is to be sent again: segments were too large.
    pub(crate) all_lost: bool,
    /// The SYN-ACK was answered, and the round trip measured, before the handshake was let complete.
    pub(crate) deferred: bool,
    /// RescueRxt: the rescue retransmission of this recovery was used.
    pub(crate) rescued: bool,
    /// The window scale is offered (only while SYN-SENT and SYN-RECEIVED).
    pub(crate) scale_offered: bool,
    /// What the peer announced (before that: what is assumed if it does not), and what we did.
    pub(crate) peer_mss: u16,
    pub(crate) announced_mss: u16,
    pub(crate) counters: Counters,
    /// What few connections ever need.
    pub(crate) seldom: Option<Box<Seldom>>,
}

/// What few connections ever need, and what would make all others larger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seldom {
    /// Of connections that were opened so.
    pub(crate) fast_open: Option<FastOpen>,
    pub(crate) urgent: Urgent,
    /// Upper bound of the retransmission timeout, as it was configured, where the user timeout is shorter; else 0.
    pub(crate) max_rto_us: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) retransmissions: u32,
    pub(crate) timeouts: u32,
    pub(crate) recoveries: u32,
    pub(crate) duplicate_acks: u32,
    pub(crate) out_of_order: u32,
    pub(crate) challenge_acks: u32,
    pub(crate) tail_probes: u32,
    pub(crate) undos: u32,
    pub(crate) path_probes: u32,
    pub(crate) ce_received: u32,
    pub(crate) ece_received: u32,
    pub(crate) ecn_reductions: u32,
    pub(crate) bytes_retransmitted: u64,
}

const _: () = assert!(core::mem::offset_of!(Connection, cold) <= 208);
const _: () = assert!(core::mem::size_of::<Connection>() <= 704);

/// Data segments that are acknowledged quickly at the start of a connection.
const QUICK_ACKS: u8 = 16;

impl Connection {
    /// An active open (RFC 9293 section 3.10.1): SYN-SENT. The SYN comes from [`Connection::poll_transmit`].
    ///
    /// Call [`Connection::set_receive_limit`] before, so that the SYN can advertise a window.
    pub fn connect(now: Instant, config: &Config, iss: SeqNumber) -> Self {
        let mut connection = Self::new(now, config, iss);
        connection.state = State::SynSent;
        connection.flags.set(Flags::SYN_DUE);
        connection
    }

    /// A passive open: `syn` came for a listener (RFC 9293 section 3.10.7.2): SYN-RECEIVED. The SYN-ACK comes from
    /// [`Connection::poll_transmit`]. Data on the SYN is not taken; the peer will send it again.
    pub fn accept(now: Instant, config: &Config, iss: SeqNumber, syn: &TcpHeader) -> Self {
        debug_assert!(syn.flags.contains(TcpFlags::SYN));
        let mut connection = Self::new(now, config, iss);
        connection.state = State::SynReceived;
        connection.flags.set(Flags::SYN_DUE);
        connection.cold.passive = true;
        connection.take_syn(now, syn);
        connection
    }

    /// As [`Connection::accept`], for a SYN that was answered before with this `iss` and forgotten (a SYN cookie): in SYN-RECEIVED,
    /// no SYN-ACK is due, no timer runs, and the round-trip time is not known. The segment that brings the cookie must follow at once.
    /// `receive_limit` is what the SYN-ACK's window was chosen from.
    pub fn accept_answered(
        now: Instant,
        config: &Config,
        iss: SeqNumber,
        syn: &TcpHeader,
        receive_limit: u64,
    ) -> Self {
        let mut connection = Self::accept(now, config, iss, syn);
        connection.flags.clear(Flags::SYN_DUE);
        connection.set_receive_limit(receive_limit);
        connection.select_syn_window();
        connection
    }

    /// The flags of one that has not begun.
    fn flags(config: &Config) -> Flags {
        let mut flags = Flags::UNSYNCHRONIZED;
        flags.assign(Flags::TIMESTAMPS, config.timestamps);
        flags.assign(Flags::SACK, config.sack);
        flags.assign(Flags::NO_DELAY, config.no_delay);
        flags.assign(Flags::RTO_MARGIN, config.min_rto_above_srtt);
        flags.assign(Flags::REQUIRE_TIMESTAMPS, config.require_timestamps);
        flags.assign(Flags::QUICK_ACK, config.quick_ack);
        flags.assign(Flags::DELAY_FIN_ACK, config.delay_fin_ack);
        let paced = config.pacing || config.congestion == Algorithm::Bbr;
        flags.assign(Flags::PACED, paced || config.max_pacing_rate.is_some());
        flags
    }

    fn new(now: Instant, config: &Config, iss: SeqNumber) -> Self {
        let flags = Self::flags(config);
        let settings = Settings::new(config);
        let announced_mss = config.mss.max(MIN_MSS);
        let min_rto_us = micros(config.min_rto).max(1);
        let max_rto_us = micros(config.max_rto).max(min_rto_us);
        Self {
            flags,
            state: State::Closed,
            phase: Phase::Open,
            snd_scale: WindowScale::default(),
            rcv_scale: config.window_scale.unwrap_or_default(),
            snd_base: iss.add(1),
            rcv_base: SeqNumber(0),
            rcv_nxt: 0,
            rcv_adv: 0,
            last_ack_sent: 0,
            snd_una: 0,
            snd_nxt: 0,
            send_limit: 0,
            rcv_limit: 0,
            snd_wnd: 0,
            snd_wl1: 0,
            snd_wl2: 0,
            max_snd_wnd: 0,
            window: Window::initial(settings.initial_window_segments, u32::from(announced_mss)),
            snd_sml: 0,
            ts_recent: 0,
            ts_offset: config.timestamp_offset,
            mss: announced_mss,
            rcv_mss: DEFAULT_PEER_MSS.min(announced_mss),
            rcv_sws: 0,
            delayed_ack_ms: delayed_ack_ms(config.delayed_ack),
            quick_acks: QUICK_ACKS,
            ecn_marks: EcnMarks::default(),
            room_due: crate::transmit::ROOM_UNKNOWN,
            retransmit_at: Instant::NEVER,
            ack_at: Instant::NEVER,
            idle_at: Instant::NEVER,
            run_at: now,
            rto_after_us: 0,
            rto_us: micros(config.initial_rto).clamp(min_rto_us, max_rto_us),
            min_rto_us,
            max_rto_us,
            min_rtt_us: u32::MAX,
            rtt: RttEstimator::default(),
            rtt_end: NO_OFFSET,
            rtt_started: now,
            last_received: now,
            cold: Cold::new(now, config, settings, announced_mss, iss.0),
        }
    }

    /// Takes the peer's sequence number and options from its SYN.
    pub(crate) fn take_syn(&mut self, now: Instant, syn: &TcpHeader) {
        let options = &syn.options;
        self.rcv_base = syn.seq.add(1);
        self.last_received = now;
        // RFC 7323 section 1.3: an option is in use if both SYNs carried it. What was offered stands in `flags`.
        if let Some(timestamps) = options.timestamps {
            self.ts_recent = timestamps.value;
        } else {
            self.flags.clear(Flags::TIMESTAMPS);
        }
        if !options.sack_permitted {
            self.flags.clear(Flags::SACK);
        }
        self.agree_on_rack();
        self.agree_on_ecn(now, syn.flags);
        match options.window_scale {
            Some(scale) if self.cold.scale_offered => self.snd_scale = scale,
            _ => {
                self.cold.scale_offered = false;
                self.rcv_scale = WindowScale::default();
            }
        }
        self.cold.peer_mss = options.mss.unwrap_or(self.cold.peer_mss).max(MIN_MSS);
        self.set_effective_mss();
        // Nothing was sent yet: the initial window counts in segments of the size now known.
        self.window = Window::initial(
            self.cold.settings.initial_window_segments,
            u32::from(self.mss),
        );
        // "the window field in a segment where the SYN bit is set … MUST NOT be scaled" (RFC 7323 section 2.2)
        self.snd_wnd = syn.window.scaled_by(WindowScale::default());
        self.max_snd_wnd = self.snd_wnd;
    }

    /// Eff.snd.MSS (RFC 9293 section 3.7.1, RFC 6691): "the smaller … of the send MSS … and the largest transmission size
    /// permitted by the IP layer", less the options that every segment carries.
    pub(crate) fn set_effective_mss(&mut self) {
        let options = if self.flags.any(Flags::TIMESTAMPS) {
            TIMESTAMPS_LEN
        } else {
            0
        };
        let path = self.cold.path.low;
        self.mss = self.cold.peer_mss.min(self.cold.announced_mss).min(path) - options;
        self.room_due = crate::transmit::ROOM_UNKNOWN;
        if self.window.cwnd != ecn::HELD {
            // A window of one segment stays one when segments grow (RFC 4821): else nothing could go out, nor anything come that opens it.
            self.window.cwnd = self.window.cwnd.max(self.mss.into());
        }
    }

    /// The sequence number at an offset of what we send.
    #[inline]
    pub(crate) fn snd_seq(&self, offset: u64) -> SeqNumber {
        self.snd_base.add(offset as u32)
    }

    /// The sequence number at an offset of what we receive.
    #[inline]
    pub(crate) fn rcv_seq(&self, offset: u64) -> SeqNumber {
        self.rcv_base.add(offset as u32)
    }

    /// The offset of what we receive at a sequence number: the one nearest to RCV.NXT. Negative: before the stream.
    #[inline]
    pub(crate) fn rcv_offset(&self, seq: SeqNumber) -> i64 {
        let distance = seq.distance_from(self.rcv_seq(self.rcv_nxt)) as i32;
        self.rcv_nxt as i64 + i64::from(distance)
    }

    /// The offset of what we send at a sequence number: the one nearest to SND.UNA. Negative: before the stream.
    #[inline]
    pub(crate) fn snd_offset(&self, seq: SeqNumber) -> i64 {
        let distance = seq.distance_from(self.snd_seq(self.snd_una)) as i32;
        self.snd_una as i64 + i64::from(distance)
    }

    /// SND.NXT - SND.UNA.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        (self.snd_nxt - self.snd_una) as u32
    }

    /// Over: no timer runs, nothing but what was marked as due goes out.
    pub(crate) fn enter_closed(&mut self, reason: CloseReason) -> CloseReason {
        self.state = State::Closed;
        self.flags.set(Flags::UNSYNCHRONIZED);
        self.flags.clear(
            Flags::ACK_NOW
                .or(Flags::SYN_DUE)
                .or(Flags::PROBE_DUE)
                .or(Flags::ACKS_OWED)
                .or(Flags::RETRANSMIT_NOW)
                .or(Flags::CORKED)
                .or(Flags::PACED)
                .or(Flags::FIN_WAIT_2_DUE),
        );
        self.retransmit_at = Instant::NEVER;
        self.ack_at = Instant::NEVER;
        self.idle_at = Instant::NEVER;
        reason
    }

    /// Gives the connection's ranges back. Must be called before the connection is dropped.
    pub fn release(&mut self, ranges: &mut RangePool) {
        self.cold.out_of_order.clear(ranges);
        self.cold.sacked.clear(ranges);
        self.cold.flight.clear(ranges);
        self.cold.sacked_bytes = 0;
        self.cold.recent.clear();
        self.flags
            .clear(Flags::OUT_OF_ORDER.or(Flags::SACKED).or(Flags::RUNS));
    }
}

impl Cold {
    fn new(
        now: Instant,
        config: &Config,
        settings: Settings,
        announced_mss: u16,
        seed: u32,
    ) -> Self {
        Self {
            cork_at: Instant::NEVER,
            pacing: Pacing::new(
                config.pacing,
                config.congestion == Algorithm::Bbr,
                config.max_pacing_rate,
            ),
            controller: Controller::new(config.congestion, now, seed),
            settings,
            autotune: Autotune::default(),
            out_of_order: RangeList::new(),
            recent: RecentBlocks::default(),
            rcv_fin: NO_OFFSET,
            sacked: RangeList::new(),
            sacked_bytes: 0,
            flight: Flight::new(),
            rack: Rack::new(config),
            tlp: Tlp::default(),
            prr: Prr::default(),
            undo: Undo::default(),
            ecn: EcnState::new(config),
            recover: 0,
            high_rxt: 0,
            lost_edge: 0,
            pipe: 0,
            reno_sacked: 0,
            unanswered_since: now,
            reset_reply_seq: SeqNumber(0),
            challenges: Challenges::new(config.challenge_limit),
            path: Path::new(now, config, announced_mss),
            duplicate_acks: 0,
            attempts: 0,
            window_used: u32::MAX,
            probe_backoff: 0,
            keepalive_probes: 0,
            soft_error: false,
            passive: false,
            all_lost: false,
            deferred: false,
            rescued: false,
            scale_offered: config.window_scale.is_some(),
            peer_mss: config.default_peer_mss,
            announced_mss,
            counters: Counters::default(),
            seldom: None,
        }
    }
}

/// "the delay MUST be less than 0.5 seconds" (RFC 9293 section 3.8.6.3).
pub(crate) fn delayed_ack_ms(delay: Duration) -> u16 {
    millis(delay).min(499) as u16
}
