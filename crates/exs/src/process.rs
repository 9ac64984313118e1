//! What a process has: queues, memory, the service. A forked child has none of it, until it calls exs_init itself.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};

use rustix::io::Errno;

use crate::memory::Registration;
use crate::queue::{Queue, lock};
use crate::service::Service;
use crate::sys;

/// Everything of this process.
pub(crate) struct Process {
    pub(crate) queues: Table<Queue>,
    pub(crate) memory: Table<Registration>,
    pub(crate) service: Arc<Service>,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(null_mut());
/// One thread makes it at a time.
static MAKING: Mutex<()> = Mutex::new(());

/// This process's; `None` before exs_init.
pub(crate) fn process() -> Option<&'static Process> {
    // SAFETY: what is stored there is never freed.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Makes it, unless it is there.
pub(crate) fn init() -> Result<(), Errno> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| sys::at_fork(before_fork, in_parent, in_child));
    let _making = lock(&MAKING);
    if process().is_some() {
        return Ok(());
    }
    let made = Box::new(Process {
        queues: Table::default(),
        memory: Table::default(),
        service: Service::start()?,
    });
    PROCESS.store(Box::into_raw(made), Ordering::Release);
    Ok(())
}

/// Things by handle: a positive int of place and number of uses, so that a handle is not soon another's.
pub(crate) struct Table<T>(Mutex<Vec<(u16, Option<Arc<T>>)>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

/// Places of a table.
const PLACES: usize = 0xfffe;

fn handle(place: usize, uses: u16) -> i32 {
    i32::from(uses & 0x7fff) << 16 | (place + 1) as i32
}

impl<T> Table<T> {
    /// `NFILE` when it is full.
    pub(crate) fn put(&self, thing: Arc<T>) -> Result<i32, Errno> {
        let mut places = lock(&self.0);
        let free = places.iter().position(|(_, thing)| thing.is_none());
        let place = match free {
            Some(place) => place,
            None if places.len() >= PLACES => return Err(Errno::NFILE),
            None => {
                places.push((0, None));
                places.len() - 1
            }
        };
        let (uses, room) = &mut places[place];
        *uses = uses.wrapping_add(1);
        *room = Some(thing);
        Ok(handle(place, *uses))
    }

    fn place(name: i32) -> Option<usize> {
        usize::try_from(name & 0xffff).ok()?.checked_sub(1)
    }

    /// `BADF` for what is no handle, or no more.
    pub(crate) fn get(&self, name: i32) -> Result<Arc<T>, Errno> {
        let place = Self::place(name).filter(|_| name > 0).ok_or(Errno::BADF)?;
        let places = lock(&self.0);
        let (uses, thing) = places.get(place).ok_or(Errno::BADF)?;
        match thing {
            Some(thing) if handle(place, *uses) == name => Ok(Arc::clone(thing)),
            _ => Err(Errno::BADF),
        }
    }

    /// Takes a thing out, if `may` lets it go.
    pub(crate) fn take(
        &self,
        name: i32,
        may: impl FnOnce(&Arc<T>) -> Result<(), Errno>,
    ) -> Result<Arc<T>, Errno> {
        let place = Self::place(name).filter(|_| name > 0).ok_or(Errno::BADF)?;
        let mut places = lock(&self.0);
        let (uses, thing) = places.get_mut(place).ok_or(Errno::BADF)?;
        if handle(place, *uses) != name {
            return Err(Errno::BADF);
        }
        may(thing.as_ref().ok_or(Errno::BADF)?)?;
        thing.take().ok_or(Errno::BADF)
    }
}

/// Numbers of the library's descriptors.
static KEPT: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// A descriptor of the library's own, which a forked child closes.
pub(crate) struct Kept(Option<OwnedFd>);

impl Kept {
    /// Makes one.
    pub(crate) fn new(make: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        // Held meanwhile, so that no fork comes between.
        let mut kept = lock(&KEPT);
        let fd = make()?;
        kept.push(fd.as_raw_fd());
        Ok(Self(Some(fd)))
    }

    pub(crate) fn number(&self) -> RawFd {
        self.0.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut kept = lock(&KEPT);
        let number = self.number();
        kept.retain(|fd| *fd != number);
        drop(self.0.take());
    }
}

thread_local! {
    /// From before a fork to after it; both are on this thread.
    static HELD: RefCell<Option<MutexGuard<'static, Vec<RawFd>>>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    let _ = HELD.try_with(|held| held.replace(Some(lock(&KEPT))));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(RefCell::take);
}

/// The child has its parent's descriptors, but no thread that serves them.
extern "C" fn in_child() {
    PROCESS.store(null_mut(), Ordering::Release);
    let held = HELD.try_with(RefCell::take).ok().flatten();
    if let Some(mut kept) = held {
        for fd in kept.drain(..) {
            let _ = sys::close(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_what_is_gone_name_nothing() {
        let table = Table::default();
        let first = table.put(Arc::new('a')).unwrap();
        let second = table.put(Arc::new('b')).unwrap();
        assert!(first > 0 && second > 0 && first != second);
        assert_eq!(*table.get(first).unwrap(), 'a');
        let busy = table.take(first, |_| Err(Errno::BUSY));
        assert_eq!(busy.unwrap_err(), Errno::BUSY);
        table.take(first, |_| Ok(())).unwrap();
        let third = table.put(Arc::new('c')).unwrap();
        assert_ne!(first, third, "the place is the same, the handle is not");
        for none in [first, 0, -1, i32::MIN, i32::MAX, third + 5] {
            assert_eq!(table.get(none).unwrap_err(), Errno::BADF, "{none}");
            assert_eq!(table.take(none, |_| Ok(())).unwrap_err(), Errno::BADF);
        }
    }
}
