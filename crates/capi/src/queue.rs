//! Event queues, and how an event of the engine becomes one of C.

use std::ptr;

use sidecore_client::{Event, EventKind, EventQueue, ReceivePool};

use crate::handle::{Name, UalName};
use crate::status::Outcome;
use crate::types::{Dusi_Event, Dusi_Event_Kind};
use crate::{signal, table};

/// An event queue of a UAL.
pub(crate) struct Queue {
    ual: UalName,
    generation: u32,
    pub(crate) events: EventQueue,
    pool: ReceivePool,
    /// A signal is associated with its descriptor.
    pub(crate) signals: bool,
}

impl Queue {
    pub(crate) fn new(
        ual: UalName,
        generation: u32,
        events: EventQueue,
        pool: ReceivePool,
    ) -> Self {
        Self {
            ual,
            generation,
            events,
            pool,
            signals: false,
        }
    }

    pub(crate) fn ual(&self) -> UalName {
        self.ual
    }

    pub(crate) fn index(&self) -> u16 {
        self.events.id().index()
    }

    /// Whether it is what a handle names.
    #[inline]
    pub(crate) fn is(&self, name: Name) -> bool {
        name.ual == self.ual && name.evq() == (self.index(), self.generation)
    }

    /// The next event. Takes the doorbell's lock for the few kinds that change its books.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Dusi_Event> {
        let event = self.events.poll()?;
        if matches!(
            event.kind,
            EventKind::Closed | EventKind::Registered | EventKind::Completion
        ) {
            let queue = self.index();
            table::with_name(self.ual, |door| door.settle(&event, queue));
        }
        Some(self.translate(&event))
    }

    /// An event as C has it.
    fn translate(&self, event: &Event) -> Dusi_Event {
        let dti = event.dti;
        let mut out = Dusi_Event {
            kind: event.kind as u32,
            status: i32::from(event.status as u16),
            operation: 0,
            flags: u32::from(event.flags),
            dti: if dti.generation == 0 {
                0
            } else {
                self.ual.dti(dti.index, dti.generation)
            },
            cookie: match event.kind {
                // Says how it arrived, which this interface does not tell.
                EventKind::Datagram => 0,
                _ => event.cookie,
            },
            chunk: 0,
            data: ptr::null(),
            length: 0,
            position: 0,
            value: 0,
            address: [0; 3],
        };
        let first = |event: &Event| [event.body[0], event.body[1], event.body[2]];
        match event.kind {
            EventKind::Completion => {
                out.operation = event.body[4] as u32;
                out.value = event.body[0];
                out.address = first(event);
            }
            EventKind::Received | EventKind::Datagram | EventKind::ErrorReport => {
                self.name_bytes(event, &mut out);
                if event.kind == EventKind::Received {
                    out.position = event.body[2];
                } else {
                    out.address = [event.body[2], event.body[3], event.body[4]];
                }
            }
            EventKind::ReceivedInto => {
                out.length = event.body[0] & u64::from(u32::MAX);
                out.position = event.body[2];
            }
            EventKind::Accepted | EventKind::Connected => out.address = first(event),
            EventKind::Sent | EventKind::Writable | EventKind::Urgent => {
                out.position = event.body[0]
            }
            EventKind::Incoming => out.value = event.body[0],
            EventKind::Error => out.address = [event.body[2], event.body[3], event.body[4]],
            // DUSI has no calls that make connections change hands.
            EventKind::Detached | EventKind::Attached => {}
            EventKind::Registered | EventKind::Closed => {}
        }
        out
    }

    /// Where the bytes of an event lie; nothing, when that is not in the pool.
    #[inline]
    fn name_bytes(&self, event: &Event, out: &mut Dusi_Event) {
        let bytes = self
            .pool
            .with_chunk(event, |bytes| (bytes.as_ptr(), bytes.len()));
        if let Some((data, len)) = bytes {
            out.data = data.cast();
            out.length = len as u64;
        }
        if event.chunk() != sidecore_abi::event::NO_CHUNK {
            out.chunk = self.ual.chunk(event.chunk());
        }
    }

    /// Takes what is left and gives chunks back, so that the next user of the place begins with an empty queue.
    pub(crate) fn drain(&mut self) -> Outcome {
        while let Some(event) = self.events.poll() {
            let queue = self.index();
            table::with_name(self.ual, |door| {
                door.settle(&event, queue);
                door.lane.return_chunk(&event);
            });
        }
        if self.signals {
            signal::dissociate(self.events.fd()?)?;
            self.signals = false;
        }
        Ok(())
    }
}

const _: () = {
    assert!(EventKind::ErrorReport as u32 == Dusi_Event_Kind::DUSI_EVENT_ERROR_REPORT as u32);
    assert!(EventKind::Sent as u32 == Dusi_Event_Kind::DUSI_EVENT_SENT as u32);
};
