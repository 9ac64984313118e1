//! Options of a DTI.

use std::net::Ipv4Addr;
use std::num::{NonZeroU8, NonZeroU32};
use std::ops::RangeInclusive;
use std::time::Duration;

use sidecore_abi::command::{Opt, holders};
use sidecore_abi::{Address, Command, Status};
use sidecore_stack::{MtuDiscovery, SocketOption};
use sidecore_tcp::{Algorithm, Config, Connection, Ecn, Keepalive};

use super::{Context, Done, slot};
use crate::commands::socket::opening_options;
use crate::dti::{Dti, Role, flag};
use crate::tables::datagram::Outgoing;

/// What Linux takes for TCP_MAXSEG, in bytes.
const MAX_SEGMENT: RangeInclusive<u64> = 88..=32767;

/// … for TCP_SYNCNT.
const SYN_RETRIES_MAX: u64 = 127;

/// … for TCP_LINGER2.
const FIN_WAIT_2_MAX: Duration = Duration::from_secs(120);

/// Connections of one listener that may be open early.
const FAST_OPEN_MAX: u64 = 1 << 16;

/// … and for TCP_WINDOW_CLAMP at least.
const WINDOW_CLAMP_MIN: u32 = 1152;

/// SetOption.
pub(super) fn set(cx: &mut Context<'_>, command: &Command) -> Done {
    let set =
        slot(cx, command).and_then(|slot| set_one(cx, slot, command.body[0], command.body[1]));
    set.map_or_else(Done::Refused, |()| Done::Quiet)
}

/// SetOptions.
pub(super) fn set_several(cx: &mut Context<'_>, command: &Command) -> Done {
    let slot = match slot(cx, command) {
        Ok(slot) => slot,
        Err(status) => return status.into(),
    };
    let mut done = Ok(());
    let mut keepalive = None;
    for (option, value) in command.options() {
        // Servers set all four on each connection: the stack is told once.
        let set = match of_keepalive(option) {
            Some(_) if value == 0 && option != Opt::Keepalive as u64 => Err(Status::Invalid),
            Some(option) => {
                let known = keepalive.get_or_insert_with(|| keepalive_of(cx, slot));
                change_keepalive(known, option, value);
                Ok(())
            }
            None => set_one(cx, slot, option, value),
        };
        // All are tried; the first that failed is told.
        done = done.and(set);
    }
    if let Some(known) = keepalive {
        done = done.and(set_keepalive(cx, slot, known));
    }
    done.map_or_else(Done::Refused, |()| Done::Quiet)
}

/// Keepalive as it is set, on or not.
type KeepaliveState = (bool, Keepalive);

/// One of keepalive's four options, by its number.
fn of_keepalive(option: u64) -> Option<Opt> {
    use Opt::{Keepalive, KeepaliveIdle, KeepaliveInterval, KeepaliveProbes};
    let all = [Keepalive, KeepaliveIdle, KeepaliveInterval, KeepaliveProbes];
    all.into_iter().find(|known| *known as u64 == option)
}

/// How keepalive is set on a connection, or for the one that is to come.
fn keepalive_of(cx: &Context<'_>, slot: u32) -> KeepaliveState {
    let Some(dti) = cx.tables.dtis.get(slot) else {
        return (false, Keepalive::default());
    };
    let on = match dti.conn().and_then(|conn| cx.stack.connection(conn)) {
        Some(tcp) => tcp.keepalive(),
        None => remembered_keepalive(dti),
    };
    // Times of one that is off are the DTI's to remember.
    let known = || dti.keepalive.as_deref().copied().unwrap_or_default();
    (on.is_some(), on.unwrap_or_else(known))
}

/// Changes one of the four, whose value was checked. Times alone do not switch it on.
fn change_keepalive((on, settings): &mut KeepaliveState, option: Opt, value: u64) {
    let micros = Duration::from_micros(value.min(u64::from(u32::MAX) * 1000));
    match option {
        Opt::KeepaliveIdle => settings.idle = micros,
        Opt::KeepaliveInterval => settings.interval = micros,
        Opt::KeepaliveProbes => settings.probes = value.min(127) as u8,
        _ => *on = value != 0,
    }
}

fn set_keepalive(
    cx: &mut Context<'_>,
    slot: u32,
    (on, settings): KeepaliveState,
) -> Result<(), Status> {
    let dti = cx.tables.dtis.get_mut(slot).ok_or(Status::BadHandle)?;
    if !on || dti.keepalive.is_some() {
        **dti.keepalive.get_or_insert_default() = settings;
    }
    tell(cx, slot, SocketOption::Keepalive(on.then_some(settings)))
}

/// Sets one option, whose number and value may be anything.
fn set_one(cx: &mut Context<'_>, slot: u32, option: u64, value: u64) -> Result<(), Status> {
    let option = Opt::from_raw(option).ok_or(Status::Invalid)?;
    let dti = cx.tables.dtis.get_mut(slot).ok_or(Status::BadHandle)?;
    if set_own(dti, option, value) {
        match option {
            Opt::Descriptor => cx.tables.taken(slot),
            Opt::Holders if value & holders::RECEIVES != 0 => {
                cx.tables.receives(slot);
                cx.tables.mark_dirty(slot);
            }
            // Of interest at the end only.
            Opt::Linger => {}
            _ => cx.tables.mark_dirty(slot),
        }
        return Ok(());
    }
    if let Some(option) = of_keepalive(option as u64) {
        if value == 0 && option != Opt::Keepalive {
            return Err(Status::Invalid);
        }
        let mut keepalive = keepalive_of(cx, slot);
        change_keepalive(&mut keepalive, option, value);
        return set_keepalive(cx, slot, keepalive);
    }
    let option = stack_option(option, value).ok_or(Status::Invalid)?;
    tell(cx, slot, option)
}

/// Tells the stack of an option, or remembers it for what is to come.
fn tell(cx: &mut Context<'_>, slot: u32, option: SocketOption) -> Result<(), Status> {
    let dti = cx.tables.dtis.get_mut(slot).ok_or(Status::BadHandle)?;
    let conn = dti.conn();
    let told = match &dti.role {
        Role::Datagram {
            socket: Some(id), ..
        } => {
            let id = *id;
            if dti.datagrams.is_empty() || !is_of_sending(&option) {
                cx.stack.udp_set_option(id, option) && remember(dti, option)
            } else {
                // Datagrams that were sent before go out as things were then.
                // The change waits among them, and counts as one of the socket's descriptors.
                return change_later(cx, slot, option);
            }
        }
        Role::Listening(listening) => {
            cx.stack.set_listener_option(listening.id, option) && remember(dti, option)
        }
        _ => match conn {
            Some(conn) => cx.stack.set_option(conn, option),
            None => remember(dti, option),
        },
    };
    told.then_some(()).ok_or(Status::WrongState)
}

/// Sets an option of a datagram socket once what it has sent before is out.
fn change_later(cx: &mut Context<'_>, slot: u32, option: SocketOption) -> Result<(), Status> {
    cx.tables.begin_descriptor(slot)?;
    let dti = cx.tables.dtis.get_mut(slot).ok_or(Status::BadHandle)?;
    let change = Outgoing::Change(option);
    if !cx.tables.datagrams.push_back(&mut dti.datagrams, change) {
        cx.tables.end_descriptor(slot);
        return Err(Status::NoResources);
    }
    remember(dti, option);
    Ok(())
}

/// Sets an option that is the DTI's own, of which the stack knows nothing; false: it is another.
fn set_own(dti: &mut Dti, option: Opt, value: u64) -> bool {
    let bytes = value.min(1 << 30) as u32;
    match option {
        Opt::ReceiveBuffer => dti.rx.set_window(bytes, dti.rx.window_clamp),
        Opt::WindowClamp => {
            // Linux takes half of its least receive buffer for the least clamp.
            let clamp = if bytes == 0 {
                0
            } else {
                bytes.max(WINDOW_CLAMP_MIN)
            };
            dti.rx.set_window(dti.rx.buffer_option, clamp);
        }
        Opt::NotsentLowat => dti.set_notsent_lowat(value.min(u64::from(u32::MAX)) as u32),
        Opt::Linger => set_linger(dti, value),
        Opt::Descriptor => dti.number = value,
        Opt::Holders if matches!(dti.role, Role::Datagram { .. }) => {
            dti.flags &= !flag::OUTLIVED;
            if value & holders::OUTLIVED != 0 {
                dti.flags |= flag::OUTLIVED;
            }
        }
        Opt::ReceiveErrors if matches!(dti.role, Role::Datagram { .. }) => {
            dti.flags &= !flag::RECEIVE_ERRORS;
            if value != 0 {
                dti.flags |= flag::RECEIVE_ERRORS;
            }
        }
        _ => return false,
    }
    true
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

/// Whether keepalive is on for the connection that is to come, and how.
fn remembered_keepalive(dti: &Dti) -> Option<Keepalive> {
    dti.options.iter().find_map(|option| match option {
        SocketOption::Keepalive(keepalive) => *keepalive,
        _ => None,
    })
}

/// What the datagrams go out with that are sent after it was set.
fn is_of_sending(option: &SocketOption) -> bool {
    matches!(
        option,
        SocketOption::TrafficClass(_)
            | SocketOption::HopLimit(_)
            | SocketOption::MulticastHops(_)
            | SocketOption::MulticastLoop(_)
            | SocketOption::MulticastSource(_)
            | SocketOption::MtuDiscovery(_)
    )
}

/// Keeps an option for the connection that is to come: this DTI's own, or those of a listener's children. False if there can be none.
fn remember(dti: &mut Dti, option: SocketOption) -> bool {
    let of_datagrams = is_of_sending(&option)
        || matches!(
            option,
            SocketOption::V6Only(_) | SocketOption::ReuseAddress(_)
        );
    let fits = match dti.role {
        Role::Fresh | Role::Bound(_) | Role::Listening(_) => true,
        Role::Datagram { .. } => of_datagrams,
        _ => false,
    };
    if !fits {
        return false;
    }
    let same =
        |other: &SocketOption| std::mem::discriminant(other) == std::mem::discriminant(&option);
    // One of each kind: the last counts.
    dti.options.retain(|other| !same(other));
    dti.options.push(option);
    true
}

/// The stack's name for an option that is not about keepalive.
fn stack_option(option: Opt, value: u64) -> Option<SocketOption> {
    let micros = Duration::from_micros(value.min(u64::from(u32::MAX) * 1000));
    Some(match option {
        Opt::NoDelay => SocketOption::NoDelay(value != 0),
        Opt::Cork => SocketOption::Cork(value != 0),
        Opt::QuickAck => SocketOption::QuickAck(value != 0),
        Opt::UserTimeout => SocketOption::UserTimeout((value != 0).then_some(micros)),
        Opt::Congestion => SocketOption::Congestion(match value {
            0 => Algorithm::NewReno,
            1 => Algorithm::Cubic,
            2 => Algorithm::Dctcp,
            3 => Algorithm::Bbr,
            _ => return None,
        }),
        Opt::Ecn => SocketOption::Ecn(match value {
            0 => Ecn::Off,
            1 => Ecn::Accept,
            2 => Ecn::Request,
            _ => return None,
        }),
        _ => return seldom(option, value),
    })
}

/// The same for what is seldom set; `None`: the value is none that there is.
fn seldom(option: Opt, value: u64) -> Option<SocketOption> {
    let micros = Duration::from_micros(value.min(u64::from(u32::MAX) * 1000));
    Some(match option {
        Opt::MaxSegment if MAX_SEGMENT.contains(&value) => SocketOption::MaxSegment(value as u16),
        Opt::MaxPacingRate => SocketOption::MaxPacingRate((value != 0).then_some(value)),
        Opt::SynRetries if value <= SYN_RETRIES_MAX => {
            SocketOption::SynRetries((value != 0).then_some(value as u8))
        }
        Opt::FinWait2 => SocketOption::FinWait2(match value {
            0 => None,
            u64::MAX => Some(Duration::ZERO),
            _ => Some(micros.min(FIN_WAIT_2_MAX)),
        }),
        Opt::DeferAccept => SocketOption::DeferAccept((value != 0).then_some(micros)),
        Opt::TrafficClass => SocketOption::TrafficClass(u8::try_from(value).ok()?),
        Opt::HopLimit => SocketOption::HopLimit(NonZeroU8::new(u8::try_from(value).ok()?)),
        Opt::V6Only => SocketOption::V6Only(value != 0),
        Opt::FastOpen => SocketOption::FastOpenQueue(value.min(FAST_OPEN_MAX) as u32),
        Opt::ReuseAddress => SocketOption::ReuseAddress(value != 0),
        Opt::MulticastHops => SocketOption::MulticastHops(u8::try_from(value).ok()?),
        Opt::MulticastLoop => SocketOption::MulticastLoop(value != 0),
        Opt::MtuDiscovery => SocketOption::MtuDiscovery(match value {
            0 => MtuDiscovery::Off,
            1 | 2 => MtuDiscovery::Path,
            3 => MtuDiscovery::Probe,
            _ => return None,
        }),
        Opt::MulticastSource => {
            let ip = Ipv4Addr::from_bits(u32::try_from(value).ok()?);
            SocketOption::MulticastSource((!ip.is_unspecified()).then_some(ip))
        }
        _ => return None,
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
        Algorithm::Bbr => 3,
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
        Opt::MaxPacingRate => tcp.max_pacing_rate().unwrap_or(0),
        Opt::MaxSegment => tcp.effective_mss().into(),
        Opt::SynRetries => tcp.syn_retries().into(),
        Opt::FinWait2 => fin_wait_2(tcp.fin_wait_2_timeout()),
        _ => keepalive_value(dti, option, tcp.keepalive()),
    }
}

/// The ABI's value of a time in FIN-WAIT-2.
fn fin_wait_2(time: Duration) -> u64 {
    if time.is_zero() {
        u64::MAX
    } else {
        micros(time)
    }
}

/// What is kept for the opening, and (but for the IP header) of no more interest then; `None`: it is another option.
fn of_opening(cx: &Context<'_>, dti: &Dti, option: Opt) -> Option<u64> {
    let opening = opening_options(dti);
    let marking = dti.conn().and_then(|conn| cx.stack.marking(conn));
    let (class, limit) = marking.unwrap_or((opening.traffic_class, opening.hop_limit));
    let default = &cx.stack.config().tcp;
    let connected = dti.conn().is_some();
    let addresses = dti.conn().and_then(|conn| cx.stack.addresses(conn));
    let v6 = addresses.is_some_and(|(local, _)| local.is_ipv6());
    Some(match option {
        Opt::TrafficClass => class.into(),
        Opt::HopLimit => limit.map_or(u64::from(cx.stack.hop_limit(v6)), |limit| {
            limit.get().into()
        }),
        Opt::V6Only => opening.v6_only.into(),
        Opt::ReuseAddress => opening.reuse_address.into(),
        Opt::ReceiveErrors => dti.has(flag::RECEIVE_ERRORS).into(),
        Opt::MtuDiscovery => match opening.mtu_discovery {
            MtuDiscovery::Off => 0,
            MtuDiscovery::Path => 1,
            MtuDiscovery::Probe => 3,
        },
        Opt::MulticastHops => opening.multicast_hops.into(),
        Opt::MulticastLoop => opening.multicast_loop.into(),
        Opt::MulticastSource => {
            let source = opening.multicast_source;
            source.map_or(0, |ip| ip.to_bits().into())
        }
        Opt::FastOpen => opening.fast_open_queue.into(),
        Opt::DeferAccept => opening.defer_accept.map_or(0, micros),
        Opt::MaxPacingRate if !connected => {
            let set = opening.max_pacing_rate.into_iter();
            set.chain(default.max_pacing_rate).min().unwrap_or(0)
        }
        Opt::MaxSegment if !connected => opening.mss.unwrap_or(default.mss).into(),
        Opt::SynRetries if !connected => opening.syn_retries.unwrap_or(default.syn_retries).into(),
        Opt::FinWait2 if !connected => {
            fin_wait_2(opening.fin_wait_2.unwrap_or(default.fin_wait_2_timeout))
        }
        _ => return None,
    })
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
        _ => keepalive_value(dti, option, remembered_keepalive(dti)),
    })
}

/// What is known to pass to a datagram socket's peer.
fn path_mtu(cx: &mut Context<'_>, slot: u32) -> Done {
    let peer = match cx.tables.dtis.get(slot).map(|dti| &dti.role) {
        Some(Role::Datagram {
            peer: Some(peer), ..
        }) => *peer,
        _ => return Status::WrongState.into(),
    };
    let mtu = cx.stack.path_mtu(cx.now, peer.ip());
    mtu.map_or(Status::Unreachable.into(), |mtu| number(mtu.into()))
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
    if option == Opt::Info {
        return super::info::get(cx, command, slot);
    }
    if option == Opt::PathMtu {
        return path_mtu(cx, slot);
    }
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
        Opt::ReceiveBuffer => return number(dti.rx.buffer_option.into()),
        Opt::WindowClamp => return number(dti.rx.window_clamp.into()),
        Opt::NotsentLowat => return number(dti.notsent_lowat.into()),
        Opt::UrgentMark => return number(dti.rx.urgent),
        Opt::Linger => {
            return number(match dti.linger_ms {
                _ if dti.has(flag::RESET_ON_CLOSE) => 0,
                Some(ms) => u64::from(ms.get()) * 1000,
                None => u64::MAX,
            });
        }
        _ => {
            if let Some(value) = of_opening(cx, dti, option) {
                return number(value);
            }
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
