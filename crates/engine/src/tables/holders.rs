//! UDP sockets that several processes hold: each has a DTI of its own, in a UAL of its own, and the stack knows one socket.
//!
//! A system has one queue for a socket, and a datagram goes to whoever takes it first. Here it goes to a holder that receives: one that has
//! nothing untaken, and sleeps if any does, in turn. What finds none waits in the engine, and so does what a holder had not taken when it
//! closed or died. When the last holder of a socket goes that others may have, the socket stays for a while: a daemon's child has not used
//! it yet when its parent ends.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use sidecore_stack::{Envelope, StackError, UdpId, User};
use sidecore_tcp::Instant;

use super::Tables;
use super::budget::Budget;
use super::frame::Frame;
use crate::dti::{Role, flag};

/// In a [`User`] of the stack's: a socket that several processes may hold, and its number; else the slot of a DTI.
const SHARED: User = 1 << 31;

/// Bytes that wait for a holder at most, each datagram counted with [`OVERHEAD`]: Linux's receive buffer.
const WAITING_MAX: usize = 212_992;

/// What a datagram that waits costs beside its bytes.
const OVERHEAD: usize = 256;

/// How long a socket without holders stays for those that have it and have not used it yet.
const STAYS: Duration = Duration::from_secs(5);

/// Holders of one socket: each datagram costs a look at them.
const HOLDERS_MAX: usize = 1024;

/// What a DTI joins: the number of a shared socket, its name at the stack, and its peer.
type Joined = (u32, UdpId, Option<SocketAddr>);

/// A datagram that no holder has.
#[derive(Debug)]
struct Waiting {
    bytes: Box<[u8]>,
    envelope: Envelope,
}

/// A datagram that a holder was given, and has not taken.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) chunk: u32,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) envelope: Envelope,
}

/// One holder.
#[derive(Debug)]
struct Member {
    slot: u32,
    /// It has shown that it receives.
    receives: bool,
    lent: VecDeque<Lent>,
}

/// One socket.
#[derive(Debug)]
struct SharedSocket {
    id: UdpId,
    /// The UAL that bound it.
    owner: u64,
    /// Known to those who may join.
    key: u64,
    peer: Option<SocketAddr>,
    members: Vec<Member>,
    waiting: VecDeque<Waiting>,
    /// What they come to.
    bytes: usize,
    /// Whose turn it is.
    next: usize,
    /// Who sent last.
    sender: Option<u32>,
    /// DTIs that are closed, and have datagrams to send yet: so long the stack's socket stays, and with it the number that it has for a name.
    closing: u32,
    /// It has no holders, and ends then.
    until: Option<Instant>,
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(crate) struct SharedSockets {
    places: Vec<Option<SharedSocket>>,
    free: Vec<u32>,
    /// Those that have no holders.
    orphans: usize,
    budget: Budget,
}

impl SharedSockets {
    fn get(&self, at: u32) -> Option<&SharedSocket> {
        self.places.get(at as usize)?.as_ref()
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut SharedSocket> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    fn find(&self, key: u64) -> Option<u32> {
        let has = |place: &Option<SharedSocket>| {
            let socket = place.as_ref();
            socket.is_some_and(|socket| socket.key == key && !socket.is_over())
        };
        self.places.iter().position(has).map(|at| at as u32)
    }

    /// What a new socket is to be called at the stack, and its number.
    pub(crate) fn take_number(&mut self) -> (User, u32) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        (SHARED | at, at)
    }

    /// The number is not used after all.
    pub(crate) fn give_number(&mut self, at: u32) {
        self.free.push(at);
    }

    /// A socket with a number that was taken, bound by UAL `owner`.
    pub(crate) fn insert(&mut self, at: u32, slot: u32, id: UdpId, (owner, key): (u64, u64)) {
        let socket = SharedSocket {
            id,
            owner,
            key,
            peer: None,
            members: vec![Member::new(slot)],
            waiting: VecDeque::new(),
            bytes: 0,
            next: 0,
            sender: None,
            closing: 0,
            until: None,
        };
        if let Some(place) = self.places.get_mut(at as usize) {
            *place = Some(socket);
        }
    }

    /// A socket ends that nobody holds. What is to be closed at the stack, if nothing is to be sent by it any more.
    fn end(&mut self, at: u32) -> Option<UdpId> {
        let place = self.places.get_mut(at as usize)?;
        let socket = place.as_mut()?;
        self.budget.give(socket.owner, socket.bytes);
        self.orphans -= usize::from(socket.until.take().is_some());
        socket.bytes = 0;
        socket.waiting.clear();
        if socket.closing > 0 {
            return None;
        }
        let id = socket.id;
        *place = None;
        self.free.push(at);
        Some(id)
    }

    /// A DTI that was closed has sent all that it had to. What is to be closed at the stack, if that was all.
    pub(crate) fn sent_all(&mut self, at: u32) -> Option<UdpId> {
        let socket = self.get_mut(at)?;
        socket.closing = socket.closing.saturating_sub(1);
        match socket.is_over() {
            true => self.end(at),
            false => None,
        }
    }

    /// Keeps a datagram for whoever receives next, before those that wait or behind them; false if there are too many.
    fn keep(&mut self, at: u32, waiting: Waiting, first: bool) -> bool {
        let Some(Some(socket)) = self.places.get_mut(at as usize) else {
            return false;
        };
        let cost = waiting.bytes.len() + OVERHEAD;
        if socket.bytes + cost > WAITING_MAX || !self.budget.take(socket.owner, cost) {
            return false;
        }
        socket.bytes += cost;
        match first {
            true => socket.waiting.push_front(waiting),
            false => socket.waiting.push_back(waiting),
        }
        true
    }

    /// The datagram that waits longest.
    fn take_waiting(&mut self, at: u32) -> Option<Waiting> {
        let socket = self.places.get_mut(at as usize)?.as_mut()?;
        let waiting = socket.waiting.pop_front()?;
        let cost = waiting.bytes.len() + OVERHEAD;
        socket.bytes -= cost;
        self.budget.give(socket.owner, cost);
        Some(waiting)
    }

    /// Whether this is the key of one.
    pub(crate) fn knows(&self, key: u64) -> bool {
        key != 0 && self.find(key).is_some()
    }

    /// A DTI joins the socket with this key: its number, its name at the stack, and its peer. `Ok(None)`: there is none.
    pub(crate) fn join(&mut self, slot: u32, key: u64) -> Result<Option<Joined>, StackError> {
        let Some(at) = self.find(key) else {
            return Ok(None);
        };
        let Some(Some(socket)) = self.places.get_mut(at as usize) else {
            return Ok(None);
        };
        if socket.members.len() >= HOLDERS_MAX {
            return Err(StackError::Full);
        }
        socket.members.push(Member::new(slot));
        self.orphans -= usize::from(socket.until.take().is_some());
        Ok(Some((at, socket.id, socket.peer)))
    }

    /// Those without holders that end now: whose time has come, or that are at a port that another wants.
    pub(crate) fn take_orphans(&mut self, is_due: impl Fn(UdpId, Instant) -> bool) -> Vec<UdpId> {
        if self.orphans == 0 {
            return Vec::new();
        }
        let due = |socket: &SharedSocket| socket.until.is_some_and(|at| is_due(socket.id, at));
        let places = self.places.iter().enumerate();
        let due: Vec<u32> = places
            .filter(|(_, place)| place.as_ref().is_some_and(due))
            .map(|(at, _)| at as u32)
            .collect();
        due.into_iter().filter_map(|at| self.end(at)).collect()
    }

    /// The sockets in which something waits for a holder.
    fn with_waiting(&self) -> Vec<u32> {
        if self.budget.all == 0 {
            return Vec::new();
        }
        let places = (0..).zip(&self.places);
        let waits = |place: &Option<SharedSocket>| place.as_ref().is_some_and(|s| s.bytes > 0);
        places
            .filter(|(_, place)| waits(place))
            .map(|(at, _)| at)
            .collect()
    }
}

impl Member {
    fn new(slot: u32) -> Self {
        Self {
            slot,
            receives: false,
            lent: VecDeque::new(),
        }
    }
}

impl SharedSocket {
    /// Nobody holds it, and nobody is to come.
    fn is_over(&self) -> bool {
        self.members.is_empty() && self.until.is_none()
    }

    fn member(&mut self, slot: u32) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.slot == slot)
    }

    /// The DTI of one of them, counted round and round, if it receives and has nothing untaken.
    fn free_member(&self, number: usize) -> Option<u32> {
        let member = self.members.get(number.checked_rem(self.members.len())?)?;
        (member.receives && member.lent.is_empty()).then_some(member.slot)
    }

    /// How long the datagram is that waits longest.
    fn waiting_len(&self) -> Option<u32> {
        self.waiting
            .front()
            .map(|waiting| waiting.bytes.len() as u32)
    }
}

impl Tables {
    /// The number of the shared socket that a DTI is of.
    fn shared_socket_of(&self, slot: u32) -> Option<u32> {
        match self.dtis.get(slot)?.role {
            Role::Datagram { shared, .. } => shared,
            _ => None,
        }
    }

    /// A datagram for a socket of the stack's.
    pub(crate) fn datagram(
        &mut self,
        frame: &Frame<'_>,
        user: User,
        place: (u32, u32),
        envelope: &Envelope,
    ) {
        if user & SHARED == 0 {
            self.deliver_datagram(frame, user, place, envelope);
            return;
        }
        let at = user & !SHARED;
        let Some(socket) = self.sockets.get(at) else {
            return;
        };
        if socket.is_over() || socket.peer.is_some_and(|peer| peer != envelope.from) {
            return;
        }
        let taker = match socket.waiting.is_empty() {
            true => self.taker(at, place.1),
            false => None,
        };
        match taker {
            Some(slot) => self.lend(at, slot, frame, place, envelope),
            None => self.keep_datagram(at, frame, place, envelope),
        }
    }

    /// Who gets the next datagram, of so many bytes: the only holder that receives; of several one that has taken all that it was given and has
    /// room for it, best one that sleeps.
    fn taker(&mut self, at: u32, len: u32) -> Option<u32> {
        let socket = self.sockets.get(at)?;
        let mut receivers = socket.members.iter().filter(|member| member.receives);
        let first = receivers.next()?;
        if receivers.next().is_none() {
            return Some(first.slot);
        }
        let (count, next) = (socket.members.len(), socket.next);
        let mut awake = None;
        for n in 0..count {
            let Some(slot) = self.sockets.get(at)?.free_member(next + n) else {
                continue;
            };
            let sleeps = self.sleeps(slot);
            if (sleeps || awake.is_none()) && self.has_datagram_room(slot, len) {
                if sleeps {
                    return Some(slot);
                }
                awake = Some(slot);
            }
        }
        awake
    }

    /// Whether the process of a DTI sleeps on its event queue.
    fn sleeps(&self, slot: u32) -> bool {
        let Some(dti) = self.dtis.get(slot) else {
            return false;
        };
        let ual = self.uals.get(dti.ual as usize).and_then(Option::as_ref);
        ual.is_some_and(|ual| !ual.gone && ual.control.has_sleeper(dti.rx_evq.into()))
    }

    /// Gives a datagram to a holder. False if it finds no room there.
    fn lend(
        &mut self,
        at: u32,
        slot: u32,
        frame: &Frame<'_>,
        place: (u32, u32),
        envelope: &Envelope,
    ) {
        let Some((chunk, offset)) = self.deliver_datagram(frame, slot, place, envelope) else {
            return;
        };
        let Some(socket) = self.sockets.get_mut(at) else {
            return;
        };
        let count = socket.members.len();
        let number = socket.members.iter().position(|member| member.slot == slot);
        if let Some(number) = number {
            socket.next = (number + 1) % count;
            socket.members[number].lent.push_back(Lent {
                chunk,
                offset,
                len: place.1,
                envelope: *envelope,
            });
        }
    }

    #[cold]
    fn keep_datagram(
        &mut self,
        at: u32,
        frame: &Frame<'_>,
        (offset, len): (u32, u32),
        envelope: &Envelope,
    ) {
        let mut bytes = vec![0; len as usize];
        let mut done = 0;
        self.frame_pieces(frame, offset, len, |piece| {
            piece.copy_to(&mut bytes[done..done + piece.len()]);
            done += piece.len();
            true
        });
        let waiting = Waiting {
            bytes: bytes.into(),
            envelope: *envelope,
        };
        // What finds no room is lost, as datagrams are.
        self.sockets.keep(at, waiting, false);
        self.hand_out(at);
    }

    /// Gives what waits to holders that receive.
    fn hand_out(&mut self, at: u32) {
        while let Some(len) = self.sockets.get(at).and_then(SharedSocket::waiting_len)
            && let Some(slot) = self.taker(at, len)
        {
            if !self.has_datagram_room(slot, len) {
                return;
            }
            let Some(waiting) = self.sockets.take_waiting(at) else {
                return;
            };
            let frame = Frame::Device(&waiting.bytes);
            self.lend(at, slot, &frame, (0, len), &waiting.envelope);
        }
    }

    /// Once more, where holders had no room: what makes some is not always a datagram that was taken.
    pub(crate) fn hand_out_waiting(&mut self) {
        for at in self.sockets.with_waiting() {
            self.hand_out(at);
        }
    }

    /// The program of a DTI receives from here on.
    pub(crate) fn receives(&mut self, slot: u32) {
        let Some(at) = self.shared_socket_of(slot) else {
            return;
        };
        if let Some(member) = self.sockets.get_mut(at).and_then(|s| s.member(slot)) {
            member.receives = true;
        }
        self.hand_out(at);
    }

    /// A holder has taken a datagram.
    pub(crate) fn datagram_taken(&mut self, slot: u32, chunk: u32) {
        let Some(at) = self.shared_socket_of(slot) else {
            return;
        };
        let Some(socket) = self.sockets.get_mut(at) else {
            return;
        };
        if let Some(member) = socket.member(slot)
            && let Some(n) = member.lent.iter().position(|lent| lent.chunk == chunk)
        {
            member.lent.remove(n);
        }
        if !socket.waiting.is_empty() {
            self.hand_out(at);
        }
    }

    /// All holders have this peer from now on, or none.
    pub(crate) fn connect_socket(&mut self, slot: u32, peer: Option<SocketAddr>) {
        let slots = match self
            .shared_socket_of(slot)
            .and_then(|at| self.sockets.get_mut(at))
        {
            Some(socket) => {
                socket.peer = peer;
                socket.members.iter().map(|member| member.slot).collect()
            }
            None => vec![slot],
        };
        for slot in slots {
            if let Some(Role::Datagram { peer: old, .. }) =
                self.dtis.get_mut(slot).map(|dti| &mut dti.role)
            {
                *old = peer;
            }
        }
    }

    /// A DTI has sent: what becomes of it is told there.
    pub(crate) fn has_sent(&mut self, slot: u32) {
        if let Some(at) = self.shared_socket_of(slot)
            && let Some(socket) = self.sockets.get_mut(at)
        {
            socket.sender = Some(slot);
        }
    }

    /// The DTI that is told what became of a datagram of this socket of the stack's.
    pub(crate) fn speaker(&self, user: User) -> Option<u32> {
        if user & SHARED == 0 {
            return Some(user);
        }
        let socket = self.sockets.get(user & !SHARED)?;
        let first = socket.members.first().map(|member| member.slot);
        socket.sender.or(first)
    }

    /// Those who may have something to send by this socket of the stack's.
    pub(crate) fn datagram_ready(&mut self, user: User) {
        if user & SHARED == 0 {
            return self.datagram_senders.push(user);
        }
        if let Some(socket) = self.sockets.get(user & !SHARED) {
            let all = socket.members.iter().map(|member| member.slot);
            self.datagram_senders.extend(all);
        }
        // One that is closing is no holder any more, and has something to send.
        self.datagram_senders
            .extend_from_slice(&self.datagram_closing);
    }

    /// A DTI is no holder any more. Whether its socket at the stack is to be closed; else it is others', or stays for those that may come, or for
    /// what is to be sent yet ([`SharedSockets::sent_all`]).
    pub(crate) fn leave_socket(&mut self, slot: u32, now: Instant) -> bool {
        let Some(at) = self.shared_socket_of(slot) else {
            return true;
        };
        let Some(dti) = self.dtis.get_mut(slot) else {
            return false;
        };
        let outlived = dti.has(flag::OUTLIVED) && !self.stopping;
        let waits = !dti.datagrams.is_empty();
        if !waits && let Role::Datagram { shared, .. } = &mut dti.role {
            *shared = None;
        }
        let Some(socket) = self.sockets.get_mut(at) else {
            return false;
        };
        socket.closing += u32::from(waits);
        socket.sender = socket.sender.filter(|sender| *sender != slot);
        let number = socket.members.iter().position(|member| member.slot == slot);
        let lent = number.map(|number| socket.members.remove(number).lent);
        if socket.members.is_empty() && !outlived {
            return self.sockets.end(at).is_some();
        }
        if socket.members.is_empty() {
            socket.until = Some(now + STAYS);
            self.sockets.orphans += 1;
        }
        // They are older than what waits, and some of them may not fit.
        let untaken = self.untaken_datagrams(slot, lent.unwrap_or_default());
        for waiting in untaken.into_iter().rev() {
            self.sockets.keep(at, waiting, true);
        }
        self.hand_out(at);
        false
    }

    /// What a holder was given and has not taken: as much as may wait, the oldest first.
    fn untaken_datagrams(&self, slot: u32, lent: VecDeque<Lent>) -> Vec<Waiting> {
        let ual = self.dtis.get(slot).map(|dti| dti.ual);
        let ual = ual.and_then(|ual| self.uals.get(ual as usize)?.as_ref());
        let Some(ual) = ual else {
            return Vec::new();
        };
        let mut left = WAITING_MAX;
        let copy = |lent: Lent| {
            left = left.checked_sub(lent.len as usize + OVERHEAD)?;
            let from = ual.chunks.slice(lent.offset, lent.len)?;
            let mut bytes = vec![0; from.len()];
            from.copy_to(&mut bytes);
            Some(Waiting {
                bytes: bytes.into(),
                envelope: lent.envelope,
            })
        };
        let copies = lent.into_iter().map_while(copy).collect();
        match ual.condemned || ual.chunks.condemned() {
            // Its memory is not to be trusted, or vanished.
            true => Vec::new(),
            false => copies,
        }
    }
}
