//! What applications did reaches the stack: once a turn for each DTI, however many commands touched it.

use sidecore_abi::Status;
use sidecore_stack::{ConnId, Stack};

use super::Tables;
use crate::dti::{Role, flag};

/// Windows of auto-tuned connections are at most this.
const WINDOW_MAX: u32 = 6 << 20;

/// … and at least this, whatever is free: enough for a few full segments.
const WINDOW_MIN: u32 = 16384;

/// With one of these, there is more to tell than limits.
const SPECIAL: u32 = flag::CLOSE | flag::SHUTDOWN | flag::LOWAT | flag::URGENT_SENT;

impl Tables {
    /// Tells the stack about every DTI on the dirty list.
    pub(crate) fn tell_stack(&mut self, stack: &mut Stack) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for slot in dirty.drain(..) {
            self.tell_one(stack, slot);
        }
        // Telling may have marked others (a connection that ends lets go of chunks): they must not be forgotten.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    fn tell_one(&mut self, stack: &mut Stack, slot: u32) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        dti.flags &= !flag::DIRTY;
        let conn = match dti.role {
            Role::Connected(conn) => conn,
            Role::Connecting { conn, .. } => conn,
            _ => return,
        };
        let special =
            dti.flags & SPECIAL != 0 || dti.end_cookie.is_some() || !dti.options.is_empty();
        if special && self.tell_first(stack, slot, conn) {
            return;
        }
        self.tell_limits(stack, slot, conn);
        if special {
            self.tell_last(stack, slot, conn);
        }
    }

    /// What comes before the limits; true when that was all.
    #[cold]
    fn tell_first(&mut self, stack: &mut Stack, slot: u32, conn: ConnId) -> bool {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return true;
        };
        if dti.has(flag::CLOSE) && dti.has(flag::RESET_ON_CLOSE) {
            stack.abort(conn);
            self.connection_over(slot, sidecore_tcp::CloseReason::Aborted);
            return true;
        }
        for option in std::mem::take(&mut dti.options) {
            stack.set_option(conn, option);
        }
        if dti.has(flag::URGENT_SENT) {
            // Before the limits: what makes the data urgent must be known when it leaves.
            dti.flags &= !flag::URGENT_SENT;
            stack.set_urgent(conn, dti.tx.urgent);
        }
        false
    }

    /// The orders that come after the limits: the end of sending, the end of all.
    #[cold]
    fn tell_last(&mut self, stack: &mut Stack, slot: u32, conn: ConnId) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        if dti.has(flag::LOWAT) && !dti.has(flag::LOWAT_DUE) {
            dti.flags |= flag::LOWAT_DUE;
            self.lowat.push(slot);
        }
        if dti.has(flag::SHUTDOWN) && !dti.has(flag::SHUTDOWN_TOLD) {
            dti.flags |= flag::SHUTDOWN_TOLD;
            stack.shutdown_send(conn);
        }
        // In SYN-SENT TCP forgets the connection at once (RFC 9293 section 3.10.4); but data was queued first, which "Close"
        // promises to send: it waits for the handshake.
        let wait = matches!(dti.role, Role::Connecting { .. }) && dti.tx.end > 0;
        if dti.has(flag::CLOSE) && !dti.has(flag::CLOSE_TOLD) && !wait {
            dti.flags |= flag::CLOSE_TOLD;
            stack.close(conn);
        }
        if dti.end_cookie.is_some() && stack.connection(conn).is_some_and(|c| c.fin_acked()) {
            self.complete_shutdown(slot, Status::Ok);
        }
    }

    /// Says how far the application has written, and moves the right edge of the receive window as far as the pool backs it.
    #[inline]
    fn tell_limits(&mut self, stack: &mut Stack, slot: u32, conn: ConnId) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let more = dti.has(flag::MORE) && !dti.has(flag::SHUTDOWN);
        let returned = if dti.has(flag::READ_SHUT) {
            dti.rx.in_order
        } else {
            dti.rx.returned
        };
        let pool = self.uals.get(dti.ual as usize).and_then(Option::as_ref);
        let pool = pool.map(|ual| (ual.chunks.free_bytes(), ual.chunks.size()));
        let rx = &mut dti.rx;
        stack.set_limits(conn, dti.tx.end, more, |tcp| {
            let (free, size) = pool?;
            let wished = if rx.window_option > 0 {
                rx.window_option
            } else {
                // At least a few full segments (64 KiB each on the loopback), so that acknowledgements need not wait for their
                // delay.
                tcp.receive_window_hint()
                    .max(8 * u32::from(tcp.effective_mss()))
                    .clamp(super::incoming::INITIAL_WINDOW, WINDOW_MAX)
            };
            // Windows are over-committed: a connection may have an eighth of what is free, and the least in any case. What is not
            // there when data comes is refused before TCP sees it (`room`), and counted.
            let window = u64::from(wished)
                .min((free / 8).max(u64::from(WINDOW_MIN)))
                .min(size / 2);
            let limit = returned + window;
            (limit > rx.limit).then(|| {
                rx.limit = limit;
                limit
            })
        });
    }

    /// Tries again to deliver what found its event queue full.
    pub(crate) fn retry_stalled(&mut self, ual_slot: u32) {
        let Some(ual) = self.ual(ual_slot) else {
            return;
        };
        let mut stalled = std::mem::take(&mut ual.stalled);
        for _ in 0..stalled.len() {
            let Some(slot) = stalled.pop_front() else {
                break;
            };
            let Some(dti) = self.dtis.get_mut(slot) else {
                continue;
            };
            if dti.ual != ual_slot || !dti.has(flag::STALLED) {
                continue;
            }
            dti.flags &= !flag::STALLED;
            self.reap(slot);
            self.deliver(slot);
        }
        // Those that found the queue full again put themselves onto the new list.
        if let Some(ual) = self.ual(ual_slot)
            && ual.stalled.is_empty()
        {
            ual.stalled = stalled;
        }
    }
}
