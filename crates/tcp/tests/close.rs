//! Closing: every way through the state diagram (RFC 9293 sections 3.6 and 3.10.4), orphans, TIME-WAIT.

mod common;

use common::script::*;
use sidecore_tcp::{CloseReason, Config, DropReason, Notice, State};

#[test]
fn we_close_first() {
    let mut t = Script::established();
    t.connection.shutdown_send();
    assert_eq!(t.state(), State::FinWait1);
    t.sends([fin(0).ack(0)]);
    assert!(!t.connection.fin_acked());
    let outcome = t.recv(ack(1));
    assert!(outcome.acked && t.connection.fin_acked());
    assert_eq!(t.state(), State::FinWait2);
    // Half closed: data still comes.
    assert!(t.recv(data(0, 10)).accept.is_some());
    let outcome = t.recv(fin(10));
    assert!(outcome.fin && t.connection.fin_received());
    assert_eq!(t.connection.receive_next(), 10);
    assert_eq!(t.state(), State::TimeWait);
    t.sends([ack(11).seq(1)]);
    assert_eq!(t.fire(), secs(60));
    assert_eq!(t.state(), State::Closed);
    t.sends([]);
    t.no_timer();
}

#[test]
fn time_wait_ends_normally() {
    let mut t = time_wait(Script::established());
    t.fire_closes(CloseReason::Normal);
}

#[test]
fn the_peer_closes_first() {
    let mut t = Script::established();
    assert!(t.recv(fin(0)).fin);
    assert_eq!(t.state(), State::CloseWait);
    t.sends([ack(1).seq(0)]);
    t.write(50);
    t.sends([data(0, 50).ack(1)]);
    t.recv(ack(50));
    t.connection.shutdown_send();
    assert_eq!(t.state(), State::LastAck);
    t.sends([fin(50).ack(1)]);
    let outcome = t.recv(ack(51));
    assert_eq!(outcome.closed, Some(CloseReason::Normal));
    assert_eq!(t.state(), State::Closed);
    assert_eq!(t.connection.send_una(), 50);
    t.sends([]);
    t.no_timer();
}

/// ESTABLISHED, and the ACK of the peer's FIN may wait.
fn with_a_late_ack() -> Script {
    let config = Config {
        delay_fin_ack: true,
        ..plain()
    };
    Script::established_with(&config, syn())
}

#[test]
fn our_fin_carries_the_ack_of_the_peers() {
    let mut t = with_a_late_ack();
    assert!(t.recv(fin(0)).fin);
    assert_eq!(t.state(), State::CloseWait);
    t.sends([]);
    t.quiet(ms(39));
    t.connection.shutdown_send();
    t.sends([fin(0).ack(1)]);
    assert_eq!(t.state(), State::LastAck);
    let outcome = t.recv(ack(1));
    assert_eq!(outcome.closed, Some(CloseReason::Normal));
    t.sends([]);
    t.no_timer();
}

#[test]
fn the_ack_of_a_fin_waits_no_longer_than_that_of_data() {
    let mut t = with_a_late_ack();
    t.recv(fin(0));
    assert_eq!(t.fire(), ms(40));
    t.sends([ack(1).seq(0)]);
    // What we send carries it, too.
    let mut t = with_a_late_ack();
    t.recv(fin(0));
    t.write(50);
    t.sends([data(0, 50).ack(1)]);
    // With the data before it, which is acknowledged quickly.
    let mut t = with_a_late_ack();
    t.recv(data(0, 10));
    t.recv(fin(10));
    assert_eq!(t.fire(), ms(1));
    t.sends([ack(11).seq(0)]);
}

#[test]
fn a_fin_out_of_order_or_again_is_acknowledged_at_once() {
    let mut t = with_a_late_ack();
    t.recv(fin(10));
    t.sends([ack(0)]);
    t.recv(data(0, 10));
    // That has filled the gap before the FIN.
    assert_eq!(t.state(), State::CloseWait);
    t.sends([ack(11)]);
    t.recv(fin(10));
    t.sends([ack(11)]);
    // One that goes beyond the window is none.
    let mut t = with_a_late_ack();
    t.recv(fin(BUFFER as i64 + 10));
    t.sends([ack(0)]);
    assert_eq!(t.state(), State::Established);
    // Without delayed ACKs there is none that waits.
    let mut t = with_a_late_ack();
    t.connection.set_delayed_ack(ms(0));
    t.recv(fin(0));
    t.sends([ack(1)]);
    // In FIN-WAIT-2 nothing follows that could carry it.
    let mut t = with_a_late_ack();
    t.connection.shutdown_send();
    t.sends([fin(0).ack(0)]);
    t.recv(ack(1));
    t.recv(fin(0));
    t.sends([ack(1)]);
    assert_eq!(t.state(), State::TimeWait);
}

#[test]
fn simultaneous_close() {
    let mut t = Script::established();
    t.connection.shutdown_send();
    t.sends([fin(0)]);
    assert!(t.recv(fin(0)).fin);
    assert_eq!(t.state(), State::Closing);
    t.sends([ack(1).seq(1)]);
    t.recv(ack(1));
    assert_eq!(t.state(), State::TimeWait);
    t.fire_closes(CloseReason::Normal);
}

#[test]
fn fin_and_ack_of_our_fin_in_one() {
    let mut t = Script::established();
    t.connection.shutdown_send();
    t.sends([fin(0)]);
    assert!(t.recv(fin(0).ack(1)).fin);
    assert_eq!(t.state(), State::TimeWait);
    t.sends([ack(1).seq(1)]);
}

#[test]
fn data_fin_and_ack_of_our_fin_in_one() {
    let mut t = Script::established();
    t.connection.shutdown_send();
    t.sends([fin(0)]);
    let outcome = t.recv(data(0, 100).ack(1).fin());
    assert!(outcome.fin && outcome.accept.is_some());
    assert_eq!(t.state(), State::TimeWait);
    t.sends([ack(101).seq(1)]);
}

#[test]
fn the_fin_rides_on_the_last_data() {
    let mut t = Script::established();
    t.write(1500);
    t.connection.shutdown_send();
    t.sends([data(0, 1000).push(false), data(1000, 500).fin().push(true)]);
    t.recv(ack(1501));
    assert_eq!(t.state(), State::FinWait2);
    assert_eq!(t.connection.send_una(), 1500);
}

#[test]
fn writing_after_shutdown_is_ignored() {
    let mut t = Script::established();
    t.connection.shutdown_send();
    t.connection.shutdown_send();
    t.write(100);
    t.sends([fin(0)]);
    t.recv(ack(1));
    t.sends([]);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut t = Script::established();
    t.write(100);
    t.connection.shutdown_send();
    t.sends([data(0, 100).fin()]);
    t.fire();
    t.sends([data(0, 100).fin()]);
    t.recv(ack(100));
    t.sends([]);
    t.fire();
    t.sends([fin(100)]);
    t.recv(ack(101));
    assert_eq!(t.state(), State::FinWait2);
    t.no_timer();
}

#[test]
fn a_fin_out_of_order_waits_for_the_data() {
    let mut t = Script::established();
    let outcome = t.recv(data(100, 100).fin());
    assert!(!outcome.fin);
    assert!(!outcome.accept.unwrap().in_order);
    assert_eq!(t.state(), State::Established);
    t.sends([ack(0)]);
    let outcome = t.recv(data(0, 100));
    assert!(outcome.fin);
    assert_eq!(t.connection.receive_next(), 200);
    assert_eq!(t.state(), State::CloseWait);
    t.sends([ack(201)]);
}

#[test]
fn a_bare_fin_out_of_order_waits_for_the_data() {
    let mut t = Script::established();
    assert!(!t.recv(fin(200)).fin);
    t.sends([ack(0)]);
    assert!(!t.recv(data(0, 100)).fin);
    assert!(t.recv(data(100, 100)).fin);
    t.sends([ack(201)]);
}

#[test]
fn data_after_a_fin_is_not_taken() {
    let mut t = Script::established();
    t.recv(fin(100));
    let outcome = t.recv(data(50, 100));
    assert_eq!(outcome.accept.unwrap().len, 50);
    let outcome = t.recv(data(100, 10));
    assert!(outcome.accept.is_none());
    let outcome = t.recv(data(0, 50));
    assert!(outcome.fin);
    assert_eq!(t.connection.receive_next(), 100);
    let outcome = t.recv(data(101, 10));
    assert_eq!(outcome.dropped, Some(DropReason::AfterFin));
    t.sends([ack(101)]);
    assert_eq!(t.ranges.available(), t.ranges.capacity());
}

#[test]
fn a_repeated_fin_is_acknowledged_again() {
    let mut t = Script::established();
    t.recv(fin(0));
    t.sends([ack(1)]);
    let outcome = t.recv(fin(0));
    assert!(!outcome.fin);
    t.sends([ack(1)]);
    assert_eq!(t.state(), State::CloseWait);
}

fn time_wait(mut t: Script) -> Script {
    t.connection.shutdown_send();
    t.sends([fin(0)]);
    t.recv(fin(0).ack(1));
    t.sends([ack(1)]);
    assert_eq!(t.state(), State::TimeWait);
    t
}

#[test]
fn time_wait_acknowledges_a_repeated_fin_and_starts_again() {
    let mut t = time_wait(Script::established());
    t.pass(secs(50));
    t.recv(fin(0).ack(1));
    t.sends([ack(1).seq(1)]);
    assert_eq!(t.fire(), secs(60));
    assert_eq!(t.state(), State::Closed);
}

#[test]
fn time_wait_is_reused_by_a_newer_syn() {
    // RFC 9293 section 3.10.7.4: by the sequence number.
    let mut t = time_wait(Script::established());
    let outcome = t.recv(syn().seq(100_000));
    assert_eq!(outcome.notice, Some(Notice::Respawn));
    assert_eq!(t.state(), State::TimeWait);
    t.sends([]);
    // An old SYN is answered by an ACK.
    let outcome = t.recv(syn().seq(-5000));
    assert_eq!(outcome.notice, None);
    assert_eq!(outcome.dropped, Some(DropReason::UnexpectedSyn));
    t.sends([ack(1).seq(1)]);
}

#[test]
fn time_wait_is_reused_by_a_syn_with_a_newer_timestamp() {
    // RFC 6191: by the timestamp, whatever the sequence number.
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let t = Script::established_with(&config, syn().timestamps(500, 0));
    let mut t = time_wait(t);
    assert_eq!(
        t.recv(syn().seq(-90_000).timestamps(501, 0)).notice,
        Some(Notice::Respawn)
    );
    assert_eq!(t.recv(syn().seq(-90_000).timestamps(500, 0)).notice, None);
    assert_eq!(
        t.recv(syn().seq(90_000).timestamps(500, 0)).notice,
        Some(Notice::Respawn)
    );
    assert_eq!(t.recv(syn().seq(90_000).timestamps(499, 0)).notice, None);
}

#[test]
fn time_wait_takes_no_data() {
    let mut t = time_wait(Script::established());
    assert!(t.recv(data(1, 10).ack(1)).accept.is_none());
    assert_eq!(t.state(), State::TimeWait);
    t.sends([ack(1)]);
}

#[test]
fn rfc_1337_no_reset_ends_time_wait() {
    let mut t = time_wait(Script::established());
    for reset in [rst(1), rst_ack(1, 1), rst(2), rst(500)] {
        let outcome = t.recv(reset);
        assert_eq!(outcome.closed, None);
        assert_eq!(outcome.dropped, Some(DropReason::BadReset));
        t.sends([]);
    }
    assert_eq!(t.state(), State::TimeWait);
    t.fire_closes(CloseReason::Normal);
}

#[test]
fn an_orphan_answers_data_by_a_reset() {
    // RFC 1122 section 4.2.2.13.
    let mut t = Script::established();
    t.connection.close();
    t.sends([fin(0).ack(0)]);
    t.recv(ack(1));
    assert_eq!(t.state(), State::FinWait2);
    let outcome = t.recv(data(0, 10));
    assert_eq!(outcome.closed, Some(CloseReason::Reset));
    assert_eq!(outcome.dropped, Some(DropReason::AfterClose));
    assert!(outcome.accept.is_none());
    t.sends([rst(1)]);
    assert_eq!(t.state(), State::Closed);
    t.sends([]);
}

#[test]
fn the_reset_of_an_orphan_is_where_the_peer_is() {
    // RFC 5961 section 3.2: a reset that is not exactly at RCV.NXT would be challenged; the FIN was lost.
    let mut t = Script::established();
    t.connection.close();
    t.sends([fin(0).ack(0)]);
    t.recv(data(0, 10).ack(0));
    t.sends([rst(0)]);
    assert_eq!(t.state(), State::Closed);
}

#[test]
fn rfc_7323_3_2_a_reset_carries_timestamps() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().timestamps(100, 0));
    t.recv(data(0, 10).timestamps(200, 0));
    t.poll_any();
    let clock = t.now.as_millis() as u32;
    t.connection.abort(t.now);
    t.sends([rst_ack(0, 10).timestamps(clock, 200)]);
}

#[test]
fn a_fin_alone_pushes_nothing() {
    let mut t = Script::established();
    t.connection.shutdown_send();
    t.sends([fin(0).push(false)]);
    t.fire();
    t.sends([fin(0).push(false)]);
    let mut t = Script::established();
    t.write(10);
    t.connection.shutdown_send();
    t.sends([data(0, 10).fin().push(true)]);
}

#[test]
fn an_orphan_closes_in_peace() {
    let mut t = Script::established();
    t.write(100);
    t.connection.close();
    t.sends([data(0, 100).fin()]);
    t.recv(ack(101));
    t.recv(fin(0));
    t.sends([ack(1)]);
    assert_eq!(t.state(), State::TimeWait);
}

#[test]
fn an_orphan_does_not_wait_for_ever_in_fin_wait_2() {
    let mut t = Script::established();
    t.connection.close();
    t.sends([fin(0)]);
    t.recv(ack(1));
    assert_eq!(t.state(), State::FinWait2);
    assert_eq!(t.fire(), secs(60));
    assert_eq!(t.state(), State::Closed);
    t.sends([]);
    // Half closed first, orphaned an hour later.
    let mut t = Script::established();
    t.connection.shutdown_send();
    t.sends([fin(0)]);
    t.recv(ack(1));
    t.quiet(secs(3600));
    t.connection.close();
    t.sends([]);
    assert_eq!(t.fire(), secs(60));
    assert_eq!(t.state(), State::Closed);
}

#[test]
fn a_half_closed_connection_waits_for_ever() {
    let mut t = Script::established();
    t.connection.shutdown_send();
    t.sends([fin(0)]);
    t.recv(ack(1));
    t.no_timer();
}

#[test]
fn an_orphan_gives_up_sooner() {
    let mut t = Script::established();
    t.write(100);
    t.connection.close();
    t.sends([data(0, 100).fin()]);
    for _ in 0..8 {
        t.fire();
        t.sends([data(0, 100).fin()]);
    }
    t.fire_closes(CloseReason::TimedOut);
    t.sends([]);
}

#[test]
fn abort_in_every_state() {
    let mut t = Script::established();
    t.write(100);
    t.sends([data(0, 100)]);
    t.connection.abort(t.now);
    t.sends([rst_ack(100, 0)]);
    t.no_timer();
    assert_eq!(t.recv(ack(100)).dropped, Some(DropReason::Closed));

    let mut t = Script::established();
    t.connection.shutdown_send();
    t.sends([fin(0)]);
    t.connection.abort(t.now);
    t.sends([rst_ack(1, 0)]);

    let mut t = Script::established();
    t.recv(fin(0));
    t.sends([ack(1)]);
    t.connection.abort(t.now);
    t.sends([rst_ack(0, 1)]);

    // LAST-ACK and TIME-WAIT: the ABORT succeeds, and the TCB is deleted.
    let mut t = Script::established();
    t.recv(fin(0));
    t.connection.shutdown_send();
    t.sends([fin(0).ack(1)]);
    t.connection.abort(t.now);
    t.sends([]);
    let mut t = time_wait(Script::established());
    t.connection.abort(t.now);
    t.sends([]);
    t.no_timer();
}

#[test]
fn closing_with_unsent_data_sends_it_first() {
    let mut t = Script::established();
    t.write(25_000);
    t.connection.close();
    for _ in 0..200 {
        if t.state() != State::FinWait1 {
            break;
        }
        while let Some(segment) = t.connection.poll_transmit(t.now, &t.tx, &mut t.ranges) {
            assert!(segment.payload.end <= 25_000);
        }
        let una = t.connection.send_nxt() as i64;
        let all = i64::from(una == 25_000);
        t.pass(ms(10));
        t.recv(ack(una + all));
    }
    assert_eq!(t.state(), State::FinWait2);
    assert_eq!(t.connection.send_una(), 25_000);
}

#[test]
fn a_fin_that_contradicts_data_is_none() {
    let mut t = Script::established();
    t.recv(data(50, 250));
    assert!(!t.recv(fin(100)).fin);
    let outcome = t.recv(data(0, 50));
    assert!(!outcome.fin);
    assert_eq!(t.connection.receive_next(), 300);
    assert!(t.recv(fin(300)).fin);
}

#[test]
fn a_duplicate_may_bring_the_fin() {
    let mut t = Script::established();
    t.recv(data(100, 100));
    t.recv(data(100, 100).fin());
    assert!(t.recv(data(0, 100)).fin);
    let mut t = Script::established();
    t.recv(data(0, 100));
    assert!(t.recv(data(0, 100).fin()).fin);
    t.sends([ack(101)]);
}
