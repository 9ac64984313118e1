//! Two stacks on a network that does what the input says: every byte arrives once, in order and unchanged; nothing goes beyond a
//! window; no window shrinks; nothing stands still once the network is well again; nothing is left at the end.
//!
//! The interpreter of the bytes is `sidecore_testkit::adversary`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sidecore_testkit::adversary::run(bytes));
