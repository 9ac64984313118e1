//! A connection came in on a listener: it goes to an accept that waits, or waits for one.

use std::net::SocketAddr;

use sidecore_abi::event::Event;
use sidecore_abi::{Address, DtiHandle, EventKind, Status};
use sidecore_stack::ConnId;

use super::Tables;
use crate::dti::{ANONYMOUS, Dti, PostedAccept, Role, flag};

/// Bytes that a connection nobody has accepted yet may receive.
pub(crate) const INITIAL_WINDOW: u32 = 65536;

impl Tables {
    /// Whether one more connection on a listener would find an accept, or a place to wait for one.
    pub(crate) fn can_accept(&mut self, listener: u32) -> bool {
        let listener = self.accepting_member(listener);
        self.drop_stale_accepts(listener);
        let Some(dti) = self.dtis.get(listener) else {
            return false;
        };
        let Role::Listening(listening) = &dti.role else {
            return false;
        };
        if !listening.accepts.is_empty() {
            return true;
        }
        let queue_has_room = listening.waiting.len() < listening.backlog as usize;
        let ual = dti.ual;
        let room = queue_has_room
            && self.dtis.has_room()
            && self.ual(ual).is_some_and(|ual| ual.waiting < ual.dti_limit);
        self.counters.accept_queue_full += u64::from(!room);
        room
    }

    /// The handshake of a passive connection is done. Its slot and receive limit, or `None` to refuse it.
    pub(crate) fn incoming(
        &mut self,
        listener: u32,
        conn: ConnId,
        remote: SocketAddr,
    ) -> Option<(u32, u64)> {
        let listener = self.take_accepting_member(listener);
        let slot = match self.take_accept(listener) {
            Some((child, accept)) => {
                self.attach(child, conn, &accept, remote);
                child
            }
            None => self.enqueue(listener, conn)?,
        };
        self.begin_untaken(slot, listener);
        let inherited = self.dtis.get(listener).map(|dti| dti.options.clone());
        let of_listener = self.dtis.get(listener);
        let clamp = of_listener.map_or(0, |dti| dti.rx.window_clamp);
        let lowat = of_listener.map_or(0, |dti| dti.notsent_lowat);
        let dti = self.dtis.get_mut(slot)?;
        if dti.rx.window_clamp == 0 {
            dti.rx.set_window(dti.rx.buffer_option, clamp);
        }
        if dti.notsent_lowat == 0 {
            dti.set_notsent_lowat(lowat);
        }
        if let Some(mut options) = inherited.filter(|options| !options.is_empty()) {
            // The child's own come last and count.
            options.append(&mut dti.options);
            dti.options = options;
        }
        dti.rx.limit = u64::from(dti.rx.clamped(INITIAL_WINDOW));
        Some((slot, dti.rx.limit))
    }

    /// The next accept whose child can still be used.
    pub(crate) fn take_accept(&mut self, listener: u32) -> Option<(u32, PostedAccept)> {
        self.drop_stale_accepts(listener);
        let (ual, accept) = self.pop_accept(listener)?;
        Some((self.usable_child(ual, accept.child)?, accept))
    }

    fn pop_accept(&mut self, listener: u32) -> Option<(u32, PostedAccept)> {
        let dti = self.dtis.get_mut(listener)?;
        let ual = dti.ual;
        let Role::Listening(listening) = &mut dti.role else {
            return None;
        };
        let accept = self.accepts.pop_front(&mut listening.accepts)?;
        self.end_descriptor(listener);
        Some((ual, accept))
    }

    /// Takes away the oldest accepts as long as their children cannot be used.
    fn drop_stale_accepts(&mut self, listener: u32) {
        loop {
            let Some(dti) = self.dtis.get(listener) else {
                return;
            };
            let Role::Listening(listening) = &dti.role else {
                return;
            };
            let Some(accept) = self.accepts.front(&listening.accepts) else {
                return;
            };
            if self.usable_child(dti.ual, accept.child).is_some() {
                return;
            }
            let Some((ual, accept)) = self.pop_accept(listener) else {
                return;
            };
            // The child was closed, connected or accepted for meanwhile: this accept is over, and says so.
            let event = Event::new(
                EventKind::Accepted,
                accept.child,
                accept.cookie,
                Status::Cancelled,
            );
            self.emit(ual, accept.evq, &event);
        }
    }

    /// The slot of a child that exists and is not connected yet.
    pub(crate) fn usable_child(&self, ual: u32, child: DtiHandle) -> Option<u32> {
        let slot = self.find(ual, child)?;
        let dti = self.dtis.get(slot)?;
        (matches!(dti.role, Role::Fresh) && !dti.has(flag::CLOSE)).then_some(slot)
    }

    /// A child gets its connection.
    pub(crate) fn attach(
        &mut self,
        child: u32,
        conn: ConnId,
        accept: &PostedAccept,
        remote: SocketAddr,
    ) {
        let Some(dti) = self.dtis.get_mut(child) else {
            return;
        };
        dti.role = Role::Connected(conn);
        let (ual, handle) = (dti.ual, dti.handle);
        // Sends and a shutdown may have been posted before the accept.
        self.mark_dirty(child);
        let event = Event::new(EventKind::Accepted, handle, accept.cookie, Status::Ok)
            .with_address(0, Address::new(remote));
        self.emit(ual, accept.evq, &event);
    }

    /// Nobody accepts it yet: it waits under a name of ours.
    fn enqueue(&mut self, listener: u32, conn: ConnId) -> Option<u32> {
        let dti = self.dtis.get(listener)?;
        let (ual, evq) = (dti.ual, dti.rx_evq);
        let Role::Listening(listening) = &dti.role else {
            return None;
        };
        if listening.waiting.len() >= listening.backlog as usize {
            return None;
        }
        let made = self.create(ual, false, |epoch| {
            Dti::new(ual, ANONYMOUS, evq, evq, Role::Connected(conn), epoch)
        });
        let slot = made.ok()?;
        let Some(Role::Listening(listening)) = self.dtis.get_mut(listener).map(|dti| &mut dti.role)
        else {
            return None;
        };
        listening.waiting.push_back(slot);
        self.tell_waiting(listener);
        Some(slot)
    }

    /// The first connection waits at a listener, or at one of its copies.
    pub(crate) fn tell_waiting(&mut self, listener: u32) {
        if self.tell_copies(listener) {
            return;
        }
        let Some(dti) = self.dtis.get(listener) else {
            return;
        };
        if matches!(&dti.role, Role::Listening(listening) if listening.waiting.len() == 1) {
            let mut event = Event::new(EventKind::Incoming, dti.handle, 0, Status::Ok);
            event.body[0] = 1;
            self.emit(dti.ual, dti.rx_evq, &event);
        }
    }

    /// Moves what a waiting connection received to the child that accepts it. Returns the connection.
    pub(crate) fn adopt(&mut self, child: u32, waiting: u32) -> Option<ConnId> {
        let old = self.dtis.get_mut(waiting)?;
        let (conn, flags, end_status) = (old.conn(), old.flags, old.end_status);
        let lowat = old.notsent_lowat;
        let untaken = old.untaken.take();
        let mut rx = std::mem::take(&mut old.rx);
        let mut old_options = std::mem::take(&mut old.options);
        let dti = self.dtis.get_mut(child)?;
        rx.posted = dti.rx.posted;
        let clamp = match dti.rx.window_clamp {
            0 => rx.window_clamp,
            own => own,
        };
        rx.set_window(dti.rx.buffer_option, clamp);
        let mut options = std::mem::take(&mut old_options);
        options.append(&mut dti.options);
        dti.options = options;
        if dti.notsent_lowat == 0 {
            dti.set_notsent_lowat(lowat);
        }
        let (epoch, ual) = (dti.epoch, dti.ual);
        dti.rx = rx;
        dti.untaken = untaken;
        dti.flags |= flags & (flag::END | flag::OVER | flag::URGENT_DUE);
        dti.end_status = end_status;
        let (ready, out_of_order, fill) = (dti.rx.ready, dti.rx.out_of_order, dti.rx.fill);
        if let Some(Some(ual)) = self.uals.get_mut(ual as usize) {
            for list in [ready, out_of_order] {
                let mut at = list.head();
                while let Some(node) = at {
                    ual.chunks
                        .change_owner(self.pieces.get(node).chunk, child, epoch);
                    at = self.pieces.next(node);
                }
            }
            if fill.room > 0 {
                ual.chunks.change_owner(fill.chunk, child, epoch);
            }
        }
        conn
    }

    /// An active open is done.
    pub(crate) fn connected(&mut self, slot: u32, conn: ConnId) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let Role::Connecting { cookie, local, .. } = dti.role else {
            return;
        };
        dti.role = Role::Connected(conn);
        let (ual, handle, evq) = (dti.ual, dti.handle, dti.tx_evq);
        let event = Event::new(EventKind::Connected, handle, cookie, Status::Ok)
            .with_address(0, Address::new(local));
        self.emit(ual, evq, &event);
        self.mark_dirty(slot);
    }
}
