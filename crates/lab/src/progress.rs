//! What is told while an experiment runs: to a terminal one line that changes, to a file nothing but warnings.

use std::cell::Cell;
use std::io::{IsTerminal, Write, stderr};

/// Tells, on standard error.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    silent: bool,
    warned: Cell<bool>,
}

impl Progress {
    /// A changing line if standard error is a terminal; warnings in any case.
    pub fn new() -> Self {
        Self {
            terminal: stderr().is_terminal(),
            silent: false,
            warned: Cell::new(false),
        }
    }

    /// Says nothing at all.
    pub const fn silent() -> Self {
        Self {
            terminal: false,
            silent: true,
            warned: Cell::new(false),
        }
    }

    /// What is being done.
    pub fn say(&self, what: &str) {
        if self.terminal && !self.silent {
            let _ = write!(stderr(), "\r\x1b[K{what}");
        }
    }

    /// What happened; stays on the screen.
    pub fn tell(&self, what: &str) {
        if !self.silent {
            self.clear();
            let _ = writeln!(stderr(), "{what}");
        }
    }

    /// What is odd; stays on the screen.
    pub fn warn(&self, what: &str) {
        if !self.silent {
            self.clear();
            let _ = writeln!(stderr(), "warning: {what}");
        }
    }

    /// What is odd and may be so again and again: only its first time.
    pub fn warn_once(&self, what: &str) {
        if !self.warned.replace(true) {
            self.warn(&format!(
                "{what} (more of this is told in the report alone)"
            ));
        }
    }

    /// Takes the changing line away.
    pub fn clear(&self) {
        if self.terminal && !self.silent {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
