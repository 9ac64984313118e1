//! The neighbour cache of IPv6 (RFC 4861 sections 5.1 and 7.3).
//!
//! ```text
//!            resolve                     solicited advertisement
//!  (nothing) ───────► INCOMPLETE ──────────────────────────────────► REACHABLE ◄─────────┐
//!      ▲                  │ advertisement, unsolicited                   │ time          │ solicited
//!      │ nobody answers   ▼                                              ▼               │ advertisement,
//!      ├────────────── (given up)        solicitations heard ────────► STALE             │ word from TCP
//!      │                                                                 │ resolve       │
//!      │                                                                 ▼ (in use)      │
//!      └──────────────────────────── PROBE ◄─────────────────────────  DELAY ────────────┘
//!           nobody answers                      nothing heard
//! ```

use core::net::Ipv6Addr;
use core::time::Duration;

use sidecore_tcp::Instant;
use sidecore_wire::MacAddress;

use super::config::NeighborConfig;
use crate::connections::Queue;
use crate::hash::FlowHasher;
use crate::list::List;

const WAYS: usize = 8;

/// An entry's place.
pub(crate) type Place = u16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Vacant,
    /// Asked for, never answered.
    Incomplete {
        asked: u8,
        next: Instant,
    },
    /// Heard of lately.
    Reachable {
        until: Instant,
    },
    /// Known, but not heard of lately; nobody minds until something is sent there.
    Stale,
    /// In use: the word of a protocol above may save the question.
    Delay {
        until: Instant,
    },
    /// Being asked whether it is still there.
    Probe {
        asked: u8,
        next: Instant,
    },
    /// It did not answer.
    Unreachable {
        until: Instant,
    },
    /// Configured.
    Permanent,
}

#[derive(Debug)]
pub(crate) struct Neighbor {
    pub(crate) ip: Ipv6Addr,
    mac: MacAddress,
    state: State,
    /// Until then nothing is to be done before sending there.
    certain_until: Instant,
    /// When it was learnt or asked for.
    since: Instant,
    is_router: bool,
    /// Connections that wait for the answer.
    pub(crate) waiting: List<Queue>,
    /// Some UDP socket waits too.
    pub(crate) datagrams_wait: bool,
}

/// What is known about a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resolution6 {
    Known(Place, MacAddress),
    /// It is being asked for: wait in this entry's list.
    Pending(Place),
    Unreachable,
}

/// A solicitation to be sent: to `at` if the neighbour is known, else to its solicited-node group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Solicit {
    pub(crate) ip: Ipv6Addr,
    pub(crate) at: Option<MacAddress>,
}

/// What an advertisement says (RFC 4861 section 4.4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advertised {
    pub(crate) mac: Option<MacAddress>,
    pub(crate) solicited: bool,
    pub(crate) override_: bool,
    pub(crate) router: bool,
}

/// What has to be done for an advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Consequences {
    /// Somebody may be waiting for this entry.
    pub(crate) wake: Option<Place>,
    /// It was a router, and says that it is none any more.
    pub(crate) router_lost: bool,
}

#[derive(Debug)]
pub(crate) struct NeighborCache6 {
    entries: Box<[Neighbor]>,
    set_mask: u64,
    hasher: FlowHasher,
    pub(crate) config: NeighborConfig,
    /// Entries with a timer: Incomplete, Delay, Probe.
    active: Vec<Place>,
    /// How many of them are Incomplete.
    pending: usize,
    drawn: u32,
    pub(crate) evicted: u64,
}

impl NeighborCache6 {
    pub(crate) fn new(config: NeighborConfig, hasher: FlowHasher) -> Self {
        let capacity = config.capacity.clamp(WAYS, 1 << 15).next_power_of_two();
        let vacant = |_| Neighbor {
            ip: Ipv6Addr::UNSPECIFIED,
            mac: MacAddress::UNSPECIFIED,
            state: State::Vacant,
            certain_until: Instant::ZERO,
            since: Instant::ZERO,
            is_router: false,
            waiting: List::new(),
            datagrams_wait: false,
        };
        Self {
            entries: (0..capacity).map(vacant).collect(),
            set_mask: (capacity / WAYS - 1) as u64,
            hasher,
            active: Vec::new(),
            pending: 0,
            config,
            drawn: 0,
            evicted: 0,
        }
    }

    pub(crate) fn entry_mut(&mut self, place: Place) -> &mut Neighbor {
        &mut self.entries[usize::from(place)]
    }

    /// A neighbour that never changes.
    pub(crate) fn add_permanent(&mut self, ip: Ipv6Addr, mac: MacAddress) {
        if let Some(place) = self.find(ip).or_else(|| self.place_for(ip)) {
            self.set(place, State::Permanent, Instant::ZERO);
            self.entry_mut(place).mac = mac;
        }
    }

    /// The link address of a neighbour that lies where it was found last, if there is no doubt about it.
    #[inline]
    pub(crate) fn known(&self, now: Instant, ip: Ipv6Addr, place: Place) -> Option<MacAddress> {
        let entry = self.entries.get(usize::from(place))?;
        (entry.ip == ip && now < entry.certain_until).then_some(entry.mac)
    }

    /// Whether a router is not known to be dead (RFC 4861 section 6.3.6).
    pub(crate) fn may_be_alive(&self, ip: Ipv6Addr) -> bool {
        self.find(ip).is_none_or(|place| {
            let state = self.entries[usize::from(place)].state;
            !matches!(state, State::Unreachable { .. } | State::Incomplete { .. })
        })
    }

    /// The link address of a neighbour that something is to be sent to.
    pub(crate) fn resolve(
        &mut self,
        now: Instant,
        ip: Ipv6Addr,
        ask: impl FnOnce(Solicit),
    ) -> Resolution6 {
        let Some(place) = self.find(ip).or_else(|| self.place_for(ip)) else {
            return Resolution6::Unreachable;
        };
        let may_ask = self.pending < self.config.max_pending;
        let (delay, next) = (self.config.delay, now + self.config.retransmit);
        let entry = self.entry_mut(place);
        let known = Resolution6::Known(place, entry.mac);
        match entry.state {
            State::Permanent | State::Delay { .. } | State::Probe { .. } => known,
            State::Reachable { until } if now < until => known,
            // 7.3.3: "The first time a node sends a packet to a neighbor whose entry is STALE, the sender changes the state to
            // DELAY and sets a timer".
            State::Reachable { .. } | State::Stale => {
                self.set(place, State::Delay { until: now + delay }, now);
                known
            }
            State::Incomplete { .. } => Resolution6::Pending(place),
            State::Unreachable { until } if now < until => Resolution6::Unreachable,
            State::Vacant | State::Unreachable { .. } if !may_ask => Resolution6::Unreachable,
            State::Vacant | State::Unreachable { .. } => {
                self.set(place, State::Incomplete { asked: 1, next }, now);
                ask(Solicit { ip, at: None });
                Resolution6::Pending(place)
            }
        }
    }

    /// A neighbour advertised itself (RFC 4861 section 7.2.5). Of who is not in the cache nothing is learnt.
    pub(crate) fn advertised(
        &mut self,
        now: Instant,
        ip: Ipv6Addr,
        said: &Advertised,
    ) -> Consequences {
        let Some(place) = self.find(ip) else {
            return Consequences::default();
        };
        let reachable = State::Reachable {
            until: now + self.reachable_time(),
        };
        let entry = self.entry_mut(place);
        let differs = said.mac.is_some_and(|mac| mac != entry.mac);
        let state = match entry.state {
            // An entry of the past: the neighbour is back.
            State::Unreachable { .. } | State::Incomplete { .. } => match said.mac {
                None => return Consequences::default(),
                Some(_) if said.solicited => reachable,
                Some(_) => State::Stale,
            },
            State::Vacant | State::Permanent => return Consequences::default(),
            // "If the Override flag is clear and the supplied link-layer address differs …": REACHABLE becomes STALE, anything
            // else stays, and nothing is learnt.
            State::Reachable { .. } if differs && !said.override_ => {
                self.set(place, State::Stale, now);
                return Consequences::default();
            }
            _ if differs && !said.override_ => return Consequences::default(),
            _ if said.solicited => reachable,
            _ if differs => State::Stale,
            unchanged => unchanged,
        };
        let waited = matches!(entry.state, State::Incomplete { .. });
        let router_lost = entry.is_router && !said.router;
        entry.is_router = said.router;
        entry.mac = said.mac.unwrap_or(entry.mac);
        if state != entry.state {
            self.set(place, state, now);
        }
        Consequences {
            wake: waited.then_some(place),
            router_lost,
        }
    }

    /// A neighbour's link address came along with something else: a solicitation, a router's message, a redirect (RFC 4861
    /// sections 7.2.3, 6.3.4, 8.3). Returns the entry if somebody may be waiting for it.
    pub(crate) fn heard(
        &mut self,
        now: Instant,
        ip: Ipv6Addr,
        mac: MacAddress,
        router: Option<bool>,
    ) -> Option<Place> {
        let place = self.find(ip).or_else(|| self.place_for(ip))?;
        let entry = self.entry_mut(place);
        entry.is_router = router.unwrap_or(entry.is_router);
        let unknown = matches!(
            entry.state,
            State::Vacant | State::Incomplete { .. } | State::Unreachable { .. }
        );
        // "If an entry already exists, and the cached link-layer address differs …, the cached address should be replaced …,
        // and the entry's reachability state MUST be set to STALE."
        if entry.state == State::Permanent || !unknown && entry.mac == mac {
            return None;
        }
        let waited = matches!(entry.state, State::Incomplete { .. });
        entry.mac = mac;
        self.set(place, State::Stale, now);
        waited.then_some(place)
    }

    /// A protocol above has word of the neighbour: what was sent there has arrived (RFC 4861 section 7.3.1).
    #[inline]
    pub(crate) fn confirm(&mut self, now: Instant, ip: Ipv6Addr, place: Place) {
        let Some(entry) = self.entries.get(usize::from(place)) else {
            return;
        };
        // Far from the end there is nothing to be done: not for each segment.
        let soon = now + self.config.reachable / 4;
        if entry.ip != ip || matches!(entry.state, State::Reachable { until } if until > soon) {
            return;
        }
        if matches!(
            entry.state,
            State::Reachable { .. } | State::Stale | State::Delay { .. } | State::Probe { .. }
        ) {
            let until = now + self.reachable_time();
            self.set(place, State::Reachable { until }, now);
        }
    }

    /// A protocol above has no word of the neighbour, though it should: what RFC 4861 section 7.3.1 takes from above, the other way round.
    pub(crate) fn doubt(&mut self, now: Instant, ip: Ipv6Addr) {
        if let Some(place) = self.find(ip)
            && matches!(
                self.entries[usize::from(place)].state,
                State::Reachable { .. }
            )
        {
            self.set(place, State::Stale, now);
        }
    }

    /// Asks where it is time; returns an entry that was given up and has to be told to those that wait, until there is
    /// none.
    pub(crate) fn expire(&mut self, now: Instant, mut ask: impl FnMut(Solicit)) -> Option<Place> {
        let mut at = 0;
        while let Some(&place) = self.active.get(at) {
            let next = now + self.config.retransmit;
            let (multicast, unicast) = (self.config.multicast_tries, self.config.unicast_tries);
            let entry = self.entry_mut(place);
            let (ip, mac) = (entry.ip, entry.mac);
            let again = match entry.state {
                State::Incomplete { next, .. } | State::Probe { next, .. } if next > now => None,
                State::Delay { until } if until > now => None,
                State::Incomplete { asked, .. } if asked < multicast => {
                    ask(Solicit { ip, at: None });
                    let asked = asked + 1;
                    Some(State::Incomplete { asked, next })
                }
                State::Probe { asked, .. } if asked < unicast => {
                    ask(Solicit { ip, at: Some(mac) });
                    let asked = asked + 1;
                    Some(State::Probe { asked, next })
                }
                State::Delay { .. } => {
                    ask(Solicit { ip, at: Some(mac) });
                    Some(State::Probe { asked: 1, next })
                }
                State::Incomplete { .. } => {
                    let until = now + self.config.unreachable;
                    self.set(place, State::Unreachable { until }, now);
                    return Some(place);
                }
                _ => {
                    // 7.3.3: "If no response is received …, the entry SHOULD be deleted", so that the next packet finds another
                    // first hop.
                    self.set(place, State::Vacant, now);
                    return Some(place);
                }
            };
            if let Some(state) = again {
                self.set(place, state, now);
            } else {
                at += 1;
            }
        }
        None
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let timer = |place: &Place| match self.entries[usize::from(*place)].state {
            State::Incomplete { next, .. } | State::Probe { next, .. } => Some(next),
            State::Delay { until } => Some(until),
            _ => None,
        };
        self.active.iter().filter_map(timer).min()
    }

    /// Puts an entry into a state, and where that state has to be.
    fn set(&mut self, place: Place, state: State, now: Instant) {
        let is_pending = |state| matches!(state, State::Incomplete { .. });
        let is_active =
            |state| is_pending(state) || matches!(state, State::Delay { .. } | State::Probe { .. });
        let entry = &mut self.entries[usize::from(place)];
        let old = core::mem::replace(&mut entry.state, state);
        entry.since = now;
        entry.certain_until = match state {
            State::Reachable { until } | State::Delay { until } => until,
            State::Permanent => Instant::NEVER,
            _ => Instant::ZERO,
        };
        if matches!(state, State::Vacant | State::Unreachable { .. }) {
            entry.mac = MacAddress::UNSPECIFIED;
        }
        self.pending += usize::from(is_pending(state));
        self.pending -= usize::from(is_pending(old));
        match (is_active(old), is_active(state)) {
            (false, true) => self.active.push(place),
            (true, false) => self.active.retain(|active| *active != place),
            _ => {}
        }
    }

    /// RFC 4861 section 6.3.2: "a uniformly distributed random value between MIN_RANDOM_FACTOR and MAX_RANDOM_FACTOR times
    /// BaseReachableTime".
    fn reachable_time(&mut self) -> Duration {
        self.drawn = self.drawn.wrapping_add(1);
        let base = self.config.reachable;
        let permille = self.hasher.hash(u64::from(self.drawn), 0x0dd5) % 1001;
        base / 2 + base.mul_f64(permille as f64 / 1000.0)
    }

    fn ways(&self, ip: Ipv6Addr) -> core::ops::Range<usize> {
        let set = self.hasher.hash6(ip.to_bits(), 0, 0) & self.set_mask;
        let start = set as usize * WAYS;
        start..start + WAYS
    }

    fn find(&self, ip: Ipv6Addr) -> Option<Place> {
        self.ways(ip)
            .find(|place| {
                let entry = &self.entries[*place];
                entry.ip == ip && entry.state != State::Vacant
            })
            .map(|place| place as Place)
    }

    /// A vacant entry for an address that has none, or that of a neighbour who is missed least.
    fn place_for(&mut self, ip: Ipv6Addr) -> Option<Place> {
        let replaceable = |place: &usize| {
            let entry = &self.entries[*place];
            let asked = matches!(entry.state, State::Incomplete { .. });
            entry.state != State::Permanent && entry.waiting.is_empty() && !asked
        };
        let missed = |place: &usize| {
            let entry = &self.entries[*place];
            let worth = match entry.state {
                State::Vacant => 0,
                State::Unreachable { .. } => 1,
                State::Stale => 2,
                _ => 3,
            };
            (worth, entry.since)
        };
        let place = self.ways(ip).filter(replaceable).min_by_key(missed)? as Place;
        let state = self.entries[usize::from(place)].state;
        if state != State::Vacant {
            self.evicted += 1;
            self.set(place, State::Vacant, Instant::ZERO);
        }
        let entry = self.entry_mut(place);
        entry.ip = ip;
        entry.is_router = false;
        entry.datagrams_wait = false;
        Some(place)
    }
}

#[cfg(test)]
mod tests;
