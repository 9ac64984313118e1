//! TCP_INFO: what the stack knows of a connection, as Linux would say it.

use sidecore_abi::info::options;
use sidecore_abi::{Command, Extent, Status, TcpInfo};
use sidecore_shm::MemRef;
use sidecore_stack::ConnectionInfo;
use sidecore_tcp::{Instant, State};

use super::{Context, Done};

/// What Linux says while there is no slow start threshold.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// GetOption with option Info: writes to the extent that the command names.
pub(super) fn get(cx: &mut Context<'_>, command: &Command, slot: u32) -> Done {
    let conn = cx.tables.dtis.get(slot).and_then(|dti| dti.conn());
    let Some(connection) = conn.and_then(|conn| cx.stack.connection_info(conn)) else {
        return Status::WrongState.into();
    };
    let bytes = tcp_info(&connection, cx.now).to_bytes();
    let extent = Extent::from_words([command.body[1], command.body[2]]);
    let len = bytes.len().min(extent.len as usize);
    let Some(ual) = cx.tables.ual(cx.ual) else {
        return Status::BadHandle.into();
    };
    let to = ual
        .regions
        .slice_mut(extent.region.0, extent.offset, len as u32);
    let written = to.is_some_and(|to| to.write(0, MemRef::from_bytes(&bytes[..len])));
    if !written {
        return Status::BadExtent.into();
    }
    Done::Answer([len as u64, 0, 0, 0, 0])
}

/// A state's number in Linux.
const fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
    }
}

fn agreed(info: &sidecore_tcp::Info) -> u8 {
    let scaled = info.send_scale > 0 || info.receive_scale > 0;
    let used = [
        (info.timestamps, options::TIMESTAMPS),
        (info.sack, options::SACK),
        (scaled, options::WSCALE),
        (info.syn_data, options::SYN_DATA),
        (info.ecn, options::ECN),
        (info.ecn && info.ce_received > 0, options::ECN_SEEN),
    ];
    let used = used.iter().filter(|(used, _)| *used);
    used.map(|(_, bit)| bit).sum()
}

/// The path MTU, with the headers of the connection's own version.
fn path_mtu(connection: &ConnectionInfo) -> u32 {
    let longer = if connection.remote.is_ipv6() { 20 } else { 0 };
    u32::from(connection.tcp.path_mtu) + longer
}

// tidy: long function because it lists every field
fn tcp_info(connection: &ConnectionInfo, now: Instant) -> TcpInfo {
    let info = &connection.tcp;
    let mss = u32::from(info.effective_mss).max(1);
    let segments = |bytes: u32| bytes.div_ceil(mss);
    let since = |then: Instant| {
        let passed = now.duration_since(then).as_millis();
        passed.try_into().unwrap_or(u32::MAX)
    };
    let sent = info.bytes_acked + u64::from(info.unacked) + info.bytes_retransmitted;
    TcpInfo {
        state: state(info.state),
        ca_state: match (info.timed_out, info.recovering, info.sacked > 0) {
            (true, ..) => 4,
            (_, true, _) => 3,
            (.., true) => 1,
            _ => 0,
        },
        retransmits: info.unanswered_attempts,
        backoff: info.unanswered_attempts,
        probes: info.keepalive_probes,
        options: agreed(info),
        wscale: info.send_scale | info.receive_scale << 4,
        rto: info.rto_us,
        ato: info.delayed_ack_us,
        snd_mss: mss,
        rcv_mss: info.receive_mss.into(),
        unacked: segments(info.unacked),
        sacked: segments(info.sacked),
        // What was sent again still counts as lost, with Linux.
        lost: segments(info.lost + info.resent),
        retrans: segments(info.resent),
        last_data_sent: since(info.last_sent),
        last_data_recv: since(info.last_received),
        last_ack_recv: since(info.last_received),
        pmtu: path_mtu(connection),
        rcv_ssthresh: info.receive_window,
        rtt: info.srtt_us,
        rttvar: info.rttvar_us,
        snd_ssthresh: match info.ssthresh {
            u32::MAX => NO_THRESHOLD,
            bytes => bytes / mss,
        },
        snd_cwnd: info.cwnd / mss,
        advmss: info.announced_mss.into(),
        rcv_rtt: info.receiver_rtt_us,
        rcv_space: info.window_hint,
        total_retrans: info.retransmissions,
        max_pacing_rate: u64::MAX,
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        notsent_bytes: info.bytes_unsent.try_into().unwrap_or(u32::MAX),
        min_rtt: match info.min_rtt_us {
            0 => u32::MAX,
            known => known,
        },
        bytes_sent: sent,
        bytes_retrans: info.bytes_retransmitted,
        reord_seen: info.reordering_seen.into(),
        rcv_ooopack: info.out_of_order,
        snd_wnd: info.send_window,
        rcv_wnd: info.receive_window,
        total_rto: info.timeouts.try_into().unwrap_or(u16::MAX),
        ..TcpInfo::default()
    }
}
