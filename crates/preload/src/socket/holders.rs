//! UDP sockets of the engine that several processes hold: each opens the socket in its own UAL, by a key that goes with the descriptor. The
//! engine gives a datagram to one of those that receive.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use sidecore_client::abi::agent::{LISTENER_V6, LISTENER_V6_ONLY};
use sidecore_client::abi::command::REUSE_PORT_KEY;
use sidecore_client::{Opt, RawSocket};

use super::custody::number_of;
use super::{Role, Route, Socket};
use crate::errors::told;
use crate::process::{Link, process};
use crate::table::lock;
use crate::{log, sys};

/// How others open a UDP socket that this process has.
#[derive(Clone, Copy)]
pub(super) struct Sharing {
    /// Where it is bound, or was to be.
    local: SocketAddr,
    /// Known to those who inherited it, or were told.
    key: u64,
    /// The agent knows of it, too: those can ask that have nothing but the descriptor.
    described: bool,
}

impl Socket {
    /// A UDP socket at the engine, as others may open it once more; or the one that this process inherited.
    pub(super) fn open_shared(
        &self,
        link: &Link,
        local: SocketAddr,
        options: &[(Opt, u64)],
    ) -> std::io::Result<RawSocket> {
        let known = lock(&self.state).sharing.map(|sharing| sharing.key);
        let key = known.unwrap_or_else(|| sys::random().max(REUSE_PORT_KEY + 1));
        let raw = RawSocket::shared_datagram(&link.sockets, local, options, key)?;
        lock(&self.state).sharing = Some(Sharing {
            local,
            key,
            described: false,
        });
        Ok(raw)
    }

    /// In a child, or wherever else it came, a UDP socket is opened once more when it is first used.
    pub(super) fn open_again(&self) -> Route {
        match self.try_open_again() {
            Ok(raw) => {
                process().listens();
                let both = lock(&self.state).role == Role::Both;
                self.attach_items();
                match both {
                    true => Route::Both(raw),
                    false => Route::Engine(raw),
                }
            }
            Err(error) => {
                log::error(format_args!(
                    "a UDP socket that was inherited cannot be used at the engine: {error}"
                ));
                let mut state = lock(&self.state);
                state.sharing = None;
                if state.role == Role::Both {
                    // The system's half goes on.
                    state.role = Role::Undecided;
                    return Route::Kernel;
                }
                state.role = Role::Lost;
                Route::Nowhere
            }
        }
    }

    fn try_open_again(&self) -> Result<RawSocket, Errno> {
        // Of threads that come at the same time one opens it.
        let _alone = self.alone();
        let (sharing, peer, options) = {
            let state = lock(&self.state);
            if let Some(raw) = &state.raw {
                return Ok(raw.clone());
            }
            let sharing = state.sharing.ok_or(Errno::NOTCONN)?;
            let options = state.settings.before(self.is_v6(), sharing.local);
            (sharing, state.custody.peer, options)
        };
        let link = process().link().ok_or(Errno::NETDOWN)?;
        let raw = told(self.open_shared(&link, sharing.local, &options))?;
        if let Some(peer) = peer {
            told(raw.connect_datagram(Some(peer)))?;
        }
        raw.settle();
        log::debug(format_args!("once more at {}", sharing.local));
        let mut state = lock(&self.state);
        if let Some(now) = &mut state.sharing {
            now.described = sharing.described;
        }
        state.raw = Some(raw.clone());
        Ok(raw)
    }

    /// Others that have nothing but the descriptor are to know what it stands for.
    pub(crate) fn describe_datagram(&self) {
        let (fd, sharing, peer) = {
            let state = lock(&self.state);
            let Some(sharing) = state.sharing.filter(|_| state.role == Role::Engine) else {
                return;
            };
            let peer = state.raw.as_ref().and_then(|raw| raw.peer_address().ok());
            (
                state.numbers.first().copied(),
                sharing,
                peer.or(state.custody.peer),
            )
        };
        if let Some(raw) = self.raw() {
            raw.settle();
        }
        let Some(fd) = fd.filter(|_| !sharing.described) else {
            return;
        };
        let (Some(number), Some(link)) = (number_of(fd), process().link()) else {
            return;
        };
        let v6_only = self.settings(|settings| settings.v6_only());
        let mut flags = if self.is_v6() { LISTENER_V6 } else { 0 };
        flags |= if v6_only { LISTENER_V6_ONLY } else { 0 };
        let addresses = (sharing.local, peer);
        let (ual, key) = (&link.ual, sharing.key);
        match ual.describe_datagram(sys::borrow(fd), number, addresses, key, flags) {
            Ok(()) => {
                if let Some(sharing) = &mut lock(&self.state).sharing {
                    sharing.described = true;
                }
            }
            Err(error) => log::info(format_args!("not for other programs: {error}")),
        }
    }

    /// What was told of a UDP socket's peer, or was known of it before a fork, holds no more.
    pub(super) fn has_another_peer(&self) {
        let mut state = lock(&self.state);
        state.custody.peer = None;
        if let Some(sharing) = &mut state.sharing {
            sharing.described = false;
        }
    }

    /// What the agent says of a descriptor: it is a UDP socket.
    pub(super) fn is_datagram(
        &self,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        key: u64,
        flags: u32,
    ) {
        self.datagram.store(true, Ordering::Relaxed);
        {
            let mut state = lock(&self.state);
            state.role = Role::Engine;
            state.bound = Some(local);
            state.custody.peer = peer;
            state.sharing = Some(Sharing {
                local,
                key,
                described: true,
            });
        }
        if flags & LISTENER_V6 != 0 {
            self.learn_family(Some((Ipv6Addr::UNSPECIFIED, 0).into()));
        }
        if flags & LISTENER_V6_ONLY != 0 {
            self.settings(|settings| settings.set_v6_only());
        }
    }

    /// Before this process lets go of a UDP socket that others may have and have not opened; or surely have.
    pub(super) fn outlives(&self, surely: bool) {
        let raw = {
            let state = lock(&self.state);
            let spread = surely || state.custody.holders() > 0;
            state.raw.clone().filter(|_| spread)
        };
        if let Some(raw) = raw.filter(RawSocket::is_datagram) {
            raw.is_outlived();
        }
    }
}
