//! A bad line between a TAP and an engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use sidecore_nic::link::LinkCounters;
use sidecore_nic::link::join::Join;
use sidecore_nic::{LinkModel, Tap, Wire, WireConfig, wire};

/// How soon a line that has nothing to carry does what it is told.
const LOOK: Duration = Duration::from_millis(2);

/// Carries frames between a TAP and one end of a wire, whose other end is the engine's device, until it is dropped. There is from the kernel to the
/// engine, back the other way.
pub struct Line {
    told: Arc<Told>,
    thread: Option<JoinHandle<()>>,
}

/// What the line and its thread say to each other.
struct Told {
    stop: AtomicBool,
    /// What the models shall be, if not what they are.
    models: Mutex<Option<[LinkModel; 2]>>,
    counters: Mutex<[LinkCounters; 2]>,
}

impl Line {
    /// The line, and the engine's end of it.
    pub(crate) fn between(tap: Tap, models: [LinkModel; 2]) -> Result<(Self, Wire)> {
        let (engine, ours) = wire::pair(&WireConfig {
            tso: false,
            // The kernel's side needs them.
            checksums: true,
            capacity: 4096,
            ..WireConfig::default()
        })?;
        let told = Arc::new(Told {
            stop: AtomicBool::new(false),
            models: Mutex::new(None),
            counters: Mutex::default(),
        });
        let join = Join::new(tap, ours, models);
        let thread = std::thread::Builder::new().name("line".into()).spawn({
            let told = Arc::clone(&told);
            move || carry(join, &told)
        })?;
        let line = Self {
            told,
            thread: Some(thread),
        };
        Ok((line, engine))
    }

    /// Both directions behave so from now on; returns when they do.
    pub fn set(&self, models: [LinkModel; 2]) {
        *lock(&self.told.models) = Some(models);
        while lock(&self.told.models).is_some() {
            std::thread::sleep(LOOK / 4);
        }
    }

    /// What became of the frames, there and back, a few milliseconds ago.
    pub fn counters(&self) -> [LinkCounters; 2] {
        *lock(&self.told.counters)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.told.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("the line's thread panicked")
}

fn carry(mut join: Join<Tap, Wire>, told: &Told) {
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    let mut seen = Duration::ZERO;
    while !told.stop.load(Ordering::Relaxed) {
        let moved = join.turn(now());
        if moved == 0 {
            join.wait(now(), LOOK).expect("poll");
        }
        if moved == 0 || start.elapsed() > seen + LOOK {
            seen = start.elapsed();
            *lock(&told.counters) = join.counters();
            if let Some(models) = lock(&told.models).take() {
                join.set_models(models);
            }
        }
    }
}
