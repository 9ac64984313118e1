use std::time::Duration;

use sidecore_testkit::packet::{Packet, Station, header};
use sidecore_testkit::pattern;
use sidecore_wire::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use sidecore_wire::{Icmpv4, Ipv4Header, MacAddress, checksum};

use crate::raw::*;

fn fragments(
    from: &Station,
    protocol: u8,
    ident: u16,
    payload: &[u8],
    size: usize,
) -> Vec<Vec<u8>> {
    let pieces = payload.chunks(size).enumerate();
    pieces
        .map(|(number, piece)| {
            let header = Ipv4Header {
                ident,
                dont_fragment: false,
                more_fragments: (number + 1) * size < payload.len(),
                fragment_offset: (number * size) as u16,
                ..Ipv4Header::new(from.ip, NODE.ip, protocol)
            };
            from.ip(&NODE, header, piece)
        })
        .collect()
}

#[test]
fn what_is_dropped_is_counted() {
    let mut raw = Raw::new();
    raw.listen(80, 4);
    let syn = |from: &Station, to: &Station| from.tcp(to, &header(9, 80, SYN, 1, 0), &[]);
    let good = syn(&PEER, &NODE);
    let changed = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let with_ip = |at: usize, value: u8| {
        let mut frame = changed(14 + at, value);
        frame[24..26].fill(0);
        let sum = checksum::complement(checksum::sum(&frame[14..34], 0));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let station = |ip: [u8; 4]| Station {
        ip: ip.into(),
        ..PEER
    };
    let to_ip = |ip: [u8; 4]| Station {
        ip: ip.into(),
        ..NODE
    };
    let cases = [
        ("ethernet_malformed", good[..13].to_vec()),
        ("ethernet_malformed", changed(12, 0x81)),
        ("ethernet_other_protocol", changed(12, 0x86)),
        ("ethernet_other_station", changed(5, 77)),
        ("ethernet_other_station", changed(6, 1)),
        ("ip_malformed", good[..33].to_vec()),
        ("ip_malformed", good[..50].to_vec()),
        ("ip_malformed", with_ip(0, 0x65)),
        ("ip_malformed", with_ip(0, 0x44)),
        ("ip_bad_checksum", changed(24, good[24] ^ 1)),
        ("ip_other_protocol", with_ip(9, 89)),
        ("ip_other_destination", syn(&PEER, &to_ip([10, 0, 0, 9]))),
        ("ip_other_destination", syn(&PEER, &to_ip([127, 0, 0, 1]))),
        ("ip_other_destination", syn(&PEER, &to_ip([224, 0, 0, 2]))),
        ("ip_bad_source", syn(&station([10, 0, 0, 1]), &NODE)),
        ("ip_bad_source", syn(&station([127, 0, 0, 1]), &NODE)),
        ("ip_bad_source", syn(&station([224, 0, 0, 1]), &NODE)),
        ("ip_bad_source", syn(&station([10, 0, 0, 255]), &NODE)),
        ("ip_bad_source", syn(&station([0, 0, 0, 0]), &NODE)),
        ("ip_bad_source", syn(&station([255, 255, 255, 255]), &NODE)),
        ("tcp_bad_checksum", changed(40, 0xaa)),
        ("tcp_malformed", changed(46, 0x40)),
        ("tcp_malformed", changed(46, 0xf0)),
        ("tcp_to_nowhere", syn(&PEER, &to_ip([10, 0, 0, 255]))),
        ("tcp_to_nowhere", syn(&PEER, &to_ip([224, 0, 0, 1]))),
    ];
    for (counter, frame) in cases {
        let before = raw.count(counter);
        assert_eq!(raw.send(&frame), [], "{counter}");
        assert_eq!(raw.count(counter), before + 1, "{counter}");
    }
    assert_eq!(raw.node.stack.connection_count(), 0);
    assert_eq!(raw.send(&good).len(), 1, "the template is good");
}

#[test]
fn ethernet_padding_and_ip_options_are_tolerated() {
    let mut raw = Raw::new();
    raw.listen(80, 4);
    let mut padded = PEER.tcp(&NODE, &header(9, 80, SYN, 1, 0), &[]);
    padded.extend_from_slice(&[0xee; 6]);
    assert_eq!(one_tcp(raw.send(&padded)).0, SYN | ACK);

    let segment = PEER.segment(&NODE, &header(10, 80, SYN, 1, 0), &[]);
    let mut frame = PEER.ip(
        &NODE,
        Ipv4Header::new(PEER.ip, NODE.ip, PROTOCOL_TCP),
        &segment,
    );
    // Four bytes of NOP options.
    frame.splice(34..34, [1, 1, 1, 1]);
    frame[14] = 0x46;
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..26].fill(0);
    let sum = checksum::complement(checksum::sum(&frame[14..38], 0));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(one_tcp(raw.send(&frame)).0, SYN | ACK);
}

#[test]
fn a_segment_with_options_in_ip_is_stored_from_the_right_place() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (iss, user) = raw.open(listener, 9, 80);
    let segment = PEER.segment(&NODE, &header(9, 80, ACK, 1001, iss + 1), b"behind options");
    let mut frame = PEER.ip(
        &NODE,
        Ipv4Header::new(PEER.ip, NODE.ip, PROTOCOL_TCP),
        &segment,
    );
    frame.splice(34..34, [1; 8]);
    frame[14] = 0x47;
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..26].fill(0);
    let sum = checksum::complement(checksum::sum(&frame[14..42], 0));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(b"padding");
    raw.send(&frame);
    assert_eq!(raw.node.received(user), b"behind options");
}

#[test]
fn tcp_in_fragments() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (iss, user) = raw.open(listener, 9, 80);
    let data = pattern(3, 0, 9000);
    let segment = PEER.segment(&NODE, &header(9, 80, ACK, 1001, iss + 1), &data);
    let mut frames = fragments(&PEER, PROTOCOL_TCP, 7, &segment, 1480);
    frames.reverse();
    // A device's word for one fragment says nothing about the whole.
    raw.node.checksum = sidecore_stack::RxChecksum::Valid;
    for frame in &frames {
        raw.send(frame);
    }
    assert_eq!(raw.node.received(user), data);
    assert_eq!(
        (raw.count("fragments_in"), raw.count("reassembled")),
        (7, 1)
    );

    let mut wrong = PEER.segment(&NODE, &header(9, 80, ACK, 10001, iss + 1), &data);
    wrong[500] ^= 1;
    for frame in fragments(&PEER, PROTOCOL_TCP, 8, &wrong, 1480) {
        raw.send(&frame);
    }
    assert_eq!(raw.count("tcp_bad_checksum"), 1);
    assert_eq!(raw.node.received(user).len(), 9000);
}

#[test]
fn udp_in_fragments_and_out_of_order_tcp_bytes() {
    let mut raw = Raw::new();
    let (_, user) = raw.node.udp_bind("0.0.0.0:53".parse().unwrap());
    let data = pattern(4, 0, 40_000);
    let datagram = PEER.datagram(&NODE, 1000, 53, &data);
    for frame in fragments(&PEER, PROTOCOL_UDP, 1, &datagram, 1480) {
        raw.send(&frame);
    }
    let datagrams = raw.node.take_datagrams();
    assert_eq!(datagrams.len(), 1);
    assert_eq!((datagrams[0].user, &datagrams[0].bytes), (user, &data));

    let (_, listener) = raw.listen(80, 4);
    let (iss, user) = raw.open(listener, 9, 80);
    let segment = PEER.segment(&NODE, &header(9, 80, ACK, 1004, iss + 1), &data[..3000]);
    for frame in fragments(&PEER, PROTOCOL_TCP, 2, &segment, 1480) {
        raw.send(&frame);
    }
    assert_eq!(raw.node.received(user), b"");
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"abc");
    assert_eq!(raw.node.received(user).len(), 3003);
    assert_eq!(raw.node.received(user)[3..], data[..3000]);
}

#[test]
fn a_long_ping_is_answered_in_fragments() {
    let mut raw = Raw::new();
    let data = pattern(5, 0, 8000);
    let request = Icmpv4::EchoRequest { ident: 3, seq: 4 };
    let mut message = vec![0; 8008];
    request.emit(&mut message, &data);
    let mut answers = Vec::new();
    for frame in fragments(&PEER, PROTOCOL_ICMP, 9, &message, 1480) {
        answers.extend(raw.send(&frame));
    }
    let mut whole = vec![0; 8008];
    let mut ends = 0;
    for answer in &answers {
        let Packet::Fragment(ip, bytes) = answer else {
            panic!("{answer:?}")
        };
        let start = usize::from(ip.fragment_offset);
        whole[start..start + bytes.len()].copy_from_slice(bytes);
        ends += usize::from(!ip.more_fragments);
    }
    assert_eq!((answers.len(), ends), (6, 1));
    let (reply, offset) = Icmpv4::parse(&whole).unwrap();
    assert_eq!(reply, Icmpv4::EchoReply { ident: 3, seq: 4 });
    assert_eq!(whole[offset..], data);
}

#[test]
fn incomplete_datagrams_are_given_up() {
    let mut raw = Raw::new();
    let datagram = PEER.datagram(&NODE, 1000, 53, &pattern(4, 0, 4000));
    let frames = fragments(&PEER, PROTOCOL_UDP, 1, &datagram, 1480);
    raw.send(&frames[0]);
    assert!(raw.node.stack.next_timeout().is_some());
    raw.pass(Duration::from_secs(31));
    assert_eq!(raw.count("reassembly_timeouts"), 1);
    assert_eq!(raw.node.stack.next_timeout(), None);
    raw.send(&frames[1]);
    raw.send(&frames[2]);
    assert_eq!(raw.count("reassembled"), 0);
}

#[test]
fn broadcast_frames_do_not_reach_connections() {
    let mut raw = Raw::new();
    raw.listen(80, 4);
    let mut frame = PEER.tcp(&NODE, &header(9, 80, SYN, 1, 0), &[]);
    frame[..6].copy_from_slice(&MacAddress::BROADCAST.0);
    assert_eq!(raw.send(&frame), []);
    assert_eq!(raw.node.stack.connection_count(), 0);
}
