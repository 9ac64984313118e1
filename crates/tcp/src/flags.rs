//! One word of flags in the first cache line: what is due, what was agreed, what forbids header prediction.

use serde::{Deserialize, Serialize};

/// A set of flags; `Flags::A | Flags::B` in constants by [`Flags::or`]. What the fast path looks at is in the lower half, so that its
/// masks fit into an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Flags(u64);

impl Flags {
    // Due: poll_transmit has something to do.
    /// An ACK must go out, with data or without.
    pub(crate) const ACK_NOW: Self = Self(1 << 0);
    /// A SYN or SYN-ACK must go out.
    pub(crate) const SYN_DUE: Self = Self(1 << 1);
    /// A zero-window or keepalive probe must go out.
    pub(crate) const PROBE_DUE: Self = Self(1 << 2);
    /// A RST must go out: of which kind, the next two say.
    pub(crate) const RESET_DUE: Self = Self(1 << 3);
    /// The connection is gone and the peer must hear it. With RESET_DUE.
    pub(crate) const RESET_OWN: Self = Self(1 << 37);
    /// One segment is answered by a RST, and the connection stays (SYN-SENT, SYN-RECEIVED: an unacceptable ACK). With RESET_DUE.
    pub(crate) const RESET_REPLY: Self = Self(1 << 38);
    /// A presumed-lost segment goes out whatever the window says (RFC 6675 section 5 step 4.3).
    pub(crate) const RETRANSMIT_NOW: Self = Self(1 << 5);
    /// FIN-WAIT-2 of a closed connection: its timer has yet to be set.
    pub(crate) const FIN_WAIT_2_DUE: Self = Self(1 << 6);

    /// Urgent data was written, and is perhaps not acknowledged.
    pub(crate) const URGENT: Self = Self(1 << 4);

    /// The list of transmit times holds something.
    pub(crate) const RUNS: Self = Self(1 << 7);

    // Forbid header prediction.
    /// Out-of-order data is held.
    pub(crate) const OUT_OF_ORDER: Self = Self(1 << 8);
    /// The peer's FIN came early, or its position is known.
    pub(crate) const FIN_KNOWN: Self = Self(1 << 9);
    /// Not in [`crate::recovery::Phase::Open`].
    pub(crate) const RECOVERING: Self = Self(1 << 10);
    /// The scoreboard holds ranges.
    pub(crate) const SACKED: Self = Self(1 << 11);
    /// Duplicate ACKs were counted.
    pub(crate) const DUPLICATES: Self = Self(1 << 12);
    /// The retransmission timer is the persist timer, or probes are out.
    pub(crate) const PROBING: Self = Self(1 << 13);
    /// The retransmission timeout was backed off, or retransmissions are being counted, or ICMP has told of an error since the last answer.
    pub(crate) const BACKED_OFF: Self = Self(1 << 14);
    /// The application is gone: data is answered by a RST.
    pub(crate) const ORPHAN: Self = Self(1 << 15);
    /// DCTCP.CE (RFC 8257): the data that arrived last was marked.
    pub(crate) const CE_STATE: Self = Self(1 << 16);

    // ECN.
    /// DCTCP owes ACKs of what arrived before the mark changed.
    pub(crate) const ACKS_OWED: Self = Self(1 << 17);
    /// The next new data carries CWR (RFC 3168).
    pub(crate) const CWR_DUE: Self = Self(1 << 23);

    // Agreed or set.
    /// Timestamps are in use (while SYN-SENT: offered).
    pub(crate) const TIMESTAMPS: Self = Self(1 << 32);
    /// SACK is in use (while SYN-SENT: offered).
    pub(crate) const SACK: Self = Self(1 << 33);
    /// Data is paced, or the controller wants to know of every ACK ([`crate::pacing`]).
    pub(crate) const PACED: Self = Self(1 << 18);
    /// The application holds partial segments back.
    pub(crate) const CORK: Self = Self(1 << 19);
    /// The application said that more data comes at once.
    pub(crate) const MORE: Self = Self(1 << 20);
    /// A partial segment goes out in spite of Nagle, cork and a small window.
    pub(crate) const FLUSH: Self = Self(1 << 21);
    /// The application ended the stream: FIN after the send limit.
    pub(crate) const FIN_QUEUED: Self = Self(1 << 22);
    /// Our FIN was sent: SND.NXT lies after it.
    pub(crate) const FIN_SENT: Self = Self(1 << 35);
    /// ECN is in use: marks are echoed.
    pub(crate) const ECN: Self = Self(1 << 36);
    /// The peer's FIN is in order: RCV.NXT lies after it.
    pub(crate) const FIN_RECEIVED: Self = Self(1 << 24);
    /// Loss is found by time (RFC 8985).
    pub(crate) const RACK: Self = Self(1 << 25);
    /// A tail loss probe is out, and what became of it is not known.
    pub(crate) const TLP_OUT: Self = Self(1 << 26);

    /// The next ACK carries a SACK option.
    pub(crate) const SACK_DUE: Self = Self(1 << 27);
    /// Cork holds a partial segment back, and its timer runs.
    pub(crate) const CORKED: Self = Self(1 << 28);

    /// The congestion window is what held sending back last.
    pub(crate) const CWND_LIMITED: Self = Self(1 << 29);

    /// CLOSED, SYN-SENT or SYN-RECEIVED: no data goes out.
    pub(crate) const UNSYNCHRONIZED: Self = Self(1 << 31);
    /// There may be lost data that was not sent again.
    pub(crate) const LOST_LEFT: Self = Self(1 << 30);

    /// Nagle's algorithm is off.
    pub(crate) const NO_DELAY: Self = Self(1 << 34);

    /// Something of poll_transmit's rare kinds is due.
    pub(crate) const RARE_DUE: Self = Self::SYN_DUE
        .or(Self::PROBE_DUE)
        .or(Self::RESET_DUE)
        .or(Self::FIN_WAIT_2_DUE)
        .or(Self::ACKS_OWED);
    /// poll_transmit certainly has something to do.
    pub(crate) const DUE: Self = Self::RARE_DUE.or(Self::ACK_NOW).or(Self::RETRANSMIT_NOW);
    /// In flight is not simply SND.NXT - SND.UNA.
    pub(crate) const LOSSY: Self = Self::RECOVERING.or(Self::SACKED).or(Self::DUPLICATES);
    /// Sending new data has to see to more than the data.
    pub(crate) const UNUSUAL: Self = Self::CWND_LIMITED
        .or(Self::PROBING)
        .or(Self::FLUSH)
        .or(Self::CORKED)
        .or(Self::MORE)
        .or(Self::CWR_DUE)
        .or(Self::FIN_QUEUED);
    /// A segment without the timestamps that were agreed is dropped.
    pub(crate) const REQUIRE_TIMESTAMPS: Self = Self(1 << 46);
    /// The ACK of the peer's FIN waits for ours, if it comes first.
    pub(crate) const DELAY_FIN_ACK: Self = Self(1 << 44);
    /// Quick ACKs do not wait.
    pub(crate) const QUICK_ACK: Self = Self(1 << 45);
    /// The lower bound of the retransmission timeout is one of what lies above SRTT.
    pub(crate) const RTO_MARGIN: Self = Self(1 << 47);
    /// poll_transmit has to look at more than new data and ACKs.
    pub(crate) const SPECIAL: Self = Self::RARE_DUE
        .or(Self::UNSYNCHRONIZED)
        .or(Self::LOST_LEFT)
        .or(Self::SACK_DUE)
        .or(Self::CWR_DUE)
        .or(Self::PACED)
        .or(Self::URGENT)
        .or(Self::LOSSY);
    /// Header prediction is off: not ESTABLISHED, or something is amiss.
    pub(crate) const UNPREDICTED: Self = Self::LOSSY
        .or(Self::UNSYNCHRONIZED)
        .or(Self::FIN_QUEUED)
        .or(Self::FIN_RECEIVED)
        .or(Self::OUT_OF_ORDER)
        .or(Self::FIN_KNOWN)
        .or(Self::PROBING)
        .or(Self::BACKED_OFF)
        .or(Self::TLP_OUT)
        .or(Self::CE_STATE)
        .or(Self::ORPHAN);

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of `other` is set.
    #[inline]
    pub(crate) const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// What of `other` is set.
    #[inline]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[inline]
    pub(crate) fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }

    #[inline]
    pub(crate) fn clear(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    #[inline]
    pub(crate) fn assign(&mut self, other: Self, on: bool) {
        if on {
            self.set(other);
        } else {
            self.clear(other);
        }
    }
}
