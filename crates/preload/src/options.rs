//! Socket options: what was set, and what the engine knows under which name.

use std::net::SocketAddr;
use std::time::Duration;

use libc::c_int;
use rustix::io::Errno;
use sidecore_client::Opt;

use crate::errors::told;
use crate::socket::{Kind, Route, Socket, timeout};

/// What a program has set on a socket.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) read_timeout: Option<Duration>,
    pub(crate) write_timeout: Option<Duration>,
    /// Level, name and value, each option once, in the order in which they were set first.
    set: Vec<(c_int, c_int, Vec<u8>)>,
}

/// An option by level and name.
type Name = (c_int, c_int);

const CONGESTION: Name = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
const LINGER: Name = (libc::SOL_SOCKET, libc::SO_LINGER);
const READ_TIMEOUT: Name = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
const WRITE_TIMEOUT: Name = (libc::SOL_SOCKET, libc::SO_SNDTIMEO);
const TCP_INFO: Name = (libc::IPPROTO_TCP, libc::TCP_INFO);
const V6_ONLY: Name = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);

/// Options whose value is a number: the engine's name, and by how much it is multiplied (seconds and milliseconds to microseconds).
const NUMBERS: &[(Name, Opt, u64)] = &[
    ((libc::SOL_SOCKET, libc::SO_KEEPALIVE), Opt::Keepalive, 1),
    ((libc::SOL_SOCKET, libc::SO_RCVBUF), Opt::ReceiveBuffer, 1),
    ((libc::IPPROTO_TCP, libc::TCP_NODELAY), Opt::NoDelay, 1),
    ((libc::IPPROTO_TCP, libc::TCP_CORK), Opt::Cork, 1),
    ((libc::IPPROTO_TCP, libc::TCP_QUICKACK), Opt::QuickAck, 1),
    (
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
        Opt::KeepaliveIdle,
        1_000_000,
    ),
    (
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
        Opt::KeepaliveInterval,
        1_000_000,
    ),
    (
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
        Opt::KeepaliveProbes,
        1,
    ),
    (
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
        Opt::UserTimeout,
        1000,
    ),
    (
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
        Opt::WindowClamp,
        1,
    ),
    (
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
        Opt::NotsentLowat,
        1,
    ),
    ((libc::IPPROTO_TCP, libc::TCP_MAXSEG), Opt::MaxSegment, 1),
    ((libc::IPPROTO_TCP, libc::TCP_SYNCNT), Opt::SynRetries, 1),
    (
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
        Opt::DeferAccept,
        1_000_000,
    ),
    ((libc::IPPROTO_TCP, libc::TCP_FASTOPEN), Opt::FastOpen, 1),
    (
        (libc::IPPROTO_TCP, libc::TCP_LINGER2),
        Opt::FinWait2,
        1_000_000,
    ),
    ((libc::IPPROTO_IP, libc::IP_TOS), Opt::TrafficClass, 1),
    ((libc::IPPROTO_IP, libc::IP_TTL), Opt::HopLimit, 1),
    (
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        Opt::TrafficClass,
        1,
    ),
    (
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        Opt::HopLimit,
        1,
    ),
    (V6_ONLY, Opt::V6Only, 1),
];

/// Options that change nothing here, are taken, and given back as they were set (else as a number 0).
const TAKEN: &[Name] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::SOL_SOCKET, libc::SO_INCOMING_CPU),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
];

fn number(value: &[u8]) -> Option<i64> {
    match value.len() {
        0 => None,
        1..4 => Some(value[0].into()),
        _ => value[..4]
            .try_into()
            .ok()
            .map(|v| i32::from_ne_bytes(v).into()),
    }
}

/// A `struct timeval`.
fn time(value: &[u8]) -> Result<Duration, Errno> {
    let seconds: [u8; 8] = value
        .get(..8)
        .and_then(|v| v.try_into().ok())
        .ok_or(Errno::INVAL)?;
    let micros: [u8; 8] = value
        .get(8..16)
        .and_then(|v| v.try_into().ok())
        .ok_or(Errno::INVAL)?;
    let (seconds, micros) = (i64::from_ne_bytes(seconds), i64::from_ne_bytes(micros));
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::DOM);
    }
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Ok(Duration::from_secs(seconds) + Duration::from_micros(micros as u64))
}

fn time_bytes(time: Option<Duration>) -> Vec<u8> {
    let time = time.unwrap_or_default();
    let mut bytes = time.as_secs().to_ne_bytes().to_vec();
    bytes.extend(u64::from(time.subsec_micros()).to_ne_bytes());
    bytes
}

/// What the engine is told for an option's value; `None`: nothing.
fn translate(name: Name, value: &[u8]) -> Option<(Opt, u64)> {
    if name == LINGER {
        let (on, seconds) = (number(value)?, number(value.get(4..)?)?);
        let time = match on {
            0 => u64::MAX,
            _ => u64::try_from(seconds).unwrap_or(0) * 1_000_000,
        };
        return Some((Opt::Linger, time));
    }
    let (_, option, unit) = NUMBERS.iter().find(|(known, ..)| *known == name)?;
    let value = u64::try_from(number(value)?).ok()?;
    Some((*option, value * unit))
}

impl Settings {
    /// Remembers a value.
    pub(crate) fn remember(&mut self, level: c_int, name: c_int, value: &[u8]) {
        match self
            .set
            .iter_mut()
            .find(|(l, n, _)| (*l, *n) == (level, name))
        {
            Some((.., old)) => value.clone_into(old),
            None => self.set.push((level, name, value.to_vec())),
        }
        match (level, name) {
            READ_TIMEOUT => self.read_timeout = time(value).ok().and_then(timeout),
            WRITE_TIMEOUT => self.write_timeout = time(value).ok().and_then(timeout),
            _ => {}
        }
    }

    fn remembered(&self, name: Name) -> Option<&[u8]> {
        let found = self.set.iter().find(|(l, n, _)| (*l, *n) == name);
        found.map(|(.., value)| &value[..])
    }

    /// The engine's options for a socket that begins at, or goes to, this address.
    pub(crate) fn before(&self, v6: bool, address: SocketAddr) -> Vec<(Opt, u64)> {
        let set = self
            .set
            .iter()
            .filter_map(|(level, name, value)| translate((*level, *name), value));
        // Buffers stay tuned: programs set them for systems that did not. Only an IPv6 address can be for IPv6 only.
        let plain = v6 && address.ip().to_canonical().is_ipv6();
        set.filter(|(option, value)| match option {
            Opt::V6Only => plain && *value != 0,
            Opt::ReceiveBuffer => false,
            _ => true,
        })
        .collect()
    }

    /// Whether the port may be shared (SO_REUSEPORT).
    pub(crate) fn shares_port(&self) -> bool {
        let value = self.remembered((libc::SOL_SOCKET, libc::SO_REUSEPORT));
        value.and_then(number).is_some_and(|on| on != 0)
    }

    /// Whether an IPv6 socket takes nothing of IPv4.
    pub(crate) fn v6_only(&self) -> bool {
        let value = self.remembered(V6_ONLY);
        value.and_then(number).is_some_and(|on| on != 0)
    }

    /// The same of a listener that came from elsewhere.
    pub(crate) fn set_v6_only(&mut self) {
        let (level, name) = V6_ONLY;
        self.remember(level, name, &1i32.to_ne_bytes());
    }

    /// What an accepted connection has of its listener's.
    pub(crate) fn of_child(&self) -> Self {
        let mut child = self.clone();
        child.set.retain(|(level, name, _)| {
            let name = (*level, *name);
            name != (libc::SOL_SOCKET, libc::SO_REUSEPORT)
                && name != (libc::IPPROTO_TCP, libc::TCP_FASTOPEN)
                && name != (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT)
        });
        child
    }
}

impl Socket {
    /// Sets an option on the engine's socket.
    pub(crate) fn set(&self, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
        let which = (level, name);
        let translated = translate(which, value);
        if matches!(which, READ_TIMEOUT | WRITE_TIMEOUT) {
            time(value)?;
        } else if which == CONGESTION {
            // Fixed when the connection was opened.
        } else if let Some((option, value)) = translated {
            if option != Opt::ReceiveBuffer && option != Opt::V6Only {
                self.set_option(option, value);
            }
        } else if !TAKEN.contains(&which) {
            let known = NUMBERS.iter().any(|(known, ..)| *known == which) || which == LINGER;
            return Err(if known {
                Errno::INVAL
            } else {
                Errno::NOPROTOOPT
            });
        }
        self.settings(|settings| settings.remember(level, name, value));
        Ok(())
    }

    /// An option's value.
    pub(crate) fn value(&self, level: c_int, name: c_int) -> Result<Vec<u8>, Errno> {
        let which = (level, name);
        let int = |value: i32| Ok(value.to_ne_bytes().to_vec());
        if level == libc::SOL_SOCKET
            && let Some(fact) = self.fact(name)
        {
            return int(fact);
        }
        match which {
            READ_TIMEOUT => return Ok(time_bytes(self.settings(|s| s.read_timeout))),
            WRITE_TIMEOUT => return Ok(time_bytes(self.settings(|s| s.write_timeout))),
            TCP_INFO => return self.info(),
            CONGESTION => return self.congestion(),
            _ => {}
        }
        if let Some(value) = self.settings(|s| s.remembered(which).map(<[u8]>::to_vec)) {
            return Ok(value);
        }
        if which == (libc::SOL_SOCKET, libc::SO_SNDBUF) {
            // What a stream may have in flight.
            return int(1 << 20);
        }
        if which == LINGER {
            return Ok(vec![0; 8]);
        }
        if TAKEN.contains(&which) {
            return int(0);
        }
        let known = NUMBERS.iter().find(|(known, ..)| *known == which);
        let Some((_, option, unit)) = known else {
            return Err(Errno::NOPROTOOPT);
        };
        match self.route() {
            Route::Engine(raw) | Route::Both(raw) => {
                let value = told(raw.option(*option))?;
                int(i32::try_from(value / unit).unwrap_or(i32::MAX))
            }
            Route::Kernel | Route::Descriptor | Route::Nowhere => int(0),
        }
    }

    /// What a socket is, and how it goes: options of SOL_SOCKET that cannot be set.
    fn fact(&self, name: c_int) -> Option<i32> {
        let stream = self.kind == Kind::Stream;
        Some(match name {
            libc::SO_ERROR => self.take_error(),
            libc::SO_TYPE if stream => libc::SOCK_STREAM,
            libc::SO_TYPE => libc::SOCK_DGRAM,
            libc::SO_DOMAIN if self.is_v6() => libc::AF_INET6,
            libc::SO_DOMAIN => libc::AF_INET,
            libc::SO_PROTOCOL if stream => libc::IPPROTO_TCP,
            libc::SO_PROTOCOL => libc::IPPROTO_UDP,
            libc::SO_ACCEPTCONN => match self.route() {
                Route::Engine(raw) | Route::Both(raw) => raw.is_listening().into(),
                Route::Kernel | Route::Descriptor | Route::Nowhere => 0,
            },
            _ => return None,
        })
    }

    fn info(&self) -> Result<Vec<u8>, Errno> {
        match self.route() {
            Route::Engine(raw) if self.kind == Kind::Stream => {
                Ok(told(raw.info())?.to_bytes().to_vec())
            }
            _ => Err(Errno::NOPROTOOPT),
        }
    }

    fn congestion(&self) -> Result<Vec<u8>, Errno> {
        let set = self.settings(|s| s.remembered(CONGESTION).map(<[u8]>::to_vec));
        let mut name = set.unwrap_or_else(|| b"cubic".to_vec());
        // As Linux has it, 16 bytes.
        name.resize(16, 0);
        Ok(name)
    }
}
