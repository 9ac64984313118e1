//! Commands: application to engine, one entry each, self-contained.
//!
//! ```text
//!   word 0: mark | operation | flags | evq (EVQ_OF_DTI: the one named when the DTI was made)
//!   word 1: DTI handle
//!   word 2: cookie, given back in the completion, never looked at
//!   words 3..8: body by operation
//! ```
//!
//! Any lane of a UAL may post to any of its DTIs. Order on the lane is order on the wire. A command that is refused
//! answers with an event of kind [`crate::EventKind::Completion`] and a [`crate::Status`], always; one that succeeds answers
//! as its operation says.

use crate::{Address, DtiHandle, Entry, Extent};

/// In the `aux` field: events go to the queue that was named when the DTI was made.
pub const EVQ_OF_DTI: u16 = 0xffff;

/// Bytes that fit into an entry itself ([`flags::INLINE`]).
pub const INLINE_MAX: usize = 32;

/// The largest send that the engine copies ([`flags::COPY`]), in bytes.
pub const COPY_MAX: u32 = 256;

/// Bytes sent and not acknowledged that a connection may have to be given away ([`Operation::Detach`]).
pub const DETACH_MAX: u64 = 4 << 20;

/// The key of listeners that share their port because they say so (SO_REUSEPORT): no secret, as every greater one is.
pub const REUSE_PORT_KEY: u64 = 1;

/// Chunk references in one [`Operation::ReturnChunks`].
pub const RETURNS_MAX: usize = 9;

/// Options in one [`Operation::SetOptions`].
pub const OPTIONS_MAX: usize = 6;

/// Bits of each one's value there.
const OPTION_BITS: u32 = 40;

/// What a command asks for. The body words are numbered from 0 (= word 3 of the entry).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    /// Nothing; completes at once when [`flags::NOTIFY`] is set. Tells that everything before it has been read.
    Nop = 0,
    /// Make a stream DTI under the given handle. Body 0: RX EvQ (16 bits), TX EvQ (16 bits), then [`create`] bits. Quiet when it
    /// succeeds.
    CreateStream = 1,
    /// Make a datagram DTI. Body as [`Operation::CreateStream`].
    CreateDatagram = 2,
    /// Bind to an address. Body 0..3: [`Address`] (port 0: any free one). Body 3: 0, or the key that [`Operation::Listen`] will have: who knows
    /// the secret of a listener there may bind to a port that is otherwise not for its user. A datagram DTI with a key that another has becomes one
    /// more holder of the same socket, wherever that is bound: a datagram goes to one holder that receives ([`Opt::Holders`]). Completes with the address in body 0..3.
    Bind = 3,
    /// Listen. Body 0: backlog (32 bits). Body 1: 0, or a key: listeners at the same address with the same key share its connections. With
    /// [`REUSE_PORT_KEY`], which everybody knows, they must be of the same user; another key is a secret that its holder was told. Body 2: 1: only
    /// have the port, which refuses connections, until Listen comes once more without this. Body 3: with a key, the number that copies of one
    /// socket have in common (0: it has none): connections that wait at one are any copy's. Completes with the local address.
    Listen = 4,
    /// Accept one connection on the listener. Body 0: handle of the child, which must exist and be unconnected; receives may
    /// have been posted on it. Answers with [`crate::EventKind::Accepted`] when a connection is there.
    Accept = 5,
    /// Connect. Body 0..3: peer's [`Address`]. Answers with [`crate::EventKind::Connected`]. A datagram DTI has that peer alone from then on, or, with
    /// [`Address::NONE`], none any more, and completes.
    Connect = 6,
    /// Send. Body: [`Extent`] (2 words), or with [`flags::INLINE`] body 0: length, body 1..5: bytes; or with [`flags::LIST`] an
    /// extent whose bytes are a list of extents (16 bytes each). Completes, when [`flags::NOTIFY`] is set, after the
    /// peer has acknowledged every byte. Datagrams: body 2..5 is the destination's [`Address`] (NONE: the connected peer's).
    Send = 7,
    /// Post a buffer for received bytes. Body: [`Extent`]. Completes with [`crate::EventKind::ReceivedInto`]; with
    /// [`flags::WAIT_ALL`] only when it is full, or the stream ended.
    Receive = 8,
    /// Give chunks back. Body 0 low byte: how many (at most [`RETURNS_MAX`]), body 0 high half: first reference; then two a
    /// word. Each event of kind Received holds one reference to its chunk: a chunk named by two events goes back twice. Quiet.
    ReturnChunks = 9,
    /// End a direction. Body 0: [`shutdown`] bits. Sending: FIN after all queued data. With NOTIFY: completes when the FIN was acknowledged.
    Shutdown = 10,
    /// Close: queued data and FIN still go out; the handle is free for another use once [`crate::EventKind::Closed`] came. Body 0: 0, or one
    /// more than the bytes of the stream that the program has read: where more came, the peer is told by a reset (RFC 2525 section 2.17).
    /// Body 1: 1: it was accepted, and no program took it: it goes to another copy of its listener (body 3 of [`Operation::Listen`]), as it was
    /// when it came, or is reset if there is none.
    Close = 11,
    /// Reset the connection and drop everything queued. Answers with [`crate::EventKind::Closed`].
    Abort = 12,
    /// Cancel posted receives, accepts or a connect with this cookie (body 0). Each answers with [`crate::Status::Cancelled`].
    Cancel = 13,
    /// Set an option. Body 0: [`crate::command::Opt`], body 1: value. Quiet unless NOTIFY.
    SetOption = 14,
    /// Get an option. Body 0: option. Completes with the value in body 0.
    GetOption = 15,
    /// Give a region back. Body 0: region. Completes when the engine has let go of it.
    Deregister = 16,
    /// Change what a datagram DTI, which must be bound, listens to. Body: a [`crate::Membership`]. Quiet unless NOTIFY.
    Membership = 17,
    /// Give a connection away: it becomes another UAL's, with everything that is on its way in either direction. Body 0: the number of the
    /// descriptor that stands for it (not 0). Body 1: 0, the custodian; or the UAL that gets it (the custodian only may say so). What was sent
    /// and not acknowledged is copied, so that its memory is free: sends that asked for it complete (a Sent whose body 0 says how much the peer
    /// has acknowledged). Answers with [`crate::EventKind::Detached`], which comes after all else, or is refused and nothing has changed:
    /// [`crate::Status::WrongState`] (no connection, or over), [`crate::Status::NotSupported`] (there is no custodian),
    /// [`crate::Status::NoResources`] (more than [`DETACH_MAX`] bytes unacknowledged, or 64 MiB of all that this UAL gave, or no room at the
    /// other UAL).
    Detach = 18,
    /// Take a connection that was given to this UAL, under the given handle, which must be free. Body 0: as [`Operation::CreateStream`];
    /// body 1: the number, body 2: the UAL that gave it. Answers with [`crate::EventKind::Attached`], or is refused with
    /// [`crate::Status::BadHandle`] (nothing of the kind was given), and then there is no DTI.
    Attach = 19,
    /// Set several options, one after the other. Body 0: their numbers ([`crate::command::Opt`]), one a byte, the first lowest, [`OPTIONS_MAX`] at
    /// most; a zero ends them. Body 1..5: their values, five bytes each, the first lowest. Quiet unless NOTIFY; the first that is refused is told,
    /// and those after it are set all the same.
    SetOptions = 20,
}

impl Operation {
    /// From its number.
    #[inline]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        use Operation::*;
        const ALL: [Operation; 21] = [
            Nop,
            CreateStream,
            CreateDatagram,
            Bind,
            Listen,
            Accept,
            Connect,
            Send,
            Receive,
            ReturnChunks,
            Shutdown,
            Close,
            Abort,
            Cancel,
            SetOption,
            GetOption,
            Deregister,
            Membership,
            Detach,
            Attach,
            SetOptions,
        ];
        if (raw as usize) < ALL.len() {
            Some(ALL[raw as usize])
        } else {
            None
        }
    }
}

/// Flags of a command.
pub mod flags {
    /// An event is wanted when the command is done (errors are reported without it as well).
    pub const NOTIFY: u8 = 1 << 0;
    /// Send: the data is in the entry.
    pub const INLINE: u8 = 1 << 1;
    /// Send: the engine copies the data now (at most [`super::COPY_MAX`] bytes); the memory may be used again once the command
    /// was read, and the completion, if asked for, comes at once.
    pub const COPY: u8 = 1 << 2;
    /// Send: more follows (MSG_MORE): a last partial segment may wait.
    pub const MORE: u8 = 1 << 3;
    /// Send: the extent names a list of extents.
    pub const LIST: u8 = 1 << 4;
    /// Send: FIN after this data.
    pub const FIN: u8 = 1 << 5;
    /// Receive: complete only when full.
    pub const WAIT_ALL: u8 = 1 << 6;
    /// Send, of a stream: this data, and what was sent before it, is urgent (RFC 9293 section 3.8.5, MSG_OOB): the peer is told that
    /// urgent data ends with its last byte. It is sent in line. No flag of a send is [`WAIT_ALL`], which has the same bit.
    pub const URGENT: u8 = 1 << 6;
    /// Connect: the SYN asks for a Fast Open cookie or, if the engine has one of that server, waits for the first bytes to send and takes
    /// them along (RFC 7413, TCP_FASTOPEN_CONNECT). These bytes may be delivered twice to a server that was restarted meanwhile.
    pub const FAST_OPEN: u8 = 1 << 7;
}

/// Bits 32 and up of body 0 of [`Operation::CreateStream`].
pub mod create {
    /// Received bytes go only into buffers that are posted; without one they wait in the pool (the papers' anonymous buffers).
    pub const POSTED_ONLY: u64 = 1 << 32;
}

/// Directions for [`Operation::Shutdown`].
pub mod shutdown {
    /// No more will be received: what arrives is acknowledged and dropped.
    pub const READ: u64 = 1;
    /// No more will be sent: FIN.
    pub const WRITE: u64 = 2;
}

/// Bits of [`Opt::Holders`].
pub mod holders {
    /// The program receives: datagrams may come here. Without it they wait.
    pub const RECEIVES: u64 = 1;
    /// Others may hold the socket that have not opened it: when this one closes, it stays for them for a while.
    pub const OUTLIVED: u64 = 2;
}

/// Options of a DTI. Values are u64; times in microseconds unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Opt {
    /// 1: no Nagle delay (TCP_NODELAY).
    NoDelay = 1,
    /// 1: only full segments leave until it is 0 again (TCP_CORK).
    Cork = 2,
    /// Keepalive: 0 off, 1 on (SO_KEEPALIVE).
    Keepalive = 3,
    /// Idle time before the first probe.
    KeepaliveIdle = 4,
    /// Time between probes.
    KeepaliveInterval = 5,
    /// Probes before the connection is given up.
    KeepaliveProbes = 6,
    /// How long data may stay unacknowledged; 0: the engine's default (TCP_USER_TIMEOUT).
    UserTimeout = 7,
    /// Bytes of receive buffer at most; 0: auto-tuned (SO_RCVBUF).
    ReceiveBuffer = 8,
    /// Congestion control: 0 NewReno, 1 CUBIC, 2 DCTCP, 3 BBR. Before the connection is opened.
    Congestion = 9,
    /// Close: u64::MAX off; else time for which data is kept trying before a reset; 0 resets at once (SO_LINGER).
    Linger = 10,
    /// 1: quick acknowledgements, no delay (TCP_QUICKACK).
    QuickAck = 11,
    /// Read only: address of this side is answered in body 0..3.
    LocalAddress = 12,
    /// Read only: address of the peer is answered in body 0..3.
    PeerAddress = 13,
    /// Bytes that may wait unsent: when fewer wait again after a send, [`crate::EventKind::Writable`] comes. 0: it never does
    /// (TCP_NOTSENT_LOWAT).
    NotsentLowat = 14,
    /// Bytes of the largest segment, 88 to 32767: before the connection opens, what is announced and sent; later, what is sent, and never
    /// more than before. Read: the payload of a full segment, options taken off, once there is a connection (TCP_MAXSEG).
    MaxSegment = 15,
    /// How often a SYN or SYN-ACK is sent again, 1 to 127; 0: the engine's default (TCP_SYNCNT).
    SynRetries = 16,
    /// Bytes that the receive window is never larger than; 0: no such limit (TCP_WINDOW_CLAMP).
    WindowClamp = 17,
    /// How long FIN-WAIT-2 lasts after Close, 120 s at most; 0: the engine's default, u64::MAX: it ends at once (TCP_LINGER2).
    FinWait2 = 18,
    /// Listener: a connection is accepted when data has come, or so long after its SYN. 0: at once (TCP_DEFER_ACCEPT).
    DeferAccept = 19,
    /// Traffic class of what is sent; of a stream the upper six bits count (IP_TOS, IPV6_TCLASS).
    TrafficClass = 20,
    /// Time to live or hop limit of what is sent, 1 to 255; 0: the engine's default (IP_TTL, IPV6_UNICAST_HOPS).
    HopLimit = 21,
    /// 1: a socket bound to an address of IPv6 takes nothing of IPv4. Before it is bound (datagrams) or listens (IPV6_V6ONLY).
    V6Only = 22,
    /// ECN (RFC 3168): 0 off, 1 where the peer asks for it, 2 asked for. Before the connection is opened.
    Ecn = 23,
    /// Listener: connections that may be open before their handshake is complete; 0: none (TCP_FASTOPEN, RFC 7413).
    FastOpen = 24,
    /// Read only: the engine writes a [`crate::TcpInfo`], or as much of it as fits, to the [`Extent`] in body 1 and 2. Completes with
    /// the number of bytes (TCP_INFO).
    Info = 25,
    /// Bytes a second at which data goes out at most, where the engine's own bound is not less; 0: the engine's default (read: there is no
    /// bound). Data is paced where there is one (SO_MAX_PACING_RATE).
    MaxPacingRate = 26,
    /// Read only: the stream offset after the last urgent data of which the peer has told; 0: it told of none. The mark of SIOCATMARK
    /// and the byte that is out of band without SO_OOBINLINE is the last byte before it ([`crate::EventKind::Urgent`]).
    UrgentMark = 27,
    /// Datagrams to groups: how many hops they go, 0 to 255; 0: not onto the link. As made: 1 (IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS).
    MulticastHops = 28,
    /// Datagrams to groups: 1: sockets of this engine that listen to the group get them, too. As made: 1 (IP_MULTICAST_LOOP,
    /// IPV6_MULTICAST_LOOP).
    MulticastLoop = 29,
    /// Datagrams to groups: the address of IPv4 that they come from, as a number, if the socket is bound to none; 0: the engine's choice
    /// (IP_MULTICAST_IF).
    MulticastSource = 30,
    /// Datagrams: 1: others that say so too may be bound to the same port. What goes to a group or to all reaches each, what goes to one
    /// address the last one bound. Before it is bound; streams take it and need it not (SO_REUSEADDR).
    ReuseAddress = 31,
    /// Datagrams: 1: each ICMP error about a datagram of this socket is told by [`crate::EventKind::ErrorReport`]; 0: of a connected
    /// socket those that are final by [`crate::EventKind::Error`], of others none (IP_RECVERR, IPV6_RECVERR).
    ReceiveErrors = 32,
    /// Datagrams: 0: routers may cut them, and what is known of the path does not count; 1 and 2: they may not (DF), and what is larger than
    /// the path's MTU is refused; 3: they may not, and only the link's MTU counts. As made: 1. The engine cuts none (IP_MTU_DISCOVER; over
    /// IPv6, where nobody cuts, 0 is as 1).
    MtuDiscovery = 33,
    /// Datagrams, read only: bytes of the largest packet that is known to pass to the connected peer (IP_MTU).
    PathMtu = 34,
    /// Number of the descriptor that stands for this connection ([`crate::agent::RequestKind::Descriptors`]); 0: none. Whoever holds it may
    /// get the connection when its UAL dies.
    Descriptor = 35,
    /// Datagrams, of a socket bound with a key, write only: [`holders`] bits.
    Holders = 36,
}

impl Opt {
    /// From its number.
    pub const fn from_raw(raw: u64) -> Option<Self> {
        use Opt::*;
        const ALL: [Opt; 36] = [
            NoDelay,
            Cork,
            Keepalive,
            KeepaliveIdle,
            KeepaliveInterval,
            KeepaliveProbes,
            UserTimeout,
            ReceiveBuffer,
            Congestion,
            Linger,
            QuickAck,
            LocalAddress,
            PeerAddress,
            NotsentLowat,
            MaxSegment,
            SynRetries,
            WindowClamp,
            FinWait2,
            DeferAccept,
            TrafficClass,
            HopLimit,
            V6Only,
            Ecn,
            FastOpen,
            Info,
            MaxPacingRate,
            UrgentMark,
            MulticastHops,
            MulticastLoop,
            MulticastSource,
            ReuseAddress,
            ReceiveErrors,
            MtuDiscovery,
            PathMtu,
            Descriptor,
            Holders,
        ];
        if raw >= 1 && raw as usize <= ALL.len() {
            Some(ALL[raw as usize - 1])
        } else {
            None
        }
    }
}

/// A command, taken apart. Building and reading it are pure; [`Command::decode`] checks only what needs no table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// What to do.
    pub operation: Operation,
    /// [`flags`].
    pub flags: u8,
    /// Event queue for the answer, or [`EVQ_OF_DTI`].
    pub evq: u16,
    /// The DTI.
    pub dti: DtiHandle,
    /// Given back in the completion.
    pub cookie: u64,
    /// By operation.
    pub body: [u64; 5],
}

impl Command {
    /// A command with an empty body.
    #[inline]
    pub const fn new(operation: Operation, dti: DtiHandle, cookie: u64) -> Self {
        Self {
            operation,
            flags: 0,
            evq: EVQ_OF_DTI,
            dti,
            cookie,
            body: [0; 5],
        }
    }

    /// The same with flags added.
    #[inline]
    pub const fn with_flags(mut self, flags: u8) -> Self {
        self.flags |= flags;
        self
    }

    /// The same with an extent in body 0 and 1.
    #[inline]
    pub const fn with_extent(mut self, extent: Extent) -> Self {
        [self.body[0], self.body[1]] = extent.to_words();
        self
    }

    /// The same with an address in body `at`..`at + 3`; `at` is 0 or 2.
    #[inline]
    pub const fn with_address(mut self, at: usize, address: Address) -> Self {
        let mut i = 0;
        while i < 3 {
            self.body[at + i] = address.0[i];
            i += 1;
        }
        self
    }

    /// A send of up to [`INLINE_MAX`] bytes that travel in the entry; longer data is cut off there.
    pub fn with_inline(mut self, data: &[u8]) -> Self {
        let len = data.len().min(INLINE_MAX);
        let mut bytes = [0u8; INLINE_MAX];
        bytes[..len].copy_from_slice(&data[..len]);
        self.flags |= flags::INLINE;
        self.body[0] = len as u64;
        for (word, chunk) in self.body[1..].iter_mut().zip(bytes.chunks_exact(8)) {
            let mut eight = [0u8; 8];
            eight.copy_from_slice(chunk);
            *word = u64::from_ne_bytes(eight);
        }
        self
    }

    /// A [`Operation::ReturnChunks`] of at most [`RETURNS_MAX`] chunks; more are ignored.
    pub fn return_chunks(chunks: &[u32]) -> Self {
        let mut command = Self::new(Operation::ReturnChunks, DtiHandle::default(), 0);
        let count = chunks.len().min(RETURNS_MAX);
        command.body[0] = count as u64;
        for (i, chunk) in chunks[..count].iter().enumerate() {
            // Reference i lies in half i + 1, counted in 32-bit halves from the start of the body.
            command.body[i.div_ceil(2)] |= (*chunk as u64) << (32 * ((i + 1) % 2));
        }
        command
    }

    /// Adds an option to a [`Operation::SetOptions`]; false, and nothing is done, if it is full or the value has more than five bytes.
    pub fn add_option(&mut self, option: Opt, value: u64) -> bool {
        let count = (64 - self.body[0].leading_zeros()).div_ceil(8) as usize;
        if count >= OPTIONS_MAX || value >> OPTION_BITS != 0 {
            return false;
        }
        self.body[0] |= (option as u64) << (8 * count);
        let at = count as u32 * OPTION_BITS;
        let (word, bit) = ((at / 64) as usize, at % 64);
        self.body[1 + word] |= value << bit;
        if bit > 64 - OPTION_BITS {
            self.body[2 + word] |= value >> (64 - bit);
        }
        true
    }

    /// Numbers and values of a [`Operation::SetOptions`]: at most [`OPTIONS_MAX`], of which any may be no option's.
    pub fn options(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let body = self.body;
        let mut numbers = body[0];
        (0..OPTIONS_MAX as u32).map_while(move |n| {
            let number = numbers & 0xff;
            numbers >>= 8;
            let at = n * OPTION_BITS;
            let (word, bit) = ((at / 64) as usize, at % 64);
            let mut value = body[1 + word] >> bit;
            if bit > 64 - OPTION_BITS {
                value |= body[2 + word] << (64 - bit);
            }
            (number != 0).then_some((number, value & ((1 << OPTION_BITS) - 1)))
        })
    }

    /// The extent in body 0 and 1, unchecked.
    #[inline]
    pub const fn extent(&self) -> Extent {
        Extent::from_words([self.body[0], self.body[1]])
    }

    /// The address in body `at`..`at + 3`; `at` is 0 or 2.
    #[inline]
    pub const fn address(&self, at: usize) -> Address {
        Address([self.body[at], self.body[at + 1], self.body[at + 2]])
    }

    /// The inline bytes and how many of them count; a length beyond [`INLINE_MAX`] is refused.
    pub fn inline(&self) -> Option<([u8; INLINE_MAX], usize)> {
        let len = self.body[0];
        if len > INLINE_MAX as u64 {
            return None;
        }
        let mut bytes = [0u8; INLINE_MAX];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(&self.body[1..]) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        Some((bytes, len as usize))
    }

    /// The chunks that a [`Operation::ReturnChunks`] gives back (a count beyond [`RETURNS_MAX`] is cut).
    pub fn returned_chunks(&self) -> impl Iterator<Item = u32> + use<> {
        let body = self.body;
        let count = ((body[0] as u8) as usize).min(RETURNS_MAX);
        (0..count).map(move |i| (body[i.div_ceil(2)] >> (32 * ((i + 1) % 2))) as u32)
    }

    /// As an entry, without its mark.
    #[inline]
    pub const fn encode(&self) -> Entry {
        let b = self.body;
        Entry::new(
            self.operation as u8,
            self.flags,
            self.evq,
            [
                self.dti.to_word(),
                self.cookie,
                b[0],
                b[1],
                b[2],
                b[3],
                b[4],
            ],
        )
    }

    /// From an entry that was copied out of shared memory. An unknown operation is returned as `Err` with the entry's
    /// handle and cookie still readable there.
    #[inline]
    pub const fn decode(entry: &Entry) -> Option<Self> {
        let Some(operation) = Operation::from_raw(entry.code()) else {
            return None;
        };
        let w = &entry.0;
        Some(Self {
            operation,
            flags: entry.flags(),
            evq: entry.aux(),
            dti: DtiHandle::from_word(w[1]),
            cookie: w[2],
            body: [w[3], w[4], w[5], w[6], w[7]],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionId;

    const HANDLE: DtiHandle = DtiHandle {
        index: 7,
        generation: 9,
    };

    #[test]
    fn commands_survive_the_entry() {
        let extent = Extent {
            region: RegionId(3),
            len: 5,
            offset: 1 << 40,
        };
        let command = Command::new(Operation::Send, HANDLE, 42)
            .with_extent(extent)
            .with_flags(flags::NOTIFY | flags::MORE);
        let back = Command::decode(&command.encode().with_mark(77)).unwrap();
        assert_eq!(back, command);
        assert_eq!(back.extent(), extent);
        assert_eq!(Command::decode(&Entry::new(21, 0, 0, [0; 7])), None);
        assert_eq!(Command::decode(&Entry::new(255, 0, 0, [0; 7])), None);
    }

    #[test]
    fn every_operation_has_its_number() {
        for raw in 0..=20 {
            assert_eq!(Operation::from_raw(raw).unwrap() as u8, raw);
        }
        for raw in 1..=36 {
            assert_eq!(Opt::from_raw(raw).unwrap() as u64, raw);
        }
        assert_eq!(Opt::from_raw(0), None);
        assert_eq!(Opt::from_raw(37), None);
    }

    #[test]
    fn several_options_travel_in_one_entry() {
        use Opt::*;
        let most = (1 << OPTION_BITS) - 1;
        let all = [
            (Descriptor, most),
            (NoDelay, 1),
            (Keepalive, most),
            (KeepaliveIdle, 300_000_000),
            (KeepaliveInterval, most - 1),
            (KeepaliveProbes, 3),
        ];
        for len in 0..=all.len() {
            let mut command = Command::new(Operation::SetOptions, HANDLE, 0);
            for (option, value) in &all[..len] {
                assert!(command.add_option(*option, *value));
            }
            let back = Command::decode(&command.encode().with_mark(1)).unwrap();
            let expected = all[..len].iter().map(|(o, v)| (*o as u64, *v));
            assert!(back.options().eq(expected), "{len}");
        }
        let mut full = Command::new(Operation::SetOptions, HANDLE, 0);
        assert!(!full.add_option(NoDelay, most + 1), "six bytes");
        assert_eq!(full.body, [0; 5]);
        for _ in 0..OPTIONS_MAX {
            assert!(full.add_option(NoDelay, most));
        }
        let before = full;
        assert!(!full.add_option(NoDelay, 0));
        assert_eq!(full, before);
        full.body = [u64::MAX; 5];
        assert!(full.options().eq([(255, most); OPTIONS_MAX]), "hostile");
    }

    #[test]
    fn inline_data_and_returns() {
        let data: Vec<u8> = (1..=32).collect();
        for len in 0..=32 {
            let command = Command::new(Operation::Send, HANDLE, 0).with_inline(&data[..len]);
            let (bytes, n) = command.inline().unwrap();
            assert_eq!(&bytes[..n], &data[..len]);
        }
        let mut hostile = Command::new(Operation::Send, HANDLE, 0).with_inline(&data);
        hostile.body[0] = 33;
        assert_eq!(hostile.inline(), None);

        let chunks = [5, u32::MAX, 7, 8, 9, 10, 11, 12, 13];
        for n in 0..=RETURNS_MAX {
            let back: Vec<u32> = Command::return_chunks(&chunks[..n])
                .returned_chunks()
                .collect();
            assert_eq!(back, chunks[..n]);
        }
        let mut hostile = Command::return_chunks(&chunks);
        hostile.body[0] |= 0xff;
        assert_eq!(hostile.returned_chunks().count(), RETURNS_MAX);
    }
}
