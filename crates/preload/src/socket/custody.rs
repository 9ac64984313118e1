//! Connections that several processes hold: handing over what is ours, and getting for ourselves what was inherited.
//!
//! ```text
//!               contact                                    hand_over
//!   Inherited ----------> Engine (the connection is ours) -----------> Proxied (the descriptor carries the bytes)
//!       |   `-----------> Engine (a listener, opened once more)           |    ^
//!       |                    ^                                            |    | contact: others hold it, too
//!       |                    `------------------ contact -----------------'    |
//!       `----------------------------------------------------------------------'
//! ```
//!
//! Nothing is done at a fork. The child asks for what it inherited when it first uses it, and the agent asks the parent.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrUnix};
use sidecore_client::abi::agent::{
    LISTENER_HELD, LISTENER_V6, LISTENER_V6_ONLY, parse_descriptor_name,
};
use sidecore_client::custody::Release;
use sidecore_client::{HandedOver, Opt, RawSocket};

use super::{Kind, Listening, Role, Socket, State};
use crate::descriptors::Used;
use crate::errors::errno;
use crate::process::{Link, process};
use crate::table::{Thing, lock};
use crate::{guard, log, sys};

/// After a connection was not to be had, it is asked for again so much later at the earliest.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(10);

/// How long a connection that is being made is waited for when its descriptor is passed on.
const CONNECTING: Duration = Duration::from_secs(10);

/// What a socket knows of its other holders.
#[derive(Clone, Default)]
pub(super) struct Custody {
    /// Number of the descriptor; 0: not known yet.
    pub(super) number: u64,
    /// Forks and spawns of the process when all holders were told of last.
    birth: (u32, u32),
    /// Processes to which it was passed since.
    passed: u32,
    /// Which link the descriptor was made for.
    link: u64,
    /// Bytes may have gone through the descriptor.
    pub(super) was_elsewhere: bool,
    /// Holders between this process and the one that told of them last.
    pub(super) unknown: u32,
    /// The descriptor is used without the library: it stays with the custodian.
    pub(super) stays: bool,
    /// When the connection is asked for again, and how long after that.
    pub(super) retry: Option<(Instant, Duration)>,
    /// The addresses, of a connection that is not here.
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// Options that were set meanwhile, and that the custodian could not be told of.
    pub(super) unset: Vec<(Opt, u64)>,
}

impl Custody {
    /// Of a descriptor that was just made for this process.
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            birth: process().generations(),
            link: process().opened().map_or(0, |link| link.serial),
            ..Self::default()
        }
    }

    /// In a forked child. The parent, if it `tells`, counts it.
    pub(super) fn inherited(&self, tells: bool, peer: Option<SocketAddr>) -> Self {
        Self {
            number: self.number,
            was_elsewhere: true,
            unknown: if tells { 0 } else { self.unknown + 1 },
            stays: self.stays,
            local: self.local,
            peer: peer.or(self.peer),
            ..Self::default()
        }
    }

    /// The child of this fork tells of itself.
    pub(super) fn leave_out_one_fork(&mut self) {
        self.birth.0 += 1;
    }

    /// Holders that were made since they were told of last. A program that was started may have it under any number: whether ours would go with it
    /// says nothing.
    pub(super) fn holders(&self) -> u32 {
        let (forks, spawns) = process().generations();
        forks
            .wrapping_sub(self.birth.0)
            .saturating_add(spawns.wrapping_sub(self.birth.1))
            .saturating_add(self.passed)
    }

    /// They were told of.
    pub(super) fn told(&mut self) {
        self.birth = process().generations();
        (self.passed, self.unknown) = (0, 0);
    }
}

/// While one of these lives a thread is in a call of the system's on the descriptor.
pub(crate) struct DescriptorCall(pub(super) Arc<Socket>);

impl Drop for DescriptorCall {
    fn drop(&mut self) {
        self.0.descriptor_calls.fetch_sub(1, Ordering::Release);
    }
}

/// The number of a descriptor that an agent made.
pub(crate) fn number_of(fd: RawFd) -> Option<u64> {
    let peer = rustix::net::getpeername(sys::borrow(fd)).ok().flatten()?;
    let peer = SocketAddrUnix::try_from(peer).ok()?;
    parse_descriptor_name(peer.abstract_name()?).map(|(_, number)| number)
}

/// Whether programs that are executed get it.
fn is_inheritable(fd: RawFd) -> bool {
    sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
}

/// The agent wants a connection of ours for another holder, or somebody writes to its descriptor without the library.
pub(crate) fn recalled(number: u64) {
    guard::within((), || {
        let process = process();
        let wanted = process
            .table
            .used(0, RawFd::MAX)
            .into_iter()
            .find_map(|fd| match process.get(fd)? {
                Thing::Socket(socket) if socket.is_fast(number) => Some(socket),
                _ => None,
            });
        if let Some(socket) = wanted {
            match socket.known_kind() {
                Kind::Stream => drop(socket.hand_over(Why::Asked)),
                Kind::Datagram => socket.describe_datagram(),
            }
        }
    });
}

/// Why a connection is handed over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Another holder asked.
    Asked,
    /// This process has no number for it any more.
    Closed,
    /// Another image takes this one's place, and has it.
    Executed,
    /// Somebody here uses the descriptor without the library.
    Raw,
}

impl Socket {
    /// Whether it is this connection, and ours.
    fn is_fast(&self, number: u64) -> bool {
        let state = lock(&self.state);
        state.role == Role::Engine && state.listening.is_none() && state.custody.number == number
    }

    /// No other thread asks for it, hands it over, or begins a call on its descriptor meanwhile.
    pub(super) fn alone(&self) -> MutexGuard<'_, ()> {
        lock(&self.gate)
    }

    /// A connection of ours has a descriptor with this number: for when this process dies.
    pub(super) fn begin_custody(&self, number: u64) {
        let (raw, listening) = {
            let mut state = lock(&self.state);
            state.custody = Custody::new(number);
            (state.raw.clone(), state.listening)
        };
        match (raw, listening) {
            (_, Some(listening)) => self.describe(number, &listening),
            (Some(raw), None) if self.known_kind() == Kind::Stream => raw.set_number(number),
            _ => {}
        }
    }

    /// Others that hold the descriptor are to know that it is a listener, or only has its port.
    pub(super) fn describe(&self, number: u64, listening: &Listening) {
        let (Some(link), Some(fd)) = (process().opened(), self.first_number()) else {
            return;
        };
        let v6_only = self.settings(|settings| settings.v6_only());
        let mut flags = if self.is_v6() { LISTENER_V6 } else { 0 };
        flags |= if v6_only { LISTENER_V6_ONLY } else { 0 };
        let Listening {
            local,
            backlog,
            share,
            held,
        } = *listening;
        flags |= if held { LISTENER_HELD } else { 0 };
        if let Err(error) =
            link.ual
                .describe_listener(sys::borrow(fd), number, local, backlog, share, flags)
        {
            log::info(format_args!("{local}: not for other programs: {error}"));
        }
    }

    /// It only had its port, at `local`, and is a connection from here on, under the descriptor that it has.
    pub(super) fn is_connection(&self, raw: &RawSocket, local: SocketAddr) {
        let (Some(link), Some(fd)) = (process().opened(), self.first_number()) else {
            return;
        };
        let Some(number) = number_of(fd) else { return };
        let told = link.ual.describe_connection(sys::borrow(fd), number, local);
        if let Err(error) = told {
            return log::info(format_args!("{local}: not for other programs: {error}"));
        }
        lock(&self.state).custody.number = number;
        raw.set_number(number);
    }

    /// Whether others may hold it, too.
    fn is_spread(&self) -> bool {
        lock(&self.state).custody.holders() > 0
    }

    /// Its descriptor, if it may serve another connection once this number, the last, is closed: nobody else ever had it, and no bytes went
    /// through it.
    pub(crate) fn spare(&self, fd: RawFd) -> Option<Used> {
        let state = lock(&self.state);
        let custody = &state.custody;
        let ours = state.role == Role::Engine
            && state.listening.is_none()
            && self.known_kind() == Kind::Stream
            && state.numbers == [fd];
        let alone = custody.number != 0
            && custody.holders() == 0
            && custody.unknown == 0
            && !custody.stays
            && custody.retry.is_none()
            && !custody.was_elsewhere;
        (ours && alone).then(|| Used {
            number: custody.number,
            nonblocking: self.is_nonblocking(),
            link: custody.link,
        })
    }

    /// Before its last number goes: others that hold it go on.
    pub(crate) fn before_last_close(&self, fd: RawFd) {
        let (role, last) = {
            let state = lock(&self.state);
            (state.role, state.numbers == [fd])
        };
        match role {
            _ if !last => {}
            Role::Engine | Role::Both if self.known_kind() == Kind::Datagram => {
                self.outlives(false)
            }
            // Another thread may have handed it over just now.
            Role::Engine
                if self.is_spread() && !self.hand_over(Why::Closed) && self.is_proxied() =>
            {
                self.leave_for_good();
            }
            Role::Proxied => self.leave_for_good(),
            _ => {}
        }
    }

    /// The process ends, and all its numbers go at once. Allocates nothing where nobody else may hold it.
    pub(crate) fn before_exit(&self) {
        let ours = lock(&self.state).role == Role::Engine;
        if ours && self.known_kind() == Kind::Stream && self.is_spread() {
            self.hand_over(Why::Closed);
        }
    }

    /// Others hold the descriptor, and the system would keep its entries in epoll sets.
    fn leave_for_good(&self) {
        self.items_leave_system();
        self.leave(false);
    }

    /// This process holds it no more.
    fn leave(&self, passed: bool) {
        let (number, holders) = {
            let state = lock(&self.state);
            (state.custody.number, state.custody.holders())
        };
        if let Some(link) = process().opened() {
            // When it fails the agent knows nothing of it any more.
            let _ = link.ual.leave(number, holders, passed);
        }
    }

    /// Before another image takes this one's place.
    pub(crate) fn before_exec(&self) {
        let (role, inheritable) = {
            let state = lock(&self.state);
            let inheritable = state.numbers.iter().any(|fd| is_inheritable(*fd));
            (state.role, inheritable)
        };
        match role {
            Role::Engine if inheritable && self.known_kind() == Kind::Datagram => {
                self.describe_datagram();
                self.outlives(true);
            }
            Role::Engine if inheritable => {
                self.hand_over(Why::Executed);
            }
            Role::Proxied if inheritable => {
                self.leave(true);
                // Should the call fail, it is asked for again.
                self.elsewhere.store(true, Ordering::Relaxed);
                lock(&self.state).role = Role::Inherited;
            }
            Role::Inherited if inheritable => self.ask_for_another(),
            _ => {}
        }
    }

    /// Its descriptor is passed to another process. One that is being connected cannot be handed over, so that its end is waited for;
    /// `INPROGRESS` if that takes long.
    pub(crate) fn is_passed(&self) -> Result<(), Errno> {
        if let Some(raw) = self.raw().filter(RawSocket::is_connecting) {
            let end = Instant::now() + CONNECTING;
            let connected = raw.block(Some(end), || match raw.is_connecting() && !raw.is_over() {
                true => Err(std::io::ErrorKind::WouldBlock.into()),
                false => Ok(()),
            });
            connected.map_err(|error| match error.kind() {
                std::io::ErrorKind::TimedOut => Errno::INPROGRESS,
                _ => errno(&error),
            })?;
        }
        lock(&self.state).custody.passed += 1;
        self.is_copied();
        self.describe_datagram();
        Ok(())
    }

    /// Its descriptor is used without the library from here on.
    pub(crate) fn stays(&self) {
        let role = {
            let mut state = lock(&self.state);
            state.custody.stays = true;
            state.role
        };
        match role {
            Role::Engine => {
                self.hand_over(Why::Raw);
            }
            Role::Inherited => self.contact(),
            _ => {}
        }
    }

    /// Gives the connection to the custodian. False: it is as it was.
    pub(crate) fn hand_over(&self, why: Why) -> bool {
        let _alone = self.alone();
        let (raw, number) = {
            let state = lock(&self.state);
            let ours = state.role == Role::Engine && state.listening.is_none();
            match state.raw.clone().filter(|raw| ours && !raw.is_datagram()) {
                Some(raw) if state.custody.number != 0 => (raw, state.custody.number),
                _ => return false,
            }
        };
        let Some(link) = process().opened() else {
            return false;
        };
        if raw.is_over() {
            // Its engine has gone. Another one may have given the number to another connection.
            return false;
        }
        let peer = raw.peer_address().ok();
        let left = match raw.hand_over(number, 0) {
            Ok(left) => left,
            Err(error) => {
                log::debug(format_args!(
                    "descriptor {number}: not handed over: {error}"
                ));
                return false;
            }
        };
        let (write_shut, read_shut) = (left.write_shut, left.read_shut);
        let released = self.tell_release(&link, number, left, peer, why);
        {
            let mut state = lock(&self.state);
            state.raw = None;
            state.custody.was_elsewhere = true;
            state.custody.peer = peer.or(state.custody.peer);
            state.custody.told();
            state.custody.retry = Some((Instant::now() + FIRST_WAIT, FIRST_WAIT));
            self.elsewhere.store(true, Ordering::Relaxed);
            state.role = match (released, why) {
                (false, _) => Role::Lost,
                (true, Why::Executed) => Role::Inherited,
                (true, _) => Role::Proxied,
            };
        }
        if why != Why::Closed {
            self.settle_descriptor(write_shut, read_shut);
            self.items_to_system();
        }
        released
    }

    fn tell_release(
        &self,
        link: &Link,
        number: u64,
        socket: HandedOver,
        peer: Option<SocketAddr>,
        why: Why,
    ) -> bool {
        let (holders, stays, local) = {
            let state = lock(&self.state);
            let custody = &state.custody;
            (custody.holders(), custody.stays, custody.local)
        };
        let released = Release {
            socket,
            local,
            peer,
            holders: holders + u32::from(why == Why::Executed),
            left: matches!(why, Why::Closed | Why::Executed),
            stays,
        };
        let told = link.ual.release(number, &released);
        if let Err(error) = &told {
            log::error(format_args!("descriptor {number}: lost: {error}"));
        }
        told.is_ok()
    }

    /// What was set on the connection holds for the descriptor.
    fn settle_descriptor(&self, write_shut: bool, read_shut: bool) {
        let inline = self.settings(|settings| settings.is_urgent_inline());
        let (fd, read, write) = {
            let state = lock(&self.state);
            let settings = &state.settings;
            (
                state.numbers.first().copied(),
                settings.read_timeout,
                settings.write_timeout,
            )
        };
        let Some(fd) = fd else { return };
        let fd = sys::borrow(fd);
        // A system without urgent data here has none to be in line.
        let _ = rustix::net::sockopt::set_socket_oobinline(fd, inline);
        let timeouts = [
            (rustix::net::sockopt::Timeout::Recv, read),
            (rustix::net::sockopt::Timeout::Send, write),
        ];
        for (which, time) in timeouts {
            if time.is_some() {
                let _ = rustix::net::sockopt::set_socket_timeout(fd, which, time);
            }
        }
        let how = match (write_shut, read_shut) {
            (true, true) => Shutdown::Both,
            (true, false) => Shutdown::Write,
            (false, true) => Shutdown::Read,
            (false, false) => return,
        };
        let _ = rustix::net::shutdown(fd, how);
    }
}

impl State {
    /// How a child of fork has it.
    pub(super) fn role_in_child(&self, kind: Kind) -> Role {
        match (self.role, self.listening, kind) {
            (Role::Engine, None, Kind::Stream) | (Role::Proxied, ..) => Role::Inherited,
            (Role::Engine, None, Kind::Datagram) if self.sharing.is_none() => Role::Lost,
            // The system's half is a socket as any other.
            (Role::Both, None, _) if self.sharing.is_none() => Role::Undecided,
            (role, ..) => role,
        }
    }
}

/// Whether a thing is a socket with this number.
pub(crate) fn has_number(thing: &Thing, number: u64) -> Option<Arc<Socket>> {
    match thing {
        Thing::Socket(socket) if lock(&socket.state).custody.number == number => {
            Some(Arc::clone(socket))
        }
        _ => None,
    }
}
