use core::time::Duration;

use proptest::prelude::*;
use sidecore_wire::ipv4::PROTOCOL_UDP;

use super::*;

const NOW: Instant = Instant::from_secs(1);

fn reassembly(datagrams: usize) -> Reassembly<Key4> {
    Reassembly::new(ReassemblyConfig {
        datagrams,
        timeout: Duration::from_secs(30),
    })
}

fn fragment(ident: u16, offset: usize, more: bool) -> Ipv4Header {
    Ipv4Header {
        ident,
        fragment_offset: offset as u16,
        more_fragments: more,
        dont_fragment: false,
        ..Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), PROTOCOL_UDP)
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn feed(r: &mut Reassembly<Key4>, now: Instant, header: &Ipv4Header, payload: &[u8]) -> Progress {
    let part = Part {
        offset: usize::from(header.fragment_offset),
        more: header.more_fragments,
        protocol: header.protocol,
        ecn: header.dscp_ecn,
    };
    r.add(now, Key4::of(header), &part, payload)
}

fn add(r: &mut Reassembly<Key4>, data: &[u8], at: Range<usize>) -> Progress {
    let more = at.end != data.len();
    feed(r, NOW, &fragment(1, at.start, more), &data[at])
}

fn taken(r: &mut Reassembly<Key4>, buffer: usize) -> Vec<u8> {
    let (bytes, len) = r.take(buffer);
    let copy = bytes[..len].to_vec();
    r.give_back(buffer, bytes);
    copy
}

proptest! {
    #![proptest_config(sidecore_testkit::property_config(256))]

    /// Any cut, any order, exact duplicates: the whole, once.
    #[test]
    fn puts_together_what_was_cut(
        len in 1..20_000usize,
        cuts in prop::collection::vec(1..2500usize, 0..12),
        order in any::<u64>(),
        twice in any::<prop::sample::Index>(),
    ) {
        let data = content(len);
        let mut edges: Vec<usize> = cuts.iter().map(|c| c * BLOCK).filter(|c| *c < len).collect();
        edges.extend([0, len]);
        edges.sort_unstable();
        edges.dedup();
        let mut pieces: Vec<_> = edges.windows(2).map(|w| w[0]..w[1]).collect();
        let mut state = order;
        for i in (1..pieces.len()).rev() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            pieces.swap(i, (state >> 33) as usize % (i + 1));
        }
        let mut r = reassembly(2);
        let twice = twice.index(pieces.len());
        let last = pieces.len() - 1;
        for (i, piece) in pieces.into_iter().enumerate() {
            if i == twice && i != last {
                prop_assert_eq!(add(&mut r, &data, piece.clone()), Progress::Incomplete);
            }
            let progress = add(&mut r, &data, piece);
            if i < last {
                prop_assert_eq!(progress, Progress::Incomplete);
            } else {
                let Progress::Complete(buffer) = progress else { panic!("{progress:?}") };
                prop_assert_eq!(taken(&mut r, buffer), data.clone());
            }
        }
        prop_assert_eq!(r.next_timeout(), None);
    }

    #[test]
    fn arbitrary_fragments_do_no_harm(
        fragments in prop::collection::vec((0..4u16, 0..8192u16, any::<bool>(), 0..3000usize), 0..60),
    ) {
        let mut r = reassembly(3);
        for (ident, offset, more, len) in fragments {
            let header = fragment(ident, usize::from(offset) * BLOCK, more);
            if let Progress::Complete(buffer) = feed(&mut r, NOW, &header, &content(len)) {
                let whole = taken(&mut r, buffer);
                prop_assert!(!whole.is_empty() && whole.len() <= MAX_PAYLOAD);
            }
        }
    }
}

#[test]
fn overlap_drops_all() {
    let data = content(64);
    let mut r = reassembly(4);
    assert_eq!(add(&mut r, &data, 0..32), Progress::Incomplete);
    assert_eq!(add(&mut r, &data, 24..48), Progress::Malformed);
    // The rest does not complete it any more.
    assert_eq!(add(&mut r, &data, 32..64), Progress::Incomplete);
    let Progress::Complete(_) = add(&mut r, &data, 0..32) else {
        panic!("a fresh start completes");
    };
}

#[test]
fn same_place_other_bytes_drops_all() {
    let mut r = reassembly(4);
    assert_eq!(add(&mut r, &content(64), 0..32), Progress::Incomplete);
    assert_eq!(add(&mut r, &[9; 64], 0..32), Progress::Malformed);
    assert_eq!(r.next_timeout(), None);
}

#[test]
fn contradictory_ends_drop_all() {
    let data = content(128);
    let mut r = reassembly(4);
    assert_eq!(add(&mut r, &data[..64], 32..64), Progress::Incomplete);
    assert_eq!(add(&mut r, &data, 64..128), Progress::Malformed);
    assert_eq!(add(&mut r, &data, 64..96), Progress::Incomplete);
    assert_eq!(add(&mut r, &data[..64], 32..64), Progress::Malformed);
}

#[test]
fn ragged_empty_and_too_long_are_refused() {
    let mut r = reassembly(4);
    assert_eq!(
        feed(&mut r, NOW, &fragment(1, 0, true), &content(63)),
        Progress::Malformed
    );
    assert_eq!(
        feed(&mut r, NOW, &fragment(1, 8, false), &[]),
        Progress::Malformed
    );
    assert_eq!(
        feed(&mut r, NOW, &fragment(1, 65528, false), &content(8)),
        Progress::Malformed
    );
    assert_eq!(
        feed(&mut reassembly(0), NOW, &fragment(1, 0, true), &content(8)),
        Progress::Malformed
    );
}

#[test]
fn time_runs_out_and_the_oldest_gives_way() {
    let mut r = reassembly(2);
    let later = NOW + Duration::from_secs(10);
    feed(&mut r, NOW, &fragment(1, 0, true), &content(8));
    feed(&mut r, later, &fragment(2, 0, true), &content(8));
    assert_eq!(r.next_timeout(), Some(NOW + Duration::from_secs(30)));
    feed(&mut r, later, &fragment(3, 0, true), &content(8));
    assert_eq!(r.evicted, 1);
    // 1 is gone, 2 is there.
    let Progress::Complete(buffer) = feed(&mut r, later, &fragment(2, 8, false), &content(5))
    else {
        panic!("2 was evicted");
    };
    assert_eq!(taken(&mut r, buffer).len(), 13);
    assert_eq!(r.expire(later + Duration::from_secs(29)), 0);
    assert_eq!(r.expire(later + Duration::from_secs(30)), 1);
    assert_eq!(r.next_timeout(), None);
}
