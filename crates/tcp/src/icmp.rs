//! ICMP errors (RFC 9293 section 3.9.2.2, RFC 5927).

use sidecore_wire::SeqNumber;

use crate::Connection;
use crate::flags::Flags;
use crate::time::Instant;
use crate::types::{CloseReason, IcmpKind, State};

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
                let quoted = self.snd_offset(seq).max(0) as u64;
                self.path_claim(now, quoted, mtu);
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
}
