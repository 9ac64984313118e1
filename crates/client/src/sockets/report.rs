//! What became of datagrams (IP_RECVERR): reports as the engine gives them, kept until they are asked for.

use std::collections::VecDeque;
use std::net::SocketAddr;

use sidecore_abi::error_report::ERROR_PAYLOAD_MAX;
use sidecore_abi::{ErrorReport, Event};

use super::group::{Group, lock};

/// Reports that one socket keeps.
const REPORTS: usize = 64;

/// What became of a datagram that a UDP socket sent: one message of Linux' error queue (`MSG_ERRQUEUE`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatagramReport {
    /// What went wrong, and who says so.
    pub error: ErrorReport,
    /// Where the datagram was sent.
    pub destination: SocketAddr,
    /// The first bytes of its payload, as many as the error quoted: of IPv4 often none.
    pub payload: Vec<u8>,
}

/// The reports of one socket.
#[derive(Debug, Default)]
pub(super) struct Reports {
    kept: VecDeque<DatagramReport>,
    lost: u64,
}

impl Reports {
    /// Takes a report out of its chunk, which goes back at once.
    pub(super) fn receive(&mut self, group: &Group, event: &Event, closed: bool) {
        let mut bytes = [0; ErrorReport::LEN + ERROR_PAYLOAD_MAX];
        let len = group.ual.pool().read(event, &mut bytes);
        lock(&group.lane).return_chunk(event);
        let report = ErrorReport::from_bytes(&bytes[..len]).zip(event.address(2).get());
        match report {
            Some((error, destination)) if !closed && self.kept.len() < REPORTS => {
                self.kept.push_back(DatagramReport {
                    error,
                    destination,
                    payload: bytes[ErrorReport::LEN..len].to_vec(),
                });
            }
            _ => self.lost += 1,
        }
    }

    pub(super) fn take(&mut self) -> Option<DatagramReport> {
        self.kept.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }
}
