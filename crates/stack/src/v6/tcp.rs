//! TCP over IPv6: segments find their connections, and connections are opened.

use core::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use sidecore_tcp::{Connection, Instant, reset_for};
use sidecore_wire::{Ipv6Header, SeqNumber, TcpFlags, TcpHeader, tcp};

use super::address::{Route6, is_unicast};
use super::flow::{Flow6, FlowKey6};
use super::input::Packet6;
use super::output::Control6;
use crate::config::SocketOptions;
use crate::connections::{Endpoints, NewConnection, Owner, flag};
use crate::control::Control;
use crate::error::StackError;
use crate::host::Host;
use crate::input::Transport;
use crate::list::NIL;
use crate::marking::Marking;
use crate::segment::{Payload, Verdict};
use crate::stack::Stack;
use crate::{ConnId, User};

fn key_of(ip: &Ipv6Header, header: &TcpHeader) -> FlowKey6 {
    FlowKey6 {
        local_ip: ip.dst,
        remote_ip: ip.src,
        local_port: header.dst_port,
        remote_port: header.src_port,
    }
}

impl Stack {
    /// A TCP segment, if it is for a connection that exists; false if it is not, or if anything else is odd about it: then
    /// nothing was done. As [`segment_for_known`](Self::segment_for_known).
    #[inline]
    pub(super) fn segment_for_known6<H: Host>(
        &mut self,
        now: Instant,
        ip: &Ipv6Header,
        link: u8,
        transport: Transport<'_>,
        host: &mut H,
    ) -> bool {
        let parsed = TcpHeader::parse(transport.bytes);
        let Ok((header, data_offset)) = &parsed else {
            return false;
        };
        let Some(index) = self.connections.find6(&key_of(ip, header)) else {
            return false;
        };
        if self.connections[index].flags & flag::LOOPBACK != link {
            return false;
        }
        if !transport.verified && !tcp::verify_checksum_v6(ip.src, ip.dst, transport.bytes) {
            return false;
        }
        let payload = Payload::new(transport, *data_offset);
        self.segment_arrives6(now, index, header, payload, host) == Verdict::Done
    }

    /// As for IPv4; and an acknowledgment that moves something confirms the neighbour (RFC 4861 section 7.3.1: "forward
    /// progress").
    #[inline]
    fn segment_arrives6<H: Host>(
        &mut self,
        now: Instant,
        index: u32,
        header: &TcpHeader,
        payload: Payload<'_>,
        host: &mut H,
    ) -> Verdict {
        let tcp = &self.connections[index].tcp;
        let (before, opening) = (tcp.send_una(), !tcp.state().is_synchronized());
        let verdict = self.segment_arrives(now, index, header, payload, host);
        let slot = &self.connections[index];
        let opened = opening && slot.tcp.state().is_synchronized();
        if (opened || slot.tcp.send_una() > before)
            && let Some(hop) = self.connections.six.get(index).next_hop
        {
            self.six.neighbors.confirm(now, hop, slot.neighbor);
        }
        verdict
    }

    /// A TCP packet for one of our addresses, about which something is unusual.
    #[cold]
    pub(super) fn handle_tcp6<H: Host>(
        &mut self,
        now: Instant,
        packet: &Packet6<'_>,
        host: &mut H,
    ) {
        let transport = packet.transport;
        let Ok((header, data_offset)) = TcpHeader::parse(transport.bytes) else {
            self.counters.tcp_malformed += 1;
            return;
        };
        let (src, dst) = (packet.src(), packet.dst());
        if !transport.verified && !tcp::verify_checksum_v6(src, dst, transport.bytes) {
            self.counters.tcp_bad_checksum += 1;
            return;
        }
        if packet.multicast {
            // RFC 9293 MUST-57.
            self.counters.tcp_to_nowhere += 1;
            return;
        }
        let payload = Payload::new(transport, data_offset);
        let found = self.connections.find6(&key_of(&packet.header, &header));
        let done = found.is_some_and(|index| {
            self.segment_arrives6(now, index, &header, payload, host) == Verdict::Done
        });
        if !done {
            self.segment_for_nobody6(now, &header, payload, packet, host);
        }
    }

    /// A segment for which there is no connection: a SYN for a listener, or one to be reset (RFC 9293 section 3.10.7.2).
    #[cold]
    fn segment_for_nobody6<H: Host>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Payload<'_>,
        packet: &Packet6<'_>,
        host: &mut H,
    ) {
        let others = TcpFlags::ACK | TcpFlags::RST;
        if header.flags.contains(TcpFlags::SYN)
            && !header.flags.intersects(others)
            && self.syn_arrives6(now, header, payload, packet, host)
        {
            return;
        }
        let listener = self.listeners.heard6(packet.dst(), header.dst_port);
        if let Some(at) = listener
            && let Some(endpoints) = self.endpoints_of6(header, packet)
            && self.cookie_returns(now, header, payload, at, endpoints, host)
        {
            return;
        }
        self.counters.tcp_to_nowhere += 1;
        // RFC 9293 section 3.10.7.2: what comes to a listener with none of RST, ACK and SYN: "Drop the segment and return."
        let any = others | TcpFlags::SYN;
        if listener.is_some() && !header.flags.intersects(any) {
            return;
        }
        if let Some(reset) = reset_for(header, payload.len) {
            let reset = Control6::reset(packet.link, packet.dst(), packet.src(), &reset);
            self.counters.tcp_resets_out += u64::from(self.push_control(Control::Six(reset)));
        }
    }

    /// A SYN for which there is no connection; false if nobody listens for it.
    fn syn_arrives6<H: Host>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Payload<'_>,
        packet: &Packet6<'_>,
        host: &mut H,
    ) -> bool {
        let Some(at) = self.listeners.heard6(packet.dst(), header.dst_port) else {
            return false;
        };
        let Some(endpoints) = self.endpoints_of6(header, packet) else {
            self.counters.syn_dropped += 1;
            return true;
        };
        let way = (endpoints, packet.link);
        self.open_passive(now, header, payload, at, way, host)
    }

    /// Between whom a connection would be that a packet opens; `None` if there is no way back.
    fn endpoints_of6(&self, header: &TcpHeader, packet: &Packet6<'_>) -> Option<Endpoints> {
        let (src, dst) = (packet.src(), packet.dst());
        let next_hop = match self.route6(src) {
            Some(Route6::Local) => None,
            Some(Route6::Link(next_hop)) => Some(next_hop),
            Some(Route6::Group) | None => return None,
        };
        let local = SocketAddrV6::new(dst, header.dst_port, 0, 0);
        let remote = SocketAddrV6::new(src, header.src_port, 0, 0);
        Some(Endpoints::V6(self.flow6(local, remote, next_hop)))
    }

    fn flow6(&self, local: SocketAddrV6, remote: SocketAddrV6, hop: Option<Ipv6Addr>) -> Flow6 {
        Flow6::new(FlowKey6::new(local, remote), hop, &self.keys.flow)
    }

    /// As [`connect`](Self::connect).
    pub(crate) fn connect6(
        &mut self,
        now: Instant,
        local: Option<SocketAddrV6>,
        remote: SocketAddrV6,
        options: &SocketOptions,
        user: User,
    ) -> Result<ConnId, StackError> {
        // A destination of :: means this host, as with Linux.
        let ip = match *remote.ip() {
            ip if ip.is_unspecified() => Ipv6Addr::LOCALHOST,
            ip => ip,
        };
        let remote = SocketAddrV6::new(ip, remote.port(), 0, 0);
        if remote.port() == 0 || !is_unicast(ip) {
            return Err(StackError::InvalidAddress);
        }
        if !self.six.enabled() {
            return Err(StackError::Unreachable);
        }
        let next_hop = match self.route6(ip) {
            Some(Route6::Local) => None,
            Some(Route6::Link(next_hop)) => Some(next_hop),
            Some(Route6::Group) | None => return Err(StackError::Unreachable),
        };
        let local = self.local_for_connect6(now, local, remote)?;
        if !self.make_room() {
            return Err(StackError::Full);
        }
        let (from, to) = (SocketAddr::V6(local), SocketAddr::V6(remote));
        let config = self.tcp_config(options, from, to, next_hop.is_none());
        let iss = self.initial_sequence(now, from, to);
        let mut tcp = Connection::connect(now, &config, iss);
        tcp.set_receive_limit(u64::from(options.receive_window));
        if options.fast_open {
            self.begin_fast_open(now, &mut tcp, from, to);
        }
        let inserted = self.connections.insert(NewConnection {
            endpoints: Endpoints::V6(self.flow6(local, remote, next_hop)),
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
    fn local_for_connect6(
        &mut self,
        now: Instant,
        local: Option<SocketAddrV6>,
        remote: SocketAddrV6,
    ) -> Result<SocketAddrV6, StackError> {
        let local = local.unwrap_or(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
        let ip = match *local.ip() {
            ip if ip.is_unspecified() => self.six.addresses.source_for(now, *remote.ip()),
            ip if ip.is_loopback() && !self.six.addresses.is_local(*remote.ip()) => None,
            ip => self.six.addresses.is_local(ip).then_some(ip),
        };
        let ip = ip.ok_or(StackError::AddressNotAvailable)?;
        let port = match local.port() {
            0 => self.ephemeral_port6(now, ip, remote),
            port => Some(port),
        };
        let local = SocketAddrV6::new(ip, port.ok_or(StackError::AddressInUse)?, 0, 0);
        if let Some(index) = self.connections.find6(&FlowKey6::new(local, remote)) {
            if !self.may_reuse(now, index) {
                return Err(StackError::AddressInUse);
            }
            self.counters.time_wait_reused += 1;
            self.note_predecessor(index);
            self.free(index);
        }
        if local == remote {
            return Err(StackError::AddressInUse);
        }
        Ok(local)
    }

    /// A port that no listener has and no connection to `remote`; if there is none, one of a connection in TIME-WAIT that
    /// may be replaced.
    fn ephemeral_port6(&mut self, now: Instant, ip: Ipv6Addr, remote: SocketAddrV6) -> Option<u16> {
        let mut ports = core::mem::replace(
            &mut self.ephemeral,
            crate::ports::EphemeralPorts::none(self.keys.ports),
        );
        let mut choose = |reuse: bool| {
            ports.choose6(ip, remote, |port| {
                let local = SocketAddrV6::new(ip, port, 0, 0);
                let bound = local == remote || self.listeners.ports6.find(ip, port).is_some();
                let occupant = self.connections.find6(&FlowKey6::new(local, remote));
                let free = occupant.is_none_or(|index| reuse && self.may_reuse(now, index));
                !bound && free
            })
        };
        let port = choose(false).or_else(|| choose(true));
        self.ephemeral = ports;
        port
    }
}
