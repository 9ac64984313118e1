//! The receive pool: one memfd for each UAL, made and sealed by the agent, written by the engine, read by the application.
//!
//! It is cut into *slabs* of [`SLAB`] bytes. The engine hands a slab out whole (for bulk data) or cut into
//! [`SMALL`]-byte chunks. A chunk is named by the number of its first small chunk in the pool (`offset / SMALL`), so that a number
//! can be checked without a table of what it is now. Who owns which chunk is known to the engine alone.

/// Bytes of a slab: the most that one Received event names.
pub const SLAB: usize = 65536;

/// Bytes of a small chunk. Holds the payload of one full Ethernet frame.
pub const SMALL: usize = 2048;

/// Small chunks in a slab.
pub const SMALL_PER_SLAB: usize = SLAB / SMALL;

/// The smallest pool, in bytes.
pub const MIN_BYTES: u64 = 4 * SLAB as u64;

/// The largest pool, in bytes (chunk numbers fit into 32 bits with room to spare).
pub const MAX_BYTES: u64 = 1 << 36;
