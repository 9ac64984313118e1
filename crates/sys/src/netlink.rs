//! The few route-netlink messages that no ioctl can replace. Each call opens a socket, asks, waits for the kernel's answer, closes.
//!
//! They work in the calling thread's network namespace ([`crate::netns::with_netns`] for another).

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// A request being built.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: libc::c_int, body: &[u8]) -> Self {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(1u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        let mut message = Self { bytes };
        message.padded(body);
        message
    }

    fn padded(&mut self, body: &[u8]) {
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.bytes.extend((4 + value.len() as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.padded(value);
        self
    }

    /// Sends it; returns the first answer that is not an acknowledgement, if any.
    fn ask(mut self) -> io::Result<Vec<u8>> {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        let socket = socket()?;
        // SAFETY: the buffer is `len` bytes long and lives over the call.
        let sent = unsafe {
            libc::send(
                socket.as_raw_fd(),
                self.bytes.as_ptr().cast(),
                self.bytes.len(),
                0,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answer = Vec::new();
        loop {
            let mut buffer = vec![0u8; 32 << 10];
            let (n, _) = rustix::net::recv(
                &socket,
                buffer.as_mut_slice(),
                rustix::net::RecvFlags::empty(),
            )?;
            let mut rest = &buffer[..n.min(32 << 10)];
            while let Some((kind, body, next)) = split(rest) {
                if kind == libc::NLMSG_ERROR as u16 {
                    let code = body.get(..4).map_or(0, read_i32);
                    return if code == 0 {
                        Ok(answer)
                    } else {
                        Err(io::Error::from_raw_os_error(-code))
                    };
                }
                if answer.is_empty() {
                    answer = body.to_vec();
                }
                rest = next;
            }
        }
    }
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    let fd = crate::check(unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_ROUTE,
        )
    })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn read_i32(bytes: &[u8]) -> i32 {
    bytes.try_into().map_or(0, i32::from_ne_bytes)
}

/// First message of a buffer: kind, body, rest.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = read_i32(bytes.get(..4)?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(16..len)?;
    let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    Some((kind, body, rest))
}

/// struct ifinfomsg: family, pad, type (u16), index (i32), flags (u32), change (u32).
fn link(index: u32) -> [u8; 16] {
    let mut body = [0u8; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body
}

/// Gives a device (by number) one more address.
pub fn add_address(index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    let (family, octets) = family_and_octets(address);
    // struct ifaddrmsg: family, prefix length, flags, scope, index.
    let mut body = [family, prefix, 0, 0, 0, 0, 0, 0];
    body[4..].copy_from_slice(&index.to_ne_bytes());
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = Message::new(libc::RTM_NEWADDR, flags, &body)
        .attribute(libc::IFA_LOCAL, &octets)
        .attribute(libc::IFA_ADDRESS, &octets);
    if family == libc::AF_INET6 as u8 {
        // No duplicate address detection: the other side is ours.
        message = message.attribute(8 /* IFA_FLAGS */, &libc::IFA_F_NODAD.to_ne_bytes());
    }
    message
        .ask()
        .map(|_| ())
        .map_err(|error| crate::context(format_args!("address {address}/{prefix}"), error))
}

/// Moves a device (by number) into another namespace. It arrives there down and without addresses.
pub fn move_to_netns(index: u32, namespace: impl AsFd) -> io::Result<()> {
    let fd = namespace.as_fd().as_raw_fd() as u32;
    Message::new(libc::RTM_NEWLINK, 0, &link(index))
        .attribute(libc::IFLA_NET_NS_FD, &fd.to_ne_bytes())
        .ask()
        .map(|_| ())
        .map_err(|error| crate::context("moving a device into a network namespace", error))
}

/// Tells the kernel for good which hardware address a neighbour has.
pub fn add_neighbour(index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
    let (family, octets) = family_and_octets(address);
    // struct ndmsg: family, pads, index (i32), state (u16), flags, type.
    let mut body = [0u8; 12];
    body[0] = family;
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    Message::new(libc::RTM_NEWNEIGH, flags, &body)
        .attribute(libc::NDA_DST, &octets)
        .attribute(libc::NDA_LLADDR, &mac)
        .ask()
        .map(|_| ())
        .map_err(|error| crate::context(format_args!("neighbour {address}"), error))
}

/// Sends IPv4 traffic for a prefix (0.0.0.0/0: everything else) to a gateway.
pub fn add_route(destination: Ipv4Addr, prefix: u8, gateway: Ipv4Addr) -> io::Result<()> {
    // struct rtmsg: family, destination length, source length, tos, table, protocol, scope, type, flags (u32).
    let mut body = [0u8; 12];
    body[0] = libc::AF_INET as u8;
    body[1] = prefix;
    body[4] = libc::RT_TABLE_MAIN;
    body[5] = libc::RTPROT_STATIC;
    body[6] = libc::RT_SCOPE_UNIVERSE;
    body[7] = libc::RTN_UNICAST;
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let mut message = Message::new(libc::RTM_NEWROUTE, flags, &body)
        .attribute(libc::RTA_GATEWAY, &gateway.octets());
    if prefix > 0 {
        message = message.attribute(libc::RTA_DST, &destination.octets());
    }
    message.ask().map(|_| ()).map_err(|error| {
        crate::context(
            format_args!("route {destination}/{prefix} via {gateway}"),
            error,
        )
    })
}

/// What the kernel counts for a device. For a TAP "transmitted" is what goes to its reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Frames into the kernel.
    pub rx_packets: u64,
    /// Frames out of the kernel.
    pub tx_packets: u64,
    /// Bytes into the kernel.
    pub rx_bytes: u64,
    /// Bytes out of the kernel.
    pub tx_bytes: u64,
    /// Frames into the kernel that it refused as broken.
    pub rx_errors: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Frames into the kernel that it dropped.
    pub rx_dropped: u64,
    /// Frames dropped because the reader was too slow.
    pub tx_dropped: u64,
}

/// Counters of a device (by number).
pub fn statistics(index: u32) -> io::Result<Statistics> {
    let answer = Message::new(libc::RTM_GETLINK, 0, &link(index)).ask()?;
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "no statistics in the answer");
    let values =
        attribute_of(answer.get(16..).unwrap_or(&[]), libc::IFLA_STATS64).ok_or_else(missing)?;
    let at = |i: usize| -> u64 {
        let bytes = values.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    Ok(Statistics {
        rx_packets: at(0),
        tx_packets: at(1),
        rx_bytes: at(2),
        tx_bytes: at(3),
        rx_errors: at(4),
        tx_errors: at(5),
        rx_dropped: at(6),
        tx_dropped: at(7),
    })
}

fn attribute_of(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        if kind & 0x3fff == wanted {
            return bytes.get(4..len);
        }
        bytes = bytes.get(len.max(4).next_multiple_of(4)..)?;
    }
}

fn family_and_octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_and_refuses() {
        let lo = crate::interface::Interface::open("lo").unwrap();
        statistics(lo.index().unwrap()).unwrap();
        assert!(statistics(0x7fff_0000).is_err());
        let error = add_address(0x7fff_0000, "10.0.0.1".parse().unwrap(), 24).unwrap_err();
        assert!(error.to_string().contains("10.0.0.1/24"), "{error}");
        assert_eq!(attribute_of(&[0, 0, 1], 5), None);
        assert_eq!(attribute_of(&[0; 64], 5), None, "no endless loop");
    }
}
