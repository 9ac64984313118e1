//! Events: engine to application, one entry each.
//!
//! ```text
//!   word 0: mark | kind | flags | status
//!   word 1: DTI handle
//!   word 2: cookie of the command that this answers, or 0
//!   words 3..8: body by kind
//! ```

use core::net::{IpAddr, Ipv4Addr};

use crate::{Address, DtiHandle, Entry, RegionId, Status};

/// What happened. The body words are numbered from 0 (= word 3 of the entry).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum EventKind {
    /// A command was done or refused (see the status). Body by operation; body 4 holds the operation's number.
    Completion = 0,
    /// Bytes arrived, in a chunk of the receive pool. Body 0: chunk (low 32 bits), length (high); body 1: first byte, counted from
    /// the start of the pool; body 2: stream offset of the first byte. The application owns one reference to the chunk until it returns it.
    /// With [`flags::END`] the peer has ended its direction: length may be 0 and then there is no chunk ([`NO_CHUNK`]).
    Received = 1,
    /// A posted buffer is done. Body 0: bytes received (high 32 bits unused); body 2: stream offset of the first byte. Cookie of
    /// the receive. With [`flags::END`]: the peer has ended its direction.
    ReceivedInto = 2,
    /// A connection was accepted; the handle is the child's. Body 0..3: peer's address. Cookie of the accept.
    Accepted = 3,
    /// Connected, or not (status). Body 0..3: own address. Cookie of the connect.
    Connected = 4,
    /// The peer has acknowledged every byte of the send with this cookie, and so of all sends before it. Body 0: stream offset
    /// up to which all is acknowledged.
    Sent = 5,
    /// The connection is over; nothing else will come for this handle *but* answers to commands that were posted before this event was
    /// read. The handle is free once the application itself has closed it as well. Status: Ok for an orderly end.
    Closed = 6,
    /// A datagram, in a chunk. Body 0 and 1 as [`EventKind::Received`]; body 2..5: sender's address. The cookie says how it arrived:
    /// [`Event::arrival`].
    Datagram = 7,
    /// The region with the cookie's registration is ready. Body 0: its id.
    Registered = 8,
    /// A connection waits on the listener with no accept posted. Sent once for each time that this becomes true. Body 0: how many wait.
    /// With copies in other UALs (body 3 of Listen): one waits at any of them, which an accept here would get; body 0 is 0 when none does any more.
    Incoming = 9,
    /// An error that ends nothing: ICMP, for a connected datagram DTI, or what became of a report for which there was no room. The
    /// status says which. Body 2..5: where the datagram was sent.
    Error = 10,
    /// After a send, fewer bytes wait unsent than option [`crate::command::Opt::NotsentLowat`] says. Body 0: stream offset up to which
    /// bytes were sent.
    Writable = 11,
    /// The peer has urgent data, or more than it told of before (RFC 9293 section 3.8.5). Body 0: the stream offset after its last byte. The
    /// data is in line: it comes, or came, like all other. Where the pool receives, this comes before the bytes of the segment that told.
    Urgent = 12,
    /// What became of a datagram (option [`crate::command::Opt::ReceiveErrors`]), in a chunk: a [`crate::ErrorReport`], then the first bytes
    /// of the datagram's payload, as many as were quoted. Body 0 and 1 as [`EventKind::Received`]; body 2..5: where it was sent. The
    /// status is the report's, without [`flags::FAILED`].
    ErrorReport = 13,
    /// The connection was given away ([`crate::Operation::Detach`]): nothing else comes for this handle, which is free. Cookie of the
    /// command. Body 0: stream offset up to which bytes were delivered; body 1: up to which bytes were sent.
    Detached = 14,
    /// A connection was taken ([`crate::Operation::Attach`]). Cookie of the command. Body 0..3: peer's address; body 3: stream offset of the
    /// next byte to be received. Body 4: 1 when sending was ended before, else 0.
    Attached = 15,
}

impl EventKind {
    /// From its number.
    #[inline]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        use EventKind::*;
        const ALL: [EventKind; 16] = [
            Completion,
            Received,
            ReceivedInto,
            Accepted,
            Connected,
            Sent,
            Closed,
            Datagram,
            Registered,
            Incoming,
            Error,
            Writable,
            Urgent,
            ErrorReport,
            Detached,
            Attached,
        ];
        if (raw as usize) < ALL.len() {
            Some(ALL[raw as usize])
        } else {
            None
        }
    }
}

/// Flags of an event.
pub mod flags {
    /// The peer has ended its direction: no byte follows those of this event.
    pub const END: u8 = 1 << 0;
    /// The event answers a command that failed; see the status.
    pub const FAILED: u8 = 1 << 1;
}

/// In place of a chunk: there is none.
pub const NO_CHUNK: u32 = u32::MAX;

/// Bytes that follow a datagram of IPv6 in its chunk: the address to which it was sent, in network order.
pub const DESTINATION_LEN: usize = 16;

/// The cookie of a Datagram, and what follows it in its chunk.
///
/// ```text
///   | hops (8) | class (8) | family of the destination: 4, 6 (16) | destination of IPv4, network order (32) |
/// ```
///
/// Class is the octet with DSCP and ECN. The destination of IPv6 has no room here: it follows the datagram's last byte.
pub fn arrival(hops: u8, class: u8, to: IpAddr) -> (u64, Option<[u8; DESTINATION_LEN]>) {
    let (family, v4, tail) = match to {
        IpAddr::V4(to) => (4u64, to.to_bits(), None),
        IpAddr::V6(to) => (6, 0, Some(to.octets())),
    };
    let cookie = u64::from(hops) | u64::from(class) << 8 | family << 16 | u64::from(v4) << 32;
    (cookie, tail)
}

/// How a datagram arrived, as its event says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Time to live or hop limit that was left.
    pub hops: u8,
    /// DSCP and ECN (RFC 2474, RFC 3168).
    pub class: u8,
    /// Where it was sent.
    pub to: Destination,
}

/// Where a datagram was sent, as its event says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Not told.
    Unknown,
    /// This address of IPv4.
    V4(Ipv4Addr),
    /// The address of IPv6 in the [`DESTINATION_LEN`] bytes behind the datagram.
    Behind,
}

/// An event, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// [`flags`].
    pub flags: u8,
    /// How it went.
    pub status: Status,
    /// The DTI.
    pub dti: DtiHandle,
    /// Cookie of the command that this answers, or 0. Of a Datagram: see [`arrival`].
    pub cookie: u64,
    /// By kind.
    pub body: [u64; 5],
}

impl Event {
    /// An event with an empty body.
    #[inline]
    pub const fn new(kind: EventKind, dti: DtiHandle, cookie: u64, status: Status) -> Self {
        let flags = if matches!(status, Status::Ok) {
            0
        } else {
            flags::FAILED
        };
        Self {
            kind,
            flags,
            status,
            dti,
            cookie,
            body: [0; 5],
        }
    }

    /// Bytes in a chunk: `offset` is counted from the start of the pool, `position` in the stream.
    #[inline]
    pub const fn received(
        dti: DtiHandle,
        chunk: u32,
        offset: u64,
        len: u32,
        position: u64,
        end: bool,
    ) -> Self {
        Self {
            kind: EventKind::Received,
            flags: if end { flags::END } else { 0 },
            status: Status::Ok,
            dti,
            cookie: 0,
            body: [chunk as u64 | (len as u64) << 32, offset, position, 0, 0],
        }
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

    /// How a Datagram arrived.
    pub const fn arrival(&self) -> Arrival {
        let to = match (self.cookie >> 16) as u16 {
            4 => Destination::V4(Ipv4Addr::from_bits((self.cookie >> 32) as u32)),
            6 => Destination::Behind,
            _ => Destination::Unknown,
        };
        Arrival {
            hops: self.cookie as u8,
            class: (self.cookie >> 8) as u8,
            to,
        }
    }

    /// The chunk of a Received, Datagram or ErrorReport.
    #[inline]
    pub const fn chunk(&self) -> u32 {
        self.body[0] as u32
    }

    /// Whether it is of a kind that names a chunk, which goes back to the engine: Received, Datagram, ErrorReport.
    #[inline]
    pub const fn has_chunk(&self) -> bool {
        matches!(
            self.kind,
            EventKind::Received | EventKind::Datagram | EventKind::ErrorReport
        )
    }

    /// The length of a Received, Datagram or ErrorReport.
    #[inline]
    pub const fn len(&self) -> u32 {
        (self.body[0] >> 32) as u32
    }

    /// Whether a Received or Datagram holds no byte.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the bytes of a Received, Datagram or ErrorReport begin, counted from the start of the pool.
    #[inline]
    pub const fn offset(&self) -> u64 {
        self.body[1]
    }

    /// Whether the peer has ended its direction.
    #[inline]
    pub const fn end(&self) -> bool {
        self.flags & flags::END != 0
    }

    /// The region of a Registered.
    #[inline]
    pub const fn region(&self) -> RegionId {
        RegionId(self.body[0] as u32)
    }

    /// The address in body `at`..`at + 3`; `at` is 0 or 2.
    #[inline]
    pub const fn address(&self, at: usize) -> Address {
        Address([self.body[at], self.body[at + 1], self.body[at + 2]])
    }

    /// As an entry, without its mark.
    #[inline]
    pub const fn encode(&self) -> Entry {
        let b = self.body;
        Entry::new(
            self.kind as u8,
            self.flags,
            self.status as u16,
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

    /// From an entry; `None` when the kind is unknown.
    #[inline]
    pub const fn decode(entry: &Entry) -> Option<Self> {
        let Some(kind) = EventKind::from_raw(entry.code()) else {
            return None;
        };
        let w = &entry.0;
        Some(Self {
            kind,
            flags: entry.flags(),
            status: Status::from_raw(entry.aux()),
            dti: DtiHandle::from_word(w[1]),
            cookie: w[2],
            body: [w[3], w[4], w[5], w[6], w[7]],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_the_entry() {
        let dti = DtiHandle {
            index: 1,
            generation: 2,
        };
        let event = Event::received(dti, 17, 34816, 1460, 1 << 33, true);
        let back = Event::decode(&event.encode().with_mark(5)).unwrap();
        assert_eq!(back, event);
        assert_eq!(
            (back.chunk(), back.len(), back.offset(), back.end()),
            (17, 1460, 34816, true)
        );
        let failed = Event::new(EventKind::Connected, dti, 8, Status::ConnectionRefused);
        assert_eq!(
            Event::decode(&failed.encode()).unwrap().flags,
            flags::FAILED
        );
        for to in ["10.77.0.2", "::ffff:10.77.0.2", "2001:db8::2"] {
            let to: IpAddr = to.parse().unwrap();
            let (cookie, tail) = arrival(64, 0xb9, to);
            let mut event = Event::new(EventKind::Datagram, dti, cookie, Status::Ok);
            let told = event.arrival();
            assert_eq!((told.hops, told.class), (64, 0xb9));
            match to {
                IpAddr::V4(to) => assert_eq!((told.to, tail), (Destination::V4(to), None)),
                IpAddr::V6(to) => {
                    assert_eq!((told.to, tail), (Destination::Behind, Some(to.octets())));
                }
            }
            event.cookie = 0;
            assert_eq!(event.arrival().to, Destination::Unknown);
        }
        for raw in 0..=15 {
            assert_eq!(EventKind::from_raw(raw).unwrap() as u8, raw);
        }
        assert_eq!(Event::decode(&Entry::new(16, 0, 0, [0; 7])), None);
    }
}
