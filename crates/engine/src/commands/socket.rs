//! Commands about the life of a DTI.

use std::net::{Ipv4Addr, SocketAddr};

use sidecore_abi::command::{create, flags, shutdown as direction};
use sidecore_abi::event::Event;
use sidecore_abi::{Address, Command, DtiHandle, EventKind, Status};
use sidecore_stack::{ListenerId, SocketOption, SocketOptions, StackError};

use super::heirs::{all_go_on, goes_on, next_for};
use super::{Context, Done, evq_for, holders, slot};
use crate::dti::{Dti, Listening, PostedAccept, Role, flag};

/// The most connections that one listener may keep waiting.
const BACKLOG_MAX: u64 = 1 << 16;

/// Handshakes that one listener may have in the making, however few connections may wait: beyond it the oldest gives way, and
/// its peer, whose answer may be on its way, is reset. A small accept queue must not do that to a crowd.
const HANDSHAKES_MIN: u32 = 256;

pub(crate) fn status_of(error: StackError) -> Status {
    match error {
        StackError::AddressInUse => Status::AddressInUse,
        StackError::AddressNotAvailable => Status::AddressNotAvailable,
        StackError::Unreachable => Status::Unreachable,
        StackError::MessageTooLarge => Status::MessageTooLarge,
        _ => Status::NoResources,
    }
}

fn address(address: Address) -> Result<SocketAddr, Status> {
    address.get().ok_or(Status::Invalid)
}

fn create_with(cx: &mut Context<'_>, command: &Command, role: Role, extra: u32) -> Done {
    let ual_slot = cx.ual;
    if cx.tables.stopping {
        return Status::Aborted.into();
    }
    let Some(ual) = cx.tables.ual(ual_slot) else {
        return Status::BadHandle.into();
    };
    if let Err(status) = ual.may_take(command.dti) {
        return status.into();
    }
    let rx_evq = ual.clamp_evq(command.body[0] as u16);
    let tx_evq = ual.clamp_evq((command.body[0] >> 16) as u16);
    let handle = command.dti;
    match cx.tables.create(ual_slot, true, |epoch| {
        Dti::new(ual_slot, handle, rx_evq, tx_evq, role, epoch)
    }) {
        Ok(slot) => {
            if let Some(dti) = cx.tables.dtis.get_mut(slot) {
                dti.flags |= extra;
            }
            if let Some(ual) = cx.tables.ual(ual_slot) {
                ual.name(handle, slot);
            }
            Done::Quiet
        }
        Err(status) => status.into(),
    }
}

/// CreateStream.
pub(super) fn create_stream(cx: &mut Context<'_>, command: &Command) -> Done {
    let extra = if command.body[0] & create::POSTED_ONLY != 0 {
        flag::POSTED_ONLY
    } else {
        0
    };
    create_with(cx, command, Role::Fresh, extra)
}

/// CreateDatagram.
pub(super) fn create_datagram(cx: &mut Context<'_>, command: &Command) -> Done {
    create_with(
        cx,
        command,
        Role::Datagram {
            socket: None,
            peer: None,
            shared: None,
        },
        0,
    )
}

/// Whether this UAL may use a local port.
fn may_bind(cx: &mut Context<'_>, port: u16) -> bool {
    let from = cx.tables.policy.unprivileged_ports_from;
    port == 0 || port >= from || cx.tables.ual(cx.ual).is_some_and(|ual| ual.uid == 0)
}

/// Bind.
pub(super) fn bind(cx: &mut Context<'_>, command: &Command) -> Done {
    let (slot, local) = match slot(cx, command).and_then(|s| Ok((s, address(command.address(0))?)))
    {
        Ok(found) => found,
        Err(status) => return status.into(),
    };
    let key = command.body[3];
    if !may_bind(cx, local.port()) && !holders::knows_socket(cx.tables, slot, local, key) {
        return Status::NotPermitted.into();
    }
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return Status::BadHandle.into();
    };
    let options = opening_options(dti);
    match &mut dti.role {
        Role::Fresh => {
            // The port is taken when the socket listens or connects, as the stack knows no idle ports.
            dti.role = Role::Bound(local);
            answer_address(local)
        }
        Role::Datagram {
            socket: None, peer, ..
        } => {
            let before = *peer;
            match holders::bind(cx, slot, local, &options, key, before) {
                Ok(local) => answer_address(local),
                Err(error) => status_of(error).into(),
            }
        }
        _ => Status::WrongState.into(),
    }
}

fn answer_address(local: SocketAddr) -> Done {
    let [a, b, c] = Address::new(local).0;
    Done::Answer([a, b, c, 0, 0])
}

/// Listen.
pub(super) fn listen(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return Status::BadHandle.into();
    };
    let backlog = command.body[0].clamp(1, BACKLOG_MAX) as u32;
    let held = command.body[2] & 1 != 0;
    let local = match &mut dti.role {
        Role::Bound(local) => *local,
        Role::Listening(listening) if !held => {
            // It had its port, or listened already: then only the backlog is new.
            listening.backlog = backlog;
            cx.stack.hold_listener(listening.id, false);
            return answer_address(listening.local);
        }
        _ => return Status::WrongState.into(),
    };
    if cx.tables.stopping {
        return Status::Aborted.into();
    }
    let options = opening_options(dti);
    let begun = begin_listening(
        cx,
        slot,
        local,
        &options,
        (backlog, (command.body[1], command.body[3]), held),
    );
    let (id, local) = match begun {
        Ok(begun) => begun,
        Err(status) => return status.into(),
    };
    if let Some(dti) = cx.tables.dtis.get_mut(slot) {
        dti.role = Role::Listening(Box::new(Listening {
            id,
            local,
            waiting: Default::default(),
            backlog,
            accepts: Default::default(),
            accepting: false,
            told: false,
        }));
    }
    // It may be a copy of one at which connections wait.
    cx.tables.tell_copies(slot);
    answer_address(local)
}

/// A listener at the stack, or a share in one that is there; its name, and where it listens.
fn begin_listening(
    cx: &mut Context<'_>,
    slot: u32,
    asked: SocketAddr,
    options: &SocketOptions,
    (backlog, share, held): (u32, (u64, u64), bool),
) -> Result<(ListenerId, SocketAddr), Status> {
    let shares = share.0 != 0;
    if shares && let Some((id, local)) = cx.tables.join_listener(slot, asked, share) {
        if !held {
            cx.stack.hold_listener(id, false);
        }
        return Ok((id, local));
    }
    let handshakes = backlog.max(HANDSHAKES_MIN);
    let begun = cx.stack.listen(asked, options, handshakes, slot);
    let id = begun.map_err(status_of)?;
    cx.stack.hold_listener(id, held);
    let local = cx.stack.listener_local(id).unwrap_or(asked);
    if shares {
        cx.tables.share_listener(slot, id, asked, local, share);
    }
    Ok((id, local))
}

/// Accept.
pub(super) fn accept(cx: &mut Context<'_>, command: &Command) -> Done {
    let listener = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    let child_handle = DtiHandle::from_word(command.body[0]);
    let Some(child) = cx.tables.usable_child(cx.ual, child_handle) else {
        return Status::BadHandle.into();
    };
    let evq = evq_for(cx, command, true);
    let accept = PostedAccept {
        child: child_handle,
        cookie: command.cookie,
        evq,
    };
    let done = next_for(cx, listener, (child, &accept));
    cx.tables.tell_copies(listener);
    done
}

/// Gives a waiting connection to its child; false when the connection ended while it waited and left nothing to read.
pub(super) fn hand_over(
    cx: &mut Context<'_>,
    listener: u32,
    waiting: u32,
    (child, accept): (u32, &PostedAccept),
) -> bool {
    let Some(dti) = cx.tables.dtis.get(waiting) else {
        return false;
    };
    let conn = dti.conn();
    if conn.is_none() && dti.rx.ready.is_empty() {
        cx.tables.remove_dti(waiting);
        return false;
    }
    cx.tables.adopt(child, waiting);
    cx.tables.remove_dti(waiting);
    let shut = |dti: &Dti| dti.has(flag::READ_SHUT);
    if cx.tables.dtis.get(child).is_some_and(shut) {
        // The child was shut for reading before it was connected: what came meanwhile is for nobody.
        cx.tables.shut_read(child);
    }
    let remote = conn
        .and_then(|conn| cx.stack.addresses(conn))
        .map(|(_, remote)| remote);
    match conn {
        Some(conn) => {
            cx.stack.set_user(conn, child);
            cx.tables.begin_untaken(child, listener);
            cx.tables.attach(
                child,
                conn,
                accept,
                remote.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            );
        }
        None => {
            // Reset after data had come: the data is delivered, then the end.
            let Some(dti) = cx.tables.dtis.get_mut(child) else {
                return true;
            };
            dti.role = Role::Ended;
            let event = Event::new(EventKind::Accepted, dti.handle, accept.cookie, Status::Ok);
            let ual = dti.ual;
            cx.tables.emit(ual, accept.evq, &event);
        }
    }
    cx.tables.deliver(child);
    true
}

/// What must be known when a connection opens, of the options that were set before.
pub(super) fn opening_options(dti: &Dti) -> SocketOptions {
    let mut options = SocketOptions::default();
    for option in &dti.options {
        options.apply(*option);
    }
    options.receive_window = dti.rx.clamped(options.receive_window);
    options
}

/// Connect.
pub(super) fn connect(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return Status::BadHandle.into();
    };
    if let Role::Datagram { socket, .. } = dti.role {
        return holders::connect(cx, (slot, socket), command.address(0));
    }
    let remote = match address(command.address(0)) {
        Ok(remote) => remote,
        Err(status) => return status.into(),
    };
    let local = match &mut dti.role {
        Role::Fresh => None,
        Role::Bound(local) => Some(*local),
        _ => return Status::WrongState.into(),
    };
    if remote.port() == 0 {
        return Status::Invalid.into();
    }
    let mut options = opening_options(dti);
    options.fast_open = command.flags & flags::FAST_OPEN != 0;
    let opened = if cx.tables.stopping {
        Err(Status::Aborted)
    } else {
        let opened = cx.stack.connect(cx.now, local, remote, &options, slot);
        opened.map_err(status_of)
    };
    match opened {
        Ok(conn) => {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            dti.role = Role::Connecting {
                conn,
                cookie: command.cookie,
                local: cx.stack.addresses(conn).map_or(any, |(local, _)| local),
            };
            cx.tables.mark_dirty(slot);
            Done::Later
        }
        Err(status) => {
            let event = Event::new(EventKind::Connected, command.dti, command.cookie, status);
            let evq = evq_for(cx, command, false);
            cx.tables.emit(cx.ual, evq, &event);
            Done::Later
        }
    }
}

/// Shutdown.
pub(super) fn shutdown(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    let evq = evq_for(cx, command, false);
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return Status::BadHandle.into();
    };
    if !matches!(
        dti.role,
        Role::Connected(_) | Role::Fresh | Role::Connecting { .. }
    ) {
        return Status::WrongState.into();
    }
    let how = command.body[0];
    if how == 0 || how & !(direction::READ | direction::WRITE) != 0 {
        return Status::Invalid.into();
    }
    let mut done = Done::Quiet;
    if how & direction::WRITE != 0 {
        if command.flags & flags::NOTIFY != 0 {
            if dti.end_cookie.is_some() {
                return Status::WrongState.into();
            }
            dti.end_cookie = Some((command.cookie, evq));
            done = Done::Later;
        }
        dti.flags |= flag::SHUTDOWN;
        cx.tables.mark_dirty(slot);
    }
    if how & direction::READ != 0 {
        cx.tables.shut_read(slot);
    }
    done
}

/// Close.
pub(super) fn close(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    if command.body[1] & 1 != 0 {
        if goes_on(cx, slot) {
            return Done::Later;
        }
        // As with every system, when nobody is left to take it.
        if let Some(dti) = cx.tables.dtis.get_mut(slot) {
            dti.flags |= flag::RESET_ON_CLOSE;
        }
    }
    // RFC 9293 SHLD-3: what lies in the event queue, or was taken from there and not read by the program, is lost to it as well.
    if let Some(read) = command.body[0].checked_sub(1)
        && let Some(dti) = cx.tables.dtis.get_mut(slot)
        && !dti.has(flag::READ_SHUT)
        && dti.rx.in_order > read
    {
        dti.flags |= flag::RESET_ON_CLOSE;
    }
    close_slot(cx, slot);
    Done::Later
}

/// Closes a DTI as its application's Close does.
pub(crate) fn close_slot(cx: &mut Context<'_>, slot: u32) {
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return;
    };
    if dti.has(flag::CLOSE) {
        return;
    }
    dti.flags |= flag::CLOSE | flag::SHUTDOWN;
    // Its descriptor may stand for another from now on.
    dti.number = 0;
    // RFC 1122 4.2.2.13: data that the application will never see is told to the peer by a reset.
    if !dti.rx.ready.is_empty() {
        dti.flags |= flag::RESET_ON_CLOSE;
    }
    let over = dti.has(flag::OVER);
    if let (Some(ms), Some(conn)) = (dti.linger_ms, dti.conn()) {
        let time = std::time::Duration::from_millis(ms.get().into());
        cx.stack
            .set_option(conn, SocketOption::UserTimeout(Some(time)));
    }
    match &dti.role {
        Role::Connected(_) | Role::Connecting { .. } => {
            cx.tables.shut_read(slot);
            cx.tables.mark_dirty(slot);
        }
        Role::Listening(_) => close_listener(cx, slot),
        Role::Ended if !over => cx.tables.remove_dti(slot),
        Role::Ended => {
            cx.tables.shut_read(slot);
            cx.tables.tell_over(slot);
        }
        Role::Datagram { .. } => holders::close(cx, slot),
        Role::Fresh | Role::Bound(_) => cx.tables.tell_over(slot),
    }
}

fn close_listener(cx: &mut Context<'_>, slot: u32) {
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return;
    };
    let ual = dti.ual;
    let Role::Listening(mut listening) = std::mem::replace(&mut dti.role, Role::Ended) else {
        return;
    };
    let family = cx.tables.family_at(slot, listening.id);
    match cx.tables.leave_listener(slot, listening.id) {
        Some(other) => cx.stack.set_listener_user(listening.id, other),
        None => {
            cx.stack.close_listener(listening.id);
        }
    }
    while let Some(accept) = cx.tables.accepts.pop_front(&mut listening.accepts) {
        let event = Event::new(
            EventKind::Accepted,
            accept.child,
            accept.cookie,
            Status::Cancelled,
        );
        cx.tables.end_descriptor(slot);
        cx.tables.emit(ual, accept.evq, &event);
    }
    for waiting in all_go_on(cx, family, listening.waiting) {
        if let Some(conn) = cx.tables.dtis.get(waiting).and_then(Dti::conn) {
            cx.stack.abort(conn);
        }
        cx.tables.remove_dti(waiting);
    }
    cx.tables.tell_over(slot);
}

/// Abort.
pub(super) fn abort(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    abort_slot(cx, slot);
    Done::Later
}

/// Resets a connection and forgets its DTI.
pub(crate) fn abort_slot(cx: &mut Context<'_>, slot: u32) {
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return;
    };
    let Some(conn) = dti.conn() else {
        return close_slot(cx, slot);
    };
    dti.flags |= flag::CLOSE | flag::SHUTDOWN;
    // Tell the stack first of nothing but the abort: what is queued does not go out.
    cx.stack.abort(conn);
    cx.tables.shut_read(slot);
    cx.tables
        .connection_over(slot, sidecore_tcp::CloseReason::Aborted);
}

/// Cancel: posted receives and accepts with this cookie.
pub(super) fn cancel(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    let cookie = command.body[0];
    let tables = &mut *cx.tables;
    let Some(dti) = tables.dtis.get_mut(slot) else {
        return Status::BadHandle.into();
    };
    let (ual, handle) = (dti.ual, dti.handle);
    let mut receives = Vec::new();
    tables.posted.extract(
        &mut dti.rx.posted,
        |p| p.cookie == cookie,
        |p| receives.push(p),
    );
    let mut accepts = Vec::new();
    if let Role::Listening(listening) = &mut dti.role {
        tables.accepts.extract(
            &mut listening.accepts,
            |a| a.cookie == cookie,
            |a| accepts.push(a),
        );
    }
    for receive in receives {
        let mut event = Event::new(EventKind::ReceivedInto, handle, cookie, Status::Cancelled);
        event.body[0] = u64::from(receive.filled);
        event.body[2] = receive.start;
        tables.emit(ual, receive.evq, &event);
        tables.end_descriptor(slot);
        tables.end_region_use(ual, receive.region);
    }
    for accept in accepts {
        tables.emit(
            ual,
            accept.evq,
            &Event::new(EventKind::Accepted, accept.child, cookie, Status::Cancelled),
        );
        tables.end_descriptor(slot);
    }
    let connecting = tables.dtis.get(slot).and_then(|dti| match dti.role {
        Role::Connecting {
            conn, cookie: own, ..
        } if own == cookie => Some(conn),
        _ => None,
    });
    if let Some(conn) = connecting {
        let tx_evq = tables.dtis.get_mut(slot).map_or(0, |dti| {
            dti.role = Role::Connected(conn);
            dti.tx_evq
        });
        let event = Event::new(EventKind::Connected, handle, cookie, Status::Cancelled);
        tables.emit(ual, tx_evq, &event);
        cx.stack.abort(conn);
        cx.tables
            .connection_over(slot, sidecore_tcp::CloseReason::Aborted);
    }
    Done::Quiet
}
