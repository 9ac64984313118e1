//! MLD: IPv6's messages about groups (RFC 3810; RFC 2710 where a router speaks only that). The groups themselves, and when
//! something is said of them, are in `groups`.

use core::net::Ipv6Addr;

use sidecore_tcp::Instant;
use sidecore_wire::groups::report_len;
use sidecore_wire::ipv6::extension::ROUTER_ALERT_LEN;
use sidecore_wire::{Ipv6Header, Mld, ipv6, mld};

use super::address::Status;
use super::{Six, push_message};
use crate::groups::{Said, pack};
use crate::stack::Stack;

impl Stack {
    /// The stack listens to a group itself: it is said at once, and again later.
    pub(super) fn join(&mut self, now: Instant, group: Ipv6Addr) {
        self.six.groups.set_own(now, group, true);
        // Before the question that follows it, if one does.
        self.group_timers(now);
    }

    /// The group of an address that is none of ours any more.
    pub(super) fn leave_group_of(&mut self, ip: Ipv6Addr) {
        let group = ipv6::solicited_node(ip);
        if !self.six.addresses.is_member(group) {
            self.six.groups.set_own(self.turn, group, false);
        }
    }

    /// A router asks who listens to what; or another host says what it listens to. `alert`: with a router alert in front of it.
    pub(super) fn handle_mld(
        &mut self,
        now: Instant,
        ip: &Ipv6Header,
        alert: bool,
        message: &[u8],
    ) {
        self.counters.mld_in += 1;
        match Mld::parse(ip, alert, message) {
            Ok(Mld::Query(query)) if !is_odd(ip, query.group) => {
                self.six.groups.query(now, &query);
            }
            Ok(Mld::Report(group)) => self.six.groups.heard(now, group),
            _ => self.counters.mld_ignored += 1,
        }
        self.six.reschedule();
    }

    /// Says what is due.
    pub(super) fn group_timers(&mut self, now: Instant) {
        let Some(said) = self.six.groups.due(now) else {
            return;
        };
        // RFC 3590: from nobody, as long as there is no link-local address.
        let own = self.six.addresses.own.iter();
        let mut assigned = own.filter(|own| own.status == Status::Assigned);
        let src = assigned.find(|own| ipv6::is_link_local(own.ip));
        let src = src.map_or(Ipv6Addr::UNSPECIFIED, |own| own.ip);
        match said {
            Said::Records(records) => {
                let headers = ipv6::HEADER_LEN + ROUTER_ALERT_LEN;
                let room = usize::from(self.six.mtu) - headers;
                let dst = ipv6::ALL_MLDV2_ROUTERS;
                pack(&records, room, |records| {
                    let len = report_len(records);
                    push_message(&mut self.control, &Six::mld(src, dst), len, |buf| {
                        mld::emit_report(src, dst, records, buf)
                    });
                    self.counters.mld_out += 1;
                });
            }
            Said::Old(_, groups) => {
                for (group, listened) in groups {
                    // RFC 2710 section 4: to the group; that it was left, to the routers.
                    let dst = if listened { group } else { ipv6::ALL_ROUTERS };
                    push_message(&mut self.control, &Six::mld(src, dst), mld::V1_LEN, |buf| {
                        mld::emit_v1(src, dst, !listened, group, buf)
                    });
                    self.counters.mld_out += 1;
                }
            }
        }
    }
}

/// RFC 3810 section 10.1, as of IGMP: a question for all groups that was sent to another group than all nodes is ignored.
fn is_odd(ip: &Ipv6Header, group: Ipv6Addr) -> bool {
    group.is_unspecified() && ip.dst.is_multicast() && ip.dst != ipv6::ALL_NODES
}
