//! Connections that no program took go on to other copies of their listener: turn by turn, over the loopback of an engine without a device.

use std::net::SocketAddr;

use sidecore_abi::command::Opt;
use sidecore_abi::event::Event;
use sidecore_abi::{Command, DtiHandle, EventKind, Operation, Status};
use sidecore_client::{Dti, EventQueue, Lane, Ual, UalConfig};
use sidecore_engine::{Engine, EngineConfig, EngineControlHandle};

const ADDRESS: &str = "10.9.0.1:7000";
const KEY: u64 = 1;
/// Turns in which everything that was begun comes to its end.
const SETTLE: usize = 200;

/// One application.
struct App {
    ual: Ual,
    lane: Lane,
    evq: EventQueue,
    /// What came and was not asked for yet.
    events: Vec<Event>,
}

struct World {
    engine: Engine,
    control: EngineControlHandle,
    clients: App,
}

impl World {
    fn new() -> Self {
        let config = EngineConfig {
            addresses: vec!["10.9.0.1/24".parse().unwrap()],
            seed: Some([7; 32]),
            ..EngineConfig::default()
        };
        let (engine, control) = Engine::new(config).unwrap();
        let clients = app(&control, 256);
        Self {
            engine,
            control,
            clients,
        }
    }

    fn app(&self, dtis: u32) -> App {
        app(&self.control, dtis)
    }

    fn settle(&mut self) {
        self.clients.lane.flush();
        for _ in 0..SETTLE {
            self.engine.turn();
        }
    }

    /// A listener of this application's, a copy of those with the same number.
    fn listen(&mut self, app: &mut App, backlog: u64, copies: u64) -> Dti {
        let at: SocketAddr = ADDRESS.parse().unwrap();
        let listener = app.lane.create_stream(&app.evq, &app.evq).unwrap();
        app.lane.bind(listener, at, 1).unwrap();
        let mut listen = Command::new(Operation::Listen, listener.handle(), 2);
        listen.body = [backlog, KEY, 0, copies, 0];
        app.lane.post(listen).unwrap();
        app.lane.flush();
        self.settle();
        let answers = app.take(EventKind::Completion);
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(|event| event.status == Status::Ok));
        listener
    }

    /// Clients that connect and say their number, one after the other.
    fn connect(&mut self, numbers: std::ops::Range<u8>) -> Vec<Dti> {
        let at: SocketAddr = ADDRESS.parse().unwrap();
        let mut clients = Vec::new();
        for number in numbers {
            let app = &mut self.clients;
            let client = app.lane.create_stream(&app.evq, &app.evq).unwrap();
            app.lane.connect(client, at, 3).unwrap();
            self.settle();
            let connected = self.clients.take(EventKind::Connected);
            assert_eq!(connected.len(), 1);
            assert_eq!(connected[0].status, Status::Ok);
            let said = [number; 3];
            self.clients.lane.send_inline(client, &said, 0, 0).unwrap();
            self.settle();
            clients.push(client);
        }
        clients
    }

    /// What became of these clients: how many were reset.
    fn resets(&mut self, clients: &[Dti]) -> usize {
        self.settle();
        let closed = self.clients.take(EventKind::Closed);
        let reset = |event: &&Event| event.status == Status::ConnectionReset;
        let ours = |event: &&Event| clients.iter().any(|client| client.handle() == event.dti);
        closed.iter().filter(ours).filter(reset).count()
    }

    /// The application ends as one that is killed.
    fn kill(&mut self, app: App) {
        let before = self.uals();
        drop(app);
        let begun = std::time::Instant::now();
        while self.uals() == before {
            assert!(begun.elapsed().as_secs() < 20, "it is not over");
        }
        self.settle();
    }

    fn stat(&mut self) -> serde_json::Value {
        let control = self.control.clone();
        let asking = std::thread::spawn(move || control.stat_json());
        while !asking.is_finished() {
            self.engine.turn();
        }
        serde_json::from_str(&asking.join().unwrap().unwrap()).unwrap()
    }

    fn uals(&mut self) -> usize {
        self.stat()["uals"].as_array().unwrap().len()
    }
}

fn app(control: &EngineControlHandle, dtis: u32) -> App {
    let wishes = UalConfig {
        dtis,
        ..UalConfig::default()
    };
    let ual = Ual::open_on(control.connect().unwrap(), &wishes).unwrap();
    App {
        lane: ual.lane().unwrap(),
        evq: ual.event_queue().unwrap(),
        ual,
        events: Vec::new(),
    }
}

impl App {
    /// The events of a kind that have come, in order.
    fn take(&mut self, kind: EventKind) -> Vec<Event> {
        while let Some(event) = self.evq.poll() {
            self.events.push(event);
        }
        let (these, rest) = self.events.drain(..).partition(|event| event.kind == kind);
        self.events = rest;
        these
    }

    /// Posts accepts, each with a child.
    fn accept(&mut self, listener: Dti, count: usize) -> Vec<Dti> {
        let children = (0..count)
            .map(|_| {
                let child = self.lane.create_stream(&self.evq, &self.evq).unwrap();
                self.lane.accept(listener, child, 4).unwrap();
                child
            })
            .collect();
        self.lane.flush();
        children
    }

    /// What the connections that were accepted have said, in the order of their acceptance.
    fn heard(&mut self) -> Vec<u8> {
        let accepted = self.take(EventKind::Accepted);
        let accepted = accepted.iter().filter(|event| event.status == Status::Ok);
        let accepted: Vec<DtiHandle> = accepted.map(|event| event.dti).collect();
        let received = self.take(EventKind::Received);
        let mut heard = Vec::new();
        for dti in accepted {
            let mut bytes = Vec::new();
            for event in received.iter().filter(|event| event.dti == dti) {
                assert_eq!(event.body[3], bytes.len() as u64, "its place in the stream");
                let mut out = vec![0; event.len() as usize];
                assert_eq!(self.ual.pool().read(event, &mut out), out.len());
                self.lane.return_chunk(event);
                bytes.extend(out);
            }
            assert_eq!(bytes, [bytes[0]; 3], "all that it said, once");
            heard.push(bytes[0]);
        }
        self.lane.flush();
        heard
    }

    fn close(&mut self, dti: Dti, untaken: bool) {
        let mut close = Command::new(Operation::Close, dti.handle(), 5);
        close.body[1] = untaken.into();
        self.lane.post(close).unwrap();
        self.lane.flush();
    }
}

/// A copy that takes nothing for now, as one whose process has not come to it yet; and one that has five connections, of which it took the first,
/// was given three more, and has one waiting.
fn five_at_one_copy(world: &mut World) -> (App, Dti, App, Dti, Vec<Dti>, Vec<Dti>) {
    let (mut first, mut other) = (world.app(64), world.app(64));
    let ours = world.listen(&mut first, 16, 7);
    let theirs = world.listen(&mut other, 16, 7);
    let children = first.accept(ours, 4);
    let clients = world.connect(0..5);
    let taken = Command::new(Operation::SetOption, children[0].handle(), 0);
    let mut taken = taken;
    [taken.body[0], taken.body[1]] = [Opt::Descriptor as u64, 99];
    first.lane.post(taken).unwrap();
    first.lane.flush();
    world.settle();
    (first, ours, other, theirs, children, clients)
}

#[test]
fn what_nobody_took_goes_on_when_its_listener_closes() {
    let mut world = World::new();
    let (mut first, ours, mut other, theirs, children, clients) = five_at_one_copy(&mut world);
    assert_eq!(first.heard(), [0, 1, 2, 3]);
    for child in &children[1..] {
        first.close(*child, true);
    }
    first.close(ours, false);
    world.settle();
    let closed = first.take(EventKind::Closed);
    assert_eq!(closed.len(), 4, "three children and the listener");
    assert!(closed.iter().all(|event| event.status == Status::Ok));
    other.accept(theirs, 6);
    world.settle();
    assert_eq!(
        other.heard(),
        [1, 2, 3, 4],
        "in the order in which they came"
    );
    assert_eq!(world.resets(&clients), 0);
    // The one that was taken goes on where it is.
    world
        .clients
        .lane
        .send_inline(clients[0], b"more", 0, 0)
        .unwrap();
    let begun = std::time::Instant::now();
    while first.take(EventKind::Received).is_empty() {
        assert!(begun.elapsed().as_secs() < 20, "nothing comes");
        world.settle();
    }
    assert_eq!(world.stat()["tables"]["gone_on"], 4);
}

#[test]
fn what_a_dead_program_had_not_taken_goes_on() {
    let mut world = World::new();
    let (first, _, mut other, theirs, _, clients) = five_at_one_copy(&mut world);
    other.accept(theirs, 2);
    world.settle();
    assert_eq!(other.heard(), [4], "it is asked first, now that it accepts");
    world.kill(first);
    assert_eq!(other.heard(), [1]);
    // New connections stand behind those that were there.
    let late = world.connect(5..6);
    other.accept(theirs, 4);
    world.settle();
    assert_eq!(other.heard(), [2, 3, 5]);
    assert_eq!(world.resets(&clients[1..]) + world.resets(&late), 0);
    let stat = world.stat();
    assert_eq!(stat["dtis"], 6 + 6 + 1, "clients, children, a listener");
}

#[test]
fn nobody_left_and_sockets_that_only_share_the_address_mean_a_reset() {
    let mut world = World::new();
    let (mut alone, mut stranger) = (world.app(64), world.app(64));
    let ours = world.listen(&mut alone, 16, 7);
    let children = alone.accept(ours, 1);
    let clients = world.connect(0..2);
    let _theirs = world.listen(&mut stranger, 16, 8);
    alone.close(children[0], true);
    alone.close(ours, false);
    assert_eq!(world.resets(&clients), 2);
    assert_eq!(world.stat()["tables"]["gone_on"], 0);
    assert!(stranger.take(EventKind::Incoming).is_empty());
}

#[test]
fn a_longer_line_than_the_backlog_is_kept_and_the_limit_of_the_application_is_not_passed() {
    let mut world = World::new();
    let (mut first, mut other) = (world.app(64), world.app(4));
    let ours = world.listen(&mut first, 16, 7);
    let theirs = world.listen(&mut other, 1, 7);
    let children = first.accept(ours, 6);
    let clients = world.connect(0..6);
    drop(children);
    world.kill(first);
    assert_eq!(world.resets(&clients), 2, "it may have four in its line");
    other.accept(theirs, 2);
    world.settle();
    assert_eq!(other.heard(), [0, 1]);
}

#[test]
fn whoever_accepts_takes_the_oldest_wherever_it_waits() {
    let mut world = World::new();
    let (mut first, mut other) = (world.app(64), world.app(64));
    // A master that never accepts is the first; its workers are gone for now.
    let _ours = world.listen(&mut first, 16, 7);
    let mut worker = world.app(64);
    let listener = world.listen(&mut worker, 16, 7);
    worker.accept(listener, 1);
    world.settle();
    world.kill(worker);
    let clients = world.connect(0..3);
    let theirs = world.listen(&mut other, 16, 7);
    other.accept(theirs, 2);
    world.settle();
    assert_eq!(other.heard(), [0, 1]);
    other.accept(theirs, 2);
    world.settle();
    assert_eq!(other.heard(), [2]);
    assert_eq!(world.resets(&clients), 0);
}

#[test]
fn a_connection_that_was_used_is_not_somebody_elses() {
    let mut world = World::new();
    let (mut first, mut other) = (world.app(64), world.app(64));
    let ours = world.listen(&mut first, 16, 7);
    let theirs = world.listen(&mut other, 16, 7);
    let children = first.accept(ours, 3);
    let clients = world.connect(0..3);
    // It has answered, ended its side, or closed once: whatever it says now, nobody else gets it.
    first.lane.send_inline(children[0], b"hello", 0, 0).unwrap();
    let mut shutdown = Command::new(Operation::Shutdown, children[1].handle(), 0);
    shutdown.body[0] = 1;
    first.lane.post(shutdown).unwrap();
    first.close(children[2], false);
    for child in &children {
        first.close(*child, true);
    }
    world.settle();
    other.accept(theirs, 3);
    world.settle();
    assert!(other.take(EventKind::Accepted).is_empty());
    assert_eq!(world.resets(&clients), 3);
    assert_eq!(world.stat()["tables"]["gone_on"], 0);
}
