//! Books: whose work took how much processor time, and whether the sum is all that the machine did.
//!
//! A [`Watch`] knows the roles of a run (client, server application, engine) and takes a [`Snapshot`] at both ends of the
//! measured window. The difference is a [`Books`]: time per role, of kernel threads, of everything else, beside what the
//! processors say they were busy. A run whose books do not balance within [`TOLERANCE`], or during which the hypervisor took
//! more than [`STEAL_LIMIT`] of the machine away, is void.
//!
//! What the books cannot see: without `CONFIG_IRQ_TIME_ACCOUNTING` interrupts and soft interrupts are charged to whoever they
//! interrupt. The client's TCP receive that runs inside a server's `write` is charged to the server, on veth and on TAP alike;
//! what runs while a processor is idle is charged to nobody and shows as a difference, for which [`IDLE_TOLERANCE`] makes room, and what the kernel sampled of
//! interrupts where no program began that could have taken the time unseen. (The server side's figures hold it: they are what its processor was busy.)

pub mod procfs;

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use procfs::{CpuTimes, ThreadTime};

/// By how much of the machine's busy time the charged times may differ from it.
pub const TOLERANCE: f64 = 0.03;

/// Part of the idle time that may have been spent on interrupts and on falling asleep and waking: the kernel charges that to no thread, and counts it as
/// busy. At some ten thousand wake-ups a second it is several percent.
pub const IDLE_TOLERANCE: f64 = 0.1;

/// Share of the wall time of all processors that the hypervisor may take away.
pub const STEAL_LIMIT: f64 = 0.01;

/// Role of the process that takes the snapshots.
pub const LAB: &str = "lab";

/// Which threads make up a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All threads of this process that no earlier role has.
    Process(u32),
    /// The threads of this process whose name begins so.
    Named(u32, String),
}

impl Selection {
    fn contains(&self, thread: &ThreadTime) -> bool {
        match self {
            Self::Process(pid) => thread.pid == *pid,
            Self::Named(pid, prefix) => thread.pid == *pid && thread.name.starts_with(prefix),
        }
    }
}

/// The roles of a run; a thread belongs to the first role that claims it.
#[derive(Clone, Debug)]
pub struct Watch {
    roles: Vec<(String, Selection)>,
}

impl Default for Watch {
    /// Only the calling process, as [`LAB`].
    fn default() -> Self {
        Self {
            roles: vec![(LAB.to_owned(), Selection::Process(std::process::id()))],
        }
    }
}

/// Times at one instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at: Instant,
    cpus: BTreeMap<usize, CpuTimes>,
    /// By thread: role (an index, or none), time, kernel thread or not.
    threads: BTreeMap<u32, (Option<usize>, u64, bool)>,
    /// Processes and threads that have begun since boot.
    births: u64,
}

impl Watch {
    /// Adds a role. Several selections may bear the same name: their times are added.
    pub fn role(mut self, name: &str, selection: Selection) -> Self {
        self.roles.push((name.to_owned(), selection));
        self
    }

    /// Takes the times now. Costs a few milliseconds: it reads `/proc` for every thread.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        let (cpus, births) = procfs::machine_times()?;
        let at = Instant::now();
        let threads = procfs::all_threads();
        let of_role = |thread: &ThreadTime| self.roles.iter().position(|r| r.1.contains(thread));
        let threads = threads
            .iter()
            .map(|t| (t.tid, (of_role(t), t.nanos, t.kernel)))
            .collect();
        Ok(Snapshot {
            at,
            cpus,
            threads,
            births,
        })
    }

    /// The books between two snapshots of this watch.
    pub fn books(&self, before: &Snapshot, after: &Snapshot) -> Books {
        let mut books = Books {
            seconds: after.at.duration_since(before.at).as_secs_f64(),
            births: after.births.saturating_sub(before.births),
            ..Books::default()
        };
        for (name, _) in &self.roles {
            books.roles.insert(name.clone(), 0.0);
        }
        for (tid, (role, nanos, kernel)) in &after.threads {
            let earlier = before.threads.get(tid).map_or(0, |t| t.1);
            let spent = seconds(nanos.saturating_sub(earlier));
            match role.and_then(|index| self.roles.get(index)) {
                Some((name, _)) => *books.roles.entry(name.clone()).or_default() += spent,
                None if *kernel => books.kernel_threads += spent,
                None => books.others += spent,
            }
        }
        for (number, now) in &after.cpus {
            let then = before.cpus.get(number).copied().unwrap_or_default();
            let idle = seconds(now.idle.saturating_sub(then.idle));
            let steal = seconds(now.steal.saturating_sub(then.steal));
            // Idle time is counted exactly, busy time by sampling at ticks: trust the former.
            let busy = (books.seconds - idle - steal).max(0.0);
            books.busy_per_core.insert(*number, busy);
            books.busy += busy;
            books.steal += steal;
            books.interrupts += seconds(now.interrupts.saturating_sub(then.interrupts));
        }
        books
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Processor time of a measured window, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Books {
    /// Length of the window.
    pub seconds: f64,
    /// Time charged to each role.
    pub roles: BTreeMap<String, f64>,
    /// Time of the kernel's own threads (ksoftirqd, threaded NAPI, workers).
    pub kernel_threads: f64,
    /// Time of programs that have no role: noise.
    pub others: f64,
    /// Time in which any processor was busy: wall time less idle and stolen time.
    pub busy: f64,
    /// The same by processor.
    pub busy_per_core: BTreeMap<usize, f64>,
    /// Time in interrupts as the kernel samples it; part of the roles' times already, but for those that came while a processor was idle.
    pub interrupts: f64,
    /// Processes and threads that began meanwhile. Those that ended before the end are in nobody's time.
    #[serde(default)]
    pub births: u64,
    /// Time taken away by the hypervisor.
    pub steal: f64,
}

impl Books {
    /// What is charged to roles and kernel threads.
    pub fn charged(&self) -> f64 {
        self.roles.values().sum::<f64>() + self.kernel_threads
    }

    /// By which part of the busy time the charged time falls short of it (or, negative, exceeds it).
    pub fn imbalance(&self) -> f64 {
        if self.busy <= 0.0 {
            return 0.0;
        }
        (self.busy - self.charged()) / self.busy
    }

    /// Stolen part of the wall time of all processors.
    pub fn steal_share(&self) -> f64 {
        let wall = self.seconds * self.busy_per_core.len() as f64;
        if wall > 0.0 { self.steal / wall } else { 0.0 }
    }

    /// Time charged to a role, in seconds; 0 when there is none of this name.
    pub fn role(&self, name: &str) -> f64 {
        self.roles.get(name).copied().unwrap_or(0.0)
    }

    /// Why the run is void, if it is.
    pub fn void(&self) -> Option<String> {
        // Ticks of 10 ms at both ends of each processor's idle time cannot be told from work.
        let resolution = 0.02 * self.busy_per_core.len() as f64;
        let gap = self.busy - self.charged();
        let idle = self.seconds * self.busy_per_core.len() as f64 - self.busy - self.steal;
        let mut allowed = self.busy * TOLERANCE;
        if self.others <= allowed && gap > 0.0 {
            allowed += idle.max(0.0) * IDLE_TOLERANCE;
            // Nobody came and went unseen: then only interrupts can have been charged to no thread. Frames that are received on a
            // processor of their own (steering) come as interrupts to one that may be idle.
            if self.births == 0 {
                allowed += self.interrupts;
            }
        }
        if gap.abs() > allowed.max(resolution) {
            return Some(format!(
                "books do not balance: {:.3} s busy, {:.3} s charged to roles and kernel threads ({:+.1} %), {:.3} s of other programs",
                self.busy,
                self.charged(),
                -self.imbalance() * 100.0,
                self.others
            ));
        }
        if self.steal_share() > STEAL_LIMIT {
            let percent = self.steal_share() * 100.0;
            return Some(format!(
                "the hypervisor took {percent:.1} % of the machine away"
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests;
