//! Where the engine's time goes: cycles by bin (the paper's Table 1) and what turns found.

use serde::Serialize;

/// Parts of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Bin {
    /// Taking frames from the device.
    Driver = 0,
    /// Handling what came in: IP, TCP, storing, events.
    Receive,
    /// Frames of the internal loopback.
    Loopback,
    /// Reading and executing commands.
    Doorbells,
    /// Timers.
    Timers,
    /// Building and submitting frames, and the device's flush.
    Transmit,
    /// Waking applications.
    Wake,
    /// Messages of the agent.
    Agent,
}

/// Number of bins.
pub(crate) const BINS: usize = 8;

/// Their names in `stat`.
pub(crate) const NAMES: [&str; BINS] = [
    "driver",
    "receive",
    "loopback",
    "doorbells",
    "timers",
    "transmit",
    "wake",
    "agent",
];

/// Counters of the loop.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct LoopCounters {
    /// Turns of the loop.
    pub(crate) turns: u64,
    /// Turns that found something to do.
    pub(crate) productive_turns: u64,
    /// Times that the engine slept.
    pub(crate) sleeps: u64,
    /// Frames taken from the device.
    pub(crate) frames_in: u64,
    /// Frames sent.
    pub(crate) frames_out: u64,
    /// Commands read.
    pub(crate) commands: u64,
    /// Cycles of productive turns.
    pub(crate) productive_cycles: u64,
    /// Cycles of turns that found nothing.
    pub(crate) polling_cycles: u64,
    /// Cycles asleep.
    pub(crate) sleep_cycles: u64,
    /// Cycles of productive turns by bin.
    pub(crate) bins: [u64; BINS],
}

/// Takes the time between the parts of a turn.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    last: u64,
    first: u64,
}

impl Stopwatch {
    /// Begins a turn.
    #[inline]
    pub(crate) fn start(now: u64) -> Self {
        Self {
            last: now,
            first: now,
        }
    }

    /// Charges the time since the last call to a bin. Only a part that found something does so: the turn is productive.
    #[inline]
    pub(crate) fn lap(&mut self, counters: &mut LoopCounters, bin: Bin) {
        let now = sidecore_sys::clock::cycles();
        counters.bins[bin as usize] += now.wrapping_sub(self.last);
        self.last = now;
    }

    /// Ends the turn.
    #[inline]
    pub(crate) fn finish(self, counters: &mut LoopCounters, productive: bool) {
        counters.turns += 1;
        let cycles = sidecore_sys::clock::cycles().wrapping_sub(self.first);
        if productive {
            counters.productive_turns += 1;
            counters.productive_cycles += cycles;
        } else {
            counters.polling_cycles += cycles;
        }
    }
}
