//! Socket options: what was set, and what the engine knows of it.

mod groups;
mod table;
mod value;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use libc::c_int;
use rustix::io::Errno;
use sidecore_client::abi::{Membership, MembershipChange};
use sidecore_client::{Opt, RawSocket, Ual};

use crate::control::Asked;
use crate::errors::told;
use crate::log;
use crate::process::process;
use crate::socket::{Kind, Route, Socket, timeout};
use table::{
    CONGESTION, CORKED, JOINED, LINGER, MULTICAST_IF, Name, READ_TIMEOUT, RECEIVE_BUFFER,
    REUSE_PORT, SEGMENT, SEND_BUFFER, TCP_INFO, URGENT_INLINE, V6_ONLY, WRITE_TIMEOUT, time,
    time_bytes, translate,
};
use value::Value;

/// Room for as many options as servers set on a connection.
const USUAL: usize = 8;

/// What a program has set on a socket.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) read_timeout: Option<Duration>,
    pub(crate) write_timeout: Option<Duration>,
    /// Level, name and value as it is told when asked, each option once, in the order in which they were set first.
    set: Vec<(c_int, c_int, Value)>,
    /// What was joined before there was a socket of the engine's to join with.
    groups: Vec<Membership>,
    /// The datagram that is being put together (MSG_MORE, UDP_CORK), and where it goes.
    pub(crate) corked: Option<(Vec<u8>, Option<SocketAddr>)>,
    /// It was said of a stream: options of datagrams change nothing.
    stream: bool,
}

/// Messages that a receive is to give beside a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wanted {
    /// The destination (IP_PKTINFO, IPV6_RECVPKTINFO).
    pub(crate) info: bool,
    /// The same as an address and port (IP_RECVORIGDSTADDR).
    pub(crate) original: bool,
    /// Hops that were left (IP_RECVTTL, IPV6_RECVHOPLIMIT).
    pub(crate) hops: bool,
    /// DSCP and ECN (IP_RECVTOS, IPV6_RECVTCLASS).
    pub(crate) class: bool,
    /// When it was received, in microseconds (SO_TIMESTAMP) …
    pub(crate) micros: bool,
    /// … or nanoseconds (SO_TIMESTAMPNS).
    pub(crate) nanos: bool,
}

impl Settings {
    /// Remembers a value that the system has taken.
    pub(crate) fn remember(&mut self, kind: Kind, level: c_int, name: c_int, value: &[u8]) {
        if let Some(change) = groups::change(level, name, value) {
            self.stream = kind == Kind::Stream;
            self.groups.extend(change);
            return;
        }
        // What is not checked here is kept as it came.
        let told = checked((level, name), value).unwrap_or_else(|_| Value::new(value));
        self.keep(kind, (level, name), told);
    }

    /// Remembers a value as it is told.
    fn keep(&mut self, kind: Kind, (level, name): Name, value: Value) {
        self.stream = kind == Kind::Stream;
        match (level, name) {
            READ_TIMEOUT => self.read_timeout = time(&value).ok().and_then(timeout),
            WRITE_TIMEOUT => self.write_timeout = time(&value).ok().and_then(timeout),
            _ => {}
        }
        let mut all = self.set.iter_mut();
        match all.find(|(l, n, _)| (*l, *n) == (level, name)) {
            Some((.., old)) => *old = value,
            None => {
                if self.set.is_empty() {
                    self.set.reserve(USUAL);
                }
                self.set.push((level, name, value));
            }
        }
    }

    fn remembered(&self, name: Name) -> Option<&[u8]> {
        let found = self.set.iter().find(|(l, n, _)| (*l, *n) == name);
        found.map(|(.., value)| &value[..])
    }

    fn is_on(&self, name: Name) -> bool {
        let value = self.remembered(name);
        value.is_some_and(|value| table::number(name.0, value).is_ok_and(|value| value != 0))
    }

    /// The engine's options for a socket that begins at, or goes to, this address.
    pub(crate) fn before(&self, v6: bool, address: SocketAddr) -> Vec<(Opt, u64)> {
        let set = self
            .set
            .iter()
            .filter_map(|(level, name, value)| translate((*level, *name), value));
        // Buffers stay tuned: programs set them for systems that did not. Only an IPv6 address can be for IPv6 only.
        let plain = v6 && address.ip().to_canonical().is_ipv6();
        let set = set.filter(|(option, value)| match option {
            Opt::V6Only => plain && *value != 0,
            option => !(self.stream && table::is_for_datagrams(*option)),
        });
        let shared = self.shares_port() && !self.stream;
        let shared = shared.then_some((Opt::ReuseAddress, 1));
        set.chain(shared).collect()
    }

    /// SO_OOBINLINE.
    pub(crate) fn is_urgent_inline(&self) -> bool {
        self.is_on(URGENT_INLINE)
    }

    /// Does what is no option of the engine's to a socket that was just made.
    pub(crate) fn dress(&self, raw: &RawSocket) {
        // Other than with the engine's own interface, the byte is out of band until a program says otherwise.
        raw.set_urgent_inline(self.is_on(URGENT_INLINE));
        if let Some(bytes) = self.send_buffer() {
            raw.set_send_limit(bytes);
        }
        for change in &self.groups {
            if let Err(error) = raw.change_membership(change) {
                log::info(format_args!(
                    "{}: the engine does not join: {error}",
                    change.group
                ));
            }
        }
    }

    /// Takes note of a change that was made; what it undoes is forgotten.
    fn note_membership(&mut self, change: &Membership) {
        use MembershipChange::*;
        let undone = match change.change {
            Leave => None,
            LeaveSource => Some(JoinSource),
            UnblockSource => Some(BlockSource),
            Join | JoinSource | BlockSource => return self.groups.push(*change),
        };
        self.groups.retain(|known| {
            let place = (known.group, known.interface, known.local);
            let same = place == (change.group, change.interface, change.local);
            let this =
                undone.is_none_or(|undone| (known.change, known.source) == (undone, change.source));
            !(same && this)
        });
    }

    /// Bytes that may be in flight, if a program said so (SO_SNDBUF).
    fn send_buffer(&self) -> Option<usize> {
        let told = table::number(SEND_BUFFER.0, self.remembered(SEND_BUFFER)?).ok()?;
        usize::try_from(told).ok()
    }

    /// Whether the port may be shared (SO_REUSEPORT).
    pub(crate) fn shares_port(&self) -> bool {
        self.is_on(REUSE_PORT)
    }

    /// Whether datagrams are put together until this is off again (UDP_CORK).
    pub(crate) fn is_corked(&self) -> bool {
        self.is_on(CORKED)
    }

    /// Whether an IPv6 socket takes nothing of IPv4.
    pub(crate) fn v6_only(&self) -> bool {
        self.is_on(V6_ONLY)
    }

    /// The same of a listener that came from elsewhere.
    pub(crate) fn set_v6_only(&mut self) {
        let (level, name) = V6_ONLY;
        self.remember(Kind::Stream, level, name, &1i32.to_ne_bytes());
    }

    /// What an accepted connection has of its listener's.
    pub(crate) fn of_child(&self) -> Self {
        let inherited = |(level, name, _): &&(c_int, c_int, Value)| {
            let name = (*level, *name);
            name != REUSE_PORT
                && name != (libc::IPPROTO_TCP, libc::TCP_FASTOPEN)
                && name != (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT)
        };
        // With room for what is set on it next.
        let mut set = Vec::with_capacity(self.set.len() + USUAL);
        set.extend(self.set.iter().filter(inherited).cloned());
        Self {
            set,
            groups: self.groups.clone(),
            corked: None,
            ..*self
        }
    }

    /// Which messages a receive gives.
    pub(crate) fn wanted(&self, v6: bool) -> Wanted {
        // A socket of IPv6 has IPv4's options, too, for what comes in mapped form; the program said which it reads.
        let on = |v4: c_int, name: c_int| match v6 {
            true => self.is_on((libc::IPPROTO_IPV6, name)),
            false => self.is_on((libc::IPPROTO_IP, v4)),
        };
        let nanos = self.is_on((libc::SOL_SOCKET, libc::SO_TIMESTAMPNS));
        Wanted {
            info: on(libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO),
            original: self.is_on((libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR)) && !v6,
            hops: on(libc::IP_RECVTTL, libc::IPV6_RECVHOPLIMIT),
            class: on(libc::IP_RECVTOS, libc::IPV6_RECVTCLASS),
            micros: self.is_on((libc::SOL_SOCKET, libc::SO_TIMESTAMP)) && !nanos,
            nanos,
        }
    }

    /// The address from which datagrams to groups were asked to go.
    /// Bytes of the datagrams into which sends are cut (UDP_SEGMENT); 0: they are not.
    pub(crate) fn segment(&self) -> usize {
        let number = self
            .remembered(SEGMENT)
            .map(|value| table::number(SEGMENT.0, value));
        number.map_or(0, |number| {
            usize::try_from(number.unwrap_or(0)).unwrap_or(0)
        })
    }

    /// Whether received datagrams may be joined (UDP_GRO).
    pub(crate) fn joins(&self) -> bool {
        self.is_on(JOINED)
    }

    pub(crate) fn group_source(&self) -> Option<IpAddr> {
        let number = groups::interface(self.remembered(MULTICAST_IF)?)?;
        (number != 0).then(|| Ipv4Addr::from_bits(number).into())
    }
}

/// A value, checked, as it is told when asked for.
fn checked(name: Name, value: &[u8]) -> Result<Value, Errno> {
    if name == MULTICAST_IF {
        // However the interface was named, its address is told.
        let address = groups::interface(value).ok_or(Errno::INVAL)?;
        return Ok(Value::new(&address.to_be_bytes()));
    }
    table::check(name, value)
}

impl Socket {
    /// Does what is no option of the engine's to its socket, which was just made.
    pub(crate) fn dress(&self, raw: &RawSocket) {
        // Not with the settings locked: it waits for the engine.
        let settings = self.settings(|settings| settings.clone());
        settings.dress(raw);
    }

    /// Whether an option is one that is not to be had where the engine may carry the bytes, though the system would give it: sends from the
    /// program's own pages are copied, and nobody would tell when those are free again.
    pub(crate) fn refuses(level: c_int, name: c_int, value: &[u8]) -> bool {
        (level, name) == (libc::SOL_SOCKET, libc::SO_ZEROCOPY)
            && value.iter().any(|byte| *byte != 0)
    }

    /// Sets an option on the engine's socket.
    pub(crate) fn set(&self, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
        let which = (level, name);
        if self.is_of_another_protocol(level) {
            return Err(Errno::NOPROTOOPT);
        }
        if let Some(change) = groups::change(level, name, value) {
            return self.change_membership(&change?);
        }
        let as_told = checked(which, value)?;
        match (which, translate(which, value)) {
            (CONGESTION, Some((_, wanted))) => self.may_control(wanted)?,
            (V6_ONLY, _) if self.raw().is_some() => return Err(Errno::INVAL),
            (V6_ONLY, _) | (_, None) => {}
            (_, Some((option, _)))
                if self.kind() == Kind::Stream && table::is_for_datagrams(option) => {}
            (_, Some((option, value))) => self.set_option(option, value),
        }
        if which == URGENT_INLINE
            && let Some(raw) = self.raw()
        {
            raw.set_urgent_inline(table::number(level, value)? != 0);
        }
        let kind = self.kind();
        self.settings(|settings| settings.keep(kind, which, as_told));
        if which == SEND_BUFFER
            && let (Some(raw), Some(bytes)) = (self.raw(), self.settings(|s| s.send_buffer()))
        {
            raw.set_send_limit(bytes);
        }
        if which == CORKED && !self.settings(|settings| settings.is_corked()) {
            self.uncork()?;
        }
        Ok(())
    }

    /// Sends the datagram that was being put together.
    fn uncork(&self) -> Result<(), Errno> {
        match self.settings(|settings| settings.corked.is_some()) {
            true => self.send(&[], 0, None, &Asked::default()).map(|_| ()),
            false => Ok(()),
        }
    }

    /// What an option was set to, or the engine's default, in the engine's terms.
    pub(crate) fn option_as_set(&self, option: Opt) -> u64 {
        self.settings(|settings| {
            let mut set = settings.set.iter();
            let found = set.find_map(|(level, name, value)| {
                let (set, value) = translate((*level, *name), value)?;
                (set == option).then_some(value)
            });
            found.unwrap_or(0)
        })
    }

    /// Whether an option about groups names one of the engine's addresses as the interface: then it is not the system's business.
    pub(crate) fn is_about_engine(&self, level: c_int, name: c_int, value: &[u8]) -> bool {
        let address = match groups::change(level, name, value) {
            Some(Ok(change)) => change.local,
            Some(Err(_)) => return false,
            None if (level, name) == MULTICAST_IF => match groups::interface(value) {
                Some(address) => Ipv4Addr::from_bits(address),
                None => return false,
            },
            None => return false,
        };
        let addresses = (!address.is_unspecified()).then(|| process().addresses());
        addresses.flatten().is_some_and(|addresses| {
            let mut own = addresses.own.iter();
            own.any(|(own, _)| *own == address)
        })
    }

    /// Options of UDP on a stream, or of TCP on datagrams.
    fn is_of_another_protocol(&self, level: c_int) -> bool {
        match self.kind() {
            Kind::Stream => level == libc::IPPROTO_UDP,
            Kind::Datagram => level == libc::IPPROTO_TCP,
        }
    }

    /// Congestion control is chosen before a connection opens: after that, only what is in force can be asked for.
    fn may_control(&self, wanted: u64) -> Result<(), Errno> {
        let Some(raw) = self.raw().filter(|raw| !raw.is_listening()) else {
            return Ok(());
        };
        match told(raw.option(Opt::Congestion))? {
            current if current == wanted => Ok(()),
            _ => Err(Errno::PERM),
        }
    }

    fn change_membership(&self, change: &Membership) -> Result<(), Errno> {
        if self.kind() == Kind::Stream {
            return Err(Errno::PROTO);
        }
        if let Some(raw) = self.raw() {
            told(raw.change_membership(change))?;
        }
        // For the engine's socket to come, and for one at the next engine.
        self.settings(|settings| settings.note_membership(change));
        Ok(())
    }

    /// Whether a datagram to this group is to go out by the engine, as IP_MULTICAST_IF says.
    pub(crate) fn sends_to_group(&self, to: SocketAddr, own: &[(IpAddr, u8)]) -> bool {
        let source = self.settings(|settings| settings.group_source());
        let ours = source.is_some_and(|source| own.iter().any(|(own, _)| *own == source));
        ours && to.ip().is_multicast()
    }

    /// An option's value.
    pub(crate) fn value(&self, level: c_int, name: c_int) -> Result<Vec<u8>, Errno> {
        let which = (level, name);
        if self.is_of_another_protocol(level) {
            return Err(Errno::OPNOTSUPP);
        }
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
            (libc::IPPROTO_IP, libc::IP_MTU) | (libc::IPPROTO_IPV6, libc::IPV6_MTU) => {
                return int(self.path_mtu()?);
            }
            // Linux tells the segment in force, and not what was asked for.
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {}
            _ => {
                if let Some(value) = self.settings(|s| s.remembered(which).map(<[u8]>::to_vec)) {
                    return Ok(value);
                }
            }
        }
        match which {
            // What a stream may have in flight, and what it may have waiting.
            SEND_BUFFER => return int(1 << 20),
            RECEIVE_BUFFER => return int(1 << 20),
            LINGER => return Ok(vec![0; 8]),
            MULTICAST_IF => return Ok(vec![0; 4]),
            (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL)
            | (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL) => return int(1),
            // The engine may have been told to share the port for another reason.
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => return int(0),
            _ if table::is_taken(which) => return int(0),
            _ => {}
        }
        let known = table::find(which).ok_or(Errno::NOPROTOOPT)?;
        if self.kind() == Kind::Stream && table::is_for_datagrams(known.option) {
            return int(0);
        }
        let value = match self.route() {
            Route::Engine(raw) | Route::Both(raw) => told(raw.option(known.option))?,
            Route::Descriptor => self.engines_value(known.option).unwrap_or(0),
            Route::Kernel | Route::Nowhere => 0,
        };
        int(i32::try_from(value / known.unit).unwrap_or(i32::MAX))
    }

    /// What an option is in force, wherever the connection is.
    fn engines_value(&self, option: Opt) -> Result<u64, Errno> {
        self.ask_about(
            |raw| raw.option(option),
            |ual, fd, number| ual.option_elsewhere(fd, number, option),
        )
    }

    /// What a socket is, and how it goes: options of SOL_SOCKET that cannot be set.
    fn fact(&self, name: c_int) -> Option<i32> {
        let stream = self.kind() == Kind::Stream;
        Some(match name {
            libc::SO_ERROR => self.take_error(),
            libc::SO_TYPE if stream => libc::SOCK_STREAM,
            libc::SO_TYPE => libc::SOCK_DGRAM,
            libc::SO_DOMAIN if self.is_v6() => libc::AF_INET6,
            libc::SO_DOMAIN => libc::AF_INET,
            libc::SO_PROTOCOL if stream => libc::IPPROTO_TCP,
            libc::SO_PROTOCOL => libc::IPPROTO_UDP,
            libc::SO_INCOMING_NAPI_ID => 0,
            libc::SO_ACCEPTCONN => match self.route() {
                Route::Engine(raw) | Route::Both(raw) => {
                    (raw.is_listening() && !self.is_held()).into()
                }
                Route::Kernel | Route::Descriptor | Route::Nowhere => 0,
            },
            _ => return None,
        })
    }

    fn info(&self) -> Result<Vec<u8>, Errno> {
        if self.kind() != Kind::Stream {
            return Err(Errno::NOPROTOOPT);
        }
        let info = self.ask_about(RawSocket::info, Ual::info_elsewhere);
        match info {
            Ok(info) => Ok(info.to_bytes().to_vec()),
            Err(Errno::NOTCONN) => Err(Errno::NOPROTOOPT),
            Err(error) => Err(error),
        }
    }

    /// What is in force, or what was asked for.
    fn congestion(&self) -> Result<Vec<u8>, Errno> {
        if self.kind() != Kind::Stream {
            return Err(Errno::OPNOTSUPP);
        }
        let connected = match self.route() {
            Route::Engine(raw) => !raw.is_listening(),
            Route::Descriptor => true,
            _ => false,
        };
        if connected {
            return Ok(table::congestion_name(self.engines_value(Opt::Congestion)?));
        }
        let set = self.settings(|s| s.remembered(CONGESTION).map(<[u8]>::to_vec));
        let mut name = set.unwrap_or_else(|| b"cubic".to_vec());
        name.resize(16, 0);
        Ok(name)
    }

    fn path_mtu(&self) -> Result<i32, Errno> {
        match self.route() {
            Route::Engine(raw) if self.kind() == Kind::Datagram => {
                let mtu = told(raw.option(Opt::PathMtu)).map_err(|_| Errno::NOTCONN)?;
                Ok(i32::try_from(mtu).unwrap_or(i32::MAX))
            }
            _ => Err(Errno::NOTCONN),
        }
    }
}
