//! Network drivers behind one trait: TAP, and a wire that joins two engines in memory.
