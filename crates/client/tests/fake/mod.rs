//! The engine's half of a UAL, driven by a test: an agent that grants everything, and lanes and queues to look into.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sidecore_abi::agent::{MESSAGE_BYTES, Reply, Request, RequestKind};
use sidecore_abi::control::Geometry;
use sidecore_abi::{Command, Event, RegionId, Status};
use sidecore_client::{Memfd, Ual, UalConfig};
use sidecore_shm::Shared;
use sidecore_shm::control::EngineControl;
use sidecore_sys::unix::Stream;
use sidecore_sys::wake::{Sleeper, WakePair, Waker};

pub(crate) struct FakeEngine {
    pub(crate) controls: Vec<EngineControl>,
    pub(crate) pool: Shared,
    pub(crate) sleeper: Sleeper,
    side: Arc<Side>,
    agent: Option<JoinHandle<()>>,
}

/// What the agent's thread shares with the test.
#[derive(Default)]
struct Side {
    regions: Mutex<Vec<Shared>>,
    wakers: Mutex<Vec<(u32, Waker)>>,
    registered: Mutex<Vec<(u16, u64, RegionId)>>,
    refuse: AtomicBool,
    stop: AtomicBool,
}

struct Made {
    controls: Vec<EngineControl>,
    pool: Shared,
    sleeper: Sleeper,
}

pub(crate) fn small() -> UalConfig {
    UalConfig {
        lanes: 2,
        lane_order: 4,
        evqs: 3,
        evq_order: 4,
        wait_cells: 4,
        dtis: 8,
        pool_bytes: 1 << 18,
        spin: Duration::ZERO,
        ..UalConfig::default()
    }
}

/// A UAL and the engine's half of it.
pub(crate) fn open(config: &UalConfig, engines: u32) -> (Ual, FakeEngine) {
    let (ours, theirs) = Stream::pair().unwrap();
    let side = Arc::new(Side::default());
    let (tell, told) = mpsc::channel();
    let shared = Arc::clone(&side);
    let agent = std::thread::spawn(move || serve(theirs, &shared, &tell, engines));
    let ual = Ual::open_on(ours.into_fd(), config).unwrap();
    let made: Made = told.recv().unwrap();
    let fake = FakeEngine {
        controls: made.controls,
        pool: made.pool,
        sleeper: made.sleeper,
        side,
        agent: Some(agent),
    };
    (ual, fake)
}

fn serve(socket: Stream, side: &Side, tell: &mpsc::Sender<Made>, engines: u32) {
    while !side.stop.load(Ordering::Relaxed) {
        if !socket
            .wait_readable(Some(Duration::from_millis(5)))
            .unwrap()
        {
            continue;
        }
        let mut bytes = [0; MESSAGE_BYTES];
        let (n, fds) = socket.recv_with_fds(&mut bytes).unwrap();
        if n == 0 {
            return;
        }
        let request = Request::from_bytes(&bytes[..n]).unwrap();
        let (reply, fds) = match request.kind {
            RequestKind::OpenUal => {
                let (reply, fds, made) = grant(&request, engines);
                tell.send(made).unwrap();
                (reply, fds)
            }
            RequestKind::RegisterRegion if side.refuse.load(Ordering::Relaxed) => {
                (Reply::new(Status::NoResources), Vec::new())
            }
            RequestKind::RegisterRegion => (register(&request, fds, side), Vec::new()),
            RequestKind::WaitSocket => {
                let (waker, sleeper) = WakePair::new().unwrap().split();
                let cell = request.args[0] as u32;
                side.wakers.lock().unwrap().push((cell, waker));
                (Reply::new(Status::Ok), vec![sleeper.into_fd()])
            }
            other => panic!("a client does not ask for {other:?}"),
        };
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        socket.send_with_fds(&reply.to_bytes(), &fds).unwrap();
    }
}

fn grant(request: &Request, engines: u32) -> (Reply, Vec<OwnedFd>, Made) {
    let geometry = Geometry {
        engines,
        ..request.geometry
    };
    let sealed = |len: u64| {
        let memory = Memfd::create("fake", len, false).unwrap();
        memory.seal_size().unwrap();
        memory
    };
    let control = sealed(geometry.size() as u64);
    let pool = sealed(request.pool_bytes);
    let (waker, sleeper) = WakePair::new().unwrap().split();
    let memory = Shared::map_trusted(&control, true).unwrap();
    let engine = |e| EngineControl::for_engine(memory.clone(), geometry, e).unwrap();
    let made = Made {
        controls: (0..engines).map(engine).collect(),
        pool: Shared::map_trusted(&pool, true).unwrap(),
        sleeper,
    };
    let reply = Reply {
        geometry,
        dtis: request.dtis,
        pool_bytes: request.pool_bytes,
        epoch: 7,
        ..Reply::new(Status::Ok)
    };
    let fds = vec![control.into_fd(), pool.into_fd(), waker.into_fd()];
    (reply, fds, made)
}

fn register(request: &Request, mut fds: Vec<OwnedFd>, side: &Side) -> Reply {
    let memory = Shared::map_foreign(fds.pop().unwrap(), request.args[0]).unwrap();
    let len = memory.len();
    let mut regions = side.regions.lock().unwrap();
    regions.push(memory);
    let id = RegionId(regions.len() as u32 - 1);
    if request.args[1] != u64::MAX {
        let answer = (request.args[1] as u16, request.args[2], id);
        side.registered.lock().unwrap().push(answer);
    }
    Reply {
        args: [id.0.into(), len, 0],
        ..Reply::new(Status::Ok)
    }
}

impl FakeEngine {
    /// All commands on all lanes, by lane, and the credit given back.
    pub(crate) fn commands(&mut self) -> Vec<(usize, Command)> {
        let mut out = Vec::new();
        for control in &mut self.controls {
            for lane in 0..control.geometry().lanes as usize {
                let consumer = control.lane(lane).unwrap();
                while let Some(entry) = consumer.pop() {
                    out.push((lane, Command::decode(&entry).unwrap()));
                }
                consumer.publish_credit();
            }
        }
        out
    }

    /// The one command that waits.
    pub(crate) fn command(&mut self) -> Command {
        let commands = self.commands();
        assert_eq!(commands.len(), 1, "{commands:?}");
        commands[0].1
    }

    /// Waits for at least `n` commands.
    pub(crate) fn wait_commands(&mut self, n: usize) -> Vec<Command> {
        let start = Instant::now();
        let mut out = Vec::new();
        while out.len() < n {
            out.extend(self.commands().into_iter().map(|(_, command)| command));
            assert!(start.elapsed() < Duration::from_secs(10), "only {out:?}");
            std::thread::sleep(Duration::from_micros(200));
        }
        out
    }

    /// Says something on a queue, from engine thread 0, and wakes who sleeps there. Whether somebody did.
    pub(crate) fn emit(&mut self, evq: u16, event: &Event) -> bool {
        self.emit_from(0, evq, event)
    }

    pub(crate) fn emit_from(&mut self, engine: usize, evq: u16, event: &Event) -> bool {
        for (cell, waker) in self.side.wakers.lock().unwrap().drain(..) {
            assert!(self.controls[engine].set_wait_socket(cell, waker));
        }
        let control = &mut self.controls[engine];
        let queue = control.evq(evq as usize).unwrap();
        queue.push(event.encode()).unwrap();
        control.fence();
        control.wake(evq as usize)
    }

    pub(crate) fn region(&self, id: RegionId) -> Shared {
        self.side.regions.lock().unwrap()[id.0 as usize].clone()
    }

    /// Registrations that an event is to answer.
    pub(crate) fn registered(&self) -> Vec<(u16, u64, RegionId)> {
        std::mem::take(&mut self.side.registered.lock().unwrap())
    }

    pub(crate) fn refuse_regions(&self) {
        self.side.refuse.store(true, Ordering::Relaxed);
    }

    /// The engine's end: its socket closes.
    pub(crate) fn die(&mut self) {
        self.side.stop.store(true, Ordering::Relaxed);
        if let Some(agent) = self.agent.take() {
            agent.join().unwrap();
        }
    }

    /// Waits until the client has closed the UAL.
    pub(crate) fn join(mut self) {
        if let Some(agent) = self.agent.take() {
            agent.join().unwrap();
        }
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.die();
        }
    }
}
