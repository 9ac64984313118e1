//! Which numbers the descriptors get that this library keeps.
//!
//! A program gets the lowest free number for what it opens, and some count on it. A library within a program that does not know of it keeps its
//! own out of the way: at high numbers.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, Ordering};

static FROM: AtomicI32 = AtomicI32::new(0);

/// From now on descriptors that are kept (of [`crate::unix`], and what [`place`] is given) are numbered from `first` on, or as they come
/// with 0. For the whole process.
pub fn number_from(first: i32) {
    FROM.store(first.max(0), Ordering::Relaxed);
}

/// Moves a descriptor to where kept ones belong. It stays where it is when no number is free there.
pub fn place(fd: OwnedFd) -> OwnedFd {
    match FROM.load(Ordering::Relaxed) {
        0 => fd,
        first => rustix::io::fcntl_dupfd_cloexec(&fd, first).unwrap_or(fd),
    }
}
