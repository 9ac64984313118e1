//! Explicit congestion notification: RFC 3168 section 6.1.

mod common;

use common::script::*;
use sidecore_tcp::{Algorithm, Config, Ecn};
use sidecore_wire::TcpFlags;
use sidecore_wire::ecn::{CE, ECT_0, ECT_1, NOT_ECT};

const ECE: TcpFlags = TcpFlags::ECE;
const CWR: TcpFlags = TcpFlags::CWR;
const SETUP: TcpFlags = ECE.union(CWR);

fn asking() -> Config {
    Config {
        ecn: Ecn::Request,
        ..plain()
    }
}

fn willing(ecn: Ecn) -> Config {
    Config { ecn, ..plain() }
}

/// ESTABLISHED with ECN, opened by the peer.
fn with_ecn() -> Script {
    let mut t = Script::accept(&plain(), syn().with(SETUP));
    t.sends([syn_ack().with(ECE).ecn(NOT_ECT)]);
    t.recv(ack(0));
    assert!(t.connection.info().ecn);
    t
}

/// The same with so many segments in flight, all sent at once.
fn sending(segments: u64) -> Script {
    let mut t = with_ecn();
    t.write(segments * u64::from(MSS));
    t.poll_any();
    t
}

fn new(seq: i64) -> Seg {
    data(seq, MSS.into()).ecn(ECT_0)
}

#[test]
fn rfc_3168_6_1_1_a_client_asks_and_sends_ect_once_it_is_answered() {
    let mut t = Script::connect(&asking());
    t.sends([syn().with(SETUP).ecn(NOT_ECT)]);
    t.recv(syn_ack().with(ECE));
    t.write(1000);
    t.sends([new(0).ack(0)]);
    assert!(t.connection.info().ecn);
}

#[test]
fn rfc_3168_6_1_1_a_syn_ack_with_other_flags_refuses() {
    for flags in [TcpFlags::EMPTY, CWR, SETUP] {
        let mut t = Script::connect(&asking());
        t.sends([syn().with(SETUP)]);
        t.recv(syn_ack().with(flags));
        t.write(1000);
        t.sends([data(0, 1000).ecn(NOT_ECT)]);
        assert!(!t.connection.info().ecn);
        // Nor are marks echoed.
        t.recv(data(0, 1000).ecn(CE));
        t.poll_any();
        t.recv(data(1000, 1000).ecn(CE));
        t.sends([ack(2000)]);
    }
}

#[test]
fn rfc_3168_6_1_1_who_did_not_ask_is_not_answered() {
    let mut t = Script::connect(&plain());
    t.sends([syn().ecn(NOT_ECT)]);
    t.recv(syn_ack().with(ECE));
    t.write(1000);
    t.sends([data(0, 1000).ecn(NOT_ECT)]);
}

#[test]
fn rfc_3168_6_1_1_only_an_ecn_setup_syn_is_answered_and_only_by_the_willing() {
    for (ecn, flags, answered) in [
        (Ecn::Accept, SETUP, true),
        (Ecn::Request, SETUP, true),
        (Ecn::Off, SETUP, false),
        (Ecn::Accept, ECE, false),
        (Ecn::Accept, CWR, false),
        (Ecn::Accept, TcpFlags::EMPTY, false),
        // One that asks for accurate ECN (RFC 9768), too.
        (Ecn::Accept, SETUP.union(TcpFlags::AE), true),
    ] {
        let mut t = Script::accept(&willing(ecn), syn().with(flags));
        let expected = if answered {
            syn_ack().with(ECE)
        } else {
            syn_ack()
        };
        t.sends([expected.ecn(NOT_ECT)]);
        t.recv(ack(0));
        t.write(1000);
        let field = if answered { ECT_0 } else { NOT_ECT };
        t.sends([data(0, 1000).ecn(field)]);
    }
}

#[test]
fn rfc_3168_6_1_1_1_a_syn_that_is_sent_again_goes_without() {
    let mut t = Script::connect(&asking());
    t.sends([syn().with(SETUP)]);
    t.fire();
    t.sends([syn()]);
    // The answer is to the first one. "A host MUST NOT set ECT on data packets unless … has sent no non-ECN-setup SYN".
    t.recv(syn_ack().with(ECE));
    t.write(1000);
    t.sends([data(0, 1000).ecn(NOT_ECT)]);
    // "the commitment to respond appropriately to incoming packets with the CE codepoint set remains"
    t.recv(data(0, 1000).ack(1000).ecn(CE));
    t.sends([ack(1000).with(ECE)]);
}

#[test]
fn rfc_3168_6_1_1_1_a_server_that_hears_the_second_syn_withdraws() {
    let mut t = Script::accept(&plain(), syn().with(SETUP));
    t.sends([syn_ack().with(ECE)]);
    t.recv(syn());
    t.sends([syn_ack()]);
    t.recv(ack(0));
    t.write(1000);
    t.sends([data(0, 1000).ecn(NOT_ECT)]);
}

#[test]
fn rfc_3168_6_1_1_a_syn_ack_that_is_sent_again_is_the_same() {
    let mut t = Script::accept(&plain(), syn().with(SETUP));
    t.sends([syn_ack().with(ECE)]);
    t.fire();
    t.sends([syn_ack().with(ECE)]);
    t.recv(syn().with(SETUP));
    t.sends([syn_ack().with(ECE)]);
}

#[test]
fn rfc_3168_6_1_1_both_ask_at_once() {
    for (second, field) in [(ECE, ECT_0), (TcpFlags::EMPTY, NOT_ECT)] {
        let mut t = Script::connect(&asking());
        t.sends([syn().with(SETUP)]);
        t.recv(syn().with(SETUP));
        t.sends([syn_ack().with(ECE)]);
        t.recv(syn_ack().with(second));
        t.poll_any();
        t.write(1000);
        t.sends([data(0, 1000).ecn(field)]);
    }
}

#[test]
fn rfc_3168_6_1_2_only_new_data_is_ecn_capable() {
    let mut t = with_ecn();
    t.write(2500);
    t.sends([new(0), new(1000), data(2000, 500).ecn(ECT_0)]);
    // 6.1.4: pure acknowledgments.
    t.recv(data(0, 1000));
    t.poll_any();
    t.recv(data(1000, 1000));
    t.sends([ack(2000).ecn(NOT_ECT)]);
    // 6.1.5: retransmissions.
    t.fire();
    t.sends([data(0, 1000).ecn(NOT_ECT)]);
}

#[test]
fn rfc_3168_6_1_6_window_probes_are_not() {
    let mut t = with_ecn();
    t.recv(ack(0).window(0));
    t.write(1000);
    t.sends([]);
    t.fire();
    t.sends([ack(2000).seq(-1).ack(0).ecn(NOT_ECT)]);
}

#[test]
fn a_reset_is_not_ecn_capable() {
    let mut t = with_ecn();
    t.connection.abort(t.now);
    t.sends([rst_ack(0, 0).ecn(NOT_ECT)]);
}

#[test]
fn rfc_3168_6_1_3_a_mark_is_echoed_until_cwr() {
    let mut t = with_ecn();
    t.recv(data(0, 1000).ecn(CE));
    t.sends([ack(1000).with(ECE)]);
    // "in all the ACK packets it sends (whether they acknowledge CE data packets or non-CE data packets)"
    t.recv(data(1000, 1000).ecn(ECT_0));
    t.recv(data(2000, 1000).ecn(ECT_1));
    t.sends([ack(3000).with(ECE)]);
    // Data, too.
    t.write(500);
    t.sends([data(0, 500).with(ECE).ecn(ECT_0)]);
    t.recv(data(3000, 1000).with(CWR).ack(500));
    t.recv(data(4000, 1000));
    t.sends([ack(5000)]);
    assert_eq!(t.connection.info().ce_received, 1);
}

#[test]
fn rfc_3168_6_1_3_a_segment_with_cwr_may_be_marked_itself() {
    let mut t = with_ecn();
    t.recv(data(0, 1000).ecn(CE));
    t.poll_any();
    t.recv(data(1000, 1000).with(CWR).ecn(CE));
    t.recv(data(2000, 1000));
    t.sends([ack(3000).with(ECE)]);
}

#[test]
fn rfc_3168_6_1_3_a_delayed_ack_echoes_if_any_segment_was_marked() {
    let mut t = with_ecn();
    t.recv(data(0, 1000));
    t.recv(data(1000, 1000).ecn(CE));
    t.sends([ack(2000).with(ECE)]);
}

#[test]
fn rfc_3168_6_1_3_a_mark_out_of_order_is_echoed_too() {
    let mut t = with_ecn();
    t.recv(data(1000, 1000).ecn(CE));
    t.sends([ack(0).with(ECE)]);
}

#[test]
fn rfc_3168_6_1_5_marks_out_of_the_window_are_ignored() {
    let mut t = with_ecn();
    t.recv(data(0, 1000));
    t.recv(data(1000, 1000));
    t.poll_any();
    for (seq, len) in [(0, 1000), (500_000, 1000), (-2000, 1000)] {
        t.recv(data(seq, len).ecn(CE));
        t.sends([ack(2000)]);
    }
    // 6.1.4: and of pure acknowledgments.
    t.recv(ack(0).seq(2000).ecn(CE));
    t.recv(data(2000, 1000));
    t.recv(data(3000, 1000));
    t.sends([ack(4000)]);
    assert_eq!(t.connection.info().ce_received, 0);
}

#[test]
fn rfc_3168_6_1_6_a_mark_on_a_window_probe_counts() {
    let mut t = with_ecn();
    t.recv(data(0, 1).ecn(CE));
    t.sends([ack(1).with(ECE)]);
}

#[test]
fn rfc_3168_6_1_2_an_echo_halves_the_window_once_and_cwr_follows() {
    let mut t = sending(10);
    let info = t.connection.info();
    assert_eq!((info.cwnd, info.in_flight), (10_000, 10_000));
    t.recv(ack(1000).with(ECE));
    let info = t.connection.info();
    assert_eq!((info.cwnd, info.ssthresh), (5000, 5000));
    // "more than once every window of data": what is in flight now says nothing new.
    for n in 2..=10 {
        t.write(20_000);
        t.recv(ack(n * 1000).with(ECE));
        if n == 6 {
            // CWR on the first new segment, and on no other.
            t.sends([new(10_000).with(CWR)]);
        } else if n > 6 {
            t.sends([new(4000 + n * 1000)]);
        } else {
            t.sends([]);
        }
    }
    let info = t.connection.info();
    assert_eq!((info.cwnd, info.ece_received), (5000, 10));
    assert_eq!((info.ecn_reductions, info.retransmissions), (1, 0));
    // The segment with CWR is acknowledged: what is echoed now is new.
    t.recv(ack(11_000).with(ECE));
    assert_eq!(t.connection.info().cwnd, 2500);
    t.recv(ack(15_000));
    // Congestion avoidance has added one.
    t.sends([new(15_000).with(CWR), new(16_000), new(17_000)]);
}

#[test]
fn cwr_goes_out_on_one_segment_though_the_device_cuts_super_segments() {
    let mut t = sending(10);
    t.recv(ack(1000).with(ECE));
    t.tx.max_segments_bytes = 64_000;
    t.write(20_000);
    t.recv(ack(10_000).with(ECE));
    t.sends([new(10_000).with(CWR), data(11_000, 4000).ecn(ECT_0)]);
}

#[test]
fn rfc_3168_6_1_2_the_window_does_not_grow_by_an_echo() {
    let mut t = sending(10);
    t.recv(ack(1000).with(ECE));
    t.write(60_000);
    t.recv(ack(10_000));
    t.poll_any();
    let before = t.connection.info().cwnd;
    for n in 11..15 {
        t.recv(ack(n * 1000).with(ECE));
        t.poll_any();
        assert!(t.connection.info().cwnd <= before);
    }
}

#[test]
fn rfc_3168_6_1_2_with_a_window_of_one_segment_the_timer_is_the_clock() {
    let mut t = sending(4);
    t.recv(ack(4000).with(ECE));
    assert_eq!(t.connection.info().cwnd, 2000);
    t.write(20_000);
    t.sends([new(4000).with(CWR), new(5000)]);
    t.recv(ack(6000).with(ECE));
    assert_eq!(t.connection.info().cwnd, 1000);
    t.sends([new(6000).with(CWR)]);
    // "The sending TCP will then be able to send a new packet only when the retransmit timer expires."
    t.recv(ack(7000).with(ECE));
    t.sends([]);
    assert!(t.fire() >= ms(200));
    t.sends([new(7000).with(CWR)]);
    t.recv(ack(8000));
    assert!(t.connection.info().cwnd > 1000);
    assert_eq!(t.connection.info().timeouts, 0);
}

#[test]
fn rfc_3168_6_1_2_loss_and_marks_of_one_window_reduce_it_once() {
    let mut t = sending(10);
    t.write(30_000);
    for _ in 0..3 {
        t.recv(ack(0).with(ECE));
    }
    t.sends([data(0, 1000).ecn(NOT_ECT)]);
    let ssthresh = t.connection.info().ssthresh;
    assert_eq!(ssthresh, 5000);
    for _ in 0..5 {
        t.recv(ack(0).with(ECE));
    }
    // "because of a retransmit timeout, a Fast Retransmit": CWR, on new data, not on what goes out again.
    t.recv(ack(10_000).with(ECE));
    assert_eq!(t.connection.info().ssthresh, ssthresh);
    assert_eq!(t.connection.info().ecn_reductions, 0);
    t.sends([
        new(10_000).with(CWR),
        new(11_000),
        new(12_000),
        new(13_000),
        new(14_000),
    ]);
}

#[test]
fn rfc_3168_6_1_2_a_timeout_is_told_by_cwr() {
    let mut t = sending(2);
    t.fire();
    t.sends([data(0, 1000).ecn(NOT_ECT)]);
    t.recv(ack(2000));
    t.write(4000);
    t.sends([new(2000).with(CWR), new(3000)]);
}

#[test]
fn an_echo_from_a_peer_without_ecn_does_nothing() {
    let mut t = Script::established();
    t.write(10_000);
    t.poll_any();
    t.recv(ack(5000).with(ECE));
    let info = t.connection.info();
    assert_eq!((info.cwnd, info.ece_received), (12_000, 0));
    // Reserved bits of data do nothing either.
    t.recv(data(0, 1000).with(SETUP).ecn(CE));
    t.recv(data(1000, 1000).with(SETUP).ecn(CE));
    t.sends([ack(2000)]);
}

#[test]
fn cubic_answers_an_echo_as_it_does_loss() {
    let config = Config {
        congestion: Algorithm::Cubic,
        ..plain()
    };
    let mut t = Script::accept(&config, syn().with(SETUP));
    t.sends([syn_ack().with(ECE)]);
    t.recv(ack(0));
    t.write(10_000);
    t.poll_any();
    t.recv(ack(1000).with(ECE));
    // RFC 9438 section 4.6: 0.7.
    assert_eq!(t.connection.info().cwnd, 7000);
}
