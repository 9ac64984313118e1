use super::*;
use sidecore_abi::Entry;
use sidecore_abi::control::LANE_PARKED;
use sidecore_sys::wake::WakePair;

fn geometry() -> Geometry {
    Geometry {
        engines: 2,
        lanes: 70,
        lane_order: 3,
        evqs: 3,
        evq_order: 4,
        wait_cells: 2,
    }
}

fn both(engine: u32) -> (EngineControl, AppControl, Shared) {
    let memory = Shared::heap(geometry().size());
    (
        EngineControl::for_engine(memory.clone(), geometry(), engine).unwrap(),
        AppControl::new(memory.clone(), geometry()).unwrap(),
        memory,
    )
}

fn entry(n: u64) -> Entry {
    Entry::new(1, 0, 0, [n; 7])
}

#[test]
fn commands_and_events_go_through_their_own_lanes() {
    for engine in 0..2 {
        let (mut ours, app, _) = both(engine);
        for lane in 0..70 {
            let mut producer = app.dbq(lane, engine).unwrap();
            producer.push(entry(lane as u64)).unwrap();
            assert!(!app.ring(&producer, lane, engine));
        }
        for lane in 0..70u64 {
            let got = ours.lane(lane as usize).unwrap().pop().unwrap();
            assert_eq!(got.0[1], lane);
        }
        for evq in 0..3 {
            ours.evq(evq).unwrap().push(entry(evq as u64)).unwrap();
            let got = app.evq(evq as u32, engine).unwrap().pop().unwrap();
            assert_eq!(got.0[1], evq as u64);
            assert!(app.evq(evq as u32, 1 - engine).unwrap().is_empty());
        }
        assert!(ours.lane(70).is_none() && ours.evq(3).is_none());
        assert!(app.dbq(70, 0).is_none() && app.evq(0, 2).is_none());
        assert!(app.wait_cell(2).is_none());
    }
}

#[test]
fn bells_ring_for_parked_lanes_only() {
    let (mut engine, app, _) = both(1);
    let mut producer = app.dbq(69, 1).unwrap();
    assert!(engine.park(69) && !engine.park(70));
    assert_eq!(producer.reader_state(), LANE_PARKED);
    assert_eq!((engine.take_bells(0), engine.take_bells(1)), (0, 0));
    producer.push(entry(1)).unwrap();
    app.ring(&producer, 69, 1);
    assert_eq!((engine.take_bells(0), engine.take_bells(1)), (0, 1 << 5));
    assert_eq!(engine.take_bells(1), 0);
    assert!(!engine.park(69), "an entry is there");
    assert_eq!(engine.take_bells(8), 0, "no such word");
}

#[test]
fn a_sleeping_engine_is_woken_once() {
    let (engine, app, _) = both(0);
    let producer = app.dbq(0, 0).unwrap();
    engine.announce_sleep();
    engine.fence();
    assert!(app.ring(&producer, 0, 0));
    assert!(!app.ring(&producer, 0, 0), "somebody did already");
    engine.announce_sleep();
    engine.announce_awake();
    assert!(!app.ring(&producer, 0, 0));
    assert!(!app.ring(&producer, 0, 2), "no such engine");
}

#[test]
#[cfg_attr(miri, ignore = "sockets")]
fn sleepers_are_woken_by_their_queues() {
    let (mut engine, app, _) = both(0);
    let (waker, sleeper) = WakePair::new().unwrap().split();
    assert!(engine.set_wait_socket(1, waker));
    let mut cell = app.wait_cell(1).unwrap();
    cell.prepare(&[0, 2, 99]);
    assert!(!engine.wake(1) && !cell.is_woken());
    assert!(engine.wake(2) && cell.is_woken());
    assert!(!engine.wake(2), "once");
    assert!(!engine.wake(0), "it is awake already");
    assert_eq!(cell.sleep(None).unwrap(), Sleep::Woken);
    assert!(sleeper.drain());
    cell.cancel();
    cell.prepare(&[0]);
    cell.cancel();
    assert!(!engine.wake(0), "taken back");
    assert_eq!(engine.lies(), Lies::default());
}

#[test]
#[cfg_attr(miri, ignore = "sleeps")]
fn sleeping_ends_by_time_or_by_a_wake() {
    let (mut engine, app, _) = both(0);
    let mut cell = app.wait_cell(0).unwrap();
    cell.prepare(&[1]);
    let timeout = Some(Duration::from_millis(2));
    assert_eq!(cell.sleep(timeout).unwrap(), Sleep::TimedOut);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| cell.sleep(Some(Duration::from_secs(20))).unwrap());
        while !engine.wake(1) {
            std::thread::yield_now();
        }
        assert_eq!(sleeper.join().unwrap(), Sleep::Woken);
    });
    cell.prepare(&[1]);
    engine.wake_all();
    assert!(cell.is_woken());
}

#[test]
fn lies_in_the_words_are_counted_and_ignored() {
    let (mut engine, app, memory) = both(0);
    let word = memory.atomic_u32(geometry().evq_word(0, 0) as u64).unwrap();
    for lie in [3, 1024, u32::MAX] {
        word.store(lie, Ordering::Relaxed);
        assert!(!engine.wake(0));
    }
    word.store(1, Ordering::Relaxed);
    assert!(!engine.wake(0), "a cell in which nobody sleeps");
    assert!(!engine.wake(3), "no such queue");
    let bell = memory
        .atomic_u64(geometry().bell_word(0, 1) as u64)
        .unwrap();
    bell.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(engine.take_bells(1), 0b11_1111);
    let lane = geometry().evq(2, 0) as u64;
    memory
        .atomic_u32(lane)
        .unwrap()
        .store(77, Ordering::Relaxed);
    let producer = engine.evq(2).unwrap();
    while producer.push(entry(0)).is_ok() {}
    assert!(producer.poisoned());
    let lies = Lies {
        wait_cells: 3,
        bells: 58,
        credits: 1,
    };
    assert_eq!(engine.lies(), lies);
    drop(app);
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let size = geometry().size();
    assert!(EngineControl::new(Shared::heap(size - 64), geometry()).is_err());
    assert!(EngineControl::for_engine(Shared::heap(size), geometry(), 2).is_err());
    let bad = Geometry {
        lanes: 0,
        ..geometry()
    };
    assert!(AppControl::new(Shared::heap(size), bad).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "sockets")]
fn those_who_poll_are_woken_by_their_socket_alone() {
    let (mut engine, app, _) = both(0);
    let (waker, sleeper) = WakePair::new().unwrap().split();
    engine.set_wait_socket(0, waker);
    let mut cell = app.wait_cell(0).unwrap();
    cell.prepare_polling(&[0]);
    assert!(!cell.is_woken());
    assert!(engine.wake(0) && cell.is_woken());
    assert!(sleeper.drain());
    assert_eq!(engine.wake_cost().count, 1);
}

#[test]
#[cfg_attr(miri, ignore = "sockets")]
fn one_who_polls_is_not_taken_for_woken_by_a_thread_that_wakes_the_cell() {
    let (mut engine, app, _) = both(0);
    let (waker, sleeper) = WakePair::new().unwrap().split();
    engine.set_wait_socket(0, waker);
    let mut cell = app.wait_cell(0).unwrap();
    cell.prepare_polling(&[0]);
    app.wait_cell(0).unwrap().wake();
    assert!(!cell.is_woken());
    assert!(
        engine.wake(0) && sleeper.drain(),
        "the engine wakes it all the same"
    );
    cell.cancel();
    cell.prepare(&[0]);
    app.wait_cell(0).unwrap().wake();
    assert!(cell.is_woken(), "one who sleeps on the cell is woken");
}

#[test]
fn credit_relieves_a_starving_engine() {
    let (mut engine, app, _) = both(0);
    let mut consumer = app.evq(1, 0).unwrap();
    while engine.evq(1).unwrap().push(entry(0)).is_ok() {}
    assert!(engine.starve(1) && !engine.starve(3));
    engine.announce_sleep();
    let mut told = 0;
    for n in 1..=16 {
        consumer.pop().unwrap();
        if app.relieve(&mut consumer, 1, 0) {
            told = n;
            break;
        }
    }
    assert_eq!(told, 4, "with the first quarter, and once");
    assert!(!app.relieve(&mut consumer, 1, 0));
    assert!(!engine.starve(1), "there is room");
    engine.announce_sleep();
    for _ in 0..12 {
        consumer.pop().unwrap();
    }
    assert!(!app.relieve(&mut consumer, 1, 0), "nobody starves any more");
}
