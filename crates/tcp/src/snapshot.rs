//! Live connections as values, so that another engine (or another process) can go on with them.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::connection::Cold;
use crate::flags::Flags;
use crate::flight::{Flight, Sent, Tick};
use crate::rack::Rack;
use crate::range_pool::{Range, RangeList, RangePool};
use crate::time::Instant;
use crate::window::Autotune;

/// What [`ConnectionSnapshot`] looks like. To be raised whenever a field of the control block changes.
const VERSION: u32 = 6;

/// A connection as a plain value: versioned, serialisable, without pointers. The fields are the crate's own affair.
#[derive(Debug, Serialize, Deserialize)]
pub struct ConnectionSnapshot {
    version: u32,
    connection: Connection,
    out_of_order: Vec<Range>,
    sacked: Vec<Range>,
    flight: Vec<(Range, Sent)>,
}

/// Why a snapshot could not be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestoreError {
    /// It is of another version of this crate.
    Version {
        /// The version that was found.
        found: u32,
    },
    /// The pool has too few ranges left.
    NoRanges,
    /// The ranges contradict the control block.
    Malformed,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => {
                write!(f, "snapshot of version {found}, this is version {VERSION}")
            }
            Self::NoRanges => f.write_str("too few sequence ranges are free"),
            Self::Malformed => f.write_str("the snapshot contradicts itself"),
        }
    }
}

impl core::error::Error for RestoreError {}

impl Connection {
    /// The whole control block as a value. The connection itself goes on.
    pub fn snapshot(&self, ranges: &RangePool) -> ConnectionSnapshot {
        ConnectionSnapshot {
            version: VERSION,
            connection: self.without_ranges(),
            out_of_order: self.cold.out_of_order.iter(ranges).collect(),
            sacked: self.cold.sacked.iter(ranges).collect(),
            flight: self.cold.flight.iter(ranges).collect(),
        }
    }

    /// Goes on with a connection on another clock: the moment that the old clock called `from`, the new one calls `to`. The
    /// peer notices nothing: timers keep their distance, and the timestamps that it sees do not jump.
    ///
    /// # Errors
    /// [`RestoreError`]; then `ranges` is as before.
    pub fn restore(
        snapshot: &ConnectionSnapshot,
        from: Instant,
        to: Instant,
        ranges: &mut RangePool,
    ) -> Result<Self, RestoreError> {
        if snapshot.version != VERSION {
            return Err(RestoreError::Version {
                found: snapshot.version,
            });
        }
        let mut connection = snapshot.connection.without_ranges();
        connection.change_clock(from, to);
        let restored = fill(
            &mut connection.cold.out_of_order,
            &snapshot.out_of_order,
            ranges,
        )
        .and_then(|()| fill(&mut connection.cold.sacked, &snapshot.sacked, ranges))
        .and_then(|()| {
            let jump = Tick::jump(from, to);
            fill_flight(&mut connection.cold.flight, &snapshot.flight, jump, ranges)
        })
        .and_then(|()| connection.ranges_fit(ranges));
        if let Err(error) = restored {
            connection.release(ranges);
            return Err(error);
        }
        Ok(connection)
    }

    fn without_ranges(&self) -> Self {
        Self {
            cold: Cold {
                out_of_order: RangeList::new(),
                sacked: RangeList::new(),
                flight: Flight::new(),
                seldom: self.cold.seldom.clone(),
                controller: self.cold.controller.clone(),
                pacing: self.cold.pacing.clone(),
                ..self.cold
            },
            ..*self
        }
    }

    fn change_clock(&mut self, from: Instant, to: Instant) {
        let Self {
            retransmit_at,
            ack_at,
            idle_at,
            run_at,
            rtt_started,
            last_received,
            cold:
                Cold {
                    rack: Rack { due, sent_at, .. },
                    cork_at,
                    unanswered_since,
                    autotune: Autotune { started, .. },
                    ..
                },
            ..
        } = self;
        *sent_at = sent_at.shifted(Tick::jump(from, to));
        for time in [
            due,
            run_at,
            retransmit_at,
            ack_at,
            idle_at,
            rtt_started,
            last_received,
            cork_at,
            unanswered_since,
            started,
        ] {
            *time = time.on_other_clock(from, to);
        }
        use crate::congestion::CongestionControl;
        self.cold.controller.change_clock(from, to);
        if let Some(pacing) = &mut self.cold.pacing {
            pacing.change_clock(from, to);
        }
        let jump = (to.as_millis() as u32).wrapping_sub(from.as_millis() as u32);
        self.ts_offset = self.ts_offset.wrapping_sub(jump);
    }

    /// That the ranges are what the rest of the control block says.
    fn ranges_fit(&self, ranges: &RangePool) -> Result<(), RestoreError> {
        let cold = &self.cold;
        let sacked: u64 = cold.sacked.iter(ranges).map(Range::len).sum();
        let inside = |list: &RangeList, after: u64, until: u64| {
            list.first(ranges).is_none_or(|first| first.start > after)
                && list.last(ranges).is_none_or(|last| last.end <= until)
        };
        let fits = sacked == u64::from(cold.sacked_bytes)
            && inside(&cold.sacked, self.snd_una, self.snd_nxt)
            && inside(&cold.out_of_order, self.rcv_nxt, self.rcv_adv)
            && self.transmit_times_fit(ranges)
            && self.flags.any(Flags::SACKED) != cold.sacked.is_empty()
            && self.flags.any(Flags::OUT_OF_ORDER) != cold.out_of_order.is_empty();
        if fits {
            Ok(())
        } else {
            Err(RestoreError::Malformed)
        }
    }
}

fn fill(list: &mut RangeList, from: &[Range], ranges: &mut RangePool) -> Result<(), RestoreError> {
    for range in from {
        if range.start >= range.end {
            return Err(RestoreError::Malformed);
        }
        list.insert(ranges, *range)
            .map_err(|_| RestoreError::NoRanges)?;
    }
    Ok(())
}

fn fill_flight(
    list: &mut Flight,
    from: &[(Range, Sent)],
    jump: u32,
    ranges: &mut RangePool,
) -> Result<(), RestoreError> {
    let mut end = 0;
    for (range, sent) in from {
        if range.start >= range.end || range.start < end {
            return Err(RestoreError::Malformed);
        }
        end = range.end;
        list.push(ranges, *range, sent.shifted(jump))
            .map_err(|_| RestoreError::NoRanges)?;
    }
    Ok(())
}

/// Sequence numbers as numbers.
pub(crate) mod seq {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use sidecore_wire::SeqNumber;

    pub(crate) fn serialize<S: Serializer>(seq: &SeqNumber, to: S) -> Result<S::Ok, S::Error> {
        seq.0.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SeqNumber, D::Error> {
        u32::deserialize(from).map(SeqNumber)
    }
}

/// Window scales as numbers.
pub(crate) mod scale {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use sidecore_wire::WindowScale;

    pub(crate) fn serialize<S: Serializer>(scale: &WindowScale, to: S) -> Result<S::Ok, S::Error> {
        scale.shift().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<WindowScale, D::Error> {
        u8::deserialize(from).map(WindowScale::new)
    }
}
