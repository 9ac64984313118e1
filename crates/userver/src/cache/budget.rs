//! Counting memory by what is alive, whoever keeps it alive.

use std::cell::Cell;
use std::rc::Rc;

use super::AdmitError;

/// A limit, and what is alive under it.
#[derive(Debug)]
pub struct Budget {
    alive: Rc<Cell<u64>>,
    limit: u64,
}

/// A value whose bytes are counted for as long as it lives.
#[derive(Debug)]
pub struct Leased<T> {
    /// The value.
    pub value: T,
    bytes: u64,
    alive: Rc<Cell<u64>>,
}

impl<T> Drop for Leased<T> {
    fn drop(&mut self) {
        self.alive.set(self.alive.get().saturating_sub(self.bytes));
    }
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            alive: Rc::default(),
            limit,
        }
    }

    /// Bytes alive.
    pub fn alive(&self) -> u64 {
        self.alive.get()
    }

    /// Whether so many more fit.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.alive.get().saturating_add(bytes) <= self.limit
    }

    /// The bytes of a head and a file together, if they fit now. One file may take an eighth: a few large ones must not push everything
    /// else out.
    pub fn room_for(&self, head: u64, file: u64) -> Result<usize, AdmitError> {
        if file > self.limit / 8 {
            return Err(AdmitError::TooLarge);
        }
        let total = head + file;
        if !self.has_room(total) {
            return Err(AdmitError::NoRoom);
        }
        usize::try_from(total).map_err(|_| AdmitError::TooLarge)
    }

    /// Counts `bytes` for a value.
    pub fn lease<T>(&self, value: T, bytes: u64) -> Leased<T> {
        self.alive.set(self.alive.get() + bytes);
        Leased {
            value,
            bytes,
            alive: Rc::clone(&self.alive),
        }
    }
}
