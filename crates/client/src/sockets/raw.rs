//! Sockets with the calls of POSIX beneath: nothing blocks that is not said to, readiness can be asked for and watched. For those who build
//! an interface of their own on top, as the preload library does.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use sidecore_abi::command::{Opt, flags, holders, shutdown};
use sidecore_abi::{Status, TcpInfo};

use super::Sockets;
use super::group::lock;
use super::held::{Held, post};
use super::moving::{Moving, elsewhere, is_elsewhere};
use super::send::Stop;
use super::socket::{Kind, Phase, State};
use super::transfer::Scatter;
use super::wait::{self, Ended};
use crate::error::{Disconnected, to_io};

/// How long a write that may not wait goes on trying when the doorbell lane is full: the engine reads it every turn.
const LANE_PATIENCE: Duration = Duration::from_millis(200);

/// Datagrams that one call sends at most: a lane takes as many at once.
const EACH_MAX: usize = 128;

/// What a socket is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// A read (or accept) would not block: POLLIN.
    pub read: bool,
    /// A write would not block: POLLOUT.
    pub write: bool,
    /// The peer has ended its direction: POLLRDHUP.
    pub read_ended: bool,
    /// Both directions have ended: POLLHUP.
    pub hung_up: bool,
    /// An error waits to be told: POLLERR.
    pub error: bool,
    /// The last byte of urgent data has come, and was not read: POLLPRI.
    pub urgent: bool,
}

/// Which directions to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shut {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    Both,
}

/// Who may listen at the address of a listener, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// 0: nobody; else who says the same: of the same user with `REUSE_PORT_KEY`, anybody with another, which is a secret.
    pub key: u64,
    /// With a key, what those say that are copies of one socket, in processes that inherited it; 0: it has none. Connections that no program
    /// took are any copy's: they go on when one is closed, or its process dies. Of those that only share the address (SO_REUSEPORT) each
    /// has its own, and they are reset with it, as Linux does.
    pub copies: u64,
}

/// A socket of a group, with calls that do not block. Clones are the same socket; it is closed when the last is dropped.
#[derive(Clone, Debug)]
pub struct RawSocket(pub(super) Held);

static WATCHERS: AtomicU64 = AtomicU64::new(1);

impl RawSocket {
    /// Begins to connect; `local`: from there. Blocks for the engine's answer to `local` and options only. [`Self::connected`] tells the end.
    pub fn connect(
        sockets: &Sockets,
        local: Option<SocketAddr>,
        options: &[(Opt, u64)],
        peer: SocketAddr,
    ) -> io::Result<Self> {
        let group = &sockets.group;
        super::held::run(group, async {
            let held = Held::create(sockets, Kind::Stream).await?;
            for (option, value) in options {
                held.set_option(*option, *value).await?;
            }
            if let Some(local) = local {
                held.bind(local).await?;
            }
            let socket = held.socket();
            post(group, || socket.connect(group, peer)).await?;
            Ok(Self(held.clone()))
        })
    }

    /// Listens, with room for `backlog` connections that wait for an accept. If others share the address, as `share` says, connections go to those
    /// who show that they accept (by [`Self::accept`], [`Self::ready`] or [`Self::watch`]), in
    /// turn. Blocks for the engine's answer.
    pub fn listen(
        sockets: &Sockets,
        local: SocketAddr,
        options: &[(Opt, u64)],
        backlog: u32,
        share: Share,
    ) -> io::Result<Self> {
        let listening = Held::listen_with(sockets, local, options, (backlog, share, false));
        super::held::run(&sockets.group, listening).map(Self)
    }

    /// Has a port, as a bound socket does that does not listen: who connects is refused, until [`Self::open`]. Arguments as of
    /// [`Self::listen`]. Blocks for the engine's answer.
    pub fn hold(
        sockets: &Sockets,
        local: SocketAddr,
        options: &[(Opt, u64)],
        backlog: u32,
        share: Share,
    ) -> io::Result<Self> {
        let holding = Held::listen_with(sockets, local, options, (backlog, share, true));
        super::held::run(&sockets.group, holding).map(Self)
    }

    /// After [`Self::hold`]: listens; of one that listens, the backlog is changed. Blocks for the engine's answer.
    pub fn open(&self, backlog: u32) -> io::Result<()> {
        self.0.run(self.0.open(backlog))
    }

    /// A UDP socket. Blocks for the engine's answer.
    pub fn datagram(
        sockets: &Sockets,
        local: SocketAddr,
        options: &[(Opt, u64)],
    ) -> io::Result<Self> {
        Self::shared_datagram(sockets, local, options, 0)
    }

    /// A UDP socket that other processes may hold, too: whoever says the same key, a secret, has the same socket, wherever that is bound. A
    /// datagram goes to one of those who receive, which each shows by [`Self::receive_datagram`], [`Self::ready`] or [`Self::watch`]; until
    /// then it waits. Key 0: nobody else. Blocks for the engine's answer.
    pub fn shared_datagram(
        sockets: &Sockets,
        local: SocketAddr,
        options: &[(Opt, u64)],
        key: u64,
    ) -> io::Result<Self> {
        super::held::run(&sockets.group, async {
            let held = Held::create(sockets, Kind::Datagram).await?;
            for (option, value) in options {
                held.set_option(*option, *value).await?;
            }
            held.bind_with(local, key).await?;
            let socket = held.socket();
            lock(&socket.state).phase = Phase::Open;
            socket.interest_due.store(key != 0, Ordering::Relaxed);
            Ok(Self(held))
        })
    }

    /// Names a UDP socket's only peer; `None`: it has none any more. Blocks for the engine's answer.
    pub fn connect_datagram(&self, peer: Option<SocketAddr>) -> io::Result<()> {
        self.0.run(self.0.connect_datagram(peer))
    }

    /// Whether it is the same socket.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.0.socket(), other.0.socket())
    }

    /// Whether it takes connections.
    pub fn is_listening(&self) -> bool {
        self.0.socket().kind == Kind::Listener
    }

    /// Whether it is a UDP socket.
    pub fn is_datagram(&self) -> bool {
        self.0.socket().kind == Kind::Datagram
    }

    /// Ends listening, before the last clone is dropped: accepts that wait, and those to come, fail with `InvalidInput`.
    pub fn stop_listening(&self) -> io::Result<()> {
        let (group, socket) = (self.0.group(), self.0.socket());
        socket.close(group, true);
        let mut wake = Vec::new();
        socket.wake_everybody(&mut wake);
        super::wakers::wake_all(&mut wake);
        Ok(())
    }

    /// Ends a listener, and waits up to `patience` until the engine has said so. Connections that it gave to this process meanwhile, and that nobody
    /// takes any more, end then, and not only when somebody next looks after the event queue.
    pub fn finish_listening(&self, patience: Duration) {
        let (group, dti) = (self.0.group(), self.0.socket().dti.handle());
        let last = Instant::now() + patience;
        let _ = self.stop_listening();
        while group.find(dti).is_some() && Instant::now() < last {
            match group.try_turn(Duration::from_millis(1)) {
                Ok(true) => {}
                // Another thread looks after it, perhaps.
                Ok(false) => std::thread::yield_now(),
                Err(Disconnected) => return,
            }
        }
    }

    /// What it is ready for now, as far as the events that were taken from the queue tell.
    pub fn ready(&self) -> Ready {
        self.show_interest();
        self.0.socket().ready(self.0.group())
    }

    /// Takes what the event queue has, unless another thread looks after it.
    pub fn turn(&self) {
        // Its end is told by what is asked next.
        let _ = self.0.group().try_turn(Duration::ZERO);
    }

    /// From now on `waker` is woken when the socket may have become ready for something. It may be woken without a reason. Gives a number
    /// for [`Self::unwatch`].
    pub fn watch(&self, waker: Waker) -> u64 {
        let number = WATCHERS.fetch_add(1, Ordering::Relaxed);
        self.show_interest();
        self.0.socket().watch(number, waker);
        number
    }

    /// Others may hold a UDP socket that have not opened it: when it is closed here, it stays for them for a while, with what was not received.
    pub fn is_outlived(&self) {
        self.set_option(Opt::Holders, holders::OUTLIVED);
    }

    /// From here on others may hold a UDP socket, and the engine is to know at once what was received: nobody else is to be given it when this
    /// process dies.
    pub fn settle(&self) {
        self.0.socket().settles.store(true, Ordering::Relaxed);
        lock(&self.0.group().lane).flush();
    }

    /// A listener's connections may come here, or a UDP socket's datagrams.
    pub(super) fn show_interest(&self) {
        let due = &self.0.socket().interest_due;
        if due.load(Ordering::Relaxed) && due.swap(false, Ordering::Relaxed) {
            self.set_option(Opt::Holders, holders::RECEIVES);
        }
        if self.is_listening() && self.0.socket().eager.load(Ordering::Relaxed) {
            // What is not posted now is posted by the next call.
            let _ = self.0.socket().post_accepts(self.0.group());
        }
    }

    /// Ends a [`Self::watch`].
    pub fn unwatch(&self, number: u64) {
        self.0.socket().unwatch(number);
    }

    /// Blocks until `attempt` gives something else than `WouldBlock`. `TimedOut` when `deadline` has passed; `Interrupted` when a
    /// signal handler ended the wait, which happens where POSIX has it: with a deadline after every handler, without one after those that were
    /// installed without SA_RESTART.
    pub fn block<T>(
        &self,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let socket = self.0.socket();
        let waited = wait::block(self.0.group(), deadline, true, |cx| {
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
            {
                let mut state = lock(&socket.state);
                state.readers.add(cx.waker());
                state.writers.add(cx.waker());
                state.wants_room = true;
            }
            // What came before the waker was there.
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
                done => Poll::Ready(done),
            }
        });
        match waited {
            Ok(done) => done,
            Err(Ended::TimedOut) => Err(io::ErrorKind::TimedOut.into()),
            Err(Ended::Interrupted) => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    /// Whether a connection is there: `WouldBlock` while it is being made, its error (once) when it failed.
    pub fn connected(&self) -> io::Result<()> {
        let mut state = lock(&self.0.socket().state);
        match (state.phase, state.over) {
            (Phase::Open, _) => Ok(()),
            (Phase::Failed(status), _) | (_, Some(status)) => Err(end(&mut state, status)),
            (Phase::New, None) => Err(io::ErrorKind::NotConnected.into()),
            (Phase::Connecting, None) => match self.0.group().is_dead() {
                true => Err(Disconnected.into()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }

    /// Whether its engine has gone, as far as anybody saw.
    pub fn is_over(&self) -> bool {
        self.0.group().is_dead()
    }

    /// Reads from a stream, or looks only (`peek`); 0 at the end. `WouldBlock`. The error that ended a connection is told once, then it is 0.
    pub fn read(&self, buffers: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<usize> {
        let (group, socket) = (self.0.group(), self.0.socket());
        let mut sink = Scatter {
            buffers,
            at: (0, 0),
        };
        let mut cx = Context::from_waker(Waker::noop());
        match socket.poll_read(group, &mut cx, &mut sink, !peek) {
            Poll::Ready(Ok(n)) => Ok(n),
            Poll::Ready(Err(error)) if is_elsewhere(&error) => Err(error),
            Poll::Ready(Err(error)) => {
                let mut state = lock(&socket.state);
                // An engine that ends takes its connections with it.
                let gone = group.is_dead() || state.over == Some(Status::Aborted);
                match std::mem::replace(&mut state.told, true) {
                    true if gone => Err(io::ErrorKind::NotConnected.into()),
                    true => Ok(0),
                    false if gone => Err(io::ErrorKind::ConnectionReset.into()),
                    false => Err(error),
                }
            }
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Bytes that a read would find now.
    pub fn available(&self) -> usize {
        let state = lock(&self.0.socket().state);
        let pieces = state.received.iter();
        match self.0.socket().kind {
            Kind::Datagram => state.received.front().map_or(0, |p| p.event.len() as usize),
            _ => {
                let pieces = pieces.map(|p| p.event.len() as usize - p.taken);
                state.before.len() + pieces.sum::<usize>()
            }
        }
    }

    /// Bytes written that the peer has not acknowledged, to the last few.
    pub fn in_flight(&self) -> usize {
        self.0.socket().in_flight()
    }

    /// Writes to a stream what there is room for. `WouldBlock` if none; `BrokenPipe` once the direction has ended.
    /// `how`: 0, [`flags::URGENT`] (the last byte is the end of urgent data: MSG_OOB, RFC 6093), or [`flags::MORE`] (more follows: a last
    /// partial segment may wait, MSG_MORE).
    pub fn write(&self, data: &[IoSlice<'_>], how: u8) -> io::Result<usize> {
        let how = how & (flags::URGENT | flags::MORE);
        let (group, socket) = (self.0.group(), self.0.socket());
        let mut begun = None;
        loop {
            let mut state = lock(&socket.state);
            check_write(&mut state, group.is_dead())?;
            if data.iter().all(|slice| slice.is_empty()) {
                return Ok(0);
            }
            let Some(window) = state.send_window(group.config.stream_bytes.max(1)) else {
                state.wants_room = true;
                return Err(io::ErrorKind::WouldBlock.into());
            };
            let (written, stop) = {
                let mut lane = lock(&group.lane);
                let sends = &mut state.sends;
                let done = sends.write(
                    &group.memory,
                    &mut lane,
                    socket.dti,
                    data,
                    window,
                    how,
                    || socket.room_waker(),
                );
                lane.flush();
                done
            };
            state.written += written as u64;
            state.wants_room |= stop != Stop::Done;
            if written > 0 {
                return Ok(written);
            }
            drop(state);
            self.no_room(stop, &mut begun)?;
        }
    }

    /// The error that a call had was not passed on, as that had moved bytes before: the next call has it.
    pub fn tell_again(&self, error: &io::Error) {
        let of_the_end = !matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::NotConnected
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted
        );
        if of_the_end {
            lock(&self.0.socket().state).told = false;
        }
    }

    /// Sends one datagram, to `peer` or to where the socket is connected. `WouldBlock`.
    pub fn send_to(&self, data: &[u8], peer: Option<SocketAddr>) -> io::Result<usize> {
        self.send_each_to(data, data.len(), peer)
    }

    /// The same with a datagram for each `size` bytes, the last being what is left: all of them (up to 128) go, or none.
    pub fn send_each_to(
        &self,
        data: &[u8],
        size: usize,
        peer: Option<SocketAddr>,
    ) -> io::Result<usize> {
        if size > 0 && data.len().div_ceil(size) > EACH_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (group, socket) = (self.0.group(), self.0.socket());
        let mut cx = Context::from_waker(Waker::noop());
        let mut begun = None;
        loop {
            match socket.send_datagrams(group, &mut cx, (data, size), peer)? {
                Stop::Done => return Ok(data.len()),
                stop => self.no_room(stop, &mut begun)?,
            }
        }
    }

    /// Receives one datagram: how much of it was put there, how long it was, and from whom. `WouldBlock`.
    pub fn receive_from(
        &self,
        out: &mut [u8],
        peek: bool,
    ) -> io::Result<(usize, usize, SocketAddr)> {
        let (group, socket) = (self.0.group(), self.0.socket());
        let whole = lock(&socket.state)
            .received
            .front()
            .map(|p| p.event.len() as usize);
        let mut cx = Context::from_waker(Waker::noop());
        match socket.poll_receive_datagram(group, &mut cx, out, !peek) {
            Poll::Ready(Ok((n, from))) => Ok((n, whole.unwrap_or(n).max(n), from)),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Nothing was written. `Ok`: try again.
    pub(super) fn no_room(&self, stop: Stop, begun: &mut Option<Instant>) -> io::Result<()> {
        let begun = *begun.get_or_insert_with(Instant::now);
        if stop == Stop::Lane && begun.elapsed() < LANE_PATIENCE {
            self.turn();
            std::thread::yield_now();
            return Ok(());
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Ends a direction or both. `NotConnected`.
    pub fn shutdown(&self, how: Shut) -> io::Result<()> {
        let bits = match how {
            Shut::Read => shutdown::READ,
            Shut::Write => shutdown::WRITE,
            Shut::Both => shutdown::READ | shutdown::WRITE,
        };
        self.settle_move()?;
        self.0.socket().shutdown(self.0.group(), bits)
    }

    /// What went wrong since this was last asked: SO_ERROR.
    pub fn take_error(&self) -> Option<io::Error> {
        let mut state = lock(&self.0.socket().state);
        if let Some(error) = state.take_failure() {
            return Some(error);
        }
        let ended = match (state.phase, state.over) {
            (Phase::Failed(status), _) | (_, Some(status)) => Some(status),
            _ => None,
        };
        let ended = ended.filter(|status| *status != Status::Ok);
        if state.told {
            return None;
        }
        state.told = ended.is_some();
        ended.map(to_io)
    }

    /// Sets an option, without waiting; a value that the engine refuses is not told. Those about keepalive, and [`Opt::NoDelay`] before anything
    /// was written, are posted together: with the next command for any socket of the group, or when a thread next waits or takes a
    /// [`Self::turn`], or by [`Sockets::post_options`].
    pub fn set_option(&self, option: Opt, value: u64) {
        self.0
            .socket()
            .set_option_soon(self.0.group(), option, value);
    }

    /// What an option is set to, or what is in force. Blocks for the engine's answer.
    pub fn option(&self, option: Opt) -> io::Result<u64> {
        self.0.run(self.0.option(option))
    }

    /// What the engine knows of the connection: TCP_INFO. Blocks for the engine's answer.
    pub fn info(&self) -> io::Result<TcpInfo> {
        self.0.run(self.0.info())
    }

    /// This side's address. Blocks for the engine's answer the first time.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.run(self.0.address(Opt::LocalAddress))
    }

    /// The peer's address. `NotConnected`.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let state = lock(&self.0.socket().state);
        let over = state.over.is_some_and(|status| status != Status::Ok);
        match state.peer {
            Some(peer) if state.phase == Phase::Open && !over => Ok(peer),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// The error that ended a connection: the first time itself, then that there is none.
fn end(state: &mut State, status: Status) -> io::Error {
    if std::mem::replace(&mut state.told, true) || status == Status::Ok {
        return io::ErrorKind::NotConnected.into();
    }
    to_io(status)
}

/// Whether bytes may be written here: not while the connection moves, nor after.
pub(super) fn check_write(state: &mut State, dead: bool) -> io::Result<()> {
    match state.moving {
        Some(Moving::Gone) => Err(elsewhere()),
        Some(Moving::Asked) => Err(io::ErrorKind::WouldBlock.into()),
        None => write_error(state, dead),
    }
}

/// Why nothing can be written, if so.
pub(super) fn write_error(state: &mut State, dead: bool) -> io::Result<()> {
    let broken = match (state.phase, state.over) {
        _ if state.write_shut => Some(io::ErrorKind::BrokenPipe.into()),
        (_, Some(Status::Ok)) => Some(io::ErrorKind::BrokenPipe.into()),
        (_, Some(status)) | (Phase::Failed(status), _) => Some(to_io(status)),
        (Phase::New, _) => return Err(io::ErrorKind::NotConnected.into()),
        _ if dead => Some(io::ErrorKind::ConnectionReset.into()),
        // Linux makes a write that does not wait fail so.
        (Phase::Connecting, _) => return Err(io::ErrorKind::WouldBlock.into()),
        _ => None,
    };
    let Some(error) = broken else {
        return state.take_failure().map_or(Ok(()), Err);
    };
    let told = std::mem::replace(&mut state.told, true);
    let first = !told && error.kind() != io::ErrorKind::BrokenPipe;
    Err(if first {
        error
    } else {
        io::ErrorKind::BrokenPipe.into()
    })
}
