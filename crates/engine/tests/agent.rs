//! What strangers may send to the agent: each is answered with a status, and nobody else notices.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sidecore_abi::agent::{DATAGRAM, MESSAGE_BYTES, Reply, Request, RequestKind};
use sidecore_abi::command::Opt;
use sidecore_abi::control::Geometry;
use sidecore_abi::{Address, EventKind, RegionId, Status};
use sidecore_client::{EventQueue, Lane, Ual, UalConfig};
use sidecore_engine::{Engine, EngineConfig, EngineHandle, Policy};
use sidecore_sys::memfd::Memfd;
use sidecore_sys::unix::Stream;

fn engine() -> EngineHandle {
    Engine::spawn(EngineConfig {
        addresses: vec!["10.9.0.1/24".parse().unwrap()],
        policy: Policy {
            region_bytes: 1 << 20,
            ..Policy::default()
        },
        ..EngineConfig::default()
    })
    .unwrap()
}

/// A session that speaks the agent's messages by hand.
struct Stranger(Stream);

impl Stranger {
    fn new(engine: &EngineHandle) -> Self {
        let stranger = Self(Stream::from(engine.connect().unwrap()));
        let open = Request {
            geometry: Geometry {
                engines: 1,
                lanes: 1,
                lane_order: 6,
                evqs: 1,
                evq_order: 6,
                wait_cells: 1,
            },
            dtis: 8,
            pool_bytes: 1 << 20,
            ..Request::new(RequestKind::OpenUal)
        };
        assert_eq!(stranger.ask(&open.to_bytes(), &[]), Status::Ok as u16);
        stranger
    }

    /// The status of the answer.
    fn ask(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> u16 {
        self.0.send_with_fds(message, fds).unwrap();
        let mut bytes = [0; MESSAGE_BYTES];
        let (n, _) = self.0.recv_with_fds(&mut bytes).unwrap();
        Reply::from_bytes(&bytes[..n]).expect("an answer").status
    }

    /// One descriptor, the first.
    fn descriptor(&self) -> OwnedFd {
        let descriptors = Request {
            args: [1, 0, 0],
            ..Request::new(RequestKind::Descriptors)
        };
        let message = descriptors.to_bytes();
        self.0.send_with_fds(&message, &[]).unwrap();
        let (_, mut fds) = self.0.recv_with_fds(&mut [0; MESSAGE_BYTES]).unwrap();
        assert_eq!(fds.len(), 1);
        fds.remove(0)
    }

    fn register(&self, fds: &[BorrowedFd<'_>]) -> u16 {
        let request = Request {
            args: [0, u64::MAX, 0],
            ..Request::new(RequestKind::RegisterRegion)
        };
        self.ask(&request.to_bytes(), fds)
    }
}

/// An application as it should be, which looks whether it is still served.
struct Innocent {
    ual: Ual,
    lane: Lane,
    evq: EventQueue,
}

impl Innocent {
    fn new(engine: &EngineHandle) -> Self {
        let ual = Ual::open_on(engine.connect().unwrap(), &UalConfig::default()).unwrap();
        let (lane, evq) = (ual.lane().unwrap(), ual.event_queue().unwrap());
        Self { ual, lane, evq }
    }

    fn is_served(&mut self) {
        let region = self.ual.allocate_region(4096, false).unwrap();
        self.lane.nop(&self.evq, 7).unwrap();
        self.lane.deregister(region.id(), &self.evq, 8).unwrap();
        self.lane.flush();
        for cookie in [7, 8] {
            let event = loop {
                match self.evq.poll() {
                    Some(event) => break event,
                    None => assert!(self.evq.wait(None).unwrap()),
                }
            };
            assert_eq!((event.kind, event.cookie), (EventKind::Completion, cookie));
            assert_eq!(event.status, Status::Ok);
        }
    }
}

/// A release of a descriptor as a stranger could word it.
fn release(
    stranger: &Stranger,
    number: u64,
    flags: u64,
    bytes: u32,
    fds: &[BorrowedFd<'_>],
) -> u16 {
    let request = Request {
        args: [number, flags, 0],
        dtis: bytes,
        ..Request::new(RequestKind::Release)
    };
    stranger.ask(&request.to_bytes(), fds)
}

fn memfd(len: u64) -> Memfd {
    Memfd::create("test", len, false).unwrap()
}

fn sealed(len: u64) -> Memfd {
    let memfd = memfd(len);
    memfd.seal_size().unwrap();
    memfd
}

fn file(fd: OwnedFd) -> std::fs::File {
    std::fs::File::from(fd)
}

#[test]
fn memory_that_could_vanish_is_refused() {
    let engine = engine();
    let stranger = Stranger::new(&engine);
    let mut innocent = Innocent::new(&engine);
    let bad_extent = Status::BadExtent as u16;
    // Not sealed at all; cut short before it was offered; sealed against growth only.
    let plain = memfd(8192);
    assert_eq!(stranger.register(&[plain.as_fd()]), bad_extent);
    let cut = file(memfd(8192).into_fd());
    cut.set_len(0).unwrap();
    assert_eq!(stranger.register(&[cut.as_fd()]), bad_extent);
    let half = memfd(8192);
    rustix::fs::fcntl_add_seals(&half, rustix::fs::SealFlags::GROW).unwrap();
    assert_eq!(stranger.register(&[half.as_fd()]), bad_extent);
    // Nothing in it; no memory at all.
    assert_eq!(stranger.register(&[sealed(0).as_fd()]), bad_extent);
    let null = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(stranger.register(&[null.as_fd()]), bad_extent);
    let on_disk = tempfile();
    assert_eq!(stranger.register(&[on_disk.as_fd()]), bad_extent);
    let (pipe, _writer) = std::io::pipe().unwrap();
    assert_eq!(stranger.register(&[pipe.as_fd()]), bad_extent);
    let (socket, _other) = Stream::pair().unwrap();
    assert_eq!(stranger.register(&[socket.as_fd()]), bad_extent);
    // What is sealed is taken by the same session after all that, and cannot be cut any more.
    let good = sealed(8192);
    assert_eq!(stranger.register(&[good.as_fd()]), Status::Ok as u16);
    assert!(file(good.into_fd()).set_len(0).is_err());
    innocent.is_served();
    engine.stop();
}

/// A file of an ordinary file system, without a name.
fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("sidecore-agent-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(8192).unwrap();
    file
}

#[test]
fn messages_that_make_no_sense_are_answered() {
    let engine = engine();
    let stranger = Stranger::new(&engine);
    let mut innocent = Innocent::new(&engine);
    let invalid = Status::Invalid as u16;
    let (one, two) = (sealed(4096), sealed(4096));
    assert_eq!(stranger.register(&[]), invalid);
    assert_eq!(stranger.register(&[one.as_fd(), two.as_fd()]), invalid);
    // More than the quota, as a whole and in sum.
    let much = sealed(2 << 20);
    let no_resources = Status::NoResources as u16;
    assert_eq!(stranger.register(&[much.as_fd()]), no_resources);
    let half = sealed(512 << 10);
    assert_eq!(stranger.register(&[half.as_fd()]), Status::Ok as u16);
    assert_eq!(stranger.register(&[half.as_fd()]), Status::Ok as u16);
    assert_eq!(stranger.register(&[one.as_fd()]), no_resources);
    // Queues and cells that there are not; a second UAL; words of another language.
    let request = |kind, args| Request {
        args,
        ..Request::new(kind)
    };
    let to_nobody = request(RequestKind::RegisterRegion, [0, 99, 0]);
    let status = stranger.ask(&to_nobody.to_bytes(), &[one.as_fd()]);
    assert!([invalid, no_resources].contains(&status), "{status}");
    let cell = request(RequestKind::WaitSocket, [1 << 40, 0, 0]);
    assert_eq!(stranger.ask(&cell.to_bytes(), &[]), invalid);
    let again = Request::new(RequestKind::OpenUal).to_bytes();
    assert_eq!(stranger.ask(&again, &[]), Status::WrongState as u16);
    assert_eq!(stranger.ask(b"GET / HTTP/1.1\r\n\r\n", &[]), invalid);
    assert_eq!(
        stranger.ask(&[0xff; MESSAGE_BYTES], &[one.as_fd()]),
        invalid
    );
    innocent.is_served();
    // A message that is too long, and descriptors beyond number, cost the session at most.
    let fds: Vec<_> = std::iter::repeat_n(one.as_fd(), 32).collect();
    let _ = stranger.0.send_with_fds(&[0; 4096], &fds);
    innocent.is_served();
    let newcomer = Stranger::new(&engine);
    assert_eq!(newcomer.register(&[one.as_fd()]), Status::Ok as u16);
    engine.stop();
}

#[test]
fn a_hole_in_a_region_harms_its_owner_only() {
    let engine = engine();
    let mut innocent = Innocent::new(&engine);
    let mut owner = Innocent::new(&engine);
    let memory = sealed(64 << 10);
    memory.write_all_at(&[7; 64 << 10], 0).unwrap();
    let region = owner.ual.register(&memory).unwrap();
    assert_ne!(region.id(), RegionId::default());
    let address = "10.9.0.1:7000".parse().unwrap();
    let (lane, evq) = (&mut owner.lane, &owner.evq);
    let listener = lane.create_stream(evq, evq).unwrap();
    lane.bind(listener, address, 0).unwrap();
    lane.listen(listener, 4, 0).unwrap();
    let (server, client) = (
        lane.create_stream(evq, evq).unwrap(),
        lane.create_stream(evq, evq).unwrap(),
    );
    lane.accept(listener, server, 0).unwrap();
    lane.connect(client, address, 0).unwrap();
    rustix::fs::fallocate(
        &memory,
        rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
        0,
        64 << 10,
    )
    .unwrap();
    let all = region.extent(0, 64 << 10).unwrap();
    lane.send(client, all, 0, 0).unwrap();
    lane.flush();
    let mut got = Vec::new();
    while got.len() < 64 << 10 {
        assert!(owner.evq.wait(None).unwrap());
        while let Some(event) = owner.evq.poll() {
            assert_eq!(event.status, Status::Ok, "{event:?}");
            if event.kind == EventKind::Received {
                owner.ual.pool().append(&event, &mut got);
                owner.lane.return_chunk(&event);
            }
        }
        owner.lane.flush();
    }
    assert!(got.iter().all(|byte| *byte == 0), "a hole is zeros");
    innocent.is_served();
    owner.is_served();
    engine.stop();
}

#[test]
fn what_is_said_of_connections_that_change_hands_is_checked() {
    let engine = engine();
    let (stranger, mut innocent) = (Stranger::new(&engine), Innocent::new(&engine));
    // Kept: a descriptor that nobody holds is none any more.
    let _held = stranger.descriptor();
    // There is nobody who could take anything.
    let not_supported = Status::NotSupported as u16;
    assert_eq!(release(&stranger, 1, 0, 0, &[]), not_supported);
    // A custodian, of this process as it has to be. It reads nothing.
    let keeper = Ual::open_on(engine.connect().unwrap(), &UalConfig::default()).unwrap();
    let _custody = keeper.custody().unwrap();
    assert!(keeper.custody().is_err(), "there is one");
    let bad_extent = Status::BadExtent as u16;
    let (plain, good) = (memfd(4096), sealed(4096));
    assert_eq!(release(&stranger, 1, 0, 10, &[plain.as_fd()]), bad_extent);
    assert_eq!(release(&stranger, 1, 0, 4097, &[good.as_fd()]), bad_extent);
    assert_eq!(
        release(&stranger, 1, 0, u32::MAX, &[good.as_fd()]),
        bad_extent
    );
    assert_eq!(release(&stranger, 1, 0, 10, &[]), bad_extent);
    assert_eq!(release(&stranger, 1, 0, 0, &[good.as_fd()]), bad_extent);
    assert_eq!(release(&stranger, 1, 1 << 40, 0, &[]), bad_extent);
    assert_eq!(release(&stranger, 2, 0, 0, &[]), Status::WrongState as u16);
    assert_eq!(
        release(&stranger, u64::MAX, 0, 0, &[]),
        Status::WrongState as u16
    );
    // After all that it may still be done right, and once only.
    assert_eq!(
        release(&stranger, 1, 0, 10, &[good.as_fd()]),
        Status::Ok as u16
    );
    assert_eq!(release(&stranger, 1, 0, 0, &[]), Status::WrongState as u16);
    // Nobody who has not opened a UAL has any of this.
    let nobody = Stranger(Stream::from(engine.connect().unwrap()));
    for kind in [
        RequestKind::Release,
        RequestKind::Adopt,
        RequestKind::Leave,
        RequestKind::Describe,
        RequestKind::Option,
        RequestKind::Recalls,
        RequestKind::Custody,
    ] {
        let answer = nobody.ask(&Request::new(kind).to_bytes(), &[]);
        assert_eq!(answer, Status::WrongState as u16, "{kind:?}");
    }
    let addressless = Request {
        args: [1, 1, 1],
        ..Request::new(RequestKind::Describe)
    };
    assert_eq!(
        stranger.ask(&addressless.to_bytes(), &[]),
        Status::WrongState as u16
    );
    innocent.is_served();
}

#[test]
fn only_who_holds_a_descriptor_describes_it_or_asks_about_it() {
    let engine = engine();
    let (owner, other) = (Stranger::new(&engine), Stranger::new(&engine));
    let held = owner.descriptor();
    let (pretended, _peer) = Stream::pair().unwrap();
    let option = |option: u64| {
        let request = Request {
            args: [1, option, 1],
            ..Request::new(RequestKind::Option)
        };
        request.to_bytes()
    };
    let no_delay = option(Opt::NoDelay as u64);
    let not_permitted = Status::NotPermitted as u16;
    assert_eq!(other.ask(&no_delay, &[]), not_permitted);
    assert_eq!(other.ask(&no_delay, &[pretended.as_fd()]), not_permitted);
    // The custodian's own are nobody's business.
    for which in [Opt::Descriptor as u64, Opt::Holders as u64, 0, u64::MAX] {
        let status = other.ask(&option(which), &[held.as_fd()]);
        assert_eq!(status, Status::NotSupported as u16, "{which}");
    }
    let wrong_state = Status::WrongState as u16;
    assert_eq!(other.ask(&no_delay, &[held.as_fd()]), wrong_state);
    let describe = |flags: u32| {
        let [a, b, c] = Address::new("10.9.0.1:7".parse().unwrap()).0;
        let request = Request {
            args: [1, 0, 77],
            dtis: flags,
            more: [a, b, c, 0, 0, 0],
            ..Request::new(RequestKind::Describe)
        };
        request.to_bytes()
    };
    assert_eq!(other.ask(&describe(DATAGRAM), &[]), wrong_state);
    let pretends = other.ask(&describe(DATAGRAM), &[pretended.as_fd()]);
    assert_eq!(pretends, wrong_state);
    assert_eq!(other.ask(&describe(0), &[held.as_fd()]), wrong_state);
    let ok = Status::Ok as u16;
    assert_eq!(other.ask(&describe(DATAGRAM), &[held.as_fd()]), ok);
    let adopt = Request {
        args: [1, 0, 1],
        ..Request::new(RequestKind::Adopt)
    };
    assert_eq!(other.ask(&adopt.to_bytes(), &[held.as_fd()]), ok);
    engine.stop();
}
