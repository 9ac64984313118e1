//! Delivery rate samples (draft-ietf-ccwg-bbr, "Delivery Rate Samples").
//!
//! What a sample needs to know about a segment is what the connection knew when it sent it: how much was delivered by then, and when.
//! Transmit times are kept as runs ([`crate::flight`]), and what was sent within a sixty-fourth of a round trip is one run; so this is kept by
//! transmit time too, in a ring of [`Snapshot`]s beside the list: the time of a run leads to the latest snapshot that is not younger. What a
//! run's segments share is what was known when the run began, of both, bytes and time, so that the slope between two ACKs is not bent by it.
//!
//! Only a controller that wants samples has a sampler.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::flight::Tick;

/// Snapshots that are kept: two round trips' worth, since each is a sixty-fourth from the next.
const CAPACITY: usize = 128;

/// What was known when something was sent; counters modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Snapshot {
    /// P.send_time.
    sent: Tick,
    /// P.delivered_time and P.first_send_time.
    delivered_at: Tick,
    first_sent: Tick,
    /// P.delivered and P.lost.
    delivered: u32,
    lost: u32,
    /// P.tx_in_flight: with the last segment of the run.
    in_flight: u32,
    /// The highest stream offset of the run, modulo 2^32.
    end: u32,
    /// P.is_app_limited.
    app_limited: bool,
}

/// A segment goes out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmission {
    /// When it counts as sent: the time of its run.
    pub(crate) at: Tick,
    /// What is in flight before it, and with it, in bytes.
    pub(crate) before: u32,
    pub(crate) in_flight: u32,
    /// Where it ends, as a stream offset modulo 2^32.
    pub(crate) end: u32,
    /// Two runs are this far from each other, in microseconds.
    pub(crate) granularity_us: u32,
}

/// RS: what one ACK says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RateSample {
    /// RS.newly_acked, in bytes.
    pub(crate) newly_acked: u32,
    /// RS.rtt, in microseconds; 0: not known.
    pub(crate) rtt_us: u32,
    /// RS.delivered and RS.prior_delivered.
    pub(crate) delivered: u64,
    pub(crate) prior_delivered: u64,
    /// RS.delivery_rate, in bytes a second; 0: no reliable one.
    pub(crate) rate: u64,
    /// RS.tx_in_flight and RS.lost.
    pub(crate) in_flight: u32,
    pub(crate) lost: u32,
    /// RS.is_app_limited.
    pub(crate) app_limited: bool,
    /// RS.has_data: the other fields but the first two mean something.
    pub(crate) has_data: bool,
}

/// What was known when something that is lost was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LostSample {
    /// P.tx_in_flight, and what was lost since then, this included.
    pub(crate) in_flight: u32,
    pub(crate) lost: u32,
    pub(crate) app_limited: bool,
}

/// The state of a connection (C).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RateSampler {
    /// C.delivered and C.lost, in bytes.
    pub(crate) delivered: u64,
    lost: u64,
    /// C.app_limited: until C.delivered is here, the application was what held sending back; 0: it was not.
    pub(crate) app_limited: u64,
    /// C.delivered_time and C.first_send_time.
    delivered_at: Tick,
    first_sent: Tick,
    /// In the order of their times.
    snapshots: VecDeque<Snapshot>,
}

impl RateSampler {
    pub(crate) fn new() -> Self {
        Self {
            delivered: 0,
            lost: 0,
            app_limited: 0,
            delivered_at: Tick::default(),
            first_sent: Tick::default(),
            snapshots: VecDeque::with_capacity(CAPACITY),
        }
    }

    /// OnPacketSent().
    pub(crate) fn on_sent(&mut self, sent: &Transmission) {
        if sent.before == 0 {
            // "we can start the delivery rate interval at the current time"
            self.first_sent = sent.at;
            self.delivered_at = sent.at;
            self.snapshots.clear();
        }
        if let Some(newest) = self.snapshots.back_mut() {
            let age = sent.at.since(newest.sent);
            if age <= 0 || (age as u32) < sent.granularity_us {
                newest.in_flight = newest.in_flight.max(sent.in_flight);
                if sent.end.wrapping_sub(newest.end) as i32 > 0 {
                    newest.end = sent.end;
                }
                return;
            }
        }
        if self.snapshots.len() >= CAPACITY {
            self.snapshots.pop_front();
        }
        self.snapshots.push_back(Snapshot {
            sent: sent.at,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            delivered: self.delivered as u32,
            lost: self.lost as u32,
            in_flight: sent.in_flight,
            end: sent.end,
            app_limited: self.app_limited != 0,
        });
    }

    /// What was known when something was sent at this time.
    fn find(&self, at: Tick) -> Option<&Snapshot> {
        let after = self
            .snapshots
            .partition_point(|snapshot| at.since(snapshot.sent) >= 0);
        self.snapshots.get(after.checked_sub(1)?)
    }

    /// Where no transmit times are kept: when the last of what was acknowledged up to `una` (modulo 2^32) was sent, or so.
    pub(crate) fn sent_before(&self, una: u32) -> Option<Tick> {
        let mut snapshots = self.snapshots.iter().rev();
        let acknowledged = snapshots.find(|snapshot| snapshot.end.wrapping_sub(una) as i32 <= 0)?;
        Some(acknowledged.sent)
    }

    /// UpdateRateSample() and GenerateRateSample(): so many bytes were delivered, the last sent of which was sent at `newest`.
    pub(crate) fn on_delivered(
        &mut self,
        now: Tick,
        bytes: u32,
        newest: Option<Tick>,
        min_rtt_us: u32,
    ) -> RateSample {
        let mut sample = RateSample {
            newly_acked: bytes,
            ..RateSample::default()
        };
        self.delivered += u64::from(bytes);
        self.delivered_at = now;
        let snapshot = newest.and_then(|newest| self.find(newest)).copied();
        if self.app_limited != 0 && self.delivered > self.app_limited {
            // "Clear app-limited field if bubble is ACKed and gone."
            self.app_limited = 0;
        }
        let Some(snapshot) = snapshot else {
            return sample;
        };
        sample.has_data = true;
        sample.delivered = u64::from((self.delivered as u32).wrapping_sub(snapshot.delivered));
        sample.prior_delivered = self.delivered - sample.delivered;
        sample.in_flight = snapshot.in_flight;
        sample.lost = (self.lost as u32).wrapping_sub(snapshot.lost);
        sample.app_limited = snapshot.app_limited;
        let send_elapsed = snapshot.sent.since(snapshot.first_sent);
        let ack_elapsed = now.since(snapshot.delivered_at);
        self.first_sent = snapshot.sent;
        let interval_us = send_elapsed.max(ack_elapsed).max(0) as u32;
        // Else something was sent again that had arrived: "interval is under-estimated".
        let reliable = min_rtt_us == u32::MAX || interval_us >= min_rtt_us;
        if reliable && interval_us > 0 {
            sample.rate = sample.delivered * 1_000_000 / u64::from(interval_us);
        }
        sample
    }

    /// So many bytes are deemed lost, which were sent at this time.
    pub(crate) fn on_lost(&mut self, bytes: u32, sent: Option<Tick>) -> Option<LostSample> {
        self.lost += u64::from(bytes);
        let snapshot = self.find(sent?)?;
        Some(LostSample {
            in_flight: snapshot.in_flight,
            lost: (self.lost as u32).wrapping_sub(snapshot.lost),
            app_limited: snapshot.app_limited,
        })
    }

    /// MarkConnectionAppLimited(): there was nothing to send although more might have been.
    pub(crate) fn mark_app_limited(&mut self, in_flight: u32) {
        self.app_limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// The connection goes on with another clock, which shows `jump` microseconds more.
    pub(crate) fn shift(&mut self, jump: u32) {
        self.delivered_at = self.delivered_at.shifted(jump);
        self.first_sent = self.first_sent.shifted(jump);
        let missing = CAPACITY.saturating_sub(self.snapshots.len());
        self.snapshots.reserve(missing);
        for snapshot in &mut self.snapshots {
            snapshot.sent = snapshot.sent.shifted(jump);
            snapshot.delivered_at = snapshot.delivered_at.shifted(jump);
            snapshot.first_sent = snapshot.first_sent.shifted(jump);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    fn tick(micros: u64) -> Tick {
        Tick::at(Instant::from_micros(5_000_000 + micros))
    }

    fn send(sampler: &mut RateSampler, at: u64, before: u32, bytes: u32, end: u32) {
        sampler.on_sent(&Transmission {
            at: tick(at),
            before,
            in_flight: before + bytes,
            end,
            granularity_us: 100,
        });
    }

    #[test]
    fn the_rate_is_that_of_the_acks() {
        let mut sampler = RateSampler::new();
        // Two flights; the ACKs of the second are a millisecond after those of the first.
        send(&mut sampler, 0, 0, 10_000, 10_000);
        let first = sampler.on_delivered(tick(10_000), 10_000, Some(tick(0)), 10_000);
        assert_eq!((first.delivered, first.rate), (10_000, 1_000_000));
        send(&mut sampler, 10_000, 0, 5_000, 15_000);
        send(&mut sampler, 15_000, 5_000, 5_000, 20_000);
        let second = sampler.on_delivered(tick(20_000), 5_000, Some(tick(10_000)), 10_000);
        assert_eq!((second.delivered, second.rate), (5_000, 500_000));
        // Sent 5 ms after the one before: that is the longer of both intervals, had the ACKs come at once.
        let third = sampler.on_delivered(tick(20_100), 5_000, Some(tick(15_000)), 5_000);
        assert_eq!(third.delivered, 10_000);
        assert_eq!(third.rate, 10_000 * 1_000_000 / 10_100);
        assert_eq!((third.in_flight, third.prior_delivered), (10_000, 10_000));
    }

    #[test]
    fn what_is_sent_within_the_granularity_shares_a_snapshot() {
        let mut sampler = RateSampler::new();
        send(&mut sampler, 0, 0, 1000, 1000);
        send(&mut sampler, 50, 1000, 1000, 2000);
        send(&mut sampler, 150, 2000, 1000, 3000);
        assert_eq!(sampler.snapshots.len(), 2);
        assert_eq!(sampler.find(tick(99)).map(|s| s.in_flight), Some(2000));
        assert_eq!(sampler.find(tick(150)).map(|s| s.in_flight), Some(3000));
        assert!(sampler.find(tick(0)).is_some());
        // Older than all that is known.
        let before = Tick::at(Instant::from_micros(4_999_000));
        assert!(sampler.find(before).is_none());
        assert_eq!(sampler.sent_before(2500), Some(tick(0)));
        assert_eq!(sampler.sent_before(1500), None);
    }

    #[test]
    fn an_interval_shorter_than_the_least_round_trip_is_no_sample() {
        let mut sampler = RateSampler::new();
        send(&mut sampler, 0, 0, 1000, 1000);
        let sample = sampler.on_delivered(tick(400), 1000, Some(tick(0)), 1000);
        assert!(sample.has_data && sample.rate == 0);
    }

    #[test]
    fn losses_since_the_transmission_are_counted() {
        let mut sampler = RateSampler::new();
        send(&mut sampler, 0, 0, 5000, 5000);
        assert_eq!(
            sampler.on_lost(1000, Some(tick(0))).map(|l| l.lost),
            Some(1000)
        );
        send(&mut sampler, 1000, 4000, 5000, 10_000);
        let lost = sampler.on_lost(2000, Some(tick(1000))).expect("known");
        assert_eq!((lost.lost, lost.in_flight), (2000, 9000));
        let sample = sampler.on_delivered(tick(2000), 1000, Some(tick(0)), 100);
        assert_eq!(sample.lost, 3000);
        assert!(sampler.on_lost(1, None).is_none());
    }

    #[test]
    fn a_bubble_of_the_application_is_marked_until_it_is_delivered() {
        let mut sampler = RateSampler::new();
        send(&mut sampler, 0, 0, 1000, 1000);
        sampler.mark_app_limited(1000);
        send(&mut sampler, 500, 1000, 1000, 2000);
        send(&mut sampler, 900, 2000, 1000, 3000);
        assert!(
            !sampler
                .on_delivered(tick(1000), 1000, Some(tick(0)), 10)
                .app_limited
        );
        assert!(sampler.app_limited != 0);
        assert!(
            sampler
                .on_delivered(tick(1500), 1000, Some(tick(500)), 10)
                .app_limited
        );
        assert_eq!(sampler.app_limited, 0);
    }

    #[test]
    fn the_oldest_gives_way_and_nothing_grows() {
        let mut sampler = RateSampler::new();
        let capacity = sampler.snapshots.capacity();
        for n in 0..1000 {
            send(&mut sampler, n * 1000, 1, 1000, n as u32);
        }
        assert_eq!(sampler.snapshots.len(), CAPACITY);
        assert_eq!(sampler.snapshots.capacity(), capacity);
        assert!(sampler.find(tick(100_000)).is_none());
        sampler.shift(77);
        assert!(
            sampler
                .find(tick(999_077))
                .is_some_and(|s| s.sent == tick(999_077))
        );
    }
}
