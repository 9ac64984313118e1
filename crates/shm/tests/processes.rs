//! Lanes between processes of which one dies at any moment.
#![cfg(not(miri))]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sidecore_abi::control::Geometry;
use sidecore_abi::{Entry, LINE};
use sidecore_shm::control::{AppControl, EngineControl, Sleep};
use sidecore_shm::lane::{MappedLane, Reader, Writer};
use sidecore_shm::{Consumer, Producer, Shared};
use sidecore_sys::Memfd;

const ORDER: u32 = 6;

fn shared(len: usize) -> Shared {
    let memory = Memfd::create("test", len as u64, false).unwrap();
    memory.seal_size().unwrap();
    Shared::map(&memory, true).unwrap()
}

fn lane() -> (Producer, Consumer) {
    let memory = shared(LINE + (LINE << ORDER));
    let end = || MappedLane::new(&memory, 0, ORDER).unwrap();
    (Writer::new(end()), Reader::new(end()))
}

/// A child process that runs `work` and never comes back; killed and reaped on drop.
struct Child(libc::pid_t);

impl Child {
    /// `work` may touch memory and make system calls; it must not allocate, lock or print: other threads were lost in the fork.
    fn run(work: impl FnOnce()) -> Self {
        // SAFETY: the child does only what is safe after a fork of a program with threads (see above), and leaves by _exit.
        match unsafe { libc::fork() } {
            0 => {
                work();
                // SAFETY: ends the process without running anything of it.
                unsafe { libc::_exit(0) }
            }
            pid => {
                assert!(pid > 0, "fork");
                Self(pid)
            }
        }
    }

    fn kill(&self) {
        // SAFETY: our own child, not yet reaped.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn numbered(n: u64) -> Entry {
    Entry::new(n as u8, 0, n as u16, [n; 7])
}

#[test]
fn a_killed_writer_leaves_a_clean_beginning() {
    let mut random = StdRng::seed_from_u64(0x51de);
    let mut longest = 0;
    for _ in 0..30 {
        let (mut writer, mut reader) = lane();
        let child = Child::run(move || {
            for n in 0.. {
                while writer.push(numbered(n)).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let end = random.random_range(0..30_000u64);
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut got = 0;
        let mut killed = false;
        loop {
            match reader.pop() {
                Some(entry) => {
                    assert_eq!(entry.0[1..], [got; 7]);
                    assert_eq!((entry.code(), entry.aux()), (got as u8, got as u16));
                    got += 1;
                }
                None if killed => break,
                None => {
                    assert!(Instant::now() < deadline, "the child writes");
                    std::thread::yield_now();
                }
            }
            if got >= end && !killed {
                child.kill();
                killed = true;
            }
        }
        assert!(got - end <= 1 << ORDER, "no more than the lane held");
        longest = longest.max(got);
    }
    assert!(longest > 1000);
}

#[test]
fn a_killed_reader_leaves_a_full_lane() {
    let (mut writer, mut reader) = lane();
    let child = Child::run(move || {
        loop {
            reader.pop();
        }
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut sent = 0u64;
    while sent < 10_000 {
        assert!(Instant::now() < deadline, "the child reads");
        sent += writer.push(numbered(sent)).is_ok() as u64;
    }
    child.kill();
    let more = (0..1000)
        .filter(|_| writer.push(numbered(0)).is_ok())
        .count();
    assert!(more <= 1 << ORDER);
    assert!(!writer.poisoned(), "dying is no lie");
}

#[test]
fn processes_wake_each_other() {
    let geometry = Geometry {
        engines: 1,
        lanes: 1,
        lane_order: 3,
        evqs: 1,
        evq_order: 3,
        wait_cells: 1,
    };
    let memory = shared(geometry.size());
    let result = shared(64);
    let mut engine = EngineControl::new(memory.clone(), geometry).unwrap();
    let app = AppControl::new(memory.clone(), geometry).unwrap();
    let mut cell = app.wait_cell(0).unwrap();
    let mut events = app.evq(0, 0).unwrap();
    // Grows here, as the child must not allocate.
    cell.prepare(&[0]);
    cell.cancel();
    const COUNT: u32 = 2000;
    let report: &AtomicU32 = result.atomic_u32(0).unwrap();
    let child = Child::run(|| {
        let mut got = 0;
        while got < COUNT {
            if events.pop().is_some() {
                got += 1;
                report.store(got, Ordering::Release);
                continue;
            }
            cell.prepare(&[0]);
            if events.is_empty() && !matches!(cell.sleep(None), Ok(Sleep::Woken)) {
                return;
            }
            cell.cancel();
        }
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut wakes = 0;
    for n in 0..COUNT {
        let mut entry = Some(numbered(n as u64));
        while let Some(one) = entry {
            if engine.evq(0).unwrap().push(one).is_ok() {
                entry = None;
            }
            engine.fence();
            wakes += engine.wake(0) as u32;
        }
        // Now and then the child gets the time to fall asleep.
        while n % 100 == 0 && report.load(Ordering::Acquire) <= n {
            assert!(Instant::now() < deadline, "{n}: not woken");
            std::thread::yield_now();
        }
    }
    while report.load(Ordering::Acquire) < COUNT {
        assert!(Instant::now() < deadline, "the last ones");
        std::thread::yield_now();
    }
    assert!(wakes > 0);
    drop(child);
}
