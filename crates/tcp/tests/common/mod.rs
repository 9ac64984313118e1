//! What the tests of this crate share.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]

pub mod chaos;
pub mod pair;
pub mod script;
