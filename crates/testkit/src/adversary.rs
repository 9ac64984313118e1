//! Two stacks, and a network between them that does what bytes say: loses, doubles, reorders, damages and cuts frames, tells lies
//! by ICMP, and lets time pass, while both applications write, read, stop reading and end their streams. Then the network mends, and
//! everything that was written must arrive.
//!
//! Used with random bytes by the stack's tests, and with a fuzzer's by the fuzz target `stack_pair`.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sidecore_stack::{Ipv6Config, SynCookies, User};
use sidecore_tcp::{Algorithm, Ecn, Instant, MtuProbing};
use sidecore_wire::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP};
use sidecore_wire::{
    Icmpv4, Ipv4Header, Ipv6Header, MacAddress, SeqNumber, TcpFlags, TcpHeader, WindowScale,
};

use crate::packet::Station;
use crate::{Node, NodeConfig, marking, pattern};

/// How long the network may be bad: well below what ends a connection or its opening.
const BAD_TIME: Duration = Duration::from_secs(60);
/// The same where handshakes are by cookie: what the client repeats must come back while the cookie is good.
const BAD_TIME_WITH_COOKIES: Duration = Duration::from_secs(20);
/// What one side writes at most.
const MOST_WRITTEN: u64 = 1 << 18;
/// Frames on their way in one direction; what comes on top is lost.
const MOST_FRAMES: usize = 1024;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Takes the fuzzer's bytes one by one; zeros follow the last.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }
}

/// What a side has said so far.
#[derive(Debug, Default)]
struct Said {
    scale: Option<WindowScale>,
    /// The window of its SYN.
    syn_window: u32,
    /// The acknowledgment that it sent last, and the rightmost edge of a window that it advertised.
    ack: Option<(SeqNumber, SeqNumber)>,
    fin: Option<SeqNumber>,
}

struct World {
    nodes: [Node; 2],
    users: [Option<User>; 2],
    listener: User,
    /// Frames on their way, by their sender.
    flights: [VecDeque<Vec<u8>>; 2],
    said: [Said; 2],
    written: [u64; 2],
    ended: [bool; 2],
    now: Instant,
    begun: Instant,
}

/// Runs what `bytes` say, and panics when anything is wrong: a byte lost, doubled or changed, a window that shrinks, data beyond the
/// window, a table that contradicts itself, a connection that ends or comes to a standstill.
pub fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let mut world = World::new(&mut bytes);
    let cookies = |node: &Node| node.stack.config().syn_cookies == SynCookies::Always;
    let bad_time = if world.nodes.iter().any(cookies) {
        BAD_TIME_WITH_COOKIES
    } else {
        BAD_TIME
    };
    while !bytes.0.is_empty() && world.now.duration_since(world.begun) < bad_time {
        world.step(&mut bytes);
        world.settle();
    }
    world.heal();
    world.end();
}

fn node_config(bytes: &mut Bytes<'_>, host: u8) -> NodeConfig {
    let (bits, more) = (bytes.u8(), bytes.u8());
    let mut config = NodeConfig::new(host);
    for peer in [Station::new(1), Station::new(2)] {
        config.stack.neighbors.push((peer.ip, peer.mac));
    }
    config.stack.max_connections = 8;
    config.stack.ranges = [8, 64, 4096, 4096][usize::from(bits & 3)];
    config.stack.mtu = [1500, 1280, 1400, 9000][usize::from(bits >> 2 & 3)];
    config.stack.arp.announce = false;
    config.stack.ipv6 = Ipv6Config {
        enabled: true,
        addresses: vec![format!("fd00::{host:x}/64").parse().expect("an address")],
        dad_transmits: 0,
        accept_routers: false,
        ..Ipv6Config::default()
    };
    for peer in [1, 2] {
        let address = format!("fd00::{peer:x}").parse().expect("an address");
        let mac = MacAddress([2, 0, 0, 0, 0, peer]);
        config.stack.ipv6.neighbors.push((address, mac));
    }
    let tcp = &mut config.stack.tcp;
    tcp.timestamps = bits & 16 != 0;
    tcp.sack = bits & 32 != 0;
    tcp.no_delay = bits & 64 != 0;
    tcp.window_scale = (bits & 128 != 0).then(|| WindowScale::new(more & 15));
    let kinds = bytes.u8();
    tcp.congestion = [
        Algorithm::Cubic,
        Algorithm::NewReno,
        Algorithm::Dctcp,
        Algorithm::Bbr,
    ][usize::from(kinds & 3)];
    tcp.ecn = [Ecn::Accept, Ecn::Request, Ecn::Off, Ecn::Request][usize::from(kinds >> 2 & 3)];
    tcp.pacing = kinds & 16 != 0;
    tcp.mtu_probing = [
        MtuProbing::OnBlackHole,
        MtuProbing::Always,
        MtuProbing::Off,
        MtuProbing::Always,
    ][usize::from(kinds >> 5 & 3)];
    if kinds & 128 != 0 {
        config.stack.syn_cookies = SynCookies::Always;
    }
    config.tso_max = [0, 65_000, 4000, 0][usize::from(more >> 5 & 3)];
    config.buffer = [65_535, 3000, 600, 200_000][usize::from(more >> 6)];
    config
}

impl World {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let begun = Instant::from_secs(1000);
        let configs = [1, 2].map(|host| node_config(bytes, host));
        let six = bytes.u8() & 1 != 0;
        let mut nodes = configs.map(|config| Node::new(&config, begun));
        // The addresses of IPv6 are there after the first turns.
        let mut now = begun;
        for _ in 0..10 {
            now += Duration::from_millis(500);
            for node in &mut nodes {
                node.turn(now);
            }
        }
        let listening = "[::]:80".parse().expect("an address");
        let listened = nodes[1].listen_at(listening, false, 4);
        let (_, listener) = listened.expect("a free port");
        let ip: IpAddr = if six {
            "fd00::2".parse().expect("an address")
        } else {
            nodes[1].ip().into()
        };
        let client = nodes[0].connect(now, SocketAddr::new(ip, 80));
        let mut world = Self {
            nodes,
            users: [Some(client), None],
            listener,
            flights: Default::default(),
            said: Default::default(),
            written: [0; 2],
            ended: [false; 2],
            now,
            begun: now,
        };
        world.settle();
        world
    }

    /// One thing that happens.
    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let (what, detail) = (bytes.u8(), bytes.u8());
        let side = usize::from(detail & 1);
        let count = usize::from(detail >> 1 & 7) + 1;
        let flight = &mut self.flights[side];
        match what % 19 {
            0..=4 => self.deliver(side, count),
            5 => drop(flight.drain(..count.min(flight.len()))),
            6 => flight.extend(flight.front().cloned()),
            7 if flight.len() > count => flight.swap(0, count),
            7 => flight.rotate_left(1.min(flight.len())),
            8 => {
                // No frame is damaged twice: two wrong bits can make a right checksum.
                damage(flight.front_mut(), bytes.u16());
                self.deliver(side, 1);
            }
            9 => cut(flight.front_mut(), bytes.u16()),
            10 => self.wait_for_the_next_timer(),
            11 => self.now += Duration::from_micros(u64::from(bytes.u16()) * 8),
            12 | 13 => self.write(side, bytes.u16()),
            14 => self.shut_down(side, detail),
            15 => self.nodes[side].reads = detail & 2 != 0,
            16 => self.nodes[side].host.no_room = u32::from(detail >> 1) * 4,
            17 => {
                flight.front_mut().map(|frame| marking::mark(frame));
            }
            _ => self.lie(side, detail, bytes.u16()),
        }
    }

    fn deliver(&mut self, from: usize, count: usize) {
        for _ in 0..count {
            let Some(frame) = self.flights[from].pop_front() else {
                return;
            };
            self.nodes[1 - from].receive(self.now, &frame);
        }
    }

    /// Both nodes do what they have to do now.
    fn settle(&mut self) {
        for side in 0..2 {
            for frame in self.nodes[side].turn(self.now) {
                self.watch(side, &frame);
                if self.flights[side].len() < MOST_FRAMES {
                    self.flights[side].push_back(frame);
                }
            }
        }
        if self.users[1].is_none() {
            self.users[1] = self.nodes[1].accept(self.listener);
        }
        for side in 0..2 {
            if let Some(user) = self.users[side].filter(|_| self.ended != [true; 2]) {
                let ended = self.nodes[side].closed(user);
                assert_eq!(ended, None, "side {side} after {:?}", self.now);
            }
        }
    }

    fn write(&mut self, side: usize, len: u16) {
        let start = self.written[side];
        let len = u64::from(len).min(MOST_WRITTEN - start);
        let Some(user) = self.users[side] else {
            return;
        };
        if len > 0 && !self.ended[side] {
            self.nodes[side].write(user, &pattern(side as u64, start, len as usize));
            self.written[side] += len;
        }
    }

    fn shut_down(&mut self, side: usize, detail: u8) {
        // Rarely: what comes after it is less interesting.
        if detail >> 4 == 15 {
            self.end_stream(side);
        }
    }

    fn end_stream(&mut self, side: usize) {
        if let (Some(user), false) = (self.users[side], self.ended[side]) {
            self.nodes[side].shutdown(user);
            self.ended[side] = true;
        }
    }

    fn wait_for_the_next_timer(&mut self) {
        if let Some(next) = self.next_timer() {
            self.now = self.now.max(next.min(self.now + Duration::from_secs(5)));
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let timers = self.nodes.iter();
        timers.filter_map(|node| node.stack.next_timeout()).min()
    }

    /// A message that a frame on its way could not be delivered. A connection that is established survives it (RFC 5927 section 5.2).
    fn lie(&mut self, side: usize, detail: u8, mtu: u16) {
        let established = self.users[1].is_some();
        let Some(frame) = self.flights[side].front().filter(|_| established) else {
            return;
        };
        let packet = &frame[ETHERNET..];
        if packet[0] >> 4 != 4 {
            return;
        }
        let code = detail >> 1 & 15;
        let message = Icmpv4::DestinationUnreachable {
            code,
            next_hop_mtu: mtu,
        };
        let quoted = &packet[..packet.len().min(28)];
        let (from, to) = (Station::new(2 - side as u8), Station::new(1 + side as u8));
        let mut body = vec![0; message.len() + quoted.len()];
        message.emit(&mut body, quoted);
        let ip = Ipv4Header::new(from.ip, to.ip, PROTOCOL_ICMP);
        self.nodes[side].receive(self.now, &from.ip(&to, ip, &body));
    }

    /// What goes out must fit what was said before.
    fn watch(&mut self, side: usize, frame: &[u8]) {
        let Some((header, len)) = segment(&frame[ETHERNET..]) else {
            return;
        };
        if header.flags.contains(TcpFlags::RST) && self.ended == [true; 2] {
            // It answers a late copy: this side may be through already.
            return;
        }
        assert!(
            !header.flags.contains(TcpFlags::RST),
            "side {side} resets: {header:?} after {:?}: {}",
            self.now.duration_since(self.begun),
            self.describe()
        );
        let syn = header.flags.contains(TcpFlags::SYN);
        if syn && self.ended == [true; 2] && self.said[side].ack.is_some() {
            // Where the connection is through already, a late copy of the SYN has the listener begin another; the peer resets it.
            return;
        }
        if syn {
            self.said[side].scale = header.options.window_scale;
            self.said[side].syn_window = u32::from(header.window.0);
        }
        if header.flags.contains(TcpFlags::ACK) {
            self.watch_window(side, &header, syn);
            if syn {
                // Now it is known where the window of the other's SYN begins.
                let other = &mut self.said[1 - side];
                let first = header.seq.add(1);
                let window = (first, first.add(other.syn_window));
                other.ack.get_or_insert(window);
            }
        }
        let fin = header.flags.contains(TcpFlags::FIN);
        let end = header.seq.add(len + u32::from(fin));
        if fin {
            let before = self.said[side].fin.get_or_insert(end);
            assert_eq!(*before, end, "side {side} has moved its FIN");
        }
        if let Some(before) = self.said[side].fin {
            assert!(!before.before(end), "side {side} sends after its FIN");
        }
        if !syn && let Some((_, edge)) = self.said[1 - side].ack {
            // One byte, or the FIN, may probe a closed window.
            let most = edge.add(1);
            assert!(
                !most.before(end),
                "side {side} sends beyond {edge:?}: {len} at {:?}; {}",
                header.seq,
                self.describe()
            );
        }
    }

    fn watch_window(&mut self, side: usize, header: &TcpHeader, syn: bool) {
        let agreed = self.said[0].scale.is_some() && self.said[1].scale.is_some();
        let scale = match self.said[side].scale {
            Some(scale) if agreed && !syn => scale,
            _ => WindowScale::default(),
        };
        let edge = header.ack.add(header.window.scaled_by(scale));
        if let Some((ack, before)) = self.said[side].ack {
            assert!(!header.ack.before(ack), "side {side} takes an ACK back");
            // The field counts in units: an old edge may lie within one (RFC 7323 section 2.4), and stays acceptable.
            let unit = 1 << scale.shift();
            assert!(
                edge.add(unit).after(before),
                "side {side} shrinks its window"
            );
            self.said[side].ack = Some((header.ack, edge.max(before)));
            return;
        }
        self.said[side].ack = Some((header.ack, edge));
    }

    fn is_complete(&self) -> bool {
        (0..2).all(|side| {
            let (Some(from), Some(to)) = (self.users[side], self.users[1 - side]) else {
                return false;
            };
            let (sender, receiver) = (&self.nodes[side], &self.nodes[1 - side]);
            sender.acknowledged(from) == self.written[side]
                && receiver.has_fin(to) == self.ended[side]
        })
    }

    /// From now on the network is perfect, and both read.
    fn heal(&mut self) {
        for node in &mut self.nodes {
            node.reads = true;
            node.host.no_room = 0;
        }
        // Of a handshake by cookie nothing is sent again: what the client writes brings the cookie once more.
        self.write(0, 1);
        self.run_until(Self::is_complete);
        for side in 0..2 {
            let to = self.users[1 - side].expect("accepted");
            let received = self.nodes[1 - side].received(to);
            let written = pattern(side as u64, 0, self.written[side] as usize);
            assert!(received == written, "side {side} wrote something else");
        }
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let begun = self.now;
        while !done(self) {
            let waiting = self.flights.each_ref().map(VecDeque::len);
            for (side, count) in waiting.into_iter().enumerate() {
                self.deliver(side, count);
            }
            self.settle();
            if waiting == [0; 2] && self.flights.iter().all(VecDeque::is_empty) {
                let next = self
                    .next_timer()
                    .unwrap_or_else(|| panic!("nothing more happens: {}", self.describe()));
                self.now = self.now.max(next);
            } else {
                self.now += Duration::from_micros(100);
            }
            let took = self.now.duration_since(begun);
            assert!(took < Duration::from_secs(1200), "{}", self.describe());
        }
    }

    /// Both end their streams and close; nothing is left.
    fn end(&mut self) {
        for side in 0..2 {
            self.end_stream(side);
        }
        self.run_until(Self::is_complete);
        let users = self.users.map(|user| user.expect("accepted"));
        for (node, user) in self.nodes.iter_mut().zip(users) {
            node.close(user);
        }
        self.users = [None; 2];
        for _ in 0..200 {
            self.now += Duration::from_secs(1);
            for (side, node) in self.nodes.iter_mut().enumerate() {
                self.flights[side].extend(node.turn(self.now));
            }
            for side in 0..2 {
                self.deliver(side, self.flights[side].len());
            }
        }
        for (node, user) in self.nodes.iter().zip(users) {
            assert_eq!(node.stack.connections().count(), 0, "all are gone");
            assert!(node.closed(user).is_some());
        }
    }

    fn describe(&self) -> String {
        let lines = self.nodes.iter().enumerate().flat_map(|(side, node)| {
            let connections = node.stack.connections();
            connections.map(move |c| format!("\n  side {side}: {:?}", c.tcp))
        });
        format!(
            "standstill, written {:?}:{}",
            self.written,
            lines.collect::<String>()
        )
    }
}

/// The TCP header and the length of its data in an IP packet that is whole.
fn segment(packet: &[u8]) -> Option<(TcpHeader, u32)> {
    let bytes = match packet[0] >> 4 {
        4 => {
            let (ip, range) = Ipv4Header::parse(packet).ok()?;
            (ip.protocol == PROTOCOL_TCP).then(|| &packet[range])?
        }
        _ => {
            let (ip, range) = Ipv6Header::parse(packet).ok()?;
            (ip.next_header == PROTOCOL_TCP).then(|| &packet[range])?
        }
    };
    let (header, offset) = TcpHeader::parse(bytes).ok()?;
    Some((header, (bytes.len() - offset) as u32))
}

/// One bit of a packet is wrong: the checksums find that. What has none (ARP, the link's header) stays whole, for the link has its own, and
/// so does the header of IPv6, which has none either.
fn damage(frame: Option<&mut Vec<u8>>, bit: u16) {
    let Some(frame) = frame else { return };
    let start = match frame[ETHERNET] >> 4 {
        4 if frame[12..14] == [8, 0] => ETHERNET,
        6 if frame[12..14] == [0x86, 0xdd] => ETHERNET + 40,
        _ => return,
    };
    if frame.len() <= start {
        return;
    }
    let bit = usize::from(bit) % ((frame.len() - start) * 8);
    frame[start + bit / 8] ^= 1 << (bit % 8);
}

fn cut(frame: Option<&mut Vec<u8>>, len: u16) {
    if let Some(frame) = frame
        && frame.len() > ETHERNET + 1
    {
        let len = usize::from(len) % (frame.len() - ETHERNET - 1);
        frame.truncate(ETHERNET + 1 + len);
    }
}
