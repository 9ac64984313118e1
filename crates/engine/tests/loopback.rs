//! Two DTIs of one engine, driven turn by turn in this thread: every path between application and stack without a device.

use std::net::SocketAddr;

use sidecore_abi::command::{flags, shutdown as direction};
use sidecore_abi::event::Event;
use sidecore_abi::{Command, EventKind, Operation, Status};
use sidecore_client::{Dti, EventQueue, Lane, Region, Ual, UalConfig};
use sidecore_engine::{Engine, EngineConfig, EngineControlHandle};

/// An engine without a device, and one application.
struct World {
    engine: Engine,
    control: EngineControlHandle,
    ual: Ual,
    lane: Lane,
    evq: EventQueue,
    region: Region,
}

const ADDRESS: &str = "10.9.0.1:7000";

impl World {
    fn new() -> Self {
        Self::with(&UalConfig::default())
    }

    fn with(ual: &UalConfig) -> Self {
        let config = EngineConfig {
            addresses: vec!["10.9.0.1/24".parse().unwrap()],
            seed: Some([7; 32]),
            ..EngineConfig::default()
        };
        let (engine, control) = Engine::new(config).unwrap();
        let ual = Ual::open_on(control.connect().unwrap(), ual).unwrap();
        let lane = ual.lane().unwrap();
        let evq = ual.event_queue().unwrap();
        let region = ual.allocate_region(8 << 20, false).unwrap();
        Self {
            engine,
            control,
            ual,
            lane,
            evq,
            region,
        }
    }

    /// Turns until an event comes; panics when none does.
    fn event(&mut self) -> Event {
        self.lane.flush();
        let begun = std::time::Instant::now();
        while begun.elapsed().as_secs() < 20 {
            if let Some(event) = self.evq.poll() {
                return event;
            }
            self.engine.turn();
        }
        let asking = self.control.clone();
        let stat = std::thread::spawn(move || asking.stat_json());
        while !stat.is_finished() {
            self.engine.turn();
        }
        panic!("no event came: {:?}", stat.join().unwrap());
    }

    /// As [`Self::event`], and it must be of this kind and go well.
    fn expect(&mut self, kind: EventKind) -> Event {
        let event = self.event();
        assert_eq!((event.kind, event.status), (kind, Status::Ok), "{event:?}");
        event
    }

    /// A connected pair: (client's DTI, server's DTI), and the listener.
    fn pair(&mut self) -> (Dti, Dti, Dti) {
        let address: SocketAddr = ADDRESS.parse().unwrap();
        let listener = self.lane.create_stream(&self.evq, &self.evq).unwrap();
        self.lane.bind(listener, address, 1).unwrap();
        self.expect(EventKind::Completion);
        self.lane.listen(listener, 16, 2).unwrap();
        self.expect(EventKind::Completion);
        let server = self.lane.create_stream(&self.evq, &self.evq).unwrap();
        self.lane.accept(listener, server, 3).unwrap();
        let client = self.lane.create_stream(&self.evq, &self.evq).unwrap();
        self.lane.connect(client, address, 4).unwrap();
        let (a, b) = (self.event(), self.event());
        let connected = [a, b]
            .into_iter()
            .find(|e| e.kind == EventKind::Connected)
            .unwrap();
        let accepted = [a, b]
            .into_iter()
            .find(|e| e.kind == EventKind::Accepted)
            .unwrap();
        assert_eq!((connected.status, connected.cookie), (Status::Ok, 4));
        assert_eq!((accepted.status, accepted.cookie), (Status::Ok, 3));
        assert_eq!(
            accepted.address(0),
            connected.address(0),
            "each sees the client's address"
        );
        (client, server, listener)
    }

    /// The bytes of a Received event, its chunk given back.
    fn bytes(&mut self, event: &Event) -> Vec<u8> {
        let mut out = vec![0; event.len() as usize];
        assert_eq!(self.ual.pool().read(event, &mut out), out.len());
        self.lane.return_chunk(event);
        out
    }
}

#[test]
fn bytes_go_both_ways_and_both_sides_close() {
    let mut w = World::new();
    let (client, server, listener) = w.pair();
    w.lane.send_inline(client, b"ping", 0, 0).unwrap();
    let event = w.expect(EventKind::Received);
    assert_eq!(event.dti, server.handle());
    assert_eq!(w.bytes(&event), b"ping");
    w.region.write(100, b"a longer answer").unwrap();
    let answer = w.region.extent(100, 15).unwrap();
    w.lane
        .send(server, answer, flags::NOTIFY | flags::FIN, 77)
        .unwrap();
    let event = w.expect(EventKind::Received);
    assert_eq!(event.dti, client.handle());
    let end = event.end();
    assert_eq!(w.bytes(&event), b"a longer answer");
    let mut seen = Vec::new();
    w.lane.close(client, 0).unwrap();
    w.lane.close(server, 0).unwrap();
    w.lane.close(listener, 0).unwrap();
    while seen
        .iter()
        .filter(|e: &&Event| e.kind == EventKind::Closed)
        .count()
        < 3
    {
        seen.push(w.event());
    }
    assert!(
        end || seen
            .iter()
            .any(|e| e.kind == EventKind::Received && e.end() && e.is_empty())
    );
    assert!(
        seen.iter()
            .any(|e| e.kind == EventKind::Sent && e.cookie == 77 && e.status == Status::Ok),
        "{seen:?}"
    );
    for _ in 0..1000 {
        w.engine.turn();
    }
    assert_eq!(w.evq.poll(), None);
}

#[test]
fn megabytes_arrive_whole_and_in_order() {
    let mut w = World::new();
    let (client, server, _) = w.pair();
    let data: Vec<u8> = (0..8u32 << 20)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    w.region.write(0, &data).unwrap();
    for part in 0..8u64 {
        let extent = w.region.extent(part << 20, 1 << 20).unwrap();
        w.lane
            .send(
                client,
                extent,
                if part == 7 { flags::NOTIFY } else { 0 },
                part,
            )
            .unwrap();
    }
    let mut received = Vec::new();
    let mut sent = None;
    while received.len() < data.len() || sent.is_none() {
        let event = w.event();
        match event.kind {
            EventKind::Received => {
                assert_eq!(event.dti, server.handle());
                assert_eq!(event.body[2], received.len() as u64);
                received.extend(w.bytes(&event));
            }
            EventKind::Sent => sent = Some(event.cookie),
            _ => panic!("{event:?}"),
        }
    }
    assert!(received == data);
    assert_eq!(sent, Some(7));
}

#[test]
fn what_was_sent_before_the_handshake_survives_a_close() {
    let mut w = World::new();
    let (_, _, listener) = w.pair();
    let (server, client) = (
        w.lane.create_stream(&w.evq, &w.evq).unwrap(),
        w.lane.create_stream(&w.evq, &w.evq).unwrap(),
    );
    w.lane.accept(listener, server, 5).unwrap();
    w.lane.connect(client, ADDRESS.parse().unwrap(), 6).unwrap();
    w.lane.send_inline(client, b"in one go", 0, 0).unwrap();
    w.lane.close(client, 0).unwrap();
    let mut received = Vec::new();
    loop {
        let event = w.event();
        assert_eq!(event.status, Status::Ok, "{event:?}");
        if event.kind == EventKind::Received {
            let end = event.end();
            if !event.is_empty() {
                received.extend(w.bytes(&event));
            }
            if end {
                break;
            }
        }
    }
    assert_eq!(received, b"in one go");
}

#[test]
fn a_shutdown_is_answered_when_the_fin_was_acknowledged() {
    let mut w = World::new();
    let (client, server, _) = w.pair();
    let shutdown = |cookie| {
        let mut command = Command::new(Operation::Shutdown, client.handle(), cookie);
        command.body[0] = direction::WRITE;
        command.with_flags(flags::NOTIFY)
    };
    w.lane.post(shutdown(8)).unwrap();
    w.lane.post(shutdown(9)).unwrap();
    let mut answers = Vec::new();
    let mut ended = false;
    while answers.len() < 2 || !ended {
        let event = w.event();
        match event.kind {
            EventKind::Completion => answers.push((event.cookie, event.status)),
            EventKind::Received => ended = event.dti == server.handle() && event.end(),
            _ => panic!("{event:?}"),
        }
    }
    assert_eq!(answers, [(9, Status::WrongState), (8, Status::Ok)]);
    // The other direction is open still.
    w.lane.send_inline(server, b"late", 0, 0).unwrap();
    let event = w.expect(EventKind::Received);
    assert_eq!(w.bytes(&event), b"late");
}

#[test]
fn sending_nothing_completes() {
    let mut w = World::new();
    let (client, ..) = w.pair();
    let nothing = w.region.extent(0, 0).unwrap();
    w.lane.send(client, nothing, flags::NOTIFY, 4).unwrap();
    assert_eq!(w.expect(EventKind::Sent).cookie, 4);
}

#[test]
fn an_accept_whose_child_has_gone_is_answered() {
    let mut w = World::new();
    let (.., listener) = w.pair();
    let (gone, child, client) = (
        w.lane.create_stream(&w.evq, &w.evq).unwrap(),
        w.lane.create_stream(&w.evq, &w.evq).unwrap(),
        w.lane.create_stream(&w.evq, &w.evq).unwrap(),
    );
    w.lane.accept(listener, gone, 10).unwrap();
    w.lane.accept(listener, child, 11).unwrap();
    w.lane.close(gone, 0).unwrap();
    assert_eq!(w.expect(EventKind::Closed).dti, gone.handle());
    w.lane
        .connect(client, ADDRESS.parse().unwrap(), 12)
        .unwrap();
    let mut accepts = Vec::new();
    while accepts.len() < 2 {
        let event = w.event();
        if event.kind == EventKind::Accepted {
            accepts.push((event.cookie, event.status));
        }
    }
    assert_eq!(accepts, [(10, Status::Cancelled), (11, Status::Ok)]);
}

#[test]
fn a_cancelled_connect_says_so_and_then_closed() {
    let mut w = World::new();
    let dti = w.lane.create_stream(&w.evq, &w.evq).unwrap();
    w.lane
        .connect(dti, "10.9.0.77:1".parse().unwrap(), 5)
        .unwrap();
    w.lane.cancel(dti, 5, 0).unwrap();
    let event = w.event();
    assert_eq!(
        (event.kind, event.status, event.cookie),
        (EventKind::Connected, Status::Cancelled, 5)
    );
    assert_eq!(w.event().kind, EventKind::Closed);
    w.lane.close(dti, 0).unwrap();
    w.lane.flush();
    for _ in 0..100 {
        w.engine.turn();
    }
    assert_eq!(w.evq.poll(), None, "Closed comes once");
}

#[test]
fn connections_that_wait_leave_the_handles_alone() {
    let mut w = World::with(&UalConfig {
        dtis: 8,
        ..UalConfig::default()
    });
    let (client, server, listener) = w.pair();
    w.lane.close(server, 0).unwrap();
    w.lane.close(client, 0).unwrap();
    for _ in 0..2 {
        while w.event().kind != EventKind::Closed {}
    }
    // Seven clients and the listener: all handles are in use, and seven connections wait besides.
    let clients: Vec<Dti> = (0..7)
        .map(|i| {
            let dti = w.lane.create_stream(&w.evq, &w.evq).unwrap();
            w.lane.connect(dti, ADDRESS.parse().unwrap(), i).unwrap();
            dti
        })
        .collect();
    let mut connected = 0;
    while connected < 7 {
        let event = w.event();
        assert_eq!(event.status, Status::Ok, "{event:?}");
        connected += u32::from(event.kind == EventKind::Connected);
    }
    w.lane.abort(clients[0], 0).unwrap();
    while w.event().kind != EventKind::Closed {}
    let child = w.lane.create_stream(&w.evq, &w.evq).unwrap();
    w.lane.accept(listener, child, 99).unwrap();
    let event = w.expect(EventKind::Accepted);
    assert_eq!((event.cookie, event.dti), (99, child.handle()));
}
