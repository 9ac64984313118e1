//! Packets for Wireshark and tcpdump: what the engine sends and receives, as pcapng, into a pipe that somebody reads.
//!
//! The engine never waits for the reader. A packet that does not fit into the pipe is left out and counted, and the count is
//! written with the next one that fits (an interface statistics block), so that the reader knows.

use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use sidecore_shm::MemRef;

/// Ethernet, as pcapng numbers it. One link type for all: tcpdump refuses files with two.
const LINKTYPE_ETHERNET: u16 = 1;

/// Stands before packets of the internal loopback, which have no Ethernet header: no addresses, IPv4 or IPv6.
const LOOPBACK_ETHERNET: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
const LOOPBACK_ETHERNET_V6: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x86, 0xdd];

/// The most that a write to a pipe leaves whole or not at all is 4096 bytes; larger ones may be cut, which `pending` mends.
const BLOCK_MAX: usize = 65536 + 256;

/// Which packets are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Filter {
    /// Either end has this address.
    pub(crate) host: Option<Ipv4Addr>,
    /// Either end has this TCP or UDP port.
    pub(crate) port: Option<u16>,
    /// Bytes of each packet at most.
    pub(crate) snap: u32,
}

impl Filter {
    /// Whether a packet, from its IP header on, is wanted. Anything that is not IPv4 is wanted only without a filter.
    fn wants(&self, ip: &[u8]) -> bool {
        if self.host.is_none() && self.port.is_none() {
            return true;
        }
        if ip.len() < 20 || ip[0] >> 4 != 4 {
            return false;
        }
        let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
        if self
            .host
            .is_some_and(|host| host != address(12) && host != address(16))
        {
            return false;
        }
        let Some(port) = self.port else { return true };
        let at = usize::from(ip[0] & 15) * 4;
        let is = |at: usize| {
            ip.get(at..at + 2)
                .is_some_and(|b| u16::from_be_bytes([b[0], b[1]]) == port)
        };
        matches!(ip[9], 6 | 17) && (is(at) || is(at + 2))
    }
}

/// One reader.
#[derive(Debug)]
pub(crate) struct Capture {
    pipe: File,
    filter: Filter,
    /// The rest of a block that the pipe took only in part.
    pending: Vec<u8>,
    skipped: u64,
    captured: u64,
    block: Vec<u8>,
}

impl Capture {
    /// Over a pipe's write end, which must be non-blocking.
    pub(crate) fn new(pipe: OwnedFd, filter: Filter) -> Self {
        let mut capture = Self {
            pipe: pipe.into(),
            filter,
            pending: Vec::new(),
            skipped: 0,
            captured: 0,
            block: Vec::with_capacity(4096),
        };
        capture.pending = header_blocks(filter.snap);
        capture
    }

    /// Writes a packet; false when the reader is gone.
    fn packet<'a>(
        &mut self,
        time_us: u64,
        loopback: bool,
        header: &[u8],
        rest: impl Iterator<Item = MemRef<'a>>,
    ) -> bool {
        let ip = if loopback {
            header
        } else {
            header.get(14..).unwrap_or_default()
        };
        if !self.filter.wants(ip) {
            return true;
        }
        if !self.flush() {
            return false;
        }
        if !self.pending.is_empty() {
            self.skipped += 1;
            return true;
        }
        self.build(time_us, loopback, header, rest);
        self.write_block()
    }

    fn build<'a>(
        &mut self,
        time_us: u64,
        loopback: bool,
        header: &[u8],
        rest: impl Iterator<Item = MemRef<'a>>,
    ) {
        let snap = if self.filter.snap == 0 {
            BLOCK_MAX - 256
        } else {
            self.filter.snap as usize
        };
        let block = &mut self.block;
        block.clear();
        if self.skipped > 0 {
            statistics_block(block, time_us, self.captured, self.skipped);
        }
        let begin = block.len();
        for word in [6u32, 0, 0, (time_us >> 32) as u32, time_us as u32, 0, 0] {
            block.extend_from_slice(&word.to_le_bytes());
        }
        let data = block.len();
        let ethernet: &[u8] = match header.first().map(|first| first >> 4) {
            _ if !loopback => &[],
            Some(6) => &LOOPBACK_ETHERNET_V6,
            _ => &LOOPBACK_ETHERNET,
        };
        let mut original = 0;
        for part in [ethernet, header] {
            original += part.len();
            let take = part.len().min(snap.saturating_sub(block.len() - data));
            block.extend_from_slice(&part[..take]);
        }
        for piece in rest {
            original += piece.len();
            let take = piece.len().min(snap.saturating_sub(block.len() - data));
            let at = block.len();
            block.resize(at + take, 0);
            piece.copy_to(&mut block[at..]);
        }
        let captured = (block.len() - data) as u32;
        block.resize(block.len().next_multiple_of(4), 0);
        // Offsets are relative to `begin`, which is a multiple of 4.
        let total = (block.len() - begin + 4) as u32;
        block.extend_from_slice(&total.to_le_bytes());
        block[begin + 4..begin + 8].copy_from_slice(&total.to_le_bytes());
        block[begin + 20..begin + 24].copy_from_slice(&captured.to_le_bytes());
        block[begin + 24..begin + 28].copy_from_slice(&(original as u32).to_le_bytes());
    }

    fn write_block(&mut self) -> bool {
        match self.pipe.write(&self.block) {
            Ok(n) => {
                self.captured += 1;
                self.pending.extend_from_slice(&self.block[n..]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                self.skipped += 1;
                true
            }
            Err(_) => false,
        }
    }

    /// Writes what is left over; false when the reader is gone.
    fn flush(&mut self) -> bool {
        if self.pending.is_empty() {
            return true;
        }
        match self.pipe.write(&self.pending) {
            Ok(n) => {
                self.pending.drain(..n);
                true
            }
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

fn header_blocks(snap: u32) -> Vec<u8> {
    let mut out = Vec::new();
    // Section header block.
    for word in [0x0a0d_0d0au32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for word in [1u32, 20, u32::from(LINKTYPE_ETHERNET), snap, 20] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out
}

fn statistics_block(out: &mut Vec<u8>, time_us: u64, received: u64, dropped: u64) {
    // Options 4 (isb_ifrecv) and 5 (isb_ifdrop), eight bytes each, then the end of options.
    for word in [
        5u32,
        52,
        0,
        (time_us >> 32) as u32,
        time_us as u32,
        4 | 8 << 16,
    ] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&received.to_le_bytes());
    out.extend_from_slice(&(5u32 | 8 << 16).to_le_bytes());
    out.extend_from_slice(&dropped.to_le_bytes());
    for word in [0u32, 52] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// All readers; usually none, and then a packet costs one look.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    readers: Vec<Capture>,
    /// Packets that readers who are gone have missed; those of present ones are in their streams.
    pub(crate) skipped: u64,
}

impl Captures {
    /// Whether anybody reads.
    #[inline]
    pub(crate) fn active(&self) -> bool {
        !self.readers.is_empty()
    }

    /// One more.
    pub(crate) fn add(&mut self, capture: Capture) {
        self.readers.push(capture);
        self.flush();
    }

    /// Packets left out so far.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped + self.readers.iter().map(|r| r.skipped).sum::<u64>()
    }

    /// A frame that goes out: header and the pieces of its payload.
    #[inline]
    pub(crate) fn outgoing<'a, I: Iterator<Item = MemRef<'a>>>(
        &mut self,
        header: &[u8],
        loopback: bool,
        pieces: impl Fn() -> I,
    ) {
        if self.active() {
            self.all(loopback, header, pieces);
        }
    }

    /// A frame that came in.
    #[inline]
    pub(crate) fn incoming(&mut self, frame: &[u8]) {
        if self.active() {
            self.all(false, frame, std::iter::empty);
        }
    }

    #[cold]
    fn all<'a, I: Iterator<Item = MemRef<'a>>>(
        &mut self,
        loopback: bool,
        header: &[u8],
        pieces: impl Fn() -> I,
    ) {
        let time_us = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_micros() as u64);
        let mut lost = 0;
        self.readers.retain_mut(|reader| {
            let stays = reader.packet(time_us, loopback, header, pieces());
            lost += if stays { 0 } else { reader.skipped };
            stays
        });
        self.skipped += lost;
    }

    /// Pushes out what pipes did not take; drops readers that are gone. Called when the engine has time.
    pub(crate) fn flush(&mut self) {
        self.readers.retain_mut(Capture::flush);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn tcp(src: [u8; 4], dst: [u8; 4], sport: u16, dport: u16) -> Vec<u8> {
        let mut p = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
        p.extend(src);
        p.extend(dst);
        p.extend(sport.to_be_bytes());
        p.extend(dport.to_be_bytes());
        p.resize(40, 0);
        p
    }

    #[test]
    fn filters_by_either_end() {
        let packet = tcp([10, 0, 0, 1], [10, 0, 0, 2], 4000, 80);
        let filter = |host: Option<[u8; 4]>, port| Filter {
            host: host.map(Into::into),
            port,
            snap: 0,
        };
        for (host, port, wanted) in [
            (None, None, true),
            (Some([10, 0, 0, 1]), None, true),
            (Some([10, 0, 0, 2]), Some(80), true),
            (Some([10, 0, 0, 3]), None, false),
            (None, Some(4000), true),
            (None, Some(81), false),
        ] {
            assert_eq!(
                filter(host, port).wants(&packet),
                wanted,
                "{host:?} {port:?}"
            );
        }
        assert!(
            !filter(None, Some(80)).wants(&packet[..19]),
            "too short to say"
        );
        assert!(
            !filter(None, Some(80)).wants(&[0x46; 21]),
            "options reach past the end"
        );
    }

    #[test]
    fn a_reader_that_does_not_read_costs_packets_and_is_told() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let writer: OwnedFd = writer.into();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let mut captures = Captures::default();
        captures.add(Capture::new(writer, Filter::default()));
        let packet = tcp([1, 2, 3, 4], [5, 6, 7, 8], 1, 2);
        let payload = vec![7u8; 1000];
        for _ in 0..200 {
            captures.outgoing(&packet, true, || [MemRef::from_bytes(&payload)].into_iter());
        }
        let skipped = captures.skipped();
        assert!(skipped > 100, "a pipe holds 64 KiB: {skipped}");
        let mut buffer = vec![0; 1 << 17];
        let n = reader.read(&mut buffer).unwrap();
        let mut all = buffer[..n].to_vec();
        captures.outgoing(&packet, true, std::iter::empty);
        let n = reader.read(&mut buffer).unwrap();
        all.extend_from_slice(&buffer[..n]);
        // Walk over the blocks: lengths at both ends agree, and a statistics block tells of the loss.
        let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        let (mut at, mut packets, mut told) = (0, 0, 0);
        while at < all.len() {
            let len = word(at + 4) as usize;
            assert_eq!(word(at + len - 4) as usize, len);
            match word(at) {
                6 => packets += 1,
                5 => told = word(at + 36),
                _ => {}
            }
            at += len;
        }
        assert_eq!(u64::from(told), skipped);
        assert_eq!(packets, 201 - skipped);
        drop(reader);
        captures.outgoing(&packet, true, std::iter::empty);
        assert!(!captures.active(), "a reader that went away is forgotten");
    }
}
