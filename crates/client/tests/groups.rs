//! Groups and errors of datagrams over an engine's loopback: sockets that block, futures, and commands on a lane.

mod engine;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use engine::{ADDRESS, group, open, start};
use sidecore_client::{
    ErrorOrigin, EventKind, Membership, MembershipChange, Opt, Status, UalConfig, asynchronous,
    blocking, flags,
};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 9, 0, 1);
const PORT: u16 = 5000;
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn one_sends_and_all_that_joined_receive() {
    let engine = start();
    let sockets = group(&engine);
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let a = blocking::UdpSocket::bind_shared(&sockets, any).unwrap();
    a.set_read_timeout(Some(PATIENCE)).unwrap();
    let taken = blocking::UdpSocket::bind(&sockets, any).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let b = sockets
        .block_on(asynchronous::UdpSocket::bind_shared(&sockets, any))
        .unwrap();
    a.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED).unwrap();
    sockets
        .block_on(b.join_multicast_v4(GROUP, ADDRESS.parse().unwrap()))
        .unwrap();
    let sender = blocking::UdpSocket::bind(&sockets, (ADDRESS, 0)).unwrap();
    sender.send_to(b"to both", (GROUP, PORT)).unwrap();
    let from = sender.local_addr().unwrap();
    let mut bytes = [0; 100];
    assert_eq!(a.recv_from(&mut bytes).unwrap(), (7, from));
    assert_eq!(&bytes[..7], b"to both");
    let got = sockets.block_on(b.recv_from(&mut bytes)).unwrap();
    assert_eq!(got, (7, from));
    // Only from a source that there is not, then from the sender.
    sockets
        .block_on(b.leave_multicast_v4(GROUP, Ipv4Addr::UNSPECIFIED))
        .unwrap();
    let change =
        |change, source: &str| Membership::new(change, GROUP.into(), Some(source.parse().unwrap()));
    let join = change(MembershipChange::JoinSource, "10.9.0.7");
    sockets.block_on(b.change_membership(&join)).unwrap();
    sender.send_to(b"to a", (GROUP, PORT)).unwrap();
    assert_eq!(a.recv_from(&mut bytes).unwrap().0, 4);
    let join = change(MembershipChange::JoinSource, ADDRESS);
    sockets.block_on(b.change_membership(&join)).unwrap();
    sender.send_to(b"to both again", (GROUP, PORT)).unwrap();
    assert_eq!(sockets.block_on(b.recv_from(&mut bytes)).unwrap().0, 13);
    assert_eq!(a.recv_from(&mut bytes).unwrap().0, 13);
    let twice = sockets.block_on(b.change_membership(&join)).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::AddrNotAvailable);
    let mixed = change(MembershipChange::BlockSource, ADDRESS);
    let mixed = sockets.block_on(b.change_membership(&mixed)).unwrap_err();
    assert_eq!(mixed.kind(), ErrorKind::InvalidInput);
    // Without loop-back nothing comes.
    sender.set_multicast_loop_v4(false).unwrap();
    assert!(!sender.multicast_loop_v6().unwrap());
    sender.send_to(b"to nobody", (GROUP, PORT)).unwrap();
    sender.set_multicast_loop_v6(true).unwrap();
    sender.send_to(b"last", (GROUP, PORT)).unwrap();
    assert_eq!(a.recv_from(&mut bytes).unwrap().0, 4);
    // An engine without IPv6 has none of its groups.
    let six = a
        .join_multicast_v6(&"ff15::1".parse().unwrap(), 0)
        .unwrap_err();
    assert_eq!(six.kind(), ErrorKind::InvalidInput);
    engine.stop();
}

#[test]
fn commands_on_a_lane() {
    let engine = start();
    let ual = open(&engine, &UalConfig::default());
    let (mut lane, mut queue) = (ual.lane().unwrap(), ual.event_queue().unwrap());
    let dti = lane.create_datagram(&queue, &queue).unwrap();
    let join = Membership::new(MembershipChange::Join, GROUP.into(), None);
    let elsewhere = Membership {
        interface: 2,
        ..join
    };
    // Not before it is bound.
    lane.membership(dti, &join, flags::NOTIFY, 1).unwrap();
    lane.bind(dti, (Ipv4Addr::UNSPECIFIED, PORT).into(), 2)
        .unwrap();
    lane.membership(dti, &elsewhere, flags::NOTIFY, 3).unwrap();
    lane.membership(dti, &join, flags::NOTIFY, 4).unwrap();
    lane.membership(dti, &join, 0, 5).unwrap();
    lane.set_option(dti, Opt::ReuseAddress, 1, flags::NOTIFY, 6)
        .unwrap();
    lane.set_option(dti, Opt::MtuDiscovery, 4, flags::NOTIFY, 7)
        .unwrap();
    lane.set_option(dti, Opt::MtuDiscovery, 3, flags::NOTIFY, 8)
        .unwrap();
    lane.get_option(dti, Opt::MtuDiscovery, 9).unwrap();
    lane.get_option(dti, Opt::PathMtu, 10).unwrap();
    lane.flush();
    let mut answers = Vec::new();
    while answers.len() < 10 && queue.wait(Some(PATIENCE)).unwrap() {
        while let Some(event) = queue.poll() {
            assert_eq!(event.kind, EventKind::Completion);
            answers.push((event.cookie, event.status));
        }
    }
    assert_eq!(
        answers,
        [
            (1, Status::WrongState),
            (2, Status::Ok),
            (3, Status::AddressNotAvailable),
            (4, Status::Ok),
            (5, Status::AddressInUse),
            // Which ports may be shared is said before.
            (6, Status::WrongState),
            (7, Status::Invalid),
            (8, Status::Ok),
            (9, Status::Ok),
            (10, Status::WrongState),
        ]
    );
    engine.stop();
}

#[test]
fn what_became_of_a_datagram() {
    let engine = start();
    let sockets = group(&engine);
    let socket = blocking::UdpSocket::bind(&sockets, (ADDRESS, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_receive_errors(true).unwrap();
    let closed = SocketAddr::new(ADDRESS.parse().unwrap(), 9);
    socket.send_to(b"anybody?", closed).unwrap();
    // The receive fails once, and says so that there is a report.
    let error = socket.recv(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let report = socket.take_error_report().unwrap().expect("a report");
    assert_eq!(
        (report.destination, &report.payload[..]),
        (closed, &b"anybody?"[..])
    );
    assert_eq!(
        (report.error.errno, report.error.origin),
        (111, ErrorOrigin::Icmp)
    );
    assert_eq!(report.error.offender, Some(closed.ip()));
    // More than are kept are counted.
    for _ in 0..70 {
        socket.send_to(b"x", closed).unwrap_or_else(|error| {
            // What became of the one before.
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            0
        });
    }
    let mut seen = 0;
    let begun = std::time::Instant::now();
    while seen < 30 && begun.elapsed() < PATIENCE {
        seen += u32::from(socket.take_error_report().unwrap().is_some());
    }
    assert!(seen >= 30, "{seen} reports");
    engine.stop();
}
