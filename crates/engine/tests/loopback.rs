//! Two DTIs of one engine, driven turn by turn in this thread: every path between application and stack without a device.

use std::net::SocketAddr;

use sidecore_abi::command::flags;
use sidecore_abi::event::Event;
use sidecore_abi::{EventKind, Status};
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
        let config = EngineConfig {
            addresses: vec!["10.9.0.1/24".parse().unwrap()],
            seed: Some([7; 32]),
            ..EngineConfig::default()
        };
        let (engine, control) = Engine::new(config).unwrap();
        let ual = Ual::open_on(control.connect().unwrap(), &UalConfig::default()).unwrap();
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
