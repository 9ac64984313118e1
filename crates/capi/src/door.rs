//! What the doorbell's lock guards: the lane to the engine, the DTIs and the regions of a UAL.
//!
//! The paper's UAL has one doorbell queue; so has this one. Whatever a program's threads post is thus executed in the order in which they
//! called, also where one thread makes a DTI and another uses it.

use sidecore_abi::handle::POOL_REGION;
use sidecore_client::{
    Dti, DtiHandle, Event, EventKind, EvqId, Extent, Lane, Operation, PostError, Region, Status,
    Ual,
};

use crate::handle::{Kind, Name, UalName};
use crate::staging::Staging;
use crate::status::Dusi_Status::*;
use crate::status::Outcome;

/// The DTI exists.
const LIVE: u8 = 1;
/// Its Closed event was taken.
const SEEN: u8 = 2;
/// It was closed by a call.
const LEFT: u8 = 4;

#[derive(Clone, Copy, Default)]
struct DtiPlace {
    generation: u32,
    state: u8,
    datagram: bool,
    rx: u16,
    tx: u16,
}

struct RegionPlace {
    generation: u32,
    region: Option<Region>,
}

/// See the module.
pub(crate) struct Door {
    pub(crate) name: UalName,
    pub(crate) ual: Ual,
    pub(crate) lane: Lane,
    pub(crate) staging: Staging,
    /// Calls leave waking the engine to [`Door::flush`].
    manual: bool,
    dtis: Vec<DtiPlace>,
    regions: Vec<RegionPlace>,
    queues: Vec<QueueUse>,
    /// The use of an event queue's place that comes next.
    next_queue: u32,
}

/// What is known of an event queue without taking its own lock.
#[derive(Clone, Copy, Default)]
struct QueueUse {
    /// Present while it is open.
    id: Option<EvqId>,
    generation: u32,
    /// DTIs that name it (each may do so twice), and answers to other calls that are to come.
    uses: u32,
}

impl Door {
    pub(crate) fn new(name: UalName, ual: Ual, lane: Lane, staging: Staging, manual: bool) -> Self {
        let queues = ual.granted().geometry.evqs as usize;
        Self {
            name,
            ual,
            lane,
            staging,
            manual,
            dtis: Vec::new(),
            regions: Vec::new(),
            queues: vec![QueueUse::default(); queues],
            next_queue: 1,
        }
    }

    /// Ends the UAL at the engine, and wakes who sleeps.
    pub(crate) fn disconnect(&self) {
        self.ual.disconnect();
    }

    pub(crate) fn flush(&mut self) {
        self.lane.flush();
    }

    /// After posting: rings, unless the program does.
    #[inline]
    pub(crate) fn posted(&mut self, posted: Result<(), PostError>) -> Outcome {
        if !self.manual || posted.is_err() {
            self.lane.flush();
        }
        Ok(posted?)
    }

    // Event queues.

    /// Enters an event queue, and says which use of its place it is.
    pub(crate) fn open_queue(&mut self, id: EvqId) -> u32 {
        let generation = self.next_queue;
        self.next_queue = self.next_queue.wrapping_add(1);
        if let Some(queue) = self.queues.get_mut(usize::from(id.index())) {
            *queue = QueueUse {
                id: Some(id),
                generation,
                uses: 0,
            };
        }
        generation
    }

    /// Strikes it off, unless it is in use.
    pub(crate) fn close_queue(&mut self, index: u16) -> Outcome {
        let queue = self.queues.get_mut(usize::from(index));
        let queue = queue.ok_or(DUSI_BAD_HANDLE)?;
        if queue.uses > 0 {
            return Err(DUSI_BUSY.into());
        }
        queue.id = None;
        Ok(())
    }

    /// The event queue of this UAL that a handle names.
    pub(crate) fn queue(&self, handle: u64) -> Outcome<EvqId> {
        let name = Name::of(handle, Kind::Evq).filter(|name| name.ual == self.name);
        let (index, generation) = name.ok_or(DUSI_BAD_HANDLE)?.evq();
        let queue = self.queues.get(usize::from(index));
        let queue = queue.filter(|queue| queue.generation == generation);
        queue
            .and_then(|queue| queue.id)
            .ok_or(DUSI_BAD_HANDLE.into())
    }

    /// An answer is to come on the queue, or a DTI names it.
    pub(crate) fn use_queue(&mut self, queue: u16) {
        if let Some(queue) = self.queues.get_mut(usize::from(queue)) {
            queue.uses += 1;
        }
    }

    /// The answer came, or the DTI is no more.
    pub(crate) fn unuse_queue(&mut self, queue: u16) {
        if let Some(queue) = self.queues.get_mut(usize::from(queue)) {
            queue.uses = queue.uses.saturating_sub(1);
        }
    }

    // DTIs.

    /// Enters a DTI that was made.
    pub(crate) fn enter_dti(&mut self, dti: Dti, datagram: bool, rx: u16, tx: u16) -> u64 {
        if self.dtis.len() <= dti.index() {
            self.dtis.resize(dti.index() + 1, DtiPlace::default());
        }
        self.use_queue(rx);
        self.use_queue(tx);
        let generation = dti.generation();
        self.dtis[dti.index()] = DtiPlace {
            generation,
            state: LIVE,
            datagram,
            rx,
            tx,
        };
        self.name.dti(dti.index() as u32, generation)
    }

    #[inline]
    fn place(&self, name: Name) -> Outcome<(Dti, &DtiPlace)> {
        let place = self.dtis.get(name.index() as usize);
        let place = place.filter(|place| place.state & LIVE != 0 && name.is_use(place.generation));
        let place = place.ok_or(DUSI_BAD_HANDLE)?;
        let dti = Dti::from(DtiHandle {
            index: name.index(),
            generation: place.generation,
        });
        Ok((dti, place))
    }

    /// The DTI that a handle names, if no call has closed it.
    #[inline]
    pub(crate) fn dti(&self, name: Name) -> Outcome<Dti> {
        let (dti, place) = self.place(name)?;
        if place.state & LEFT == 0 {
            Ok(dti)
        } else {
            Err(DUSI_BAD_HANDLE.into())
        }
    }

    /// Another DTI of the same UAL.
    pub(crate) fn dti_of(&self, handle: u64) -> Outcome<Dti> {
        let name = Name::of(handle, Kind::Dti).filter(|name| name.ual == self.name);
        self.dti(name.ok_or(DUSI_BAD_HANDLE)?)
    }

    /// The same, also after the close, as long as the connection lingers.
    pub(crate) fn dti_lingering(&self, name: Name) -> Outcome<Dti> {
        Ok(self.place(name)?.0)
    }

    /// Whether it is of datagrams.
    pub(crate) fn is_datagram(&self, dti: Dti) -> bool {
        self.dtis
            .get(dti.index())
            .is_some_and(|place| place.datagram)
    }

    fn mark(&mut self, handle: DtiHandle, flag: u8) {
        let Some(place) = self.dtis.get_mut(handle.index as usize) else {
            return;
        };
        if place.generation != handle.generation || place.state & LIVE == 0 {
            return;
        }
        place.state |= flag;
        if place.state & (SEEN | LEFT) == SEEN | LEFT {
            place.state = 0;
            let (rx, tx) = (place.rx, place.tx);
            self.unuse_queue(rx);
            self.unuse_queue(tx);
        }
    }

    /// A call has closed it.
    pub(crate) fn left(&mut self, dti: Dti) {
        self.mark(dti.handle(), LEFT);
    }

    /// Keeps the books after an event that was taken from `queue`.
    pub(crate) fn settle(&mut self, event: &Event, queue: u16) {
        match event.kind {
            EventKind::Closed => self.mark(event.dti, SEEN),
            EventKind::Registered => self.unuse_queue(queue),
            EventKind::Completion => match Operation::from_raw(event.body[4] as u8) {
                Some(Operation::Nop | Operation::Deregister) => self.unuse_queue(queue),
                Some(Operation::CreateStream | Operation::CreateDatagram)
                    if event.status != Status::Ok =>
                {
                    self.mark(event.dti, SEEN);
                }
                Some(Operation::Close | Operation::Abort) if event.status == Status::BadHandle => {
                    self.mark(event.dti, SEEN);
                }
                _ => {}
            },
            _ => {}
        }
    }

    // Regions.

    /// Enters a region that was registered.
    pub(crate) fn enter_region(&mut self, region: Region) -> u64 {
        let free = self.regions.iter().position(|place| place.region.is_none());
        let index = free.unwrap_or(self.regions.len());
        if free.is_none() {
            self.regions.push(RegionPlace {
                generation: 0,
                region: None,
            });
        }
        let place = &mut self.regions[index];
        place.generation = place.generation.wrapping_add(1);
        place.region = Some(region);
        self.name.region(index as u32, place.generation)
    }

    #[inline]
    fn region(&self, name: Name) -> Outcome<&Region> {
        let place = self.regions.get(name.index() as usize);
        let place = place.filter(|place| name.is_use(place.generation));
        let region = place.and_then(|place| place.region.as_ref());
        region.ok_or(DUSI_BAD_HANDLE.into())
    }

    /// The region that a handle names.
    pub(crate) fn named_region(&self, name: Name) -> Outcome<Region> {
        self.region(name).cloned()
    }

    /// Lets a region go here: its handle means nothing any more, and its memory is unmapped.
    pub(crate) fn leave_region(&mut self, name: Name) {
        if let Some(place) = self.regions.get_mut(name.index() as usize)
            && name.is_use(place.generation)
        {
            place.region = None;
        }
    }

    /// The piece of a region (or, for sends, of the receive pool) that begins at an address of this process.
    #[inline]
    pub(crate) fn extent(&self, handle: u64, address: usize, len: usize) -> Outcome<Extent> {
        let (id, base, whole) = if let Some(name) = Name::of(handle, Kind::Region) {
            if name.ual != self.name {
                return Err(DUSI_BAD_HANDLE.into());
            }
            let region = self.region(name)?;
            (region.id(), region.memory().as_ptr().addr(), region.len())
        } else {
            let name = Name::of(handle, Kind::Chunk).filter(|name| name.ual == self.name);
            name.and_then(Name::chunk).ok_or(DUSI_BAD_HANDLE)?;
            let pool = self.ual.pool();
            (POOL_REGION, pool.memory().as_ptr().addr(), pool.len())
        };
        let offset = address.checked_sub(base).ok_or(DUSI_BAD_EXTENT)? as u64;
        let end = offset.checked_add(len as u64).ok_or(DUSI_BAD_EXTENT)?;
        let len = u32::try_from(len).map_err(|_| DUSI_BAD_ARGUMENT)?;
        if end > whole {
            return Err(DUSI_BAD_EXTENT.into());
        }
        Ok(Extent {
            region: id,
            len,
            offset,
        })
    }

    /// The same for bytes that are to be received: a writable region.
    pub(crate) fn buffer(&self, handle: u64, address: usize, len: usize) -> Outcome<Extent> {
        let name = Name::of(handle, Kind::Region).ok_or(DUSI_BAD_HANDLE)?;
        let extent = self.extent(handle, address, len)?;
        if len == 0 {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        if self.region(name)?.is_writable() {
            Ok(extent)
        } else {
            Err(DUSI_BAD_EXTENT.into())
        }
    }
}
