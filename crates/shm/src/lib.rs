//! What an application and the engine do with the memory they share: bytes of regions, lanes of entries, credit, wake-up, and
//! who owns which chunk of a receive pool.
//!
//! Neither side trusts the other with more than its own data. Every offset comes from numbers that the agent granted, never from the
//! memory itself; each shared word is read once; what it says is checked, counted, and at worst harms whoever wrote it.
//!
//! - [`Shared`], [`MemRef`], [`MemMut`]: mapped memory, bounds-checked, copied and never borrowed as bytes.
//! - [`lane`]: the ring of self-publishing entries; [`Producer`] and [`Consumer`].
//! - [`control`]: the views of a UAL's control memory, [`control::EngineControl`] and [`control::AppControl`].
//! - [`protocol`]: the steps of waking each other, written once for real, modelled and checked atomics.
//! - [`pool`]: the engine's allocator of receive chunks.
//! - [`wakers`]: a thread that wakes applications in the engine's place.
//! - [`regions`]: which registered memory an id means.
//!
//! `docs/shared-memory.md` tells why it is correct and which test holds which sentence.

pub mod atomics;
pub mod control;
pub mod lane;
pub mod memory;
pub mod pool;
pub mod protocol;
pub mod regions;
pub mod wakers;

pub use lane::{Consumer, Full, Producer};
pub use memory::{MemMut, MemRef, Shared};
pub use pool::PoolAllocator;
pub use regions::RegionTable;
