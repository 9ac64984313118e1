//! Ctrl-C and SIGTERM: the first asks the running experiment to end and clean up, the second ends the program at once.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use signal_hook::consts::{SIGINT, SIGTERM};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Installs the handlers, once.
pub fn install() -> anyhow::Result<()> {
    let mut result = Ok(());
    ASKED.get_or_init(|| {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // First the one that ends the program when it was asked before, then the one that asks.
            let handlers =
                signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&asked))
                    .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&asked)));
            if let Err(error) = handlers {
                result = Err(error.into());
            }
        }
        asked
    });
    result
}

/// Whether somebody asked to end.
pub fn asked() -> bool {
    ASKED
        .get()
        .is_some_and(|asked| asked.load(Ordering::Relaxed))
}

/// An error once somebody asked to end.
pub fn check() -> anyhow::Result<()> {
    if asked() {
        bail!("interrupted");
    }
    Ok(())
}
