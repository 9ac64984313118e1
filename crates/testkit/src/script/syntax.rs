//! What a script says, once it is read.

use std::rc::Rc;

use super::options::TcpOption;

/// Where something stands: a file's name, and the line, from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub file: Rc<str>,
    /// The line.
    pub line: usize,
}

/// When an event is due, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    /// After the event before.
    Relative(u64),
    /// Since the script's start.
    Absolute(u64),
    /// At any time: outbound packets only.
    Any,
    /// After the event before, from and to: outbound packets only.
    RelativeRange(u64, u64),
    /// Since the script's start.
    AbsoluteRange(u64, u64),
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) place: Place,
    pub(super) when: When,
    pub(super) action: Action,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Inbound(Packet),
    Outbound(Packet),
    Call(Call),
    Code(String),
}

/// What is said of an IP header's last two bits of the traffic class, or all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tos {
    Ecn(u8),
    /// ECT(0) or ECT(1).
    Ect01,
    Whole(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ip {
    pub(super) tos: Option<Tos>,
    pub(super) ttl: Option<u8>,
    /// The transport checksum is wrong: inbound only.
    pub(super) bad_checksum: bool,
}

/// An IP packet as a script writes it, numbers relative.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) ip: Ip,
    /// Source and destination port.
    pub(super) ports: Option<(u16, u16)>,
    pub(super) body: Body,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Body {
    Tcp(Tcp),
    Udp(u16),
    Icmp(Icmp),
}

/// Flags as they lie in the header.
pub(super) mod flag {
    pub(crate) const FIN: u16 = 0x01;
    pub(crate) const SYN: u16 = 0x02;
    pub(crate) const RST: u16 = 0x04;
    pub(crate) const PSH: u16 = 0x08;
    pub(crate) const ACK: u16 = 0x10;
    pub(crate) const URG: u16 = 0x20;
    pub(crate) const ECE: u16 = 0x40;
    pub(crate) const CWR: u16 = 0x80;
    pub(crate) const NS: u16 = 0x100;
    /// In the order in which they are written.
    pub(crate) const NAMES: &[(char, u16)] = &[
        ('F', FIN),
        ('S', SYN),
        ('R', RST),
        ('P', PSH),
        ('U', URG),
        ('E', ECE),
        ('W', CWR),
        ('N', NS),
        ('.', ACK),
    ];
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tcp {
    pub(super) flags: u16,
    pub(super) seq: u32,
    pub(super) len: u16,
    pub(super) ack: u32,
    pub(super) window: Option<u16>,
    pub(super) urgent: u16,
    /// `None`: whatever they are.
    pub(super) options: Option<Vec<TcpOption>>,
}

/// What an ICMP error quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quote {
    Tcp { seq: u32, len: u16 },
    Udp { len: u16 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Icmp {
    /// As it is called; numbers differ by version.
    pub(super) kind: String,
    pub(super) code: Option<String>,
    pub(super) mtu: Option<u32>,
    pub(super) id: Option<u16>,
    pub(super) quote: Option<Quote>,
}

/// A system call, and what it gives.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) args: Vec<Expr>,
    /// It blocks until then, in microseconds, relative as the event's time.
    pub(super) until: Option<u64>,
    pub(super) result: Expr,
    pub(super) errno: Option<String>,
}

/// An argument or a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expr {
    Ellipsis,
    Int(i64),
    Text(String),
    Word(String),
    /// Several with `|` between.
    Or(Vec<Expr>),
    List(Vec<Expr>),
    Struct(Vec<(String, Expr)>),
    /// `htons(8080)`, `inet_addr("10.0.0.1")`.
    Apply(String, Vec<Expr>),
}
