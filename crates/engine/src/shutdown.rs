//! The engine's end, in order.
//!
//! Told to stop, it closes its listeners and lets transfers go on. When no byte has moved for a while and nothing waits to be
//! sent, everything is closed as applications close it. What is left when the time is up is reset: an end that looks orderly
//! would pass a part for the whole.

use std::time::Duration;

use sidecore_tcp::Instant;

use crate::commands::{Context, socket};
use crate::cycles::Stopwatch;
use crate::dti::Role;
use crate::engine::Engine;

/// How often is looked whether anything still moves: it takes a look at every DTI.
const LOOK: Duration = Duration::from_millis(10);

/// Silence that ends the draining before its time, at most; half of its time if that is less.
const SILENCE: Duration = Duration::from_millis(500);

/// Transmissions at the end, each of at most the budget's frames.
const LAST_FLUSHES: usize = 4096;

/// How far the end has come.
pub(crate) struct Shutdown {
    deadline: Instant,
    /// Everything was closed.
    closed: bool,
    /// TCP payload bytes in and out, as seen last, and since when they stand still.
    bytes: u64,
    since: Instant,
    next_look: Instant,
}

impl Engine {
    /// Told to stop.
    pub(crate) fn begin_to_end(&mut self, now: Instant) {
        if self.stopping.is_some() {
            return;
        }
        self.tables.stopping = true;
        self.stopping = Some(Shutdown {
            deadline: now + self.drain,
            closed: false,
            bytes: 0,
            since: now,
            next_look: now,
        });
        self.close_where(now, |role| matches!(role, Role::Listening(_)));
    }

    /// Closes the DTIs of these roles, as their applications' Close does.
    fn close_where(&mut self, now: Instant, which: impl Fn(&Role) -> bool) {
        for ual in 0..self.tables.uals.len() as u32 {
            for slot in self.slots_of(ual) {
                if self
                    .tables
                    .dtis
                    .get(slot)
                    .is_some_and(|dti| which(&dti.role))
                {
                    let mut cx = Context {
                        tables: &mut self.tables,
                        stack: &mut self.stack,
                        now,
                        ual,
                    };
                    socket::close_slot(&mut cx, slot);
                }
            }
        }
    }

    fn slots_of(&mut self, ual: u32) -> Vec<u32> {
        self.tables
            .ual(ual)
            .map(|ual| ual.named_slots())
            .unwrap_or_default()
    }

    /// Whether the stop is complete: everything has ended, or the time is up and the rest was reset.
    pub(crate) fn try_end(&mut self, now: Instant) -> bool {
        if self.ended {
            return true;
        }
        let Some(shutdown) = &self.stopping else {
            return false;
        };
        if self.tables.dtis.len() > 0 && now < shutdown.deadline {
            if !shutdown.closed && now >= shutdown.next_look && self.is_silent(now) {
                self.close_where(now, |_| true);
                if let Some(shutdown) = &mut self.stopping {
                    shutdown.closed = true;
                }
            }
            return false;
        }
        for ual in 0..self.tables.uals.len() as u32 {
            self.end_dtis(now, ual, |_| true);
        }
        // The resets leave with these last flushes, and with the engine everything ends that anybody waits for.
        let mut watch = Stopwatch::start(sidecore_sys::clock::cycles());
        for _ in 0..LAST_FLUSHES {
            if self.transmit(now, &mut watch) == 0 {
                break;
            }
        }
        for ual in self.tables.uals.iter_mut().flatten() {
            ual.wake_touched();
            ual.control.wake_all();
        }
        self.ended = true;
        true
    }

    /// Whether no transfer is in the making, as far as can be seen from here.
    fn is_silent(&mut self, now: Instant) -> bool {
        let counters = self.stack.counters();
        let bytes = counters.tcp_bytes_in + counters.tcp_bytes_out;
        let silence = SILENCE.min(self.drain / 2);
        let Some(shutdown) = &mut self.stopping else {
            return true;
        };
        shutdown.next_look = now + LOOK;
        if bytes != shutdown.bytes {
            shutdown.bytes = bytes;
            shutdown.since = now;
        }
        let long_enough = now.duration_since(shutdown.since) >= silence;
        let mut connected = false;
        for ual in 0..self.tables.uals.len() as u32 {
            for slot in self.slots_of(ual) {
                let Some(dti) = self.tables.dtis.get(slot) else {
                    continue;
                };
                if matches!(dti.role, Role::Connected(_) | Role::Connecting { .. }) {
                    connected = true;
                    if !long_enough || dti.tx.end > dti.tx.una || !dti.datagrams.is_empty() {
                        return false;
                    }
                }
            }
        }
        !connected || long_enough
    }
}
