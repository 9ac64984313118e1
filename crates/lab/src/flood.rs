//! A flood of SYNs beside connects that are meant: a server on an engine at one end of a wire, and at the other end, on another processor, whoever sends
//! both ([`client`]).
//!
//! The flood is as fast as the wire takes it: what is meant has precedence in each turn, and all the room that is left is for SYNs from addresses
//! that never answer. The wire is a bounded ring that loses nothing; its length is what everybody waits in.

mod client;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sidecore_engine::{Device, Engine, IdlePolicy, SynCookies};
use sidecore_nic::AnyNic;
use sidecore_nic::wire::{self, Wire, WireConfig};
use sidecore_sys::affinity;

use crate::load::in_threads;
use crate::load::latency::Latency;
use crate::native::server::EchoServer;
use crate::native::{HERE, at, drive_within, engine_config, open_within, within};

/// Where the server listens.
const PORT: u16 = 7;

/// How often the engine is asked for its counters.
const QUESTIONS: usize = 10;

/// Connections that its application may have.
const CONNECTIONS: usize = 1024;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FloodConfig {
    /// Whether there is a flood.
    pub flood: bool,
    /// Whether the server answers with cookies when its SYN queue is full.
    pub cookies: bool,
    /// Exchanges that are under way at a time.
    pub exchanges: usize,
    /// Processors of the server and of the client.
    pub cores: [usize; 2],
    /// Time before measuring begins: the SYN queue fills.
    pub warm_up: Duration,
    /// Measured time.
    pub measure: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FloodUse {
    /// Measured seconds.
    pub seconds: f64,
    /// Connects that were begun and done, or given up, in them.
    pub connects: u64,
    /// Of these, given up: no answer to four SYNs or four requests, or reset.
    pub failed: u64,
    /// SYNs and requests of theirs that were sent again after a second.
    pub again: u64,
    /// From the SYN to the SYN-ACK.
    pub connect: Latency,
    /// From the SYN to the answer of the request.
    pub exchange: Latency,
    /// SYNs of the flood in the measured time.
    pub flood: u64,
    /// What the server's stack counted from its start on: by name.
    pub counters: Vec<(String, u64)>,
}

/// Counters of the stack that are of interest.
const COUNTERS: [&str; 8] = [
    "frames_in",
    "syn_cookies_sent",
    "syn_cookies_accepted",
    "syn_cookies_failed",
    "syn_evicted",
    "syn_dropped",
    "passive_established",
    "control_dropped",
];

/// Serves and loads; blocks for warm-up and measured time.
pub fn run(config: &FloodConfig) -> anyhow::Result<FloodUse> {
    let (here, there) = wire::pair(&WireConfig::default())?;
    let over = AtomicBool::new(false);
    let (listening, listens) = channel();
    type Job<'a> = Box<dyn FnOnce() -> anyhow::Result<FloodUse> + Send + 'a>;
    let (over, config) = (&over, &config);
    let server: Job<'_> = Box::new(move || {
        let counters = serve(config, here, &listening, over)?;
        Ok(FloodUse {
            counters,
            ..FloodUse::default()
        })
    });
    let client: Job<'_> = Box::new(move || {
        let _over = Over(over);
        listens.recv().context("the server did not come up")?;
        affinity::pin_current_thread(config.cores[1])?;
        Ok(client::Client::new(there, config).run())
    });
    let results = in_threads([server, client].into_iter(), |_| Ok(()))?;
    let [served, mut used] = <[FloodUse; 2]>::try_from(results)
        .ok()
        .context("two threads")?;
    used.counters = served.counters;
    Ok(used)
}

/// Tells the server that it is over, also when something failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The server's end: what its stack counted.
fn serve(
    config: &FloodConfig,
    wire: Wire,
    listening: &Sender<()>,
    over: &AtomicBool,
) -> anyhow::Result<Vec<(String, u64)>> {
    affinity::pin_current_thread(config.cores[0])?;
    let device = Device::Nic(Box::new(AnyNic::Wire(wire)));
    let mut engine_config = engine_config(HERE, 24, device, IdlePolicy::Poll);
    if !config.cookies {
        engine_config.syn_cookies = SynCookies::Off;
    }
    let (mut engine, control) = Engine::new(engine_config)?;
    let ends = open_within(&mut engine, &control, CONNECTIONS)?;
    let mut server = EchoServer::new(ends, at(HERE, PORT))?;
    engine.turn();
    let _ = listening.send(());
    drive_within(&mut engine, &mut server, |_| {
        Ok(over.load(Ordering::Relaxed))
    })?;
    let stat = within(&mut engine, || {
        // It lists thousands of handshakes: on a busy machine that may take longer than one question waits.
        let mut answers = (0..QUESTIONS).filter_map(|_| control.stat_json());
        answers
            .next()
            .context("the engine does not say what it has counted")
    })?;
    let stat: serde_json::Value = serde_json::from_str(&stat)?;
    let count = |name: &str| stat["stack"][name].as_u64().unwrap_or(0);
    Ok(COUNTERS.map(|name| (name.to_owned(), count(name))).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(flood: bool) -> FloodConfig {
        let cores = affinity::allowed_cores().unwrap();
        FloodConfig {
            flood,
            cookies: true,
            exchanges: 4,
            cores: [cores[0], *cores.last().unwrap()],
            warm_up: Duration::from_millis(50),
            measure: Duration::from_millis(400),
        }
    }

    fn count(used: &FloodUse, name: &str) -> u64 {
        let found = used.counters.iter().find(|(n, _)| n == name);
        found.expect("a counter").1
    }

    #[test]
    fn connects_without_a_flood() {
        let used = run(&config(false)).unwrap();
        assert!(used.connects > 0);
        assert_eq!((used.failed, used.flood), (0, 0));
        assert_eq!(count(&used, "syn_cookies_sent"), 0);
    }

    #[test]
    fn connects_beside_a_flood() {
        let used = run(&config(true)).unwrap();
        assert!(used.connects > 0 && used.flood > 0, "{used:?}");
        assert_eq!(used.failed, 0, "{used:?}");
        assert_eq!(count(&used, "syn_evicted"), 0);
    }
}
