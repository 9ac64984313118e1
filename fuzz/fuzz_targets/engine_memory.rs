//! An application that writes what the input says into the memory it shares with an engine: the engine goes on, and serves its neighbour.
//!
//! The engine lives on from input to input, as engines do, so that a crash may take more than its last input to repeat. The interpreter of
//! the bytes is the one of `crates/engine/tests/scribbler.rs`.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/engine/tests/common/scribbler.rs"]
mod scribbler;

thread_local! {
    static WORLD: RefCell<scribbler::World> = RefCell::default();
}

fuzz_target!(|bytes: &[u8]| WORLD.with_borrow_mut(|world| world.run(bytes)));
