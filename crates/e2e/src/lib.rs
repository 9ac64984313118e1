//! What the tests of the whole share: an engine on a TAP whose kernel side lies in a network namespace of the test's own, and
//! small services on the native API.
#![forbid(unsafe_code)]

pub mod ground;
pub mod interop;
pub mod line;
pub mod preload;
pub mod service;
pub mod transfers;

pub use ground::Ground;
