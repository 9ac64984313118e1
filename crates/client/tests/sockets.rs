//! Groups of sockets against the engine's half of a UAL, driven by the test: full lanes, full memory, refusals, ends.

mod fake;

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use fake::{FakeEngine, small};
use sidecore_client::asynchronous::{TcpListener, TcpStream, UdpSocket};
use sidecore_client::{
    Address, Command, DtiHandle, Event, EventKind, Operation, RegionId, Sockets, SocketsConfig,
    Status, UalConfig, flags,
};

struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A group and the engine that the test plays.
struct World {
    sockets: Sockets,
    engine: FakeEngine,
}

/// Settings of groups that do not wait long when they end.
fn brief() -> SocketsConfig {
    SocketsConfig {
        linger: Duration::from_millis(5),
        ..SocketsConfig::default()
    }
}

fn peer() -> SocketAddr {
    "10.77.0.1:9".parse().unwrap()
}

impl World {
    fn new(ual: &UalConfig, config: SocketsConfig) -> Self {
        let (ual, engine) = fake::open(ual, 1);
        let sockets = Sockets::new(&ual, config).unwrap();
        Self { sockets, engine }
    }

    /// Hands out what the engine has said, and polls.
    fn poll<F: Future>(&mut self, future: Pin<&mut F>) -> Poll<F::Output> {
        while self.sockets.turn(Duration::ZERO).unwrap() {}
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn ready<F: Future>(&mut self, future: F) -> F::Output {
        match self.poll(pin!(future)) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it is not ready"),
        }
    }

    fn say(&mut self, event: Event) {
        self.engine.emit(0, &event);
    }

    fn done(&mut self, command: &Command, status: Status) {
        let mut event = Event::new(EventKind::Completion, command.dti, command.cookie, status);
        event.body[4] = command.operation as u64;
        self.say(event);
    }

    /// A connected stream, and what the engine knows it by.
    fn connected(&mut self) -> (TcpStream, DtiHandle) {
        let sockets = self.sockets.clone();
        let mut connecting = pin!(TcpStream::connect(&sockets, peer()));
        assert!(self.poll(connecting.as_mut()).is_pending());
        let commands = self.engine.wait_commands(2);
        let at = |operation| commands.iter().position(|c| c.operation == operation);
        let (create, connect) = (at(Operation::CreateStream), at(Operation::Connect));
        assert!(create.is_some() && create < connect, "{commands:?}");
        let connect = commands[connect.unwrap()];
        assert_eq!(connect.address(0).get(), Some(peer()));
        let dti = connect.dti;
        self.say(Event::new(EventKind::Connected, dti, 0, Status::Ok));
        let stream = match self.poll(connecting) {
            Poll::Ready(result) => result.unwrap(),
            Poll::Pending => panic!("Connected was not seen"),
        };
        (stream, dti)
    }

    fn listener(&mut self) -> (TcpListener, Vec<Command>) {
        let sockets = self.sockets.clone();
        let mut listening = pin!(TcpListener::bind(&sockets, "0.0.0.0:80".parse().unwrap()));
        assert!(self.poll(listening.as_mut()).is_pending());
        let commands = self.engine.wait_commands(2);
        let bind = *commands.last().unwrap();
        assert_eq!(bind.operation, Operation::Bind);
        self.done(&bind, Status::Ok);
        assert!(self.poll(listening.as_mut()).is_pending());
        let listen = self.engine.command();
        assert_eq!(
            (listen.operation, listen.body[0]),
            (Operation::Listen, 1024)
        );
        self.done(&listen, Status::Ok);
        let listener = match self.poll(listening) {
            Poll::Ready(result) => result.unwrap(),
            Poll::Pending => panic!("the answer was not seen"),
        };
        let commands = self.engine.commands();
        let accepts = commands.into_iter().map(|(_, command)| command);
        (
            listener,
            accepts
                .filter(|c| c.operation == Operation::Accept)
                .collect(),
        )
    }
}

fn kind_of<T>(result: io::Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.kind(),
    }
}

#[test]
fn small_writes_travel_in_commands_and_some_are_answered() {
    let mut w = World::new(
        &UalConfig {
            lane_order: 6,
            ..small()
        },
        brief(),
    );
    let (stream, dti) = w.connected();
    for n in 0..33u8 {
        assert_eq!(w.ready(stream.write(&[n; 32])).unwrap(), 32);
    }
    let commands = w.engine.commands();
    assert_eq!(commands.len(), 33);
    for (n, (_, command)) in commands.iter().enumerate() {
        assert_eq!(
            (command.operation, command.dti, command.cookie),
            (Operation::Send, dti, n as u64)
        );
        if n % 17 == 16 {
            assert_eq!(
                command.flags,
                flags::NOTIFY,
                "every so many must tell how far it is"
            );
            assert_eq!(
                (command.extent().len, command.extent().region),
                (32, RegionId(0))
            );
        } else {
            let (bytes, len) = command.inline().unwrap();
            assert_eq!(
                (&bytes[..len], command.flags),
                (&[n as u8; 32][..], flags::INLINE)
            );
        }
    }
    assert_eq!(w.sockets.send_blocks_used(), 1);
    w.say(Event::new(EventKind::Sent, dti, 33, Status::Ok));
    w.sockets.turn(Duration::ZERO).unwrap();
    assert_eq!(
        w.sockets.send_blocks_used(),
        1,
        "a number that was not given counts for nothing"
    );
    w.say(Event::new(EventKind::Sent, dti, 16, Status::Ok));
    w.sockets.turn(Duration::ZERO).unwrap();
    assert_eq!(w.sockets.send_blocks_used(), 0);
}

#[test]
fn writes_wait_for_the_window() {
    let config = SocketsConfig {
        stream_bytes: 100_000,
        ..brief()
    };
    let mut w = World::new(&small(), config);
    let (stream, dti) = w.connected();
    let data: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(w.ready(stream.write(&data)).unwrap(), 100_000);
    let commands = w.engine.commands();
    let mut seen = Vec::new();
    for (_, command) in &commands {
        let extent = command.extent();
        let mut bytes = vec![0; extent.len as usize];
        assert!(
            w.engine
                .region(extent.region)
                .copy_out(extent.offset, &mut bytes)
        );
        seen.extend(bytes);
    }
    assert_eq!((commands.len(), seen.len()), (2, 100_000));
    assert!(seen == data[..100_000]);
    let counting = Arc::new(Counting(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&counting));
    let rest = &data[100_000..];
    let mut writing = pin!(stream.write(rest));
    assert!(
        writing
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert_eq!(w.sockets.send_blocks_used(), 2);
    w.say(Event::new(
        EventKind::Sent,
        dti,
        commands[0].1.cookie,
        Status::Ok,
    ));
    assert!(w.sockets.turn(Duration::ZERO).unwrap());
    assert_eq!(counting.0.load(Ordering::Relaxed), 1);
    assert_eq!(w.sockets.send_blocks_used(), 1, "the first is free again");
    match w.poll(writing) {
        Poll::Ready(written) => assert_eq!(written.unwrap(), 65_536),
        Poll::Pending => panic!("there is room"),
    }
    w.say(Event::new(
        EventKind::Closed,
        dti,
        0,
        Status::ConnectionReset,
    ));
    assert_eq!(
        kind_of(w.ready(stream.write(b"x"))),
        ErrorKind::ConnectionReset
    );
    assert_eq!(w.sockets.send_blocks_used(), 0);
}

#[test]
fn sockets_share_the_memory_to_send_from() {
    let config = SocketsConfig {
        send_bytes: 1,
        ..brief()
    };
    let mut w = World::new(&small(), config);
    let (a, dti_a) = w.connected();
    let (b, dti_b) = w.connected();
    assert_eq!(w.ready(a.write(&[1; 1000])).unwrap(), 1000);
    let counting = Arc::new(Counting(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&counting));
    let other = b.clone();
    let mut writing = Box::pin(async move { other.write(&[2; 70_000]).await });
    assert!(
        writing
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert_eq!(w.ready(b.write(b"small")).unwrap(), 5, "needs no memory");
    assert_eq!(
        w.ready(a.write(&[1; 1000])).unwrap(),
        1000,
        "the same block"
    );
    w.say(Event::new(EventKind::Sent, dti_a, 0, Status::Ok));
    w.sockets.turn(Duration::ZERO).unwrap();
    assert_eq!(counting.0.load(Ordering::Relaxed), 0);
    w.say(Event::new(EventKind::Sent, dti_a, 1, Status::Ok));
    w.sockets.turn(Duration::ZERO).unwrap();
    assert_eq!(counting.0.load(Ordering::Relaxed), 1);
    match w.poll(writing.as_mut()) {
        Poll::Ready(written) => assert_eq!(written.unwrap(), 65_536),
        Poll::Pending => panic!("there is memory"),
    }
    drop((b, writing));
    w.say(Event::new(EventKind::Closed, dti_b, 0, Status::Ok));
    w.sockets.turn(Duration::ZERO).unwrap();
    assert_eq!(w.sockets.send_blocks_used(), 0, "gone with its connection");
}

#[test]
fn a_full_lane_delays_and_loses_nothing() {
    let mut w = World::new(&small(), brief());
    let (stream, dti) = w.connected();
    let mut written = 0;
    while let Poll::Ready(result) = w.poll(pin!(stream.write(&[7]))) {
        written += result.unwrap();
    }
    assert_eq!(written, 16, "the lane holds sixteen");
    // Close cannot be posted now; it will be.
    let begun = Instant::now();
    drop(stream);
    assert!(begun.elapsed() < Duration::from_secs(5));
    let commands = w.engine.commands();
    assert!(
        commands.len() >= 16
            && commands[..16]
                .iter()
                .all(|(_, c)| c.operation == Operation::Send)
    );
    w.sockets.turn(Duration::ZERO).unwrap();
    let close = w.engine.command();
    assert_eq!((close.operation, close.dti), (Operation::Close, dti));
    w.say(Event::new(EventKind::Closed, dti, 0, Status::Ok));
    w.sockets.turn(Duration::ZERO).unwrap();
    assert_eq!(w.engine.commands(), [], "once");
    assert_eq!(w.sockets.send_blocks_used(), 0);
}

#[test]
fn refusals_reach_the_caller() {
    let mut w = World::new(
        &small(),
        SocketsConfig {
            accepts: 2,
            ..brief()
        },
    );
    let sockets = w.sockets.clone();
    let mut connecting = pin!(TcpStream::connect(&sockets, peer()));
    assert!(w.poll(connecting.as_mut()).is_pending());
    let create = w.engine.wait_commands(2)[0];
    w.done(&create, Status::NoResources);
    match w.poll(connecting) {
        Poll::Ready(result) => assert_eq!(kind_of(result), ErrorKind::QuotaExceeded),
        Poll::Pending => panic!("the refusal was not seen"),
    }

    let mut connecting = pin!(TcpStream::connect(&sockets, peer()));
    assert!(w.poll(connecting.as_mut()).is_pending());
    let commands = w.engine.wait_commands(3);
    assert_eq!(
        (commands[0].operation, commands[0].dti),
        (Operation::Close, create.dti),
        "the refused one is given up, for its handle's sake"
    );
    let create = commands[1];
    w.say(Event::new(
        EventKind::Connected,
        create.dti,
        0,
        Status::ConnectionRefused,
    ));
    match w.poll(connecting) {
        Poll::Ready(result) => assert_eq!(kind_of(result), ErrorKind::ConnectionRefused),
        Poll::Pending => panic!("the refusal was not seen"),
    }

    // An option that the engine does not know harms nothing else.
    let (stream, _) = w.connected();
    stream.set_nodelay(true);
    let option = w.engine.command();
    assert_eq!(option.operation, Operation::SetOption);
    w.done(&option, Status::NotSupported);
    assert_eq!(w.ready(stream.write(b"x")).unwrap(), 1);
    assert_eq!(w.engine.command().operation, Operation::Send);
    drop(stream);
    assert_eq!(w.engine.command().operation, Operation::Close);

    let (listener, accepts) = w.listener();
    assert_eq!(accepts.len(), 2);
    w.done(&accepts[0], Status::NoResources);
    let error = match w.poll(pin!(listener.accept())) {
        Poll::Ready(result) => kind_of(result),
        Poll::Pending => panic!("the refusal was not seen"),
    };
    assert_eq!(error, ErrorKind::QuotaExceeded);
    let commands = w.engine.commands();
    let child = DtiHandle::from_word(accepts[0].body[0]);
    assert!(
        commands
            .iter()
            .any(|(_, c)| c.operation == Operation::Close && c.dti == child)
    );
    assert!(
        commands
            .iter()
            .any(|(_, c)| c.operation == Operation::Accept),
        "another in its place"
    );
}

#[test]
fn connections_that_nobody_takes_are_closed_with_their_listener() {
    let mut w = World::new(
        &small(),
        SocketsConfig {
            accepts: 3,
            ..brief()
        },
    );
    let (listener, accepts) = w.listener();
    let children: Vec<_> = accepts
        .iter()
        .map(|c| DtiHandle::from_word(c.body[0]))
        .collect();
    let accepted = |child: DtiHandle, cookie, status| {
        Event::new(EventKind::Accepted, child, cookie, status).with_address(0, Address::new(peer()))
    };
    w.say(accepted(children[0], accepts[0].cookie, Status::Ok));
    let (stream, from) = w.ready(listener.accept()).unwrap();
    assert_eq!((stream.dti().handle(), from), (children[0], peer()));
    let listener_dti = accepts[0].dti;
    w.engine.commands();
    w.say(accepted(children[1], accepts[1].cookie, Status::Ok));
    w.sockets.turn(Duration::ZERO).unwrap();
    drop(listener);
    w.say(accepted(children[2], accepts[2].cookie, Status::Cancelled));
    w.sockets.turn(Duration::ZERO).unwrap();
    let mut closed: Vec<_> = w
        .engine
        .commands()
        .iter()
        .filter(|(_, c)| c.operation == Operation::Close)
        .map(|(_, c)| c.dti)
        .collect();
    closed.sort_by_key(|dti| dti.index);
    let mut expected = vec![listener_dti, children[1], children[2]];
    expected.sort_by_key(|dti| dti.index);
    assert_eq!(closed, expected);
    drop(stream);
    assert_eq!(w.engine.command().dti, children[0]);
}

#[test]
fn unread_bytes_go_back_when_a_socket_is_dropped() {
    let mut w = World::new(&small(), brief());
    let (stream, dti) = w.connected();
    assert!(w.engine.pool.copy_in(0, b"first and second"));
    w.say(Event::received(dti, 0, 0, 5, 0, false));
    w.say(Event::received(dti, 5, 6, 10, 5, false));
    let mut out = [0; 2];
    assert_eq!(w.ready(stream.read(&mut out)).unwrap(), 2);
    assert_eq!(&out, b"fi");
    drop(stream);
    w.say(Event::received(dti, 9, 0, 1, 15, true));
    w.sockets.turn(Duration::ZERO).unwrap();
    w.sockets.turn(Duration::from_millis(1)).unwrap();
    let mut returned: Vec<u32> = w
        .engine
        .commands()
        .iter()
        .filter(|(_, c)| c.operation == Operation::ReturnChunks)
        .flat_map(|(_, c)| c.returned_chunks())
        .collect();
    returned.sort_unstable();
    assert_eq!(returned, [0, 5, 9]);
}

#[test]
fn reads_cross_pieces_and_end_in_order() {
    let mut w = World::new(&small(), brief());
    let (stream, dti) = w.connected();
    assert!(w.engine.pool.copy_in(4096, b"abcdefghij"));
    w.say(Event::received(dti, 2, 4096, 4, 0, false));
    w.say(Event::received(dti, 2, 4100, 6, 4, true));
    w.say(Event::new(
        EventKind::Closed,
        dti,
        0,
        Status::ConnectionReset,
    ));
    let mut out = [0; 7];
    assert_eq!(w.ready(stream.read(&mut out)).unwrap(), 7);
    assert_eq!(&out, b"abcdefg");
    assert_eq!(w.ready(stream.read(&mut out)).unwrap(), 3);
    assert_eq!(
        w.ready(stream.read(&mut out)).unwrap(),
        0,
        "the end was in order"
    );
    assert_eq!(w.ready(stream.read(&mut [])).unwrap(), 0);

    let (stream, dti) = w.connected();
    w.say(Event::received(dti, 3, 4096, 2, 0, false));
    w.say(Event::new(
        EventKind::Closed,
        dti,
        0,
        Status::ConnectionReset,
    ));
    assert_eq!(
        w.ready(stream.read(&mut out)).unwrap(),
        2,
        "what came before the reset"
    );
    assert_eq!(
        kind_of(w.ready(stream.read(&mut out))),
        ErrorKind::ConnectionReset
    );
}

#[test]
fn datagrams_keep_their_bounds_and_tell_errors_once() {
    let mut w = World::new(&small(), brief());
    let sockets = w.sockets.clone();
    let mut binding = pin!(UdpSocket::bind(&sockets, "0.0.0.0:53".parse().unwrap()));
    assert!(w.poll(binding.as_mut()).is_pending());
    let bind = w.engine.wait_commands(2)[1];
    w.done(&bind, Status::Ok);
    let socket = match w.poll(binding) {
        Poll::Ready(result) => result.unwrap(),
        Poll::Pending => panic!("the answer was not seen"),
    };
    assert_eq!(w.ready(socket.send_to(&[5; 2000], peer())).unwrap(), 2000);
    let command = w.engine.command();
    assert_eq!((command.extent().len, command.flags), (2000, flags::NOTIFY));
    assert_eq!(command.address(2).get(), Some(peer()));
    assert_eq!(w.ready(socket.send_to(&[], peer())).unwrap(), 0);
    assert_eq!(
        w.engine.command().extent().len,
        0,
        "empty ones are sent too"
    );

    assert!(w.engine.pool.copy_in(0, b"datagram"));
    let datagram = |chunk, len| {
        let mut event = Event::received(bind.dti, chunk, 0, len, 0, false);
        event.kind = EventKind::Datagram;
        event.with_address(2, Address::new(peer()))
    };
    w.say(datagram(1, 8));
    w.say(datagram(2, 0));
    w.say(datagram(3, 4));
    let mut out = [0; 4];
    assert_eq!(
        w.ready(socket.recv_from(&mut out)).unwrap(),
        (4, peer()),
        "cut off"
    );
    assert_eq!(w.ready(socket.recv_from(&mut out)).unwrap(), (0, peer()));
    assert_eq!(w.ready(socket.recv_from(&mut out)).unwrap(), (4, peer()));
    w.say(Event::new(
        EventKind::Error,
        bind.dti,
        0,
        Status::ConnectionRefused,
    ));
    assert_eq!(
        kind_of(w.ready(socket.recv_from(&mut out))),
        ErrorKind::ConnectionRefused
    );
    assert!(w.poll(pin!(socket.recv_from(&mut out))).is_pending());
    w.sockets.turn(Duration::from_millis(1)).unwrap();
    let returned: Vec<u32> = w
        .engine
        .commands()
        .iter()
        .flat_map(|(_, c)| c.returned_chunks())
        .collect();
    assert_eq!(returned.len(), 3);
}

#[test]
fn dropping_a_group_waits_for_what_was_written_and_not_for_ever() {
    let config = SocketsConfig {
        linger: Duration::from_millis(50),
        ..brief()
    };
    let mut w = World::new(&small(), config.clone());
    let (stream, _) = w.connected();
    drop(stream);
    let begun = Instant::now();
    let World { sockets, engine } = w;
    drop(sockets);
    assert!(
        begun.elapsed() >= Duration::from_millis(50),
        "Closed never came"
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    drop(engine);

    let config = SocketsConfig {
        linger: Duration::from_secs(60),
        ..config
    };
    let mut w = World::new(&small(), config.clone());
    let (stream, dti) = w.connected();
    drop(stream);
    w.say(Event::new(EventKind::Closed, dti, 0, Status::Ok));
    let World { sockets, engine } = w;
    drop(sockets);
    drop(engine);

    let mut w = World::new(&small(), config);
    let (stream, _) = w.connected();
    w.engine.die();
    let begun = Instant::now();
    while w.sockets.turn(Duration::from_millis(10)).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let mut out = [0];
    match stream.poll_read(&mut Context::from_waker(Waker::noop()), &mut out) {
        Poll::Ready(result) => assert_eq!(kind_of(result), ErrorKind::NotConnected),
        Poll::Pending => panic!("the engine has gone"),
    }
    drop(stream);
    drop(w);
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "nobody waits for an engine that has gone"
    );
}
