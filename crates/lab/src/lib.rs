//! Measuring: load generators, baselines, books of processor time, and experiments that put them together.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod echo;
pub mod ground;
pub mod interrupt;
pub mod load;
pub mod process;
pub mod roles;
