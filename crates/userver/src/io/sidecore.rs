//! The engine's back-end.

use crate::error::Error;
use crate::server::Birth;

/// A worker.
pub(crate) fn run(_birth: Birth) -> Result<(), Error> {
    Err(Error::Usage("pending".into()))
}
