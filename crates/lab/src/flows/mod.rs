//! Bulk flows over a link: who sends, with which congestion control, and what arrives when.
//!
//! Unlike the other experiments these do not count processor time but bytes: the link is so slow that both processors rest.

mod ends;
mod stage;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sidecore_nic::LinkModel;
use sidecore_tcp::Algorithm;

use crate::interrupt;
use crate::link::Traffic;

pub use stage::Stage;

/// Length of the bins in which arrivals are counted.
pub const BIN: Duration = Duration::from_millis(100);

/// How long a stage's flows may take to connect.
const CONNECT: Duration = Duration::from_secs(20);

/// Whose TCP sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// An engine of this process on a TAP of its own.
    Engine,
    /// The kernel.
    Kernel,
}

/// A flow that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name in tables.
    pub name: String,
    /// Whose TCP sends. (A kernel receives.)
    pub sender: Sender,
    /// The congestion controller, by the kernel's name for it.
    pub controller: &'static str,
    /// Whether ECN is asked for.
    pub ecn: bool,
    /// Whether the engine paces what its controller would let go at once (`--pacing`). Of the kernel's it is the queueing discipline's affair.
    pub paced: bool,
}

/// Flows over one link, all at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRun {
    /// What was measured.
    pub case: String,
    /// Round, from 0 on.
    pub round: u32,
    /// What each flow brought.
    pub flows: Vec<Flow>,
    /// What the link did, there and back.
    pub link: [Traffic; 2],
}

/// What a flow brought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its name in tables.
    pub name: String,
    /// Whose TCP sent.
    pub sender: Sender,
    /// The congestion controller.
    pub controller: String,
    /// Megabits a second of payload in the measured time.
    pub mbit_s: f64,
    /// Bytes that arrived in each [`BIN`] from the start, warm-up included.
    pub bins: Vec<u64>,
    /// What the engine says of the connection at the end.
    pub engine: Option<serde_json::Value>,
}

/// The engine's controller that the kernel calls so.
pub fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "reno" => Some(Algorithm::NewReno),
        "cubic" => Some(Algorithm::Cubic),
        "dctcp" => Some(Algorithm::Dctcp),
        "bbr" => Some(Algorithm::Bbr),
        _ => None,
    }
}

/// Whether this kernel has a congestion controller of that name.
pub fn kernel_has(name: &str) -> bool {
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let there = std::fs::read_to_string(file).unwrap_or_default();
    there.split_whitespace().any(|it| it == name)
}

/// Why a flow of the engine and one of the kernel with these controllers cannot be compared here.
pub fn why_not(engine: &str, kernel: &str) -> Option<String> {
    if algorithm(engine).is_none() {
        return Some(format!("{engine} is skipped: the engine does not have it"));
    }
    (!kernel_has(kernel)).then(|| {
        format!(
            "{kernel} is skipped: this kernel does not have it (tcp_available_congestion_control)"
        )
    })
}

/// Lets flows run over a link of their own for `times` (warm-up, and the measured time after it).
///
/// # Errors
///
/// The stage cannot be set up, a flow does not connect or breaks, or somebody asks to end.
pub fn run(
    case: &str,
    round: u32,
    models: [LinkModel; 2],
    plans: &[Plan],
    times: [Duration; 2],
) -> anyhow::Result<FlowRun> {
    let mut stage = Stage::create(models, plans)?;
    let stop = AtomicBool::new(false);
    let [warm_up, measure] = times;
    let (flows, said) = std::thread::scope(|scope| {
        let streams = stage.connect(plans, Instant::now() + CONNECT)?;
        let start = Instant::now();
        let mut sinks = Vec::new();
        for (from, to) in streams {
            let stop = &stop;
            scope.spawn(move || ends::send(from, stop));
            sinks.push(scope.spawn(move || ends::take(&to, start, stop)));
        }
        let slept = sleep_until(start + warm_up + measure);
        // Before they end: of connections that are gone the engine says nothing.
        let said = stage.engine_says();
        stop.store(true, Ordering::Relaxed);
        let bins: Vec<Vec<u64>> = sinks
            .into_iter()
            .map(|sink| sink.join().expect("a sink panicked"))
            .collect();
        slept.map(|()| (bins, said))
    })?;
    let flows = plans
        .iter()
        .zip(flows)
        .enumerate()
        .map(|(at, (plan, bins))| {
            let engine = (plan.sender == Sender::Engine)
                .then(|| said.get(&stage.port(at)).cloned())
                .flatten();
            Flow {
                name: plan.name.clone(),
                sender: plan.sender,
                controller: plan.controller.to_owned(),
                mbit_s: rate(&bins, times),
                bins,
                engine,
            }
        });
    Ok(FlowRun {
        case: case.to_owned(),
        round,
        flows: flows.collect(),
        link: stage.end(),
    })
}

fn sleep_until(end: Instant) -> anyhow::Result<()> {
    loop {
        interrupt::check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// Megabits a second in the measured time.
fn rate(bins: &[u64], [warm_up, measure]: [Duration; 2]) -> f64 {
    let at = |time: Duration| (time.as_nanos() / BIN.as_nanos()) as usize;
    let (begin, end) = (at(warm_up), at(warm_up + measure));
    let bytes: u64 = bins
        .get(begin..end.min(bins.len()))
        .unwrap_or_default()
        .iter()
        .sum();
    bytes as f64 * 8.0 / 1e6 / measure.as_secs_f64()
}

impl Flow {
    /// Megabits a second over time, in steps of `step` seconds, for a plot.
    pub fn curve(&self, step: f64) -> Vec<(f64, f64)> {
        let each = ((step / BIN.as_secs_f64()).round() as usize).max(1);
        let seconds = each as f64 * BIN.as_secs_f64();
        let rates = self.bins.chunks_exact(each).enumerate().map(|(n, bins)| {
            let bytes: u64 = bins.iter().sum();
            ((n + 1) as f64 * seconds, bytes as f64 * 8.0 / 1e6 / seconds)
        });
        rates.collect()
    }
}

/// Jain's index of fairness: 1 if all have the same, 1/n if one has everything.
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares > 0.0 {
        sum * sum / (rates.len() as f64 * squares)
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index() {
        assert_eq!(jain(&[3.0, 3.0]), 1.0);
        assert_eq!(jain(&[3.0, 0.0]), 0.5);
        assert_eq!(jain(&[1.0, 2.0, 3.0]), 36.0 / 42.0);
        assert_eq!(jain(&[]), 1.0);
    }

    #[test]
    fn rates_are_of_the_measured_time() {
        let bins: Vec<u64> = (0..40).map(|n| if n < 10 { 0 } else { 12_500 }).collect();
        let times = [Duration::from_secs(1), Duration::from_secs(2)];
        assert_eq!(rate(&bins, times), 1.0);
        assert_eq!(rate(&bins[..5], times), 0.0);
        let flow = Flow {
            name: String::new(),
            sender: Sender::Kernel,
            controller: String::new(),
            mbit_s: 0.0,
            bins,
            engine: None,
        };
        assert_eq!(flow.curve(1.0)[..2], [(1.0, 0.0), (2.0, 1.0)]);
    }

    #[test]
    fn an_engine_and_a_kernel_send_side_by_side() {
        if !sidecore_sys::privileges::can_administer_network() {
            eprintln!("skipped: needs CAP_NET_ADMIN");
            return;
        }
        let model = LinkModel {
            rate_bps: 20_000_000,
            queue_frames: 60,
            delay: Duration::from_millis(5),
            ..LinkModel::default()
        };
        let plan = |sender| Plan {
            name: format!("{sender:?}"),
            sender,
            controller: "cubic",
            ecn: false,
            paced: false,
        };
        let plans = [plan(Sender::Engine), plan(Sender::Kernel)];
        let times = [Duration::from_millis(200), Duration::from_millis(1000)];
        let run = run("test", 0, [model; 2], &plans, times).unwrap();
        let rates: Vec<f64> = run.flows.iter().map(|flow| flow.mbit_s).collect();
        assert!(rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
        assert!(rates.iter().sum::<f64>() < 21.0, "{rates:?}");
        assert!(run.link[0].sent > 500, "{:?}", run.link);
        assert!(run.flows[0].engine.is_some() && run.flows[1].engine.is_none());
        assert!(why_not("nonsense", "cubic").is_some());
    }
}
