//! 64-byte requests and answers over many connections between two applications of one engine, all in this thread: what the engine itself
//! costs, without a device and without hops between cores. Prints requests per second.
//!
//! `cargo run --release -p sidecore-engine --example rpc_loopback -- [CONNECTIONS] [SECONDS]`

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidecore_abi::EventKind;
use sidecore_abi::event::Event;
use sidecore_client::{Dti, EventQueue, Lane, Region, Ual, UalConfig};
use sidecore_engine::{Engine, EngineConfig};

const SIZE: u32 = 64;

/// One end: a UAL with a lane, a queue, and a region that holds the message.
struct End {
    ual: Ual,
    lane: Lane,
    evq: EventQueue,
    region: Region,
    received: Vec<u32>,
}

impl End {
    fn new(socket: std::os::fd::OwnedFd) -> Result<Self, Box<dyn Error>> {
        let ual = Ual::open_on(socket, &UalConfig::default())?;
        let (lane, evq, region) = (
            ual.lane()?,
            ual.event_queue()?,
            ual.allocate_region(4096, false)?,
        );
        Ok(Self {
            ual,
            lane,
            evq,
            region,
            received: vec![0; 65536],
        })
    }

    /// Takes what has arrived; answers each whole message. Returns how many were whole.
    fn serve(&mut self) -> Result<u64, Box<dyn Error>> {
        let (mut whole, mut buffer) = (0, [0u8; 2048]);
        while let Some(event) = self.evq.poll() {
            if event.kind != EventKind::Received {
                continue;
            }
            self.ual.pool().read(&event, &mut buffer);
            self.lane.return_chunk(&event);
            whole += self.answer(&event)?;
        }
        self.lane.flush();
        Ok(whole)
    }

    fn answer(&mut self, event: &Event) -> Result<u64, Box<dyn Error>> {
        let got = &mut self.received[event.dti.index as usize];
        *got += event.len();
        if *got < SIZE {
            return Ok(0);
        }
        *got -= SIZE;
        self.lane
            .send_copy(Dti::from(event.dti), self.region.extent(0, SIZE)?, 0, 0)?;
        Ok(1)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let connections: usize = arguments.next().map_or(Ok(64), |a| a.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(3), |a| a.parse())?;
    let address: SocketAddr = "10.9.0.1:7000".parse()?;
    let (mut engine, control) = Engine::new(EngineConfig {
        addresses: vec!["10.9.0.1/24".parse()?],
        ..EngineConfig::default()
    })?;
    let mut server = End::new(control.connect()?)?;
    let mut client = End::new(control.connect()?)?;
    let listener = server.lane.create_stream(&server.evq, &server.evq)?;
    server.lane.bind(listener, address, 0)?;
    server.lane.listen(listener, 1024, 0)?;
    let mut dtis = Vec::new();
    for _ in 0..connections {
        let child = server.lane.create_stream(&server.evq, &server.evq)?;
        server.lane.accept(listener, child, 0)?;
        server.lane.flush();
        let dti = client.lane.create_stream(&client.evq, &client.evq)?;
        client.lane.connect(dti, address, 0)?;
        client.lane.flush();
        let connected = loop {
            engine.turn();
            server.serve()?;
            if let Some(event) = client.evq.poll() {
                break event;
            }
        };
        assert_eq!(connected.kind, EventKind::Connected);
        dtis.push(dti);
    }
    for dti in dtis {
        let extent = client.region.extent(0, SIZE)?;
        client.lane.send_copy(dti, extent, 0, 0)?;
    }
    let (begun, mut requests) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..64 {
            engine.turn();
            server.serve()?;
            requests += client.serve()?;
        }
    }
    let rate = requests as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{connections} connections, {SIZE} bytes: {rate:.0} requests/s, {:.0} ns each",
        1e9 / rate
    );
    Ok(())
}
