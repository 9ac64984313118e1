//! Doorbell lanes: how commands reach the engine.

use std::cell::Cell;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use sidecore_abi::command::{INLINE_MAX, Opt, RETURNS_MAX, create, flags};
use sidecore_abi::event::NO_CHUNK;
use sidecore_abi::{Address, Command, DtiHandle, Event, Extent, Membership, Operation, RegionId};
use sidecore_shm::Producer;

use crate::error::PostError;
use crate::evq::EvqId;
use crate::handles::{Dti, Place};
use crate::ual::{IdleLane, Inner};

/// A doorbell lane of a UAL, claimed by one thread at a time (`Send`, not `Sync`) and given back when dropped.
///
/// Every call posts one 64-byte command and returns; none blocks, none makes a system call, and none waits for an answer: that
/// comes as an event, with the cookie of the call. Commands of one lane are executed in order. A lane may post to every DTI
/// of its UAL.
///
/// After posting, once for as many commands as you like, call [`Lane::flush`]: a busy engine finds commands without it, a
/// sleeping one does not.
///
/// A call that answers [`PostError::LaneFull`] did nothing. Flush, serve your event queues, and try again.
pub struct Lane {
    ual: Arc<Inner>,
    index: u32,
    engine: u32,
    /// None while options wait: what is posted then takes the longer way, and all else need not ask.
    producer: Option<Producer>,
    /// Chunks to be given back that no command carries yet.
    returns: Vec<u32>,
    /// Options to be set that were not posted yet, and who posts them.
    waiting: Option<(Producer, Command)>,
    /// Something was posted since the last flush.
    posted: bool,
    _not_sync: PhantomData<Cell<()>>,
}

impl Lane {
    pub(crate) fn new(ual: Arc<Inner>, index: u32, engine: u32, idle: IdleLane) -> Self {
        let IdleLane {
            producer,
            mut returns,
            options,
        } = idle;
        returns.reserve(RETURNS_MAX);
        let (producer, waiting) = match options {
            Some(options) => (None, Some((producer, options))),
            None => (Some(producer), None),
        };
        Self {
            ual,
            index,
            engine,
            producer,
            returns,
            waiting,
            posted: false,
            _not_sync: PhantomData,
        }
    }

    /// Its number, below [`crate::Granted::geometry`]'s `lanes`.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Posts any command: what all other calls do. The command's `evq` may name another queue than the DTI's for the answer.
    // Always: the compiler's own choice is a call, and the command through memory, which is 20 instructions more for a request and its answer.
    #[inline(always)]
    pub fn post(&mut self, command: Command) -> Result<(), PostError> {
        let Some(producer) = &mut self.producer else {
            return self.post_after_options(command);
        };
        match producer.push(command.encode()) {
            Ok(()) => {
                self.posted = true;
                Ok(())
            }
            Err(_) => Err(PostError::LaneFull),
        }
    }

    #[cold]
    #[inline(never)]
    fn post_after_options(&mut self, command: Command) -> Result<(), PostError> {
        self.post_options()?;
        match &mut self.producer {
            Some(_) => self.post(command),
            None => Err(PostError::LaneFull),
        }
    }

    /// Whether `n` commands can be posted for certain. The engine tells what it has read at least once in half a lane, so ask for no
    /// more than that. Costs nothing while there is much room, and a look at a line of the engine's when there is not.
    #[inline]
    pub fn has_room(&mut self, n: u32) -> bool {
        let known = self.producer.as_mut().map_or(0, Producer::free);
        known >= n || self.free() >= n
    }

    /// How many commands can be posted for certain. Looks at a line of the engine's: [`Self::has_room`] is the better question where it will
    /// do.
    pub fn free(&mut self) -> u32 {
        let Some(producer) = self.any_producer() else {
            return 0;
        };
        let taken = self.ual.taken(self.index);
        let outstanding = (producer.pushed() as u32).wrapping_sub(taken);
        // Options that wait go first.
        let first = u32::from(self.waiting.is_some());
        producer.capacity().saturating_sub(outstanding + first)
    }

    fn create(
        &mut self,
        operation: Operation,
        rx: EvqId,
        tx: EvqId,
        bits: u64,
    ) -> Result<Dti, PostError> {
        let ual = Arc::clone(&self.ual);
        let dti = ual
            .handles
            .acquire(self.index as u16, |place| ual.has_read(place))
            .ok_or(PostError::NoHandle)?;
        let mut command = Command::new(operation, dti.handle(), 0);
        command.body[0] = u64::from(rx.0) | u64::from(tx.0) << 16 | bits;
        let posted = self.post(command);
        if posted.is_err() {
            ual.handles
                .unacquire(dti, self.index as u16, self.place().posted);
        }
        posted.map(|()| dti)
    }

    /// Makes a stream DTI whose incoming side (received bytes, accepts, the end) answers to `rx`, and whose outgoing side
    /// (connects, sends, shutdowns) to `tx`; the two may be the same queue, and any number of DTIs may share one. Nothing answers
    /// when it succeeds: go on and use it at once. A failed Completion with operation CreateStream tells otherwise.
    ///
    /// [`PostError::NoHandle`] when as many DTIs exist as were granted.
    pub fn create_stream(
        &mut self,
        rx: impl Into<EvqId>,
        tx: impl Into<EvqId>,
    ) -> Result<Dti, PostError> {
        self.create(Operation::CreateStream, rx.into(), tx.into(), 0)
    }

    /// Makes a stream DTI that receives into posted buffers only: what comes while none is posted waits in the pool, unannounced. As
    /// [`Self::create_stream`] else.
    pub fn create_stream_posted(
        &mut self,
        rx: impl Into<EvqId>,
        tx: impl Into<EvqId>,
    ) -> Result<Dti, PostError> {
        let bits = create::POSTED_ONLY;
        self.create(Operation::CreateStream, rx.into(), tx.into(), bits)
    }

    /// Makes a datagram DTI. As [`Self::create_stream`].
    pub fn create_datagram(
        &mut self,
        rx: impl Into<EvqId>,
        tx: impl Into<EvqId>,
    ) -> Result<Dti, PostError> {
        self.create(Operation::CreateDatagram, rx.into(), tx.into(), 0)
    }

    /// Takes the connection that was given to this UAL by UAL `from`, under the number of its descriptor. Attached event: peer's address. A failed
    /// Completion with operation Attach: nothing of the kind was given, and there is no DTI. Queues as with [`Self::create_stream`].
    pub fn attach(
        &mut self,
        rx: impl Into<EvqId>,
        tx: impl Into<EvqId>,
        (from, number): (u64, u64),
        cookie: u64,
    ) -> Result<Dti, PostError> {
        let ual = Arc::clone(&self.ual);
        let dti = ual
            .handles
            .acquire(self.index as u16, |place| ual.has_read(place))
            .ok_or(PostError::NoHandle)?;
        let mut command = Command::new(Operation::Attach, dti.handle(), cookie);
        command.evq = tx.into().0;
        command.body[0] = u64::from(rx.into().0) | u64::from(command.evq) << 16;
        [command.body[1], command.body[2]] = [number, from];
        let posted = self.post(command);
        if posted.is_err() {
            ual.handles
                .unacquire(dti, self.index as u16, self.place().posted);
        }
        posted.map(|()| dti)
    }

    /// Gives a connection away, under the number of its descriptor: to the custodian (`to` is 0), or, if this UAL is the custodian, to another.
    /// Detached event: nothing else comes for this handle, which is free. A failed Completion with operation Detach: nothing has changed.
    /// Memory of sends that complete before is free. Nothing may be posted for this DTI until either has come.
    pub fn detach(&mut self, dti: Dti, number: u64, to: u64, cookie: u64) -> Result<(), PostError> {
        let mut command = Command::new(Operation::Detach, dti.handle(), cookie);
        [command.body[0], command.body[1]] = [number, to];
        self.post(command)
    }

    /// Binds to a local address; port 0 means any free one. Completion: the address, in body 0..3.
    pub fn bind(&mut self, dti: Dti, local: SocketAddr, cookie: u64) -> Result<(), PostError> {
        let command = Command::new(Operation::Bind, dti.handle(), cookie);
        self.post(command.with_address(0, Address::new(local)))
    }

    /// Listens; at most `backlog` connections wait for an accept. Completion: the local address, in body 0..3.
    pub fn listen(&mut self, dti: Dti, backlog: u32, cookie: u64) -> Result<(), PostError> {
        let mut command = Command::new(Operation::Listen, dti.handle(), cookie);
        command.body[0] = u64::from(backlog);
        self.post(command)
    }

    /// Accepts one connection of `listener` into `child`, a stream DTI made before and not connected. Any number of accepts may
    /// wait. Receives may have been posted on the child, so that the first bytes find their buffer. Event: Accepted, for the
    /// child, with the peer's address in body 0..3.
    pub fn accept(&mut self, listener: Dti, child: Dti, cookie: u64) -> Result<(), PostError> {
        let mut command = Command::new(Operation::Accept, listener.handle(), cookie);
        command.body[0] = child.handle().to_word();
        self.post(command)
    }

    /// Connects. Event: Connected, with the local address in body 0..3, or with the status that says why not. For a datagram DTI: where
    /// sends without an address go.
    pub fn connect(&mut self, dti: Dti, peer: SocketAddr, cookie: u64) -> Result<(), PostError> {
        let command = Command::new(Operation::Connect, dti.handle(), cookie);
        self.post(command.with_address(0, Address::new(peer)))
    }

    /// A datagram DTI has no peer any more: it receives from anybody, and sends name their destination. Event: Completion.
    pub fn disconnect(&mut self, dti: Dti, cookie: u64) -> Result<(), PostError> {
        let command = Command::new(Operation::Connect, dti.handle(), cookie);
        self.post(command.with_address(0, Address::NONE))
    }

    /// As [`Self::connect`], with Fast Open (RFC 7413): what is sent on the DTI at once goes with the SYN, if the engine has a cookie of
    /// that server, and may then be delivered twice. Nothing happens before something is sent (or shut down).
    pub fn connect_fast(
        &mut self,
        dti: Dti,
        peer: SocketAddr,
        cookie: u64,
    ) -> Result<(), PostError> {
        let command = Command::new(Operation::Connect, dti.handle(), cookie);
        let command = command.with_flags(flags::FAST_OPEN);
        self.post(command.with_address(0, Address::new(peer)))
    }

    /// Sends a piece of a region, without copying where the driver can gather: the bytes must stay as they are until the peer has
    /// acknowledged them. With [`flags::NOTIFY`] a Sent event tells when that is so, for this send and all before it; without, learn it
    /// from a later send's, or from Closed. Never partial. Further flags: MORE, FIN, COPY, LIST, URGENT.
    #[inline]
    pub fn send(
        &mut self,
        dti: Dti,
        data: Extent,
        flags: u8,
        cookie: u64,
    ) -> Result<(), PostError> {
        let command = Command::new(Operation::Send, dti.handle(), cookie);
        self.post(command.with_extent(data).with_flags(flags))
    }

    /// Sends up to 32 bytes that travel in the command itself: no region is needed and the bytes may be forgotten at once.
    #[inline]
    pub fn send_inline(
        &mut self,
        dti: Dti,
        data: &[u8],
        flags: u8,
        cookie: u64,
    ) -> Result<(), PostError> {
        if data.len() > INLINE_MAX {
            return Err(PostError::TooLong);
        }
        let command = Command::new(Operation::Send, dti.handle(), cookie);
        self.post(command.with_inline(data).with_flags(flags))
    }

    /// Sends up to 256 bytes of a region, which the engine copies when it reads the command: the completion, if asked for, comes at
    /// once and tells that the bytes may be changed.
    #[inline]
    pub fn send_copy(
        &mut self,
        dti: Dti,
        data: Extent,
        flags: u8,
        cookie: u64,
    ) -> Result<(), PostError> {
        if data.len > sidecore_abi::command::COPY_MAX {
            return Err(PostError::TooLong);
        }
        self.send(dti, data, flags | flags::COPY, cookie)
    }

    /// Sends several pieces as one, header and file in the same segments: `list` is a piece of a region that holds the extents, 16 bytes
    /// each, as [`crate::Region::write_extents`] stores them. The list is read with the command, what it names when it is sent.
    pub fn send_list(
        &mut self,
        dti: Dti,
        list: Extent,
        flags: u8,
        cookie: u64,
    ) -> Result<(), PostError> {
        self.send(dti, list, flags | flags::LIST, cookie)
    }

    /// Sends one datagram to `peer`. As [`Self::send`]; it counts as sent when it left.
    pub fn send_to(
        &mut self,
        dti: Dti,
        data: Extent,
        peer: SocketAddr,
        flags: u8,
        cookie: u64,
    ) -> Result<(), PostError> {
        let command = Command::new(Operation::Send, dti.handle(), cookie).with_extent(data);
        self.post(
            command
                .with_address(2, Address::new(peer))
                .with_flags(flags),
        )
    }

    /// Posts a piece of a region for bytes to come; several may be outstanding, and are filled in order. Event: ReceivedInto, with the number of
    /// bytes in body 0. With [`flags::WAIT_ALL`] only when the piece is full or the stream ended. A DTI on which nothing was posted
    /// receives into the UAL's pool (Received).
    #[inline]
    pub fn receive(
        &mut self,
        dti: Dti,
        buffer: Extent,
        flags: u8,
        cookie: u64,
    ) -> Result<(), PostError> {
        let command = Command::new(Operation::Receive, dti.handle(), cookie);
        self.post(command.with_extent(buffer).with_flags(flags))
    }

    /// Gives the chunk of a Received or Datagram event back; any other event, and one without a chunk, is ignored. Each event holds one
    /// reference, so each is returned once. Nine go into one command, the rest with [`Self::flush`]: this cannot fail.
    #[inline]
    pub fn return_chunk(&mut self, event: &Event) {
        if event.has_chunk() {
            self.return_chunk_number(event.chunk());
        }
    }

    /// Gives back a chunk by its number ([`Event::chunk`]).
    #[inline]
    pub fn return_chunk_number(&mut self, chunk: u32) {
        if chunk == NO_CHUNK {
            return;
        }
        self.returns.push(chunk);
        if self.returns.len() >= RETURNS_MAX {
            self.post_returns(RETURNS_MAX);
        }
    }

    /// Posts gathered returns while there are at least `least` of them.
    fn post_returns(&mut self, least: usize) {
        while !self.returns.is_empty() && self.returns.len() >= least {
            // From the end: which goes first does not matter, and nothing has to move.
            let from = self.returns.len().saturating_sub(RETURNS_MAX);
            let command = Command::return_chunks(&self.returns[from..]);
            if self.post(command).is_err() {
                return;
            }
            self.returns.truncate(from);
        }
    }

    /// Ends one direction or both ([`sidecore_abi::command::shutdown`]). Sending: FIN after all queued data; with [`flags::NOTIFY`] a Completion tells
    /// when the peer has acknowledged it.
    pub fn shutdown(
        &mut self,
        dti: Dti,
        how: u64,
        flags: u8,
        cookie: u64,
    ) -> Result<(), PostError> {
        let mut command = Command::new(Operation::Shutdown, dti.handle(), cookie).with_flags(flags);
        command.body[0] = how;
        self.post(command)
    }

    fn place(&self) -> Place {
        let posted = self.any_producer().map_or(0, Producer::pushed);
        Place {
            lane: self.index as u16,
            posted: posted as u32,
        }
    }

    /// Posts a command, of any kind, after which the program does not name this DTI any more: the handle is used again when Closed has come.
    pub(crate) fn leave(&mut self, command: Command, dti: Dti) -> Result<(), PostError> {
        self.post(command)?;
        self.ual.handles.left(dti, self.place());
        Ok(())
    }

    /// Closes: queued data and a FIN still go out. Event: Closed, when the connection is over; after it the handle is used
    /// again. Post it also after a Closed that came by itself (reset, time-out): until then the handle stays taken. Memory of
    /// sends stays the engine's until Closed.
    pub fn close(&mut self, dti: Dti, cookie: u64) -> Result<(), PostError> {
        self.leave(Command::new(Operation::Close, dti.handle(), cookie), dti)
    }

    /// Resets the connection and drops everything queued. Event: Closed. The handle as with [`Self::close`].
    pub fn abort(&mut self, dti: Dti, cookie: u64) -> Result<(), PostError> {
        self.leave(Command::new(Operation::Abort, dti.handle(), cookie), dti)
    }

    /// Cancels the receives, accepts or the connect that were posted on `dti` with the cookie `which`. Each of them answers with status
    /// Cancelled, unless it was done already.
    pub fn cancel(&mut self, dti: Dti, which: u64, cookie: u64) -> Result<(), PostError> {
        let mut command = Command::new(Operation::Cancel, dti.handle(), cookie);
        command.body[0] = which;
        self.post(command)
    }

    /// Sets an option (TCP_NODELAY, TCP_CORK, keepalive …). Quiet when it succeeds, unless [`flags::NOTIFY`] is given.
    ///
    /// With neither flags nor a cookie, several for one DTI go into one command: with the lane's next one, or with [`Self::flush`].
    pub fn set_option(
        &mut self,
        dti: Dti,
        option: Opt,
        value: u64,
        flags: u8,
        cookie: u64,
    ) -> Result<(), PostError> {
        if flags == 0 && cookie == 0 && self.gather_option(dti, option, value)? {
            return Ok(());
        }
        let mut command =
            Command::new(Operation::SetOption, dti.handle(), cookie).with_flags(flags);
        command.body[0] = option as u64;
        command.body[1] = value;
        self.post(command)
    }

    /// Puts an option beside those that wait; false: it takes a command of its own.
    fn gather_option(&mut self, dti: Dti, option: Opt, value: u64) -> Result<bool, PostError> {
        if let Some((_, waiting)) = &mut self.waiting {
            if waiting.dti == dti && waiting.add_option(option, value) {
                return Ok(true);
            }
            self.post_options()?;
        }
        let mut first = Command::new(Operation::SetOptions, dti.handle(), 0);
        if !first.add_option(option, value) {
            return Ok(false);
        }
        let producer = self.producer.take().ok_or(PostError::LaneFull)?;
        self.waiting = Some((producer, first));
        Ok(true)
    }

    /// Posts the options that wait.
    #[cold]
    fn post_options(&mut self) -> Result<(), PostError> {
        let Some((mut producer, options)) = self.waiting.take() else {
            return Ok(());
        };
        if producer.push(options.encode()).is_err() {
            self.waiting = Some((producer, options));
            return Err(PostError::LaneFull);
        }
        self.producer = Some(producer);
        self.posted = true;
        Ok(())
    }

    /// The producer, whether options wait or not.
    fn any_producer(&self) -> Option<&Producer> {
        let waiting = self.waiting.as_ref().map(|(producer, _)| producer);
        self.producer.as_ref().or(waiting)
    }

    /// Whether there is something that flushing has not posted, as the lane is full.
    pub(crate) fn has_options(&self) -> bool {
        self.waiting.is_some()
    }

    /// Changes what a datagram DTI, which must be bound, listens to: joins and leaves groups and their sources. Quiet when it succeeds,
    /// unless [`flags::NOTIFY`] is given.
    pub fn membership(
        &mut self,
        dti: Dti,
        membership: &Membership,
        flags: u8,
        cookie: u64,
    ) -> Result<(), PostError> {
        let mut command =
            Command::new(Operation::Membership, dti.handle(), cookie).with_flags(flags);
        command.body = membership.to_body();
        self.post(command)
    }

    /// Asks what the engine knows of a connection ([`sidecore_abi::TcpInfo`]), which it writes to `to`. Completion: the number of bytes
    /// in body 0.
    pub fn get_info(&mut self, dti: Dti, to: Extent, cookie: u64) -> Result<(), PostError> {
        let mut command = Command::new(Operation::GetOption, dti.handle(), cookie);
        command.body[0] = Opt::Info as u64;
        [command.body[1], command.body[2]] = to.to_words();
        self.post(command)
    }

    /// Asks for an option. Completion: the value in body 0, or for addresses in body 0..3.
    pub fn get_option(&mut self, dti: Dti, option: Opt, cookie: u64) -> Result<(), PostError> {
        let mut command = Command::new(Operation::GetOption, dti.handle(), cookie);
        command.body[0] = option as u64;
        self.post(command)
    }

    /// Gives a region back. Completion, on `answer`: when no send or receive refers to it any more.
    pub fn deregister(
        &mut self,
        region: RegionId,
        answer: impl Into<EvqId>,
        cookie: u64,
    ) -> Result<(), PostError> {
        let mut command = Command::new(Operation::Deregister, DtiHandle::default(), cookie);
        command.evq = answer.into().0;
        command.body[0] = u64::from(region.0);
        self.post(command)
    }

    /// Does nothing, and says so on `answer`: everything posted on this lane before it has then been read.
    pub fn nop(&mut self, answer: impl Into<EvqId>, cookie: u64) -> Result<(), PostError> {
        let mut command = Command::new(Operation::Nop, DtiHandle::default(), cookie);
        command.evq = answer.into().0;
        self.post(command.with_flags(flags::NOTIFY))
    }

    /// Posts the chunks that wait to be returned, and options that wait to be set, and wakes the engine if it sleeps or does not poll this lane at the moment. To be called
    /// after posting, once for many commands: it costs a memory fence, and a system call only when the engine sleeps.
    #[inline]
    pub fn flush(&mut self) {
        self.post_returns(1);
        let posted = std::mem::take(&mut self.posted);
        match &self.producer {
            Some(producer) if posted => self.ual.ring(producer, self.index, self.engine),
            Some(_) => {}
            None => self.flush_options(posted),
        }
    }

    /// The rest of a flush while options wait; whether something was `posted` before.
    #[cold]
    #[inline(never)]
    fn flush_options(&mut self, posted: bool) {
        // Where the lane is full they go with what is posted next.
        let _ = self.post_options();
        let posted = posted | std::mem::take(&mut self.posted);
        if let Some(producer) = self.any_producer().filter(|_| posted) {
            self.ual.ring(producer, self.index, self.engine);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.flush();
        let ends = match self.waiting.take() {
            Some((producer, options)) => Some((producer, Some(options))),
            None => self.producer.take().map(|producer| (producer, None)),
        };
        if let Some((producer, options)) = ends {
            let returns = std::mem::take(&mut self.returns);
            let idle = IdleLane {
                producer,
                returns,
                options,
            };
            self.ual.put_lane_back(self.index, idle);
        }
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane")
            .field("index", &self.index)
            .field("engine", &self.engine)
            .field("unreturned", &self.returns.len())
            .finish_non_exhaustive()
    }
}
