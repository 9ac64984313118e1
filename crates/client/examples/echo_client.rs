//! Asks an echo server on the native API, 32 bytes at a time over 64 connections, and tells how fast it was.
//!
//! ```text
//! cargo run --release --example echo_client -- --socket /run/sidecore.sock --connect 10.77.0.2:7 --count 1000000
//! ```

mod common;

use std::time::{Duration, Instant};

use sidecore_client::{Dti, EventKind, Status, Ual, UalConfig};

const CONNECTIONS: u64 = 64;
const REQUEST: [u8; 32] = *b"thirty-two bytes, asked and echo";

// tidy: long function because an example reads best from top to bottom
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = common::options("127.0.0.1:7");
    let ual = Ual::open(&options.socket, &UalConfig::default())?;
    let (mut lane, mut queue) = (ual.lane()?, ual.event_queue()?);
    let connections = CONNECTIONS.min(options.count);
    let mut dtis = Vec::new();
    for _ in 0..connections {
        let dti = lane.create_stream(&queue, &queue)?;
        lane.connect(dti, options.address, 0)?;
        dtis.push(dti);
    }
    lane.flush();
    let (mut asked, mut bytes) = (0, 0);
    let all = options.count * REQUEST.len() as u64;
    let mut begun = Instant::now();
    // At most one request of each connection is on its way, so lane and queue always have room.
    while bytes < all {
        queue.wait(None)?;
        while let Some(event) = queue.poll() {
            if event.status != Status::Ok {
                return Err(format!("{:?}: {:?}", event.kind, event.status).into());
            }
            let mut ask = false;
            match event.kind {
                EventKind::Connected => {
                    if asked == 0 {
                        begun = Instant::now();
                    }
                    ask = true;
                }
                EventKind::Received => {
                    let mut echo = [0; REQUEST.len()];
                    let n = ual.pool().read(&event, &mut echo);
                    lane.return_chunk(&event);
                    // An answer may come in parts: the next request leaves when its last byte is there.
                    let position = event.body[2] as usize;
                    let within = position % REQUEST.len();
                    if event.end() || echo[..n] != REQUEST[within..within + n] {
                        return Err("that was no echo".into());
                    }
                    bytes += n as u64;
                    ask = within + n == REQUEST.len();
                }
                _ => {}
            }
            if ask && asked < options.count {
                lane.send_inline(Dti::from(event.dti), &REQUEST, 0, 0)?;
                asked += 1;
            }
        }
        lane.flush();
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{asked} requests over {connections} connections in {seconds:.3} s: {:.0} a second",
        asked as f64 / seconds
    );
    // An application that just ends has its connections reset.
    for dti in &dtis {
        lane.close(*dti, 0)?;
    }
    lane.flush();
    while !dtis.is_empty() && queue.wait(Some(Duration::from_secs(1)))? {
        while let Some(event) = queue.poll() {
            if event.kind == EventKind::Closed {
                dtis.retain(|dti| *dti != event.dti);
            }
        }
    }
    Ok(())
}
