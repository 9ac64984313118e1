//! Memory that an application takes away while the engine uses it.
#![cfg(not(miri))]

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use sidecore_abi::Entry;
use sidecore_abi::control::Geometry;
use sidecore_shm::Shared;
use sidecore_shm::control::{AppControl, EngineControl};
use sidecore_sys::Memfd;

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

#[test]
fn holes_read_as_zeros_and_cost_the_application_its_data_only() {
    let memory = Memfd::create("region", 1 << 20, false).unwrap();
    memory.seal_size().unwrap();
    let engine = Shared::map_foreign(&memory, 0).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fallocate(&memory, PUNCH, 0, 1 << 20).unwrap();
            }
        });
        let mut out = vec![0; 1 << 20];
        for _ in 0..100 {
            assert!(engine.copy_in(0, &[7; 65536]));
            assert!(engine.copy_out(0, &mut out));
            assert!(out.iter().all(|byte| matches!(byte, 0 | 7)));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(
        !engine.condemned(),
        "a hole is filled again by whoever touches it"
    );
}

#[test]
fn control_memory_with_holes_is_a_quiet_application() {
    let geometry = Geometry {
        engines: 1,
        lanes: 2,
        lane_order: 3,
        evqs: 2,
        evq_order: 3,
        wait_cells: 1,
    };
    let memory = Memfd::create("control", geometry.size() as u64, false).unwrap();
    memory.seal_size().unwrap();
    let mut engine = EngineControl::new(Shared::map(&memory, true).unwrap(), geometry).unwrap();
    let app = AppControl::new(Shared::map_trusted(&memory, true).unwrap(), geometry).unwrap();
    let mut lane = app.dbq(0, 0).unwrap();
    for n in 0..20 {
        lane.push(Entry::new(0, 0, 0, [n; 7])).unwrap();
        if n % 3 == 0 {
            fallocate(&memory, PUNCH, 0, geometry.size() as u64).unwrap();
            assert!(engine.lane(0).unwrap().pop().is_none());
            break;
        }
        assert!(engine.lane(0).unwrap().pop().is_some());
    }
    for _ in 0..20 {
        let _ = engine.evq(0).unwrap().push(Entry::default());
    }
    assert!(!engine.wake(0) && engine.take_bells(0) == 0 && !engine.condemned());
}

#[test]
fn memory_cut_short_condemns_and_the_engine_goes_on() {
    let geometry = Geometry {
        engines: 1,
        lanes: 8,
        lane_order: 6,
        evqs: 2,
        evq_order: 6,
        wait_cells: 1,
    };
    // As no agent would hand it out: not sealed.
    let memory = Memfd::create("control", geometry.size() as u64, false).unwrap();
    let shared = Shared::map(&memory, true).unwrap();
    let mut engine = EngineControl::new(shared, geometry).unwrap();
    assert!(!engine.condemned());
    rustix::fs::ftruncate(&memory, 0).unwrap();
    for lane in 0..8 {
        assert!(engine.lane(lane).unwrap().pop().is_none());
    }
    engine.evq(1).unwrap().push(Entry::default()).unwrap();
    assert!(engine.condemned());
}

#[test]
fn strangers_memory_that_could_be_cut_is_refused() {
    let memory = Memfd::create("region", 8192, false).unwrap();
    assert!(Shared::map_foreign(&memory, 0).is_err(), "no seals");
    rustix::fs::fcntl_add_seals(&memory, rustix::fs::SealFlags::GROW).unwrap();
    assert!(Shared::map_foreign(&memory, 0).is_err(), "can shrink");
    memory.seal_size().unwrap();
    assert!(
        Shared::map_foreign(&memory, 8193).is_err(),
        "shorter than said"
    );
    assert!(Shared::map_foreign(&memory, 8192).is_ok());
    let null = std::fs::File::open("/dev/zero").unwrap();
    assert!(Shared::map_foreign(&null, 4096).is_err());
}
