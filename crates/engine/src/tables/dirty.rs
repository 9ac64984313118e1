//! What applications did reaches the stack: once a turn for each DTI, however many commands touched it.

use sidecore_abi::Status;
use sidecore_stack::{ConnId, Stack};

use super::Tables;
use crate::dti::{Role, flag};

/// Windows of auto-tuned connections are at most this.
const WINDOW_MAX: u32 = 6 << 20;

/// … and at least this, whatever is free: enough for a few full segments.
const WINDOW_MIN: u32 = 16384;

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
        if dti.has(flag::CLOSE) && dti.has(flag::RESET_ON_CLOSE) {
            stack.abort(conn);
            self.connection_over(slot, sidecore_tcp::CloseReason::Aborted);
            return;
        }
        for option in std::mem::take(&mut dti.options) {
            stack.set_option(conn, option);
        }
        let more = dti.has(flag::MORE) && !dti.has(flag::SHUTDOWN);
        stack.set_send_limit(conn, dti.tx.end, more);
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
        self.tell_window(stack, slot, conn);
    }

    /// Moves the right edge of the receive window as far as the pool backs it.
    fn tell_window(&mut self, stack: &mut Stack, slot: u32, conn: ConnId) {
        let Some(dti) = self.dtis.get(slot) else {
            return;
        };
        let option = dti.rx.window_option;
        let returned = if dti.has(flag::READ_SHUT) {
            dti.rx.in_order
        } else {
            dti.rx.returned
        };
        // At least a few full segments (64 KiB each on the loopback), so that acknowledgements need not wait for their delay.
        let hint = stack.connection(conn).map_or(0, |c| {
            c.receive_window_hint()
                .max(8 * u32::from(c.effective_mss()))
        });
        let Some(Some(ual)) = self.uals.get(dti.ual as usize) else {
            return;
        };
        let (free, size) = (ual.chunks.free_bytes(), ual.chunks.size());
        let wished = if option > 0 {
            option
        } else {
            hint.clamp(super::incoming::INITIAL_WINDOW, WINDOW_MAX)
        };
        // Windows are over-committed: a connection may have an eighth of what is free, and the least in any case. What is not
        // there when data comes is refused before TCP sees it (`room`), and counted.
        let window = u64::from(wished)
            .min((free / 8).max(u64::from(WINDOW_MIN)))
            .min(size / 2);
        let limit = returned + window;
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        if limit > dti.rx.limit {
            dti.rx.limit = limit;
            stack.set_receive_limit(conn, limit);
        }
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
