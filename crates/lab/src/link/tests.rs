use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use sidecore_sys::netns::with_netns;

use super::*;
use crate::ground::Namespace;

#[test]
fn ends_are_read() {
    let end: End = "left@ns1=10.0.0.1/24,fd00::1/64".parse().unwrap();
    let expected = End {
        name: "left".into(),
        netns: Some("ns1".into()),
        addresses: vec![
            ("10.0.0.1".parse().unwrap(), 24),
            ("fd00::1".parse().unwrap(), 64),
        ],
    };
    assert_eq!(end, expected);
    assert_eq!("tap".parse::<End>().unwrap().netns, None);
    for bad in [
        "",
        "@ns",
        "a@",
        "a=10.0.0.1",
        "a=x/1",
        "a=10.0.0.1/33",
        "a=fd00::1/129",
        "a=10.0.0.1/24,",
    ] {
        assert!(bad.parse::<End>().is_err(), "{bad}");
    }
}

/// Two namespaces with an end of a link each, 10.79.0.1 and 10.79.0.2. The link runs until this is stopped.
struct Two {
    left: Namespace,
    right: Namespace,
    stop: &'static AtomicBool,
    thread: std::thread::JoinHandle<[Traffic; 2]>,
}

impl Two {
    /// `None` where there is no permission.
    fn new(tag: &str, models: [LinkModel; 2]) -> Option<Self> {
        if !sidecore_sys::privileges::can_administer_network() {
            eprintln!("skipped: needs CAP_NET_ADMIN");
            return None;
        }
        let [left, right] =
            ["l", "r"].map(|side| Namespace::create(&format!("{tag}{side}")).unwrap());
        // No frames but the test's: the link's decisions are by the frame's number.
        for namespace in [&left, &right] {
            namespace
                .sysctl("net/ipv6/conf/default/disable_ipv6", "1")
                .unwrap();
        }
        let end = |namespace: &Namespace, address: &str| -> End {
            format!("sclink0@{}={address}", namespace.name())
                .parse()
                .unwrap()
        };
        let ends = [end(&left, "10.79.0.1/24"), end(&right, "10.79.0.2/24")];
        let stop: &'static AtomicBool = Box::leak(Box::default());
        let mut link = TapLink::create([&ends[0], &ends[1]], models).unwrap();
        let thread = std::thread::spawn(move || {
            link.run_until(|_| stop.load(Ordering::Relaxed)).unwrap();
            link.traffic()
        });
        Some(Self {
            left,
            right,
            stop,
            thread,
        })
    }

    fn stop(self) -> [Traffic; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// A connection from left to right: both ends, and how long it took.
    fn connect(&self) -> (TcpStream, TcpStream, Duration) {
        let listen = || TcpListener::bind("10.79.0.2:0").unwrap();
        let listener = with_netns(self.right.name(), listen).unwrap();
        let target = listener.local_addr().unwrap();
        let connect = || {
            let start = Instant::now();
            let stream = TcpStream::connect_timeout(&target, Duration::from_secs(30)).unwrap();
            (stream, start.elapsed())
        };
        let (client, took) = with_netns(self.left.name(), connect).unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, server, took)
    }

    /// UDP sockets left and right, with ARP done.
    fn datagrams(&self) -> (UdpSocket, UdpSocket) {
        let bind = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            let socket = UdpSocket::bind(SocketAddr::from((address, 0))).unwrap();
            let short = Some(Duration::from_millis(200));
            socket.set_read_timeout(short).unwrap();
            socket
        };
        let left = with_netns(self.left.name(), || bind("10.79.0.1")).unwrap();
        let right = with_netns(self.right.name(), || bind("10.79.0.2")).unwrap();
        left.connect(right.local_addr().unwrap()).unwrap();
        right.connect(left.local_addr().unwrap()).unwrap();
        (left, right)
    }
}

#[test]
fn two_kernels_talk_over_a_slow_link() {
    let model = LinkModel {
        delay: Duration::from_millis(20),
        ..LinkModel::default()
    };
    let Some(two) = Two::new("sl", [model; 2]) else {
        return;
    };
    let (_client, _server, took) = two.connect();
    assert!(took >= Duration::from_millis(40), "{took:?}");
    let [there, back] = two.stop();
    assert!(there.arrived >= 2 && back.arrived >= 1, "{there} / {back}");
    assert_eq!((there.lost, back.dropped), (0, 0));
}

#[test]
fn each_way_loses_what_was_asked_and_says_so() {
    let loss = |loss, seed| LinkModel {
        loss,
        seed,
        ..LinkModel::default()
    };
    let Some(two) = Two::new("lo", [loss(0.1, 1), loss(0.0, 2)]) else {
        return;
    };
    let (left, right) = two.datagrams();
    let mut arrived = 0;
    let mut buffer = [0; 64];
    let mut answers = 0;
    for _ in 0..2_000 {
        left.send(b"there").unwrap();
        // One at a time: nothing may be lost but on the line.
        if right.recv(&mut buffer).is_ok() {
            arrived += 1;
            right.send(b"back").unwrap();
            left.recv(&mut buffer).unwrap();
            answers += 1;
        }
        if arrived == 300 {
            break;
        }
    }
    let [there, back] = two.stop();
    // A few frames are ARP's.
    assert!((300..310).contains(&there.arrived), "{there}");
    assert!((300..310).contains(&back.arrived), "{back}");
    assert_eq!(there.sent, there.arrived + there.lost);
    // One in ten of some 330, and the same with every run.
    assert!((15..60).contains(&there.lost), "{there}");
    assert_eq!((back.lost, answers), (0, 300));
}

#[test]
fn an_mtu_is_told_to_the_sender_and_tcp_obeys_it() {
    let narrow = LinkModel {
        mtu: 1300,
        ..LinkModel::default()
    };
    let Some(two) = Two::new("mt", [narrow, LinkModel::default()]) else {
        return;
    };
    let (mut client, mut server, _) = two.connect();
    let sent: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&sent).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == sent, "{} bytes came", received.len());
    let [there, _] = two.stop();
    assert!(there.too_big > 0 && there.answered > 0, "{there}");
    assert!(there.arrived >= 200_000 / 1260, "{there}");
}

#[test]
fn a_rate_bounds_what_arrives_and_the_queue_drops_the_rest() {
    let slow = LinkModel {
        // 125 frames of 1000 bytes a second.
        rate_bps: 1_000_000,
        queue_frames: 20,
        ..LinkModel::default()
    };
    let Some(two) = Two::new("ra", [slow, LinkModel::default()]) else {
        return;
    };
    let (left, right) = two.datagrams();
    let mut buffer = [0; 2000];
    left.send(b"arp").unwrap();
    right.recv(&mut buffer).unwrap();
    for _ in 0..200 {
        left.send(&[0; 958]).unwrap();
    }
    let arrived = std::iter::from_fn(|| right.recv(&mut buffer).ok()).count() as u64;
    let [there, _] = two.stop();
    // The queue, and what the line took away meanwhile.
    assert!((20..200).contains(&arrived), "{arrived}: {there}");
    assert_eq!(there.dropped, 200 - arrived, "{there}");
    assert!(there.queue_bytes_max <= 21_000, "{there}");
}

#[test]
fn what_did_not_happen_is_not_told() {
    let traffic = Traffic {
        sent: 10,
        arrived: 8,
        lost: 2,
        ..Traffic::default()
    };
    assert_eq!(traffic.to_string(), "10 sent, 8 arrived, 2 lost");
}
