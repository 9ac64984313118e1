//! What goes in and out of a connection, as plain values.

use core::ops::Range;

use serde::{Deserialize, Serialize};
use sidecore_wire::TcpHeader;

use crate::time::Instant;

/// The states of RFC 9293 section 3.3.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum State {
    /// No connection (any more).
    #[default]
    Closed,
    /// Waits for a SYN. Listeners are the stack's; no [`crate::Connection`] is ever in this state.
    Listen,
    /// We sent a SYN.
    SynSent,
    /// We got a SYN and sent ours, or are about to.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// We closed; our FIN is not acknowledged (perhaps not even sent).
    FinWait1,
    /// We closed and our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer closed; we may still send.
    CloseWait,
    /// Both closed at the same time; our FIN is not acknowledged.
    Closing,
    /// The peer closed first, then we; our FIN is not acknowledged.
    LastAck,
    /// Both closed and all is acknowledged; old segments are waited out.
    TimeWait,
}

impl State {
    /// Whether both sides know the other's sequence numbers (RFC 9293 section 3.3.2).
    pub const fn is_synchronized(self) -> bool {
        !matches!(
            self,
            Self::Closed | Self::Listen | Self::SynSent | Self::SynReceived
        )
    }
}

/// Why a connection is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub enum CloseReason {
    /// Both sides closed and everything was acknowledged.
    Normal,
    /// The peer reset the connection, or sent data after the application had closed.
    Reset,
    /// The peer refused the connection (RST, or ICMP port or protocol unreachable, in answer to the SYN).
    Refused,
    /// Retransmissions, probes or keepalives went unanswered for too long.
    TimedOut,
    /// As `TimedOut`, and ICMP had said that the peer cannot be reached.
    Unreachable,
    /// The application aborted, or closed before there was a connection.
    Aborted,
}

/// Why a segment, or its payload, was dropped. For counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DropReason {
    /// The connection is closed.
    Closed,
    /// An old duplicate by its timestamp (RFC 7323 section 5), or no timestamp where one must be.
    Paws,
    /// Not in the receive window.
    OutOfWindow,
    /// All of the payload was received before.
    Duplicate,
    /// The acknowledgment is of something never sent, or too old (RFC 5961 section 5).
    BadAck,
    /// No ACK bit where there must be one.
    NoAck,
    /// A SYN on a synchronized connection (RFC 5961 section 4).
    UnexpectedSyn,
    /// A RST that does not sit exactly at RCV.NXT (RFC 5961 section 3).
    BadReset,
    /// Out of order, and the [`crate::RangePool`] had no range left.
    NoRanges,
    /// Out of order, and the caller had no room.
    NoRoom,
    /// Payload after the peer's FIN, or in a state that takes none.
    AfterFin,
    /// Payload for an application that has closed: answered by a RST.
    AfterClose,
}

/// Bytes of a segment's payload that the caller must store now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxRange {
    /// Where in the segment's payload they start.
    pub payload_offset: u32,
    /// How many; never 0.
    pub len: u32,
    /// Where in the stream they belong.
    pub stream_offset: u64,
    /// They start where the in-order data ended before. After storing them, in-order data ends at
    /// [`crate::Connection::receive_next`]: data stored earlier may have become in order with them.
    pub in_order: bool,
}

/// What a segment did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The caller must store these bytes now. Some of them may have been stored before; they are the same bytes.
    pub accept: Option<RxRange>,
    /// SND.UNA moved: see [`crate::Connection::send_una`].
    pub acked: bool,
    /// The connection became established.
    pub established: bool,
    /// The peer's FIN became in-order: there is no data after [`crate::Connection::receive_next`].
    pub fin: bool,
    /// The connection is over. A last [`crate::Connection::poll_transmit`] may still give a RST.
    pub closed: Option<CloseReason>,
    /// The segment or its payload was dropped.
    pub dropped: Option<DropReason>,
    /// A challenge ACK is due (RFC 5961) that is due for nothing else: see [`crate::Connection::withhold_challenge`].
    pub challenge: bool,
    /// Something else that is seldom.
    pub notice: Option<Notice>,
}

/// What is seldom of a segment. No segment is both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Notice {
    /// In TIME-WAIT a newer SYN arrived (RFC 9293 section 3.10.7.4, RFC 6191): the caller may replace this connection
    /// by a fresh one for this SYN. This connection is as before.
    Respawn,
    /// There is urgent data ahead, or more of it than was known: see [`crate::Connection::urgent_receive_end`]. It may be that this very
    /// segment brings it, or that nothing of it has come yet.
    Urgent,
}

/// What a timer did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimeoutOutcome {
    /// The connection is over. A last [`crate::Connection::poll_transmit`] may still give a RST.
    pub closed: Option<CloseReason>,
}

/// What BBR knows of the path (as Linux's INET_DIAG_BBRINFO).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BbrInfo {
    /// Where in its state machine it is.
    pub state: crate::BbrState,
    /// BBR.max_bw, in bytes a second.
    pub bandwidth: u64,
    /// BBR.min_rtt, in microseconds; 0: not known.
    pub min_rtt_us: u32,
    /// BBR.pacing_gain, in hundredths.
    pub pacing_gain: u32,
    /// BBR.cwnd_gain, in hundredths.
    pub cwnd_gain: u32,
    /// How often ProbeRTT was entered.
    pub probe_rtts: u32,
    /// What is in flight does not fill the window for want of data.
    pub app_limited: bool,
}

/// What the way out can carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxLimits {
    /// Payload bytes of one super-segment, which the device cuts into segments; 0: one MSS.
    pub max_segments_bytes: u32,
}

/// A segment to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxSegment {
    /// The header; the ports are 0 and the caller's to fill.
    pub header: TcpHeader,
    /// The payload, as stream offsets.
    pub payload: Range<u64>,
    /// The payload of one segment on the wire. `payload` may be longer: then it is to be cut into pieces of this size.
    pub segment_size: u16,
    /// The ECN field of its IP header (RFC 3168): [`sidecore_wire::ecn`].
    pub ecn: u8,
    /// Some of the payload (or the SYN or FIN) was sent before.
    pub retransmission: bool,
}

/// An ICMP error about a segment of this connection (RFC 1122 section 4.2.3.9, RFC 5927).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IcmpKind {
    /// Destination unreachable, codes 0 and 5: a soft error.
    NetUnreachable,
    /// Destination unreachable, code 1: a soft error.
    HostUnreachable,
    /// Destination unreachable, code 2: a hard error.
    ProtocolUnreachable,
    /// Destination unreachable, code 3: a hard error.
    PortUnreachable,
    /// Destination unreachable, code 4 (RFC 1191): a packet was larger than `mtu` bytes, IP header included.
    FragmentationNeeded {
        /// The next hop's MTU; 0 from routers that do not say.
        mtu: u16,
    },
    /// Destination unreachable, codes 9, 10 and 13: prohibited; a soft error.
    AdministrativelyProhibited,
    /// Time exceeded: a soft error.
    TimeExceeded,
    /// Parameter problem: a soft error.
    ParameterProblem,
}

/// Facts about a connection, in the manner of `TCP_INFO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Info {
    /// The state.
    pub state: State,
    /// The payload of a full segment that we send, in bytes: options are taken off.
    pub effective_mss: u16,
    /// The path MTU that the connection goes by, as IPv4 counts it (40 bytes of headers): over IPv6 it is 20 bytes more.
    pub path_mtu: u16,
    /// Probes of larger segments that were sent (RFC 4821).
    pub path_probes: u32,
    /// The estimated payload of the peer's full segments, in bytes.
    pub receive_mss: u16,
    /// Timestamps are in use.
    pub timestamps: bool,
    /// Selective acknowledgments are in use.
    pub sack: bool,
    /// The shift of the windows that we receive, and of those that we send.
    pub send_scale: u8,
    /// See `send_scale`.
    pub receive_scale: u8,
    /// Smoothed round-trip time, in microseconds; 0: not known.
    pub srtt_us: u32,
    /// Variation of the round-trip time, in microseconds.
    pub rttvar_us: u32,
    /// The least round-trip time seen, in microseconds; 0: not known.
    pub min_rtt_us: u32,
    /// Retransmission timeout, backoff included, in microseconds.
    pub rto_us: u32,
    /// Congestion window, in bytes.
    pub cwnd: u32,
    /// Slow start threshold, in bytes; `u32::MAX`: none yet.
    pub ssthresh: u32,
    /// The peer's window, in bytes from `send_una`.
    pub send_window: u32,
    /// The window that we advertise, in bytes from `receive_next`.
    pub receive_window: u32,
    /// Bytes sent and neither acknowledged, nor selectively acknowledged, nor deemed lost.
    pub in_flight: u32,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes written and not sent.
    pub bytes_unsent: u64,
    /// Segments retransmitted (a super-segment counts as one).
    pub retransmissions: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Fast recoveries.
    pub recoveries: u32,
    /// Tail loss probes sent (RFC 8985).
    pub tail_probes: u32,
    /// Reductions of the window that were undone, as nothing was lost (RFC 3522, 3708, 5682).
    pub undos: u32,
    /// Segments were seen to overtake each other on the way to the peer (RFC 8985).
    pub reordering_seen: bool,
    /// Duplicate acknowledgments received.
    pub duplicate_acks: u32,
    /// Segments received out of order.
    pub out_of_order: u32,
    /// Ranges of out-of-order data held.
    pub out_of_order_ranges: u16,
    /// Challenge ACKs sent (RFC 5961).
    pub challenge_acks: u32,
    /// ECN is in use (RFC 3168).
    pub ecn: bool,
    /// Data segments received that were marked: congestion experienced.
    pub ce_received: u32,
    /// Acknowledgments received that echo congestion.
    pub ece_received: u32,
    /// Reductions of the window that answered them.
    pub ecn_reductions: u32,
    /// DCTCP.Alpha (RFC 8257), in 2^-20; `None` with other controllers.
    pub dctcp_alpha: Option<u32>,
    /// Retransmissions by timer, or probes, in a row without an answer.
    pub unanswered_attempts: u8,
    /// ICMP said that the peer cannot be reached, and nothing has come from it since (RFC 9293 section 3.9.1.8).
    pub soft_error: bool,
    /// When a segment came in last.
    pub last_received: Instant,
    /// When data was last sent for the first time, or up to a sixty-fourth of a round trip before that.
    pub last_sent: Instant,
    /// The congestion controller's name, as Linux has it.
    pub congestion: &'static str,
    /// Fast recovery, or recovery from a timeout.
    pub recovering: bool,
    /// Of the two, the latter.
    pub timed_out: bool,
    /// Keepalive probes in a row.
    pub keepalive_probes: u8,
    /// How long an ACK may be delayed, in microseconds.
    pub delayed_ack_us: u32,
    /// The MSS that we announced.
    pub announced_mss: u16,
    /// Bytes sent and not acknowledged.
    pub unacked: u32,
    /// Of these, bytes selectively acknowledged.
    pub sacked: u32,
    /// Of these, bytes deemed lost and not sent again; only the estimate of the bytes in flight says so where loss is not found by time.
    pub lost: u32,
    /// Of these, bytes sent again and in flight; 0 where loss is not found by time.
    pub resent: u32,
    /// Bytes sent again, in all.
    pub bytes_retransmitted: u64,
    /// Data with the SYN was acknowledged (RFC 7413).
    pub syn_data: bool,
    /// The round-trip time as the receiver sees it, in microseconds; 0: not known.
    pub receiver_rtt_us: u32,
    /// What the receive window is tuned to, in bytes.
    pub window_hint: u32,
}
