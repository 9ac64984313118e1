//! Who is told that a send from memory of the program's own is over.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use sidecore_abi::Status;

use crate::error::to_io;

/// What is called then.
type Then = Box<dyn Fn(io::Result<()>) + Send + Sync>;

/// Told once. The outcome is noted with locks held, and told by waking, when none is.
pub(crate) struct Receipt {
    /// A status, as a number.
    outcome: AtomicU32,
    then: Then,
}

impl Receipt {
    pub(crate) fn new(then: impl Fn(io::Result<()>) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            outcome: AtomicU32::new(Status::Ok as u32),
            then: Box::new(then),
        })
    }

    /// Notes the outcome, and has it told with the others of `wake`.
    pub(crate) fn settle(self: Arc<Self>, status: Status, wake: &mut Vec<Waker>) {
        self.outcome.store(status as u32, Ordering::Release);
        wake.push(Waker::from(self));
    }
}

impl Wake for Receipt {
    fn wake(self: Arc<Self>) {
        let outcome = self.outcome.load(Ordering::Acquire);
        (self.then)(match Status::from_raw(outcome as u16) {
            Status::Ok => Ok(()),
            status => Err(to_io(status)),
        });
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receipt").finish_non_exhaustive()
    }
}
