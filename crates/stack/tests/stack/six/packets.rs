//! Headers, extension headers, fragments, ICMPv6.

use proptest::prelude::*;
use sidecore_stack::Rate;
use sidecore_testkit::packet6::{Content6, Station6};
use sidecore_testkit::{pattern, property_config};
use sidecore_wire::ipv6::extension::FragmentHeader;
use sidecore_wire::{Icmpv6, Ipv6Addr, Ipv6Header, ipv6};

use super::*;

const PING: Icmpv6 = Icmpv6::EchoRequest { ident: 1, seq: 2 };
const PONG: Icmpv6 = Icmpv6::EchoReply { ident: 1, seq: 2 };

fn problem(code: u8, pointer: u32) -> Icmpv6 {
    Icmpv6::ParameterProblem { code, pointer }
}

/// The message of the only packet.
fn message(packets: Vec<Packet6>) -> Icmpv6 {
    match one(packets).content {
        Content6::Icmp(message, _) => message,
        other => panic!("not ICMPv6: {other:?}"),
    }
}

#[test]
fn rfc_4443_section_4_echo_is_answered_within_the_rate() {
    let mut raw = Raw6::new();
    let answer = one(raw.send(&PEER.icmp(&NODE, &PING, b"payload")));
    assert_eq!((answer.ip.src, answer.ip.dst), (NODE.ip, PEER.ip));
    assert_eq!(answer.content, Content6::Icmp(PONG, b"payload".to_vec()));
    // Over the link-local address too; to a group not at all.
    let link = raw.send(&ROUTER.icmp(&NODE_LINK, &PING, b""));
    assert_eq!(one(link).ip.src, NODE_LINK.ip);
    let all = Station6::group(ipv6::ALL_NODES);
    assert_eq!(raw.send(&PEER.icmp(&all, &PING, b"")), []);
    let mut damaged = PEER.icmp(&NODE, &PING, b"payload");
    damaged[62] ^= 1;
    assert_eq!(raw.send(&damaged), []);
    assert_eq!(raw.count("icmp_malformed"), 1);
}

#[test]
fn rfc_4443_section_2_4_f_errors_are_limited() {
    let now = Instant::from_secs(1000);
    let mut config = node_config(1);
    config.stack.ipv6.dad_transmits = 0;
    config.stack.icmp_error_rate = Rate {
        per_second: 1,
        burst: 2,
    };
    let mut node = Node::new(&config, now);
    node.turn(now);
    let query = PEER.udp(&NODE, (9, 53), b"query");
    for _ in 0..5 {
        node.receive(now, &query);
    }
    assert_eq!(node.turn(now).len(), 2);
    assert_eq!(node.count("icmp_rate_limited"), 3);
}

#[test]
fn rfc_4291_sources_and_destinations_that_cannot_be() {
    let mut raw = Raw6::new();
    let from = |ip: &str| Station6 {
        ip: ip.parse().unwrap(),
        ..PEER
    };
    for ip in ["::1", "ff02::1", "::ffff:10.0.0.2", "fd00::1", "::"] {
        assert_eq!(raw.send(&from(ip).icmp(&NODE, &PING, b"")), [], "{ip}");
    }
    assert_eq!(raw.count("ip_bad_source"), 5);
    for ip in ["fd00::5", "::1", "ff02::2", "ff02::1:ff00:7", "::"] {
        let to = Station6 {
            ip: ip.parse().unwrap(),
            ..NODE
        };
        assert_eq!(raw.send(&PEER.icmp(&to, &PING, b"")), [], "{ip}");
    }
    assert_eq!(raw.count("ip_other_destination"), 5);
    let mut short = PEER.icmp(&NODE, &PING, b"data");
    short.pop();
    assert_eq!(raw.send(&short), []);
    assert_eq!(raw.count("ip_malformed"), 1);
}

#[test]
fn rfc_8200_section_4_what_is_not_understood() {
    let mut raw = Raw6::new();
    assert_eq!(
        message(raw.send(&PEER.packet(&NODE, 200, b"?"))),
        problem(1, 6)
    );
    let behind = [200, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(
        message(raw.send(&PEER.packet(&NODE, 60, &behind))),
        problem(1, 40)
    );
    // Section 4.7: nothing follows.
    assert_eq!(raw.send(&PEER.packet(&NODE, 59, b"ignored")), []);
    // To a group there is no answer.
    let all = Station6::group(ipv6::ALL_NODES);
    assert_eq!(raw.send(&PEER.packet(&all, 200, b"?")), []);
}

#[test]
fn rfc_8200_section_4_2_options_that_ask_for_an_answer() {
    let mut raw = Raw6::new();
    let all = Station6::group(ipv6::ALL_NODES);
    let option = |kind: u8| [59, 0, kind, 4, 0, 0, 0, 0];
    // The two highest bits: skip; drop; answer always; answer unless to a group.
    let answers = [
        (0x1e, false, false),
        (0x5e, false, false),
        (0x9e, true, true),
        (0xde, true, false),
    ];
    for (kind, to_one, to_group) in answers {
        let one_answer = raw.send(&PEER.packet(&NODE, 60, &option(kind)));
        assert_eq!(one_answer.len(), usize::from(to_one), "{kind:x}");
        let answer = raw.send(&PEER.packet(&all, 60, &option(kind)));
        assert_eq!(answer.len(), usize::from(to_group), "{kind:x}");
        if to_group {
            assert_eq!(message(answer), problem(2, 42));
        }
    }
}

#[test]
fn rfc_4443_section_2_4_e_no_errors_about_errors() {
    let mut raw = Raw6::new();
    // An error behind a routing header that cannot be processed.
    let error = PEER.message(&NODE, &Icmpv6::TimeExceeded { code: 0 }, &[0; 48]);
    let mut bytes = vec![58, 0, 0x1e, 4, 0, 0, 0, 0];
    bytes.extend(error);
    assert_eq!(raw.send(&PEER.packet(&NODE, 60, &bytes)), []);
    assert_eq!(raw.count("icmp_unmatched"), 1);
}

#[test]
fn transports_behind_extension_headers() {
    let mut raw = Raw6::new();
    let mut bytes = vec![60, 0, 5, 2, 0, 0, 1, 0];
    bytes.extend([58, 0, 1, 4, 0, 0, 0, 0]);
    bytes.extend(PEER.message(&NODE, &PING, b"data"));
    assert_eq!(message(raw.send(&PEER.packet(&NODE, 0, &bytes))), PONG);
    // RFC 5095.
    let mut bytes = vec![58, 2, 0, 1, 0, 0, 0, 0];
    bytes.extend(NODE.ip.octets());
    bytes.extend(PEER.message(&NODE, &PING, b"data"));
    assert_eq!(
        message(raw.send(&PEER.packet(&NODE, 43, &bytes))),
        problem(0, 42)
    );
}

/// The fragments of a payload.
fn fragments(next_header: u8, payload: &[u8], size: usize, ident: u32) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(size);
    let pieces = payload.chunks(size).enumerate();
    pieces
        .map(|(number, piece)| {
            let header = FragmentHeader {
                next_header,
                offset: (number * size) as u16,
                more: number + 1 < count,
                ident,
            };
            let mut bytes = vec![0; 8];
            header.emit(&mut bytes);
            bytes.extend(piece);
            PEER.packet(&NODE, ipv6::FRAGMENT, &bytes)
        })
        .collect()
}

#[test]
fn rfc_8200_section_4_5_fragments_come_and_go() {
    let mut raw = Raw6::new();
    let data = pattern(0, 0, 5000);
    let pings = fragments(58, &PEER.message(&NODE, &PING, &data), 1232, 7);
    let mut answers = Vec::new();
    for ping in pings.iter().rev() {
        answers.extend(raw.send(ping));
    }
    assert_eq!(raw.count("reassembled"), 1);
    let mut whole = vec![0; 5008];
    let mut idents = Vec::new();
    for answer in answers {
        let Content6::Fragment(header, bytes) = answer.content else {
            panic!("not a fragment")
        };
        let at = usize::from(header.offset);
        whole[at..at + bytes.len()].copy_from_slice(&bytes);
        assert_eq!(header.more, at + bytes.len() < 5008);
        idents.push(header.ident);
    }
    idents.dedup();
    assert_eq!((idents.len(), &whole[8..]), (1, &data[..]));
    let parsed = Icmpv6::parse(NODE.ip, PEER.ip, &whole);
    assert_eq!(parsed, Ok((PONG, 8)));
}

#[test]
fn rfc_8200_section_4_5_fragments_that_do_not_fit_or_come_too_late() {
    let mut raw = Raw6::new();
    let parts = fragments(58, &PEER.message(&NODE, &PING, &[1; 3000]), 1232, 7);
    // RFC 5722: an overlap ends it.
    raw.send(&parts[0]);
    let mut other = parts[0].clone();
    *other.last_mut().unwrap() ^= 1;
    raw.send(&other);
    assert_eq!(raw.count("reassembly_malformed"), 1);
    // 60 seconds.
    raw.send(&parts[0]);
    raw.pass(Duration::from_secs(59));
    assert_eq!(raw.count("reassembly_timeouts"), 0);
    raw.pass(Duration::from_secs(1));
    assert_eq!(raw.count("reassembly_timeouts"), 1);
    // RFC 7112.
    let cut = fragments(6, &[0; 32], 8, 9).remove(0);
    assert_eq!(message(raw.send(&cut)), problem(3, 0));
    // RFC 6946: an atomic fragment is whole, and disturbs no other.
    raw.send(&parts[0]);
    let ping = PEER.message(&NODE, &PING, b"atom");
    assert_eq!(message(raw.send(&fragments(58, &ping, 4000, 7)[0])), PONG);
}

#[test]
fn ipv6_that_is_off_is_another_protocol() {
    let mut raw = Raw6::fresh(|config| config.enabled = false);
    assert_eq!(raw.turn(), []);
    assert_eq!(raw.send(&PEER.icmp(&NODE, &PING, b"")), []);
    assert_eq!(raw.count("ethernet_other_protocol"), 1);
    assert_eq!(raw.node.stack.next_timeout(), None);
}

/// A plausible packet for the node, with bytes that nobody has looked at.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    let next = prop::sample::select(vec![0u8, 6, 17, 43, 44, 58, 58, 58, 60, 59, 200]);
    let types = prop::sample::select(vec![1u8, 2, 128, 130, 133, 134, 135, 136, 137]);
    let dst = prop::sample::select(vec![
        NODE,
        NODE_LINK,
        Station6::group(ipv6::ALL_NODES),
        Station6::group(ipv6::solicited_node(NODE.ip)),
    ]);
    let src = prop::sample::select(vec![
        PEER,
        ROUTER,
        Station6 {
            ip: Ipv6Addr::UNSPECIFIED,
            ..PEER
        },
    ]);
    let hops = prop::sample::select(vec![255u8, 1, 64]);
    let bytes = prop::collection::vec(any::<u8>(), 0..120);
    (next, types, dst, src, hops, bytes).prop_map(|(next, type_, dst, src, hops, mut bytes)| {
        if next == 58 && bytes.len() >= 8 {
            bytes[..2].copy_from_slice(&[type_, 0]);
            if bytes.len() >= 24 && type_ >= 135 && bytes[3] & 1 == 0 {
                bytes[8..24].copy_from_slice(&PEER.ip.octets());
                // Options of plausible lengths.
                for option in bytes[24..].chunks_mut(8) {
                    if let [kind, len, ..] = option {
                        *kind &= 7;
                        *len = 1;
                    }
                }
            }
            sidecore_wire::icmpv6::put_checksum(src.ip, dst.ip, &mut bytes);
        }
        let header = Ipv6Header {
            hop_limit: hops,
            ..Ipv6Header::new(src.ip, dst.ip, next)
        };
        src.ip(&dst, header, &bytes)
    })
}

proptest! {
    #![proptest_config(property_config(64))]

    /// No input panics, what goes out is well-formed, and all tables agree.
    #[test]
    fn hostile_packets(frames in prop::collection::vec(anything(), 1..60), pause in 0..3000u64) {
        let mut raw = Raw6::fresh(|config| {
            config.neighbor.capacity = 8;
            config.neighbor.max_pending = 4;
            config.max_addresses = 4;
            config.max_prefixes = 4;
            config.max_routers = 2;
            config.max_redirects = 2;
        });
        raw.listen(80);
        raw.pass(Duration::from_millis(pause));
        let peer = "[fd00::2]:80".parse().unwrap();
        // Before the address is checked there is none to come from.
        let connected = raw.node.try_connect(raw.now, None, peer);
        prop_assert_eq!(connected.is_ok(), raw.count("addresses_assigned") > 0);
        for frame in frames {
            raw.send(&frame);
            raw.pass(Duration::from_millis(pause));
        }
        raw.pass(Duration::from_secs(300));
        prop_assert!(raw.node.stack.is_consistent());
    }
}
