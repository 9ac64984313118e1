//! Commands that move bytes.

use sidecore_abi::command::{COPY_MAX, EVQ_OF_DTI, flags};
use sidecore_abi::handle::EXTENT_BYTES;
use sidecore_abi::{Command, Extent, RegionId, Status};

use super::{Context, Done, evq_for, slot};
use crate::dti::receive::PostedReceive;
use crate::dti::transmit::Source;
use crate::dti::{Dti, Role, flag};
use crate::tables::Tables;
use crate::tables::copies::CopyArena;
use crate::tables::frame::POOL_REGION;
use crate::ual::Ual;

/// Extents in one list.
const LIST_MAX: u32 = sidecore_abi::control::limits::LIST;

/// The usual send: one extent, on a connection that is neither closing nor at a limit. It takes one look at each table. False: it is not
/// that, and nothing was done.
#[inline]
pub(super) fn send_usual(cx: &mut Context<'_>, command: &Command) -> bool {
    const USUAL: u8 = flags::NOTIFY | flags::COPY;
    let Tables {
        uals,
        dtis,
        tx,
        copies,
        dirty,
        policy,
        ..
    } = &mut *cx.tables;
    let Some(Some(ual)) = uals.get_mut(cx.ual as usize) else {
        return false;
    };
    let Some(slot) = ual.slot_of(command.dti.index) else {
        return false;
    };
    let Some(dti) = dtis.get_mut(slot) else {
        return false;
    };
    let extent = command.extent();
    let usual = command.flags & !USUAL == 0
        && dti.handle == command.dti
        && matches!(dti.role, Role::Connected(_))
        && dti.flags & (flag::SHUTDOWN | flag::CLOSE) == 0
        && extent.len > 0
        && dti.descriptors < policy.descriptors_per_dti
        && ual.descriptors < policy.descriptors
        && tx.has_room(1);
    if !usual {
        return false;
    }
    let Some((source, notify)) = usual_source(ual, copies, dti.tx_evq, command) else {
        return false;
    };
    // There is room, as was asked above.
    dti.tx.push(tx, extent.len, source, notify);
    dti.descriptors += 1;
    ual.descriptors += 1;
    dti.flags &= !flag::MORE;
    if !dti.has(flag::DIRTY) {
        dti.flags |= flag::DIRTY;
        dirty.push(slot);
    }
    true
}

/// Where the bytes of a usual send are, from now on, and who is told that they were sent. `None`, and nothing done, when there is anything
/// to be refused.
#[inline]
fn usual_source(
    ual: &mut Ual,
    copies: &mut CopyArena,
    evq: u16,
    command: &Command,
) -> Option<(Source, Option<(u64, u16)>)> {
    let extent = command.extent();
    let notify = command.flags & flags::NOTIFY != 0;
    if command.flags & flags::COPY != 0 {
        if notify || extent.len > COPY_MAX {
            return None;
        }
        let from = ual.bytes(extent)?;
        let (place, to) = copies.take()?;
        from.copy_to(&mut to[..extent.len as usize]);
        return Some((Source::Copy(place), None));
    }
    if !ual.begin_use(extent) {
        return None;
    }
    let evq = if command.evq == EVQ_OF_DTI {
        evq
    } else {
        ual.clamp_evq(command.evq)
    };
    let source = Source::Region(extent.region.0, extent.offset);
    Some((source, notify.then_some((command.cookie, evq))))
}

/// Send.
pub(super) fn send(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return Status::BadHandle.into();
    };
    match dti.role {
        Role::Connected(_) | Role::Connecting { .. } | Role::Fresh => {}
        Role::Datagram { .. } => return super::datagram::send(cx, command, slot),
        Role::Ended => return dead(dti),
        _ => return Status::WrongState.into(),
    }
    if dti.flags & (flag::SHUTDOWN | flag::CLOSE) != 0 {
        return Status::WrongState.into();
    }
    dti.flags = if command.flags & flags::MORE != 0 {
        dti.flags | flag::MORE
    } else {
        dti.flags & !flag::MORE
    };
    let done = if command.flags & flags::LIST != 0 {
        send_list(cx, command, slot)
    } else {
        send_one(cx, command, slot)
    };
    if let Done::Refused(_) = done {
        return done;
    }
    if let Some(dti) = cx.tables.dtis.get_mut(slot) {
        if command.flags & flags::URGENT != 0 {
            dti.flags |= flag::URGENT_SENT;
            dti.tx.urgent = dti.tx.end;
        }
        if command.flags & flags::FIN != 0 {
            dti.flags |= flag::SHUTDOWN;
        }
    }
    cx.tables.mark_dirty(slot);
    done
}

/// A connection that is over answers sends as its end said.
fn dead(dti: &Dti) -> Done {
    Done::Refused(if dti.end_status == Status::Ok {
        Status::WrongState
    } else {
        dti.end_status
    })
}

/// Whether a completion was asked for, and where it goes.
fn notification(cx: &mut Context<'_>, command: &Command) -> Option<(u64, u16)> {
    (command.flags & flags::NOTIFY != 0).then(|| (command.cookie, evq_for(cx, command, false)))
}

fn send_one(cx: &mut Context<'_>, command: &Command, slot: u32) -> Done {
    if command.flags & (flags::INLINE | flags::COPY) != 0 {
        return send_copied(cx, command, slot);
    }
    let notify = notification(cx, command);
    match queue_extent(cx, slot, command.extent(), notify) {
        Ok(()) => Done::Later,
        Err(status) => status.into(),
    }
}

/// Queues one extent for sending.
fn queue_extent(
    cx: &mut Context<'_>,
    slot: u32,
    extent: Extent,
    notify: Option<(u64, u16)>,
) -> Result<(), Status> {
    cx.tables.begin_descriptor(slot)?;
    let queued = begin_use(cx, extent).and_then(|()| {
        let dti = cx.tables.dtis.get_mut(slot).ok_or(Status::BadHandle)?;
        let source = Source::Region(extent.region.0, extent.offset);
        if dti.tx.push(&mut cx.tables.tx, extent.len, source, notify) {
            if extent.len == 0 {
                // No acknowledgement may ever come for nothing.
                cx.tables.reap(slot);
            }
            return Ok(());
        }
        if extent.region.0 != POOL_REGION {
            cx.tables.end_region_use(cx.ual, extent.region.0);
        }
        Err(Status::NoResources)
    });
    if queued.is_err() {
        cx.tables.end_descriptor(slot);
    }
    queued
}

/// Checks an extent and counts its use.
pub(super) fn begin_use(cx: &mut Context<'_>, extent: Extent) -> Result<(), Status> {
    let ual = cx.tables.ual(cx.ual).ok_or(Status::BadHandle)?;
    if ual.begin_use(extent) {
        Ok(())
    } else {
        Err(Status::BadExtent)
    }
}

/// Small data that the engine copies now: completes at once.
fn send_copied(cx: &mut Context<'_>, command: &Command, slot: u32) -> Done {
    if let Err(status) = cx.tables.begin_descriptor(slot) {
        return status.into();
    }
    let refused = |cx: &mut Context<'_>, status: Status| {
        cx.tables.end_descriptor(slot);
        Done::Refused(status)
    };
    let mut bytes = [0u8; COPY_MAX as usize];
    let len = match copy_bytes(cx, command, &mut bytes) {
        Ok(len) => len,
        Err(status) => return refused(cx, status),
    };
    let Some((place, to)) = cx.tables.copies.take() else {
        return refused(cx, Status::NoResources);
    };
    to[..len].copy_from_slice(&bytes[..len]);
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return refused(cx, Status::BadHandle);
    };
    if !dti
        .tx
        .push(&mut cx.tables.tx, len as u32, Source::Copy(place), None)
    {
        cx.tables.copies.give(place);
        return refused(cx, Status::NoResources);
    }
    Done::Quiet
}

/// Reads the bytes of an inline or copied send.
pub(super) fn copy_bytes(
    cx: &Context<'_>,
    command: &Command,
    bytes: &mut [u8; COPY_MAX as usize],
) -> Result<usize, Status> {
    if command.flags & flags::INLINE != 0 {
        let (data, len) = command.inline().ok_or(Status::Invalid)?;
        bytes[..len].copy_from_slice(&data[..len]);
        return Ok(len);
    }
    let extent = command.extent();
    if extent.len > COPY_MAX {
        return Err(Status::MessageTooLarge);
    }
    let from = cx
        .tables
        .source(
            cx.ual,
            Source::Region(extent.region.0, extent.offset),
            0,
            extent.len,
        )
        .ok_or(Status::BadExtent)?;
    from.copy_to(&mut bytes[..extent.len as usize]);
    Ok(extent.len as usize)
}

/// A vectored send: the extent names a list of extents.
fn send_list(cx: &mut Context<'_>, command: &Command, slot: u32) -> Done {
    let mut extents = std::mem::take(&mut cx.tables.extents);
    let done = send_extents(cx, command, slot, &mut extents);
    extents.clear();
    cx.tables.extents = extents;
    done
}

/// Reads the list that an extent names, once, into `extents`.
fn read_list(cx: &mut Context<'_>, list: Extent, extents: &mut Vec<Extent>) -> Result<(), Status> {
    let count = list.len / EXTENT_BYTES as u32;
    if list.len == 0 || !list.len.is_multiple_of(EXTENT_BYTES as u32) || count > LIST_MAX {
        return Err(Status::Invalid);
    }
    for i in 0..count {
        let mut bytes = [0u8; EXTENT_BYTES];
        let at = Source::Region(list.region.0, list.offset);
        cx.tables
            .source(cx.ual, at, i * EXTENT_BYTES as u32, EXTENT_BYTES as u32)
            .ok_or(Status::BadExtent)?
            .copy_to(&mut bytes);
        let (low, high) = bytes.split_at(8);
        let word = |half: &[u8]| {
            half.iter()
                .rev()
                .fold(0u64, |word, byte| word << 8 | u64::from(*byte))
        };
        extents.push(Extent::from_words([word(low), word(high)]));
    }
    Ok(())
}

/// Queues what the command's list names, read into `extents`: all or nothing.
fn send_extents(
    cx: &mut Context<'_>,
    command: &Command,
    slot: u32,
    extents: &mut Vec<Extent>,
) -> Done {
    if let Err(status) = read_list(cx, command.extent(), extents) {
        return status.into();
    }
    let count = extents.len() as u32;
    // All or nothing: a send is never partial.
    let Some(ual) = cx.tables.ual(cx.ual) else {
        return Status::BadHandle.into();
    };
    let fine = |extent: &Extent| {
        if extent.region.0 == POOL_REGION {
            ual.chunks.slice(extent.offset, extent.len).is_some()
        } else {
            ual.regions.may_use(*extent)
        }
    };
    if !extents.iter().all(fine) {
        return Status::BadExtent.into();
    }
    let of_ual = ual.descriptors;
    let (per_dti, per_ual) = (
        cx.tables.policy.descriptors_per_dti,
        cx.tables.policy.descriptors,
    );
    let of_dti = cx.tables.dtis.get(slot).map_or(0, |dti| dti.descriptors);
    if of_dti.saturating_add(count) > per_dti {
        return Status::QueueFull.into();
    }
    if of_ual.saturating_add(count) > per_ual || !cx.tables.tx.has_room(count) {
        return Status::NoResources.into();
    }
    let notify = notification(cx, command);
    for (i, extent) in extents.iter().enumerate() {
        let last = i + 1 == extents.len();
        if let Err(status) = queue_extent(cx, slot, *extent, if last { notify } else { None }) {
            return status.into();
        }
    }
    Done::Later
}

/// Receive: post a buffer.
pub(super) fn receive(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    match post_buffer(cx, command, slot) {
        Ok(()) => {
            // Data or the end may be waiting.
            if let Some(dti) = cx.tables.dtis.get_mut(slot)
                && dti.has(flag::END)
                && dti.rx.ready.is_empty()
            {
                dti.flags &= !flag::END_TOLD;
            }
            cx.tables.deliver(slot);
            Done::Later
        }
        Err(status) => status.into(),
    }
}

/// Checks a posted buffer and the state of its DTI, and queues it.
fn post_buffer(cx: &mut Context<'_>, command: &Command, slot: u32) -> Result<(), Status> {
    let extent = command.extent();
    let writable = cx.tables.ual(cx.ual).is_some_and(|ual| {
        ual.regions
            .slice_mut(extent.region.0, extent.offset, extent.len)
            .is_some()
    });
    if !writable || extent.len == 0 {
        return Err(Status::BadExtent);
    }
    let Some(dti) = cx.tables.dtis.get(slot) else {
        return Err(Status::BadHandle);
    };
    match dti.role {
        Role::Connected(_) | Role::Connecting { .. } | Role::Fresh => {}
        Role::Ended if !dti.rx.ready.is_empty() => {}
        Role::Ended if dti.end_status == Status::Ok => return Err(Status::WrongState),
        Role::Ended => return Err(dti.end_status),
        _ => return Err(Status::WrongState),
    }
    if dti.has(flag::READ_SHUT) {
        return Err(Status::WrongState);
    }
    let evq = evq_for(cx, command, true);
    cx.tables.begin_descriptor(slot)?;
    if let Err(status) = begin_use(cx, extent) {
        cx.tables.end_descriptor(slot);
        return Err(status);
    }
    let buffer = PostedReceive {
        region: extent.region.0,
        wait_all: command.flags & flags::WAIT_ALL != 0,
        evq,
        offset: extent.offset,
        len: extent.len,
        filled: 0,
        start: 0,
        cookie: command.cookie,
    };
    let pushed = cx
        .tables
        .dtis
        .get_mut(slot)
        .is_some_and(|dti| cx.tables.posted.push_back(&mut dti.rx.posted, buffer));
    if !pushed {
        cx.tables.end_descriptor(slot);
        cx.tables.end_region_use(cx.ual, extent.region.0);
        return Err(Status::NoResources);
    }
    Ok(())
}

/// ReturnChunks.
#[inline]
pub(super) fn return_chunks(cx: &mut Context<'_>, command: &Command) -> Done {
    for chunk in command.returned_chunks() {
        cx.tables.take_back_chunk(cx.ual, chunk);
    }
    Done::Quiet
}

/// Deregister.
pub(super) fn deregister(cx: &mut Context<'_>, command: &Command) -> Done {
    let evq = evq_for(cx, command, false);
    let Some(ual) = cx.tables.ual(cx.ual) else {
        return Status::BadHandle.into();
    };
    let id = ual.id;
    match ual
        .regions
        .leave(command.body[0] as u32, command.cookie, evq)
    {
        Ok(Some(region)) => {
            cx.tables.regions_gone.push((id, RegionId(region.0)));
            Done::Answer([0; 5])
        }
        Ok(None) => Done::Later,
        Err(()) => Status::BadExtent.into(),
    }
}
