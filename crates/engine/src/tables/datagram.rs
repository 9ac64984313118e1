//! Datagrams: out of regions, copied at the end of the turn; into chunks of the receive pool, each with its sender's address.

use std::net::SocketAddr;

use sidecore_abi::event::{self, DESTINATION_LEN, Event};
use sidecore_abi::{Address, EventKind, Status};
use sidecore_shm::MemRef;
use sidecore_stack::{Envelope, SocketOption, StackError, UdpId, User};

use super::Tables;
use super::frame::{Frame, POOL_REGION};
use crate::dti::transmit::Source;
use crate::dti::{Role, flag};

/// What waits to be told to the stack, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outgoing {
    /// To be sent.
    Datagram(TxDatagram),
    /// An option that was set after the datagrams before it were sent: it does not hold for them.
    Change(SocketOption),
}

/// What [`Tables::send_datagrams`] gives away.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// A datagram, and where it goes.
    Datagram(SocketAddr, &'a [u8]),
    /// An option.
    Change(SocketOption),
}

/// One datagram that the application has sent and the stack has not taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TxDatagram {
    /// Where its bytes are.
    pub(crate) source: Source,
    /// How many.
    pub(crate) len: u32,
    /// Queue for the completion.
    pub(crate) evq: u16,
    /// Whether a completion was asked for.
    pub(crate) notify: bool,
    /// Where it goes.
    pub(crate) to: SocketAddr,
    /// Cookie of the send.
    pub(crate) cookie: u64,
}

impl Tables {
    /// A datagram for a bound socket. It is dropped, and counted, when pool or event queue have no room. Else its chunk, and where its bytes are.
    pub(super) fn deliver_datagram(
        &mut self,
        frame: &Frame<'_>,
        slot: u32,
        (frame_offset, len): (u32, u32),
        envelope: &Envelope,
    ) -> Option<(u32, u64)> {
        let dti = self.dtis.get(slot)?;
        let Role::Datagram { peer, .. } = dti.role else {
            return None;
        };
        if peer.is_some_and(|peer| peer != envelope.from) {
            return None;
        }
        let (ual_slot, epoch, evq, handle) = (dti.ual, dti.epoch, dti.rx_evq, dti.handle);
        let Some(Some(ual)) = self.uals.get_mut(ual_slot as usize) else {
            return None;
        };
        let (told, tail) = event::arrival(envelope.hops, envelope.class, envelope.to.ip());
        // As with data out of order: what may be dropped never starves what was promised room.
        let scarce = ual.chunks.free_bytes() <= ual.chunks.size() / super::store::RESERVE;
        let place = if ual.gone || scarce || !ual.accepts(evq) {
            None
        } else {
            let room = len + tail.map_or(0, |tail| tail.len() as u32);
            ual.chunks.allocate(room.max(1), slot, epoch)
        };
        let Some((chunk, offset, _)) = place else {
            ual.counters.datagrams_dropped += 1;
            return None;
        };
        let ual = self.uals.get(ual_slot as usize).and_then(Option::as_ref)?;
        let mut at = offset;
        self.frame_pieces(frame, frame_offset, len, |bytes| {
            ual.chunks.write(at, bytes);
            at += bytes.len() as u64;
            true
        });
        if let Some(tail) = tail {
            ual.chunks.write(at, MemRef::from_bytes(&tail));
        }
        let mut event = Event::received(handle, chunk, offset, len, 0, false);
        event.kind = EventKind::Datagram;
        event.cookie = told;
        let event = event.with_address(2, Address::new(envelope.from));
        if let Some(ual) = self.ual(ual_slot) {
            ual.chunks.hand_over(chunk, 0);
            ual.emit(evq, &event);
        }
        Some((chunk, offset))
    }

    /// Whether a datagram of this length finds room at a socket.
    pub(super) fn has_datagram_room(&mut self, slot: u32, len: u32) -> bool {
        let Some(dti) = self.dtis.get(slot) else {
            return false;
        };
        let (ual, evq) = (dti.ual, dti.rx_evq);
        self.ual(ual).is_some_and(|ual| {
            let scarce = ual.chunks.free_bytes() <= ual.chunks.size() / super::store::RESERVE;
            let room = ual.chunks.has_room(len + DESTINATION_LEN as u32);
            !ual.gone && !scarce && room && ual.accepts(evq)
        })
    }

    /// Sends what datagram sockets have queued, one after the other as long as `send` takes them.
    pub(crate) fn send_datagrams(
        &mut self,
        scratch: &mut [u8],
        mut send: impl FnMut(&mut Tables, (User, UdpId), Piece<'_>) -> Result<(), StackError>,
    ) -> usize {
        let mut sent = 0;
        let mut senders = std::mem::take(&mut self.datagram_senders);
        for slot in senders.drain(..) {
            while let Some(dti) = self.dtis.get(slot) {
                let Role::Datagram {
                    socket: Some(id), ..
                } = dti.role
                else {
                    break;
                };
                let datagram = match self.datagrams.front(&dti.datagrams).copied() {
                    Some(Outgoing::Datagram(datagram)) => datagram,
                    Some(Outgoing::Change(option)) => {
                        // What cannot be was refused when it was asked for.
                        let _ = send(self, (slot, id), Piece::Change(option));
                        self.end_datagram(slot, Status::Ok);
                        continue;
                    }
                    None => break,
                };
                let bytes = self.source(dti.ual, datagram.source, 0, datagram.len);
                let bytes = bytes.and_then(|from| {
                    let to = scratch.get_mut(..from.len())?;
                    from.copy_to(to);
                    Some(from.len())
                });
                let result = match bytes {
                    Some(len) => {
                        let piece = Piece::Datagram(datagram.to, &scratch[..len]);
                        send(self, (slot, id), piece)
                    }
                    None => Err(StackError::NoSuchSocket),
                };
                if matches!(result, Err(StackError::WouldBlock | StackError::Resolving)) {
                    // `WouldBlock` is tried again next turn; `Resolving` when the stack says so.
                    if result == Err(StackError::WouldBlock) {
                        self.datagram_senders.push(slot);
                    }
                    break;
                }
                sent += 1;
                self.end_datagram(
                    slot,
                    result.map_or_else(crate::commands::socket::status_of, |()| Status::Ok),
                );
            }
        }
        senders.append(&mut self.datagram_senders);
        self.datagram_senders = senders;
        sent
    }

    /// Datagram sockets that were closed with something queued, and have sent it; with what is to be closed at the stack.
    pub(crate) fn take_closed_datagram_sockets(&mut self) -> Vec<(u32, Option<UdpId>)> {
        let done = |dti: &crate::dti::Dti| match dti.role {
            Role::Datagram { socket, shared, .. }
                if dti.has(flag::CLOSE) && dti.datagrams.is_empty() =>
            {
                Some((socket?, shared))
            }
            _ => None,
        };
        let closed = std::mem::take(&mut self.datagram_closing);
        let (ended, waiting): (Vec<u32>, Vec<u32>) = closed
            .into_iter()
            .partition(|slot| self.dtis.get(*slot).is_none_or(|dti| done(dti).is_some()));
        self.datagram_closing = waiting;
        ended
            .into_iter()
            .filter_map(|slot| {
                let ends = match done(self.dtis.get(slot)?)? {
                    (id, None) => Some(id),
                    (_, Some(shared)) => self.sockets.sent_all(shared),
                };
                Some((slot, ends))
            })
            .collect()
    }

    /// The first that is queued is done with.
    fn end_datagram(&mut self, slot: u32, status: Status) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let (ual, handle) = (dti.ual, dti.handle);
        let datagram = match self.datagrams.pop_front(&mut dti.datagrams) {
            Some(Outgoing::Datagram(datagram)) => datagram,
            Some(Outgoing::Change(_)) => return self.end_descriptor(slot),
            None => return,
        };
        match datagram.source {
            Source::Copy(place) => self.copies.give(place),
            Source::Moved(place) => self.moved.give(place),
            Source::Region(POOL_REGION, _) => {}
            Source::Region(id, _) => self.end_region_use(ual, id),
        }
        self.end_descriptor(slot);
        if datagram.notify || status != Status::Ok {
            self.emit(
                ual,
                datagram.evq,
                &Event::new(EventKind::Sent, handle, datagram.cookie, status),
            );
        }
    }

    /// Forgets all queued datagrams.
    pub(crate) fn drop_datagrams(&mut self, slot: u32) {
        while self
            .dtis
            .get(slot)
            .is_some_and(|dti| !dti.datagrams.is_empty())
        {
            self.end_datagram(slot, Status::Cancelled);
        }
    }
}
