//! What one process has. A forked child gets another, and opens its own UAL at first use.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sidecore_client::{Death, Sockets, SocketsConfig, Ual, UalConfig};

use crate::config::{Addresses, Config, NoEngine, Take};
use crate::descriptors::Stash;
use crate::kick::WAKES;
use crate::lent::Loans;
use crate::socket::custody::recalled;
use crate::table::{Table, Thing, lock};
use crate::{cancel, log, sys};

/// Numbers that can be kept from the program.
const KEPT: usize = 65536;

/// How long an engine that could not be reached is not asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// The engine, as this process has it.
pub(crate) struct Link {
    pub(crate) sockets: Sockets,
    pub(crate) ual: Ual,
    /// Number of the descriptor on which the event queue is slept on.
    rest: RawFd,
    /// Tells it from others of this process.
    pub(crate) serial: u64,
}

#[derive(Default)]
struct Opening {
    link: Option<Arc<Link>>,
    failed: Option<Instant>,
    told: bool,
}

/// Everything of one process.
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) table: Box<Table>,
    pub(crate) stash: Stash,
    addresses: Mutex<(Option<Arc<Addresses>>, Option<Instant>)>,
    opening: Mutex<Opening>,
    kept: Box<[AtomicU64]>,
    pub(crate) loans: Loans,
    /// Forks, and programs that were started otherwise.
    forks: AtomicU32,
    spawns: AtomicU32,
    /// The last child of vfork that executed something.
    visitor: AtomicU32,
    /// The agent knows that others may hold what is here.
    spread: AtomicBool,
    /// Sockets listen at the engine, or did at one that is gone.
    listens: AtomicBool,
    /// Those have not been told of the present engine.
    listeners_due: AtomicBool,
    /// How often they were.
    renewals: AtomicU64,
    /// All descriptors are the system's from here on.
    aside: AtomicBool,
}

/// How many links there were before.
static LINKS: AtomicU64 = AtomicU64::new(0);

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(null_mut());

/// This process's. Made at the first call; never freed.
pub(crate) fn process() -> &'static Process {
    let known = PROCESS.load(Ordering::Acquire);
    // SAFETY: what is stored there is never freed.
    if let Some(process) = unsafe { known.as_ref() } {
        return process;
    }
    let made = Box::into_raw(Box::new(Process::new()));
    let stored = PROCESS.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
    match stored {
        Ok(_) => {
            crate::fork::install();
            // SAFETY: it was just made, and is never freed.
            unsafe { &*made }
        }
        Err(other) => {
            // SAFETY: `made` is ours alone; `other` is never freed.
            unsafe {
                drop(Box::from_raw(made));
                &*other
            }
        }
    }
}

/// This process's, if anything was ever put there: for calls that need not make one.
#[inline]
pub(crate) fn existing() -> Option<&'static Process> {
    // SAFETY: what is stored there is never freed.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// In a forked child: begins anew, and gives the parent's and the new.
pub(crate) fn renew() -> Option<(&'static Process, &'static Process)> {
    let old = existing()?;
    let new = Process::new();
    new.aside.store(old.is_aside(), Ordering::Relaxed);
    let new: &'static Process = Box::leak(Box::new(new));
    PROCESS.store(std::ptr::from_ref(new).cast_mut(), Ordering::Release);
    Some((old, new))
}

impl Process {
    fn new() -> Self {
        Self {
            pid: std::process::id(),
            table: Table::new(),
            stash: Stash::default(),
            addresses: Mutex::new((None, None)),
            opening: Mutex::new(Opening::default()),
            kept: (0..KEPT / 64).map(|_| AtomicU64::new(0)).collect(),
            loans: Loans::default(),
            forks: AtomicU32::new(0),
            spawns: AtomicU32::new(0),
            visitor: AtomicU32::new(0),
            spread: AtomicBool::new(false),
            listens: AtomicBool::new(false),
            listeners_due: AtomicBool::new(false),
            renewals: AtomicU64::new(0),
            aside: AtomicBool::new(false),
        }
    }

    /// What a descriptor of the program's is.
    #[inline]
    pub(crate) fn get(&self, fd: RawFd) -> Option<Thing> {
        self.table.get(fd)
    }

    /// Whose addresses are whose; `None` when the engine cannot be asked. Asked again after a second at the earliest.
    pub(crate) fn addresses(&self) -> Option<Arc<Addresses>> {
        let mut known = lock(&self.addresses);
        let fresh = known.1.is_some_and(|at| at.elapsed() < PAUSE);
        if fresh {
            return known.0.clone();
        }
        known.1 = Some(Instant::now());
        match cancel::held_off(|| Ual::addresses(&Config::get().socket)) {
            Ok(own) => {
                log::debug(format_args!("the engine's addresses: {own:?}"));
                let take = Config::get().take.clone();
                known.0 = Some(Arc::new(Addresses { take, own }));
            }
            // Out of reach (a chroot, other rights), and yet there: what is known holds.
            Err(_) if known.0.is_some() && self.has_engine() => {}
            Err(error) => {
                known.0 = None;
                drop(known);
                self.no_engine(&error);
                return None;
            }
        }
        known.0.clone()
    }

    fn no_engine(&self, error: &dyn std::fmt::Display) {
        let config = Config::get();
        let path = config.socket.display();
        if config.no_engine == NoEngine::Exit {
            log::error(format_args!(
                "no engine at {path} ({error}): ending, as --no-engine=exit asks"
            ));
            std::process::exit(1);
        }
        let mut opening = lock(&self.opening);
        if !std::mem::replace(&mut opening.told, true) {
            log::error(format_args!(
                "no engine at {path} ({error}): the system's sockets are used"
            ));
        }
    }

    /// The engine, opened at first use; `None` when it cannot be reached.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        match self.try_link()? {
            Ok(link) => Some(link),
            Err(error) => {
                self.no_engine(&error);
                None
            }
        }
    }

    /// The same, with the error that has just come; `None`: it is not to be asked again yet.
    fn try_link(&self) -> Option<Result<Arc<Link>, std::io::Error>> {
        let mut opening = lock(&self.opening);
        if let Some(link) = &opening.link
            && !link.sockets.is_over()
        {
            return Some(Ok(Arc::clone(link)));
        }
        if opening.failed.is_some_and(|at| at.elapsed() < PAUSE) {
            return None;
        }
        let opened = cancel::held_off(|| open(&Config::get().socket, Config::get()));
        match opened {
            Ok(link) => {
                for fd in link.ual.kept_descriptors() {
                    self.keep(fd);
                }
                self.keep(link.rest);
                let link = Arc::new(link);
                // Another UAL: nothing of it is anywhere else.
                self.spread.store(false, Ordering::Relaxed);
                // The old one's sockets keep it as long as they live.
                let old = opening.link.replace(Arc::clone(&link));
                opening.failed = None;
                if old.is_some() {
                    self.listeners_due.store(true, Ordering::Release);
                }
                Some(Ok(link))
            }
            Err(error) => {
                opening.failed = Some(Instant::now());
                Some(Err(error))
            }
        }
    }

    /// Opens the engine while it can be reached, for what a process may want that had to do with it before. No more is said if it cannot.
    pub(crate) fn reach(&self) {
        if self.addresses().is_some() {
            let _ = self.try_link();
        }
    }

    /// Everything is the system's from here on: what there is, and what will be.
    pub(crate) fn step_aside(&self) {
        self.aside.store(true, Ordering::Relaxed);
        for fd in self.table.used(0, RawFd::MAX) {
            drop(self.table.take(fd));
        }
        log::debug("filtered: the library steps aside");
    }

    /// Whether the library has nothing to do with this process's sockets any more.
    #[inline]
    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Relaxed)
    }

    /// A socket listens at the engine from here on.
    pub(crate) fn listens(&self) {
        self.listens.store(true, Ordering::Relaxed);
    }

    /// Whether listeners wait for an engine to come back: who sleeps looks for it after this time.
    pub(crate) fn retry(&self) -> Option<Duration> {
        let gone = || self.opened().is_some_and(|link| link.sockets.is_over());
        let waits = self.listens.load(Ordering::Relaxed)
            && (gone() || self.listeners_due.load(Ordering::Acquire));
        waits.then_some(PAUSE)
    }

    /// Looks for an engine in place of one that is gone, once a second at most, and lets the listeners listen there. To be called with
    /// nothing locked, by whoever waits. How often they did so far.
    pub(crate) fn tend(&'static self) -> u64 {
        if self.retry().is_some()
            && matches!(self.try_link(), Some(Ok(_)))
            && self.listeners_due.swap(false, Ordering::AcqRel)
        {
            self.listen_anew();
            self.renewals.fetch_add(1, Ordering::AcqRel);
        }
        self.renewals.load(Ordering::Acquire)
    }

    fn listen_anew(&'static self) {
        for fd in self.table.used(0, RawFd::MAX) {
            if let Some(Thing::Socket(socket)) = self.get(fd)
                && let Err(error) = socket.listen_anew(self)
            {
                log::info(format_args!(
                    "a listener cannot listen at the engine that came back, so far: {error}"
                ));
                self.listeners_due.store(true, Ordering::Release);
            }
        }
    }

    /// The engine, if it was opened.
    pub(crate) fn opened(&self) -> Option<Arc<Link>> {
        lock(&self.opening).link.clone()
    }

    /// Whether an engine is open that has not gone.
    fn has_engine(&self) -> bool {
        self.opened().is_some_and(|link| !link.sockets.is_over())
    }

    /// How often it forked, and started programs otherwise.
    pub(crate) fn generations(&self) -> (u32, u32) {
        let (forks, spawns) = (&self.forks, &self.spawns);
        (
            forks.load(Ordering::Relaxed),
            spawns.load(Ordering::Relaxed),
        )
    }

    /// It is about to fork.
    pub(crate) fn forks(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
        self.spreads();
    }

    /// vfork's child is about to execute a program, or tries the next place where that may be.
    pub(crate) fn spawns_by(&self, child: u32) {
        if self.visitor.swap(child, Ordering::Relaxed) != child {
            self.spawns();
        }
    }

    /// It is about to start a program, or to let vfork's child do so.
    pub(crate) fn spawns(&self) {
        self.spawns.fetch_add(1, Ordering::Relaxed);
        self.spreads();
        for fd in self.table.used(0, RawFd::MAX) {
            if let Some(Thing::Socket(socket)) = self.get(fd) {
                socket.is_copied();
                socket.describe_datagram();
            }
        }
    }

    /// From now on others may hold what is here. The agent is told once.
    pub(crate) fn spreads(&self) {
        let Some(link) = self.opened() else { return };
        // The numbers of descriptors among them: another may ask for these, when this process is no more.
        link.sockets.post_options();
        if !self.spread.swap(true, Ordering::Relaxed) && link.ual.spread().is_err() {
            self.spread.store(false, Ordering::Relaxed);
        }
    }

    /// Whether others may hold something.
    pub(crate) fn has_spread(&self) -> bool {
        self.spread.load(Ordering::Relaxed)
    }

    /// Numbers that are not to be had by the program.
    pub(crate) fn is_kept(&self, fd: RawFd) -> bool {
        let Ok(fd) = usize::try_from(fd) else {
            return false;
        };
        let word = self.kept.get(fd / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (fd % 64) & 1 == 1)
    }

    pub(crate) fn keep(&self, fd: RawFd) {
        if let Some(word) = self.kept.get(fd as usize / 64) {
            word.fetch_or(1 << (fd as usize % 64), Ordering::Relaxed);
        }
    }

    pub(crate) fn release(&self, fd: RawFd) {
        if let Some(word) = self.kept.get(fd as usize / 64) {
            word.fetch_and(!(1 << (fd as usize % 64)), Ordering::Relaxed);
        }
    }

    /// All of them.
    pub(crate) fn all_kept(&self) -> Vec<RawFd> {
        let bits = self.kept.iter().enumerate().flat_map(|(at, word)| {
            let word = word.load(Ordering::Relaxed);
            (0..64).filter_map(move |bit| (word >> bit & 1 == 1).then_some(at * 64 + bit))
        });
        bits.map(|fd| fd as RawFd).collect()
    }

    /// Moves a descriptor of the library's own to a high number, out of the way of the program's, and keeps it.
    pub(crate) fn keep_high(&self, fd: OwnedFd) -> OwnedFd {
        let moved = dup_high(fd.as_raw_fd());
        let fd = match moved {
            Ok(high) => {
                sys::close(fd.into_raw_fd());
                // SAFETY: just made, and nobody else's.
                unsafe { OwnedFd::from_raw_fd(high) }
            }
            Err(_) => fd,
        };
        self.keep(fd.as_raw_fd());
        fd
    }

    /// A second descriptor for the same, of the library's own; an error where there is no room for it.
    pub(crate) fn double_high(&self, fd: RawFd) -> Result<OwnedFd, Errno> {
        let doubled = dup_high(fd)?;
        self.keep(doubled);
        // SAFETY: just made, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(doubled) })
    }
}

/// What [`high`] said last; 0: it was not asked yet.
static HIGH: AtomicI32 = AtomicI32::new(0);

/// How many descriptors may wait or stand beside the program's, by what [`high`] said last.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Numbers among the high ones for what is not to wait for a connection: the agent's socket, wake-up sockets, eventfds.
const OTHERS: usize = 64;

/// Where the numbers of the library's own descriptors begin: a sixteenth of the limit below it, or below 4096, beyond which the program's go on.
fn high() -> RawFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.unwrap_or(1 << 20).max(256);
    let room = (limit / 16).clamp(2 * OTHERS as u64, 512) as usize;
    WAITING.store(room - OTHERS, Ordering::Relaxed);
    let high = limit.min(4096) as RawFd - room as RawFd;
    HIGH.store(high, Ordering::Relaxed);
    high
}

/// How many descriptors of sockets the library has numbers for: those that wait for use, and those beside the program's.
pub(crate) fn waiting_descriptors() -> usize {
    WAITING.load(Ordering::Relaxed).max(OTHERS)
}

/// There were no high numbers when one was wanted last.
static CRAMPED: AtomicBool = AtomicBool::new(false);

/// Whether the program's limit is so low that the library's descriptors are among its own: then as few as possible.
pub(crate) fn is_cramped() -> bool {
    CRAMPED.load(Ordering::Relaxed)
}

/// One more number for a descriptor, a high one.
fn dup_high(fd: RawFd) -> Result<RawFd, Errno> {
    let dup = |from: RawFd| sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, from.into());
    let doubled = match HIGH.load(Ordering::Relaxed) {
        0 => dup(high()),
        known => match dup(known) {
            // The limit is another now, perhaps.
            Err(Errno::INVAL | Errno::MFILE) => dup(high()),
            done => done,
        },
    };
    CRAMPED.store(doubled.is_err(), Ordering::Relaxed);
    doubled
}

/// Bytes of the receive pool, and of the memory to send from, of a process whose addresses are limited: a sixteenth each, as heaps of threads (64 MiB
/// each), which are inherited, too, take much. `None`: they are not.
fn share_of_addresses() -> Option<u64> {
    const LEAST: u64 = 4 << 20;
    const MOST: u64 = 64 << 20;
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    Some((limit / 16).clamp(LEAST, MOST) & !((1 << 20) - 1))
}

fn open(path: &Path, config: &Config) -> Result<Link, std::io::Error> {
    let share = share_of_addresses();
    let as_ever = (UalConfig::default(), SocketsConfig::default());
    let wish = UalConfig {
        pool_bytes: share.unwrap_or(as_ever.0.pool_bytes),
        lanes: 1,
        evqs: 1,
        wait_cells: 1,
        spin: config.spin,
        death: Death::Linger,
        // A child has its own, and may have little room for it.
        memory_in_children: false,
        ..as_ever.0
    };
    sidecore_sys::descriptors::number_from(high());
    let ual = Ual::open(path, &wish)?;
    let settings = SocketsConfig {
        wakes: Some(WAKES),
        send_bytes: share.unwrap_or(as_ever.1.send_bytes),
        ..as_ever.1
    };
    let sockets = Sockets::new(&ual, settings)?;
    if let Err(error) = ual.on_recall(recalled) {
        log::info(format_args!("connections cannot be shared: {error}"));
    }
    // Asked for here, so that everything to keep is known.
    let rest = sockets.prepare_rest()?;
    let all = config.take == Take::All;
    log::info(format_args!(
        "{}: engine at {}{}",
        std::process::id(),
        path.display(),
        if all { ", takes everything" } else { "" }
    ));
    Ok(Link {
        sockets,
        ual,
        rest,
        serial: LINKS.fetch_add(1, Ordering::Relaxed),
    })
}
