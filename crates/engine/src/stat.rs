//! What `sidecore stat` shows, as one JSON document. Made only when asked for.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use sidecore_nic::{AnyNic, Nic, NicCounters};
use sidecore_tcp::Instant;

use crate::cycles::NAMES;
use crate::dti::{Dti, Role};
use crate::engine::Engine;
use crate::mailbox::AgentGauges;

/// Connections in one document at most. The engine does nothing else while it writes them: this many are some ten milliseconds.
const CONNECTIONS_MAX: usize = 2_000;

impl Engine {
    /// Everything, as JSON text.
    pub(crate) fn stat_json(&self) -> String {
        let bins: Value = NAMES
            .iter()
            .zip(self.counters.bins)
            .map(|(name, n)| (name.to_string(), Value::from(n)))
            .collect();
        let connections: Vec<Value> = self
            .stack
            .connections()
            .take(CONNECTIONS_MAX)
            .map(|c| self.connection(&c))
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "core": self.core,
            "cycles_per_second": sidecore_sys::clock::cycles_per_second(),
            "loop": {
                "turns": self.counters.turns,
                "productive_turns": self.counters.productive_turns,
                "sleeps": self.counters.sleeps,
                "naps": self.counters.naps,
                "frames_in": self.counters.frames_in,
                "frames_out": self.counters.frames_out,
                "commands": self.counters.commands,
                "productive_cycles": self.counters.productive_cycles,
                "polling_cycles": self.counters.polling_cycles,
                "sleep_cycles": self.counters.sleep_cycles,
                "bins": bins,
            },
            "stack": self.stack.counters(),
            "dhcp": self.dhcp(),
            "tables": self.tables.counters,
            "dtis": self.tables.dtis.len(),
            "descriptors": self.tables.tx.used(),
            "capture_skipped": self.captures.skipped(),
            "nic": nic(&self.nic),
            "agent": self.agent(),
            "uals": self.uals(),
            "in_custody": self.in_custody(),
            "connections_open": self.stack.connection_count(),
            "connections": connections,
            "sockets": self.sockets(),
        })
        .to_string()
    }

    /// What the agent holds, as of its last turn.
    fn agent(&self) -> Value {
        let AgentGauges {
            sessions,
            uals,
            descriptors,
        } = &*self.inbox.gauges;
        let now = |gauge: &AtomicUsize| gauge.load(Ordering::Relaxed);
        json!({
            "sessions": now(sessions),
            "uals": now(uals),
            "descriptors": now(descriptors),
        })
    }

    /// The lease; null without one. Its end is in seconds from now; null: never.
    fn dhcp(&self) -> Value {
        let Some(lease) = self.stack.dhcp_lease() else {
            return Value::Null;
        };
        let now = Instant::from_nanos(self.clock.nanos());
        let left = (lease.ends != Instant::NEVER).then(|| lease.ends.duration_since(now).as_secs());
        json!({
            "address": lease.address.to_string(),
            "router": lease.router.map(|router| router.to_string()),
            "server": lease.server.to_string(),
            "seconds_left": left,
        })
    }

    /// Listening and datagram sockets; as `ss` has it, a listener's receive queue are connections that wait to be accepted, and its send queue
    /// is how many may.
    fn sockets(&self) -> Vec<Value> {
        let socket = |dti: &Dti| {
            let ual = self.tables.uals.get(dti.ual as usize)?.as_ref()?.id;
            match &dti.role {
                Role::Listening(listening) => Some(json!({
                    "state": "Listen",
                    "local": listening.local.to_string(),
                    "ual": ual,
                    "receive_queue": listening.waiting.len(),
                    "send_queue": listening.backlog,
                })),
                Role::Datagram { socket, peer, .. } => Some(json!({
                    "state": "Datagram",
                    "local": self.stack.udp_local((*socket)?)?.to_string(),
                    "remote": peer.map(|peer| peer.to_string()),
                    "ual": ual,
                    "receive_queue": dti.rx.in_order.saturating_sub(dti.rx.returned),
                    "send_queue": dti.tx.end - dti.tx.una,
                })),
                _ => None,
            }
        };
        self.tables
            .dtis
            .iter()
            .filter_map(socket)
            .take(CONNECTIONS_MAX)
            .collect()
    }

    fn connection(&self, c: &sidecore_stack::ConnectionInfo) -> Value {
        let dti = self.tables.dtis.get(c.user);
        json!({
            "state": c.tcp.state,
            "local": c.local.to_string(),
            "remote": c.remote.to_string(),
            "ual": dti.and_then(|dti| Some(self.tables.uals.get(dti.ual as usize)?.as_ref()?.id)),
            "send_queue": dti.map_or(0, |dti| dti.tx.end - dti.tx.una),
            "receive_queue": dti.map_or(0, |dti| dti.rx.in_order.saturating_sub(dti.rx.returned)),
            "info": c.tcp,
            "mtu": c.mtu,
            "mode": dti.map(|dti| self.mode(dti)),
            "last_sent_ms": self.milliseconds_since(c.tcp.last_sent),
            "last_received_ms": self.milliseconds_since(c.tcp.last_received),
        })
    }

    /// How the bytes of a connection reach its process: by shared memory alone, or through the custodian, for one or for several processes.
    fn mode(&self, dti: &Dti) -> &'static str {
        if self.tables.custodian != Some(dti.ual) {
            "fast"
        } else if self.tables.shared_numbers.contains(&dti.number) {
            "shared"
        } else {
            "proxied"
        }
    }

    fn milliseconds_since(&self, then: sidecore_tcp::Instant) -> u64 {
        let cycles = sidecore_sys::clock::cycles();
        let now = sidecore_tcp::Instant::from_nanos(self.clock.nanos_at(cycles));
        now.duration_since(then).as_millis() as u64
    }

    /// Connections that several processes hold, or may.
    fn in_custody(&self) -> u32 {
        let ual = |slot: u32| self.tables.uals.get(slot as usize)?.as_ref();
        let custodian = self.tables.custodian.and_then(ual);
        custodian.map_or(0, |ual| ual.dtis)
    }

    fn uals(&self) -> Vec<Value> {
        self.tables
            .uals
            .iter()
            .enumerate()
            // The custodian is the engine's own.
            .filter(|(slot, _)| self.tables.custodian != Some(*slot as u32))
            .filter_map(|(_, ual)| ual.as_ref())
            .map(|ual| {
                json!({
                    "id": ual.id,
                    "pid": ual.pid,
                    "uid": ual.uid,
                    "dtis": ual.dtis,
                    "descriptors": ual.descriptors,
                    "regions": ual.regions.len(),
                    "pool_bytes": ual.chunks.size(),
                    "pool_free": ual.chunks.free_bytes(),
                    "mapped_bytes": ual.mapped_bytes(),
                    "active_lanes": ual.active_lanes.len(),
                    "stalled": ual.stalled.len(),
                    "overflowing": ual.overflowing,
                    "gone": ual.gone,
                    "condemned": ual.condemned,
                    "counters": ual.counters,
                })
            })
            .collect()
    }
}

fn nic(nic: &AnyNic) -> Value {
    let NicCounters {
        rx_frames,
        rx_bytes,
        rx_super_segments,
        rx_no_buffer,
        rx_empty_calls,
        rx_errors,
        tx_frames,
        tx_bytes,
        tx_super_segments,
        tx_dropped_full,
        tx_dropped_down,
        tx_dropped_refused,
        syscalls,
        wakeups,
        ..
    } = *nic.counters();
    let device = match nic {
        AnyNic::Tap(tap) => tap
            .device_drops()
            .ok()
            .map(|d| json!({"to_engine": d.to_us, "from_engine": d.from_us})),
        _ => None,
    };
    json!({
        "mtu": nic.caps().mtu,
        "mac": nic.caps().mac.to_string(),
        "rx_frames": rx_frames, "rx_bytes": rx_bytes, "rx_super_segments": rx_super_segments,
        "rx_dropped": nic.counters().rx_dropped(), "rx_no_buffer": rx_no_buffer, "rx_empty_calls": rx_empty_calls,
        "rx_errors": rx_errors, "tx_frames": tx_frames, "tx_bytes": tx_bytes, "tx_super_segments": tx_super_segments,
        "tx_dropped": nic.counters().tx_dropped(), "tx_dropped_full": tx_dropped_full,
        "tx_dropped_down": tx_dropped_down, "tx_dropped_refused": tx_dropped_refused, "syscalls": syscalls,
        "wakeups": wakeups, "device_drops": device,
    })
}
