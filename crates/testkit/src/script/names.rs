//! Names of numbers in calls.

use super::syntax::Expr;
use crate::sockets::number as n;

const NAMES: &[(&str, i64)] = &[
    ("AF_INET", n::AF_INET as i64),
    ("AF_INET6", n::AF_INET6 as i64),
    ("PF_INET", n::AF_INET as i64),
    ("PF_INET6", n::AF_INET6 as i64),
    ("SOCK_STREAM", n::SOCK_STREAM as i64),
    ("SOCK_DGRAM", n::SOCK_DGRAM as i64),
    ("SOCK_NONBLOCK", n::SOCK_NONBLOCK as i64),
    ("SOCK_CLOEXEC", n::SOCK_CLOEXEC as i64),
    ("IPPROTO_IP", n::IPPROTO_IP as i64),
    ("IPPROTO_TCP", n::IPPROTO_TCP as i64),
    ("IPPROTO_UDP", n::IPPROTO_UDP as i64),
    ("IPPROTO_IPV6", n::IPPROTO_IPV6 as i64),
    ("SOL_SOCKET", n::SOL_SOCKET as i64),
    ("SOL_TCP", n::IPPROTO_TCP as i64),
    ("SO_REUSEADDR", n::so::REUSEADDR as i64),
    ("SO_TYPE", n::so::TYPE as i64),
    ("SO_ERROR", n::so::ERROR as i64),
    ("SO_BROADCAST", n::so::BROADCAST as i64),
    ("SO_SNDBUF", n::so::SNDBUF as i64),
    ("SO_RCVBUF", n::so::RCVBUF as i64),
    ("SO_KEEPALIVE", n::so::KEEPALIVE as i64),
    ("SO_OOBINLINE", n::so::OOBINLINE as i64),
    ("SO_LINGER", n::so::LINGER as i64),
    ("SO_REUSEPORT", n::so::REUSEPORT as i64),
    ("SO_RCVLOWAT", n::so::RCVLOWAT as i64),
    ("SO_ACCEPTCONN", n::so::ACCEPTCONN as i64),
    ("TCP_NODELAY", n::tcp::NODELAY as i64),
    ("TCP_MAXSEG", n::tcp::MAXSEG as i64),
    ("TCP_CORK", n::tcp::CORK as i64),
    ("TCP_KEEPIDLE", n::tcp::KEEPIDLE as i64),
    ("TCP_KEEPINTVL", n::tcp::KEEPINTVL as i64),
    ("TCP_KEEPCNT", n::tcp::KEEPCNT as i64),
    ("TCP_SYNCNT", n::tcp::SYNCNT as i64),
    ("TCP_LINGER2", n::tcp::LINGER2 as i64),
    ("TCP_DEFER_ACCEPT", n::tcp::DEFER_ACCEPT as i64),
    ("TCP_WINDOW_CLAMP", 10),
    ("TCP_INFO", n::tcp::INFO as i64),
    ("TCP_QUICKACK", n::tcp::QUICKACK as i64),
    ("TCP_CONGESTION", n::tcp::CONGESTION as i64),
    ("TCP_USER_TIMEOUT", n::tcp::USER_TIMEOUT as i64),
    ("TCP_FASTOPEN", 23),
    ("TCP_NOTSENT_LOWAT", 25),
    ("TCP_FASTOPEN_CONNECT", 30),
    ("IPV6_V6ONLY", n::IPV6_V6ONLY as i64),
    ("IP_TOS", n::ip::TOS as i64),
    ("IP_TTL", n::ip::TTL as i64),
    ("IPV6_UNICAST_HOPS", n::ipv6::UNICAST_HOPS as i64),
    ("IPV6_TCLASS", n::ipv6::TCLASS as i64),
    ("MSG_OOB", n::MSG_OOB as i64),
    ("MSG_PEEK", n::MSG_PEEK as i64),
    ("MSG_TRUNC", n::MSG_TRUNC as i64),
    ("MSG_DONTWAIT", n::MSG_DONTWAIT as i64),
    ("MSG_ERRQUEUE", n::MSG_ERRQUEUE as i64),
    ("MSG_NOSIGNAL", n::MSG_NOSIGNAL as i64),
    ("MSG_MORE", n::MSG_MORE as i64),
    ("MSG_FASTOPEN", n::MSG_FASTOPEN as i64),
    ("SHUT_RD", n::SHUT_RD as i64),
    ("SHUT_WR", n::SHUT_WR as i64),
    ("SHUT_RDWR", n::SHUT_RDWR as i64),
    ("POLLIN", n::POLLIN as i64),
    ("POLLPRI", n::POLLPRI as i64),
    ("POLLOUT", n::POLLOUT as i64),
    ("POLLERR", n::POLLERR as i64),
    ("POLLHUP", n::POLLHUP as i64),
    ("POLLNVAL", n::POLLNVAL as i64),
    ("POLLRDHUP", n::POLLRDHUP as i64),
    ("FIONREAD", n::SIOCINQ as i64),
    ("SIOCINQ", n::SIOCINQ as i64),
    ("SIOCOUTQ", n::SIOCOUTQ as i64),
    ("SIOCOUTQNSD", n::SIOCOUTQNSD as i64),
    ("SIOCATMARK", n::SIOCATMARK as i64),
    ("F_GETFL", 3),
    ("F_SETFL", 4),
    ("O_RDWR", 2),
    ("O_NONBLOCK", n::SOCK_NONBLOCK as i64),
    ("TCP_ESTABLISHED", 1),
    ("TCP_SYN_SENT", 2),
    ("TCP_SYN_RECV", 3),
    ("TCP_FIN_WAIT1", 4),
    ("TCP_FIN_WAIT2", 5),
    ("TCP_TIME_WAIT", 6),
    ("TCP_CLOSE", 7),
    ("TCP_CLOSE_WAIT", 8),
    ("TCP_LAST_ACK", 9),
    ("TCP_LISTEN", 10),
    ("TCP_CLOSING", 11),
];

/// The number that a name stands for.
pub(super) fn number(name: &str) -> Option<i64> {
    let found = NAMES.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number)
}

impl Expr {
    /// An expression's value as a number.
    ///
    /// # Errors
    /// Says what is no number.
    pub(super) fn int(&self) -> Result<i64, String> {
        match self {
            Self::Int(value) => Ok(*value),
            Self::Word(name) => number(name).ok_or_else(|| format!("{name} is not known")),
            Self::Or(all) => all.iter().try_fold(0, |sum, one| Ok(sum | one.int()?)),
            Self::List(list) if list.len() == 1 => list[0].int(),
            other => Err(format!("{other:?} is no number")),
        }
    }
}
