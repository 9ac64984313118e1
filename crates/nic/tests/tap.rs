//! The TAP driver against the kernel of this machine.

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use common::{HOST, OUR_MAC, OURS, isolated, receive_until, udp_answer_header};
use sidecore_nic::{MemRef, Nic, NicError, RxBurst, Tap, TapConfig, TapIo, TxFrame};

fn config(mode: TapIo) -> TapConfig {
    TapConfig {
        name: "tap-test".into(),
        mac: OUR_MAC,
        host_addresses: vec![(HOST.into(), 24)],
        mode,
        ..TapConfig::default()
    }
}

fn udp_both_ways(mode: TapIo, napi: bool, count_arrivals: bool) {
    let mut tap = Tap::create(TapConfig {
        napi,
        count_arrivals,
        ..config(mode)
    })
    .unwrap();
    assert_eq!(tap.caps().mac, OUR_MAC);
    let link = std::process::Command::new("ip")
        .args(["link", "show", tap.name()])
        .output();
    if let Ok(link) = link.map(|output| String::from_utf8(output.stdout).unwrap()) {
        let queue = format!("qlen {}", TapConfig::default().queue_len);
        assert!(link.contains("mtu 1500") && link.contains(&queue), "{link}");
    }
    let socket = UdpSocket::bind((HOST, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    for len in [1usize, 30, 700, 1472] {
        let question: Vec<u8> = (0..len).map(|i| i as u8).collect();
        socket.send_to(&question, (OURS, 7)).unwrap();
        let frame = receive_until(&mut tap, |bytes, valid, _| {
            let ours = bytes[23] == 17 && bytes[36..38] == [0, 7];
            ours.then(|| (bytes.to_vec(), valid))
        });
        assert!(frame.1, "the kernel leaves the checksum to the device");
        assert_eq!(frame.0[42..], question);

        let pieces = [
            &question[..len / 3],
            &question[len / 3..len / 2],
            &question[len / 2..],
        ];
        let pieces = pieces.map(MemRef::from_bytes);
        tap.submit(&TxFrame {
            header: &udp_answer_header(&frame.0, len),
            payload: &pieces,
            payload_len: len as u32,
            checksum: Some((34, 6)),
            segment_size: 0,
        });
        tap.flush();
        let mut answer = [0; 2000];
        let (n, from) = socket.recv_from(&mut answer).unwrap();
        assert_eq!(from, (OURS, 7).into());
        assert_eq!(answer[..n], question);
    }
    while tap.in_flight() {
        tap.flush();
    }
    let counters = tap.counters();
    assert!(counters.rx_frames >= 5 && counters.tx_frames >= 5);
    assert_eq!(counters.tx_dropped() + counters.rx_dropped(), 0);
}

#[test]
fn udp_by_read_and_write() {
    isolated("udp_by_read_and_write", || {
        udp_both_ways(TapIo::ReadWrite, false, false)
    });
}

#[test]
fn udp_by_read_and_write_counted() {
    isolated("udp_by_read_and_write_counted", || {
        udp_both_ways(TapIo::ReadWrite, false, true);
    });
}

/// A queue of a few frames overflows: the rest is dropped and told, and what comes later is not kept waiting.
fn overflow(mode: TapIo, count_arrivals: bool) {
    let mut tap = Tap::create(TapConfig {
        queue_len: 8,
        count_arrivals,
        ..config(mode)
    })
    .unwrap();
    let socket = UdpSocket::bind((HOST, 0)).unwrap();
    let is_udp = |bytes: &[u8]| (bytes[23] == 17 && bytes[36..38] == [0, 7]).then(|| bytes[42]);
    socket.send_to(b"a", (OURS, 7)).unwrap();
    receive_until(&mut tap, |bytes, _, _| is_udp(bytes));
    for n in 0..100 {
        socket.send_to(&[n], (OURS, 7)).unwrap();
    }
    let mut burst = RxBurst::new();
    let mut received = Vec::new();
    for _ in 0..2000 {
        tap.receive(&mut burst);
        received.extend(burst.into_iter().filter_map(|f| is_udp(tap.frame(f))));
        tap.release(&mut burst);
    }
    assert!(received.len() >= 8 && received.len() < 90, "{received:?}");
    assert!(received.is_sorted());
    let drops = tap.device_drops().unwrap();
    assert!(drops.to_us as usize >= 100 - received.len(), "{drops:?}");
    for n in 100..110 {
        socket.send_to(&[n], (OURS, 7)).unwrap();
        let mut turns = 0;
        while tap.receive(&mut burst) == 0 {
            turns += 1;
            assert!(turns < 1000, "a frame that has come is found");
        }
        assert_eq!(is_udp(tap.frame(&burst.get(0).unwrap())), Some(n));
        tap.release(&mut burst);
    }
}

#[test]
fn an_overflowing_queue_is_survived() {
    isolated("an_overflowing_queue_is_survived", || {
        overflow(TapIo::ReadWrite, false)
    });
}

#[test]
fn an_overflowing_queue_is_survived_when_counted() {
    isolated("an_overflowing_queue_is_survived_when_counted", || {
        overflow(TapIo::ReadWrite, true);
    });
}

#[test]
fn an_overflowing_queue_is_survived_by_io_uring() {
    isolated("an_overflowing_queue_is_survived_by_io_uring", || {
        overflow(TapIo::IoUring, true)
    });
}

fn sleep_and_wake(mode: TapIo, count_arrivals: bool) {
    let mut tap = Tap::create(TapConfig {
        count_arrivals,
        ..config(mode)
    })
    .unwrap();
    // Without ARP, every datagram becomes a frame.
    let index = sidecore_sys::interface::Interface::open(tap.name()).unwrap();
    sidecore_sys::netlink::add_neighbour(index.index().unwrap(), OURS.into(), OUR_MAC.0).unwrap();
    let socket = UdpSocket::bind((HOST, 0)).unwrap();
    let mut burst = RxBurst::new();
    // Rests until nothing comes of its own accord any more.
    while readable(&tap, Duration::from_millis(300)) {
        tap.awake();
        tap.receive(&mut burst);
        tap.release(&mut burst);
    }
    for _ in 0..20 {
        let mut tries = 0;
        while !tap.prepare_sleep() {
            tap.receive(&mut burst);
            tap.release(&mut burst);
            tries += 1;
            assert!(tries < 10_000);
        }
        socket.send_to(b"x", (OURS, 7)).unwrap();
        assert!(readable(&tap, Duration::from_secs(2)));
        tap.awake();
        assert!(tap.receive(&mut burst) > 0, "what woke us is there");
        tap.release(&mut burst);
    }
}

fn readable(tap: &Tap, timeout: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::from_borrowed_fd(
        tap.sleep_fd().unwrap(),
        PollFlags::IN,
    )];
    poll(&mut fds, Some(&timeout.try_into().unwrap())).unwrap() == 1
}

#[test]
fn a_frame_ends_a_sleep() {
    isolated("a_frame_ends_a_sleep", || {
        sleep_and_wake(TapIo::ReadWrite, false);
        sleep_and_wake(TapIo::ReadWrite, true);
        sleep_and_wake(TapIo::IoUring, true);
    });
}

#[test]
fn udp_by_read_and_write_with_napi() {
    isolated("udp_by_read_and_write_with_napi", || {
        udp_both_ways(TapIo::ReadWrite, true, true)
    });
}

#[test]
fn udp_by_io_uring() {
    isolated("udp_by_io_uring", || {
        udp_both_ways(TapIo::IoUring, false, true)
    });
}

#[test]
fn udp_by_io_uring_with_napi() {
    isolated("udp_by_io_uring_with_napi", || {
        udp_both_ways(TapIo::IoUring, true, true)
    });
}

fn name_in_use(mode: TapIo) {
    for _ in 0..3 {
        let mut first = Tap::create(config(mode)).unwrap();
        let second = Tap::create(config(mode)).err().unwrap();
        assert!(matches!(second, NicError::NameInUse(_)), "{second}");
        assert!(!second.to_string().contains('\n'));
        let mut burst = RxBurst::new();
        first.receive(&mut burst);
        first.release(&mut burst);
    }
}

#[test]
fn a_name_in_use_is_told_and_freed_on_drop() {
    isolated("a_name_in_use_is_told_and_freed_on_drop", || {
        name_in_use(TapIo::ReadWrite);
    });
}

#[test]
fn a_name_is_freed_on_drop_of_an_io_uring() {
    isolated("a_name_is_freed_on_drop_of_an_io_uring", || {
        name_in_use(TapIo::IoUring)
    });
}

#[test]
fn the_host_side_can_be_in_a_named_namespace() {
    let name = format!("sidecore-nic-{}", std::process::id());
    if sidecore_sys::netns::create_named(&name).is_err() {
        println!("skipped: needs root");
        return;
    }
    let made = Tap::create(TapConfig {
        netns: Some(name.clone()),
        ..config(TapIo::ReadWrite)
    });
    let inside = sidecore_sys::netns::with_netns(&name, || UdpSocket::bind((HOST, 0)).is_ok());
    let drops = made.as_ref().map(Tap::device_drops);
    let outside = std::fs::exists("/sys/class/net/tap-test");
    let told = drops.is_ok_and(|drops| drops.is_ok());
    drop(made);
    sidecore_sys::netns::delete_named(&name).unwrap();
    assert!(inside.unwrap(), "the address is there");
    assert!(told, "its statistics can be read from outside");
    assert!(!outside.unwrap(), "and not here");
}

#[test]
fn a_missing_namespace_is_told() {
    let missing = Tap::create(TapConfig {
        netns: Some("sidecore-no-such-namespace".into()),
        ..TapConfig::default()
    });
    let error = missing.err().unwrap();
    assert!(matches!(error, NicError::NoNamespace { .. }), "{error}");
    assert!(error.to_string().contains("ip netns add"));
}
