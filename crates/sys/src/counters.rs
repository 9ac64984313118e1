//! CPU time of threads and processes, for measurements. Reads `/proc`; allocates; not for the packet path.

use std::fs;
use std::io;
use std::time::Duration;

/// Time on a core, and time spent waiting for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTime {
    /// Ran, user and system together, nanoseconds' precision.
    pub running: Duration,
    /// Was runnable but did not run.
    pub waiting: Duration,
    /// Times it was put onto a core.
    pub slices: u64,
}

/// CPU time of one thread of one process. `NotFound` when it has ended.
pub fn thread_cpu_time(pid: u32, tid: u32) -> io::Result<CpuTime> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat"))?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || {
        numbers
            .next()
            .and_then(Result::ok)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "schedstat"))
    };
    Ok(CpuTime {
        running: Duration::from_nanos(next()?),
        waiting: Duration::from_nanos(next()?),
        slices: next()?,
    })
}

/// Threads of a process: number and name.
pub fn threads(pid: u32) -> io::Result<Vec<(u32, String)>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        let Some(tid) = entry.file_name().to_str().and_then(|s| s.parse().ok()) else {
            continue;
        };
        // A thread may end between listing and reading.
        if let Ok(name) = fs::read_to_string(entry.path().join("comm")) {
            threads.push((tid, name.trim_end().to_owned()));
        }
    }
    threads.sort_unstable();
    Ok(threads)
}

/// CPU time of all living threads of a process.
pub fn process_cpu_time(pid: u32) -> io::Result<CpuTime> {
    let mut sum = CpuTime::default();
    for (tid, _) in threads(pid)? {
        if let Ok(time) = thread_cpu_time(pid, tid) {
            sum.running += time.running;
            sum.waiting += time.waiting;
            sum.slices += time.slices;
        }
    }
    Ok(sum)
}

/// What the kernel says that this process used since it began, ended threads included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// Times it gave the core up to wait.
    pub voluntary_switches: u64,
    /// Times the core was taken from it.
    pub involuntary_switches: u64,
}

/// Of the calling process.
pub fn process_usage() -> io::Result<Usage> {
    usage(libc::RUSAGE_SELF)
}

/// Of the calling thread.
pub fn thread_usage() -> io::Result<Usage> {
    usage(libc::RUSAGE_THREAD)
}

fn usage(who: libc::c_int) -> io::Result<Usage> {
    let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `raw` is large enough and lives over the call.
    crate::check(unsafe { libc::getrusage(who, raw.as_mut_ptr()) })?;
    // SAFETY: zeroed before, filled by the kernel; every bit pattern is a value.
    let raw = unsafe { raw.assume_init() };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    Ok(Usage {
        user: time(raw.ru_utime),
        system: time(raw.ru_stime),
        minor_faults: raw.ru_minflt as u64,
        major_faults: raw.ru_majflt as u64,
        voluntary_switches: raw.ru_nvcsw as u64,
        involuntary_switches: raw.ru_nivcsw as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen() {
        let pid = std::process::id();
        let tid = crate::affinity::thread_id();
        let before = thread_cpu_time(pid, tid).unwrap();
        let usage = thread_usage().unwrap();
        let start = std::time::Instant::now();
        let mut n = 0u64;
        while start.elapsed() < Duration::from_millis(30) {
            n = n.wrapping_add(1);
        }
        assert!(n > 0);
        let used = thread_cpu_time(pid, tid).unwrap().running - before.running;
        assert!(used > Duration::from_millis(1), "{used:?}");
        assert!(thread_usage().unwrap().user >= usage.user);
        assert!(threads(pid).unwrap().iter().any(|(t, _)| *t == tid));
        assert!(process_cpu_time(pid).unwrap().running >= used);
        assert!(process_usage().unwrap().minor_faults > 0);
        assert!(thread_cpu_time(pid, u32::MAX).is_err());
    }
}
