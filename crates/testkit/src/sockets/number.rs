//! Linux's numbers, as a program passes them.

/// Socket types, domains and flags.
pub const AF_INET: i32 = 2;
/// IPv6.
pub const AF_INET6: i32 = 10;
/// TCP.
pub const SOCK_STREAM: i32 = 1;
/// UDP.
pub const SOCK_DGRAM: i32 = 2;
/// Flag of a type: calls do not block.
pub const SOCK_NONBLOCK: i32 = 0o4000;
/// Flag of a type: without meaning here.
pub const SOCK_CLOEXEC: i32 = 0o2_000_000;

/// Levels of options: the socket.
pub const SOL_SOCKET: i32 = 1;
/// IPv4.
pub const IPPROTO_IP: i32 = 0;
/// TCP.
pub const IPPROTO_TCP: i32 = 6;
/// UDP.
pub const IPPROTO_UDP: i32 = 17;
/// IPv6.
pub const IPPROTO_IPV6: i32 = 41;

/// Options of sockets.
pub mod so {
    #![expect(missing_docs, reason = "names of Linux")]
    pub const REUSEADDR: i32 = 2;
    pub const TYPE: i32 = 3;
    pub const ERROR: i32 = 4;
    pub const BROADCAST: i32 = 6;
    pub const SNDBUF: i32 = 7;
    pub const RCVBUF: i32 = 8;
    pub const KEEPALIVE: i32 = 9;
    pub const OOBINLINE: i32 = 10;
    pub const LINGER: i32 = 13;
    pub const REUSEPORT: i32 = 15;
    pub const RCVLOWAT: i32 = 18;
    pub const ACCEPTCONN: i32 = 30;
    pub const SNDBUFFORCE: i32 = 32;
    pub const RCVBUFFORCE: i32 = 33;
    pub const PROTOCOL: i32 = 38;
    pub const DOMAIN: i32 = 39;
}

/// Options of TCP.
pub mod tcp {
    #![expect(missing_docs, reason = "names of Linux")]
    pub const NODELAY: i32 = 1;
    pub const MAXSEG: i32 = 2;
    pub const CORK: i32 = 3;
    pub const KEEPIDLE: i32 = 4;
    pub const KEEPINTVL: i32 = 5;
    pub const KEEPCNT: i32 = 6;
    pub const SYNCNT: i32 = 7;
    pub const LINGER2: i32 = 8;
    pub const DEFER_ACCEPT: i32 = 9;
    pub const INFO: i32 = 11;
    pub const QUICKACK: i32 = 12;
    pub const CONGESTION: i32 = 13;
    pub const USER_TIMEOUT: i32 = 18;
}

/// Options of IPv4.
pub mod ip {
    #![expect(missing_docs, reason = "names of Linux")]
    pub const TOS: i32 = 1;
    pub const TTL: i32 = 2;
}

/// Options of IPv6.
pub mod ipv6 {
    #![expect(missing_docs, reason = "names of Linux")]
    pub const UNICAST_HOPS: i32 = 16;
    pub const TCLASS: i32 = 67;
}

/// Option of IPv6: nothing of IPv4 is taken.
pub const IPV6_V6ONLY: i32 = 26;

/// Flags of calls: urgent data.
pub const MSG_OOB: i32 = 0x1;
/// What is read stays.
pub const MSG_PEEK: i32 = 0x2;
/// Bytes of TCP are thrown away unread.
pub const MSG_TRUNC: i32 = 0x20;
/// As if the socket were non-blocking.
pub const MSG_DONTWAIT: i32 = 0x40;
/// What ICMP has said.
pub const MSG_ERRQUEUE: i32 = 0x2000;
/// No signal; there are none.
pub const MSG_NOSIGNAL: i32 = 0x4000;
/// More is to follow at once.
pub const MSG_MORE: i32 = 0x8000;
/// Connect and send.
pub const MSG_FASTOPEN: i32 = 0x2000_0000;

/// `shutdown`: no more is read.
pub const SHUT_RD: i32 = 0;
/// No more is written.
pub const SHUT_WR: i32 = 1;
/// Both.
pub const SHUT_RDWR: i32 = 2;

/// Readiness: there is something to read, or to accept.
pub const POLLIN: i16 = 0x1;
/// Urgent data.
pub const POLLPRI: i16 = 0x2;
/// There is room to write.
pub const POLLOUT: i16 = 0x4;
/// An error is pending.
pub const POLLERR: i16 = 0x8;
/// Both directions are over.
pub const POLLHUP: i16 = 0x10;
/// No such socket.
pub const POLLNVAL: i16 = 0x20;
/// The peer writes no more.
pub const POLLRDHUP: i16 = 0x2000;

/// `ioctl`: bytes to be read (FIONREAD).
pub const SIOCINQ: u64 = 0x541b;
/// Bytes not acknowledged (TIOCOUTQ).
pub const SIOCOUTQ: u64 = 0x5411;
/// Bytes not sent.
pub const SIOCOUTQNSD: u64 = 0x894b;
/// Whether the next byte follows urgent data.
pub const SIOCATMARK: u64 = 0x8905;
