//! Processors: which there are, and binding threads to them.

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors that this thread may run on.
pub fn available() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect(),
        Err(_) => vec![0],
    }
}

/// Binds the calling thread (and threads that it will start) to one processor.
pub fn pin(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        anyhow::bail!("there is no processor {core}");
    }
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| {
        format!("cannot bind to processor {core}: is it online and allowed to us?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_bound_to_a_processor_that_is_there() {
        let core = *available().last().unwrap();
        let bound = std::thread::spawn(move || {
            pin(core).unwrap();
            available()
        });
        assert_eq!(bound.join().unwrap(), [core]);
        assert!(pin(CpuSet::MAX_CPU).is_err());
    }
}
