//! One measured run, and rounds of runs that are interleaved.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::accounting::{Books, Selection, Watch};
use crate::flood::FloodUse;
use crate::interrupt;
use crate::load::{LoadConfig, LoadReport};
use crate::memory::MemoryUse;
use crate::process::RoleProcess;
use crate::profile::{Profile, Sampler};
use crate::progress::Progress;
use crate::roles::{EngineUse, Role, RoleSpec};
use crate::web::nginx::Nginx;

/// Role of the load generator in the books.
pub const CLIENT: &str = "client";

/// Role of the server application, and of everything on its side that is not the engine.
pub const SERVER: &str = "server";

/// Role of the engine's threads.
pub const ENGINE: &str = "engine";

/// What the names of an engine's threads begin with.
const ENGINE_THREADS: &str = "sidecore-engine";

/// How often a run that is void is done again (full runs only).
const AGAIN: u32 = 2;

/// How all runs of an experiment are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Short, for a first look: void runs count, with a warning.
    pub quick: bool,
    /// Rounds: every arm runs once in each.
    pub rounds: u32,
    /// Before measuring.
    pub warm_up: Duration,
    /// Measured.
    pub measure: Duration,
    /// Processor of the server side: engine and application.
    pub server_core: usize,
    /// Processor of the client.
    pub client_core: usize,
    /// Congestion control of all kernel connections.
    pub congestion: String,
    /// Only the variants whose names, with that of their case before it, contain one of these; empty: all.
    pub only: Vec<String>,
    /// After its rounds, every arm of some experiments runs once more under `perf`, if there is one, to tell receiving apart ([`crate::profile`]).
    pub profile: bool,
    /// This run is that one.
    #[serde(skip)]
    pub sampled: bool,
    /// The variants that were asked for by [`Self::wants`].
    #[serde(skip)]
    pub variants: Variants,
}

/// Names of variants that an experiment has, and whether any of them was to be run. Copies share them.
#[derive(Clone, Debug, Default)]
pub struct Variants(Arc<Mutex<(BTreeSet<String>, bool)>>);

/// What an experiment found itself to have is no part of how it is made.
impl PartialEq for Variants {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Variants {
    fn add(&self, name: &str, wanted: bool) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0.insert(name.to_owned());
        inner.1 |= wanted;
    }
}

impl Settings {
    /// Whether a variant of this name is to be run.
    pub fn wants(&self, name: &str) -> bool {
        let wanted =
            self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()));
        self.variants.add(name, wanted);
        wanted
    }

    /// Whether a variant of a case is to be run: one of the two, or both with a colon between them, may be asked for.
    fn wants_arm(&self, case: &str, arm: &str) -> bool {
        match case {
            "" => self.wants(arm),
            case => self.wants(&format!("{case}: {arm}")),
        }
    }

    /// All names of the variants that there were, if [`Self::only`] took none of them. An experiment that is always made whole has none.
    pub fn none_wanted(&self) -> Option<String> {
        let inner = self.variants.0.lock();
        let inner = inner.unwrap_or_else(PoisonError::into_inner);
        let names: Vec<&str> = inner.0.iter().map(String::as_str).collect();
        (!inner.1 && !names.is_empty()).then(|| names.join("; "))
    }

    /// Short or full runs on the first two processors (on one alone, both sides share it, and the figures say little).
    pub fn new(quick: bool) -> Self {
        let cores = sidecore_sys::affinity::allowed_cores().unwrap_or_default();
        let server_core = cores.first().copied().unwrap_or(0);
        Self {
            quick,
            rounds: if quick { 3 } else { 10 },
            warm_up: Duration::from_millis(if quick { 250 } else { 500 }),
            measure: Duration::from_millis(if quick { 750 } else { 2000 }),
            server_core,
            client_core: cores.get(1).copied().unwrap_or(server_core),
            congestion: "cubic".into(),
            only: Vec::new(),
            profile: true,
            sampled: false,
            variants: Variants::default(),
        }
    }

    /// How long a milestone of a run may take.
    fn at_most(&self) -> Duration {
        self.warm_up + self.measure + Duration::from_secs(20)
    }

    /// A role on the server's side.
    pub fn on_server(&self, netns: Option<&str>, role: Role) -> RoleSpec {
        let cores = vec![self.server_core];
        let netns = netns.map(str::to_owned);
        RoleSpec { role, netns, cores }
    }

    /// A load on the client's side, with this experiment's times.
    pub fn on_client(&self, netns: Option<&str>, mut load: LoadConfig) -> RoleSpec {
        load.warm_up = self.warm_up;
        load.measure = self.measure;
        load.congestion = Some(self.congestion.clone());
        RoleSpec {
            role: Role::Load(load),
            netns: netns.map(str::to_owned),
            cores: vec![self.client_core],
        }
    }
}

/// A run and everything that was counted in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was measured: a server, a stack.
    pub arm: String,
    /// Under which load.
    pub case: String,
    /// Round, from 0 on.
    pub round: u32,
    /// What the load generator saw.
    pub load: LoadReport,
    /// Who spent how much processor time.
    pub books: Books,
    /// Processors of the server's side.
    pub server_cores: Vec<usize>,
    /// Processor of the client.
    pub client_core: usize,
    /// What the engine did, as it counts itself; none without one.
    pub engine: Option<EngineUse>,
    /// What idle connections cost, where that was the question; then there is no load.
    #[serde(default)]
    pub memory: Option<MemoryUse>,
    /// What came of a flood, where that was the question; then there is no load.
    #[serde(default)]
    pub flood: Option<FloodUse>,
    /// Where the time went, of a run that was sampled; its other figures do not count.
    pub profile: Option<Profile>,
    /// Why it does not count, if so.
    pub void: Option<String>,
}

impl Run {
    /// Answers within the books' window.
    fn requests(&self) -> f64 {
        self.load.rate * self.books.seconds
    }

    /// Errors that the load met void a run.
    pub fn look_for_errors(&mut self) {
        let LoadReport {
            failed, reconnects, ..
        } = self.load;
        if self.void.is_none() && failed + reconnects > 0 {
            self.void = Some(format!(
                "{failed} answers were errors, {reconnects} connections broke"
            ));
        }
    }

    /// Microseconds of the server side's processors per request: all that they did, interrupts and polling included.
    pub fn server_us(&self) -> f64 {
        let busy: f64 = self
            .server_cores
            .iter()
            .filter_map(|core| self.books.busy_per_core.get(core))
            .sum();
        busy * 1e6 / self.requests()
    }

    /// Microseconds of all processors per request: client and server together.
    pub fn total_us(&self) -> f64 {
        self.books.busy * 1e6 / self.requests()
    }

    /// Microseconds of one processor per request.
    pub fn busy_us(&self, core: usize) -> f64 {
        self.books.busy_per_core.get(&core).copied().unwrap_or(0.0) * 1e6 / self.requests()
    }

    /// Microseconds charged to the threads of a role per request.
    pub fn role_us(&self, role: &str) -> f64 {
        self.books.role(role) * 1e6 / self.requests()
    }

    /// Microseconds of the engine's useful work per request.
    pub fn productive_us(&self) -> Option<f64> {
        Some(self.engine?.useful * 1e6 / self.requests())
    }
}

/// Lets a role that is client and server at once run, and keeps the books.
pub fn measure_alone(settings: &Settings, role: &RoleSpec) -> anyhow::Result<Run> {
    let mut process = RoleProcess::start_load(CLIENT, role)?;
    let watch = Watch::default()
        .role(
            ENGINE,
            Selection::Named(process.pid(), ENGINE_THREADS.into()),
        )
        .role(CLIENT, Selection::Process(process.pid()));
    let mut looks = Vec::with_capacity(2);
    let load = process.measure(settings.at_most(), &mut || {
        looks.push(watch.snapshot()?);
        Ok(())
    })?;
    let [before, after] = looks.as_slice() else {
        anyhow::bail!("the load skipped an end of its measured time");
    };
    let books = watch.books(before, after);
    let mut run = Run {
        void: books.void(),
        load,
        books,
        server_cores: vec![settings.server_core, settings.client_core],
        ..Run::default()
    };
    run.look_for_errors();
    Ok(run)
}

/// A server that is up.
pub trait Measured {
    /// Its processes.
    fn processes(&self) -> Vec<u32>;

    /// Processes that are engines and nothing else.
    fn engines(&self) -> Vec<u32> {
        Vec::new()
    }

    /// How its engine has spent its time; all zero without one.
    fn engine_use(&mut self) -> anyhow::Result<EngineUse> {
        Ok(EngineUse::default())
    }
}

impl Measured for RoleProcess {
    fn processes(&self) -> Vec<u32> {
        vec![self.pid()]
    }

    fn engine_use(&mut self) -> anyhow::Result<EngineUse> {
        Self::engine_use(self)
    }
}

impl Measured for Nginx {
    fn processes(&self) -> Vec<u32> {
        Self::processes(self)
    }
}

/// Lets a load run against a server that is up, and keeps the books. The server's engine threads, if it has any, are a role of their own.
pub fn measure(
    settings: &Settings,
    load: &RoleSpec,
    server: &mut impl Measured,
) -> anyhow::Result<Run> {
    let mut client = RoleProcess::start_load(CLIENT, load)?;
    let mut watch = Watch::default().role(CLIENT, Selection::Process(client.pid()));
    for pid in server.processes() {
        watch = watch
            .role(ENGINE, Selection::Named(pid, ENGINE_THREADS.into()))
            .role(SERVER, Selection::Process(pid));
    }
    for pid in server.engines() {
        watch = watch.role(ENGINE, Selection::Process(pid));
    }
    let mut looks = Vec::with_capacity(2);
    let mut sampler = None;
    let mut profile = None;
    let load = client.measure(settings.at_most(), &mut || {
        looks.push((server.engine_use()?, watch.snapshot()?));
        if let Some(sampler) = sampler.take() {
            profile = Some(Sampler::finish(sampler)?);
        } else if settings.sampled {
            sampler = Some(Sampler::start(settings.server_core, settings.client_core)?);
        }
        Ok(())
    })?;
    let [before, after] = looks.as_slice() else {
        anyhow::bail!("the load skipped an end of its measured time");
    };
    let books = watch.books(&before.1, &after.1);
    let engine = after.0.since(&before.0);
    let mut run = Run {
        void: books.void(),
        load,
        books,
        server_cores: vec![settings.server_core],
        client_core: settings.client_core,
        engine: (after.0 != EngineUse::default()).then_some(engine),
        profile,
        ..Run::default()
    };
    run.look_for_errors();
    Ok(run)
}

/// Makes one run.
pub type Measure<'a> = Box<dyn FnMut(&Settings) -> anyhow::Result<Run> + 'a>;

/// Something that can be measured once.
pub struct Arm<'a> {
    /// Its name in tables.
    pub name: String,
    /// Makes one run.
    pub run: Measure<'a>,
}

impl<'a> Arm<'a> {
    /// An arm.
    pub fn new(
        name: impl Into<String>,
        run: impl FnMut(&Settings) -> anyhow::Result<Run> + 'a,
    ) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }
}

/// Runs all arms round by round, forwards and backwards in turn, so that drift hits all alike. An arm that fails ends the experiment.
/// Every run is returned, void and sampled ones too.
pub fn interleave(
    settings: &Settings,
    case: &str,
    arms: &mut [Arm<'_>],
    progress: &Progress,
) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for round in 0..settings.rounds {
        let mut order: Vec<usize> = (0..arms.len())
            .filter(|index| settings.wants_arm(case, &arms[*index].name))
            .collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let arm = &mut arms[index];
            progress.say(&format!(
                "{case}: {} (round {} of {})",
                arm.name,
                round + 1,
                settings.rounds
            ));
            run_until_valid(settings, case, arm, round, progress, &mut runs)?;
        }
    }
    Ok(runs)
}

/// Runs every arm once more under `perf`, where there is one and it is wanted: what [`crate::profile`] tells goes into its summary.
pub fn sample(
    settings: &Settings,
    case: &str,
    arms: &mut [Arm<'_>],
    progress: &Progress,
) -> anyhow::Result<Vec<Run>> {
    if !settings.profile || !Sampler::is_there() {
        return Ok(Vec::new());
    }
    let sampled = Settings {
        sampled: true,
        ..settings.clone()
    };
    let mut runs = Vec::new();
    let wanted = |arm: &&mut Arm<'_>| settings.wants_arm(case, &arm.name);
    for arm in arms.iter_mut().filter(wanted) {
        progress.say(&format!("{case}: {} (sampled)", arm.name));
        match run_once(&sampled, case, arm, settings.rounds) {
            Ok(run) => runs.extend(run.profile.is_some().then_some(run)),
            Err(error) => {
                interrupt::check()?;
                progress.warn(&format!("nothing was sampled: {error:#}"));
                return Ok(Vec::new());
            }
        }
    }
    Ok(runs)
}

fn run_once(settings: &Settings, case: &str, arm: &mut Arm<'_>, round: u32) -> anyhow::Result<Run> {
    interrupt::check()?;
    let mut run =
        (arm.run)(settings).map_err(|error| error.context(format!("{case}: {}", arm.name)))?;
    run.arm.clone_from(&arm.name);
    case.clone_into(&mut run.case);
    run.round = round;
    Ok(run)
}

/// Makes a run, and makes it again when it is void: in full runs, and not for ever.
fn run_until_valid(
    settings: &Settings,
    case: &str,
    arm: &mut Arm<'_>,
    round: u32,
    progress: &Progress,
    runs: &mut Vec<Run>,
) -> anyhow::Result<()> {
    let most = if settings.quick { 0 } else { AGAIN };
    for attempt in 0..=most {
        let run = run_once(settings, case, arm, round)?;
        let void = run.void.clone();
        runs.push(run);
        let Some(why) = void else { break };
        let what = format!("{case}: {}: {why}", arm.name);
        match settings.quick {
            true => progress.warn_once(&what),
            false if attempt < most => progress.warn(&format!("{what}; again")),
            false => progress.warn(&what),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
