//! The internal loopback: frames between two DTIs of this engine. They go through all of TCP, as from any device, but carry
//! a reference to the sender's queue instead of bytes: the receiver's copy is the only one.

use std::collections::VecDeque;

use crate::tables::frame::StreamRange;

/// Longest header of a loopback frame: IPv4 and TCP with all options.
pub(crate) const HEADER_MAX: usize = 128;

/// One frame. Exactly what is needed, so that the queue's memory stays in cache.
#[derive(Clone)]
pub(crate) struct LoopbackFrame {
    header: [u8; HEADER_MAX],
    header_len: u8,
    /// The payload, if it is stream data.
    pub(crate) payload: Option<StreamRange>,
    /// The payload, if it is something else (datagrams, ICMP).
    pub(crate) bytes: Option<Box<[u8]>>,
}

impl LoopbackFrame {
    /// The headers.
    #[inline]
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..self.header_len as usize]
    }
}

/// The queue. Full, it pushes back: the stack keeps what it has until the next turn, and nothing is lost.
pub(crate) struct Loopback {
    frames: VecDeque<LoopbackFrame>,
    limit: usize,
}

impl Loopback {
    /// At most `limit` frames.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            frames: VecDeque::with_capacity(limit),
            limit,
        }
    }

    /// Whether one more fits.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.frames.len() < self.limit
    }

    /// Frames that wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Queues a frame; its header is copied. A header that is too long cannot come from our stack and is dropped.
    #[inline]
    pub(crate) fn push(
        &mut self,
        header: &[u8],
        payload: Option<StreamRange>,
        bytes: Option<Box<[u8]>>,
    ) {
        let mut copy = [0u8; HEADER_MAX];
        if let Some(to) = copy.get_mut(..header.len()) {
            to.copy_from_slice(header);
            self.frames.push_back(LoopbackFrame {
                header: copy,
                header_len: header.len() as u8,
                payload,
                bytes,
            });
        }
    }

    /// The oldest frame.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<LoopbackFrame> {
        self.frames.pop_front()
    }
}
