//! Congestion control as the command line and the configuration file name it.

use clap::ValueEnum;
use serde::Deserialize;
use sidecore_engine::Algorithm;

/// A congestion controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Congestion {
    /// RFC 5681
    Reno,
    /// RFC 9438
    Cubic,
    /// draft-ietf-ccwg-bbr, experimental
    Bbr,
}

impl From<Congestion> for Algorithm {
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Reno => Self::NewReno,
            Congestion::Cubic => Self::Cubic,
            Congestion::Bbr => Self::Bbr,
        }
    }
}
