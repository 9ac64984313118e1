//! UALs as the engine keeps them: the shared memory of one application, and everything the engine knows about it
//! that the application must not be able to change.

pub(crate) mod chunks;
pub(crate) mod regions;

use std::collections::{HashMap, VecDeque};

use sidecore_abi::event::Event;
use sidecore_abi::handle::POOL_REGION;
use sidecore_abi::{DtiHandle, Extent, control};
use sidecore_shm::MemRef;
use sidecore_shm::control::EngineControl;

use crate::config::{DeathPolicy, Policy};
use chunks::Chunks;
use regions::Regions;

/// What the agent hands over when it has opened a UAL.
pub(crate) struct NewUal {
    /// Number that the agent gave it; never reused.
    pub(crate) id: u64,
    /// Process and user at the other end of the socket.
    pub(crate) pid: u32,
    /// Its user.
    pub(crate) uid: u32,
    /// Lanes, event queues, wait cells.
    pub(crate) control: EngineControl,
    /// Numbers from which the offsets follow.
    pub(crate) geometry: control::Geometry,
    /// Receive pool.
    pub(crate) chunks: Chunks,
    /// Handles below this may be used.
    pub(crate) dtis: u32,
    /// What becomes of its connections when its application dies.
    pub(crate) death: DeathPolicy,
    /// The agent's socket of this UAL, once more: shutting it down tells both ends that the UAL is over.
    pub(crate) session: std::os::fd::OwnedFd,
    /// A byte here ends the engine's sleep.
    pub(crate) sleeper: sidecore_sys::wake::Sleeper,
}

/// Counters of one UAL, for `stat`.
#[derive(Debug, Default, Clone, serde::Serialize)]
pub(crate) struct UalCounters {
    /// Commands executed.
    pub(crate) commands: u64,
    /// Commands answered with an error.
    pub(crate) refused: u64,
    /// Events delivered.
    pub(crate) events: u64,
    /// Times that an event had to wait because its queue was full.
    pub(crate) queue_full: u64,
    /// Segments refused because the receive pool was exhausted.
    pub(crate) pool_exhausted: u64,
    /// Datagrams dropped because pool or queue were full.
    pub(crate) datagrams_dropped: u64,
    /// Reports of what became of datagrams that found no room.
    pub(crate) error_reports_dropped: u64,
    /// Chunks given back that the application did not hold.
    pub(crate) false_returns: u64,
    /// Wake-ups of sleeping threads.
    pub(crate) wakes: u64,
}

/// One UAL.
pub(crate) struct Ual {
    pub(crate) id: u64,
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) control: EngineControl,
    pub(crate) geometry: control::Geometry,
    pub(crate) chunks: Chunks,
    pub(crate) regions: Regions,
    pub(crate) sleeper: sidecore_sys::wake::Sleeper,
    session: std::os::fd::OwnedFd,
    /// What becomes of its connections when its application dies.
    pub(crate) death: DeathPolicy,
    /// Slot of the DTI that a handle index names, or `u32::MAX`. Grows to the highest index used.
    handles: Vec<u32>,
    pub(crate) dti_limit: u32,
    pub(crate) dtis: u32,
    /// Those of them that wait to be accepted, or attached, and have no handle.
    pub(crate) waiting: u32,
    /// Connections that were given to it: by the UAL that gave and the number of the descriptor, their slot and its epoch.
    pub(crate) arrived: HashMap<(u64, u64), (u32, u32)>,
    /// Sends, receives and accepts outstanding.
    pub(crate) descriptors: u32,
    /// Events that found their queue full, by queue, in order.
    pub(crate) overflow: Vec<VecDeque<Event>>,
    /// Events in all of [`Self::overflow`].
    pub(crate) overflowing: usize,
    /// DTIs that have something to deliver and found the queue full.
    pub(crate) stalled: VecDeque<u32>,
    /// Event queues that got an event in this turn.
    pub(crate) touched: Vec<u16>,
    touched_bits: Vec<u64>,
    /// DbQ lanes that the engine polls, with the number of turns that found each empty.
    pub(crate) active_lanes: Vec<(u16, u32)>,
    /// Where among them the next turn begins.
    pub(crate) first_lane: usize,
    pub(crate) counters: UalCounters,
    /// It broke the rules, or its memory vanished: nothing is read from it any more.
    pub(crate) condemned: bool,
    /// The application is gone: no commands, no events; the record stays until its last DTI has ended.
    pub(crate) gone: bool,
}

impl Ual {
    /// From what the agent made.
    pub(crate) fn new(new: NewUal, policy: &Policy) -> Self {
        let evqs = new.geometry.evqs as usize;
        Self {
            id: new.id,
            pid: new.pid,
            uid: new.uid,
            control: new.control,
            geometry: new.geometry,
            chunks: new.chunks,
            regions: Regions::new(policy.regions),
            sleeper: new.sleeper,
            session: new.session,
            death: new.death,
            handles: Vec::new(),
            dti_limit: new.dtis,
            dtis: 0,
            waiting: 0,
            arrived: HashMap::new(),
            descriptors: 0,
            overflow: (0..evqs).map(|_| VecDeque::new()).collect(),
            overflowing: 0,
            stalled: VecDeque::new(),
            touched: Vec::with_capacity(evqs),
            touched_bits: vec![0; evqs.div_ceil(64)],
            active_lanes: (0..new.geometry.lanes as u16)
                .map(|lane| (lane, 0))
                .collect(),
            first_lane: 0,
            counters: UalCounters::default(),
            condemned: false,
            gone: false,
        }
    }

    /// Bytes of its memory that are mapped here: control memory, receive pool, regions.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.geometry.size() as u64 + self.chunks.size() + self.regions.bytes()
    }

    /// Slot of a handle's index, if something lives there.
    #[inline]
    pub(crate) fn slot_of(&self, index: u32) -> Option<u32> {
        self.handles
            .get(index as usize)
            .copied()
            .filter(|slot| *slot != u32::MAX)
    }

    /// Whether a handle may be taken: below the limit and free.
    pub(crate) fn may_take(&self, handle: DtiHandle) -> Result<(), sidecore_abi::Status> {
        if handle.index >= self.dti_limit {
            return Err(sidecore_abi::Status::NoResources);
        }
        if self.slot_of(handle.index).is_some() {
            return Err(sidecore_abi::Status::HandleInUse);
        }
        Ok(())
    }

    /// Lets a handle name a slot.
    pub(crate) fn name(&mut self, handle: DtiHandle, slot: u32) {
        let index = handle.index as usize;
        if self.handles.len() <= index {
            self.handles.resize(index + 1, u32::MAX);
        }
        self.handles[index] = slot;
    }

    /// Lets a handle name nothing.
    pub(crate) fn unname(&mut self, handle: DtiHandle) {
        if let Some(place) = self.handles.get_mut(handle.index as usize) {
            *place = u32::MAX;
        }
    }

    /// All slots that handles name, and those that wait to be attached.
    pub(crate) fn all_slots(&self) -> Vec<u32> {
        let mut slots = self.named_slots();
        slots.extend(self.arrived.values().map(|(slot, _)| *slot));
        slots
    }

    /// All slots that handles name.
    pub(crate) fn named_slots(&self) -> Vec<u32> {
        self.handles
            .iter()
            .copied()
            .filter(|slot| *slot != u32::MAX)
            .collect()
    }

    /// Whether a send may refer to an extent, and if so counts that use of its region.
    #[inline]
    pub(crate) fn begin_use(&mut self, extent: Extent) -> bool {
        if extent.region == POOL_REGION {
            self.chunks.slice(extent.offset, extent.len).is_some()
        } else {
            self.regions.begin_use(extent)
        }
    }

    /// The bytes that an extent names.
    #[inline]
    pub(crate) fn bytes(&self, extent: Extent) -> Option<MemRef<'_>> {
        if extent.region == POOL_REGION {
            self.chunks.slice(extent.offset, extent.len)
        } else {
            self.regions
                .slice(extent.region.0, extent.offset, extent.len)
        }
    }

    /// A queue number that exists: commands may name any number.
    #[inline]
    pub(crate) fn clamp_evq(&self, evq: u16) -> u16 {
        if u32::from(evq) < self.geometry.evqs {
            evq
        } else {
            0
        }
    }

    /// Whether events can be put onto this queue now.
    #[inline]
    pub(crate) fn accepts(&mut self, evq: u16) -> bool {
        self.gone
            || self
                .overflow
                .get(evq as usize)
                .is_some_and(VecDeque::is_empty)
                && self
                    .control
                    .evq(evq as usize)
                    .is_some_and(|lane| lane.free() > 0)
    }

    /// Puts an event onto its queue unless that is full; says whether it did.
    #[inline]
    pub(crate) fn offer(&mut self, evq: u16, event: &Event) -> bool {
        if self.gone {
            return true;
        }
        if self.overflowing > 0 && !self.overflow[evq as usize].is_empty() {
            return false;
        }
        self.push(evq, event)
    }

    #[inline]
    fn push(&mut self, evq: u16, event: &Event) -> bool {
        let Some(lane) = self.control.evq(evq as usize) else {
            return true;
        };
        if lane.push(event.encode()).is_err() {
            self.counters.queue_full += 1;
            return false;
        }
        self.counters.events += 1;
        let (word, bit) = (evq as usize / 64, 1u64 << (evq % 64));
        if self.touched_bits[word] & bit == 0 {
            self.touched_bits[word] |= bit;
            self.touched.push(evq);
        }
        true
    }

    /// Puts an event onto its queue, or keeps it until there is room. Only for events that commands or the life of a
    /// DTI bound in number.
    pub(crate) fn emit(&mut self, evq: u16, event: &Event) {
        let evq = self.clamp_evq(evq);
        if !self.offer(evq, event) {
            self.overflow[evq as usize].push_back(*event);
            self.overflowing += 1;
        }
    }

    /// Moves kept events onto their queues as far as there is room.
    pub(crate) fn drain_overflow(&mut self) {
        for evq in 0..self.overflow.len() {
            while let Some(event) = self.overflow[evq].front().copied() {
                if !self.push(evq as u16, &event) {
                    break;
                }
                self.overflow[evq].pop_front();
                self.overflowing -= 1;
            }
        }
    }

    /// Wakes whoever sleeps on a queue that got an event in this turn.
    pub(crate) fn wake_touched(&mut self) -> bool {
        if self.touched.is_empty() {
            return false;
        }
        let before = self.counters.wakes;
        // One fence for all: the events are published before the announcements of sleepers are read.
        self.control.fence();
        for evq in self.touched.drain(..) {
            self.touched_bits[evq as usize / 64] &= !(1 << (evq % 64));
            if self.control.wake(evq as usize) {
                self.counters.wakes += 1;
            }
        }
        self.counters.wakes != before
    }
}

impl Ual {
    /// Lanes whose bell rang are polled again. One word for 64 lanes, read only while lanes are parked.
    #[inline]
    pub(crate) fn take_bells(&mut self) {
        if self.active_lanes.len() < self.geometry.lanes as usize {
            for word in 0..self.geometry.lanes.div_ceil(64) {
                let mut bits = self.control.take_bells(word);
                while bits != 0 {
                    let lane = word * 64 + bits.trailing_zeros();
                    bits &= bits - 1;
                    self.unpark_lane(lane as u16);
                }
            }
        }
    }

    /// The next polled lane from the `from`th on that holds a command; `from` moves past it. Lanes that are found empty are counted, and
    /// parked after `park_after` times.
    #[inline]
    pub(crate) fn next_lane(&mut self, from: &mut usize, park_after: u32) -> Option<u16> {
        while let Some((lane, empty_turns)) = self.active_lanes.get_mut(*from) {
            let lane = *lane;
            let reader = self.control.lane(lane as usize)?;
            if !reader.is_empty() {
                *empty_turns = 0;
                *from += 1;
                return Some(lane);
            }
            if *empty_turns < park_after {
                *empty_turns += 1;
            } else if self.control.park(lane as usize) {
                self.active_lanes.swap_remove(*from);
                continue;
            }
            *from += 1;
        }
        None
    }

    fn unpark_lane(&mut self, lane: u16) {
        // A bell may ring for a lane that is polled already.
        if let Some(reader) = self.control.lane(lane as usize)
            && reader.state() == control::LANE_PARKED
        {
            reader.set_state(control::LANE_ACTIVE);
            self.active_lanes.push((lane, 0));
        }
    }

    /// Ends the application's connection to the agent: it sees that its UAL is over.
    pub(crate) fn disconnect(&self) {
        // It may have gone by itself: nothing is left to do then.
        let _ = rustix::net::shutdown(&self.session, rustix::net::Shutdown::Both);
    }

    /// Whether it broke the rules of shared memory, or its memory vanished.
    pub(crate) fn broke_rules(&self) -> bool {
        self.control.condemned()
            || self.chunks.condemned()
            || self.regions.condemned()
            || self.control.lies().credits > 0
    }

    /// Whether events wait for room on a full queue.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.overflowing > 0 || !self.stalled.is_empty()
    }

    /// The last look before a sleep: whether nothing can be done for this UAL now.
    pub(crate) fn is_quiet(&mut self) -> bool {
        if self.gone || self.condemned {
            return true;
        }
        if self.has_backlog() && !self.starve() {
            return false;
        }
        // While events wait commands are not read, so that they are no reason to stay awake either.
        self.overflowing > 0 || !self.has_commands()
    }

    /// Asks to be woken when a full queue has room again. False when none is full any more.
    fn starve(&mut self) -> bool {
        let mut full = false;
        for evq in 0..self.overflow.len() {
            let is_full = self.control.evq(evq).is_some_and(|lane| lane.free() == 0);
            if is_full {
                // Room that came meanwhile is found after the sleep's time limit at the latest.
                full |= self.control.starve(evq);
            }
        }
        full
    }

    /// Whether a command waits on any lane.
    fn has_commands(&mut self) -> bool {
        (0..self.geometry.lanes as usize).any(|lane| {
            self.control
                .lane(lane)
                .is_some_and(|reader| !reader.is_empty())
        })
    }
}
