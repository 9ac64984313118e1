//! Engine, server and client in one thread, turn by turn: the server sleeps nowhere and needs nothing but its turns.

use sidecore_client::{Event, EventKind, Ual, UalConfig};
use sidecore_engine::{Engine, EngineConfig};
use sidecore_userver::{Config, EngineWorker, Io, ual_config};

const REQUEST: &[u8] = b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn a_request_is_answered_by_turns() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(dir.path().join("f"), &content).unwrap();
    let (mut engine, control) = Engine::new(EngineConfig {
        addresses: vec!["10.9.0.1/24".parse().unwrap()],
        ..EngineConfig::default()
    })
    .unwrap();
    let config = Config::new(dir.path(), "10.9.0.1:80".parse().unwrap(), Io::Sidecore);
    let ual = Ual::open_on(control.connect().unwrap(), &ual_config(&config)).unwrap();
    let turn_engine = |_: &mut _| {
        engine.turn();
        Ok(())
    };
    let mut server = EngineWorker::start(config, &ual, turn_engine).unwrap();

    let ual = Ual::open_on(control.connect().unwrap(), &UalConfig::default()).unwrap();
    let (mut lane, mut evq) = (ual.lane().unwrap(), ual.event_queue().unwrap());
    let region = ual.allocate_region(4096, false).unwrap();
    region.write(0, REQUEST).unwrap();
    let request = region.extent(0, REQUEST.len() as u32).unwrap();
    let dti = lane.create_stream(&evq, &evq).unwrap();
    lane.connect(dti, server.address(), 0).unwrap();

    for round in 1..=5 {
        lane.send(dti, request, 0, 0).unwrap();
        lane.flush();
        let mut answer = Vec::new();
        while answer.len() < content.len() || !answer.ends_with(&content) {
            engine.turn();
            server.turn();
            let Some(event) = evq.poll() else { continue };
            take(&ual, &event, &mut answer);
            lane.return_chunk(&event);
            lane.flush();
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert_eq!(server.counters().requests, round);
    }
    server.stop();
    lane.close(dti, 0).unwrap();
    lane.flush();
    for _ in 0..100_000 {
        engine.turn();
        server.turn();
        if server.has_stopped() {
            break;
        }
    }
    assert!(server.has_stopped());
    let counters = server.counters();
    assert_eq!((counters.accepted, counters.closed), (1, 1));
}

fn take(ual: &Ual, event: &Event, answer: &mut Vec<u8>) {
    match event.kind {
        EventKind::Received => {
            ual.pool().append(event, answer);
        }
        EventKind::Connected => {}
        _ => panic!("{event:?}"),
    }
}
