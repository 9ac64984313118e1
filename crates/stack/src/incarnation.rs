//! Where a connection's sequence numbers begin, if there was one between the same two ends before.

use core::net::{IpAddr, SocketAddr};

use sidecore_tcp::{Instant, initial_sequence_number, timestamp_offset};
use sidecore_wire::SeqNumber;

use crate::stack::Stack;

/// How far beyond its predecessor's last sequence number a connection begins: more than an unscaled window, so that no ACK of
/// the one counts for the other (Linux does the same).
const BEYOND: u32 = 65_535 + 2;

/// Two addresses, local and remote, and the timestamp offset of connections between them.
pub(crate) type Offset = ((IpAddr, IpAddr), u32);

/// A connection in TIME-WAIT that has given way to a new one between the same two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Predecessor {
    local: SocketAddr,
    remote: SocketAddr,
    /// Its SND.NXT.
    next: SeqNumber,
}

impl Stack {
    /// The connection is about to give way to a new one.
    pub(crate) fn note_predecessor(&mut self, index: u32) {
        let (local, remote) = self.connections.addresses(index);
        let next = self.connections[index].tcp.next_sequence_number();
        self.predecessor = Some(Predecessor {
            local,
            remote,
            next,
        });
    }

    /// A new connection's timestamp offset, which is the same for all connections between two addresses: those that come one after the other
    /// mostly are.
    pub(crate) fn timestamp_offset(&mut self, local: SocketAddr, remote: SocketAddr) -> u32 {
        let ends = (local.ip(), remote.ip());
        match self.last_offset {
            Some((known, offset)) if known == ends => offset,
            _ => {
                let offset = timestamp_offset(&self.keys.sequence, local, remote);
                self.last_offset = Some((ends, offset));
                offset
            }
        }
    }

    /// A new connection's initial sequence number (RFC 6528).
    ///
    /// If it takes the place of one in TIME-WAIT, it is "larger than the largest sequence number it used on the previous connection
    /// incarnation" (RFC 9293 section 3.6.1, MAY-2). The clock alone does not see to that: it runs at 250 kB/s.
    pub(crate) fn initial_sequence(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> SeqNumber {
        let iss = initial_sequence_number(&self.keys.sequence, now, local, remote);
        match self.predecessor.take() {
            Some(before) if (before.local, before.remote) == (local, remote) => {
                iss.max(before.next.add(BEYOND))
            }
            _ => iss,
        }
    }
}
