//! Sockets as programs know them, over one stack, in virtual time: calls with Linux's numbers and errors, which never block,
//! and IP packets in and out.
//!
//! Nothing happens but in a call: [`Sockets::receive`] brings a packet, [`Sockets::advance`] lets time pass, and what the
//! stack sends upon it, or upon any call, is there for [`Sockets::take_packets`]. Ethernet is hidden: every neighbour that
//! the stack asks for answers at once, with the same link address.
//!
//! A call that would block gives [`Errno::EAGAIN`] (`connect`: [`Errno::EINPROGRESS`]); to wait is the caller's affair.
//!
//! | file | what |
//! |---|---|
//! | `host` | the stack's host: sockets and what they are told |
//! | `stream` | bytes of a connection |
//! | `link` | Ethernet, ARP and neighbour discovery, taken away |
//! | `tcp`, `udp`, `fast_open` | calls |
//! | `options`, `tuning`, `values` | `setsockopt`, `getsockopt` |
//! | `poll` | readiness, `ioctl` |
//! | `number`, `errno` | Linux's numbers |

mod errno;
mod fast_open;
mod host;
mod link;
pub mod number;
mod options;
mod poll;
mod stream;
mod tcp;
mod tuning;
mod udp;
mod urgent;
mod values;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use sidecore_stack::{FrameMeta, RxChecksum, SinkCaps, Stack, StackConfig, User};
use sidecore_tcp::{Connection, Instant};

pub use errno::Errno;
pub use fast_open::FastOpenPolicy;
use host::{Role, Socket, Table, Tcp, Udp};
use number::{AF_INET, AF_INET6, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM};
use values::Values;

/// A descriptor.
pub type Fd = i32;

/// What the layer is made of.
#[derive(Clone, Debug)]
pub struct SocketsConfig {
    /// The stack. Gratuitous ARP, duplicate address detection and the search for routers are switched off, and the
    /// gateways answer.
    pub stack: StackConfig,
    /// SO_RCVBUF of new sockets, in bytes: what they advertise.
    pub receive_buffer: usize,
    /// SO_SNDBUF of new sockets, in bytes: what may be written and not acknowledged.
    pub send_buffer: usize,
    /// Payload bytes of a super-segment; 0: there are none.
    pub tso_max: u32,
    /// Super-segments leave as they are, as a capture on a device that cuts them shows. Otherwise they are cut.
    pub uncut: bool,
    /// Super-segments have the sizes that Linux gives them, down to so many segments; 0: all have `tso_max`.
    pub tso_min_segments: u32,
}

impl SocketsConfig {
    /// For a stack with this configuration: 64 KiB to receive, 1 MiB to send, no super-segments.
    pub fn new(stack: StackConfig) -> Self {
        let values = Values::default();
        Self {
            stack,
            receive_buffer: values.receive_buffer,
            send_buffer: values.send_buffer,
            tso_max: 0,
            uncut: false,
            tso_min_segments: 0,
        }
    }
}

/// A packet that left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentPacket {
    /// When.
    pub at: Instant,
    /// The packet from its IP header on, checksums included.
    pub bytes: Vec<u8>,
}

/// Sockets over one stack.
#[derive(Debug)]
pub struct Sockets {
    stack: Stack,
    table: Table,
    fds: BTreeMap<Fd, User>,
    now: Instant,
    sent: VecDeque<SentPacket>,
    receive_buffer: usize,
    send_buffer: usize,
    tso_max: u32,
    tso_min_segments: u32,
    fast_open: FastOpenPolicy,
}

impl Sockets {
    /// Sockets over a new stack.
    pub fn new(config: &SocketsConfig, now: Instant) -> Self {
        let stack = link::quiet(&config.stack);
        let caps = SinkCaps {
            tso_max: config.tso_max,
            mtu: stack.mtu,
            loopback_mtu: u32::from(stack.loopback_mtu),
        };
        let mut sockets = Self {
            stack: Stack::new(stack, now),
            table: Table {
                sockets: Vec::new(),
                frame: Arc::from([]),
                wire: Vec::new(),
                loopback: VecDeque::new(),
                caps,
                uncut: config.uncut,
            },
            fds: BTreeMap::new(),
            now,
            sent: VecDeque::new(),
            receive_buffer: config.receive_buffer,
            send_buffer: config.send_buffer,
            tso_max: config.tso_max,
            tso_min_segments: config.tso_min_segments,
            fast_open: FastOpenPolicy::default(),
        };
        sockets.turn();
        sockets
    }

    /// The stack below.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Other defaults for connections that begin from now on.
    pub fn set_defaults(&mut self, config: sidecore_tcp::Config) {
        self.stack.set_tcp_defaults(config);
    }

    /// The time of the last call that named one.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// An IP packet comes from outside.
    pub fn receive(&mut self, now: Instant, packet: &[u8]) {
        self.advance(now);
        let frame = link::frame(self.stack.config().mac, packet);
        self.frame_arrives(frame);
        self.turn();
    }

    /// Time passes until `now`, and every timer on the way fires at its own time.
    pub fn advance(&mut self, now: Instant) {
        while let Some(next) = self.stack.next_timeout().filter(|next| *next <= now) {
            self.now = self.now.max(next);
            self.stack.handle_timers(self.now, &mut self.table, 64);
            self.turn();
        }
        self.now = self.now.max(now);
    }

    /// When [`advance`](Self::advance) has something to do next, at the earliest. `None`: nothing is timed.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.stack.next_timeout()
    }

    /// IP packets that left since the last call, oldest first.
    pub fn take_packets(&mut self) -> Vec<SentPacket> {
        self.sent.drain(..).collect()
    }

    fn frame_arrives(&mut self, frame: Vec<u8>) {
        self.table.frame = frame.into();
        let frame = Arc::clone(&self.table.frame);
        let meta = FrameMeta {
            len: frame.len(),
            checksum: RxChecksum::Unchecked,
            loopback: false,
        };
        self.stack
            .handle_frame(self.now, &meta, &frame, &mut self.table);
    }

    /// Sends what is due, and what comes of it: answers of neighbours, packets over the loopback.
    fn turn(&mut self) {
        let mac = self.stack.config().mac;
        for _ in 0..100_000 {
            if self.tso_min_segments > 0 {
                self.table.caps.tso_max = self.super_segment();
            }
            self.stack.transmit(self.now, &mut self.table, 256);
            let frames = std::mem::take(&mut self.table.wire);
            let loopback: Vec<_> = self.table.loopback.drain(..).collect();
            for (frame, header_len) in &loopback {
                self.loopback_arrives(frame, *header_len);
            }
            let mut answered = false;
            for frame in frames {
                match link::judge(mac, frame) {
                    link::Fate::Leaves(bytes) => {
                        let at = self.now;
                        self.sent.push_back(SentPacket { at, bytes });
                    }
                    link::Fate::Answered(answer) => {
                        self.frame_arrives(answer);
                        answered = true;
                    }
                    link::Fate::Swallowed => {}
                }
            }
            if loopback.is_empty() && !answered && !self.stack.has_work() {
                self.note_syn_data();
                return;
            }
        }
        panic!("a turn that does not end");
    }

    /// Bytes of a super-segment as Linux has them: what twice the sending rate makes of a millisecond, so that a window takes
    /// several; where connections differ, the least.
    fn super_segment(&self) -> u32 {
        let size = |tcp: &sidecore_tcp::Info| {
            let mss = u32::from(tcp.effective_mss).max(1);
            // What may be left of a window after a pause.
            let idle = tcp.in_flight == 0;
            let cwnd = tcp.cwnd.min(if idle { 10 * mss } else { u32::MAX });
            let rate = u64::from(cwnd) * 2_000 / u64::from(tcp.srtt_us.max(1));
            let segments = u32::try_from(rate).unwrap_or(u32::MAX) / mss;
            let half = (cwnd / mss / 2).max(1);
            segments.max(self.tso_min_segments).min(half) * mss
        };
        let sending = self.stack.connections().filter(|c| c.tcp.bytes_unsent > 0);
        let least = sending.map(|c| size(&c.tcp)).min();
        least.map_or(self.tso_max, |least| least.min(self.tso_max))
    }

    fn loopback_arrives(&mut self, frame: &[u8], header_len: usize) {
        let meta = FrameMeta {
            len: frame.len(),
            checksum: RxChecksum::Valid,
            loopback: true,
        };
        self.table.frame = frame.into();
        // Of ICMP all of it: its "headers" are its message.
        let icmp = match frame[0] >> 4 {
            6 => frame[6] == 58,
            _ => frame[9] == 1,
        };
        let head = if icmp { frame.len() } else { header_len };
        self.stack
            .handle_frame(self.now, &meta, &frame[..head], &mut self.table);
    }

    /// `socket`: a new descriptor, the lowest that is free from 3 on.
    ///
    /// # Errors
    /// EAFNOSUPPORT, ESOCKTNOSUPPORT, EPROTONOSUPPORT.
    pub fn socket(&mut self, domain: i32, type_: i32, protocol: i32) -> Result<Fd, Errno> {
        let inet = domain == AF_INET || domain == AF_INET6 && self.stack.config().ipv6.enabled;
        if !inet {
            return Err(Errno::EAFNOSUPPORT);
        }
        let values = Values {
            domain,
            non_blocking: type_ & SOCK_NONBLOCK != 0,
            send_buffer: self.send_buffer,
            receive_buffer: self.receive_buffer,
            ..Values::default()
        };
        let socket = match (type_ & !(SOCK_NONBLOCK | SOCK_CLOEXEC), protocol) {
            (SOCK_STREAM, 0 | number::IPPROTO_TCP) => Socket::Tcp(Tcp {
                values,
                ..Tcp::default()
            }),
            (SOCK_DGRAM, 0 | number::IPPROTO_UDP) => Socket::Udp(Udp {
                values,
                ..Udp::default()
            }),
            (SOCK_STREAM | SOCK_DGRAM, _) => return Err(Errno::EPROTONOSUPPORT),
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        };
        let user = self.table.insert(socket);
        Ok(self.new_fd(user))
    }

    fn new_fd(&mut self, user: User) -> Fd {
        let fd = (3..).find(|fd| !self.fds.contains_key(fd));
        let fd = fd.expect("fewer than two thousand million descriptors");
        self.fds.insert(fd, user);
        fd
    }

    fn user(&self, fd: Fd) -> Result<User, Errno> {
        self.fds.get(&fd).copied().ok_or(Errno::EBADF)
    }

    fn socket_of(&mut self, fd: Fd) -> Result<(User, &mut Socket), Errno> {
        let user = self.user(fd)?;
        let socket = self.table.sockets[user as usize].as_mut();
        Ok((user, socket.expect("a socket with a descriptor")))
    }

    fn values(&mut self, fd: Fd) -> Result<&mut Values, Errno> {
        Ok(match self.socket_of(fd)?.1 {
            Socket::Tcp(tcp) => &mut tcp.values,
            Socket::Udp(udp) => &mut udp.values,
        })
    }

    fn tcp(&mut self, fd: Fd) -> Result<(User, &mut Tcp), Errno> {
        match self.socket_of(fd)? {
            (user, Socket::Tcp(tcp)) => Ok((user, tcp)),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Whether a descriptor is one of a TCP socket.
    pub fn is_stream(&self, fd: Fd) -> bool {
        let user = self.user(fd).ok();
        user.is_some_and(|user| matches!(self.table.sockets[user as usize], Some(Socket::Tcp(_))))
    }

    /// The connection of a socket, in any state that the stack still knows.
    pub fn connection(&self, fd: Fd) -> Option<&Connection> {
        let user = self.user(fd).ok()?;
        match &self.table.sockets[user as usize] {
            Some(Socket::Tcp(tcp)) => self.stack.connection(tcp.conn()?),
            _ => None,
        }
    }

    /// O_NONBLOCK of a socket: kept, not obeyed, as nothing here blocks.
    ///
    /// # Errors
    /// EBADF.
    pub fn non_blocking(&mut self, fd: Fd) -> Result<bool, Errno> {
        Ok(self.values(fd)?.non_blocking)
    }

    /// Sets or clears O_NONBLOCK.
    ///
    /// # Errors
    /// EBADF.
    pub fn set_non_blocking(&mut self, fd: Fd, non_blocking: bool) -> Result<(), Errno> {
        self.values(fd)?.non_blocking = non_blocking;
        Ok(())
    }

    /// `bind`.
    ///
    /// # Errors
    /// EBADF, EINVAL (bound before), EAFNOSUPPORT, EADDRNOTAVAIL, EADDRINUSE.
    pub fn bind(&mut self, fd: Fd, local: SocketAddr) -> Result<(), Errno> {
        let domain = self.values(fd)?.domain;
        match (domain, local) {
            (AF_INET, SocketAddr::V4(_)) | (AF_INET6, SocketAddr::V6(_)) => {}
            (AF_INET, _) => return Err(Errno::EAFNOSUPPORT),
            _ => return Err(Errno::EINVAL),
        }
        match self.socket_of(fd)? {
            (user, Socket::Tcp(_)) => self.bind_tcp(user, local),
            (user, Socket::Udp(_)) => self.bind_udp(user, local),
        }
    }

    /// `getsockname`; the unspecified address before there is another.
    ///
    /// # Errors
    /// EBADF.
    pub fn local_addr(&mut self, fd: Fd) -> Result<SocketAddr, Errno> {
        let domain = self.values(fd)?.domain;
        let local = match self.socket_of(fd)? {
            (_, Socket::Tcp(tcp)) => tcp.local.or(tcp.bound),
            (_, Socket::Udp(udp)) => {
                let id = udp.id;
                id.and_then(|id| self.stack.udp_local(id))
            }
        };
        let local = local.unwrap_or_else(|| any(domain));
        Ok(seen_from(domain, local))
    }

    /// `getpeername`.
    ///
    /// # Errors
    /// EBADF, ENOTCONN.
    pub fn peer_addr(&mut self, fd: Fd) -> Result<SocketAddr, Errno> {
        let domain = self.values(fd)?.domain;
        let peer = match self.socket_of(fd)? {
            (_, Socket::Tcp(tcp)) => tcp.peer.filter(|_| matches!(tcp.role, Role::Connected(_))),
            (_, Socket::Udp(udp)) => udp.peer,
        };
        let peer = peer.ok_or(Errno::ENOTCONN)?;
        Ok(seen_from(domain, peer))
    }

    /// `close`. What was written still goes out, as long as nothing unread is thrown away and SO_LINGER does not say
    /// otherwise: then the connection is reset (RFC 1122 section 4.2.2.13).
    ///
    /// # Errors
    /// EBADF.
    pub fn close(&mut self, fd: Fd) -> Result<(), Errno> {
        let (user, socket) = self.socket_of(fd)?;
        let id = match socket {
            Socket::Tcp(_) => {
                self.fds.remove(&fd);
                self.close_tcp(user);
                self.turn();
                return Ok(());
            }
            Socket::Udp(udp) => udp.id,
        };
        if let Some(id) = id {
            self.stack.udp_close(id);
        }
        self.fds.remove(&fd);
        self.table.sockets[user as usize] = None;
        Ok(())
    }
}

/// The unspecified address of a domain.
fn any(domain: i32) -> SocketAddr {
    if domain == AF_INET6 {
        SocketAddr::from(([0; 16], 0))
    } else {
        SocketAddr::from(([0; 4], 0))
    }
}

/// An address as a socket of this domain sees it: on one of IPv6, addresses of IPv4 are mapped.
fn seen_from(domain: i32, address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if domain == AF_INET6 => {
            SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
        }
        other => other,
    }
}
