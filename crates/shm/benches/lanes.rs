//! What a lane costs: an entry through one core's cache, from core to core, and with a thread asleep at the other end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use divan::{Bencher, black_box};
use sidecore_abi::control::Geometry;
use sidecore_abi::{Entry, LINE};
use sidecore_shm::control::{AppControl, EngineControl};
use sidecore_shm::lane::{MappedLane, Reader, Writer};
use sidecore_shm::{Consumer, PoolAllocator, Producer, Shared};
use sidecore_sys::{Memfd, affinity, clock};

fn main() {
    divan::main();
}

fn shared(len: usize) -> Shared {
    let memory = Memfd::create("bench", len as u64, false).expect("a memfd");
    Shared::map(&memory, true).expect("a mapping")
}

fn lane(order: u32) -> (Producer, Consumer) {
    let memory = shared(LINE + (LINE << order));
    let end = || MappedLane::new(&memory, 0, order).expect("a lane");
    (Writer::new(end()), Reader::new(end()))
}

const GEOMETRY: Geometry = Geometry {
    engines: 1,
    lanes: 4,
    lane_order: 8,
    evqs: 4,
    evq_order: 8,
    wait_cells: 4,
};

/// Entries of one measured step.
const BATCH: u64 = 128;

#[divan::bench]
fn push_and_pop_on_one_thread(bencher: Bencher) {
    let (mut writer, mut reader) = lane(8);
    bencher.counter(BATCH).bench_local(|| {
        for n in 0..BATCH {
            let _ = black_box(writer.push(Entry([n; 8])));
        }
        for _ in 0..BATCH {
            black_box(reader.pop());
        }
    });
}

#[divan::bench(sample_size = 1000)]
fn look_at_an_empty_lane(bencher: Bencher) {
    let (_writer, mut reader) = lane(8);
    bencher.bench_local(|| black_box(reader.pop()));
}

/// A thread on the other core for the time of a benchmark.
fn with_partner<T: Send>(partner: impl FnOnce(&AtomicBool) -> T + Send, run: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let cores = affinity::allowed_cores().unwrap_or_default();
    let (first, last) = (cores.first().copied(), cores.last().copied());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            last.map(affinity::pin_current_thread);
            partner(&stop)
        });
        first.map(affinity::pin_current_thread);
        run();
        stop.store(true, Ordering::Relaxed);
    });
    let _ = affinity::set_cores(&cores);
}

#[divan::bench]
fn stream_to_another_core(bencher: Bencher) {
    let (mut writer, mut reader) = lane(10);
    with_partner(
        |stop| {
            while !stop.load(Ordering::Relaxed) {
                while reader.pop().is_some() {}
                std::hint::spin_loop();
            }
        },
        || {
            bencher.counter(BATCH).bench_local(|| {
                for n in 0..BATCH {
                    while writer.push(Entry([n; 8])).is_err() {
                        std::hint::spin_loop();
                    }
                }
            });
        },
    );
}

#[divan::bench(sample_size = 100)]
fn there_and_back_polling(bencher: Bencher) {
    let (mut there, mut far_reader) = lane(8);
    let (mut far_writer, mut back) = lane(8);
    with_partner(
        |stop| {
            while !stop.load(Ordering::Relaxed) {
                match far_reader.pop() {
                    Some(entry) => far_writer.push(entry).unwrap_or(()),
                    None => std::hint::spin_loop(),
                }
            }
        },
        || {
            bencher.bench_local(|| {
                let _ = there.push(Entry([1; 8]));
                loop {
                    if let Some(entry) = back.pop() {
                        break black_box(entry);
                    }
                    std::hint::spin_loop();
                }
            });
        },
    );
}

/// A command to an application's thread that sleeps on its futex, and its answer: two lanes, one wake-up.
#[divan::bench]
fn there_and_back_waking_a_sleeper(bencher: Bencher) {
    let memory = shared(GEOMETRY.size());
    let mut engine = EngineControl::new(memory.clone(), GEOMETRY).expect("control memory");
    let app = AppControl::new(memory, GEOMETRY).expect("control memory");
    let mut events = app.evq(0, 0).expect("a queue");
    let mut commands = app.dbq(0, 0).expect("a lane");
    let mut cell = app.wait_cell(0).expect("a cell");
    let asleep = AtomicU32::new(0);
    with_partner(
        |_| {
            loop {
                if let Some(entry) = events.pop() {
                    if entry.code() == 1 {
                        break;
                    }
                    let _ = commands.push(entry);
                    continue;
                }
                cell.prepare(&[0]);
                if events.is_empty() {
                    asleep.fetch_add(1, Ordering::Relaxed);
                    let _ = cell.sleep(None);
                }
                cell.cancel();
            }
        },
        || {
            let mut slept = 0;
            let fall_asleep = || {
                while asleep.load(Ordering::Relaxed) == slept {
                    std::hint::spin_loop();
                }
                slept = asleep.load(Ordering::Relaxed);
                // It says so just before; the system call takes a little longer.
                let begun = clock::monotonic_ns();
                while clock::monotonic_ns() - begun < 20_000 {
                    std::hint::spin_loop();
                }
            };
            let sleeper = bencher.with_inputs(fall_asleep);
            sleeper.bench_local_values(|()| {
                let _ = engine
                    .evq(0)
                    .map(|evq| evq.push(Entry::new(0, 0, 0, [7; 7])));
                engine.fence();
                engine.wake(0);
                while engine.lane(0).and_then(Consumer::pop).is_none() {
                    std::hint::spin_loop();
                }
            });
            let _ = engine
                .evq(0)
                .map(|evq| evq.push(Entry::new(1, 0, 0, [0; 7])));
            engine.fence();
            engine.wake(0);
        },
    );
}

#[divan::bench(sample_size = 1000)]
fn ring_a_lane_that_is_polled(bencher: Bencher) {
    let app = AppControl::new(shared(GEOMETRY.size()), GEOMETRY).expect("control memory");
    let lane = app.dbq(0, 0).expect("a lane");
    bencher.bench_local(|| black_box(app.ring(&lane, 0, 0)));
}

#[divan::bench(sample_size = 1000)]
fn wake_nobody(bencher: Bencher) {
    let mut engine = EngineControl::new(shared(GEOMETRY.size()), GEOMETRY).expect("memory");
    bencher.bench_local(|| {
        engine.fence();
        black_box(engine.wake(1))
    });
}

#[divan::bench(sample_size = 1000)]
fn allocate_and_free_a_small_chunk(bencher: Bencher) {
    let mut pool = PoolAllocator::new(1024);
    let _hold = pool.alloc_small();
    bencher.bench_local(|| {
        let chunk = pool.alloc_small()?;
        pool.hand_over(chunk);
        black_box(pool.take_back(chunk)).ok()
    });
}
