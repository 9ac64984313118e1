//! An application that writes anything into its control memory: the engine's side neither panics nor reaches outside, and goes on
//! serving what makes sense. Under Miri, every access is checked.

use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sidecore_abi::control::{Geometry, LANE_ACTIVE};
use sidecore_abi::entry::mark_at;
use sidecore_abi::{Command, Entry, Event, Extent};
use sidecore_shm::control::EngineControl;
use sidecore_shm::{PoolAllocator, RegionTable, Shared};

const GEOMETRY: Geometry = Geometry {
    engines: 1,
    lanes: 5,
    lane_order: 3,
    evqs: 3,
    evq_order: 3,
    wait_cells: 2,
};

const ROUNDS: usize = if cfg!(miri) { 1 } else { 300 };
/// Entries read from one lane in one turn: what keeps an endless lane from holding the engine.
const BUDGET: usize = 16;

/// All that an engine does with a UAL in a turn.
fn turn(engine: &mut EngineControl, random: &mut StdRng) -> usize {
    let mut read = 0;
    for word in 0..9 {
        let mut bits = engine.take_bells(word);
        while bits != 0 {
            let lane = word * 64 + bits.trailing_zeros();
            bits &= bits - 1;
            engine.lane(lane as usize).unwrap().set_state(LANE_ACTIVE);
        }
    }
    for lane in 0..GEOMETRY.lanes as usize {
        for _ in 0..BUDGET {
            let Some(entry) = engine.lane(lane).unwrap().pop() else {
                break;
            };
            read += 1;
            if let Some(command) = Command::decode(&entry) {
                let _ = (command.inline(), command.address(0), command.address(2));
                assert!(command.returned_chunks().count() <= 9);
                assert_eq!(Command::decode(&command.encode()), Some(command));
            }
            let _ = Event::decode(&entry);
        }
        if random.random_bool(0.1) {
            engine.park(lane);
        }
    }
    engine.announce_sleep();
    for evq in 0..GEOMETRY.evqs as usize {
        let writer = engine.evq(evq).unwrap();
        let before = writer.pushed();
        for _ in 0..BUDGET {
            let _ = writer.push(Entry::default());
        }
        assert!(writer.pushed() - before <= BUDGET as u64);
        assert!(writer.free() <= writer.capacity() && writer.outstanding() <= 8);
        engine.starve(evq);
        engine.fence();
        engine.wake(evq);
    }
    engine.announce_awake();
    read
}

/// Random words, half of them such as mean something.
fn word(random: &mut StdRng) -> u64 {
    match random.random_range(0..6u32) {
        0 => 0,
        1 => random.random_range(0..4u64),
        2 => mark_at(random.random_range(0..64), 3) as u64 | random.random::<u64>() << 32,
        3 => u64::MAX,
        _ => random.random(),
    }
}

fn scribble(memory: &Shared, random: &mut StdRng, words: usize) {
    for _ in 0..words {
        let at = random.random_range(0..memory.len() / 8) * 8;
        assert!(memory.copy_in(at, &word(random).to_ne_bytes()));
    }
}

#[test]
fn random_control_memory() {
    let mut random = StdRng::seed_from_u64(1);
    let mut read = 0;
    for _ in 0..ROUNDS {
        let memory = Shared::heap(GEOMETRY.size());
        let mut engine = EngineControl::new(memory.clone(), GEOMETRY).unwrap();
        for _ in 0..4 {
            scribble(&memory, &mut random, memory.len() as usize / 16);
            read += turn(&mut engine, &mut random);
        }
        let lies = engine.lies();
        assert!(lies.credits <= GEOMETRY.evqs as u64);
    }
    assert!(read > 0, "some of it passed for entries");
}

#[test]
#[cfg_attr(
    miri,
    ignore = "races with plain writes, as another process may and a Rust thread may not"
)]
fn an_application_that_writes_while_the_engine_reads() {
    let memory = Shared::heap(GEOMETRY.size());
    let mut engine = EngineControl::new(memory.clone(), GEOMETRY).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(2);
            while !stop.load(Ordering::Relaxed) {
                scribble(&memory, &mut random, 64);
            }
        });
        let mut random = StdRng::seed_from_u64(3);
        for _ in 0..ROUNDS * 10 {
            assert!(turn(&mut engine, &mut random) <= BUDGET * GEOMETRY.lanes as usize);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn one_liar_is_no_other_ones_business() {
    // Two UALs of one engine: what the first writes is never seen in the second.
    let (evil, good) = (Shared::heap(GEOMETRY.size()), Shared::heap(GEOMETRY.size()));
    let mut random = StdRng::seed_from_u64(4);
    scribble(&evil, &mut random, evil.len() as usize / 8);
    let mut evil = EngineControl::new(evil, GEOMETRY).unwrap();
    let mut engine = EngineControl::new(good.clone(), GEOMETRY).unwrap();
    let app = sidecore_shm::control::AppControl::new(good, GEOMETRY).unwrap();
    let (mut lane, mut events) = (app.dbq(2, 0).unwrap(), app.evq(1, 0).unwrap());
    for n in 0..100u64 {
        turn(&mut evil, &mut random);
        lane.push(Entry::new(0, 0, 0, [n; 7])).unwrap();
        let got = engine.lane(2).unwrap().pop().unwrap();
        engine.evq(1).unwrap().push(got).unwrap();
        assert_eq!(events.pop().unwrap().0[1..], [n; 7]);
    }
}

#[test]
fn any_extent_and_any_chunk_number() {
    let mut random = StdRng::seed_from_u64(5);
    let mut table = RegionTable::new(8);
    let ids: Vec<_> = (1..5)
        .map(|n| table.insert(Shared::heap(64 * n), 0).unwrap())
        .collect();
    let mut pool = PoolAllocator::new(2);
    let held: Vec<u32> = (0..40).map(|_| pool.alloc_small().unwrap()).collect();
    for _ in 0..ROUNDS * 30 {
        let mut extent = Extent::from_words([word(&mut random), word(&mut random)]);
        if random.random_bool(0.5) {
            extent.region = ids[random.random_range(0..4)];
        }
        if let Some(memory) = table.resolve(extent) {
            assert!(extent.offset + extent.len as u64 <= 256);
            assert_eq!(memory.len(), extent.len as usize);
            let mut out = [0; 256];
            memory.copy_to(&mut out);
            table.resolve_mut(extent).unwrap().write(0, memory);
        }
        assert!(pool.take_back(word(&mut random) as u32).is_err());
    }
    assert_eq!(pool.free_bytes(), 24 * 2048, "nothing was given away");
    assert!(held.iter().all(|chunk| pool.release(*chunk).is_ok()));
}
