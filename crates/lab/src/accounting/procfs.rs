//! What the kernel counts: times of threads, of processors, and what the machine is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Nanoseconds in one tick of `/proc/stat` (`USER_HZ` is 100 on every architecture that Rust's Linux targets know but Alpha).
const NANOS_PER_TICK: u64 = 10_000_000;

/// Times of one processor since boot, in nanoseconds (of a resolution of 10 ms).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Nothing to run, and waiting for a disk.
    pub idle: u64,
    /// Work of any kind: programs, system calls, interrupts, soft interrupts.
    pub busy: u64,
    /// Soft and hard interrupts, as far as the kernel tells them apart (by sampling).
    pub interrupts: u64,
    /// Ready to run, but the hypervisor ran something else.
    pub steal: u64,
}

/// One thread and its time on a processor since its birth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// `comm`: at most 15 bytes.
    pub name: String,
    /// Nanoseconds on a processor.
    pub nanos: u64,
    /// A thread of the kernel itself.
    pub kernel: bool,
}

/// Parses one `cpu` line of `/proc/stat`.
fn parse_cpu_line(line: &str) -> Option<CpuTimes> {
    let mut fields = [0u64; 8];
    let mut words = line.split_ascii_whitespace().skip(1);
    for field in &mut fields {
        *field = words.next()?.parse().ok()?;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = fields;
    Some(CpuTimes {
        idle: (idle + iowait) * NANOS_PER_TICK,
        busy: (user + nice + system + irq + softirq) * NANOS_PER_TICK,
        interrupts: (irq + softirq) * NANOS_PER_TICK,
        steal: steal * NANOS_PER_TICK,
    })
}

/// Parses `/proc/stat`: one entry per processor that is online, by its number.
pub fn parse_cpu_times(stat: &str) -> BTreeMap<usize, CpuTimes> {
    stat.lines()
        .filter_map(|line| {
            let number = line.strip_prefix("cpu")?.split(' ').next()?;
            Some((number.parse().ok()?, parse_cpu_line(line)?))
        })
        .collect()
}

/// How many processes and threads have begun since boot, by `/proc/stat`; 0 where it does not say.
pub fn parse_births(stat: &str) -> u64 {
    stat.lines()
        .find_map(|line| line.strip_prefix("processes ")?.trim().parse().ok())
        .unwrap_or(0)
}

/// Times of every processor that is online, and how many processes and threads have begun since boot.
pub fn machine_times() -> io::Result<(BTreeMap<usize, CpuTimes>, u64)> {
    let stat = fs::read_to_string("/proc/stat")?;
    Ok((parse_cpu_times(&stat), parse_births(&stat)))
}

/// The first number of a `schedstat` file: nanoseconds on a processor.
fn schedstat_nanos(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.split_ascii_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "schedstat has no number"))
}

/// Nanoseconds that the calling thread has spent on a processor.
pub fn own_thread_nanos() -> io::Result<u64> {
    schedstat_nanos(Path::new("/proc/thread-self/schedstat"))
}

/// Whether a `/proc/<pid>/stat` line is that of a kernel thread: flag `PF_KTHREAD` in field 9.
pub fn is_kernel_thread(stat: &str) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    // The name is in parentheses and may hold anything: count fields from its end.
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return false;
    };
    let flags = rest.split_ascii_whitespace().nth(6);
    flags
        .and_then(|word| word.parse::<u64>().ok())
        .is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Threads of one process; those that end while we look are left out.
fn threads_of(pid: u32, into: &mut Vec<ThreadTime>) {
    let root = Path::new("/proc").join(pid.to_string());
    let Ok(stat) = fs::read_to_string(root.join("stat")) else {
        return;
    };
    let kernel = is_kernel_thread(&stat);
    for tid in numbered_entries(&root.join("task")) {
        let task = root.join("task").join(tid.to_string());
        let Ok(nanos) = schedstat_nanos(&task.join("schedstat")) else {
            continue;
        };
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        let name = name.trim_end().to_owned();
        into.push(ThreadTime {
            pid,
            tid,
            name,
            nanos,
            kernel,
        });
    }
}

/// Names of a folder that are numbers.
fn numbered_entries(folder: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Every thread of the machine that this process may see, with its time.
pub fn all_threads() -> Vec<ThreadTime> {
    let mut threads = Vec::with_capacity(256);
    for pid in numbered_entries(Path::new("/proc")) {
        threads_of(pid, &mut threads);
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read_with_idle_busy_and_steal_apart() {
        let text = "cpu  30 1 20 400 5 1 2 3 0 0\n\
                    cpu0 10 1 10 200 2 1 1 2 0 0\n\
                    cpu3 20 0 10 200 3 0 1 1 0 0\n\
                    intr 12345\n";
        let times = parse_cpu_times(text);
        assert_eq!(times.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let expected = CpuTimes {
            idle: 202 * NANOS_PER_TICK,
            busy: 23 * NANOS_PER_TICK,
            interrupts: 2 * NANOS_PER_TICK,
            steal: 2 * NANOS_PER_TICK,
        };
        assert_eq!(times[&0], expected);
    }

    #[test]
    fn a_kernel_thread_is_known_by_its_flags_whatever_its_name() {
        assert!(is_kernel_thread(
            "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0"
        ));
        assert!(is_kernel_thread(
            "9 (a) b (c) S 2 0 0 0 -1 69238880 0 0 0 0 0"
        ));
        assert!(!is_kernel_thread(
            "1 (systemd) S 0 1 1 0 -1 4194560 1 2 3 4"
        ));
        assert!(!is_kernel_thread("nonsense"));
    }

    #[test]
    fn own_time_grows_with_work() {
        let before = own_thread_nanos().unwrap();
        let mut sum = 0u64;
        for i in 0..20_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        assert!(own_thread_nanos().unwrap() > before, "{sum}");
    }

    #[test]
    fn all_threads_contains_this_one() {
        let own = std::process::id();
        assert!(all_threads().iter().any(|t| t.pid == own && !t.kernel));
    }
}
