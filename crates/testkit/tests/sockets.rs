//! The socket layer: two of them back to back, and what their calls answer.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use sidecore_stack::StackConfig;
use sidecore_tcp::Instant;
use sidecore_testkit::sockets::number::{
    AF_INET, AF_INET6, IPPROTO_TCP, MSG_OOB, MSG_PEEK, MSG_TRUNC, POLLERR, POLLHUP, POLLIN,
    POLLOUT, POLLRDHUP, SHUT_WR, SIOCINQ, SIOCOUTQ, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET, so, tcp,
};
use sidecore_testkit::sockets::{Errno, Fd, Sockets, SocketsConfig};

const PORT: u16 = 8080;

/// Two hosts whose packets arrive at once.
struct Hosts {
    sides: [Sockets; 2],
    now: Instant,
}

fn sockets(host: u8) -> Sockets {
    let mut stack = StackConfig {
        addresses: vec![format!("10.0.0.{host}/24").parse().expect("an address")],
        max_connections: 64,
        ranges: 4096,
        seed: [host; 32],
        ..StackConfig::default()
    };
    stack.ipv6.enabled = true;
    stack.ipv6.addresses = vec![format!("fd00::{host}/64").parse().expect("an address")];
    Sockets::new(&SocketsConfig::new(stack), Instant::from_secs(1))
}

impl Hosts {
    fn new() -> Self {
        Self {
            sides: [sockets(1), sockets(2)],
            now: Instant::from_secs(1),
        }
    }

    /// Carries packets until there are none.
    fn settle(&mut self) {
        loop {
            let [a, b] = &mut self.sides;
            let (to_b, to_a) = (a.take_packets(), b.take_packets());
            if to_a.is_empty() && to_b.is_empty() {
                return;
            }
            to_b.iter().for_each(|p| b.receive(self.now, &p.bytes));
            to_a.iter().for_each(|p| a.receive(self.now, &p.bytes));
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        for side in &mut self.sides {
            side.advance(self.now);
        }
        self.settle();
    }

    /// A listener at the second, a connection from the first: its ends, and the listener.
    fn connected(&mut self) -> (Fd, Fd, Fd) {
        let listener = self.listener();
        let a = self.stream(0);
        assert_eq!(self.sides[0].connect(a, at(2)), Err(Errno::EINPROGRESS));
        assert_eq!(self.sides[0].connect(a, at(2)), Err(Errno::EALREADY));
        assert_eq!(self.sides[0].readiness(a), 0);
        self.settle();
        assert_eq!(self.sides[1].readiness(listener), POLLIN);
        assert_eq!(self.sides[0].connect(a, at(2)), Ok(()));
        assert_eq!(self.sides[0].connect(a, at(2)), Err(Errno::EISCONN));
        let (b, peer) = self.sides[1].accept(listener).expect("a connection");
        assert_eq!(self.sides[0].local_addr(a), Ok(peer));
        assert_eq!(self.sides[0].peer_addr(a), Ok(at(2)));
        (a, b, listener)
    }

    fn listener(&mut self) -> Fd {
        let listener = self.stream(1);
        let side = &mut self.sides[1];
        assert_eq!(side.bind(listener, any()), Ok(()));
        assert_eq!(side.listen(listener, 5), Ok(()));
        assert_eq!(side.accept(listener), Err(Errno::EAGAIN));
        listener
    }

    fn stream(&mut self, side: usize) -> Fd {
        let fd = self.sides[side].socket(AF_INET, SOCK_STREAM, 0);
        fd.expect("a socket")
    }
}

fn at(host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, host), PORT).into()
}

fn any() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, PORT).into()
}

/// SO_ERROR, which is cleared by it.
fn pending(side: &mut Sockets, fd: Fd) -> i32 {
    let value = side.option(fd, SOL_SOCKET, so::ERROR, 4);
    let value = value.expect("SO_ERROR");
    i32::from_ne_bytes(value.try_into().expect("four bytes"))
}

#[test]
fn bytes_both_ways_and_an_orderly_end() {
    let mut hosts = Hosts::new();
    let (a, b, listener) = hosts.connected();
    let sent: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
    assert_eq!(hosts.sides[0].send(a, &sent, 0), Ok(5000));
    assert_eq!(hosts.sides[0].ioctl(a, SIOCOUTQ), Ok(5000));
    hosts.settle();
    assert_eq!(hosts.sides[1].ioctl(b, SIOCINQ), Ok(5000));
    let b_side = &mut hosts.sides[1];
    assert_eq!(b_side.recv(b, 100, MSG_PEEK).as_deref(), Ok(&sent[..100]));
    assert_eq!(b_side.recv(b, 10, MSG_TRUNC), Ok(vec![0; 10]));
    assert_eq!(b_side.recv(b, 9999, 0).as_deref(), Ok(&sent[10..]));
    assert_eq!(b_side.recv(b, 1, 0), Err(Errno::EAGAIN));
    assert_eq!(b_side.recv(b, 1, MSG_OOB), Err(Errno::EINVAL));
    hosts.wait(Duration::from_millis(50));
    assert_eq!(hosts.sides[0].ioctl(a, SIOCOUTQ), Ok(0));
    assert_eq!(hosts.sides[0].shutdown(a, SHUT_WR), Ok(()));
    assert_eq!(hosts.sides[0].send(a, b"x", 0), Err(Errno::EPIPE));
    hosts.settle();
    let b_side = &mut hosts.sides[1];
    assert_eq!(b_side.readiness(b), POLLIN | POLLOUT | POLLRDHUP);
    assert_eq!(b_side.recv(b, 1, 0), Ok(vec![]));
    assert_eq!(b_side.send(b, b"bye", 0), Ok(3));
    assert_eq!(b_side.close(b), Ok(()));
    assert_eq!(b_side.close(b), Err(Errno::EBADF));
    assert_eq!(b_side.close(listener), Ok(()));
    hosts.settle();
    let a_side = &mut hosts.sides[0];
    assert_eq!(a_side.readiness(a), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
    assert_eq!(a_side.recv(a, 9, 0).as_deref(), Ok(&b"bye"[..]));
    assert_eq!(a_side.recv(a, 9, 0), Ok(vec![]));
    assert_eq!(a_side.close(a), Ok(()));
    hosts.wait(Duration::from_secs(120));
    let left = hosts.sides.map(|side| side.stack().connection_count());
    assert_eq!(left, [0, 0]);
}

#[test]
fn a_refused_connection() {
    let mut hosts = Hosts::new();
    let a = hosts.stream(0);
    assert_eq!(hosts.sides[0].connect(a, at(2)), Err(Errno::EINPROGRESS));
    hosts.settle();
    let side = &mut hosts.sides[0];
    assert_eq!(
        side.readiness(a),
        POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP
    );
    assert_eq!(side.connect(a, at(2)), Err(Errno::ECONNREFUSED));
    assert_eq!(pending(side, a), 0);
    // And once more: the socket is as new.
    assert_eq!(side.connect(a, at(2)), Err(Errno::EINPROGRESS));
    hosts.settle();
    assert_eq!(pending(&mut hosts.sides[0], a), Errno::ECONNREFUSED.raw());
    assert_eq!(pending(&mut hosts.sides[0], a), 0);
}

#[test]
fn a_reset_is_told_once() {
    let mut hosts = Hosts::new();
    let (a, b, _) = hosts.connected();
    // Closed with bytes unread: the peer is told (RFC 1122 section 4.2.2.13).
    assert_eq!(hosts.sides[0].send(a, b"unread", 0), Ok(6));
    hosts.settle();
    assert_eq!(hosts.sides[1].close(b), Ok(()));
    hosts.settle();
    let side = &mut hosts.sides[0];
    assert_eq!(side.send(a, b"more", 0), Err(Errno::ECONNRESET));
    assert_eq!(side.send(a, b"more", 0), Err(Errno::EPIPE));
    assert_eq!(side.recv(a, 1, 0), Ok(vec![]));
    assert_eq!(side.connect(a, at(2)), Err(Errno::EISCONN));
}

#[test]
fn lingering_for_no_time_resets() {
    let mut hosts = Hosts::new();
    let (a, b, _) = hosts.connected();
    let linger = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
    let side = &mut hosts.sides[0];
    assert_eq!(side.set_option(a, SOL_SOCKET, so::LINGER, &linger), Ok(()));
    assert_eq!(side.option(a, SOL_SOCKET, so::LINGER, 8), Ok(linger));
    assert_eq!(side.close(a), Ok(()));
    hosts.settle();
    assert_eq!(hosts.sides[1].recv(b, 1, 0), Err(Errno::ECONNRESET));
    assert_eq!(hosts.sides[1].recv(b, 1, 0), Ok(vec![]));
}

#[test]
fn buffers_have_their_size() {
    let mut hosts = Hosts::new();
    let (a, b, _) = hosts.connected();
    let size = 10_000i32.to_ne_bytes();
    let side = &mut hosts.sides[0];
    assert_eq!(side.set_option(a, SOL_SOCKET, so::SNDBUF, &size), Ok(()));
    assert_eq!(
        side.option(a, SOL_SOCKET, so::SNDBUF, 4),
        Ok(20_000i32.to_ne_bytes().to_vec())
    );
    assert_eq!(side.send(a, &[7; 50_000], 0), Ok(10_000));
    assert_eq!(side.send(a, &[7; 1], 0), Err(Errno::EAGAIN));
    assert_eq!(side.readiness(a) & POLLOUT, 0);
    hosts.settle();
    assert_eq!(hosts.sides[0].readiness(a), POLLOUT);
    let mut written = 10_000;
    while let Ok(more) = hosts.sides[0].send(a, &[7; 5000], 0) {
        written += more;
        hosts.settle();
        hosts.wait(Duration::from_millis(50));
    }
    // What does not fit the receiver's window waits here, less than a segment of room being left for a while.
    hosts.wait(Duration::from_secs(1));
    let received = hosts.sides[1].ioctl(b, SIOCINQ).expect("a number");
    // Windows are counted in units of 128 bytes.
    assert!((65535 - 128..=65535).contains(&received), "{received}");
    let waiting = hosts.sides[0].ioctl(a, SIOCOUTQ);
    assert_eq!(waiting, Ok(written as i32 - received));
}

#[test]
fn a_backlog_of_none_is_one() {
    let mut hosts = Hosts::new();
    let listener = hosts.listener();
    assert_eq!(hosts.sides[1].listen(listener, 0), Ok(()));
    let clients = [hosts.stream(0), hosts.stream(0)];
    for fd in clients {
        assert_eq!(hosts.sides[0].connect(fd, at(2)), Err(Errno::EINPROGRESS));
        hosts.settle();
    }
    assert!(hosts.sides[1].accept(listener).is_ok());
    assert_eq!(hosts.sides[1].accept(listener), Err(Errno::EAGAIN));
    // The other's SYN found no room, and comes again after a second.
    assert_eq!(hosts.sides[0].readiness(clients[1]), 0);
    hosts.wait(Duration::from_secs(2));
    assert!(hosts.sides[1].accept(listener).is_ok());
}

#[test]
fn calls_that_cannot_be() {
    let mut hosts = Hosts::new();
    let listener = hosts.listener();
    let [side, other] = &mut hosts.sides;
    assert_eq!(side.socket(1, SOCK_STREAM, 0), Err(Errno::EAFNOSUPPORT));
    assert_eq!(side.socket(AF_INET, 3, 0), Err(Errno::ESOCKTNOSUPPORT));
    assert_eq!(
        side.socket(AF_INET, SOCK_STREAM, 17),
        Err(Errno::EPROTONOSUPPORT)
    );
    let fd = side.socket(AF_INET, SOCK_STREAM, 0).expect("a socket");
    assert_eq!(side.readiness(fd), POLLOUT | POLLHUP);
    assert_eq!(side.recv(fd, 1, 0), Err(Errno::ENOTCONN));
    assert_eq!(side.send(fd, b"x", 0), Err(Errno::EPIPE));
    assert_eq!(side.shutdown(fd, SHUT_WR), Err(Errno::ENOTCONN));
    assert_eq!(side.shutdown(fd, 3), Err(Errno::EINVAL));
    assert_eq!(side.accept(fd), Err(Errno::EINVAL));
    assert_eq!(side.peer_addr(fd), Err(Errno::ENOTCONN));
    assert_eq!(side.bind(fd, at(9)), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(side.bind(fd, at(1)), Ok(()));
    assert_eq!(side.bind(fd, at(1)), Err(Errno::EINVAL));
    let second = side.socket(AF_INET, SOCK_STREAM, 0).expect("a socket");
    assert_eq!(side.bind(second, any()), Err(Errno::EADDRINUSE));
    assert_eq!(side.option(fd, 99, 1, 4), Err(Errno::ENOPROTOOPT));
    assert_eq!(
        side.set_option(fd, SOL_SOCKET, 99, &[0; 4]),
        Err(Errno::ENOPROTOOPT)
    );
    assert_eq!(
        side.set_option(fd, IPPROTO_TCP, tcp::NODELAY, &[]),
        Err(Errno::EINVAL)
    );
    assert_eq!(
        side.set_option(fd, IPPROTO_TCP, tcp::CONGESTION, b"none"),
        Err(Errno::ENOENT)
    );
    assert_eq!(side.close(99), Err(Errno::EBADF));
    assert_eq!(other.connect(listener, at(1)), Err(Errno::EISCONN));
    assert_eq!(other.recv(listener, 1, 0), Err(Errno::ENOTCONN));
    assert_eq!(other.ioctl(listener, SIOCINQ), Err(Errno::EINVAL));
}

#[test]
fn an_attempt_times_out() {
    let mut side = sockets(1);
    let fd = side.socket(AF_INET, SOCK_STREAM, 0).expect("a socket");
    assert_eq!(side.connect(fd, at(2)), Err(Errno::EINPROGRESS));
    side.advance(Instant::from_secs(300));
    let times: Vec<_> = side
        .take_packets()
        .iter()
        .map(|p| p.at.as_millis() / 1000)
        .collect();
    assert_eq!(times, [1, 2, 4, 8, 16, 32, 64, 128]);
    assert_eq!(side.connect(fd, at(2)), Err(Errno::ETIMEDOUT));
}

#[test]
fn datagrams_and_a_port_nobody_has() {
    let mut hosts = Hosts::new();
    let [a_side, b_side] = &mut hosts.sides;
    let a = a_side.socket(AF_INET, SOCK_DGRAM, 0).expect("a socket");
    let b = b_side.socket(AF_INET, SOCK_DGRAM, 0).expect("a socket");
    assert_eq!(b_side.bind(b, any()), Ok(()));
    assert_eq!(a_side.send(a, b"x", 0), Err(Errno::EDESTADDRREQ));
    assert_eq!(a_side.send_to(a, b"hello", 0, Some(at(2))), Ok(5));
    assert_eq!(
        a_side.send_to(a, &[0; 1473], 0, Some(at(2))),
        Err(Errno::EMSGSIZE)
    );
    hosts.settle();
    let [a_side, b_side] = &mut hosts.sides;
    let (bytes, from) = b_side.recv_from(b, 3, 0).expect("a datagram");
    assert_eq!(bytes, b"hel");
    let from = from.expect("a sender");
    assert_eq!(b_side.recv(b, 3, 0), Err(Errno::EAGAIN));
    assert_eq!(b_side.connect(b, from), Ok(()));
    assert_eq!(a_side.close(a), Ok(()));
    assert_eq!(b_side.send(b, b"anybody?", 0), Ok(8));
    hosts.settle();
    let b_side = &mut hosts.sides[1];
    assert_eq!(b_side.readiness(b), POLLOUT | POLLERR);
    assert_eq!(b_side.recv(b, 1, 0), Err(Errno::ECONNREFUSED));
    assert_eq!(b_side.recv(b, 1, 0), Err(Errno::EAGAIN));
}

#[test]
fn both_versions_at_one_listener() {
    let mut hosts = Hosts::new();
    let [a, b] = &mut hosts.sides;
    let listener = b.socket(AF_INET6, SOCK_STREAM, 0).expect("a socket");
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    assert_eq!(b.bind(listener, everywhere), Ok(()));
    assert_eq!(b.listen(listener, 5), Ok(()));
    let six: SocketAddr = "[fd00::2]:8080".parse().expect("an address");
    let fd6 = a.socket(AF_INET6, SOCK_STREAM, 0).expect("a socket");
    let fd4 = a.socket(AF_INET, SOCK_STREAM, 0).expect("a socket");
    assert_eq!(a.connect(fd4, six), Err(Errno::EAFNOSUPPORT));
    assert_eq!(a.connect(fd6, six), Err(Errno::EINPROGRESS));
    assert_eq!(a.connect(fd4, at(2)), Err(Errno::EINPROGRESS));
    hosts.settle();
    let b = &mut hosts.sides[1];
    let peers = [b.accept(listener), b.accept(listener)].map(|got| got.expect("a peer").1.ip());
    let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
    assert!(peers.contains(&mapped.into()), "{peers:?}");
    assert!(
        peers.contains(&"fd00::1".parse().expect("an address")),
        "{peers:?}"
    );
}

#[test]
fn tcp_info_is_what_linux_would_read() {
    let mut hosts = Hosts::new();
    let (a, ..) = hosts.connected();
    let side = &mut hosts.sides[0];
    let info = side
        .option(a, IPPROTO_TCP, tcp::INFO, 1024)
        .expect("TCP_INFO");
    let word = |at: usize| u32::from_ne_bytes(*info[at..].first_chunk().expect("four bytes"));
    assert_eq!(info[0], 1, "ESTABLISHED");
    assert_eq!(info[5], 7, "timestamps, SACK, window scaling");
    assert_eq!(info[6], 0x77);
    assert_eq!(word(16), 1448, "MSS");
    assert_eq!(word(80), 10, "initial window");
    assert_eq!(
        side.option(a, IPPROTO_TCP, tcp::INFO, 8).map(|v| v.len()),
        Ok(8)
    );
}
