//! Own addresses: made, checked, aged (RFC 4862, RFC 7217).

use core::net::Ipv6Addr;
use core::time::Duration;

use sidecore_tcp::Instant;
use sidecore_wire::ndp::PrefixInformation;
use sidecore_wire::{NdpMessage, ipv6};
use siphasher::sip::SipHasher24;

use core::hash::Hasher;

use super::address::{Origin, OwnAddress, Status};
use super::config::InterfaceId;
use super::{Six, push_message};
use crate::control::Link;
use crate::stack::Stack;

/// RFC 4861 section 10: MAX_RTR_SOLICITATION_DELAY; the first packet of an interface comes within it.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// RFC 4862 section 5.5.3 (e): nobody shortens a lifetime below this.
const TWO_HOURS: Duration = Duration::from_secs(2 * 60 * 60);
/// RFC 7217 section 6: IDGEN_RETRIES.
const GENERATION_RETRIES: u8 = 3;
const LINK_LOCAL_PREFIX: u64 = 0xfe80_0000_0000_0000;

/// The end of a lifetime in seconds; all ones is no end.
pub(super) fn lifetime(now: Instant, seconds: u32) -> Instant {
    match seconds {
        u32::MAX => Instant::NEVER,
        seconds => now + Duration::from_secs(u64::from(seconds)),
    }
}

impl Stack {
    /// The link-local address, with the interface identifier as configured.
    pub(super) fn link_local_address(&self) -> Ipv6Addr {
        self.own_address(LINK_LOCAL_PREFIX)
    }

    /// An address of our own making in the network with this prefix of 64 bits.
    fn own_address(&self, prefix: u64) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.mac().0;
        let id = match &self.six.config.interface_id {
            // RFC 4291 appendix A: the universal/local bit is inverted.
            InterfaceId::Eui64 => u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]),
            InterfaceId::Stable(secret) => stable_id(secret, prefix, self.six.dad_counter),
        };
        Ipv6Addr::from_bits(u128::from(prefix) << 64 | u128::from(id))
    }

    /// Begins to check an address, and joins its group; nothing happens if it is there already, or if there are too many.
    pub(super) fn add_address(
        &mut self,
        now: Instant,
        ip: Ipv6Addr,
        prefix_len: u8,
        origin: Origin,
    ) -> bool {
        let most = self.six.config.max_addresses;
        let addresses = &mut self.six.addresses;
        if addresses.find(ip).is_some() || addresses.own.len() >= most {
            return false;
        }
        let delay = self.six.random(MAX_DELAY);
        let status = if self.six.config.dad_transmits == 0 {
            Status::Assigned
        } else {
            // RFC 4862 section 5.4.2: the first solicitation and the join before it come after a random delay.
            Status::Tentative {
                asked: 0,
                next: now + delay,
            }
        };
        self.six.addresses.own.push(OwnAddress {
            ip,
            prefix_len,
            origin,
            status,
            preferred_until: Instant::NEVER,
            valid_until: Instant::NEVER,
        });
        if status == Status::Assigned {
            self.join(now, ipv6::solicited_node(ip));
            self.address_assigned(now, origin);
        }
        true
    }

    /// Addresses that are being checked, and those whose time has run out.
    pub(super) fn autoconf_timers(&mut self, now: Instant) {
        for at in 0..self.six.addresses.own.len() {
            let own = self.six.addresses.own[at];
            if let Status::Tentative { asked, next } = own.status
                && next <= now
            {
                self.check_address(now, at, asked);
            }
        }
        let ended = |own: &OwnAddress| own.valid_until <= now;
        while let Some(at) = self.six.addresses.own.iter().position(ended) {
            let own = self.six.addresses.own.remove(at);
            self.leave_group_of(own.ip);
        }
    }

    /// Asks once more whether another station has an address; when that was asked often enough, the address is ours.
    fn check_address(&mut self, now: Instant, at: usize, asked: u8) {
        let ip = self.six.addresses.own[at].ip;
        let again = now + self.six.neighbors.config.retransmit;
        if asked >= self.six.config.dad_transmits {
            self.six.addresses.own[at].status = Status::Assigned;
            let origin = self.six.addresses.own[at].origin;
            return self.address_assigned(now, origin);
        }
        if asked == 0 {
            self.join(now, ipv6::solicited_node(ip));
        }
        self.six.addresses.own[at].status = Status::Tentative {
            asked: asked + 1,
            next: again,
        };
        // RFC 4862 section 5.4.2: from nobody, to the group.
        let group = ipv6::solicited_node(ip);
        let link = Link::Station(ipv6::multicast_mac(group));
        let question = NdpMessage::NeighborSolicitation {
            target: ip,
            source_link: None,
        };
        self.push_ndp(link, Ipv6Addr::UNSPECIFIED, group, &question);
    }

    fn address_assigned(&mut self, now: Instant, origin: Origin) {
        self.counters.addresses_assigned += 1;
        if origin == Origin::LinkLocal {
            // RFC 3590 section 4: what was said from nobody is said again from an address.
            self.six.groups.tell_again(now);
        }
        if origin == Origin::LinkLocal && self.six.config.accept_routers {
            let delay = self.six.random(MAX_DELAY);
            self.six.solicitation.begin(now + delay);
        }
    }

    /// Another station has an address that we were about to use (RFC 4862 section 5.4.5).
    pub(super) fn address_is_taken(&mut self, now: Instant, ip: Ipv6Addr) {
        self.counters.addresses_duplicate += 1;
        let Some(own) = self.six.addresses.find_mut(ip) else {
            return;
        };
        own.status = Status::Duplicate;
        let (origin, prefix_len, valid, preferred) = (
            own.origin,
            own.prefix_len,
            own.valid_until,
            own.preferred_until,
        );
        self.leave_group_of(ip);
        // RFC 7217 section 6: another identifier, a few times. One made of the link address is as unique as that: then two
        // stations have the same, and no other identifier would help.
        let made = matches!(self.six.config.interface_id, InterfaceId::Stable(_));
        if !made || origin == Origin::Configured || self.six.dad_counter >= GENERATION_RETRIES {
            return;
        }
        self.six.dad_counter += 1;
        self.six.addresses.own.retain(|own| own.ip != ip);
        let another = self.own_address((ip.to_bits() >> 64) as u64);
        self.add_address(now, another, prefix_len, origin);
        if let Some(own) = self.six.addresses.find_mut(another) {
            (own.valid_until, own.preferred_until) = (valid, preferred);
        }
    }

    /// A router announced a prefix that addresses may be made from (RFC 4862 section 5.5.3).
    pub(super) fn autoconf_prefix(&mut self, now: Instant, said: &PrefixInformation) {
        let sensible = said.preferred_lifetime <= said.valid_lifetime;
        // (d): with identifiers of 64 bits no other length makes an address.
        let usable = said.prefix_len == 64 && !ipv6::is_link_local(said.prefix);
        if !self.six.config.autoconf || !sensible || !usable || said.prefix.is_multicast() {
            return;
        }
        let prefix = (said.prefix.to_bits() >> 64) as u64;
        let made_of_it = |own: &&mut OwnAddress| {
            own.origin == Origin::Autoconf && (own.ip.to_bits() >> 64) as u64 == prefix
        };
        if let Some(own) = self.six.addresses.own.iter_mut().find(made_of_it) {
            own.valid_until = valid_until(now, own.valid_until, said.valid_lifetime);
            own.preferred_until = lifetime(now, said.preferred_lifetime).min(own.valid_until);
            return;
        }
        if said.valid_lifetime == 0 {
            return;
        }
        let ip = self.own_address(prefix);
        if self.add_address(now, ip, 64, Origin::Autoconf)
            && let Some(own) = self.six.addresses.find_mut(ip)
        {
            own.valid_until = lifetime(now, said.valid_lifetime);
            own.preferred_until = lifetime(now, said.preferred_lifetime);
        }
    }

    /// Queues a message of neighbour discovery.
    pub(super) fn push_ndp(
        &mut self,
        link: Link,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        message: &NdpMessage,
    ) {
        let envelope = Six::ndp(link, src, dst);
        push_message(&mut self.control, &envelope, message.len(), |buf| {
            message.emit(src, dst, buf)
        });
        self.counters.ndp_out += 1;
    }
}

/// How long an address stays valid that was valid until `old`, when a router says `seconds` (RFC 4862 section 5.5.3 (e)).
/// Whoever forges advertisements shortens nothing below two hours.
fn valid_until(now: Instant, old: Instant, seconds: u32) -> Instant {
    let said = lifetime(now, seconds);
    let in_two_hours = now + TWO_HOURS;
    if said > in_two_hours || said > old {
        said
    } else if old <= in_two_hours {
        old
    } else {
        in_two_hours
    }
}

/// RFC 7217 section 5: a pseudorandom function of prefix, counter and secret. Identifiers that are reserved (RFC 5453) are
/// so few that they are not looked for.
fn stable_id(secret: &[u8; 16], prefix: u64, dad_counter: u8) -> u64 {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(&prefix.to_be_bytes());
    hasher.write(&[dad_counter]);
    hasher.write(b"interface identifier");
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_4862_section_5_5_3_the_two_hour_rule() {
        let now = Instant::from_secs(1_000_000);
        let hours = |n: u64| now + Duration::from_secs(n * 3600);
        let said = |hours: u32| hours * 3600;
        // Longer than two hours, or longer than what is left: taken.
        assert_eq!(valid_until(now, hours(10), said(3)), hours(3));
        assert_eq!(valid_until(now, hours(1), said(2)), hours(2));
        assert_eq!(valid_until(now, hours(1), u32::MAX), Instant::NEVER);
        // Shorter, and little is left: ignored.
        assert_eq!(valid_until(now, hours(2), said(1)), hours(2));
        assert_eq!(valid_until(now, hours(1), 0), hours(1));
        // Shorter, and much is left: two hours.
        assert_eq!(valid_until(now, hours(10), 0), hours(2));
        assert_eq!(valid_until(now, Instant::NEVER, said(1)), hours(2));
    }

    #[test]
    fn rfc_7217_section_5_identifiers_depend_on_all() {
        let ids = [
            stable_id(&[1; 16], 1, 0),
            stable_id(&[2; 16], 1, 0),
            stable_id(&[1; 16], 2, 0),
            stable_id(&[1; 16], 1, 1),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[at + 1..].contains(id));
        }
        assert_eq!(stable_id(&[1; 16], 1, 0), ids[0], "stable");
    }
}
