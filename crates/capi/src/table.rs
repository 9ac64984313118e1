//! The UALs of this process, where handles are looked up.
//!
//! A place in the table is never given back to the system, so that looking one up needs no lock and a stale handle meets memory that is
//! still a place. What is in it is behind locks: one for the doorbell queue (with DTIs and regions), one for each event queue. A thread that
//! holds an event queue may take the doorbell's lock, never the other way round; several event queues are taken in ascending order.
//!
//! A forked child finds its parent's places as they were, with locks that nobody may hold any more. It is told so before it touches one.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError, TryLockError};

use crate::door::Door;
use crate::handle::{Kind, Name, UALS, UalName};
use crate::queue::Queue;
use crate::status::Dusi_Status::*;
use crate::status::Outcome;

/// Event queues of a UAL.
pub(crate) const QUEUES: usize = 512;

/// A place for a UAL.
pub(crate) struct Slot {
    /// [`FORKS`] when the UAL was opened.
    forks: AtomicU32,
    door: Mutex<Option<Door>>,
    queues: [OnceLock<Box<QueueSlot>>; QUEUES],
}

/// A place for an event queue.
pub(crate) struct QueueSlot {
    /// A thread holds the lock for long.
    asleep: AtomicBool,
    queue: Mutex<Option<Queue>>,
}

/// Forks between the first process of this memory and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Which places are taken.
static TAKEN: [AtomicBool; UALS] = [const { AtomicBool::new(false) }; UALS];
/// How often each was taken.
static USES: [AtomicU8; UALS] = [const { AtomicU8::new(0) }; UALS];
static SLOTS: [OnceLock<Box<Slot>>; UALS] = [const { OnceLock::new() }; UALS];
/// Where the search for a free place begins: the one that was free for longest is taken.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Async-signal-safe, as what runs in a forked child must be.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler stays where it is (the library is never unloaded), and only counts.
        // It fails only for lack of memory; then a child's calls are not told apart, which the header forbids anyway.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Takes a free place, and puts there what `make` makes.
pub(crate) fn open(make: impl FnOnce(UalName) -> Outcome<Door>) -> Outcome<UalName> {
    watch_forks();
    let start = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
    let free = |place: &usize| {
        TAKEN[*place]
            .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    let place = (0..UALS).map(|i| (start + i) % UALS).find(free);
    let place = place.ok_or(DUSI_EXHAUSTED)?;
    let _unclaim = Unclaim(Some(place));
    let name = UalName {
        place: place as u16,
        // Not 0 at first, so that small numbers are no handles.
        generation: USES[place].fetch_add(1, Ordering::Relaxed).wrapping_add(1),
    };
    let door = make(name)?;
    let slot = SLOTS[place].get_or_init(|| {
        Box::new(Slot {
            forks: AtomicU32::new(0),
            door: Mutex::new(None),
            queues: [const { OnceLock::new() }; QUEUES],
        })
    });
    slot.forks
        .store(FORKS.load(Ordering::Relaxed), Ordering::Relaxed);
    *lock(&slot.door) = Some(door);
    std::mem::forget(_unclaim);
    Ok(name)
}

/// Gives a place back, unless it is forgotten.
struct Unclaim(Option<usize>);

impl Drop for Unclaim {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            TAKEN[place].store(false, Ordering::Release);
        }
    }
}

/// Empties a place: wakes who sleeps there, and drops everything.
pub(crate) fn close(handle: u64) -> Outcome {
    let name = Name::of(handle, Kind::Ual).filter(|name| name.is_whole());
    let name = name.ok_or(DUSI_BAD_HANDLE)?.ual;
    let slot = find(name)?;
    let door = {
        let mut door = lock(&slot.door);
        door.take_if(|door| door.name == name)
            .ok_or(DUSI_BAD_HANDLE)?
    };
    door.disconnect();
    for place in &slot.queues {
        let Some(place) = place.get() else { continue };
        // A sleeper is on its way out.
        let mut queue = lock(&place.queue);
        drop(queue.take());
    }
    drop(door);
    TAKEN[usize::from(name.place)].store(false, Ordering::Release);
    Ok(())
}

#[inline]
fn find(name: UalName) -> Outcome<&'static Slot> {
    let slot = SLOTS.get(usize::from(name.place)).and_then(OnceLock::get);
    let slot = slot.ok_or(DUSI_BAD_HANDLE)?;
    if slot.forks.load(Ordering::Relaxed) == FORKS.load(Ordering::Relaxed) {
        Ok(slot)
    } else {
        Err(DUSI_FORKED.into())
    }
}

#[inline]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left behind is as whole as the engine's own checks of it make it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `act` on the UAL that a handle of this kind belongs to.
#[inline]
pub(crate) fn with_door<T>(
    handle: u64,
    kind: Kind,
    act: impl FnOnce(&mut Door, Name) -> Outcome<T>,
) -> Outcome<T> {
    let name = Name::of(handle, kind).ok_or(DUSI_BAD_HANDLE)?;
    let slot = find(name.ual)?;
    let mut door = lock(&slot.door);
    match &mut *door {
        Some(door) if door.name == name.ual => act(door, name),
        _ => Err(DUSI_BAD_HANDLE.into()),
    }
}

/// The same, named by the UAL's own handle.
#[inline]
pub(crate) fn with_ual<T>(handle: u64, act: impl FnOnce(&mut Door) -> Outcome<T>) -> Outcome<T> {
    with_door(handle, Kind::Ual, |door, name| {
        if !name.is_whole() {
            return Err(DUSI_BAD_HANDLE.into());
        }
        act(door)
    })
}

/// Runs `act` on the UAL by its name; false when it has gone meanwhile.
pub(crate) fn with_name(name: UalName, act: impl FnOnce(&mut Door)) -> bool {
    let Ok(slot) = find(name) else { return false };
    match &mut *lock(&slot.door) {
        Some(door) if door.name == name => {
            act(door);
            true
        }
        _ => false,
    }
}

/// The lock of an event queue that nobody sleeps on.
fn lock_awake(slot: &QueueSlot) -> Outcome<MutexGuard<'_, Option<Queue>>> {
    loop {
        match slot.queue.try_lock() {
            Ok(queue) => return Ok(queue),
            Err(TryLockError::Poisoned(queue)) => return Ok(queue.into_inner()),
            Err(TryLockError::WouldBlock) if slot.asleep.load(Ordering::Acquire) => {
                return Err(DUSI_BUSY.into());
            }
            // Somebody takes an event at this moment.
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

fn queue_slot(name: Name) -> Outcome<&'static QueueSlot> {
    let slot = find(name.ual)?;
    let place = slot.queues.get(usize::from(name.evq().0));
    let place = place.and_then(OnceLock::get).ok_or(DUSI_BAD_HANDLE)?;
    Ok(place)
}

fn check(queue: &mut Option<Queue>, name: Name) -> Outcome<&mut Queue> {
    let queue = queue.as_mut().filter(|queue| queue.is(name));
    queue.ok_or(DUSI_BAD_HANDLE.into())
}

/// Runs `act` on an event queue.
#[inline]
pub(crate) fn with_queue<T>(handle: u64, act: impl FnOnce(&mut Queue) -> Outcome<T>) -> Outcome<T> {
    let name = Name::of(handle, Kind::Evq).ok_or(DUSI_BAD_HANDLE)?;
    let mut queue = lock_awake(queue_slot(name)?)?;
    act(check(&mut queue, name)?)
}

/// Puts a new event queue into its place.
pub(crate) fn put_queue(name: UalName, index: u16, queue: Queue) -> Outcome {
    let slot = find(name)?;
    let place = slot.queues.get(usize::from(index)).ok_or(DUSI_INTERNAL)?;
    let place = place.get_or_init(|| {
        Box::new(QueueSlot {
            asleep: AtomicBool::new(false),
            queue: Mutex::new(None),
        })
    });
    *lock(&place.queue) = Some(queue);
    Ok(())
}

/// Takes an event queue out of its place, once `act` agrees.
pub(crate) fn take_queue(handle: u64, act: impl FnOnce(&mut Queue) -> Outcome) -> Outcome {
    let name = Name::of(handle, Kind::Evq).ok_or(DUSI_BAD_HANDLE)?;
    let mut place = lock_awake(queue_slot(name)?)?;
    act(check(&mut place, name)?)?;
    drop(place.take());
    Ok(())
}

/// Runs `act`, which may sleep, on several event queues of one UAL; other threads that want one of them are told [`DUSI_BUSY`] meanwhile.
pub(crate) fn with_queues_asleep<T>(
    handles: &[u64],
    act: impl FnOnce(&mut [&mut Queue]) -> Outcome<T>,
) -> Outcome<T> {
    let names = handles.iter().map(|handle| Name::of(*handle, Kind::Evq));
    let mut names = names.collect::<Option<Vec<_>>>().ok_or(DUSI_BAD_HANDLE)?;
    names.sort_by_key(|name| name.evq());
    names.dedup();
    if names.windows(2).any(|two| two[0].ual != two[1].ual) {
        return Err(DUSI_BAD_ARGUMENT.into());
    }
    let slots = names.iter().map(|name| queue_slot(*name));
    let slots = slots.collect::<Outcome<Vec<_>>>()?;
    let guards = slots.iter().map(|slot| lock_awake(slot));
    let mut guards = guards.collect::<Outcome<Vec<_>>>()?;
    let queues = guards.iter_mut().zip(&names);
    let queues = queues.map(|(queue, name)| check(queue, *name));
    let mut queues = queues.collect::<Outcome<Vec<_>>>()?;
    let _awake = Asleep::new(&slots);
    act(&mut queues)
}

/// Says that event queues are slept on, until it is dropped.
struct Asleep<'a>(&'a [&'static QueueSlot]);

impl<'a> Asleep<'a> {
    fn new(slots: &'a [&'static QueueSlot]) -> Self {
        for slot in slots {
            slot.asleep.store(true, Ordering::Release);
        }
        Self(slots)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        for slot in self.0 {
            slot.asleep.store(false, Ordering::Release);
        }
    }
}
