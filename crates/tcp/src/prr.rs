//! How much may be sent during fast recovery: Proportional Rate Reduction (RFC 9937, which obsoletes RFC 6937).
//!
//! `cwnd` follows what is in flight, so that sending is spread over the recovery, and ends at ssthresh.

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::recovery::Phase;

/// RFC 9937 section 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Prr {
    /// Bytes delivered to the peer during the recovery.
    delivered: u32,
    /// Bytes sent during it.
    out: u32,
    /// RecoverFS: what was in flight when it began.
    recover_fs: u32,
}

impl Prr {
    /// A recovery begins, with so much in flight: SND.NXT - SND.UNA less what was selectively acknowledged before, and with what
    /// this very ACK has delivered.
    pub(crate) fn begin(in_flight: u32) -> Self {
        Self {
            delivered: 0,
            out: 0,
            recover_fs: in_flight.max(1),
        }
    }

    pub(crate) fn note_sent(&mut self, bytes: u32) {
        self.out = self.out.saturating_add(bytes);
    }

    /// How much may go out now: sndcnt of RFC 9937 section 6.2.
    fn send_count(&mut self, ack: &PrrAck) -> u32 {
        let PrrAck {
            delivered,
            in_flight,
            ssthresh,
            mss,
            safe,
        } = *ack;
        self.delivered = self.delivered.saturating_add(delivered);
        let mut count = if in_flight > ssthresh {
            // The ceiling of prr_delivered * ssthresh / RecoverFS, less prr_out.
            let due = (u64::from(self.delivered) * u64::from(ssthresh))
                .div_ceil(u64::from(self.recover_fs));
            u32::try_from(due)
                .unwrap_or(u32::MAX)
                .saturating_sub(self.out)
        } else {
            // PRR-CRB: packets are conserved; PRR-SSRB, once there is progress: as slow start.
            let mut count = self.delivered.saturating_sub(self.out).max(delivered);
            if safe {
                count = count.saturating_add(mss);
            }
            count.min(ssthresh - in_flight)
        };
        if self.out == 0 && count == 0 {
            // The first retransmission goes out whatever the sums say.
            count = mss;
        }
        count
    }
}

/// What [`Prr`] looks at.
struct PrrAck {
    delivered: u32,
    in_flight: u32,
    ssthresh: u32,
    mss: u32,
    /// SND.UNA moved, and nothing more was found lost.
    safe: bool,
}

impl Connection {
    /// An ACK during fast recovery, or one that begins it (`pipe` is what it leaves in flight). One that delivers nothing changes
    /// nothing.
    pub(crate) fn reduce_rate(&mut self, delivered: u32, safe: bool) {
        let begins = self.cold.prr.out == 0;
        if self.phase != Phase::Recovery || (delivered == 0 && !begins) {
            return;
        }
        let ack = PrrAck {
            delivered,
            in_flight: self.cold.pipe,
            ssthresh: self.window.ssthresh,
            mss: self.mss.into(),
            safe,
        };
        let count = self.cold.prr.send_count(&ack);
        self.window.cwnd = self.cold.pipe.saturating_add(count).max(self.mss.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn ack(delivered: u32, in_flight: u32, safe: bool) -> PrrAck {
        PrrAck {
            delivered,
            in_flight,
            ssthresh: 10 * MSS,
            mss: MSS,
            safe,
        }
    }

    #[test]
    fn rfc_9937_section_6_2_sending_is_in_proportion_to_delivery() {
        // 20 segments in flight, to be 10: one is sent for every two delivered.
        let mut prr = Prr::begin(20 * MSS);
        let mut sent = Vec::new();
        for n in 1..=8 {
            let count = prr.send_count(&ack(MSS, 20 * MSS - n * 500, false));
            let whole = count / MSS * MSS;
            prr.note_sent(whole);
            sent.push(whole / MSS);
        }
        assert_eq!(sent, [0, 1, 0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn rfc_9937_section_6_2_the_first_ack_lets_one_segment_out() {
        let mut prr = Prr::begin(20 * MSS);
        assert_eq!(prr.send_count(&ack(0, 19 * MSS, false)), MSS);
    }

    #[test]
    fn rfc_9937_section_6_2_below_the_threshold_packets_are_conserved_and_with_progress_slow_start()
    {
        let mut prr = Prr::begin(20 * MSS);
        prr.note_sent(MSS);
        assert_eq!(prr.send_count(&ack(MSS, 4 * MSS, false)), MSS);
        prr.note_sent(MSS);
        assert_eq!(prr.send_count(&ack(MSS, 4 * MSS, true)), 2 * MSS);
        // Never above ssthresh.
        assert_eq!(prr.send_count(&ack(9 * MSS, 8 * MSS, true)), 2 * MSS);
    }
}
