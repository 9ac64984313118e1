//! Readiness, and the values of `ioctl`.

use super::host::{Role, Socket, Tcp, Udp};
use super::number::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, SIOCATMARK, SIOCINQ, SIOCOUTQ,
    SIOCOUTQNSD,
};
use super::{Errno, Fd, Sockets};

impl Sockets {
    /// What `poll` would say of a socket, whatever was asked for.
    pub fn readiness(&mut self, fd: Fd) -> i16 {
        match self.socket_of(fd) {
            // Its program was told that it is connected, and may write.
            Ok((_, Socket::Tcp(tcp)))
                if matches!(tcp.role, Role::Connecting(_)) && !tcp.in_progress =>
            {
                POLLOUT
            }
            Ok((_, Socket::Tcp(tcp))) => of_tcp(tcp),
            Ok((_, Socket::Udp(udp))) => of_udp(udp),
            Err(_) => POLLNVAL,
        }
    }

    /// What `poll` says of a socket that is asked for `events`; POLLERR and POLLHUP need not be asked for.
    pub fn poll(&mut self, fd: Fd, events: i16) -> i16 {
        self.readiness(fd) & (events | POLLERR | POLLHUP | POLLNVAL)
    }

    /// `ioctl`: SIOCINQ (FIONREAD), SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK.
    ///
    /// # Errors
    /// EBADF, EINVAL (a listener, or a request that is not known).
    pub fn ioctl(&mut self, fd: Fd, request: u64) -> Result<i32, Errno> {
        let tcp = match self.socket_of(fd)?.1 {
            Socket::Tcp(tcp) => tcp,
            Socket::Udp(udp) if request == SIOCINQ => {
                return Ok(udp.queue.front().map_or(0, |d| d.bytes.len() as i32));
            }
            Socket::Udp(_) => return Err(Errno::EINVAL),
        };
        if matches!(tcp.role, Role::Listening { .. }) {
            return Err(Errno::EINVAL);
        }
        let (received, unacked, conn) = (tcp.unread(), tcp.send.len(), tcp.conn());
        let at_mark = tcp.urgent.is_next(&tcp.receive);
        let conn = conn.and_then(|conn| self.stack.connection(conn));
        Ok(match request {
            SIOCINQ => received as i32,
            // Without a connection there is nobody to send to.
            SIOCOUTQ => conn.map_or(0, |_| unacked as i32),
            SIOCOUTQNSD => conn.map_or(0, |tcp| (tcp.send_limit() - tcp.send_nxt()) as i32),
            SIOCATMARK => at_mark.into(),
            _ => return Err(Errno::EINVAL),
        })
    }
}

fn of_tcp(tcp: &Tcp) -> i16 {
    if let Role::Listening { queue, .. } = &tcp.role {
        return if queue.is_empty() { 0 } else { POLLIN };
    }
    let mut ready = 0;
    let no_read = tcp.no_read || tcp.fin;
    if matches!(tcp.role, Role::Closed) || no_read && tcp.no_write {
        ready |= POLLHUP;
    }
    if no_read {
        ready |= POLLIN | POLLRDHUP;
    }
    if !matches!(tcp.role, Role::Connecting(_)) {
        // What is out of band is nothing to be read.
        let out_of_band = tcp.urgent.is_next(&tcp.receive) && !tcp.values.oob_inline;
        let least = tcp.values.receive_low.max(1) + usize::from(out_of_band);
        if tcp.receive.len() >= least {
            ready |= POLLIN;
        }
        if tcp.has_urgent_octet() {
            ready |= POLLPRI;
        }
        // As Linux: a third of the buffer is free.
        let used = tcp.send.len();
        let free = tcp.values.send_buffer.saturating_sub(used);
        if tcp.no_write || free >= used / 2 && free > 0 {
            ready |= POLLOUT;
        }
    }
    if tcp.error.is_some() {
        ready |= POLLERR;
    }
    ready
}

fn of_udp(udp: &Udp) -> i16 {
    let mut ready = POLLOUT;
    if !udp.queue.is_empty() || udp.no_read {
        ready |= POLLIN;
    }
    if udp.no_read {
        ready |= POLLRDHUP;
        if udp.no_write {
            ready |= POLLHUP;
        }
    }
    if udp.error.is_some() {
        ready |= POLLERR;
    }
    ready
}
