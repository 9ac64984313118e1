//! What the caller asks of TCP connections.

use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::time::Duration;

use sidecore_tcp::{CloseReason, Connection, Instant, State};
use sidecore_wire::SeqNumber;

use crate::address::Route;
use crate::config::{SocketOption, SocketOptions};
use crate::connections::{Endpoints, NewConnection, Owner, flag};
use crate::error::StackError;
use crate::flow::FlowKey;
use crate::list::NIL;
use crate::marking::Marking;
use crate::stack::Stack;
use crate::{ConnId, User};

/// The lesser of two bounds, where there are any.
pub(crate) fn lesser(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

impl Stack {
    /// Opens a connection to `remote`; [`connected`](crate::Host::connected) or [`closed`](crate::Host::closed) follows.
    ///
    /// `local` may leave address (0.0.0.0, or `::` for IPv6) and port (0) open, and is of the family of `remote`; `None` leaves both. The port is then chosen as in RFC 6056
    /// section 3.3.4. Until more is granted by [`set_receive_limit`](Self::set_receive_limit), there are
    /// [`SocketOptions::receive_window`] bytes of receive buffer.
    ///
    /// # Errors
    /// [`StackError::InvalidAddress`], [`StackError::AddressNotAvailable`], [`StackError::Unreachable`],
    /// [`StackError::AddressInUse`] (also if no ephemeral port is free), [`StackError::Full`].
    pub fn connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: impl Into<SocketAddr>,
        options: &SocketOptions,
        user: User,
    ) -> Result<ConnId, StackError> {
        let remote = remote.into();
        let (ip, port) = (remote.ip().to_canonical(), remote.port());
        let local = local.map(|local| (local.ip().to_canonical(), local.port()));
        match ip {
            IpAddr::V4(ip) => {
                let local = match local {
                    None => None,
                    Some((IpAddr::V4(ip), port)) => Some(SocketAddrV4::new(ip, port)),
                    // A socket that was bound to :: goes both ways, as with Linux.
                    Some((IpAddr::V6(ip), port)) if ip.is_unspecified() => {
                        Some(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))
                    }
                    Some(_) => return Err(StackError::InvalidAddress),
                };
                self.connect4(now, local, SocketAddrV4::new(ip, port), options, user)
            }
            IpAddr::V6(ip) => {
                let local = match local {
                    None => None,
                    Some((IpAddr::V6(ip), port)) => Some(SocketAddrV6::new(ip, port, 0, 0)),
                    Some(_) => return Err(StackError::InvalidAddress),
                };
                let remote = SocketAddrV6::new(ip, port, 0, 0);
                self.connect6(now, local, remote, options, user)
            }
        }
    }

    fn connect4(
        &mut self,
        now: Instant,
        local: Option<SocketAddrV4>,
        remote: SocketAddrV4,
        options: &SocketOptions,
        user: User,
    ) -> Result<ConnId, StackError> {
        // A destination of 0.0.0.0 means this host, as with Linux.
        let remote = match *remote.ip() {
            ip if ip.is_unspecified() => SocketAddrV4::new(Ipv4Addr::LOCALHOST, remote.port()),
            _ => remote,
        };
        if remote.port() == 0 {
            return Err(StackError::InvalidAddress);
        }
        let next_hop = match self.addresses.route(*remote.ip()) {
            Some(Route::Local) => None,
            Some(Route::Link(next_hop)) => Some(next_hop),
            Some(Route::Broadcast | Route::Group) => return Err(StackError::InvalidAddress),
            None if self.addresses.is_unicast(*remote.ip()) => return Err(StackError::Unreachable),
            None => return Err(StackError::InvalidAddress),
        };
        let local = self.local_for_connect(now, local, remote, next_hop.is_none())?;
        if !self.make_room() {
            return Err(StackError::Full);
        }
        let config = self.tcp_config(options, local.into(), remote.into(), next_hop.is_none());
        let iss = self.initial_sequence(now, local.into(), remote.into());
        let mut tcp = Connection::connect(now, &config, iss);
        tcp.set_receive_limit(u64::from(options.receive_window));
        if options.fast_open {
            self.begin_fast_open(now, &mut tcp, local.into(), remote.into());
        }
        let inserted = self.connections.insert(NewConnection {
            endpoints: Endpoints::V4(FlowKey::new(local, remote), next_hop),
            owner: Owner::Host,
            user,
            irs: SeqNumber(0),
            listener: NIL,
            marking: Marking::of(options),
            tcp,
        });
        let index = inserted.ok_or(StackError::Full)?;
        self.counters.active_opens += 1;
        self.touch(index);
        Ok(self.connections.id(index))
    }

    /// The local address of an active open. A connection in TIME-WAIT that it replaces is forgotten.
    fn local_for_connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddrV4>,
        remote: SocketAddrV4,
        loopback: bool,
    ) -> Result<SocketAddrV4, StackError> {
        let local = local.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let ip = match *local.ip() {
            ip if ip.is_unspecified() => self.addresses.source_for(*remote.ip()),
            // 127/8 is of use within the stack only.
            ip if self.addresses.is_configured(ip) || (loopback && ip.is_loopback()) => Some(ip),
            _ => None,
        };
        let ip = ip.ok_or(StackError::AddressNotAvailable)?;
        let local = if local.port() == 0 {
            let port = self.ephemeral_port(now, ip, remote);
            SocketAddrV4::new(ip, port.ok_or(StackError::AddressInUse)?)
        } else {
            SocketAddrV4::new(ip, local.port())
        };
        if let Some(index) = self.connections.find(&FlowKey::new(local, remote)) {
            if !self.may_reuse(now, index) {
                return Err(StackError::AddressInUse);
            }
            self.counters.time_wait_reused += 1;
            self.note_predecessor(index);
            self.free(index);
        }
        if local == remote {
            // A connection to itself: RFC 9293 allows it, nobody wants it.
            return Err(StackError::AddressInUse);
        }
        Ok(local)
    }

    /// A port that no listener has and no connection to `remote`; if there is none, one of a connection in TIME-WAIT that
    /// may be replaced.
    fn ephemeral_port(&mut self, now: Instant, ip: Ipv4Addr, remote: SocketAddrV4) -> Option<u16> {
        let mut ports = core::mem::replace(
            &mut self.ephemeral,
            crate::ports::EphemeralPorts::none(self.keys.ports),
        );
        let bound = |stack: &Self, port| {
            let itself = SocketAddrV4::new(ip, port) == remote;
            itself || stack.listeners.ports.find(ip, port).is_some()
        };
        let occupant = |stack: &Self, port| {
            let key = FlowKey::new(SocketAddrV4::new(ip, port), remote);
            stack.connections.find(&key)
        };
        let unused = |port| !bound(self, port) && occupant(self, port).is_none();
        let mut port = ports.choose(ip, remote, unused);
        if port.is_none() {
            port = ports.choose(ip, remote, |port| {
                let replaceable = |index| self.may_reuse(now, index);
                !bound(self, port) && occupant(self, port).is_none_or(replaceable)
            });
        }
        self.ephemeral = ports;
        port
    }

    /// A connection's control block; `None` if the id is stale.
    pub fn connection(&self, id: ConnId) -> Option<&Connection> {
        self.connections
            .resolve(id)
            .map(|index| &self.connections[index].tcp)
    }

    /// A connection's local and remote address; `None` if the id is stale.
    pub fn addresses(&self, id: ConnId) -> Option<(SocketAddr, SocketAddr)> {
        Some(self.connections.addresses(self.connections.resolve(id)?))
    }

    /// To whom a connection belongs; `None` if the id is stale.
    pub fn user(&self, id: ConnId) -> Option<User> {
        Some(self.connections[self.connections.resolve(id)?].user)
    }

    /// Gives a connection to another user. False if the id is stale.
    pub fn set_user(&mut self, id: ConnId, user: User) -> bool {
        let Some(index) = self.connections.resolve(id) else {
            return false;
        };
        self.connections[index].user = user;
        true
    }

    /// The connection that an id names, if the host has not closed it.
    #[inline]
    fn open(&self, id: ConnId) -> Option<u32> {
        let index = self.connections.resolve(id)?;
        (self.connections[index].owner == Owner::Host).then_some(index)
    }

    /// The host has bytes to send up to stream offset `end`, and is about to have more if `more` (MSG_MORE): then a final
    /// partial segment is held back for up to 200 ms. The bytes must stay as they are until
    /// [`acknowledged`](crate::Host::acknowledged). False if the id is stale or the connection closed.
    #[inline]
    pub fn set_send_limit(&mut self, id: ConnId, end: u64, more: bool) -> bool {
        let Some(index) = self.open(id) else {
            return false;
        };
        let tcp = &mut self.connections[index].tcp;
        tcp.set_push(more);
        tcp.set_send_limit(end);
        self.touch(index);
        true
    }

    /// [`set_send_limit`](Self::set_send_limit) and [`set_receive_limit`](Self::set_receive_limit) with one look-up, for a host that says
    /// both once a turn. `right_edge` is shown the connection and gives the receive limit, or `None` if that has not changed.
    #[inline]
    pub fn set_limits(
        &mut self,
        id: ConnId,
        end: u64,
        more: bool,
        right_edge: impl FnOnce(&Connection) -> Option<u64>,
    ) -> bool {
        let Some(index) = self.open(id) else {
            return false;
        };
        let tcp = &mut self.connections[index].tcp;
        tcp.set_push(more);
        tcp.set_send_limit(end);
        if let Some(right_edge) = right_edge(tcp) {
            tcp.set_receive_limit(right_edge);
        }
        self.touch_if_due(index);
        true
    }

    /// The host has receive buffer up to stream offset `right_edge`. What was promised to the peer stays promised: a lower
    /// edge than before changes nothing. False if the id is stale or the connection closed.
    #[inline]
    pub fn set_receive_limit(&mut self, id: ConnId, right_edge: u64) -> bool {
        let Some(index) = self.open(id) else {
            return false;
        };
        let slot = &mut self.connections[index];
        slot.tcp.set_receive_limit(right_edge);
        if !slot.has(flag::QUEUED) && slot.tcp.wants_transmit() {
            // The window has opened so far that the peer is to hear of it.
            self.touch(index);
        }
        true
    }

    /// The bytes up to stream offset `end`, which [`set_send_limit`](Self::set_send_limit) has named or will name in this turn, are urgent
    /// (RFC 9293 section 3.8.5). See [`Connection::set_urgent`]. False if the id is stale or the connection closed.
    pub fn set_urgent(&mut self, id: ConnId, end: u64) -> bool {
        let Some(index) = self.open(id) else {
            return false;
        };
        self.connections[index].tcp.set_urgent(end);
        self.touch(index);
        true
    }

    /// Sets an option. False if the id is stale, the connection closed, or the option one that cannot be changed.
    pub fn set_option(&mut self, id: ConnId, option: SocketOption) -> bool {
        let Some(index) = self.open(id) else {
            return false;
        };
        let default = &self.config.tcp;
        let delayed_ack = default.delayed_ack;
        let slot = &mut self.connections[index];
        let tcp = &mut slot.tcp;
        match option {
            SocketOption::NoDelay(no_delay) => tcp.set_no_delay(no_delay),
            SocketOption::Cork(cork) => tcp.set_cork(cork),
            SocketOption::QuickAck(true) => tcp.set_delayed_ack(Duration::ZERO),
            SocketOption::QuickAck(false) => tcp.set_delayed_ack(delayed_ack),
            SocketOption::Keepalive(keepalive) => tcp.set_keepalive(keepalive),
            SocketOption::UserTimeout(timeout) => tcp.set_user_timeout(timeout),
            SocketOption::MaxSegment(mss) => return tcp.limit_mss(mss),
            SocketOption::SynRetries(retries) => {
                tcp.set_syn_retries(retries.unwrap_or(default.syn_retries));
            }
            SocketOption::FinWait2(timeout) => {
                tcp.set_fin_wait_2_timeout(timeout.unwrap_or(default.fin_wait_2_timeout));
            }
            SocketOption::MaxPacingRate(rate) => {
                tcp.set_max_pacing_rate(lesser(rate, default.max_pacing_rate));
            }
            SocketOption::TrafficClass(class) => slot.marking.set_class(class),
            SocketOption::HopLimit(limit) => slot.marking.hop_limit = limit,
            SocketOption::Congestion(_)
            | SocketOption::Ecn(_)
            | SocketOption::DeferAccept(_)
            | SocketOption::FastOpenQueue(_)
            | SocketOption::V6Only(_)
            | SocketOption::ReuseAddress(_)
            | SocketOption::MulticastHops(_)
            | SocketOption::MulticastLoop(_)
            | SocketOption::MulticastSource(_)
            | SocketOption::MtuDiscovery(_) => return false,
        }
        slot.note_marking();
        // Most say nothing about what goes out now.
        self.touch_if_due(index);
        true
    }

    /// Ends the stream after what [`set_send_limit`](Self::set_send_limit) named; receiving goes on. False if the id is
    /// stale or the connection closed.
    pub fn shutdown_send(&mut self, id: ConnId) -> bool {
        let Some(index) = self.open(id) else {
            return false;
        };
        self.connections[index].tcp.shutdown_send();
        self.touch(index);
        true
    }

    /// The host is done with the connection. What it wrote still goes out, then a FIN; what the peer still sends is answered
    /// with a reset. The host is still asked for the bytes, and told what is acknowledged, until
    /// [`closed`](crate::Host::closed). False if the id is stale or the connection closed.
    pub fn close(&mut self, id: ConnId) -> bool {
        let Some(index) = self.open(id) else {
            return false;
        };
        let slot = &mut self.connections[index];
        slot.tcp.close();
        slot.owner = Owner::Closed;
        self.touch(index);
        true
    }

    /// Ends the connection at once, with a reset if there is a peer. The id is dead, and the host is asked and told nothing
    /// more. False if the id is stale.
    pub fn abort(&mut self, id: ConnId) -> bool {
        let Some(index) = self.connections.resolve(id) else {
            return false;
        };
        let slot = &mut self.connections[index];
        if !matches!(slot.owner, Owner::Host | Owner::Closed) {
            return false;
        }
        let already_over = slot.has(flag::FINISHED) || slot.tcp.state() == State::TimeWait;
        let early = slot.listener != NIL;
        if !already_over {
            slot.tcp.abort(self.turn);
            self.counters.connections_ended += 1;
        }
        if early {
            self.fast_open_ended(index, CloseReason::Aborted);
        }
        self.connections.detach(index);
        self.touch(index);
        true
    }
}
