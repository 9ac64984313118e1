//! Listeners of which other processes have copies.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::group::lock;
use super::raw::RawSocket;

impl RawSocket {
    /// From here on others may have copies of a listener: only what is about to be taken is asked for.
    pub fn has_copies(&self) {
        let shared = &self.0.socket().has_copies;
        shared.store(true, Ordering::Relaxed);
    }

    /// After [`Self::accept`] said `WouldBlock`: waits for the engine's word about a connection that waited at a copy of the listener, as far as was
    /// known. False if none did.
    pub fn hears_of_incoming(&self, patience: Duration) -> bool {
        let state = || lock(&self.0.socket().state);
        if !state().incoming {
            return false;
        }
        let last = Instant::now() + patience;
        let told = || {
            let state = state();
            let waits = state.accepted.is_empty() && state.incoming && state.over.is_none();
            match waits {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => Ok(()),
            }
        };
        self.block(Some(last), told).is_ok()
    }
}
