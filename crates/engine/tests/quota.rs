//! What waits in an engine for an application counts against its quota, and is given back.

use std::net::{Ipv4Addr, SocketAddr};

use sidecore_abi::{Command, EventKind, Operation};
use sidecore_client::{Dti, EventQueue, Extent, Lane, Opt, Region, Status, Ual, UalConfig, flags};
use sidecore_engine::{Engine, EngineConfig, Policy};

/// Descriptors that one DTI may have.
const QUOTA: u32 = 4;

struct World {
    engine: Engine,
    lane: Lane,
    queue: EventQueue,
    region: Region,
    dti: Dti,
}

impl World {
    /// What the commands were answered with, in turn: cookie and status.
    fn answers(&mut self) -> Vec<(u64, Status)> {
        self.lane.flush();
        for _ in 0..4 {
            self.engine.turn();
        }
        std::iter::from_fn(|| self.queue.poll())
            .filter(|event| event.cookie != 0)
            .map(|event| (event.cookie, event.status))
            .collect()
    }

    fn datagram(&mut self, cookie: u64) {
        let nobody: SocketAddr = (Ipv4Addr::new(10, 9, 0, 1), 9).into();
        let data = Extent {
            region: self.region.id(),
            offset: 0,
            len: 10,
        };
        self.lane
            .send_to(self.dti, data, nobody, flags::NOTIFY, cookie)
            .unwrap();
    }

    fn changes(&mut self, cookies: std::ops::Range<u64>) {
        for cookie in cookies {
            self.lane
                .set_option(self.dti, Opt::HopLimit, 9, flags::NOTIFY, cookie)
                .unwrap();
        }
    }
}

#[test]
fn options_that_wait_behind_datagrams_count_and_are_given_back() {
    let config = EngineConfig {
        addresses: vec!["10.9.0.1/24".parse().unwrap()],
        policy: Policy {
            descriptors_per_dti: QUOTA,
            ..Policy::default()
        },
        ..EngineConfig::default()
    };
    let (mut engine, control) = Engine::new(config).unwrap();
    let ual = Ual::open_on(control.connect().unwrap(), &UalConfig::default()).unwrap();
    let (mut lane, queue) = (ual.lane().unwrap(), ual.event_queue().unwrap());
    engine.turn();
    let region = ual.allocate_region(4096, false).unwrap();
    let dti = lane.create_datagram(&queue, &queue).unwrap();
    lane.bind(dti, (Ipv4Addr::UNSPECIFIED, 0).into(), 1)
        .unwrap();
    let mut world = World {
        engine,
        lane,
        queue,
        region,
        dti,
    };
    assert_eq!(world.answers(), [(1, Status::Ok)]);
    for round in [100, 200] {
        // One datagram and three changes are four; two changes more find no place.
        world.datagram(round);
        world.changes(round + 1..round + 6);
        let answers = world.answers();
        let status = |cookie| answers.iter().find(|it| it.0 == round + cookie).unwrap().1;
        let statuses: Vec<Status> = (1..6).map(status).collect();
        let expected = [
            Status::Ok,
            Status::Ok,
            Status::Ok,
            Status::QueueFull,
            Status::QueueFull,
        ];
        assert_eq!(statuses, expected, "round {round}: {answers:?}");
    }
}

/// Bytes in flight of one connection: as many as may be given away.
const FLIGHT: u32 = 4 << 20;

/// An application whose peers, which are its own, do not read.
struct Giver {
    ual: Ual,
    lane: Lane,
    queue: EventQueue,
    region: Region,
    streams: Vec<Dti>,
}

/// Turns until so many events of this kind came; their statuses.
fn statuses(engine: &mut Engine, giver: &mut Giver, kind: EventKind, count: usize) -> Vec<Status> {
    giver.lane.flush();
    let begun = std::time::Instant::now();
    let mut found = Vec::new();
    while found.len() < count {
        assert!(begun.elapsed().as_secs() < 20, "{found:?}");
        engine.turn();
        while let Some(event) = giver.queue.poll() {
            if event.kind == kind || event.status != Status::Ok {
                found.push(event.status);
            }
        }
    }
    found
}

/// So many connections, each with as much in flight as it may have.
fn giver(engine: &mut Engine, ual: Ual, port: u16, count: usize) -> Giver {
    let (lane, queue) = (ual.lane().unwrap(), ual.event_queue().unwrap());
    let region = ual.allocate_region(FLIGHT.into(), false).unwrap();
    let mut giver = Giver {
        ual,
        lane,
        queue,
        region,
        streams: Vec::new(),
    };
    let at: SocketAddr = (Ipv4Addr::new(10, 9, 0, 1), port).into();
    let queue = giver.queue.id();
    let lane = &mut giver.lane;
    let listener = lane.create_stream(queue, queue).unwrap();
    lane.bind(listener, at, 0).unwrap();
    lane.listen(listener, 64, 0).unwrap();
    statuses(engine, &mut giver, EventKind::Completion, 2);
    for _ in 0..count {
        let lane = &mut giver.lane;
        let stream = lane.create_stream(queue, queue).unwrap();
        lane.connect(stream, at, 0).unwrap();
        statuses(engine, &mut giver, EventKind::Connected, 1);
        let data = Extent {
            region: giver.region.id(),
            offset: 0,
            len: FLIGHT,
        };
        giver.lane.send(stream, data, 0, 0).unwrap();
        giver.streams.push(stream);
    }
    giver
}

/// Gives its connections away; what comes of it, in turn.
fn give(engine: &mut Engine, giver: &mut Giver) -> Vec<Status> {
    let count = giver.streams.len();
    for (number, stream) in giver.streams.iter().enumerate() {
        let mut detach = Command::new(Operation::Detach, stream.handle(), 1);
        detach.body[0] = number as u64 + 1;
        giver.lane.post(detach).unwrap();
    }
    statuses(engine, giver, EventKind::Detached, count)
}

#[test]
fn what_is_copied_when_connections_are_given_away_has_a_limit_for_each_application() {
    /// A quarter of what may be copied in all.
    const SHARE: usize = (64 << 20) / FLIGHT as usize;
    let config = EngineConfig {
        addresses: vec!["10.9.0.1/24".parse().unwrap()],
        ..EngineConfig::default()
    };
    let (mut engine, control) = Engine::new(config).unwrap();
    let open = || Ual::open_on(control.connect().unwrap(), &UalConfig::default()).unwrap();
    let custodian = open();
    let _socket = custodian.custody().unwrap();
    let mut greedy = giver(&mut engine, open(), 1001, SHARE + 2);
    let mut other = giver(&mut engine, open(), 1002, 2);
    let given = give(&mut engine, &mut greedy);
    let good = given.iter().filter(|status| **status == Status::Ok).count();
    assert_eq!(good, SHARE);
    assert_eq!(given[SHARE..], [Status::NoResources; 2]);
    // What is refused stays; others are not concerned.
    assert_eq!(give(&mut engine, &mut other), [Status::Ok; 2]);
    assert!(greedy.ual.id() != other.ual.id());
}
