//! The cookies of a server (RFC 7413 section 4.1.2).

use core::net::IpAddr;
use core::time::Duration;
use std::hash::Hasher;

use sidecore_tcp::Instant;
use sidecore_wire::FastOpenCookie;
use siphasher::sip::SipHasher24;

/// What a cookie is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Judgement {
    Good,
    /// Of the key before this one: good, and the client should have another.
    Old,
    Bad,
}

/// SipHash-2-4 of the client's address and ours, and of the number of the period: which is as good as a new key for each.
#[derive(Debug)]
pub(crate) struct Cookies {
    key: [u8; 16],
    period: Duration,
}

impl Cookies {
    pub(crate) fn new(key: [u8; 16], period: Duration) -> Self {
        let period = period.max(Duration::from_secs(1));
        Self { key, period }
    }

    fn period_at(&self, now: Instant) -> u64 {
        (u128::from(now.as_nanos()) / self.period.as_nanos()) as u64
    }

    fn make(&self, period: u64, client: IpAddr, server: IpAddr) -> FastOpenCookie {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&period.to_le_bytes());
        for ip in [client, server] {
            match ip {
                IpAddr::V4(ip) => hasher.write(&ip.octets()),
                IpAddr::V6(ip) => hasher.write(&ip.octets()),
            }
        }
        // Eight bytes are a length that there is.
        FastOpenCookie::new(&hasher.finish().to_le_bytes()).unwrap_or(FastOpenCookie::REQUEST)
    }

    /// The cookie of a client now.
    pub(super) fn current(&self, now: Instant, client: IpAddr, server: IpAddr) -> FastOpenCookie {
        self.make(self.period_at(now), client, server)
    }

    pub(super) fn judge(
        &self,
        now: Instant,
        cookie: &FastOpenCookie,
        client: IpAddr,
        server: IpAddr,
    ) -> Judgement {
        let period = self.period_at(now);
        if *cookie == self.make(period, client, server) {
            Judgement::Good
        } else if period > 0 && *cookie == self.make(period - 1, client, server) {
            Judgement::Old
        } else {
            Judgement::Bad
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_one_client_and_two_periods() {
        let day = Duration::from_secs(86_400);
        let cookies = Cookies::new([7; 16], day);
        let (client, other) = ([10, 0, 0, 9].into(), [10, 0, 0, 8].into());
        let server = "fd00::1".parse().unwrap();
        let mut now = Instant::from_secs(5 * 86_400);
        let cookie = cookies.current(now, client, server);
        assert_eq!(cookie.as_slice().len(), 8);
        assert_eq!(cookies.judge(now, &cookie, client, server), Judgement::Good);
        assert_eq!(cookies.judge(now, &cookie, other, server), Judgement::Bad);
        assert_eq!(cookies.judge(now, &cookie, client, other), Judgement::Bad);
        assert_eq!(
            Cookies::new([8; 16], day).judge(now, &cookie, client, server),
            Judgement::Bad
        );
        now += day;
        assert_eq!(cookies.judge(now, &cookie, client, server), Judgement::Old);
        assert_ne!(cookies.current(now, client, server), cookie);
        now += day;
        assert_eq!(cookies.judge(now, &cookie, client, server), Judgement::Bad);
    }
}
