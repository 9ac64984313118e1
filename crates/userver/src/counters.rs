//! Counters that anyone may read while the server runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a server has counted so far, all workers together.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Name and value of each counter.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        /// One worker's counters: it alone writes, so an increment is a load and a store.
        #[derive(Default, Debug)]
        #[repr(align(64))]
        pub(crate) struct WorkerCounters {
            $(pub(crate) $name: Counter,)*
        }

        impl WorkerCounters {
            pub(crate) fn add_to(&self, sum: &mut Counters) {
                $(sum.$name += self.$name.get();)*
            }
        }
    };
}

counters! {
    /// Connections accepted.
    accepted,
    /// Connections over.
    closed,
    /// Connections closed because nothing happened for the idle time.
    timed_out,
    /// Times that accepting paused: connections or descriptors at their limit.
    accept_pauses,
    /// Requests answered.
    requests,
    /// Answers with status 400 and above.
    errors,
    /// Bytes of answers handed to the network, heads included.
    bytes_sent,
    /// Connections that were closed because an answer could not be sent (reset by the peer and the like).
    broken,
    /// Files read from disk.
    cache_loads,
    /// Files thrown out of the cache.
    cache_evictions,
    /// Files served uncached for want of room.
    cache_uncached,
    /// Copies of files made for a new date while an older copy was being sent.
    cache_reissues,
    /// Engine: times that a worker found nothing to do and slept.
    sleeps,
}

/// One counter of one writer.
#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
