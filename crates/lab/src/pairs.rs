//! Both ends of every connection on AF_UNIX stream sockets of one process, a thread each: what the kernel offers programs of one machine that
//! are willing to do without TCP.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sidecore_sys::affinity;

use crate::echo::epoll;
use crate::load::arrivals::Arrivals;
use crate::load::protocol::Echo;
use crate::load::worker::{Counts, Orders, Window, Worker};
use crate::load::{LoadReport, Milestones, in_threads, pass};

/// Both ends, and their load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairsConfig {
    /// Connections.
    pub connections: usize,
    /// Bytes of a message.
    pub bytes: usize,
    /// Closed or open loop.
    pub arrivals: Arrivals,
    /// Processors of server and client.
    pub cores: [usize; 2],
    /// Time before measuring begins.
    pub warm_up: Duration,
    /// Measured time.
    pub measure: Duration,
}

type Job = Box<dyn FnOnce() -> anyhow::Result<Option<Counts>> + Send>;

/// One end of a pair as the workers take it. (They only read and write.)
fn stream(end: UnixStream) -> std::io::Result<TcpStream> {
    end.set_nonblocking(true)?;
    Ok(OwnedFd::from(end).into())
}

/// Makes both ends, loads and reports. Blocks for warm-up and measured time.
pub fn run(config: &PairsConfig, milestones: &mut dyn Milestones) -> anyhow::Result<LoadReport> {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..config.connections {
        let (client, server) = UnixStream::pair()?;
        here.push(stream(client)?);
        there.push(stream(server)?);
    }
    let orders = Orders {
        targets: Vec::new(),
        connections: config.connections,
        arrivals: config.arrivals,
        congestion: None,
        spin: false,
    };
    let client = Worker::over(orders, Echo::new(config.bytes), here)?;
    milestones.connected()?;
    let start = Instant::now();
    let begin = start + config.warm_up;
    let end = begin + config.measure;
    let window = Window { start, begin, end };
    let [server_core, client_core] = config.cores;
    let jobs: [Job; 2] = [
        Box::new(move || {
            affinity::pin_current_thread(server_core)?;
            epoll::serve_streams(there).map(|()| None)
        }),
        Box::new(move || {
            affinity::pin_current_thread(client_core)?;
            client.run(window).map(Some)
        }),
    ];
    let counts = in_threads(jobs.into_iter(), |failures| {
        pass(window, failures, milestones)
    })?;
    let counts: Vec<Counts> = counts.into_iter().flatten().collect();
    Ok(LoadReport::of(config.measure, config.arrivals, &counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Unwatched;

    #[test]
    fn messages_come_back_over_unix_sockets() {
        let cores = affinity::allowed_cores().unwrap();
        let mut config = PairsConfig {
            connections: 8,
            bytes: 64,
            arrivals: Arrivals::Closed,
            cores: [cores[0], *cores.last().unwrap()],
            warm_up: Duration::from_millis(10),
            measure: Duration::from_millis(150),
        };
        let report = crate::load::answered(|measure| {
            config.measure = measure;
            run(&config, &mut Unwatched).unwrap()
        });
        assert_eq!((report.failed, report.reconnects), (0, 0));
    }
}
