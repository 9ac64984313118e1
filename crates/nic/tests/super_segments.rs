//! Super-segments both ways: the kernel forwards them from one TAP to another.

mod common;

use std::net::Ipv4Addr;

use std::time::{Duration, Instant};

use common::{OUR_MAC, isolated};
use sidecore_nic::{MemRef, Nic, RxBurst, Tap, TapConfig, TapIo, TxFrame};
use sidecore_sys::interface::Interface;
use sidecore_sys::netlink;
use sidecore_wire::{MacAddress, checksum};

const TARGET_MAC: MacAddress = MacAddress([2, 0x5c, 0, 0, 0, 9]);
const CWR_ACK: u8 = 0x90;

fn tap(name: &str, net: u8, mode: TapIo, offload: bool) -> Tap {
    Tap::create(TapConfig {
        name: name.into(),
        mac: OUR_MAC,
        host_addresses: vec![
            (Ipv4Addr::new(10, net, 0, 1).into(), 24),
            (format!("fd00:{net}::1").parse().unwrap(), 64),
        ],
        mode,
        offload,
        ..TapConfig::default()
    })
    .unwrap()
}

/// Ethernet, IPv4 or IPv6, and TCP headers from net 1 to net 2, with the pseudo-header's sum in the checksum field.
fn header(host_mac: [u8; 6], v6: bool, payload: usize, flags: u8) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(host_mac);
    header.extend(OUR_MAC.0);
    let tcp_len = 20 + payload as u32;
    let pseudo = if v6 {
        let (src, dst) = ("fd00:1::2".parse().unwrap(), "fd00:2::2".parse().unwrap());
        header.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        header.extend((tcp_len as u16).to_be_bytes());
        header.extend([6, 64]);
        let (src, dst): (std::net::Ipv6Addr, std::net::Ipv6Addr) = (src, dst);
        header.extend(src.octets());
        header.extend(dst.octets());
        checksum::pseudo_v6(src, dst, 6, tcp_len)
    } else {
        let (src, dst) = (Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 2, 0, 2));
        header.extend([8, 0, 0x45, 0]);
        header.extend((20 + tcp_len as u16).to_be_bytes());
        header.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        header.extend(src.octets());
        header.extend(dst.octets());
        let sum = checksum::complement(checksum::sum(&header[14..], 0));
        header[24..26].copy_from_slice(&sum.to_be_bytes());
        checksum::pseudo_v4(src, dst, 6, tcp_len)
    };
    header.extend([0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff]);
    header.extend(checksum::fold(pseudo).to_be_bytes());
    header.extend([0, 0]);
    header
}

/// Sends payload as a super-segment over net 1 and gives what arrives on net 2: TCP flags and segment sizes.
/// The payload must arrive as it was.
fn forwarded(mode: TapIo, offload: bool, v6: bool) -> Vec<(u8, u16)> {
    let file = if v6 {
        "/proc/sys/net/ipv6/conf/all/forwarding"
    } else {
        "/proc/sys/net/ipv4/ip_forward"
    };
    std::fs::write(file, "1").unwrap();
    let mut source = tap("tap-source", 1, mode, true);
    let mut sink = tap("tap-sink", 2, mode, offload);
    let index = Interface::open("tap-sink").unwrap().index().unwrap();
    let target = if v6 {
        "fd00:2::2".parse().unwrap()
    } else {
        Ipv4Addr::new(10, 2, 0, 2).into()
    };
    netlink::add_neighbour(index, target, TARGET_MAC.0).unwrap();

    let payload: Vec<u8> = (0..40_000u32).map(|i| (i / 7) as u8).collect();
    let host_mac = Interface::open("tap-source").unwrap().mac().unwrap();
    let header = header(host_mac, v6, payload.len(), CWR_ACK);
    let pieces = [&payload[..10], &payload[10..9000], &payload[9000..]].map(MemRef::from_bytes);
    let tcp = header.len() - 20;
    source.submit(&TxFrame {
        header: &header,
        payload: &pieces,
        payload_len: payload.len() as u32,
        checksum: Some((tcp as u16, 16)),
        segment_size: 1000,
    });
    source.flush();
    assert_eq!(source.counters().tx_super_segments, 1);

    let (mut bytes, mut seen) = (Vec::<u8>::new(), Vec::new());
    let mut burst = RxBurst::new();
    let end = Instant::now() + Duration::from_secs(2);
    while bytes.len() < payload.len() && Instant::now() < end {
        sink.receive(&mut burst);
        for description in &burst {
            let frame = sink.frame(description);
            if frame[..6] == TARGET_MAC.0 && frame.len() > header.len() {
                // Without offload, checksums are complete and nobody vouches for them.
                assert_eq!(description.checksum_valid, offload);
                bytes.extend(&frame[header.len()..]);
                seen.push((frame[tcp + 13], description.gso_size));
            }
        }
        sink.release(&mut burst);
    }
    assert_eq!(bytes, payload);
    seen
}

#[test]
fn they_pass_whole_with_offload() {
    isolated("they_pass_whole_with_offload", || {
        for mode in [TapIo::ReadWrite, TapIo::IoUring] {
            for v6 in [false, true] {
                let seen = forwarded(mode, true, v6);
                assert_eq!(seen, [(CWR_ACK, 1000)], "{mode:?}, IPv6 {v6}");
            }
        }
    });
}

#[test]
fn they_are_cut_without_offload_and_only_the_first_has_cwr() {
    isolated(
        "they_are_cut_without_offload_and_only_the_first_has_cwr",
        || {
            let seen = forwarded(TapIo::ReadWrite, false, false);
            let mut expected = vec![(0x10, 0); 40];
            expected[0] = (CWR_ACK, 0);
            assert_eq!(seen, expected);
        },
    );
}
