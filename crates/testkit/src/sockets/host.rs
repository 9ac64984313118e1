//! The host and sink of the layer: sockets, and what the stack tells them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use sidecore_stack::{
    ConnId, DatagramError, Envelope, FrameSink, Host, ListenerId, SinkCaps, TxOffload, TxPayload,
    UdpId, User,
};
use sidecore_tcp::{CloseReason, IcmpKind};

use super::Errno;
use super::stream::{ReceiveBuffer, SendBuffer};
use super::urgent::Urgent;
use super::values::Values;
use crate::device;

/// What a TCP socket is doing.
#[derive(Debug, Default)]
pub(super) enum Role {
    /// Nothing yet, or nothing any more.
    #[default]
    Closed,
    Listening {
        id: ListenerId,
        /// Connections that may wait to be accepted, less one.
        backlog: usize,
        queue: VecDeque<User>,
    },
    Connecting(ConnId),
    Connected(ConnId),
}

/// A TCP socket.
#[derive(Debug, Default)]
pub(super) struct Tcp {
    pub(super) values: Values,
    pub(super) role: Role,
    pub(super) bound: Option<SocketAddr>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// `connect` was called, and has not told how it ended (SS_CONNECTING of Linux).
    pub(super) in_progress: bool,
    /// There was a connection once.
    pub(super) was_connected: bool,
    /// SO_ERROR.
    pub(super) error: Option<Errno>,
    pub(super) send: SendBuffer,
    pub(super) receive: ReceiveBuffer,
    pub(super) urgent: Urgent,
    /// The peer has ended its stream.
    pub(super) fin: bool,
    pub(super) no_read: bool,
    pub(super) no_write: bool,
    /// The program has closed it.
    pub(super) orphan: bool,
    /// Data went with the SYN, and was taken.
    pub(super) syn_data: bool,
}

impl Tcp {
    /// The connection, in any state.
    pub(super) const fn conn(&self) -> Option<ConnId> {
        match self.role {
            Role::Connecting(conn) | Role::Connected(conn) => Some(conn),
            Role::Closed | Role::Listening { .. } => None,
        }
    }
}

/// A datagram that waits to be read.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

/// A UDP socket.
#[derive(Debug, Default)]
pub(super) struct Udp {
    pub(super) values: Values,
    pub(super) id: Option<UdpId>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) queue: VecDeque<Datagram>,
    pub(super) error: Option<Errno>,
    pub(super) no_read: bool,
    pub(super) no_write: bool,
}

impl Udp {
    fn arrives(&mut self, from: SocketAddr, bytes: &[u8]) {
        if self.peer.is_some_and(|peer| peer != from) {
            return;
        }
        let held: usize = self.queue.iter().map(|d| d.bytes.len()).sum();
        if held + bytes.len() <= self.values.receive_buffer {
            let bytes = bytes.to_vec();
            self.queue.push_back(Datagram { from, bytes });
        }
    }
}

/// A socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(Tcp),
    Udp(Udp),
}

/// All sockets; those that were closed too, as long as the stack needs their bytes. A user is an index.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) sockets: Vec<Option<Socket>>,
    /// The frame that is being handled.
    pub(super) frame: Arc<[u8]>,
    /// Frames for the device, whole.
    pub(super) wire: Vec<Vec<u8>>,
    pub(super) loopback: VecDeque<(Vec<u8>, usize)>,
    pub(super) caps: SinkCaps,
    /// Super-segments leave as they are.
    pub(super) uncut: bool,
}

impl Table {
    pub(super) fn insert(&mut self, socket: Socket) -> User {
        self.sockets.push(Some(socket));
        self.sockets.len() as User - 1
    }

    pub(super) fn tcp(&mut self, user: User) -> Option<&mut Tcp> {
        match self.sockets.get_mut(user as usize)? {
            Some(Socket::Tcp(tcp)) => Some(tcp),
            _ => None,
        }
    }

    pub(super) fn udp(&mut self, user: User) -> Option<&mut Udp> {
        match self.sockets.get_mut(user as usize)? {
            Some(Socket::Udp(udp)) => Some(udp),
            _ => None,
        }
    }

    fn live(&mut self, user: User, conn: ConnId) -> &mut Tcp {
        let tcp = self.tcp(user).expect("a socket that the stack knows");
        assert_eq!(tcp.conn(), Some(conn), "another connection's id");
        tcp
    }

    fn gather(&mut self, payload: TxPayload<'_>) -> Vec<u8> {
        match payload {
            TxPayload::None => Vec::new(),
            TxPayload::Bytes(bytes) => bytes.to_vec(),
            TxPayload::Stream { user, start, len } => {
                let tcp = self.tcp(user).expect("a socket that the stack knows");
                tcp.send.range(start..start + u64::from(len)).to_vec()
            }
        }
    }
}

impl Host for Table {
    fn room(&mut self, _user: User, _len: u32, _in_order: bool) -> bool {
        true
    }

    fn store(
        &mut self,
        user: User,
        conn: ConnId,
        frame_offset: u32,
        len: u32,
        stream_offset: u64,
        _in_order: bool,
    ) {
        let frame = Arc::clone(&self.frame);
        let bytes = &frame[frame_offset as usize..][..len as usize];
        self.live(user, conn).receive.store(bytes, stream_offset);
    }

    fn store_bytes(
        &mut self,
        user: User,
        conn: ConnId,
        bytes: &[u8],
        stream_offset: u64,
        _in_order: bool,
    ) {
        self.live(user, conn).receive.store(bytes, stream_offset);
    }

    fn readable(&mut self, user: User, conn: ConnId, receive_next: u64, fin: bool) {
        let tcp = self.live(user, conn);
        tcp.receive.readable(receive_next);
        tcp.fin |= fin;
    }

    fn urgent(&mut self, user: User, conn: ConnId, end: u64) {
        self.live(user, conn).urgent.told(end);
    }

    fn acknowledged(&mut self, user: User, conn: ConnId, send_una: u64) {
        self.live(user, conn).send.release(send_una);
    }

    fn can_accept(&mut self, listener: User) -> bool {
        match self.tcp(listener).map(|tcp| &tcp.role) {
            // As Linux: one more than the backlog says.
            Some(Role::Listening { backlog, queue, .. }) => queue.len() <= *backlog,
            _ => false,
        }
    }

    fn incoming(
        &mut self,
        listener: User,
        conn: ConnId,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<(User, u64)> {
        let values = self.tcp(listener)?.values.inherited();
        let limit = values.receive_buffer as u64;
        let user = self.insert(Socket::Tcp(Tcp {
            values,
            role: Role::Connected(conn),
            bound: Some(local),
            local: Some(local),
            peer: Some(remote),
            was_connected: true,
            ..Tcp::default()
        }));
        if let Role::Listening { queue, .. } = &mut self.tcp(listener)?.role {
            queue.push_back(user);
        }
        Some((user, limit))
    }

    fn connected(&mut self, user: User, conn: ConnId) {
        let tcp = self.live(user, conn);
        tcp.role = Role::Connected(conn);
        tcp.was_connected = true;
    }

    fn closed(&mut self, user: User, conn: ConnId, reason: CloseReason) {
        let tcp = self.live(user, conn);
        tcp.role = Role::Closed;
        if tcp.orphan {
            self.sockets[user as usize] = None;
            return;
        }
        tcp.error = Errno::of_close(reason, tcp.fin && !tcp.no_write);
        (tcp.no_read, tcp.no_write) = (true, true);
    }

    fn datagram(&mut self, user: User, frame_offset: u32, len: u32, envelope: &Envelope) {
        let frame = Arc::clone(&self.frame);
        if let Some(udp) = self.udp(user) {
            udp.arrives(
                envelope.from,
                &frame[frame_offset as usize..][..len as usize],
            );
        }
    }

    fn datagram_bytes(&mut self, user: User, bytes: &[u8], envelope: &Envelope) {
        if let Some(udp) = self.udp(user) {
            udp.arrives(envelope.from, bytes);
        }
    }

    fn icmp_error(&mut self, user: User, error: &DatagramError<'_>) {
        let Some(udp) = self.udp(user) else {
            return;
        };
        // RFC 1122 section 4.1.3.3: errors are passed up. As Linux, a socket without a peer is not told by its calls.
        if udp.peer == Some(error.remote) {
            udp.error = match error.kind {
                IcmpKind::PortUnreachable => Some(Errno::ECONNREFUSED),
                IcmpKind::ProtocolUnreachable => Some(Errno::ENOPROTOOPT),
                IcmpKind::FragmentationNeeded { .. } => Some(Errno::EMSGSIZE),
                IcmpKind::HostUnreachable => Some(Errno::EHOSTUNREACH),
                IcmpKind::NetUnreachable => Some(Errno::ENETUNREACH),
                _ => udp.error,
            };
        }
    }
}

impl FrameSink for Table {
    fn caps(&self) -> SinkCaps {
        self.caps
    }

    fn has_room(&self, _loopback: bool) -> bool {
        true
    }

    fn send(&mut self, header: &[u8], payload: TxPayload<'_>, offload: &TxOffload) {
        let payload = self.gather(payload);
        if offload.loopback {
            let frame = [header, &payload].concat();
            self.loopback.push_back((frame, header.len()));
            return;
        }
        let whole = TxOffload {
            segment_size: 0,
            ..*offload
        };
        let offload = if self.uncut { &whole } else { offload };
        self.wire.extend(device::emit(header, &payload, offload));
    }
}
