//! Calls of libc on the program's descriptors.
//!
//! By libc's names and not as system calls, so that a preload library that has them sees these, too. Nothing here waits, but for
//! [`Poller::wait`].

use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

use libc::{c_int, c_void, iovec, msghdr, sockaddr, socklen_t};
use rustix::io::Errno;

use crate::process::Kept;

/// Which open socket a descriptor stands for: device and number of its inode.
pub(crate) type Identity = (u64, u64);

/// Pieces given to the system at a time.
const PIECES: usize = 64;

/// Bytes given to sendfile at a time.
const FILE_BYTES: usize = 1 << 20;

/// A piece of the program's memory. The system looks whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) address: usize,
    pub(crate) len: usize,
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn count(answer: isize) -> Result<usize, Errno> {
    usize::try_from(answer).map_err(|_| last())
}

fn nothing(answer: c_int) -> Result<(), Errno> {
    if answer == 0 { Ok(()) } else { Err(last()) }
}

/// This thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: libc's errno of this thread.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// What a descriptor stands for, and whether that is a socket.
pub(crate) fn identity(fd: RawFd) -> Result<(Identity, bool), Errno> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for what fstat says.
    nothing(unsafe { libc::fstat(fd, stat.as_mut_ptr()) })?;
    // SAFETY: it was stored.
    let stat = unsafe { stat.assume_init() };
    let is_socket = stat.st_mode & libc::S_IFMT == libc::S_IFSOCK;
    Ok(((stat.st_dev, stat.st_ino), is_socket))
}

/// One more descriptor of the same socket or file, with a high number where the limit lets it be: low ones are the program's.
pub(crate) fn duplicate(fd: RawFd) -> Result<OwnedFd, Errno> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: room for the answer.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) };
    // SAFETY: stored if the call succeeded.
    let limit = (asked == 0).then(|| unsafe { limit.assume_init() }.rlim_cur);
    let from = limit.unwrap_or(1024).min(8192) / 2;
    // SAFETY: no memory is involved.
    let dup = |from: u64| unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, from as c_int) };
    let mut made = dup(from);
    if made < 0 && matches!(last(), Errno::INVAL | Errno::MFILE) {
        made = dup(3);
    }
    if made < 0 {
        return Err(last());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Closes a number of the program's.
pub(crate) fn close(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: the program asked for it.
    nothing(unsafe { libc::close(fd) })
}

/// Runs `act` with the socket not waiting, for calls that have no flag for it. The setting is of the open socket: for that moment it holds for
/// other threads, too.
fn at_once<T>(fd: RawFd, act: impl FnOnce() -> T) -> T {
    // SAFETY: no memory is involved.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let change = flags >= 0 && flags & libc::O_NONBLOCK == 0;
    if change {
        // SAFETY: as above.
        unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    }
    let done = act();
    if change {
        let saved = errno();
        // SAFETY: as above.
        unsafe { libc::fcntl(fd, libc::F_SETFL, flags) };
        set_errno(saved);
    }
    done
}

/// What goes beside the bytes of a message. Addresses in the program's memory; 0: none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    pub(crate) name: usize,
    pub(crate) name_len: u32,
    pub(crate) control: usize,
    pub(crate) control_len: usize,
}

/// What a receive told beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) name_len: u32,
    pub(crate) control_len: usize,
    pub(crate) flags: c_int,
}

/// Bytes `done` and after of all pieces together, as the system wants them.
struct Vectors {
    list: [iovec; PIECES],
    len: usize,
}

impl Vectors {
    fn new(pieces: &[Bytes], mut done: usize) -> Self {
        let empty = iovec {
            iov_base: null_mut(),
            iov_len: 0,
        };
        let mut all = Self {
            list: [empty; PIECES],
            len: 0,
        };
        for piece in pieces {
            let skip = done.min(piece.len);
            done -= skip;
            if all.len == PIECES {
                break;
            }
            if piece.len > skip {
                all.list[all.len] = iovec {
                    iov_base: (piece.address + skip) as *mut c_void,
                    iov_len: piece.len - skip,
                };
                all.len += 1;
            }
        }
        all
    }

    fn message(&mut self, beside: &Beside) -> msghdr {
        // SAFETY: zeros are a message of nothing.
        let mut message: msghdr = unsafe { zeroed() };
        message.msg_iov = self.list.as_mut_ptr();
        message.msg_iovlen = self.len as _;
        message.msg_name = beside.name as *mut c_void;
        message.msg_namelen = beside.name_len;
        message.msg_control = beside.control as *mut c_void;
        message.msg_controllen = beside.control_len as _;
        message
    }
}

/// Sends what comes after `done` bytes, as much as there is room for; never a signal.
pub(crate) fn send(
    fd: RawFd,
    pieces: &[Bytes],
    done: usize,
    beside: &Beside,
    flags: c_int,
) -> Result<usize, Errno> {
    let mut vectors = Vectors::new(pieces, done);
    let message = vectors.message(beside);
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the list lies in `vectors`; what it names is the program's, which answers for it.
    count(unsafe { libc::sendmsg(fd, &message, flags) })
}

/// Receives into what comes after `done` bytes.
pub(crate) fn receive(
    fd: RawFd,
    pieces: &[Bytes],
    done: usize,
    beside: &Beside,
    flags: c_int,
) -> Result<(usize, Told), Errno> {
    let mut vectors = Vectors::new(pieces, done);
    let mut message = vectors.message(beside);
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: as in `send`.
    let n = count(unsafe { libc::recvmsg(fd, &mut message, flags) })?;
    let told = Told {
        name_len: message.msg_namelen,
        control_len: message.msg_controllen,
        flags: message.msg_flags,
    };
    Ok((n, told))
}

/// Sends of a file.
pub(crate) fn send_file(fd: RawFd, file: RawFd, offset: i64, len: usize) -> Result<usize, Errno> {
    let mut offset = offset;
    at_once(fd, || {
        // SAFETY: `offset` lives as long as the call.
        count(unsafe { libc::sendfile(fd, file, &mut offset, len.min(FILE_BYTES)) })
    })
}

/// Takes a connection; the peer's address goes to `room`. What it gives is the length of the address.
pub(crate) fn accept(fd: RawFd, room: Bytes) -> Result<(RawFd, u32), Errno> {
    let mut len = room.len as socklen_t;
    let (address, size) = match room.address {
        0 => (null_mut(), null_mut()),
        address => (address as *mut sockaddr, &raw mut len),
    };
    // SAFETY: the room is the program's, which answers for it.
    let taken = at_once(fd, || unsafe { libc::accept(fd, address, size) });
    if taken < 0 {
        Err(last())
    } else {
        Ok((taken, len))
    }
}

/// Begins to connect; `INPROGRESS` while it goes on.
pub(crate) fn connect(fd: RawFd, address: &[u8]) -> Result<(), Errno> {
    let len = address.len() as socklen_t;
    // SAFETY: `address` is as long as is said; libc reads it by bytes.
    let done = at_once(fd, || unsafe {
        libc::connect(fd, address.as_ptr().cast(), len)
    });
    nothing(done)
}

/// How a connect ended.
pub(crate) fn connected(fd: RawFd) -> Result<(), Errno> {
    let mut list = [(fd, libc::POLLOUT, 0)];
    if poll_now(&mut list)? == 0 {
        return Err(Errno::AGAIN);
    }
    let mut error: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: room for the answer, of the length that is said.
    nothing(unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &mut len,
        )
    })?;
    match error {
        0 => Ok(()),
        error => Err(Errno::from_raw_os_error(error)),
    }
}

/// Ends sending.
pub(crate) fn end_sending(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    nothing(unsafe { libc::shutdown(fd, libc::SHUT_WR) })
}

/// Looks what descriptors are ready for, without waiting: (descriptor, wanted, found). How many are.
pub(crate) fn poll_now(list: &mut [(RawFd, i16, i16)]) -> Result<usize, Errno> {
    let asked = list.iter().map(|(fd, events, _)| libc::pollfd {
        fd: *fd,
        events: *events,
        revents: 0,
    });
    let mut asked: Vec<libc::pollfd> = asked.collect();
    // SAFETY: the list is as long as is said.
    let found = unsafe { libc::poll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, 0) };
    let found = count(found as isize)?;
    for (place, answer) in list.iter_mut().zip(&asked) {
        place.2 = answer.revents;
    }
    Ok(found)
}

/// Sends this process a signal with a number.
pub(crate) fn raise(signal: c_int, value: c_int) {
    // A union of int and pointer, read as the int by those who ask for it.
    let value = libc::sigval {
        sival_ptr: value as usize as *mut c_void,
    };
    // SAFETY: no memory is involved. Too many signals queued already: they tell the same.
    let _ = unsafe { libc::sigqueue(libc::getpid(), signal, value) };
}

/// Whether there is such a signal.
pub(crate) fn is_signal(signal: c_int) -> bool {
    (1..=libc::SIGRTMAX()).contains(&signal)
}

/// An epoll set.
pub(crate) struct Poller(Kept);

/// What a descriptor in it is ready for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    /// As given to [`Poller::set`].
    pub(crate) key: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// As poll has it.
    pub(crate) bits: i16,
}

/// Which events to tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Wish {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Poller {
    pub(crate) fn new() -> Result<Self, Errno> {
        let make = || {
            // SAFETY: no memory is involved.
            let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            if set < 0 {
                return Err(last());
            }
            // Its number stays as it is: a preload library knows the set by it.
            // SAFETY: just made, and nobody else's.
            Ok(unsafe { OwnedFd::from_raw_fd(set) })
        };
        Kept::new(make).map(Self)
    }

    fn control(&self, operation: c_int, fd: RawFd, wish: Wish, key: u64) -> Result<(), Errno> {
        let mut events = 0;
        if wish.read {
            events |= libc::EPOLLIN | libc::EPOLLRDHUP;
        }
        if wish.write {
            events |= libc::EPOLLOUT;
        }
        if events == 0 {
            // Errors and ends are told all the same; once is enough.
            events = libc::EPOLLET;
        }
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: key,
        };
        // SAFETY: `event` lives as long as the call.
        nothing(unsafe { libc::epoll_ctl(self.0.number(), operation, fd, &mut event) })
    }

    /// Puts a descriptor in, or changes what is wished of it.
    pub(crate) fn set(&self, fd: RawFd, wish: Wish, key: u64, new: bool) -> Result<(), Errno> {
        let operation = if new {
            libc::EPOLL_CTL_ADD
        } else {
            libc::EPOLL_CTL_MOD
        };
        self.control(operation, fd, wish, key)
    }

    /// Takes one out.
    pub(crate) fn remove(&self, fd: RawFd) {
        // One that is not in it any more is what was wanted.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, Wish::default(), 0);
    }

    /// Waits until something is ready.
    pub(crate) fn wait(&self, found: &mut Vec<Readiness>) {
        const MOST: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        // SAFETY: room for so many.
        let n =
            unsafe { libc::epoll_wait(self.0.number(), events.as_mut_ptr(), MOST as c_int, -1) };
        found.clear();
        for event in &events[..usize::try_from(n).unwrap_or(0)] {
            let bits = event.events as c_int;
            let ended = bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
            found.push(Readiness {
                key: event.u64,
                read: ended || bits & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0,
                write: ended || bits & libc::EPOLLOUT != 0,
                // The bits of epoll and poll have the same numbers.
                bits: (bits & 0x7fff) as i16,
            });
        }
    }
}

/// What ends the sleep of [`Poller::wait`].
pub(crate) struct Bell(Kept);

impl Bell {
    /// Makes one, in a set, under a key.
    pub(crate) fn new(poller: &Poller, key: u64) -> Result<Self, Errno> {
        let make = || {
            // SAFETY: no memory is involved.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if fd < 0 {
                return Err(last());
            }
            // SAFETY: just made, and nobody else's.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            Ok(duplicate(fd.as_raw_fd()).unwrap_or(fd))
        };
        let fd = Kept::new(make)?;
        let wish = Wish {
            read: true,
            write: false,
        };
        poller.set(fd.number(), wish, key, true)?;
        Ok(Self(fd))
    }

    pub(crate) fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight bytes that are there. It fails only when it rings already.
        let _ = unsafe { libc::write(self.0.number(), (&raw const one).cast(), 8) };
    }

    pub(crate) fn quiet(&self) {
        let mut rung = 0u64;
        // SAFETY: room for eight bytes.
        let _ = unsafe { libc::read(self.0.number(), (&raw mut rung).cast(), 8) };
    }
}

/// Memory that was moved to a memfd of its own, page by page, at the same addresses.
pub(crate) fn move_to(
    memory: &impl std::os::fd::AsFd,
    start: usize,
    len: usize,
) -> Result<(), Errno> {
    let fd = memory.as_fd().as_raw_fd();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the system chooses the address.
    let copy = unsafe { libc::mmap(null_mut(), len, both, libc::MAP_SHARED, fd, 0) };
    if copy == libc::MAP_FAILED {
        return Err(last());
    }
    // SAFETY: `copy` has `len` bytes; the program's have been found mapped for reading, and its caller must leave them alone meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(start as *const u8, copy.cast::<u8>(), len) };
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: the same bytes are at the same addresses afterwards: to the program nothing has changed.
    let moved = unsafe { libc::mmap(start as *mut c_void, len, both, flags, fd, 0) };
    let result = if moved == libc::MAP_FAILED {
        Err(last())
    } else {
        Ok(())
    };
    // SAFETY: mapped above, and used by nobody.
    unsafe { libc::munmap(copy, len) };
    result
}

/// Bytes of a page.
pub(crate) fn page() -> usize {
    // SAFETY: no memory is involved.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).unwrap_or(4096).max(1)
}

/// A function of a library in this process, by name; null if there is none.
pub(crate) fn symbol(name: &std::ffi::CStr) -> *const c_void {
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Asks to be called around forks.
pub(crate) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the functions stay where they are, as the library is never unloaded. Failure is for lack of memory only; a forked child that uses its
    // parent's handles then waits for a thread that it does not have.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}
