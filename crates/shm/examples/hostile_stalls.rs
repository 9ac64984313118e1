//! How long a hostile application can make the engine's thread wait with what it legally holds: its memory, and the reading end of a
//! wait socket. Prints a table; `docs/abi-review.md` quotes it.
//!
//! `cargo run --release -p sidecore-shm --example hostile_stalls`

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fs::{FallocateFlags, fallocate};
use sidecore_shm::Shared;
use sidecore_sys::wake::WakePair;
use sidecore_sys::{Memfd, affinity, clock, counters, futex_wait, futex_wake};

const MIB: u64 = 1 << 20;

fn main() -> io::Result<()> {
    raise_descriptor_limit();
    println!("{:<58} {:>10} {:>10}", "attack", "median ns", "worst ns");
    touching(2, Attack::None)?;
    for mib in [2, 32, 128, 512] {
        touching(mib, Attack::Punching)?;
    }
    touching(128, Attack::PunchingSealed)?;
    for sleepers in [0, 1000, 4000] {
        futexes(sleepers)?;
    }
    for watches in [0, 100, 1000, 10_000, 100_000] {
        sockets(watches)?;
    }
    Ok(())
}

fn report(attack: &str, mut times: Vec<u64>) {
    times.sort_unstable();
    let at = |part: usize| times.get(part).copied().unwrap_or(0);
    let (median, worst) = (at(times.len() / 2), at(times.len().saturating_sub(1)));
    println!("{attack:<58} {median:>10} {worst:>10}");
}

/// How long it took, without the time for which the machine's other work kept this thread from a core.
fn timed(work: impl FnOnce()) -> u64 {
    let waiting = run_delay();
    let begun = clock::monotonic_ns();
    work();
    let took = clock::monotonic_ns() - begun;
    took.saturating_sub(run_delay() - waiting)
}

fn run_delay() -> u64 {
    let (pid, thread) = (std::process::id(), affinity::thread_id());
    let time = counters::thread_cpu_time(pid, thread).unwrap_or_default();
    u64::try_from(time.waiting.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, PartialEq)]
enum Attack {
    None,
    Punching,
    PunchingSealed,
}

/// The engine writes a byte now and then, while the application fills its memory and punches it out, over and over.
fn touching(mib: u64, attack: Attack) -> io::Result<()> {
    let len = mib * MIB;
    let memory = Memfd::create("region", len, false)?;
    memory.seal_size()?;
    let (engine, app) = (
        Shared::map_foreign(&memory, 0)?,
        Shared::map_foreign(&memory, 0)?,
    );
    if attack == Attack::PunchingSealed {
        memory.seal_holes()?;
    }
    let stop = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        if attack != Attack::None {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    (0..len / 4096).for_each(|page| {
                        app.copy_in(page * 4096, &[1]);
                    });
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let _ = fallocate(&memory, hole, 0, len);
                }
            });
        }
        let mut times = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            let at = times.len() as u64 * 4096 % len;
            times.push(timed(|| {
                engine.copy_in(at, &[2]);
            }));
            std::thread::sleep(Duration::from_micros(200));
        }
        stop.store(true, Ordering::Relaxed);
        times
    });
    let attack = match attack {
        Attack::None => "touch a page, nobody attacks".to_owned(),
        Attack::Punching => format!("touch a page of {mib} MiB that is punched in a loop"),
        Attack::PunchingSealed => format!("the same, {mib} MiB sealed against holes"),
    };
    report(&attack, times);
    Ok(())
}

/// The engine wakes a cell, while the application's threads sleep on other words of its memory.
fn futexes(sleepers: usize) -> io::Result<()> {
    let memory = Shared::map(Memfd::create("control", 64 * MIB, false)?, true)?;
    let word = |n: usize| memory.atomic_u32(n as u64 * 4096 + 64);
    let stop = AtomicBool::new(false);
    let asleep = AtomicU32::new(0);
    let times = std::thread::scope(|scope| {
        for n in 0..sleepers {
            let (word, stop, asleep) = (word(n), &stop, &asleep);
            let thread = std::thread::Builder::new().stack_size(16 << 10);
            let started = thread.spawn_scoped(scope, move || {
                asleep.fetch_add(1, Ordering::Relaxed);
                while let (Some(word), false) = (word, stop.load(Ordering::Relaxed)) {
                    let _ = futex_wait(word, 0, None);
                }
            });
            if started.is_err() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(300));
        let mut times = Vec::new();
        if let Some(own) = word(16_000) {
            times.extend((0..3000).map(|_| {
                timed(|| {
                    futex_wake(own, 1);
                })
            }));
        }
        stop.store(true, Ordering::Relaxed);
        for n in 0..sleepers {
            if let Some(word) = word(n) {
                word.store(1, Ordering::Relaxed);
                futex_wake(word, 1);
            }
        }
        times
    });
    report(
        &format!(
            "futex wake, {} threads on other futexes",
            asleep.into_inner()
        ),
        times,
    );
    Ok(())
}

/// The engine sends a wake-up byte to a socket that the application put into many epolls.
fn sockets(watches: usize) -> io::Result<()> {
    let (waker, sleeper) = WakePair::new()?.split();
    let mut copies: Vec<OwnedFd> = Vec::new();
    let mut epolls = Vec::new();
    let side = watches.isqrt().max(1);
    let mut made = 0;
    if watches > 0 {
        for _ in 0..side {
            copies.push(sleeper.as_fd().try_clone_to_owned()?);
        }
        'all: for _ in 0..watches / side {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for copy in &copies {
                let data = epoll::EventData::new_u64(0);
                if epoll::add(&epoll, copy, data, epoll::EventFlags::IN).is_err() {
                    break 'all;
                }
                made += 1;
            }
            epolls.push(epoll);
        }
    }
    let mut times = Vec::new();
    for _ in 0..200 {
        times.push(timed(|| {
            waker.wake();
        }));
        sleeper.drain();
    }
    report(&format!("wake socket, in {made} epolls"), times);
    Ok(())
}

fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}
