//! Whether the engine still lives.
//!
//! The agent's socket is the sign of life. A thread that sleeps on a futex does not see that socket end, so one small thread
//! of each UAL looks at it for all others. It is started when somebody sleeps for the first time: a program that only polls has none.
//!
//! It also does what may wait for a moment, should nobody else come by and do it: [`Liveness::soon`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sidecore_sys::descriptors::place;
use sidecore_sys::signals::without_signals;
use sidecore_sys::unix::Stream;

/// Stack of the watching thread: it calls poll and little else.
const STACK: usize = 64 << 10;

/// … if it hands on what comes on a bell.
const STACK_WITH_BELL: usize = 512 << 10;

/// What may wait waits so long: then the watching thread looks after it.
const SOON: Duration = Duration::from_secs(1);

/// Does what has waited. `None`: it will never have anything to do again; else whether something is left.
type Chore = Box<dyn Fn() -> Option<bool> + Send>;

/// What the watching thread looks after when it is told that there may be something.
#[derive(Default)]
struct Chores {
    /// It was told, and has not looked since.
    told: AtomicBool,
    all: Mutex<Vec<Chore>>,
}

impl Chores {
    /// Does all of them; whether something is left.
    fn look(&self) -> bool {
        // First: who has something from here on tells again.
        self.told.store(false, Ordering::Release);
        let mut left = false;
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|chore| {
            let done = chore();
            left |= done == Some(true);
            done.is_some()
        });
        left
    }
}

/// A socket with numbers on it, and who is told of each.
pub(crate) type Bell = (Stream, Box<dyn Fn(u64) + Send>);

pub(crate) struct Liveness {
    gone: Arc<AtomicBool>,
    watcher: Mutex<Option<Watcher>>,
    /// Fast answer to "is a watcher running?".
    watched: AtomicBool,
    chores: Arc<Chores>,
}

struct Watcher {
    /// Numbers of the descriptors that it uses.
    kept: Vec<RawFd>,
    /// Dropping it ends the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Liveness {
    pub(crate) fn new() -> Self {
        Self {
            gone: Arc::new(AtomicBool::new(false)),
            watcher: Mutex::new(None),
            watched: AtomicBool::new(false),
            chores: Arc::default(),
        }
    }

    /// Whether the end was seen already. Cheap.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The end is our own doing.
    pub(crate) fn end(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether the socket has ended, asking the system when no thread watches it.
    pub(crate) fn check(&self, socket: impl AsFd) -> bool {
        if self.is_gone() {
            return false;
        }
        if !self.watched.load(Ordering::Acquire) && hung_up(&socket) {
            self.gone.store(true, Ordering::Release);
        }
        !self.is_gone()
    }

    /// One more thing to do when [`Self::soon`] was said.
    pub(crate) fn add_chore(&self, chore: Chore) {
        let all = &self.chores.all;
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(chore);
    }

    /// Something is to be done, if nobody else does it within a second: then the watching thread does, if there is one. A system call a second at
    /// most, however often it is said.
    #[inline]
    pub(crate) fn soon(&self) {
        if !self.chores.told.load(Ordering::Acquire) && self.is_watched() {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        if self.chores.told.swap(true, Ordering::AcqRel) {
            return;
        }
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = watcher.as_ref().and_then(|watcher| watcher.stop.as_ref()) {
            // One byte always fits: it is read before the next is written.
            let _ = rustix::io::write(stop, &[0]);
        }
    }

    /// Numbers of the descriptors that are kept open here.
    pub(crate) fn kept_descriptors(&self) -> Vec<RawFd> {
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        watcher.as_ref().map_or_else(Vec::new, |w| w.kept.clone())
    }

    /// Whether a thread watches.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// From now on `ended` is called, on a thread of its own, as soon as the socket ends; and what comes on `bell` is handed on there.
    /// `AlreadyExists`: a thread watches already.
    pub(crate) fn watch(
        &self,
        socket: impl AsFd,
        bell: Option<Bell>,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if watcher.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let socket = place(socket.as_fd().try_clone_to_owned()?);
        let (stop, stopped) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map(|(reader, writer)| (place(writer), place(reader)))?;
        let mut kept = vec![socket.as_raw_fd(), stop.as_raw_fd(), stopped.as_raw_fd()];
        kept.extend(bell.iter().map(|(bell, _)| bell.as_fd().as_raw_fd()));
        let stack = if bell.is_some() {
            STACK_WITH_BELL
        } else {
            STACK
        };
        let (gone, chores) = (Arc::clone(&self.gone), Arc::clone(&self.chores));
        let watch = move || {
            if watch_until_the_end(&socket, &stopped, bell.as_ref(), &chores) {
                gone.store(true, Ordering::Release);
                ended();
            }
        };
        let thread = std::thread::Builder::new()
            .name("sidecore-watch".into())
            .stack_size(stack);
        // The program's signals are for the program's threads.
        let thread = without_signals(|| thread.spawn(watch))?;
        *watcher = Some(Watcher {
            kept,
            stop: Some(stop),
            thread: Some(thread),
        });
        self.watched.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Its copy of the socket must be closed when we say that the UAL is closed.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ourselves = thread.thread().id() == std::thread::current().id();
            if !ourselves {
                // The thread has nothing that panics; if it did, it is over as well.
                let _ = thread.join();
            }
        }
    }
}

/// What says that the other end is closed.
const OVER: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::NVAL);

/// Waits until the socket is hung up (true) or `stop` is closed (false); hands on what comes on the bell, and looks after the chores when something
/// was written to `stop`.
fn watch_until_the_end(
    socket: &OwnedFd,
    stop: &OwnedFd,
    mut bell: Option<&Bell>,
    chores: &Chores,
) -> bool {
    let mut due: Option<Instant> = None;
    loop {
        // Of the socket nothing is asked for: a hang-up is told anyway, and messages, which are not for us, are not.
        let mut fds = vec![
            PollFd::new(socket, PollFlags::empty()),
            PollFd::new(stop, PollFlags::IN),
        ];
        fds.extend(bell.map(|(bell, _)| PollFd::new(bell, PollFlags::IN)));
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.map(|left| rustix::time::Timespec {
            tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // The descriptors are ours; what else goes wrong (no memory) is not the engine's end.
            Err(_) => return false,
        }
        let revents = |at: usize| fds.get(at).map_or(PollFlags::empty(), PollFd::revents);
        let [ended, told, came] = [0, 1, 2].map(revents);
        if ended.intersects(OVER) {
            return true;
        }
        if told.intersects(OVER) {
            return false;
        }
        if told.contains(PollFlags::IN) && rustix::io::read(stop, &mut [0]).is_ok() {
            due = Some(Instant::now() + SOON);
        }
        if due.is_some_and(|due| due <= Instant::now()) {
            due = chores.look().then(|| Instant::now() + SOON);
        }
        let Some((ring, rung)) = bell else { continue };
        let mut number = [0; 8];
        if came.intersects(OVER) {
            bell = None;
        } else if came.contains(PollFlags::IN)
            && let Ok((8, _)) = ring.recv_with_fds(&mut number)
        {
            rung(u64::from_le_bytes(number));
        }
    }
}

/// Whether the socket is hung up.
fn hung_up(socket: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let now = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    loop {
        match rustix::event::poll(&mut fds, Some(&now)) {
            Ok(_) => return fds[0].revents().intersects(OVER),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidecore_sys::unix::Stream;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn the_end_is_seen_with_and_without_a_watcher() {
        let (ours, theirs) = Stream::pair().unwrap();
        let liveness = Liveness::new();
        assert!(liveness.check(&ours));
        theirs.send_with_fds(b"a message", &[]).unwrap();
        assert!(liveness.check(&ours), "a message is no end");
        drop(theirs);
        assert!(!liveness.check(&ours));

        let (ours, theirs) = Stream::pair().unwrap();
        let liveness = Liveness::new();
        let (tell, told) = mpsc::channel();
        let again = tell.clone();
        liveness
            .watch(&ours, None, move || tell.send(()).unwrap())
            .unwrap();
        let error = liveness.watch(&ours, None, move || again.send(()).unwrap());
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        theirs.send_with_fds(b"a message", &[]).unwrap();
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
        assert!(!liveness.is_gone());
        drop(theirs);
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(liveness.is_gone());
    }

    #[test]
    fn what_comes_on_the_bell_is_handed_on_until_the_end() {
        let (ours, theirs) = Stream::pair().unwrap();
        let (bell, ringer) = Stream::pair().unwrap();
        let liveness = Liveness::new();
        let (tell, told) = mpsc::channel();
        let rung: Box<dyn Fn(u64) + Send> = Box::new(move |number| tell.send(number).unwrap());
        let (over, ended) = mpsc::channel();
        let done = move || over.send(()).unwrap();
        liveness.watch(&ours, Some((bell, rung)), done).unwrap();
        ringer.send_with_fds(&7u64.to_le_bytes(), &[]).unwrap();
        ringer.send_with_fds(b"nonsense, too long", &[]).unwrap();
        ringer.send_with_fds(&8u64.to_le_bytes(), &[]).unwrap();
        assert_eq!([told.recv().unwrap(), told.recv().unwrap()], [7, 8]);
        drop(ringer);
        drop(theirs);
        ended.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn chores_are_looked_after_soon_and_again_while_something_is_left() {
        let (ours, theirs) = Stream::pair().unwrap();
        let liveness = Liveness::new();
        let (tell, told) = mpsc::channel();
        let looks = AtomicBool::new(false);
        liveness.add_chore(Box::new(move || {
            tell.send(()).unwrap();
            // The first time there was no room, say.
            Some(!looks.swap(true, Ordering::Relaxed))
        }));
        liveness.add_chore(Box::new(|| None));
        liveness.soon();
        let nobody = told.recv_timeout(Duration::from_millis(20));
        assert!(nobody.is_err(), "nobody watches");
        liveness.watch(&ours, None, || ()).unwrap();
        for _ in 0..1000 {
            liveness.soon();
        }
        for _ in 0..2 {
            told.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        assert!(told.try_recv().is_err(), "once for all");
        liveness.soon();
        told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(liveness.chores.all.lock().unwrap().len(), 1);
        drop(theirs);
    }

    #[test]
    fn a_watcher_ends_with_its_owner_and_lets_the_socket_go() {
        let (ours, theirs) = Stream::pair().unwrap();
        let liveness = Liveness::new();
        let ended = || panic!("nothing ended");
        liveness.watch(&ours, None, ended).unwrap();
        drop(liveness);
        drop(ours);
        assert_eq!(theirs.recv_with_fds(&mut [0; 4]).unwrap().0, 0);
    }
}
