//! Options by level and name: what the engine calls them, which values Linux takes, and how it tells them.

use std::sync::OnceLock;
use std::time::Duration;

use libc::c_int;
use rustix::io::Errno;
use sidecore_client::Opt;

use super::value::Value;

/// An option by level and name.
pub(super) type Name = (c_int, c_int);

pub(super) const CONGESTION: Name = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
pub(super) const LINGER: Name = (libc::SOL_SOCKET, libc::SO_LINGER);
pub(super) const READ_TIMEOUT: Name = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
pub(super) const WRITE_TIMEOUT: Name = (libc::SOL_SOCKET, libc::SO_SNDTIMEO);
pub(super) const TCP_INFO: Name = (libc::IPPROTO_TCP, libc::TCP_INFO);
pub(super) const V6_ONLY: Name = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
pub(super) const RECEIVE_BUFFER: Name = (libc::SOL_SOCKET, libc::SO_RCVBUF);
pub(super) const SEND_BUFFER: Name = (libc::SOL_SOCKET, libc::SO_SNDBUF);
pub(super) const URGENT_INLINE: Name = (libc::SOL_SOCKET, libc::SO_OOBINLINE);
pub(super) const REUSE_PORT: Name = (libc::SOL_SOCKET, libc::SO_REUSEPORT);
pub(super) const CORKED: Name = (libc::IPPROTO_UDP, libc::UDP_CORK);
pub(super) const MULTICAST_IF: Name = (libc::IPPROTO_IP, libc::IP_MULTICAST_IF);

/// Which values Linux takes for an option, and how it gives them back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Values {
    /// Any number; given back as 0 or 1.
    Switch,
    /// A number of this range, both ends included; given back as it is.
    Range(i32, i32),
    /// The same, or -1 for the system's default.
    OrDefault(i32, i32),
}

use Values::{OrDefault, Range, Switch};

/// An option that the engine has.
pub(super) struct Known {
    pub(super) name: Name,
    pub(super) option: Opt,
    /// By how much a value is multiplied: seconds and milliseconds to microseconds.
    pub(super) unit: u64,
    pub(super) values: Values,
}

const fn known(level: c_int, name: c_int, option: Opt, unit: u64, values: Values) -> Known {
    Known {
        name: (level, name),
        option,
        unit,
        values,
    }
}

const MAX: i32 = i32::MAX;
const SECONDS: u64 = 1_000_000;

/// Options whose value is a number. The ranges are Linux' (net/ipv4/tcp.c, ip_sockglue.c, net/ipv6/ipv6_sockglue.c say so).
pub(super) const KNOWN: &[Known] = {
    use libc::*;
    &[
        known(SOL_SOCKET, SO_KEEPALIVE, Opt::Keepalive, 1, Switch),
        known(SOL_SOCKET, SO_REUSEADDR, Opt::ReuseAddress, 1, Switch),
        known(IPPROTO_TCP, TCP_NODELAY, Opt::NoDelay, 1, Switch),
        known(IPPROTO_TCP, TCP_CORK, Opt::Cork, 1, Switch),
        known(IPPROTO_TCP, TCP_QUICKACK, Opt::QuickAck, 1, Switch),
        known(
            IPPROTO_TCP,
            TCP_KEEPIDLE,
            Opt::KeepaliveIdle,
            SECONDS,
            Range(1, 32767),
        ),
        known(
            IPPROTO_TCP,
            TCP_KEEPINTVL,
            Opt::KeepaliveInterval,
            SECONDS,
            Range(1, 32767),
        ),
        known(
            IPPROTO_TCP,
            TCP_KEEPCNT,
            Opt::KeepaliveProbes,
            1,
            Range(1, 127),
        ),
        known(
            IPPROTO_TCP,
            TCP_USER_TIMEOUT,
            Opt::UserTimeout,
            1000,
            Range(0, MAX),
        ),
        known(
            IPPROTO_TCP,
            TCP_WINDOW_CLAMP,
            Opt::WindowClamp,
            1,
            Range(0, MAX),
        ),
        known(
            IPPROTO_TCP,
            TCP_NOTSENT_LOWAT,
            Opt::NotsentLowat,
            1,
            Range(0, MAX),
        ),
        known(
            IPPROTO_TCP,
            TCP_MAXSEG,
            Opt::MaxSegment,
            1,
            Range(88, 32767),
        ),
        known(IPPROTO_TCP, TCP_SYNCNT, Opt::SynRetries, 1, Range(1, 127)),
        known(
            IPPROTO_TCP,
            TCP_DEFER_ACCEPT,
            Opt::DeferAccept,
            SECONDS,
            Range(0, MAX),
        ),
        known(IPPROTO_TCP, TCP_FASTOPEN, Opt::FastOpen, 1, Range(0, MAX)),
        known(
            IPPROTO_TCP,
            TCP_LINGER2,
            Opt::FinWait2,
            SECONDS,
            OrDefault(0, MAX),
        ),
        known(IPPROTO_IP, IP_TOS, Opt::TrafficClass, 1, Range(0, 255)),
        known(IPPROTO_IP, IP_TTL, Opt::HopLimit, 1, OrDefault(1, 255)),
        known(
            IPPROTO_IP,
            IP_MULTICAST_TTL,
            Opt::MulticastHops,
            1,
            OrDefault(0, 255),
        ),
        known(IPPROTO_IP, IP_MULTICAST_LOOP, Opt::MulticastLoop, 1, Switch),
        known(IPPROTO_IP, IP_RECVERR, Opt::ReceiveErrors, 1, Switch),
        known(
            IPPROTO_IP,
            IP_MTU_DISCOVER,
            Opt::MtuDiscovery,
            1,
            Range(0, 5),
        ),
        known(
            IPPROTO_IPV6,
            IPV6_TCLASS,
            Opt::TrafficClass,
            1,
            OrDefault(0, 255),
        ),
        known(
            IPPROTO_IPV6,
            IPV6_UNICAST_HOPS,
            Opt::HopLimit,
            1,
            OrDefault(0, 255),
        ),
        known(
            IPPROTO_IPV6,
            IPV6_MULTICAST_HOPS,
            Opt::MulticastHops,
            1,
            OrDefault(0, 255),
        ),
        known(
            IPPROTO_IPV6,
            IPV6_MULTICAST_LOOP,
            Opt::MulticastLoop,
            1,
            Range(0, 1),
        ),
        known(IPPROTO_IPV6, IPV6_RECVERR, Opt::ReceiveErrors, 1, Switch),
        known(
            IPPROTO_IPV6,
            IPV6_MTU_DISCOVER,
            Opt::MtuDiscovery,
            1,
            Range(0, 5),
        ),
        known(IPPROTO_IPV6, IPV6_V6ONLY, Opt::V6Only, 1, Switch),
    ]
};

/// linux/udp.h: sends are cut into datagrams of this length, and received ones may be joined.
pub(super) const SEGMENT: Name = (libc::IPPROTO_UDP, libc::UDP_SEGMENT);
pub(super) const JOINED: Name = (libc::IPPROTO_UDP, libc::UDP_GRO);

/// Options that the engine need not know: they are taken, and given back as they were set (else as a number 0).
const TAKEN: &[(Name, Values)] = {
    use libc::*;
    const ANY: Values = Range(i32::MIN, MAX);
    &[
        (REUSE_PORT, Switch),
        (URGENT_INLINE, Switch),
        (CORKED, Switch),
        (RECEIVE_BUFFER, ANY),
        (SEND_BUFFER, ANY),
        (SEGMENT, Range(0, 65535)),
        (JOINED, Switch),
        ((SOL_SOCKET, SO_BROADCAST), Switch),
        // Only to be off.
        ((SOL_SOCKET, SO_ZEROCOPY), Range(0, 0)),
        ((SOL_SOCKET, SO_DONTROUTE), Switch),
        ((SOL_SOCKET, SO_PRIORITY), ANY),
        ((SOL_SOCKET, SO_RCVLOWAT), ANY),
        ((SOL_SOCKET, SO_TIMESTAMP), Switch),
        ((SOL_SOCKET, SO_TIMESTAMPNS), Switch),
        ((SOL_SOCKET, SO_BUSY_POLL), Range(0, MAX)),
        ((SOL_SOCKET, SO_INCOMING_CPU), ANY),
        ((SOL_SOCKET, SO_MARK), ANY),
        ((IPPROTO_IP, IP_PKTINFO), Switch),
        ((IPPROTO_IP, IP_RECVTTL), Switch),
        ((IPPROTO_IP, IP_RECVTOS), Switch),
        ((IPPROTO_IP, IP_RECVORIGDSTADDR), Switch),
        ((IPPROTO_IP, IP_FREEBIND), Switch),
        ((IPPROTO_IP, IP_MULTICAST_ALL), Range(0, 1)),
        ((IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT), Switch),
        ((IPPROTO_IPV6, IPV6_RECVPKTINFO), Switch),
        ((IPPROTO_IPV6, IPV6_RECVTCLASS), Switch),
        ((IPPROTO_IPV6, IPV6_RECVHOPLIMIT), Switch),
        ((IPPROTO_IPV6, IPV6_MULTICAST_IF), ANY),
        ((IPPROTO_IPV6, IPV6_MULTICAST_ALL), Range(0, 1)),
    ]
};

/// Names of options are below this.
const NAMES: usize = 128;

/// For each level its place in [`PLACES`].
const fn level_at(level: c_int) -> Option<usize> {
    match level {
        libc::SOL_SOCKET => Some(0),
        libc::IPPROTO_TCP => Some(1),
        libc::IPPROTO_IP => Some(2),
        libc::IPPROTO_IPV6 => Some(3),
        _ => None,
    }
}

/// By level and name: one more than an option's place in [`KNOWN`], or 0. Servers set several on each connection.
static PLACES: [[u8; NAMES]; 4] = {
    let mut places = [[0; NAMES]; 4];
    let mut at = 0;
    while at < KNOWN.len() {
        let (level, name) = KNOWN[at].name;
        match level_at(level) {
            Some(level) => places[level][name as usize] = at as u8 + 1,
            None => panic!("a level that is not here"),
        }
        at += 1;
    }
    places
};

/// The engine's option of this name.
pub(super) fn find((level, name): Name) -> Option<&'static Known> {
    let place = PLACES[level_at(level)?].get(usize::try_from(name).ok()?)?;
    KNOWN.get(usize::from(*place).checked_sub(1)?)
}

/// Whether a name is known, as one of the engine's or as one that is taken.
pub(super) fn is_taken(name: Name) -> bool {
    TAKEN.iter().any(|(taken, _)| *taken == name)
}

fn values(name: Name) -> Option<Values> {
    let taken = || TAKEN.iter().find(|(taken, _)| *taken == name);
    find(name)
        .map(|known| known.values)
        .or_else(|| taken().map(|(_, values)| *values))
}

/// The number that a program passed. As Linux has it, options of IPv4 may be one byte.
pub(super) fn number(level: c_int, value: &[u8]) -> Result<i32, Errno> {
    match value.first_chunk() {
        Some(whole) => Ok(i32::from_ne_bytes(*whole)),
        None if level == libc::IPPROTO_IP => {
            value.first().map(|byte| (*byte).into()).ok_or(Errno::INVAL)
        }
        None => Err(Errno::INVAL),
    }
}

/// Checks a value, and gives it as Linux would tell it when asked. `NOPROTOOPT` for an option that is not known at all.
pub(super) fn check(name: Name, value: &[u8]) -> Result<Value, Errno> {
    match name {
        READ_TIMEOUT | WRITE_TIMEOUT => {
            time(value)?;
            return Ok(Value::new(&value[..16]));
        }
        LINGER => {
            return linger(value).map(|(on, seconds)| {
                let told = [i32::from(on).to_ne_bytes(), seconds.to_ne_bytes()];
                Value::new(told.as_flattened())
            });
        }
        CONGESTION => {
            congestion(value)?;
            return Ok(Value::new(name_of(value)));
        }
        _ => {}
    }
    let values = values(name).ok_or(Errno::NOPROTOOPT)?;
    let number = number(name.0, value)?;
    let told = match values {
        Switch => (number != 0).into(),
        Range(low, high) | OrDefault(low, high) if (low..=high).contains(&number) => number,
        OrDefault(..) if number == -1 => number,
        _ => return Err(Errno::INVAL),
    };
    let told = match name {
        RECEIVE_BUFFER => doubled(told, &RECEIVE_MAX, 2304),
        SEND_BUFFER => doubled(told, &SEND_MAX, 4608),
        _ => told,
    };
    Ok(Value::new(&told.to_ne_bytes()))
}

/// A buffer's size as Linux tells it: what was asked for, bounded by the system's limit, twice, and not too small.
fn doubled(asked: i32, limit: &Limit, least: i32) -> i32 {
    twice(asked, limit.get(), least)
}

/// One of the system's limits, as it was when it was first asked for: servers may set buffers on each connection, and reading a limit takes
/// three system calls.
struct Limit {
    path: &'static str,
    known: OnceLock<i32>,
}

static RECEIVE_MAX: Limit = Limit::at("/proc/sys/net/core/rmem_max");
static SEND_MAX: Limit = Limit::at("/proc/sys/net/core/wmem_max");

impl Limit {
    const fn at(path: &'static str) -> Self {
        let known = OnceLock::new();
        Self { path, known }
    }

    fn get(&self) -> i32 {
        *self.known.get_or_init(|| {
            let text = std::fs::read_to_string(self.path).ok();
            let most = text.and_then(|text| text.trim().parse().ok());
            most.unwrap_or(212_992)
        })
    }
}

fn twice(asked: i32, most: i32, least: i32) -> i32 {
    // Linux compares as unsigned: a negative size is the largest.
    let bounded = (asked as u32).min(most.max(0) as u32);
    i32::try_from(bounded)
        .unwrap_or(MAX)
        .saturating_mul(2)
        .max(least)
}

/// A `struct linger`: whether it is on, and seconds.
fn linger(value: &[u8]) -> Result<(bool, i32), Errno> {
    let value: &[u8; 8] = value.first_chunk().ok_or(Errno::INVAL)?;
    let [a, b, c, d, e, f, g, h] = *value;
    let (on, seconds) = (
        i32::from_ne_bytes([a, b, c, d]),
        i32::from_ne_bytes([e, f, g, h]),
    );
    Ok((on != 0, seconds))
}

/// A `struct timeval`.
pub(super) fn time(value: &[u8]) -> Result<Duration, Errno> {
    let value: &[u8; 16] = value.first_chunk().ok_or(Errno::INVAL)?;
    let half = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&value[at..at + 8]);
        i64::from_ne_bytes(eight)
    };
    let (seconds, micros) = (half(0), half(8));
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::DOM);
    }
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Ok(Duration::from_secs(seconds) + Duration::from_micros(micros as u64))
}

/// The same as bytes; zeros for none.
pub(super) fn time_bytes(time: Option<Duration>) -> Vec<u8> {
    let time = time.unwrap_or_default();
    let mut bytes = time.as_secs().to_ne_bytes().to_vec();
    bytes.extend(u64::from(time.subsec_micros()).to_ne_bytes());
    bytes
}

/// Names of congestion control, by the engine's numbers.
const CONTROLS: [&str; 4] = ["reno", "cubic", "dctcp", "bbr"];

/// A name without what follows its end.
fn name_of(value: &[u8]) -> &[u8] {
    let end = value
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(value.len());
    &value[..end.min(15)]
}

/// The engine's number of a way to control congestion. `NOENT` as Linux has it for one that is not there.
fn congestion(value: &[u8]) -> Result<u64, Errno> {
    if value.is_empty() {
        return Err(Errno::INVAL);
    }
    let name = name_of(value);
    let found = CONTROLS.iter().position(|known| known.as_bytes() == name);
    found.map(|at| at as u64).ok_or(Errno::NOENT)
}

/// Its name, in the 16 bytes in which Linux tells it.
pub(super) fn congestion_name(number: u64) -> Vec<u8> {
    let name = usize::try_from(number).ok().and_then(|at| CONTROLS.get(at));
    let mut bytes = name.map_or(Vec::new(), |name| name.as_bytes().to_vec());
    bytes.resize(16, 0);
    bytes
}

/// What the engine is told for an option's value, which was checked; `None`: nothing.
pub(super) fn translate(name: Name, value: &[u8]) -> Option<(Opt, u64)> {
    match name {
        LINGER => {
            let (on, seconds) = linger(value).ok()?;
            let time = match on {
                false => u64::MAX,
                true => u64::try_from(seconds).unwrap_or(0) * SECONDS,
            };
            return Some((Opt::Linger, time));
        }
        CONGESTION => return Some((Opt::Congestion, congestion(value).ok()?)),
        MULTICAST_IF => {
            return Some((
                Opt::MulticastSource,
                super::groups::interface(value)?.into(),
            ));
        }
        _ => {}
    }
    let known = find(name)?;
    let value = match (number(name.0, value).ok()?, known.option) {
        (-1, Opt::MulticastHops) => 1,
        (-1, Opt::FinWait2) => u64::MAX,
        // The engine's default.
        (-1, _) => 0,
        (value, Opt::FinWait2) if value > 120 => 120 * SECONDS,
        // IP_PMTUDISC_INTERFACE and _OMIT (name servers have them): routers may cut, and nothing is believed of the path.
        (4 | 5, Opt::MtuDiscovery) => 0,
        (value, _) => u64::try_from(value).ok()? * known.unit,
    };
    Some((known.option, value))
}

/// Options that only datagrams have. A stream takes them, and they change nothing.
pub(super) fn is_for_datagrams(option: Opt) -> bool {
    matches!(
        option,
        Opt::MulticastHops
            | Opt::MulticastLoop
            | Opt::MulticastSource
            | Opt::ReceiveErrors
            | Opt::MtuDiscovery
            | Opt::ReuseAddress
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(value: i32) -> [u8; 4] {
        value.to_ne_bytes()
    }

    #[test]
    fn values_are_checked_and_told_as_linux_has_them() {
        let nodelay = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
        assert_eq!(check(nodelay, &int(7)), Ok(Value::new(&int(1))));
        assert_eq!(check(nodelay, &[1]), Err(Errno::INVAL), "too short");
        let ttl = (libc::IPPROTO_IP, libc::IP_TTL);
        assert_eq!(
            check(ttl, &[9]),
            Ok(Value::new(&int(9))),
            "one byte will do"
        );
        assert_eq!(check(ttl, &int(0)), Err(Errno::INVAL));
        assert_eq!(check(ttl, &int(-1)), Ok(Value::new(&int(-1))));
        assert_eq!(translate(ttl, &int(-1)), Some((Opt::HopLimit, 0)));
        let probes = (libc::IPPROTO_TCP, libc::TCP_KEEPCNT);
        assert_eq!(check(probes, &int(128)), Err(Errno::INVAL));
        assert_eq!(
            check((libc::SOL_SOCKET, 9999), &int(1)),
            Err(Errno::NOPROTOOPT)
        );
        let idle = (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE);
        assert_eq!(
            translate(idle, &int(3)),
            Some((Opt::KeepaliveIdle, 3_000_000))
        );
    }

    #[test]
    fn options_are_found_by_their_names() {
        for known in KNOWN {
            let found = find(known.name).unwrap();
            assert_eq!((found.name, found.option), (known.name, known.option));
        }
        for other in [(99, 1), (libc::IPPROTO_TCP, -1), (libc::IPPROTO_TCP, 0)] {
            assert!(find(other).is_none());
        }
        assert!(find((libc::IPPROTO_TCP, NAMES as c_int)).is_none());
    }

    #[test]
    fn buffers_are_told_doubled() {
        assert_eq!(twice(10_000, 212_992, 2304), 20_000);
        assert_eq!(twice(1, 212_992, 2304), 2304);
        assert_eq!(twice(1 << 30, 212_992, 2304), 425_984);
        assert_eq!(twice(-1, 212_992, 2304), 425_984);
    }

    #[test]
    fn times_and_lingering() {
        let time_of = |seconds: i64, micros: i64| {
            let mut bytes = seconds.to_ne_bytes().to_vec();
            bytes.extend(micros.to_ne_bytes());
            time(&bytes)
        };
        assert_eq!(time_of(1, 5), Ok(Duration::from_micros(1_000_005)));
        assert_eq!(time_of(0, 1_000_000), Err(Errno::DOM));
        assert_eq!(time_of(-1, 0), Ok(Duration::ZERO), "Linux: no timeout");
        assert_eq!(time(&[0; 15]), Err(Errno::INVAL));
        let both = |on: i32, seconds: i32| [int(on), int(seconds)].concat();
        assert_eq!(check(LINGER, &both(3, 2)), Ok(Value::new(&both(1, 2))));
        assert_eq!(
            translate(LINGER, &both(0, 2)),
            Some((Opt::Linger, u64::MAX))
        );
        assert_eq!(translate(LINGER, &both(1, 0)), Some((Opt::Linger, 0)));
        assert_eq!(check(LINGER, &int(1)), Err(Errno::INVAL));
    }

    #[test]
    fn congestion_goes_by_names() {
        assert_eq!(translate(CONGESTION, b"bbr"), Some((Opt::Congestion, 3)));
        assert_eq!(
            translate(CONGESTION, b"reno\0junk"),
            Some((Opt::Congestion, 0))
        );
        assert_eq!(check(CONGESTION, b"westwood"), Err(Errno::NOENT));
        assert_eq!(check(CONGESTION, b""), Err(Errno::INVAL));
        assert_eq!(&congestion_name(1)[..6], b"cubic\0");
        assert_eq!(congestion_name(9), [0; 16]);
    }
}
