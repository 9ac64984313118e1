//! What the targets share that feed one stack with lists of entries: the list, segments near a connection's windows, and time.

use std::time::Duration;

use sidecore_tcp::Instant;
use sidecore_testkit::Node;
use sidecore_testkit::packet::header;
use sidecore_wire::{TcpFlags, TcpHeader};

/// Calls `apply` with each entry: a byte that says what follows, one of its length, and what follows, which may be cut off.
pub fn each(input: &[u8], mut apply: impl FnMut(u8, &[u8])) {
    let mut rest = input;
    while let Some((kind, behind)) = rest.split_first() {
        let len = usize::from(behind.first().copied().unwrap_or(0));
        let entry = &behind[behind.len().min(1)..];
        let (entry, after) = entry.split_at(len.min(entry.len()));
        rest = after;
        apply(*kind, entry);
    }
}

/// A segment to port 80 near the windows of a connection whose peer began at 1000 and which itself began at `iss`: from one of the `ports` first
/// ports, and what it carries.
pub fn segment(entry: &[u8], ports: u8, iss: u32) -> Option<(TcpHeader, &[u8])> {
    let (&[flags, seq, ack, window, port], payload) = entry.split_first_chunk()?;
    let near = |base: u32, offset: u8| base.wrapping_add_signed(i32::from(offset as i8) * 16);
    let mut header = header(
        u16::from(port % ports),
        80,
        TcpFlags::from_bits(u16::from(flags)),
        near(1001, seq),
        near(iss.wrapping_add(1), ack),
    );
    header.window.0 = u16::from(window) << 4;
    Some((header, payload))
}

/// Lets time pass, with a turn whenever the stack wants one.
pub fn pass(node: &mut Node, now: &mut Instant, duration: Duration) {
    let until = *now + duration;
    while let Some(next) = node.stack.next_timeout()
        && next <= until
    {
        *now = (*now).max(next);
        node.turn(*now);
    }
    *now = until;
    node.turn(*now);
}
