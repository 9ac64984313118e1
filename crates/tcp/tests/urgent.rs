//! Urgent data (RFC 9293 section 3.8.5, RFC 6093): a mark in the stream, both ways.

mod common;

use std::time::Duration;

use common::script::*;
use sidecore_tcp::{Config, Notice, TxLimits};
use sidecore_wire::TcpFlags;

const URGENT: Option<Notice> = Some(Notice::Urgent);

fn sack() -> Config {
    Config {
        sack: true,
        ..plain()
    }
}

#[test]
fn urgent_data_is_in_line_and_told_of() {
    let mut t = Script::established();
    let outcome = t.recv(data(0, 10).urgent(4));
    assert_eq!(outcome.notice, URGENT);
    assert_eq!(outcome.accept.unwrap().len, 10);
    assert_eq!(t.connection.urgent_receive_end(), Some(4));
    assert_eq!(t.connection.receive_next(), 10);
}

#[test]
fn the_pointer_counts_from_the_segments_first_octet_and_points_after_the_urgent_data() {
    let mut t = Script::established();
    t.recv(data(0, 100));
    // The first half was received before.
    t.recv(data(50, 100).urgent(70));
    assert_eq!(t.connection.urgent_receive_end(), Some(120));
    // Without URG the pointer means nothing.
    let mut plain = data(150, 10).urgent(500);
    plain = plain.flags(TcpFlags::ACK);
    assert_eq!(t.recv(plain).notice, None);
    assert_eq!(t.connection.urgent_receive_end(), Some(120));
}

#[test]
fn more_urgent_data_is_told_once_for_each_time_that_the_mark_moves() {
    let mut t = Script::established();
    assert_eq!(t.recv(ack(0).urgent(2000)).notice, URGENT);
    assert_eq!(t.recv(data(0, 500).urgent(2000)).notice, None);
    assert_eq!(t.recv(data(500, 500).urgent(1500)).notice, None);
    assert_eq!(t.recv(data(1000, 500).urgent(1500)).notice, URGENT);
    assert_eq!(t.connection.urgent_receive_end(), Some(2500));
    // An older segment, overtaken: the mark does not go back.
    assert_eq!(t.recv(data(500, 500).urgent(1000)).notice, None);
    assert_eq!(t.connection.urgent_receive_end(), Some(2500));
    // All of it has come; what points there is no news, and a new mark is.
    t.recv(data(1500, 1000).urgent(1000));
    assert_eq!(t.recv(data(2500, 10).urgent(0)).notice, None);
    assert_eq!(t.recv(data(2510, 10).urgent(1)).notice, URGENT);
    assert_eq!(t.connection.urgent_receive_end(), Some(2511));
}

#[test]
fn a_pointer_into_what_was_received_is_no_news() {
    let mut t = Script::established();
    t.recv(data(0, 100));
    assert_eq!(t.recv(data(50, 50).urgent(50)).notice, None);
    assert_eq!(t.connection.urgent_receive_end(), None);
}

#[test]
fn urgent_data_out_of_order_is_told_at_once() {
    let mut t = Script::with_sack();
    assert_eq!(t.recv(data(1000, 1000).urgent(300)).notice, URGENT);
    assert_eq!(t.connection.urgent_receive_end(), Some(1300));
    assert_eq!(t.connection.receive_next(), 0);
}

#[test]
fn a_closed_window_keeps_no_urgent_pointer_back() {
    let mut t = Script::established();
    t.recv(data(0, 10_000));
    t.poll_any();
    assert_eq!(t.connection.info().receive_window, 0);
    let outcome = t.recv(data(10_000, 1).urgent(1));
    assert_eq!(outcome.notice, URGENT);
    assert_eq!(outcome.accept, None);
    assert_eq!(t.recv(ack(0).seq(10_000).urgent(9)).notice, URGENT);
    assert_eq!(t.connection.urgent_receive_end(), Some(10_009));
}

#[test]
fn urg_counts_on_good_segments_only() {
    let mut t = Script::established();
    // An ACK of what was never sent; beyond the window; after the FIN.
    assert_eq!(t.recv(ack(5000).urgent(10)).notice, None);
    assert_eq!(t.recv(ack(0).seq(30_000).urgent(10)).notice, None);
    t.recv(fin(0).ack(0));
    assert_eq!(t.recv(ack(0).seq(1).urgent(10)).notice, None);
    assert_eq!(t.connection.urgent_receive_end(), None);
}

#[test]
fn every_segment_before_the_mark_has_urg_and_its_own_pointer() {
    let mut t = Script::established();
    t.connection.set_urgent(2500);
    t.write(3500);
    t.sends([
        data(0, 1000).urgent(2500),
        data(1000, 1000).urgent(1500),
        data(2000, 1000).urgent(500),
        data(3000, 500),
    ]);
    assert_eq!(t.connection.urgent_send_end(), Some(2500));
    // An ACK of our own meanwhile: SND.NXT lies after the mark.
    t.recv(data(0, 10_000 / 2));
    t.sends([ack(5000).seq(3500)]);
    t.recv(ack(3500));
    assert_eq!(t.connection.urgent_send_end(), None);
    t.write(4000);
    t.sends([data(3500, 500)]);
}

#[test]
fn no_super_segment_while_there_is_urgent_data() {
    let mut t = Script::established();
    t.tx = TxLimits {
        max_segments_bytes: 60_000,
    };
    t.write(2000);
    t.sends([data(0, 2000)]);
    t.connection.set_urgent(4000);
    t.write(6000);
    t.sends([
        data(2000, 1000).urgent(2000),
        data(3000, 1000).urgent(1000),
        data(4000, 1000),
        data(5000, 1000),
    ]);
    t.recv(ack(6000));
    t.write(9000);
    t.sends([data(6000, 3000)]);
}

#[test]
fn sack_blocks_do_not_cut_an_urgent_segment_in_two() {
    let mut t = Script::with_sack();
    t.recv(data(1000, 1000));
    t.connection.set_urgent(1000);
    t.write(1000);
    t.sends([
        data(0, 1000).urgent(1000),
        ack(0).seq(1000).sack(&[(1000, 2000)]),
    ]);
}

#[test]
fn a_retransmission_tells_of_the_mark_again() {
    let mut t = Script::established_with(&sack(), syn().sack_permitted());
    t.connection.set_urgent(1200);
    t.write(1200);
    t.sends([data(0, 1000).urgent(1200), data(1000, 200).urgent(200)]);
    // A tail loss probe, then the timeout.
    t.fire();
    t.sends([data(200, 1000).urgent(1000)]);
    t.fire();
    t.sends([data(0, 200).urgent(1200)]);
    t.recv(ack(200));
    t.sends([data(200, 1000).urgent(1000)]);
    t.recv(ack(1200));
    t.sends([]);
}

#[test]
fn the_pointer_saturates() {
    let config = Config {
        initial_window_segments: 100,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().scale(4).window(u16::MAX));
    t.recv(ack(0).window(u16::MAX));
    t.connection.set_urgent(70_000);
    t.write(70_000);
    let mut sent = 0;
    while let Some(segment) = t
        .connection
        .poll_transmit(t.now, &TxLimits::default(), &mut t.ranges)
    {
        let ahead = 70_000 - segment.payload.start;
        assert!(segment.header.flags.contains(TcpFlags::URG));
        assert_eq!(u64::from(segment.header.urgent), ahead.min(65_535));
        sent = segment.payload.end;
    }
    assert_eq!(
        sent, 65_535,
        "all that the window takes, though the last is no full segment"
    );
}

#[test]
fn urgent_data_waits_neither_for_nagle_nor_for_cork() {
    let config = Config {
        no_delay: false,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.connection.set_cork(true);
    t.write(10);
    t.sends([]);
    t.connection.set_urgent(11);
    t.write(11);
    t.sends([data(0, 11).urgent(11)]);
    // What follows is as ever.
    t.write(20);
    t.sends([]);
}

#[test]
fn a_closed_window_is_told_of_urgent_data_at_once_and_again_with_each_probe() {
    let mut t = Script::established();
    t.recv(ack(0).window(0));
    t.connection.set_urgent(10);
    t.write(10);
    t.sends([ack(0).seq(0).urgent(10)]);
    for _ in 0..3 {
        t.fire();
        // The probe is from before the window, where nobody looks at URG; the other is not.
        t.sends([ack(0).seq(-1).urgent(11), ack(0).seq(0).urgent(10)]);
    }
    t.recv(ack(0).window(WINDOW));
    t.sends([data(0, 10).urgent(10)]);
}

#[test]
fn a_mark_within_what_was_sent_is_told_by_an_ack_if_at_all() {
    let mut t = Script::established();
    t.write(100);
    t.sends([data(0, 100)]);
    t.connection.set_urgent(50);
    // SND.NXT lies after it: nothing is left to say it with, but a retransmission would.
    t.sends([ack(0).seq(100)]);
    t.fire();
    t.sends([data(0, 100).urgent(50)]);
    // Back, and to what is acknowledged: ignored.
    t.connection.set_urgent(40);
    t.recv(ack(100));
    t.connection.set_urgent(100);
    assert_eq!(t.connection.urgent_send_end(), None);
    t.sends([]);
}

#[test]
fn urgent_data_that_was_written_before_the_handshake() {
    let mut t = Script::connect(&plain());
    t.connection.set_urgent(3);
    t.write(5);
    t.sends([syn()]);
    t.recv(syn_ack());
    t.sends([data(0, 5).urgent(3)]);
}

#[test]
fn neither_a_reset_nor_a_syn_has_urg() {
    let mut t = Script::established();
    t.connection.set_urgent(10);
    t.recv(ack(0).window(0));
    t.write(10);
    t.sends([ack(0).urgent(10)]);
    t.connection.abort(t.now);
    t.sends([rst_ack(0, 0)]);
}

#[test]
fn the_last_of_it_goes_with_the_fin() {
    let mut t = Script::established();
    t.connection.set_urgent(5);
    t.write(5);
    t.connection.shutdown_send();
    t.sends([data(0, 5).fin().urgent(5)]);
    t.pass(Duration::from_millis(10));
    t.recv(ack(6));
    t.sends([]);
}

#[test]
fn marks_survive_a_snapshot() {
    let mut t = Script::established();
    t.recv(ack(0).urgent(77));
    t.connection.set_urgent(2000);
    t.write(2000);
    t.sends([data(0, 1000).urgent(2000), data(1000, 1000).urgent(1000)]);
    let snapshot = t.connection.snapshot(&t.ranges);
    let restored =
        sidecore_tcp::Connection::restore(&snapshot, t.now, t.now, &mut t.ranges).unwrap();
    assert_eq!(restored.urgent_receive_end(), Some(77));
    assert_eq!(restored.urgent_send_end(), Some(2000));
}
