//! A TCP segment of any bytes: no panic, offsets within bounds, and what was understood survives our own layout.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidecore_wire::{TcpFlags, TcpHeader};

fuzz_target!(|segment: &[u8]| {
    let Ok((header, offset)) = TcpHeader::parse(segment) else {
        return;
    };
    assert!((20..=60).contains(&offset) && offset <= segment.len());
    assert!(header.options.sack.len() <= 4);
    assert!(header.segment_len(0) <= 2);
    assert_eq!(header.flags, TcpFlags::from_bits(header.flags.bits()));

    let mut buf = [0xee; 60];
    let len = header.emit(&mut buf);
    assert_eq!(len, header.len());
    assert!(
        buf[len..].iter().all(|b| *b == 0xee),
        "wrote behind its end"
    );
    let (again, offset) = TcpHeader::parse(&buf).expect("what is emitted is valid");
    assert_eq!(offset, len);
    // Our layout pads options to words, so a list packed more tightly may have a block too many for it.
    let mut expected = header;
    expected.options.sack = header
        .options
        .sack
        .iter()
        .take(again.options.sack.len())
        .collect();
    assert_eq!(again, expected);
    let left_out = header.options.sack.len() - again.options.sack.len();
    // The first block has the option's own four bytes, padding included, before it.
    let needed = if again.options.sack.is_empty() { 12 } else { 8 };
    assert!(
        left_out == 0 || len + needed > 60,
        "a block that had room was left out"
    );
});
