//! Peers that vanish, and applications that do not listen.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use sidecore_abi::command::{Opt, flags, shutdown};
use sidecore_abi::{Event, EventKind, Status};
use sidecore_client::{Dti, EventQueue, Lane, Ual, UalConfig};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::service::{Kind, Service};

fn engine(port: u16) -> SocketAddr {
    (ENGINE, port).into()
}

struct Application {
    ual: Ual,
    lane: Lane,
    evq: EventQueue,
}

impl Application {
    fn on(ground: &Ground, config: &UalConfig) -> Result<Self> {
        let ual = Ual::open_on(ground.engine().connect()?, config)?;
        let (lane, evq) = (ual.lane()?, ual.event_queue()?);
        Ok(Self { ual, lane, evq })
    }

    fn listen(&mut self, port: u16) -> Result<Dti> {
        let listener = self.lane.create_stream(&self.evq, &self.evq)?;
        self.lane.bind(listener, engine(port), 0)?;
        self.lane.listen(listener, 16, 0)?;
        self.wait_for(|event| event.kind == EventKind::Completion)?;
        self.wait_for(|event| event.kind == EventKind::Completion)?;
        Ok(listener)
    }

    /// The next event that is one of these; others are forgotten.
    fn wait_for(&mut self, is: impl Fn(&Event) -> bool) -> Result<Event> {
        self.lane.flush();
        let mut seen = Vec::new();
        loop {
            while let Some(event) = self.evq.poll() {
                if is(&event) {
                    return Ok(event);
                }
                seen.push(event);
            }
            ensure!(
                self.evq.wait(Some(Duration::from_secs(30)))?,
                "it did not come, but {seen:?}"
            );
        }
    }
}

/// An accepted connection with options, whose peer then vanishes.
fn vanished(options: &[(Opt, u64)], send: bool) -> Result<()> {
    let ground = Ground::new()?;
    let mut app = Application::on(&ground, &UalConfig::default())?;
    let listener = app.listen(80)?;
    let child = app.lane.create_stream(&app.evq, &app.evq)?;
    for (option, value) in options {
        app.lane.set_option(child, *option, *value, 0, 0)?;
    }
    app.lane.accept(listener, child, 0)?;
    app.lane.flush();
    let mut peer = ground.connect(80)?;
    peer.write_all(b"here I am")?;
    app.wait_for(|event| event.kind == EventKind::Received)?;
    ground.cut()?;
    if send {
        app.lane.send_inline(child, b"are you there?", 0, 0)?;
    }
    let closed = app.wait_for(|event| event.kind == EventKind::Closed)?;
    assert_eq!(closed.dti, child.handle());
    assert_eq!(closed.status, Status::TimedOut);
    app.lane.close(child, 0)?;
    app.lane.flush();
    ground.eventually("only the listener is left", |stat| stat["dtis"] == 1);
    assert_eq!(ground.figure("/stack/timed_out"), 1);
    Ok(())
}

const SECOND: u64 = 1_000_000;

#[test]
fn keepalive_finds_that_the_peer_has_vanished() -> Result<()> {
    if !available() {
        return Ok(());
    }
    vanished(
        &[
            (Opt::Keepalive, 1),
            (Opt::KeepaliveIdle, SECOND),
            (Opt::KeepaliveInterval, SECOND / 2),
            (Opt::KeepaliveProbes, 3),
        ],
        false,
    )
}

#[test]
fn data_is_not_sent_for_longer_than_the_user_timeout() -> Result<()> {
    if !available() {
        return Ok(());
    }
    vanished(&[(Opt::UserTimeout, 2 * SECOND)], true)
}

#[test]
fn keepalive_keeps_what_answers() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut app = Application::on(&ground, &UalConfig::default())?;
    let listener = app.listen(80)?;
    let child = app.lane.create_stream(&app.evq, &app.evq)?;
    app.lane.set_option(child, Opt::Keepalive, 1, 0, 0)?;
    app.lane
        .set_option(child, Opt::KeepaliveIdle, SECOND / 4, 0, 0)?;
    app.lane
        .set_option(child, Opt::KeepaliveInterval, SECOND / 4, 0, 0)?;
    app.lane.set_option(child, Opt::KeepaliveProbes, 2, 0, 0)?;
    app.lane.accept(listener, child, 0)?;
    app.lane.flush();
    let mut peer = ground.connect(80)?;
    app.wait_for(|event| event.kind == EventKind::Accepted)?;
    let before = ground.figure("/stack/tcp_segments_out");
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        ground.figure("/stack/tcp_segments_out") >= before + 3,
        "no probes"
    );
    app.lane.send_inline(child, b"still here", 0, 0)?;
    app.lane.flush();
    let mut text = [0; 10];
    peer.read_exact(&mut text)?;
    assert_eq!(&text, b"still here");
    Ok(())
}

/// Bytes that a peer sends to somebody who has shut its receiving side: more than windows and pool hold.
const UNREAD: usize = 8 << 20;

/// A connection whose child was shut for reading before its accept. With `late`, bytes have come before the accept.
fn shut_before_accept(late: bool) -> Result<()> {
    let ground = Ground::new()?;
    let config = UalConfig {
        pool_bytes: 4 << 20,
        ..UalConfig::default()
    };
    let mut app = Application::on(&ground, &config)?;
    let listener = app.listen(80)?;
    let child = app.lane.create_stream(&app.evq, &app.evq)?;
    app.lane.shutdown(child, shutdown::READ, flags::NOTIFY, 0)?;
    app.wait_for(|event| event.kind == EventKind::Completion)?;
    let mut peer = if late {
        let mut peer = ground.connect(80)?;
        peer.write_all(&[1; 10_000])?;
        ground.eventually("bytes wait for an accept", |stat| {
            stat["stack"]["tcp_bytes_in"] == 10_000
        });
        app.lane.accept(listener, child, 0)?;
        peer
    } else {
        app.lane.accept(listener, child, 0)?;
        app.lane.flush();
        ground.connect(80)?
    };
    app.wait_for(|event| event.kind == EventKind::Accepted)?;
    // All of it is acknowledged, and goes nowhere.
    peer.write_all(&vec![2; UNREAD])?;
    app.lane.send_inline(child, b"not heard", 0, 0)?;
    app.lane.flush();
    let mut text = [0; 9];
    peer.read_exact(&mut text)?;
    assert_eq!(&text, b"not heard");
    peer.shutdown(std::net::Shutdown::Write)?;
    ground.eventually("all of it came", |stat| {
        stat["stack"]["tcp_bytes_in"].as_u64() >= Some(UNREAD as u64)
            && stat["uals"][0]["pool_free"] == stat["uals"][0]["pool_bytes"]
    });
    while let Some(event) = app.evq.poll() {
        assert!(
            event.kind != EventKind::Received || event.is_empty(),
            "{event:?}"
        );
    }
    app.lane.close(child, 0)?;
    let closed = app.wait_for(|event| event.kind == EventKind::Closed)?;
    assert_eq!(closed.status, Status::Ok);
    assert_eq!(peer.read(&mut text)?, 0);
    Ok(())
}

#[test]
fn shut_for_reading_before_the_connection_came() -> Result<()> {
    if !available() {
        return Ok(());
    }
    shut_before_accept(false)
}

#[test]
fn shut_for_reading_before_the_accept() -> Result<()> {
    if !available() {
        return Ok(());
    }
    shut_before_accept(true)
}

/// Datagrams of a flood, and their size.
const DATAGRAMS: usize = 20_000;
const DATAGRAM: usize = 1000;

/// Reads datagrams until there are so many, or no more come; how many. Each must be whole, and later than the one before.
fn read_datagrams(app: &mut Application, wanted: u64) -> Result<u64> {
    let (mut read, mut last) = (0, None);
    loop {
        while let Some(event) = app.evq.poll() {
            assert_eq!(event.kind, EventKind::Datagram);
            let mut datagram = [0; DATAGRAM];
            assert_eq!(app.ual.pool().read(&event, &mut datagram), DATAGRAM);
            app.lane.return_chunk(&event);
            let number = u32::from_le_bytes([datagram[0], datagram[1], datagram[2], datagram[3]]);
            assert!(last < Some(number), "{number} after {last:?}");
            last = Some(number);
            read += 1;
        }
        app.lane.flush();
        if read >= wanted || !app.evq.wait(Some(Duration::from_secs(5)))? {
            return Ok(read);
        }
    }
}

#[test]
fn datagrams_that_nobody_reads() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let config = UalConfig {
        pool_bytes: 4 << 20,
        ..UalConfig::default()
    };
    let mut app = Application::on(&ground, &config)?;
    let deaf = app.lane.create_datagram(&app.evq, &app.evq)?;
    app.lane.bind(deaf, engine(53), 0)?;
    app.wait_for(|event| event.kind == EventKind::Completion)?;
    let _echo = Service::start(ground.ual()?, engine(7), Kind::Echo)?;
    let mut innocent = ground.connect(7)?;
    let kernel = ground.udp()?;
    for number in 0..DATAGRAMS {
        let mut datagram = [0; DATAGRAM];
        datagram[..4].copy_from_slice(&(number as u32).to_le_bytes());
        kernel.send_to(&datagram, engine(53))?;
        if number % 200 == 0 {
            // Paced by an echo beside the flood, so that the device's own queue keeps up.
            innocent.write_all(&[number as u8])?;
            let mut back = [0];
            innocent.read_exact(&mut back)?;
            assert_eq!(back[0], number as u8);
        }
    }
    ground.eventually("all have come", |stat| {
        stat["stack"]["udp_in"] == DATAGRAMS && stat["stack"]["udp_to_nowhere"] == 0
    });
    let stat = ground.stat();
    let dropped = stat["uals"][0]["counters"]["datagrams_dropped"]
        .as_u64()
        .unwrap_or(0);
    let (free, all) = (
        stat["uals"][0]["pool_free"].as_u64().unwrap_or(0),
        stat["uals"][0]["pool_bytes"].as_u64().unwrap_or(0),
    );
    assert!(
        free >= all / 5,
        "streams were starved: {free} of {all} are free"
    );
    let read = read_datagrams(&mut app, DATAGRAMS as u64 - dropped)?;
    assert!(dropped > 0 && read > 0, "{read} read, {dropped} dropped");
    assert_eq!(read + dropped, DATAGRAMS as u64);
    ground.eventually("the pool is whole", |stat| {
        stat["uals"][0]["pool_free"] == stat["uals"][0]["pool_bytes"]
    });
    Ok(())
}
