//! What waits in an engine for an application counts against its quota, and is given back.

use std::net::{Ipv4Addr, SocketAddr};

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
