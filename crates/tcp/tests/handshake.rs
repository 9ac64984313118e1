//! Opening: active, passive, simultaneous; options; what goes wrong (RFC 9293 sections 3.5 and 3.10.7).

mod common;

use common::script::*;
use sidecore_tcp::{
    CloseReason, Config, Connection, DropReason, Instant, RangePool, State, TxLimits,
};
use sidecore_wire::{TcpFlags, WindowScale};

fn all_options() -> Config {
    Config {
        mss: 1460,
        ..Config::default()
    }
}

#[test]
fn active_open() {
    let mut t = Script::connect(&plain());
    assert_eq!(t.state(), State::SynSent);
    t.sends([syn().window(10_000)]);
    t.pass(ms(30));
    let outcome = t.recv(syn_ack());
    assert!(outcome.established && outcome.closed.is_none());
    assert_eq!(t.state(), State::Established);
    t.sends([ack(0).seq(0)]);
    assert_eq!(t.connection.info().srtt_us, 30_000);
    t.no_timer();
}

#[test]
fn passive_open() {
    let mut t = Script::accept(&plain(), syn());
    assert_eq!(t.state(), State::SynReceived);
    t.sends([syn_ack()]);
    t.pass(ms(20));
    assert!(t.recv(ack(0)).established);
    assert_eq!(t.state(), State::Established);
    t.sends([]);
    t.no_timer();
}

#[test]
fn the_handshakes_ack_may_carry_data_and_fin() {
    let mut t = Script::accept(&plain(), syn());
    t.sends([syn_ack()]);
    let outcome = t.recv(data(0, 10).ack(0).fin());
    assert!(outcome.established && outcome.fin);
    assert_eq!(outcome.accept.unwrap().len, 10);
    assert_eq!(t.state(), State::CloseWait);
    t.sends([ack(11).seq(0)]);
}

#[test]
fn all_options_are_offered_and_agreed() {
    let mut t = Script::connect(&all_options());
    let now = START.as_millis() as u32;
    let offered = syn()
        .mss(Some(1460))
        .scale(7)
        .sack_permitted()
        .timestamps(now, 0);
    t.sends([offered]);
    t.recv(
        syn_ack()
            .mss(Some(1400))
            .scale(3)
            .sack_permitted()
            .timestamps(77, now)
            .window(500),
    );
    t.sends([ack(0).timestamps(now, 77)]);
    let info = t.connection.info();
    assert!(info.sack && info.timestamps);
    assert_eq!((info.send_scale, info.receive_scale), (3, 7));
    // What an MSS option says does not count the options of segments (RFC 9293 section 3.7.1): 12 bytes of timestamps are taken off.
    assert_eq!(info.effective_mss, 1388);
    // The window of a SYN is not scaled, that of the next segment is.
    assert_eq!(info.send_window, 500);
    t.recv(ack(0).window(500).timestamps(78, now));
    assert_eq!(t.connection.info().send_window, 4000);
}

#[test]
fn options_that_the_peer_does_not_offer_are_not_answered() {
    let mut t = Script::accept(&all_options(), syn().mss(None));
    t.sends([syn_ack().mss(Some(1460))]);
    t.recv(ack(0));
    let info = t.connection.info();
    assert!(!info.sack && !info.timestamps);
    assert_eq!((info.send_scale, info.receive_scale), (0, 0));
    // RFC 9293 MUST-15: 536 if no MSS option is received.
    assert_eq!(info.effective_mss, 536);
}

#[test]
fn options_that_we_do_not_want_are_not_agreed() {
    let peer = syn().scale(5).sack_permitted().timestamps(1, 0);
    let mut t = Script::accept(&plain(), peer);
    t.sends([syn_ack()]);
    t.recv(ack(0).window(100));
    let info = t.connection.info();
    assert!(!info.sack && !info.timestamps);
    assert_eq!(info.send_window, 100);
}

#[test]
fn a_lost_syn_is_sent_again_with_backoff() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    for timeout in [1, 2, 4, 8, 16, 32, 64] {
        assert_eq!(t.fire(), secs(timeout));
        t.sends([syn()]);
    }
    t.fire_closes(CloseReason::TimedOut);
    // RFC 9293 MUST-23: "retransmission of the segment for at least 3 minutes".
    assert!(t.now.duration_since(START) >= secs(180));
    t.sends([]);
    t.no_timer();
}

#[test]
fn a_lost_syn_ack_is_sent_again_by_timer_and_at_a_repeated_syn() {
    let mut t = Script::accept(&plain(), syn());
    t.sends([syn_ack()]);
    assert_eq!(t.fire(), secs(1));
    t.sends([syn_ack()]);
    let outcome = t.recv(syn());
    assert_eq!(outcome.dropped, Some(DropReason::Duplicate));
    t.sends([syn_ack()]);
    assert!(t.recv(ack(0)).established);
}

#[test]
fn after_a_lost_syn_the_window_is_one_segment_and_rto_three_seconds() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    t.fire();
    t.sends([syn()]);
    t.recv(syn_ack());
    assert_eq!(t.connection.info().cwnd, u32::from(MSS));
    assert_eq!(t.connection.info().rto_us, 3_000_000);
    assert_eq!(t.connection.info().srtt_us, 0);
}

#[test]
fn simultaneous_open() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    t.recv(syn());
    assert_eq!(t.state(), State::SynReceived);
    t.sends([syn_ack()]);
    let outcome = t.recv(syn_ack());
    assert!(outcome.established);
    assert_eq!(t.state(), State::Established);
    // Our SYN-ACK may have been lost: this brings the peer to ESTABLISHED, too.
    t.sends([ack(0).seq(0)]);
    t.write(100);
    t.sends([data(0, 100).ack(0)]);
}

#[test]
fn the_ack_of_a_simultaneous_open_tells_that_the_syn_came_twice() {
    let config = Config {
        sack: true,
        ..plain()
    };
    let mut t = Script::connect(&config);
    t.sends([syn().sack_permitted()]);
    t.recv(syn().sack_permitted());
    t.sends([syn_ack().sack_permitted()]);
    assert!(t.recv(syn_ack().sack_permitted()).established);
    t.sends([ack(0).seq(0).sack(&[(-1, 0)])]);
    // Once.
    t.recv(data(0, 10));
    t.fire();
    t.sends([ack(10)]);
    // And it may come to us.
    t.write(10);
    t.sends([data(0, 10)]);
    assert_eq!(t.recv(ack(0).sack(&[(-1, 0)])).dropped, None);
    t.recv(ack(10));
    t.no_timer();
}

#[test]
fn rfc_9293_3_10_7_3_text_of_a_syn_ack_is_taken() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    let outcome = t.recv(syn_ack().len(700));
    assert!(outcome.established && !outcome.fin);
    let taken = outcome.accept.expect("its text");
    assert_eq!(
        (taken.payload_offset, taken.len, taken.stream_offset),
        (0, 700, 0)
    );
    assert!(taken.in_order);
    assert_eq!(t.connection.receive_next(), 700);
    t.sends([ack(700).seq(0)]);
    let outcome = t.recv(data(700, 100));
    assert_eq!(outcome.accept.unwrap().stream_offset, 700);
}

#[test]
fn rfc_9293_3_10_7_3_the_fin_of_a_syn_ack_is_taken() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    let outcome = t.recv(syn_ack().len(700).fin());
    assert!(outcome.established && outcome.fin);
    assert_eq!(outcome.accept.unwrap().len, 700);
    assert_eq!(t.state(), State::CloseWait);
    t.sends([ack(701).seq(0)]);
    t.connection.shutdown_send();
    t.sends([fin(0).ack(701)]);

    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    let outcome = t.recv(syn_ack().fin());
    assert!(outcome.established && outcome.fin && outcome.accept.is_none());
    t.sends([ack(1).seq(0)]);
}

#[test]
fn text_of_a_syn_ack_beyond_the_window_is_not_taken() {
    let mut t = Script::connect(&plain());
    t.sends([syn().window(BUFFER as u16)]);
    // A FIN behind what is not taken is not taken either.
    let outcome = t.recv(syn_ack().len(BUFFER as u32 + 500).fin());
    assert!(outcome.established && !outcome.fin);
    assert_eq!(outcome.accept.unwrap().len, BUFFER as u32);
    assert_eq!(t.state(), State::Established);
    t.sends([ack(BUFFER as i64).seq(0).window(0)]);
}

#[test]
fn a_syn_ack_that_echoes_another_timestamp_is_reset() {
    let mut t = Script::connect(&all_options());
    let sent = START.as_millis() as u32;
    t.poll_any();
    t.pass(ms(20));
    for echo in [sent - 1, sent + 21, sent + 0x8000_0000] {
        let outcome = t.recv(syn_ack().timestamps(77, echo).len(10));
        assert_eq!(outcome.dropped, Some(DropReason::Paws));
        assert!(outcome.accept.is_none());
        t.sends([rst(0)]);
        assert_eq!(t.state(), State::SynSent);
    }
    // Of any SYN that was sent; and one that echoes nothing may be an answer all the same.
    t.fire();
    t.poll_any();
    for echo in [sent, t.now.as_millis() as u32, 0] {
        let mut t = Script::connect(&all_options());
        t.poll_any();
        t.fire();
        t.poll_any();
        assert!(t.recv(syn_ack().timestamps(77, echo)).established);
    }
}

#[test]
fn simultaneous_open_completed_by_an_ack() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    t.recv(syn());
    t.sends([syn_ack()]);
    assert!(t.recv(ack(0)).established);
}

#[test]
fn a_refused_connection() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    let outcome = t.recv(rst_ack(0, 0));
    assert_eq!(outcome.closed, Some(CloseReason::Refused));
    assert_eq!(t.state(), State::Closed);
    t.sends([]);
    t.no_timer();
}

#[test]
fn a_reset_that_acknowledges_nothing_does_not_refuse() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    assert_eq!(t.recv(rst(0)).dropped, Some(DropReason::BadReset));
    assert_eq!(t.recv(rst_ack(0, 5)).dropped, Some(DropReason::BadAck));
    assert_eq!(t.state(), State::SynSent);
    t.sends([]);
}

#[test]
fn an_unacceptable_ack_in_syn_sent_is_reset() {
    // RFC 9293 figure 8: recovery from an old duplicate, half-open connections.
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    let outcome = t.recv(ack(300).seq(100));
    assert_eq!(outcome.dropped, Some(DropReason::BadAck));
    t.sends([rst(300)]);
    assert_eq!(t.state(), State::SynSent);
    assert_eq!(t.fire(), secs(1));
    t.sends([syn()]);
}

#[test]
fn an_ack_without_syn_in_syn_sent_is_dropped() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    assert_eq!(t.recv(ack(0)).dropped, Some(DropReason::NoAck));
    assert_eq!(t.state(), State::SynSent);
    t.sends([]);
}

#[test]
fn an_unacceptable_ack_in_syn_received_is_reset() {
    let mut t = Script::accept(&plain(), syn());
    t.sends([syn_ack()]);
    let outcome = t.recv(ack(1));
    assert_eq!(outcome.dropped, Some(DropReason::BadAck));
    assert_eq!(t.state(), State::SynReceived);
    t.sends([rst(1)]);
}

#[test]
fn a_reset_in_syn_received() {
    let mut t = Script::accept(&plain(), syn());
    t.sends([syn_ack()]);
    assert_eq!(t.recv(rst(0)).closed, Some(CloseReason::Reset));
    // Opened by us at the same time: the open failed.
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    t.recv(syn());
    t.sends([syn_ack()]);
    assert_eq!(t.recv(rst(0)).closed, Some(CloseReason::Refused));
}

#[test]
fn a_repeated_syn_ack_is_acknowledged_again() {
    // Our ACK of the handshake was lost.
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    t.recv(syn_ack());
    t.sends([ack(0)]);
    assert_eq!(t.recv(syn_ack()).dropped, Some(DropReason::UnexpectedSyn));
    t.sends([ack(0).seq(0)]);
    assert_eq!(t.state(), State::Established);
}

#[test]
fn data_written_early_goes_out_once_established() {
    let mut t = Script::connect(&plain());
    t.write(500);
    t.sends([syn()]);
    t.recv(syn_ack());
    t.sends([data(0, 500).ack(0)]);
}

#[test]
fn a_close_queued_before_the_connection_exists() {
    let mut t = Script::accept(&plain(), syn());
    t.write(10);
    t.connection.shutdown_send();
    t.sends([syn_ack()]);
    t.recv(ack(0));
    assert_eq!(t.state(), State::FinWait1);
    t.sends([data(0, 10).fin().ack(0)]);
}

#[test]
fn close_and_abort_in_syn_sent() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    t.connection.close();
    assert_eq!(t.state(), State::Closed);
    t.sends([]);
    t.no_timer();
    let mut t = Script::connect(&plain());
    t.connection.abort(START);
    assert_eq!(t.state(), State::Closed);
    t.sends([]);
}

#[test]
fn abort_in_syn_received_resets() {
    let mut t = Script::accept(&plain(), syn());
    t.sends([syn_ack()]);
    t.connection.abort(START);
    t.sends([rst_ack(0, 0)]);
    assert_eq!(t.state(), State::Closed);
}

#[test]
fn a_syn_with_other_flags_is_still_a_syn() {
    // ECN set-up (RFC 3168) for who wants none: not agreed to, not minded.
    let config = Config {
        ecn: sidecore_tcp::Ecn::Off,
        ..plain()
    };
    let mut t = Script::accept(&config, syn().with(TcpFlags::ECE | TcpFlags::CWR));
    t.sends([syn_ack()]);
}

/// With a unit larger than the buffer the window could only be closed, and would stay so.
#[test]
fn the_window_scale_suits_the_buffer() {
    let config = Config {
        window_scale: Some(WindowScale::new(10)),
        ..plain()
    };
    for (buffer, scale) in [(600, 7), (65_535, 10), (3, 0)] {
        let mut connection = Connection::connect(Instant::ZERO, &config, ISS);
        connection.set_receive_limit(buffer);
        let mut ranges = RangePool::new(8);
        let syn = connection.poll_transmit(Instant::ZERO, &TxLimits::default(), &mut ranges);
        let offered = syn.unwrap().header.options.window_scale;
        assert_eq!(offered, Some(WindowScale::new(scale)));
        assert_eq!(connection.info().receive_scale, scale);
    }
}
