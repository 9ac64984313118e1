//! What waits at a listening socket, or was given to its process and not taken by the program, goes on to the copies that other processes have.

use std::collections::VecDeque;

use sidecore_abi::event::Event;
use sidecore_abi::{EventKind, Status};

use super::socket::hand_over;
use super::{Context, Done};
use crate::dti::{Dti, PostedAccept, Role};
use crate::tables::heirs::Family;

/// An accept gets what waits at its listener, or at a copy of that; else it waits.
pub(super) fn next_for(
    cx: &mut Context<'_>,
    listener: u32,
    (child, accept): (u32, &PostedAccept),
) -> Done {
    loop {
        let Some(Role::Listening(listening)) =
            cx.tables.dtis.get_mut(listener).map(|dti| &mut dti.role)
        else {
            return Status::WrongState.into();
        };
        listening.accepting = true;
        let Some(waiting) = listening.waiting.pop_front() else {
            break;
        };
        if hand_over(cx, listener, waiting, (child, accept)) {
            return Done::Later;
        }
    }
    if next_of_copies(cx, listener, (child, accept)) {
        return Done::Later;
    }
    if let Err(status) = cx.tables.begin_descriptor(listener) {
        return status.into();
    }
    let pushed = match cx.tables.dtis.get_mut(listener).map(|dti| &mut dti.role) {
        Some(Role::Listening(listening)) => {
            cx.tables.accepts.push_back(&mut listening.accepts, *accept)
        }
        _ => false,
    };
    if !pushed {
        cx.tables.end_descriptor(listener);
        return Status::NoResources.into();
    }
    Done::Later
}

/// A listener has nothing of its own for this accept: it takes the oldest that waits at another copy. False if none does.
fn next_of_copies(
    cx: &mut Context<'_>,
    listener: u32,
    (child, accept): (u32, &PostedAccept),
) -> bool {
    while let Some(waiting) = cx.tables.take_from_copies(listener) {
        if hand_over(cx, listener, waiting, (child, accept)) {
            return true;
        }
    }
    false
}

/// A connection that no program took goes on, and is closed to the UAL that had it. False, and nothing has changed, if there is nobody to take it.
pub(super) fn goes_on(cx: &mut Context<'_>, slot: u32) -> bool {
    let Some((family, order)) = cx.tables.may_go_on(slot) else {
        return false;
    };
    let Some(dti) = cx.tables.dtis.get(slot) else {
        return false;
    };
    let (ual, evq) = (dti.ual, dti.rx_evq);
    let closed = Event::new(EventKind::Closed, dti.handle, 0, Status::Ok);
    let Some(heir) = find_heir(cx, slot, family, order) else {
        return false;
    };
    cx.tables.emit(ual, evq, &closed);
    serve(cx, heir);
    true
}

/// The first copy in another UAL that has room for a connection, which waits there now.
fn find_heir(cx: &mut Context<'_>, slot: u32, family: Family, order: u64) -> Option<u32> {
    if cx.tables.stopping {
        return None;
    }
    let ual = cx.tables.dtis.get(slot)?.ual;
    if cx.tables.ual(ual)?.condemned {
        // Its memory is not to be trusted.
        return None;
    }
    let heir = cx.tables.heirs(family).into_iter().find(|heir| {
        let elsewhere = cx.tables.dtis.get(*heir).is_some_and(|dti| dti.ual != ual);
        elsewhere && cx.tables.go_on(slot, *heir, order).is_ok()
    })?;
    cx.tables.wait_in_line(slot, heir, order);
    Some(heir)
}

/// What waited at a listener that has ended goes on to its copies, oldest first. Gives those that cannot.
pub(super) fn all_go_on(
    cx: &mut Context<'_>,
    family: Option<Family>,
    waiting: VecDeque<u32>,
) -> Vec<u32> {
    let mut left = Vec::new();
    for slot in waiting {
        let live = cx.tables.dtis.get(slot).and_then(Dti::conn).is_some();
        let order = cx.tables.order_of(slot);
        match family.filter(|_| live) {
            Some(family) => match find_heir(cx, slot, family, order) {
                Some(heir) => serve(cx, heir),
                None => left.push(slot),
            },
            None => left.push(slot),
        }
    }
    left
}

/// The program that had these is gone: what it had not taken goes on.
pub(crate) fn leave_to_copies(cx: &mut Context<'_>, slots: &[u32]) {
    for slot in cx.tables.untaken_of(slots) {
        // One that nobody has room for ends as everything else of its UAL.
        goes_on(cx, slot);
    }
}

/// Gives what waits at a listener to the accepts that wait there.
fn serve(cx: &mut Context<'_>, listener: u32) {
    while let Some(waiting) = first_waiting(cx, listener) {
        let Some((child, accept)) = cx.tables.take_accept(listener) else {
            return cx.tables.tell_waiting(listener);
        };
        if let Some(Role::Listening(listening)) =
            cx.tables.dtis.get_mut(listener).map(|dti| &mut dti.role)
        {
            listening.waiting.pop_front();
        }
        hand_over(cx, listener, waiting, (child, &accept));
    }
    cx.tables.tell_copies(listener);
}

/// The oldest connection that waits at a listener. Those before it that ended and left nothing to read are forgotten.
fn first_waiting(cx: &mut Context<'_>, listener: u32) -> Option<u32> {
    loop {
        let Role::Listening(listening) = &cx.tables.dtis.get(listener)?.role else {
            return None;
        };
        let first = *listening.waiting.front()?;
        let of_use = |dti: &Dti| dti.conn().is_some() || !dti.rx.ready.is_empty();
        if cx.tables.dtis.get(first).is_some_and(of_use) {
            return Some(first);
        }
        if let Role::Listening(listening) = &mut cx.tables.dtis.get_mut(listener)?.role {
            listening.waiting.pop_front();
        }
        cx.tables.remove_dti(first);
    }
}
