//! `setsockopt` and `getsockopt`.

use std::time::Duration;

use sidecore_stack::{ConnId, SocketOption};
use sidecore_tcp::{Algorithm, Keepalive, State};
use sidecore_wire::TcpInfo;
use sidecore_wire::info::options;

use super::host::{Role, Socket};
use super::number::{
    IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_UDP, IPV6_V6ONLY, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET, so,
    tcp,
};
use super::tcp::is_six;
use super::{Errno, Fd, Sockets};

/// Bytes below which Linux allows no buffer (SOCK_MIN_SNDBUF, SOCK_MIN_RCVBUF), halved as its values are doubled.
const MIN_BUFFER: usize = 1152;

/// An `int` as a program passes it.
pub(super) fn int(value: &[u8]) -> Result<i32, Errno> {
    let bytes = value.first_chunk().ok_or(Errno::EINVAL)?;
    Ok(i32::from_ne_bytes(*bytes))
}

/// An `int` within bounds.
pub(super) fn within(value: &[u8], least: i32, most: i32) -> Result<i32, Errno> {
    let value = int(value)?;
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(Errno::EINVAL)
    }
}

fn seconds(value: i32) -> Duration {
    Duration::from_secs(value as u64)
}

fn algorithm(name: &[u8]) -> Result<Algorithm, Errno> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    match name {
        b"cubic" => Ok(Algorithm::Cubic),
        b"reno" => Ok(Algorithm::NewReno),
        b"dctcp" => Ok(Algorithm::Dctcp),
        b"bbr" => Ok(Algorithm::Bbr),
        _ => Err(Errno::ENOENT),
    }
}

const fn name_of(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Cubic => "cubic",
        Algorithm::NewReno => "reno",
        Algorithm::Dctcp => "dctcp",
        Algorithm::Bbr => "bbr",
    }
}

impl Sockets {
    /// `setsockopt`, with Linux's numbers and bytes.
    ///
    /// # Errors
    /// EBADF, EINVAL (value), ENOPROTOOPT (the stack has no such option), ENOENT (a congestion controller that is not there).
    pub fn set_option(&mut self, fd: Fd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let six = is_six(self.values(fd)?.domain);
        if let Some(done) = self.tune(fd, (level, name), value) {
            return done;
        }
        match level {
            SOL_SOCKET => self.set_socket_option(fd, name, value),
            IPPROTO_TCP => self.set_tcp_option(fd, name, value),
            IPPROTO_IPV6 if six && name == IPV6_V6ONLY => {
                self.values(fd)?.v6_only = int(value)? != 0;
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_socket_option(&mut self, fd: Fd, name: i32, value: &[u8]) -> Result<(), Errno> {
        let values = self.values(fd)?;
        match name {
            so::REUSEADDR => values.reuse_addr = int(value)? != 0,
            so::REUSEPORT => values.reuse_port = int(value)? != 0,
            so::BROADCAST => values.broadcast = int(value)? != 0,
            so::OOBINLINE => values.oob_inline = int(value)? != 0,
            so::RCVLOWAT => values.receive_low = within(value, 0, i32::MAX)? as usize,
            so::SNDBUF | so::SNDBUFFORCE => {
                values.send_buffer = within(value, 0, i32::MAX)?.max(0) as usize;
                values.send_buffer = values.send_buffer.max(2 * MIN_BUFFER);
            }
            so::RCVBUF | so::RCVBUFFORCE => {
                values.receive_buffer = (within(value, 0, i32::MAX)? as usize).max(MIN_BUFFER);
                if let (user, Socket::Tcp(_)) = self.socket_of(fd)? {
                    self.grant(user);
                }
            }
            so::KEEPALIVE => {
                values.keep_alive = int(value)? != 0;
                self.tell_keepalive(fd)?;
            }
            so::LINGER => {
                let seconds_of = value.get(4..).ok_or(Errno::EINVAL)?;
                let (on, after) = (int(value)? != 0, int(seconds_of)?);
                values.linger = on.then(|| seconds(after.max(0)));
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    pub(super) fn conn_of(&mut self, fd: Fd) -> Option<ConnId> {
        self.tcp(fd).ok()?.1.conn()
    }

    fn tell_keepalive(&mut self, fd: Fd) -> Result<(), Errno> {
        let values = self.values(fd)?;
        let keepalive = values.keep_alive.then_some(values.keepalive);
        let conn = self.conn_of(fd);
        self.tell(conn, SocketOption::Keepalive(keepalive));
        Ok(())
    }

    fn tell_listener_mss(&mut self, fd: Fd) -> Result<(), Errno> {
        let (_, tcp) = self.tcp(fd)?;
        if let (&Role::Listening { id, .. }, Some(mss)) = (&tcp.role, tcp.values.mss) {
            self.stack
                .set_listener_option(id, SocketOption::MaxSegment(mss));
        }
        Ok(())
    }

    fn set_tcp_option(&mut self, fd: Fd, name: i32, value: &[u8]) -> Result<(), Errno> {
        let conn = self.tcp(fd).map_err(|_| Errno::ENOPROTOOPT)?.1.conn();
        let values = self.values(fd)?;
        let Keepalive {
            idle,
            interval,
            probes,
        } = &mut values.keepalive;
        match name {
            tcp::KEEPIDLE => *idle = seconds(within(value, 1, 32767)?),
            tcp::KEEPINTVL => *interval = seconds(within(value, 1, 32767)?),
            tcp::KEEPCNT => *probes = within(value, 1, 127)? as u8,
            tcp::FASTOPEN | tcp::FASTOPEN_CONNECT => {
                return self.set_fast_open_option(fd, name, int(value)?);
            }
            tcp::MAXSEG => values.mss = Some(within(value, 88, 32767)? as u16),
            tcp::NODELAY => values.no_delay = Some(int(value)? != 0),
            tcp::CORK => values.cork = int(value)? != 0,
            tcp::QUICKACK => values.quick_ack = Some(int(value)? != 0),
            tcp::USER_TIMEOUT => {
                let millis = within(value, 0, i32::MAX)? as u64;
                values.user_timeout = (millis > 0).then(|| Duration::from_millis(millis));
            }
            tcp::CONGESTION => values.congestion = Some(algorithm(value)?),
            _ => return Err(Errno::ENOPROTOOPT),
        }
        let (cork, timeout) = (values.cork, values.user_timeout);
        let on = int(value).unwrap_or(0) != 0;
        match name {
            tcp::MAXSEG => {
                let mss = within(value, 88, 32767)? as u16;
                self.tell(conn, SocketOption::MaxSegment(mss));
                self.tell_listener_mss(fd)?;
            }
            tcp::NODELAY => self.tell(conn, SocketOption::NoDelay(on)),
            tcp::CORK => self.tell(conn, SocketOption::Cork(cork)),
            tcp::QUICKACK => self.tell(conn, SocketOption::QuickAck(on)),
            tcp::USER_TIMEOUT => self.tell(conn, SocketOption::UserTimeout(timeout)),
            tcp::KEEPIDLE | tcp::KEEPINTVL | tcp::KEEPCNT => self.tell_keepalive(fd)?,
            _ => {}
        }
        Ok(())
    }

    /// `getsockopt`, with Linux's numbers: the value's bytes, at most `max`. SO_ERROR is cleared by it.
    ///
    /// # Errors
    /// EBADF, ENOPROTOOPT.
    pub fn option(&mut self, fd: Fd, level: i32, name: i32, max: usize) -> Result<Vec<u8>, Errno> {
        let six = is_six(self.values(fd)?.domain);
        let tuned = self.tuning(fd, (level, name));
        let mut value = match level {
            _ if tuned.is_some() => tuned.unwrap_or(0).to_ne_bytes().to_vec(),
            SOL_SOCKET => self.socket_option(fd, name)?,
            IPPROTO_TCP => self.tcp_option(fd, name)?,
            IPPROTO_IPV6 if six && name == IPV6_V6ONLY => {
                i32::from(self.values(fd)?.v6_only).to_ne_bytes().to_vec()
            }
            _ => return Err(Errno::ENOPROTOOPT),
        };
        value.truncate(max);
        Ok(value)
    }

    fn socket_option(&mut self, fd: Fd, name: i32) -> Result<Vec<u8>, Errno> {
        let (_, socket) = self.socket_of(fd)?;
        let (type_, protocol, listens) = match socket {
            Socket::Tcp(tcp) => {
                let listens = matches!(tcp.role, Role::Listening { .. });
                (SOCK_STREAM, IPPROTO_TCP, listens)
            }
            Socket::Udp(_) => (SOCK_DGRAM, IPPROTO_UDP, false),
        };
        let (error, values) = match socket {
            Socket::Tcp(tcp) => (&mut tcp.error, &tcp.values),
            Socket::Udp(udp) => (&mut udp.error, &udp.values),
        };
        // Linux doubles what it is given, to allow for its own overhead, and tells that.
        let doubled = |bytes: usize| i32::try_from(2 * bytes).unwrap_or(i32::MAX);
        let value = match name {
            so::ERROR => error.take().map_or(0, Errno::raw),
            so::TYPE => type_,
            so::PROTOCOL => protocol,
            so::DOMAIN => values.domain,
            so::ACCEPTCONN => i32::from(listens),
            so::REUSEADDR => i32::from(values.reuse_addr),
            so::REUSEPORT => i32::from(values.reuse_port),
            so::BROADCAST => i32::from(values.broadcast),
            so::OOBINLINE => i32::from(values.oob_inline),
            so::KEEPALIVE => i32::from(values.keep_alive),
            so::RCVLOWAT => values.receive_low.max(1) as i32,
            so::SNDBUF => doubled(values.send_buffer),
            so::RCVBUF => doubled(values.receive_buffer),
            so::LINGER => {
                let after = values.linger.map_or(0, |after| after.as_secs() as i32);
                let on = i32::from(values.linger.is_some());
                return Ok([on.to_ne_bytes(), after.to_ne_bytes()].concat());
            }
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    fn tcp_option(&mut self, fd: Fd, name: i32) -> Result<Vec<u8>, Errno> {
        self.tcp(fd).map_err(|_| Errno::ENOPROTOOPT)?;
        if name == tcp::INFO {
            return self.tcp_info(fd);
        }
        let defaults = self.stack.config().tcp.clone();
        let mss = self.connection(fd).map(|tcp| tcp.effective_mss());
        let values = self.values(fd)?;
        let value = match name {
            tcp::KEEPIDLE => values.keepalive.idle.as_secs() as i32,
            tcp::KEEPINTVL => values.keepalive.interval.as_secs() as i32,
            tcp::KEEPCNT => i32::from(values.keepalive.probes),
            tcp::MAXSEG => i32::from(mss.or(values.mss).unwrap_or(536)),
            tcp::NODELAY => i32::from(values.no_delay.unwrap_or(defaults.no_delay)),
            tcp::CORK => i32::from(values.cork),
            tcp::QUICKACK => i32::from(values.quick_ack.unwrap_or(defaults.delayed_ack.is_zero())),
            tcp::USER_TIMEOUT => values.user_timeout.map_or(0, |t| t.as_millis() as i32),
            tcp::CONGESTION => {
                let name = name_of(values.congestion.unwrap_or(defaults.congestion));
                let mut bytes = name.as_bytes().to_vec();
                bytes.resize(16, 0);
                return Ok(bytes);
            }
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    fn tcp_info(&mut self, fd: Fd) -> Result<Vec<u8>, Errno> {
        let now = self.now;
        let (_, tcp) = self.tcp(fd)?;
        let (conn, syn_data) = (tcp.conn(), tcp.syn_data);
        let listens = matches!(tcp.role, Role::Listening { .. });
        if let Some(info) = conn.and_then(|conn| self.stack.tcp_info(conn, now)) {
            return Ok(info.to_bytes().to_vec());
        }
        let state = if listens {
            State::Listen
        } else {
            State::Closed
        };
        let info = TcpInfo {
            state: state.linux_number(),
            options: if syn_data { options::SYN_DATA } else { 0 },
            ..TcpInfo::default()
        };
        Ok(info.to_bytes().to_vec())
    }
}
