//! Two nodes, two links, one clock.

use std::net::SocketAddr;
use std::time::Duration;

use sidecore_stack::User;
use sidecore_tcp::Instant;

use crate::link::{Direction, Link, LinkCounters};
use crate::node::{Node, NodeConfig};

/// The first node.
pub const A: usize = 0;
/// The second node.
pub const B: usize = 1;

/// Two nodes on a link. Time is virtual: it goes on to the next arrival or timer, at once.
#[derive(Debug)]
pub struct Pair {
    /// The nodes, [`A`] at 10.0.0.1 and [`B`] at 10.0.0.2.
    pub nodes: [Node; 2],
    directions: [Direction; 2],
    now: Instant,
    /// Steps that may still be taken.
    steps: usize,
    /// Called with every frame that is put on the wire, and the number of its sender.
    tap: Option<fn(Instant, usize, &[u8])>,
}

impl Default for Pair {
    /// With a perfect link.
    fn default() -> Self {
        Self::new([NodeConfig::new(1), NodeConfig::new(2)], Link::default(), 0)
    }
}

impl Pair {
    /// Two nodes with the same link in both directions.
    pub fn new(configs: [NodeConfig; 2], link: Link, seed: u64) -> Self {
        let now = Instant::from_secs(1000);
        Self {
            nodes: configs.map(|config| Node::new(&config, now)),
            directions: [0, 1].map(|n| Direction::new(link.clone(), seed.wrapping_mul(2) + n)),
            now,
            steps: 2_000_000,
            tap: None,
        }
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Changes the link from one node to the other from now on.
    pub fn set_link(&mut self, from: usize, link: Link) {
        self.directions[from].link = link;
    }

    /// What the link from this node has done.
    pub fn link_counters(&self, from: usize) -> LinkCounters {
        self.directions[from].counters
    }

    /// Counts anew.
    pub fn reset_link_counters(&mut self, from: usize) {
        self.directions[from].counters = LinkCounters::default();
    }

    /// Shows all frames: `pair.tap(|at, from, frame| …)`.
    pub fn tap(&mut self, tap: fn(Instant, usize, &[u8])) {
        self.tap = Some(tap);
    }

    /// Everything that happens now: arrivals, and turns of both nodes until they have nothing more to do.
    fn happen(&mut self) {
        self.steps = self.steps.checked_sub(1).expect("too many steps");
        for n in [A, B] {
            while let Some(frame) = self.directions[1 - n].pop(self.now) {
                self.nodes[n].receive(self.now, &frame);
            }
            for frame in self.nodes[n].turn(self.now) {
                if let Some(tap) = self.tap {
                    tap(self.now, n, &frame);
                }
                match self.directions[n].refuses(&frame) {
                    None => self.directions[n].push(self.now, frame),
                    Some(None) => {}
                    Some(Some(answer)) => self.directions[1 - n].push(self.now, answer),
                }
            }
        }
    }

    /// When the next thing happens.
    fn next(&self) -> Option<Instant> {
        let arrivals = self.directions.iter().filter_map(Direction::next_arrival);
        let timers = self.nodes.iter();
        let timers = timers.filter_map(|node| node.stack.next_timeout());
        arrivals.chain(timers).min()
    }

    /// Lets time pass until `done` says so, which may also do something itself; panics if nothing more would happen, or
    /// after an hour.
    pub fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + Duration::from_secs(3600);
        loop {
            self.happen();
            if done(self) {
                return;
            }
            if self.nodes.iter().any(|node| node.stack.has_work()) {
                // What `done` did comes before what is next.
                continue;
            }
            let next = self.next();
            let next = next.filter(|next| *next < end);
            let Some(next) = next else {
                panic!("nothing more happens within an hour: {}", self.describe());
            };
            self.now = next.max(self.now);
        }
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, duration: Duration) {
        let until = self.now + duration;
        loop {
            self.happen();
            match self.next() {
                Some(next) if next <= until => self.now = next.max(self.now),
                _ => break,
            }
        }
        self.now = until;
        self.happen();
    }

    /// Lets time pass until nothing more would happen.
    pub fn run_out(&mut self) {
        loop {
            self.happen();
            match self.next() {
                Some(next) => self.now = next.max(self.now),
                None => break,
            }
        }
    }

    /// `B` listens at `port`, `A` connects, both know: the users at `A` and `B`.
    pub fn establish(&mut self, port: u16) -> (User, User) {
        let (_, listener) = self.nodes[B].listen(port, 16);
        let client = self.connect_to(port);
        let mut server = None;
        self.run_until(|pair| {
            server = server.or_else(|| pair.nodes[B].accept(listener));
            server.is_some() && !pair.nodes[A].events(client).is_empty()
        });
        (client, server.expect("accepted"))
    }

    /// `A` connects to a port of `B`.
    pub fn connect_to(&mut self, port: u16) -> User {
        let remote = SocketAddr::from((self.nodes[B].ip(), port));
        self.nodes[A].connect(self.now, remote)
    }

    fn describe(&self) -> String {
        let connections = self.nodes.iter().enumerate().flat_map(|(n, node)| {
            let line = move |c: sidecore_stack::ConnectionInfo| {
                format!("\n  {n}: {} > {} {:?}", c.local, c.remote, c.tcp)
            };
            node.stack.connections().map(line)
        });
        let lines: String = connections.collect();
        format!("at {:?}{lines}", self.now)
    }
}
