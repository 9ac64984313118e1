//! Congestion control as the command line and the configuration file name it.

use clap::ValueEnum;
use serde::Deserialize;
use sidecore_engine::{Algorithm, Ecn};

/// A congestion controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Congestion {
    /// RFC 5681
    Reno,
    /// RFC 9438
    Cubic,
    /// RFC 8257: only where all switches mark
    Dctcp,
    /// draft-ietf-ccwg-bbr, experimental
    Bbr,
}

impl From<Congestion> for Algorithm {
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Reno => Self::NewReno,
            Congestion::Cubic => Self::Cubic,
            Congestion::Dctcp => Self::Dctcp,
            Congestion::Bbr => Self::Bbr,
        }
    }
}

/// Explicit congestion notification (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EcnUse {
    /// Neither asked for nor answered
    Off,
    /// Where the peer asks for it
    Accept,
    /// Asked for, too
    Request,
}

impl From<EcnUse> for Ecn {
    fn from(ecn: EcnUse) -> Self {
        match ecn {
            EcnUse::Off => Self::Off,
            EcnUse::Accept => Self::Accept,
            EcnUse::Request => Self::Request,
        }
    }
}
