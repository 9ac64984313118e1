//! The native API against the engine's half of a UAL, driven by the test.

mod fake;

use std::time::{Duration, Instant};

use fake::{open, small};
use sidecore_abi::event::NO_CHUNK;
use sidecore_client::{
    Address, Command, Disconnected, DtiHandle, Event, EventKind, EventQueue, Exhausted, Extent,
    Memfd, Operation, Opt, OutOfRange, PostError, RegionId, Status, Ual, UalConfig, flags,
    shutdown,
};

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const SHORT: Option<Duration> = Some(Duration::from_millis(5));

#[test]
fn every_call_posts_its_command() {
    let (ual, mut engine) = open(
        &UalConfig {
            lane_order: 6,
            ..small()
        },
        1,
    );
    let mut lane = ual.lane().unwrap();
    let (rx, tx) = (ual.event_queue().unwrap(), ual.event_queue().unwrap());
    let address = "10.77.0.2:80".parse().unwrap();
    let extent = Extent {
        region: RegionId(3),
        len: 200,
        offset: 4096,
    };

    let dti = lane.create_stream(&rx, &tx).unwrap();
    let created = engine.command();
    assert_eq!(created.operation, Operation::CreateStream);
    assert_eq!(created.dti, dti);
    assert_eq!(created.body[0], 1 << 16, "queues 0 and 1");

    let posted = lane.create_stream_posted(&tx, &rx).unwrap();
    assert_eq!(engine.command().body[0], 1 | 1 << 32);
    let child = lane.create_datagram(&tx, &tx).unwrap();
    assert_eq!(engine.command().operation, Operation::CreateDatagram);
    assert_ne!(dti, posted);

    let new = |operation, cookie| Command::new(operation, dti.handle(), cookie);
    let body = |operation, cookie, body: [u64; 5]| Command {
        body,
        ..new(operation, cookie)
    };
    lane.bind(dti, address, 1).unwrap();
    let expected = new(Operation::Bind, 1).with_address(0, Address::new(address));
    assert_eq!(engine.command(), expected);
    lane.listen(dti, 128, 2).unwrap();
    assert_eq!(
        engine.command(),
        body(Operation::Listen, 2, [128, 0, 0, 0, 0])
    );
    lane.accept(dti, child, 3).unwrap();
    let word = child.handle().to_word();
    assert_eq!(
        engine.command(),
        body(Operation::Accept, 3, [word, 0, 0, 0, 0])
    );
    lane.connect(dti, address, 4).unwrap();
    let expected = new(Operation::Connect, 4).with_address(0, Address::new(address));
    assert_eq!(engine.command(), expected);

    let send = |cookie| new(Operation::Send, cookie);
    lane.send(dti, extent, flags::NOTIFY, 5).unwrap();
    assert_eq!(
        engine.command(),
        send(5).with_extent(extent).with_flags(flags::NOTIFY)
    );
    lane.send_inline(dti, b"abc", flags::MORE, 6).unwrap();
    assert_eq!(
        engine.command(),
        send(6).with_inline(b"abc").with_flags(flags::MORE)
    );
    lane.send_copy(dti, extent, 0, 7).unwrap();
    assert_eq!(
        engine.command(),
        send(7).with_extent(extent).with_flags(flags::COPY)
    );
    lane.send_list(dti, extent, flags::FIN, 8).unwrap();
    let expected = send(8)
        .with_extent(extent)
        .with_flags(flags::LIST | flags::FIN);
    assert_eq!(engine.command(), expected);
    lane.send_to(dti, extent, address, 0, 9).unwrap();
    let expected = send(9)
        .with_extent(extent)
        .with_address(2, Address::new(address));
    assert_eq!(engine.command(), expected);
    lane.receive(dti, extent, flags::WAIT_ALL, 10).unwrap();
    let expected = new(Operation::Receive, 10).with_extent(extent);
    assert_eq!(engine.command(), expected.with_flags(flags::WAIT_ALL));

    lane.shutdown(dti, shutdown::WRITE, flags::NOTIFY, 11)
        .unwrap();
    let expected = body(Operation::Shutdown, 11, [2, 0, 0, 0, 0]);
    assert_eq!(engine.command(), expected.with_flags(flags::NOTIFY));
    lane.cancel(dti, 10, 12).unwrap();
    assert_eq!(
        engine.command(),
        body(Operation::Cancel, 12, [10, 0, 0, 0, 0])
    );
    lane.set_option(dti, Opt::NoDelay, 1, 0, 13).unwrap();
    assert_eq!(
        engine.command(),
        body(Operation::SetOption, 13, [1, 1, 0, 0, 0])
    );
    lane.get_option(dti, Opt::PeerAddress, 14).unwrap();
    assert_eq!(
        engine.command(),
        body(Operation::GetOption, 14, [13, 0, 0, 0, 0])
    );
    lane.close(dti, 15).unwrap();
    assert_eq!(engine.command(), new(Operation::Close, 15));
    lane.abort(posted, 16).unwrap();
    assert_eq!(
        engine.command(),
        Command::new(Operation::Abort, posted.handle(), 16)
    );

    lane.deregister(RegionId(9), &tx, 17).unwrap();
    let command = engine.command();
    assert_eq!((command.operation, command.evq), (Operation::Deregister, 1));
    assert_eq!((command.body[0], command.cookie), (9, 17));
    lane.nop(&rx, 18).unwrap();
    let command = engine.command();
    assert_eq!((command.operation, command.evq), (Operation::Nop, 0));
    assert_eq!((command.flags, command.cookie), (flags::NOTIFY, 18));

    assert_eq!(
        lane.send_inline(dti, &[0; 33], 0, 0),
        Err(PostError::TooLong)
    );
    let large = Extent { len: 257, ..extent };
    assert_eq!(lane.send_copy(dti, large, 0, 0), Err(PostError::TooLong));
    assert_eq!(engine.commands(), []);
}

#[test]
fn a_full_lane_refuses_and_goes_on_when_the_engine_has_read() {
    let (ual, mut engine) = open(&small(), 1);
    let mut lane = ual.lane().unwrap();
    let queue = ual.event_queue().unwrap();
    let dti = lane.create_stream(&queue, &queue).unwrap();
    for cookie in 1..16 {
        lane.send_inline(dti, b"x", 0, cookie).unwrap();
    }
    assert_eq!(lane.free(), 0);
    assert!(!lane.has_room(1));
    assert_eq!(lane.send_inline(dti, b"x", 0, 16), Err(PostError::LaneFull));
    assert_eq!(lane.create_stream(&queue, &queue), Err(PostError::LaneFull));
    // Chunks are never refused; they wait.
    for chunk in 0..20 {
        lane.return_chunk_number(chunk);
    }
    lane.flush();
    let commands = engine.commands();
    assert_eq!(commands.len(), 16);
    assert!(
        commands[1..]
            .iter()
            .zip(1..)
            .all(|((_, c), n)| c.cookie == n)
    );
    lane.flush();
    let mut returned: Vec<u32> = Vec::new();
    for (_, command) in engine.commands() {
        assert_eq!(command.operation, Operation::ReturnChunks);
        returned.extend(command.returned_chunks());
    }
    returned.sort_unstable();
    assert_eq!(returned, (0..20).collect::<Vec<_>>());
    // Room is seen as soon as the engine tells of it, also while some was known to be left.
    for _ in 0..13 {
        lane.nop(&queue, 0).unwrap();
    }
    assert!(lane.has_room(3) && !lane.has_room(4));
    engine.commands();
    assert!(lane.has_room(4) && lane.has_room(16));
    assert_eq!(lane.free(), 16);
    // The handle that could not be posted was not lost: eight were granted, one is in use.
    for _ in 0..7 {
        lane.create_stream(&queue, &queue).unwrap();
    }
    assert_eq!(lane.create_stream(&queue, &queue), Err(PostError::NoHandle));
}

#[test]
fn chunks_go_back_nine_at_a_time() {
    let (ual, mut engine) = open(&small(), 1);
    let mut lane = ual.lane().unwrap();
    let dti = DtiHandle::default();
    for chunk in 0..8 {
        lane.return_chunk(&Event::received(dti, chunk, 0, 1, 0, false));
    }
    lane.return_chunk(&Event::received(dti, NO_CHUNK, 0, 0, 0, true));
    lane.return_chunk(&Event::new(EventKind::Sent, dti, 0, Status::Ok));
    assert_eq!(engine.commands(), []);
    lane.return_chunk(&Event::received(dti, 8, 0, 1, 0, false));
    let all: Vec<u32> = engine.command().returned_chunks().collect();
    assert_eq!(all, (0..9).collect::<Vec<_>>());
    lane.return_chunk_number(9);
    drop(lane);
    assert_eq!(
        engine.command().returned_chunks().collect::<Vec<_>>(),
        [9],
        "dropping flushes"
    );
}

#[test]
fn a_handle_is_used_again_after_close_and_closed() {
    let (ual, mut engine) = open(&small(), 1);
    let (mut lane, mut other) = (ual.lane().unwrap(), ual.lane().unwrap());
    let mut queue = ual.event_queue().unwrap();
    let dtis: Vec<_> = (0..8)
        .map(|_| lane.create_stream(&queue, &queue).unwrap())
        .collect();
    engine.commands();
    let mut closed = |dti: DtiHandle| {
        engine.emit(0, &Event::new(EventKind::Closed, dti, 0, Status::Ok));
    };
    closed(dtis[3].handle());
    assert_eq!(queue.poll().unwrap().dti, dtis[3]);
    assert_eq!(lane.create_stream(&queue, &queue), Err(PostError::NoHandle));
    lane.close(dtis[3], 0).unwrap();
    // The engine has not read this Close: on another lane a Create could overtake it.
    assert_eq!(
        other.create_stream(&queue, &queue),
        Err(PostError::NoHandle)
    );
    engine.commands();
    let again = other.create_stream(&queue, &queue).unwrap();
    assert_eq!(again.index(), dtis[3].index());
    assert_ne!(again, dtis[3]);

    // A DTI that the engine would not make is free once it was closed.
    let mut failed = Event::new(
        EventKind::Completion,
        dtis[5].handle(),
        0,
        Status::NoResources,
    );
    failed.body[4] = Operation::CreateStream as u64;
    engine.emit(0, &failed);
    assert!(queue.poll().is_some());
    lane.close(dtis[5], 0).unwrap();
    let again = lane.create_stream(&queue, &queue).unwrap();
    assert_eq!(again.index(), dtis[5].index());
}

#[test]
fn events_come_in_order_and_queues_know_their_depth() {
    let (ual, mut engine) = open(&small(), 1);
    let mut queue = ual.event_queue().unwrap();
    let event = |cookie| Event::new(EventKind::Sent, DtiHandle::default(), cookie, Status::Ok);
    assert!(queue.is_empty() && queue.poll().is_none());
    let mut next = 0;
    // Several times around the ring of sixteen.
    for round in 0..40 {
        for n in 0..(round % 13) {
            assert_eq!(queue.depth(), n);
            engine.emit(0, &event(next + n as u64));
        }
        let mut out = Vec::new();
        assert_eq!(queue.dequeue(&mut out, 5), (round % 13).min(5));
        assert_eq!(queue.depth(), (round % 13).saturating_sub(5));
        queue.dequeue(&mut out, usize::MAX);
        for got in out {
            assert_eq!(got, event(next));
            next += 1;
        }
    }
    // What this library does not know is skipped.
    let strange = sidecore_abi::Entry::new(200, 0, 0, [0; 7]);
    engine.controls[0].evq(0).unwrap().push(strange).unwrap();
    engine.emit(0, &event(99));
    assert_eq!(queue.poll(), Some(event(99)));
    assert_eq!(queue.unknown(), 1);
}

#[test]
fn several_engine_threads_feed_one_queue() {
    let (ual, mut engine) = open(&small(), 3);
    let mut queue = ual.event_queue().unwrap();
    let event = |cookie| Event::new(EventKind::Sent, DtiHandle::default(), cookie, Status::Ok);
    for (from, cookie) in [(2, 1), (0, 2), (2, 3), (1, 4)] {
        engine.emit_from(from, 0, &event(cookie));
    }
    assert_eq!(queue.depth(), 4);
    let mut cookies: Vec<u64> = std::iter::from_fn(|| queue.poll())
        .map(|e| e.cookie)
        .collect();
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2, 3, 4]);
    let mut lanes = [ual.lane().unwrap(), ual.lane().unwrap()];
    for lane in &mut lanes {
        lane.nop(&queue, 5).unwrap();
    }
    for (lane, control) in engine.controls[..2].iter_mut().enumerate() {
        assert!(
            control.lane(lane).unwrap().pop().is_some(),
            "each lane has its engine thread"
        );
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            assert!(
                engine.emit_from(1, 0, &event(6)),
                "it slept, for all engine threads"
            );
        });
        assert_eq!(queue.wait(LONG), Ok(true));
    });
    assert_eq!(queue.poll(), Some(event(6)));
}

#[test]
fn a_sleeping_thread_is_woken_by_any_of_its_queues() {
    let (ual, mut engine) = open(&small(), 1);
    let mut a = ual.event_queue().unwrap();
    let mut b = ual.event_queue().unwrap();
    let event = Event::new(EventKind::Sent, DtiHandle::default(), 1, Status::Ok);
    let start = Instant::now();
    assert_eq!(a.wait(SHORT), Ok(false));
    assert_eq!(
        EventQueue::wait_any(&mut [&mut a, &mut b], SHORT),
        Ok(false)
    );
    assert!(start.elapsed() >= Duration::from_millis(10));
    assert!(!engine.emit(0, &event), "nobody sleeps any more");
    assert_eq!(a.wait(None), Ok(true));
    assert!(a.poll().is_some());
    assert_eq!(EventQueue::wait_any(&mut [], None), Ok(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Emitted once only: the wake-up must not be lost.
            std::thread::sleep(Duration::from_millis(20));
            engine.emit(1, &event);
        });
        assert_eq!(EventQueue::wait_any(&mut [&mut a, &mut b], LONG), Ok(true));
    });
    assert!(a.is_empty() && b.poll().is_some());
    b.set_spin(Duration::from_millis(1));
    assert_eq!(b.wait(SHORT), Ok(false));
}

#[test]
fn a_queue_can_be_waited_for_by_its_descriptor() {
    let (ual, mut engine) = open(&small(), 1);
    let mut queue = ual.event_queue().unwrap();
    let event = Event::new(EventKind::Sent, DtiHandle::default(), 1, Status::Ok);
    let socket = queue.fd().unwrap().try_clone_to_owned().unwrap();
    let readable = |ms: i64| {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&socket, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: ms * 1_000_000,
        };
        poll(&mut fds, Some(&timeout)).unwrap() == 1
    };
    engine.emit(0, &event);
    assert!(!queue.arm(), "an event is there already");
    assert!(!readable(0));
    assert!(queue.poll().is_some());
    assert!(queue.arm());
    assert!(!readable(1));
    assert!(engine.emit(0, &event));
    assert!(readable(900));
    queue.disarm();
    assert!(!readable(0), "disarming empties it");
    assert!(queue.poll().is_some());
    assert!(!engine.emit(0, &event), "not armed");
    drop(queue);
    let mut queue = ual.event_queue().unwrap();
    assert!(
        queue.poll().is_some(),
        "the next claimer finds what was left"
    );
    engine.die();
    drop(engine);
    assert!(readable(900), "the engine's end is told as well");
}

#[test]
fn the_engines_end_reaches_every_waiter() {
    let (ual, mut engine) = open(&small(), 1);
    let mut a = ual.event_queue().unwrap();
    let mut b = ual.event_queue().unwrap();
    assert!(ual.is_alive());
    let last = Event::new(EventKind::Sent, DtiHandle::default(), 1, Status::Ok);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| a.wait(None));
        std::thread::sleep(Duration::from_millis(20));
        engine.emit(1, &last);
        engine.die();
        assert_eq!(sleeper.join().unwrap(), Err(Disconnected));
    });
    assert!(!ual.is_alive());
    assert_eq!(
        b.wait(None),
        Ok(true),
        "what came before the end is told first"
    );
    assert_eq!(b.poll(), Some(last));
    assert_eq!(b.wait(None), Err(Disconnected));
    assert!(!b.arm());
    assert!(ual.allocate_region(4096, false).is_err());
}

#[test]
fn a_sleeping_engine_gets_one_byte_and_a_parked_lane_its_bell() {
    let (ual, mut engine) = open(&small(), 1);
    let mut lane = ual.lane().unwrap();
    let queue = ual.event_queue().unwrap();
    lane.flush();
    lane.nop(&queue, 1).unwrap();
    lane.flush();
    assert!(!engine.sleeper.drain(), "it is awake");
    engine.commands();
    assert!(engine.controls[0].park(0));
    engine.controls[0].announce_sleep();
    engine.controls[0].fence();
    lane.nop(&queue, 2).unwrap();
    assert_eq!(engine.controls[0].take_bells(0), 0, "not flushed");
    lane.flush();
    lane.nop(&queue, 3).unwrap();
    lane.flush();
    lane.flush();
    assert_eq!(engine.controls[0].take_bells(0), 1);
    assert!(engine.sleeper.drain(), "woken");
    assert!(!engine.sleeper.drain());
    assert_eq!(engine.commands().len(), 2);
}

#[test]
fn lanes_and_queues_are_claimed_and_given_back() {
    let (ual, mut engine) = open(&small(), 1);
    let mut lanes: Vec<_> = std::iter::from_fn(|| ual.lane().ok()).collect();
    let queues: Vec<_> = std::iter::from_fn(|| ual.event_queue().ok()).collect();
    assert_eq!((lanes.len(), queues.len()), (2, 3));
    assert_eq!(ual.lane().unwrap_err(), Exhausted("doorbell lane"));
    assert_eq!(ual.event_queue().unwrap_err(), Exhausted("event queue"));
    for (n, lane) in lanes.iter_mut().enumerate() {
        lane.nop(&queues[0], n as u64).unwrap();
    }
    let index = lanes.pop().unwrap().index();
    let mut lane = ual.lane().unwrap();
    assert_eq!(lane.index(), index);
    lane.nop(&queues[0], 9).unwrap();
    let cookies: Vec<u64> = engine.commands().iter().map(|(_, c)| c.cookie).collect();
    assert_eq!(
        cookies,
        [0, 1, 9],
        "a claimed lane goes on where it was left"
    );
    drop((lanes, lane, queues));
    drop(ual);
    engine.join();
}

#[test]
fn received_bytes_are_read_from_the_pool() {
    let (ual, engine) = open(&small(), 1);
    let mut lane = ual.lane().unwrap();
    let dti = DtiHandle::default();
    assert!(engine.pool.copy_in(2048, b"some bytes that came"));
    let event = Event::received(dti, 1, 2048, 20, 0, false);
    let mut out = [0; 64];
    assert_eq!(ual.pool().read(&event, &mut out), 20);
    assert_eq!(&out[..20], b"some bytes that came");
    assert_eq!(ual.pool().read(&event, &mut out[..4]), 4);
    assert_eq!(ual.pool().read_at(&event, 16, &mut out), 4);
    assert_eq!(&out[..4], b"came");
    assert_eq!(ual.pool().read_at(&event, 21, &mut out), 0);
    let mut text = b"> ".to_vec();
    assert_eq!(ual.pool().append(&event, &mut text), 20);
    assert_eq!(text, b"> some bytes that came");
    assert_eq!(ual.pool().with_chunk(&event, |bytes| bytes.len()), Some(20));
    let extent = ual.pool().extent(&event).unwrap();
    assert_eq!(
        (extent.region, extent.offset, extent.len),
        (RegionId(u32::MAX), 2048, 20)
    );

    let mut engine = engine;
    let mut taken = ual.pool().take(event, &mut lane);
    std::io::Read::read_exact(&mut taken, &mut out[..5]).unwrap();
    assert_eq!(taken.remaining(), 15);
    drop(taken);
    lane.flush();
    assert_eq!(engine.command().returned_chunks().collect::<Vec<_>>(), [1]);

    for nonsense in [
        Event::received(dti, 1, u64::MAX, 20, 0, false),
        Event::received(dti, 1, (1 << 18) - 19, 20, 0, false),
        Event::received(dti, NO_CHUNK, 0, 0, 0, true),
        Event::new(EventKind::Sent, dti, 0, Status::Ok),
    ] {
        assert_eq!(ual.pool().read(&nonsense, &mut out), 0);
        assert_eq!(ual.pool().append(&nonsense, &mut text), 0);
        assert!(ual.pool().with_chunk(&nonsense, |_| ()).is_none());
    }
    assert_eq!(text.len(), 22);
}

#[test]
fn regions_are_seen_by_both_sides() {
    let (ual, engine) = open(&small(), 1);
    let region = ual.allocate_region(5000, false).unwrap();
    assert_eq!(region.len(), 8192);
    let theirs = engine.region(region.id());
    region.write(8190, b"ab").unwrap();
    assert_eq!(region.write(8191, b"ab"), Err(OutOfRange));
    let mut two = [0; 2];
    assert!(theirs.copy_out(8190, &mut two));
    assert_eq!(&two, b"ab");
    assert!(theirs.copy_in(0, b"hello"));
    let mut five = [0; 5];
    region.read(0, &mut five).unwrap();
    assert_eq!(&five, b"hello");
    assert_eq!(region.read(8188, &mut five), Err(OutOfRange));
    let buffer = region.extent(0, 3).unwrap();
    assert_eq!(region.read_extent(buffer, &mut five), Ok(3));
    assert_eq!(region.extent(8000, 193), Err(OutOfRange));
    assert_eq!(region.extent(u64::MAX, 2), Err(OutOfRange));

    let pieces = [buffer, region.extent(100, 7).unwrap()];
    let list = region.write_extents(64, &pieces).unwrap();
    assert_eq!((list.offset, list.len), (64, 32));
    let mut words = [[0u8; 8]; 4];
    for (n, word) in words.iter_mut().enumerate() {
        region.read(64 + 8 * n as u64, word).unwrap();
    }
    let words = words.map(u64::from_le_bytes);
    assert_eq!(
        [
            Extent::from_words([words[0], words[1]]),
            Extent::from_words([words[2], words[3]])
        ],
        pieces
    );

    let unsealed = Memfd::create("unsealed", 4096, false).unwrap();
    assert!(ual.register(&unsealed).is_err());
    let file = std::env::temp_dir().join(format!("sidecore-client-{}", std::process::id()));
    std::fs::write(&file, b"a file's bytes").unwrap();
    assert!(
        ual.register(std::fs::File::open(&file).unwrap()).is_err(),
        "not a file itself"
    );
    let (region, len) = ual.register_file(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut text = vec![0; len as usize];
    region.read(0, &mut text).unwrap();
    assert_eq!(text, b"a file's bytes");
    assert!(ual.register_file(&file).is_err());

    let queue = ual.event_queue().unwrap();
    let memory = Memfd::create("later", 4096, false).unwrap();
    memory.seal_size().unwrap();
    let region = ual.register_async(&memory, &queue, 42).unwrap();
    assert_eq!(engine.registered(), [(0, 42, region.id())]);
    engine.refuse_regions();
    let error = ual.allocate_region(1, false).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
}

#[test]
fn opening_says_why_not() {
    use sidecore_client::OpenError;
    let error = Ual::open("/nonexistent/engine.sock", &small()).unwrap_err();
    assert!(matches!(error, OpenError::Connect(_)), "{error}");
    assert!(error.to_string().contains("/nonexistent/engine.sock"));
    let answer = |bytes: Vec<u8>| {
        let (ours, theirs) = sidecore_sys::unix::Stream::pair().unwrap();
        theirs.send_with_fds(&bytes, &[]).unwrap();
        let error = Ual::open_on(ours.into_fd(), &small()).unwrap_err();
        drop(theirs);
        error
    };
    use sidecore_abi::agent::Reply;
    let refused = answer(Reply::new(Status::NotPermitted).to_bytes().to_vec());
    assert!(matches!(refused, OpenError::Refused(Status::NotPermitted)));
    let io: std::io::Error = refused.into();
    assert_eq!(io.kind(), std::io::ErrorKind::PermissionDenied);
    let mut other = Reply::new(Status::NotSupported).to_bytes();
    other[4] = 9;
    assert!(matches!(answer(other.to_vec()), OpenError::Version(9)));
    assert!(matches!(answer(vec![1, 2, 3]), OpenError::Protocol(_)));
    let bare = Reply::new(Status::Ok).to_bytes().to_vec();
    assert!(
        matches!(answer(bare), OpenError::Protocol(_)),
        "no descriptors"
    );
}

#[test]
fn options_that_nobody_asks_about_go_together() {
    let (ual, mut engine) = open(
        &UalConfig {
            lane_order: 6,
            ..small()
        },
        1,
    );
    let mut lane = ual.lane().unwrap();
    let queue = ual.event_queue().unwrap();
    let dti = lane.create_stream(&queue, &queue).unwrap();
    let other = lane.create_stream(&queue, &queue).unwrap();
    assert_eq!(engine.commands().len(), 2);
    let numbers = |command: &Command| command.options().collect::<Vec<_>>();
    let keepalive = Opt::Keepalive as u64;
    let nodelay = Opt::NoDelay as u64;

    // With the next command, before it.
    lane.set_option(dti, Opt::NoDelay, 1, 0, 0).unwrap();
    lane.set_option(dti, Opt::Keepalive, 0, 0, 0).unwrap();
    assert!(engine.commands().is_empty());
    lane.send_inline(dti, b"x", 0, 1).unwrap();
    let commands = engine.commands();
    let operations: Vec<_> = commands.iter().map(|(_, c)| c.operation).collect();
    assert_eq!(operations, [Operation::SetOptions, Operation::Send]);
    assert_eq!(commands[0].1.dti, dti);
    assert_eq!(numbers(&commands[0].1), [(nodelay, 1), (keepalive, 0)]);

    // With a flush; each DTI's in a command of its own, six in each.
    lane.set_option(other, Opt::NoDelay, 1, 0, 0).unwrap();
    for value in 0..7 {
        lane.set_option(dti, Opt::Keepalive, value, 0, 0).unwrap();
    }
    lane.flush();
    let commands = engine.commands();
    let found: Vec<_> = commands.iter().map(|(_, c)| (c.dti, numbers(c))).collect();
    let six = (0..6).map(|value| (keepalive, value)).collect();
    assert_eq!(
        found,
        [
            (other.handle(), vec![(nodelay, 1)]),
            (dti.handle(), six),
            (dti.handle(), vec![(keepalive, 6)])
        ]
    );
    lane.flush();
    assert!(engine.commands().is_empty());

    // What does not fit, or is to be answered, goes by itself, in its place.
    lane.set_option(dti, Opt::NoDelay, 0, 0, 0).unwrap();
    lane.set_option(dti, Opt::Linger, u64::MAX, 0, 0).unwrap();
    lane.set_option(dti, Opt::NoDelay, 1, 0, 0).unwrap();
    lane.set_option(dti, Opt::NoDelay, 0, flags::NOTIFY, 0)
        .unwrap();
    let commands = engine.commands();
    let operations: Vec<_> = commands.iter().map(|(_, c)| c.operation).collect();
    use Operation::{SetOption, SetOptions};
    assert_eq!(operations, [SetOptions, SetOption, SetOptions, SetOption]);
    assert_eq!(commands[1].1.body[..2], [Opt::Linger as u64, u64::MAX]);

    // They take a place on the lane, too.
    let free = lane.free();
    lane.set_option(dti, Opt::NoDelay, 1, 0, 0).unwrap();
    assert_eq!(lane.free(), free - 1);
    lane.flush();
    assert_eq!(engine.command().operation, SetOptions);

    // A lane that is given back is flushed.
    lane.set_option(dti, Opt::NoDelay, 1, 0, 0).unwrap();
    drop(lane);
    assert_eq!(engine.command().operation, SetOptions);
}
