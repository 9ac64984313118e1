//! Taking over a live connection.

mod common;

use std::time::Duration;

use common::pair::{App, Link, Pair};
use common::script::*;
use sidecore_tcp::{Config, Connection, ConnectionSnapshot, Instant, RangePool, RestoreError};

fn through_json(snapshot: &ConnectionSnapshot) -> ConnectionSnapshot {
    let json = serde_json::to_string(snapshot).unwrap();
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_connection_goes_on_elsewhere() {
    let config = Config {
        sack: true,
        ..plain()
    };
    let mut t = Script::established_over(&config, syn().sack_permitted(), ms(50));
    t.write(50_000);
    t.tx.max_segments_bytes = 65_000;
    t.sends([data(0, 10_000)]);
    t.recv(data(2000, 100).ack(0).sack(&[(4000, 5000)]));
    t.recv(data(5000, 100).ack(0).sack(&[(4000, 5000)]));
    let snapshot = through_json(&t.connection.snapshot(&t.ranges));
    t.connection.release(&mut t.ranges);
    assert_eq!(t.ranges.available(), t.ranges.capacity());

    // Another pool, another clock: an hour less.
    let mut ranges = RangePool::new(10);
    let now = Instant::from_millis(t.now.as_millis() - 50_000);
    t.connection = Connection::restore(&snapshot, t.now, now, &mut ranges).unwrap();
    // Two out of order, one on the scoreboard, two in flight.
    assert_eq!(ranges.available(), 5);
    t.ranges = ranges;
    t.now = now;
    t.connection.check_invariants(&t.ranges);
    t.sends([data(10_000, 1000)
        .ack(0)
        .sack(&[(5000, 5100), (2000, 2100)])]);
    t.recv(data(0, 2000).ack(0).sack(&[(4000, 7000)]));
    t.sends([data(0, 1000).ack(2100).sack(&[(5000, 5100)])]);
}

#[test]
fn timers_and_timestamps_keep_their_distance() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().timestamps(7, 0));
    t.write(10);
    t.sends([data(0, 10).timestamps(100_000, 7)]);
    t.pass(ms(50));
    let snapshot = through_json(&t.connection.snapshot(&t.ranges));
    let other = Instant::from_secs(77_777);
    t.connection = Connection::restore(&snapshot, t.now, other, &mut t.ranges).unwrap();
    t.now = other;
    assert_eq!(t.fire(), ms(150));
    t.sends([data(0, 10).timestamps(100_200, 7)]);
}

#[test]
fn what_cannot_be_restored() {
    let mut t = Script::established();
    t.recv(data(2000, 100));
    let snapshot = t.connection.snapshot(&t.ranges);
    let mut none = RangePool::new(0);
    let error = Connection::restore(&snapshot, t.now, t.now, &mut none).unwrap_err();
    assert_eq!(error, RestoreError::NoRanges);

    let mut value = serde_json::to_value(&snapshot).unwrap();
    value["version"] = 999.into();
    let other: ConnectionSnapshot = serde_json::from_value(value.clone()).unwrap();
    let error = Connection::restore(&other, t.now, t.now, &mut t.ranges).unwrap_err();
    assert_eq!(error, RestoreError::Version { found: 999 });
    assert!(error.to_string().contains("999"));

    let mut value = serde_json::to_value(&snapshot).unwrap();
    value["out_of_order"][0]["end"] = 0.into();
    let bad: ConnectionSnapshot = serde_json::from_value(value).unwrap();
    let before = t.ranges.available();
    let error = Connection::restore(&bad, t.now, t.now, &mut t.ranges).unwrap_err();
    assert_eq!(error, RestoreError::Malformed);
    assert_eq!(t.ranges.available(), before);
}

/// Both ends of a lossy conversation are taken over again and again, from one end to the other in turns.
#[test]
fn a_conversation_survives_any_number_of_take_overs() {
    for seed in 0..10 {
        let link = Link {
            loss: 50,
            jitter: Duration::from_millis(5),
            ..Link::default()
        };
        let app = App {
            total: 100_000,
            ..App::default()
        };
        let mut pair = Pair::new(
            seed,
            [Config::default(), Config::default()],
            [app.clone(), app],
            [link.clone(), link],
        );
        pair.cut = true;
        for step in 0.. {
            assert!(step < 100_000);
            if !pair.step() {
                break;
            }
            let now = pair.now;
            let end = &mut pair.ends[step % 2];
            let snapshot = through_json(&end.connection.snapshot(&end.ranges));
            end.connection.release(&mut end.ranges);
            end.connection = Connection::restore(&snapshot, now, now, &mut end.ranges).unwrap();
            end.connection.check_invariants(&end.ranges);
        }
        pair.assert_delivered();
    }
}
