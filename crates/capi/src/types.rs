//! What C programs see: handles, structures, constants.

use std::ffi::c_void;

/// A user adaptation layer (UAL): what one process shares with an engine. 0 is never one.
pub type Dusi_Ual = u64;
/// An event queue (EvQ) of a UAL. 0 is never one.
pub type Dusi_Evq = u64;
/// A direct transport interface (DTI): a socket. 0 is never one.
pub type Dusi_Dti = u64;
/// Registered memory of a UAL. 0 is never one: see DUSI_NO_REGION.
pub type Dusi_Region = u64;
/// A piece of the receive pool that holds received bytes, until it is returned. 0 is never one: see DUSI_NO_CHUNK.
pub type Dusi_Chunk = u64;

/// Version of this interface: major * 10000 + minor * 100 + patch. Dusi_Version() tells the library's.
pub const DUSI_VERSION: u32 = 100;

/// In place of any handle: none.
pub const DUSI_NULL_HANDLE: u64 = 0;
/// In place of a region: the bytes lie in any memory, and are copied (at most DUSI_COPY_MAX of them).
pub const DUSI_NO_REGION: Dusi_Region = 0;
/// In place of a chunk: the event holds none.
pub const DUSI_NO_CHUNK: Dusi_Chunk = 0;

/// Bytes that one call can send from memory that is not registered.
pub const DUSI_COPY_MAX: u32 = 256;
/// Pieces of one vectored send or receive.
pub const DUSI_VECTOR_MAX: u32 = 16;

/// Dusi_Open_Ual: calls do not wake a sleeping engine; Dusi_Flush, or a call that waits, does it for all calls before.
pub const DUSI_MANUAL_FLUSH: u32 = 1;

/// Dusi_Create_Dti: received bytes go into posted buffers only; without one they wait in the engine, unannounced.
pub const DUSI_POSTED_ONLY: u32 = 1;

/// Send, shutdown, set option: an event is wanted when it is done.
pub const DUSI_NOTIFY: u32 = 1;
/// Send: the bytes (at most DUSI_COPY_MAX, of a region) are copied, and may be changed once DUSI_EVENT_COMPLETION came, at once.
pub const DUSI_COPY: u32 = 4;
/// Send: more follows at once, so a last segment that is not full may wait for it.
pub const DUSI_MORE: u32 = 8;
/// Send: these are the last bytes; the direction ends behind them.
pub const DUSI_FIN: u32 = 32;
/// Send, of a stream: what is sent up to here is urgent (RFC 9293, 3.8.5; MSG_OOB). It is sent in line.
pub const DUSI_URGENT: u32 = 64;
/// Receive: the buffer is done only when it is full, or the peer has ended its direction.
pub const DUSI_WAIT_ALL: u32 = 64;
/// Connect: TCP Fast Open (RFC 7413). What is sent at once may go with the SYN, and may then be delivered twice.
pub const DUSI_FAST_OPEN: u32 = 128;

/// Dusi_Shutdown: no more will be received.
pub const DUSI_SHUTDOWN_READ: u32 = 1;
/// Dusi_Shutdown: no more will be sent.
pub const DUSI_SHUTDOWN_WRITE: u32 = 2;

/// Dusi_Allocate_Memory: huge pages.
pub const DUSI_HUGE_PAGES: u32 = 1;

/// Dusi_Set_Evq_Signal: the signal goes to the calling thread, not to the process.
pub const DUSI_SIGNAL_THREAD: u32 = 1;

/// Flag of an event: the peer has ended its direction. No byte follows those of this event.
pub const DUSI_EVENT_END: u32 = 1;
/// Flag of an event: the operation failed; the event's status says why.
pub const DUSI_EVENT_FAILED: u32 = 2;

/// Kinds of DTIs.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dusi_Dti_Type {
    /// TCP.
    DUSI_STREAM = 1,
    /// UDP.
    DUSI_DATAGRAM = 2,
}

/// What an event tells.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dusi_Event_Kind {
    /// An operation is done, or was refused: `operation` says which, `status` how it went.
    DUSI_EVENT_COMPLETION = 0,
    /// Bytes came: `data` and `length` tell where they lie, `chunk` is to be returned. With DUSI_EVENT_END and no bytes there is no chunk.
    DUSI_EVENT_RECEIVED = 1,
    /// The posted buffer with this cookie is done and holds `length` bytes; 0 and DUSI_EVENT_END when the peer has ended its direction.
    DUSI_EVENT_RECEIVED_INTO = 2,
    /// A connection was accepted into `dti`, the child; the address is the peer's.
    DUSI_EVENT_ACCEPTED = 3,
    /// Connected, or (see `status`) not; the address is the own one.
    DUSI_EVENT_CONNECTED = 4,
    /// The peer has acknowledged all of the send with this cookie, and all sends of this DTI before it.
    DUSI_EVENT_SENT = 5,
    /// The connection is over: DUSI_OK in good order, else why. The DTI still wants its Dusi_Close, if it had none.
    DUSI_EVENT_CLOSED = 6,
    /// A datagram came, as DUSI_EVENT_RECEIVED; the address is the sender's.
    DUSI_EVENT_DATAGRAM = 7,
    /// The memory registered with this cookie can be used, or (see `status`) not.
    DUSI_EVENT_REGISTERED = 8,
    /// Connections wait at the listener, `value` of them, and no accept is posted.
    DUSI_EVENT_INCOMING = 9,
    /// An error of a datagram DTI that ends nothing; the address is where the datagram was sent.
    DUSI_EVENT_ERROR = 10,
    /// Fewer bytes wait unsent than DUSI_OPT_NOTSENT_LOWAT says.
    DUSI_EVENT_WRITABLE = 11,
    /// The peer has urgent data, which ends at `position` in the stream. It comes in line.
    DUSI_EVENT_URGENT = 12,
    /// What became of a datagram (DUSI_OPT_RECEIVE_ERRORS); the address is where it was sent. At `data`: Linux's errno (4 bytes); who says so: 1 the engine, 2
    /// ICMP, 3 ICMPv6; type and code of the ICMP message; 0, 4 or 6 for the version of the offender's address (1 byte each); the largest packet that would have
    /// passed, or 0 (4 bytes); 4 bytes of 0; the offender's address, IPv4 as an IPv4-mapped one (16 bytes); then the datagram's first bytes.
    DUSI_EVENT_ERROR_REPORT = 13,
}

/// What a DUSI_EVENT_COMPLETION answers.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dusi_Operation {
    /// Dusi_Nop.
    DUSI_OP_NOP = 0,
    /// Dusi_Create_Dti of a stream (only when it failed).
    DUSI_OP_CREATE_STREAM = 1,
    /// Dusi_Create_Dti of a datagram DTI (only when it failed).
    DUSI_OP_CREATE_DATAGRAM = 2,
    /// Dusi_Bind; the address is the local one.
    DUSI_OP_BIND = 3,
    /// Dusi_Listen; the address is the local one.
    DUSI_OP_LISTEN = 4,
    /// Dusi_Accept (only when it failed).
    DUSI_OP_ACCEPT = 5,
    /// Dusi_Connect of a datagram DTI, or one that was refused at once.
    DUSI_OP_CONNECT = 6,
    /// A send that was copied, or that failed.
    DUSI_OP_SEND = 7,
    /// A receive (only when it failed).
    DUSI_OP_RECEIVE = 8,
    /// Dusi_Return_Chunk (only when it failed).
    DUSI_OP_RETURN_CHUNKS = 9,
    /// Dusi_Shutdown.
    DUSI_OP_SHUTDOWN = 10,
    /// Dusi_Close (only when it failed).
    DUSI_OP_CLOSE = 11,
    /// Dusi_Abort (only when it failed).
    DUSI_OP_ABORT = 12,
    /// Dusi_Cancel (only when it failed).
    DUSI_OP_CANCEL = 13,
    /// Dusi_Set_Option.
    DUSI_OP_SET_OPTION = 14,
    /// Dusi_Get_Option or Dusi_Get_Info; `value`, or the address, is the answer.
    DUSI_OP_GET_OPTION = 15,
    /// Dusi_Deregister_Memory.
    DUSI_OP_DEREGISTER = 16,
}

/// Options of a DTI. Values are 64-bit numbers; times are in microseconds. In brackets what Linux calls it.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dusi_Option {
    /// 1: small segments do not wait for acknowledgements (TCP_NODELAY).
    DUSI_OPT_NODELAY = 1,
    /// 1: only full segments leave, until it is 0 again (TCP_CORK).
    DUSI_OPT_CORK = 2,
    /// 1: probe an idle connection (SO_KEEPALIVE).
    DUSI_OPT_KEEPALIVE = 3,
    /// Time before the first probe (TCP_KEEPIDLE).
    DUSI_OPT_KEEPALIVE_IDLE = 4,
    /// Time between probes (TCP_KEEPINTVL).
    DUSI_OPT_KEEPALIVE_INTERVAL = 5,
    /// Probes before the connection is given up (TCP_KEEPCNT).
    DUSI_OPT_KEEPALIVE_PROBES = 6,
    /// How long data may stay unacknowledged; 0: the engine's default (TCP_USER_TIMEOUT).
    DUSI_OPT_USER_TIMEOUT = 7,
    /// Bytes of receive buffer at most; 0: tuned (SO_RCVBUF).
    DUSI_OPT_RECEIVE_BUFFER = 8,
    /// 0 NewReno, 1 CUBIC, 2 DCTCP, 3 BBR; before the connection opens (TCP_CONGESTION).
    DUSI_OPT_CONGESTION = 9,
    /// How long data is kept trying after the close; UINT64_MAX: off; 0: the close resets (SO_LINGER).
    DUSI_OPT_LINGER = 10,
    /// 1: acknowledge at once (TCP_QUICKACK).
    DUSI_OPT_QUICKACK = 11,
    /// Read only: the own address (getsockname).
    DUSI_OPT_LOCAL_ADDRESS = 12,
    /// Read only: the peer's address (getpeername).
    DUSI_OPT_PEER_ADDRESS = 13,
    /// Unsent bytes below which DUSI_EVENT_WRITABLE comes; 0: never (TCP_NOTSENT_LOWAT).
    DUSI_OPT_NOTSENT_LOWAT = 14,
    /// Bytes of the largest segment, 88 to 32767 (TCP_MAXSEG).
    DUSI_OPT_MAX_SEGMENT = 15,
    /// How often a SYN is sent again, 1 to 127; 0: the engine's default (TCP_SYNCNT).
    DUSI_OPT_SYN_RETRIES = 16,
    /// Bytes that the receive window never exceeds; 0: no limit (TCP_WINDOW_CLAMP).
    DUSI_OPT_WINDOW_CLAMP = 17,
    /// How long FIN-WAIT-2 lasts after the close (TCP_LINGER2).
    DUSI_OPT_FIN_WAIT2 = 18,
    /// Listener: accept when data came, or so long after the SYN (TCP_DEFER_ACCEPT).
    DUSI_OPT_DEFER_ACCEPT = 19,
    /// Traffic class (IP_TOS, IPV6_TCLASS).
    DUSI_OPT_TRAFFIC_CLASS = 20,
    /// Hop limit, 1 to 255; 0: the engine's default (IP_TTL, IPV6_UNICAST_HOPS).
    DUSI_OPT_HOP_LIMIT = 21,
    /// 1: an IPv6 address takes nothing of IPv4 (IPV6_V6ONLY).
    DUSI_OPT_V6ONLY = 22,
    /// ECN: 0 off, 1 where the peer asks, 2 asked for; before the connection opens.
    DUSI_OPT_ECN = 23,
    /// Listener: how many connections may be open before their handshake ends; 0: none (TCP_FASTOPEN).
    DUSI_OPT_FAST_OPEN = 24,
    /// Bytes a second at which data goes out at most; 0: the engine's default (SO_MAX_PACING_RATE).
    DUSI_OPT_MAX_PACING_RATE = 26,
    /// Read only: where in the stream the peer's urgent data ends; 0: it told of none (SIOCATMARK).
    DUSI_OPT_URGENT_MARK = 27,
    /// Datagrams to groups: hops, 0 to 255 (IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS).
    DUSI_OPT_MULTICAST_HOPS = 28,
    /// Datagrams to groups: 1: sockets of this engine get them, too (IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP).
    DUSI_OPT_MULTICAST_LOOP = 29,
    /// Datagrams to groups: the IPv4 address that they come from, as a number; 0: the engine's choice (IP_MULTICAST_IF).
    DUSI_OPT_MULTICAST_SOURCE = 30,
    /// Datagrams: 1: others that say so too may be bound to the same port; before it is bound (SO_REUSEADDR).
    DUSI_OPT_REUSE_ADDRESS = 31,
    /// Datagrams: 1: each ICMP error is told by DUSI_EVENT_ERROR_REPORT (IP_RECVERR, IPV6_RECVERR).
    DUSI_OPT_RECEIVE_ERRORS = 32,
    /// Datagrams: 0 to 3, whether routers may cut them (IP_MTU_DISCOVER).
    DUSI_OPT_MTU_DISCOVERY = 33,
    /// Datagrams, read only: bytes of the largest packet that is known to pass to the connected peer (IP_MTU).
    DUSI_OPT_PATH_MTU = 34,
}

/// What a program wishes for when it opens a UAL. The engine's policy may grant less: Dusi_Get_Ual_Info tells. A field that is 0 stands for
/// the default in brackets.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dusi_Ual_Config {
    /// Bytes of this structure: sizeof (Dusi_Ual_Config). Must be set.
    pub size: u32,
    /// 0 or DUSI_MANUAL_FLUSH.
    pub flags: u32,
    /// Operations that fit into the doorbell queue, 32 to 65536, rounded up to a power of two [1024].
    pub doorbell_depth: u32,
    /// DTIs at a time, up to 4194304 [65536].
    pub dtis: u32,
    /// Event queues, 1 to 512 [8].
    pub evqs: u32,
    /// Events that fit into an event queue, 8 to 65536, rounded up to a power of two [4096].
    pub evq_depth: u32,
    /// Bytes of the receive pool [64 MiB].
    pub pool_bytes: u64,
    /// Microseconds for which a wait polls before it sleeps, plus 1; so 1 sleeps at once [6].
    pub spin: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// What was granted to a UAL.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dusi_Ual_Info {
    /// Operations that fit into the doorbell queue.
    pub doorbell_depth: u32,
    /// DTIs at a time.
    pub dtis: u32,
    /// Event queues at a time.
    pub evqs: u32,
    /// Events that fit into an event queue.
    pub evq_depth: u32,
    /// Bytes of the receive pool.
    pub pool_bytes: u64,
    /// Which engine process this is: another number after a restart.
    pub epoch: u64,
}

/// A piece of memory, of a vectored send or receive.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dusi_Buffer {
    /// The memory that the piece lies in; for sends also the chunk of an event.
    pub region: Dusi_Region,
    /// Its first byte.
    pub data: *mut c_void,
    /// Its bytes.
    pub length: usize,
}

/// An event: the answer to an operation, or news from the network.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dusi_Event {
    /// What happened: one of Dusi_Event_Kind; others may be added.
    pub kind: u32,
    /// How it went: one of Dusi_Status.
    pub status: i32,
    /// Of DUSI_EVENT_COMPLETION, what it answers: one of Dusi_Operation.
    pub operation: u32,
    /// DUSI_EVENT_END, DUSI_EVENT_FAILED.
    pub flags: u32,
    /// The DTI, or DUSI_NULL_HANDLE.
    pub dti: Dusi_Dti,
    /// The cookie of the call that this answers, or 0.
    pub cookie: u64,
    /// What is to be given to Dusi_Return_Chunk when the bytes at `data` were used, or DUSI_NO_CHUNK.
    pub chunk: Dusi_Chunk,
    /// Received bytes, valid until the chunk is returned; else NULL.
    pub data: *const c_void,
    /// How many bytes were received.
    pub length: u64,
    /// Where in the stream the bytes begin (or up to where they were acknowledged or sent), counted from 0.
    pub position: u64,
    /// A number, by kind and operation.
    pub value: u64,
    /// An address, if there is one: Dusi_Event_Address takes it out.
    pub address: [u64; 3],
}
