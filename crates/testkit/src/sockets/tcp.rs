//! Calls on TCP sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use sidecore_stack::{ConnId, SocketOption, StackError, User};

use super::host::{Role, Socket, Tcp};
use super::number::{
    AF_INET, AF_INET6, MSG_ERRQUEUE, MSG_FASTOPEN, MSG_MORE, MSG_OOB, MSG_PEEK, MSG_TRUNC, SHUT_RD,
    SHUT_RDWR, SHUT_WR,
};
use super::{Errno, Fd, Sockets, any, seen_from};

/// Connections that may wait to be accepted, whatever a program asks for (`somaxconn`).
const SOMAXCONN: usize = 4096;

impl Sockets {
    /// A TCP socket.
    pub(super) fn of(&mut self, user: User) -> &mut Tcp {
        self.table.tcp(user).expect("a TCP socket")
    }

    pub(super) fn bind_tcp(&mut self, user: User, local: SocketAddr) -> Result<(), Errno> {
        let tcp = self.of(user);
        if tcp.bound.is_some() || !matches!(tcp.role, Role::Closed) {
            return Err(Errno::EINVAL);
        }
        let (reuse, options) = (tcp.values.reuse_addr, tcp.values.for_stack());
        if local.port() != 0 && self.is_taken(user, local, reuse) {
            return Err(Errno::EADDRINUSE);
        }
        // The stack binds what listens; that it would is all that is asked here.
        let trial = self.stack.listen(local, &options, 1, user);
        let trial = trial.map_err(Errno::of)?;
        let port = self.stack.listener_local(trial).map_or(0, |at| at.port());
        self.stack.close_listener(trial);
        self.of(user).bound = Some(SocketAddr::new(local.ip(), port));
        Ok(())
    }

    /// Whether a port is in use by somebody with whom it cannot be shared.
    fn is_taken(&self, user: User, local: SocketAddr, reuse: bool) -> bool {
        let meets = |other: SocketAddr| {
            let (a, b) = (local.ip().to_canonical(), other.ip().to_canonical());
            let any = a.is_unspecified() || b.is_unspecified();
            other.port() == local.port() && (a == b || any)
        };
        let sockets = self.table.sockets.iter().enumerate();
        let bound = sockets
            .filter(|(at, _)| *at != user as usize)
            .filter_map(|(_, socket)| match socket {
                Some(Socket::Tcp(tcp)) => Some((tcp, tcp.bound?)),
                _ => None,
            })
            .any(|(tcp, bound)| {
                let alone = !reuse || !tcp.values.reuse_addr;
                meets(bound) && (alone || matches!(tcp.role, Role::Listening { .. }))
            });
        bound || !reuse && self.stack.connections().any(|other| meets(other.local))
    }

    /// `listen`.
    ///
    /// # Errors
    /// EBADF, EOPNOTSUPP, EINVAL (connected), EADDRINUSE.
    pub fn listen(&mut self, fd: Fd, backlog: i32) -> Result<(), Errno> {
        let (user, tcp) = self.tcp(fd)?;
        let asked = usize::try_from(backlog).unwrap_or(SOMAXCONN).min(SOMAXCONN);
        match &mut tcp.role {
            Role::Listening { backlog, .. } => {
                *backlog = asked;
                return Ok(());
            }
            Role::Closed => {}
            _ => return Err(Errno::EINVAL),
        }
        let local = tcp.bound.unwrap_or_else(|| any(tcp.values.domain));
        let mut options = tcp.values.for_stack();
        options.fast_open_queue = self.fast_open_queue(user);
        let listened = self.stack.listen(local, &options, asked as u32 + 1, user);
        let id = listened.map_err(Errno::of)?;
        let port = self.stack.listener_local(id).map_or(0, |at| at.port());
        let tcp = self.of(user);
        tcp.bound = Some(SocketAddr::new(local.ip(), port));
        tcp.role = Role::Listening {
            id,
            backlog: asked,
            queue: VecDeque::new(),
        };
        (tcp.no_read, tcp.no_write, tcp.error) = (false, false, None);
        Ok(())
    }

    /// `accept`: a connection and the peer's address.
    ///
    /// # Errors
    /// EBADF, EOPNOTSUPP, EINVAL (does not listen), EAGAIN.
    pub fn accept(&mut self, fd: Fd) -> Result<(Fd, SocketAddr), Errno> {
        let (_, tcp) = self.tcp(fd)?;
        let Role::Listening { queue, .. } = &mut tcp.role else {
            return Err(Errno::EINVAL);
        };
        let user = queue.pop_front().ok_or(Errno::EAGAIN)?;
        let accepted = self.of(user);
        let domain = accepted.values.domain;
        let peer = accepted.peer.expect("a connection has a peer");
        let (conn, cork) = (accepted.conn(), accepted.values.cork);
        if let Some(conn) = conn.filter(|_| cork) {
            self.stack.set_option(conn, SocketOption::Cork(true));
        }
        let fd = self.new_fd(user);
        Ok((fd, seen_from(domain, peer)))
    }

    /// `connect`. A TCP socket never connects at once: the answer is EINPROGRESS, then EALREADY, and success once when the
    /// connection is there.
    ///
    /// # Errors
    /// As said; EISCONN; what the attempt failed with (ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH); EADDRNOTAVAIL, ENETUNREACH,
    /// EAFNOSUPPORT, EINVAL.
    pub fn connect(&mut self, fd: Fd, remote: SocketAddr) -> Result<(), Errno> {
        if let (user, Socket::Udp(_)) = self.socket_of(fd)? {
            return self.connect_udp(user, remote);
        }
        let (user, tcp) = self.tcp(fd)?;
        match (&tcp.role, tcp.in_progress) {
            (Role::Connecting(_), false) => return Err(Errno::EISCONN),
            (Role::Connecting(_), true) => return Err(Errno::EALREADY),
            (Role::Connected(_), true) => {
                tcp.in_progress = false;
                return Ok(());
            }
            (Role::Connected(_), false) | (Role::Listening { .. }, _) => {
                return Err(Errno::EISCONN);
            }
            (Role::Closed, true) => {
                tcp.in_progress = false;
                return Err(tcp.error.take().unwrap_or(Errno::ECONNABORTED));
            }
            (Role::Closed, false) if tcp.was_connected => return Err(Errno::EISCONN),
            (Role::Closed, false) => {}
        }
        if tcp.values.domain == AF_INET && remote.is_ipv6() {
            return Err(Errno::EAFNOSUPPORT);
        }
        let (local, options) = (tcp.bound, tcp.values.for_stack());
        let opened = self.stack.connect(self.now, local, remote, &options, user);
        let conn = opened.map_err(|error| match (error, local) {
            (StackError::AddressInUse, None) => Errno::EADDRNOTAVAIL,
            (error, _) => Errno::of(error),
        })?;
        let addresses = self.stack.addresses(conn);
        let tcp = self.of(user);
        tcp.role = Role::Connecting(conn);
        tcp.local = addresses.map(|(local, _)| local);
        tcp.bound = tcp.bound.or(tcp.local);
        tcp.peer = Some(remote);
        tcp.in_progress = true;
        (tcp.no_read, tcp.no_write, tcp.error) = (false, false, None);
        self.turn();
        if self.syn_is_held(conn) {
            // A program is told that it is connected (Linux, TCP_FASTOPEN_CONNECT).
            self.of(user).in_progress = false;
            return Ok(());
        }
        Err(Errno::EINPROGRESS)
    }

    /// `send`, and `write` with no flags: how many bytes were taken. MSG_MORE and MSG_OOB are understood; MSG_DONTWAIT and MSG_NOSIGNAL
    /// are how it is anyway.
    ///
    /// # Errors
    /// EBADF, EAGAIN (no room, or not connected yet), EPIPE, what ended the connection (once), EOPNOTSUPP.
    pub fn send(&mut self, fd: Fd, bytes: &[u8], flags: i32) -> Result<usize, Errno> {
        if let (user, Socket::Udp(_)) = self.socket_of(fd)? {
            return self.send_udp(user, bytes, None);
        }
        if flags & MSG_FASTOPEN != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let (_, tcp) = self.tcp(fd)?;
        if let Some(error) = tcp.error.take() {
            return Err(error);
        }
        let conn = match tcp.role {
            Role::Connected(conn) if !tcp.no_write => conn,
            Role::Connecting(_) if flags & MSG_OOB != 0 => return Err(Errno::EAGAIN),
            Role::Connecting(conn) if !tcp.no_write => return self.send_with_syn(fd, conn, bytes),
            _ => return Err(Errno::EPIPE),
        };
        let room = tcp.values.send_buffer.saturating_sub(tcp.send.len());
        let len = bytes.len().min(room);
        if len == 0 && !bytes.is_empty() {
            return Err(Errno::EAGAIN);
        }
        tcp.send.push(&bytes[..len]);
        let end = tcp.send.end();
        if flags & MSG_OOB != 0 {
            self.stack.set_urgent(conn, end);
        }
        self.stack
            .set_send_limit(conn, end, flags & MSG_MORE != 0 && len == bytes.len());
        self.turn();
        Ok(len)
    }

    /// `recv`, and `read` with no flags: the next bytes, at most `max`; none at the end of the stream. MSG_PEEK and MSG_TRUNC
    /// (TCP throws away so many) are understood.
    ///
    /// # Errors
    /// EBADF, EAGAIN, ENOTCONN, what ended the connection (once), EINVAL (MSG_OOB without urgent data).
    pub fn recv(&mut self, fd: Fd, max: usize, flags: i32) -> Result<Vec<u8>, Errno> {
        if let (user, Socket::Udp(_)) = self.socket_of(fd)? {
            return Ok(self.recv_udp(user, max, flags)?.0);
        }
        let (user, tcp) = self.tcp(fd)?;
        if flags & MSG_ERRQUEUE != 0 {
            return Err(Errno::EAGAIN);
        }
        if matches!(tcp.role, Role::Listening { .. }) {
            return Err(Errno::ENOTCONN);
        }
        if flags & MSG_OOB != 0 {
            return tcp.take_urgent(flags & MSG_PEEK != 0);
        }
        let max = max.min(tcp.readable_before_mark());
        let bytes = tcp.receive.peek(max).to_vec();
        if bytes.is_empty() {
            return match (&tcp.role, tcp.error) {
                _ if max == 0 || tcp.fin => Ok(bytes),
                (_, Some(error)) => {
                    tcp.error = None;
                    Err(error)
                }
                _ if tcp.no_read => Ok(bytes),
                (Role::Closed, _) => Err(Errno::ENOTCONN),
                _ => Err(Errno::EAGAIN),
            };
        }
        if flags & MSG_PEEK == 0 {
            tcp.receive.consume(bytes.len());
            self.grant(user);
        }
        if flags & MSG_TRUNC != 0 {
            return Ok(vec![0; bytes.len()]);
        }
        Ok(bytes)
    }

    /// Tells the stack how much receive buffer there is.
    pub(super) fn grant(&mut self, user: User) {
        let tcp = self.of(user);
        let limit = tcp.receive.consumed() + tcp.values.receive_buffer as u64;
        if let Some(conn) = tcp.conn() {
            self.stack.set_receive_limit(conn, limit);
            self.turn();
        }
    }

    /// `shutdown`.
    ///
    /// # Errors
    /// EBADF, EINVAL, ENOTCONN.
    pub fn shutdown(&mut self, fd: Fd, how: i32) -> Result<(), Errno> {
        if !matches!(how, SHUT_RD | SHUT_WR | SHUT_RDWR) {
            return Err(Errno::EINVAL);
        }
        let (user, socket) = self.socket_of(fd)?;
        let tcp = match socket {
            Socket::Tcp(tcp) => tcp,
            Socket::Udp(udp) => {
                udp.no_read |= how != SHUT_WR;
                udp.no_write |= how != SHUT_RD;
                return udp.peer.map(|_| ()).ok_or(Errno::ENOTCONN);
            }
        };
        let conn = match tcp.role {
            Role::Closed => return Err(Errno::ENOTCONN),
            Role::Listening { .. } | Role::Connecting(_) => {
                if how != SHUT_WR {
                    self.end(user);
                }
                return Ok(());
            }
            Role::Connected(conn) => conn,
        };
        tcp.no_read |= how != SHUT_WR;
        let ends = how != SHUT_RD && !tcp.no_write;
        tcp.no_write |= how != SHUT_RD;
        if ends {
            self.stack.shutdown_send(conn);
            self.turn();
        }
        Ok(())
    }

    /// Stops listening or connecting; the socket stays.
    fn end(&mut self, user: User) {
        match std::mem::take(&mut self.of(user).role) {
            Role::Listening { id, queue, .. } => {
                self.stack.close_listener(id);
                for waiting in queue {
                    self.drop_connection(waiting);
                }
            }
            Role::Connecting(conn) => {
                self.stack.abort(conn);
                self.of(user).in_progress = false;
            }
            role => self.of(user).role = role,
        }
        self.turn();
    }

    /// Resets a connection that nobody accepted.
    fn drop_connection(&mut self, user: User) {
        if let Some(conn) = self.table.tcp(user).and_then(|tcp| tcp.conn()) {
            self.stack.abort(conn);
        }
        self.table.sockets[user as usize] = None;
    }

    pub(super) fn close_tcp(&mut self, user: User) {
        if matches!(self.of(user).role, Role::Listening { .. }) {
            self.end(user);
        }
        let tcp = self.of(user);
        let Some(conn) = tcp.conn() else {
            self.table.sockets[user as usize] = None;
            return;
        };
        // RFC 1122 section 4.2.2.13: a close that throws data away tells the peer so.
        let resets = tcp.receive.len() > 0 || tcp.values.linger == Some(Duration::ZERO);
        tcp.orphan = true;
        (tcp.no_read, tcp.no_write) = (true, true);
        let done = if resets {
            self.stack.abort(conn)
        } else {
            // `closed` follows, perhaps at once.
            !self.stack.close(conn)
        };
        if done {
            self.table.sockets[user as usize] = None;
        }
    }

    /// Sets an option of a connection that exists.
    pub(super) fn tell(&mut self, conn: Option<ConnId>, option: SocketOption) {
        if let Some(conn) = conn {
            self.stack.set_option(conn, option);
            self.turn();
        }
    }
}

/// Whether a domain is one of IPv6.
pub(super) const fn is_six(domain: i32) -> bool {
    domain == AF_INET6
}
