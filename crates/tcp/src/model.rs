//! What controllers that model the path hear ([`crate::congestion::Controller::is_model`]): deliveries and losses.

use crate::Connection;
use crate::congestion::{Delivered, Lost};
use crate::flags::Flags;
use crate::flight::Tick;
use crate::rack::Delivery;
use crate::recovery::{Phase, RecoveryAck};
use crate::time::Instant;
use crate::types::BbrInfo;

impl Connection {
    /// What BBR knows of the path; `None` with another controller.
    pub fn bbr_info(&self) -> Option<BbrInfo> {
        self.cold.controller.bbr_info()
    }

    fn delivered(&self, now: Instant, bytes: u32, newest: Option<Tick>, rtt_us: u32) -> Delivered {
        Delivered {
            now,
            bytes,
            newest,
            una: self.snd_una as u32,
            rtt_us,
            min_rtt_us: self.min_rtt_us,
            in_flight: self.in_flight(),
            mss: self.mss.into(),
            cwnd_limited: self.flags.any(Flags::CWND_LIMITED),
            recovering: self.phase != Phase::Open,
            sack: self.flags.any(Flags::SACK),
        }
    }

    /// An ACK on the fast path; what it acknowledges last was sent at `sent`.
    pub(crate) fn model_on_plain_ack(&mut self, now: Instant, acked: u32, sent: Option<Tick>) {
        let newest = sent.filter(|_| self.rack_is_on());
        let rtt = newest.map_or(0, |sent| Tick::at(now).since(sent).max(1));
        let delivered = self.delivered(now, acked, newest, rtt as u32);
        let controller = &mut self.cold.controller;
        controller.on_delivered(&mut self.window, &delivered);
    }

    /// An ACK by which so many bytes were delivered.
    pub(crate) fn model_on_ack(&mut self, ack: &RecoveryAck, bytes: u32) {
        let Delivery { newest, rtt_us, .. } = ack.delivery;
        let delivered = self.delivered(ack.now, bytes, newest, rtt_us);
        let controller = &mut self.cold.controller;
        controller.on_delivered(&mut self.window, &delivered);
    }

    /// By count, what lies before the edge is lost, of what was before `before` already.
    pub(crate) fn model_on_lost_edge(&mut self, now: Instant, before: u64) {
        let bytes = self.cold.lost_edge.saturating_sub(before) as u32;
        if bytes == 0 || !self.cold.controller.is_model() {
            return;
        }
        let lost = Lost {
            now,
            bytes,
            sent: None,
            sack: self.flags.any(Flags::SACK),
        };
        self.cold.controller.on_lost(&self.window, &lost);
    }
}
