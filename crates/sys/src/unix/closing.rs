//! Closing descriptors that a stranger sent.
//!
//! Closing can wait for ever: the daemon of a FUSE file is asked first, a socket may linger. So a thread that serves others never
//! closes a stranger's descriptor itself: a few threads do nothing else. When all of them hang, no more descriptors are taken from
//! anybody ([`closers_are_stuck`]), so that a stranger can use up these threads, and nothing more.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that close.
const CLOSERS: usize = 8;
/// Descriptors that may wait for one of them before no more are taken.
const WAITING_MAX: usize = 64;

struct Closing {
    waiting: Vec<OwnedFd>,
    threads: usize,
    /// Threads that close nothing at the moment.
    idle: usize,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing {
    waiting: Vec::new(),
    threads: 0,
    idle: 0,
});
static MORE: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands descriptors to a thread that closes them, and returns at once.
pub fn close_aside(fds: Vec<OwnedFd>) {
    if fds.is_empty() {
        return;
    }
    let mut closing = lock();
    closing.waiting.extend(fds);
    if closing.idle == 0 && closing.threads < CLOSERS {
        let builder = std::thread::Builder::new().name("sidecore-closer".into());
        // Where no thread can be had, the descriptors wait for one that can.
        if builder.spawn(close_all).is_ok() {
            closing.threads += 1;
        }
    }
    drop(closing);
    MORE.notify_one();
}

/// Whether so many descriptors wait to be closed that somebody must be holding the closers up.
pub fn closers_are_stuck() -> bool {
    lock().waiting.len() >= WAITING_MAX
}

fn close_all() {
    let mut closing = lock();
    loop {
        match closing.waiting.pop() {
            Some(fd) => {
                drop(closing);
                drop(fd);
                closing = lock();
            }
            None => {
                closing.idle += 1;
                closing = MORE.wait(closing).unwrap_or_else(PoisonError::into_inner);
                closing.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    #[test]
    fn descriptors_are_closed_by_somebody_else() {
        for _ in 0..20 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            close_aside(vec![theirs.into()]);
            ours.set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            let end = (&ours).read(&mut [0; 1]).unwrap();
            assert_eq!(end, 0, "the other end is closed");
        }
        assert!(lock().threads <= CLOSERS);
        assert!(!closers_are_stuck());
        close_aside(Vec::new());
    }

    #[test]
    fn a_lingering_socket_holds_nobody_up() {
        // The peer never reads, and the socket lingers: closing it waits.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _peer = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &socket, &[0; 65536]).is_ok() {}
        socket.set_nonblocking(false).unwrap();
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(1))).unwrap();
        let begun = Instant::now();
        close_aside(vec![socket.into()]);
        assert!(begun.elapsed() < Duration::from_millis(500));
    }
}
