//! Packets as scripts write them.

use std::fmt;

use super::syntax::{Body, Icmp, Ip, Packet, Quote, Tcp, Tos, flag};

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tos {
            Some(Tos::Ecn(bits)) => {
                let name = ["noecn", "ect1", "ect0", "ce"][usize::from(bits & 3)];
                write!(f, "[{name}] ")?;
            }
            Some(Tos::Ect01) => f.write_str("[ect01] ")?,
            Some(Tos::Whole(tos)) => write!(f, "[tos {tos:#x}] ")?,
            None => {}
        }
        if let Some(ttl) = self.ttl {
            write!(f, "[ttl {ttl}] ")?;
        }
        Ok(())
    }
}

/// Flags by their letters.
pub(super) fn flags(bits: u16) -> String {
    let names = flag::NAMES.iter().filter(|(_, bit)| bits & bit != 0);
    let text: String = names.map(|(name, _)| *name).collect();
    if text.is_empty() { "-".into() } else { text }
}

impl fmt::Display for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.seq.wrapping_add(u32::from(self.len));
        let flags = flags(self.flags);
        write!(f, "{flags} {}:{end}({})", self.seq, self.len)?;
        if self.flags & flag::ACK != 0 {
            write!(f, " ack {}", self.ack)?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        if self.urgent != 0 || self.flags & flag::URG != 0 {
            write!(f, " urg {}", self.urgent)?;
        }
        match &self.options {
            None => f.write_str(" <...>"),
            Some(options) if options.is_empty() => Ok(()),
            Some(options) => {
                let options: Vec<_> = options.iter().map(ToString::to_string).collect();
                write!(f, " <{}>", options.join(","))
            }
        }
    }
}

impl fmt::Display for Icmp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "icmp {}", self.kind)?;
        if let Some(code) = &self.code {
            write!(f, " {code}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        if let Some(id) = self.id {
            write!(f, " id {id}")?;
        }
        match self.quote {
            Some(Quote::Tcp { seq, len }) => {
                write!(f, " [{seq}:{}({len})]", seq.wrapping_add(u32::from(len)))
            }
            Some(Quote::Udp { len }) => write!(f, " [udp ({len})]"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip.fmt(f)?;
        if matches!(self.body, Body::Udp(_)) {
            f.write_str("udp ")?;
        }
        if let Some((src, dst)) = self.ports {
            write!(f, "{src} > {dst} ")?;
        }
        match &self.body {
            Body::Tcp(tcp) => tcp.fmt(f),
            Body::Udp(len) => write!(f, "({len})"),
            Body::Icmp(icmp) => icmp.fmt(f),
        }
    }
}
