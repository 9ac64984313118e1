//! From a script's numbers to those of the wire, and back.

use super::icmp;
use super::options::TcpOption;
use super::settings::Hosts;
use super::syntax::{Body, Icmp, Ip, Packet, Quote, Tcp, Tos, flag};
use super::wire::{Carried, Live, Segment, TCP, UDP};
use crate::pattern;

/// Which stream of patterns the peer sends, and which we.
pub(super) const THEIRS: u64 = 1;
pub(super) const OURS: u64 = 2;

/// The port of our side, and the peer's, where a script names none.
pub(super) const LOCAL_PORT: u16 = 8080;
const REMOTE_PORT: u16 = 40_000;
/// The port that is connected to where a script names none.
pub(super) const SERVER_PORT: u16 = 8080;
/// Hop limit of what comes in.
const TTL: u8 = 64;

/// A connection as the script sees it.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) local: u16,
    pub(super) remote: u16,
    /// Our initial sequence number: what a script calls 0.
    isn: Option<u32>,
    /// Another one may follow: a new connection begins.
    fresh: bool,
    /// The peer's SYN, as the script has it.
    peer_syn: Option<u32>,
    /// What is added to the script's timestamps of ours.
    clock: Option<u32>,
    /// Sequence number and length of the last segment that went out.
    last: (u32, u16),
}

impl Flow {
    /// The first byte that the peer's application sends, as the script counts.
    pub(super) fn first_byte(&self) -> u64 {
        u64::from(self.peer_syn.unwrap_or(0)) + 1
    }
}

#[derive(Debug)]
pub(super) struct Flows {
    pub(super) hosts: Hosts,
    /// What is added to the script's sequence numbers of the peer.
    remote_isn: u32,
    pub(super) list: Vec<Flow>,
    pub(super) current: Option<usize>,
}

impl Flows {
    pub(super) fn new(hosts: Hosts, remote_isn: u32) -> Self {
        Self {
            hosts,
            remote_isn,
            list: Vec::new(),
            current: None,
        }
    }

    /// The flow between these ports, a new one if need be.
    pub(super) fn at(&mut self, local: u16, remote: u16) -> usize {
        let same = |flow: &Flow| (flow.local, flow.remote) == (local, remote);
        if let Some(found) = self.list.iter().position(same) {
            return found;
        }
        self.list.push(Flow {
            local,
            remote,
            isn: None,
            fresh: true,
            peer_syn: None,
            clock: None,
            last: (0, 0),
        });
        let index = self.list.len() - 1;
        self.current.get_or_insert(index);
        index
    }

    /// A connection is being opened between these ports.
    pub(super) fn open(&mut self, local: u16, remote: u16) {
        let index = self.at(local, remote);
        self.list[index].fresh = true;
        self.current = Some(index);
    }

    fn six(&self) -> bool {
        self.hosts.local.is_ipv6()
    }

    /// An inbound packet's bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn inbound(&mut self, packet: &Packet) -> Result<Vec<u8>, String> {
        let index = match packet.ports {
            Some((remote, local)) => self.at(local, remote),
            None => match self.current {
                Some(current) => current,
                None => self.at(LOCAL_PORT, REMOTE_PORT),
            },
        };
        let ports = (self.list[index].remote, self.list[index].local);
        let carried = match &packet.body {
            Body::Tcp(tcp) => Carried::Tcp(self.inbound_tcp(index, tcp)),
            Body::Udp(len) => Carried::Udp {
                ports,
                payload: pattern(THEIRS, 0, usize::from(*len)),
            },
            Body::Icmp(icmp) => self.inbound_icmp(index, icmp)?,
        };
        let tos = match packet.ip.tos {
            Some(Tos::Ecn(bits)) => bits,
            Some(Tos::Whole(tos)) => tos,
            Some(Tos::Ect01) => return Err("[ect01] is for outbound packets".into()),
            None => 0,
        };
        let live = Live {
            src: self.hosts.remote,
            dst: self.hosts.local,
            tos,
            ttl: packet.ip.ttl.unwrap_or(TTL),
            carried,
        };
        Ok(live.bytes(packet.ip.bad_checksum))
    }

    fn inbound_tcp(&mut self, index: usize, tcp: &Tcp) -> Segment {
        let flow = &mut self.list[index];
        let syn = tcp.flags & flag::SYN != 0;
        if syn && tcp.flags & flag::ACK == 0 && flow.peer_syn != Some(tcp.seq) {
            flow.fresh = true;
        }
        if syn && flow.fresh {
            flow.peer_syn = Some(tcp.seq);
        }
        let isn = flow.isn.unwrap_or(0);
        let clock = flow.clock.unwrap_or(0);
        let acks = tcp.flags & flag::ACK != 0;
        let live = |option: &TcpOption| match option {
            TcpOption::Sack(blocks) => {
                let add = |edge: &u32| edge.wrapping_add(isn);
                TcpOption::Sack(blocks.iter().map(|(l, r)| (add(l), add(r))).collect())
            }
            TcpOption::Timestamps(value, echo) if acks || *echo != 0 => {
                TcpOption::Timestamps(*value, echo.wrapping_add(clock))
            }
            other => other.clone(),
        };
        let start = u64::from(tcp.seq) + u64::from(syn);
        Segment {
            ports: (flow.remote, flow.local),
            seq: tcp.seq.wrapping_add(self.remote_isn),
            ack: if acks {
                tcp.ack.wrapping_add(isn)
            } else {
                tcp.ack
            },
            flags: tcp.flags,
            window: tcp.window.unwrap_or(0),
            urgent: tcp.urgent,
            options: tcp.options.iter().flatten().map(live).collect(),
            payload: pattern(THEIRS, start, usize::from(tcp.len)),
        }
    }

    fn inbound_icmp(&self, index: usize, message: &Icmp) -> Result<Carried, String> {
        let code = message.code.as_deref();
        let numbers = icmp::numbers(self.six(), &message.kind, code);
        let (kind, code) = numbers.ok_or("no such ICMP type or code")?;
        if message.kind.starts_with("echo") {
            let rest = u32::from(message.id.unwrap_or(0)) << 16 | 1;
            let data = pattern(THEIRS, 0, 56);
            return Ok(Carried::Icmp {
                kind,
                code,
                rest,
                data,
            });
        }
        Ok(Carried::Icmp {
            kind,
            code,
            rest: message.mtu.unwrap_or(0),
            data: self.quote(index, message.quote),
        })
    }

    /// A packet of ours as a router quotes it: its headers.
    fn quote(&self, index: usize, quote: Option<Quote>) -> Vec<u8> {
        let flow = &self.list[index];
        let ports = (flow.local, flow.remote);
        let (seq, len) = match quote {
            Some(Quote::Tcp { seq, len }) => (seq.wrapping_add(flow.isn.unwrap_or(0)), len),
            _ => flow.last,
        };
        let carried = match quote {
            Some(Quote::Udp { len }) => Carried::Udp {
                ports,
                payload: vec![0; usize::from(len)],
            },
            _ => Carried::Tcp(Segment {
                ports,
                seq,
                flags: flag::ACK,
                payload: vec![0; usize::from(len)],
                ..Segment::default()
            }),
        };
        let (protocol_len, header) = match carried {
            Carried::Udp { .. } => (8, if self.six() { 40 } else { 20 }),
            _ => (20, if self.six() { 40 } else { 20 }),
        };
        let live = Live {
            src: self.hosts.local,
            dst: self.hosts.remote,
            tos: 0,
            ttl: TTL,
            carried,
        };
        let mut bytes = live.bytes(false);
        bytes.truncate(header + protocol_len);
        bytes
    }

    /// What a packet of ours is in the script's words.
    ///
    /// # Errors
    /// What no script can say of it.
    pub(super) fn outbound(&mut self, bytes: &[u8], expected: &Packet) -> Result<Packet, String> {
        let live = Live::parse(bytes)?;
        if (live.src, live.dst) != (self.hosts.local, self.hosts.remote) {
            return Err(format!("it goes from {} to {}", live.src, live.dst));
        }
        let mut packet = Packet {
            ip: ip_of(&live, &expected.ip),
            ports: None,
            body: Body::Udp(0),
        };
        match live.carried {
            Carried::Tcp(segment) => {
                let index = self.at(segment.ports.0, segment.ports.1);
                let other = Some(index) != self.current;
                packet.ports = (expected.ports.is_some() || other).then_some(segment.ports);
                packet.body = Body::Tcp(self.outbound_tcp(index, segment, expected)?);
            }
            Carried::Udp { ports, payload } => {
                let index = self.at(ports.0, ports.1);
                let other = Some(index) != self.current;
                packet.ports = (expected.ports.is_some() || other).then_some(ports);
                if payload != pattern(OURS, 0, payload.len()) {
                    return Err("its payload is not what was written".into());
                }
                packet.body = Body::Udp(payload.len() as u16);
            }
            Carried::Icmp {
                kind,
                code,
                rest,
                data,
            } => {
                packet.body = Body::Icmp(self.outbound_icmp((kind, code), rest, &data, expected));
            }
            Carried::Other(protocol) => return Err(format!("it is of protocol {protocol}")),
        }
        Ok(packet)
    }

    fn outbound_tcp(
        &mut self,
        index: usize,
        segment: Segment,
        expected: &Packet,
    ) -> Result<Tcp, String> {
        let flow = &mut self.list[index];
        let wanted = match &expected.body {
            Body::Tcp(wanted) => Some(wanted),
            _ => None,
        };
        let syn = segment.flags & flag::SYN != 0;
        if syn && flow.fresh {
            let script = wanted.map_or(0, |wanted| wanted.seq);
            flow.isn = Some(segment.seq.wrapping_sub(script));
            flow.fresh = false;
        }
        let isn = flow.isn.unwrap_or(0);
        let len = segment.payload.len() as u16;
        flow.last = (segment.seq, len);
        let seq = segment.seq.wrapping_sub(isn);
        let start = u64::from(seq) + u64::from(syn);
        if flow.isn.is_some() && segment.payload != pattern(OURS, start, usize::from(len)) {
            return Err(format!("the payload at {seq} is not what was written"));
        }
        let remote_isn = self.remote_isn;
        let options = segment.options.into_iter().map(|option| match option {
            TcpOption::Sack(blocks) => {
                let relative = |edge: &u32| edge.wrapping_sub(remote_isn);
                let blocks = blocks.iter().map(|(l, r)| (relative(l), relative(r)));
                TcpOption::Sack(blocks.collect())
            }
            TcpOption::Timestamps(value, echo) => {
                let clock = *flow
                    .clock
                    .get_or_insert_with(|| value.wrapping_sub(timestamp(wanted)));
                TcpOption::Timestamps(value.wrapping_sub(clock), echo)
            }
            other => other,
        });
        Ok(Tcp {
            flags: segment.flags,
            seq,
            len,
            ack: match segment.flags & flag::ACK {
                0 => 0,
                _ => segment.ack.wrapping_sub(remote_isn),
            },
            window: Some(segment.window),
            urgent: segment.urgent,
            options: Some(options.collect()),
        })
    }

    fn outbound_icmp(
        &self,
        (kind, code): (u8, u8),
        rest: u32,
        data: &[u8],
        expected: &Packet,
    ) -> Icmp {
        let (kind, code) = icmp::names(self.six(), kind, code);
        let mut message = Icmp {
            kind,
            code,
            mtu: None,
            id: None,
            quote: None,
        };
        let Body::Icmp(wanted) = &expected.body else {
            return message;
        };
        message.id = wanted.id.map(|_| (rest >> 16) as u16);
        message.mtu = wanted.mtu.map(|_| rest);
        if wanted.quote.is_some() {
            message.quote = self.quoted(data);
        }
        message
    }

    /// What of the peer's packets a message of ours quotes.
    fn quoted(&self, data: &[u8]) -> Option<Quote> {
        let (_, _, seq) = Live::quoted(data)?;
        let six = self.six();
        let protocol = *data.get(if six { 6 } else { 9 })?;
        let length = |at: usize| Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?));
        match protocol {
            TCP => {
                let seq = seq.wrapping_sub(self.remote_isn);
                Some(Quote::Tcp { seq, len: 0 })
            }
            UDP => Some(Quote::Udp {
                len: length(if six { 44 } else { 24 })?.saturating_sub(8),
            }),
            _ => None,
        }
    }
}

/// The timestamp that a script expects.
fn timestamp(wanted: Option<&Tcp>) -> u32 {
    let options = wanted.and_then(|wanted| wanted.options.as_ref());
    let found = options
        .into_iter()
        .flatten()
        .find_map(|option| match option {
            TcpOption::Timestamps(value, _) => Some(*value),
            _ => None,
        });
    found.unwrap_or(0)
}

/// As much of the IP header as the script looks at.
fn ip_of(live: &Live, expected: &Ip) -> Ip {
    let tos = expected.tos.map(|tos| match tos {
        Tos::Ect01 if matches!(live.tos & 3, 1 | 2) => Tos::Ect01,
        Tos::Ecn(_) | Tos::Ect01 => Tos::Ecn(live.tos & 3),
        Tos::Whole(_) => Tos::Whole(live.tos),
    });
    Ip {
        tos,
        ttl: expected.ttl.map(|_| live.ttl),
        bad_checksum: false,
    }
}

/// Whether a packet is what was expected. `ticks` is how much timestamps may differ.
pub(super) fn matches(actual: &Packet, expected: &Packet, ticks: u32) -> bool {
    let (a, b) = match (&actual.body, &expected.body) {
        (Body::Tcp(a), Body::Tcp(b)) => (a, b),
        _ => return actual == expected,
    };
    let header = actual.ip == expected.ip && actual.ports == expected.ports;
    let plain = (a.flags, a.seq, a.len) == (b.flags, b.seq, b.len);
    let ack = b.flags & flag::ACK == 0 || a.ack == b.ack;
    let urgent = b.flags & flag::URG == 0 || a.urgent == b.urgent;
    let window = b.window.is_none() || a.window == b.window;
    header && plain && ack && urgent && window && options_match(a, b, ticks)
}

/// Padding does not count.
fn options_match(actual: &Tcp, expected: &Tcp, ticks: u32) -> bool {
    let Some(expected) = &expected.options else {
        return true;
    };
    let counts = |option: &&TcpOption| !matches!(option, TcpOption::Nop | TcpOption::Eol);
    let actual: Vec<_> = actual.options.iter().flatten().filter(counts).collect();
    let expected: Vec<_> = expected.iter().filter(counts).collect();
    let pairs = || actual.iter().zip(&expected);
    actual.len() == expected.len()
        && pairs().all(|(a, b)| match (a, b) {
            (TcpOption::Timestamps(a, echo), TcpOption::Timestamps(b, wanted)) => {
                echo == wanted && a.wrapping_sub(*b).wrapping_add(ticks) <= 2 * ticks
            }
            (a, b) => a == b,
        })
}
