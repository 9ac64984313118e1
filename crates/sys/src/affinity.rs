//! Threads and cores.

use std::ffi::CString;
use std::io;

use rustix::thread::CpuSet;

/// Lets the calling thread run on this core only.
pub fn pin_current_thread(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("core {core}: no such core"),
        ));
    }
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| crate::context(format_args!("pinning to core {core}"), error.into()))
}

/// Lets the calling thread run on each of these cores.
pub fn set_cores(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        set.set(*core);
    }
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| crate::context(format_args!("pinning to cores {cores:?}"), error.into()))
}

/// The cores on which the calling thread may run, ascending.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect())
}

/// The core on which the calling thread runs at this moment.
pub fn current_core() -> usize {
    rustix::thread::sched_getcpu()
}

/// Names the calling thread; longer names are cut to 15 bytes.
pub fn set_name(name: &str) -> io::Result<()> {
    let mut end = name.len().min(15);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let name = CString::new(&name[..end]).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "a zero byte in a thread's name",
        )
    })?;
    Ok(rustix::thread::set_name(&name)?)
}

/// Number of the calling thread, as in `/proc/self/task`.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays() {
        std::thread::spawn(|| {
            let allowed = allowed_cores().unwrap();
            let core = *allowed.last().unwrap();
            pin_current_thread(core).unwrap();
            assert_eq!(allowed_cores().unwrap(), [core]);
            assert_eq!(current_core(), core);
            set_cores(&allowed).unwrap();
            assert_eq!(allowed_cores().unwrap(), allowed);
            assert!(pin_current_thread(usize::MAX).is_err());
            set_name("a name that is long: ä").unwrap();
            let comm = format!("/proc/self/task/{}/comm", thread_id());
            assert_eq!(std::fs::read_to_string(comm).unwrap(), "a name that is \n");
        })
        .join()
        .unwrap();
    }
}
