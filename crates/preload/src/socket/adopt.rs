//! Getting for ourselves what was inherited, or is with the custodian.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use sidecore_client::RawSocket;
use sidecore_client::abi::agent::{LISTENER_HELD, LISTENER_V6, LISTENER_V6_ONLY};
use sidecore_client::custody::Adopted;

use super::custody::{DescriptorCall, FIRST_WAIT, Why, number_of};
use super::{Kind, Listening, Role, Socket};
use crate::config::Config;
use crate::process::{Link, process};
use crate::table::lock;
use crate::{log, sys};

/// After a connection was not to be had it is asked for again some time later, each time twice as much as before, up to this.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// How long the addresses of a connection that was asked for are waited for.
const ADDRESSES: Duration = Duration::from_secs(1);

/// Numbers that stdio uses.
const STDIO: RawFd = 2;

/// Room for what is left in a descriptor.
const PIECE: usize = 64 << 10;

/// What is in a descriptor now.
fn rest_of(fd: RawFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; PIECE];
    let flags = rustix::net::RecvFlags::DONTWAIT;
    loop {
        match rustix::net::recv(sys::borrow(fd), &mut piece[..], flags) {
            Ok((n, _)) if n > 0 => bytes.extend_from_slice(&piece[..n]),
            Err(rustix::io::Errno::INTR) => {}
            _ => return bytes,
        }
    }
}

/// Whether urgent data is in a descriptor, which no other place would hold.
fn has_urgent(fd: RawFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(sys::borrow(fd), PollFlags::PRI)];
    let now = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::PRI)
}

/// Whether the agent has said so, and not the system.
fn refused(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as K;
    error.raw_os_error().is_none() && matches!(error.kind(), K::NotConnected | K::PermissionDenied)
}

impl Socket {
    /// Asks for what was inherited, or is with the custodian. What comes of it is the role.
    pub(super) fn contact(&self) {
        let _alone = self.alone();
        if self.descriptor_calls.load(Ordering::Acquire) > 0 {
            // Somebody is in a call on the descriptor, and would never hear.
            return;
        }
        let (role, fd, stays) = {
            let state = lock(&self.state);
            let urgent = state.numbers.first().is_some_and(|fd| has_urgent(*fd));
            let stays =
                state.custody.stays || urgent || state.numbers.iter().any(|fd| *fd <= STDIO);
            (state.role, state.numbers.first().copied(), stays)
        };
        let Some(fd) = fd.filter(|_| matches!(role, Role::Inherited | Role::Proxied)) else {
            return;
        };
        let process = process();
        let Some(number) = number_of(fd) else {
            return self.is_lost();
        };
        let Some(link) = process.link() else {
            return self.ask_without_ual(fd, number);
        };
        let unknown = {
            let mut state = lock(&self.state);
            state.custody.number = number;
            state.custody.was_elsewhere = true;
            state.custody.unknown + state.custody.holders()
        };
        self.unknown.store(false, Ordering::Relaxed);
        match link.ual.adopt(sys::borrow(fd), number, unknown, stays) {
            Ok(adopted) => {
                lock(&self.state).custody.told();
                self.adopted(&link, fd, number, adopted);
            }
            Err(error) => {
                log::debug(format_args!("descriptor {number}: {error}"));
                self.is_lost();
            }
        }
    }

    /// An image that may not have the library is about to have the descriptor: whoever has the connection is asked for it now.
    pub(super) fn ask_for_another(&self) {
        if let Some(fd) = self.first_number()
            && let Some(number) = number_of(fd)
        {
            let path = &Config::get().socket;
            // If it cannot be asked for, the image finds out.
            let _ = sidecore_client::custody::ask_without_ual(path, sys::borrow(fd), number);
        }
    }

    /// There are as many UALs as may be, perhaps: bytes can flow all the same.
    fn ask_without_ual(&self, fd: RawFd, number: u64) {
        let path = &Config::get().socket;
        match sidecore_client::custody::ask_without_ual(path, sys::borrow(fd), number) {
            Ok(Adopted::Shared { local, peer }) => self.is_shared(local, peer),
            Ok(_) => self.is_lost(),
            Err(error) if refused(&error) => self.is_lost(),
            // The agent cannot be reached from here, after chroot for one: whoever has the connection is asked when something is written.
            Err(_) => self.is_shared(None, None),
        }
    }

    /// Asks for what was inherited, and listens once more if it is a listener, before this process cannot any more.
    pub(crate) fn ask_now(&self) {
        let role = lock(&self.state).role;
        if role == Role::Inherited {
            self.contact();
        }
        // A listener is opened by that.
        drop(self.route());
    }

    /// Whether only the library can serve it: a listener of the engine's, or a UDP socket.
    pub(crate) fn needs_library(&self) -> bool {
        let state = lock(&self.state);
        match state.role {
            Role::Both => true,
            Role::Engine => state.listening.is_some() || self.known_kind() == Kind::Datagram,
            _ => false,
        }
    }

    /// Lets the bytes go through the descriptor from here on. Whether they do, or there are none.
    pub(crate) fn goes_to_descriptor(&self) -> bool {
        let (role, fd) = {
            let state = lock(&self.state);
            (state.role, state.numbers.first().copied())
        };
        match role {
            Role::Engine => self.hand_over(Why::Raw),
            Role::Inherited => {
                if let Some(fd) = fd
                    && let Some(number) = number_of(fd)
                {
                    self.ask_without_ual(fd, number);
                }
                true
            }
            _ => true,
        }
    }

    /// Its bytes go through the descriptor for now.
    fn is_shared(&self, local: Option<SocketAddr>, peer: Option<SocketAddr>) {
        let mut state = lock(&self.state);
        let wait = match state.custody.retry {
            Some((_, wait)) => (wait * 2).min(LAST_WAIT),
            None => FIRST_WAIT,
        };
        state.custody.retry = Some((Instant::now() + wait, wait));
        state.custody.local = local.or(state.custody.local);
        state.custody.peer = peer.or(state.custody.peer);
        state.role = Role::Proxied;
        drop(state);
        self.learn_family(local);
    }

    fn is_lost(&self) {
        log::info("a connection that was inherited cannot be used here");
        lock(&self.state).role = Role::Lost;
    }

    fn adopted(&self, link: &Link, fd: RawFd, number: u64, adopted: Adopted) {
        match adopted {
            Adopted::Yours {
                from, bytes, peer, ..
            } => {
                let mut before = rest_of(fd);
                before.extend(bytes);
                match link.sockets.take_over(from, number, before) {
                    Ok(raw) => self.is_ours(raw, number, peer),
                    Err(error) => {
                        log::error(format_args!("descriptor {number}: lost: {error}"));
                        self.is_lost();
                    }
                }
            }
            Adopted::Shared { local, peer } => {
                self.is_shared(local, peer);
            }
            Adopted::Datagram {
                address,
                peer,
                key,
                flags,
            } => self.is_datagram(address, peer, key, flags),
            Adopted::Listener {
                address,
                backlog,
                share,
                flags,
            } => {
                let mut state = lock(&self.state);
                let held = flags & LISTENER_HELD != 0;
                state.role = Role::Engine;
                state.bound = held.then_some(address).or(state.bound);
                state.listening = Some(Listening {
                    local: address,
                    backlog,
                    share,
                    held,
                });
                drop(state);
                if flags & LISTENER_V6 != 0 {
                    self.learn_family(Some((std::net::Ipv6Addr::UNSPECIFIED, 0).into()));
                }
                if flags & LISTENER_V6_ONLY != 0 {
                    self.settings(|settings| settings.set_v6_only());
                }
            }
        }
    }

    /// The connection is this process's alone.
    fn is_ours(&self, raw: RawSocket, number: u64, peer: Option<SocketAddr>) {
        raw.set_number(number);
        self.dress(&raw);
        // What was set while it was not here is in force, but for these.
        let options = std::mem::take(&mut lock(&self.state).custody.unset);
        for (option, value) in options {
            raw.set_option(option, value);
        }
        {
            let mut state = lock(&self.state);
            state.role = Role::Engine;
            state.raw = Some(raw);
            state.connected = true;
            state.custody.retry = None;
        }
        self.learn_family(peer);
        self.items_from_system();
        self.wake_pollers();
        log::debug(format_args!("descriptor {number}: fast"));
    }

    /// Local and peer's address of a connection that is not here. Who was just asked for it tells them soon.
    pub(super) fn learn_addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let begun = Instant::now();
        loop {
            let (local, peer, proxied) = {
                let state = lock(&self.state);
                let proxied = state.role == Role::Proxied;
                (state.custody.local, state.custody.peer, proxied)
            };
            let known = local.is_some() && peer.is_some();
            if known || !proxied || begun.elapsed() >= ADDRESSES {
                return (local, peer);
            }
            std::thread::sleep(FIRST_WAIT / 4);
            self.contact();
            if let Some(raw) = self.raw() {
                return (raw.local_address().ok(), raw.peer_address().ok());
            }
        }
    }

    /// Whether the connection may be with the custodian: false for all that are fast.
    #[inline]
    pub(crate) fn may_be_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::Relaxed)
    }

    /// Before a call that moves bytes: gets the connection if it may be had. While it is not here the call is the system's, on the
    /// descriptor, as long as the answer lives.
    pub(crate) fn descriptor_call(self: &Arc<Self>) -> Option<DescriptorCall> {
        self.look_again();
        let _alone = self.alone();
        if lock(&self.state).role != Role::Proxied {
            return None;
        }
        self.descriptor_calls.fetch_add(1, Ordering::Acquire);
        Some(DescriptorCall(Arc::clone(self)))
    }

    /// Asks for a connection that is not here, if it is time to.
    pub(super) fn look_again(&self) {
        let (role, due) = {
            let state = lock(&self.state);
            let due = state
                .custody
                .retry
                .is_none_or(|(at, _)| at <= Instant::now());
            (state.role, due && !state.custody.stays)
        };
        if role == Role::Inherited || role == Role::Proxied && due {
            self.contact();
        }
        let state = lock(&self.state);
        if !matches!(state.role, Role::Inherited | Role::Proxied) {
            // With the role looked at: it may be handed over at any time.
            self.elsewhere.store(false, Ordering::Relaxed);
        }
    }
}
