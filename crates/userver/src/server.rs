//! Starting and stopping workers.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CpuSet;
use sidecore_client::Ual;

use crate::access_log::AccessLog;
use crate::cache::load::open_root;
use crate::cache::{Cache, CacheConfig, Store};
use crate::config::{Config, Io};
use crate::counters::{Counters, WorkerCounters};
use crate::encrypt::Encryption;
use crate::error::Error;
use crate::io;
use crate::io::sidecore::setup::Engine;
use crate::site::Site;

/// A running server. Dropping it stops it as well.
pub struct Server {
    address: SocketAddr,
    workers: Vec<Worker>,
    stop: Arc<Stop>,
}

/// Stops a server from anywhere, for example from the thread that waits for signals.
#[derive(Clone)]
pub struct Stopper(Arc<Stop>);

impl Stopper {
    /// Asks the server to stop; does not wait for it.
    pub fn stop(&self) {
        self.0.request();
    }
}

struct Worker {
    thread: Option<JoinHandle<Result<(), Error>>>,
    thread_id: i32,
    counters: Arc<WorkerCounters>,
}

/// How the workers are told to end.
pub(crate) struct Stop {
    wanted: AtomicBool,
    /// Becomes readable when it is wanted, and stays so: all workers watch it and none reads it.
    pub(crate) event: OwnedFd,
}

impl Stop {
    fn new() -> Result<Self, Error> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::Unsupported {
                what: "an event descriptor",
                source: errno.into(),
            })?;
        Ok(Self {
            wanted: AtomicBool::new(false),
            event,
        })
    }

    pub(crate) fn request(&self) {
        if self.wanted.swap(true, Ordering::AcqRel) {
            return;
        }
        // Written once, so it cannot be full.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }
}

/// What a worker is born with; given up when it has started, so that its end is noticed by who waits for the start.
pub(crate) struct Birth {
    pub(crate) config: Arc<Config>,
    pub(crate) index: usize,
    pub(crate) stop: Arc<Stop>,
    pub(crate) counters: Arc<WorkerCounters>,
    started: mpsc::Sender<Started>,
}

struct Started {
    index: usize,
    thread_id: i32,
    address: SocketAddr,
}

impl Birth {
    /// Of a worker that is no server's.
    pub(crate) fn alone(config: Config) -> Result<Self, Error> {
        Ok(Self {
            config: Arc::new(config),
            index: 0,
            stop: Arc::new(Stop::new()?),
            counters: Arc::default(),
            started: mpsc::channel().0,
        })
    }

    /// Connections that this worker may have.
    pub(crate) fn max_connections(&self) -> usize {
        self.config.max_connections.div_ceil(self.config.workers)
    }

    /// The part of the worker that is the same for every back-end.
    pub(crate) fn site<S: Store>(&self, store: S, files: usize) -> Result<Site<S>, Error> {
        let config = &*self.config;
        let root = open_root(&config.root).map_err(|source| Error::Open {
            path: config.root.clone(),
            source,
        })?;
        let encryption = (config.encrypt_percent > 0).then(|| {
            let key = config.encrypt_key.unwrap_or_else(rand::random);
            Encryption::new(config.encrypt_percent, &key, rand::random())
        });
        let cache_config = CacheConfig {
            files: config.cache_files.min(files),
            recheck: config.recheck.as_secs(),
            index: config.index.clone(),
        };
        let log = match &config.access_log {
            None => None,
            Some(path) => Some(AccessLog::open(path).map_err(|source| Error::Open {
                path: path.clone(),
                source,
            })?),
        };
        let cache = Cache::new(root, cache_config, encryption, store);
        Ok(Site::new(
            cache,
            log,
            Arc::clone(&self.counters),
            config.max_head,
        ))
    }

    /// Tells the server that this worker serves `address`.
    pub(crate) fn started(self, address: SocketAddr) {
        let _ = self.started.send(Started {
            index: self.index,
            thread_id: rustix::thread::gettid().as_raw_nonzero().get(),
            address,
        });
    }
}

impl Server {
    /// Starts a server; when this returns, it can be connected to.
    pub fn start(config: Config) -> Result<Self, Error> {
        config.check()?;
        match config.io {
            Io::Sidecore => {
                let ual = io::sidecore::setup::open(&config)?;
                Self::start_on(config, &ual)
            }
            _ => {
                let listeners = io::listen::listeners(config.listen, config.workers)?;
                let carriers = listeners.into_iter().map(Carrier::Kernel).collect();
                Self::start_workers(config, carriers)
            }
        }
    }

    /// Starts a server on a UAL that is open already, of an engine in this process, say. It takes a lane and three event queues for each worker;
    /// [`Config::io`] and [`Config::socket`] do not count.
    pub fn start_on(config: Config, ual: &Ual) -> Result<Self, Error> {
        config.check()?;
        let config = Config {
            io: Io::Sidecore,
            ..config
        };
        let listening = io::sidecore::setup::listen(ual, &config, io::sidecore::setup::wait)?;
        let (listener, address) = (listening.dti, listening.address);
        let mut listening = Some(listening);
        let carriers = (0..config.workers)
            .map(|_| {
                Carrier::Engine(Engine {
                    ual: ual.clone(),
                    listener,
                    address,
                    listening: listening.take(),
                })
            })
            .collect();
        Self::start_workers(config, carriers)
    }

    fn start_workers(config: Config, carriers: Vec<Carrier>) -> Result<Self, Error> {
        let (started, starts) = mpsc::channel();
        let mut server = Self {
            address: config.listen,
            workers: Vec::new(),
            stop: Arc::new(Stop::new()?),
        };
        let config = Arc::new(config);
        for (index, carrier) in carriers.into_iter().enumerate() {
            let birth = Birth {
                config: Arc::clone(&config),
                index,
                stop: Arc::clone(&server.stop),
                counters: Arc::default(),
                started: started.clone(),
            };
            server.spawn(birth, carrier)?;
        }
        drop(started);
        server.await_starts(&starts)?;
        Ok(server)
    }

    fn spawn(&mut self, birth: Birth, carrier: Carrier) -> Result<(), Error> {
        let counters = Arc::clone(&birth.counters);
        let thread = std::thread::Builder::new()
            .name(format!("userver-{}", birth.index))
            .spawn(move || {
                let stop = Arc::clone(&birth.stop);
                let result = run(birth, carrier);
                // A server that lost a worker ends as a whole, so that whoever runs it notices.
                stop.request();
                result
            })
            .map_err(|source| Error::Unsupported {
                what: "a thread",
                source,
            })?;
        self.workers.push(Worker {
            thread: Some(thread),
            thread_id: 0,
            counters,
        });
        Ok(())
    }

    fn await_starts(&mut self, starts: &mpsc::Receiver<Started>) -> Result<(), Error> {
        for _ in 0..self.workers.len() {
            let Ok(start) = starts.recv() else {
                // Every worker has started or ended, and one did not start: it says why.
                self.stop.request();
                self.join_all()?;
                return Err(Error::Defect {
                    what: "starting a worker",
                    message: "it ended at once".into(),
                });
            };
            self.address = start.address;
            if let Some(worker) = self.workers.get_mut(start.index) {
                worker.thread_id = start.thread_id;
            }
        }
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kernel thread ids of the workers, for accounting their CPU time.
    pub fn thread_ids(&self) -> impl Iterator<Item = i32> {
        self.workers.iter().map(|worker| worker.thread_id)
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for worker in &self.workers {
            worker.counters.add_to(&mut sum);
        }
        sum
    }

    /// Something that stops it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Stops accepting, lets answers that are under way go out (for two seconds at most), closes everything, and returns the last counts.
    pub fn stop(self) -> Result<Counters, Error> {
        self.stop.request();
        self.join()
    }

    /// Waits until it was stopped or a worker failed; returns the last counts.
    pub fn join(mut self) -> Result<Counters, Error> {
        self.join_all()?;
        Ok(self.counters())
    }

    fn join_all(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        for worker in &mut self.workers {
            let outcome = match worker.thread.take().map(JoinHandle::join) {
                None => Ok(()),
                Some(Ok(outcome)) => outcome,
                Some(Err(_)) => Err(Error::Defect {
                    what: "a worker",
                    message: "it panicked".into(),
                }),
            };
            if result.is_ok() {
                result = outcome;
            }
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.request();
        let _ = self.join_all();
    }
}

/// What carries a worker's connections.
enum Carrier {
    Kernel(OwnedFd),
    Engine(Engine),
}

fn run(birth: Birth, carrier: Carrier) -> Result<(), Error> {
    let cores = &birth.config.cores;
    if !cores.is_empty() {
        pin(cores[birth.index % cores.len()])?;
    }
    match (birth.config.io, carrier) {
        (_, Carrier::Engine(engine)) => io::sidecore::run(birth, engine),
        (Io::Sendfile, Carrier::Kernel(listener)) => io::sendfile::run(birth, listener),
        (Io::IoUring, Carrier::Kernel(listener)) => io::io_uring::run(birth, listener),
        (_, Carrier::Kernel(listener)) => io::epoll::run(birth, listener),
    }
}

fn pin(core: usize) -> Result<(), Error> {
    let refuse = |source| Error::Core { core, source };
    if core >= CpuSet::MAX_CPU {
        return Err(refuse(std::io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).map_err(|errno| refuse(errno.into()))
}

/// Lets this process have as many descriptors as its hard limit says; returns how many that is.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.unwrap_or(u64::MAX)
}

/// Descriptors that this process may have.
pub(crate) fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
