//! Connections that no program has taken: they are their listening socket's, and that is everybody's who has a copy of it.
//!
//! A system has one accept queue for a socket that several processes inherited. Here each copy has its own, in a UAL of its own. So that nobody can
//! tell the difference, what waits at one goes to another when that closes, dies, or is slower. Until a program has taken a connection the engine keeps
//! what it delivered of it: it may have to be delivered once more, elsewhere.

use sidecore_abi::event::Event;
use sidecore_abi::{EventKind, Status};
use sidecore_stack::ListenerId;

use super::Tables;
use crate::dti::receive::Piece;
use crate::dti::{ANONYMOUS, Dti, Role, flag};
use crate::slab_list::{List, ListPool};
use crate::ual::Ual;

/// What is known of a connection that came in on a listener with copies, until a program takes it.
#[derive(Debug)]
pub(crate) struct Untaken {
    /// The copies: their listener at the stack, and their number.
    family: Family,
    /// When it came, among all of them.
    order: u64,
    /// What was delivered, from the first byte on; the engine holds a reference for each.
    kept: List,
    /// Not all of it could be kept.
    incomplete: bool,
}

/// The copies of one listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Family {
    /// At the stack; unrelated sockets may share it (SO_REUSEPORT).
    pub(crate) id: ListenerId,
    /// What the copies have in common.
    pub(crate) copies: u64,
}

impl Untaken {
    fn new(family: Family, order: u64) -> Self {
        Self {
            family,
            order,
            kept: List::default(),
            incomplete: false,
        }
    }

    /// Keeps what is being delivered.
    #[cold]
    pub(crate) fn keep(
        &mut self,
        pieces: &mut ListPool<Piece>,
        ual: &mut Ual,
        piece: Piece,
        (slot, epoch): (u32, u32),
    ) {
        if self.incomplete || !ual.chunks.extend(piece.chunk, slot, epoch) {
            self.incomplete = true;
        } else if !pieces.push_back(&mut self.kept, piece) {
            self.incomplete = true;
            // The reference was taken just now, so that it is not the last.
            let _ = ual.chunks.release(piece.chunk);
        }
    }
}

impl Tables {
    /// A connection has come in on a listener; nothing is noted unless that has copies elsewhere.
    pub(crate) fn begin_untaken(&mut self, slot: u32, listener: u32) {
        if self.shared_listeners.is_empty() {
            return;
        }
        let Some(family) = self.family_of(listener) else {
            return;
        };
        let alone = self.copies(family).nth(1).is_none();
        if alone {
            return;
        }
        let order = self.next_arrival;
        self.next_arrival += 1;
        if let Some(dti) = self.dtis.get_mut(slot)
            && dti.untaken.is_none()
        {
            dti.untaken = Some(Box::new(Untaken::new(family, order)));
        }
    }

    /// A program has taken it: from here on it is that program's alone.
    pub(crate) fn taken(&mut self, slot: u32) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        if let Some(untaken) = dti.untaken.take() {
            let mut kept = untaken.kept;
            self.release_pieces(slot, &mut kept);
        }
    }

    /// The listener and its copies, if it may have some.
    pub(crate) fn family_of(&self, listener: u32) -> Option<Family> {
        let Role::Listening(listening) = &self.dtis.get(listener)?.role else {
            return None;
        };
        self.family_at(listener, listening.id)
    }

    /// To which copies a connection may go on, that no program took and none has used.
    pub(crate) fn may_go_on(&self, slot: u32) -> Option<(Family, u64)> {
        let dti = self.dtis.get(slot)?;
        let used = flag::CLOSE | flag::SHUTDOWN | flag::READ_SHUT | flag::POSTED_ONLY | flag::OVER;
        let unused = matches!(dti.role, Role::Connected(_))
            && dti.flags & used == 0
            && dti.number == 0
            && dti.tx.end == 0
            && dti.rx.posted.is_empty();
        let untaken = dti.untaken.as_ref().filter(|untaken| !untaken.incomplete)?;
        unused.then_some((untaken.family, untaken.order))
    }

    /// Gives a connection that no program took, and that came as number `order`, to the UAL of a listener, for which it may wait from here on. When this
    /// fails nothing has changed.
    pub(crate) fn go_on(&mut self, slot: u32, listener: u32, order: u64) -> Result<(), Status> {
        let (to, evq) = match self.dtis.get(listener) {
            Some(dti) if matches!(dti.role, Role::Listening(_)) => (dti.ual, dti.rx_evq),
            _ => return Err(Status::WrongState),
        };
        let ual = self.ual(to).ok_or(Status::BadHandle)?;
        if ual.gone || ual.condemned {
            return Err(Status::BadHandle);
        }
        if ual.waiting >= ual.dti_limit {
            return Err(Status::NoResources);
        }
        let family = self.family_of(listener);
        let lowat = self.dtis.get(slot).map_or(0, |dti| dti.notsent_lowat);
        let (ready, out_of_order) = self.received_again(slot, to)?;
        self.leave(slot);
        let Some(dti) = self.dtis.get_mut(slot) else {
            return Ok(());
        };
        become_waiting(dti, to, evq);
        (dti.rx.ready, dti.rx.out_of_order) = (ready, out_of_order);
        dti.set_notsent_lowat(lowat);
        dti.untaken = family.map(|family| Box::new(Untaken::new(family, order)));
        if let Some(ual) = self.ual(to) {
            ual.dtis += 1;
            ual.waiting += 1;
        }
        self.counters.gone_on += 1;
        Ok(())
    }

    /// All that came for a connection, delivered or not, in another pool: what is in order, and what is not.
    fn received_again(&mut self, slot: u32, to: u32) -> Result<(List, List), Status> {
        let dti = self.dtis.get(slot).ok_or(Status::BadHandle)?;
        let kept = dti.untaken.as_ref().map(|untaken| untaken.kept);
        let (from, ready, out_of_order) = (dti.ual, dti.rx.ready, dti.rx.out_of_order);
        let mut copies = List::default();
        for list in [kept.unwrap_or_default(), ready] {
            self.copy_pieces(slot, to, list, &mut copies)?;
        }
        let mut gaps = List::default();
        if let Err(status) = self.copy_pieces(slot, to, out_of_order, &mut gaps) {
            self.drop_copies(to, copies);
            return Err(status);
        }
        if self.ual(from).is_none_or(|ual| ual.chunks.condemned()) {
            // The memory vanished: these are no bytes of the peer's.
            self.drop_copies(to, copies);
            self.drop_copies(to, gaps);
            return Err(Status::BadExtent);
        }
        Ok((copies, gaps))
    }

    /// Puts a connection that has gone on into the line of its listener, by when it came.
    pub(crate) fn wait_in_line(&mut self, slot: u32, listener: u32, order: u64) {
        let Some(Role::Listening(listening)) = self.dtis.get(listener).map(|dti| &dti.role) else {
            return;
        };
        let waiting = &listening.waiting;
        let older = waiting.partition_point(|slot| self.order_of(*slot) < order);
        if let Some(Role::Listening(listening)) =
            self.dtis.get_mut(listener).map(|dti| &mut dti.role)
        {
            listening.waiting.insert(older, slot);
        }
    }

    /// When a connection came; those that came before their listener had copies are older than all others.
    pub(crate) fn order_of(&self, slot: u32) -> u64 {
        let dti = self.dtis.get(slot);
        let untaken = dti.and_then(|dti| dti.untaken.as_ref());
        untaken.map_or(0, |untaken| untaken.order)
    }

    /// The oldest connection that waits at another copy of this listener becomes one that waits for nobody, in this listener's UAL.
    pub(crate) fn take_from_copies(&mut self, listener: u32) -> Option<u32> {
        if self.shared_listeners.is_empty() {
            return None;
        }
        let family = self.family_of(listener)?;
        let oldest = |copy: u32| match &self.dtis.get(copy)?.role {
            Role::Listening(listening) => {
                let waiting = *listening.waiting.front()?;
                Some((self.order_of(waiting), waiting, copy))
            }
            _ => None,
        };
        let copies = self.copies(family).filter(|copy| *copy != listener);
        let (order, waiting, copy) = copies.filter_map(oldest).min()?;
        let over = self
            .dtis
            .get(waiting)
            .is_none_or(|dti| dti.conn().is_none());
        // What has ended stays where it is; who takes it there finds out.
        if over || self.go_on(waiting, listener, order).is_err() {
            return None;
        }
        if let Some(Role::Listening(listening)) = self.dtis.get_mut(copy).map(|dti| &mut dti.role) {
            listening.waiting.pop_front();
        }
        Some(waiting)
    }

    /// Tells each copy of a listener when connections begin to wait at one of them, and when none does any more: whoever polls a copy is to see what
    /// waits at another. False if it has no copies.
    pub(crate) fn tell_copies(&mut self, listener: u32) -> bool {
        if self.shared_listeners.is_empty() {
            return false;
        }
        let Some(family) = self.family_of(listener) else {
            return false;
        };
        let waits = self
            .copies(family)
            .any(|copy| self.has_waiting(copy, false));
        let news = |copy: &u32| match &self.dtis.get(*copy)?.role {
            Role::Listening(listening) => {
                let waits = waits || self.has_waiting(*copy, true);
                (listening.told != waits).then_some((*copy, waits))
            }
            _ => None,
        };
        let copies = self.copies(family);
        let news: Vec<(u32, bool)> = copies.filter_map(|copy| news(&copy)).collect();
        for (copy, waits) in news {
            let Some(dti) = self.dtis.get_mut(copy) else {
                continue;
            };
            if let Role::Listening(listening) = &mut dti.role {
                listening.told = waits;
            }
            let mut event = Event::new(EventKind::Incoming, dti.handle, 0, Status::Ok);
            event.body[0] = waits.into();
            let (ual, evq) = (dti.ual, dti.rx_evq);
            self.emit(ual, evq, &event);
        }
        true
    }

    /// Whether a connection waits at this copy: one that any other may take, or at least (`here`) one that ended and left something to read here.
    fn has_waiting(&self, copy: u32, here: bool) -> bool {
        let Some(Role::Listening(listening)) = self.dtis.get(copy).map(|dti| &dti.role) else {
            return false;
        };
        let of_use = |slot: &u32| {
            let dti = self.dtis.get(*slot);
            dti.is_some_and(|dti| dti.conn().is_some() || here && !dti.rx.ready.is_empty())
        };
        listening.waiting.iter().any(of_use)
    }

    /// Connections of a UAL that no program took and that may go on, oldest first.
    pub(crate) fn untaken_of(&self, slots: &[u32]) -> Vec<u32> {
        let order = |slot: &u32| Some((self.may_go_on(*slot)?.1, *slot));
        let mut untaken: Vec<(u64, u32)> = slots.iter().filter_map(order).collect();
        untaken.sort_unstable();
        untaken.into_iter().map(|(_, slot)| slot).collect()
    }
}

/// As one that came in just now.
fn become_waiting(dti: &mut Dti, ual: u32, evq: u16) {
    dti.ual = ual;
    dti.handle = ANONYMOUS;
    (dti.rx_evq, dti.tx_evq) = (evq, evq);
    (dti.rx.delivered, dti.rx.returned) = (0, 0);
    if dti.rx.urgent > 0 {
        dti.flags |= flag::URGENT_DUE;
    }
}
