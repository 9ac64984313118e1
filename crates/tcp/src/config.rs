//! What one connection is set up with.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use sidecore_wire::WindowScale;

use crate::challenge::ChallengeLimit;
use crate::connection::DEFAULT_PEER_MSS;
use crate::path::MtuProbing;
use crate::time::millis;

/// A congestion controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Algorithm {
    /// Slow start and congestion avoidance of RFC 5681.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 8257, for data centres whose switches mark: NewReno, but ECN reduces the window in proportion to the marks.
    Dctcp,
    /// BBRv3 (draft-ietf-ccwg-bbr): a model of the path, and pacing. Experimental, as the draft is.
    Bbr,
}

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
pub enum Ecn {
    /// Neither asked for nor answered.
    Off,
    /// Used where the peer asks for it. What Linux does by default.
    #[default]
    Accept,
    /// Asked for, too; a SYN that is not answered is sent again without. With [`Algorithm::Dctcp`], `Accept` is as this.
    Request,
}

/// How loss is found where the peer knows SACK; without SACK, it is by duplicate ACKs (RFC 6582).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum LossDetection {
    /// By time, with tail loss probes: RACK-TLP (RFC 8985).
    #[default]
    Rack,
    /// By what was selectively acknowledged above it: RFC 6675.
    DupThresh,
}

/// Probes on a connection that is silent (RFC 9293 section 3.8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes after which the connection is given up.
    pub probes: u8,
}

impl Default for Keepalive {
    /// Two hours, 75 seconds, 9 probes: what Linux does.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            probes: 9,
        }
    }
}

/// What a connection is set up with. The defaults are what users of Linux expect.
///
/// Durations are kept in milliseconds (retransmission timeouts: microseconds) and rounded up to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The MSS that we announce: the MTU less 40 bytes (RFC 6691). Also the upper bound of what we send.
    pub mss: u16,
    /// The MSS of a peer that announces none: 536 over IPv4, 1220 over IPv6 (RFC 9293 section 3.7.1, MUST-15).
    pub default_peer_mss: u16,
    /// The congestion controller.
    pub congestion: Algorithm,
    /// Whether ECN is used.
    pub ecn: Ecn,
    /// How loss is found.
    pub loss_detection: LossDetection,
    /// Segments of the initial window (RFC 6928).
    pub initial_window_segments: u8,
    /// Segments by which slow start may grow for one ACK without HyStart++ (L of RFC 3465): NewReno only.
    pub abc_segments: u8,
    /// The window scale that we offer; `None`: window scaling is not offered and not accepted. It must suit the
    /// largest receive buffer that the connection may get: 7 for 6 MiB.
    pub window_scale: Option<WindowScale>,
    /// Whether timestamps (RFC 7323) are offered and accepted.
    pub timestamps: bool,
    /// A segment without timestamps, on a connection that agreed on them, is dropped, as RFC 7323 section 3.2 has it: "a TCP SHOULD
    /// silently drop the segment". Off by default, as in Linux: there are middleboxes and peers that leave the option out later on, with
    /// which the connection would come to a halt; all that it would protect from is a forger, who has to guess the sequence number and
    /// the acknowledgment number all the same (RFC 5961).
    pub require_timestamps: bool,
    /// Whether selective acknowledgment (RFC 2018) is offered and accepted.
    pub sack: bool,
    /// How long an ACK may wait for data to ride on (RFC 9293 section 3.8.6.3: less than 500 ms).
    pub delayed_ack: Duration,
    /// The first sixteen segments of data are acknowledged at once, each by an ACK of its own, as Linux does. Otherwise those ACKs wait
    /// for a millisecond, so that the application's answer can carry them.
    pub quick_ack: bool,
    /// The ACK of a peer's FIN that comes first waits as long as that of data may, so that the application's own FIN, or its last data, can
    /// carry it: "This acknowledgment should be piggybacked on a segment being transmitted if possible" (RFC 9293 section 3.10.7.4). Linux does so.
    /// Otherwise it is sent at once.
    pub delay_fin_ack: bool,
    /// Nagle's algorithm is off.
    pub no_delay: bool,
    /// Lower bound of the retransmission timeout.
    pub min_rto: Duration,
    /// `min_rto` bounds what is added to SRTT, not the sum: it is G of RFC 6298, as in Linux, and the timeout never less than
    /// SRTT and `min_rto`.
    pub min_rto_above_srtt: bool,
    /// How much later than RFC 8985 section 6.2 says the reordering timer fires: for timers that are coarse, as are those of
    /// Linux (two ticks of its clock). At most a second.
    pub reordering_slack: Duration,
    /// Upper bound of the retransmission timeout (RFC 6298 rule 2.5: at least 60 s).
    pub max_rto: Duration,
    /// The retransmission timeout before the round-trip time is known (RFC 6298 rule 2.1).
    pub initial_rto: Duration,
    /// How often a SYN or SYN-ACK is sent again before the attempt is given up. RFC 9293 MUST-23 asks for three minutes at least: seven
    /// times, with the default timeouts, are four.
    pub syn_retries: u8,
    /// How long sent data may stay unacknowledged (RFC 5482). `None`: about 15 retransmissions, 15 minutes.
    pub user_timeout: Option<Duration>,
    /// Keepalive probes; `None`: off, as RFC 9293 MUST-25 asks for the default.
    pub keepalive: Option<Keepalive>,
    /// How long TIME-WAIT lasts: twice the maximum segment lifetime.
    pub time_wait: Duration,
    /// How long FIN-WAIT-2 lasts once the application has closed the connection.
    pub fin_wait_2_timeout: Duration,
    /// What is added to the clock of the timestamps (RFC 7323 section 5.4); see [`crate::timestamp_offset`].
    pub timestamp_offset: u32,
    /// The MSS that the path to the peer is known to carry, by what others have found out; no more is sent at first, and `mss` is announced all
    /// the same. `u16::MAX`: nothing is known.
    pub path_mss: u16,
    /// Whether the path MTU is searched for without ICMP (RFC 4821).
    pub mtu_probing: MtuProbing,
    /// The MSS with which such a search begins (RFC 4821 section 7.2: 1024 bytes), and which black holes are tried with first.
    pub base_mss: u16,
    /// How many challenge ACKs are sent (RFC 5961 section 7).
    pub challenge_limit: ChallengeLimit,
    /// How many segments the congestion window may lie above what is in flight when a recovery ends (RFC 6582
    /// section 3.2 step 3: "take measures to avoid a possible burst of data").
    pub max_burst: u32,
    /// Data is paced whatever the controller: at 200 % of the window for each round trip in slow start, and 120 % after it.
    pub pacing: bool,
    /// The largest rate at which data goes out, in bytes a second; a connection that has one is paced.
    pub max_pacing_rate: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 1460,
            default_peer_mss: DEFAULT_PEER_MSS,
            congestion: Algorithm::default(),
            ecn: Ecn::default(),
            loss_detection: LossDetection::default(),
            initial_window_segments: 10,
            abc_segments: 2,
            window_scale: Some(WindowScale::new(7)),
            timestamps: true,
            require_timestamps: false,
            sack: true,
            delayed_ack: Duration::from_millis(40),
            quick_ack: false,
            delay_fin_ack: false,
            no_delay: false,
            min_rto: Duration::from_millis(200),
            min_rto_above_srtt: false,
            reordering_slack: Duration::ZERO,
            max_rto: Duration::from_secs(120),
            initial_rto: Duration::from_secs(1),
            syn_retries: 7,
            user_timeout: None,
            keepalive: None,
            time_wait: Duration::from_secs(60),
            fin_wait_2_timeout: Duration::from_secs(60),
            timestamp_offset: 0,
            path_mss: u16::MAX,
            mtu_probing: MtuProbing::default(),
            base_mss: 1024,
            challenge_limit: ChallengeLimit::default(),
            max_burst: 16,
            pacing: false,
            max_pacing_rate: None,
        }
    }
}

/// The user timeout when none is configured: what Linux makes of 15 retransmissions that start at 200 ms.
pub(crate) const DEFAULT_USER_TIMEOUT_MS: u32 = 924_600;

/// The part of [`Config`] that a connection keeps, packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) user_timeout_ms: u32,
    pub(crate) time_wait_ms: u32,
    pub(crate) fin_wait_2_ms: u32,
    pub(crate) keepalive_idle_ms: u32,
    pub(crate) keepalive_interval_ms: u32,
    pub(crate) max_burst: u32,
    /// 0: keepalive is off.
    pub(crate) keepalive_probes: u8,
    pub(crate) syn_retries: u8,
    pub(crate) initial_window_segments: u8,
    pub(crate) abc_segments: u8,
}

impl Settings {
    pub(crate) fn new(config: &Config) -> Self {
        let mut settings = Self {
            user_timeout_ms: 0,
            time_wait_ms: millis(config.time_wait),
            fin_wait_2_ms: millis(config.fin_wait_2_timeout),
            keepalive_idle_ms: 0,
            keepalive_interval_ms: 0,
            max_burst: config.max_burst.max(1),
            keepalive_probes: 0,
            syn_retries: config.syn_retries,
            initial_window_segments: config.initial_window_segments.max(1),
            abc_segments: config.abc_segments.max(1),
        };
        settings.set_user_timeout(config.user_timeout);
        settings.set_keepalive(config.keepalive);
        settings
    }

    pub(crate) fn set_user_timeout(&mut self, timeout: Option<Duration>) {
        self.user_timeout_ms = timeout.map_or(DEFAULT_USER_TIMEOUT_MS, |t| millis(t).max(1));
    }

    pub(crate) fn set_keepalive(&mut self, keepalive: Option<Keepalive>) {
        let Some(Keepalive {
            idle,
            interval,
            probes,
        }) = keepalive
        else {
            self.keepalive_probes = 0;
            return;
        };
        self.keepalive_idle_ms = millis(idle).max(1);
        self.keepalive_interval_ms = millis(interval).max(1);
        self.keepalive_probes = probes.max(1);
    }
}
