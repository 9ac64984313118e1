//! The calls of the interface, by subject.

pub(crate) mod dti;
pub(crate) mod evq;
pub(crate) mod memory;
pub(crate) mod transfer;
pub(crate) mod ual;
