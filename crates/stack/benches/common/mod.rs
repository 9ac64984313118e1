//! A stack whose peers are a list of frames made beforehand, and a host that does nothing.

use std::hint::black_box;
use std::net::SocketAddr;

use sidecore_stack::{
    ConnId, Envelope, FrameMeta, FrameSink, Host, RxChecksum, SinkCaps, SocketOptions, Stack,
    StackConfig, TxOffload, TxPayload, User,
};
use sidecore_tcp::{CloseReason, Instant};
use sidecore_testkit::packet::{Station, header};
use sidecore_wire::{TcpFlags, TcpHeader, Timestamps, WindowScale};

/// Bytes of a request and of its answer.
pub(crate) const SIZE: usize = 64;
const NODE: Station = Station::new(1);
const PEER: Station = Station::new(2);
const START: Instant = Instant::from_secs(1000);
const IRS: u32 = 1000;
const PORT: u16 = 2000;

#[derive(Debug)]
struct Socket {
    conn: ConnId,
    received: u64,
    written: u64,
}

/// Host and sink that only count.
#[derive(Debug, Default)]
pub(crate) struct Stub {
    /// By user.
    sockets: Vec<Socket>,
    pub(crate) stored: u64,
    pub(crate) acked: u64,
    pub(crate) sent: u64,
}

impl Host for Stub {
    fn room(&mut self, _: User, len: u32, _: bool) -> bool {
        black_box(len) > 0
    }
    fn store(&mut self, _: User, _: ConnId, _: u32, len: u32, _: u64, _: bool) {
        self.stored += u64::from(len);
    }
    fn store_bytes(&mut self, _: User, _: ConnId, _: &[u8], _: u64, _: bool) {}
    fn readable(&mut self, user: User, _: ConnId, receive_next: u64, _: bool) {
        self.sockets[user as usize].received = receive_next;
    }
    fn acknowledged(&mut self, _: User, _: ConnId, send_una: u64) {
        self.acked = send_una;
    }
    fn can_accept(&mut self, _: User) -> bool {
        true
    }
    fn incoming(
        &mut self,
        _: User,
        conn: ConnId,
        _: SocketAddr,
        _: SocketAddr,
    ) -> Option<(User, u64)> {
        self.sockets.push(Socket {
            conn,
            received: 0,
            written: 0,
        });
        Some((self.sockets.len() as User - 1, 1 << 20))
    }
    fn connected(&mut self, _: User, _: ConnId) {}
    fn closed(&mut self, _: User, _: ConnId, _: CloseReason) {}
    fn datagram(&mut self, _: User, _: u32, _: u32, _: &Envelope) {}
    fn datagram_bytes(&mut self, _: User, _: &[u8], _: &Envelope) {}
}

impl FrameSink for Stub {
    fn caps(&self) -> SinkCaps {
        SinkCaps {
            tso_max: 65000,
            mtu: 1500,
            loopback_mtu: 65535,
        }
    }
    fn has_room(&self, _: bool) -> bool {
        true
    }
    fn send(&mut self, header: &[u8], payload: TxPayload<'_>, _: &TxOffload) {
        black_box(header);
        self.sent += payload.len() as u64;
    }
}

/// The stack and what its peer will send.
#[derive(Debug)]
pub(crate) struct World {
    stack: Stack,
    pub(crate) stub: Stub,
    meta: FrameMeta,
    frames: Vec<Vec<u8>>,
    next: usize,
    now: Instant,
}

/// Peers lie behind a router, each with so many ports.
const PORTS: usize = 50_000;

fn port_of(connection: usize) -> u16 {
    PORT + (connection % PORTS) as u16
}

fn peer_of(connection: usize) -> Station {
    Station {
        ip: [172, 16, 0, 1 + (connection / PORTS) as u8].into(),
        ..PEER
    }
}

/// The header of the peer's segment that brings request number `n` and acknowledges the answer to the one before.
fn request(iss: u32, n: usize, answered: bool) -> TcpHeader {
    let offset = (n * SIZE) as u32;
    let ack = if answered { offset } else { 0 };
    let seq = IRS + 1 + offset;
    let mut h = header(PORT, 80, TcpFlags::ACK | TcpFlags::PSH, seq, iss + 1 + ack);
    h.window.0 = 500;
    h.options.timestamps = Some(Timestamps {
        value: 5000 + n as u32,
        echo: 0,
    });
    h
}

impl World {
    /// A world in which `count` requests come, in turn over so many connections. `answered`: each waits for the answer to
    /// the one before.
    pub(crate) fn new(
        connections: usize,
        count: usize,
        answered: bool,
        checksum: RxChecksum,
    ) -> Self {
        let config = StackConfig {
            mac: NODE.mac,
            addresses: vec!["10.0.0.1/24".parse().expect("an address")],
            gateway: Some(PEER.ip),
            neighbors: vec![(PEER.ip, PEER.mac)],
            max_connections: 1 << 17,
            syn_backlog_total: 1 << 17,
            seed: [7; 32],
            ..StackConfig::default()
        };
        let mut world = Self {
            stack: Stack::new(config, START),
            stub: Stub::default(),
            meta: FrameMeta {
                len: 0,
                checksum: RxChecksum::Unchecked,
                loopback: false,
            },
            frames: Vec::new(),
            next: 0,
            now: START,
        };
        let local = SocketAddr::from((NODE.ip, 80));
        let options = SocketOptions::default();
        world.stack.listen(local, &options, 8, 0).expect("free");
        let iss: Vec<u32> = (0..connections).map(|n| world.open(n)).collect();
        world.meta.checksum = checksum;
        world.frames = (0..count)
            .map(|n| {
                let (connection, n) = (n % connections, n / connections);
                let mut header = request(iss[connection], n, answered);
                header.src_port = port_of(connection);
                peer_of(connection).tcp(&NODE, &header, &[n as u8; SIZE])
            })
            .collect();
        world
    }

    /// The peer opens a connection as Linux does; returns our initial sequence number.
    fn open(&mut self, connection: usize) -> u32 {
        let (port, peer) = (port_of(connection), peer_of(connection));
        let mut syn = header(port, 80, TcpFlags::SYN, IRS, 0);
        syn.options.mss = Some(1460);
        syn.options.sack_permitted = true;
        syn.options.window_scale = Some(WindowScale::new(7));
        syn.options.timestamps = Some(Timestamps {
            value: 4000,
            echo: 0,
        });
        self.receive(&peer.tcp(&NODE, &syn, &[]));
        let mut sink = SynSink::default();
        self.stack.transmit(self.now, &mut sink, 16);
        let mut ack = header(port, 80, TcpFlags::ACK, IRS + 1, sink.iss + 1);
        ack.window.0 = 500;
        ack.options.timestamps = Some(Timestamps {
            value: 4001,
            echo: 0,
        });
        self.receive(&peer.tcp(&NODE, &ack, &[]));
        self.stack.transmit(self.now, &mut self.stub, 16);
        sink.iss
    }

    fn receive(&mut self, frame: &[u8]) {
        self.meta.len = frame.len();
        self.stack
            .handle_frame(self.now, &self.meta, frame, &mut self.stub);
    }

    /// A frame comes in.
    #[inline]
    pub(crate) fn take_frame(&mut self) {
        let Self {
            stack,
            stub,
            frames,
            ..
        } = self;
        let frame = &frames[self.next];
        self.meta.len = frame.len();
        stack.handle_frame(self.now, &self.meta, frame, stub);
        self.next += 1;
    }

    /// Puts the frames into another order.
    #[allow(dead_code, reason = "not used by all benchmarks")]
    pub(crate) fn shuffle(&mut self, mut below: impl FnMut(usize) -> usize) {
        for i in (1..self.frames.len()).rev() {
            self.frames.swap(i, below(i + 1));
        }
    }

    /// The next `count` frames come as a burst.
    #[allow(dead_code, reason = "not used by all benchmarks")]
    #[inline]
    pub(crate) fn take_burst(&mut self, count: usize, prefetch: bool) {
        if prefetch {
            for frame in &self.frames[self.next..self.next + count] {
                self.stack.prefetch(frame);
            }
        }
        for _ in 0..count {
            self.take_frame();
        }
    }

    /// The application reads what came, and answers.
    #[inline]
    pub(crate) fn answer(&mut self) {
        let user = (self.next - 1) % self.stub.sockets.len();
        let Socket {
            conn,
            received,
            written,
        } = &mut self.stub.sockets[user];
        self.stack.set_receive_limit(*conn, *received + (1 << 20));
        *written += SIZE as u64;
        self.stack.set_send_limit(*conn, *written, false);
    }

    /// Fires what is due.
    #[allow(dead_code, reason = "not used by all benchmarks")]
    #[inline]
    pub(crate) fn look_for_timers(&mut self) {
        self.stack.handle_timers(self.now, &mut self.stub, 64);
    }

    /// The turn ends.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        self.stack.transmit(self.now, &mut self.stub, 512);
        self.now += std::time::Duration::from_micros(10);
    }
}

/// Catches the sequence number of a SYN-ACK.
#[derive(Debug, Default)]
struct SynSink {
    iss: u32,
}

impl FrameSink for SynSink {
    fn caps(&self) -> SinkCaps {
        Stub::default().caps()
    }
    fn has_room(&self, _: bool) -> bool {
        true
    }
    fn send(&mut self, frame: &[u8], _: TxPayload<'_>, _: &TxOffload) {
        if let Some((h, _)) = frame.get(34..).and_then(|tcp| TcpHeader::parse(tcp).ok())
            && h.flags.contains(TcpFlags::SYN)
        {
            self.iss = h.seq.0;
        }
    }
}

impl Host for SynSink {
    fn room(&mut self, _: User, _: u32, _: bool) -> bool {
        true
    }
    fn store(&mut self, _: User, _: ConnId, _: u32, _: u32, _: u64, _: bool) {}
    fn store_bytes(&mut self, _: User, _: ConnId, _: &[u8], _: u64, _: bool) {}
    fn readable(&mut self, _: User, _: ConnId, _: u64, _: bool) {}
    fn acknowledged(&mut self, _: User, _: ConnId, _: u64) {}
    fn can_accept(&mut self, _: User) -> bool {
        true
    }
    fn incoming(
        &mut self,
        _: User,
        _: ConnId,
        _: SocketAddr,
        _: SocketAddr,
    ) -> Option<(User, u64)> {
        None
    }
    fn connected(&mut self, _: User, _: ConnId) {}
    fn closed(&mut self, _: User, _: ConnId, _: CloseReason) {}
    fn datagram(&mut self, _: User, _: u32, _: u32, _: &Envelope) {}
    fn datagram_bytes(&mut self, _: User, _: &[u8], _: &Envelope) {}
}
