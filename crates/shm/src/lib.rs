//! Shared-memory regions, lanes, receive pool and the wake-up protocol.
