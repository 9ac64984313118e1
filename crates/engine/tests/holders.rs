//! UDP sockets that several UALs hold: who gets a datagram, and what becomes of those that nobody took. Over the loopback of an engine without
//! a device.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::process::Uid;
use sidecore_abi::command::{Opt, flags, holders};
use sidecore_abi::event::Event;
use sidecore_abi::{Address, Command, EventKind, Operation, Status};
use sidecore_client::{Dti, EventQueue, Lane, Region, Ual, UalConfig};
use sidecore_engine::{Engine, EngineConfig, EngineControlHandle};

const ADDRESS: &str = "10.9.0.1:7000";
const KEY: u64 = 0x1234_5678_9abc;
/// Turns in which everything that was begun comes to its end.
const SETTLE: usize = 200;

struct App {
    ual: Ual,
    lane: Lane,
    evq: EventQueue,
}

struct World {
    engine: Engine,
    control: EngineControlHandle,
    sender: App,
    from: Dti,
}

impl World {
    fn new() -> Self {
        let config = EngineConfig {
            addresses: vec!["10.9.0.1/24".parse().unwrap()],
            seed: Some([7; 32]),
            ..EngineConfig::default()
        };
        let (engine, control) = Engine::new(config).unwrap();
        let mut sender = app(&control);
        let from = sender.create();
        let mut world = Self {
            engine,
            control,
            sender,
            from,
        };
        let connect = Command::new(Operation::Connect, from.handle(), 9);
        let to: SocketAddr = ADDRESS.parse().unwrap();
        let connect = connect.with_address(0, Address::new(to));
        world.sender.lane.post(connect).unwrap();
        world.settle();
        world
    }

    fn settle(&mut self) {
        self.sender.lane.flush();
        for _ in 0..SETTLE {
            self.engine.turn();
        }
    }

    /// One more application, with the socket that has this key.
    fn holder(&mut self, key: u64) -> (App, Dti, Status) {
        let mut app = app(&self.control);
        let dti = app.create();
        let status = self.bind(&mut app, dti, key);
        (app, dti, status)
    }

    fn bind(&mut self, app: &mut App, dti: Dti, key: u64) -> Status {
        self.bind_at(app, dti, ADDRESS, key)
    }

    fn bind_at(&mut self, app: &mut App, dti: Dti, at: &str, key: u64) -> Status {
        let at: SocketAddr = at.parse().unwrap();
        let mut bind = Command::new(Operation::Bind, dti.handle(), 1);
        bind = bind.with_address(0, Address::new(at));
        bind.body[3] = key;
        app.lane.post(bind).unwrap();
        app.lane.flush();
        self.settle();
        let mut answers = app.events(EventKind::Completion);
        answers.pop().unwrap().status
    }

    fn set(&mut self, app: &mut App, dti: Dti, bits: u64) {
        app.lane.set_option(dti, Opt::Holders, bits, 0, 2).unwrap();
        app.lane.flush();
        self.settle();
    }

    /// The socket has this peer from now on, or none.
    fn connect(&mut self, app: &mut App, dti: Dti, peer: Address) -> Status {
        let connect = Command::new(Operation::Connect, dti.handle(), 4).with_address(0, peer);
        app.lane.post(connect).unwrap();
        app.lane.flush();
        self.settle();
        let mut answers = app.events(EventKind::Completion);
        answers.pop().unwrap().status
    }

    fn say(&mut self, numbers: std::ops::Range<u8>) {
        for number in numbers {
            let lane = &mut self.sender.lane;
            lane.send_inline(self.from, &[number], 0, 0).unwrap();
            self.settle();
        }
    }

    fn close(&mut self, app: &mut App, dti: Dti) {
        let close = Command::new(Operation::Close, dti.handle(), 3);
        app.lane.post(close).unwrap();
        app.lane.flush();
        self.settle();
    }

    fn sockets(&mut self) -> usize {
        let control = self.control.clone();
        let asking = std::thread::spawn(move || control.stat_json());
        while !asking.is_finished() {
            self.engine.turn();
        }
        let stat: serde_json::Value =
            serde_json::from_str(&asking.join().unwrap().unwrap()).unwrap();
        stat["sockets"].as_array().unwrap().len()
    }
}

fn app(control: &EngineControlHandle) -> App {
    app_on(control.connect().unwrap(), &UalConfig::default())
}

fn app_on(agent: OwnedFd, config: &UalConfig) -> App {
    let ual = Ual::open_on(agent, config).unwrap();
    App {
        lane: ual.lane().unwrap(),
        evq: ual.event_queue().unwrap(),
        ual,
    }
}

impl App {
    fn create(&mut self) -> Dti {
        self.lane.create_datagram(&self.evq, &self.evq).unwrap()
    }

    /// Memory to send single bytes from: each is its own place's number.
    fn bytes(&self) -> Region {
        let region = self.ual.allocate_region(4096, false).unwrap();
        let all: Vec<u8> = (0..=255).collect();
        region.write(0, &all).unwrap();
        region
    }

    /// Posts a datagram, and no more.
    fn send_to(&mut self, dti: Dti, to: &str, bytes: &Region, byte: u8) {
        let (to, piece) = (to.parse().unwrap(), bytes.extent(byte.into(), 1).unwrap());
        self.lane.send_to(dti, piece, to, 0, 0).unwrap();
    }

    fn events(&mut self, kind: EventKind) -> Vec<Event> {
        let all = std::iter::from_fn(|| self.evq.poll());
        all.filter(|event| event.kind == kind).collect()
    }

    /// What was given to it, and is not given back yet.
    fn given(&mut self) -> Vec<Event> {
        self.events(EventKind::Datagram)
    }

    fn numbers(&self, events: &[Event]) -> Vec<u8> {
        let number = |event: &Event| {
            let mut byte = [0];
            assert_eq!(self.ual.pool().read(event, &mut byte), 1);
            byte[0]
        };
        events.iter().map(number).collect()
    }

    /// Takes all that was given.
    fn take(&mut self) -> Vec<u8> {
        let given = self.given();
        let numbers = self.numbers(&given);
        given.iter().for_each(|event| self.lane.return_chunk(event));
        self.lane.flush();
        numbers
    }
}

#[test]
fn what_comes_waits_for_the_first_that_receives() {
    let mut world = World::new();
    let (mut parent, bound, status) = world.holder(KEY);
    assert_eq!(status, Status::Ok);
    let (mut child, copy, status) = world.holder(KEY);
    assert_eq!(status, Status::Ok);
    world.say(0..5);
    assert!(parent.given().is_empty() && child.given().is_empty());
    world.set(&mut child, copy, holders::RECEIVES);
    world.say(5..8);
    // The only one that receives gets all, as they came.
    assert_eq!(child.take(), (0..8).collect::<Vec<u8>>());
    world.close(&mut parent, bound);
    world.say(8..9);
    assert_eq!(child.take(), [8]);
}

#[test]
fn each_has_one_at_a_time_and_what_one_leaves_goes_to_another() {
    let mut world = World::new();
    let (mut one, first, _) = world.holder(KEY);
    let (mut two, second, _) = world.holder(KEY);
    world.set(&mut one, first, holders::RECEIVES);
    world.set(&mut two, second, holders::RECEIVES);
    world.say(0..6);
    let held = one.given();
    assert_eq!(one.numbers(&held), [0]);
    // The other takes what it is given, and all the rest.
    let mut taken = Vec::new();
    for _ in 0..6 {
        taken.extend(two.take());
        world.settle();
    }
    assert_eq!(taken, [1, 2, 3, 4, 5]);
    // The first ends without having taken its own.
    world.close(&mut one, first);
    assert_eq!(two.take(), [0]);
    world.say(6..9);
    assert_eq!(two.take(), [6, 7, 8]);
}

#[test]
fn a_socket_stays_for_those_who_have_not_opened_it_and_not_against_others() {
    let mut world = World::new();
    let (mut parent, bound, _) = world.holder(KEY);
    world.set(&mut parent, bound, holders::OUTLIVED | holders::RECEIVES);
    world.say(0..2);
    let held = parent.given();
    assert_eq!(parent.numbers(&held), [0, 1]);
    world.close(&mut parent, bound);
    world.say(2..4);
    let (mut child, copy, status) = world.holder(KEY);
    assert_eq!(status, Status::Ok);
    world.set(&mut child, copy, holders::RECEIVES);
    assert_eq!(child.take(), [0, 1, 2, 3]);
    // A stranger does not get in, but gets the port when nobody has it.
    let (mut stranger, other, status) = world.holder(0);
    assert_eq!(status, Status::AddressInUse);
    world.set(&mut child, copy, holders::OUTLIVED);
    world.close(&mut child, copy);
    assert_eq!(world.bind(&mut stranger, other, KEY + 1), Status::Ok);
    world.set(&mut stranger, other, holders::RECEIVES);
    world.say(4..5);
    assert_eq!(stranger.take(), [4], "and nothing of the old one's");
    assert_eq!(world.sockets(), 2);
}

#[test]
fn what_waits_is_bounded_and_keys_are_not_guessed() {
    let mut world = World::new();
    let (mut app, dti, _) = world.holder(KEY);
    for _ in 0..5 {
        world.say(0..255);
    }
    world.set(&mut app, dti, holders::RECEIVES);
    let taken = app.take();
    // As many as Linux's buffer has room for, each with what it costs; and the oldest of all.
    assert_eq!(taken.len(), 212_992 / 257);
    assert_eq!(taken[..3], [0, 1, 2]);
    let (_stranger, _, status) = world.holder(KEY ^ 1);
    assert_eq!(status, Status::AddressInUse);
}

/// A UAL of a user without rights, or `None` where there is none to be had.
fn app_of_nobody(control: &EngineControlHandle) -> Option<App> {
    let control = control.clone();
    // Of this thread alone.
    let agent = std::thread::spawn(move || {
        let nobody = Uid::from_raw(65_534);
        let changed = rustix::process::geteuid().is_root()
            && rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_ok();
        let other = changed || !rustix::process::geteuid().is_root();
        other.then(|| control.connect().unwrap())
    });
    Some(app_on(agent.join().unwrap()?, &UalConfig::default()))
}

#[test]
fn the_key_of_a_udp_socket_of_ones_own_opens_no_port_to_a_stream() {
    let mut world = World::new();
    let Some(mut nobody) = app_of_nobody(&world.control) else {
        println!("skipped: no other user");
        return;
    };
    let own = nobody.create();
    assert_eq!(world.bind(&mut nobody, own, KEY), Status::Ok);
    let (lane, evq) = (&mut nobody.lane, &nobody.evq);
    let stream = lane.create_stream(evq, evq).unwrap();
    for key in [0, KEY, KEY + 1] {
        let status = world.bind_at(&mut nobody, stream, "10.9.0.1:80", key);
        assert_eq!(status, Status::NotPermitted, "{key:x}");
    }
    let other = nobody.create();
    let status = world.bind_at(&mut nobody, other, "10.9.0.1:53", KEY + 1);
    assert_eq!(status, Status::NotPermitted);
    // Who knows the key of one that is there takes no port by it.
    let (_root, _, status) = {
        let mut root = app(&world.control);
        let dti = root.create();
        let status = world.bind_at(&mut root, dti, "10.9.0.1:53", KEY + 1);
        (root, dti, status)
    };
    assert_eq!(status, Status::Ok);
    let status = world.bind_at(&mut nobody, other, "10.9.0.1:53", KEY + 1);
    assert_eq!(status, Status::Ok);
}

#[test]
fn what_one_holder_has_sent_goes_out_though_the_last_closes() {
    let mut world = World::new();
    let (mut one, first, _) = world.holder(KEY);
    let (mut two, second, _) = world.holder(KEY);
    world.set(&mut one, first, holders::RECEIVES);
    world.say(0..1);
    let from = one.given()[0].address(2).get().unwrap().to_string();
    // All in one turn, before anything is sent.
    let bytes = one.bytes();
    for byte in 1..4 {
        one.send_to(first, &from, &bytes, byte);
    }
    for (app, dti) in [(&mut one, first), (&mut two, second)] {
        let close = Command::new(Operation::Close, dti.handle(), 3);
        app.lane.post(close).unwrap();
        app.lane.flush();
    }
    world.settle();
    assert_eq!(world.sender.take(), [1, 2, 3]);
    assert_eq!(world.sockets(), 1, "and then it is closed");
    let (_next, _, status) = world.holder(0);
    assert_eq!(status, Status::Ok);
}

#[test]
fn a_socket_that_is_not_closed_yet_gives_nothing_to_another() {
    let mut world = World::new();
    let (mut one, first, _) = world.holder(KEY);
    // Who that is must be asked for, and nobody answers: so long it is not closed.
    let bytes = one.bytes();
    one.send_to(first, "10.9.0.77:9", &bytes, 1);
    one.lane.flush();
    world.settle();
    world.close(&mut one, first);
    let (mut other, second) = {
        let mut other = app(&world.control);
        let dti = other.create();
        let status = world.bind_at(&mut other, dti, "10.9.0.1:7001", KEY + 1);
        assert_eq!(status, Status::Ok);
        (other, dti)
    };
    world.set(&mut other, second, holders::RECEIVES);
    assert_eq!(world.sockets(), 2, "it waits");
    world.say(0..3);
    assert!(other.given().is_empty(), "that was for 7000");
    // Nor is it had by its key.
    let (_late, _, status) = world.holder(KEY);
    assert_eq!(status, Status::AddressInUse);
}

#[test]
fn a_holder_without_room_keeps_nothing_from_others() {
    let mut world = World::new();
    let small = UalConfig {
        evq_order: 3,
        ..UalConfig::default()
    };
    let mut one = app_on(world.control.connect().unwrap(), &small);
    let first = one.create();
    assert_eq!(world.bind(&mut one, first, KEY), Status::Ok);
    let (mut two, second, _) = world.holder(KEY);
    world.set(&mut one, first, holders::RECEIVES);
    world.set(&mut two, second, holders::RECEIVES);
    // It does not look at its event queue.
    for _ in 0..40 {
        let nop = Command::new(Operation::Nop, first.handle(), 0);
        one.lane.post(nop.with_flags(flags::NOTIFY)).unwrap();
        one.lane.flush();
        world.settle();
    }
    let mut taken = Vec::new();
    for n in 0..6 {
        world.say(n..n + 1);
        taken.extend(two.take());
        world.settle();
    }
    assert_eq!(taken, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn of_what_was_not_taken_so_much_is_kept_as_may_wait() {
    let mut world = World::new();
    let (mut parent, bound, _) = world.holder(KEY);
    world.set(&mut parent, bound, holders::OUTLIVED | holders::RECEIVES);
    for _ in 0..5 {
        world.say(0..255);
    }
    world.close(&mut parent, bound);
    let (mut child, copy, _) = world.holder(KEY);
    world.set(&mut child, copy, holders::RECEIVES);
    let taken = child.take();
    assert_eq!(taken.len(), 212_992 / 257);
    assert_eq!(taken[..3], [0, 1, 2], "the oldest");
}

#[test]
fn sockets_that_nobody_holds_give_way() {
    let mut world = World::new();
    let mut one = app(&world.control);
    // More than the stack has places for.
    for n in 0..1100u16 {
        let dti = one.create();
        let at = format!("10.9.0.1:{}", 8000 + n);
        let status = world.bind_at(&mut one, dti, &at, KEY + u64::from(n));
        assert_eq!(status, Status::Ok, "{n}");
        world.set(&mut one, dti, holders::OUTLIVED);
        world.close(&mut one, dti);
    }
    let (_another, _, status) = world.holder(0);
    assert_eq!(status, Status::Ok);
}

#[test]
fn a_peer_is_all_holders_and_so_is_that_there_is_none_any_more() {
    let mut world = World::new();
    let (mut one, first, _) = world.holder(KEY);
    let (mut two, second, _) = world.holder(KEY);
    let (mut late, stranger) = (
        world.holder(KEY),
        Address::new("10.9.0.1:1".parse().unwrap()),
    );
    world.set(&mut two, second, holders::RECEIVES);
    assert_eq!(world.connect(&mut one, first, stranger), Status::Ok);
    world.say(0..3);
    assert!(two.take().is_empty(), "another peer has sent");
    let nonsense = Address([0, 0, 5 << 16]);
    assert_eq!(world.connect(&mut one, first, nonsense), Status::Invalid);
    world.say(3..4);
    assert!(two.take().is_empty(), "the peer is as before");
    // Any of them may say so.
    let ended = world.connect(&mut late.0, late.1, Address::NONE);
    assert_eq!(ended, Status::Ok);
    world.say(4..6);
    assert_eq!(two.take(), [4, 5]);
    one.lane.send_inline(first, b"nowhere", 0, 6).unwrap();
    one.lane.flush();
    world.settle();
    let refused = one.events(EventKind::Completion);
    assert_eq!(refused[0].status, Status::WrongState);
}
