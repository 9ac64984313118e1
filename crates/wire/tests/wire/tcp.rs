//! TCP headers: layouts byte for byte, odd option lists, round trips.

use proptest::prelude::*;
use sidecore_wire::tcp::{MAX_HEADER_LEN, QuotedSegment, verify_checksum_v4};
use sidecore_wire::{
    FastOpenCookie, Ipv4Addr, ParseError, SackBlock, SackBlocks, SeqNumber, TcpFlags, TcpHeader,
    TcpOptions, Timestamps, UnscaledWindow, WindowScale,
};

use crate::strategies::{config, segment_of_odd_options, tcp};

const TIMESTAMPS: Timestamps = Timestamps {
    value: 0x0102_0304,
    echo: 0x0506_0708,
};

fn block(start: u32, end: u32) -> SackBlock {
    SackBlock {
        start: SeqNumber(start),
        end: SeqNumber(end),
    }
}

fn with_options(options: TcpOptions) -> TcpHeader {
    TcpHeader {
        src_port: 0x1234,
        dst_port: 80,
        seq: SeqNumber(0xa0a1_a2a3),
        ack: SeqNumber(0xb0b1_b2b3),
        flags: TcpFlags::ACK | TcpFlags::PSH,
        window: UnscaledWindow(0xc0c1),
        urgent: 0xd0d1,
        options,
    }
}

fn emitted(header: &TcpHeader) -> Vec<u8> {
    let mut buf = [0xee; MAX_HEADER_LEN];
    let len = header.emit(&mut buf);
    assert_eq!(len, header.len());
    assert!(
        buf[len..].iter().all(|b| *b == 0xee),
        "wrote behind its end"
    );
    buf[..len].to_vec()
}

/// The options of a segment whose option list is `list`.
fn options_of(list: &[u8]) -> TcpOptions {
    assert_eq!(list.len() % 4, 0);
    let mut segment = emitted(&with_options(TcpOptions::NONE));
    segment[12] = ((20 + list.len() as u8) / 4) << 4;
    segment.extend(list);
    let (header, offset) = TcpHeader::parse(&segment).unwrap();
    assert_eq!(offset, segment.len());
    header.options
}

#[test]
fn fixed_fields_lie_where_the_rfc_draws_them() {
    let bytes = emitted(&with_options(TcpOptions::NONE));
    #[rustfmt::skip]
    assert_eq!(bytes, [
        0x12, 0x34, 0, 80,
        0xa0, 0xa1, 0xa2, 0xa3,
        0xb0, 0xb1, 0xb2, 0xb3,
        0x50, 0x18, 0xc0, 0xc1,
        0, 0, 0xd0, 0xd1,
    ]);
    assert_eq!(
        TcpHeader::parse(&bytes),
        Ok((with_options(TcpOptions::NONE), 20))
    );
}

#[test]
fn options_go_out_as_linux_sends_them() {
    let mss = Some(1460);
    let window_scale = Some(WindowScale::new(7));
    let timestamps = Some(TIMESTAMPS);
    let none = TcpOptions::NONE;
    let stamps = [1, 2, 3, 4, 5, 6, 7, 8];
    let list = |options| emitted(&with_options(options))[20..].to_vec();

    let syn = TcpOptions {
        mss,
        window_scale,
        sack_permitted: true,
        timestamps,
        ..none
    };
    let after_mss = [&[4, 2, 8, 10][..], &stamps, &[1, 3, 3, 7]].concat();
    assert_eq!(list(syn), [&[2, 4, 0x05, 0xb4][..], &after_mss].concat());
    assert_eq!(
        list(TcpOptions { timestamps, ..none }),
        [&[1, 1, 8, 10][..], &stamps].concat()
    );
    assert_eq!(
        list(TcpOptions {
            sack_permitted: true,
            ..none
        }),
        [1, 1, 4, 2]
    );
    assert_eq!(
        list(TcpOptions {
            window_scale,
            ..none
        }),
        [1, 3, 3, 7]
    );
    let sack = [block(1, 2)].into_iter().collect();
    assert_eq!(
        list(TcpOptions { sack, ..none }),
        [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]
    );
}

#[test]
fn sack_blocks_that_do_not_fit_are_left_out() {
    let sack: SackBlocks = (1..=4).map(|n| block(n, n + 10)).collect();
    let fits = |options: TcpOptions| {
        let bytes = emitted(&with_options(TcpOptions { sack, ..options }));
        let (header, _) = TcpHeader::parse(&bytes).unwrap();
        assert!(
            header
                .options
                .sack
                .iter()
                .eq(sack.iter().take(header.options.sack.len()))
        );
        header.options.sack.len()
    };
    let none = TcpOptions::NONE;
    let timestamps = Some(TIMESTAMPS);
    assert_eq!(fits(none), 4);
    assert_eq!(fits(TcpOptions { timestamps, ..none }), 3);
    assert_eq!(
        fits(TcpOptions {
            timestamps,
            mss: Some(1),
            window_scale: Some(WindowScale::MAX),
            ..none
        }),
        2
    );
}

#[test]
fn sack_blocks_are_a_short_list() {
    let mut blocks = SackBlocks::new();
    assert!(blocks.is_empty());
    for n in 0..4 {
        assert!(blocks.push(block(n, n + 1)));
    }
    assert!(!blocks.push(block(9, 10)), "a fifth has no room");
    assert_eq!(blocks.len(), 4);
    assert_eq!(
        blocks.iter().map(|b| b.start.0).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    assert_eq!(blocks, (0..9).map(|n| block(n, n + 1)).collect());
    assert_ne!(blocks, SackBlocks::new());
}

/// The list of nearly every SYN is read at once. With another byte anywhere it says what it says with an end-of-list option behind it, with
/// which it is read option by option.
#[test]
fn the_usual_list_of_a_syn_is_read_as_all_others() {
    let usual = [
        2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7,
    ];
    let options = options_of(&usual);
    assert_eq!((options.mss, options.sack_permitted), (Some(1460), true));
    assert_eq!(options.window_scale, Some(WindowScale::new(7)));
    for at in 0..usual.len() {
        for byte in 0..=u8::MAX {
            let mut list = usual;
            list[at] = byte;
            let ended = [&list[..], &[0; 4]].concat();
            assert_eq!(options_of(&list), options_of(&ended), "{at} {byte}");
        }
    }
}

#[test]
fn a_malformed_option_ends_the_list_and_keeps_what_came_before() {
    let before = TcpOptions {
        mss: Some(1460),
        ..TcpOptions::NONE
    };
    // MSS, then a broken option, then a window scale that must not be seen.
    for broken in [[254, 0], [254, 1], [254, 200], [8, 0], [3, 1], [8, 40]] {
        let list = [&[2, 4, 0x05, 0xb4][..], &broken, &[1, 3, 3, 7, 0, 0]].concat();
        assert_eq!(options_of(&list), before, "{broken:?}");
    }
    // A kind without a length at the very end.
    assert_eq!(options_of(&[2, 4, 0x05, 0xb4, 1, 1, 1, 3]), before);
    // Nothing behind the end of the list counts.
    assert_eq!(options_of(&[2, 4, 0x05, 0xb4, 0, 3, 3, 7]), before);
}

#[test]
fn options_of_a_wrong_length_and_unknown_ones_are_skipped() {
    let skipped: [&[u8]; 6] = [
        &[2, 3, 9, 1, 1],
        &[3, 4, 1, 2, 1],
        &[4, 3, 1, 1, 1],
        &[5, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        &[8, 9, 1, 2, 3, 4, 5, 6, 7],
        &[30, 5, 1, 2, 3],
    ];
    let scale = ([3, 3, 7].as_slice(), Some(WindowScale::new(7)), false);
    let permitted = ([4, 2].as_slice(), None, true);
    for option in skipped {
        // Behind it, an option of another kind.
        let (next, window_scale, sack_permitted) = if option[0] == 3 { permitted } else { scale };
        let mut list = [option, next].concat();
        list.resize(list.len().next_multiple_of(4), 0);
        let expected = TcpOptions {
            window_scale,
            sack_permitted,
            ..TcpOptions::NONE
        };
        assert_eq!(options_of(&list), expected, "{option:?}");
    }
}

#[test]
fn a_window_scale_above_14_is_14() {
    for (shift, taken) in [(0, 0), (13, 13), (14, 14), (15, 14), (255, 14)] {
        let scale = options_of(&[3, 3, shift, 0]).window_scale;
        assert_eq!(scale.map(WindowScale::shift), Some(taken), "{shift}");
    }
}

#[test]
fn the_fast_path_and_the_slow_one_read_the_same_timestamps() {
    let stamps = [1, 2, 3, 4, 5, 6, 7, 8];
    let expected = TcpOptions {
        timestamps: Some(TIMESTAMPS),
        ..TcpOptions::NONE
    };
    assert_eq!(
        options_of(&[&[1, 1, 8, 10][..], &stamps].concat()),
        expected
    );
    assert_eq!(
        options_of(&[&[8, 10][..], &stamps, &[1, 1]].concat()),
        expected
    );
    assert_eq!(
        options_of(&[&[1, 1, 8, 10][..], &stamps, &[1, 1, 1, 1]].concat()),
        expected
    );
}

#[test]
fn header_errors() {
    let bytes = emitted(&with_options(TcpOptions {
        timestamps: Some(TIMESTAMPS),
        ..TcpOptions::NONE
    }));
    for len in 0..bytes.len() {
        assert_eq!(
            TcpHeader::parse(&bytes[..len]),
            Err(ParseError::Truncated),
            "{len}"
        );
    }
    for words in 0..5 {
        let mut bytes = bytes.clone();
        bytes[12] = words << 4;
        assert_eq!(
            TcpHeader::parse(&bytes),
            Err(ParseError::BadLength),
            "{words}"
        );
    }
}

#[test]
fn reserved_bits_are_ignored() {
    let mut bytes = emitted(&with_options(TcpOptions::NONE));
    bytes[12] |= 0x0e;
    assert_eq!(
        TcpHeader::parse(&bytes).unwrap().0,
        with_options(TcpOptions::NONE)
    );
    bytes[12] |= 0x01;
    assert!(
        TcpHeader::parse(&bytes)
            .unwrap()
            .0
            .flags
            .contains(TcpFlags::AE)
    );
}

#[test]
fn flags_are_a_set() {
    let mut flags = TcpFlags::SYN | TcpFlags::ACK;
    assert!(flags.contains(TcpFlags::SYN) && flags.contains(TcpFlags::SYN | TcpFlags::ACK));
    assert!(!flags.contains(TcpFlags::SYN | TcpFlags::FIN));
    assert!(flags.intersects(TcpFlags::SYN | TcpFlags::FIN));
    assert!(!flags.intersects(TcpFlags::FIN | TcpFlags::RST));
    flags.remove(TcpFlags::SYN);
    assert_eq!(flags, TcpFlags::ACK);
    flags |= TcpFlags::AE;
    assert_eq!(
        (flags.to_string().as_str(), flags.bits()),
        ("ACK|AE", 0x110)
    );
    assert_eq!(flags & TcpFlags::AE, TcpFlags::AE);
    assert_eq!(flags.difference(TcpFlags::AE), TcpFlags::ACK);
    assert!(TcpFlags::EMPTY.is_empty() && TcpFlags::EMPTY.to_string() == "-");
    assert_eq!(TcpFlags::from_bits(0xffff).bits(), 0x1ff);
}

#[test]
fn windows_are_scaled() {
    let scale = WindowScale::new(14);
    assert_eq!(UnscaledWindow(0xffff).scaled_by(scale), 0x3fff_c000);
    assert_eq!(
        UnscaledWindow::from_bytes(u32::MAX, scale),
        UnscaledWindow(0xffff)
    );
    assert_eq!(UnscaledWindow::from_bytes(16_383, scale), UnscaledWindow(0));
    assert_eq!(
        UnscaledWindow::from_bytes(65_535, WindowScale::default()),
        UnscaledWindow(65_535)
    );
    assert_eq!(
        UnscaledWindow::from_bytes(65_536, WindowScale::default()),
        UnscaledWindow(65_535)
    );
}

#[test]
fn syn_and_fin_take_a_sequence_number_each() {
    let with = |flags| TcpHeader {
        flags,
        ..with_options(TcpOptions::NONE)
    };
    assert_eq!(with(TcpFlags::ACK).segment_len(10), 10);
    assert_eq!(with(TcpFlags::SYN).segment_len(10), 11);
    assert_eq!(with(TcpFlags::SYN | TcpFlags::FIN).segment_len(0), 2);
}

#[test]
fn a_quoted_segment_needs_eight_bytes() {
    let bytes = emitted(&with_options(TcpOptions::NONE));
    let expected = QuotedSegment {
        src_port: 0x1234,
        dst_port: 80,
        seq: SeqNumber(0xa0a1_a2a3),
    };
    assert_eq!(QuotedSegment::parse(&bytes[..8]), Ok(expected));
    assert_eq!(
        QuotedSegment::parse(&bytes[..7]),
        Err(ParseError::Truncated)
    );
}

#[test]
fn a_flipped_bit_fails_the_checksum() {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut segment = emitted(&with_options(TcpOptions::NONE));
    segment.extend(b"odd");
    let mut covered = [src.octets(), dst.octets()].concat();
    covered.extend([0, 6, 0, segment.len() as u8]);
    covered.extend(&segment);
    let checksum = crate::checksum::naive_checksum(&covered);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    assert!(verify_checksum_v4(src, dst, &segment));
    for bit in 0..segment.len() * 8 {
        segment[bit / 8] ^= 1 << (bit % 8);
        assert!(!verify_checksum_v4(src, dst, &segment), "bit {bit}");
        segment[bit / 8] ^= 1 << (bit % 8);
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_emitted_is_parsed(header in tcp(), payload in 0..10usize) {
        let mut bytes = emitted(&header);
        prop_assert!(bytes.len().is_multiple_of(4) && (20..=60).contains(&bytes.len()));
        let header_len = bytes.len();
        bytes.resize(header_len + payload, 0x55);
        let fixed = TcpHeader { options: TcpOptions { sack: SackBlocks::new(), ..header.options }, ..header }.len();
        let room = (60 - fixed).saturating_sub(4) / 8;
        let sack = header.options.sack.iter().take(room).collect();
        let expected = TcpHeader { options: TcpOptions { sack, ..header.options }, ..header };
        prop_assert_eq!(TcpHeader::parse(&bytes), Ok((expected, header_len)));
    }

    /// What was understood of an odd list goes out in our layout and is understood the same, but
    /// for SACK blocks that our layout has no room for.
    #[test]
    fn parsing_is_stable(segment in segment_of_odd_options()) {
        let (mut header, _) = TcpHeader::parse(&segment).unwrap();
        header.options.sack = header.options.sack.iter().take(2).collect();
        let bytes = emitted(&header);
        prop_assert_eq!(TcpHeader::parse(&bytes), Ok((header, bytes.len())));
    }
}

#[test]
fn fast_open_cookies_have_even_lengths_between_4_and_16() {
    for len in 0..=20usize {
        let bytes: Vec<u8> = (1..=len as u8).collect();
        let good = len == 0 || ((4..=16).contains(&len) && len % 2 == 0);
        let cookie = FastOpenCookie::new(&bytes);
        assert_eq!(cookie.is_some(), good, "{len}");
        // RFC 7413 section 4.1.1: "Options with invalid Length values … MUST be ignored".
        let mut list = vec![34, len as u8 + 2];
        list.extend(&bytes);
        list.resize(list.len().next_multiple_of(4), 1);
        assert_eq!(options_of(&list).fast_open, cookie, "{len}");
        let Some(cookie) = cookie else { continue };
        assert_eq!(
            (cookie.as_slice(), cookie.is_request()),
            (&bytes[..], len == 0)
        );
        let options = TcpOptions {
            mss: Some(1460),
            fast_open: Some(cookie),
            ..TcpOptions::NONE
        };
        let header = with_options(options);
        assert_eq!(header.len(), 20 + 4 + (len + 2).next_multiple_of(4));
        let segment = emitted(&header);
        let (parsed, _) = TcpHeader::parse(&segment).unwrap();
        assert_eq!(parsed.options, options);
    }
}
