//! Opening a UAL and listening.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidecore_client::error::to_io;
use sidecore_client::{Dti, EventKind, EventQueue, Lane, OpenError, Status, Ual, UalConfig};

use crate::config::Config;
use crate::error::Error;

/// How long the engine may take to answer before the server gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Children of one worker that wait to be accepted: the paper's pre-posted accepts. The engine uses accepts up in the order in which they were
/// posted, so several workers post few at a time, or connections would come to them in long runs.
pub(crate) fn waiting(workers: usize) -> usize {
    if workers == 1 { 1024 } else { 16 }
}

/// Connections that wait behind those.
const BACKLOG: u32 = 16_384;

/// log2 of the commands and of the events that a queue holds.
const ORDER: u32 = 12;

/// What the first worker gets: the listener, and where its news go.
pub(crate) struct Listening {
    pub(crate) dti: Dti,
    pub(crate) address: SocketAddr,
    pub(crate) lane: Lane,
    pub(crate) accepts: EventQueue,
}

/// What each worker is born with.
pub(crate) struct Engine {
    pub(crate) ual: Ual,
    pub(crate) listener: Dti,
    pub(crate) address: SocketAddr,
    pub(crate) listening: Option<Listening>,
}

/// What a server of this configuration wishes for; for who opens its UAL.
pub fn ual_config(config: &Config) -> UalConfig {
    let queues = 3 * config.workers as u32;
    UalConfig {
        lanes: config.workers as u32,
        lane_order: ORDER,
        evqs: queues,
        evq_order: ORDER,
        wait_cells: queues,
        // Connections that are over keep their handles until the peer has said so too.
        dtis: (2 * config.max_connections + config.workers * waiting(config.workers) + 1)
            .min(1 << 20) as u32,
        spin: config.spin,
        ..UalConfig::default()
    }
}

/// Opens the UAL at the configured socket.
pub(crate) fn open(config: &Config) -> Result<Ual, Error> {
    Ual::open(&config.socket, &ual_config(config)).map_err(|error| match error {
        OpenError::Connect(source) => Error::NoEngine {
            socket: config.socket.clone(),
            source,
        },
        other => Error::Engine {
            message: other.to_string(),
        },
    })
}

/// Listens, and returns the part of the first worker.
pub(crate) fn listen(
    ual: &Ual,
    config: &Config,
    mut pause: impl FnMut(&mut EventQueue) -> Result<(), Error>,
) -> Result<Listening, Error> {
    let refuse = |error: std::io::Error| Error::Listen {
        address: config.listen,
        source: error,
    };
    let mut lane = ual.lane().map_err(|e| refuse(e.into()))?;
    let mut accepts = ual.event_queue().map_err(|e| refuse(e.into()))?;
    let dti = lane
        .create_stream(&accepts, &accepts)
        .map_err(|e| refuse(e.into()))?;
    lane.bind(dti, config.listen, 0)
        .and_then(|()| lane.listen(dti, BACKLOG, 1))
        .map_err(|e| refuse(e.into()))?;
    lane.flush();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let Some(event) = accepts.poll() else {
            pause(&mut accepts)?;
            continue;
        };
        if event.kind == EventKind::Completion && event.status != Status::Ok {
            return Err(refuse(to_io(event.status)));
        }
        if event.kind == EventKind::Completion && event.cookie == 1 {
            let address = event.address(0).get().unwrap_or(config.listen);
            return Ok(Listening {
                dti,
                address,
                lane,
                accepts,
            });
        }
    }
    Err(refuse(std::io::ErrorKind::TimedOut.into()))
}

/// Pauses by sleeping until the engine says something.
pub(crate) fn wait(queue: &mut EventQueue) -> Result<(), Error> {
    queue
        .wait(Some(PATIENCE / 10))
        .map(drop)
        .map_err(|gone| Error::Engine {
            message: gone.to_string(),
        })
}
