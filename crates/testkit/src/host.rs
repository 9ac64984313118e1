//! A host that keeps real bytes: what it is asked for it gathers, what it is given it checks.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use sidecore_stack::{
    ConnId, DatagramError, Envelope, FrameSink, Host, SinkCaps, TxOffload, TxPayload, User,
};
use sidecore_tcp::{CloseReason, IcmpKind};

use crate::Rng;
use crate::device;

/// What a host was told about a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `incoming`: the listener's user.
    Incoming(User),
    /// `connected`.
    Connected,
    /// `readable` with `fin`, at this stream offset.
    Fin(u64),
    /// `closed`.
    Closed(CloseReason),
    /// `datagram_ready`.
    DatagramReady,
    /// `icmp_error`.
    IcmpError(SocketAddr, IcmpKind),
}

/// A datagram that was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The socket's user.
    pub user: User,
    /// Its sender.
    pub from: SocketAddr,
    /// Where it was sent to.
    pub to: SocketAddr,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// What became of a datagram that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramReport {
    /// The socket's user.
    pub user: User,
    /// Where it was sent.
    pub remote: SocketAddr,
    /// Type and code of the ICMP message.
    pub message: (u8, u8),
    /// The MTU or offset in it.
    pub info: u32,
    /// Who sent it.
    pub offender: std::net::IpAddr,
    /// What it quotes of the payload.
    pub payload: Vec<u8>,
}

/// A frame as the stack sent it, before the device did anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// The header.
    pub header: Vec<u8>,
    /// The payload, gathered.
    pub payload: Vec<u8>,
    /// What was left to do.
    pub offload: TxOffload,
}

/// One connection's bytes.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) conn: Option<ConnId>,
    /// Everything written; the first `acked` bytes may not be asked for any more.
    pub(crate) written: Vec<u8>,
    pub(crate) acked: u64,
    /// Everything received; `held` says which parts, while `received` is in order.
    bytes: Vec<u8>,
    /// Ranges beyond `received`: start to end.
    held: BTreeMap<u64, u64>,
    pub(crate) received: u64,
    /// Bytes that the application has read.
    pub(crate) consumed: u64,
    pub(crate) limit: u64,
    pub(crate) fin: bool,
    pub(crate) closed: Option<CloseReason>,
    pub(crate) closing: bool,
    /// The peer may send other bytes for the same place.
    pub(crate) forgiven: bool,
    pub(crate) events: Vec<Event>,
}

impl Stream {
    fn new(limit: u64) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    pub(crate) fn in_order(&self) -> &[u8] {
        &self.bytes[..self.received as usize]
    }

    fn store(&mut self, bytes: &[u8], at: u64, in_order: bool) {
        let end = at + bytes.len() as u64;
        assert!(!bytes.is_empty(), "an empty store");
        assert!(
            end <= self.limit,
            "stored beyond the limit: {end} > {}",
            self.limit
        );
        assert!(
            !in_order || at <= self.received,
            "{at} is not in order after {}",
            self.received
        );
        assert!(in_order || at > self.received, "{at} is in order");
        if self.bytes.len() < end as usize {
            self.bytes.resize(end as usize, 0);
        }
        self.check_overlap(bytes, at);
        self.bytes[at as usize..end as usize].copy_from_slice(bytes);
        let end = self.held.get(&at).map_or(end, |held| end.max(*held));
        self.held.insert(at, end);
    }

    /// Bytes that were stored before must be the same.
    fn check_overlap(&self, bytes: &[u8], at: u64) {
        if self.forgiven {
            return;
        }
        let end = at + bytes.len() as u64;
        let before = core::iter::once((0, self.received));
        let held = self.held.iter().map(|(start, end)| (*start, *end));
        for (start, stop) in before.chain(held) {
            let (from, to) = (start.max(at), stop.min(end));
            if from < to {
                let stored = &self.bytes[from as usize..to as usize];
                let again = &bytes[(from - at) as usize..(to - at) as usize];
                assert_eq!(stored, again, "stored again with other bytes at {from}");
            }
        }
    }

    fn readable(&mut self, receive_next: u64, fin: bool) {
        assert!(receive_next >= self.received, "receive_next went back");
        assert!(!self.fin || receive_next == self.received, "data after FIN");
        while let Some((start, end)) = self.held.first_key_value().map(|(s, e)| (*s, *e)) {
            if start > self.received {
                break;
            }
            self.received = self.received.max(end);
            self.held.pop_first();
        }
        assert_eq!(
            self.received, receive_next,
            "the stored bytes end elsewhere"
        );
        if fin {
            assert!(!self.fin, "FIN twice");
            self.fin = true;
            self.events.push(Event::Fin(receive_next));
        }
    }
}

/// The host and sink of one node. A user is the index of a stream.
#[derive(Debug)]
pub struct TestHost {
    pub(crate) streams: Vec<Stream>,
    /// Users of listeners, and what was accepted for each.
    pub(crate) accepted: BTreeMap<User, VecDeque<User>>,
    /// The frame that is being handled.
    pub(crate) frame: Arc<[u8]>,
    /// What went to the device, as it appears on the wire.
    pub(crate) wire: Vec<Vec<u8>>,
    /// The same, as the stack gave it; kept only if asked for.
    pub(crate) sent: Option<Vec<SentFrame>>,
    pub(crate) loopback: VecDeque<(Vec<u8>, usize)>,
    pub(crate) datagrams: Vec<Datagram>,
    pub(crate) datagram_events: Vec<(User, Event)>,
    pub(crate) datagram_errors: Vec<DatagramReport>,
    /// What [`FrameSink::caps`] says.
    pub caps: SinkCaps,
    /// Frames that the device takes before it is emptied.
    pub device_room: usize,
    /// Frames that the loopback takes before it is emptied.
    pub loopback_room: usize,
    /// Receive buffer of every connection.
    pub buffer: u64,
    /// Refuse everything that comes in.
    pub refuse: bool,
    /// Connections that a listener keeps until they are accepted; beyond it, handshakes wait.
    pub accept_queue: usize,
    /// How often in a thousand there is no room.
    pub no_room: u32,
    pub(crate) rng: Rng,
}

impl TestHost {
    pub(crate) fn new(caps: SinkCaps, seed: u64) -> Self {
        Self {
            streams: Vec::new(),
            accepted: BTreeMap::new(),
            frame: Arc::from([]),
            wire: Vec::new(),
            sent: None,
            loopback: VecDeque::new(),
            datagrams: Vec::new(),
            datagram_events: Vec::new(),
            datagram_errors: Vec::new(),
            caps,
            device_room: usize::MAX,
            loopback_room: usize::MAX,
            buffer: 65535,
            refuse: false,
            accept_queue: usize::MAX,
            no_room: 0,
            rng: Rng::new(seed),
        }
    }

    pub(crate) fn new_stream(&mut self) -> User {
        self.streams.push(Stream::new(self.buffer));
        self.streams.len() as User - 1
    }

    /// The stream of a live connection.
    fn live(&mut self, user: User, conn: ConnId) -> &mut Stream {
        let stream = self
            .streams
            .get_mut(user as usize)
            .unwrap_or_else(|| panic!("{user} is nobody"));
        assert_eq!(stream.conn, Some(conn), "another connection's id");
        assert_eq!(stream.closed, None, "told something after closed");
        stream
    }

    fn gather(&self, payload: TxPayload<'_>) -> Vec<u8> {
        match payload {
            TxPayload::None => Vec::new(),
            TxPayload::Bytes(bytes) => bytes.to_vec(),
            TxPayload::Stream { user, start, len } => {
                let stream = &self.streams[user as usize];
                assert_eq!(stream.closed, None, "asked for bytes after closed");
                assert!(
                    start >= stream.acked,
                    "asked for bytes that may be released"
                );
                stream.written[start as usize..start as usize + len as usize].to_vec()
            }
        }
    }
}

impl Host for TestHost {
    fn room(&mut self, user: User, len: u32, _in_order: bool) -> bool {
        assert!(len > 0 && (user as usize) < self.streams.len());
        !self.rng.chance(self.no_room)
    }

    fn store(
        &mut self,
        user: User,
        conn: ConnId,
        frame_offset: u32,
        len: u32,
        stream_offset: u64,
        in_order: bool,
    ) {
        let frame = Arc::clone(&self.frame);
        let start = frame_offset as usize;
        let bytes = &frame[start..start + len as usize];
        self.live(user, conn).store(bytes, stream_offset, in_order);
    }

    fn store_bytes(
        &mut self,
        user: User,
        conn: ConnId,
        bytes: &[u8],
        stream_offset: u64,
        in_order: bool,
    ) {
        self.live(user, conn).store(bytes, stream_offset, in_order);
    }

    fn readable(&mut self, user: User, conn: ConnId, receive_next: u64, fin: bool) {
        self.live(user, conn).readable(receive_next, fin);
    }

    fn acknowledged(&mut self, user: User, conn: ConnId, send_una: u64) {
        let stream = self.live(user, conn);
        assert!(send_una >= stream.acked && send_una <= stream.written.len() as u64);
        stream.acked = send_una;
    }

    fn can_accept(&mut self, listener: User) -> bool {
        self.accepted[&listener].len() < self.accept_queue
    }

    fn incoming(
        &mut self,
        listener: User,
        conn: ConnId,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<(User, u64)> {
        assert_ne!(local, remote);
        if self.refuse {
            return None;
        }
        let user = self.new_stream();
        let stream = &mut self.streams[user as usize];
        stream.conn = Some(conn);
        stream.events.push(Event::Incoming(listener));
        let limit = stream.limit;
        let queue = self.accepted.get_mut(&listener);
        queue.expect("a listener that was opened").push_back(user);
        Some((user, limit))
    }

    fn connected(&mut self, user: User, conn: ConnId) {
        let stream = self.live(user, conn);
        assert!(
            !stream.events.contains(&Event::Connected),
            "connected twice"
        );
        stream.events.push(Event::Connected);
    }

    fn closed(&mut self, user: User, conn: ConnId, reason: CloseReason) {
        let stream = self.live(user, conn);
        assert!(
            stream.closing || reason != CloseReason::Normal,
            "an orderly end before close()"
        );
        stream.closed = Some(reason);
        stream.events.push(Event::Closed(reason));
    }

    fn datagram(&mut self, user: User, frame_offset: u32, len: u32, envelope: &Envelope) {
        let start = frame_offset as usize;
        let bytes = self.frame[start..start + len as usize].to_vec();
        self.datagrams.push(Datagram {
            user,
            from: envelope.from,
            to: envelope.to,
            bytes,
        });
    }

    fn datagram_bytes(&mut self, user: User, bytes: &[u8], envelope: &Envelope) {
        self.datagrams.push(Datagram {
            user,
            from: envelope.from,
            to: envelope.to,
            bytes: bytes.to_vec(),
        });
    }

    fn datagram_ready(&mut self, user: User) {
        self.datagram_events.push((user, Event::DatagramReady));
    }

    fn icmp_error(&mut self, user: User, error: &DatagramError<'_>) {
        self.datagram_events
            .push((user, Event::IcmpError(error.remote, error.kind)));
        self.datagram_errors.push(DatagramReport {
            user,
            remote: error.remote,
            message: error.message,
            info: error.info,
            offender: error.offender,
            payload: error.payload.to_vec(),
        });
    }
}

impl FrameSink for TestHost {
    fn caps(&self) -> SinkCaps {
        self.caps
    }

    fn has_room(&self, loopback: bool) -> bool {
        if loopback {
            self.loopback.len() < self.loopback_room
        } else {
            self.wire.len() < self.device_room
        }
    }

    fn send(&mut self, header: &[u8], payload: TxPayload<'_>, offload: &TxOffload) {
        assert!(self.has_room(offload.loopback), "sent without room");
        assert!(header.len() <= sidecore_stack::MAX_HEADER_LEN);
        let payload = self.gather(payload);
        if let Some(sent) = &mut self.sent {
            sent.push(SentFrame {
                header: header.to_vec(),
                payload: payload.clone(),
                offload: *offload,
            });
        }
        if offload.loopback {
            let frame = [header, &payload].concat();
            self.loopback.push_back((frame, header.len()));
            return;
        }
        let most = usize::from(self.caps.mtu) + 14;
        for frame in device::emit(header, &payload, offload) {
            assert!(
                frame.len() <= most,
                "{} bytes are more than the MTU",
                frame.len()
            );
            self.wire.push(frame);
        }
    }
}
