//! What a result was measured on and with.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The machine, the kernel and the program, as far as they decide about figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processors.
    pub processor: String,
    /// Processors that this program may use.
    pub cores: Vec<usize>,
    /// Threads that share a core with another, by processor (`thread_siblings_list`).
    pub siblings: BTreeMap<usize, String>,
    /// Bytes of memory.
    pub memory: u64,
    /// Whether it is a virtual machine, as far as the processor says.
    pub virtual_machine: bool,
    /// Release of the kernel.
    pub kernel: String,
    /// Boot parameters of the kernel.
    pub command_line: String,
    /// Clock source.
    pub clock: String,
    /// The kernel's default congestion control.
    pub congestion: String,
    /// Mitigations of processor faults that cost time.
    pub mitigations: BTreeMap<String, String>,
    /// Load average of the last minute before the measurements.
    pub load_average: f64,
    /// Version of this program.
    pub version: String,
    /// Commit that the program was built of, `+` when its source was changed since; empty when it cannot be told.
    pub commit: String,
    /// An optimised build.
    pub optimised: bool,
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Value of a `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Machine {
    /// This machine, now.
    pub fn look() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let flags = field(&cpuinfo, "flags").unwrap_or_default();
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let cores = sidecore_sys::affinity::allowed_cores().unwrap_or_default();
        let siblings = |core: &usize| {
            read(format!(
                "/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
            ))
        };
        let average = read("/proc/loadavg");
        Self {
            processor: field(&cpuinfo, "model name").unwrap_or_default(),
            siblings: cores.iter().map(|core| (*core, siblings(core))).collect(),
            cores,
            memory: kilobytes(&memory) * 1024,
            virtual_machine: flags.split(' ').any(|flag| flag == "hypervisor"),
            kernel: read("/proc/sys/kernel/osrelease"),
            command_line: read("/proc/cmdline"),
            clock: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            congestion: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            mitigations: mitigations(),
            load_average: average
                .split(' ')
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or(0.0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("SIDECORE_COMMIT").to_owned(),
            optimised: !cfg!(debug_assertions),
        }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let kind = if self.virtual_machine {
            "virtual machine"
        } else {
            "machine"
        };
        let commit = if self.commit.is_empty() {
            "unknown"
        } else {
            &self.commit
        };
        format!(
            "{} × {} ({kind}), Linux {}, clock {}, sidecore {} at {commit}{}",
            self.cores.len(),
            self.processor,
            self.kernel,
            self.clock,
            self.version,
            if self.optimised {
                ""
            } else {
                ", **not optimised**"
            }
        )
    }
}

fn kilobytes(text: &str) -> u64 {
    text.trim_end_matches("kB").trim().parse().unwrap_or(0)
}

/// Those that do something.
fn mitigations() -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                read(entry.path()),
            )
        })
        .filter(|(_, state)| state != "Not affected")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let machine = Machine::look();
        assert!(
            !machine.cores.is_empty() && machine.memory > 1 << 20,
            "{machine:?}"
        );
        assert!(machine.describe().contains(&machine.kernel));
    }

    #[test]
    fn fields_are_read_by_name() {
        let text = "processor\t: 0\nmodel name\t: A: B\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(field(text, "flags"), None);
        assert_eq!(kilobytes("8048336 kB"), 8_048_336);
    }
}
