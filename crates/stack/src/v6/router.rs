//! Routers: solicited, listened to, given up (RFC 4861 sections 6.3 and 8.3).

use core::net::Ipv6Addr;
use core::time::Duration;

use sidecore_tcp::Instant;
use sidecore_wire::ndp::{PrefixInformation, RouterAdvertisement};
use sidecore_wire::{MacAddress, NdpMessage, ipv6};

use super::address::{Ipv6Cidr, OnLink, Route6, Router};
use super::autoconf::lifetime;
use crate::control::Link;
use crate::host::Host;
use crate::stack::Stack;

/// RFC 4861 section 10: MAX_RTR_SOLICITATIONS and RTR_SOLICITATION_INTERVAL.
const SOLICITATIONS: u8 = 3;
const INTERVAL: Duration = Duration::from_secs(4);
/// RFC 4861 section 6.2.1: no router may say more.
const MAX_REACHABLE_MS: u32 = 3_600_000;
/// What is taken for time between solicitations, so that nobody makes us solicit without end.
const RETRANSMIT_MS: core::ops::RangeInclusive<u32> = 100..=60_000;

/// Router solicitations that are still to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Solicitation {
    left: u8,
    next: Instant,
}

impl Solicitation {
    /// The first one goes out then.
    pub(super) fn begin(&mut self, at: Instant) {
        *self = Self {
            left: SOLICITATIONS,
            next: at,
        };
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.next)
    }
}

impl Stack {
    /// Solicits, and forgets what has run out.
    pub(super) fn router_timers(&mut self, now: Instant) {
        let addresses = &mut self.six.addresses;
        addresses.on_link.retain(|on| on.until > now);
        let ended = |router: &Router| router.until <= now;
        while let Some(at) = self.six.addresses.routers.iter().position(ended) {
            let router = self.six.addresses.routers[at].ip;
            self.forget_router(router);
        }
        if self
            .six
            .solicitation
            .next_timeout()
            .is_some_and(|next| next <= now)
        {
            self.six.solicitation.left -= 1;
            self.six.solicitation.next = now + INTERVAL;
            self.solicit_routers(now);
        }
    }

    /// RFC 4861 section 6.3.7.
    fn solicit_routers(&mut self, now: Instant) {
        let source = self.six.addresses.source_for(now, ipv6::ALL_ROUTERS);
        let message = NdpMessage::RouterSolicitation {
            source_link: source.map(|_| self.mac()),
        };
        let src = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let link = Link::Station(ipv6::multicast_mac(ipv6::ALL_ROUTERS));
        self.push_ndp(link, src, ipv6::ALL_ROUTERS, &message);
    }

    /// A router advertised itself (RFC 4861 section 6.3.4).
    pub(super) fn router_advertised<H: Host>(
        &mut self,
        now: Instant,
        router: Ipv6Addr,
        said: &RouterAdvertisement,
        host: &mut H,
    ) {
        if !self.six.config.accept_routers {
            return;
        }
        self.counters.routers_heard += 1;
        self.take_parameters(said);
        let lasts = lifetime(now, u32::from(said.router_lifetime));
        let most = self.six.config.max_routers;
        let routers = &mut self.six.addresses.routers;
        let room = routers.len() < most;
        match routers.iter_mut().find(|known| known.ip == router) {
            // A configured one stays.
            Some(known) if known.until == Instant::NEVER => {}
            Some(known) if said.router_lifetime > 0 => known.until = lasts,
            Some(_) => self.forget_router(router),
            None if said.router_lifetime > 0 && room => {
                routers.push(Router {
                    ip: router,
                    until: lasts,
                });
            }
            None => {}
        }
        if said.router_lifetime > 0 {
            // Section 6.3.7: one with a lifetime is what was solicited for.
            self.six.solicitation.left = 0;
        }
        if let Some(mac) = said.source_link.filter(|mac| mac.is_unicast()) {
            self.neighbor_heard(now, router, mac, Some(true), host);
        }
        for prefix in said.prefixes.iter() {
            if prefix.on_link {
                self.prefix_announced(now, &prefix);
            }
            if prefix.autonomous {
                self.autoconf_prefix(now, &prefix);
            }
        }
    }

    /// Hop limit, times and MTU, as far as they are said and sensible.
    fn take_parameters(&mut self, said: &RouterAdvertisement) {
        if said.hop_limit != 0 {
            self.six.hop_limit = said.hop_limit;
        }
        let neighbor = &mut self.six.neighbors.config;
        if (1..=MAX_REACHABLE_MS).contains(&said.reachable_ms) {
            neighbor.reachable = Duration::from_millis(u64::from(said.reachable_ms));
        }
        if RETRANSMIT_MS.contains(&said.retransmit_ms) {
            neighbor.retransmit = Duration::from_millis(u64::from(said.retransmit_ms));
        }
        // "If the MTU option is present, hosts SHOULD copy the option's value into LinkMTU so long as the value is greater than
        // or equal to the minimum link MTU … and does not exceed the maximum LinkMTU value".
        let device = self.config.mtu.max(ipv6::MIN_MTU);
        if let Some(mtu) = said.mtu.and_then(|mtu| u16::try_from(mtu).ok())
            && (ipv6::MIN_MTU..=device).contains(&mtu)
        {
            self.six.mtu = mtu;
        }
    }

    /// RFC 4861 section 6.3.4: a prefix whose addresses are neighbours.
    fn prefix_announced(&mut self, now: Instant, said: &PrefixInformation) {
        if ipv6::is_link_local(said.prefix) || said.prefix.is_multicast() {
            return;
        }
        let Some(prefix) = Ipv6Cidr::new(said.prefix, said.prefix_len) else {
            return;
        };
        let until = lifetime(now, said.valid_lifetime);
        let same = |on: &OnLink| {
            on.prefix.prefix_len() == prefix.prefix_len() && on.prefix.contains(said.prefix)
        };
        let configured = |on: &OnLink| self.six.config.addresses.contains(&on.prefix);
        let on_link = &mut self.six.addresses.on_link;
        match on_link.iter().position(same) {
            Some(at) if configured(&on_link[at]) => {}
            Some(at) if said.valid_lifetime == 0 => {
                on_link.remove(at);
            }
            Some(at) => on_link[at].until = until,
            None if said.valid_lifetime > 0 && on_link.len() < self.six.config.max_prefixes => {
                on_link.push(OnLink { prefix, until });
            }
            None => {}
        }
    }

    /// It is no default router any more; who goes through it by redirect finds another way.
    pub(super) fn forget_router(&mut self, router: Ipv6Addr) {
        let addresses = &mut self.six.addresses;
        addresses
            .routers
            .retain(|known| known.ip != router || known.until == Instant::NEVER);
        addresses.redirects.retain(|(_, hop)| *hop != router);
    }

    /// A router knows a better first hop (RFC 4861 section 8.3).
    pub(super) fn redirected<H: Host>(
        &mut self,
        now: Instant,
        router: Ipv6Addr,
        (destination, target): (Ipv6Addr, Ipv6Addr),
        mac: Option<MacAddress>,
        host: &mut H,
    ) {
        // Section 8.1: "The IP source address of the Redirect is the same as the current first-hop router for the specified
        // ICMP Destination Address."
        let current = self.route6(destination);
        let sane = super::address::is_unicast(destination) && !target.is_unspecified();
        if current != Some(Route6::Link(router)) || !sane || !self.six.config.accept_routers {
            self.counters.ndp_malformed += 1;
            return;
        }
        let redirects = &mut self.six.addresses.redirects;
        redirects.retain(|(to, _)| *to != destination);
        if redirects.len() >= self.six.config.max_redirects && !redirects.is_empty() {
            redirects.remove(0);
        }
        if self.six.config.max_redirects > 0 {
            redirects.push((destination, target));
        }
        if let Some(mac) = mac.filter(|mac| mac.is_unicast()) {
            let is_router = (target != destination).then_some(true);
            self.neighbor_heard(now, target, mac, is_router, host);
        }
    }

    /// The way to a destination.
    pub(crate) fn route6(&self, dst: Ipv6Addr) -> Option<Route6> {
        let neighbors = &self.six.neighbors;
        self.six
            .addresses
            .route(dst, |router| neighbors.may_be_alive(router))
    }
}
