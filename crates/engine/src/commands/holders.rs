//! Binding, connecting and closing UDP sockets that several processes may hold.

use std::net::SocketAddr;

use sidecore_abi::{Address, Status};
use sidecore_stack::{SocketOptions, StackError, UdpId, User};

use super::{Context, Done};
use crate::dti::Role;
use crate::tables::Tables;

/// Whether this is the key of what is bound already, so that no port is taken by it: of a listener there, or of a UDP socket to be joined. A key of
/// the latter kind, which everybody can make, says nothing about where a stream may be.
pub(super) fn knows_socket(tables: &Tables, slot: u32, local: SocketAddr, key: u64) -> bool {
    let role = tables.dtis.get(slot).map(|dti| &dti.role);
    let joins = matches!(role, Some(Role::Datagram { .. })) && tables.sockets.knows(key);
    joins || tables.is_secret_of_listener(local, key)
}

/// Binds a datagram DTI, or makes it one more holder of the socket with this key (0: it is its own alone). Where that is bound.
pub(super) fn bind(
    cx: &mut Context<'_>,
    slot: u32,
    local: SocketAddr,
    options: &SocketOptions,
    key: u64,
    connected: Option<SocketAddr>,
) -> Result<SocketAddr, StackError> {
    let joined = match key {
        0 => None,
        key => cx.tables.sockets.join(slot, key)?,
    };
    let (number, id, peer) = match joined {
        Some((number, id, peer)) => (Some(number), id, peer),
        None if key == 0 => (None, bind_as(cx, slot, local, options)?, None),
        None => {
            let owner = cx.tables.ual(cx.ual).map_or(0, |ual| ual.id);
            let (user, number) = cx.tables.sockets.take_number();
            let bound = bind_as(cx, user, local, options);
            match bound {
                Ok(id) => cx.tables.sockets.insert(number, slot, id, (owner, key)),
                Err(_) => cx.tables.sockets.give_number(number),
            }
            (Some(number), bound?, None)
        }
    };
    // Who has connected before keeps its peer.
    let peer = connected.or(peer);
    cx.stack.udp_set_peer(id, peer);
    if let Some(dti) = cx.tables.dtis.get_mut(slot) {
        dti.role = Role::Datagram {
            socket: Some(id),
            peer,
            shared: number,
        };
    }
    if let Some(remote) = connected {
        cx.tables.connect_socket(slot, Some(remote));
    }
    Ok(cx.stack.udp_local(id).unwrap_or(local))
}

/// A datagram DTI has this peer from now on, or none, and so have the others that hold the same socket.
pub(super) fn connect(
    cx: &mut Context<'_>,
    (slot, socket): (u32, Option<UdpId>),
    asked: Address,
) -> Done {
    let peer = asked.get();
    if peer.is_none() && asked != Address::NONE {
        return Status::Invalid.into();
    }
    if let Some(id) = socket {
        cx.stack.udp_set_peer(id, peer);
    }
    cx.tables.connect_socket(slot, peer);
    Done::Answer([0; 5])
}

/// Binds at the stack.
fn bind_as(
    cx: &mut Context<'_>,
    user: User,
    local: SocketAddr,
    options: &SocketOptions,
) -> Result<UdpId, StackError> {
    let bound = cx.stack.udp_bind_with(local, options, user);
    // Whichever port it is, there is none left, or no place.
    let any = local.port() == 0 || bound == Err(StackError::Full);
    match bound {
        Err(StackError::AddressInUse | StackError::Full)
            if end_orphans(cx, (!any).then_some(local.port())) =>
        {
            cx.stack.udp_bind_with(local, options, user)
        }
        bound => bound,
    }
}

/// Ends sockets at this port, or all, that nobody holds: they stay for those who have them, not against others. Whether there were any.
fn end_orphans(cx: &mut Context<'_>, port: Option<u16>) -> bool {
    let (sockets, stack) = (&mut cx.tables.sockets, &mut *cx.stack);
    let at_port = |id| {
        let local = stack.udp_local(id).map(|local| local.port());
        port.is_none() || local == port
    };
    let ended = sockets.take_orphans(|id, _| at_port(id));
    ended.iter().for_each(|id| {
        stack.udp_close(*id);
    });
    !ended.is_empty()
}

/// Closes a datagram DTI. Queued datagrams still go out, also of other DTIs by the same socket; the last one ends it, if nobody holds it.
pub(super) fn close(cx: &mut Context<'_>, slot: u32) {
    let ends = cx.tables.leave_socket(slot, cx.now);
    let Some(dti) = cx.tables.dtis.get(slot) else {
        return;
    };
    let waits = !dti.datagrams.is_empty();
    let socket = match dti.role {
        Role::Datagram { socket, .. } => socket,
        _ => None,
    };
    if waits {
        return cx.tables.datagram_closing.push(slot);
    }
    if let Some(id) = socket.filter(|_| ends) {
        cx.stack.udp_close(id);
    }
    cx.tables.tell_over(slot);
}
