//! The client's state machine (RFC 2131 section 4.4), sans-IO.
//!
//! ```text
//!   Start ─Discover─► Selecting ─Offer─► Requesting ─Ack─► Checking ─nobody has it─► Bound ──T1──► Renewing ──T2──► Rebinding
//!     ▲                                      │ Nak, silence    │ somebody has it        ▲             │ Ack            │ Ack
//!     └──────────────────────────────────────┴─────Decline─────┘                        └─────────────┴────────────────┘
//!     ▲                                                                                    Nak, or the end of the lease: the
//!     └──────────────────────────────────────────────────────────────────────────────────  address is given up, from Start on
//! ```

use core::net::Ipv4Addr;
use core::time::Duration;

use sidecore_tcp::Instant;
use sidecore_wire::{DhcpKind, DhcpMessage, MacAddress};

use super::DhcpLease;
use crate::address::Ipv4Cidr;
use crate::hash::FlowHasher;

/// RFC 2131 section 4.1: "The delay before the first retransmission SHOULD be 4 seconds randomized by … -1 to +1 … doubled … up to a
/// maximum of 64 seconds."
const FIRST_DELAY: Duration = Duration::from_secs(4);
const MOST_DELAY: Duration = Duration::from_secs(64);
/// "four times, for a total delay of 60 seconds" (section 3.1 step 5), then from the start.
const REQUESTS: u8 = 4;
/// Section 4.4.5: retransmissions while renewing and rebinding are a minute apart at least.
const LEAST_WAIT: Duration = Duration::from_secs(60);
/// Section 3.1 step 5: "The client SHOULD wait a minimum of ten seconds before restarting" after a DHCPDECLINE.
const AFTER_DECLINE: Duration = Duration::from_secs(10);
/// Not in the RFC: a server that refuses at once is not asked at once.
const AFTER_NAK: Duration = Duration::from_secs(1);
/// RFC 5227 section 2.1.1 asks for three probes in 4 to 6 s. Nobody wants to wait so long for an address that a server has just
/// vouched for; so we ask twice.
const PROBES: u8 = 2;
const PROBE_WAIT: Duration = Duration::from_millis(250);
/// Addresses are leased for this long at least; what is shorter would be asked for all the time.
const LEAST_LEASE: u32 = 30;

/// What the stack is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    Send(DhcpMessage, To),
    /// Ask by ARP whether somebody has the address.
    Probe(Ipv4Addr),
    /// The address is ours now, or still.
    Take(DhcpLease),
    /// The address is not ours any more.
    GiveUp,
}

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    All,
    /// The server, over the station from which its last word came.
    Server(MacAddress, Ipv4Addr),
}

/// An address that a server has committed itself to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lease {
    shown: DhcpLease,
    station: MacAddress,
    renew: Instant,
    rebind: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Start,
    Selecting {
        sent: u8,
    },
    Requesting {
        address: Ipv4Addr,
        server: Ipv4Addr,
        sent: u8,
    },
    Checking {
        lease: Lease,
        probes: u8,
    },
    Bound(Lease),
    Renewing(Lease),
    Rebinding(Lease),
}

/// The client of one stack.
#[derive(Debug)]
pub(crate) struct Client {
    state: State,
    mac: MacAddress,
    xid: u32,
    /// When it began to ask.
    begun: Instant,
    /// When something is due.
    pub(crate) next: Instant,
    hasher: FlowHasher,
    drawn: u64,
}

impl Client {
    /// A client that asks at once. (RFC 2131 section 4.4.1 has it wait some seconds first, against all stations starting at the same
    /// time; an engine is started by hand.)
    pub(crate) fn new(mac: MacAddress, key: [u64; 2], now: Instant) -> Self {
        Self {
            state: State::Start,
            mac,
            xid: 0,
            begun: now,
            next: now,
            hasher: FlowHasher::new(key),
            drawn: 0,
        }
    }

    /// The lease, while the address is in use.
    pub(super) fn lease(&self) -> Option<DhcpLease> {
        match self.state {
            State::Bound(lease) | State::Renewing(lease) | State::Rebinding(lease) => {
                Some(lease.shown)
            }
            _ => None,
        }
    }

    /// The address that is being checked.
    pub(super) fn candidate(&self) -> Option<Ipv4Addr> {
        match self.state {
            State::Checking { lease, .. } => Some(lease.shown.address.address()),
            _ => None,
        }
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.hasher.hash(self.drawn, 0x0dc9)
    }

    /// The delay before a message is sent again that was sent so many times.
    fn backoff(&mut self, sent: u8) -> Duration {
        let doubled = FIRST_DELAY * (1 << sent.saturating_sub(1).min(5));
        let jitter = Duration::from_micros(self.draw() % 2_000_000);
        doubled.min(MOST_DELAY) + jitter - Duration::from_secs(1)
    }

    fn message(&self, now: Instant, kind: DhcpKind) -> DhcpMessage {
        let secs = now.duration_since(self.begun).as_secs();
        DhcpMessage {
            secs: u16::try_from(secs).unwrap_or(u16::MAX),
            // Without an address, what is sent to it would not be taken.
            broadcast: self.lease().is_none(),
            ..DhcpMessage::new(kind, self.xid, self.mac)
        }
    }

    fn restart(&mut self, at: Instant) {
        self.state = State::Start;
        self.next = at;
    }

    /// What is due; to be called until there is nothing.
    pub(super) fn timer(&mut self, now: Instant) -> Option<Deed> {
        if now < self.next {
            return None;
        }
        match self.state {
            State::Start => {
                self.xid = self.draw() as u32;
                self.begun = now;
                Some(self.discover(now, 0))
            }
            State::Selecting { sent } => Some(self.discover(now, sent)),
            State::Requesting { sent, .. } if sent >= REQUESTS => {
                self.restart(now);
                self.timer(now)
            }
            State::Requesting {
                address,
                server,
                sent,
            } => Some(self.request(now, address, server, sent)),
            State::Checking { lease, probes } if probes >= PROBES => {
                self.state = State::Bound(lease);
                self.next = lease.renew;
                Some(Deed::Take(lease.shown))
            }
            State::Checking { lease, probes } => {
                let probes = probes + 1;
                self.state = State::Checking { lease, probes };
                self.next = now + PROBE_WAIT;
                Some(Deed::Probe(lease.shown.address.address()))
            }
            State::Bound(lease) => {
                self.xid = self.draw() as u32;
                self.begun = now;
                self.state = State::Renewing(lease);
                self.timer(now)
            }
            State::Renewing(lease) if now >= lease.rebind => {
                self.state = State::Rebinding(lease);
                self.timer(now)
            }
            State::Renewing(lease) => {
                let to = To::Server(lease.station, lease.shown.server);
                Some(self.prolong(now, lease, lease.rebind, to))
            }
            State::Rebinding(lease) if now >= lease.shown.ends => {
                self.restart(now);
                Some(Deed::GiveUp)
            }
            State::Rebinding(lease) => Some(self.prolong(now, lease, lease.shown.ends, To::All)),
        }
    }

    fn discover(&mut self, now: Instant, sent: u8) -> Deed {
        let sent = sent.saturating_add(1);
        self.state = State::Selecting { sent };
        self.next = now + self.backoff(sent);
        Deed::Send(self.message(now, DhcpKind::Discover), To::All)
    }

    fn request(&mut self, now: Instant, address: Ipv4Addr, server: Ipv4Addr, sent: u8) -> Deed {
        let sent = sent + 1;
        self.state = State::Requesting {
            address,
            server,
            sent,
        };
        self.next = now + self.backoff(sent);
        let message = DhcpMessage {
            requested: Some(address),
            server_id: Some(server),
            ..self.message(now, DhcpKind::Request)
        };
        Deed::Send(message, To::All)
    }

    /// Asks to keep the address. Again after half of what is left, "down to a minimum of 60 seconds" (section 4.4.5).
    fn prolong(&mut self, now: Instant, lease: Lease, until: Instant, to: To) -> Deed {
        let half = until.duration_since(now) / 2;
        self.next = (now + half.max(LEAST_WAIT)).min(until);
        let message = DhcpMessage {
            client_ip: lease.shown.address.address(),
            ..self.message(now, DhcpKind::Request)
        };
        Deed::Send(message, to)
    }

    /// A server's message for this client, over `station`.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        message: &DhcpMessage,
        station: MacAddress,
    ) -> Option<Deed> {
        if message.xid != self.xid {
            return None;
        }
        match (self.state, message.kind) {
            (State::Selecting { .. }, DhcpKind::Offer) => {
                // The first that can be used: section 4.4.1 leaves the choice to the client.
                let server = message.server_id?;
                lease_of(now, message, server, station)?;
                Some(self.request(now, message.your_ip, server, 0))
            }
            (
                State::Requesting {
                    server, address, ..
                },
                DhcpKind::Ack,
            ) => {
                let lease = lease_of(now, message, server, station)?;
                if message.your_ip != address || message.server_id.is_some_and(|id| id != server) {
                    return None;
                }
                self.state = State::Checking { lease, probes: 0 };
                self.next = now;
                self.timer(now)
            }
            (State::Requesting { .. }, DhcpKind::Nak) => {
                self.restart(now + AFTER_NAK);
                None
            }
            (State::Renewing(lease) | State::Rebinding(lease), DhcpKind::Ack) => {
                let server = message.server_id.unwrap_or(lease.shown.server);
                let renewed = lease_of(now, message, server, station)?;
                if renewed.shown.address.address() != lease.shown.address.address() {
                    // Another address than the one that was asked for is none.
                    return None;
                }
                self.state = State::Bound(renewed);
                self.next = renewed.renew;
                Some(Deed::Take(renewed.shown))
            }
            (State::Renewing(_) | State::Rebinding(_), DhcpKind::Nak) => {
                self.restart(now + AFTER_NAK);
                Some(Deed::GiveUp)
            }
            _ => None,
        }
    }

    /// Somebody else has the address that is being checked.
    pub(super) fn decline(&mut self, now: Instant) -> Option<Deed> {
        let State::Checking { lease, .. } = self.state else {
            return None;
        };
        let message = DhcpMessage {
            requested: Some(lease.shown.address.address()),
            server_id: Some(lease.shown.server),
            broadcast: false,
            ..self.message(now, DhcpKind::Decline)
        };
        self.restart(now + AFTER_DECLINE);
        Some(Deed::Send(message, To::All))
    }
}

/// What an offer or an acknowledgment gives; `None` if it is no address that a station may have.
fn lease_of(
    now: Instant,
    message: &DhcpMessage,
    server: Ipv4Addr,
    station: MacAddress,
) -> Option<Lease> {
    let ip = message.your_ip;
    // Without a mask that of the address' old class would be meant (RFC 1122 section 3.2.1.3); a network of its own harms nobody.
    let address = Ipv4Cidr::new(ip, message.prefix_len.unwrap_or(32))?;
    let [first, ..] = ip.octets();
    let is_unicast = first != 0 && first != 127 && first < 224 && address.broadcast() != Some(ip);
    if !is_unicast || server.is_unspecified() {
        return None;
    }
    let after = |seconds: u32| match seconds {
        u32::MAX => Instant::NEVER,
        seconds => now + Duration::from_secs(u64::from(seconds)),
    };
    let lease = message.lease_secs?.max(LEAST_LEASE);
    // Section 4.4.5: T1 is half, T2 seven eighths, unless the server says otherwise; T1 comes before T2, and T2 before the end.
    let part = |of: u64| match lease {
        u32::MAX => u32::MAX,
        lease => (u64::from(lease) * of / 8) as u32,
    };
    let rebind = message.rebinding_secs.filter(|t2| *t2 < lease);
    let rebind = rebind.unwrap_or(part(7));
    let renew = message.renewal_secs.filter(|t1| *t1 < rebind);
    let renew = renew.unwrap_or(part(4).min(rebind));
    Some(Lease {
        shown: DhcpLease {
            address,
            router: message.router.filter(|router| address.contains(*router)),
            server,
            ends: after(lease),
        },
        station,
        renew: after(renew),
        rebind: after(rebind),
    })
}
