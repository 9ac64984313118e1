//! Reassembly of IP fragments (RFC 791 section 3.2, RFC 1122 section 3.3.2, RFC 8200 section 4.5; overlaps as in RFC
//! 5722). What belongs together, `K` says: a key for each version of IP.
//!
//! A fixed number of buffers of the largest datagram's size, each with a bitmap of the 8-byte blocks that are there. What
//! hostile fragments can do is to push out other incomplete datagrams, and no more.

use core::net::Ipv4Addr;
use core::ops::Range;

use sidecore_tcp::Instant;
use sidecore_wire::{Ipv4Header, ecn};

use crate::config::ReassemblyConfig;

/// Offsets of fragments count in blocks of so many bytes.
const BLOCK: usize = 8;
/// Payload of the largest datagram.
const MAX_PAYLOAD: usize = u16::MAX as usize - 20;
const BLOCKS: usize = MAX_PAYLOAD.div_ceil(BLOCK);
const WORDS: usize = BLOCKS.div_ceil(64);

/// Which datagram of IPv4 a fragment belongs to (RFC 791: source, destination, protocol, identification).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key4 {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: u8,
    ident: u16,
}

impl Key4 {
    /// That of a fragment with this header.
    pub(crate) const fn of(header: &Ipv4Header) -> Self {
        Self {
            src: header.src,
            dst: header.dst,
            protocol: header.protocol,
            ident: header.ident,
        }
    }
}

/// Where a fragment belongs in its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// In bytes, a multiple of 8.
    pub(crate) offset: usize,
    /// It is not the last one.
    pub(crate) more: bool,
    /// What the datagram carries: that of the first fragment counts (RFC 8200 section 4.5).
    pub(crate) protocol: u8,
    /// The ECN field of its IP header.
    pub(crate) ecn: u8,
}

#[derive(Debug)]
struct Partial<K> {
    /// `None` until it is used for the first time.
    key: Option<K>,
    protocol: u8,
    /// Which codepoints of the ECN field its fragments have: bit n for the codepoint n.
    codepoints: u8,
    /// Not in use: never.
    deadline: Instant,
    in_use: bool,
    /// Bytes received.
    received: usize,
    /// Length, once the last fragment came.
    total: Option<usize>,
    /// The end of what lies furthest.
    furthest: usize,
    blocks: Box<[u64; WORDS]>,
    bytes: Box<[u8]>,
}

/// What a fragment did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// More are needed.
    Incomplete,
    /// The datagram in this buffer is complete: read it with [`Reassembly::take`].
    Complete(usize),
    /// Dropped, with all of its datagram if it contradicts what was there.
    Malformed,
}

#[derive(Debug)]
pub(crate) struct Reassembly<K> {
    partials: Vec<Partial<K>>,
    config: ReassemblyConfig,
    /// How many of them are in use.
    in_use: usize,
    /// Incomplete datagrams that gave way to newer ones.
    pub(crate) evicted: u64,
}

impl<K: Copy + Eq> Reassembly<K> {
    pub(crate) fn new(config: ReassemblyConfig) -> Self {
        Self {
            partials: Vec::with_capacity(config.datagrams),
            config,
            in_use: 0,
            evicted: 0,
        }
    }

    /// A fragment came.
    pub(crate) fn add(&mut self, now: Instant, key: K, part: &Part, payload: &[u8]) -> Progress {
        let start = part.offset;
        let end = start + payload.len();
        let ragged = part.more && !payload.len().is_multiple_of(BLOCK);
        if ragged || payload.is_empty() || end > MAX_PAYLOAD || self.config.datagrams == 0 {
            return Progress::Malformed;
        }
        let buffer = self.buffer_for(now, key);
        let partial = &mut self.partials[buffer];
        if start == 0 {
            partial.protocol = part.protocol;
        }
        partial.codepoints |= 1 << (part.ecn & ecn::MASK);
        // RFC 3168 section 5.3: that CE is set on the reassembled packet "MUST NOT occur if any of the other fragments contributing to
        // this reassembly carries the Not-ECT codepoint": then it is dropped.
        const CONTRADICTION: u8 = 1 << ecn::CE | 1 << ecn::NOT_ECT;
        let added = if partial.codepoints & CONTRADICTION == CONTRADICTION {
            Err(Contradiction)
        } else {
            partial.add(start..end, payload, !part.more)
        };
        match added {
            Ok(()) if partial.total == Some(partial.received) => Progress::Complete(buffer),
            Ok(()) => Progress::Incomplete,
            Err(Contradiction) => {
                partial.in_use = false;
                self.in_use -= 1;
                Progress::Malformed
            }
        }
    }

    /// What a complete datagram carries.
    pub(crate) fn protocol(&self, buffer: usize) -> u8 {
        self.partials[buffer].protocol
    }

    /// Whether a complete datagram has experienced congestion: "any fragment of an IP packet to be reassembled has the CE codepoint"
    /// (RFC 3168 section 5.3).
    pub(crate) fn is_ce(&self, buffer: usize) -> bool {
        self.partials[buffer].codepoints & 1 << ecn::CE != 0
    }

    /// Takes a complete datagram's payload out; [`give_back`](Self::give_back) the buffer afterwards.
    pub(crate) fn take(&mut self, buffer: usize) -> (Box<[u8]>, usize) {
        let partial = &mut self.partials[buffer];
        partial.in_use = false;
        self.in_use -= 1;
        let total = partial.total.unwrap_or(0);
        (core::mem::take(&mut partial.bytes), total)
    }

    /// Gives back what [`take`](Self::take) took.
    pub(crate) fn give_back(&mut self, buffer: usize, bytes: Box<[u8]>) {
        self.partials[buffer].bytes = bytes;
    }

    /// Drops what is too old; returns how many that were.
    pub(crate) fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        for partial in &mut self.partials {
            if partial.in_use && partial.deadline <= now {
                partial.in_use = false;
                expired += 1;
            }
        }
        self.in_use -= expired as usize;
        expired
    }

    /// Whether any datagram is incomplete: else [`expire`](Self::expire) has nothing to do.
    #[inline]
    pub(crate) const fn is_in_use(&self) -> bool {
        self.in_use > 0
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if !self.is_in_use() {
            return None;
        }
        let used = self.partials.iter().filter(|partial| partial.in_use);
        used.map(|partial| partial.deadline).min()
    }

    /// The buffer of this datagram: the one it has, a free one, a new one, or that of the oldest.
    fn buffer_for(&mut self, now: Instant, key: K) -> usize {
        let has = |p: &Partial<K>| p.in_use && p.key == Some(key) && p.deadline > now;
        if let Some(buffer) = self.partials.iter().position(has) {
            return buffer;
        }
        let deadline = now + self.config.timeout;
        let buffer = match self.partials.iter().position(|p| !p.in_use) {
            Some(buffer) => buffer,
            None if self.partials.len() < self.config.datagrams => {
                self.partials.push(Partial::new());
                self.partials.len() - 1
            }
            None => {
                self.evicted += 1;
                let oldest = self.partials.iter().enumerate();
                oldest
                    .min_by_key(|(_, partial)| partial.deadline)
                    .map_or(0, |(buffer, _)| buffer)
            }
        };
        self.in_use += usize::from(!self.partials[buffer].in_use);
        self.partials[buffer].begin(key, deadline);
        buffer
    }
}

/// A fragment does not fit what came before.
#[derive(Debug)]
struct Contradiction;

impl<K> Partial<K> {
    fn new() -> Self {
        Self {
            key: None,
            protocol: 0,
            codepoints: 0,
            deadline: Instant::NEVER,
            in_use: false,
            received: 0,
            total: None,
            furthest: 0,
            blocks: Box::new([0; WORDS]),
            bytes: vec![0; MAX_PAYLOAD].into_boxed_slice(),
        }
    }

    fn begin(&mut self, key: K, deadline: Instant) {
        self.key = Some(key);
        self.deadline = deadline;
        self.in_use = true;
        self.received = 0;
        self.total = None;
        self.furthest = 0;
        self.codepoints = 0;
        self.blocks.fill(0);
    }

    fn add(&mut self, at: Range<usize>, payload: &[u8], last: bool) -> Result<(), Contradiction> {
        let known_end = if last { Some(at.end) } else { self.total };
        let end_moves = last && self.total.is_some_and(|total| total != at.end);
        let beyond = known_end.is_some_and(|total| at.end > total || self.furthest > total);
        if end_moves || beyond {
            return Err(Contradiction);
        }
        let blocks = at.start / BLOCK..at.end.div_ceil(BLOCK);
        let there = blocks.clone().filter(|block| self.has(*block)).count();
        let stored = self.bytes.get_mut(at.clone()).ok_or(Contradiction)?;
        if there == blocks.len() && stored == payload {
            // A duplicate that the network made is no overlap.
            return Ok(());
        }
        if there > 0 {
            // RFC 5722: "the entire datagram … MUST be silently discarded".
            return Err(Contradiction);
        }
        stored.copy_from_slice(payload);
        for block in blocks {
            self.blocks[block / 64] |= 1 << (block % 64);
        }
        self.received += payload.len();
        self.furthest = self.furthest.max(at.end);
        self.total = known_end;
        Ok(())
    }

    fn has(&self, block: usize) -> bool {
        self.blocks[block / 64] & (1 << (block % 64)) != 0
    }
}

#[cfg(test)]
mod tests;
