//! The calls of the interface, by subject, in the order in which the header has them.

pub(crate) mod ual;

pub(crate) mod memory;

pub(crate) mod evq;

pub(crate) mod dti;

pub(crate) mod transfer;
