//! The atomics that lanes and the wake-up protocol use, behind traits: the same code runs on mapped memory, and on the
//! checked atomics of loom and shuttle.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A 32-bit atomic word. The methods are those of [`AtomicU32`].
pub trait Atomic32 {
    /// See [`AtomicU32::load`].
    fn load(&self, order: Ordering) -> u32;
    /// See [`AtomicU32::store`].
    fn store(&self, value: u32, order: Ordering);
    /// See [`AtomicU32::swap`].
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// See [`AtomicU32::compare_exchange`]; says whether it was exchanged. Failure is relaxed.
    fn exchange(&self, from: u32, to: u32, order: Ordering) -> bool;
}

/// A 64-bit atomic word. The methods are those of [`AtomicU64`].
pub trait Atomic64 {
    /// See [`AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;
    /// See [`AtomicU64::store`].
    fn store(&self, value: u64, order: Ordering);
    /// See [`AtomicU64::swap`].
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// See [`AtomicU64::fetch_or`].
    fn fetch_or(&self, value: u64, order: Ordering) -> u64;
}

/// A family of atomics with its fence.
pub trait Atomics {
    /// 32 bits.
    type U32: Atomic32;
    /// 64 bits.
    type U64: Atomic64;
    /// A sequentially consistent fence.
    fn fence();
}

/// The processor's own.
#[derive(Clone, Copy, Debug)]
pub struct Real;

impl Atomics for Real {
    type U32 = AtomicU32;
    type U64 = AtomicU64;

    #[inline]
    fn fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Implements the two traits for types of the same methods.
macro_rules! same_methods {
    ($u32:ty, $u64:ty) => {
        impl $crate::atomics::Atomic32 for $u32 {
            #[inline]
            fn load(&self, order: ::std::sync::atomic::Ordering) -> u32 {
                <$u32>::load(self, order)
            }
            #[inline]
            fn store(&self, value: u32, order: ::std::sync::atomic::Ordering) {
                <$u32>::store(self, value, order);
            }
            #[inline]
            fn swap(&self, value: u32, order: ::std::sync::atomic::Ordering) -> u32 {
                <$u32>::swap(self, value, order)
            }
            #[inline]
            fn exchange(&self, from: u32, to: u32, order: ::std::sync::atomic::Ordering) -> bool {
                <$u32>::compare_exchange(
                    self,
                    from,
                    to,
                    order,
                    ::std::sync::atomic::Ordering::Relaxed,
                )
                .is_ok()
            }
        }

        impl $crate::atomics::Atomic64 for $u64 {
            #[inline]
            fn load(&self, order: ::std::sync::atomic::Ordering) -> u64 {
                <$u64>::load(self, order)
            }
            #[inline]
            fn store(&self, value: u64, order: ::std::sync::atomic::Ordering) {
                <$u64>::store(self, value, order);
            }
            #[inline]
            fn swap(&self, value: u64, order: ::std::sync::atomic::Ordering) -> u64 {
                <$u64>::swap(self, value, order)
            }
            #[inline]
            fn fetch_or(&self, value: u64, order: ::std::sync::atomic::Ordering) -> u64 {
                <$u64>::fetch_or(self, value, order)
            }
        }
    };
}

same_methods!(AtomicU32, AtomicU64);
