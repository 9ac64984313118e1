//! One TCP connection's control block, sans-IO: no clock, no socket, no payload byte.
