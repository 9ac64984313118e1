//! What is to be sent: the answer of the protocol to the requests of one turn.

use std::rc::Rc;

/// Pieces in a plan after which no further pipelined request is answered until it was sent.
pub const FULL: usize = 32;

/// One run of bytes.
#[derive(Debug)]
pub enum Piece<E> {
    /// Bytes of [`Plan::made`].
    Made {
        /// First byte.
        start: usize,
        /// How many.
        len: usize,
    },
    /// Bytes of a file's edition.
    File {
        /// The edition; alive, and so unchanged, for as long as it is held.
        edition: Rc<E>,
        /// First byte, in the edition's own count.
        start: u64,
        /// How many.
        len: u64,
    },
}

impl<E> Clone for Piece<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Made { start, len } => Self::Made {
                start: *start,
                len: *len,
            },
            Self::File {
                edition,
                start,
                len,
            } => Self::File {
                edition: Rc::clone(edition),
                start: *start,
                len: *len,
            },
        }
    }
}

impl<E> Piece<E> {
    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Made { len, .. } => *len as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Whether there is nothing (left) to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Responses, as the runs of bytes that they consist of, in order. Owned by a worker and used again for every turn.
#[derive(Debug)]
pub struct Plan<E> {
    /// Bytes made for these responses alone: heads that no cache holds, bodies of errors, encrypted files.
    pub made: Vec<u8>,
    pieces: Vec<Piece<E>>,
    sent: usize,
}

impl<E> Default for Plan<E> {
    fn default() -> Self {
        Self {
            made: Vec::new(),
            pieces: Vec::new(),
            sent: 0,
        }
    }
}

impl<E> Plan<E> {
    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.made.clear();
        self.sent = 0;
    }

    /// Whether all was sent.
    pub fn is_empty(&self) -> bool {
        self.sent >= self.pieces.len()
    }

    /// Whether it is long enough to be sent before more is added.
    pub fn is_full(&self) -> bool {
        self.pieces.len() >= FULL || self.made.len() >= 256 * 1024
    }

    /// Pieces that are still to be sent.
    pub fn pieces(&self) -> &[Piece<E>] {
        self.pieces.get(self.sent..).unwrap_or_default()
    }

    /// Bytes that are still to be sent.
    pub fn remaining(&self) -> u64 {
        self.pieces().iter().map(Piece::len).sum()
    }

    /// Adds bytes of a file.
    pub fn push_file(&mut self, edition: &Rc<E>, start: u64, len: u64) {
        if len > 0 {
            self.pieces.push(Piece::File {
                edition: Rc::clone(edition),
                start,
                len,
            });
        }
    }

    /// Adds the bytes that were appended to `made` since it was `from` bytes long.
    pub fn push_made(&mut self, from: usize) {
        let len = self.made.len().saturating_sub(from);
        if len == 0 {
            return;
        }
        if let Some(Piece::Made { start, len: last }) = self.pieces.last_mut()
            && *start + *last == from
        {
            *last += len;
            return;
        }
        self.pieces.push(Piece::Made { start: from, len });
    }

    /// Bytes of a made piece.
    pub fn made_bytes(&self, start: usize, len: usize) -> &[u8] {
        self.made
            .get(start..)
            .and_then(|rest| rest.get(..len))
            .unwrap_or_default()
    }

    /// Takes `count` bytes off the front, as sent.
    pub fn advance(&mut self, mut count: u64) {
        while let Some(piece) = self.pieces.get_mut(self.sent) {
            let len = piece.len();
            if count < len {
                match piece {
                    Piece::Made { start, len } => {
                        *start += count as usize;
                        *len -= count as usize;
                    }
                    Piece::File { start, len, .. } => {
                        *start += count;
                        *len -= count;
                    }
                }
                return;
            }
            count -= len;
            self.sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan<()> {
        let mut plan = Plan::default();
        let edition = Rc::new(());
        plan.made.extend_from_slice(b"head");
        plan.push_made(0);
        plan.push_file(&edition, 100, 50);
        plan.push_file(&edition, 100, 0);
        plan.made.extend_from_slice(b"one");
        plan.push_made(4);
        plan.made.extend_from_slice(b"two");
        plan.push_made(7);
        plan
    }

    #[test]
    fn neighbouring_made_bytes_are_one_piece() {
        let plan = plan();
        assert_eq!(plan.pieces().len(), 3);
        assert_eq!(plan.remaining(), 4 + 50 + 6);
        assert!(matches!(plan.pieces()[2], Piece::Made { start: 4, len: 6 }));
    }

    #[test]
    fn advancing_byte_by_byte_or_at_once_ends_alike() {
        let mut single = plan();
        for left in (0..60).rev() {
            single.advance(1);
            assert_eq!(single.remaining(), left);
        }
        assert!(single.is_empty());
        let mut at_once = plan();
        at_once.advance(4 + 10);
        assert!(matches!(
            at_once.pieces()[0],
            Piece::File {
                start: 110,
                len: 40,
                ..
            }
        ));
        at_once.advance(1000);
        assert!(at_once.is_empty());
        at_once.clear();
        assert!(at_once.pieces().is_empty() && at_once.made.is_empty());
    }
}
