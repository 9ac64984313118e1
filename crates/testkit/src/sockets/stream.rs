//! The bytes of one connection: what is to be sent, and what was received.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes that were written and are not acknowledged.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    /// Stream offset of the first.
    start: u64,
}

impl SendBuffer {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Stream offset behind the last.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn release(&mut self, una: u64) {
        self.bytes.drain(..(una - self.start) as usize);
        self.start = una;
    }

    /// The bytes of a range of the stream.
    pub(super) fn range(&self, range: Range<u64>) -> &[u8] {
        &self.bytes[(range.start - self.start) as usize..(range.end - self.start) as usize]
    }
}

/// Bytes that were received and not read.
#[derive(Debug, Default)]
pub(super) struct ReceiveBuffer {
    bytes: Vec<u8>,
    /// Stream offset of the first.
    start: u64,
    /// Stream offset up to which they are in order.
    next: u64,
    /// Ranges beyond that: start to end.
    held: BTreeMap<u64, u64>,
}

impl ReceiveBuffer {
    /// Bytes come in. What comes again with other bytes is taken as it came last.
    pub(super) fn store(&mut self, bytes: &[u8], at: u64) {
        let skip = (self.start.saturating_sub(at) as usize).min(bytes.len());
        let (bytes, at) = (&bytes[skip..], at + skip as u64);
        if bytes.is_empty() {
            return;
        }
        let from = (at - self.start) as usize;
        let to = from + bytes.len();
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(bytes);
        let end = at + bytes.len() as u64;
        let end = self.held.get(&at).map_or(end, |held| end.max(*held));
        self.held.insert(at, end);
    }

    /// They are in order up to here now.
    pub(super) fn readable(&mut self, next: u64) {
        while let Some((start, end)) = self.held.first_key_value().map(|(s, e)| (*s, *e)) {
            if start > self.next {
                break;
            }
            self.next = self.next.max(end);
            self.held.pop_first();
        }
        assert_eq!(self.next, next, "the bytes stored end elsewhere");
    }

    /// How many are there to be read.
    pub(super) fn len(&self) -> usize {
        (self.next - self.start) as usize
    }

    /// Stream offset up to which they were read.
    pub(super) fn consumed(&self) -> u64 {
        self.start
    }

    /// The next bytes, at most `max`.
    pub(super) fn peek(&self, max: usize) -> &[u8] {
        &self.bytes[..self.len().min(max)]
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.bytes.drain(..len);
        self.start += len as u64;
    }
}
