//! Sends on datagram DTIs.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use sidecore_abi::command::flags;
use sidecore_abi::{Address, Command, Status};

use super::{Context, Done, data, evq_for};
use crate::dti::Role;
use crate::dti::transmit::Source;
use crate::tables::datagram::{Outgoing, TxDatagram};
use crate::tables::frame::POOL_REGION;

/// Payload of the largest datagram over IPv4.
const DATAGRAM_MAX: u32 = 65507;

/// Send. The destination is in body 2..5, or is the connected peer; inline data has no room for one. A socket that was not bound is
/// bound to a free port.
pub(super) fn send(cx: &mut Context<'_>, command: &Command, slot: u32) -> Done {
    match queue(cx, command, slot) {
        Ok(done) => done,
        Err(status) => status.into(),
    }
}

fn queue(cx: &mut Context<'_>, command: &Command, slot: u32) -> Result<Done, Status> {
    if command.flags & (flags::LIST | flags::FIN | flags::URGENT) != 0 {
        return Err(Status::Invalid);
    }
    let to = destination(cx, command, slot)?;
    bind_if_needed(cx, slot)?;
    cx.tables.begin_descriptor(slot)?;
    let queued = place(cx, command).and_then(|(source, len, copied)| {
        let notify = command.flags & flags::NOTIFY != 0 && !copied;
        let datagram = TxDatagram {
            source,
            len,
            evq: evq_for(cx, command, false),
            notify,
            to,
            cookie: command.cookie,
        };
        let dti = cx.tables.dtis.get_mut(slot).ok_or(Status::BadHandle)?;
        let datagram = Outgoing::Datagram(datagram);
        if cx.tables.datagrams.push_back(&mut dti.datagrams, datagram) {
            return Ok(if copied { Done::Quiet } else { Done::Later });
        }
        match source {
            Source::Copy(place) => cx.tables.copies.give(place),
            Source::Moved(place) => cx.tables.moved.give(place),
            Source::Region(POOL_REGION, _) => {}
            Source::Region(id, _) => cx.tables.end_region_use(cx.ual, id),
        }
        Err(Status::NoResources)
    });
    match queued {
        Ok(_) => {
            cx.tables.has_sent(slot);
            if cx.tables.datagram_senders.last() != Some(&slot) {
                cx.tables.datagram_senders.push(slot);
            }
        }
        Err(_) => cx.tables.end_descriptor(slot),
    }
    queued
}

fn destination(cx: &Context<'_>, command: &Command, slot: u32) -> Result<SocketAddr, Status> {
    let address = if command.flags & flags::INLINE != 0 {
        Address::NONE
    } else {
        command.address(2)
    };
    if address != Address::NONE {
        return address.get().ok_or(Status::Invalid);
    }
    match cx.tables.dtis.get(slot).map(|dti| &dti.role) {
        Some(Role::Datagram {
            peer: Some(peer), ..
        }) => Ok(*peer),
        _ => Err(Status::WrongState),
    }
}

fn bind_if_needed(cx: &mut Context<'_>, slot: u32) -> Result<(), Status> {
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return Err(Status::WrongState);
    };
    let unbound = matches!(dti.role, Role::Datagram { socket: None, .. });
    let options = unbound.then(|| super::socket::opening_options(dti));
    let Role::Datagram { socket, peer, .. } = &mut dti.role else {
        return Err(Status::WrongState);
    };
    if let Some(options) = options {
        // Of both families, where there are both.
        let any = if cx.stack.config().ipv6.enabled {
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
        } else {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
        };
        let id = cx
            .stack
            .udp_bind_with(any, &options, slot)
            .map_err(super::socket::status_of)?;
        cx.stack.udp_set_peer(id, *peer);
        *socket = Some(id);
    }
    Ok(())
}

/// Where the datagram's bytes are: in the region, or copied now.
fn place(cx: &mut Context<'_>, command: &Command) -> Result<(Source, u32, bool), Status> {
    if command.flags & (flags::INLINE | flags::COPY) != 0 {
        let mut bytes = [0u8; sidecore_abi::command::COPY_MAX as usize];
        let len = data::copy_bytes(cx, command, &mut bytes)?;
        let (place, to) = cx.tables.copies.take().ok_or(Status::NoResources)?;
        to[..len].copy_from_slice(&bytes[..len]);
        return Ok((Source::Copy(place), len as u32, true));
    }
    let extent = command.extent();
    if extent.len > DATAGRAM_MAX {
        return Err(Status::MessageTooLarge);
    }
    data::begin_use(cx, extent)?;
    Ok((
        Source::Region(extent.region.0, extent.offset),
        extent.len,
        false,
    ))
}
