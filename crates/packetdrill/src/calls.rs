//! The calls of packetdrill's interface, in Rust.

use std::net::SocketAddr;
use std::time::Duration;

use sidecore_testkit::sockets::number::{
    IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, MSG_DONTWAIT, MSG_FASTOPEN, POLLNVAL, SOL_SOCKET, tcp,
};
use sidecore_testkit::sockets::{Errno, Fd};

use crate::drill::Drill;
use crate::epoll::{Epoll, Interest};
use crate::sys;
use crate::world::{Thing, World};

/// TCP_CC_INFO: what the congestion controller tells of itself.
const TCP_CC_INFO: i32 = 26;
/// SO_MEMINFO: nine words about a socket's memory.
const SO_MEMINFO: i32 = 55;
/// IP_TOS, IP_MTU_DISCOVER and their like of IPv6: taken and not obeyed.
const IP_TAKEN: [i32; 2] = [1, 10];
const IPV6_TAKEN: [i32; 2] = [67, 23];

/// One descriptor of a `poll`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polled {
    pub(crate) fd: i32,
    pub(crate) events: i16,
    pub(crate) revents: i16,
}

/// What is not there yet.
fn unless_blocked<R>(answer: Result<R, Errno>) -> Option<Result<R, Errno>> {
    match answer {
        Err(Errno::EAGAIN) => None,
        answer => Some(answer),
    }
}

/// How long a `timeout` in milliseconds lets a call wait; negative: for ever.
fn patience(millis: i32) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

impl World {
    fn add(&mut self, thing: Thing) -> Result<i32, Errno> {
        let fd = sys::placeholder()?;
        self.things.insert(fd, thing);
        Ok(fd)
    }

    /// Whether a call on this socket may block.
    fn blocks(&mut self, socket: Fd, flags: i32) -> Result<bool, Errno> {
        Ok(flags & MSG_DONTWAIT == 0 && !self.sockets().non_blocking(socket)?)
    }

    fn send(
        &mut self,
        socket: Fd,
        bytes: &[u8],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        match to {
            Some(to) if flags & MSG_FASTOPEN != 0 => self.sockets().send_opening(socket, bytes, to),
            _ => self.sockets().send(socket, bytes, flags),
        }
    }

    /// A call that waited for the handshake goes on to send: Linux then takes the connection for an interactive one, whose ACKs
    /// are all delayed.
    fn expect_answers(&mut self, socket: Fd) {
        let off = 0i32.to_ne_bytes();
        let _ = self
            .sockets()
            .set_option(socket, IPPROTO_TCP, tcp::QUICKACK, &off);
    }

    /// The epoll instance that a descriptor stands for, taken out.
    fn epoll(&mut self, fd: i32) -> Result<&mut Epoll, Errno> {
        match self.things.get_mut(&fd) {
            Some(Thing::Epoll(epoll)) => Ok(epoll),
            Some(Thing::Socket(_)) => Err(Errno::EINVAL),
            None => Err(Errno::EBADF),
        }
    }
}

impl Drill {
    pub(crate) fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Result<i32, Errno> {
        self.with(|world| {
            let socket = world.sockets().socket(domain, kind, protocol)?;
            world.add(Thing::Socket(socket))
        })
    }

    pub(crate) fn bind(&self, fd: i32, at: SocketAddr) -> Result<(), Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            world.sockets().bind(socket, at)
        })
    }

    pub(crate) fn listen(&self, fd: i32, backlog: i32) -> Result<(), Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            world.sockets().listen(socket, backlog)
        })
    }

    pub(crate) fn accept(&self, fd: i32) -> Result<(i32, SocketAddr), Errno> {
        let (socket, blocks) = self.socket_that_blocks(fd, 0)?;
        let (accepted, peer) = self.once_or_wait(blocks, move |world| {
            unless_blocked(world.sockets().accept(socket))
        })?;
        let fd = self.with(|world| world.add(Thing::Socket(accepted)))?;
        Ok((fd, peer))
    }

    pub(crate) fn connect(&self, fd: i32, to: SocketAddr) -> Result<(), Errno> {
        let (socket, blocks) = self.socket_that_blocks(fd, 0)?;
        if !blocks {
            return self.with(|world| world.sockets().connect(socket, to));
        }
        self.once_or_wait(true, move |world| {
            match world.sockets().connect(socket, to) {
                Err(Errno::EINPROGRESS | Errno::EALREADY) => None,
                answer => Some(answer),
            }
        })
    }

    /// The socket of a descriptor, and whether calls on it block.
    fn socket_that_blocks(&self, fd: i32, flags: i32) -> Result<(Fd, bool), Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            let blocks = world.blocks(socket, flags)?;
            Ok((socket, blocks))
        })
    }

    /// Once, or as often as it takes.
    fn once_or_wait<R: Send + 'static>(
        &self,
        blocks: bool,
        mut attempt: impl FnMut(&mut World) -> Option<Result<R, Errno>> + Send + 'static,
    ) -> Result<R, Errno> {
        if blocks {
            self.wait(None, attempt)?
        } else {
            self.with(|world| attempt(world))
                .unwrap_or(Err(Errno::EAGAIN))
        }
    }

    /// `read` and its relatives.
    pub(crate) fn receive(&self, fd: i32, max: usize, flags: i32) -> Result<Vec<u8>, Errno> {
        let (socket, blocks) = self.socket_that_blocks(fd, flags)?;
        self.once_or_wait(blocks, move |world| {
            unless_blocked(world.sockets().recv(socket, max, flags))
        })
    }

    /// `write` and its relatives: on a socket that blocks, until all is taken.
    pub(crate) fn send(
        &self,
        fd: i32,
        bytes: Vec<u8>,
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        let (socket, blocks) = self.socket_that_blocks(fd, flags)?;
        if !blocks {
            return self.with(|world| world.send(socket, &bytes, flags, to));
        }
        let (mut taken, mut opens, mut opened) = (0, to, true);
        self.once_or_wait(true, move |world| {
            if !opened && world.sockets().is_connecting(socket) {
                return None;
            }
            // The first call of a Fast Open opens; those that follow add to what it took, and the last waits for the handshake's end.
            let more = match opens.take() {
                Some(to) => world.send(socket, &bytes, flags, Some(to)),
                None if taken == bytes.len() && taken > 0 => {
                    world.sockets().outcome(socket).map(|()| 0)
                }
                None => {
                    if !opened && taken > 0 {
                        world.expect_answers(socket);
                    }
                    world.send(socket, &bytes[taken..], flags & !MSG_FASTOPEN, None)
                }
            };
            match more {
                Ok(more) => taken += more,
                Err(Errno::EINPROGRESS) => {}
                Err(Errno::EAGAIN) => return None,
                Err(_) if taken > 0 && opened => return Some(Ok(taken)),
                Err(error) => return Some(Err(error)),
            }
            opened = !world.sockets().is_connecting(socket);
            (opened && taken == bytes.len()).then_some(Ok(taken))
        })
    }

    pub(crate) fn close(&self, fd: i32) -> Result<(), Errno> {
        self.with(|world| {
            let thing = world.things.remove(&fd).ok_or(Errno::EBADF)?;
            sys::drop_placeholder(fd);
            match thing {
                Thing::Socket(socket) => world.sockets().close(socket),
                Thing::Epoll(_) => Ok(()),
            }
        })
    }

    pub(crate) fn shutdown(&self, fd: i32, how: i32) -> Result<(), Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            world.sockets().shutdown(socket, how)
        })
    }

    pub(crate) fn non_blocking(&self, fd: i32) -> Result<bool, Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            world.sockets().non_blocking(socket)
        })
    }

    pub(crate) fn set_non_blocking(&self, fd: i32, non_blocking: bool) -> Result<(), Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            world.sockets().set_non_blocking(socket, non_blocking)
        })
    }

    pub(crate) fn ioctl(&self, fd: i32, request: u64) -> Result<i32, Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            world.sockets().ioctl(socket, request)
        })
    }

    /// `getsockopt`: the value's bytes, at most `max`.
    pub(crate) fn option(
        &self,
        fd: i32,
        level: i32,
        name: i32,
        max: usize,
    ) -> Result<Vec<u8>, Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            match (level, name) {
                (IPPROTO_TCP, TCP_CC_INFO) => Ok(Vec::new()),
                (SOL_SOCKET, SO_MEMINFO) => Ok(vec![0; max.min(36)]),
                // A program may know more of the structure than there is.
                (IPPROTO_TCP, tcp::INFO) => {
                    let mut info = world.sockets().option(socket, level, name, max)?;
                    info.resize(max, 0);
                    Ok(info)
                }
                _ => world.sockets().option(socket, level, name, max),
            }
        })
    }

    pub(crate) fn set_option(
        &self,
        fd: i32,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            match level {
                IPPROTO_IP if IP_TAKEN.contains(&name) => Ok(()),
                IPPROTO_IPV6 if IPV6_TAKEN.contains(&name) => Ok(()),
                _ => world.sockets().set_option(socket, level, name, value),
            }
        })
    }

    /// `poll`: those asked for, with what they said; how many said something.
    pub(crate) fn poll(&self, asked: Vec<Polled>, timeout: i32) -> (usize, Vec<Polled>) {
        let unanswered = asked.clone();
        let answer = self.wait(patience(timeout), move |world| {
            let mut answered = asked.clone();
            for polled in answered.iter_mut().filter(|polled| polled.fd >= 0) {
                polled.revents = match world.socket(polled.fd) {
                    Ok(socket) => world.sockets().poll(socket, polled.events),
                    Err(_) => POLLNVAL,
                };
            }
            let some = answered.iter().filter(|polled| polled.revents != 0).count();
            (some > 0).then_some((some, answered))
        });
        answer.unwrap_or((0, unanswered))
    }

    pub(crate) fn epoll_create(&self) -> Result<i32, Errno> {
        self.with(|world| world.add(Thing::Epoll(Epoll::default())))
    }

    /// `epoll_ctl`; no interest: EPOLL_CTL_DEL.
    pub(crate) fn epoll_change(
        &self,
        epoll: i32,
        fd: i32,
        new: bool,
        interest: Option<Interest>,
    ) -> Result<(), Errno> {
        self.with(|world| {
            let socket = world.socket(fd)?;
            world.epoll(epoll)?.change(fd, socket, new, interest)
        })
    }

    /// `epoll_wait`: events and data.
    pub(crate) fn epoll_wait(
        &self,
        epoll: i32,
        max: usize,
        timeout: i32,
    ) -> Result<Vec<(u32, u64)>, Errno> {
        self.with(|world| world.epoll(epoll).map(|_| ()))?;
        let answer = self.wait(patience(timeout), move |world| {
            let mut taken = match world.epoll(epoll) {
                Ok(epoll) => std::mem::take(epoll),
                Err(error) => return Some(Err(error)),
            };
            let events = taken.ready(world.sockets(), max);
            if let Ok(epoll) = world.epoll(epoll) {
                *epoll = taken;
            }
            (!events.is_empty()).then_some(Ok(events))
        });
        match answer {
            Err(_) => Ok(Vec::new()),
            Ok(events) => events,
        }
    }
}
