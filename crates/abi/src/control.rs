//! Where things lie in a UAL's control memory, one memfd for each UAL, made and sealed by the agent.
//!
//! ```text
//!   page 0   engine lines       64 B for each engine thread: whether it sleeps      (EngineWord)
//!            bell lines         64 B for each engine thread, application writes: which parked lanes have entries
//!            wait cells         64 B each: one application thread sleeps on each     (WaitCell)
//!            event queue words  64 B each: which wait cell to wake                  (EvqWord)
//!   lanes    DbQ lane 0: reader's line (64 B, engine writes), then 2^order entries (application writes)
//!            …
//!            EvQ lane 0: reader's line (64 B, application writes), then 2^order entries (engine writes)
//!            …
//! ```
//!
//! With several engine threads there is a DbQ lane for each pair (application lane, engine thread) and an EvQ lane
//! for each pair (event queue, engine thread): `lane * engines + engine`.
//!
//! Both sides compute every offset from [`Geometry`], which the agent granted over its socket. Nothing in the memory itself says where
//! anything lies, so that nothing there can lie about it.
//!
//! ## The wake-up protocol
//!
//! Each side that wants to sleep announces it, fences (SeqCst), looks again, and only then sleeps; each side that published
//! something fences (SeqCst) and then looks at the announcement. One of the two sees the other.
//!
//! - *Application sleeps.* It stores its wait cell's number plus one into the [`EvqWord`] of each queue that it waits for, stores
//!   [`WAIT_SLEEPING`] into the cell *before* that, fences, looks at the queues again, sleeps on the cell (futex, or the cell's socket). The engine,
//!   once a turn for each event queue that got an event: fence; if the queue's word is not 0 it exchanges it for 0 and, if the cell
//!   exchanges from `WAIT_SLEEPING` to `WAIT_WOKEN`, wakes it: futex, and a byte to the cell's socket if it has one.
//! - *Engine sleeps.* It stores [`ENGINE_SLEEPING`] into each UAL's engine line, fences, looks at all lanes and bells again, sleeps. An
//!   application that posted fences, and if the word says sleeping exchanges it for [`ENGINE_AWAKE`] and, if it was the one to do so, sends one byte on
//!   its wake socket.
//! - *Engine parks a lane* that has been empty for long: stores [`LANE_PARKED`] into the state word of the lane's reader's line, fences, looks once more. An
//!   application that posted to a lane whose state is parked sets the lane's bit in the bell (Release, after the entry), fences, then looks at the
//!   engine word as above. The engine reads one bell line for each UAL and turn.
//! - *Event queue is full.* The engine keeps what it could not deliver. Before it sleeps on that it stores [`EVQ_STARVING`] into the second word of the
//!   queue's line ([`EVQ_STARVED`]), fences, and looks at the credit once more. An application that returned credit fences, and if that word is not 0
//!   exchanges it for 0 and looks at the engine word as above.

use crate::{Entry, LINE};

/// Line of an engine thread, offset 0, u32, written by that thread (to [`ENGINE_SLEEPING`]) and exchanged by the application (to [`ENGINE_AWAKE`]).
pub const ENGINE_AWAKE: u32 = 0;
/// See [`ENGINE_AWAKE`].
pub const ENGINE_SLEEPING: u32 = 1;

/// Wait cell, offset 0, u32: nobody sleeps here. Application writes.
pub const WAIT_IDLE: u32 = 0;
/// A thread sleeps or is about to, on the futex or on the cell's socket: both are woken. Application writes, engine exchanges.
pub const WAIT_SLEEPING: u32 = 1;
/// The engine woke it. Engine writes.
pub const WAIT_WOKEN: u32 = 2;
/// As [`WAIT_SLEEPING`], but on the cell's socket only (in epoll): the engine saves the futex call.
pub const WAIT_POLLING: u32 = 3;

/// Offset in an event queue's line ([`Geometry::evq_word`]) of a u32: [`EVQ_STARVING`] while the engine holds events back because the queue is
/// full, else 0. Engine writes, application exchanges for 0.
pub const EVQ_STARVED: usize = 4;
/// See [`EVQ_STARVED`].
pub const EVQ_STARVING: u32 = 1;

/// Reader's line of a DbQ lane, second u32: the engine polls this lane. Engine writes.
pub const LANE_ACTIVE: u32 = 0;
/// The engine looks at this lane only when its bell bit is set. Engine writes.
pub const LANE_PARKED: u32 = 1;

/// Offset in a reader's line of the running count (u32, wrapping) of entries that the reader has taken: the credit. Written lazily, at least
/// once for every half of the lane.
pub const READER_TAKEN: usize = 0;
/// Offset in a DbQ reader's line of its state, [`LANE_ACTIVE`] or [`LANE_PARKED`].
pub const READER_STATE: usize = 4;

/// Limits on what an application may ask for.
pub mod limits {
    /// DbQ lanes of one UAL.
    pub const LANES: u32 = 512;
    /// Event queues of one UAL.
    pub const EVQS: u32 = 512;
    /// Wait cells of one UAL.
    pub const WAIT_CELLS: u32 = 1024;
    /// Smallest and largest order of a lane: 8 to 65536 entries.
    pub const ORDER: core::ops::RangeInclusive<u32> = 3..=16;
    /// Engine threads.
    pub const ENGINES: u32 = 64;
    /// Bytes of control memory. What is larger takes too long to map, and to punch holes into while the engine waits for a page of it.
    pub const CONTROL_BYTES: usize = 128 << 20;
    /// Registered regions of one UAL. Each is a mapping of the engine, and of those a process has some 65 000.
    pub const REGIONS: u32 = 256;
    /// Extents in the list of one [`crate::Operation::Send`] ([`crate::command::flags::LIST`]).
    pub const LIST: u32 = 64;
}

/// The numbers from which every offset follows. What the agent granted, not what the application asked for, counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Geometry {
    /// Engine threads.
    pub engines: u32,
    /// DbQ lanes (for each engine thread).
    pub lanes: u32,
    /// log2 of the entries of a DbQ lane.
    pub lane_order: u32,
    /// Event queues.
    pub evqs: u32,
    /// log2 of the entries of an EvQ lane.
    pub evq_order: u32,
    /// Wait cells.
    pub wait_cells: u32,
}

const PAGE: usize = 4096;

const fn lane_bytes(order: u32) -> usize {
    LINE + (size_of::<Entry>() << order)
}

impl Geometry {
    /// Whether every number is within [`limits`]. All offsets below are meaningful, and cannot overflow, only then.
    pub fn is_valid(&self) -> bool {
        (1..=limits::ENGINES).contains(&self.engines)
            && (1..=limits::LANES).contains(&self.lanes)
            && (1..=limits::EVQS).contains(&self.evqs)
            && (1..=limits::WAIT_CELLS).contains(&self.wait_cells)
            && limits::ORDER.contains(&self.lane_order)
            && limits::ORDER.contains(&self.evq_order)
            && self.size() <= limits::CONTROL_BYTES
    }

    /// The nearest valid geometry: each number is brought within its limits, then the longer lanes are halved, and at last
    /// lanes and queues, until all fits into [`limits::CONTROL_BYTES`].
    pub fn clamped(&self) -> Self {
        let order = |order: u32| order.clamp(*limits::ORDER.start(), *limits::ORDER.end());
        let mut g = Self {
            engines: self.engines.clamp(1, limits::ENGINES),
            lanes: self.lanes.clamp(1, limits::LANES),
            lane_order: order(self.lane_order),
            evqs: self.evqs.clamp(1, limits::EVQS),
            evq_order: order(self.evq_order),
            wait_cells: self.wait_cells.clamp(1, limits::WAIT_CELLS),
        };
        while g.size() > limits::CONTROL_BYTES {
            let (lanes, evqs) = (g.lanes << g.lane_order, g.evqs << g.evq_order);
            let smallest = *limits::ORDER.start();
            if lanes >= evqs && g.lane_order > smallest {
                g.lane_order -= 1;
            } else if g.evq_order > smallest {
                g.evq_order -= 1;
            } else if g.lane_order > smallest {
                g.lane_order -= 1;
            } else {
                g.lanes = (g.lanes / 2).max(1);
                g.evqs = (g.evqs / 2).max(1);
            }
        }
        g
    }

    /// Line of an engine thread: each sleeps and wakes by itself.
    pub const fn engine_word(&self, engine: u32) -> usize {
        engine as usize * LINE
    }

    const fn bells_start(&self) -> usize {
        self.engines as usize * LINE
    }

    /// Bell word (u64) number `word` of an engine thread: bit b stands for DbQ lane `64 * word + b`. Eight words make a line.
    pub const fn bell_word(&self, engine: u32, word: u32) -> usize {
        self.bells_start() + engine as usize * LINE + word as usize * 8
    }

    /// Wait cell.
    pub const fn wait_cell(&self, cell: u32) -> usize {
        self.bells_start() + self.engines as usize * LINE + cell as usize * LINE
    }

    /// Word (u32) of an event queue: number of the wait cell to wake plus one, or 0. One line for each queue and engine thread.
    pub const fn evq_word(&self, evq: u32, engine: u32) -> usize {
        self.wait_cell(self.wait_cells) + (evq * self.engines + engine) as usize * LINE
    }

    const fn lanes_start(&self) -> usize {
        let words = self.wait_cell(self.wait_cells) + (self.evqs * self.engines) as usize * LINE;
        words.next_multiple_of(PAGE)
    }

    /// Reader's line of a DbQ lane; its entries follow one [`LINE`] later.
    pub const fn lane(&self, lane: u32, engine: u32) -> usize {
        self.lanes_start() + (lane * self.engines + engine) as usize * lane_bytes(self.lane_order)
    }

    /// Reader's line of an EvQ lane; its entries follow one [`LINE`] later.
    pub const fn evq(&self, evq: u32, engine: u32) -> usize {
        self.lane(self.lanes, 0)
            + (evq * self.engines + engine) as usize * lane_bytes(self.evq_order)
    }

    /// Size of the control memory in bytes, whole pages.
    pub const fn size(&self) -> usize {
        self.evq(self.evqs, 0).next_multiple_of(PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(engines: u32, lanes: u32, evqs: u32) -> Geometry {
        Geometry {
            engines,
            lanes,
            lane_order: 4,
            evqs,
            evq_order: 5,
            wait_cells: 3,
        }
    }

    #[test]
    fn nothing_overlaps() {
        for engines in [1, 2, 5] {
            let g = geometry(engines, 70, 9);
            let mut places = Vec::new();
            for engine in 0..engines {
                places.push((g.engine_word(engine), LINE));
                places.push((g.bell_word(engine, 0), LINE));
                places.extend(
                    (0..g.lanes).map(|lane| (g.lane(lane, engine), LINE + (LINE << g.lane_order))),
                );
                places.extend((0..g.evqs).map(|evq| (g.evq_word(evq, engine), LINE)));
                places.extend(
                    (0..g.evqs).map(|evq| (g.evq(evq, engine), LINE + (LINE << g.evq_order))),
                );
            }
            places.extend((0..g.wait_cells).map(|cell| (g.wait_cell(cell), LINE)));
            places.sort_unstable();
            for pair in places.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
            }
            assert!(places.iter().all(|(at, _)| at % LINE == 0));
            let (last, len) = places[places.len() - 1];
            assert!(last + len <= g.size() && g.size() - (last + len) < PAGE);
        }
    }

    #[test]
    fn limits_hold_at_their_corners() {
        let largest = Geometry {
            engines: limits::ENGINES,
            lanes: limits::LANES,
            lane_order: 16,
            evqs: limits::EVQS,
            evq_order: 16,
            wait_cells: limits::WAIT_CELLS,
        };
        assert!(!largest.is_valid(), "all at once is too much memory");
        let wide = largest.clamped();
        assert!(wide.is_valid() && wide.size() > wide.lane(wide.lanes - 1, 63));
        assert_eq!(wide.clamped(), wide);
        let one = Geometry {
            engines: 1,
            ..largest
        };
        let one = one.clamped();
        assert!(one.is_valid() && one.lanes == limits::LANES && one.evqs == limits::EVQS);
        assert_eq!((one.lane_order, one.evq_order), (10, 11));
        assert!(
            limits::LANES as usize <= LINE * 8,
            "one bell line holds every lane"
        );
        let largest = one;
        for bad in [
            Geometry {
                engines: 0,
                ..largest
            },
            Geometry {
                lanes: 513,
                ..largest
            },
            Geometry {
                lanes: 0,
                ..largest
            },
            Geometry {
                evqs: u32::MAX,
                ..largest
            },
            Geometry {
                lane_order: 2,
                ..largest
            },
            Geometry {
                evq_order: 17,
                ..largest
            },
            Geometry {
                wait_cells: 0,
                ..largest
            },
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
            assert!(bad.clamped().is_valid(), "{bad:?}");
        }
        let modest = geometry(1, 4, 8);
        assert_eq!(
            modest.clamped(),
            modest,
            "what is valid is granted as it is"
        );
    }
}
