//! Options of a DTI.

use std::time::Duration;

use sidecore_abi::command::Opt;
use sidecore_abi::{Address, Command, Status};
use sidecore_stack::SocketOption;
use sidecore_tcp::{Algorithm, Keepalive};

use super::{Context, Done, slot};
use crate::dti::{Dti, Role, flag};

/// SetOption.
pub(super) fn set(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    let Some(option) = Opt::from_raw(command.body[0]) else {
        return Status::Invalid.into();
    };
    let value = command.body[1];
    let Some(dti) = cx.tables.dtis.get_mut(slot) else {
        return Status::BadHandle.into();
    };
    match option {
        Opt::ReceiveBuffer => {
            dti.rx.window_option = value.min(1 << 30) as u32;
            cx.tables.mark_dirty(slot);
            return Done::Quiet;
        }
        Opt::Linger => {
            if value == 0 {
                dti.flags |= flag::RESET_ON_CLOSE;
            } else {
                dti.flags &= !flag::RESET_ON_CLOSE;
            }
            return Done::Quiet;
        }
        _ => {}
    }
    let conn = dti.conn();
    let Some(option) = stack_option(dti, option, value) else {
        return Status::Invalid.into();
    };
    let Some(conn) = conn else {
        return remember(dti, option);
    };
    if cx.stack.set_option(conn, option) {
        Done::Quiet
    } else {
        Status::WrongState.into()
    }
}

/// Keeps an option for the connection that is to come: this DTI's own, or those of a listener's children.
fn remember(dti: &mut Dti, option: SocketOption) -> Done {
    if !matches!(dti.role, Role::Fresh | Role::Bound(_) | Role::Listening(_)) {
        return Status::WrongState.into();
    }
    let same =
        |other: &SocketOption| std::mem::discriminant(other) == std::mem::discriminant(&option);
    // One of each kind: the last counts.
    dti.options.retain(|other| !same(other));
    dti.options.push(option);
    Done::Quiet
}

fn stack_option(dti: &mut Dti, option: Opt, value: u64) -> Option<SocketOption> {
    let micros = Duration::from_micros(value.min(u64::from(u32::MAX) * 1_000_000));
    let mut keepalive = |change: &dyn Fn(&mut Keepalive)| {
        let settings = dti.keepalive.get_or_insert_default();
        change(settings);
        SocketOption::Keepalive(Some(**settings))
    };
    Some(match option {
        Opt::NoDelay => SocketOption::NoDelay(value != 0),
        Opt::Cork => SocketOption::Cork(value != 0),
        Opt::QuickAck => SocketOption::QuickAck(value != 0),
        Opt::Keepalive if value == 0 => SocketOption::Keepalive(None),
        Opt::Keepalive => keepalive(&|_| {}),
        Opt::KeepaliveIdle => keepalive(&|k| k.idle = micros),
        Opt::KeepaliveInterval => keepalive(&|k| k.interval = micros),
        Opt::KeepaliveProbes => keepalive(&|k| k.probes = value.min(127) as u8),
        Opt::UserTimeout => SocketOption::UserTimeout((value != 0).then_some(micros)),
        Opt::Congestion => SocketOption::Congestion(match value {
            0 => Algorithm::NewReno,
            1 => Algorithm::Cubic,
            _ => return None,
        }),
        Opt::ReceiveBuffer | Opt::Linger | Opt::LocalAddress | Opt::PeerAddress => return None,
    })
}

/// GetOption.
pub(super) fn get(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    let Some(option) = Opt::from_raw(command.body[0]) else {
        return Status::Invalid.into();
    };
    let Some(dti) = cx.tables.dtis.get(slot) else {
        return Status::BadHandle.into();
    };
    let addresses = dti.conn().and_then(|conn| cx.stack.addresses(conn));
    let address = match option {
        Opt::LocalAddress => match &dti.role {
            Role::Listening(listening) => Some(listening.local),
            Role::Bound(local) => Some(*local),
            Role::Datagram {
                socket: Some(id), ..
            } => cx.stack.udp_local(*id),
            _ => addresses.map(|(local, _)| local),
        },
        Opt::PeerAddress => addresses.map(|(_, remote)| remote),
        Opt::ReceiveBuffer => return Done::Answer([u64::from(dti.rx.window_option), 0, 0, 0, 0]),
        Opt::Linger => {
            let value = if dti.has(flag::RESET_ON_CLOSE) {
                0
            } else {
                u64::MAX
            };
            return Done::Answer([value, 0, 0, 0, 0]);
        }
        _ => return Status::NotSupported.into(),
    };
    match address {
        Some(address) => {
            let [a, b, c] = Address::new(address).0;
            Done::Answer([a, b, c, 0, 0])
        }
        None => Status::WrongState.into(),
    }
}
