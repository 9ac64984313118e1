//! Everything between the stack and the applications: UALs, DTIs, descriptors. The stack calls into it (as its `Host`)
//! and commands change it; it never calls the stack itself: what the stack has to be told waits on the dirty list.

pub(crate) mod acknowledge;
mod budget;
pub(crate) mod copies;
pub(crate) mod custody;
pub(crate) mod datagram;
pub(crate) mod datagram_error;
pub(crate) mod deliver;
pub(crate) mod dirty;
pub(crate) mod end;
pub(crate) mod frame;
pub(crate) mod heirs;
pub(crate) mod holders;
pub(crate) mod incoming;
pub(crate) mod lowat;
pub(crate) mod moved;
pub(crate) mod shared;
pub(crate) mod store;

use sidecore_abi::event::Event;
use sidecore_abi::{DtiHandle, EventKind, Extent, RegionId, Status};

use crate::config::{EngineConfig, Policy};
use crate::dti::receive::{Piece, PostedReceive};
use crate::dti::table::DtiTable;
use crate::dti::transmit::TxDescriptor;
use crate::dti::{Dti, PostedAccept, flag};
use crate::slab_list::ListPool;
use crate::ual::Ual;
use copies::CopyArena;
use moved::MovedBytes;

/// Counters that belong to no UAL.
#[derive(Debug, Default, Clone, serde::Serialize)]
pub(crate) struct TableCounters {
    /// Frames that the internal loopback carried.
    pub(crate) loopback_frames: u64,
    /// Loopback frames whose sender had gone.
    pub(crate) loopback_stale: u64,
    /// Segments whose payload could not be gathered (sent as zeros never happens: they are not sent).
    pub(crate) gather_failed: u64,
    /// Times that a SYN or the end of a handshake found an accept queue (or a table) full: each was dropped as if it had been
    /// lost, and comes again.
    pub(crate) accept_queue_full: u64,
    /// Out-of-order pieces that could not be kept.
    pub(crate) pieces_refused: u64,
    /// Connections that were given from one UAL to another.
    pub(crate) moved: u64,
    /// Connections that no program had taken, and that went on to another copy of their listener.
    pub(crate) gone_on: u64,
    /// UALs condemned.
    pub(crate) condemned: u64,
    /// Times that a UAL's commands used up its budget of a turn: the rest had to wait for the next.
    pub(crate) budgets_used_up: u64,
}

/// The tables.
pub(crate) struct Tables {
    pub(crate) uals: Vec<Option<Ual>>,
    pub(crate) dtis: DtiTable,
    pub(crate) tx: ListPool<TxDescriptor>,
    pub(crate) pieces: ListPool<Piece>,
    /// What the segment that is being handled brought, between its store and its event.
    pub(crate) fresh: Option<Piece>,
    pub(crate) posted: ListPool<PostedReceive>,
    pub(crate) accepts: ListPool<PostedAccept>,
    pub(crate) datagrams: ListPool<datagram::Outgoing>,
    /// Datagram sockets that have something to send.
    pub(crate) datagram_senders: Vec<u32>,
    /// Datagram sockets that were closed while something was queued.
    pub(crate) datagram_closing: Vec<u32>,
    pub(crate) copies: CopyArena,
    /// What connections had in flight when they changed their UAL.
    pub(crate) moved: MovedBytes,
    /// Numbers of connections that several processes hold, as the agent knows.
    pub(crate) shared_numbers: std::collections::HashSet<u64>,
    /// Slot of the UAL that carries what several processes hold.
    pub(crate) custodian: Option<u32>,
    /// Memory for the list of a vectored send while it is executed; empty else.
    pub(crate) extents: Vec<Extent>,
    /// DTIs about which the stack has to be told something.
    pub(crate) dirty: Vec<u32>,
    /// DTIs that are to hear when little of theirs waits unsent.
    pub(crate) lowat: Vec<u32>,
    /// Regions that are gone: the agent may use their ids again.
    pub(crate) regions_gone: Vec<(u64, RegionId)>,
    pub(crate) policy: Policy,
    pub(crate) counters: TableCounters,
    /// Listeners that more than one DTI may have.
    pub(crate) shared_listeners: Vec<shared::SharedListener>,
    /// UDP sockets that more than one DTI may have.
    pub(crate) sockets: holders::SharedSockets,
    /// Number of the next connection that comes in on one of them.
    pub(crate) next_arrival: u64,
    /// The engine is about to end: nothing new is opened.
    pub(crate) stopping: bool,
}

impl Tables {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let descriptors = config.policy.descriptors.saturating_mul(2);
        Self {
            uals: Vec::new(),
            dtis: DtiTable::new(config.connections.saturating_mul(2)),
            tx: ListPool::new(descriptors),
            pieces: ListPool::new(descriptors),
            fresh: None,
            posted: ListPool::new(descriptors),
            accepts: ListPool::new(descriptors),
            datagrams: ListPool::new(descriptors),
            datagram_senders: Vec::new(),
            datagram_closing: Vec::new(),
            copies: CopyArena::new(descriptors),
            moved: MovedBytes::default(),
            shared_numbers: std::collections::HashSet::new(),
            custodian: None,
            extents: Vec::with_capacity(sidecore_abi::control::limits::LIST as usize),
            dirty: Vec::with_capacity(1024),
            lowat: Vec::new(),
            regions_gone: Vec::new(),
            policy: config.policy.clone(),
            counters: TableCounters::default(),
            shared_listeners: Vec::new(),
            sockets: holders::SharedSockets::default(),
            next_arrival: 1,
            stopping: false,
        }
    }

    /// A UAL by slot.
    #[inline]
    pub(crate) fn ual(&mut self, slot: u32) -> Option<&mut Ual> {
        self.uals.get_mut(slot as usize)?.as_mut()
    }

    /// The slot of the UAL with this number.
    pub(crate) fn slot_of_ual(&self, id: u64) -> Option<u32> {
        let mut uals = self.uals.iter();
        let has = |ual: &Option<Ual>| ual.as_ref().is_some_and(|ual| ual.id == id && !ual.gone);
        uals.position(has).map(|slot| slot as u32)
    }

    /// The slot of the DTI that a handle of this UAL names.
    #[inline]
    pub(crate) fn find(&self, ual: u32, handle: DtiHandle) -> Option<u32> {
        let slot = self
            .uals
            .get(ual as usize)?
            .as_ref()?
            .slot_of(handle.index)?;
        (self.dtis.get(slot)?.handle == handle).then_some(slot)
    }

    /// Puts a DTI onto the dirty list.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, slot: u32) {
        if let Some(dti) = self.dtis.get_mut(slot)
            && !dti.has(flag::DIRTY)
        {
            dti.flags |= flag::DIRTY;
            self.dirty.push(slot);
        }
    }

    /// Remembers that a DTI has events for a queue that is full.
    pub(crate) fn mark_stalled(&mut self, slot: u32) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        if !dti.has(flag::STALLED)
            && let Some(Some(ual)) = self.uals.get_mut(dti.ual as usize)
        {
            dti.flags |= flag::STALLED;
            ual.stalled.push_back(slot);
        }
    }

    /// An event for the application of a DTI; nothing when it has none.
    pub(crate) fn emit(&mut self, ual: u32, evq: u16, event: &Event) {
        if let Some(ual) = self.ual(ual) {
            ual.emit(evq, event);
        }
    }

    /// Takes a DTI that the application never named, or names no more, out of all tables.
    pub(crate) fn remove_dti(&mut self, slot: u32) {
        self.drop_receive_side(slot);
        self.drop_transmit_side(slot);
        self.drop_datagrams(slot);
        let Some(dti) = self.dtis.remove(slot) else {
            return;
        };
        if let Some(ual) = self.ual(dti.ual) {
            if dti.is_named() {
                ual.unname(dti.handle);
            } else {
                ual.waiting = ual.waiting.saturating_sub(1);
            }
            ual.dtis = ual.dtis.saturating_sub(1);
            ual.descriptors = ual.descriptors.saturating_sub(dti.descriptors);
        }
    }

    /// Makes a DTI for a UAL, under a name of the application's or as a connection that waits to be accepted. `Err` says which
    /// limit it met.
    pub(crate) fn create(
        &mut self,
        ual_slot: u32,
        named: bool,
        make: impl FnOnce(u32) -> Dti,
    ) -> Result<u32, Status> {
        let ual = self.ual(ual_slot).ok_or(Status::BadHandle)?;
        // Each kind has the limit for itself: peers that connect must not use up the handles with which they are accepted.
        let used = if named {
            ual.dtis - ual.waiting
        } else {
            ual.waiting
        };
        if used >= ual.dti_limit {
            return Err(Status::NoResources);
        }
        let slot = self.dtis.insert(make).ok_or(Status::NoResources)?;
        if let Some(ual) = self.ual(ual_slot) {
            ual.dtis += 1;
            ual.waiting += u32::from(!named);
        }
        Ok(slot)
    }

    /// One descriptor less.
    #[inline]
    pub(crate) fn end_descriptor(&mut self, slot: u32) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        dti.descriptors = dti.descriptors.saturating_sub(1);
        if let Some(Some(ual)) = self.uals.get_mut(dti.ual as usize) {
            ual.descriptors = ual.descriptors.saturating_sub(1);
        }
    }

    /// One descriptor more, unless a limit is met.
    #[inline]
    pub(crate) fn begin_descriptor(&mut self, slot: u32) -> Result<(), Status> {
        let policy = (self.policy.descriptors_per_dti, self.policy.descriptors);
        let Some(dti) = self.dtis.get_mut(slot) else {
            return Err(Status::BadHandle);
        };
        if dti.descriptors >= policy.0 {
            return Err(Status::QueueFull);
        }
        if let Some(Some(ual)) = self.uals.get_mut(dti.ual as usize) {
            if ual.descriptors >= policy.1 {
                return Err(Status::NoResources);
            }
            ual.descriptors += 1;
        }
        dti.descriptors += 1;
        Ok(())
    }

    /// Ends one use of a region and answers its Deregister if that was the last.
    pub(crate) fn end_region_use(&mut self, ual_slot: u32, region: u32) {
        let Some(Some(ual)) = self.uals.get_mut(ual_slot as usize) else {
            return;
        };
        if let Some(gone) = ual.regions.end_use(region) {
            region_gone(ual, gone, &mut self.regions_gone);
        }
    }
}

/// The last use of a region that was to leave has ended: answers its Deregister.
#[cold]
pub(crate) fn region_gone(
    ual: &mut Ual,
    (id, cookie, evq): (RegionId, u64, u16),
    regions_gone: &mut Vec<(u64, RegionId)>,
) {
    let event = Event::new(
        EventKind::Completion,
        DtiHandle::default(),
        cookie,
        Status::Ok,
    );
    let event = completion_of(event, sidecore_abi::Operation::Deregister);
    ual.emit(evq, &event);
    regions_gone.push((ual.id, id));
}

/// Writes the operation's number where completions carry it.
pub(crate) fn completion_of(mut event: Event, operation: sidecore_abi::Operation) -> Event {
    event.body[4] = operation as u64;
    event
}
