//! A connection against a peer and an application that do anything: no panic, no contradiction in the control block, no
//! byte delivered that did not arrive, nothing sent that was not written, no endless transmission.
//!
//! The interpreter of the bytes is the one of `crates/tcp/tests/chaos.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tcp/tests/common/chaos.rs"]
mod chaos;

fuzz_target!(|bytes: &[u8]| chaos::run(bytes));
