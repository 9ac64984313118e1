//! Between the agent and the custodian: the UAL, of the engine's own process, that carries the bytes of connections which more than one process
//! holds (`sidecore-proxy`).
//!
//! ```text
//!   agent -> custodian   Take   here is the agent's end of a descriptor; attach its connection and carry bytes between the two
//!                        Give   stop, and give the connection to that UAL
//!                        Ask    set an option of a connection, or tell what it is
//!                        Sweep  a UAL is gone: what it gave and was not told of is for nobody
//!   custodian -> agent   Taken  it is attached, or not
//!                        Given  it was given away, or not
//!                        Answer what came of it
//!                        Done   it is over: nobody holds the descriptor, or the connection is gone
//! ```
//!
//! One message a packet (SOCK_SEQPACKET); descriptors travel beside it.

use crate::Status;

/// What is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum CustodyKind {
    /// Take over. Descriptors: the end; and, if `bytes` is not 0, a memfd with as many bytes that come before those of the connection.
    Take = 1,
    /// Give to the UAL named.
    Give = 2,
    /// Answer to Take, with the addresses.
    Taken = 3,
    /// Answer to Give. When it was given, and `bytes` is not 0, with a memfd of as many bytes that come before those of the connection.
    Given = 4,
    /// The descriptor has no use any more.
    Done = 5,
    /// The agent says so of a UAL that is gone, and the custodian says it back when it has done all that it was told before.
    Sweep = 6,
    /// An option: `addresses[0]` which, `addresses[1]` its value, `addresses[2]` 1: it is asked for. `ual`: who wants to know.
    Ask = 7,
    /// Answer to Ask: the value in `addresses[0]`, or, of `Opt::Info`, a memfd of `bytes` bytes.
    Answer = 8,
}

impl CustodyKind {
    /// From its number.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::Take),
            2 => Some(Self::Give),
            3 => Some(Self::Taken),
            4 => Some(Self::Given),
            5 => Some(Self::Done),
            6 => Some(Self::Sweep),
            7 => Some(Self::Ask),
            8 => Some(Self::Answer),
            _ => None,
        }
    }
}

/// Flag of [`CustodyKind::Take`]: there is no connection any more; the status says how it ended.
pub const OVER: u32 = 1;
/// Flag of [`CustodyKind::Take`]: the descriptor has no holder, and there is no end; close the connection.
pub const ABANDONED: u32 = 2;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Custody {
    /// What is said.
    pub kind: CustodyKind,
    /// [`OVER`], [`ABANDONED`], or 0.
    pub flags: u32,
    /// Number of the descriptor.
    pub number: u64,
    /// Take: the UAL that gave the connection; Give: the one that gets it.
    pub ual: u64,
    /// Bytes in the memfd that comes with the message.
    pub bytes: u64,
    /// How it went.
    pub status: Status,
    /// Local and peer's address, each as [`crate::Address`].
    pub addresses: [u64; 6],
}

/// Bytes of a message.
pub const CUSTODY_BYTES: usize = 88;

impl Custody {
    /// A message of this kind with nothing else said.
    pub const fn new(kind: CustodyKind, number: u64) -> Self {
        Self {
            kind,
            flags: 0,
            number,
            ual: 0,
            bytes: 0,
            status: Status::Ok,
            addresses: [0; 6],
        }
    }

    /// As it travels: eleven words, little-endian.
    pub fn to_bytes(&self) -> [u8; CUSTODY_BYTES] {
        let [a, b, c, d, e, f] = self.addresses;
        let head = self.kind as u64 | (self.flags as u64) << 32;
        let status = self.status as u64;
        let words = [
            head,
            self.number,
            self.ual,
            self.bytes,
            status,
            a,
            b,
            c,
            d,
            e,
            f,
        ];
        let mut bytes = [0; CUSTODY_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From what came; `None` when it is no message.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != CUSTODY_BYTES {
            return None;
        }
        let mut words = [0u64; CUSTODY_BYTES / 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let [head, number, ual, bytes, status, addresses @ ..] = words;
        Some(Self {
            kind: CustodyKind::from_raw(head as u32)?,
            flags: (head >> 32) as u32,
            number,
            ual,
            bytes,
            status: Status::from_raw(status as u16),
            addresses,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_nonsense_is_none() {
        for raw in 1..=8 {
            let kind = CustodyKind::from_raw(raw).unwrap();
            let message = Custody {
                flags: OVER,
                ual: 7,
                bytes: 1 << 40,
                status: Status::ConnectionReset,
                addresses: [1, 2, 3, 4, 5, u64::MAX],
                ..Custody::new(kind, 99)
            };
            assert_eq!(Custody::from_bytes(&message.to_bytes()), Some(message));
        }
        assert_eq!(Custody::from_bytes(&[0; CUSTODY_BYTES]), None);
        assert_eq!(Custody::from_bytes(&[1; CUSTODY_BYTES - 1]), None);
    }
}
