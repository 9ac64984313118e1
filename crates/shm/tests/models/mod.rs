//! Lanes and the wake-up protocol under model checkers.
//!
//! The scenarios are written once ([`scenarios`]) over a [`World`]: threads, atomics and a place to sleep. loom runs small ones with every
//! interleaving and every result that the memory model allows; shuttle runs larger ones with random schedules; Miri runs them on real threads
//! with its own weak memory and its checks of every pointer. A lost wake-up shows as a deadlock.

#![allow(dead_code, reason = "each checker uses its part")]

mod heap;
pub(crate) mod scenarios;

use sidecore_shm::atomics::Atomics;

/// Atomics that can be made.
pub(crate) trait ModelAtomics:
    Atomics<U32: Send + Sync, U64: Send + Sync> + 'static
{
    /// With a value.
    fn u32(value: u32) -> Self::U32;
    /// With a value.
    fn u64(value: u64) -> Self::U64;
}

/// Where threads sleep: a futex, or a socket.
pub(crate) trait Sleeping: Send + Sync + 'static {
    fn new() -> Self;
    /// futex_wait: looks at the condition and sleeps in one step.
    fn wait_while(&self, condition: impl Fn() -> bool);
    /// futex_wake.
    fn wake(&self);
    /// A byte on the socket.
    fn send(&self);
    /// Sleeps until there is a byte, and takes all.
    fn receive(&self);
}

/// What a checker provides.
pub(crate) trait World: 'static {
    type A: ModelAtomics;
    type Sleeping: Sleeping;
    type Thread;
    fn spawn(run: impl FnOnce() + Send + 'static) -> Self::Thread;
    fn join(thread: Self::Thread);
    fn pause();
}

/// Implements [`Sleeping`] with a library's mutex and condition variable.
macro_rules! sleeping {
    ($name:ident) => {
        pub(crate) struct $name {
            bytes: Mutex<u32>,
            changed: Condvar,
        }

        impl crate::models::Sleeping for $name {
            fn new() -> Self {
                Self {
                    bytes: Mutex::new(0),
                    changed: Condvar::new(),
                }
            }

            fn wait_while(&self, condition: impl Fn() -> bool) {
                let mut guard = self.bytes.lock().unwrap();
                while condition() {
                    guard = self.changed.wait(guard).unwrap();
                }
            }

            fn wake(&self) {
                let _guard = self.bytes.lock().unwrap();
                self.changed.notify_all();
            }

            fn send(&self) {
                *self.bytes.lock().unwrap() += 1;
                self.changed.notify_all();
            }

            fn receive(&self) {
                let mut guard = self.bytes.lock().unwrap();
                while *guard == 0 {
                    guard = self.changed.wait(guard).unwrap();
                }
                *guard = 0;
            }
        }
    };
}
pub(crate) use sleeping;

/// Wraps a library's atomics: `$order` maps the ordering that is asked for to the one that is used.
macro_rules! atomics {
    ($u32:ident, $u64:ident, $order:expr) => {
        pub(crate) struct $u32(AtomicU32);
        pub(crate) struct $u64(AtomicU64);

        impl sidecore_shm::atomics::Atomic32 for $u32 {
            fn load(&self, order: Ordering) -> u32 {
                self.0.load($order(order))
            }
            fn store(&self, value: u32, order: Ordering) {
                self.0.store(value, $order(order));
            }
            fn swap(&self, value: u32, order: Ordering) -> u32 {
                self.0.swap(value, $order(order))
            }
            fn exchange(&self, from: u32, to: u32, order: Ordering) -> bool {
                let order = $order(order);
                self.0
                    .compare_exchange(from, to, order, Ordering::Relaxed)
                    .is_ok()
            }
        }

        impl sidecore_shm::atomics::Atomic64 for $u64 {
            fn load(&self, order: Ordering) -> u64 {
                self.0.load($order(order))
            }
            fn store(&self, value: u64, order: Ordering) {
                self.0.store(value, $order(order));
            }
            fn swap(&self, value: u64, order: Ordering) -> u64 {
                self.0.swap(value, $order(order))
            }
            fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
                self.0.fetch_or(value, $order(order))
            }
        }
    };
}
pub(crate) use atomics;

/// A family of atomics and the world in which it lives.
macro_rules! world {
    ($world:ident, $atomics:ident, $u32:ident, $u64:ident, $fence:expr, $sleeping:ident, $thread:ident) => {
        pub(crate) struct $atomics;

        impl sidecore_shm::atomics::Atomics for $atomics {
            type U32 = $u32;
            type U64 = $u64;
            fn fence() {
                $fence
            }
        }

        impl crate::models::ModelAtomics for $atomics {
            fn u32(value: u32) -> $u32 {
                $u32(AtomicU32::new(value))
            }
            fn u64(value: u64) -> $u64 {
                $u64(AtomicU64::new(value))
            }
        }

        struct $world;

        impl crate::models::World for $world {
            type A = $atomics;
            type Sleeping = $sleeping;
            type Thread = $thread::thread::JoinHandle<()>;
            fn spawn(run: impl FnOnce() + Send + 'static) -> Self::Thread {
                $thread::thread::spawn(run)
            }
            fn join(thread: Self::Thread) {
                thread.join().unwrap();
            }
            fn pause() {
                $thread::thread::yield_now();
            }
        }
    };
}
pub(crate) use world;
