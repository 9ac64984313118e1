//! TCP Fast Open (RFC 7413): what one connection does. Cookies, limits and caches are tested with the stack.

mod common;

use common::script::*;
use sidecore_tcp::{CloseReason, Config, DropReason, FastOpenResult, IcmpKind, State};
use sidecore_wire::{FastOpenCookie, TcpFlags};

const COOKIE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn cookie() -> FastOpenCookie {
    FastOpenCookie::new(&COOKIE).unwrap()
}

/// A client with a cookie, 300 bytes written, and the server's MSS remembered.
fn client() -> Script {
    let mut t = Script::connect(&plain());
    t.connection.use_fast_open(Some(cookie()), MSS);
    t.write(300);
    t.sends([syn().fast_open(&COOKIE).len(300)]);
    t
}

/// A server that took 200 bytes of a SYN.
fn server() -> Script {
    let mut t = Script::accept(&plain(), syn());
    let outcome = t.connection.take_syn_data(200);
    let range = outcome.accept.unwrap();
    assert_eq!(
        (range.len, range.stream_offset, range.in_order),
        (200, 0, true)
    );
    assert_eq!(t.connection.receive_next(), 200);
    t
}

#[test]
fn a_cookie_is_asked_for_and_told() {
    let mut t = Script::connect(&plain());
    t.connection.use_fast_open(None, 0);
    t.write(300);
    // Data waits for the handshake: there is no cookie yet.
    t.sends([syn().fast_open(&[])]);
    t.recv(syn_ack().fast_open(&COOKIE).mss(Some(900)));
    let expected = FastOpenResult {
        cookie: Some(cookie()),
        mss: 900,
        sent: 0,
        acked: 0,
        repeated: false,
    };
    assert_eq!(t.connection.fast_open_result(), Some(expected));
    t.sends([data(0, 300).ack(0)]);
}

#[test]
fn data_goes_with_the_syn_and_is_acknowledged_with_it() {
    let mut t = client();
    let outcome = t.recv(syn_ack().ack(300));
    assert!(outcome.established && outcome.acked);
    assert_eq!(t.connection.send_una(), 300);
    let result = t.connection.fast_open_result().unwrap();
    assert_eq!(
        (result.sent, result.acked, result.repeated),
        (300, 300, false)
    );
    t.sends([ack(0).seq(300)]);
    t.no_timer();
    // The connection is as any other from here.
    t.write(400);
    t.sends([data(300, 100)]);
    t.recv(ack(400));
    t.sends([]);
}

#[test]
fn what_the_server_does_not_take_is_sent_again_at_once() {
    for (taken, left) in [(0, 300), (100, 200)] {
        let mut t = client();
        let outcome = t.recv(syn_ack().ack(taken));
        assert_eq!((outcome.established, outcome.acked), (true, taken > 0));
        t.sends([data(taken, left).ack(0)]);
        assert_eq!(t.connection.fast_open_result().unwrap().acked, taken as u16);
        t.recv(ack(300));
        assert_eq!(t.connection.send_una(), 300);
        t.no_timer();
    }
}

#[test]
fn what_the_server_does_not_take_is_a_retransmission_that_costs_no_window() {
    let config = Config {
        sack: true,
        no_delay: false,
        ..plain()
    };
    let mut t = Script::connect(&config);
    t.connection.use_fast_open(Some(cookie()), MSS);
    t.write(960);
    t.sends([syn().sack_permitted().fast_open(&COOKIE).len(960)]);
    t.pass(ms(20));
    t.recv(syn_ack().sack_permitted().ack(100));
    assert!(!t.connection.syn_data_acked(), "not all of it was");
    let before = t.connection.info();
    t.sends([data(100, 860).ack(0)]);
    let info = t.connection.full_info(&t.ranges);
    assert_eq!(
        (info.retransmissions, info.bytes_retransmitted, info.resent),
        (1, 860, 860)
    );
    assert_eq!(
        (info.cwnd, info.ssthresh),
        (10 * u32::from(MSS), before.ssthresh)
    );
    // Nagle's algorithm does not count it as a small segment, nor does new data wait for it.
    t.write(1500);
    t.sends([data(960, 540)]);
    t.pass(ms(20));
    t.recv(ack(1500));
    let info = t.connection.full_info(&t.ranges);
    assert_eq!((info.unacked, info.resent, info.timed_out), (0, 0, false));
    assert!(info.cwnd >= before.cwnd);
    t.no_timer();
}

#[test]
fn a_syn_that_icmp_calls_too_large_is_sent_again_at_once_without_data() {
    let mut t = client();
    t.pass(ms(10));
    let kind = IcmpKind::FragmentationNeeded { mtu: 640 };
    assert_eq!(t.connection.handle_icmp(t.now, ISS, kind), None);
    t.sends([syn().mss(Some(600))]);
    // Once: the SYN that is out now is as small as can be.
    assert_eq!(t.connection.handle_icmp(t.now, ISS, kind), None);
    t.sends([]);
    t.pass(ms(30));
    assert!(t.recv(syn_ack()).established);
    let info = t.connection.info();
    assert_eq!((info.effective_mss, info.srtt_us), (600, 30_000));
    assert_eq!(info.cwnd, 10 * 600, "no SYN was lost");
    t.sends([data(0, 300).ack(0)]);
    // One that quotes another segment says nothing.
    let mut t = client();
    assert_eq!(t.connection.handle_icmp(t.now, ISS.add(1), kind), None);
    t.sends([]);
}

#[test]
fn the_syn_waits_for_data_only_with_a_cookie() {
    let mut t = Script::connect(&plain());
    t.connection.use_fast_open(Some(cookie()), MSS);
    assert!(
        t.connection
            .poll_transmit(t.now, &t.tx, &mut t.ranges)
            .is_none()
    );
    t.no_timer();
    t.write(10);
    t.sends([syn().fast_open(&COOKIE).len(10)]);

    let mut t = Script::connect(&plain());
    t.connection.use_fast_open(Some(cookie()), MSS);
    t.connection.shutdown_send();
    t.sends([syn().fast_open(&COOKIE)]);
    t.recv(syn_ack());
    t.sends([fin(0).ack(0)]);
}

#[test]
fn the_syn_carries_no_more_than_one_segment_of_the_remembered_size() {
    for (remembered, most) in [(0, 496), (700, 660), (5000, 960)] {
        let mut t = Script::connect(&plain());
        t.connection.use_fast_open(Some(cookie()), remembered);
        t.write(5000);
        t.sends([syn().fast_open(&COOKIE).len(most)]);
        t.recv(syn_ack().ack(most.into()).mss(Some(1000)));
        let first = t.connection.poll_transmit(t.now, &t.tx, &mut t.ranges);
        assert_eq!(first.unwrap().payload.start, u64::from(most));
    }
}

#[test]
fn a_syn_that_is_not_answered_is_repeated_without_cookie_and_data() {
    let mut t = client();
    assert_eq!(t.fire(), secs(1));
    t.sends([syn()]);
    assert!(t.connection.fast_open_result().unwrap().repeated);
    t.recv(syn_ack());
    t.sends([data(0, 300).ack(0)]);
    t.recv(ack(300));
    assert_eq!(t.connection.send_una(), 300);

    // The first SYN did get there, and its answer comes late.
    let mut t = client();
    t.fire();
    t.sends([syn()]);
    let outcome = t.recv(syn_ack().ack(300));
    assert!(outcome.established && outcome.acked);
    t.sends([ack(0).seq(300)]);
}

#[test]
fn what_was_not_sent_is_not_acknowledged_by_a_syn_ack() {
    let mut t = client();
    assert_eq!(t.recv(syn_ack().ack(301)).dropped, Some(DropReason::BadAck));
    t.sends([rst(301)]);
    assert_eq!(t.recv(syn_ack().ack(-1)).dropped, Some(DropReason::BadAck));
    t.sends([rst(-1)]);
    assert_eq!(t.state(), State::SynSent);
    let refused = t.recv(rst_ack(0, 300));
    assert_eq!(refused.closed, Some(CloseReason::Refused));
}

#[test]
fn the_server_answers_before_the_handshake_is_complete() {
    let mut t = server();
    t.write(2500);
    // SYN-ACK for the SYN and its data; then the answer, within the initial window.
    t.sends([
        syn_ack().ack(200),
        data(0, 1000).ack(200),
        data(1000, 1000),
        data(2000, 500),
    ]);
    assert_eq!(t.state(), State::SynReceived);
    t.pass(ms(50));
    let outcome = t.recv(ack(1000).seq(200));
    assert!(outcome.established && outcome.acked);
    assert_eq!(t.connection.send_una(), 1000);
    // The round trip is the handshake's.
    assert_eq!(t.connection.info().srtt_us, 50_000);
    t.recv(ack(2500));
    t.sends([]);
    t.no_timer();
}

#[test]
fn an_ack_of_the_syn_alone_starts_the_timer_of_the_data() {
    let mut t = server();
    t.write(100);
    t.sends([syn_ack().ack(200), data(0, 100).ack(200)]);
    t.pass(ms(20));
    assert!(t.recv(ack(0).seq(200)).established);
    assert!(t.connection.next_timeout().is_some());
    t.fire();
    t.sends([data(0, 100).ack(200)]);
}

#[test]
fn a_lost_syn_ack_is_repeated_and_data_follows_when_it_is_answered() {
    let mut t = server();
    t.write(100);
    t.sends([syn_ack().ack(200), data(0, 100).ack(200)]);
    t.fire();
    t.sends([syn_ack().ack(200)]);
    // The client repeats its SYN, without data: what was taken stays taken.
    t.recv(syn());
    t.sends([syn_ack().ack(200)]);
    assert!(t.recv(ack(0).seq(200)).established);
    t.fire();
    t.sends([data(0, 100).ack(200)]);
}

#[test]
fn the_server_may_close_before_the_handshake_is_complete() {
    let mut t = server();
    t.write(50);
    t.connection.shutdown_send();
    t.sends([syn_ack().ack(200), data(0, 50).ack(200).fin()]);
    assert!(t.recv(ack(51).seq(200)).established);
    assert_eq!(t.state(), State::FinWait2);
    t.recv(fin(200).ack(51));
    t.sends([ack(201).seq(51)]);
    assert_eq!(t.state(), State::TimeWait);
}

#[test]
fn without_a_good_cookie_nothing_is_sent_early() {
    let mut t = Script::accept(&plain(), syn());
    t.connection.grant_cookie(cookie());
    t.write(100);
    t.sends([syn_ack().fast_open(&COOKIE)]);
    t.fire();
    t.sends([syn_ack().fast_open(&COOKIE)]);
    t.recv(ack(0));
    t.sends([data(0, 100).ack(0)]);
}

#[test]
fn syn_data_beyond_the_receive_buffer_is_not_taken() {
    let mut t = Script::accept(&plain(), syn());
    let outcome = t.connection.take_syn_data(60_000);
    assert_eq!(outcome.accept.unwrap().len, BUFFER as u32);
    t.sends([syn_ack().ack(BUFFER as i64).window(0)]);
    let mut t = Script::accept(&plain(), syn());
    assert_eq!(t.connection.take_syn_data(0).accept, None);
    t.sends([syn_ack().ack(0)]);
}

#[test]
fn both_open_at_the_same_time() {
    let mut t = client();
    // The peer's SYN brings data and a cookie: here is no server, so neither counts.
    t.recv(syn().fast_open(&COOKIE).len(50));
    assert_eq!(t.state(), State::SynReceived);
    t.sends([syn_ack()]);
    // Its answer to our SYN may or may not have taken our data.
    let outcome = t.recv(syn_ack().ack(300));
    assert!(outcome.established && outcome.acked);
    assert_eq!(t.connection.send_una(), 300);
    t.recv(data(0, 50).ack(300));
    assert_eq!(t.connection.receive_next(), 50);
}

#[test]
fn a_reset_ends_an_early_connection() {
    let mut t = server();
    t.write(100);
    t.poll_any();
    let outcome = t.recv(rst(200));
    assert_eq!(outcome.closed, Some(CloseReason::Reset));
}

#[test]
fn all_options_together_fit_into_a_syn() {
    let config = Config {
        mss: 1460,
        ..Config::default()
    };
    let longest = [7; 16];
    let mut t = Script::connect(&config);
    t.connection
        .use_fast_open(FastOpenCookie::new(&longest), 1460);
    t.write(5000);
    let segment = t
        .connection
        .poll_transmit(t.now, &t.tx, &mut t.ranges)
        .unwrap();
    assert_eq!(segment.header.len(), 60);
    assert_eq!(segment.header.flags, TcpFlags::SYN);
    assert_eq!(
        segment.payload,
        0..1420,
        "the packet is no longer than the MSS allows"
    );
}
