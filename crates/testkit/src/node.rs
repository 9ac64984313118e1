//! A stack with its host and its loopback, and short calls for tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use sidecore_stack::{
    FrameMeta, ListenerId, RxChecksum, SinkCaps, SocketOptions, Stack, StackConfig, StackError,
    TxPayload, UdpId, User,
};
use sidecore_tcp::{CloseReason, Connection, Instant};
use sidecore_wire::MacAddress;

use crate::host::{Datagram, DatagramReport, Event, SentFrame, Stream, TestHost};

/// What a node is made of.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The stack's configuration.
    pub stack: StackConfig,
    /// Payload bytes of a super-segment; 0: the device cuts none.
    pub tso_max: u32,
    /// Receive buffer of every connection.
    pub buffer: u64,
    /// Seed of the host's own decisions.
    pub seed: u64,
}

impl NodeConfig {
    /// A node at `10.0.0.host/24`, with small tables.
    pub fn new(host: u8) -> Self {
        let address = Ipv4Addr::new(10, 0, 0, host);
        Self {
            stack: StackConfig {
                mac: MacAddress([2, 0, 0, 0, 0, host]),
                addresses: vec![format!("{address}/24").parse().expect("an address")],
                max_connections: 4096,
                ranges: 16384,
                seed: [host; 32],
                ..StackConfig::default()
            },
            tso_max: 0,
            buffer: 65535,
            seed: u64::from(host),
        }
    }
}

/// A stack with its host.
#[derive(Debug)]
pub struct Node {
    /// The stack.
    pub stack: Stack,
    /// Its host and sink.
    pub host: TestHost,
    /// Whether everything received counts as read at once.
    pub reads: bool,
    /// What frames say of their checksum.
    pub checksum: RxChecksum,
    /// What sockets are opened with, but for their receive window.
    pub socket: SocketOptions,
}

impl Node {
    /// A new node.
    pub fn new(config: &NodeConfig, now: Instant) -> Self {
        let caps = SinkCaps {
            tso_max: config.tso_max,
            mtu: config.stack.mtu,
            loopback_mtu: u32::from(config.stack.loopback_mtu),
        };
        let mut host = TestHost::new(caps, config.seed);
        host.buffer = config.buffer;
        Self {
            stack: Stack::new(config.stack.clone(), now),
            host,
            reads: true,
            checksum: RxChecksum::Unchecked,
            socket: SocketOptions::default(),
        }
    }

    /// Its first address.
    pub fn ip(&self) -> Ipv4Addr {
        self.stack.config().addresses[0].address()
    }

    /// Handles a frame from the wire.
    pub fn receive(&mut self, now: Instant, frame: &[u8]) {
        self.host.frame = Arc::from(frame);
        let meta = FrameMeta {
            len: frame.len(),
            checksum: self.checksum,
            loopback: false,
        };
        let hint = self.stack.prefetch(frame);
        self.stack.expect(hint);
        self.stack.handle_frame(now, &meta, frame, &mut self.host);
    }

    /// One turn: timers, the application, transmission, and what that brings over the loopback. Frames for the wire are
    /// left in the host; returns them.
    pub fn turn(&mut self, now: Instant) -> Vec<Vec<u8>> {
        while self.stack.next_timeout().is_some_and(|next| next <= now) {
            self.stack.handle_timers(now, &mut self.host, 64);
            self.stack.transmit(now, &mut self.host, 256);
        }
        let mut wire = Vec::new();
        for _ in 0..100_000 {
            self.grant();
            self.stack.transmit(now, &mut self.host, 64);
            wire.append(&mut self.host.wire);
            if self.loopback_turn(now) == 0 && !self.stack.has_work() {
                assert!(self.stack.is_consistent());
                return wire;
            }
        }
        panic!("a turn that does not end");
    }

    /// From now on peers may send other bytes for the same place of a stream: they are hostile.
    pub fn forgive(&mut self) {
        for stream in &mut self.host.streams {
            stream.forgiven = true;
        }
    }

    /// Loses the frame at this place of what lies in the loopback, if there is one.
    pub fn lose_on_loopback(&mut self, at: usize) {
        self.host.loopback.remove(at);
    }

    /// Handles what lies in the loopback now; returns how many frames that were.
    pub fn loopback_turn(&mut self, now: Instant) -> usize {
        let frames: Vec<_> = self.host.loopback.drain(..).collect();
        let count = frames.len();
        for (frame, header_len) in frames {
            self.receive_loopback(now, frame, header_len);
        }
        count
    }

    /// Of a loopback frame the stack sees the headers only.
    fn receive_loopback(&mut self, now: Instant, frame: Vec<u8>, header_len: usize) {
        let meta = FrameMeta {
            len: frame.len(),
            checksum: RxChecksum::Valid,
            loopback: true,
        };
        // Of ICMP all of it: its "headers" are its message.
        let all = match frame[0] >> 4 {
            6 => frame[6] == 58,
            _ => frame[9] == 1,
        };
        let head = if all { frame.len() } else { header_len };
        let frame: Arc<[u8]> = frame.into();
        self.host.frame = Arc::clone(&frame);
        self.stack
            .handle_frame(now, &meta, &frame[..head], &mut self.host);
    }

    /// Reads what was received, if this node reads, and grants window for it.
    fn grant(&mut self) {
        if !self.reads {
            return;
        }
        for user in 0..self.host.streams.len() as User {
            self.read(user, usize::MAX);
        }
    }

    /// Reads up to `max` bytes and grants window for them; returns how many.
    pub fn read(&mut self, user: User, max: usize) -> usize {
        let buffer = self.host.buffer;
        let stream = &mut self.host.streams[user as usize];
        let len = (stream.received - stream.consumed).min(max as u64);
        stream.consumed += len;
        let limit = stream.consumed + buffer;
        if limit > stream.limit
            && stream.closed.is_none()
            && !stream.closing
            && let Some(conn) = stream.conn
        {
            stream.limit = limit;
            self.stack.set_receive_limit(conn, limit);
        }
        len as usize
    }

    fn options(&self) -> SocketOptions {
        SocketOptions {
            receive_window: self.host.buffer as u32,
            ..self.socket.clone()
        }
    }

    /// Listens at a port of all addresses of IPv4.
    pub fn listen(&mut self, port: u16, backlog: u32) -> (ListenerId, User) {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let listened = self.listen_at(local, false, backlog);
        listened.expect("a free port")
    }

    /// Listens at an address.
    ///
    /// # Errors
    /// The stack's.
    pub fn listen_at(
        &mut self,
        local: SocketAddr,
        v6_only: bool,
        backlog: u32,
    ) -> Result<(ListenerId, User), StackError> {
        let user = self.host.new_stream();
        self.host.accepted.insert(user, Default::default());
        let options = SocketOptions {
            v6_only,
            ..self.options()
        };
        let id = self.stack.listen(local, &options, backlog, user)?;
        Ok((id, user))
    }

    /// The next connection that a listener got.
    pub fn accept(&mut self, listener: User) -> Option<User> {
        self.host.accepted.get_mut(&listener)?.pop_front()
    }

    /// Opens a connection.
    pub fn connect(&mut self, now: Instant, remote: SocketAddr) -> User {
        self.try_connect(now, None, remote).expect("a connection")
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The stack's.
    pub fn try_connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<User, StackError> {
        let options = self.options();
        let user = self.host.new_stream();
        let conn = self.stack.connect(now, local, remote, &options, user)?;
        self.host.streams[user as usize].conn = Some(conn);
        Ok(user)
    }

    fn stream(&self, user: User) -> &Stream {
        &self.host.streams[user as usize]
    }

    /// Writes bytes.
    pub fn write(&mut self, user: User, bytes: &[u8]) {
        self.write_more(user, bytes, false);
    }

    /// Writes bytes and says whether more are to come.
    pub fn write_more(&mut self, user: User, bytes: &[u8], more: bool) {
        let stream = &mut self.host.streams[user as usize];
        stream.written.extend_from_slice(bytes);
        let (conn, end) = (stream.conn, stream.written.len() as u64);
        let open = self
            .stack
            .set_send_limit(conn.expect("a connection"), end, more);
        assert!(open, "written to a connection that is closed");
    }

    /// Shuts a connection's sending side.
    pub fn shutdown(&mut self, user: User) {
        let conn = self.stream(user).conn.expect("a connection");
        assert!(self.stack.shutdown_send(conn));
    }

    /// Closes a connection.
    pub fn close(&mut self, user: User) {
        let stream = &mut self.host.streams[user as usize];
        stream.closing = true;
        assert!(self.stack.close(stream.conn.expect("a connection")));
    }

    /// Aborts a connection.
    pub fn abort(&mut self, user: User) {
        let stream = &mut self.host.streams[user as usize];
        stream.closed = Some(CloseReason::Aborted);
        assert!(self.stack.abort(stream.conn.expect("a connection")));
    }

    /// Everything that was received in order.
    pub fn received(&self, user: User) -> &[u8] {
        self.stream(user).in_order()
    }

    /// How many of the bytes written are acknowledged.
    pub fn acknowledged(&self, user: User) -> u64 {
        self.stream(user).acked
    }

    /// What was told about a socket.
    pub fn events(&self, user: User) -> &[Event] {
        &self.stream(user).events
    }

    /// Why a connection is over.
    pub fn closed(&self, user: User) -> Option<CloseReason> {
        self.stream(user).closed
    }

    /// Whether the peer has ended its stream, and all of it is here.
    pub fn has_fin(&self, user: User) -> bool {
        self.stream(user).fin
    }

    /// The control block of a connection, as long as the host has it.
    pub fn tcp(&self, user: User) -> Option<&Connection> {
        self.stack.connection(self.stream(user).conn?)
    }

    /// Its addresses: local and remote.
    pub fn addresses(&self, user: User) -> Option<(SocketAddr, SocketAddr)> {
        self.stack.addresses(self.stream(user).conn?)
    }

    /// Its id.
    pub fn conn(&self, user: User) -> sidecore_stack::ConnId {
        self.stream(user).conn.expect("a connection")
    }

    /// Binds a UDP socket.
    pub fn udp_bind(&mut self, local: SocketAddr) -> (UdpId, User) {
        let user = self.host.new_stream();
        let id = self.stack.udp_bind(local, user).expect("a free port");
        (id, user)
    }

    /// Binds a UDP socket with options.
    ///
    /// # Errors
    /// The stack's.
    pub fn udp_bind_with(
        &mut self,
        local: SocketAddr,
        options: &SocketOptions,
    ) -> Result<(UdpId, User), StackError> {
        let user = self.host.new_stream();
        let id = self.stack.udp_bind_with(local, options, user)?;
        Ok((id, user))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The stack's.
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: UdpId,
        dst: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), StackError> {
        self.stack
            .udp_send(now, id, dst, TxPayload::Bytes(bytes), &mut self.host)
    }

    /// Datagrams that were delivered since the last call.
    pub fn take_datagrams(&mut self) -> Vec<Datagram> {
        std::mem::take(&mut self.host.datagrams)
    }

    /// What was told about UDP sockets since the last call.
    pub fn take_datagram_events(&mut self) -> Vec<(User, Event)> {
        std::mem::take(&mut self.host.datagram_events)
    }

    /// What became of datagrams since the last call.
    pub fn take_datagram_errors(&mut self) -> Vec<DatagramReport> {
        std::mem::take(&mut self.host.datagram_errors)
    }

    /// Starts keeping frames as the stack sends them; returns those kept so far.
    pub fn take_sent(&mut self) -> Vec<SentFrame> {
        self.host.sent.replace(Vec::new()).unwrap_or_default()
    }

    /// One of its counters.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn count(&self, name: &str) -> u64 {
        let found = self.stack.counters().iter().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}
