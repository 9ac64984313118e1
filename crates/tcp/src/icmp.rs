//! ICMP errors (RFC 9293 section 3.9.2.2, RFC 5927).

use sidecore_wire::SeqNumber;

use crate::Connection;
use crate::connection::MIN_MSS;
use crate::flags::Flags;
use crate::recovery::Phase;
use crate::time::Instant;
use crate::types::{CloseReason, IcmpKind, State};

/// Bytes of an IPv4 header and a TCP header without options.
const HEADERS: u16 = 40;

/// What RFC 1191 section 7.1 makes of an MTU that a router does not tell: we go by one plateau.
const PLATEAUS: [u16; 6] = [8166, 4352, 2002, 1492, 1006, 508];

impl Connection {
    /// An ICMP error that quotes a segment of ours with sequence number `seq`.
    ///
    /// Returns the reason if the connection is over. On a synchronized connection it never is: "hard" errors are taken as
    /// soft there (RFC 5927 section 5.2), and a quoted segment that cannot be in flight is ignored (section 4.1).
    pub fn handle_icmp(
        &mut self,
        now: Instant,
        seq: SeqNumber,
        kind: IcmpKind,
    ) -> Option<CloseReason> {
        let handshake = matches!(self.state, State::SynSent | State::SynReceived);
        let in_flight = if handshake {
            seq == self.snd_base.sub(1)
        } else {
            let offset = self.snd_offset(seq);
            self.state.is_synchronized()
                && offset >= self.snd_una as i64
                && offset < self.snd_nxt as i64
        };
        if !in_flight {
            return None;
        }
        match kind {
            // RFC 9293 MUST-54/SHLD-26: "hard error conditions, so TCP implementations SHOULD abort the connection".
            IcmpKind::ProtocolUnreachable | IcmpKind::PortUnreachable
                if self.state == State::SynSent =>
            {
                Some(self.enter_closed(CloseReason::Refused))
            }
            IcmpKind::FragmentationNeeded { mtu } => {
                self.reduce_mss(now, mtu);
                None
            }
            // MUST-56: "soft error conditions … a TCP implementation MUST NOT abort the connection".
            _ => {
                self.cold.soft_error = true;
                // Not for header prediction, which would not take it back.
                self.flags.set(Flags::BACKED_OFF);
                None
            }
        }
    }

    /// Path MTU discovery (RFC 1191): smaller segments from now on, and what is in flight is sent again in them. The loss is
    /// not congestion (RFC 1191 section 6.5 leaves the window alone).
    fn reduce_mss(&mut self, now: Instant, mtu: u16) {
        let packet = self
            .cold
            .announced_mss
            .min(self.cold.peer_mss)
            .saturating_add(HEADERS);
        let mtu = if mtu == 0 {
            PLATEAUS
                .into_iter()
                .find(|plateau| *plateau < packet)
                .unwrap_or(0)
        } else {
            mtu
        };
        let mss = mtu.saturating_sub(HEADERS).max(MIN_MSS);
        if mss >= self.cold.peer_mss {
            return;
        }
        self.cold.peer_mss = mss;
        let before = self.mss;
        self.set_effective_mss();
        if self.mss >= before || !self.state.is_synchronized() || self.outstanding() == 0 {
            return;
        }
        let _ = now;
        if self.phase == Phase::Open {
            self.phase = Phase::Recovery;
            self.cold.recover = self.snd_nxt;
            self.window.ssthresh = self.window.cwnd;
        }
        self.flags.set(
            Flags::RECOVERING
                .or(Flags::RETRANSMIT_NOW)
                .or(Flags::LOST_LEFT),
        );
        self.cold.all_lost = true;
        self.cold.prr = crate::prr::Prr::begin(self.outstanding());
        self.undo_forget();
        self.cold.pipe = 0;
        self.rtt_cancel();
    }
}
