//! Why a server does not start or run.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// One line that names the thing and the mend.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that was asked for cannot be; exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; {}", listen_mend(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A file or directory cannot be opened.
    #[error("cannot open {}: {source}; check that it exists and may be used", .path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A worker cannot be pinned.
    #[error("cannot run on core {core}: {source}; choose one that this process may use")]
    Core {
        /// The core.
        core: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel lacks what the back-end needs.
    #[error("cannot set up {what}: {source}; choose another --io")]
    Unsupported {
        /// What was needed.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody answers at the engine's socket.
    #[error("no engine at {}: {source}; start one with `sidecore engine --socket {}`", .socket.display(), .socket.display())]
    NoEngine {
        /// Its socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The engine refused something or went away.
    #[error("the engine cannot serve: {message}; see its log, and start this again")]
    Engine {
        /// What went wrong.
        message: String,
    },
    /// Waiting for events failed, or a worker panicked.
    #[error("{what} failed: {message}; this is a defect, please report it")]
    Defect {
        /// What failed.
        what: &'static str,
        /// How.
        message: String,
    },
}

impl Error {
    /// Exit code of the program: 2 for wrong usage, 1 for failures at run time.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}

fn listen_mend(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "stop the program that holds it or choose another port",
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine",
        io::ErrorKind::PermissionDenied => "choose a port above 1023 or grant CAP_NET_BIND_SERVICE",
        _ => "choose another address",
    }
}
