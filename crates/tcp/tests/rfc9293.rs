//! Requirements of RFC 9293 that no other test is about, named by their labels. The whole list: `docs/conformance/rfc9293.md`.

mod common;

use common::script::*;
use sidecore_tcp::{CloseReason, Config, IcmpKind, Keepalive, State};
use sidecore_wire::{SeqNumber, TcpFlags, WindowScale};

#[test]
fn must_1_rec_1_windows_are_unsigned_and_of_32_bits() {
    // Not scaled: 0xffff would be -1.
    let mut t = Script::established();
    t.tx.max_segments_bytes = u32::MAX;
    t.recv(ack(0).window(0xffff));
    assert_eq!(t.connection.info().send_window, 0xffff);
    t.write(5000);
    t.sends([data(0, 5000)]);
    // Scaled by 14: 2^30 less a unit, which 16 or 31 bits signed would not hold.
    let config = Config {
        window_scale: Some(WindowScale::new(14)),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().scale(14));
    t.recv(ack(0).window(0xffff));
    assert_eq!(t.connection.info().send_window, 0xffff << 14);
}

#[test]
fn must_5_options_are_received_in_any_segment() {
    // Those of a SYN mean nothing later, and do no harm (MUST-65, RFC 7323 section 2.2, RFC 2018 section 2).
    let mut t = Script::established();
    let before = t.connection.info();
    let odd = data(0, 10).mss(Some(99)).scale(9).sack_permitted();
    assert_eq!(t.recv(odd.timestamps(5, 6)).accept.unwrap().len, 10);
    // Out of order, too.
    let ahead = data(20, 5).mss(Some(99)).sack_permitted();
    assert_eq!(t.recv(ahead).accept.unwrap().len, 5);
    t.sends([ack(10)]);
    t.recv(data(10, 10).mss(Some(99)));
    t.recv(fin(25).mss(Some(99)).scale(9));
    t.sends([ack(26)]);
    assert_eq!(t.state(), State::CloseWait);
    let info = t.connection.info();
    assert_eq!(info.effective_mss, before.effective_mss);
    assert_eq!(info.send_scale, before.send_scale);
    assert!(!info.sack && !info.timestamps);
}

#[test]
fn must_65_no_segment_but_a_syn_carries_an_mss_option() {
    let mut t = Script::established();
    t.write(1500);
    t.connection.shutdown_send();
    t.recv(data(0, 10));
    let mut seen = 0;
    while let Some(segment) = t.connection.poll_transmit(t.now, &t.tx, &mut t.ranges) {
        assert_eq!(segment.header.options.mss, None);
        assert_eq!(segment.header.options.window_scale, None);
        assert!(!segment.header.options.sack_permitted);
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[test]
fn must_15_the_default_is_configured() {
    let config = Config {
        mss: 1440,
        default_peer_mss: 1220,
        ..plain()
    };
    let t = Script::established_with(&config, syn().mss(None));
    assert_eq!(t.connection.info().effective_mss, 1220);
    let t = Script::established_with(&config, syn().mss(Some(1300)));
    assert_eq!(t.connection.info().effective_mss, 1300);
    let mut t = Script::connect(&config);
    t.sends([syn().mss(Some(1440))]);
    t.recv(syn_ack().mss(None));
    assert_eq!(t.connection.info().effective_mss, 1220);
}

#[test]
fn must_66_a_reset_counts_although_the_window_is_closed() {
    let mut t = Script::established();
    t.recv(data(0, BUFFER as u32));
    t.sends([ack(BUFFER as i64).window(0)]);
    // Elsewhere than at RCV.NXT it is outside of the window, which is empty.
    t.recv(rst(BUFFER as i64 + 1));
    assert_eq!(t.state(), State::Established);
    let outcome = t.recv(rst(BUFFER as i64));
    assert_eq!(outcome.closed, Some(CloseReason::Reset));
}

#[test]
fn with_a_closed_window_acks_count_and_data_does_not() {
    // Section 3.4: "it is possible for a TCP implementation to maintain a zero receive window while transmitting data and
    // receiving ACKs".
    let mut t = Script::established();
    t.recv(data(0, BUFFER as u32));
    t.sends([ack(BUFFER as i64).window(0)]);
    t.write(1000);
    t.sends([data(0, 1000).window(0)]);
    let outcome = t.recv(data(BUFFER as i64, 10).ack(1000));
    assert!(outcome.accept.is_none() && outcome.acked);
    assert_eq!(t.connection.send_una(), 1000);
    t.sends([ack(BUFFER as i64).window(0)]);
}

#[test]
fn must_23_a_syn_is_sent_for_three_minutes() {
    for accept in [false, true] {
        let config = Config::default();
        let mut t = if accept {
            Script::accept(&config, syn())
        } else {
            Script::connect(&config)
        };
        let start = t.now;
        loop {
            t.poll_any();
            if let (_, outcome) = t.fire_timer()
                && let Some(reason) = outcome.closed
            {
                assert_eq!(reason, CloseReason::TimedOut);
                break;
            }
        }
        assert!(t.now.duration_since(start) >= secs(180));
    }
}

#[test]
fn shld_10_shld_11_data_is_sent_for_a_hundred_seconds_at_least() {
    for orphan in [false, true] {
        let mut t = Script::established();
        t.write(100);
        t.poll_any();
        if orphan {
            t.connection.close();
            t.poll_any();
        }
        let start = t.now;
        let mut timeouts = 0;
        while t.fire_timer().1.closed.is_none() {
            t.poll_any();
            timeouts += 1;
        }
        assert!(timeouts >= 3);
        assert!(t.now.duration_since(start) >= secs(100), "orphan: {orphan}");
    }
}

#[test]
fn must_25_to_28_keepalive_is_off_and_waits_two_hours_by_default() {
    assert_eq!(Config::default().keepalive, None);
    assert!(Keepalive::default().idle >= secs(2 * 3600));
    let t = Script::established_with(&Config::default(), syn());
    t.no_timer();
}

#[test]
fn must_40_an_ack_is_never_delayed_by_half_a_second() {
    let config = Config {
        delayed_ack: secs(2),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    // The first segments are acknowledged quickly.
    for number in 0..20 {
        t.recv(data(number * 10, 10));
        assert!(t.fire() < ms(500));
        t.sends([ack(number * 10 + 10)]);
    }
    t.connection.set_delayed_ack(secs(3));
    t.recv(data(200, 10));
    assert!(t.fire() < ms(500));
    t.sends([ack(210)]);
}

#[test]
fn must_34_shld_15_no_new_data_goes_out_beyond_a_window_that_has_shrunk() {
    let mut t = Script::established();
    t.write(20_000);
    t.poll_any();
    assert_eq!(t.connection.send_nxt(), 10_000, "the initial window");
    // The usable window is 2000 - 9000: negative.
    t.recv(ack(1000).window(2000));
    t.sends([]);
    t.recv(ack(3000).window(0));
    t.sends([]);
    assert_eq!(t.connection.send_nxt(), 10_000);
    t.recv(ack(10_000).window(1000));
    t.sends([data(10_000, 1000)]);
}

#[test]
fn must_47_must_56_shld_25_soft_errors_are_told_and_end_nothing() {
    for kind in [
        IcmpKind::NetUnreachable,
        IcmpKind::HostUnreachable,
        IcmpKind::TimeExceeded,
        IcmpKind::ParameterProblem,
    ] {
        let mut t = Script::connect(&plain());
        t.sends([syn()]);
        assert!(!t.connection.info().soft_error);
        assert_eq!(t.connection.handle_icmp(t.now, ISS, kind), None, "{kind:?}");
        assert!(t.connection.info().soft_error);
        assert!(t.recv(syn_ack()).established);

        let mut t = Script::established();
        t.write(10);
        t.poll_any();
        let seq = ISS.add(1);
        assert_eq!(t.connection.handle_icmp(t.now, seq, kind), None, "{kind:?}");
        assert!(t.connection.info().soft_error);
        t.recv(ack(10));
        assert!(!t.connection.info().soft_error, "the peer has answered");
        assert_eq!(t.state(), State::Established);
    }
}

#[test]
fn shld_2_a_reset_may_carry_data() {
    let mut t = Script::established();
    assert_eq!(t.recv(rst(0).len(30)).closed, Some(CloseReason::Reset));
}

#[test]
fn must_11_a_reset_ends_a_handshake_by_its_kind() {
    // That it was a passive open survives a repeated SYN.
    let mut t = Script::accept(&plain(), syn());
    t.sends([syn_ack()]);
    t.recv(syn());
    t.sends([syn_ack()]);
    assert_eq!(t.recv(rst(0)).closed, Some(CloseReason::Reset));
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    t.recv(syn());
    t.sends([syn_ack()]);
    assert_eq!(t.state(), State::SynReceived);
    assert_eq!(t.recv(rst(0)).closed, Some(CloseReason::Refused));
}

#[test]
fn must_13_time_wait_lasts_twice_the_msl() {
    let mut t = Script::established();
    t.connection.shutdown_send();
    t.poll_any();
    t.recv(fin(0).ack(1));
    assert_eq!(t.state(), State::TimeWait);
    t.poll_any();
    assert_eq!(t.fire_timer().0, Config::default().time_wait);
    assert!(Config::default().time_wait >= secs(60));
    assert_eq!(t.state(), State::Closed);
}

#[test]
fn must_60_data_is_never_held_back_for_ever() {
    for hold in [0, 1, 2] {
        let mut t = Script::established();
        match hold {
            0 => t.connection.set_push(true),
            1 => t.connection.set_cork(true),
            _ => t.connection.set_no_delay(false),
        }
        t.write(10);
        if hold == 2 {
            // Nagle's algorithm: the first goes out, the second waits for its ACK.
            t.sends([data(0, 10)]);
            t.write(20);
            t.sends([]);
            t.recv(ack(10));
            t.sends([data(10, 10).push(true)]);
        } else {
            t.sends([]);
            assert!(t.fire() <= ms(200));
            t.sends([data(0, 10)]);
        }
    }
}

#[test]
fn must_61_the_last_segment_is_pushed() {
    let mut t = Script::established();
    t.write(3000);
    t.sends([
        data(0, 1000).push(false),
        data(1000, 1000).push(false),
        data(2000, 1000).push(true),
    ]);
    // A retransmission too.
    t.recv(ack(2000));
    t.fire();
    t.sends([data(2000, 1000).push(true)]);
    // And where there is room for more.
    let mut t = Script::established();
    for turn in 1..4 {
        let end = turn * 100;
        t.write(end as u64);
        t.sends([data(end - 100, 100).push(true)]);
        t.recv(ack(end));
    }
}

#[test]
fn must_12_the_end_says_how_it_was() {
    let closing = |t: &mut Script| {
        t.recv(fin(0));
        t.poll_any();
        t.connection.shutdown_send();
        t.poll_any();
    };
    let mut t = Script::established();
    closing(&mut t);
    assert_eq!(t.recv(ack(1)).closed, Some(CloseReason::Normal));
    let mut t = Script::established();
    assert!(t.recv(fin(0)).fin);
    assert_eq!(t.recv(rst(1)).closed, Some(CloseReason::Reset));
    let mut t = Script::established();
    t.write(10);
    t.poll_any();
    while t.connection.next_timeout().is_some() {
        t.fire_timer();
        t.poll_any();
    }
    assert_eq!(t.state(), State::Closed);
}

#[test]
fn sequence_numbers_of_an_old_half_open_connection_are_found_out() {
    // Section 3.5.1, figure 10: we have forgotten the connection and open it anew; the peer answers from the old one.
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    t.recv(ack(-500).seq(300));
    let reset = rst(-500);
    t.sends([reset]);
    assert_eq!(t.state(), State::SynSent);
    // The other side of it: a SYN within the window of a connection that lives, and then the RST that our challenge ACK provoked.
    let mut t = Script::established();
    t.recv(data(0, 300));
    t.recv(syn().seq(100));
    t.sends([ack(300).seq(0)]);
    let reset = rst(300);
    assert_eq!(t.recv(reset).closed, Some(CloseReason::Reset));
}

#[test]
fn flags_that_are_not_defined_change_nothing() {
    let mut t = Script::established();
    let reserved = TcpFlags::from_bits(0xe00);
    let outcome = t.recv(data(0, 10).with(reserved));
    assert_eq!(outcome.accept.unwrap().len, 10);
    assert_eq!(
        t.connection.next_sequence_number(),
        SeqNumber(ISS.0.wrapping_add(1))
    );
}

#[test]
fn rfc_7323_3_2_a_reset_carries_timestamps() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().timestamps(7, 0));
    t.connection.abort(t.now);
    let now = t.now.as_millis() as u32;
    t.sends([rst_ack(0, 0).timestamps(now, 7)]);
    let mut t = Script::established();
    t.connection.abort(t.now);
    let segment = t.connection.poll_transmit(t.now, &t.tx, &mut t.ranges);
    assert_eq!(segment.unwrap().header.options.timestamps, None);
}

#[test]
fn what_is_dropped_for_its_ack_leaves_no_timestamp_behind() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().timestamps(7, 0));
    let before = t.connection.info().last_received;
    t.pass(secs(1));
    // Blind, but with a good guess of the sequence number.
    for forged in [
        data(0, 10).ack(5000).timestamps(1 << 30, 0),
        data(0, 10).flags(TcpFlags::EMPTY).timestamps(1 << 30, 0),
    ] {
        assert!(t.recv(forged).accept.is_none());
    }
    assert_eq!(t.connection.info().last_received, before);
    // What the peer sends is still fresh.
    let outcome = t.recv(data(0, 10).ack(0).timestamps(8, 0));
    assert_eq!(outcome.accept.unwrap().len, 10);
}

#[test]
fn a_fin_from_nowhere_does_not_prolong_time_wait() {
    let mut t = Script::established();
    t.connection.shutdown_send();
    t.poll_any();
    t.recv(fin(0).ack(1));
    t.poll_any();
    t.pass(secs(50));
    for seq in [1 << 30, -(1 << 30), 20_000] {
        t.recv(fin(seq).ack(1));
        t.poll_any();
    }
    assert_eq!(t.fire(), secs(10));
    assert_eq!(t.state(), State::Closed);
}

#[test]
fn must_18_what_a_probe_has_sent_again_is_not_timed() {
    // Karn's algorithm, where no recovery begins: the ACK may be of either transmission.
    let config = Config {
        sack: true,
        ..plain()
    };
    let mut t = Script::established_over(&config, syn().sack_permitted(), ms(10));
    let before = t.connection.info().srtt_us;
    t.tx.max_segments_bytes = 4000;
    t.write(2000);
    t.sends([data(0, 2000)]);
    t.fire();
    t.sends([data(1000, 1000)]);
    t.pass(ms(150));
    t.recv(ack(2000));
    assert_eq!(t.connection.info().srtt_us, before);
}

#[test]
fn must_39_a_window_does_not_open_by_a_little() {
    let mut t = Script::established();
    let full = BUFFER as i64;
    t.recv(data(0, BUFFER as u32));
    t.sends([ack(full).window(0)]);
    // Less than a segment became free: not even an ACK that goes out anyway tells of it.
    t.connection.set_receive_limit(BUFFER + 999);
    t.sends([]);
    t.recv(data(full, 1));
    t.sends([ack(full).window(0)]);
    t.connection.set_receive_limit(BUFFER + 1000);
    t.sends([ack(full).window(1000)]);
}
