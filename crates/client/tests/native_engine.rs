//! The native API against a real engine, over its loopback.

mod engine;

use std::collections::VecDeque;
use std::time::Duration;

use engine::{ADDRESS, open, start};
use sidecore_client::{
    Disconnected, Dti, Event, EventKind, EventQueue, Extent, Lane, Memfd, Operation, Opt, Region,
    Status, Ual, UalConfig, flags, shutdown,
};
use sidecore_engine::EngineHandle;

const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// One thread's ends, and what it has not looked at.
struct End {
    ual: Ual,
    lane: Lane,
    queue: EventQueue,
    region: Region,
    kept: VecDeque<Event>,
}

impl End {
    fn new(engine: &EngineHandle) -> Self {
        Self::on(&open(engine, &UalConfig::default()))
    }

    fn on(ual: &Ual) -> Self {
        Self {
            lane: ual.lane().unwrap(),
            queue: ual.event_queue().unwrap(),
            region: ual.allocate_region(4 << 20, false).unwrap(),
            kept: VecDeque::new(),
            ual: ual.clone(),
        }
    }

    fn next(&mut self) -> Event {
        self.lane.flush();
        assert!(self.queue.wait(LONG).unwrap(), "no event came");
        self.queue.poll().unwrap()
    }

    /// The next event of this kind for this DTI; others are kept.
    fn find(&mut self, dti: Dti, kind: EventKind) -> Event {
        let fits = |event: &Event| event.dti == dti && event.kind == kind;
        if let Some(at) = self.kept.iter().position(fits) {
            return self.kept.remove(at).unwrap();
        }
        loop {
            let event = self.next();
            if fits(&event) {
                return event;
            }
            self.kept.push_back(event);
        }
    }

    fn expect(&mut self, dti: Dti, kind: EventKind) -> Event {
        let event = self.find(dti, kind);
        assert_eq!(event.status, Status::Ok, "{event:?}");
        event
    }

    fn stream(&mut self) -> Dti {
        self.lane.create_stream(&self.queue, &self.queue).unwrap()
    }

    fn listen(&mut self) -> (Dti, std::net::SocketAddr) {
        let listener = self.stream();
        let local = format!("{ADDRESS}:0").parse().unwrap();
        self.lane.bind(listener, local, 1).unwrap();
        self.lane.listen(listener, 64, 2).unwrap();
        self.expect(listener, EventKind::Completion);
        let listening = self.expect(listener, EventKind::Completion);
        (listener, listening.address(0).get().unwrap())
    }

    /// Two ends of one connection in this UAL.
    fn pair(&mut self) -> (Dti, Dti) {
        let (listener, address) = self.listen();
        let (server, client) = (self.stream(), self.stream());
        self.lane.accept(listener, server, 3).unwrap();
        self.lane.connect(client, address, 4).unwrap();
        self.expect(client, EventKind::Connected);
        self.expect(server, EventKind::Accepted);
        self.lane.close(listener, 0).unwrap();
        self.expect(listener, EventKind::Closed);
        // Small sends that are not answered would else wait for the peer's delayed acknowledgement.
        self.lane.set_option(client, Opt::NoDelay, 1, 0, 0).unwrap();
        (client, server)
    }

    /// Bytes of Received events until there are `len`.
    fn receive(&mut self, dti: Dti, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < len {
            let event = self.expect(dti, EventKind::Received);
            self.ual.pool().append(&event, &mut out);
            self.lane.return_chunk(&event);
        }
        out
    }

    fn option(&mut self, dti: Dti, option: Opt) -> u64 {
        self.lane.get_option(dti, option, 77).unwrap();
        self.expect(dti, EventKind::Completion).body[0]
    }

    fn extent(&self, offset: u64, len: u32) -> Extent {
        self.region.extent(offset, len).unwrap()
    }
}

#[test]
fn commands_need_no_answers_between_them() {
    let engine = start();
    let mut end = End::new(&engine);
    let (listener, address) = end.listen();
    let (server, client) = (end.stream(), end.stream());
    // A buffer on the child before its accept, data before the connection is there.
    let buffer = end.extent(0, 100);
    end.lane.receive(server, buffer, 0, 77).unwrap();
    end.lane.accept(listener, server, 1).unwrap();
    end.lane.connect(client, address, 2).unwrap();
    end.lane
        .send_inline(client, b"early", flags::FIN, 3)
        .unwrap();
    let filled = end.expect(server, EventKind::ReceivedInto);
    assert_eq!((filled.cookie, filled.body[0]), (77, 5));
    let mut bytes = [0; 5];
    end.region.read_extent(buffer, &mut bytes).unwrap();
    assert_eq!(&bytes, b"early");
    let ended = end.expect(server, EventKind::Received);
    assert!(ended.end() && ended.is_empty());
    end.lane.return_chunk(&ended);
    end.lane.close(server, 0).unwrap();
    end.lane.close(client, 0).unwrap();
    end.expect(server, EventKind::Closed);
    end.expect(client, EventKind::Closed);
    engine.stop();
}

#[test]
fn sends_of_every_kind_arrive_in_order() {
    let engine = start();
    let mut end = End::new(&engine);
    let (client, server) = end.pair();
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n * 7 % 253) as u8).collect();
    end.region.write(0, &bytes).unwrap();
    let mut expected = Vec::new();
    let mut at = 0usize;
    let mut take = |len: usize| {
        expected.extend_from_slice(&bytes[at..at + len]);
        at += len;
        (at - len) as u64
    };
    let (a, b, c) = (take(100_000), take(200), take(32));
    let (d, e) = (take(3), take(150_000));
    let list_at = 400_000;
    let pieces = [end.extent(d, 3), end.extent(e, 150_000)];
    let list = end.region.write_extents(list_at, &pieces).unwrap();
    let whole = end.extent(a, 100_000);
    let copied = end.extent(b, 200);
    let mut inline = [0; 32];
    end.region.read(c, &mut inline).unwrap();
    end.lane.send(client, whole, flags::NOTIFY, 1).unwrap();
    end.lane
        .send_copy(client, copied, flags::NOTIFY, 2)
        .unwrap();
    end.lane
        .send_inline(client, &inline, flags::MORE, 3)
        .unwrap();
    end.lane.send_list(client, list, flags::NOTIFY, 4).unwrap();
    assert!(end.receive(server, expected.len()) == expected);
    let copied = end.expect(client, EventKind::Completion);
    assert_eq!((copied.cookie, copied.body[4]), (2, Operation::Send as u64));
    let sent = [
        end.expect(client, EventKind::Sent),
        end.expect(client, EventKind::Sent),
    ];
    assert_eq!(sent.map(|event| event.cookie), [1, 4]);
    assert_eq!(
        sent[1].body[0],
        expected.len() as u64,
        "all is acknowledged"
    );

    // What came is sent back from where it lies.
    end.lane.send_inline(client, b"and back", 0, 5).unwrap();
    let event = end.expect(server, EventKind::Received);
    let lying = end.ual.pool().extent(&event).unwrap();
    end.lane.send(server, lying, flags::NOTIFY, 6).unwrap();
    assert_eq!(end.receive(client, 8), b"and back");
    end.expect(server, EventKind::Sent);
    end.lane.return_chunk(&event);
    engine.stop();
}

#[test]
fn posted_buffers_are_filled_in_order() {
    let engine = start();
    let mut end = End::new(&engine);
    let (listener, address) = end.listen();
    let client = end.stream();
    let server = end
        .lane
        .create_stream_posted(&end.queue, &end.queue)
        .unwrap();
    end.lane.accept(listener, server, 1).unwrap();
    end.lane.connect(client, address, 2).unwrap();
    end.expect(server, EventKind::Accepted);
    let data: Vec<u8> = (0..=255).collect();
    end.region.write(0, &data).unwrap();
    let send = end.extent(0, 200);
    end.lane.send(client, send, flags::NOTIFY, 3).unwrap();
    // Nothing is posted: the bytes wait, unannounced, and are acknowledged nevertheless.
    end.expect(client, EventKind::Sent);
    assert!(
        end.kept
            .iter()
            .all(|event| event.kind != EventKind::Received)
    );
    for n in 0..3 {
        let buffer = end.extent(1000 + n * 100, 64);
        end.lane
            .receive(server, buffer, flags::WAIT_ALL, 10 + n)
            .unwrap();
    }
    let mut got = Vec::new();
    for n in 0..3 {
        let event = end.expect(server, EventKind::ReceivedInto);
        assert_eq!(
            (event.cookie, event.body[0], event.body[2]),
            (10 + n, 64, 64 * n)
        );
        let mut bytes = [0; 64];
        end.region.read(1000 + n * 100, &mut bytes).unwrap();
        got.extend(bytes);
    }
    assert_eq!(got, data[..192]);
    // A buffer larger than what is left is completed by the end; another is cancelled.
    let (last, other) = (end.extent(2000, 100), end.extent(3000, 100));
    end.lane.receive(server, last, flags::WAIT_ALL, 20).unwrap();
    end.lane.receive(server, other, 0, 21).unwrap();
    end.lane.cancel(server, 21, 22).unwrap();
    let cancelled = end.find(server, EventKind::ReceivedInto);
    assert_eq!(
        (cancelled.cookie, cancelled.status),
        (21, Status::Cancelled)
    );
    end.lane
        .shutdown(client, shutdown::WRITE, flags::NOTIFY, 23)
        .unwrap();
    let ended = end.expect(server, EventKind::ReceivedInto);
    assert_eq!((ended.cookie, ended.body[0]), (20, 8));
    assert!(ended.end());
    let done = end.expect(client, EventKind::Completion);
    assert_eq!(
        (done.cookie, done.body[4]),
        (23, Operation::Shutdown as u64)
    );
    engine.stop();
}

#[test]
fn refusals_name_the_command() {
    let engine = start();
    let mut end = End::new(&engine);
    let (client, _) = end.pair();
    let nowhere = Extent {
        offset: 4 << 20,
        ..end.extent(0, 1)
    };
    end.lane.send(client, nowhere, 0, 31).unwrap();
    let refused = end.find(client, EventKind::Completion);
    assert_eq!((refused.cookie, refused.status), (31, Status::BadExtent));
    assert_eq!(refused.body[4], Operation::Send as u64);
    end.lane.listen(client, 1, 32).unwrap();
    let refused = end.find(client, EventKind::Completion);
    assert_eq!((refused.cookie, refused.status), (32, Status::WrongState));
    end.lane.get_option(client, Opt::PeerAddress, 33).unwrap();
    let peer = end
        .expect(client, EventKind::Completion)
        .address(0)
        .get()
        .unwrap();
    assert_eq!(peer.ip().to_string(), ADDRESS);
    end.lane.abort(client, 0).unwrap();
    end.find(client, EventKind::Closed);
    end.lane.send_inline(client, b"x", 0, 34).unwrap();
    let stale = loop {
        let event = end.next();
        if event.cookie == 34 {
            break event;
        }
    };
    assert_eq!(stale.status, Status::BadHandle);
    engine.stop();
}

/// Options with a value other than their default, in the ABI's units.
const OPTIONS: [(Opt, u64); 11] = [
    (Opt::NoDelay, 1),
    (Opt::MaxPacingRate, 5_000_000),
    (Opt::Cork, 1),
    (Opt::QuickAck, 1),
    (Opt::Keepalive, 1),
    (Opt::KeepaliveIdle, 90_000_000),
    (Opt::KeepaliveInterval, 5_000_000),
    (Opt::KeepaliveProbes, 4),
    (Opt::UserTimeout, 7_000_000),
    (Opt::ReceiveBuffer, 300_000),
    (Opt::Linger, 2_000_000),
];

#[test]
fn options_are_answered_as_they_were_set() {
    let engine = start();
    let mut end = End::new(&engine);
    let (client, _) = end.pair();
    let queue = end.queue.id();
    let fresh = end.lane.create_stream(queue, queue).unwrap();
    for dti in [client, fresh] {
        let get = |end: &mut End, option, cookie| {
            end.lane.get_option(dti, option, cookie).unwrap();
            let answer = end.expect(dti, EventKind::Completion);
            assert_eq!((answer.cookie, answer.status), (cookie, Status::Ok));
            answer.body[0]
        };
        assert_eq!(get(&mut end, Opt::Keepalive, 1), 0);
        assert_eq!(get(&mut end, Opt::Linger, 2), u64::MAX);
        // Its times alone do not switch keepalive on.
        end.lane
            .set_option(dti, Opt::KeepaliveIdle, 90_000_000, 0, 0)
            .unwrap();
        assert_eq!(get(&mut end, Opt::Keepalive, 3), 0);
        assert_eq!(get(&mut end, Opt::KeepaliveIdle, 4), 90_000_000);
        for (option, value) in OPTIONS {
            end.lane.set_option(dti, option, value, 0, 0).unwrap();
            assert_eq!(get(&mut end, option, 6), value, "{option:?}");
        }
        end.lane
            .set_option(dti, Opt::KeepaliveIdle, 0, 0, 7)
            .unwrap();
        let refused = end.find(dti, EventKind::Completion);
        assert_eq!((refused.cookie, refused.status), (7, Status::Invalid));
    }
    engine.stop();
}

/// With huge pages reserved (`vm.nr_hugepages`) they are used; without, the refusal is plain and costs nothing else.
#[test]
fn a_region_of_huge_pages_works_or_is_refused() {
    let engine = start();
    let mut end = End::new(&engine);
    let (client, server) = end.pair();
    match end.ual.allocate_region(3 << 20, true) {
        Ok(region) => {
            assert_eq!(region.len(), 4 << 20);
            region.write((4 << 20) - 4, b"huge").unwrap();
            let extent = region.extent((4 << 20) - 4, 4).unwrap();
            end.lane.send(client, extent, 0, 0).unwrap();
        }
        Err(error) => {
            eprintln!("without huge pages: {error}");
            assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{error}");
            end.lane.send_inline(client, b"huge", 0, 0).unwrap();
        }
    }
    assert_eq!(end.receive(server, 4), b"huge");
    engine.stop();
}

#[test]
fn regions_come_and_go() {
    let engine = start();
    let mut end = End::new(&engine);
    let (client, server) = end.pair();
    let memory = Memfd::create("test", 4096, false).unwrap();
    memory.seal_size().unwrap();
    let region = end.ual.register_async(&memory, &end.queue, 99).unwrap();
    let ready = loop {
        let event = end.next();
        if event.kind == EventKind::Registered {
            break event;
        }
    };
    assert_eq!(
        (ready.cookie, ready.region(), ready.status),
        (99, region.id(), Status::Ok)
    );
    region.write(4000, b"of a second region").unwrap();
    let extent = region.extent(4000, 18).unwrap();
    end.lane.send(client, extent, 0, 0).unwrap();
    // Given back while a send may still refer to it: done when that is acknowledged.
    end.lane.deregister(region.id(), &end.queue, 100).unwrap();
    assert_eq!(end.receive(server, 18), b"of a second region");
    let gone = loop {
        let event = end.next();
        if event.cookie == 100 {
            break event;
        }
    };
    assert_eq!(
        (gone.kind, gone.status),
        (EventKind::Completion, Status::Ok)
    );
    end.lane.send(client, extent, 0, 101).unwrap();
    let refused = end.find(client, EventKind::Completion);
    assert_eq!((refused.cookie, refused.status), (101, Status::BadExtent));
    // Registered and used at once, again and again.
    for n in 0..50u64 {
        let region = end.ual.allocate_region(4096, false).unwrap();
        region.write(0, &n.to_le_bytes()).unwrap();
        let extent = region.extent(0, 8).unwrap();
        end.lane.send(client, extent, 0, 0).unwrap();
        assert_eq!(end.receive(server, 8), n.to_le_bytes());
        end.lane
            .deregister(region.id(), &end.queue, 200 + n)
            .unwrap();
    }
    engine.stop();
}

#[test]
fn threads_have_lanes_and_queues_of_their_own() {
    const ROUNDS: usize = 300;
    let engine = start();
    let ual = open(&engine, &UalConfig::default());
    let mut first = End::on(&ual);
    let (listener, address) = first.listen();
    std::thread::scope(|scope| {
        // Accepts are posted here; the connections live on the other thread, whose queue they were made with.
        let mut second = End::on(&ual);
        let mut children = Vec::new();
        for _ in 0..8 {
            let child = first
                .lane
                .create_stream(&second.queue, &second.queue)
                .unwrap();
            first.lane.accept(listener, child, 5).unwrap();
            children.push(child);
        }
        first.lane.flush();
        scope.spawn(move || {
            let mut echoed = 0;
            while echoed < 8 * ROUNDS {
                let event = second.next();
                if event.kind == EventKind::Received {
                    let mut bytes = [0; 32];
                    let n = second.ual.pool().read(&event, &mut bytes);
                    let dti = Dti::from(event.dti);
                    second.lane.send_inline(dti, &bytes[..n], 0, 0).unwrap();
                    second.lane.return_chunk(&event);
                    echoed += 1;
                }
            }
            second.lane.flush();
        });
        let clients: Vec<Dti> = (0..8).map(|_| first.stream()).collect();
        for client in &clients {
            first.lane.connect(*client, address, 6).unwrap();
        }
        for client in &clients {
            first.expect(*client, EventKind::Connected);
            first.lane.send_inline(*client, &[0; 32], 0, 0).unwrap();
        }
        let mut answers = 0;
        while answers < 8 * ROUNDS {
            let event = first.next();
            if event.kind == EventKind::Received {
                assert_eq!(event.len(), 32, "one at a time");
                first.lane.return_chunk(&event);
                answers += 1;
                if answers <= 8 * (ROUNDS - 1) {
                    first
                        .lane
                        .send_inline(Dti::from(event.dti), &[1; 32], 0, 0)
                        .unwrap();
                }
            }
        }
    });
    engine.stop();
}

#[test]
fn events_wake_a_descriptor_and_the_engines_end_too() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let engine = start();
    let mut end = End::new(&engine);
    let (client, server) = end.pair();
    let socket = end.queue.fd().unwrap().try_clone_to_owned().unwrap();
    let sleep = |ms: i64| {
        let timeout = Timespec {
            tv_sec: ms / 1000,
            tv_nsec: ms % 1000 * 1_000_000,
        };
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    };
    for n in 0..100u8 {
        while end.queue.poll().is_some() {}
        end.lane.send_inline(client, &[n], 0, 0).unwrap();
        end.lane.flush();
        let event = loop {
            if let Some(event) = end.queue.poll() {
                break event;
            }
            if end.queue.arm() {
                assert!(sleep(20_000), "the wake-up was lost");
                end.queue.disarm();
            }
        };
        assert_eq!(
            (event.dti, event.kind),
            (server.handle(), EventKind::Received)
        );
        end.lane.return_chunk(&event);
    }
    assert!(end.queue.is_alive());
    while end.queue.poll().is_some() {}
    engine.stop();
    loop {
        let ended = loop {
            match end.queue.wait(LONG) {
                Ok(true) => drop(end.queue.poll()),
                Ok(false) => panic!("nobody told"),
                Err(Disconnected) => break true,
            }
        };
        if ended {
            break;
        }
    }
    assert!(sleep(20_000));
    assert!(!end.ual.is_alive());
}

#[test]
fn an_event_queue_that_nobody_reads_loses_nothing() {
    let engine = start();
    let config = UalConfig {
        evq_order: 3,
        lane_order: 10,
        ..UalConfig::default()
    };
    let mut end = End::on(&open(&engine, &config));
    let (client, server) = end.pair();
    // Far more completions than the queue's eight places.
    for n in 0..500 {
        end.lane
            .send_inline(client, &[n as u8], flags::NOTIFY, n)
            .unwrap();
    }
    end.lane.flush();
    std::thread::sleep(Duration::from_millis(20));
    assert!((6..=8).contains(&end.queue.depth()), "it is full");
    let (mut next, mut received) = (0, 0u64);
    while next < 500 || received < 500 {
        let event = end.next();
        match event.kind {
            EventKind::Completion => {
                assert_eq!((event.cookie, event.status), (next, Status::Ok));
                next += 1;
            }
            EventKind::Received => {
                assert_eq!(event.dti, server);
                assert_eq!(event.body[2], received, "in order");
                received += u64::from(event.len());
                end.lane.return_chunk(&event);
            }
            other => panic!("{other:?}"),
        }
    }
    engine.stop();
}

#[test]
fn urgent_data_is_told_before_it_comes() {
    let engine = start();
    let mut end = End::new(&engine);
    let (client, server) = end.pair();
    assert_eq!(end.option(server, Opt::UrgentMark), 0);
    end.region.write(0, &[b'x'; 5000]).unwrap();
    let extent = end.extent(0, 5000);
    end.lane.send(client, extent, 0, 0).unwrap();
    end.lane
        .send_inline(client, b"stop", flags::URGENT, 0)
        .unwrap();
    end.lane.send_inline(client, b"on", 0, 0).unwrap();
    let told = end.expect(server, EventKind::Urgent);
    assert_eq!(told.body[0], 5004);
    assert!(
        end.kept.iter().all(|event| event.dti != server),
        "it is told first"
    );
    assert_eq!(end.receive(server, 5006)[5000..], *b"stopon");
    assert_eq!(end.option(server, Opt::UrgentMark), 5004);
    // More: told again. Each kind of send can be urgent, and one with FIN.
    let piece = end.extent(0, 10);
    end.lane.send_copy(client, piece, flags::URGENT, 0).unwrap();
    assert_eq!(end.expect(server, EventKind::Urgent).body[0], 5016);
    end.lane
        .send(client, piece, flags::URGENT | flags::FIN | flags::NOTIFY, 9)
        .unwrap();
    assert_eq!(end.expect(server, EventKind::Urgent).body[0], 5026);
    end.expect(client, EventKind::Sent);
    // It cannot be set, and a datagram has none.
    end.lane
        .set_option(server, Opt::UrgentMark, 1, 0, 5)
        .unwrap();
    assert_eq!(
        end.find(server, EventKind::Completion).status,
        Status::Invalid
    );
    let datagrams = end.lane.create_datagram(&end.queue, &end.queue).unwrap();
    let nobody = format!("{ADDRESS}:9").parse().unwrap();
    end.lane
        .send_to(datagrams, piece, nobody, flags::URGENT, 6)
        .unwrap();
    assert_eq!(
        end.find(datagrams, EventKind::Completion).status,
        Status::Invalid
    );
    engine.stop();
}

#[test]
fn of_several_options_each_is_set_or_refused() {
    let engine = start();
    let mut end = End::new(&engine);
    let (client, server) = end.pair();
    let together = [
        (Opt::NoDelay, 1),
        (Opt::KeepaliveIdle, 9_000_000),
        (Opt::Keepalive, 1),
        (Opt::KeepaliveInterval, 2_000_000),
        (Opt::KeepaliveProbes, 4),
    ];
    for (option, value) in together {
        end.lane.set_option(server, option, value, 0, 0).unwrap();
    }
    for (option, value) in together {
        assert_eq!(end.option(server, option), value, "{option:?}");
    }
    // Off, its times stay.
    end.lane
        .set_option(server, Opt::Keepalive, 0, 0, 0)
        .unwrap();
    assert_eq!(end.option(server, Opt::Keepalive), 0);
    assert_eq!(end.option(server, Opt::KeepaliveIdle), 9_000_000);
    end.lane
        .set_option(server, Opt::KeepaliveProbes, 7, 0, 0)
        .unwrap();
    assert_eq!(end.option(server, Opt::Keepalive), 0, "times alone");
    end.lane
        .set_option(server, Opt::Keepalive, 1, 0, 0)
        .unwrap();
    assert_eq!(end.option(server, Opt::KeepaliveProbes), 7);
    assert_eq!(end.option(server, Opt::KeepaliveInterval), 2_000_000);

    // A number that is no option's, a value that is none, and two that are good.
    let mut command = sidecore_client::Command::new(Operation::SetOptions, client.handle(), 5);
    assert!(command.add_option(Opt::KeepaliveIdle, 0));
    assert!(command.add_option(Opt::Keepalive, 1));
    assert!(command.add_option(Opt::TrafficClass, 256));
    assert!(command.add_option(Opt::KeepaliveProbes, 5));
    command.body[0] |= 0xff << 32;
    end.lane.post(command).unwrap();
    let refused = end.find(client, EventKind::Completion);
    assert_eq!((refused.status, refused.cookie), (Status::Invalid, 5));
    assert_eq!(refused.body[4], Operation::SetOptions as u64);
    assert_eq!(end.option(client, Opt::Keepalive), 1);
    assert_eq!(end.option(client, Opt::KeepaliveProbes), 5);
    // Any words at all, and a DTI that is not there.
    command.body = [u64::MAX; 5];
    end.lane.post(command).unwrap();
    let refused = end.find(client, EventKind::Completion);
    assert_eq!(refused.status, Status::Invalid);
    command.dti.generation += 7;
    end.lane.post(command).unwrap();
    let refused = end.next();
    assert_eq!(refused.status, Status::BadHandle);
    engine.stop();
}
