//! Instructions for 64-byte requests at one end of an engine: everything is real but the peer's distance. A second engine, joined by
//! the wire driver, sends requests; the one that is measured receives each frame, copies its bytes into the receive pool and
//! tells the application; the application reads them, gives the chunk back and posts the answer; the engine reads the command, sends the
//! answer with the acknowledgement in its header, and completes it when the peer acknowledges.
//!
//! Only what runs below [`engine_turn`] (or below [`application_turn`]) is counted: neither the peer nor the set-up. Divide a count by
//! [`REQUESTS`]. `cargo bench -p sidecore-engine --bench request`; it needs valgrind and `gungraun-runner` of the library's version.
#![allow(missing_docs, reason = "the benchmark's macros make public items")]

mod common;

use std::hint::black_box;
use std::net::SocketAddr;

use common::{End, counted};
use gungraun::{library_benchmark, library_benchmark_group, main};
use sidecore_abi::EventKind as Kind;
use sidecore_abi::command::flags;
use sidecore_client::Dti;
use sidecore_nic::{WireConfig, wire};

const SIZE: u32 = 64;

/// Requests of each benchmark: a multiple of all numbers of connections.
const REQUESTS: usize = 8000;

/// Requests before those, so that windows, estimators and pools are where they will be.
const WARM: usize = 960;

/// How the server answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// From its region, and it wants to know when the peer has acknowledged.
    Notified,
    /// From its region.
    Quiet,
    /// Copied by the engine when it reads the command.
    Copied,
}

struct World {
    server: End,
    client: End,
    /// The client's connections.
    dtis: Vec<Dti>,
    answer: Answer,
    /// The server's answers so far.
    answered: usize,
}

fn world(connections: usize, burst: usize, answer: Answer) -> World {
    let address: SocketAddr = "10.9.0.1:7000".parse().unwrap();
    let (a, b) = wire::pair(&WireConfig::default()).unwrap();
    let mut w = World {
        server: End::new(a, "10.9.0.1/24"),
        client: End::new(b, "10.9.0.2/24"),
        dtis: Vec::new(),
        answer,
        answered: 0,
    };
    let server = &mut w.server;
    let listener = server.lane.create_stream(&server.evq, &server.evq).unwrap();
    server.lane.bind(listener, address, 0).unwrap();
    server.lane.listen(listener, 1024, 0).unwrap();
    for _ in 0..connections {
        let (server, client) = (&mut w.server, &mut w.client);
        let child = server.lane.create_stream(&server.evq, &server.evq).unwrap();
        server.lane.accept(listener, child, 0).unwrap();
        let dti = client.lane.create_stream(&client.evq, &client.evq).unwrap();
        client.lane.connect(dti, address, 0).unwrap();
        w.dtis.push(dti);
        let mut open = 0;
        while open < 2 {
            for end in [&mut *server, &mut *client] {
                end.lane.flush();
                end.engine.turn();
                while let Some(event) = end.evq.poll() {
                    open += u32::from(matches!(event.kind, Kind::Connected | Kind::Accepted));
                }
            }
        }
    }
    warm(&mut w, burst);
    // Until the engine looks no more at the lanes that nobody uses.
    for _ in 0..10_000 {
        w.server.engine.turn();
    }
    warm(&mut w, burst);
    w
}

fn warm(w: &mut World, burst: usize) {
    for first in (0..WARM).step_by(burst) {
        send_requests(w, first, burst);
        w.server.engine.turn();
        answer_requests(w);
        w.server.engine.turn();
        take_answers(w, burst);
    }
}

/// The client sends `burst` requests, each on the next connection.
fn send_requests(w: &mut World, first: usize, burst: usize) {
    let client = &mut w.client;
    let extent = client.region.extent(0, SIZE).unwrap();
    for n in first..first + burst {
        let dti = w.dtis[n % w.dtis.len()];
        client.lane.send_copy(dti, extent, 0, 0).unwrap();
    }
    client.lane.flush();
    client.engine.turn();
}

/// The server's application takes what its queue holds and answers.
#[inline(always)]
fn answer_requests(w: &mut World) {
    let server = &mut w.server;
    let mut buffer = [0u8; SIZE as usize];
    while let Some(event) = server.evq.poll() {
        if event.kind != Kind::Received {
            continue;
        }
        server.ual.pool().read(&event, &mut buffer);
        server.lane.return_chunk(&event);
        let (dti, extent) = (Dti::from(event.dti), server.region.extent(0, SIZE).unwrap());
        match w.answer {
            Answer::Notified => server.lane.send(dti, extent, flags::NOTIFY, 0),
            Answer::Quiet => server.lane.send(dti, extent, 0, 0),
            Answer::Copied => server.lane.send_copy(dti, extent, 0, 0),
        }
        .unwrap();
        w.answered += 1;
    }
    black_box(&buffer);
    server.lane.flush();
}

/// The client takes `burst` answers.
fn take_answers(w: &mut World, burst: usize) {
    let client = &mut w.client;
    client.engine.turn();
    let mut taken = 0;
    while let Some(event) = client.evq.poll() {
        assert_eq!((event.kind, event.len()), (Kind::Received, SIZE));
        client.lane.return_chunk(&event);
        taken += 1;
    }
    client.lane.flush();
    assert_eq!(taken, burst, "every request is answered at once");
}

/// What the benchmarks of the engine count.
#[inline(never)]
fn engine_turn(w: &mut World) {
    black_box(w.server.engine.turn());
}

/// What the benchmarks of the application count: the client library and the little that this application does.
#[inline(never)]
fn application_turn(w: &mut World) {
    answer_requests(w);
}

/// All requests: `burst` at a time arrive in one turn, and their answers leave in the next.
fn requests(mut w: World, burst: usize) -> World {
    let begun = w.answered;
    for first in (0..REQUESTS).step_by(burst) {
        send_requests(&mut w, first, burst);
        engine_turn(&mut w);
        application_turn(&mut w);
        engine_turn(&mut w);
        take_answers(&mut w, burst);
    }
    assert_eq!(w.answered - begun, REQUESTS);
    w
}

// One request at a time, on each of the connections in turn: two turns of the engine for each.
#[library_benchmark(config = counted("engine_turn", 5000, REQUESTS))]
#[bench::one(world(1, 1, Answer::Notified))]
#[bench::eight(world(8, 1, Answer::Notified))]
#[bench::sixty_four(world(64, 1, Answer::Notified))]
#[bench::without_notification(world(1, 1, Answer::Quiet))]
#[bench::copied(world(1, 1, Answer::Copied))]
fn request(world: World) -> World {
    black_box(requests(world, 1))
}

// Requests come in bursts, one on each connection: two turns of the engine for all of them.
#[library_benchmark(config = counted("engine_turn", 4000, REQUESTS))]
#[bench::eight(world(8, 8, Answer::Notified), 8)]
#[bench::sixty_four(world(64, 32, Answer::Notified), 32)]
fn burst(world: World, burst: usize) -> World {
    black_box(requests(world, burst))
}

#[library_benchmark(config = counted("application_turn", 450, REQUESTS))]
#[bench::one(world(1, 1, Answer::Notified), 1)]
#[bench::burst(world(64, 32, Answer::Notified), 32)]
fn application(world: World, burst: usize) -> World {
    black_box(requests(world, burst))
}

// Turns that find nothing, with lanes that the engine does not look at any more.
#[library_benchmark(config = counted("engine_turn", 320, REQUESTS))]
#[bench::one(idle_world())]
fn empty_turn(mut world: World) -> World {
    for _ in 0..REQUESTS {
        engine_turn(&mut world);
    }
    world
}

fn idle_world() -> World {
    let mut w = world(1, 1, Answer::Notified);
    for _ in 0..10_000 {
        w.server.engine.turn();
    }
    w
}

library_benchmark_group!(
    name = engine,
    benchmarks = [request, burst, application, empty_turn]
);
main!(library_benchmark_groups = engine);
