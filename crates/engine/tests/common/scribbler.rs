//! An application that writes what bytes say into the memory that it shares with the engine: entries of its own, and anything anywhere.
//! Whatever it writes, the engine goes on, and serves its neighbour.
//!
//! Used with random bytes by `tests/scribbler.rs`, and with a fuzzer's by the fuzz target `engine_memory`.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use sidecore_abi::agent::{MESSAGE_BYTES, Reply, Request, RequestKind};
use sidecore_abi::control::{Geometry, READER_TAKEN};
use sidecore_abi::{Entry, EventKind, LINE, Status};
use sidecore_client::{EventQueue, Lane, Ual, UalConfig};
use sidecore_engine::{Engine, EngineConfig, EngineControlHandle, Turn};
use sidecore_sys::memfd::Memfd;
use sidecore_sys::unix::Stream;

const ADDRESS: [u8; 4] = [10, 9, 0, 1];
const DTIS: u32 = 8;
const LANE_ORDER: u32 = 5;
const REGION: u64 = 1 << 16;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.u8()))
    }
}

/// An engine, its well-behaved application, and whoever comes to scribble.
pub(crate) struct World {
    engine: Engine,
    control: EngineControlHandle,
    neighbour: Neighbour,
    /// Entries of scribblers that the engine says it has read.
    pub(crate) commands: u64,
}

struct Neighbour {
    lane: Lane,
    evq: EventQueue,
    _ual: Ual,
    asked: u64,
}

/// What a scribbler holds.
struct Scribbler {
    session: Stream,
    geometry: Geometry,
    control: std::fs::File,
    pool: std::fs::File,
    region: Option<std::fs::File>,
    /// Entries that it has written to its lane.
    posted: u64,
}

impl Default for World {
    fn default() -> Self {
        let config = EngineConfig {
            addresses: vec!["10.9.0.1/24".parse().expect("an address")],
            seed: Some([7; 32]),
            ..EngineConfig::default()
        };
        let (engine, control) = Engine::new(config).expect("an engine");
        let socket = control.connect().expect("a session");
        let ual = Ual::open_on(socket, &UalConfig::default()).expect("a UAL");
        let neighbour = Neighbour {
            lane: ual.lane().expect("a lane"),
            evq: ual.event_queue().expect("a queue"),
            _ual: ual,
            asked: 0,
        };
        Self {
            engine,
            control,
            neighbour,
            commands: 0,
        }
    }
}

impl World {
    /// A new application comes, writes what the bytes say, and goes.
    pub(crate) fn run(&mut self, bytes: &[u8]) {
        let mut bytes = Bytes(bytes);
        let mut scribbler = Scribbler::open(&self.control);
        while !bytes.0.is_empty() {
            scribbler.step(&mut bytes);
            if bytes.u8() & 3 == 0 {
                self.turn();
            }
        }
        for _ in 0..20 {
            self.turn();
        }
        self.neighbour_is_served();
        self.commands += scribbler.taken();
        drop(scribbler);
        self.neighbour_is_served();
    }

    fn turn(&mut self) {
        assert_ne!(self.engine.turn(), Turn::Stopped);
    }

    fn neighbour_is_served(&mut self) {
        let neighbour = &mut self.neighbour;
        neighbour.asked += 1;
        let asked = neighbour.lane.nop(&neighbour.evq, neighbour.asked);
        asked.expect("room for a command");
        neighbour.lane.flush();
        for _ in 0..100_000 {
            self.engine.turn();
            if let Some(event) = self.neighbour.evq.poll() {
                let expected = (EventKind::Completion, Status::Ok, self.neighbour.asked);
                assert_eq!((event.kind, event.status, event.cookie), expected);
                return;
            }
        }
        panic!("the neighbour is not served any more");
    }
}

impl Scribbler {
    fn open(control: &EngineControlHandle) -> Self {
        let session = Stream::from(control.connect().expect("a session"));
        let open = Request {
            geometry: Geometry {
                engines: 1,
                lanes: 2,
                lane_order: LANE_ORDER,
                evqs: 2,
                evq_order: LANE_ORDER,
                wait_cells: 2,
            },
            dtis: DTIS,
            pool_bytes: 1 << 20,
            ..Request::new(RequestKind::OpenUal)
        };
        let (reply, fds) = ask(&session, &open, None).expect("an answer");
        assert_eq!(reply.status, Status::Ok as u16);
        let mut fds = fds.into_iter().map(std::fs::File::from);
        let (control, pool) = (fds.next(), fds.next());
        Self {
            session,
            geometry: reply.geometry,
            control: control.expect("control memory"),
            pool: pool.expect("a pool"),
            region: None,
            posted: 0,
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() {
            0..=159 => self.post_likely(bytes),
            160..=189 => {
                let words = std::array::from_fn(|_| bytes.u64());
                self.post(Entry(words));
            }
            190..=219 => self.scribble(bytes),
            220..=229 => self.register(),
            230..=239 => self.punch(bytes),
            // Events are taken, or said to be.
            240..=249 => {
                let line = self.geometry.evq(u32::from(bytes.u8() & 1), 0);
                self.write(line, &u32::from(bytes.u8()).to_le_bytes());
            }
            _ => self.scribble_pool(bytes),
        }
    }

    /// An entry that may mean something: an operation that there is, handles, regions and extents near those that there are.
    fn post_likely(&mut self, bytes: &mut Bytes<'_>) {
        let operation = bytes.u8() % 18;
        let flags = bytes.u8();
        let dti = u64::from(bytes.u8() % (DTIS as u8 + 1)) | u64::from(bytes.u8() & 3) << 32;
        let mut words = [0; 7];
        words[0] = dti;
        words[1] = u64::from(bytes.u8());
        for word in &mut words[2..] {
            let value = u64::from(bytes.u8());
            *word = match bytes.u8() % 8 {
                0 => value,
                1 => value << 32,
                2 => value << 8,
                3 => REGION - value,
                4 => u64::from(u32::from_le_bytes(ADDRESS)) | value << 32,
                5 => value | value << 16,
                6 => u64::MAX - value,
                _ => bytes.u64(),
            };
        }
        self.post(Entry::new(operation, flags, 0xffff, words));
    }

    /// Publishes an entry at the right place of the first lane, with the right mark.
    fn post(&mut self, entry: Entry) {
        let slots = 1 << LANE_ORDER;
        let mark = sidecore_abi::entry::mark_at(self.posted, LANE_ORDER);
        let at = self.geometry.lane(0, 0) + LINE * (1 + (self.posted % slots) as usize);
        self.posted += 1;
        let line: Vec<u8> = entry.with_mark(mark).0.map(u64::to_le_bytes).concat();
        self.write(at, &line);
    }

    /// How many entries the engine says it has read, unless that line was scribbled at.
    fn taken(&self) -> u64 {
        let mut taken = [0; 4];
        let at = self.geometry.lane(0, 0) + READER_TAKEN;
        let read = self.control.read_exact_at(&mut taken, at as u64);
        read.expect("the control memory may be read");
        u32::from_le_bytes(taken).min(1000).into()
    }

    /// A word anywhere in the control memory, lines of the engine's own included.
    fn scribble(&mut self, bytes: &mut Bytes<'_>) {
        let at = bytes.u64() as usize % self.geometry.size();
        let value = bytes.u64();
        self.write(at / 4 * 4, &value.to_le_bytes()[..4]);
    }

    fn scribble_pool(&mut self, bytes: &mut Bytes<'_>) {
        // It is sealed against that.
        let written = self.pool.write_at(&[1], bytes.u64() & 0xfffff);
        assert!(written.is_err(), "the receive pool is the engine's");
    }

    fn register(&mut self) {
        let memfd = Memfd::create("scribbler", REGION, false).expect("memory");
        memfd.seal_size().expect("sealed");
        let request = Request {
            args: [0, u64::MAX, 0],
            ..Request::new(RequestKind::RegisterRegion)
        };
        if ask(&self.session, &request, Some(&memfd)).is_none() {
            return;
        }
        self.region = Some(std::fs::File::from(memfd.into_fd()));
    }

    /// Takes pages out of a region that it has registered.
    fn punch(&mut self, bytes: &mut Bytes<'_>) {
        if let Some(region) = &self.region {
            let at = u64::from(bytes.u8()) << 8;
            let mode =
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(region, mode, at, 4096).expect("a hole");
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let written = self.control.write_at(bytes, at as u64);
        written.expect("the control memory may be written");
    }
}

/// What the agent answers. Nothing, if it has ended the session: memory that was taken away condemns its application.
fn ask(
    session: &Stream,
    request: &Request,
    memory: Option<&Memfd>,
) -> Option<(Reply, Vec<OwnedFd>)> {
    let fds: Vec<_> = memory.iter().map(|memfd| memfd.as_fd()).collect();
    session.send_with_fds(&request.to_bytes(), &fds).ok()?;
    let mut answer = [0; MESSAGE_BYTES];
    let (n, fds) = session.recv_with_fds(&mut answer).ok()?;
    Some((Reply::from_bytes(&answer[..n]).ok()?, fds))
}
