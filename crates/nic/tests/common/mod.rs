//! A network namespace for each test, and the frames that the tests exchange with the kernel.

#![allow(dead_code)]

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use sidecore_nic::{Nic, RxBurst, TxFrame};
use sidecore_sys::netns;
use sidecore_wire::MacAddress;

const INSIDE: &str = "SIDECORE_TEST_IN_USER_NAMESPACE";

/// Runs `test` on a thread with a network namespace of its own, which vanishes with it.
///
/// Without root the test program runs itself again, for this one test, as root of a user namespace. Where that is not
/// allowed either, or cannot open `/dev/net/tun`, the test is skipped and says so.
pub(crate) fn isolated(name: &str, test: impl FnOnce() + Send + 'static) {
    let outcome = std::thread::spawn(move || {
        let Ok(namespace) = netns::create_anonymous() else {
            return false;
        };
        netns::with_netns_fd(namespace, test).unwrap();
        true
    })
    .join();
    match outcome {
        Ok(true) => {}
        Ok(false) if std::env::var_os(INSIDE).is_none() => again_in_user_namespace(name),
        Ok(false) => println!("skipped {name}: no network namespaces even in a user namespace"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn again_in_user_namespace(name: &str) {
    let run = |program: &str, args: &[&str]| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "--", program])
            .args(args)
            .env(INSIDE, "1")
            .status()
    };
    if !run("sh", &["-c", "exec 3<>/dev/net/tun"]).is_ok_and(|status| status.success()) {
        println!("skipped {name}: needs root, or user namespaces and access to /dev/net/tun");
        return;
    }
    let me = std::env::current_exe().unwrap();
    let status = run(me.to_str().unwrap(), &["--exact", name, "--nocapture"]).unwrap();
    assert!(status.success(), "{name} failed in a user namespace");
}

pub(crate) const OUR_MAC: MacAddress = MacAddress([2, 0x5c, 0, 0, 0, 2]);
pub(crate) const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Polls until `wanted` picks a frame out, answering ARP meanwhile. Panics after two seconds.
pub(crate) fn receive_until<T>(
    nic: &mut impl Nic,
    mut wanted: impl FnMut(&[u8], bool, u16) -> Option<T>,
) -> T {
    let mut burst = RxBurst::new();
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        nic.receive(&mut burst);
        let mut found = None;
        let mut requests = Vec::new();
        for frame in &burst {
            let bytes = nic.frame(frame);
            if bytes.get(12..14) == Some(&[8, 6]) {
                requests.push(bytes.to_vec());
            } else if found.is_none() {
                found = wanted(bytes, frame.checksum_valid, frame.gso_size);
            }
        }
        nic.release(&mut burst);
        for request in requests {
            if request[20..22] == [0, 1] && request[38..42] == OURS.octets() {
                send(nic, &arp_reply(&request));
            }
        }
        if let Some(found) = found {
            return found;
        }
    }
    panic!("the frame did not come");
}

pub(crate) fn send(nic: &mut impl Nic, frame: &[u8]) {
    assert!(nic.has_room());
    nic.submit(&TxFrame {
        header: frame,
        payload: &[],
        payload_len: 0,
        checksum: None,
        segment_size: 0,
    });
    nic.flush();
}

fn arp_reply(request: &[u8]) -> Vec<u8> {
    let mut reply = request[..42].to_vec();
    reply[..6].copy_from_slice(&request[22..28]);
    reply[6..12].copy_from_slice(&OUR_MAC.0);
    reply[21] = 2;
    reply[22..28].copy_from_slice(&OUR_MAC.0);
    reply[28..32].copy_from_slice(&OURS.octets());
    reply[32..42].copy_from_slice(&request[22..32]);
    reply
}

/// Ethernet, IPv4 and UDP headers of an answer to `frame`, with the pseudo-header's sum in the checksum field.
pub(crate) fn udp_answer_header(frame: &[u8], payload_len: usize) -> [u8; 42] {
    use sidecore_wire::checksum;
    let mut header = [0; 42];
    header[..6].copy_from_slice(&frame[6..12]);
    header[6..12].copy_from_slice(&OUR_MAC.0);
    header[12..14].copy_from_slice(&[8, 0]);
    header[14] = 0x45;
    header[16..18].copy_from_slice(&(28 + payload_len as u16).to_be_bytes());
    header[20] = 0x40;
    header[22] = 64;
    header[23] = 17;
    header[26..30].copy_from_slice(&frame[30..34]);
    header[30..34].copy_from_slice(&frame[26..30]);
    let ip_sum = !checksum::fold(checksum::sum(&header[14..34], 0));
    header[24..26].copy_from_slice(&ip_sum.to_be_bytes());
    header[34..36].copy_from_slice(&frame[36..38]);
    header[36..38].copy_from_slice(&frame[34..36]);
    let len = 8 + payload_len as u16;
    header[38..40].copy_from_slice(&len.to_be_bytes());
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let pseudo = checksum::pseudo_v4(address(26), address(30), 17, len.into());
    header[40..42].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
    header
}
