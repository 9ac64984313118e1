//! Applications on the native API, for measuring: an echo server and a closed-loop client, and ways to give them and their engine threads.
//!
//! An application is something that can be asked for one [`step`](Application::step): take the events that are there, answer them,
//! flush. So the same code runs on a thread of its own beside the engine's ([`drive_beside`]), or in one thread with it ([`drive_within`]),
//! as the papers' one-processor configuration does.

pub mod churn;
pub mod client;
pub mod rpc;
pub mod server;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sidecore_client::{Event, EventQueue, EvqId, Lane, Ual, UalConfig};
use sidecore_engine::{Cidr, Device, Engine, EngineConfig, EngineControlHandle, IdlePolicy, Turn};
use sidecore_nic::AnyNic;
use sidecore_nic::tap::Tap;

use crate::echo::tap::TapSpec;
use crate::load::worker::{Counts, Window};

/// Events that one step takes at most.
const EVENTS: u32 = 256;

/// Commands that one event leads to at most.
const COMMANDS: u32 = 4;

/// Turns between two looks at what else there is to do.
const TURNS: usize = 64;

/// Address of an engine that has no device, or whose device is a wire's first end.
pub const HERE: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 1);

/// Address of the engine at a wire's second end.
pub const THERE: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 2);

/// Which threads engine and application have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threads {
    /// One for both: turns of the engine and steps of the application alternate.
    One,
    /// One for each.
    Two,
}

/// Something that answers events.
pub trait Application {
    /// Takes the events that are there (a limited number), answers them, flushes. How many there were. Never blocks.
    fn step(&mut self) -> anyhow::Result<usize>;
}

/// An application that can sleep until there is more.
pub trait Waits {
    /// Its queue.
    fn queue(&mut self) -> &mut EventQueue;

    /// Whether events were set aside that the next step may answer: do not sleep then.
    fn is_behind(&self) -> bool;
}

/// An application that loads another.
pub trait Client: Application {
    /// Whether it may begin.
    fn is_connected(&self) -> bool;

    /// Begins. What is answered inside the window is counted.
    fn begin(&mut self, window: Window) -> anyhow::Result<()>;

    /// Whether the window is over, and what was due in it is answered.
    fn is_over(&self) -> bool;

    /// What was counted.
    fn counted(self) -> Counts;
}

/// Two applications in one thread.
pub struct Both<A, B>(pub A, pub B);

impl<A: Application, B: Application> Application for Both<A, B> {
    #[inline]
    fn step(&mut self) -> anyhow::Result<usize> {
        Ok(self.0.step()? + self.1.step()?)
    }
}

/// An application's lane, queue and UAL.
///
/// The engine reads no commands of a UAL while one of its queues is full. So events are always taken, also while the lane has no room for
/// what follows from them: they are set aside then.
pub struct Ends {
    /// Its UAL.
    pub ual: Ual,
    /// Its lane.
    pub lane: Lane,
    queue: EventQueue,
    /// Events that were taken while the lane was full, oldest first.
    aside: VecDeque<Event>,
}

impl Ends {
    /// Claims one of each.
    pub fn of(ual: Ual) -> anyhow::Result<Self> {
        let lane = ual.lane()?;
        let queue = ual.event_queue()?;
        Ok(Self {
            ual,
            lane,
            queue,
            aside: VecDeque::new(),
        })
    }

    /// Names its queue.
    pub fn queue_id(&self) -> EvqId {
        self.queue.id()
    }

    /// Its queue, to wait at.
    pub fn queue(&mut self) -> &mut EventQueue {
        &mut self.queue
    }

    /// How many events may be answered now: take no more of them with [`Self::take`] before asking again. Where it is none, what waits in the
    /// queue is set aside, so that the engine goes on reading the lane.
    #[inline]
    pub fn limit(&mut self) -> u32 {
        let room = self.lane.free() / COMMANDS;
        if room == 0 {
            self.set_aside();
        }
        room.min(EVENTS)
    }

    #[cold]
    fn set_aside(&mut self) {
        self.lane.flush();
        for _ in 0..EVENTS {
            let Some(event) = self.queue.poll() else {
                return;
            };
            self.aside.push_back(event);
        }
    }

    /// The next event, if there is one.
    #[inline]
    pub fn take(&mut self) -> Option<Event> {
        if self.aside.is_empty() {
            return self.queue.poll();
        }
        self.aside.pop_front()
    }

    /// Whether events wait that were set aside.
    pub fn is_behind(&self) -> bool {
        !self.aside.is_empty()
    }
}

/// Order of a lane that has room for four commands of each connection.
fn lane_order(connections: usize) -> u32 {
    let commands = (connections * COMMANDS as usize).next_power_of_two();
    commands.ilog2().clamp(13, 16)
}

/// What an application of the lab wishes for.
pub fn wishes(connections: usize) -> UalConfig {
    UalConfig {
        lanes: 1,
        // Connecting posts two commands for each, all at once.
        lane_order: lane_order(connections),
        evqs: 1,
        evq_order: 14,
        wait_cells: 1,
        dtis: (connections as u32).saturating_mul(2).max(1024),
        pool_bytes: (connections as u64 * 16 * 1024).clamp(16 << 20, 1 << 30),
        ..UalConfig::default()
    }
}

/// An engine's configuration: one address, this device.
pub fn engine_config(
    address: Ipv4Addr,
    prefix: u8,
    device: Device,
    idle: IdlePolicy,
) -> EngineConfig {
    EngineConfig {
        device,
        addresses: vec![Cidr { address, prefix }],
        idle,
        ..EngineConfig::default()
    }
}

/// An engine on a TAP device.
pub fn engine_on_tap(spec: &TapSpec, idle: IdlePolicy) -> anyhow::Result<EngineConfig> {
    let tap = Tap::create(spec.config()).with_context(|| format!("TAP device {}", spec.name))?;
    let device = Device::Nic(Box::new(AnyNic::Tap(tap)));
    Ok(engine_config(spec.address, spec.prefix, device, idle))
}

/// Does something on another thread that needs this thread's engine to turn.
pub fn within<T: Send>(
    engine: &mut Engine,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        while !working.is_finished() {
            engine.turn();
        }
        working
            .join()
            .unwrap_or_else(|_| bail!("a thread beside the engine panicked"))
    })
}

/// Opens a UAL at an engine that this thread drives.
pub fn open_within(
    engine: &mut Engine,
    control: &EngineControlHandle,
    connections: usize,
) -> anyhow::Result<Ends> {
    let socket = control.connect()?;
    let ual = within(engine, || Ok(Ual::open_on(socket, &wishes(connections))?))?;
    Ends::of(ual)
}

/// Steps an application on this thread for ever, sleeping when there is nothing.
pub fn drive_beside(application: &mut (impl Application + Waits)) -> anyhow::Result<Infallible> {
    loop {
        if application.step()? > 0 {
            continue;
        }
        if application.is_behind() {
            std::hint::spin_loop();
        } else {
            application.queue().wait(None)?;
        }
    }
}

/// Turns an engine and steps an application on this thread, never sleeping, until `until` says so (asked every few turns) or the
/// engine stops.
pub fn drive_within<A: Application>(
    engine: &mut Engine,
    application: &mut A,
    mut until: impl FnMut(&mut A) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    loop {
        for _ in 0..TURNS {
            let turn = engine.turn();
            let events = application.step()?;
            if turn == Turn::Stopped {
                return Ok(());
            }
            if turn == Turn::Idle && events == 0 {
                std::hint::spin_loop();
            }
        }
        if until(application)? {
            return Ok(());
        }
    }
}

/// Where a server on this address and port is found.
pub fn at(address: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::from((address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_and_a_full_queue_do_not_lock_each_other() {
        let config = engine_config(HERE, 24, Device::None, IdlePolicy::Poll);
        let (mut engine, control) = Engine::new(config).unwrap();
        let small = UalConfig {
            lane_order: 4,
            evq_order: 4,
            ..wishes(1)
        };
        let socket = control.connect().unwrap();
        let ual = within(&mut engine, || Ok(Ual::open_on(socket, &small)?)).unwrap();
        let mut ends = Ends::of(ual).unwrap();
        let mut posted = 0;
        // As many answers as the queue holds, and then as many commands as the lane does.
        for _ in 0..2 {
            let queue = ends.queue.id();
            while ends.lane.nop(queue, posted).is_ok() {
                posted += 1;
            }
            ends.lane.flush();
            for _ in 0..4 {
                engine.turn();
            }
        }
        assert_eq!(
            ends.lane.free(),
            0,
            "the engine reads on beside a full queue"
        );
        let mut cookies = Vec::new();
        for _ in 0..100 {
            for _ in 0..ends.limit() {
                cookies.extend(ends.take().map(|event| event.cookie));
            }
            engine.turn();
        }
        assert_eq!(cookies, (0..posted).collect::<Vec<_>>());
        assert!(!ends.is_behind());
    }
}
