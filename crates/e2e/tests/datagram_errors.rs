//! What became of datagrams: the kernel's ICMP errors, as reports and as a connected socket's error.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sidecore_client::blocking::UdpSocket;
use sidecore_client::{DatagramReport, ErrorOrigin, Opt, Sockets, SocketsConfig};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{HOST, available};

const PATIENCE: Duration = Duration::from_secs(10);

fn ground() -> Result<Ground> {
    let ground = Ground::with(|config| {
        config.ipv6.enabled = true;
        // The test is alone on its link: nobody else can have the address.
        config.ipv6.dad_transmits = 0;
        let address = "fd77::2/64".parse().expect("a network");
        config.ipv6.addresses.push(address);
    })?;
    let device = ground.name().to_owned();
    ground.ip(&["-6", "addr", "add", "fd77::1/64", "dev", &device, "nodad"])?;
    Ok(ground)
}

fn report(socket: &UdpSocket) -> Result<DatagramReport> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(report) = socket.take_error_report()? {
            return Ok(report);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    anyhow::bail!("no report");
}

#[test]
fn a_closed_port_of_the_kernels_is_reported() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let sockets = Sockets::new(&ground.ual()?, SocketsConfig::default())?;
    let socket = UdpSocket::bind(&sockets, "[::]:0")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_receive_errors(true)?;
    assert_eq!(socket.option(Opt::ReceiveErrors)?, 1);
    assert_eq!(socket.take_error_report()?, None);
    for (host, origin, message) in [
        (HOST.into(), ErrorOrigin::Icmp, (3, 3)),
        ("fd77::1".parse()?, ErrorOrigin::Icmpv6, (1, 4)),
    ] {
        let closed = SocketAddr::new(host, 9);
        socket.send_to(b"is anybody there?", closed)?;
        let report = report(&socket).with_context(|| closed.to_string())?;
        assert_eq!(report.destination, closed);
        assert_eq!(report.payload, b"is anybody there?");
        let error = report.error;
        assert_eq!((error.errno, error.origin, error.info), (111, origin, 0));
        assert_eq!((error.kind, error.code), message);
        assert_eq!(error.offender, Some(host));
        // As with Linux, the next call fails once.
        let next = socket.take_error()?.map(|error| error.kind());
        assert_eq!(next, Some(ErrorKind::ConnectionRefused));
        assert!(socket.take_error()?.is_none());
    }
    // The engine's own: no datagram is cut.
    socket.send_to(&[0; 2000], (HOST, 9))?;
    let report = report(&socket)?;
    assert_eq!(
        (report.error.errno, report.error.origin),
        (90, ErrorOrigin::Local)
    );
    assert_eq!((report.error.info, report.error.offender), (1500, None));
    assert_eq!(socket.lost_error_reports(), 0);
    Ok(())
}

#[test]
fn without_reports_a_connected_socket_hears_of_it_and_no_other() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let sockets = Sockets::new(&ground.ual()?, SocketsConfig::default())?;
    for host in [HOST.into(), "fd77::1".parse()?] {
        let closed = SocketAddr::new(host, 9);
        let connected = UdpSocket::bind(&sockets, "[::]:0")?;
        connected.set_read_timeout(Some(PATIENCE))?;
        connected.connect(closed)?;
        assert_eq!(connected.option(Opt::PathMtu)?, 1500);
        connected.send(b"is anybody there?")?;
        let error = connected.recv(&mut [0; 10]).expect_err("something came");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{closed}");
        assert_eq!(connected.take_error_report()?, None);

        let unconnected = UdpSocket::bind(&sockets, "[::]:0")?;
        unconnected.send_to(b"is anybody there?", closed)?;
        unconnected.set_read_timeout(Some(Duration::from_millis(200)))?;
        let error = unconnected.recv(&mut [0; 10]).expect_err("something came");
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{closed}");
    }
    Ok(())
}
