//! What clients remember of servers (RFC 7413 section 4.1.3): cookies, and where data on a SYN got lost.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;

use sidecore_tcp::{FastOpenResult, Instant};
use sidecore_wire::FastOpenCookie;

/// For so long after its second loss in a row a destination is spared; twice as long for each more, as Linux has it.
const SPARED: Duration = Duration::from_secs(60);
/// Losses beyond this make it no longer: 17 hours.
const LOSSES_MAX: u8 = 10;

/// Of one destination.
#[derive(Clone, Copy, Debug)]
struct Entry {
    cookie: Option<FastOpenCookie>,
    mss: u16,
    /// How often in a row a SYN with this option was lost, and when the last one.
    losses: u8,
    lost_at: Instant,
    used: Instant,
}

/// What to do for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Advice {
    /// Nothing: SYNs with the option do not get there.
    Off,
    /// To ask for a cookie.
    Ask,
    /// There is one; and the server's MSS.
    Cookie(FastOpenCookie, u16),
}

/// A cookie is good for one address of ours.
pub(super) type Destination = (IpAddr, IpAddr);

/// The cache: the destination that was used longest ago gives way.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: HashMap<Destination, Entry>,
    limit: usize,
}

impl Cache {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            limit,
        }
    }

    /// How many destinations are remembered.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn advise(&mut self, now: Instant, to: &Destination) -> Advice {
        let Some(entry) = self.entries.get_mut(to) else {
            return Advice::Ask;
        };
        entry.used = now;
        let spared = SPARED * (1 << u32::from(entry.losses));
        if entry.losses > 1 && now < entry.lost_at + spared {
            return Advice::Off;
        }
        match entry.cookie {
            Some(cookie) => Advice::Cookie(cookie, entry.mss),
            None => Advice::Ask,
        }
    }

    /// The handshake is complete.
    pub(super) fn learn(&mut self, now: Instant, to: &Destination, result: &FastOpenResult) {
        // RFC 7413 section 4.1.3.1: what got no answer with the option, and one without. A late answer to the first SYN is one, too.
        let lost = result.repeated && result.cookie.is_none() && result.acked == 0;
        let of_interest = lost || result.cookie.is_some() || self.entries.contains_key(to);
        let Some(entry) = of_interest.then(|| self.entry(now, to)).flatten() else {
            return;
        };
        if lost {
            entry.lost(now);
        } else {
            entry.losses = 0;
        }
        if result.cookie.is_some() {
            entry.cookie = result.cookie;
            entry.mss = result.mss;
        }
    }

    /// The connection came to nothing, or nothing was ever received on it: something on the way may dislike what it began with.
    pub(super) fn failed(&mut self, now: Instant, to: &Destination) {
        if let Some(entry) = self.entry(now, to) {
            entry.lost(now);
            // Not a second time: each of these costs an application a connection.
            entry.lost(now);
        }
    }

    fn entry(&mut self, now: Instant, to: &Destination) -> Option<&mut Entry> {
        if self.limit == 0 {
            return None;
        }
        if !self.entries.contains_key(to) && self.entries.len() >= self.limit {
            let (oldest, _) = self.entries.iter().min_by_key(|(_, entry)| entry.used)?;
            let oldest = *oldest;
            self.entries.remove(&oldest);
        }
        Some(self.entries.entry(*to).or_insert(Entry {
            cookie: None,
            mss: 0,
            losses: 0,
            lost_at: now,
            used: now,
        }))
    }
}

impl Entry {
    fn lost(&mut self, now: Instant) {
        self.losses = (self.losses + 1).min(LOSSES_MAX);
        self.lost_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(n: u8) -> Destination {
        ([10, 0, 0, 1].into(), [10, 0, 0, n].into())
    }

    fn result(cookie: u8, repeated: bool) -> FastOpenResult {
        FastOpenResult {
            cookie: FastOpenCookie::new(&[cookie; 8]).filter(|_| cookie > 0),
            mss: 1460,
            sent: 10,
            acked: 0,
            repeated,
        }
    }

    #[test]
    fn destinations_that_lose_such_syns_are_spared_for_longer_and_longer() {
        let (mut cache, mut now) = (Cache::new(4), Instant::from_secs(1));
        cache.learn(now, &to(2), &result(9, false));
        let known = cache.advise(now, &to(2));
        assert_eq!(
            known,
            Advice::Cookie(FastOpenCookie::new(&[9; 8]).unwrap(), 1460)
        );
        cache.learn(now, &to(2), &result(0, true));
        assert_eq!(cache.advise(now, &to(2)), known, "once may be chance");
        for minutes in [4, 8, 16] {
            cache.learn(now, &to(2), &result(0, true));
            assert_eq!(cache.advise(now, &to(2)), Advice::Off);
            now += Duration::from_secs(60 * minutes - 1);
            assert_eq!(cache.advise(now, &to(2)), Advice::Off);
            now += Duration::from_secs(1);
            assert_eq!(cache.advise(now, &to(2)), known, "the cookie is kept");
        }
        cache.learn(now, &to(2), &result(0, false));
        cache.learn(now, &to(2), &result(0, true));
        assert_eq!(cache.advise(now, &to(2)), known, "it is counted anew");
        cache.failed(now, &to(2));
        assert_eq!(
            cache.advise(now, &to(2)),
            Advice::Off,
            "a lost connection counts more"
        );
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut cache = Cache::new(2);
        for n in 1..=3 {
            cache.learn(Instant::from_secs(n), &to(n as u8), &result(n as u8, false));
        }
        assert_eq!(cache.len(), 2);
        let now = Instant::from_secs(9);
        assert_eq!(cache.advise(now, &to(1)), Advice::Ask);
        assert_ne!(cache.advise(now, &to(2)), Advice::Ask);
        cache.learn(now, &to(7), &result(0, false));
        assert_eq!(
            cache.len(),
            2,
            "a server without cookies is not worth a place"
        );
        let mut none = Cache::new(0);
        none.learn(now, &to(1), &result(1, false));
        assert_eq!((none.len(), none.advise(now, &to(1))), (0, Advice::Ask));
    }
}
