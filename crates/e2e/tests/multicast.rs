//! Groups, with the kernel: datagrams both ways, and the kernel's bridge as the router that asks and keeps account.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sidecore_client::blocking::UdpSocket as EngineSocket;
use sidecore_client::{Membership, MembershipChange, Opt, Sockets, SocketsConfig};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 1, 2);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x77, 0x12);
const PORT: u16 = 5077;
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
    ground.ip(&["route", "add", "224.0.0.0/4", "dev", &device])?;
    Ok(ground)
}

/// The index of the TAP in its namespace.
fn index_of(ground: &Ground) -> Result<u32> {
    let output = ground
        .command("cat")
        .arg(format!("/sys/class/net/{}/ifindex", ground.name()))
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

fn sockets(ground: &Ground) -> Result<Sockets> {
    Ok(Sockets::new(&ground.ual()?, SocketsConfig::default())?)
}

/// A socket of the engine that shares its port.
fn shared(sockets: &Sockets, local: &str) -> Result<EngineSocket> {
    let socket = EngineSocket::bind_shared(sockets, local)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn receive(socket: &EngineSocket) -> Result<(Vec<u8>, SocketAddr)> {
    let mut bytes = [0; 2048];
    let (len, from) = socket.recv_from(&mut bytes).context("no datagram")?;
    Ok((bytes[..len].to_vec(), from))
}

#[test]
fn the_kernel_sends_to_groups_that_we_joined() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let sockets = sockets(&ground)?;
    let any = format!("0.0.0.0:{PORT}");
    let (a, b) = (shared(&sockets, &any)?, shared(&sockets, &any)?);
    let six = shared(&sockets, &format!("[::]:{}", PORT + 1))?;
    a.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED)?;
    b.join_multicast_v4(&GROUP, &ENGINE)?;
    six.join_multicast_v6(&GROUP6, 0)?;
    let kernel = ground.udp()?;
    let from = kernel.local_addr()?;
    kernel.send_to(b"to all of you", (GROUP, PORT))?;
    for socket in [&a, &b] {
        assert_eq!(receive(socket)?, (b"to all of you".to_vec(), from));
    }
    let kernel6 = ground.inside(|| UdpSocket::bind("[fd77::1]:0"))?;
    kernel6.send_to(b"over IPv6", (GROUP6, PORT + 1))?;
    assert_eq!(
        receive(&six)?,
        (b"over IPv6".to_vec(), kernel6.local_addr()?)
    );

    // Blocked at one, left by the other: the datagram after it is the next that each of them sees.
    let block = MembershipChange::BlockSource;
    a.change_membership(&Membership::new(block, GROUP.into(), Some(HOST.into())))?;
    b.leave_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED)?;
    kernel.send_to(b"for nobody", (GROUP, PORT))?;
    let unblock = MembershipChange::UnblockSource;
    ground.eventually("it came", |stat| {
        stat["stack"]["udp_in"].as_u64() >= Some(2)
    });
    a.change_membership(&Membership::new(unblock, GROUP.into(), Some(HOST.into())))?;
    b.change_membership(&Membership::new(
        MembershipChange::JoinSource,
        GROUP.into(),
        Some(HOST.into()),
    ))?;
    kernel.send_to(b"for both", (GROUP, PORT))?;
    for socket in [&a, &b] {
        assert_eq!(receive(socket)?.0, b"for both");
    }
    Ok(())
}

#[test]
fn we_send_to_groups_that_the_kernel_joined() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let sockets = sockets(&ground)?;
    let before = ground.figure("/stack/ip_other_destination");
    let kernel = ground.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)))?;
    kernel.join_multicast_v4(&GROUP, &HOST)?;
    kernel.set_read_timeout(Some(PATIENCE))?;
    // The kernel's report goes to all routers that speak IGMPv3: it is seen, and not for us.
    ground.eventually("the kernel's report is seen", |stat| {
        stat["stack"]["ip_other_destination"].as_u64() > Some(before)
    });
    let kernel6 = ground.inside(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT + 1)))?;
    kernel6.join_multicast_v6(&GROUP6, index_of(&ground)?)?;
    kernel6.set_read_timeout(Some(PATIENCE))?;

    let ours = shared(&sockets, &format!("[::]:{PORT}"))?;
    assert_eq!(ours.multicast_ttl_v4()?, 1);
    ours.set_multicast_ttl_v4(3)?;
    assert_eq!(
        (ours.multicast_ttl_v4()?, ours.multicast_loop_v4()?),
        (3, true)
    );
    ours.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED)?;
    ours.send_to(b"hello, kernel", (GROUP, PORT))?;
    let mut bytes = [0; 100];
    let (len, from) = kernel.recv_from(&mut bytes)?;
    assert_eq!(
        (&bytes[..len], from),
        (&b"hello, kernel"[..], (ENGINE, PORT).into())
    );
    // Our own copy.
    assert_eq!(
        receive(&ours)?,
        (b"hello, kernel".to_vec(), (ENGINE, PORT).into())
    );
    ours.set_multicast_loop_v4(false)?;
    ours.send_to(b"only you", (GROUP, PORT))?;
    let (len, _) = kernel.recv_from(&mut bytes)?;
    assert_eq!(&bytes[..len], b"only you");
    ours.send_to(b"over IPv6", (GROUP6, PORT + 1))?;
    let (len, from) = kernel6.recv_from(&mut bytes)?;
    assert_eq!((&bytes[..len], from.port()), (&b"over IPv6"[..], PORT));
    assert_eq!(from.ip(), "fd77::2".parse::<Ipv6Addr>()?);
    // What the engine refuses, it says.
    let twice = ours.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED);
    assert_eq!(kind(twice), Some(std::io::ErrorKind::AddrInUse));
    let elsewhere = ours.join_multicast_v4(&GROUP, &HOST);
    assert_eq!(kind(elsewhere), Some(std::io::ErrorKind::AddrNotAvailable));
    let no_group = ours.join_multicast_v4(&HOST, &Ipv4Addr::UNSPECIFIED);
    assert_eq!(kind(no_group), Some(std::io::ErrorKind::InvalidInput));
    let far = ours.set_option(Opt::MulticastHops, 256);
    assert_eq!(kind(far), Some(std::io::ErrorKind::InvalidInput));
    Ok(())
}

fn kind<T>(result: std::io::Result<T>) -> Option<std::io::ErrorKind> {
    result.err().map(|error| error.kind())
}

/// What the kernel's bridge has learnt from reports.
fn learnt(ground: &Ground) -> Result<String> {
    let output = ground
        .command("bridge")
        .args(["-d", "mdb", "show", "dev", "br0"])
        .output()?;
    ensure!(output.status.success(), "bridge mdb: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn until(ground: &Ground, what: &str, holds: impl Fn(&str) -> bool) -> Result<()> {
    let begun = Instant::now();
    loop {
        let text = learnt(ground)?;
        if holds(&text) {
            return Ok(());
        }
        ensure!(begun.elapsed() < Duration::from_secs(30), "{what}:\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A bridge that asks and listens as a multicast router does, in the versions named, with the engine's TAP as its port.
fn bridged(igmp: &str, mld: &str) -> Result<Ground> {
    let ground = ground()?;
    let device = ground.name().to_owned();
    let bridge = "br0";
    let kind = ["link", "add", bridge, "type", "bridge"];
    let querier = ["mcast_snooping", "1", "mcast_querier", "1"];
    let versions = ["mcast_igmp_version", igmp, "mcast_mld_version", mld];
    // Hundredths of a second: asked often, answered soon.
    let times = [
        "mcast_query_interval",
        "200",
        "mcast_query_response_interval",
        "50",
        "mcast_startup_query_interval",
        "50",
        "mcast_startup_query_count",
        "20",
    ];
    ground.ip(&[&kind[..], &querier, &versions, &times].concat())?;
    ground.ip(&["addr", "flush", "dev", &device])?;
    ground.ip(&["link", "set", &device, "master", bridge])?;
    ground.ip(&["addr", "add", "10.77.0.1/24", "dev", bridge])?;
    ground.ip(&["link", "set", bridge, "up"])?;
    Ok(ground)
}

#[test]
fn the_kernels_bridge_keeps_account_of_our_reports() -> Result<()> {
    if !available() {
        return Ok(());
    }
    for (igmp, mld) in [("3", "2"), ("2", "1")] {
        let ground = bridged(igmp, mld)?;
        let sockets = sockets(&ground)?;
        // The querier has been heard before, so that its version is spoken.
        ground.eventually("the bridge asks", |stat| {
            let stack = &stat["stack"];
            stack["igmp_in"].as_u64() > Some(0) && stack["mld_in"].as_u64() > Some(0)
        });
        let socket = shared(&sockets, &format!("[::]:{PORT}"))?;
        socket.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED)?;
        socket.join_multicast_v6(&GROUP6, 1)?;
        let (group, group6) = (GROUP.to_string(), GROUP6.to_string());
        until(&ground, "both groups joined", |text| {
            text.contains(&group) && text.contains(&group6)
        })?;
        let answered = ground.figure("/stack/igmp_out");
        ground.eventually("queries are answered", |stat| {
            stat["stack"]["igmp_out"].as_u64() >= Some(answered + 2)
        });
        assert_eq!(ground.figure("/stack/igmp_ignored"), 0);
        assert_eq!(ground.figure("/stack/mld_ignored"), 0);
        if igmp == "3" {
            let block = MembershipChange::BlockSource;
            let source = Some(Ipv4Addr::new(10, 77, 0, 9).into());
            socket.change_membership(&Membership::new(block, GROUP.into(), source))?;
            until(&ground, "a blocked source", |text| {
                text.contains("10.77.0.9")
            })?;
        }
        socket.leave_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED)?;
        socket.leave_multicast_v6(&GROUP6, 1)?;
        until(&ground, "both groups left", |text| {
            !text.contains(&group) && !text.contains(&group6)
        })?;
    }
    Ok(())
}
