//! What became of datagrams: told to the application as Linux tells it.

use sidecore_abi::error_report::{ERROR_PAYLOAD_MAX, TOO_LARGE, icmp_errno, icmpv6_errno};
use sidecore_abi::event::{self, Event};
use sidecore_abi::{Address, ErrorOrigin, ErrorReport, EventKind};
use sidecore_shm::MemRef;
use sidecore_stack::{DatagramError, User};

use super::Tables;
use crate::dti::{Role, flag};

impl Tables {
    /// An ICMP error about a datagram. A socket that asked for reports gets one, in a chunk. Of others a connected one is told of what
    /// is final, and an unconnected one nothing, as its calls could not say which of its peers it is about.
    pub(crate) fn datagram_error(&mut self, user: User, error: &DatagramError<'_>) {
        let Some(slot) = self.speaker(user) else {
            return;
        };
        let Some(dti) = self.dtis.get(slot) else {
            return;
        };
        let Role::Datagram { peer, .. } = dti.role else {
            return;
        };
        let (kind, code) = error.message;
        let (origin, known) = if error.remote.is_ipv6() {
            (ErrorOrigin::Icmpv6, icmpv6_errno(kind, code))
        } else {
            (ErrorOrigin::Icmp, icmp_errno(kind, code))
        };
        let Some((errno, is_final)) = known else {
            return;
        };
        let report = ErrorReport {
            errno,
            origin,
            kind,
            code,
            info: error.info,
            offender: Some(error.offender),
        };
        let to = Address::new(error.remote);
        if dti.has(flag::RECEIVE_ERRORS) {
            self.tell_report(slot, &report, to, error.payload);
        } else if is_final && peer == Some(error.remote) {
            self.tell_error(slot, &report, to);
        }
    }

    /// A datagram was larger than what passes, which is known on this side.
    pub(crate) fn datagram_too_large(&mut self, slot: User, to: Address, mtu: u32) {
        let wanted = |dti: &crate::dti::Dti| dti.has(flag::RECEIVE_ERRORS);
        if self.dtis.get(slot).is_some_and(wanted) {
            let report = ErrorReport {
                errno: TOO_LARGE,
                origin: ErrorOrigin::Local,
                kind: 0,
                code: 0,
                info: mtu,
                offender: None,
            };
            self.tell_report(slot, &report, to, &[]);
        }
    }

    /// A report with the first bytes of the datagram. Without room it is counted, and the error is told as a connected socket's.
    fn tell_report(&mut self, slot: User, report: &ErrorReport, to: Address, payload: &[u8]) {
        let Some(dti) = self.dtis.get(slot) else {
            return;
        };
        let (ual_slot, epoch, evq, handle) = (dti.ual, dti.epoch, dti.rx_evq, dti.handle);
        let payload = &payload[..payload.len().min(ERROR_PAYLOAD_MAX)];
        let len = (ErrorReport::LEN + payload.len()) as u32;
        let Some(Some(ual)) = self.uals.get_mut(ual_slot as usize) else {
            return;
        };
        // As with datagrams: what may be dropped never starves what was promised room.
        let scarce = ual.chunks.free_bytes() <= ual.chunks.size() / super::store::RESERVE;
        let place = if ual.gone || scarce || !ual.accepts(evq) {
            None
        } else {
            ual.chunks.allocate(len, slot, epoch)
        };
        let Some((chunk, offset, _)) = place else {
            ual.counters.error_reports_dropped += 1;
            return self.tell_error(slot, report, to);
        };
        ual.chunks
            .write(offset, MemRef::from_bytes(&report.to_bytes()));
        let behind = offset + ErrorReport::LEN as u64;
        ual.chunks.write(behind, MemRef::from_bytes(payload));
        let mut event = Event::received(handle, chunk, offset, len, 0, false);
        event.kind = EventKind::ErrorReport;
        event.status = report.status();
        let event = event.with_address(2, to);
        ual.chunks.hand_over(chunk, 0);
        ual.emit(evq, &event);
    }

    /// The error alone.
    fn tell_error(&mut self, slot: User, report: &ErrorReport, to: Address) {
        let Some(dti) = self.dtis.get(slot) else {
            return;
        };
        let (ual_slot, evq) = (dti.ual, dti.rx_evq);
        let mut event = Event::new(EventKind::Error, dti.handle, 0, report.status());
        event.flags = event::flags::FAILED;
        let event = event.with_address(2, to);
        if let Some(ual) = self.ual(ual_slot)
            && !ual.gone
            && ual.accepts(evq)
        {
            ual.emit(evq, &event);
        }
    }
}
