//! What an application wishes for, and what it was granted.

use std::time::Duration;

use sidecore_abi::agent::{Reply, Request, RequestKind, death};
use sidecore_abi::control::Geometry;

/// What an application asks for when it opens a UAL. These are wishes: the agent grants at most this, by its policy.
/// See [`Granted`] for what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UalConfig {
    /// Doorbell lanes: threads that post at a time (1 to 512).
    pub lanes: u32,
    /// log2 of the commands that fit on a lane (3 to 16).
    pub lane_order: u32,
    /// Event queues (1 to 512).
    pub evqs: u32,
    /// log2 of the events that fit on an event queue (3 to 16).
    pub evq_order: u32,
    /// Wait cells: one for each event queue that somebody sleeps on (1 to 1024). Fewer than `evqs` are raised to it.
    pub wait_cells: u32,
    /// DTIs at a time.
    pub dtis: u32,
    /// Bytes of the receive pool: what may have arrived and not been given back, over all DTIs.
    pub pool_bytes: u64,
    /// How long a wait polls its queues before the thread sleeps. Zero sleeps at once; where the engine has a core
    /// of its own, a few microseconds save two system calls and a wake-up for answers that are nearly there.
    pub spin: Duration,
    /// What becomes of the connections when the process dies.
    pub death: Death,
    /// Whether forked children have the memory of the UAL and of its regions in theirs. They must not use it in any case; but without it not even
    /// what a child inherited of this library may be dropped there. It counts as the child's own where its address space is limited.
    pub memory_in_children: bool,
}

/// What becomes of the connections of a process that dies, or ends without closing them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Death {
    /// As the engine is configured.
    #[default]
    AsConfigured,
    /// They are reset.
    Reset,
    /// What was sent still goes out, and then a FIN.
    Linger,
}

impl Default for UalConfig {
    fn default() -> Self {
        Self {
            lanes: 4,
            lane_order: 10,
            evqs: 8,
            evq_order: 12,
            wait_cells: 16,
            dtis: 65536,
            pool_bytes: 64 << 20,
            spin: Duration::from_micros(5),
            death: Death::default(),
            memory_in_children: true,
        }
    }
}

impl UalConfig {
    /// The wishes as a message to the agent.
    pub(crate) fn request(&self) -> Request {
        let death = match self.death {
            Death::AsConfigured => death::DEFAULT,
            Death::Reset => death::RESET,
            Death::Linger => death::LINGER,
        };
        Request {
            geometry: Geometry {
                engines: 0,
                lanes: self.lanes,
                lane_order: self.lane_order,
                evqs: self.evqs,
                evq_order: self.evq_order,
                wait_cells: self.wait_cells.max(self.evqs),
            },
            dtis: self.dtis,
            pool_bytes: self.pool_bytes,
            args: [death, 0, 0],
            ..Request::new(RequestKind::OpenUal)
        }
    }
}

/// What the agent granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Engine threads, lanes, queues and their sizes.
    pub geometry: Geometry,
    /// DTIs at a time.
    pub dtis: u32,
    /// Bytes of the receive pool.
    pub pool_bytes: u64,
    /// Which engine process this is: another one after a restart.
    pub epoch: u64,
    /// The engine's number of the UAL.
    pub ual: u64,
}

impl Granted {
    pub(crate) fn from_reply(reply: &Reply) -> Self {
        Self {
            geometry: reply.geometry,
            dtis: reply.dtis,
            pool_bytes: reply.pool_bytes,
            epoch: reply.epoch,
            ual: reply.args[0],
        }
    }
}
