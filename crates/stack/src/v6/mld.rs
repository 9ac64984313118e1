//! Groups: joined and reported (RFC 3810; RFC 2710 where a router speaks only that). Only the solicited-node groups of own
//! addresses are joined; sockets do not join any.

use core::net::Ipv6Addr;
use core::time::Duration;

use sidecore_tcp::Instant;
use sidecore_wire::mld::{self, RecordKind};
use sidecore_wire::{Ipv6Header, MldQuery, ipv6};

use super::address::Status;
use super::{Six, push_message};
use crate::control::Link;
use crate::stack::Stack;

/// RFC 3810 section 9.1: how often what may be lost is said.
const ROBUSTNESS: u8 = 2;
/// Section 9.11: the time until an unsolicited report is said again.
const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);
/// Groups in one report, at most: what fits into the smallest packet.
const GROUPS_PER_REPORT: usize = (ipv6::MIN_MTU as usize - 40 - 8 - 8) / 20;

/// What is still to be reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Groups {
    /// All groups are to be reported as joined, so often, and then.
    changes: u8,
    next_change: Instant,
    /// A query is to be answered then.
    answer: Option<Instant>,
    /// A router speaks MLDv1 only, until then (RFC 3810 section 8.2.1).
    v1_until: Instant,
}

impl Groups {
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let change = (self.changes > 0).then_some(self.next_change);
        change.into_iter().chain(self.answer).min()
    }
}

/// RFC 3810 section 9.12, with the default query interval: Robustness · Query Interval + Query Response Interval.
const OLDER_VERSION_TIMEOUT: Duration = Duration::from_secs(2 * 125 + 10);

impl Stack {
    /// A group is joined: it is said at once, and again later.
    pub(super) fn join(&mut self, now: Instant, group: Ipv6Addr) {
        self.report(now, RecordKind::ChangeToExclude, &[group]);
        let delay = self.six.random(UNSOLICITED_INTERVAL);
        let groups = &mut self.six.groups;
        groups.changes = ROBUSTNESS - 1;
        groups.next_change = now + delay;
    }

    /// The group of an address that is none of ours any more.
    pub(super) fn leave_group_of(&mut self, ip: Ipv6Addr) {
        let group = ipv6::solicited_node(ip);
        if !self.six.addresses.is_member(group) {
            self.report(self.turn, RecordKind::ChangeToInclude, &[group]);
        }
    }

    /// A router asks who listens to what (RFC 3810 section 6.2). Whatever group it asks for, all are reported; that is more
    /// than it wants to know, and never wrong.
    pub(super) fn handle_mld(&mut self, now: Instant, ip: &Ipv6Header, message: &[u8]) {
        self.counters.mld_in += 1;
        let Ok(query) = MldQuery::parse(ip, message) else {
            self.counters.mld_ignored += 1;
            return;
        };
        if !query.v2 {
            self.six.groups.v1_until = now + OLDER_VERSION_TIMEOUT;
        }
        let within = Duration::from_millis(u64::from(query.max_response_ms));
        let at = now + self.six.random(within);
        let groups = &mut self.six.groups;
        groups.answer = Some(groups.answer.map_or(at, |earlier| earlier.min(at)));
        self.six.reschedule();
    }

    /// Reports what is due.
    pub(super) fn group_timers(&mut self, now: Instant) {
        let groups = &mut self.six.groups;
        if groups.changes > 0 && groups.next_change <= now {
            groups.changes -= 1;
            let delay = self.six.random(UNSOLICITED_INTERVAL);
            self.six.groups.next_change = now + delay;
            self.report_all(now, RecordKind::ChangeToExclude);
        }
        if self.six.groups.answer.is_some_and(|at| at <= now) {
            self.six.groups.answer = None;
            self.report_all(now, RecordKind::ModeIsExclude);
        }
    }

    fn report_all(&mut self, now: Instant, kind: RecordKind) {
        let own = self.six.addresses.own.iter();
        // What was not yet asked for was not yet joined.
        let joined = own.filter(|own| match own.status {
            Status::Tentative { asked, .. } => asked > 0,
            Status::Assigned => true,
            Status::Duplicate => false,
        });
        let mut groups: Vec<_> = joined.map(|own| ipv6::solicited_node(own.ip)).collect();
        groups.sort();
        groups.dedup();
        for groups in groups.chunks(GROUPS_PER_REPORT) {
            self.report(now, kind, groups);
        }
    }

    fn report(&mut self, now: Instant, kind: RecordKind, groups: &[Ipv6Addr]) {
        // RFC 3590: from nobody, as long as there is no link-local address.
        let own = self.six.addresses.own.iter();
        let mut assigned = own.filter(|own| own.status == Status::Assigned);
        let src = assigned.find(|own| ipv6::is_link_local(own.ip));
        let src = src.map_or(Ipv6Addr::UNSPECIFIED, |own| own.ip);
        if now < self.six.groups.v1_until {
            return self.report_v1(src, kind, groups);
        }
        let dst = ipv6::ALL_MLDV2_ROUTERS;
        let len = mld::report_v2_len(groups.len());
        push_message(&mut self.control, &Six::mld(src, dst), len, |buf| {
            mld::emit_report_v2(src, dst, kind, groups, buf)
        });
        self.counters.mld_out += 1;
    }

    /// RFC 2710 section 4: one message a group, to the group; that it was left, to the routers.
    fn report_v1(&mut self, src: Ipv6Addr, kind: RecordKind, groups: &[Ipv6Addr]) {
        let done = kind == RecordKind::ChangeToInclude;
        for group in groups {
            let dst = if done { ipv6::ALL_ROUTERS } else { *group };
            let mut envelope = Six::mld(src, dst);
            envelope.link = Link::Station(ipv6::multicast_mac(dst));
            push_message(&mut self.control, &envelope, mld::V1_LEN, |buf| {
                mld::emit_v1(src, dst, done, *group, buf)
            });
            self.counters.mld_out += 1;
        }
    }
}
