//! One thing at a time through a TAP, the kernel's TCP on the other side.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use sidecore_abi::{EventKind, Status};
use sidecore_client::Dti;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::service::{Kind, Service};

fn engine(port: u16) -> SocketAddr {
    (ENGINE, port).into()
}

#[test]
fn an_echo_comes_back_whatever_its_size() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _echo = Service::start(ground.ual()?, engine(7), Kind::Echo)?;
    for size in [1usize, 64, 255, 256, 1460, 2048, 2049, 65536, 1_000_000] {
        let mut stream = ground.connect(7)?;
        let data: Vec<u8> = (0..size).map(|i| (i * 31 + i / 251) as u8).collect();
        let mut writer = stream.try_clone()?;
        let copy = data.clone();
        let sender = std::thread::spawn(move || {
            writer.write_all(&copy)?;
            writer.shutdown(Shutdown::Write)
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back)?;
        sender.join().expect("the sender panicked")?;
        assert!(back == data, "{size} bytes: {} came back", back.len());
    }
    ground.eventually("everything is given back", |stat| {
        stat["descriptors"] == 0 && stat["uals"][0]["pool_free"] == stat["uals"][0]["pool_bytes"]
    });
    Ok(())
}

#[test]
fn nobody_listens() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let error = ground.connect(9).expect_err("something answered");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    Ok(())
}

#[test]
fn a_reset_by_the_peer_reaches_the_application() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let ual = ground.ual()?;
    let (mut lane, mut evq) = (ual.lane()?, ual.event_queue()?);
    let listener = lane.create_stream(&evq, &evq)?;
    lane.bind(listener, engine(80), 0)?;
    lane.listen(listener, 4, 0)?;
    let child = lane.create_stream(&evq, &evq)?;
    lane.accept(listener, child, 5)?;
    lane.flush();
    let stream = ground.connect(80)?;
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    drop(stream);
    let mut seen = Vec::new();
    while seen.last() != Some(&(EventKind::Closed, Status::ConnectionReset)) {
        assert!(evq.wait(Some(Duration::from_secs(10)))?, "after {seen:?}");
        seen.extend(std::iter::from_fn(|| evq.poll()).map(|e| (e.kind, e.status)));
    }
    assert!(
        seen.contains(&(EventKind::Accepted, Status::Ok)),
        "{seen:?}"
    );
    lane.close(child, 0)?;
    lane.flush();
    ground.eventually("only the listener is left", |stat| stat["dtis"] == 1);
    Ok(())
}

#[test]
fn the_engine_connects_out_and_both_close_in_either_order() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let ual = ground.ual()?;
    let (mut lane, mut evq) = (ual.lane()?, ual.event_queue()?);
    let kernel = ground.listen()?;
    for kernel_first in [true, false] {
        let dti = lane.create_stream(&evq, &evq)?;
        lane.connect(dti, kernel.local_addr()?, 11)?;
        lane.send_inline(dti, b"hello", 0, 0)?;
        lane.flush();
        let (mut peer, from) = kernel.accept()?;
        peer.set_read_timeout(Some(Duration::from_secs(10)))?;
        assert_eq!(from.ip(), ENGINE);
        let mut hello = [0; 5];
        peer.read_exact(&mut hello)?;
        assert_eq!(&hello, b"hello");
        if kernel_first {
            drop(peer);
            wait_for(&mut evq, |e| e.kind == EventKind::Received && e.end())?;
            lane.close(dti, 0)?;
            lane.flush();
        } else {
            lane.close(dti, 0)?;
            lane.flush();
            assert_eq!(peer.read(&mut hello)?, 0);
            drop(peer);
        }
        wait_for(&mut evq, |e| {
            e.kind == EventKind::Closed && e.status == Status::Ok
        })?;
    }
    // Nobody listens there any more.
    let gone = kernel.local_addr()?;
    drop(kernel);
    let dti = lane.create_stream(&evq, &evq)?;
    lane.connect(dti, gone, 12)?;
    lane.flush();
    wait_for(&mut evq, |e| {
        e.kind == EventKind::Connected && e.status == Status::ConnectionRefused && e.cookie == 12
    })?;
    lane.close(dti, 0)?;
    lane.flush();
    ground.eventually("nothing is left", |stat| stat["dtis"] == 0);
    Ok(())
}

fn wait_for(
    evq: &mut sidecore_client::EventQueue,
    is: impl Fn(&sidecore_abi::Event) -> bool,
) -> Result<()> {
    let mut seen = Vec::new();
    loop {
        while let Some(event) = evq.poll() {
            if is(&event) {
                return Ok(());
            }
            seen.push(event);
        }
        anyhow::ensure!(
            evq.wait(Some(Duration::from_secs(10)))?,
            "it did not come, but {seen:?}"
        );
    }
}

#[test]
fn datagrams_go_both_ways() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let ual = ground.ual()?;
    let (mut lane, mut evq) = (ual.lane()?, ual.event_queue()?);
    let region = ual.allocate_region(65536, false)?;
    let kernel = ground.udp()?;
    let dti = lane.create_datagram(&evq, &evq)?;
    lane.bind(dti, engine(5353), 0)?;
    region.write(0, &[7; 1000])?;
    lane.send_to(dti, region.extent(0, 1000)?, kernel.local_addr()?, 0, 0)?;
    lane.flush();
    let mut buffer = [0; 2000];
    let (n, from) = kernel.recv_from(&mut buffer)?;
    assert_eq!((n, from), (1000, engine(5353)));
    assert!(buffer[..n].iter().all(|b| *b == 7));
    assert_eq!(kernel.send_to(b"answer", from)?, 6);
    let mut answer = None;
    while answer.is_none() {
        assert!(evq.wait(Some(Duration::from_secs(10)))?);
        answer = std::iter::from_fn(|| evq.poll()).find(|e| e.kind == EventKind::Datagram);
    }
    let event = answer.expect("just found");
    assert_eq!(
        event.address(2).get(),
        Some((HOST, kernel.local_addr()?.port()).into())
    );
    let mut text = [0; 6];
    assert_eq!(ual.pool().read(&event, &mut text), 6);
    assert_eq!(&text, b"answer");
    assert_eq!(Dti::from(event.dti), dti);
    Ok(())
}

#[test]
fn an_idle_engine_sleeps_and_wakes_for_everything() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _echo = Service::start(ground.ual()?, engine(7), Kind::Echo)?;
    let mut stream = ground.connect(7)?;
    for round in 0..3u8 {
        std::thread::sleep(Duration::from_millis(50));
        let before = ground.figure("/loop/sleeps");
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(&[round])?;
        let mut back = [0];
        stream.read_exact(&mut back)?;
        assert_eq!(back[0], round);
        assert!(ground.figure("/loop/sleeps") > before, "it never slept");
    }
    Ok(())
}
