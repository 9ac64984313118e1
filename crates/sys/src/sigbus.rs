//! What happens when memory that a stranger shares vanishes under the engine.
//!
//! A sealed memfd cannot be cut short, but its pages can still be missing: a hole was punched and no page is to be had (huge
//! pages, a full memory group), or the hardware lost one. Touching such a page raises SIGBUS. For mappings registered here the handler
//! puts private zeros in place of the *whole* mapping, so that each mapping costs one signal at most, and condemns it; whoever was reading
//! goes on with zeros, sees [`Registration::condemned`] in time and lets go. Any other SIGBUS goes to whoever handled it before.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use crate::Mmap;

/// Mappings that can be registered at a time.
pub const REGISTRATIONS_MAX: usize = 1 << 15;

/// One registered mapping. A reader (the handler) takes `start` and `end` as of one time only when `version` is even and
/// the same before and after.
struct Slot {
    taken: AtomicBool,
    version: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    condemned: AtomicBool,
}

impl Slot {
    const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            version: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            condemned: AtomicBool::new(false),
        }
    }

    /// Only by who holds `taken`.
    fn set(&self, start: usize, end: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    /// The range, if it holds this address.
    fn range_with(&self, address: usize) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let same = self.version.load(Ordering::Relaxed) == version && version.is_multiple_of(2);
        (same && (start..end).contains(&address)).then_some((start, end))
    }
}

static SLOTS: [Slot; REGISTRATIONS_MAX] = [const { Slot::new() }; REGISTRATIONS_MAX];
/// Slots beyond this one were never used.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicU64 = AtomicU64::new(0);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that is watched, until this is dropped: before the mapping is.
#[derive(Debug)]
pub struct Registration {
    slot: usize,
}

impl Registration {
    /// Whether the memory vanished. Once true it stays so, and all bytes of the mapping are the process's own.
    #[inline]
    pub fn condemned(&self) -> bool {
        SLOTS[self.slot].condemned.load(Ordering::Relaxed)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let slot = &SLOTS[self.slot];
        slot.set(0, 0);
        slot.taken.store(false, Ordering::Release);
    }
}

/// How many faults were met so far in this process.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// Installs the handler, once for the process; further calls do nothing.
pub fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Option<i32>> = OnceLock::new();
    let failed = INSTALLED.get_or_init(|| install_handler().err().and_then(|e| e.raw_os_error()));
    match failed {
        None => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(*code)),
    }
}

fn install_handler() -> io::Result<()> {
    let mut previous = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only reads the present action into `previous`, which is large enough.
    crate::check(unsafe {
        libc::sigaction(libc::SIGBUS, std::ptr::null(), previous.as_mut_ptr())
    })?;
    // SAFETY: zeroed, then filled by the call above.
    let _ = PREVIOUS.set(unsafe { previous.assume_init() });
    // SAFETY: all-zero is a valid sigaction (no flags, empty mask, SIG_DFL).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `handle` has the signature that SA_SIGINFO asks for and does only what a signal handler may.
    crate::check(unsafe {
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut())
    })?;
    Ok(())
}

/// Watches a mapping and installs the handler if that was not done. `OutOfMemory` when [`REGISTRATIONS_MAX`] are watched already.
/// The registration must be dropped before the mapping; [`Watched`] keeps both in order.
pub fn register(mapping: &Mmap) -> io::Result<Registration> {
    install()?;
    let start = mapping.as_ptr() as usize;
    for (number, slot) in SLOTS.iter().enumerate() {
        let free = slot
            .taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            continue;
        }
        HIGHEST.fetch_max(number + 1, Ordering::AcqRel);
        slot.condemned.store(false, Ordering::Relaxed);
        slot.set(start, start + mapping.len());
        return Ok(Registration { slot: number });
    }
    Err(io::Error::new(
        io::ErrorKind::OutOfMemory,
        "too many shared mappings",
    ))
}

/// A mapping that is watched for all its life.
#[derive(Debug)]
pub struct Watched {
    // Dropped in this order.
    registration: Registration,
    mapping: Mmap,
}

impl Watched {
    /// Watches a mapping; see [`register`].
    pub fn new(mapping: Mmap) -> io::Result<Self> {
        let registration = register(&mapping)?;
        Ok(Self {
            registration,
            mapping,
        })
    }

    /// The mapping.
    #[inline]
    pub fn mapping(&self) -> &Mmap {
        &self.mapping
    }

    /// Whether its memory vanished.
    #[inline]
    pub fn condemned(&self) -> bool {
        self.registration.condemned()
    }
}

/// The handler: async-signal-safe calls only (mmap, sigaction, raise), no lock, no allocation; errno is kept.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // Codes above 0 come from the kernel: a real fault. Others were sent by a process and have no address.
    if code > 0 && replace(address) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        return;
    }
    pass_on(signal, info, context);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn replace(address: usize) -> bool {
    let used = HIGHEST.load(Ordering::Acquire).min(REGISTRATIONS_MAX);
    let found = SLOTS[..used]
        .iter()
        .find_map(|slot| Some((slot, slot.range_with(address)?)));
    let Some((slot, (start, end))) = found else {
        return false;
    };
    slot.condemned.store(true, Ordering::Relaxed);
    FAULTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the range is one registered mapping, alive because a thread of this process is touching it; it holds no Rust
    // reference but atomics, to which zeros are a value. MAP_FIXED swaps it in one step.
    let mapped = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            end - start,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

/// Not ours: whoever handled it before gets it; the default action is restored and the fault happens again, or is raised again.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(previous) = PREVIOUS.get() else {
        return;
    };
    match previous.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // SAFETY: restores an action that the system gave us; raising a blocked signal only marks it pending.
            unsafe {
                libc::sigaction(signal, previous, std::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: the system says that this is such a function.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the system says that this is such a function.
            let handler =
                unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memfd;

    #[test]
    fn vanished_memory_reads_as_zeros_and_is_condemned() {
        let memory = Memfd::create("vanishing", 3 * 4096, false).unwrap();
        let watched = Watched::new(Mmap::shared(&memory, 3 * 4096, true, false).unwrap()).unwrap();
        let other = Watched::new(Mmap::shared(&memory, 4096, true, false).unwrap()).unwrap();
        let at = watched.mapping().as_ptr();
        let before = faults();
        // SAFETY: inside the mapping; the accesses are volatile because the memory changes behind the compiler's back.
        unsafe {
            at.add(5000).write_volatile(9);
            // Not sealed, so that it can be cut: the simplest way to a page that cannot be had.
            rustix::fs::ftruncate(&memory, 4096).unwrap();
            assert_eq!(at.add(5000).read_volatile(), 0);
            assert!(watched.condemned() && faults() > before);
            at.add(9000).write_volatile(1);
            at.write_volatile(1);
            assert_eq!(at.add(9000).read_volatile(), 1);
        }
        assert!(!other.condemned(), "only the one that was touched");
        drop(watched);
        let again = register(other.mapping()).unwrap();
        assert!(!again.condemned(), "a slot's next user starts clean");
    }

    #[test]
    fn a_range_is_read_whole_or_not_at_all() {
        let slot = Slot::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..20_000 {
                    slot.set(
                        if i % 2 == 0 { 1000 } else { 5000 },
                        if i % 2 == 0 { 2000 } else { 6000 },
                    );
                }
                stop.store(true, Ordering::Relaxed);
            });
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(slot.range_with(3000), None, "a mix of two ranges");
                if let Some(range) = slot.range_with(1500) {
                    assert_eq!(range, (1000, 2000));
                }
            }
        });
    }

    fn free_huge_pages() -> u64 {
        let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
        std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    }

    /// The one way in which memory that is sealed in size can vanish while there is memory enough.
    #[test]
    fn huge_pages_that_somebody_else_took() {
        const PAGE: u64 = 2 << 20;
        let free = free_huge_pages();
        if free < 2 {
            eprintln!("skipped: needs two free huge pages (vm.nr_hugepages)");
            return;
        }
        let memory = Memfd::create("huge", PAGE, true).unwrap();
        memory.seal_size().unwrap();
        assert_eq!(crate::check_sealed(&memory).unwrap(), PAGE);
        assert!(Mmap::shared(&memory, 4096, true, false).is_err());
        let watched = Watched::new(Mmap::shared(&memory, PAGE as usize, true, false).unwrap());
        let watched = watched.unwrap();
        let at = watched.mapping().as_ptr();
        // SAFETY: inside the mapping.
        unsafe { at.write_volatile(7) };
        let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&memory, hole, 0, PAGE).unwrap();
        let rest = Memfd::create("rest", free * PAGE, true).unwrap();
        let rest = Mmap::shared(&rest, (free * PAGE) as usize, true, false).unwrap();
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { at.add(100).read_volatile() }, 0);
        assert!(watched.condemned());
        drop(rest);
    }
}
