//! All connections, in one slab.

use core::net::{Ipv4Addr, SocketAddr};
use core::ops::{Index, IndexMut};

use sidecore_tcp::{Connection, Instant, RangePool};
use sidecore_wire::SeqNumber;

use crate::flow::{FlowKey, FlowTable};
use crate::hash::FlowHasher;
use crate::list::{Linked, Links, List, NIL};
use crate::marking::Marking;
use crate::v6::flow::{Flow6, FlowKey6, Flows6};
use crate::wheel::{TimerNode, TimerWheel, Timers};
use crate::{ConnId, DETACHED, User};

/// List kind: connections with something to send, or waiting for a neighbour.
#[derive(Debug)]
pub(crate) enum Queue {}

/// List kind: free slots, a listener's connections in SYN-RECEIVED (two lists), connections in TIME-WAIT.
#[derive(Debug)]
pub(crate) enum Group {}

/// To whom a connection belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Owner {
    /// The slot is free.
    Free,
    /// To a listener: the handshake is not complete.
    Listener,
    /// To the host.
    Host,
    /// To the stack, since the host closed it; the host still has its data.
    Closed,
    /// To the stack alone.
    Stack,
}

/// Bits of [`Slot::flags`].
pub(crate) mod flag {
    /// In the list of those that have something to send.
    pub(crate) const QUEUED: u8 = 1 << 0;
    /// In the list of a neighbour whose link address is being asked for.
    pub(crate) const WAITING: u8 = 1 << 1;
    /// The peer is this stack.
    pub(crate) const LOOPBACK: u8 = 1 << 2;
    /// In the TIME-WAIT list.
    pub(crate) const TIME_WAIT: u8 = 1 << 3;
    /// Over in all order; not in the flow table any more.
    pub(crate) const FINISHED: u8 = 1 << 4;
    /// In SYN-RECEIVED, and its peer has answered the SYN-ACK: it is in the listener's list of those that wait for room.
    pub(crate) const ANSWERED: u8 = 1 << 5;
    /// Over IPv6: the addresses are in [`Flows6`](crate::v6::flow::Flows6), of the slot's key only the ports count.
    pub(crate) const V6: u8 = 1 << 6;
    /// Its IP headers are not as usual: see [`Slot::marking`](super::Slot::marking).
    pub(crate) const MARKED: u8 = 1 << 7;
}

/// A connection and what the stack knows about it. The first cache line is the stack's, the next three are the hot part
/// of TCP.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) key: FlowKey,
    pub(crate) user: User,
    generation: u32,
    pub(crate) owner: Owner,
    pub(crate) flags: u8,
    /// Where the next hop was found last in the neighbour cache. A hint, but while WAITING.
    pub(crate) neighbor: u16,
    queue: Links<Queue>,
    timer: TimerNode,
    group: Links<Group>,
    /// The peer's initial sequence number, once its SYN came.
    pub(crate) irs: SeqNumber,
    /// The link's station to send to: the peer or the gateway. Unspecified for the loopback.
    pub(crate) next_hop: Ipv4Addr,
    pub(crate) tcp: Connection,
    /// The listener, by index, while `owner` is [`Owner::Listener`].
    pub(crate) listener: u32,
    /// Meaningful with [`flag::MARKED`].
    pub(crate) marking: Marking,
}

const _: () = assert!(core::mem::offset_of!(Slot, tcp) == 64);
const _: () = assert!(size_of::<Slot>() <= 768);

impl Slot {
    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether TCP could accept some of a payload, and if so, whether it starts where the in-order data ends.
    ///
    /// What it cannot (received before, a probe of a closed window) needs no room, and must be answered even if there is
    /// none.
    #[inline]
    pub(crate) fn accepts(&self, seq: SeqNumber, payload_len: u32) -> Option<bool> {
        let receive_next = self.tcp.receive_next();
        let next = self.irs.add(1).add(receive_next as u32);
        let end = seq.add(payload_len);
        let window_is_open = self.tcp.receive_right_edge() > receive_next;
        (window_is_open && end.after(next)).then(|| seq.before_eq(next))
    }
}

/// What a new connection is made of.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub(crate) endpoints: Endpoints,
    pub(crate) owner: Owner,
    pub(crate) user: User,
    pub(crate) irs: SeqNumber,
    pub(crate) listener: u32,
    pub(crate) marking: Marking,
    pub(crate) tcp: Connection,
}

/// Between whom a connection is, and the link's station to send to: `None` for the loopback.
#[derive(Debug)]
pub(crate) enum Endpoints {
    V4(FlowKey, Option<Ipv4Addr>),
    V6(Flow6),
}

impl Endpoints {
    /// Whether both ends are here.
    pub(crate) const fn is_loopback(&self) -> bool {
        matches!(
            self,
            Self::V4(_, None) | Self::V6(Flow6 { next_hop: None, .. })
        )
    }

    /// Local and remote address.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        match self {
            Self::V4(key, _) => (key.local().into(), key.remote().into()),
            Self::V6(flow) => (flow.key.local().into(), flow.key.remote().into()),
        }
    }
}

/// The slab.
#[derive(Debug)]
pub(crate) struct Connections {
    slots: Slots,
    limit: usize,
    free: List<Group>,
    time_wait: List<Group>,
    flows: FlowTable,
    /// The same for IPv6.
    pub(crate) six: Flows6,
    wheel: TimerWheel,
    hasher: FlowHasher,
    live: usize,
    /// What was found last.
    last: u32,
    /// Where the next hop of a connection was found last that did not know: probably that of the next.
    pub(crate) neighbor: u16,
}

#[derive(Debug)]
pub(crate) struct Slots(Vec<Slot>);

impl Linked<Queue> for Slots {
    #[inline]
    fn links(&mut self, index: u32) -> &mut Links<Queue> {
        &mut self.0[index as usize].queue
    }
}

impl Linked<Group> for Slots {
    #[inline]
    fn links(&mut self, index: u32) -> &mut Links<Group> {
        &mut self.0[index as usize].group
    }
}

impl Timers for Slots {
    #[inline]
    fn timer(&mut self, index: u32) -> &mut TimerNode {
        &mut self.0[index as usize].timer
    }
}

impl Index<u32> for Connections {
    type Output = Slot;
    #[inline]
    fn index(&self, index: u32) -> &Slot {
        &self.slots.0[index as usize]
    }
}

impl IndexMut<u32> for Connections {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots.0[index as usize]
    }
}

/// The flag of connections that never leave this machine, or none.
fn loopback_flag(endpoints: &Endpoints) -> u8 {
    if endpoints.is_loopback() {
        flag::LOOPBACK
    } else {
        0
    }
}

impl Connections {
    pub(crate) fn new(limit: usize, hasher: FlowHasher, now: Instant) -> Self {
        let limit = limit.min(NIL as usize - 1);
        Self {
            // Reserved at once, so that no growth ever moves a million connections; pages come when they are used.
            slots: Slots(Vec::with_capacity(limit)),
            limit,
            free: List::new(),
            time_wait: List::new(),
            flows: FlowTable::new(limit),
            six: Flows6::new(limit),
            wheel: TimerWheel::new(now),
            hasher,
            live: 0,
            last: 0,
            neighbor: 0,
        }
    }

    /// How many there are, in any state.
    pub(crate) const fn len(&self) -> usize {
        self.live
    }

    /// The links of all connections, for lists that live elsewhere.
    #[inline]
    pub(crate) fn slots(&mut self) -> &mut Slots {
        &mut self.slots
    }

    /// All that are in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let slots = self.slots.0.iter().enumerate();
        slots
            .map(|(index, slot)| (index as u32, slot))
            .filter(|(_, slot)| slot.owner != Owner::Free)
    }

    #[inline]
    pub(crate) fn id(&self, index: u32) -> ConnId {
        ConnId::new(index, self[index].generation)
    }

    /// The slot that an id names, if it still does.
    #[inline]
    pub(crate) fn resolve(&self, id: ConnId) -> Option<u32> {
        let slot = self.slots.0.get(id.index() as usize)?;
        (slot.generation == id.generation() && slot.owner != Owner::Free).then_some(id.index())
    }

    #[inline]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<u32> {
        self.flows
            .find(key.tag(&self.hasher), |index| self[index].key == *key)
    }

    /// As [`find`](Self::find), but looks at the connection that was found last first: segments come in trains (Partridge
    /// and Pink, "A faster UDP").
    #[inline]
    pub(crate) fn find_again(&mut self, key: &FlowKey) -> Option<u32> {
        if let Some(slot) = self.slots.0.get(self.last as usize)
            && slot.key == *key
            && slot.owner != Owner::Free
            && !slot.has(flag::FINISHED)
        {
            return Some(self.last);
        }
        let found = self.find(key)?;
        self.last = found;
        Some(found)
    }

    /// As [`find_again`](Self::find_again), for IPv6.
    #[inline]
    pub(crate) fn find6(&mut self, key: &FlowKey6) -> Option<u32> {
        self.six.find(key, &self.hasher)
    }

    /// A connection's addresses: local and remote.
    pub(crate) fn addresses(&self, index: u32) -> (SocketAddr, SocketAddr) {
        let slot = &self[index];
        if slot.has(flag::V6) {
            let key = &self.six.get(index).key;
            return (key.local().into(), key.remote().into());
        }
        (slot.key.local().into(), slot.key.remote().into())
    }

    /// Touches what a segment of this flow will need: the entry of the flow table, and of the connection that it names the
    /// lines that every segment touches. Returns that connection, for [`expect`](Self::expect): probably the flow's, if any is.
    #[inline]
    pub(crate) fn touch_flow(&self, key: &FlowKey) -> u32 {
        let entry = self.flows.peek(key.tag(&self.hasher));
        let index = (entry as u32).wrapping_sub(1);
        if let Some(slot) = self.slots.0.get(index as usize) {
            let tcp = &slot.tcp;
            core::hint::black_box(
                u64::from(slot.user)
                    ^ tcp.receive_next()
                    ^ tcp.send_limit()
                    ^ u64::from(tcp.effective_mss()),
            );
        }
        index
    }

    /// The next segment is probably this connection's: [`find_again`](Self::find_again) looks there first.
    #[inline]
    pub(crate) fn expect(&mut self, index: u32) {
        self.last = index;
    }

    /// Whether there is a place for another one, perhaps after [`oldest_time_wait`](Self::oldest_time_wait) is freed.
    pub(crate) const fn is_full(&self) -> bool {
        self.live >= self.limit
    }

    /// The connection of the stack's own that has been in TIME-WAIT for longest.
    pub(crate) const fn oldest_time_wait(&self) -> Option<u32> {
        self.time_wait.front()
    }

    /// Adds a connection whose key is not in use; `None` if there is no place.
    pub(crate) fn insert(&mut self, new: NewConnection) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let (key, next_hop, version) = match &new.endpoints {
            Endpoints::V4(key, hop) => (*key, hop.unwrap_or(Ipv4Addr::UNSPECIFIED), 0),
            Endpoints::V6(flow) => (placeholder(flow), Ipv4Addr::UNSPECIFIED, flag::V6),
        };
        let flags = version | loopback_flag(&new.endpoints);
        let neighbor = self.neighbor;
        let index = match self.free.pop_front(&mut self.slots) {
            Some(index) => {
                // One by one, so that the control block is moved once; its generation stays.
                let slot = &mut self[index];
                (slot.key, slot.user, slot.owner, slot.flags) = (key, new.user, new.owner, flags);
                slot.neighbor = neighbor;
                (slot.queue, slot.group) = (Links::UNLINKED, Links::UNLINKED);
                slot.timer = TimerNode::UNARMED;
                (slot.irs, slot.next_hop) = (new.irs, next_hop);
                slot.tcp = new.tcp;
                (slot.listener, slot.marking) = (new.listener, new.marking);
                index
            }
            None => {
                let index = self.slots.0.len() as u32;
                self.slots.0.push(Slot {
                    key,
                    user: new.user,
                    generation: 0,
                    owner: new.owner,
                    flags,
                    neighbor,
                    queue: Links::UNLINKED,
                    timer: TimerNode::UNARMED,
                    group: Links::UNLINKED,
                    irs: new.irs,
                    next_hop,
                    tcp: new.tcp,
                    listener: new.listener,
                    marking: new.marking,
                });
                index
            }
        };
        self[index].note_marking();
        self.live += 1;
        let inserted = match new.endpoints {
            Endpoints::V4(key, _) => self.flows.insert(key.tag(&self.hasher), index),
            Endpoints::V6(flow) => {
                if self.last == index {
                    // What was found there last must not be taken for this one, which has no address of IPv4.
                    self.last = NIL;
                }
                self.six.insert(index, flow, &self.hasher)
            }
        };
        debug_assert!(inserted, "the flow table holds as many as the slab");
        Some(index)
    }

    /// The connection is the stack's alone: the host's id is dead.
    pub(crate) fn detach(&mut self, index: u32) {
        let slot = &mut self[index];
        slot.owner = Owner::Stack;
        slot.user = DETACHED;
        slot.generation = slot.generation.wrapping_add(1);
    }

    /// Over in all order: its addresses may be used again, though the host still has an id for it.
    pub(crate) fn finish(&mut self, index: u32) {
        if self[index].has(flag::FINISHED) {
            return;
        }
        let removed = if self[index].has(flag::V6) {
            self.six.remove(index, &self.hasher)
        } else {
            let tag = self[index].key.tag(&self.hasher);
            self.flows.remove(tag, index)
        };
        debug_assert!(
            removed,
            "{:?} was not in the flow table",
            self.addresses(index)
        );
        self[index].flags |= flag::FINISHED;
    }

    /// Puts a connection of the stack's own into the TIME-WAIT list.
    pub(crate) fn enter_time_wait(&mut self, index: u32) {
        debug_assert_eq!(self[index].owner, Owner::Stack);
        if !self[index].has(flag::TIME_WAIT) {
            self[index].flags |= flag::TIME_WAIT;
            self.time_wait.push_back(&mut self.slots, index);
        }
    }

    /// Frees a slot that is in no list but those of this slab.
    pub(crate) fn free(&mut self, index: u32, ranges: &mut RangePool) {
        debug_assert!(self[index].flags & (flag::QUEUED | flag::WAITING) == 0);
        debug_assert_ne!(self[index].owner, Owner::Free);
        self.finish(index);
        self.wheel.cancel(&mut self.slots, index);
        if self[index].has(flag::TIME_WAIT) {
            self.time_wait.remove(&mut self.slots, index);
        }
        let slot = &mut self[index];
        slot.tcp.release(ranges);
        slot.owner = Owner::Free;
        slot.user = DETACHED;
        slot.flags = 0;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(&mut self.slots, index);
        self.live -= 1;
    }

    /// Sees to it that the connection's timer fires when TCP needs it, perhaps earlier.
    #[inline]
    pub(crate) fn arm(&mut self, index: u32) {
        let slot = &self[index];
        // An early timer is left where it is; when it fires, it is set again.
        match slot.tcp.next_timeout() {
            Some(deadline) if !slot.timer.covers(deadline) => self.rearm(index, deadline),
            _ => {}
        }
    }

    #[inline(never)]
    fn rearm(&mut self, index: u32, deadline: Instant) {
        self.wheel.arm(&mut self.slots, index, deadline);
    }

    /// Whether [`pop_timer`](Self::pop_timer) may find something.
    #[inline]
    pub(crate) fn timers_may_be_due(&self, now: Instant) -> bool {
        self.wheel.may_be_due(now)
    }

    /// The next connection whose timer has fired.
    pub(crate) fn pop_timer(&mut self, now: Instant, budget: &mut usize) -> Option<u32> {
        self.wheel.pop(&mut self.slots, now, budget)
    }

    /// When [`pop_timer`](Self::pop_timer) should be called, at the latest.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.wheel.next()
    }

    /// Whether slab, lists and flow table agree.
    pub(crate) fn is_consistent(&self) -> bool {
        let in_table = |(index, slot): (u32, &Slot)| {
            if slot.has(flag::V6) {
                return self.six.leads_to(index, &self.hasher);
            }
            self.find(&slot.key) == Some(index)
        };
        let live = self.iter().count();
        let finished = self.iter().filter(|(_, s)| s.has(flag::FINISHED)).count();
        let timed = self.iter().filter(|(_, s)| s.has(flag::TIME_WAIT)).count();
        live == self.live
            && self.slots.0.len() == live + self.free.len() as usize
            && self.flows.len() + self.six.len() == live - finished
            && self.time_wait.len() as usize == timed
            && self
                .iter()
                .all(|(index, slot)| slot.has(flag::FINISHED) || in_table((index, slot)))
    }
}

/// The key of a slot whose addresses are elsewhere: no packet of IPv4 that gets as far as a look-up finds it, as it is not in
/// the table.
const fn placeholder(flow: &Flow6) -> FlowKey {
    FlowKey {
        local_ip: Ipv4Addr::UNSPECIFIED,
        remote_ip: Ipv4Addr::UNSPECIFIED,
        local_port: flow.key.local_port,
        remote_port: flow.key.remote_port,
    }
}
