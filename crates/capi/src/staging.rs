//! Registered memory of the library's own: small sends from anywhere are copied here, and the lists of vectored sends lie here.
//!
//! A slot is used again after twice as many postings as the doorbell queue holds. By then the engine has read *and executed* what was posted
//! with it: that many commands can only have been posted if it has read those of the first half, and it executes one before it reads the next.

use sidecore_client::{Extent, Region, Ual};

use crate::status::Dusi_Status::*;
use crate::status::Outcome;
use crate::types::{DUSI_COPY_MAX, DUSI_VECTOR_MAX};

/// Bytes of a slot.
const SLOT: u64 = 256;

const _: () = assert!(DUSI_COPY_MAX as u64 <= SLOT && DUSI_VECTOR_MAX as u64 * 16 <= SLOT);
const _: () = assert!(DUSI_COPY_MAX == sidecore_client::COPY_MAX);

pub(crate) struct Staging {
    region: Region,
    slots: u64,
    next: u64,
}

impl Staging {
    /// Blocks until the agent has answered.
    pub(crate) fn new(ual: &Ual) -> std::io::Result<Self> {
        let slots = 2 << ual.granted().geometry.lane_order;
        Ok(Self {
            region: ual.allocate_region(slots * SLOT, false)?,
            slots,
            next: 0,
        })
    }

    fn advance(&mut self) -> u64 {
        let at = self.next * SLOT;
        self.next = (self.next + 1) % self.slots;
        at
    }

    /// Puts bytes into a slot. To be posted at once.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Outcome<Extent> {
        if bytes.len() as u64 > SLOT {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        let at = self.advance();
        self.region.write(at, bytes)?;
        Ok(self.region.extent(at, bytes.len() as u32)?)
    }

    /// Puts a list into a slot. To be posted at once.
    pub(crate) fn list(&mut self, pieces: &[Extent]) -> Outcome<Extent> {
        if pieces.len() > DUSI_VECTOR_MAX as usize {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        let at = self.advance();
        Ok(self.region.write_extents(at, pieces)?)
    }
}
