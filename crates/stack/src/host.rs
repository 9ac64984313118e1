//! What the stack asks of its caller, and tells it.

use core::net::{IpAddr, SocketAddr};

use sidecore_tcp::{CloseReason, IcmpKind};

use crate::{ConnId, User};

/// The stack's caller, as the stack sees it. Calls are statically dispatched and must not block.
///
/// A connection's life, as seen from here: `connect` of the stack, then [`connected`](Self::connected); or
/// [`incoming`](Self::incoming). Then any number of [`room`](Self::room), [`store`](Self::store),
/// [`readable`](Self::readable) and [`acknowledged`](Self::acknowledged). At last one [`closed`](Self::closed), after
/// which the id is dead; none comes after `Stack::abort`, with which the id dies at once.
pub trait Host {
    /// Is there room for `len` bytes of payload? Asked before TCP sees a segment with payload; `in_order` says whether
    /// it starts where the in-order data ends.
    ///
    /// If there is none, an in-order segment is dropped as if it had been lost, and of one out of order only the header
    /// is processed.
    fn room(&mut self, user: User, len: u32, in_order: bool) -> bool;

    /// Store `len` bytes that start at byte `frame_offset` of the frame that is being handled; they belong at
    /// `stream_offset`. They are not more than were asked [`room`](Self::room) for.
    fn store(
        &mut self,
        user: User,
        conn: ConnId,
        frame_offset: u32,
        len: u32,
        stream_offset: u64,
        in_order: bool,
    );

    /// As [`store`](Self::store), for a segment that came in IP fragments: the bytes are not in the frame.
    fn store_bytes(
        &mut self,
        user: User,
        conn: ConnId,
        bytes: &[u8],
        stream_offset: u64,
        in_order: bool,
    );

    /// In-order data now ends at `receive_next`; with `fin`, the peer has ended its stream there. Called once for each
    /// segment that moved it or brought the FIN, after its bytes were stored.
    fn readable(&mut self, user: User, conn: ConnId, receive_next: u64, fin: bool);

    /// The peer has urgent data that ends before stream offset `end`: in line, like all other data, and perhaps yet to come. Called each
    /// time that this is new or more than before (RFC 9293 section 3.8.5, MUST-32), and before any byte of the segment that said so is
    /// stored.
    fn urgent(&mut self, user: User, conn: ConnId, end: u64) {
        let _ = (user, conn, end);
    }

    /// The peer has acknowledged all bytes before `send_una`: they may be released.
    fn acknowledged(&mut self, user: User, conn: ConnId, send_una: u64);

    /// Is there room for one more connection of the listening socket whose user this is? Asked when a SYN comes, and before
    /// TCP sees what would complete a handshake.
    ///
    /// If there is none, the segment is dropped as if it had been lost: the handshake stays as it is, SYN-ACK and data
    /// are sent again by their timers, and whoever comes while the application is slow is late, not refused.
    fn can_accept(&mut self, listener: User) -> bool;

    /// The handshake of a passive connection is complete; [`can_accept`](Self::can_accept) was just asked. `listener` is the
    /// user of the listening socket; the answer is the user for the new connection and the stream offset up to which it has
    /// receive buffer, or `None` to refuse the connection, which is then reset and counted.
    fn incoming(
        &mut self,
        listener: User,
        conn: ConnId,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<(User, u64)>;

    /// The active open is done.
    fn connected(&mut self, user: User, conn: ConnId);

    /// The connection needs nothing more of its host, and the id is dead: it was reset, refused, timed out; or the host
    /// had called `Stack::close`, and both sides ended their streams and everything was acknowledged.
    ///
    /// Without a `close` by the host, an orderly end is no reason for this call, however complete it is.
    fn closed(&mut self, user: User, conn: ConnId, reason: CloseReason);

    /// A datagram for a UDP socket: its `len` bytes start at byte `frame_offset` of the frame that is being handled.
    fn datagram(&mut self, user: User, frame_offset: u32, len: u32, envelope: &Envelope);

    /// As [`datagram`](Self::datagram), for one that came in IP fragments.
    fn datagram_bytes(&mut self, user: User, bytes: &[u8], envelope: &Envelope);

    /// The address of a next hop that `Stack::udp_send` had to wait for is known, or known to be unknowable: try again.
    fn datagram_ready(&mut self, user: User) {
        let _ = user;
    }

    /// An ICMP error came for a datagram that this UDP socket sent (RFC 1122 section 4.1.3.3: it is passed up).
    fn icmp_error(&mut self, user: User, error: &DatagramError<'_>) {
        let _ = (user, error);
    }
}

/// What the headers of a datagram say of its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Who sent it.
    pub from: SocketAddr,
    /// Where it was sent: an address of ours, a group, or all.
    pub to: SocketAddr,
    /// Time to live or hop limit that it arrived with.
    pub hops: u8,
    /// DSCP and ECN (RFC 2474, RFC 3168): the octet that was called type of service.
    pub class: u8,
}

/// An ICMP error about a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramError<'a> {
    /// Where the datagram was sent.
    pub remote: SocketAddr,
    /// What the error means.
    pub kind: IcmpKind,
    /// Type and code of the message, of ICMP or, if `remote` is an address of IPv6, of ICMPv6.
    pub message: (u8, u8),
    /// The MTU that the message names, or ICMPv6's offset of what is wrong; 0 of others.
    pub info: u32,
    /// Who sent the message.
    pub offender: IpAddr,
    /// The first bytes of the datagram's payload, as many as the message quotes.
    pub payload: &'a [u8],
}
