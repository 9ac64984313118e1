//! Sockets as their users hold them, and what takes more than one command: futures that the blocking sockets run to their end.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use sidecore_abi::command::{Opt, REUSE_PORT_KEY, flags};
use sidecore_abi::{Command, Event, Membership, Operation, TcpInfo};

use super::group::{Group, lock};
use super::raw::Share;
use super::socket::{Kind, Phase, Socket};
use super::{Sockets, wait};
use crate::{Address, Disconnected, PostError};

/// A socket and its group: closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Held(Arc<Holder>);

struct Holder {
    group: Arc<Group>,
    socket: Arc<Socket>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.socket.close(&self.group, true);
    }
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.dti.fmt(f)
    }
}

/// Repeats a post until the lane has room.
pub(super) async fn post<T>(
    group: &Group,
    mut post: impl FnMut() -> Result<T, PostError>,
) -> io::Result<T> {
    poll_fn(|cx| match post() {
        Err(PostError::LaneFull) if group.is_dead() => Poll::Ready(Err(Disconnected.into())),
        Err(PostError::LaneFull) => {
            // Nothing tells when the engine has read: try again, after others had their turn.
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Err(error) => Poll::Ready(Err(error.into())),
        Ok(value) => Poll::Ready(Ok(value)),
    })
    .await
}

impl Held {
    pub(crate) fn new(group: &Arc<Group>, socket: Arc<Socket>) -> Self {
        let group = Arc::clone(group);
        Self(Arc::new(Holder { group, socket }))
    }

    pub(crate) async fn create(sockets: &Sockets, kind: Kind) -> io::Result<Self> {
        let group = &sockets.group;
        let socket = post(group, || group.create(kind, None)).await?;
        Ok(Self::new(group, socket))
    }

    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.0.group
    }

    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.0.socket
    }

    /// Blocks until a poll is ready, for as long as the socket's settings say.
    pub(crate) fn wait<T>(
        &self,
        timeout: Option<Duration>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let nonblocking = lock(&self.socket().state).nonblocking;
        if nonblocking {
            return self.poll_once(poll);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match wait::block_on(self.group(), deadline, &mut poll) {
            Ok(result) => result,
            Err(wait::TimedOut) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_once<T>(
        &self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let mut cx = Context::from_waker(Waker::noop());
        // The engine's end is told by the poll.
        let _ = self.group().try_turn(Duration::ZERO);
        match poll(&mut cx) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Blocks until a future of this socket is done.
    pub(crate) fn run<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        run(self.group(), future)
    }

    /// Posts a command and waits for its answer.
    pub(crate) async fn ask(&self, command: impl Fn(u64) -> Command) -> io::Result<Event> {
        let (group, socket) = (self.group(), self.socket());
        let cookie = post(group, || socket.ask(group, &command)).await?;
        poll_fn(|cx| socket.poll_answer(group, cx, cookie)).await
    }

    /// A listener on `local`, with options that are set before it is bound.
    pub(crate) async fn listen(
        sockets: &Sockets,
        local: SocketAddr,
        options: &[(Opt, u64)],
    ) -> io::Result<Self> {
        let backlog = sockets.group.config.backlog;
        let held =
            Self::listen_with(sockets, local, options, (backlog, Share::default(), false)).await?;
        // What is not posted now is posted by the first accept.
        let _ = held.socket().post_accepts(held.group());
        Ok(held)
    }

    /// The same, with room for so many connections that wait for an accept, by whom it may be shared, and whether it is only to have its port. No
    /// accept is posted.
    pub(crate) async fn listen_with(
        sockets: &Sockets,
        local: SocketAddr,
        options: &[(Opt, u64)],
        (backlog, share, hold): (u32, Share, bool),
    ) -> io::Result<Self> {
        let held = Self::create(sockets, Kind::Listener).await?;
        for (option, value) in options {
            held.set_option(*option, *value).await?;
        }
        held.bind_with(local, share.key).await?;
        let config = &sockets.group.config;
        // One that only looks (and starts others that accept) is given nothing. Unrelated listeners at one address share what comes, and must
        // show that they are there.
        let eager = share.copies == 0 || share.key == REUSE_PORT_KEY;
        held.socket().eager.store(eager, Ordering::Relaxed);
        let handle = held.socket().dti.handle();
        let answer = held.ask(|cookie| {
            let mut command = Command::new(Operation::Listen, handle, cookie);
            command.body[0] = u64::from(backlog);
            command.body[1] = share.key;
            command.body[2] = hold.into();
            command.body[3] = share.copies;
            command
        });
        let answer = answer.await?;
        {
            let mut state = lock(&held.socket().state);
            state.local = answer.address(0).get().or(state.local);
            state.accepts_due = config.accepts;
            state.phase = Phase::Open;
        }
        Ok(held)
    }

    /// A listener that only had its port takes connections from now on.
    pub(crate) async fn open(&self, backlog: u32) -> io::Result<()> {
        let handle = self.socket().dti.handle();
        let answer = self.ask(|cookie| {
            let mut command = Command::new(Operation::Listen, handle, cookie);
            command.body[0] = u64::from(backlog);
            command
        });
        answer.await.map(|_| ())
    }

    pub(crate) async fn bind(&self, local: SocketAddr) -> io::Result<()> {
        self.bind_with(local, 0).await
    }

    /// The same, where the key of a listener that is there already may give the right to; of a UDP socket, with who else holds it.
    pub(super) async fn bind_with(&self, local: SocketAddr, key: u64) -> io::Result<()> {
        let handle = self.socket().dti.handle();
        let answer = self.ask(|cookie| {
            let bind = Command::new(Operation::Bind, handle, cookie);
            let mut command = bind.with_address(0, Address::new(local));
            command.body[3] = key;
            command
        });
        let bound = answer.await?.address(0).get();
        lock(&self.socket().state).local = bound;
        Ok(())
    }

    /// A UDP socket on `local`, with options that are set before it is bound.
    pub(crate) async fn datagram(
        sockets: &Sockets,
        local: SocketAddr,
        options: &[(Opt, u64)],
    ) -> io::Result<Self> {
        let held = Self::create(sockets, Kind::Datagram).await?;
        for (option, value) in options {
            held.set_option(*option, *value).await?;
        }
        held.bind(local).await?;
        lock(&held.socket().state).phase = Phase::Open;
        Ok(held)
    }

    /// Names a UDP socket's only peer; `None`: it has none any more.
    pub(crate) async fn connect_datagram(&self, peer: Option<SocketAddr>) -> io::Result<()> {
        let handle = self.socket().dti.handle();
        let address = peer.map_or(Address::NONE, Address::new);
        let answer = self.ask(|cookie| {
            Command::new(Operation::Connect, handle, cookie).with_address(0, address)
        });
        answer.await?;
        lock(&self.socket().state).peer = peer;
        Ok(())
    }

    /// A stream that is connected to `peer`.
    pub(crate) async fn connect(sockets: &Sockets, peer: SocketAddr) -> io::Result<Self> {
        let held = Self::create(sockets, Kind::Stream).await?;
        let (group, socket) = (held.group(), held.socket());
        post(group, || socket.connect(group, peer)).await?;
        poll_fn(|cx| socket.poll_connected(group, cx)).await?;
        Ok(held)
    }

    /// As [`Self::connect`], with bytes that go with the SYN if they can; how many of them were taken.
    pub(crate) async fn connect_with(
        sockets: &Sockets,
        peer: SocketAddr,
        data: &[u8],
    ) -> io::Result<(Self, usize)> {
        let held = Self::create(sockets, Kind::Stream).await?;
        let (group, socket) = (held.group(), held.socket());
        post(group, || socket.connect_fast(group, peer)).await?;
        let slices = [IoSlice::new(data)];
        let taken = poll_fn(|cx| socket.poll_write(group, cx, &slices)).await?;
        if data.is_empty() {
            // Nothing would ever go with the SYN, which waits for it.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        poll_fn(|cx| socket.poll_connected(group, cx)).await?;
        Ok((held, taken))
    }

    /// Waits for a connection on a listener.
    pub(crate) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Self, Option<SocketAddr>)>> {
        let accepted = self.socket().poll_accept(self.group(), cx);
        accepted.map_ok(|(child, peer)| (Self::new(self.group(), child), peer))
    }

    /// Sets an option, and waits for the engine's word on it.
    pub(crate) async fn set_option(&self, option: Opt, value: u64) -> io::Result<()> {
        let handle = self.socket().dti.handle();
        let answer = self.ask(|cookie| {
            let mut command =
                Command::new(Operation::SetOption, handle, cookie).with_flags(flags::NOTIFY);
            command.body[0] = option as u64;
            command.body[1] = value;
            command
        });
        answer.await.map(|_| ())
    }

    /// Changes what a UDP socket listens to, and waits for the engine's word on it.
    pub(crate) async fn membership(&self, membership: &Membership) -> io::Result<()> {
        let handle = self.socket().dti.handle();
        let answer = self.ask(|cookie| {
            let mut command =
                Command::new(Operation::Membership, handle, cookie).with_flags(flags::NOTIFY);
            command.body = membership.to_body();
            command
        });
        answer.await.map(|_| ())
    }

    /// What the engine knows of the connection. If this is dropped before it is done, a block of send memory is lost to the group: the
    /// engine may yet write to it.
    pub(crate) async fn info(&self) -> io::Result<TcpInfo> {
        let (memory, handle) = (&self.group().memory, self.socket().dti.handle());
        let place = poll_fn(|cx| match memory.take_for_answer(cx.waker()) {
            Some(place) => Poll::Ready(place),
            None => Poll::Pending,
        });
        let (block, extent) = place.await;
        let answer = self.ask(|cookie| {
            let mut command = Command::new(Operation::GetOption, handle, cookie);
            command.body[0] = Opt::Info as u64;
            [command.body[1], command.body[2]] = extent.to_words();
            command
        });
        let answer = answer.await;
        let mut bytes = [0; TcpInfo::LEN];
        memory.read_answer(block, &mut bytes);
        let written = answer?.body[0].min(TcpInfo::LEN as u64) as usize;
        Ok(TcpInfo::from_bytes(&bytes[..written]))
    }

    /// What an option is set to.
    pub(crate) async fn option(&self, option: Opt) -> io::Result<u64> {
        let handle = self.socket().dti.handle();
        let answer = self.ask(|cookie| {
            let mut command = Command::new(Operation::GetOption, handle, cookie);
            command.body[0] = option as u64;
            command
        });
        Ok(answer.await?.body[0])
    }

    /// An address, asked for if it is not known.
    pub(crate) async fn address(&self, option: Opt) -> io::Result<SocketAddr> {
        if let Some(known) = self.socket().known_address(option) {
            return Ok(known);
        }
        let handle = self.socket().dti.handle();
        let answer = self.ask(|cookie| {
            let mut command = Command::new(Operation::GetOption, handle, cookie);
            command.body[0] = option as u64;
            command
        });
        let address = answer.await?.address(0);
        self.socket().learn_address(option, address)
    }
}

/// Blocks until a future is done.
pub(crate) fn run<T>(group: &Group, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match wait::run(group, None, future) {
        Ok(result) => result,
        Err(wait::TimedOut) => Err(io::ErrorKind::TimedOut.into()),
    }
}
