//! The system calls Sidecore needs: memfd, descriptor passing, futex, affinity, TAP, namespaces.

pub mod uring;
