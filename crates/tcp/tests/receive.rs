//! Receiving: order, duplicates, windows, silly windows, acknowledgments, SACK blocks, timestamps.

mod common;

use common::script::*;
use sidecore_tcp::{Config, DropReason, RangePool, RxRange, State};

fn accepted(t: &Script) -> RxRange {
    t.last.accept.expect("bytes to store")
}

fn range(payload_offset: u32, len: u32, stream_offset: u64, in_order: bool) -> RxRange {
    RxRange {
        payload_offset,
        len,
        stream_offset,
        in_order,
    }
}

#[test]
fn in_order_data_is_acknowledged_every_second_segment_or_after_a_delay() {
    let mut t = Script::established();
    t.recv(data(0, 1000));
    assert_eq!(accepted(&t), range(0, 1000, 0, true));
    t.sends([]);
    t.recv(data(1000, 1000));
    t.sends([ack(2000).seq(0)]);
    t.no_timer();
    // The first segments are acknowledged quickly, unless data carries the ACK.
    t.recv(data(2000, 1000));
    t.sends([]);
    assert_eq!(t.fire(), ms(1));
    t.sends([ack(3000)]);
    t.connection.set_receive_limit(100_000);
    t.sends([ack(3000)]);
    for number in 0..40 {
        t.recv(data(3000 + number * 100, 100));
        t.fire();
        t.sends([ack(3100 + number * 100)]);
    }
    t.recv(data(7000, 100));
    assert_eq!(t.fire(), ms(40));
    t.sends([ack(7100)]);
}

#[test]
fn an_ack_rides_on_data() {
    let mut t = Script::established();
    t.recv(data(0, 64));
    t.write(64);
    t.sends([data(0, 64).ack(64)]);
    // The delayed ACK is done with; what remains is the retransmission timer.
    assert!(t.fire() >= ms(200));
    t.sends([data(0, 64).ack(64)]);
}

#[test]
fn without_delayed_acks() {
    let mut t = Script::established();
    t.connection.set_delayed_ack(ms(0));
    t.recv(data(0, 1));
    t.sends([ack(1)]);
}

#[test]
fn half_a_window_is_acknowledged_at_once() {
    // Where the window is smaller than two segments, as between two ends on one machine.
    let mut t = Script::accept(
        &Config {
            mss: 60_000,
            ..plain()
        },
        syn(),
    );
    t.connection.set_receive_limit(60_000);
    t.sends([syn_ack().mss(Some(60_000)).window(60_000)]);
    t.recv(ack(0));
    t.recv(data(0, 29_000));
    t.sends([]);
    t.recv(data(29_000, 1000));
    t.sends([ack(30_000).window(30_000)]);
}

#[test]
fn a_coalesced_segment_is_acknowledged_at_once() {
    let mut t = Script::established();
    t.connection.set_receive_limit(1 << 20);
    t.sends([ack(0).window(65_535)]);
    t.recv(data(0, 60_000));
    assert_eq!(accepted(&t), range(0, 60_000, 0, true));
    t.sends([ack(60_000)]);
    assert_eq!(t.connection.info().receive_mss, MSS);
}

#[test]
fn out_of_order_data_is_held_and_acknowledged_at_once() {
    let mut t = Script::established();
    t.recv(data(1000, 1000));
    assert_eq!(accepted(&t), range(0, 1000, 1000, false));
    assert_eq!(t.connection.receive_next(), 0);
    t.sends([ack(0)]);
    t.recv(data(3000, 1000));
    assert_eq!(accepted(&t), range(0, 1000, 3000, false));
    t.sends([ack(0)]);
    // Fills the first gap: "immediate ACK when the incoming segment fills in all or part of a gap".
    t.recv(data(0, 1000));
    assert_eq!(accepted(&t), range(0, 1000, 0, true));
    assert_eq!(t.connection.receive_next(), 2000);
    t.sends([ack(2000)]);
    t.recv(data(2000, 1000));
    assert_eq!(t.connection.receive_next(), 4000);
    t.sends([ack(4000)]);
    assert_eq!(t.ranges.available(), t.ranges.capacity());
}

#[test]
fn overlaps_are_stored_once() {
    let mut t = Script::established();
    t.recv(data(1000, 1000));
    // Its end is held.
    t.recv(data(500, 1000));
    assert_eq!(accepted(&t), range(0, 500, 500, false));
    // Its start is held.
    t.recv(data(1500, 1000));
    assert_eq!(accepted(&t), range(500, 500, 2000, false));
    // All of it is held.
    let outcome = t.recv(data(600, 100));
    assert_eq!(outcome.dropped, Some(DropReason::Duplicate));
    // In order, its end is held.
    t.recv(data(0, 700));
    assert_eq!(accepted(&t), range(0, 500, 0, true));
    assert_eq!(t.connection.receive_next(), 2500);
    // Its start was received.
    t.recv(data(2000, 1000));
    assert_eq!(accepted(&t), range(500, 500, 2500, true));
    t.sends([ack(3000)]);
}

#[test]
fn data_around_what_is_held_comes_as_one_piece() {
    let mut t = Script::established();
    t.recv(data(1000, 100));
    t.recv(data(500, 1500));
    assert_eq!(accepted(&t), range(0, 1500, 500, false));
    t.recv(data(0, 3000));
    assert_eq!(accepted(&t), range(0, 3000, 0, true));
    assert_eq!(t.connection.receive_next(), 3000);
}

#[test]
fn no_room_for_out_of_order_data() {
    let mut t = Script::established();
    t.room = false;
    let outcome = t.recv(data(1000, 1000));
    assert_eq!(outcome.dropped, Some(DropReason::NoRoom));
    assert!(outcome.accept.is_none());
    t.sends([ack(0)]);
    // In-order data has its room by the receive limit.
    assert!(t.recv(data(0, 1000)).accept.is_some());
}

#[test]
fn ranges_of_one_connection_are_limited() {
    let mut t = Script::established();
    t.ranges = RangePool::new(2000);
    t.connection.set_receive_limit(60_000);
    t.sends([ack(0)]);
    for number in 0..256 {
        assert!(t.recv(data(10 + number * 20, 10)).accept.is_some());
    }
    let outcome = t.recv(data(10 + 256 * 20, 10));
    assert_eq!(outcome.dropped, Some(DropReason::NoRanges));
    // What needs no range of its own is still taken.
    assert!(t.recv(data(10 + 255 * 20, 20)).accept.is_some());
    t.sends([ack(0)]);
    assert_eq!(t.connection.info().out_of_order_ranges, 256);
    t.connection.release(&mut t.ranges);
    assert_eq!(t.ranges.available(), 2000);
}

// ---- windows

#[test]
fn the_window_closes_and_opens() {
    let mut t = Script::established();
    t.recv(data(0, 10_000));
    t.sends([ack(10_000).window(0)]);
    // A probe of one byte finds no room.
    let outcome = t.recv(data(10_000, 1));
    assert_eq!(outcome.dropped, Some(DropReason::OutOfWindow));
    t.sends([ack(10_000).window(0)]);
    // Silly window avoidance: 999 bytes of room are not advertised, a segment is.
    t.connection.set_receive_limit(10_999);
    t.sends([]);
    t.connection.set_receive_limit(11_000);
    t.sends([ack(10_000).window(1000)]);
}

#[test]
fn a_window_update_waits_for_two_segments_and_a_reason() {
    let mut t = Script::established();
    t.recv(data(0, 5000));
    t.sends([ack(5000).window(5000)]);
    // 40 % is left: a quarter of the buffer and two segments make an update worth a segment.
    t.connection.set_receive_limit(11_500);
    t.sends([]);
    t.connection.set_receive_limit(13_000);
    t.sends([ack(5000).window(8000)]);
    // On a segment that goes out anyway, one segment of room is enough.
    t.connection.set_receive_limit(13_900);
    t.recv(data(5000, 10));
    t.write(1);
    t.sends([data(0, 1).ack(5010).window(7990)]);
    t.connection.set_receive_limit(14_000);
    t.recv(data(5010, 10));
    t.write(2);
    t.sends([data(1, 1).ack(5020).window(8980)]);
}

#[test]
fn the_right_edge_never_moves_left() {
    let mut t = Script::established();
    t.connection.set_receive_limit(500);
    t.recv(data(0, 1000));
    t.fire();
    t.sends([ack(1000).window(9000)]);
    assert_eq!(t.connection.receive_right_edge(), 10_000);
}

#[test]
fn a_small_buffer_opens_by_half_of_itself() {
    // RFC 9293 section 3.8.6.2.2: min(Fr * RCV.BUFF, Eff.snd.MSS).
    let mut t = Script::accept(&plain(), syn());
    let mut small = sidecore_tcp::Connection::accept(
        START,
        &plain(),
        ISS,
        &sidecore_wire::TcpHeader {
            seq: IRS,
            flags: sidecore_wire::TcpFlags::SYN,
            ..Default::default()
        },
    );
    small.set_receive_limit(400);
    t.connection = small;
    t.sends([syn_ack().window(400)]);
    t.recv(ack(0));
    t.recv(data(0, 400));
    t.sends([ack(400).window(0)]);
    t.connection.set_receive_limit(599);
    t.sends([]);
    t.connection.set_receive_limit(600);
    t.sends([ack(400).window(200)]);
}

#[test]
fn a_fin_right_after_a_closed_window() {
    let mut t = Script::accept(&plain(), syn());
    t.sends([syn_ack()]);
    t.recv(ack(0));
    t.recv(data(0, 10_000));
    t.sends([ack(10_000).window(0)]);
    assert!(t.recv(fin(10_000)).fin);
    t.sends([ack(10_001).window(0)]);
    // And without any buffer.
    let header = sidecore_wire::TcpHeader {
        seq: IRS,
        flags: sidecore_wire::TcpFlags::SYN,
        ..Default::default()
    };
    t.connection = sidecore_tcp::Connection::accept(START, &plain(), ISS, &header);
    t.sends([syn_ack().window(0)]);
    t.recv(ack(0));
    assert!(t.recv(fin(0)).fin);
    t.sends([ack(1).window(0)]);
}

#[test]
fn scaled_windows_keep_their_edge() {
    let config = Config {
        window_scale: Some(sidecore_wire::WindowScale::new(7)),
        ..plain()
    };
    let mut t = Script::accept(&config, syn().scale(0));
    t.connection.set_receive_limit(1 << 20);
    t.sends([syn_ack().scale(7).window(65_535)]);
    t.recv(ack(0));
    t.write(10);
    // The first unscaled window was not all that there is; the next segment says so.
    t.sends([data(0, 10).window(8192)]);
    assert_eq!(t.connection.receive_right_edge(), 1 << 20);
    // 100 bytes are not a unit: the edge stays, as there is no room beyond it, or moves right by the rest of the unit.
    t.recv(data(0, 100));
    t.fire();
    t.sends([ack(100).window(8191)]);
    assert_eq!(t.connection.receive_right_edge(), 1 << 20);
    t.connection.set_receive_limit((1 << 20) + 50);
    t.recv(data(100, 50));
    t.fire();
    t.sends([ack(150).window(8191)]);
    assert_eq!(t.connection.receive_right_edge(), 150 + 8191 * 128);
}

#[test]
fn an_ack_from_a_peer_that_has_filled_our_window_counts() {
    // Its SEG.SEQ is the right edge, as its data was lost.
    let mut t = Script::established();
    t.write(1000);
    t.sends([data(0, 1000)]);
    let outcome = t.recv(ack(1000).seq(10_000));
    assert!(outcome.acked);
    // So does one with data for which there is no room.
    let mut t = Script::established();
    t.recv(data(0, 10_000));
    t.write(1000);
    t.sends([data(0, 1000).ack(10_000).window(0)]);
    let outcome = t.recv(data(10_000, 500).ack(1000));
    assert!(outcome.acked);
    assert_eq!(outcome.dropped, Some(DropReason::OutOfWindow));
    t.sends([ack(10_000)]);
}

#[test]
fn the_hint_follows_the_rate() {
    let config = Config {
        window_scale: Some(sidecore_wire::WindowScale::new(7)),
        mss: 1460,
        ..plain()
    };
    let mut t = Script::connect(&config);
    t.sends([syn().mss(Some(1460)).scale(7)]);
    t.pass(ms(10));
    t.recv(syn_ack().scale(0));
    t.connection.set_receive_limit(10 << 20);
    t.sends([ack(0)]);
    let before = t.connection.receive_window_hint();
    // A megabyte in each round trip of 10 ms.
    for step in 0..100 {
        t.pass(ms(1));
        t.recv(data(step * 100_000, 100_000));
        t.connection
            .set_receive_limit((10 << 20) + (step as u64 + 1) * 100_000);
        t.sends([ack((step + 1) * 100_000)]);
    }
    let hint = t.connection.receive_window_hint();
    assert!(before < 100_000);
    assert!((2_000_000..2_500_000).contains(&hint), "{hint}");
}

#[test]
fn the_hint_knows_the_round_trip_of_a_peer_that_only_sends() {
    // The handshake took a millisecond, but what the peer sends answers ACKs of 50 ms ago.
    let config = Config {
        window_scale: Some(sidecore_wire::WindowScale::new(7)),
        timestamps: true,
        mss: 1460,
        ..plain()
    };
    let mut t = Script::connect(&config);
    t.poll_any();
    t.pass(ms(1));
    t.recv(syn_ack().scale(0).timestamps(1, NOW));
    t.connection.set_receive_limit(10 << 20);
    t.poll_any();
    for step in 0..200 {
        t.pass(ms(1));
        let echo = NOW + step as u32 - 49;
        t.recv(data(step * 10_000, 10_000).timestamps(step as u32 + 2, echo));
        t.connection
            .set_receive_limit((10 << 20) + (step as u64 + 1) * 10_000);
        t.poll_any();
    }
    let hint = t.connection.receive_window_hint();
    assert!((1_000_000..1_300_000).contains(&hint), "{hint}");
}

// ---- SACK blocks (RFC 2018 section 4, examples of section 7)

#[test]
fn sack_blocks_name_the_latest_first() {
    let mut t = Script::with_sack();
    t.recv(data(1000, 500));
    t.sends([ack(0).sack(&[(1000, 1500)])]);
    t.recv(data(1500, 500));
    t.sends([ack(0).sack(&[(1000, 2000)])]);
    t.recv(data(3000, 500));
    t.sends([ack(0).sack(&[(3000, 3500), (1000, 2000)])]);
    t.recv(data(5000, 500));
    t.sends([ack(0).sack(&[(5000, 5500), (3000, 3500), (1000, 2000)])]);
    t.recv(data(3500, 500));
    t.sends([ack(0).sack(&[(3000, 4000), (5000, 5500), (1000, 2000)])]);
    t.recv(data(7000, 100));
    t.recv(data(9000, 100));
    t.sends([ack(0).sack(&[(9000, 9100), (7000, 7100), (3000, 4000), (5000, 5500)])]);
    // The gap closes: what the cumulative ACK covers is gone.
    t.recv(data(0, 1000));
    t.sends([ack(2000).sack(&[(9000, 9100), (7000, 7100), (3000, 4000), (5000, 5500)])]);
    t.recv(data(2000, 1000));
    t.sends([ack(4000).sack(&[(9000, 9100), (7000, 7100), (5000, 5500)])]);
}

#[test]
fn three_blocks_with_timestamps() {
    let config = Config {
        sack: true,
        timestamps: true,
        ..plain()
    };
    let syn = syn().sack_permitted().timestamps(1, 0);
    let mut t = Script::established_with(&config, syn);
    for number in 1..=5 {
        t.recv(data(number * 1000, 500));
    }
    t.sends([ack(0).sack(&[(5000, 5500), (4000, 4500), (3000, 3500)])]);
    // Data shares the room with the blocks.
    t.recv(data(7000, 500));
    t.write(5000);
    t.tx.max_segments_bytes = 65_000;
    let segment = t
        .connection
        .poll_transmit(t.now, &t.tx, &mut t.ranges)
        .unwrap();
    assert_eq!(segment.header.options.sack.len(), 3);
    assert_eq!(segment.segment_size, MSS - 12 - 28);
    assert_eq!(segment.header.len(), 60);
}

#[test]
fn duplicates_are_reported_once() {
    // D-SACK, RFC 2883 section 4.1.
    let mut t = Script::with_sack();
    t.recv(data(0, 1000));
    t.fire();
    t.sends([ack(1000)]);
    t.recv(data(0, 500));
    t.sends([ack(1000).sack(&[(0, 500)])]);
    t.recv(data(2000, 500));
    t.sends([ack(1000).sack(&[(2000, 2500)])]);
    // Above the cumulative ACK: the duplicate first, then the block that it is part of.
    t.recv(data(2100, 100));
    t.sends([ack(1000).sack(&[(2100, 2200), (2000, 2500)])]);
    t.recv(data(500, 1500));
    t.sends([ack(2500).sack(&[(500, 1000)])]);
    t.recv(data(2500, 10));
    t.fire();
    t.sends([ack(2510)]);
}

#[test]
fn no_blocks_without_agreement() {
    let mut t = Script::established();
    t.recv(data(1000, 100));
    t.sends([ack(0)]);
    t.recv(data(1000, 100));
    t.sends([ack(0)]);
}

// ---- timestamps (RFC 7323)

fn with_timestamps() -> Script {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    Script::established_with(&config, syn().timestamps(1000, 0))
}

const NOW: u32 = 100_000;

#[test]
fn timestamps_are_echoed() {
    let mut t = with_timestamps();
    t.recv(data(0, 10).timestamps(1005, NOW));
    t.write(1);
    t.sends([data(0, 1).timestamps(NOW, 1005)]);
    // Of two segments that one ACK covers, the first is echoed (section 4.3: the delayed ACK must not look faster).
    t.recv(data(10, 10).timestamps(1006, NOW));
    t.recv(data(20, 10).timestamps(1007, NOW));
    t.write(2);
    t.pass(ms(3));
    t.sends([data(1, 1).timestamps(NOW + 3, 1006)]);
    // What comes after a gap is not echoed: the segment before the gap is.
    t.recv(data(100, 10).timestamps(1010, NOW));
    t.sends([ack(30).timestamps(NOW + 3, 1006)]);
    t.recv(data(30, 10).timestamps(1011, NOW));
    t.write(3);
    t.sends([data(2, 1).timestamps(NOW + 3, 1011)]);
}

#[test]
fn paws_drops_old_duplicates_and_acknowledges() {
    let mut t = with_timestamps();
    t.recv(data(0, 10).timestamps(2000, NOW));
    t.fire();
    t.sends([ack(10)]);
    let outcome = t.recv(data(10, 10).timestamps(1999, NOW));
    assert_eq!(outcome.dropped, Some(DropReason::Paws));
    assert!(outcome.accept.is_none());
    t.sends([ack(10)]);
    // Across the wrap of the clock.
    let outcome = t.recv(data(10, 10).timestamps(2000 + (1 << 31), NOW));
    assert_eq!(outcome.dropped, Some(DropReason::Paws));
    let outcome = t.recv(data(10, 10).timestamps(1999 + (1 << 31), NOW));
    assert_eq!(outcome.dropped, None);
}

#[test]
fn paws_lets_resets_through() {
    let mut t = with_timestamps();
    t.recv(data(0, 10).timestamps(2000, NOW));
    let outcome = t.recv(rst(10).timestamps(1, 0));
    assert!(outcome.closed.is_some());
}

#[test]
fn paws_forgets_after_24_days() {
    let mut t = with_timestamps();
    t.recv(data(0, 10).timestamps(2000, NOW));
    t.pass(secs(25 * 24 * 3600));
    let outcome = t.recv(data(10, 10).timestamps(5, NOW));
    assert_eq!(outcome.dropped, None);
    assert_eq!(t.connection.receive_next(), 20);
}

/// Ten bytes come without timestamps, on a connection that agreed on them.
fn without_timestamps(t: &mut Script) -> sidecore_tcp::Outcome {
    let header = sidecore_wire::TcpHeader {
        seq: IRS.add(1),
        ack: ISS.add(1),
        flags: sidecore_wire::TcpFlags::ACK,
        window: sidecore_wire::UnscaledWindow(WINDOW),
        ..Default::default()
    };
    t.connection
        .handle_segment(t.now, &header, 10, true, &mut t.ranges)
}

#[test]
fn rfc_7323_3_2_segments_without_the_agreed_timestamps_are_dropped_if_so_configured() {
    let config = Config {
        timestamps: true,
        require_timestamps: true,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().timestamps(1000, 0));
    let outcome = without_timestamps(&mut t);
    assert_eq!(outcome.dropped, Some(DropReason::Paws));
    t.sends([]);
    assert_eq!(t.state(), State::Established);
    t.recv(data(0, 10).timestamps(1001, NOW));
    assert_eq!(t.connection.receive_next(), 10);
}

#[test]
fn segments_without_the_agreed_timestamps_are_taken_by_default() {
    let mut t = with_timestamps();
    let outcome = without_timestamps(&mut t);
    assert_eq!(outcome.dropped, None);
    assert_eq!(outcome.accept.unwrap().len, 10);
    // TS.Recent is what it was, and PAWS goes on where there is a timestamp.
    t.fire();
    t.sends([ack(10).timestamps(NOW + 1, 1000)]);
    let outcome = t.recv(data(10, 10).timestamps(999, NOW));
    assert_eq!(outcome.dropped, Some(DropReason::Paws));
    t.sends([ack(10)]);
    let outcome = t.recv(data(10, 10).timestamps(1001, NOW));
    assert_eq!(outcome.dropped, None);
}

#[test]
fn quick_acks_go_out_at_once_if_so_configured() {
    let config = Config {
        quick_ack: true,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    for n in 0..16 {
        t.recv(data(n * 10, 10));
        t.sends([ack(n * 10 + 10)]);
    }
    t.recv(data(160, 10));
    t.sends([]);
    assert_eq!(t.fire(), ms(40));
    t.sends([ack(170)]);

    // Whoever asks for delayed ACKs gets them from the first on.
    for config in [config, plain()] {
        let mut t = Script::established_with(&config, syn());
        t.connection.set_delayed_ack(ms(30));
        t.recv(data(0, 10));
        t.sends([]);
        assert_eq!(t.fire(), ms(30));
    }
}

#[test]
fn timestamps_that_were_not_agreed_are_ignored() {
    let mut t = Script::established();
    t.recv(data(0, 10).timestamps(50, 0));
    let outcome = t.recv(data(10, 10).timestamps(40, 0));
    assert_eq!(outcome.dropped, None);
}
