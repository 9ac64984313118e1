//! Measures the wire between two engines: `cargo run --release -p sidecore-nic --example wire`.
//!
//! Nanoseconds a frame (submit, flush, receive, look at the header, release) on one core, and nanoseconds a round trip between
//! two cores that spin: the fastest fifth of many short runs, since other programs disturb them.

use std::error::Error;
use std::time::Instant;

use sidecore_nic::wire::{self, Wire, WireConfig};
use sidecore_nic::{MemRef, Nic, RxBurst, TxFrame};

const RUNS: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    println!("| what | frame | burst | ns |");
    println!("|---|---|---|---|");
    let (mut a, mut b) = wire::pair(&WireConfig::default())?;
    let _ = sidecore_sys::pin_current_thread(0);
    let payload = vec![7; 65_000];
    let mut burst = RxBurst::new();
    let empty = fastest_fifth(|| {
        per(10_000, || {
            b.receive(&mut burst);
            b.release(&mut burst);
            b.flush();
        })
    });
    println!("| empty turn | | | {empty:.1} |");
    for (name, len) in [("64 B", 64), ("1460 B", 1446), ("64 KB", 62_264)] {
        for count in [1, 16] {
            let ns = fastest_fifth(|| {
                per(500, || {
                    for _ in 0..count {
                        submit(&mut a, &payload[..len]);
                    }
                    a.flush();
                    take(&mut b, &mut burst);
                }) / f64::from(count)
            });
            println!("| one core, a frame | {name} | {count} | {ns:.0} |");
        }
    }
    drop((a, b));
    for (name, len) in [("64 B", 64), ("1460 B", 1446)] {
        println!(
            "| two cores, a round trip | {name} | 1 | {:.0} |",
            round_trip(len)?
        );
    }
    Ok(())
}

fn submit(wire: &mut Wire, payload: &[u8]) {
    wire.submit(&TxFrame {
        header: &[1; 54],
        payload: &[MemRef::from_bytes(payload)],
        payload_len: payload.len() as u32,
        checksum: Some((34, 16)),
        segment_size: if payload.len() > 1446 { 1446 } else { 0 },
    });
}

fn take(wire: &mut Wire, burst: &mut RxBurst) -> usize {
    let received = wire.receive(burst);
    for frame in &*burst {
        std::hint::black_box(wire.frame(frame)[47]);
    }
    wire.release(burst);
    received
}

fn round_trip(len: usize) -> Result<f64, Box<dyn Error>> {
    const TRIPS: u32 = 300;
    let (mut a, mut b) = wire::pair(&WireConfig::default())?;
    let payload = vec![7; len];
    let total = TRIPS as usize * RUNS;
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = sidecore_sys::pin_current_thread(1);
            let mut burst = RxBurst::new();
            let mut echoed = 0;
            while echoed < total {
                for _ in 0..take(&mut b, &mut burst) {
                    submit(&mut b, &payload);
                    echoed += 1;
                }
                b.flush();
            }
        });
        let mut burst = RxBurst::new();
        fastest_fifth(|| {
            per(TRIPS, || {
                submit(&mut a, &payload);
                a.flush();
                while take(&mut a, &mut burst) == 0 {
                    std::hint::spin_loop();
                }
            })
        })
    }))
}

/// Nanoseconds for each of `n` calls.
fn per(n: u32, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..n {
        work();
    }
    start.elapsed().as_nanos() as f64 / f64::from(n)
}

fn fastest_fifth(mut run: impl FnMut() -> f64) -> f64 {
    let mut samples: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    samples.sort_by(f64::total_cmp);
    samples[RUNS / 5]
}
