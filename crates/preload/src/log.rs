//! Lines on standard error, as many as the program's user asked for.

use std::fmt::Display;
use std::sync::OnceLock;

use crate::sys;

/// How much is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Level {
    Off,
    Error,
    Info,
    Debug,
}

/// What the environment says of it is read now, before the program changes that.
pub(crate) fn begin() {
    level();
}

fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| match std::env::var("SIDECORE_LOG").as_deref() {
        Ok("off") => Level::Off,
        Ok("info") => Level::Info,
        Ok("debug") => Level::Debug,
        _ => Level::Error,
    })
}

fn say(at: Level, what: &dyn Display) {
    if level() >= at {
        // One call, so that lines of several processes do not mix.
        sys::write_error(format!("sidecore: {what}\n").as_bytes());
    }
}

/// What the user must know.
pub(crate) fn error(what: impl Display) {
    say(Level::Error, &what);
}

/// What was decided.
pub(crate) fn info(what: impl Display) {
    say(Level::Info, &what);
}

/// What is done.
pub(crate) fn debug(what: impl Display) {
    say(Level::Debug, &what);
}
