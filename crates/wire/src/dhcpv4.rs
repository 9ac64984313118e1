//! DHCP messages (RFC 2131, options of RFC 2132), as far as a host's own configuration needs them.
//!
//! Only stations of Ethernet are spoken of. Options that are not in [`DhcpMessage`] are skipped.

use core::net::Ipv4Addr;

use crate::{MacAddress, ParseError};

/// The port of servers and relays.
pub const SERVER_PORT: u16 = 67;
/// The port of clients.
pub const CLIENT_PORT: u16 = 68;

/// Bytes of a message without its options, magic cookie included.
const FIXED_LEN: usize = 240;
/// What an emitted message is padded to: the least that BOOTP relays forward (RFC 1542 section 2.1).
pub const EMITTED_LEN: usize = 300;
/// The largest message that is taken, as we say in option 57: RFC 2131 section 2 asks every client for 576 at least, headers included.
const MAX_MESSAGE: u16 = 1472;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
const BROADCAST_FLAG: u16 = 0x8000;

/// Option codes (RFC 2132).
mod option {
    pub(super) const PAD: u8 = 0;
    pub(super) const SUBNET_MASK: u8 = 1;
    pub(super) const ROUTER: u8 = 3;
    pub(super) const MTU: u8 = 26;
    pub(super) const REQUESTED: u8 = 50;
    pub(super) const LEASE_TIME: u8 = 51;
    pub(super) const OVERLOAD: u8 = 52;
    pub(super) const MESSAGE_TYPE: u8 = 53;
    pub(super) const SERVER_ID: u8 = 54;
    pub(super) const PARAMETERS: u8 = 55;
    pub(super) const MAX_SIZE: u8 = 57;
    pub(super) const RENEWAL_TIME: u8 = 58;
    pub(super) const REBINDING_TIME: u8 = 59;
    pub(super) const CLIENT_ID: u8 = 61;
    pub(super) const END: u8 = 255;
}

/// What a message is (option 53).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DhcpKind {
    /// A client looks for servers.
    Discover = 1,
    /// A server offers an address.
    Offer = 2,
    /// A client asks for an address that was offered, or to keep the one it has.
    Request = 3,
    /// A client has found that the address is somebody else's.
    Decline = 4,
    /// A server commits itself.
    Ack = 5,
    /// A server refuses.
    Nak = 6,
    /// A client gives its address back.
    Release = 7,
    /// A client has an address and asks for other parameters.
    Inform = 8,
}

impl DhcpKind {
    const fn from_raw(raw: u8) -> Option<Self> {
        use DhcpKind::*;
        Some(match raw {
            1 => Discover,
            2 => Offer,
            3 => Request,
            4 => Decline,
            5 => Ack,
            6 => Nak,
            7 => Release,
            8 => Inform,
            _ => return None,
        })
    }
}

/// A DHCP message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DhcpMessage {
    /// What it is.
    pub kind: DhcpKind,
    /// It comes from a server (op is BOOTREPLY).
    pub reply: bool,
    /// Transaction identifier, chosen by the client.
    pub xid: u32,
    /// Seconds since the client began to ask.
    pub secs: u16,
    /// The client cannot be reached by its own address yet: answers go to all stations.
    pub broadcast: bool,
    /// The client's address, if it has one.
    pub client_ip: Ipv4Addr,
    /// The address that the server gives.
    pub your_ip: Ipv4Addr,
    /// The client's link address.
    pub client_mac: MacAddress,
    /// Which server speaks or is meant.
    pub server_id: Option<Ipv4Addr>,
    /// The address that the client asks for.
    pub requested: Option<Ipv4Addr>,
    /// The length of the network's prefix, from its mask.
    pub prefix_len: Option<u8>,
    /// The first router.
    pub router: Option<Ipv4Addr>,
    /// MTU of the link, in bytes.
    pub mtu: Option<u16>,
    /// How long the address may be kept, in seconds; all ones: for ever.
    pub lease_secs: Option<u32>,
    /// T1, in seconds: when the client asks its server to prolong.
    pub renewal_secs: Option<u32>,
    /// T2, in seconds: when it asks any server.
    pub rebinding_secs: Option<u32>,
}

impl DhcpMessage {
    /// A client's message that says nothing but what it must.
    pub const fn new(kind: DhcpKind, xid: u32, client_mac: MacAddress) -> Self {
        Self {
            kind,
            reply: false,
            xid,
            secs: 0,
            broadcast: false,
            client_ip: Ipv4Addr::UNSPECIFIED,
            your_ip: Ipv4Addr::UNSPECIFIED,
            client_mac,
            server_id: None,
            requested: None,
            prefix_len: None,
            router: None,
            mtu: None,
            lease_secs: None,
            renewal_secs: None,
            rebinding_secs: None,
        }
    }

    /// Reads a message, that is the whole payload of a datagram.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Unsupported`] for BOOTP without DHCP, other kinds of messages and other links;
    /// [`ParseError::Malformed`] for options that end beyond the message or have a wrong length.
    pub fn parse(message: &[u8]) -> Result<Self, ParseError> {
        let Some((fixed, options)) = message.split_first_chunk::<FIXED_LEN>() else {
            return Err(ParseError::Truncated);
        };
        let (op, ethernet) = (fixed[0], fixed[1..3] == [1, 6]);
        if !matches!(op, 1 | 2) || !ethernet || fixed[236..] != MAGIC {
            return Err(ParseError::Unsupported);
        }
        let mut found = Found::default();
        found.read(options)?;
        // RFC 2131 section 4.1: first the options field, then file, then sname.
        let overload = found.overload;
        if overload & 1 != 0 {
            found.read(&fixed[108..236])?;
        }
        if overload & 2 != 0 {
            found.read(&fixed[44..108])?;
        }
        let kind = found.kind.and_then(DhcpKind::from_raw);
        let flags = u16::from_be_bytes([fixed[10], fixed[11]]);
        Ok(Self {
            kind: kind.ok_or(ParseError::Unsupported)?,
            reply: op == 2,
            xid: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            secs: u16::from_be_bytes([fixed[8], fixed[9]]),
            broadcast: flags & BROADCAST_FLAG != 0,
            client_ip: address(fixed, 12),
            your_ip: address(fixed, 16),
            client_mac: MacAddress([
                fixed[28], fixed[29], fixed[30], fixed[31], fixed[32], fixed[33],
            ]),
            server_id: found.server_id,
            requested: found.requested,
            prefix_len: found.prefix_len,
            router: found.router,
            mtu: found.mtu,
            lease_secs: found.lease_secs,
            renewal_secs: found.renewal_secs,
            rebinding_secs: found.rebinding_secs,
        })
    }

    /// Writes the message into the first [`EMITTED_LEN`] bytes of `buf`; returns that number. A client's message names the client by
    /// its link address, and asks for what this module reads.
    ///
    /// # Panics
    /// If `buf` is shorter than that.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let buf = &mut buf[..EMITTED_LEN];
        buf.fill(0);
        buf[..3].copy_from_slice(&[1 + u8::from(self.reply), 1, 6]);
        buf[4..8].copy_from_slice(&self.xid.to_be_bytes());
        buf[8..10].copy_from_slice(&self.secs.to_be_bytes());
        let flags = if self.broadcast { BROADCAST_FLAG } else { 0 };
        buf[10..12].copy_from_slice(&flags.to_be_bytes());
        buf[12..16].copy_from_slice(&self.client_ip.octets());
        buf[16..20].copy_from_slice(&self.your_ip.octets());
        buf[28..34].copy_from_slice(&self.client_mac.0);
        buf[236..240].copy_from_slice(&MAGIC);
        self.emit_options(&mut buf[FIXED_LEN..]);
        EMITTED_LEN
    }

    fn emit_options(&self, buf: &mut [u8]) {
        let mut at = 0;
        let mut put = |code: u8, value: &[u8]| {
            buf[at..at + 2].copy_from_slice(&[code, value.len() as u8]);
            buf[at + 2..at + 2 + value.len()].copy_from_slice(value);
            at += 2 + value.len();
        };
        put(option::MESSAGE_TYPE, &[self.kind as u8]);
        let addresses = [
            (option::SERVER_ID, self.server_id),
            (option::REQUESTED, self.requested),
            (option::ROUTER, self.router),
            (option::SUBNET_MASK, self.prefix_len.map(mask)),
        ];
        for (code, address) in addresses {
            if let Some(address) = address {
                put(code, &address.octets());
            }
        }
        let times = [
            (option::LEASE_TIME, self.lease_secs),
            (option::RENEWAL_TIME, self.renewal_secs),
            (option::REBINDING_TIME, self.rebinding_secs),
        ];
        for (code, seconds) in times {
            if let Some(seconds) = seconds {
                put(code, &seconds.to_be_bytes());
            }
        }
        if let Some(mtu) = self.mtu {
            put(option::MTU, &mtu.to_be_bytes());
        }
        if !self.reply {
            let [a, b, c, d, e, f] = self.client_mac.0;
            put(option::CLIENT_ID, &[1, a, b, c, d, e, f]);
            if matches!(self.kind, DhcpKind::Discover | DhcpKind::Request) {
                put(option::MAX_SIZE, &MAX_MESSAGE.to_be_bytes());
                let asked = [
                    option::SUBNET_MASK,
                    option::ROUTER,
                    option::MTU,
                    option::LEASE_TIME,
                    option::RENEWAL_TIME,
                    option::REBINDING_TIME,
                ];
                put(option::PARAMETERS, &asked);
            }
        }
        buf[at] = option::END;
    }
}

/// Options as they are read.
#[derive(Default)]
struct Found {
    kind: Option<u8>,
    overload: u8,
    server_id: Option<Ipv4Addr>,
    requested: Option<Ipv4Addr>,
    prefix_len: Option<u8>,
    router: Option<Ipv4Addr>,
    mtu: Option<u16>,
    lease_secs: Option<u32>,
    renewal_secs: Option<u32>,
    rebinding_secs: Option<u32>,
}

impl Found {
    fn read(&mut self, mut options: &[u8]) -> Result<(), ParseError> {
        while let Some((&code, rest)) = options.split_first() {
            match code {
                option::PAD => options = rest,
                option::END => return Ok(()),
                _ => {
                    let Some((&len, rest)) = rest.split_first() else {
                        return Err(ParseError::Malformed);
                    };
                    let Some((value, rest)) = rest.split_at_checked(usize::from(len)) else {
                        return Err(ParseError::Malformed);
                    };
                    self.take(code, value).ok_or(ParseError::Malformed)?;
                    options = rest;
                }
            }
        }
        Ok(())
    }

    /// `None` if its length is wrong.
    fn take(&mut self, code: u8, value: &[u8]) -> Option<()> {
        let four = || value.try_into().ok().map(|four: [u8; 4]| four);
        let ip = || four().map(Ipv4Addr::from);
        let seconds = || four().map(u32::from_be_bytes);
        match code {
            option::MESSAGE_TYPE => self.kind = Some(one(value)?),
            option::OVERLOAD => self.overload = one(value)?,
            option::SERVER_ID => self.server_id = Some(ip()?),
            option::REQUESTED => self.requested = Some(ip()?),
            option::SUBNET_MASK => self.prefix_len = prefix_len(ip()?),
            // A list, the best first.
            option::ROUTER => self.router = Some(Ipv4Addr::from(*value.first_chunk::<4>()?)),
            option::MTU => self.mtu = Some(u16::from_be_bytes(value.try_into().ok()?)),
            option::LEASE_TIME => self.lease_secs = Some(seconds()?),
            option::RENEWAL_TIME => self.renewal_secs = Some(seconds()?),
            option::REBINDING_TIME => self.rebinding_secs = Some(seconds()?),
            _ => {}
        }
        Some(())
    }
}

fn one(value: &[u8]) -> Option<u8> {
    match value {
        [one] => Some(*one),
        _ => None,
    }
}

fn address(bytes: &[u8; FIXED_LEN], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

/// `None` if the ones of the mask are not all at its start.
fn prefix_len(mask: Ipv4Addr) -> Option<u8> {
    let bits = mask.to_bits();
    (bits.leading_ones() + bits.trailing_zeros() >= 32).then(|| bits.leading_ones() as u8)
}

fn mask(prefix_len: u8) -> Ipv4Addr {
    let zeros = 32u32.saturating_sub(u32::from(prefix_len));
    Ipv4Addr::from_bits(u32::MAX.checked_shl(zeros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);

    fn ack() -> DhcpMessage {
        DhcpMessage {
            reply: true,
            secs: 3,
            your_ip: Ipv4Addr::new(10, 1, 2, 3),
            server_id: Some(Ipv4Addr::new(10, 1, 2, 1)),
            prefix_len: Some(22),
            router: Some(Ipv4Addr::new(10, 1, 0, 1)),
            mtu: Some(1400),
            lease_secs: Some(3600),
            renewal_secs: Some(1000),
            rebinding_secs: Some(3000),
            ..DhcpMessage::new(DhcpKind::Ack, 0xdead_beef, MAC)
        }
    }

    fn bytes(message: &DhcpMessage) -> Vec<u8> {
        let mut bytes = vec![0xaa; 400];
        let len = message.emit(&mut bytes);
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn what_is_emitted_is_read() {
        let discover = DhcpMessage {
            broadcast: true,
            requested: Some(Ipv4Addr::new(10, 1, 2, 9)),
            ..DhcpMessage::new(DhcpKind::Discover, 7, MAC)
        };
        for message in [ack(), discover] {
            assert_eq!(DhcpMessage::parse(&bytes(&message)), Ok(message));
        }
        for (len, text) in [(0, "0.0.0.0"), (1, "128.0.0.0"), (32, "255.255.255.255")] {
            assert_eq!(mask(len).to_string(), text);
            assert_eq!(prefix_len(mask(len)), Some(len));
        }
        assert_eq!(prefix_len(Ipv4Addr::new(255, 0, 255, 0)), None);
    }

    #[test]
    fn options_go_on_in_file_and_name() {
        let mut message = bytes(&ack());
        let end = message.iter().rposition(|byte| *byte == 255).unwrap();
        message[end..end + 4].copy_from_slice(&[52, 1, 3, 255]);
        message[108..112].copy_from_slice(&[58, 4, 0, 0]);
        message[112..115].copy_from_slice(&[0, 9, 255]);
        message[44..51].copy_from_slice(&[0, 59, 4, 0, 0, 0, 10]);
        let read = DhcpMessage::parse(&message).unwrap();
        assert_eq!(
            (read.renewal_secs, read.rebinding_secs),
            (Some(9), Some(10))
        );
    }

    #[test]
    fn what_is_none_is_refused() {
        let whole = bytes(&ack());
        assert_eq!(
            DhcpMessage::parse(&whole[..239]),
            Err(ParseError::Truncated)
        );
        let with = |at: usize, value: u8| {
            let mut changed = whole.clone();
            changed[at] = value;
            DhcpMessage::parse(&changed)
        };
        for (at, value) in [(0, 3), (1, 6), (2, 8), (236, 0), (242, 9), (242, 0)] {
            assert_eq!(with(at, value), Err(ParseError::Unsupported), "{at}");
        }
        // The kind is two bytes; the server's address is five; an option ends beyond the message.
        for (at, value) in [(241, 2), (244, 5), (244, 255)] {
            assert_eq!(with(at, value), Err(ParseError::Malformed), "{at}");
        }
        assert_eq!(
            DhcpMessage::parse(&whole[..240]),
            Err(ParseError::Unsupported),
            "BOOTP"
        );
        for len in 0..whole.len() {
            let _ = DhcpMessage::parse(&whole[..len]);
        }
    }
}
