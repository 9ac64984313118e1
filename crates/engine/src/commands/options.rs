//! Options of a DTI.

use std::num::NonZeroU32;
use std::time::Duration;

use sidecore_abi::command::Opt;
use sidecore_abi::{Address, Command, Status};
use sidecore_stack::SocketOption;
use sidecore_tcp::{Algorithm, Config, Connection, Ecn, Keepalive};

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
            set_linger(dti, value);
            return Done::Quiet;
        }
        _ => {}
    }
    let conn = dti.conn();
    let on = match conn.and_then(|conn| cx.stack.connection(conn)) {
        Some(tcp) => tcp.keepalive().is_some(),
        None => remembered_keepalive(dti),
    };
    let Some(option) = stack_option(dti, option, value, on) else {
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

/// The value is the ABI's: microseconds, 0 for a reset, all ones for none.
fn set_linger(dti: &mut Dti, value: u64) {
    dti.flags &= !flag::RESET_ON_CLOSE;
    dti.linger_ms = None;
    match value {
        0 => dti.flags |= flag::RESET_ON_CLOSE,
        u64::MAX => {}
        micros => dti.linger_ms = NonZeroU32::new(micros.div_ceil(1000).min(1 << 30) as u32),
    }
}

/// Whether keepalive is on for the connection that is to come.
fn remembered_keepalive(dti: &Dti) -> bool {
    let on = |option: &SocketOption| matches!(option, SocketOption::Keepalive(Some(_)));
    dti.options.iter().any(on)
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

/// The stack's name for an option. `on`: keepalive is on; its times alone do not switch it on.
fn stack_option(dti: &mut Dti, option: Opt, value: u64, on: bool) -> Option<SocketOption> {
    let micros = Duration::from_micros(value.min(u64::from(u32::MAX) * 1000));
    let mut keepalive = |on: bool, change: &dyn Fn(&mut Keepalive)| {
        let settings = dti.keepalive.get_or_insert_default();
        change(settings);
        SocketOption::Keepalive(on.then_some(**settings))
    };
    Some(match option {
        Opt::NoDelay => SocketOption::NoDelay(value != 0),
        Opt::Cork => SocketOption::Cork(value != 0),
        Opt::QuickAck => SocketOption::QuickAck(value != 0),
        Opt::Keepalive => keepalive(value != 0, &|_| {}),
        Opt::KeepaliveIdle | Opt::KeepaliveInterval | Opt::KeepaliveProbes if value == 0 => {
            return None;
        }
        Opt::KeepaliveIdle => keepalive(on, &|k| k.idle = micros),
        Opt::KeepaliveInterval => keepalive(on, &|k| k.interval = micros),
        Opt::KeepaliveProbes => keepalive(on, &|k| k.probes = value.min(127) as u8),
        Opt::UserTimeout => SocketOption::UserTimeout((value != 0).then_some(micros)),
        Opt::Congestion => SocketOption::Congestion(match value {
            0 => Algorithm::NewReno,
            1 => Algorithm::Cubic,
            2 => Algorithm::Dctcp,
            _ => return None,
        }),
        Opt::Ecn => SocketOption::Ecn(match value {
            0 => Ecn::Off,
            1 => Ecn::Accept,
            2 => Ecn::Request,
            _ => return None,
        }),
        Opt::ReceiveBuffer | Opt::Linger | Opt::LocalAddress | Opt::PeerAddress => return None,
    })
}

fn number(value: u64) -> Done {
    Done::Answer([value, 0, 0, 0, 0])
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

fn controller(algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::NewReno => 0,
        Algorithm::Cubic => 1,
        Algorithm::Dctcp => 2,
    }
}

fn willing(ecn: Ecn) -> u64 {
    match ecn {
        Ecn::Off => 0,
        Ecn::Accept => 1,
        Ecn::Request => 2,
    }
}

/// One of the keepalive options, by what is set, on or not.
fn keepalive_value(dti: &Dti, option: Opt, on: Option<Keepalive>) -> u64 {
    let set = || dti.keepalive.as_deref().copied().unwrap_or_default();
    let settings = on.unwrap_or_else(set);
    match option {
        Opt::KeepaliveIdle => micros(settings.idle),
        Opt::KeepaliveInterval => micros(settings.interval),
        Opt::KeepaliveProbes => settings.probes.into(),
        _ => on.is_some().into(),
    }
}

/// The value of an option that the connection keeps.
fn of_connection(tcp: &Connection, dti: &Dti, option: Opt) -> u64 {
    match option {
        Opt::NoDelay => tcp.no_delay().into(),
        Opt::Cork => tcp.cork().into(),
        Opt::QuickAck => tcp.delayed_ack().is_zero().into(),
        Opt::UserTimeout => micros(tcp.user_timeout()),
        Opt::Congestion => controller(tcp.algorithm()),
        Opt::Ecn => willing(tcp.ecn()),
        _ => keepalive_value(dti, option, tcp.keepalive()),
    }
}

/// The value that a connection of this DTI would begin with.
fn remembered(dti: &Dti, option: Opt, default: &Config) -> u64 {
    let set = dti.options.iter().find_map(|set| match (option, set) {
        (Opt::NoDelay, SocketOption::NoDelay(on))
        | (Opt::Cork, SocketOption::Cork(on))
        | (Opt::QuickAck, SocketOption::QuickAck(on)) => Some((*on).into()),
        (Opt::UserTimeout, SocketOption::UserTimeout(time)) => Some(time.map_or(0, micros)),
        (Opt::Congestion, SocketOption::Congestion(algorithm)) => Some(controller(*algorithm)),
        (Opt::Ecn, SocketOption::Ecn(ecn)) => Some(willing(*ecn)),
        _ => None,
    });
    set.unwrap_or_else(|| match option {
        Opt::NoDelay => default.no_delay.into(),
        Opt::Cork => 0,
        Opt::QuickAck => default.delayed_ack.is_zero().into(),
        Opt::UserTimeout => default.user_timeout.map_or(0, micros),
        Opt::Congestion => controller(default.congestion),
        Opt::Ecn => willing(default.ecn),
        _ => {
            let on = dti.options.iter().find_map(|set| match set {
                SocketOption::Keepalive(keepalive) => *keepalive,
                _ => None,
            });
            keepalive_value(dti, option, on)
        }
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
        Opt::ReceiveBuffer => return number(dti.rx.window_option.into()),
        Opt::Linger => {
            return number(match dti.linger_ms {
                _ if dti.has(flag::RESET_ON_CLOSE) => 0,
                Some(ms) => u64::from(ms.get()) * 1000,
                None => u64::MAX,
            });
        }
        _ => {
            let tcp = dti.conn().and_then(|conn| cx.stack.connection(conn));
            return number(match tcp {
                Some(tcp) => of_connection(tcp, dti, option),
                None => remembered(dti, option, &cx.stack.config().tcp),
            });
        }
    };
    match address {
        Some(address) => {
            let [a, b, c] = Address::new(address).0;
            Done::Answer([a, b, c, 0, 0])
        }
        None => Status::WrongState.into(),
    }
}
