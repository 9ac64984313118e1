//! The stack against smoltcp's over every kind of bad line, in virtual time: each connects to the other, over both versions of IP.
//!
//! Every byte is compared, both ends must close in all order, and time and frames have bounds: the same with every run, as all chance has a seed.

#[path = "../../stack/tests/stack/smoltcp_device.rs"]
mod smoltcp_device;

use std::time::Duration;

use sidecore_nic::{Link, LinkModel};
use sidecore_tcp::{CloseReason, Instant, State};
use sidecore_testkit::{Node, NodeConfig, pattern};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use smoltcp_device::Queues;

const MS: Duration = Duration::from_millis(1);

/// Who connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    We,
    Smoltcp,
}

/// Which IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    Four,
    Six,
}

impl Version {
    /// Our address and smoltcp's.
    fn addresses(self) -> [&'static str; 2] {
        match self {
            Self::Four => ["10.0.0.1", "10.0.0.2"],
            Self::Six => ["fd00::1", "fd00::2"],
        }
    }
}

/// A conversation over a line.
#[derive(Clone)]
struct Case {
    name: &'static str,
    /// From us to smoltcp, and back.
    line: [LinkModel; 2],
    /// Bytes each way.
    bytes: usize,
    /// What the line becomes when half of the bytes have arrived, and for how long.
    change: Option<([LinkModel; 2], Duration)>,
    /// Our receive window and smoltcp's buffer.
    windows: [usize; 2],
    /// How long it may take.
    at_most: Duration,
}

impl Case {
    fn new(name: &'static str, bytes: usize, model: LinkModel, seconds: u64) -> Self {
        Self {
            name,
            line: both(model),
            bytes,
            change: None,
            windows: [60_000, 40_000],
            at_most: Duration::from_secs(seconds),
        }
    }

    fn then(mut self, model: LinkModel, lasts: Duration) -> Self {
        self.change = Some((both(model), lasts));
        self
    }
}

fn both(model: LinkModel) -> [LinkModel; 2] {
    let back = LinkModel {
        seed: model.seed + 1_000_000,
        ..model
    };
    [model, back]
}

fn good() -> LinkModel {
    LinkModel {
        delay: 2 * MS,
        ..LinkModel::default()
    }
}

/// Our node and smoltcp, on a line.
struct World {
    node: Node,
    device: Queues,
    iface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    links: [Link; 2],
    now: Instant,
    version: Version,
}

fn foreign_time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(now.as_micros() as i64)
}

impl World {
    fn new(case: &Case, version: Version) -> Self {
        let now = Instant::from_secs(1000);
        let mut config = NodeConfig::new(1);
        config.buffer = case.windows[0] as u64;
        config.stack.arp.tries = 20;
        config.stack.ipv6.enabled = true;
        config.stack.ipv6.dad_transmits = 0;
        config.stack.ipv6.accept_routers = false;
        let own = format!("{}/64", Version::Six.addresses()[0]);
        config.stack.ipv6.addresses = vec![own.parse().expect("a network")];
        let mut device = Queues::default();
        let mac = EthernetAddress([2, 0, 0, 0, 0, 2]);
        let mut iface_config = Config::new(mac.into());
        iface_config.random_seed = case.line[0].seed;
        let mut iface = Interface::new(iface_config, &mut device, foreign_time(now));
        iface.update_ip_addrs(|addresses| {
            for (version, prefix) in [(Version::Four, 24), (Version::Six, 64)] {
                let address: IpAddress = version.addresses()[1].parse().expect("an address");
                addresses.push(IpCidr::new(address, prefix)).expect("room");
            }
        });
        let ring = || tcp::SocketBuffer::new(vec![0; case.windows[1]]);
        let mut socket = tcp::Socket::new(ring(), tcp::SocketBuffer::new(vec![0; 40_000]));
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self {
            node: Node::new(&config, now),
            device,
            iface,
            sockets,
            handle,
            links: case.line.map(Link::new),
            now,
            version,
        }
    }

    fn foreign(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Connects; our user.
    fn connect(&mut self, role: Role) -> u32 {
        let [own, theirs] = self.version.addresses();
        match role {
            Role::We => {
                self.foreign().listen(80).expect("a port");
                let to = (theirs.parse::<std::net::IpAddr>().expect("an address"), 80);
                let user = self.node.connect(self.now, to.into());
                self.run_until(300, |world| !world.node.events(user).is_empty());
                self.run_until(300, |world| world.foreign().may_send());
                user
            }
            Role::Smoltcp => {
                let any = match self.version {
                    Version::Four => "0.0.0.0:80",
                    Version::Six => "[::]:80",
                };
                let local = any.parse().expect("an address");
                let listened = self.node.listen_at(local, false, 8);
                let (_, listener) = listened.expect("a free port");
                let to: IpAddress = own.parse().expect("an address");
                let context = self.iface.context();
                let socket = self.sockets.get_mut::<tcp::Socket>(self.handle);
                socket.connect(context, (to, 80), 4321).expect("a route");
                let mut user = None;
                self.run_until(300, |world| {
                    user = user.or_else(|| world.node.accept(listener));
                    user.is_some() && world.foreign().may_send()
                });
                user.expect("accepted")
            }
        }
    }

    /// What happens now, and on to the next thing that does.
    fn step(&mut self, end: Instant) {
        let now_ns = self.now.as_nanos();
        let [there, back] = &mut self.links;
        while let Some(frame) = back.pop(now_ns) {
            self.node.receive(self.now, &frame.bytes);
        }
        for frame in self.node.turn(self.now) {
            there.push(now_ns, &frame);
        }
        // The router before the line answers at once.
        while let Some(answer) = there.take_answer() {
            self.node.receive(self.now, &answer);
        }
        while let Some(frame) = there.pop(now_ns) {
            self.device.incoming.push_back(frame.bytes);
        }
        let at = foreign_time(self.now);
        self.iface.poll(at, &mut self.device, &mut self.sockets);
        for frame in self.device.outgoing.drain(..) {
            back.push(now_ns, &frame);
        }
        let foreign = self.iface.poll_at(at, &self.sockets);
        let foreign = foreign.map(|at| Instant::from_micros(at.total_micros() as u64));
        let arrivals = self.links.iter().filter_map(Link::next_arrival_ns);
        let events = arrivals
            .map(Instant::from_nanos)
            .chain(self.node.stack.next_timeout())
            .chain(foreign);
        // smoltcp's time counts in microseconds, and its application gets a say from time to time, too.
        let soon = self.now + Duration::from_micros(1);
        let latest = (self.now + 5 * MS).min(end).max(soon);
        self.now = events
            .min()
            .map_or(latest, |next| next.max(soon))
            .min(latest);
    }

    fn run_until(&mut self, seconds: u64, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = self.now;
        let end = begun + Duration::from_secs(seconds);
        while !done(self) {
            assert!(self.now < end, "not done within {seconds} s");
            self.step(end);
        }
    }

    /// Both send and receive; the line changes when half of all bytes are there.
    fn exchange(&mut self, case: &Case, user: u32) {
        let (to_us, from_us) = (pattern(1, 0, case.bytes), pattern(2, 0, case.bytes));
        let (mut sent, mut got, mut restore) = (0, Vec::new(), None);
        let mut change = case.change;
        self.node.write(user, &from_us);
        self.run_until(case.at_most.as_secs(), |world| {
            let socket = world.foreign();
            if socket.can_send() && sent < to_us.len() {
                sent += socket.send_slice(&to_us[sent..]).expect("it can");
            }
            let mut buffer = [0; 4096];
            while socket.can_recv() {
                let len = socket.recv_slice(&mut buffer).expect("it can");
                got.extend_from_slice(&buffer[..len]);
            }
            let arrived = got.len() + world.node.received(user).len();
            if arrived >= case.bytes
                && let Some((line, lasts)) = change.take()
            {
                world.set_line(line);
                restore = Some(world.now + lasts);
            }
            if restore.is_some_and(|at| at <= world.now) {
                world.set_line(case.line);
                restore = None;
            }
            arrived == 2 * case.bytes
        });
        assert!(change.is_none(), "the line never changed");
        assert!(got == from_us, "other bytes came to smoltcp");
        assert!(self.node.received(user) == to_us, "other bytes came to us");
    }

    fn set_line(&mut self, line: [LinkModel; 2]) {
        for (link, model) in self.links.iter_mut().zip(line) {
            link.set_model(model);
        }
    }

    /// Who connected closes first.
    fn close(&mut self, role: Role, user: u32) {
        match role {
            Role::We => {
                self.node.close(user);
                self.run_until(300, |world| !world.foreign().may_recv());
                self.foreign().close();
            }
            Role::Smoltcp => {
                self.foreign().close();
                self.run_until(300, |world| world.node.has_fin(user));
                self.node.close(user);
            }
        }
        self.run_until(300, |world| world.node.closed(user).is_some());
        assert_eq!(self.node.closed(user), Some(CloseReason::Normal));
        // Who closed first stays in TIME-WAIT; the other one is gone.
        self.run_until(300, |world| {
            let state = world.foreign().state();
            let ours = world.node.stack.connections().next();
            let ours = ours.map(|connection| connection.tcp.state);
            match role {
                Role::We => state == tcp::State::Closed && ours == Some(State::TimeWait),
                Role::Smoltcp => state == tcp::State::TimeWait && ours.is_none(),
            }
        });
    }
}

fn run(cases: &[Case]) {
    for role in [Role::We, Role::Smoltcp] {
        for version in [Version::Four, Version::Six] {
            for case in cases {
                eprintln!("{}, {role:?} connect, IPv{version:?}", case.name);
                let mut world = World::new(case, version);
                let user = world.connect(role);
                let begun = world.now;
                world.exchange(case, user);
                eprintln!("  {:?}", world.now.duration_since(begun));
                world.close(role, user);
                sober(case, &world);
            }
        }
    }
}

/// Neither sends very much more than there is to send.
fn sober(case: &Case, world: &World) {
    let segments = case.bytes as u64 / case.windows.into_iter().min().unwrap_or(1).min(1000) as u64;
    let most = 8 * segments + 200;
    for link in &world.links {
        let counters = link.counters();
        assert!(counters.pushed <= most, "more than {most}: {counters:?}");
    }
}

#[test]
fn lines_that_lose() {
    let losing = |loss, seed| LinkModel {
        loss,
        seed,
        ..good()
    };
    run(&[
        Case::new("a good line", 300_000, good(), 5),
        Case::new("1 % is lost", 150_000, losing(0.01, 1), 30),
        Case::new("5 % is lost", 100_000, losing(0.05, 2), 60),
        Case::new("10 % is lost", 100_000, losing(0.1, 3), 120),
        Case::new(
            "3 % is damaged",
            100_000,
            LinkModel {
                corrupt: 0.03,
                ..good()
            },
            60,
        ),
    ]);
}

#[test]
fn lines_that_delay_double_and_reorder() {
    run(&[
        Case::new(
            "20 % is overtaken",
            150_000,
            LinkModel {
                reorder: 0.2,
                ..good()
            },
            60,
        ),
        Case::new(
            "20 % comes twice",
            150_000,
            LinkModel {
                duplicate: 0.2,
                ..good()
            },
            30,
        ),
        Case::new(
            "jitter reorders",
            150_000,
            LinkModel {
                jitter: 10 * MS,
                jitter_reorders: true,
                ..good()
            },
            60,
        ),
        Case::new(
            "300 ms each way",
            150_000,
            LinkModel {
                delay: 300 * MS,
                ..good()
            },
            60,
        ),
        Case::new(
            "1 Mbit/s and a short queue",
            60_000,
            LinkModel {
                rate_bps: 1_000_000,
                queue_frames: 20,
                ..good()
            },
            120,
        ),
        Case::new(
            "a little of everything",
            100_000,
            LinkModel {
                loss: 0.02,
                duplicate: 0.02,
                reorder: 0.05,
                corrupt: 0.01,
                delay: 20 * MS,
                jitter: 5 * MS,
                rate_bps: 5_000_000,
                queue_bytes: 60_000,
                ..good()
            },
            120,
        ),
    ]);
}

#[test]
fn lines_that_change() {
    let slow = LinkModel {
        rate_bps: 2_000_000,
        queue_bytes: 100_000,
        ..good()
    };
    let dead = LinkModel { loss: 1.0, ..slow };
    let narrow = LinkModel { mtu: 1280, ..slow };
    let mut path = Case::new("the MTU falls to 1280 for good", 150_000, slow, 60)
        .then(narrow, Duration::from_secs(1000));
    // smoltcp does not heed "too big": only we are told.
    path.line[1] = slow;
    if let Some((line, _)) = &mut path.change {
        line[1] = slow;
    }
    run(&[
        path,
        Case::new("a black hole for 0.5 s", 150_000, slow, 60).then(dead, 500 * MS),
        Case::new("a black hole for 10 s", 150_000, slow, 120).then(dead, 10_000 * MS),
        Case::new("the rate falls to a twentieth", 60_000, slow, 60).then(
            LinkModel {
                rate_bps: 100_000,
                ..slow
            },
            Duration::from_secs(1000),
        ),
    ]);
}

#[test]
fn windows_of_one_byte() {
    let small = |name, windows| Case {
        windows,
        ..Case::new(name, 300, good(), 600)
    };
    run(&[
        small("our window is one byte", [1, 40_000]),
        small("theirs is", [60_000, 1]),
        small("both are", [1, 1]),
    ]);
    let lossy = LinkModel {
        loss: 0.1,
        ..good()
    };
    run(&[Case {
        windows: [1, 1],
        ..Case::new("both are, and 10 % is lost", 100, lossy, 3000)
    }]);
}

#[test]
fn a_peer_that_vanishes() {
    for version in [Version::Four, Version::Six] {
        let case = Case::new("it vanishes", 200_000, good(), 60);
        let mut world = World::new(&case, version);
        world
            .foreign()
            .set_timeout(Some(smoltcp::time::Duration::from_secs(30)));
        let user = world.connect(Role::We);
        world.node.write(user, &pattern(2, 0, case.bytes));
        let block = pattern(1, 0, 20_000);
        world.foreign().send_slice(&block).expect("it can");
        world.run_until(5, |world| !world.node.received(user).is_empty());
        world.set_line(both(LinkModel {
            loss: 1.0,
            ..good()
        }));
        let gone = world.now;
        world.run_until(100, |world| world.foreign().state() == tcp::State::Closed);
        // As long as Linux tries: about 15 minutes.
        world.run_until(1200, |world| world.node.closed(user).is_some());
        assert_eq!(world.node.closed(user), Some(CloseReason::TimedOut));
        let took = world.now.duration_since(gone);
        assert!(took > Duration::from_secs(900), "{took:?}");
        assert_eq!(world.node.stack.connection_count(), 0);
    }
}
