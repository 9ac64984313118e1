//! Numbers that wrap: sequence numbers, streams of more than 4 GiB, timestamps.

mod common;

use common::script::*;
use sidecore_tcp::{Config, Connection, Instant, RangePool, TxLimits};
use sidecore_wire::{SeqNumber, TcpFlags, TcpHeader, WindowScale};

#[test]
fn sequence_numbers_wrap_at_any_point() {
    for before in [1, 2, 500, 1000, 1001, 1500] {
        let iss = SeqNumber(0u32.wrapping_sub(before));
        let irs = SeqNumber(0u32.wrapping_sub(before + 3));
        let config = Config {
            sack: true,
            ..plain()
        };
        let mut t = Script::accept_at(&config, syn().sack_permitted(), iss, irs);
        t.sends([syn_ack().sack_permitted()]);
        t.recv(ack(0));
        t.write(3000);
        t.sends([data(0, 1000), data(1000, 1000), data(2000, 1000)]);
        t.recv(ack(0).sack(&[(1000, 3000)]));
        t.sends([data(0, 1000)]);
        t.recv(ack(3000));
        t.recv(data(1000, 1000));
        t.sends([ack(0).sack(&[(1000, 2000)])]);
        t.recv(data(0, 1000));
        t.sends([ack(2000).seq(3000)]);
        assert_eq!(t.connection.send_una(), 3000);
        assert_eq!(t.connection.receive_next(), 2000);
    }
}

/// Both directions of one connection run for more than 4 GiB, in super-segments.
#[test]
fn streams_of_more_than_4_gib() {
    const TOTAL: u64 = (1 << 33) + 12_345;
    let config = Config {
        mss: 60_000,
        window_scale: Some(WindowScale::new(10)),
        ..Config::default()
    };
    let mut now = Instant::from_secs(1);
    let tx = TxLimits {
        max_segments_bytes: 60_000,
    };
    let mut ranges = RangePool::new(0);
    let mut a = Connection::connect(now, &config, SeqNumber(u32::MAX - 5));
    a.set_receive_limit(1 << 22);
    let syn = a.poll_transmit(now, &tx, &mut ranges).unwrap();
    let mut b = Connection::accept(now, &config, SeqNumber(12), &syn.header);
    b.set_receive_limit(1 << 22);
    let mut closing = false;
    for _ in 0..2_000_000 {
        now += MS;
        for connection in [&mut a, &mut b] {
            let limit = connection.send_una() + (1 << 22);
            connection.set_send_limit(limit.min(TOTAL));
            connection.set_receive_limit(connection.receive_next() + (1 << 22));
        }
        for _ in 0..2 {
            while let Some(segment) = a.poll_transmit(now, &tx, &mut ranges) {
                let len = (segment.payload.end - segment.payload.start) as u32;
                b.handle_segment(now, &segment.header, len, true, &mut ranges);
            }
            core::mem::swap(&mut a, &mut b);
        }
        if !closing && a.receive_next() == TOTAL && b.receive_next() == TOTAL {
            closing = true;
            a.shutdown_send();
            b.shutdown_send();
        }
        if closing && a.fin_acked() && b.fin_acked() {
            break;
        }
    }
    assert_eq!(a.send_una(), TOTAL);
    assert_eq!(b.send_una(), TOTAL);
    assert!(a.fin_received() && b.fin_received());
    assert_eq!(a.info().retransmissions + b.info().retransmissions, 0);
}

#[test]
fn timestamps_wrap() {
    let config = Config {
        timestamps: true,
        // The clock stands at 100 000 ms: five more and it wraps.
        timestamp_offset: 0u32.wrapping_sub(100_005),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().timestamps(u32::MAX - 3, 0));
    t.write(1);
    t.sends([data(0, 1).timestamps(u32::MAX - 4, u32::MAX - 3)]);
    t.pass(ms(10));
    t.recv(ack(1).timestamps(3, u32::MAX - 4));
    t.write(2);
    t.sends([data(1, 1).timestamps(5, 3)]);
    // From before the wrap: old.
    let outcome = t.recv(data(0, 5).timestamps(u32::MAX, 0));
    assert!(outcome.accept.is_none());
}

#[test]
fn far_ahead_writers_are_no_trouble() {
    // An application may have queued more than 2 GiB.
    let mut t = Script::established();
    t.write(1 << 40);
    t.tx.max_segments_bytes = 65_000;
    t.recv(ack(0));
    t.sends([data(0, 10_000)]);
    t.recv(ack(10_000).window(65_535));
    assert!(t.connection.wants_transmit());
}

#[test]
fn data_half_the_circle_away_is_old_or_out_of_the_window() {
    let mut t = Script::established();
    for distance in [1 << 31, (1 << 31) - 1, (1 << 31) + 1] {
        let header = TcpHeader {
            seq: IRS.add(1).add(distance),
            ack: ISS.add(1),
            flags: TcpFlags::ACK,
            ..TcpHeader::default()
        };
        let outcome = t
            .connection
            .handle_segment(t.now, &header, 100, true, &mut t.ranges);
        assert!(outcome.accept.is_none() && outcome.dropped.is_some());
        t.sends([ack(0)]);
    }
    // A segment that is long enough to reach around to us.
    let header = TcpHeader {
        seq: IRS.sub(5000),
        ack: ISS.add(1),
        flags: TcpFlags::ACK | TcpFlags::FIN,
        ..TcpHeader::default()
    };
    let outcome = t
        .connection
        .handle_segment(t.now, &header, u32::MAX, true, &mut t.ranges);
    let taken = outcome.accept.map(|range| range.len);
    assert_eq!(taken, Some(BUFFER as u32));
}
