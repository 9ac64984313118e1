//! IP packets, live: made and taken apart.

use std::net::IpAddr;

use sidecore_wire::checksum;

use super::options::{self, TcpOption};

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;

/// What an IP packet carries.
#[derive(Clone, Debug)]
pub(super) enum Carried {
    Tcp(Segment),
    Udp {
        ports: (u16, u16),
        payload: Vec<u8>,
    },
    Icmp {
        kind: u8,
        code: u8,
        /// The second word of the header.
        rest: u32,
        data: Vec<u8>,
    },
    Other(u8),
}

/// A TCP segment with the numbers of the wire.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) ports: (u16, u16),
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u16,
    pub(super) window: u16,
    pub(super) urgent: u16,
    pub(super) options: Vec<TcpOption>,
    pub(super) payload: Vec<u8>,
}

/// An IP packet.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    pub(super) carried: Carried,
}

impl Segment {
    fn bytes(&self) -> Vec<u8> {
        let options = options::emit(&self.options);
        let words = 5 + options.len() as u16 / 4;
        let mut out = Vec::new();
        out.extend(self.ports.0.to_be_bytes());
        out.extend(self.ports.1.to_be_bytes());
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.extend((words << 12 | self.flags).to_be_bytes());
        out.extend(self.window.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.urgent.to_be_bytes());
        out.extend(options);
        out.extend(&self.payload);
        out
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<20>()?;
        let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
        let start = usize::from(head[12] >> 4) * 4;
        Some(Self {
            ports: (short(0), short(2)),
            seq: word(4),
            ack: word(8),
            flags: short(12) & 0x1ff,
            window: short(14),
            urgent: short(18),
            options: options::parse(bytes.get(20..start)?),
            payload: bytes.get(start..)?.to_vec(),
        })
    }
}

impl Live {
    fn protocol(&self) -> u8 {
        match (&self.carried, self.src) {
            (Carried::Tcp(_), _) => TCP,
            (Carried::Udp { .. }, _) => UDP,
            (Carried::Icmp { .. }, IpAddr::V4(_)) => ICMP,
            (Carried::Icmp { .. }, IpAddr::V6(_)) => ICMPV6,
            (Carried::Other(protocol), _) => *protocol,
        }
    }

    /// The packet's bytes.
    pub(super) fn bytes(&self, bad_checksum: bool) -> Vec<u8> {
        let (mut transport, at) = match &self.carried {
            Carried::Tcp(segment) => (segment.bytes(), 16),
            Carried::Udp { ports, payload } => {
                let len = payload.len() as u16 + 8;
                let words = [ports.0, ports.1, len, 0];
                let head = words.iter().flat_map(|word| word.to_be_bytes());
                (head.chain(payload.iter().copied()).collect(), 6)
            }
            Carried::Icmp {
                kind,
                code,
                rest,
                data,
            } => {
                let head = [*kind, *code, 0, 0].into_iter().chain(rest.to_be_bytes());
                (head.chain(data.iter().copied()).collect(), 2)
            }
            Carried::Other(_) => (Vec::new(), 0),
        };
        let sum = self.sum(&transport) ^ u16::from(bad_checksum);
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        self.with_header(&transport)
    }

    /// The checksum of what it carries; 0 if that holds the right one.
    fn sum(&self, transport: &[u8]) -> u16 {
        let len = transport.len() as u32;
        let pseudo = match (self.src, self.dst) {
            (IpAddr::V4(_), _) if self.protocol() == ICMP => 0,
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                checksum::pseudo_v4(src, dst, self.protocol(), len)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                checksum::pseudo_v6(src, dst, self.protocol(), len)
            }
            _ => unreachable!("one version at a time"),
        };
        checksum::complement(checksum::sum(transport, pseudo))
    }

    fn with_header(&self, transport: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                out.extend([0x45, self.tos]);
                out.extend((transport.len() as u16 + 20).to_be_bytes());
                // Don't fragment.
                out.extend([0, 0, 0x40, 0, self.ttl, self.protocol(), 0, 0]);
                out.extend(src.octets());
                out.extend(dst.octets());
                let sum = checksum::complement(checksum::sum(&out, 0));
                out[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                out.extend((6 << 28 | u32::from(self.tos) << 20).to_be_bytes());
                out.extend((transport.len() as u16).to_be_bytes());
                out.extend([self.protocol(), self.ttl]);
                out.extend(src.octets());
                out.extend(dst.octets());
            }
            _ => unreachable!("one version at a time"),
        }
        out.extend(transport);
        out
    }

    /// Takes a packet apart.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(super) fn parse(packet: &[u8]) -> Result<Self, String> {
        let (mut live, transport) = header(packet).ok_or("an IP header that is cut short")?;
        let protocol = live.protocol();
        if matches!(protocol, TCP | UDP | ICMP | ICMPV6) && live.sum(transport) != 0 {
            return Err("a wrong checksum".into());
        }
        live.carried = carried(protocol, transport).ok_or("a header that is cut short")?;
        Ok(live)
    }

    /// Takes apart what an ICMP message quotes, which may be cut short behind the ports and the sequence number.
    pub(super) fn quoted(packet: &[u8]) -> Option<(IpAddr, (u16, u16), u32)> {
        let (live, transport) = header(packet)?;
        let (head, _) = transport.split_first_chunk::<8>()?;
        let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let seq = u32::from(short(4)) << 16 | u32::from(short(6));
        Some((live.dst, (short(0), short(2)), seq))
    }
}

fn header(packet: &[u8]) -> Option<(Live, &[u8])> {
    let first = packet.first()?;
    let octets4 = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
    let octets6 = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
    let carried = |at: usize| Some(Carried::Other(*packet.get(at)?));
    if first >> 4 == 4 {
        let live = Live {
            src: octets4(12)?,
            dst: octets4(16)?,
            tos: packet[1],
            ttl: packet[8],
            carried: carried(9)?,
        };
        let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let end = len.min(packet.len());
        return Some((live, packet.get(usize::from(first & 15) * 4..end)?));
    }
    let live = Live {
        src: octets6(8)?,
        dst: octets6(24)?,
        tos: first << 4 | packet[1] >> 4,
        ttl: packet[7],
        carried: carried(6)?,
    };
    Some((live, packet.get(40..)?))
}

fn carried(protocol: u8, bytes: &[u8]) -> Option<Carried> {
    Some(match protocol {
        TCP => Carried::Tcp(Segment::parse(bytes)?),
        UDP => {
            let (head, payload) = bytes.split_first_chunk::<8>()?;
            let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            Carried::Udp {
                ports: (short(0), short(2)),
                payload: payload.to_vec(),
            }
        }
        ICMP | ICMPV6 => {
            let (head, data) = bytes.split_first_chunk::<8>()?;
            let rest = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            Carried::Icmp {
                kind: head[0],
                code: head[1],
                rest,
                data: data.to_vec(),
            }
        }
        other => Carried::Other(other),
    })
}
