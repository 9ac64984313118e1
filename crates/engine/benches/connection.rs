//! Instructions for short connections at one end of an engine: everything is real but the peer's distance. The client connects, sends a
//! request of 14 bytes, gets 7 back, and closes; then the server closes, too. The two engines are joined by the wire driver.
//!
//! Only what runs below the functions that the benchmarks name is counted: the server's engine (or the client's) in all its turns, or what the
//! server's application does. Divide a count by [`CONNECTIONS`]. `cargo bench -p sidecore-engine --bench connection`; it needs
//! valgrind and `gungraun-runner` of the library's version.
#![allow(missing_docs, reason = "the benchmark's macros make public items")]

mod common;

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use common::{End, counted};
use gungraun::{library_benchmark, library_benchmark_group, main};
use sidecore_abi::EventKind as Kind;
use sidecore_client::{Dti, Opt, RawSocket, Share, Sockets, SocketsConfig};
use sidecore_engine::Engine;
use sidecore_nic::{WireConfig, wire};

const REQUEST: u32 = 14;
const ANSWER: u32 = 7;

/// Connections of each benchmark: a multiple of all numbers at a time.
const CONNECTIONS: usize = 2048;

/// Connections before those, so that tables have grown, estimators have settled, and what waits in TIME-WAIT gives way to the next.
const WARM: usize = 1280;

/// Accepts that wait at the listener, as the client library has them.
const ACCEPTS: usize = 64;

/// Turns in which everything is done that one step of an exchange asks for.
const TURNS: usize = 20;

/// Options that the server sets on each connection, as redis does: no delay, keepalive and its three figures.
const OPTIONS: [(Opt, u64); 5] = [
    (Opt::NoDelay, 1),
    (Opt::Keepalive, 1),
    (Opt::KeepaliveIdle, 300_000_000),
    (Opt::KeepaliveInterval, 100_000_000),
    (Opt::KeepaliveProbes, 3),
];

/// What the server's application is.
enum Server {
    /// One of the native API, with or without options for each connection.
    Native { listener: Dti, options: bool },
    /// Sockets of a group: accept, watch, set options, read, write, close.
    Group(Group),
}

struct Group {
    _sockets: Sockets,
    listener: RawSocket,
    waker: Waker,
    /// Accepted and not closed, with the number of its watch.
    open: Vec<(RawSocket, u64)>,
}

struct World {
    server: End,
    client: End,
    application: Server,
    /// The client's connections that are under way.
    dtis: Vec<Dti>,
    /// Of the server.
    closed: usize,
    /// Whether what happens is counted: not while all is set up.
    counted: bool,
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

fn address() -> SocketAddr {
    "10.9.0.1:7000".parse().unwrap()
}

fn ends() -> (End, End) {
    let (a, b) = wire::pair(&WireConfig::default()).unwrap();
    (End::new(a, "10.9.0.1/24"), End::new(b, "10.9.0.2/24"))
}

fn warmed(mut w: World, at_a_time: usize) -> World {
    for _ in 0..WARM / at_a_time {
        exchange(&mut w, at_a_time);
    }
    // Until the engines look no more at the lanes that nobody uses.
    for _ in 0..10_000 {
        w.server.engine.turn();
        w.client.engine.turn();
    }
    exchange(&mut w, at_a_time);
    (w.closed, w.counted) = (0, true);
    w
}

fn native(at_a_time: usize, options: bool) -> World {
    let (mut server, client) = ends();
    let listener = server.lane.create_stream(&server.evq, &server.evq).unwrap();
    server.lane.bind(listener, address(), 0).unwrap();
    server.lane.listen(listener, 1024, 0).unwrap();
    for _ in 0..ACCEPTS {
        post_accept(&mut server, listener);
    }
    let w = World {
        server,
        client,
        application: Server::Native { listener, options },
        dtis: Vec::new(),
        closed: 0,
        counted: false,
    };
    warmed(w, at_a_time)
}

fn group(at_a_time: usize) -> World {
    let (mut server, client) = ends();
    let sockets = Sockets::new(&server.ual, SocketsConfig::default()).unwrap();
    // Listening waits for the engine's answer.
    let listens = AtomicBool::new(false);
    let listener = std::thread::scope(|scope| {
        let engine = &mut server.engine;
        scope.spawn(|| {
            while !listens.load(Ordering::Acquire) {
                engine.turn();
            }
        });
        let listener = RawSocket::listen(&sockets, address(), &[], 1024, Share::default()).unwrap();
        listens.store(true, Ordering::Release);
        listener
    });
    let waker = Waker::from(Arc::new(Nobody));
    listener.watch(waker.clone());
    let w = World {
        server,
        client,
        application: Server::Group(Group {
            _sockets: sockets,
            listener,
            waker,
            open: Vec::new(),
        }),
        dtis: Vec::new(),
        closed: 0,
        counted: false,
    };
    warmed(w, at_a_time)
}

#[inline(always)]
fn post_accept(server: &mut End, listener: Dti) {
    let child = server.lane.create_stream(&server.evq, &server.evq).unwrap();
    server.lane.accept(listener, child, 0).unwrap();
}

fn serve(w: &mut World) {
    if w.counted {
        server_turn(&mut w.server.engine);
    } else {
        w.server.engine.turn();
    }
}

fn drive_client(w: &mut World) {
    if w.counted {
        client_turn(&mut w.client.engine);
    } else {
        w.client.engine.turn();
    }
}

fn apply(w: &mut World) {
    let World {
        server,
        application,
        ..
    } = w;
    w.closed += if w.counted {
        application_turn(server, application)
    } else {
        act(server, application)
    };
}

/// What the benchmarks of the accepting side count.
#[inline(never)]
fn server_turn(engine: &mut Engine) {
    // Something of its own: the linker would make one function of the two.
    black_box((0, engine.turn()));
}

/// What the benchmarks of the connecting side count.
#[inline(never)]
fn client_turn(engine: &mut Engine) {
    black_box((1, engine.turn()));
}

/// What the benchmarks of the server's application count: the client library, and the little that this application does.
#[inline(never)]
fn application_turn(server: &mut End, application: &mut Server) -> usize {
    act(server, application)
}

#[inline(always)]
fn act(server: &mut End, application: &mut Server) -> usize {
    match application {
        Server::Native { listener, options } => serve_natively(server, *listener, *options),
        Server::Group(group) => serve_by_sockets(group),
    }
}

/// Takes what the queue holds, and does what is to be done; how many connections it closed.
fn serve_natively(server: &mut End, listener: Dti, options: bool) -> usize {
    let mut buffer = [0u8; REQUEST as usize];
    let mut closed = 0;
    while let Some(event) = server.evq.poll() {
        let dti = Dti::from(event.dti);
        match event.kind {
            Kind::Accepted => {
                if options {
                    for (option, value) in OPTIONS {
                        server.lane.set_option(dti, option, value, 0, 0).unwrap();
                    }
                }
                post_accept(server, listener);
            }
            Kind::Received if !event.is_empty() => {
                server.ual.pool().read(&event, &mut buffer);
                server.lane.return_chunk(&event);
                let extent = server.region.extent(0, ANSWER).unwrap();
                server.lane.send_copy(dti, extent, 0, 0).unwrap();
            }
            Kind::Received => {
                server.lane.close(dti, 0).unwrap();
                closed += 1;
            }
            _ => {}
        }
    }
    black_box(&buffer);
    server.lane.flush();
    closed
}

fn serve_by_sockets(group: &mut Group) -> usize {
    let mut buffer = [0u8; 64];
    let mut closed = 0;
    group.listener.turn();
    while let Ok((socket, _)) = group.listener.accept() {
        for (option, value) in OPTIONS {
            socket.set_option(option, value);
        }
        let number = socket.watch(group.waker.clone());
        group.open.push((socket, number));
    }
    group.open.retain(|(socket, number)| {
        if !socket.ready().read {
            return true;
        }
        let into = &mut [std::io::IoSliceMut::new(&mut buffer)];
        let read = socket.read(into, false).unwrap();
        if read > 0 {
            let answer = [std::io::IoSlice::new(&[0; ANSWER as usize])];
            assert_eq!(socket.write(&answer, 0).unwrap(), ANSWER as usize);
        } else {
            socket.unwatch(*number);
            closed += 1;
        }
        read > 0
    });
    closed
}

/// Turns until the client has got as many events of this kind.
fn expect(w: &mut World, kind: Kind, len: u32, count: usize) {
    let mut taken = 0;
    for _ in 0..TURNS {
        drive_client(w);
        let client = &mut w.client;
        while let Some(event) = client.evq.poll() {
            if event.kind == kind {
                assert_eq!((event.status as u16, event.len()), (0, len));
                taken += 1;
            }
            if event.kind == Kind::Received && !event.is_empty() {
                client.lane.return_chunk(&event);
            }
        }
        client.lane.flush();
        if taken == count {
            return;
        }
        // Commands are read up to a budget.
        serve(w);
        apply(w);
        serve(w);
    }
    panic!("{taken} of {count} {kind:?}");
}

/// So many connections at a time, from their SYN to their end.
fn exchange(w: &mut World, count: usize) {
    let client = &mut w.client;
    for _ in 0..count {
        let dti = client.lane.create_stream(&client.evq, &client.evq).unwrap();
        client.lane.connect(dti, address(), 0).unwrap();
        w.dtis.push(dti);
    }
    client.lane.flush();
    drive_client(w);
    serve(w);
    expect(w, Kind::Connected, 0, count);
    serve(w);
    apply(w);
    let client = &mut w.client;
    let extent = client.region.extent(0, REQUEST).unwrap();
    for dti in &w.dtis {
        client.lane.send_copy(*dti, extent, 0, 0).unwrap();
    }
    client.lane.flush();
    drive_client(w);
    serve(w);
    apply(w);
    serve(w);
    expect(w, Kind::Received, ANSWER, count);
    let client = &mut w.client;
    for dti in w.dtis.drain(..) {
        client.lane.close(dti, 0).unwrap();
    }
    client.lane.flush();
    drive_client(w);
    serve(w);
    apply(w);
    serve(w);
    expect(w, Kind::Closed, 0, count);
    serve(w);
    apply(w);
}

fn connections(mut w: World, at_a_time: usize) -> World {
    for _ in 0..CONNECTIONS / at_a_time {
        exchange(&mut w, at_a_time);
    }
    assert_eq!(w.closed, CONNECTIONS, "every connection was served");
    w
}

// The accepting side: SYN, handshake, request, answer, FIN, end.
#[library_benchmark(config = counted("server_turn", 30_000, CONNECTIONS))]
#[bench::one(native(1, false), 1)]
#[bench::one_with_options(native(1, true), 1)]
#[bench::sixteen(native(16, false), 16)]
#[bench::sixteen_with_options(native(16, true), 16)]
fn accepted(world: World, at_a_time: usize) -> World {
    black_box(connections(world, at_a_time))
}

// The connecting side of the same, which closes first.
#[library_benchmark(config = counted("client_turn", 30_000, CONNECTIONS))]
#[bench::one(native(1, false), 1)]
#[bench::sixteen(native(16, false), 16)]
fn connected(world: World, at_a_time: usize) -> World {
    black_box(connections(world, at_a_time))
}

// The accepting application.
#[library_benchmark(config = counted("application_turn", 12_000, CONNECTIONS))]
#[bench::native(native(1, false), 1)]
#[bench::native_with_options(native(1, true), 1)]
#[bench::sockets(group(1), 1)]
#[bench::sixteen_sockets(group(16), 16)]
fn application(world: World, at_a_time: usize) -> World {
    black_box(connections(world, at_a_time))
}

library_benchmark_group!(
    name = engine,
    benchmarks = [accepted, connected, application]
);
main!(library_benchmark_groups = engine);
