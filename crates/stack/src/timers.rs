//! Time passes.

use sidecore_tcp::{CloseReason, Instant, State};

use crate::connections::{Owner, flag};
use crate::host::Host;
use crate::stack::Stack;

/// R1 of RFC 9293 section 3.8.3, in retransmissions.
const R1: u8 = 3;

impl Stack {
    /// Whether [`handle_timers`](Self::handle_timers) may find something: cheap enough to be asked every turn.
    #[inline]
    pub fn timers_may_be_due(&self, now: Instant) -> bool {
        self.connections.timers_may_be_due(now)
            || self.neighbors.is_asking()
            || self.reassembly.is_in_use()
    }

    /// Does what is due by `now`, up to `budget` timers; returns how many were looked at. What is to be sent goes out with
    /// [`transmit`](Self::transmit). If the budget was used up, [`next_timeout`](Self::next_timeout) is in the past.
    #[inline]
    pub fn handle_timers<H: Host>(&mut self, now: Instant, host: &mut H, budget: usize) -> usize {
        let chores = now >= self.six.next
            || now >= self.groups.next
            || self.dhcp.as_ref().is_some_and(|dhcp| now >= dhcp.next);
        if chores || self.timers_may_be_due(now) {
            return self.handle_due_timers(now, host, budget);
        }
        0
    }

    #[inline(never)]
    fn handle_due_timers<H: Host>(&mut self, now: Instant, host: &mut H, budget: usize) -> usize {
        if self.neighbors.is_asking() {
            self.handle_arp_timers(now, host);
        }
        if self.reassembly.is_in_use() {
            self.counters.reassembly_timeouts += self.reassembly.expire(now);
        }
        if now >= self.six.next {
            self.handle_timers6(now, host);
        }
        if now >= self.groups.next {
            self.handle_group_timers(now);
        }
        if self.dhcp.as_ref().is_some_and(|dhcp| now >= dhcp.next) {
            self.handle_dhcp_timer(now);
        }
        let mut left = budget;
        while let Some(index) = self.connections.pop_timer(now, &mut left) {
            self.timer_fired(now, index, host);
        }
        budget - left
    }

    fn timer_fired<H: Host>(&mut self, now: Instant, index: u32, host: &mut H) {
        let slot = &mut self.connections[index];
        if slot.tcp.next_timeout().is_none_or(|next| next > now) {
            self.counters.timers_rearmed += 1;
            self.connections.arm(index);
            return;
        }
        self.counters.timers_fired += 1;
        let outcome = slot.tcp.handle_timeout(now, &mut self.ranges);
        let at_r1 = slot.tcp.unanswered_attempts() == R1;
        if let Some(reason) = outcome.closed {
            self.ended(index, reason, host);
        } else if at_r1 {
            self.doubt_next_hop(now, index);
        }
        self.touch(index);
    }

    /// "When the number of transmissions of the same segment reaches or exceeds threshold R1, pass negative advice … to the
    /// IP layer" (RFC 9293 section 3.8.3).
    #[cold]
    fn doubt_next_hop(&mut self, now: Instant, index: u32) {
        let slot = &self.connections[index];
        if slot.has(flag::LOOPBACK) {
            return;
        }
        if !slot.has(flag::V6) {
            self.neighbors.doubt(now, slot.next_hop);
        } else if let Some(hop) = self.connections.six.get(index).next_hop {
            self.six.neighbors.doubt(now, hop);
        }
    }

    /// A connection that waited for a neighbour's link address need wait no longer.
    pub(crate) fn leave_neighbor<H: Host>(
        &mut self,
        now: Instant,
        index: u32,
        failed: bool,
        host: &mut H,
    ) {
        let slot = &mut self.connections[index];
        slot.flags &= !flag::WAITING;
        let opening = slot.tcp.state() == State::SynSent && slot.owner == Owner::Host;
        if failed && opening {
            // Nothing was sent; there is nobody to send it to.
            slot.tcp.abort(now);
            self.ended(index, CloseReason::Unreachable, host);
        }
        self.touch(index);
    }
}
