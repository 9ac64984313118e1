//! Descriptors that stand for connections, and connections that change hands: what a library tells the agent when a program forks, executes another
//! or passes descriptors.
//!
//! A connection is *fast* while one process has it for itself: its bytes go through shared memory. When more processes hold its descriptor
//! it is in the engine's *custody*: each reads and writes the descriptor itself, which is a stream socket of the system.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use sidecore_abi::agent::{CONNECTION, DATAGRAM, Request, RequestKind, adopted, release};
use sidecore_abi::command::Opt;
use sidecore_abi::{Address, TcpInfo};
use sidecore_sys::memfd::Memfd;
use sidecore_sys::unix::Stream;

use crate::agent::Agent;
use crate::error::kind;
use crate::{HandedOver, Share, Status, Ual};

/// What a descriptor stands for, to the one who asked ([`Ual::adopt`]).
#[derive(Debug)]
pub enum Adopted {
    /// A connection, which is the asker's now.
    Yours {
        /// For [`crate::Sockets::take_over`].
        from: u64,
        /// Bytes of the peer's that come after those in the descriptor, and before those of the engine.
        bytes: Vec<u8>,
        /// This side's address, if it is known.
        local: Option<SocketAddr>,
        /// The peer's.
        peer: Option<SocketAddr>,
    },
    /// A connection whose bytes go through the descriptor.
    Shared {
        /// This side's address, if it is known.
        local: Option<SocketAddr>,
        /// The peer's.
        peer: Option<SocketAddr>,
    },
    /// A listener, which the asker may open once more.
    Listener {
        /// Where it listens.
        address: SocketAddr,
        /// How many connections may wait.
        backlog: u32,
        /// Who may listen there, too.
        share: Share,
        /// As they were described.
        flags: u32,
    },
    /// A UDP socket, which the asker may open, too ([`crate::RawSocket::shared_datagram`]).
    Datagram {
        /// Where it is bound.
        address: SocketAddr,
        /// The only one that it hears, if there is one.
        peer: Option<SocketAddr>,
        /// Who has it may open it.
        key: u64,
        /// As they were described.
        flags: u32,
    },
}

/// A connection that was handed over, as the agent is told of it ([`Ual::release`]).
#[derive(Debug, Default)]
pub struct Release {
    /// What [`crate::RawSocket::hand_over`] gave.
    pub socket: HandedOver,
    /// This side's address.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub peer: Option<SocketAddr>,
    /// Holders in other processes since this was last told.
    pub holders: u32,
    /// This process does not hold the descriptor any more.
    pub left: bool,
    /// Somebody uses the descriptor without the library: it is never to be one process's own again.
    pub stays: bool,
}

fn words(address: Option<SocketAddr>) -> [u64; 3] {
    address.map_or([0; 3], |address| Address::new(address).0)
}

fn both(local: Option<SocketAddr>, peer: Option<SocketAddr>) -> [u64; 6] {
    let ([a, b, c], [d, e, f]) = (words(local), words(peer));
    [a, b, c, d, e, f]
}

fn apart([a, b, c, d, e, f]: [u64; 6]) -> (Option<SocketAddr>, Option<SocketAddr>) {
    (Address([a, b, c]).get(), Address([d, e, f]).get())
}

/// Bytes in memory that may be passed on; `None` for no bytes.
pub fn sealed_bytes(bytes: &[u8]) -> io::Result<Option<OwnedFd>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let memory = Memfd::create("sidecore-bytes", bytes.len() as u64, false)?;
    memory.write_all_at(bytes, 0)?;
    memory.seal_size()?;
    Ok(Some(memory.into_fd()))
}

/// The first `len` bytes of such memory.
pub fn read_bytes(memory: &OwnedFd, len: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidData)?;
    if sidecore_sys::memfd::len(memory)? < len as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len];
    let mut at = 0;
    while at < len {
        match rustix::io::pread(memory, &mut bytes[at..], at as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

/// Asks at the agent that listens at `path` what a descriptor stands for, and that its bytes flow: for those who have no UAL. Blocks for the
/// agent's answer.
pub fn ask_without_ual(
    path: impl AsRef<Path>,
    descriptor: BorrowedFd<'_>,
    number: u64,
) -> io::Result<Adopted> {
    adopt(
        &Agent::new(Stream::connect(path)?),
        descriptor,
        [number, 0, 1],
    )
}

fn adopt(agent: &Agent, descriptor: BorrowedFd<'_>, args: [u64; 3]) -> io::Result<Adopted> {
    let request = Request {
        args,
        ..Request::new(RequestKind::Adopt)
    };
    let (reply, fds) = agent.ask(&request, &[descriptor])?;
    let (local, peer) = apart(reply.more);
    match reply.args[0] {
        adopted::YOURS => {
            let bytes = match fds.first() {
                Some(memory) => read_bytes(memory, reply.args[2])?,
                None => Vec::new(),
            };
            Ok(Adopted::Yours {
                from: reply.args[1],
                bytes,
                local,
                peer,
            })
        }
        adopted::SHARED => Ok(Adopted::Shared { local, peer }),
        adopted::LISTENER if reply.dtis & DATAGRAM != 0 => Ok(Adopted::Datagram {
            address: local.ok_or(io::ErrorKind::InvalidData)?,
            peer,
            key: reply.args[2],
            flags: reply.dtis & !DATAGRAM,
        }),
        adopted::LISTENER => Ok(Adopted::Listener {
            address: local.ok_or(io::ErrorKind::InvalidData)?,
            backlog: reply.args[1].min(u64::from(u32::MAX)) as u32,
            share: Share {
                key: reply.args[2],
                copies: reply.more[3],
            },
            flags: reply.dtis,
        }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

impl Ual {
    /// The engine's number of this UAL.
    pub fn id(&self) -> u64 {
        self.inner().granted.ual
    }

    fn tell(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.inner().agent().ask(request, fds).map(|_| ())
    }

    /// Tells the agent that the connection of descriptor `number` was handed over, or is over: from here on its bytes go through the
    /// descriptor. Blocks for the agent's answer.
    pub fn release(&self, number: u64, released: &Release) -> io::Result<()> {
        let bytes = &released.socket.bytes;
        let memory = sealed_bytes(bytes)?;
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        let flags = flag(released.socket.over.is_some(), release::OVER)
            | flag(released.left, release::LEFT)
            | flag(released.stays, release::STAYS);
        let status = released.socket.over.unwrap_or(Status::Ok);
        let request = Request {
            args: [
                number,
                flags,
                u64::from(released.holders) | (status as u64) << 32,
            ],
            dtis: u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            more: both(released.local, released.peer),
            ..Request::new(RequestKind::Release)
        };
        let fds: Vec<BorrowedFd<'_>> = memory.iter().map(AsFd::as_fd).collect();
        self.tell(&request, &fds)
    }

    /// Asks for the connection of a descriptor that came from elsewhere, or, with `only_ask`, what it stands for. `unknown`: how many holders this
    /// process, and those between it and the one that told of them last, have made. Blocks for the agent's answer. `NotConnected`: the
    /// connection is lost.
    pub fn adopt(
        &self,
        descriptor: BorrowedFd<'_>,
        number: u64,
        unknown: u32,
        only_ask: bool,
    ) -> io::Result<Adopted> {
        let args = [number, unknown.into(), only_ask.into()];
        adopt(self.inner().agent(), descriptor, args)
    }

    fn ask_option(
        &self,
        descriptor: BorrowedFd<'_>,
        args: [u64; 3],
        asks: bool,
    ) -> io::Result<(u64, Vec<OwnedFd>)> {
        let request = Request {
            args,
            dtis: asks.into(),
            ..Request::new(RequestKind::Option)
        };
        let (reply, fds) = self.inner().agent().ask(&request, &[descriptor])?;
        Ok((reply.args[0], fds))
    }

    /// Sets an option of a connection that is in custody. Blocks for the custodian's answer. `NotConnected`: it is not there; `Unsupported`: it is
    /// none that a holder may set.
    pub fn set_option_elsewhere(
        &self,
        descriptor: BorrowedFd<'_>,
        number: u64,
        option: Opt,
        value: u64,
    ) -> io::Result<()> {
        let args = [number, option as u64, value];
        self.ask_option(descriptor, args, false).map(|_| ())
    }

    /// What an option of a connection that is in custody is. Blocks for the custodian's answer. Errors as of [`Self::set_option_elsewhere`].
    pub fn option_elsewhere(
        &self,
        descriptor: BorrowedFd<'_>,
        number: u64,
        option: Opt,
    ) -> io::Result<u64> {
        let args = [number, option as u64, 0];
        self.ask_option(descriptor, args, true)
            .map(|(value, _)| value)
    }

    /// What the engine knows of a connection that is in custody: TCP_INFO. Blocks for the custodian's answer. Errors as of
    /// [`Self::set_option_elsewhere`].
    pub fn info_elsewhere(&self, descriptor: BorrowedFd<'_>, number: u64) -> io::Result<TcpInfo> {
        let args = [number, Opt::Info as u64, 0];
        let (len, fds) = self.ask_option(descriptor, args, true)?;
        let memory = fds.first().ok_or(io::ErrorKind::InvalidData)?;
        Ok(TcpInfo::from_bytes(&read_bytes(memory, len)?))
    }

    /// This process holds a descriptor no more; `holders` were made by it and not told of; `passed`: what it executes next holds it.
    /// Blocks for the agent's answer.
    pub fn leave(&self, number: u64, holders: u32, passed: bool) -> io::Result<()> {
        let request = Request {
            args: [number, holders.into(), passed.into()],
            ..Request::new(RequestKind::Leave)
        };
        self.tell(&request, &[])
    }

    /// From here on other processes may hold descriptors of this UAL: when this process dies, its connections go to them. Blocks for the
    /// agent's answer.
    pub fn spread(&self) -> io::Result<()> {
        self.tell(&Request::new(RequestKind::Spread), &[])
    }

    /// A descriptor, which may have come from elsewhere, stands for a UDP socket that whoever else holds it may open, too, by this key. Blocks for the
    /// agent's answer.
    pub fn describe_datagram(
        &self,
        descriptor: BorrowedFd<'_>,
        number: u64,
        (address, peer): (SocketAddr, Option<SocketAddr>),
        key: u64,
        flags: u32,
    ) -> io::Result<()> {
        let request = Request {
            args: [number, 0, key],
            dtis: flags | DATAGRAM,
            more: both(Some(address), peer),
            ..Request::new(RequestKind::Describe)
        };
        self.tell(&request, &[descriptor])
    }

    /// A descriptor, which may have come from elsewhere, stands for a listener, which whoever else holds it may open, too. Blocks for the agent's
    /// answer.
    pub fn describe_listener(
        &self,
        descriptor: BorrowedFd<'_>,
        number: u64,
        address: SocketAddr,
        backlog: u32,
        share: Share,
        flags: u32,
    ) -> io::Result<()> {
        let [a, b, c] = words(Some(address));
        let request = Request {
            args: [number, backlog.into(), share.key],
            dtis: flags,
            more: [a, b, c, share.copies, 0, 0],
            ..Request::new(RequestKind::Describe)
        };
        self.tell(&request, &[descriptor])
    }

    /// A descriptor that stood for a listener is a connection of this process's now, which began where that had its port. `at`: that place. Blocks for
    /// the agent's answer.
    pub fn describe_connection(
        &self,
        descriptor: BorrowedFd<'_>,
        number: u64,
        at: SocketAddr,
    ) -> io::Result<()> {
        let request = Request {
            args: [number, 0, 0],
            dtis: CONNECTION,
            more: both(Some(at), None),
            ..Request::new(RequestKind::Describe)
        };
        self.tell(&request, &[descriptor])
    }

    /// Calls `recalled`, on the thread that watches the engine, with the number of each connection that the agent wants to be handed over. To
    /// be called before anybody sleeps, once: `AlreadyExists`. Blocks for the agent's answer.
    pub fn on_recall(&self, recalled: impl Fn(u64) + Send + 'static) -> io::Result<()> {
        let (_, mut fds) = self
            .inner()
            .agent()
            .ask(&Request::new(RequestKind::Recalls), &[])?;
        let bell = fds.pop().ok_or(io::ErrorKind::InvalidData)?;
        self.inner()
            .watch_with(Some((Stream::from(bell), Box::new(recalled))))
    }

    /// Becomes the custodian: for a UAL in the engine's own process. The socket has [`sidecore_abi::custody`] messages. `PermissionDenied`
    /// elsewhere. Blocks for the agent's answer.
    pub fn custody(&self) -> io::Result<OwnedFd> {
        let request = Request::new(RequestKind::Custody);
        let (_, mut fds) = self.inner().agent().ask(&request, &[])?;
        fds.pop().ok_or_else(|| kind(Status::NotSupported).into())
    }
}
