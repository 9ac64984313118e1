//! TCP Fast Open as Linux has it for programs: MSG_FASTOPEN, TCP_FASTOPEN and TCP_FASTOPEN_CONNECT.

use std::net::SocketAddr;

use sidecore_stack::{ConnId, SocketOption, User};

use super::host::{Role, Socket};
use super::number::tcp;
use super::{Errno, Fd, Sockets};

/// Who may use Fast Open, whatever sockets ask for (`net.ipv4.tcp_fastopen` of Linux).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastOpenPolicy {
    /// Active opens.
    pub client: bool,
    /// Listeners.
    pub server: bool,
    /// Connections that a listener may have open before their handshake is complete, if it does not say; 0: none.
    pub queue: u32,
    /// Active opens do without where it seems to get lost.
    pub caution: bool,
}

impl Default for FastOpenPolicy {
    /// Whoever asks for it.
    fn default() -> Self {
        Self {
            client: true,
            server: true,
            queue: 0,
            caution: true,
        }
    }
}

impl Sockets {
    /// Who may use Fast Open from now on.
    pub fn set_fast_open(&mut self, policy: FastOpenPolicy) {
        self.fast_open = policy;
        self.stack.set_fast_open_caution(policy.caution);
    }

    /// The key of the cookies that listeners give out.
    pub fn set_fast_open_key(&mut self, key: [u8; 16]) {
        self.stack.set_fast_open_key(key);
    }

    /// What is known of servers is forgotten.
    pub fn forget_fast_open(&mut self) {
        self.stack.forget_fast_open();
    }

    /// How many early connections a socket gets when it listens.
    pub(super) fn fast_open_queue(&mut self, user: User) -> u32 {
        let FastOpenPolicy { server, queue, .. } = self.fast_open;
        let asked = self.of(user).values.fast_open_queue;
        if server { asked.unwrap_or(queue) } else { 0 }
    }

    /// TCP_FASTOPEN and TCP_FASTOPEN_CONNECT.
    pub(super) fn set_fast_open_option(
        &mut self,
        fd: Fd,
        name: i32,
        value: i32,
    ) -> Result<(), Errno> {
        let client = self.fast_open.client;
        let (user, socket) = self.tcp(fd)?;
        if name == tcp::FASTOPEN_CONNECT {
            if !client {
                return Err(Errno::EOPNOTSUPP);
            }
            socket.values.fast_open = value != 0;
            return Ok(());
        }
        let queue = u32::try_from(value).map_err(|_| Errno::EINVAL)?;
        socket.values.fast_open_queue = Some(queue);
        let listener = match socket.role {
            Role::Listening { id, .. } => Some(id),
            _ => None,
        };
        let queue = self.fast_open_queue(user);
        if let Some(id) = listener {
            let option = SocketOption::FastOpenQueue(queue);
            self.stack.set_listener_option(id, option);
        }
        Ok(())
    }

    /// Notes which sockets have had data on their SYN: they may be asked when their connection is gone.
    pub(super) fn note_syn_data(&mut self) {
        for socket in self.table.sockets.iter_mut().flatten() {
            if let Socket::Tcp(tcp) = socket
                && let Some(conn) = tcp.conn().and_then(|conn| self.stack.connection(conn))
            {
                tcp.syn_data |= conn.syn_data_acked();
            }
        }
    }

    /// Whether a connection's SYN waits for data.
    pub(super) fn syn_is_held(&self, conn: ConnId) -> bool {
        let tcp = self.stack.connection(conn);
        tcp.is_some_and(|tcp| tcp.awaits_syn_data())
    }

    /// Whether a socket's attempt to connect is under way: a call that blocks waits for its end.
    pub fn is_connecting(&mut self, fd: Fd) -> bool {
        let socket = self.tcp(fd);
        socket.is_ok_and(|(_, tcp)| matches!(tcp.role, Role::Connecting(_)))
    }

    /// How an attempt to connect ended that is not under way any more.
    ///
    /// # Errors
    /// What it failed with.
    pub fn outcome(&mut self, fd: Fd) -> Result<(), Errno> {
        self.tcp(fd)?.1.error.take().map_or(Ok(()), Err)
    }

    /// `sendto` with MSG_FASTOPEN: opens, with the bytes on the SYN as far as it may carry them. How many were taken.
    ///
    /// # Errors
    /// EOPNOTSUPP, EINPROGRESS (there is no cookie for the server, or no byte: nothing was taken), EALREADY, EISCONN (listens); those of
    /// [`connect`](Self::connect) and [`send`](Self::send).
    pub fn send_opening(&mut self, fd: Fd, bytes: &[u8], to: SocketAddr) -> Result<usize, Errno> {
        if !self.fast_open.client {
            return Err(Errno::EOPNOTSUPP);
        }
        let (user, tcp) = self.tcp(fd)?;
        match tcp.role {
            Role::Closed => {
                let asked = std::mem::replace(&mut tcp.values.fast_open, true);
                let opened = self.connect(fd, to);
                self.of(user).values.fast_open = asked;
                opened?;
            }
            Role::Connecting(_) if tcp.in_progress => return Err(Errno::EALREADY),
            Role::Connecting(_) => {}
            // As any other, after the handshake.
            Role::Connected(_) => return self.send(fd, bytes, 0),
            Role::Listening { .. } => return Err(Errno::EISCONN),
        }
        match self.of(user).role {
            Role::Connecting(conn) => self.send_with_syn(fd, conn, bytes),
            _ => Err(Errno::ECONNABORTED),
        }
    }

    /// A socket that is connecting is written to: what its SYN may carry is taken, if it waits for that.
    pub(super) fn send_with_syn(
        &mut self,
        fd: Fd,
        conn: ConnId,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        if !self.syn_is_held(conn) {
            return Err(Errno::EAGAIN);
        }
        let tcp = self.stack.connection(conn);
        let room = tcp.map_or(0, |tcp| usize::from(tcp.syn_data_room()));
        let taken = bytes.len().min(room);
        let (_, tcp) = self.tcp(fd)?;
        tcp.in_progress = true;
        tcp.send.push(&bytes[..taken]);
        let end = tcp.send.end();
        if taken == 0 {
            self.stack.release_syn(conn);
        } else {
            self.stack.set_send_limit(conn, end, false);
        }
        self.turn();
        if taken == 0 {
            return Err(Errno::EINPROGRESS);
        }
        Ok(taken)
    }
}
