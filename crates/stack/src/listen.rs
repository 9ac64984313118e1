//! Listening sockets, and connections whose handshake is not complete.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use sidecore_tcp::{Config, Connection, Instant};
use sidecore_wire::{TcpFlags, TcpHeader, ipv6};

use crate::address::Route;
use crate::config::{SocketOption, SocketOptions};
use crate::connections::{Endpoints, Group, NewConnection, Owner, flag};
use crate::control::Link;
use crate::error::StackError;
use crate::fast_open::{self, Pending};
use crate::flow::FlowKey;
use crate::host::Host;
use crate::input::Packet;
use crate::list::{List, NIL};
use crate::marking::Marking;
use crate::path_mtu::By;
use crate::ports::{EphemeralPorts, PortTable};
use crate::segment::Payload;
use crate::socket::lesser;
use crate::stack::Stack;
use crate::{DETACHED, ListenerId, User};

/// Bytes of an IPv4 header and a TCP header without options: what the MTU is above the MSS (RFC 6691).
const HEADERS: u16 = 40;
/// All options that a TCP header has room for.
const OPTIONS_MAX: u16 = 40;
/// The same of IPv6 (RFC 8200 section 8.3).
const HEADERS_V6: u16 = 60;
/// The MSS of a peer that announces none (RFC 9293 section 3.7.1, MUST-15): what the least MTU of either version leaves.
const DEFAULT_MSS: u16 = 576 - HEADERS;
const DEFAULT_MSS_V6: u16 = 1280 - HEADERS_V6;

/// One listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    generation: u32,
    pub(crate) local: SocketAddr,
    pub(crate) user: User,
    pub(crate) options: SocketOptions,
    /// Open before their handshake is complete.
    pub(crate) pending: Pending,
    backlog: u32,
    /// Connections in SYN-RECEIVED whose SYN-ACK was not answered, oldest first.
    unanswered: List<Group>,
    /// Connections in SYN-RECEIVED whose SYN-ACK was answered while the host had no room. Their peers think that they are
    /// connected, so none of them ever gives way to a newer SYN.
    answered: List<Group>,
    /// When a SYN was answered with a cookie last.
    last_cookie: Option<Instant>,
    /// It only has its port: who comes is refused, as if nobody listened.
    held: bool,
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
    pub(crate) ports6: PortTable<Ipv6Addr>,
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
            ports6: PortTable::default(),
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
        let port = listener.local.port();
        match reach(listener.local.ip(), listener.options.v6_only) {
            Reach::V4(ip) => self.ports.insert(ip, port, index as u32, false),
            Reach::V6(ip) => self.ports6.insert(ip, port, index as u32, false),
            Reach::Both => {
                self.ports
                    .insert(Ipv4Addr::UNSPECIFIED, port, index as u32, false);
                self.ports6
                    .insert(Ipv6Addr::UNSPECIFIED, port, index as u32, false);
            }
        }
        Ok(ListenerId::new(index as u32, listener.generation))
    }

    /// Of the listener at an index: what its connections are opened with, its user, when it sent a cookie last.
    pub(crate) fn options_of(&self, at: u32) -> &SocketOptions {
        &self.slots[at as usize].options
    }

    /// See [`options_of`](Self::options_of).
    pub(crate) fn user_of(&self, at: u32) -> User {
        self.slots[at as usize].user
    }

    /// The listener's connections that were opened early.
    pub(crate) fn pending(&mut self, at: u32) -> &mut Pending {
        &mut self.slots[at as usize].pending
    }

    /// See [`options_of`](Self::options_of).
    pub(crate) fn last_cookie(&self, at: u32) -> Option<Instant> {
        self.slots[at as usize].last_cookie
    }

    /// It has sent a cookie.
    pub(crate) fn note_cookie(&mut self, at: u32, now: Instant) {
        self.slots[at as usize].last_cookie = Some(now);
    }

    /// Whether somebody listens there.
    pub(crate) fn is_bound(&self, local: SocketAddr) -> bool {
        match local.ip() {
            IpAddr::V4(ip) => self.heard(ip, local.port()).is_some(),
            IpAddr::V6(ip) => self.heard6(ip, local.port()).is_some(),
        }
    }

    /// Who takes connections there; not one that only holds its port.
    pub(crate) fn heard(&self, ip: Ipv4Addr, port: u16) -> Option<u32> {
        let at = self.ports.find(ip, port)?;
        (!self.slots[at as usize].held).then_some(at)
    }

    /// The same for IPv6.
    pub(crate) fn heard6(&self, ip: Ipv6Addr, port: u16) -> Option<u32> {
        let at = self.ports6.find(ip, port)?;
        (!self.slots[at as usize].held).then_some(at)
    }
}

/// What a bound socket is reached by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    /// All addresses of both.
    Both,
}

/// What a socket that is bound to this address is reached by (RFC 3493 sections 3.7 and 5.3).
pub(crate) const fn reach(ip: IpAddr, v6_only: bool) -> Reach {
    match ip {
        IpAddr::V4(ip) => Reach::V4(ip),
        IpAddr::V6(ip) if ip.is_unspecified() && !v6_only => Reach::Both,
        IpAddr::V6(ip) => Reach::V6(ip),
    }
}

/// The port for a socket: the one that is asked for, which others may have that share theirs if this does, or one of the stack's
/// choice.
pub(crate) fn choose_port(
    ports: (&PortTable, &PortTable<Ipv6Addr>),
    ephemeral: &mut EphemeralPorts,
    reach: Reach,
    asked: u16,
    shared: bool,
) -> Result<u16, StackError> {
    let any = Ipv4Addr::UNSPECIFIED;
    // A port of the stack's choice is nobody else's.
    let shared = shared && asked != 0;
    let taken = |port: u16| match reach {
        Reach::V4(ip) => ports.0.conflicts(ip, port, shared),
        Reach::V6(ip) => ports.1.conflicts(ip, port, shared),
        Reach::Both => {
            let any6 = Ipv6Addr::UNSPECIFIED;
            ports.0.conflicts(any, port, shared) || ports.1.conflicts(any6, port, shared)
        }
    };
    let free = |port| !taken(port);
    let port = match (asked, reach) {
        (0, Reach::V4(ip)) => ephemeral.choose(ip, SocketAddrV4::new(ip, 0), free),
        (0, Reach::V6(ip)) => ephemeral.choose6(ip, SocketAddrV6::new(ip, 0, 0, 0), free),
        (0, Reach::Both) => ephemeral.choose(any, SocketAddrV4::new(any, 0), free),
        (port, _) => free(port).then_some(port),
    };
    port.ok_or(StackError::AddressInUse)
}

impl Stack {
    /// Listens at `local`; 0.0.0.0 stands for all addresses of IPv4, `::` for all of IPv6, and of IPv4 too unless the options
    /// say [`v6_only`](SocketOptions::v6_only); an IPv4-mapped address is one of IPv4. Port 0 stands for one that the stack chooses (see
    /// [`listener_local`](Self::listener_local)). Up to `backlog` handshakes may be incomplete at a time.
    ///
    /// # Errors
    /// [`StackError::AddressInUse`], [`StackError::AddressNotAvailable`], [`StackError::Full`].
    pub fn listen(
        &mut self,
        local: impl Into<SocketAddr>,
        options: &SocketOptions,
        backlog: u32,
        user: User,
    ) -> Result<ListenerId, StackError> {
        let local = self.bindable(local.into())?;
        let ports = (&self.listeners.ports, &self.listeners.ports6);
        let reach = reach(local.ip(), options.v6_only);
        let port = choose_port(ports, &mut self.ephemeral, reach, local.port(), false)?;
        self.listeners.insert(Listener {
            generation: 0,
            local: SocketAddr::new(local.ip(), port),
            user,
            options: options.clone(),
            pending: Pending::new(options.fast_open_queue),
            backlog: backlog.max(1),
            unanswered: List::new(),
            answered: List::new(),
            last_cookie: None,
            held: false,
            live: true,
        })
    }

    /// An address that a socket may be bound to, in its own family.
    pub(crate) fn bindable(&self, local: SocketAddr) -> Result<SocketAddr, StackError> {
        let ip = local.ip().to_canonical();
        let ours = match ip {
            IpAddr::V4(ip) => ip.is_unspecified() || self.addresses.is_local(ip),
            IpAddr::V6(_) if !self.six.enabled() => false,
            IpAddr::V6(ip) => ip.is_unspecified() || self.six.addresses.may_bind(ip),
        };
        if ours {
            Ok(SocketAddr::new(ip, local.port()))
        } else {
            Err(StackError::AddressNotAvailable)
        }
    }

    /// Sets an option of a listening socket, for the connections to come. False if the id is stale, or the option one that must be
    /// known before.
    pub fn set_listener_option(&mut self, id: ListenerId, option: SocketOption) -> bool {
        if self.listeners.get(id).is_none() || matches!(option, SocketOption::V6Only(_)) {
            return false;
        }
        let listener = &mut self.listeners.slots[id.index() as usize];
        listener.options.apply(option);
        listener.pending.set_limit(listener.options.fast_open_queue);
        true
    }

    /// Lets a listener only hold its port (true), so that connections are refused as if nobody listened; or listen again. Nothing happens if
    /// the id is stale.
    pub fn hold_listener(&mut self, id: ListenerId, held: bool) {
        if self.listeners.get(id).is_some() {
            self.listeners.slots[id.index() as usize].held = held;
        }
    }

    /// Connections to come are another user's. Nothing happens if the id is stale.
    pub fn set_listener_user(&mut self, id: ListenerId, user: User) {
        if self.listeners.get(id).is_some() {
            self.listeners.slots[id.index() as usize].user = user;
        }
    }

    /// Where a listening socket listens.
    pub fn listener_local(&self, id: ListenerId) -> Option<SocketAddr> {
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
        self.listeners.ports6.remove(at);
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
    /// coming in a crowd). False too if the listener waits for data.
    #[cold]
    pub(crate) fn may_establish<H: Host>(
        &mut self,
        now: Instant,
        index: u32,
        header: &TcpHeader,
        payload_len: u32,
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
        let bare = payload_len == 0 && !header.flags.contains(TcpFlags::FIN);
        let deferred = match listener.options.defer_accept {
            // Linux, too, counts from the SYN, and asks again with a SYN-ACK at the end.
            Some(time) if bare => slot.tcp.handshake_began() + time,
            _ => Instant::ZERO,
        };
        if now < deferred {
            slot.tcp.defer_handshake(now, deferred);
            self.counters.deferred += 1;
        } else if host.can_accept(listener.user) {
            return true;
        } else {
            self.counters.accept_queue_full += 1;
        }
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
        payload: Payload<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> bool {
        let Some(at) = self.listeners.heard(packet.dst, header.dst_port) else {
            return false;
        };
        let Some(endpoints) = self.endpoints_of(header, packet) else {
            self.counters.syn_dropped += 1;
            return true;
        };
        let way = (endpoints, packet.link);
        self.open_passive(now, header, payload, at, way, host)
    }

    /// Between whom a connection would be that a packet opens; `None` if there is no way back.
    pub(crate) fn endpoints_of(
        &self,
        header: &TcpHeader,
        packet: &Packet<'_>,
    ) -> Option<Endpoints> {
        let local = SocketAddrV4::new(packet.dst, header.dst_port);
        let remote = SocketAddrV4::new(packet.src, header.src_port);
        let next_hop = match self.addresses.route(packet.src) {
            Some(Route::Local) => None,
            Some(Route::Link(next_hop)) => Some(next_hop),
            Some(Route::Broadcast | Route::Group) | None => return None,
        };
        Some(Endpoints::V4(FlowKey::new(local, remote), next_hop))
    }

    /// Opens a connection of the listener at `at` for a SYN, if it may. True: the SYN is somebody's in any case.
    pub(crate) fn open_passive<H: Host>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Payload<'_>,
        at: u32,
        (endpoints, link): (Endpoints, Link),
        host: &mut H,
    ) -> bool {
        if header.src_port == 0 {
            self.counters.syn_dropped += 1;
            return true;
        }
        if !host.can_accept(self.listeners.slots[at as usize].user) {
            // It could not be let in when its handshake is complete; the peer asks again.
            self.counters.syn_accept_queue_full += 1;
            return true;
        }
        if self.wants_cookie(self.syn_queue_is_full(at)) {
            self.send_cookie(now, header, at, &endpoints, link);
            return true;
        }
        if !self.make_syn_room(at) {
            return true;
        }
        let (local, remote) = endpoints.addresses();
        let options = self.listeners.slots[at as usize].options.clone();
        let config = self.tcp_config(&options, local, remote, endpoints.is_loopback());
        let iss = self.initial_sequence(now, local, remote);
        let verdict = self.judge_fast_open(now, at, header, (local, remote));
        // The control block is made where it stays until it goes into its slot.
        let mut new = NewConnection {
            endpoints,
            owner: Owner::Listener,
            user: DETACHED,
            irs: header.seq,
            listener: at,
            marking: Marking::of(&options),
            tcp: Connection::accept(now, &config, iss, header),
        };
        new.tcp.set_receive_limit(u64::from(options.receive_window));
        if fast_open::prepare(&mut new.tcp, verdict) {
            self.open_early(now, at, new, payload, host);
        } else if let Some(index) = self.insert_embryonic(at, new) {
            self.touch(index);
        }
        true
    }

    /// Puts a connection in SYN-RECEIVED into the listener's SYN queue.
    pub(crate) fn insert_embryonic(&mut self, at: u32, new: NewConnection) -> Option<u32> {
        let index = self.connections.insert(new)?;
        let listener = &mut self.listeners.slots[at as usize];
        listener
            .unanswered
            .push_back(self.connections.slots(), index);
        self.listeners.embryonic += 1;
        self.counters.passive_opens += 1;
        Some(index)
    }

    /// Whether one more connection in SYN-RECEIVED is too many.
    fn syn_queue_is_full(&self, at: u32) -> bool {
        let listener = &self.listeners.slots[at as usize];
        let total_reached = self.listeners.embryonic >= self.config.syn_backlog_total;
        listener.embryonic() >= listener.backlog || total_reached
    }

    /// Makes room for one more connection in SYN-RECEIVED where there are no cookies: the listener's oldest that was not answered
    /// gives way. In a flood of SYNs that is the one least likely to be answered.
    fn make_syn_room(&mut self, at: u32) -> bool {
        let listener = &self.listeners.slots[at as usize];
        if self.syn_queue_is_full(at) {
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
        &mut self,
        options: &SocketOptions,
        local: SocketAddr,
        remote: SocketAddr,
        loopback: bool,
    ) -> Config {
        let (link_mtu, headers, default_mss) = if remote.is_ipv6() {
            (self.six.mtu, HEADERS_V6, DEFAULT_MSS_V6)
        } else {
            (self.config.mtu, HEADERS, DEFAULT_MSS)
        };
        let mtu = if loopback {
            // Nothing cuts what goes over the loopback: SACK blocks beside a full payload must fit into the longest packet, too.
            self.config.loopback_mtu.min(u16::MAX - OPTIONS_MAX)
        } else {
            link_mtu
        };
        let mut config = self.config.tcp.clone();
        let largest = mtu.saturating_sub(headers);
        config.mss = options.mss.unwrap_or(largest).min(largest);
        if !loopback && let Some(mtu) = self.paths.find(self.turn, remote.ip(), By::Tcp) {
            config.path_mss = mtu.saturating_sub(headers);
        }
        if remote.is_ipv6() {
            // Every path carries that (RFC 8200 section 5).
            config.base_mss = config.base_mss.max(ipv6::MIN_MTU - HEADERS_V6);
        }
        config.default_peer_mss = default_mss;
        config.timestamp_offset = self.timestamp_offset(local, remote);
        config.no_delay = options.no_delay.unwrap_or(config.no_delay);
        config.keepalive = options.keepalive.or(config.keepalive);
        config.user_timeout = options.user_timeout.or(config.user_timeout);
        config.congestion = options.congestion.unwrap_or(config.congestion);
        config.ecn = options.ecn.unwrap_or(config.ecn);
        config.max_pacing_rate = lesser(options.max_pacing_rate, config.max_pacing_rate);
        config.syn_retries = options.syn_retries.unwrap_or(config.syn_retries);
        config.fin_wait_2_timeout = options.fin_wait_2.unwrap_or(config.fin_wait_2_timeout);
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
