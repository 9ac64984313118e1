//! What the application's side costs: posting, polling, and round trips over an engine's loopback.

#[path = "../tests/engine/mod.rs"]
mod engine;
#[path = "../tests/fake/mod.rs"]
mod fake;

use std::io::{Read, Write};
use std::time::Duration;

use divan::Bencher;
use sidecore_client::blocking::{TcpListener, TcpStream};
use sidecore_client::{Event, EventKind, Extent, RegionId, Status, UalConfig};

fn main() {
    divan::main();
}

/// Commands or events between two looks at the other side.
const BATCH: usize = 512;

/// One send posted, and its share of a flush.
#[divan::bench(counters = [divan::counter::ItemsCount::new(BATCH)])]
fn post_a_batch_and_flush(bencher: Bencher<'_, '_>) {
    let (ual, mut fake) = fake::open(&UalConfig::default(), 1);
    let (mut lane, queue) = (ual.lane().unwrap(), ual.event_queue().unwrap());
    let dti = lane.create_stream(&queue, &queue).unwrap();
    let extent = Extent {
        region: RegionId(0),
        len: 1000,
        offset: 0,
    };
    bencher
        .with_inputs(|| {
            let consumer = fake.controls[0].lane(0).unwrap();
            while consumer.pop().is_some() {}
            consumer.publish_credit();
        })
        .bench_local_values(|()| {
            for cookie in 0..BATCH as u64 {
                lane.send(dti, extent, 0, cookie).unwrap();
            }
            lane.flush();
        });
}

/// One event taken.
#[divan::bench(counters = [divan::counter::ItemsCount::new(BATCH)])]
fn dequeue_a_batch(bencher: Bencher<'_, '_>) {
    let (ual, mut fake) = fake::open(&UalConfig::default(), 1);
    let mut queue = ual.event_queue().unwrap();
    let event = Event::new(EventKind::Sent, Default::default(), 0, Status::Ok).encode();
    let mut out = Vec::with_capacity(BATCH);
    bencher
        .with_inputs(|| {
            let producer = fake.controls[0].evq(0).unwrap();
            for _ in 0..BATCH {
                producer.push(event).unwrap();
            }
        })
        .bench_local_values(|()| {
            out.clear();
            assert_eq!(queue.dequeue(&mut out, BATCH), BATCH);
        });
}

/// Looking at an empty queue.
#[divan::bench]
fn poll_an_empty_queue(bencher: Bencher<'_, '_>) {
    let (ual, _fake) = fake::open(&UalConfig::default(), 1);
    let mut queue = ual.event_queue().unwrap();
    bencher.bench_local(|| queue.poll());
}

/// A request and its answer between two threads that sleep on their queues, and the engine's thread.
#[divan::bench(sample_size = 200, sample_count = 10)]
fn blocking_round_trip(bencher: Bencher<'_, '_>) {
    let engine = engine::start();
    let server = engine::group(&engine);
    let listener = TcpListener::bind(&server, (engine::ADDRESS, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut bytes = [0; 64];
        loop {
            match stream.read(&mut bytes).unwrap() {
                0 => return,
                n => stream.write_all(&bytes[..n]).unwrap(),
            }
        }
    });
    let client = engine::group(&engine);
    let mut stream = TcpStream::connect(&client, address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    bencher.bench_local(|| {
        let mut bytes = [7; 64];
        stream.write_all(&bytes).unwrap();
        stream.read_exact(&mut bytes).unwrap();
    });
    drop(stream);
    echo.join().unwrap();
    engine.stop();
}
