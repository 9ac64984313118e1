//! TCP_NOTSENT_LOWAT: an application that keeps little unsent is told when little is.

use sidecore_abi::event::Event;
use sidecore_abi::{EventKind, Status};
use sidecore_stack::Stack;

use super::Tables;
use crate::dti::flag;

impl Tables {
    /// Tells those that wait for it and have little unsent; the others stay on the list. After transmission.
    #[cold]
    pub(crate) fn tell_writable(&mut self, stack: &Stack) {
        let mut waiting = std::mem::take(&mut self.lowat);
        waiting.retain(|slot| self.still_waits(*slot, stack));
        // Telling an application marks nobody.
        debug_assert!(self.lowat.is_empty());
        self.lowat = waiting;
    }

    /// Whether this one stays on the list.
    fn still_waits(&mut self, slot: u32, stack: &Stack) -> bool {
        let Some(dti) = self
            .dtis
            .get_mut(slot)
            .filter(|dti| dti.has(flag::LOWAT_DUE))
        else {
            return false;
        };
        let tcp = dti.conn().and_then(|conn| stack.connection(conn));
        let sent = match tcp {
            Some(tcp) => tcp.send_nxt(),
            None => {
                // Its end is told otherwise.
                dti.flags &= !flag::LOWAT_DUE;
                return false;
            }
        };
        if dti.has(flag::LOWAT) && dti.tx.end.saturating_sub(sent) >= u64::from(dti.notsent_lowat) {
            return true;
        }
        dti.flags &= !flag::LOWAT_DUE;
        let told = dti.has(flag::LOWAT);
        let (ual, evq, handle) = (dti.ual, dti.tx_evq, dti.handle);
        if told && dti.is_named() {
            let mut event = Event::new(EventKind::Writable, handle, 0, Status::Ok);
            event.body[0] = sent;
            self.emit(ual, evq, &event);
        }
        false
    }
}
