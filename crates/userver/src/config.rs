//! What a server is told.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::encrypt::KEY_BYTES;
use crate::error::Error;

/// What carries the connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Io {
    /// The engine, through its shared-memory queues.
    Sidecore,
    /// The kernel: epoll, and `send` of head and content in one call.
    Epoll,
    /// The kernel: epoll, and `sendfile` of the content.
    Sendfile,
    /// The kernel: io_uring with multishot receives and registered buffers.
    IoUring,
}

impl Io {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sidecore, Self::Epoll, Self::Sendfile, Self::IoUring];

    /// As it is written on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sidecore => "sidecore",
            Self::Epoll => "epoll",
            Self::Sendfile => "sendfile",
            Self::IoUring => "io-uring",
        }
    }
}

impl core::fmt::Display for Io {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::str::FromStr for Io {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|io| io.name() == text)
            .ok_or_else(|| "choose sidecore, epoll, sendfile or io-uring".to_owned())
    }
}

/// Everything that can be chosen. [`Config::new`] gives the defaults of the rest.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory whose files are served. Nothing outside it is, whatever symbolic links say.
    pub root: PathBuf,
    /// Where to listen. Port 0: any free one.
    pub listen: SocketAddr,
    /// What carries the connections.
    pub io: Io,
    /// The engine's socket, for [`Io::Sidecore`].
    pub socket: PathBuf,
    /// Engine: how long a worker looks for events before it sleeps.
    pub spin: Duration,
    /// Worker threads, at least 1.
    pub workers: usize,
    /// Cores to which the workers are pinned in turn; empty: not pinned.
    pub cores: Vec<usize>,
    /// Access log in combined format.
    pub access_log: Option<PathBuf>,
    /// Connections at most, all workers together; more wait to be accepted.
    pub max_connections: usize,
    /// How long a connection may stay without a complete request or any progress of its answers. Whole seconds, at least 1.
    pub idle_timeout: Duration,
    /// Bytes of a request head at most.
    pub max_head: usize,
    /// Bytes of memory for files, each worker.
    pub cache_bytes: u64,
    /// Files in the cache at most, each worker.
    pub cache_files: usize,
    /// How long a file is believed to be unchanged. Whole seconds; 0: checked at every request.
    pub recheck: Duration,
    /// Names tried for a path that ends in a slash.
    pub index: Vec<String>,
    /// How many percent of the files of at most 7500 bytes are encrypted for every answer.
    pub encrypt_percent: u8,
    /// Key for them; `None`: random.
    pub encrypt_key: Option<[u8; KEY_BYTES]>,
}

/// Where an engine listens for applications unless it is told otherwise: `/run/sidecore.sock` for root, else `sidecore.sock` in
/// `$XDG_RUNTIME_DIR`.
pub fn default_socket() -> PathBuf {
    let system = PathBuf::from("/run/sidecore.sock");
    if rustix::process::geteuid().is_root() {
        return system;
    }
    std::env::var_os("XDG_RUNTIME_DIR")
        .map_or(system, |dir| PathBuf::from(dir).join("sidecore.sock"))
}

impl Config {
    /// The defaults.
    pub fn new(root: impl Into<PathBuf>, listen: SocketAddr, io: Io) -> Self {
        Self {
            root: root.into(),
            listen,
            io,
            socket: default_socket(),
            spin: Duration::from_micros(5),
            workers: 1,
            cores: Vec::new(),
            access_log: None,
            max_connections: 100_000,
            idle_timeout: Duration::from_secs(60),
            max_head: 8192,
            cache_bytes: 256 << 20,
            cache_files: 65_536,
            recheck: Duration::from_secs(1),
            index: vec!["index.html".into(), "index.htm".into()],
            encrypt_percent: 0,
            encrypt_key: None,
        }
    }

    /// Refuses what cannot work, naming the mend.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |what: &str| Err(Error::Usage(what.to_owned()));
        if self.workers == 0 || self.workers > 1024 {
            return refuse("the number of workers must lie between 1 and 1024");
        }
        if self.max_connections < self.workers {
            return refuse("max-connections must be at least the number of workers");
        }
        if self.idle_timeout.as_secs() == 0 {
            return refuse("idle-timeout must be at least one second");
        }
        if !(512..=1 << 20).contains(&self.max_head) {
            return refuse("max-head must lie between 512 bytes and 1 MiB");
        }
        if self.cache_bytes < 1 << 20 {
            return refuse("cache-bytes must be at least 1 MiB");
        }
        if self.encrypt_percent > 100 {
            return refuse("encrypt-percent must lie between 0 and 100");
        }
        if !self.root.is_dir() {
            return Err(Error::Usage(format!(
                "{} is not a directory; give the directory to serve with --root",
                self.root.display()
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_ends_are_read_as_they_are_written() {
        for io in Io::ALL {
            assert_eq!(io.to_string().parse(), Ok(io));
        }
        assert!("uring".parse::<Io>().is_err());
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let good = Config::new("/", "127.0.0.1:0".parse().unwrap(), Io::Epoll);
        good.check().unwrap();
        let bad: [fn(&mut Config); 6] = [
            |c| c.workers = 0,
            |c| c.max_connections = 0,
            |c| c.idle_timeout = Duration::from_millis(10),
            |c| c.max_head = 10,
            |c| c.encrypt_percent = 101,
            |c| c.root = "/no/such/directory".into(),
        ];
        for change in bad {
            let mut config = good.clone();
            change(&mut config);
            assert!(matches!(config.check(), Err(Error::Usage(_))));
        }
    }
}
