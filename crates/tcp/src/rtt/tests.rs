//! RFC 6298 by numbers.

use super::*;

#[test]
fn the_first_sample() {
    let mut rtt = RttEstimator::default();
    rtt.sample(100_000);
    assert_eq!(rtt.srtt_us(), 100_000);
    // RTO = R + 4 * R/2.
    assert_eq!(rtt.rto_us(1_000), 300_000);
}

#[test]
fn a_steady_path_converges() {
    let mut rtt = RttEstimator::default();
    rtt.sample(300_000);
    for _ in 0..200 {
        rtt.sample(50_000);
    }
    assert!(rtt.srtt_us().abs_diff(50_000) < 10);
    // The variation dies out; what is left is the clock's granularity.
    assert!(rtt.rto_us(1_000) < 52_000, "{}", rtt.rto_us(1_000));
}

#[test]
fn a_second_sample_by_hand() {
    let mut rtt = RttEstimator::default();
    rtt.sample(8000);
    rtt.sample(16_000);
    // SRTT = 7/8 * 8000 + 1/8 * 16000; RTTVAR = 3/4 * 4000 + 1/4 * |8000 - 16000|.
    assert_eq!(rtt.srtt_us(), 9000);
    assert_eq!(rtt.rttvar_x4 / 4, 5000);
    assert_eq!(rtt.rto_us(1_000), 29_000);
}

#[test]
fn the_extremes_do_not_overflow() {
    let mut rtt = RttEstimator::default();
    for sample in [MAX_RTT_US, 1, MAX_RTT_US, MAX_RTT_US, 1, 1] {
        rtt.sample(sample);
        assert!(rtt.rto_us(1_000) >= rtt.srtt_us());
    }
    for _ in 0..1000 {
        rtt.sample(MAX_RTT_US);
    }
    assert!(rtt.srtt_us() <= MAX_RTT_US);
    for _ in 0..1000 {
        rtt.sample(1);
    }
    assert!(rtt.srtt_x8 > 0);
}
