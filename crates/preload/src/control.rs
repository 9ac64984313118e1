//! Control messages (cmsg(3)): what a receive gives beside a datagram, what a send asks for, and entries of the error queue.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use libc::c_int;
use rustix::io::Errno;
use sidecore_client::abi::ErrorReport;
use sidecore_client::{Datagram, DatagramReport};

use crate::options::Wanted;
use crate::sys::address_bytes;

/// Bytes of a `struct cmsghdr`: length (8), level (4), type (4).
const HEADER: usize = 16;
/// What messages begin at multiples of.
const ALIGN: usize = 8;

/// The index of the engine's link, the only one there is: what IP_PKTINFO names.
const LINK: u32 = 1;

/// Messages that are written into the room that a program gave, one after the other.
pub(crate) struct Writer<'a> {
    room: &'a mut [u8],
    used: usize,
    cut: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(room: &'a mut [u8]) -> Self {
        Self {
            room,
            used: 0,
            cut: false,
        }
    }

    /// Adds a message; cut, or left out, where there is no room, as Linux does it.
    pub(crate) fn put(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let room = self.room.len() - self.used;
        if room < HEADER {
            self.cut = true;
            return;
        }
        let n = data.len().min(room - HEADER);
        self.cut |= n < data.len();
        let at = &mut self.room[self.used..];
        at[..8].copy_from_slice(&(HEADER + n).to_ne_bytes());
        at[8..12].copy_from_slice(&level.to_ne_bytes());
        at[12..16].copy_from_slice(&kind.to_ne_bytes());
        at[HEADER..HEADER + n].copy_from_slice(&data[..n]);
        self.used += (HEADER + n).next_multiple_of(ALIGN).min(room);
    }

    /// Bytes written, and whether something did not fit (MSG_CTRUNC).
    pub(crate) fn end(self) -> (usize, bool) {
        (self.used, self.cut)
    }
}

/// What was asked for about a datagram that was received at this time.
pub(crate) fn of_datagram(
    out: &mut Writer<'_>,
    wanted: Wanted,
    v6: bool,
    datagram: &Datagram,
    local_port: u16,
    now: Duration,
) {
    let seconds = now.as_secs();
    if wanted.nanos {
        out.put(
            libc::SOL_SOCKET,
            libc::SCM_TIMESTAMPNS,
            &two(seconds, now.subsec_nanos()),
        );
    }
    if wanted.micros {
        out.put(
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMP,
            &two(seconds, now.subsec_micros()),
        );
    }
    match v6 {
        true => of_ipv6(out, wanted, datagram),
        false => of_ipv4(out, wanted, datagram, local_port),
    }
}

fn of_ipv6(out: &mut Writer<'_>, wanted: Wanted, datagram: &Datagram) {
    let level = libc::IPPROTO_IPV6;
    if let (true, Some(to)) = (wanted.info, datagram.to) {
        let to = match to {
            IpAddr::V4(to) => to.to_ipv6_mapped(),
            IpAddr::V6(to) => to,
        };
        let mut info = to.octets().to_vec();
        info.extend(LINK.to_ne_bytes());
        out.put(level, libc::IPV6_PKTINFO, &info);
    }
    if wanted.hops {
        let hops = i32::from(datagram.hops);
        out.put(level, libc::IPV6_HOPLIMIT, &hops.to_ne_bytes());
    }
    if wanted.class {
        let class = i32::from(datagram.class);
        out.put(level, libc::IPV6_TCLASS, &class.to_ne_bytes());
    }
}

fn of_ipv4(out: &mut Writer<'_>, wanted: Wanted, datagram: &Datagram, local_port: u16) {
    let level = libc::IPPROTO_IP;
    let to = match datagram.to {
        Some(IpAddr::V4(to)) => Some(to),
        _ => None,
    };
    if let (true, Some(to)) = (wanted.info, to) {
        let mut info = LINK.to_ne_bytes().to_vec();
        // The address at which it was taken, and the one that its header names: groups are taken at none.
        let taken = match to.is_multicast() || to.is_broadcast() {
            true => Ipv4Addr::UNSPECIFIED,
            false => to,
        };
        info.extend(taken.octets());
        info.extend(to.octets());
        out.put(level, libc::IP_PKTINFO, &info);
    }
    if wanted.hops {
        let hops = i32::from(datagram.hops);
        out.put(level, libc::IP_TTL, &hops.to_ne_bytes());
    }
    if wanted.class {
        // One byte, other than IP_TTL's.
        out.put(level, libc::IP_TOS, &[datagram.class]);
    }
    if let (true, Some(to)) = (wanted.original, to) {
        let (bytes, len) = address_bytes(SocketAddr::from((to, local_port)), false);
        out.put(level, libc::IP_ORIGDSTADDR, &bytes[..len]);
    }
}

/// How long the datagrams are that were joined (UDP_GRO).
pub(crate) fn of_joined(out: &mut Writer<'_>, size: usize) {
    let size = i32::try_from(size).unwrap_or(i32::MAX);
    out.put(libc::IPPROTO_UDP, libc::UDP_GRO, &size.to_ne_bytes());
}

fn two(first: u64, second: u32) -> [u8; 16] {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&first.to_ne_bytes());
    both[8..].copy_from_slice(&u64::from(second).to_ne_bytes());
    both
}

/// An entry of the error queue: a `struct sock_extended_err` with the offender's address behind it.
pub(crate) fn of_report(out: &mut Writer<'_>, v6: bool, report: &DatagramReport) {
    let ErrorReport {
        errno,
        origin,
        kind,
        code,
        info,
        offender,
    } = report.error;
    let mut data = errno.to_ne_bytes().to_vec();
    data.extend([origin as u8, kind, code, 0]);
    data.extend(info.to_ne_bytes());
    data.extend([0; 4]);
    let room = if v6 {
        size_of::<libc::sockaddr_in6>()
    } else {
        size_of::<libc::sockaddr_in>()
    };
    match offender {
        Some(offender) => {
            let (bytes, len) = address_bytes(SocketAddr::new(offender, 0), v6);
            data.extend(&bytes[..len]);
        }
        None => data.resize(data.len() + room, 0),
    }
    let (level, kind) = match v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        false => (libc::IPPROTO_IP, libc::IP_RECVERR),
    };
    out.put(level, kind, &data);
}

/// What a send asks for by its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    /// From this address.
    pub(crate) source: Option<IpAddr>,
    /// With so many hops.
    pub(crate) hops: Option<u8>,
    /// With this class.
    pub(crate) class: Option<u8>,
    /// Cut into datagrams of so many bytes (UDP_SEGMENT).
    pub(crate) segment: Option<u16>,
}

/// Reads the messages of a send. `INVAL` for what is not known, or of the wrong length.
pub(crate) fn asked(mut messages: &[u8]) -> Result<Asked, Errno> {
    let mut asked = Asked::default();
    while messages.len() >= HEADER {
        let number = |at: usize| {
            let four: [u8; 4] = messages[at..at + 4].try_into().unwrap_or_default();
            i32::from_ne_bytes(four)
        };
        let len: [u8; 8] = messages[..8].try_into().unwrap_or_default();
        let len = usize::from_ne_bytes(len);
        if len < HEADER || len > messages.len() {
            return Err(Errno::INVAL);
        }
        message(&mut asked, (number(8), number(12)), &messages[HEADER..len])?;
        messages = messages
            .get(len.next_multiple_of(ALIGN)..)
            .unwrap_or_default();
    }
    Ok(asked)
}

fn message(asked: &mut Asked, name: (c_int, c_int), data: &[u8]) -> Result<(), Errno> {
    let number = || match *data {
        [a, b, c, d] => Ok(i32::from_ne_bytes([a, b, c, d])),
        _ => Err(Errno::INVAL),
    };
    // -1: the default.
    let byte = |number: i32| match number {
        -1 => Ok(None),
        number => u8::try_from(number).map(Some).map_err(|_| Errno::INVAL),
    };
    match name {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let info: &[u8; 12] = data.try_into().map_err(|_| Errno::INVAL)?;
            asked.source = wanted_source([info[4], info[5], info[6], info[7]].into());
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let info: &[u8; 20] = data.try_into().map_err(|_| Errno::INVAL)?;
            let octets: [u8; 16] = info[..16].try_into().map_err(|_| Errno::INVAL)?;
            asked.source = wanted_source(octets.into());
        }
        (libc::IPPROTO_IP, libc::IP_TTL) => match number()? {
            0 => return Err(Errno::INVAL),
            hops => asked.hops = Some(u8::try_from(hops).map_err(|_| Errno::INVAL)?),
        },
        (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => asked.hops = byte(number()?)?,
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => asked.class = byte(number()?)?,
        (libc::IPPROTO_IP, libc::IP_TOS) => {
            asked.class = match *data {
                [class] => Some(class),
                _ => byte(number()?)?,
            };
        }
        (libc::IPPROTO_UDP, libc::UDP_SEGMENT) => {
            let bytes = data.try_into().map_err(|_| Errno::INVAL)?;
            asked.segment = Some(u16::from_ne_bytes(bytes));
        }
        // These are for sockets of other kinds, and are passed over.
        (libc::SOL_SOCKET, libc::SCM_RIGHTS | libc::SCM_CREDENTIALS) => {}
        (libc::SOL_SOCKET | libc::IPPROTO_IP | libc::IPPROTO_IPV6 | libc::IPPROTO_UDP, _) => {
            return Err(Errno::INVAL);
        }
        _ => {}
    }
    Ok(())
}

fn wanted_source(source: IpAddr) -> Option<IpAddr> {
    let source = source.to_canonical();
    (!source.is_unspecified()).then_some(source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidecore_client::abi::ErrorOrigin;

    /// Level, type and data of each.
    fn read(mut bytes: &[u8]) -> Vec<(c_int, c_int, Vec<u8>)> {
        let mut all = Vec::new();
        while bytes.len() >= HEADER {
            let len = usize::from_ne_bytes(bytes[..8].try_into().unwrap());
            let number = |at: usize| c_int::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            all.push((number(8), number(12), bytes[HEADER..len].to_vec()));
            bytes = bytes.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
        }
        all
    }

    fn datagram(to: &str) -> Datagram {
        Datagram {
            len: 1,
            whole: 1,
            from: "10.77.0.1:9".parse().unwrap(),
            to: Some(to.parse().unwrap()),
            hops: 64,
            class: 0xb8,
        }
    }

    const ALL: Wanted = Wanted {
        info: true,
        original: true,
        hops: true,
        class: true,
        micros: false,
        nanos: true,
    };

    #[test]
    fn messages_of_a_datagram_of_ipv4() {
        let mut room = [0; 256];
        let mut out = Writer::new(&mut room);
        of_datagram(
            &mut out,
            ALL,
            false,
            &datagram("10.77.0.2"),
            53,
            Duration::new(7, 9),
        );
        let (used, cut) = out.end();
        assert!(!cut);
        let all = read(&room[..used]);
        let kinds: Vec<_> = all.iter().map(|(level, kind, _)| (*level, *kind)).collect();
        let ip = |kind| (libc::IPPROTO_IP, kind);
        let stamp = (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS);
        assert_eq!(
            kinds,
            [
                stamp,
                ip(libc::IP_PKTINFO),
                ip(libc::IP_TTL),
                ip(libc::IP_TOS),
                ip(libc::IP_ORIGDSTADDR)
            ]
        );
        assert_eq!(all[0].2, two(7, 9));
        assert_eq!(all[1].2[4..], [10, 77, 0, 2, 10, 77, 0, 2]);
        assert_eq!(
            (&all[2].2[..], &all[3].2[..]),
            (&64i32.to_ne_bytes()[..], &[0xb8][..])
        );
        assert_eq!(all[4].2[2..8], [0, 53, 10, 77, 0, 2]);
    }

    #[test]
    fn what_does_not_fit_is_cut_and_told() {
        let wanted = Wanted {
            info: true,
            ..Wanted::default()
        };
        for (room, used, cut) in [
            (0, 0, true),
            (15, 0, true),
            (16, 16, true),
            (20, 20, true),
            (36, 36, false),
            (64, 40, false),
        ] {
            let mut bytes = vec![0; room];
            let mut out = Writer::new(&mut bytes);
            of_datagram(&mut out, wanted, true, &datagram("::1"), 0, Duration::ZERO);
            assert_eq!(out.end(), (used, cut), "{room}");
        }
    }

    #[test]
    fn an_error_carries_who_said_it() {
        let report = DatagramReport {
            error: ErrorReport {
                errno: 111,
                origin: ErrorOrigin::Icmp,
                kind: 3,
                code: 3,
                info: 0,
                offender: Some([10, 77, 0, 1].into()),
            },
            destination: "10.77.0.1:9".parse().unwrap(),
            payload: Vec::new(),
        };
        let mut room = [0; 64];
        let mut out = Writer::new(&mut room);
        of_report(&mut out, false, &report);
        let (used, _) = out.end();
        let (level, kind, data) = read(&room[..used]).remove(0);
        assert_eq!(
            (level, kind, data.len()),
            (libc::IPPROTO_IP, libc::IP_RECVERR, 32)
        );
        assert_eq!(data[..8], [111, 0, 0, 0, 2, 3, 3, 0]);
        assert_eq!(data[20..24], [10, 77, 0, 1]);
    }

    #[test]
    fn messages_of_a_send_are_checked() {
        let mut room = [0; 128];
        let mut out = Writer::new(&mut room);
        out.put(libc::IPPROTO_IP, libc::IP_TTL, &5i32.to_ne_bytes());
        out.put(libc::IPPROTO_IP, libc::IP_TOS, &[8]);
        let mut info = [0; 12];
        info[4..8].copy_from_slice(&[10, 77, 0, 2]);
        out.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        let (used, _) = out.end();
        let expected = Asked {
            source: Some([10, 77, 0, 2].into()),
            hops: Some(5),
            class: Some(8),
            segment: None,
        };
        assert_eq!(asked(&room[..used]), Ok(expected));
        assert_eq!(asked(&[]), Ok(Asked::default()));
        for (level, kind, data) in [
            (libc::IPPROTO_IP, libc::IP_TTL, &[0; 4][..]),
            (libc::IPPROTO_IP, libc::IP_PKTINFO, &[0; 4]),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[0; 4]),
        ] {
            let mut room = [0; 64];
            let mut out = Writer::new(&mut room);
            out.put(level, kind, data);
            let (used, _) = out.end();
            assert_eq!(asked(&room[..used]), Err(Errno::INVAL));
        }
        let mut lies = [0; 24];
        lies[..8].copy_from_slice(&200usize.to_ne_bytes());
        assert_eq!(asked(&lies), Err(Errno::INVAL));
    }
}
