//! Commands that give a connection from one UAL to another.

use std::net::{Ipv4Addr, SocketAddr};

use sidecore_abi::event::Event;
use sidecore_abi::{Address, Command, EventKind, Status};

use super::{Context, Done, slot};
use crate::dti::flag;

/// Detach.
pub(super) fn detach(cx: &mut Context<'_>, command: &Command) -> Done {
    match give_away(cx, command) {
        Ok(()) => Done::Later,
        Err(status) => status.into(),
    }
}

fn give_away(cx: &mut Context<'_>, command: &Command) -> Result<(), Status> {
    let slot = slot(cx, command)?;
    let [number, receiver, ..] = command.body;
    if number == 0 {
        return Err(Status::Invalid);
    }
    let custodian = cx.tables.custodian.ok_or(Status::NotSupported)?;
    let to = match receiver {
        0 => custodian,
        _ if cx.ual != custodian => return Err(Status::NotPermitted),
        id => cx.tables.slot_of_ual(id).ok_or(Status::BadHandle)?,
    };
    if to == cx.ual {
        return Err(Status::Invalid);
    }
    let from = cx.tables.ual(cx.ual).map_or(0, |ual| ual.id);
    let dti = cx.tables.dtis.get(slot).ok_or(Status::BadHandle)?;
    let (evq, delivered, sent) = (dti.rx_evq, dti.rx.delivered, dti.tx.end);
    cx.tables.move_dti(slot, to, (from, number))?;
    let mut event = Event::new(EventKind::Detached, command.dti, command.cookie, Status::Ok);
    [event.body[0], event.body[1]] = [delivered, sent];
    let ual = cx.ual;
    cx.tables.emit(ual, evq, &event);
    Ok(())
}

/// Attach.
pub(super) fn attach(cx: &mut Context<'_>, command: &Command) -> Done {
    match take(cx, command) {
        Ok(()) => Done::Later,
        Err(status) => status.into(),
    }
}

fn take(cx: &mut Context<'_>, command: &Command) -> Result<(), Status> {
    let [queues, number, from, ..] = command.body;
    let ual = cx.tables.ual(cx.ual).ok_or(Status::BadHandle)?;
    ual.may_take(command.dti)?;
    if ual.dtis - ual.waiting >= ual.dti_limit {
        return Err(Status::NoResources);
    }
    let evqs = (
        ual.clamp_evq(queues as u16),
        ual.clamp_evq((queues >> 16) as u16),
    );
    let slot = cx
        .tables
        .take_arrived(cx.ual, (from, number))
        .ok_or(Status::BadHandle)?;
    cx.tables.name_arrived(slot, command.dti, evqs);
    let dti = cx.tables.dtis.get(slot).ok_or(Status::BadHandle)?;
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let remote = dti.conn().and_then(|conn| cx.stack.addresses(conn));
    let remote = remote.map_or(any, |(_, remote)| remote);
    let mut event = Event::new(EventKind::Attached, command.dti, command.cookie, Status::Ok)
        .with_address(0, Address::new(remote));
    event.body[3] = dti.rx.delivered;
    event.body[4] = dti.has(flag::SHUTDOWN).into();
    let ual = cx.ual;
    cx.tables.emit(ual, evqs.1, &event);
    cx.tables.mark_dirty(slot);
    cx.tables.deliver(slot);
    Ok(())
}
