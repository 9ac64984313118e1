//! What a check finds.

use std::fmt;

/// A place that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    /// From the root of the tree.
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) mend: String,
}

impl Finding {
    pub(crate) fn new(
        path: &str,
        line: usize,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            line,
            what: what.into(),
            mend: mend.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.what, self.mend
        )
    }
}
