//! Listening sockets, and connections whose handshake is not complete.

use core::net::SocketAddrV4;

use sidecore_tcp::{Config, Connection, Instant, initial_sequence_number, timestamp_offset};
use sidecore_wire::TcpHeader;

use crate::address::Route;
use crate::config::SocketOptions;
use crate::connections::{Group, NewConnection, Owner, flag};
use crate::error::StackError;
use crate::flow::FlowKey;
use crate::host::Host;
use crate::input::Packet;
use crate::list::{List, NIL};
use crate::ports::PortTable;
use crate::stack::Stack;
use crate::{DETACHED, ListenerId, User};

/// Bytes of an IPv4 header and a TCP header without options: what the MTU is above the MSS (RFC 6691).
const HEADERS: u16 = 40;

/// One listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    generation: u32,
    pub(crate) local: SocketAddrV4,
    pub(crate) user: User,
    options: SocketOptions,
    backlog: u32,
    /// Connections in SYN-RECEIVED whose SYN-ACK was not answered, oldest first.
    unanswered: List<Group>,
    /// Connections in SYN-RECEIVED whose SYN-ACK was answered while the host had no room. Their peers think that they are
    /// connected, so none of them ever gives way to a newer SYN.
    answered: List<Group>,
    live: bool,
}

impl Listener {
    /// Connections in SYN-RECEIVED.
    pub(crate) const fn embryonic(&self) -> u32 {
        self.unanswered.len() + self.answered.len()
    }

    fn list_of(&mut self, answered: bool) -> &mut List<Group> {
        if answered {
            &mut self.answered
        } else {
            &mut self.unanswered
        }
    }
}

/// All listening sockets.
#[derive(Debug)]
pub(crate) struct Listeners {
    slots: Vec<Listener>,
    pub(crate) ports: PortTable,
    limit: usize,
    live: usize,
    /// Connections in SYN-RECEIVED, of all listeners.
    embryonic: u32,
}

impl Listeners {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            ports: PortTable::default(),
            limit: limit.min(NIL as usize),
            live: 0,
            embryonic: 0,
        }
    }

    pub(crate) fn get(&self, id: ListenerId) -> Option<&Listener> {
        let listener = self.slots.get(id.index() as usize)?;
        (listener.live && listener.generation == id.generation()).then_some(listener)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ListenerId, &Listener)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, listener)| listener.live)
            .map(|(index, l)| (ListenerId::new(index as u32, l.generation), l))
    }

    fn insert(&mut self, mut listener: Listener) -> Result<ListenerId, StackError> {
        if self.live >= self.limit {
            return Err(StackError::Full);
        }
        let index = match self.slots.iter().position(|slot| !slot.live) {
            Some(index) => {
                listener.generation = self.slots[index].generation.wrapping_add(1);
                self.slots[index] = listener;
                index
            }
            None => {
                self.slots.push(listener);
                self.slots.len() - 1
            }
        };
        self.live += 1;
        let listener = &self.slots[index];
        self.ports.insert(listener.local, index as u32);
        Ok(ListenerId::new(index as u32, listener.generation))
    }
}

impl Stack {
    /// Listens at `local`; 0.0.0.0 stands for all addresses, port 0 for one that the stack chooses (see
    /// [`listener_local`](Self::listener_local)). Up to `backlog` handshakes may be incomplete at a time.
    ///
    /// # Errors
    /// [`StackError::AddressInUse`], [`StackError::AddressNotAvailable`], [`StackError::Full`].
    pub fn listen(
        &mut self,
        local: SocketAddrV4,
        options: &SocketOptions,
        backlog: u32,
        user: User,
    ) -> Result<ListenerId, StackError> {
        let ip = *local.ip();
        if !ip.is_unspecified() && !self.addresses.is_local(ip) {
            return Err(StackError::AddressNotAvailable);
        }
        let ports = &self.listeners.ports;
        let port = match local.port() {
            0 => {
                let nobody = SocketAddrV4::new(ip, 0);
                let free = |port| !ports.conflicts(ip, port);
                let port = self.ephemeral.choose(ip, nobody, free);
                port.ok_or(StackError::AddressInUse)?
            }
            port if ports.conflicts(ip, port) => return Err(StackError::AddressInUse),
            port => port,
        };
        self.listeners.insert(Listener {
            generation: 0,
            local: SocketAddrV4::new(ip, port),
            user,
            options: options.clone(),
            backlog: backlog.max(1),
            unanswered: List::new(),
            answered: List::new(),
            live: true,
        })
    }

    /// Where a listening socket listens.
    pub fn listener_local(&self, id: ListenerId) -> Option<SocketAddrV4> {
        self.listeners.get(id).map(|listener| listener.local)
    }

    /// Stops listening. Connections whose handshake is not complete are reset; others are not touched. False if the id is
    /// stale.
    pub fn close_listener(&mut self, id: ListenerId) -> bool {
        if self.listeners.get(id).is_none() {
            return false;
        }
        let at = id.index();
        loop {
            let listener = &self.listeners.slots[at as usize];
            let Some(index) = listener.unanswered.front().or(listener.answered.front()) else {
                break;
            };
            self.leave_listener(index);
            self.connections[index].tcp.abort(self.turn);
            self.connections.detach(index);
            self.touch(index);
        }
        self.listeners.slots[at as usize].live = false;
        self.listeners.live -= 1;
        self.listeners.ports.remove(at);
        true
    }

    /// Takes a connection out of its listener's SYN queue; returns the listener's user.
    pub(crate) fn leave_listener(&mut self, index: u32) -> Option<User> {
        let slot = &mut self.connections[index];
        debug_assert_eq!(slot.owner, Owner::Listener);
        let at = core::mem::replace(&mut slot.listener, NIL);
        let answered = slot.has(flag::ANSWERED);
        slot.flags &= !flag::ANSWERED;
        let listener = self.listeners.slots.get_mut(at as usize)?;
        let list = listener.list_of(answered);
        list.remove(self.connections.slots(), index);
        self.listeners.embryonic -= 1;
        Some(listener.user)
    }

    /// A segment came for a connection in SYN-RECEIVED. False if it would complete the handshake and the host has no room
    /// for the connection: then it must be dropped as if it had been lost (as Linux does; a reset would punish a client for
    /// coming in a crowd).
    #[cold]
    pub(crate) fn may_establish<H: Host>(
        &mut self,
        index: u32,
        header: &TcpHeader,
        host: &mut H,
    ) -> bool {
        let slot = &mut self.connections[index];
        if !slot.tcp.is_answered_by(header) {
            return true;
        }
        let at = slot.listener as usize;
        let Some(listener) = self.listeners.slots.get_mut(at) else {
            return true;
        };
        if host.can_accept(listener.user) {
            return true;
        }
        self.counters.accept_queue_full += 1;
        if !slot.has(flag::ANSWERED) {
            slot.flags |= flag::ANSWERED;
            let slots = self.connections.slots();
            listener.unanswered.remove(slots, index);
            listener.answered.push_back(slots, index);
        }
        false
    }

    /// A SYN for which there is no connection; false if nobody listens for it.
    pub(crate) fn syn_arrives<H: Host>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> bool {
        let Some(at) = self.listeners.ports.find(packet.dst, header.dst_port) else {
            return false;
        };
        if header.src_port == 0 {
            self.counters.syn_dropped += 1;
            return true;
        }
        if !host.can_accept(self.listeners.slots[at as usize].user) {
            // It could not be let in when its handshake is complete; the peer asks again.
            self.counters.syn_accept_queue_full += 1;
            return true;
        }
        if !self.make_syn_room(at) {
            return true;
        }
        let local = SocketAddrV4::new(packet.dst, header.dst_port);
        let remote = SocketAddrV4::new(packet.src, header.src_port);
        let next_hop = match self.addresses.route(packet.src) {
            Some(Route::Local) => None,
            Some(Route::Link(next_hop)) => Some(next_hop),
            Some(Route::Broadcast) | None => {
                self.counters.syn_dropped += 1;
                return true;
            }
        };
        let options = self.listeners.slots[at as usize].options.clone();
        let config = self.tcp_config(&options, local, remote, next_hop.is_none());
        let iss = initial_sequence_number(&self.keys.sequence, now, local, remote);
        let mut tcp = Connection::accept(now, &config, iss, header);
        tcp.set_receive_limit(u64::from(options.receive_window));
        let inserted = self.connections.insert(NewConnection {
            key: FlowKey::new(local, remote),
            owner: Owner::Listener,
            user: DETACHED,
            irs: header.seq,
            next_hop,
            listener: at,
            tcp,
        });
        if let Some(index) = inserted {
            let listener = &mut self.listeners.slots[at as usize];
            listener
                .unanswered
                .push_back(self.connections.slots(), index);
            self.listeners.embryonic += 1;
            self.counters.passive_opens += 1;
            self.touch(index);
        }
        true
    }

    /// Makes room for one more connection in SYN-RECEIVED: the listener's oldest that was not answered gives way. In a flood
    /// of SYNs that is the one least likely to be answered.
    fn make_syn_room(&mut self, at: u32) -> bool {
        let listener = &self.listeners.slots[at as usize];
        let total_reached = self.listeners.embryonic >= self.config.syn_backlog_total;
        if listener.embryonic() >= listener.backlog || total_reached {
            let Some(oldest) = listener.unanswered.front() else {
                self.counters.syn_dropped += 1;
                return false;
            };
            self.counters.syn_evicted += 1;
            self.leave_listener(oldest);
            self.connections.detach(oldest);
            self.free(oldest);
        }
        let room = self.make_room();
        self.counters.syn_dropped += u64::from(!room);
        room
    }

    /// What a connection is set up with.
    pub(crate) fn tcp_config(
        &self,
        options: &SocketOptions,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        loopback: bool,
    ) -> Config {
        let mtu = if loopback {
            self.config.loopback_mtu
        } else {
            self.config.mtu
        };
        let mut config = self.config.tcp.clone();
        let largest = mtu.saturating_sub(HEADERS);
        config.mss = options.mss.unwrap_or(largest).min(largest);
        config.timestamp_offset = timestamp_offset(&self.keys.sequence, local, remote);
        config.no_delay = options.no_delay.unwrap_or(config.no_delay);
        config.keepalive = options.keepalive.or(config.keepalive);
        config.user_timeout = options.user_timeout.or(config.user_timeout);
        config.congestion = options.congestion.unwrap_or(config.congestion);
        config
    }

    /// Whether a connection could be started anew in place of this one: in TIME-WAIT on this side for more than a second
    /// (Linux: tcp_tw_reuse), with timestamps that let the peer tell new from old (RFC 6191).
    pub(crate) fn may_reuse(&self, now: Instant, index: u32) -> bool {
        let slot = &self.connections[index];
        let info = slot.tcp.info();
        slot.owner == Owner::Stack
            && slot.has(flag::TIME_WAIT)
            && info.timestamps
            && now.duration_since(info.last_received) >= core::time::Duration::from_secs(1)
    }
}
