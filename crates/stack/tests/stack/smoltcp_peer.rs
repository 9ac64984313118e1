//! A foreign TCP: smoltcp at the other end of the link.

use std::time::Duration;

use sidecore_tcp::{CloseReason, Instant};
use sidecore_testkit::{Direction, Link, Node, NodeConfig, pattern};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::{tcp, udp};
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Address};

use crate::smoltcp_device::Queues;

/// Our node and smoltcp, on a link.
struct World {
    node: Node,
    device: Queues,
    iface: Interface,
    sockets: SocketSet<'static>,
    links: [Direction; 2],
    now: Instant,
}

impl World {
    fn new(link: Link, seed: u64) -> Self {
        let now = Instant::from_secs(1000);
        let mut config = NodeConfig::new(1);
        config.tso_max = 16_000;
        config.stack.arp.tries = 20;
        let mut device = Queues::default();
        let mac = EthernetAddress([2, 0, 0, 0, 0, 2]);
        let mut iface_config = Config::new(mac.into());
        iface_config.random_seed = seed;
        let mut iface = Interface::new(iface_config, &mut device, smoltcp_time(now));
        iface.update_ip_addrs(|addresses| {
            let address = Ipv4Address::new(10, 0, 0, 2);
            addresses.push(IpCidr::new(address.into(), 24)).unwrap();
        });
        Self {
            node: Node::new(&config, now),
            device,
            iface,
            sockets: SocketSet::new(Vec::new()),
            links: [0, 1].map(|n| Direction::new(link.clone(), seed * 2 + n)),
            now,
        }
    }

    fn add_tcp(&mut self, buffer: usize) -> SocketHandle {
        let ring = || tcp::SocketBuffer::new(vec![0; buffer]);
        self.sockets.add(tcp::Socket::new(ring(), ring()))
    }

    fn tcp(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    fn step(&mut self, end: Instant) {
        while let Some(frame) = self.links[1].pop(self.now) {
            self.node.receive(self.now, &frame);
        }
        for frame in self.node.turn(self.now) {
            self.links[0].push(self.now, frame);
        }
        while let Some(frame) = self.links[0].pop(self.now) {
            self.device.incoming.push_back(frame);
        }
        let at = smoltcp_time(self.now);
        self.iface.poll(at, &mut self.device, &mut self.sockets);
        for frame in self.device.outgoing.drain(..) {
            self.links[1].push(self.now, frame);
        }
        let foreign = self.iface.poll_at(at, &self.sockets);
        let foreign = foreign.map(|at| Instant::from_micros(at.total_micros() as u64));
        let arrivals = self.links.iter().filter_map(Direction::next_arrival);
        let events = arrivals
            .chain(self.node.stack.next_timeout())
            .chain(foreign);
        // smoltcp's time counts in microseconds.
        let soon = self.now + Duration::from_micros(1);
        // The foreign socket's application gets a say from time to time, too.
        let latest = (self.now + Duration::from_millis(20)).min(end);
        self.now = events
            .min()
            .map_or(latest, |next| next.max(soon))
            .min(latest);
    }

    fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + Duration::from_secs(3600);
        for _ in 0..1_000_000 {
            if done(self) {
                return;
            }
            assert!(self.now < end, "not done within an hour");
            self.step(end);
        }
        panic!("too many steps");
    }
}

fn smoltcp_time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(now.as_micros() as i64)
}

/// Feeds a foreign socket and collects what it receives, until both are complete.
fn exchange(world: &mut World, handle: SocketHandle, user: u32, to_us: &[u8], from_us: &[u8]) {
    let mut sent = 0;
    let mut got = Vec::new();
    world.node.write(user, from_us);
    world.run_until(|world| {
        let socket = world.tcp(handle);
        if socket.can_send() && sent < to_us.len() {
            sent += socket.send_slice(&to_us[sent..]).unwrap();
        }
        let mut buffer = [0; 4096];
        while socket.can_recv() {
            let len = socket.recv_slice(&mut buffer).unwrap();
            got.extend_from_slice(&buffer[..len]);
        }
        got.len() == from_us.len() && world.node.received(user).len() == to_us.len()
    });
    assert_eq!(got, from_us);
    assert_eq!(world.node.received(user), to_us);
}

fn links() -> impl Iterator<Item = (u64, Link)> {
    [(0, 0, 0), (20, 0, 10), (60, 3, 20), (150, 8, 40)]
        .into_iter()
        .enumerate()
        .map(|(seed, (loss, jitter_ms, corrupt))| {
            let link = Link {
                delay: Duration::from_millis(2),
                jitter: Duration::from_millis(jitter_ms),
                loss,
                duplicate: loss / 2,
                corrupt,
                ..Link::default()
            };
            (seed as u64, link)
        })
}

#[test]
fn it_connects_to_us() {
    for (seed, link) in links() {
        let mut world = World::new(link, seed);
        let (_, listener) = world.node.listen(80, 8);
        let handle = world.add_tcp(20_000);
        let World { iface, sockets, .. } = &mut world;
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        let remote = (Ipv4Address::new(10, 0, 0, 1), 80);
        socket.connect(iface.context(), remote, 4321).unwrap();
        let mut user = None;
        world.run_until(|world| {
            user = user.or_else(|| world.node.accept(listener));
            user.is_some() && world.tcp(handle).may_send()
        });
        let user = user.unwrap();
        exchange(
            &mut world,
            handle,
            user,
            &pattern(1, 0, 80_000),
            &pattern(2, 0, 120_000),
        );
        // It closes first.
        world.tcp(handle).close();
        world.run_until(|world| world.node.has_fin(user));
        world.node.close(user);
        world.run_until(|world| world.node.closed(user).is_some());
        assert_eq!(world.node.closed(user), Some(CloseReason::Normal));
    }
}

#[test]
fn we_connect_to_it() {
    for (seed, link) in links() {
        let mut world = World::new(link, seed);
        let handle = world.add_tcp(30_000);
        world.tcp(handle).listen(8080).unwrap();
        let remote = "10.0.0.2:8080".parse().unwrap();
        let user = world.node.connect(world.now, remote);
        world.run_until(|world| !world.node.events(user).is_empty());
        exchange(
            &mut world,
            handle,
            user,
            &pattern(1, 0, 60_000),
            &pattern(2, 0, 150_000),
        );
        // We close first, and it.
        world.node.close(user);
        world.run_until(|world| !world.tcp(handle).may_recv());
        world.tcp(handle).close();
        world.run_until(|world| world.node.closed(user).is_some());
        assert_eq!(world.node.closed(user), Some(CloseReason::Normal));
    }
}

#[test]
fn resets_both_ways() {
    let mut world = World::new(Link::default(), 1);
    let remote = "10.0.0.2:8080".parse().unwrap();
    let user = world.node.connect(world.now, remote);
    world.run_until(|world| world.node.closed(user).is_some());
    assert_eq!(world.node.closed(user), Some(CloseReason::Refused));

    let handle = world.add_tcp(1000);
    world.tcp(handle).listen(8080).unwrap();
    let user = world.node.connect(world.now, remote);
    world.run_until(|world| world.tcp(handle).may_send());
    world.tcp(handle).abort();
    world.run_until(|world| world.node.closed(user).is_some());
    assert_eq!(world.node.closed(user), Some(CloseReason::Reset));

    world.tcp(handle).listen(8080).unwrap();
    let user = world.node.connect(world.now, remote);
    world.run_until(|world| world.tcp(handle).may_send());
    world.node.abort(user);
    world.run_until(|world| !world.tcp(handle).is_active());
}

#[test]
fn a_small_window_of_its_own() {
    let mut world = World::new(Link::default(), 3);
    let handle = world.add_tcp(700);
    world.tcp(handle).listen(8080).unwrap();
    let user = world
        .node
        .connect(world.now, "10.0.0.2:8080".parse().unwrap());
    world.run_until(|world| !world.node.events(user).is_empty());
    exchange(
        &mut world,
        handle,
        user,
        &pattern(1, 0, 5000),
        &pattern(2, 0, 30_000),
    );
}

#[test]
fn datagrams() {
    let mut world = World::new(Link::default(), 4);
    let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 4], vec![0; 4096]);
    let mut socket = udp::Socket::new(buffer(), buffer());
    socket.bind(53).unwrap();
    let handle = world.sockets.add(socket);
    let (id, _) = world.node.udp_bind("0.0.0.0:6000".parse().unwrap());
    let remote = "10.0.0.2:53".parse().unwrap();
    world.run_until(|world| {
        let sent = world.node.udp_send(world.now, id, remote, b"query");
        sent.is_ok()
    });
    let mut from = None;
    world.run_until(|world| {
        let socket = world.sockets.get_mut::<udp::Socket>(handle);
        if let Ok((bytes, meta)) = socket.recv() {
            assert_eq!(bytes, b"query");
            from = Some(meta.endpoint);
        }
        from.is_some()
    });
    let socket = world.sockets.get_mut::<udp::Socket>(handle);
    socket.send_slice(b"answer", from.unwrap()).unwrap();
    let mut datagrams = Vec::new();
    world.run_until(|world| {
        datagrams = world.node.take_datagrams();
        !datagrams.is_empty()
    });
    assert_eq!(datagrams[0].bytes, b"answer");
}
