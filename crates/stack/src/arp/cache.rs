//! The neighbour cache: who has which link address, who is being asked, who waits for it.
//!
//! ```text
//!             resolve                answer                     time, then use
//!   Vacant ───────────► Incomplete ─────────► Reachable ─────────────────────────► Probing
//!                         │    ▲                  ▲  ▲             answer             │
//!          tries used up  │    │ resolve          │  └────────────────────────────────┤
//!                         ▼    │                  │ answer                            │ tries used up
//!                       Unreachable ──────────────┘                                   ▼
//!                                                                                   Vacant
//! ```
//!
//! The cache is a hash table of sets with eight places each: a look-up is one short scan, a full set gives up its oldest
//! entry that nobody waits for, and nothing is ever moved, so that an entry's place can be remembered.

use core::net::Ipv4Addr;

use sidecore_tcp::Instant;
use sidecore_wire::MacAddress;

use crate::config::ArpConfig;
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
    Reachable {
        until: Instant,
    },
    /// Known, but it is being asked whether that is still so.
    Probing {
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
    pub(crate) ip: Ipv4Addr,
    mac: MacAddress,
    state: State,
    /// Until then the state is Reachable or Permanent.
    certain_until: Instant,
    /// When it was learnt or asked for.
    since: Instant,
    /// Connections that wait for the answer.
    pub(crate) waiting: List<Queue>,
    /// Some UDP socket waits too.
    pub(crate) datagrams_wait: bool,
}

/// What is known about a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resolution {
    Known(Place, MacAddress),
    /// It is being asked for: wait in this entry's list.
    Pending(Place),
    Unreachable,
}

/// A request to be sent: to `at` if the neighbour was there before, else to everybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) ip: Ipv4Addr,
    pub(crate) at: Option<MacAddress>,
}

#[derive(Debug)]
pub(crate) struct NeighborCache {
    entries: Box<[Neighbor]>,
    set_mask: u64,
    hasher: FlowHasher,
    config: ArpConfig,
    /// Entries that are Incomplete or Probing: those with a timer.
    active: Vec<Place>,
    pub(crate) evicted: u64,
}

impl NeighborCache {
    pub(crate) fn new(config: ArpConfig, hasher: FlowHasher) -> Self {
        let capacity = config.capacity.clamp(WAYS, 1 << 15).next_power_of_two();
        let vacant = |_| Neighbor {
            ip: Ipv4Addr::UNSPECIFIED,
            mac: MacAddress::UNSPECIFIED,
            state: State::Vacant,
            certain_until: Instant::ZERO,
            since: Instant::ZERO,
            waiting: List::new(),
            datagrams_wait: false,
        };
        Self {
            entries: (0..capacity).map(vacant).collect(),
            set_mask: (capacity / WAYS - 1) as u64,
            hasher,
            active: Vec::with_capacity(config.max_pending.max(1)),
            config,
            evicted: 0,
        }
    }

    pub(crate) fn entry_mut(&mut self, place: Place) -> &mut Neighbor {
        &mut self.entries[usize::from(place)]
    }

    /// A neighbour that never changes.
    pub(crate) fn add_permanent(&mut self, ip: Ipv4Addr, mac: MacAddress) {
        if let Some(place) = self.place_for(ip) {
            let entry = self.entry_mut(place);
            entry.mac = mac;
            entry.state = State::Permanent;
            entry.certain_until = Instant::NEVER;
        }
    }

    /// The link address of a neighbour that lies where it was found last, if there is no doubt about it.
    #[inline]
    pub(crate) fn known(&self, now: Instant, ip: Ipv4Addr, place: Place) -> Option<MacAddress> {
        let entry = self.entries.get(usize::from(place))?;
        (entry.ip == ip && now < entry.certain_until).then_some(entry.mac)
    }

    /// The link address of a neighbour that something is to be sent to.
    pub(crate) fn resolve(
        &mut self,
        now: Instant,
        ip: Ipv4Addr,
        ask: impl FnOnce(Request),
    ) -> Resolution {
        let Some(place) = self.find(ip).or_else(|| self.place_for(ip)) else {
            return Resolution::Unreachable;
        };
        let pending_allowed = self.active.len() < self.config.max_pending;
        let next = now + self.config.retry;
        let entry = self.entry_mut(place);
        let known = Resolution::Known(place, entry.mac);
        match entry.state {
            State::Permanent | State::Probing { .. } => known,
            State::Reachable { until } if now < until => known,
            State::Reachable { .. } => {
                if pending_allowed {
                    entry.state = State::Probing { asked: 1, next };
                    ask(Request {
                        ip,
                        at: Some(entry.mac),
                    });
                    self.active.push(place);
                }
                known
            }
            State::Incomplete { .. } => Resolution::Pending(place),
            State::Unreachable { until } if now < until => Resolution::Unreachable,
            State::Vacant | State::Unreachable { .. } if !pending_allowed => {
                Resolution::Unreachable
            }
            State::Vacant | State::Unreachable { .. } => {
                entry.state = State::Incomplete { asked: 1, next };
                entry.since = now;
                ask(Request { ip, at: None });
                self.active.push(place);
                Resolution::Pending(place)
            }
        }
    }

    /// Something that was sent there again and again was not answered: whether it is still there is asked at its next use (the
    /// "negative advice" of RFC 1122 section 3.3.1.4).
    pub(crate) fn doubt(&mut self, now: Instant, ip: Ipv4Addr) {
        let Some(place) = self.find(ip) else {
            return;
        };
        let entry = self.entry_mut(place);
        if matches!(entry.state, State::Reachable { .. }) {
            entry.state = State::Reachable { until: now };
            entry.certain_until = now;
        }
    }

    /// A neighbour said where it is. With `create` false, only what is known or asked for is updated. Returns the entry
    /// if somebody may be waiting for it.
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        ip: Ipv4Addr,
        mac: MacAddress,
        create: bool,
    ) -> Option<Place> {
        let place = match self.find(ip) {
            Some(place) => place,
            None if create => self.place_for(ip)?,
            None => return None,
        };
        let until = now + self.config.reachable;
        let entry = self.entry_mut(place);
        if entry.state == State::Permanent {
            return None;
        }
        let waited = matches!(entry.state, State::Incomplete { .. });
        entry.mac = mac;
        entry.since = now;
        entry.state = State::Reachable { until };
        entry.certain_until = until;
        self.active.retain(|active| *active != place);
        waited.then_some(place)
    }

    /// Asks again where it is time; returns an entry that was given up and has to be told to those that wait, until there
    /// is none.
    pub(crate) fn expire(&mut self, now: Instant, mut ask: impl FnMut(Request)) -> Option<Place> {
        let mut at = 0;
        while let Some(&place) = self.active.get(at) {
            let entry = &mut self.entries[usize::from(place)];
            let (State::Incomplete { asked, next } | State::Probing { asked, next }) =
                &mut entry.state
            else {
                self.active.swap_remove(at);
                continue;
            };
            if *next > now {
                at += 1;
                continue;
            }
            let was_known = entry.mac != MacAddress::UNSPECIFIED;
            if *asked < self.config.tries {
                *asked += 1;
                *next = now + self.config.retry;
                // RFC 1122 section 2.3.2.1: unicast polls first; the last one asks everybody.
                let last = *asked == self.config.tries;
                ask(Request {
                    ip: entry.ip,
                    at: (was_known && !last).then_some(entry.mac),
                });
                at += 1;
                continue;
            }
            self.active.swap_remove(at);
            let probing = matches!(entry.state, State::Probing { .. });
            entry.mac = MacAddress::UNSPECIFIED;
            entry.state = if probing {
                State::Vacant
            } else {
                State::Unreachable {
                    until: now + self.config.unreachable,
                }
            };
            return Some(place);
        }
        None
    }

    /// Whether any neighbour is being asked for: else [`expire`](Self::expire) has nothing to do.
    #[inline]
    pub(crate) fn is_asking(&self) -> bool {
        !self.active.is_empty()
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let timer = |place: &Place| match self.entries[usize::from(*place)].state {
            State::Incomplete { next, .. } | State::Probing { next, .. } => Some(next),
            _ => None,
        };
        self.active.iter().filter_map(timer).min()
    }

    fn set(&self, ip: Ipv4Addr) -> core::ops::Range<usize> {
        let set = self.hasher.hash(u64::from(ip.to_bits()), 0) & self.set_mask;
        let start = set as usize * WAYS;
        start..start + WAYS
    }

    fn find(&self, ip: Ipv4Addr) -> Option<Place> {
        self.set(ip)
            .find(|place| self.entries[*place].ip == ip)
            .map(|place| place as Place)
    }

    /// A vacant entry for an address that has none, or that of a neighbour who is missed least.
    fn place_for(&mut self, ip: Ipv4Addr) -> Option<Place> {
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
                _ => 2,
            };
            (worth, entry.since)
        };
        let place = self.set(ip).filter(replaceable).min_by_key(missed)?;
        let entry = &mut self.entries[place];
        if entry.state != State::Vacant {
            self.evicted += 1;
            self.active.retain(|active| usize::from(*active) != place);
        }
        entry.ip = ip;
        entry.mac = MacAddress::UNSPECIFIED;
        entry.state = State::Vacant;
        entry.certain_until = Instant::ZERO;
        entry.datagrams_wait = false;
        Some(place as Place)
    }
}
