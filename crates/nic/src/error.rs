//! Why a device could not be opened.

use core::fmt;
use std::io;

/// Why a device could not be opened. Its text is one line that names the thing and, where there is one, the mend.
#[derive(Debug)]
#[non_exhaustive]
pub enum NicError {
    /// The interface name is empty, longer than 15 bytes, or has a `/`, a space or a `%` in it.
    BadName(String),
    /// Another process has the TAP device open, or the name is another kind of interface.
    NameInUse(String),
    /// The process lacks `CAP_NET_ADMIN` in the network namespace.
    Permission {
        /// What was refused.
        what: String,
    },
    /// This user may not open `/dev/net/tun`, whatever its rights in a namespace of its own.
    TunDenied,
    /// There is no `/dev/net/tun`.
    NoTun(io::Error),
    /// The kernel lacks something that the chosen mode needs.
    Unsupported {
        /// What is lacking, and what to choose instead.
        what: String,
    },
    /// There is no such named network namespace.
    NoNamespace {
        /// The namespace's name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// A value of the configuration is out of range.
    BadConfig(String),
    /// Any other system error.
    System {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for NicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(name) => write!(
                f,
                "{name:?} cannot name a network interface: use 1 to 15 letters, digits, '-', '_' or '.'"
            ),
            Self::NameInUse(name) => write!(
                f,
                "interface {name} is in use: end the process that has it open, or choose another name"
            ),
            Self::Permission { what } => write!(
                f,
                "{what}: permission denied: run as root, in a user namespace (unshare -Urn), or after setcap cap_net_admin+ep"
            ),
            Self::TunDenied => f.write_str(
                "/dev/net/tun: permission denied: let this user open it (chmod 666 /dev/net/tun, as most systems have it), or run as root",
            ),
            Self::NoTun(source) => write!(
                f,
                "cannot open /dev/net/tun: {source}: load the tun module (modprobe tun) or give the container that device"
            ),
            Self::Unsupported { what } => f.write_str(what),
            Self::NoNamespace { name, source } => write!(
                f,
                "cannot enter {source}: make it with: ip netns add {name}"
            ),
            Self::BadConfig(what) => f.write_str(what),
            Self::System { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

/// Without a source: each message says what the system said, and must not be said twice by those who print the chain.
impl std::error::Error for NicError {}
