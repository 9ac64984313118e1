//! Calls on UDP sockets.

use std::net::SocketAddr;

use sidecore_stack::{StackError, TxPayload, User};

use super::host::{Socket, Udp};
use super::number::{AF_INET, MSG_ERRQUEUE, MSG_OOB, MSG_PEEK};
use super::{Errno, Fd, Sockets, any, seen_from};

impl Sockets {
    fn of_udp(&mut self, user: User) -> &mut Udp {
        self.table.udp(user).expect("a UDP socket")
    }

    pub(super) fn bind_udp(&mut self, user: User, local: SocketAddr) -> Result<(), Errno> {
        if self.of_udp(user).id.is_some() {
            return Err(Errno::EINVAL);
        }
        let id = self.stack.udp_bind(local, user).map_err(Errno::of)?;
        self.of_udp(user).id = Some(id);
        Ok(())
    }

    fn bind_udp_if_needed(&mut self, user: User) -> Result<(), Errno> {
        let udp = self.of_udp(user);
        if udp.id.is_some() {
            return Ok(());
        }
        let any = any(udp.values.domain);
        self.bind_udp(user, any)
    }

    pub(super) fn connect_udp(&mut self, user: User, remote: SocketAddr) -> Result<(), Errno> {
        if remote.is_ipv6() && self.of_udp(user).values.domain == AF_INET {
            return Err(Errno::EAFNOSUPPORT);
        }
        self.bind_udp_if_needed(user)?;
        self.of_udp(user).peer = Some(SocketAddr::new(remote.ip().to_canonical(), remote.port()));
        Ok(())
    }

    pub(super) fn send_udp(
        &mut self,
        user: User,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        let udp = self.of_udp(user);
        if let Some(error) = udp.error.take() {
            return Err(error);
        }
        if udp.no_write {
            return Err(Errno::EPIPE);
        }
        let to = to.or(udp.peer).ok_or(Errno::EDESTADDRREQ)?;
        self.bind_udp_if_needed(user)?;
        let id = self.of_udp(user).id.expect("a bound socket");
        for _ in 0..2 {
            let payload = TxPayload::Bytes(bytes);
            let sent = self
                .stack
                .udp_send(self.now, id, to, payload, &mut self.table);
            self.turn();
            match sent {
                Ok(()) => return Ok(bytes.len()),
                // The neighbour has answered by now.
                Err(StackError::Resolving) => {}
                Err(error) => return Err(Errno::of(error)),
            }
        }
        Err(Errno::EHOSTUNREACH)
    }

    pub(super) fn recv_udp(
        &mut self,
        user: User,
        max: usize,
        flags: i32,
    ) -> Result<(Vec<u8>, Option<SocketAddr>), Errno> {
        let udp = self.of_udp(user);
        if flags & MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags & MSG_ERRQUEUE != 0 {
            return Err(Errno::EAGAIN);
        }
        if let Some(error) = udp.error.take() {
            return Err(error);
        }
        let domain = udp.values.domain;
        let first = if flags & MSG_PEEK != 0 {
            udp.queue.front().cloned()
        } else {
            udp.queue.pop_front()
        };
        match first {
            Some(mut datagram) => {
                datagram.bytes.truncate(max);
                Ok((datagram.bytes, Some(seen_from(domain, datagram.from))))
            }
            None if udp.no_read => Ok((Vec::new(), None)),
            None => Err(Errno::EAGAIN),
        }
    }

    /// `sendto`; on a TCP socket the address is not looked at, as with Linux.
    ///
    /// # Errors
    /// Those of [`send`](Self::send); EDESTADDRREQ, EMSGSIZE, ENETUNREACH, EHOSTUNREACH, EINVAL.
    pub fn send_to(
        &mut self,
        fd: Fd,
        bytes: &[u8],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        match self.socket_of(fd)? {
            (user, Socket::Udp(_)) => self.send_udp(user, bytes, to),
            _ => self.send(fd, bytes, flags),
        }
    }

    /// `recvfrom`: bytes, and of a datagram its sender.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn recv_from(
        &mut self,
        fd: Fd,
        max: usize,
        flags: i32,
    ) -> Result<(Vec<u8>, Option<SocketAddr>), Errno> {
        match self.socket_of(fd)? {
            (user, Socket::Udp(_)) => self.recv_udp(user, max, flags),
            _ => Ok((self.recv(fd, max, flags)?, None)),
        }
    }
}
