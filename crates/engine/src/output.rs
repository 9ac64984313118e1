//! What the stack calls: as [`Host`], for what came in; as [`FrameSink`], for what goes out.

use std::net::SocketAddr;

use sidecore_nic::{AnyNic, Nic, TxFrame};
use sidecore_shm::MemRef;
use sidecore_stack::{
    ConnId, DatagramError, Envelope, FrameSink, Host, SinkCaps, TxOffload, TxPayload, User,
};
use sidecore_tcp::CloseReason;

use crate::capture::Captures;
use crate::loopback::Loopback;
use crate::tables::Tables;
use crate::tables::frame::{Frame, StreamRange};

/// Pieces of one frame's payload that are gathered without a copy.
const PIECES: usize = 40;

/// Payload bytes of a loopback super-segment.
const LOOPBACK_MTU: u32 = 65535;

/// While a frame is handled: where its bytes are.
pub(crate) struct Input<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) frame: Frame<'a>,
}

/// While frames go out.
pub(crate) struct Output<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) nic: &'a mut AnyNic,
    pub(crate) loopback: &'a mut Loopback,
    pub(crate) captures: &'a mut Captures,
    pub(crate) scratch: &'a mut [u8],
}

macro_rules! host_by_tables {
    () => {
        #[inline]
        fn room(&mut self, user: User, len: u32, in_order: bool) -> bool {
            self.tables.room(user, len, in_order)
        }

        #[inline]
        fn readable(&mut self, user: User, _conn: ConnId, receive_next: u64, fin: bool) {
            self.tables.readable(user, receive_next, fin);
        }

        fn urgent(&mut self, user: User, _conn: ConnId, end: u64) {
            self.tables.urgent(user, end);
        }

        #[inline]
        fn acknowledged(&mut self, user: User, _conn: ConnId, send_una: u64) {
            self.tables.acknowledged(user, send_una);
        }

        fn can_accept(&mut self, listener: User) -> bool {
            self.tables.can_accept(listener)
        }

        fn incoming(
            &mut self,
            listener: User,
            conn: ConnId,
            _local: SocketAddr,
            remote: SocketAddr,
        ) -> Option<(User, u64)> {
            self.tables.incoming(listener, conn, remote)
        }

        fn connected(&mut self, user: User, conn: ConnId) {
            self.tables.connected(user, conn);
        }

        fn datagram_ready(&mut self, user: User) {
            self.tables.datagram_ready(user);
        }

        fn icmp_error(&mut self, user: User, error: &DatagramError<'_>) {
            self.tables.datagram_error(user, error);
        }

        fn closed(&mut self, user: User, _conn: ConnId, reason: CloseReason) {
            self.tables.connection_over(user, reason);
        }
    };
}

impl Host for Input<'_> {
    host_by_tables!();

    #[inline]
    fn store(
        &mut self,
        user: User,
        _conn: ConnId,
        frame_offset: u32,
        len: u32,
        stream_offset: u64,
        in_order: bool,
    ) {
        self.tables.store(
            &self.frame,
            user,
            frame_offset,
            len,
            stream_offset,
            in_order,
        );
    }

    fn store_bytes(
        &mut self,
        user: User,
        _conn: ConnId,
        bytes: &[u8],
        stream_offset: u64,
        in_order: bool,
    ) {
        self.tables.store(
            &Frame::Device(bytes),
            user,
            0,
            bytes.len() as u32,
            stream_offset,
            in_order,
        );
    }

    fn datagram(&mut self, user: User, frame_offset: u32, len: u32, envelope: &Envelope) {
        self.tables
            .datagram(&self.frame, user, (frame_offset, len), envelope);
    }

    fn datagram_bytes(&mut self, user: User, bytes: &[u8], envelope: &Envelope) {
        let all = (0, bytes.len() as u32);
        self.tables
            .datagram(&Frame::Device(bytes), user, all, envelope);
    }
}

/// Timers and transmission handle no frame: nothing can be stored then.
impl Host for Output<'_> {
    host_by_tables!();

    fn store(&mut self, _: User, _: ConnId, _: u32, _: u32, _: u64, _: bool) {}
    fn store_bytes(&mut self, _: User, _: ConnId, _: &[u8], _: u64, _: bool) {}
    fn datagram(&mut self, _: User, _: u32, _: u32, _: &Envelope) {}
    fn datagram_bytes(&mut self, _: User, _: &[u8], _: &Envelope) {}
}

impl FrameSink for Output<'_> {
    #[inline]
    fn caps(&self) -> SinkCaps {
        let caps = self.nic.caps();
        SinkCaps {
            tso_max: caps.tso_max,
            mtu: caps.mtu,
            loopback_mtu: LOOPBACK_MTU,
        }
    }

    #[inline]
    fn has_room(&self, loopback: bool) -> bool {
        if loopback {
            self.loopback.has_room()
        } else {
            self.nic.has_room()
        }
    }

    #[inline]
    fn send(&mut self, header: &[u8], payload: TxPayload<'_>, offload: &TxOffload) {
        match payload {
            TxPayload::None => self.emit(header, &[], 0, offload),
            TxPayload::Bytes(bytes) if offload.loopback => {
                self.captures.outgoing(header, offload.loopback, || {
                    [MemRef::from_bytes(bytes)].into_iter()
                });
                self.loopback.push(header, None, Some(bytes.into()));
            }
            TxPayload::Bytes(bytes) => self.emit(
                header,
                &[MemRef::from_bytes(bytes)],
                bytes.len() as u32,
                offload,
            ),
            TxPayload::Stream { user, start, len } => {
                self.send_stream(header, user, start, len, offload)
            }
        }
    }
}

impl Output<'_> {
    #[inline]
    fn emit(&mut self, header: &[u8], pieces: &[MemRef<'_>], len: u32, offload: &TxOffload) {
        submit(
            self.nic,
            self.loopback,
            self.captures,
            header,
            pieces,
            len,
            offload,
        );
    }

    #[inline]
    fn send_stream(
        &mut self,
        header: &[u8],
        user: User,
        start: u64,
        len: u32,
        offload: &TxOffload,
    ) {
        let Some(dti) = self.tables.dtis.get(user) else {
            return;
        };
        let range = StreamRange {
            slot: user,
            epoch: dti.epoch,
            start,
            len,
        };
        if offload.loopback && !self.captures.active() {
            self.loopback.push(header, Some(range), None);
            return;
        }
        if !offload.loopback
            && let Some((piece, node)) = self.tables.stream_piece(range)
        {
            submit(
                self.nic,
                self.loopback,
                self.captures,
                header,
                &[piece],
                len,
                offload,
            );
            if let Some(dti) = self.tables.dtis.get_mut(user) {
                dti.tx.set_cursor(node);
            }
            return;
        }
        self.send_pieces(header, range, offload);
    }

    /// A payload that lies in several pieces, or goes to a capture and the loopback.
    #[inline(never)]
    fn send_pieces(&mut self, header: &[u8], range: StreamRange, offload: &TxOffload) {
        let mut pieces = [MemRef::from_bytes(&[]); PIECES];
        let mut count = 0;
        let end = self.tables.stream_pieces(range, |piece| {
            let fits = count < PIECES;
            if fits {
                pieces[count] = piece;
            }
            count += 1;
            true
        });
        let Some(end) = end else {
            self.tables.counters.gather_failed += 1;
            return;
        };
        let most = PIECES.min(self.nic.caps().max_fragments);
        if offload.loopback {
            self.captures
                .outgoing(header, true, || pieces[..count.min(PIECES)].iter().copied());
            self.loopback.push(header, Some(range), None);
        } else if count <= most {
            submit(
                self.nic,
                self.loopback,
                self.captures,
                header,
                &pieces[..count],
                range.len,
                offload,
            );
        } else {
            self.send_copied(header, range, offload);
        }
        if let Some(dti) = self.tables.dtis.get_mut(range.slot) {
            dti.tx.set_cursor(end);
        }
    }

    /// More pieces than the device gathers: one copy, sent at once.
    #[cold]
    fn send_copied(&mut self, header: &[u8], range: StreamRange, offload: &TxOffload) {
        let mut at = 0;
        let scratch = &mut *self.scratch;
        let gathered = self.tables.stream_pieces(range, |piece| {
            let to = scratch.get_mut(at..at + piece.len());
            at += piece.len();
            to.map(|to| piece.copy_to(to)).is_some()
        });
        if gathered.is_some() {
            let bytes = MemRef::from_bytes(&scratch[..at]);
            submit(
                self.nic,
                self.loopback,
                self.captures,
                header,
                &[bytes],
                range.len,
                offload,
            );
            // The scratch memory is used again: the driver must be done with it.
            self.nic.flush();
        } else {
            self.tables.counters.gather_failed += 1;
        }
    }
}

#[inline]
fn submit(
    nic: &mut AnyNic,
    loopback: &mut Loopback,
    captures: &mut Captures,
    header: &[u8],
    payload: &[MemRef<'_>],
    payload_len: u32,
    offload: &TxOffload,
) {
    if captures.active() {
        captures.outgoing(header, offload.loopback, || payload.iter().copied());
    }
    if offload.loopback {
        return loopback.push(header, None, None);
    }
    nic.submit(&TxFrame {
        header,
        payload,
        payload_len,
        checksum: offload.checksum,
        segment_size: offload.segment_size,
    });
}
