//! Messages of the agent's UNIX socket (SOCK_SEQPACKET: one message a packet). It opens UALs, passes descriptors, and is the
//! sign of life: when the application's end closes, the UAL dies.
//!
//! Every message is one fixed-size [`Request`] or [`Reply`]; descriptors travel beside it (SCM_RIGHTS).
//!
//! | request | with descriptors | reply | with descriptors |
//! |---|---|---|---|
//! | OpenUal | — | granted geometry and pool | control memory, pool memory, wake socket (write end: a byte wakes the engine) |
//! | RegisterRegion | the memory, sealed against shrinking and growing | region id, or, when a queue is named, nothing now and an event later | — |
//! | WaitSocket | — | ok | read end of the socket on which the engine wakes that wait cell |
//! | Stat | — | a memfd with a JSON document | the memfd |
//! | Capture | — | ok | read end of a pipe with pcapng |
//! | Addresses | — | ok | a memfd with text: one ADDRESS/PREFIX a line |
//! | Descriptors | — | how many, and their numbers | so many stream sockets, whose other ends the agent keeps |
//! | Release | perhaps a sealed memfd: bytes that were delivered and not read | ok | — |
//! | Adopt | the descriptor | what it stands for, see [`adopted`] | perhaps a memfd: bytes that come before those of the engine |
//! | Leave | — | ok | — |
//! | Spread | — | ok | — |
//! | Describe | — | ok | — |
//! | Recalls | — | ok | a SEQPACKET socket: each message on it is the number (u64) of a connection to be given away |
//! | Option | the descriptor | ok, or the value | perhaps a memfd |
//! | Custody | — | ok | a SEQPACKET socket with [`crate::custody`] messages |

use crate::control::Geometry;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RequestKind {
    /// Open a UAL on this socket: the first message, once. `geometry` and the pool fields say what is wished.
    OpenUal = 1,
    /// Register memory. `args[0]`: length in bytes (0: all of it), `args[1]`: u64::MAX, or the event queue that gets the
    /// Registered event, `args[2]`: cookie.
    RegisterRegion = 2,
    /// Make a socket for a wait cell (`args[0]`), to be put into epoll.
    WaitSocket = 3,
    /// Counters, connections and cycles as JSON. Needs no UAL.
    Stat = 4,
    /// Packets from now on. `args[0]`: IPv4 address (network order, 0: any), `args[1]`: port (0: any), `args[2]`: bytes of each packet at
    /// most. Needs no UAL.
    Capture = 5,
    /// The engine's addresses and their networks, as they are now: a memfd with `args[0]` bytes of text, a line for each. Needs no UAL.
    Addresses = 6,
    /// Descriptors that stand for sockets: stream sockets whose peer's name ([`descriptor_name`]) says which engine they belong to. `args[0]`:
    /// how many (1 to 4). The agent keeps the other ends, so that it sees the last holder close. The answer has the number of the first
    /// in `args[0]`, and how many there are in `args[1]`.
    Descriptors = 7,
    /// The connection of descriptor `args[0]`, which was this UAL's, was given to the custodian (by [`crate::Operation::Detach`]), or is over.
    /// `args[1]`: [`release`] flags. `args[2]`: how many holders the descriptor got in other processes since this was last told, and in the
    /// high half the [`crate::Status`] of a connection that is over. `more`: its addresses, local and peer's. A memfd, sealed against
    /// shrinking and growing, has the bytes that were delivered and not read, `dtis` of them.
    Release = 8,
    /// The holder of descriptor `args[0]`, which comes with the request as a proof, wishes to have its connection for itself. `args[1]`: how
    /// many holders the descriptor got, by this process and between it and the one that told last, that nobody told of. `args[2]`: 1: only
    /// asks what it stands for, and that bytes flow. The answer is in `args[0]`: see [`adopted`].
    Adopt = 9,
    /// This process has no number for descriptor `args[0]` any more. `args[1]`: holders that it made and did not tell of. `args[2]`: 1: what it
    /// executes next has one.
    Leave = 10,
    /// From here on other processes may hold descriptors of this UAL: when it dies, its connections go to them.
    Spread = 11,
    /// Descriptor `args[0]` stands for a listener: `more[0..3]` its address, `args[1]` its backlog, `args[2]` the key by which others may
    /// share it, `more[3]` the number that its copies have in common, `dtis` flags ([`LISTENER_V6`], …) that are given on as they are.
    /// With [`DATAGRAM`] among them it is a UDP socket: `more[3..6]` is its peer's address, and the backlog means nothing; with [`CONNECTION`] no
    /// listener any more. Who does not hold it by a UAL sends the descriptor as a proof.
    Describe = 12,
    /// A socket on which the agent asks for connections to be given away ([`RequestKind::Release`]). Once for a UAL.
    Recalls = 13,
    /// An option of the connection of descriptor `args[0]`, which comes with the request as a proof, while it is in custody. `args[1]`: the
    /// [`crate::command::Opt`], `args[2]`: its value, `dtis`: 1: it is asked for, 0: set ([`may_be_set`] says which may be). The answer has the
    /// value in `args[0]`, or, of `Opt::Info`, a memfd with so many bytes. WrongState: it is not in custody.
    Option = 15,
    /// Become the custodian: the UAL that carries the bytes of connections which several processes hold. For the engine's own process
    /// only, once.
    Custody = 14,
}

/// Flags of a [`RequestKind::Release`].
pub mod release {
    /// There is no connection any more: it is over, and the high half of `args[2]` says how.
    pub const OVER: u64 = 1 << 0;
    /// The process has no number for it any more.
    pub const LEFT: u64 = 1 << 1;
    /// It is never to be one process's own again: somebody uses the descriptor without the library.
    pub const STAYS: u64 = 1 << 2;
}

/// Whether a holder may set an option of a connection in custody: those of the connection, and none of the custodian's own.
pub const fn may_be_set(option: crate::command::Opt) -> bool {
    use crate::command::Opt::*;
    matches!(
        option,
        NoDelay
            | Cork
            | Keepalive
            | KeepaliveIdle
            | KeepaliveInterval
            | KeepaliveProbes
            | UserTimeout
            | ReceiveBuffer
            | Linger
            | QuickAck
            | MaxSegment
            | WindowClamp
            | FinWait2
            | TrafficClass
            | HopLimit
            | MaxPacingRate
    )
}

/// What [`RequestKind::Adopt`] answers.
pub mod adopted {
    /// It is the asker's: `args[1]` is the UAL that gave it, for [`crate::Operation::Attach`], and `args[2]` the number of bytes in the memfd
    /// that come with it. What is in the kernel's descriptor comes before these.
    pub const YOURS: u64 = 1;
    /// Its bytes go through the descriptor: read and write that. `more`: its addresses. Another time it may be had.
    pub const SHARED: u64 = 2;
    /// A listener: `more[0..3]` its address, `args[1]` its backlog, `args[2]` its key, `more[3]` the number of its copies, `dtis` its flags.
    /// Or, with [`super::DATAGRAM`] among those, a UDP socket, with its peer's address in `more[3..6]`.
    pub const LISTENER: u64 = 3;
}

/// Flag of a described listener: the program knows it as one of IPv6.
pub const LISTENER_V6: u32 = 1;
/// Flag of a described listener: IPV6_V6ONLY.
pub const LISTENER_V6_ONLY: u32 = 2;
/// Flag of what is described: no listener, but a UDP socket.
pub const DATAGRAM: u32 = 4;
/// Flag of a described listener: it only has its port, and does not listen. Who opens it may listen there, or connect from there.
pub const LISTENER_HELD: u32 = 8;
/// Flag of what is described: it only had its port, and is a connection of this UAL's from now on. Nothing else counts.
pub const CONNECTION: u32 = 16;

/// What OpenUal asks for in `args[0]`: what becomes of the connections when the application dies.
pub mod death {
    /// As the engine is configured.
    pub const DEFAULT: u64 = 0;
    /// They are reset.
    pub const RESET: u64 = 1;
    /// What was sent still goes out, and a FIN.
    pub const LINGER: u64 = 2;
}

/// The abstract UNIX name (without the leading zero byte) of the agent's end of a descriptor.
pub fn descriptor_name(epoch: u64, number: u64) -> String {
    format!("sidecore/{epoch:x}/{number:x}")
}

/// Epoch and number from such a name.
pub fn parse_descriptor_name(name: &[u8]) -> Option<(u64, u64)> {
    let name = core::str::from_utf8(name).ok()?;
    let (epoch, number) = name.strip_prefix("sidecore/")?.split_once('/')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    Some((hex(epoch)?, hex(number)?))
}

impl RequestKind {
    /// From its number.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::OpenUal),
            2 => Some(Self::RegisterRegion),
            3 => Some(Self::WaitSocket),
            4 => Some(Self::Stat),
            5 => Some(Self::Capture),
            6 => Some(Self::Addresses),
            7 => Some(Self::Descriptors),
            8 => Some(Self::Release),
            9 => Some(Self::Adopt),
            10 => Some(Self::Leave),
            11 => Some(Self::Spread),
            12 => Some(Self::Describe),
            13 => Some(Self::Recalls),
            14 => Some(Self::Custody),
            15 => Some(Self::Option),
            _ => None,
        }
    }
}

/// Marks a message as ours: "SDC1".
pub const MAGIC: u32 = u32::from_le_bytes(*b"SDC1");

/// A request, as 16 words of 32 bits and then arguments; see [`Request::to_bytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What is asked.
    pub kind: RequestKind,
    /// OpenUal: what is wished.
    pub geometry: Geometry,
    /// OpenUal: DTIs wished.
    pub dtis: u32,
    /// OpenUal: bytes of receive pool wished.
    pub pool_bytes: u64,
    /// By kind.
    pub args: [u64; 3],
    /// By kind: addresses.
    pub more: [u64; 6],
}

/// An answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// [`crate::Status`] as a number.
    pub status: u16,
    /// OpenUal: what was granted.
    pub geometry: Geometry,
    /// OpenUal: DTIs granted; handles' indexes lie below.
    pub dtis: u32,
    /// OpenUal: bytes of receive pool granted.
    pub pool_bytes: u64,
    /// OpenUal: epoch of the engine; a new engine process has a new one.
    pub epoch: u64,
    /// By kind: RegisterRegion: args[0] is the region, args[1] its length.
    pub args: [u64; 3],
    /// By kind: addresses.
    pub more: [u64; 6],
}

/// Bytes of a request or reply.
pub const MESSAGE_BYTES: usize = 128;

/// Room for a message of another version, whose length may be another, too: so much of it is read that it can be told apart.
pub const MESSAGE_ROOM: usize = 1024;

/// A message of this version: its bytes, and where its kind or status is.
fn opened(bytes: &[u8]) -> Result<Reader<'_>, MessageError> {
    // Every version begins with these two.
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    match (word(0), word(4)) {
        (Some(MAGIC), Some(crate::VERSION)) => {}
        (Some(MAGIC), Some(version)) => return Err(MessageError::Version(version)),
        _ => return Err(MessageError::Malformed),
    }
    let bytes = bytes.try_into().map_err(|_| MessageError::Malformed)?;
    Ok(Reader { bytes, at: 8 })
}

struct Writer {
    bytes: [u8; MESSAGE_BYTES],
    at: usize,
}

impl Writer {
    fn put(&mut self, data: &[u8]) {
        self.bytes[self.at..self.at + data.len()].copy_from_slice(data);
        self.at += data.len();
    }

    fn u32(&mut self, v: u32) {
        self.put(&v.to_le_bytes());
    }

    fn u64(&mut self, v: u64) {
        self.put(&v.to_le_bytes());
    }

    fn geometry(&mut self, g: &Geometry) {
        for v in [
            g.engines,
            g.lanes,
            g.lane_order,
            g.evqs,
            g.evq_order,
            g.wait_cells,
        ] {
            self.u32(v);
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8; MESSAGE_BYTES],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0u8; N];
        out.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        out
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn geometry(&mut self) -> Geometry {
        Geometry {
            engines: self.u32(),
            lanes: self.u32(),
            lane_order: self.u32(),
            evqs: self.u32(),
            evq_order: self.u32(),
            wait_cells: self.u32(),
        }
    }
}

/// Why a message cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// Not [`MESSAGE_BYTES`] long, or not ours at all.
    Malformed,
    /// Written for another [`crate::VERSION`], given here; it may have another length.
    Version(u32),
    /// An unknown kind.
    Unknown(u32),
}

impl Request {
    /// A request of this kind with nothing else said.
    pub const fn new(kind: RequestKind) -> Self {
        let geometry = Geometry {
            engines: 0,
            lanes: 0,
            lane_order: 0,
            evqs: 0,
            evq_order: 0,
            wait_cells: 0,
        };
        Self {
            kind,
            geometry,
            dtis: 0,
            pool_bytes: 0,
            args: [0; 3],
            more: [0; 6],
        }
    }

    /// As it travels.
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut w = Writer {
            bytes: [0; MESSAGE_BYTES],
            at: 0,
        };
        w.u32(MAGIC);
        w.u32(crate::VERSION);
        w.u32(self.kind as u32);
        w.u32(self.dtis);
        w.geometry(&self.geometry);
        w.u64(self.pool_bytes);
        self.args.iter().for_each(|a| w.u64(*a));
        self.more.iter().for_each(|a| w.u64(*a));
        w.bytes
    }

    /// From what came.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut r = opened(bytes)?;
        let kind = r.u32();
        let kind = RequestKind::from_raw(kind).ok_or(MessageError::Unknown(kind))?;
        let dtis = r.u32();
        let geometry = r.geometry();
        let pool_bytes = r.u64();
        Ok(Self {
            kind,
            geometry,
            dtis,
            pool_bytes,
            args: [r.u64(), r.u64(), r.u64()],
            more: [(); 6].map(|()| r.u64()),
        })
    }
}

impl Reply {
    /// A bare status.
    pub const fn new(status: crate::Status) -> Self {
        let request = Request::new(RequestKind::Stat);
        Self {
            status: status as u16,
            geometry: request.geometry,
            dtis: 0,
            pool_bytes: 0,
            epoch: 0,
            args: [0; 3],
            more: [0; 6],
        }
    }

    /// As it travels.
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut w = Writer {
            bytes: [0; MESSAGE_BYTES],
            at: 0,
        };
        w.u32(MAGIC);
        w.u32(crate::VERSION);
        w.u32(self.status as u32);
        w.u32(self.dtis);
        w.geometry(&self.geometry);
        w.u64(self.pool_bytes);
        w.u64(self.epoch);
        self.args.iter().for_each(|a| w.u64(*a));
        self.more.iter().for_each(|a| w.u64(*a));
        w.bytes
    }

    /// From what came.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut r = opened(bytes)?;
        let status = r.u32() as u16;
        let dtis = r.u32();
        let geometry = r.geometry();
        let pool_bytes = r.u64();
        let epoch = r.u64();
        Ok(Self {
            status,
            geometry,
            dtis,
            pool_bytes,
            epoch,
            args: [r.u64(), r.u64(), r.u64()],
            more: [(); 6].map(|()| r.u64()),
        })
    }
}

const _: () = assert!(16 + 24 + 8 + 8 + 24 + 48 <= MESSAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_names_are_read_back_and_others_are_not() {
        let name = descriptor_name(0x1234_5678_9abc, 77);
        assert_eq!(
            parse_descriptor_name(name.as_bytes()),
            Some((0x1234_5678_9abc, 77))
        );
        for other in ["", "sidecore/", "sidecore/1", "sidecore/x/1", "other/1/2"] {
            assert_eq!(parse_descriptor_name(other.as_bytes()), None, "{other}");
        }
        assert_eq!(parse_descriptor_name(&[0xff; 4]), None);
    }

    #[test]
    fn every_request_has_its_number() {
        for raw in 1..=15 {
            assert_eq!(RequestKind::from_raw(raw).unwrap() as u32, raw);
        }
        assert_eq!(RequestKind::from_raw(0), None);
        assert_eq!(RequestKind::from_raw(16), None);
    }

    #[test]
    fn messages_round_trip_and_strangers_are_refused() {
        let geometry = Geometry {
            engines: 1,
            lanes: 2,
            lane_order: 8,
            evqs: 3,
            evq_order: 9,
            wait_cells: 4,
        };
        let request = Request {
            geometry,
            dtis: 9,
            pool_bytes: 1 << 33,
            args: [1, 2, 3],
            more: [4, 5, 6, 7, 8, 9],
            ..Request::new(RequestKind::OpenUal)
        };
        let bytes = request.to_bytes();
        assert_eq!(Request::from_bytes(&bytes), Ok(request));
        assert_eq!(
            Request::from_bytes(&bytes[1..]),
            Err(MessageError::Malformed)
        );
        let mut other = bytes;
        other[4] = 99;
        assert_eq!(Request::from_bytes(&other), Err(MessageError::Version(99)));
        let other = &other[..80];
        assert_eq!(Request::from_bytes(other), Err(MessageError::Version(99)));
        assert_eq!(Reply::from_bytes(other), Err(MessageError::Version(99)));
        let mut other = bytes;
        other[8] = 77;
        assert_eq!(Request::from_bytes(&other), Err(MessageError::Unknown(77)));
        let reply = Reply {
            geometry,
            epoch: 5,
            args: [7, 8, 9],
            more: [1, 2, 3, 4, 5, 6],
            ..Reply::new(crate::Status::NoResources)
        };
        assert_eq!(Reply::from_bytes(&reply.to_bytes()), Ok(reply));
    }
}
