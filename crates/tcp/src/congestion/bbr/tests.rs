//! The state machine, fed by hand: a path of 10 ms that delivers a million bytes a second, 10 000 at a time.

use super::super::{Controller, Delivered, Lost};
use super::*;

const MSS: u32 = 1000;
const RTT_US: u32 = 10_000;
/// What the path delivers in a round trip.
const BDP: u32 = 10_000;

/// A sender and the path.
struct Path {
    bbr: Box<Bbr>,
    window: Window,
    now: Instant,
    sent: u32,
    /// Bytes of a round trip.
    volume: u32,
}

impl Path {
    fn new() -> Self {
        let now = Instant::from_secs(100);
        Self {
            bbr: Box::new(Bbr::new(now, 12345)),
            window: Window::initial(10, MSS),
            now,
            sent: 0,
            volume: BDP,
        }
    }

    fn ack(&self, bytes: u32, newest: Tick) -> Delivered {
        Delivered {
            now: self.now,
            bytes,
            newest: Some(newest),
            una: self.sent,
            rtt_us: Tick::at(self.now).since(newest) as u32,
            min_rtt_us: RTT_US,
            in_flight: 0,
            mss: MSS,
            cwnd_limited: true,
            recovering: false,
            sack: true,
        }
    }

    fn send(&mut self, bytes: u32, before: u32) -> Tick {
        let setting = Setting {
            mss: MSS,
            initial_window: 10 * MSS,
            srtt_us: RTT_US,
            in_flight: before,
        };
        self.bbr.on_transmit(self.now, &setting, &mut self.window);
        self.sent = self.sent.wrapping_add(bytes);
        let at = Tick::at(self.now);
        self.bbr.on_sent(&Transmission {
            at,
            before,
            in_flight: before + bytes,
            end: self.sent,
            granularity_us: 0,
        });
        at
    }

    /// One round trip: so much is sent at once, and delivered as fast as the path can.
    fn round(&mut self) -> Delivered {
        let bytes = self.volume;
        let at = self.send(bytes, 0);
        let takes = u64::from(RTT_US) * u64::from(bytes.max(BDP)) / u64::from(BDP);
        self.now = self.now.after_micros(takes as u32);
        let ack = self.ack(bytes, at);
        self.bbr.on_delivered(&mut self.window, &ack);
        ack
    }

    fn until(&mut self, state: BbrState) {
        for _ in 0..2000 {
            if self.bbr.state == state {
                return;
            }
            self.round();
        }
        panic!("never {state:?}: {:?}", self.bbr);
    }

    fn lose(&mut self, bytes: u32, sent: Tick) {
        let lost = Lost {
            now: self.now,
            bytes,
            sent: Some(sent),
            sack: true,
        };
        self.bbr.on_lost(&self.window, &lost);
    }
}

#[test]
fn startup_ends_after_three_rounds_without_growth() {
    let mut path = Path::new();
    path.volume = 1000;
    while path.volume < BDP {
        path.round();
        assert_eq!(path.bbr.state, BbrState::Startup);
        path.volume *= 2;
    }
    path.volume = BDP;
    let mut rounds = 0;
    while path.bbr.state == BbrState::Startup {
        path.round();
        rounds += 1;
    }
    // One that still grows, and three.
    assert_eq!(rounds, 4);
    assert!(path.bbr.full_bw_reached && path.bbr.full_bw_now);
    assert!((990_000..=1_000_000).contains(&path.bbr.max_bw));
    // 2.77 times, then half.
    path.bbr.state = BbrState::Drain;
    path.bbr.set_pacing_rate();
    assert_eq!(path.bbr.pacing_rate, path.bbr.bw / 100 * 50 / 100 * 99);
}

#[test]
fn rounds_that_the_application_limits_do_not_end_startup() {
    let mut path = Path::new();
    for _ in 0..50 {
        path.bbr.sampler.mark_app_limited(2 * BDP);
        path.round();
    }
    assert_eq!(path.bbr.state, BbrState::Startup);
    assert!(!path.bbr.full_bw_reached);
}

#[test]
fn startup_ends_by_loss_above_the_threshold_in_six_ranges() {
    for (ranges, ends) in [(5, false), (6, true)] {
        let mut path = Path::new();
        for _ in 0..2 {
            path.round();
        }
        // Losses of a round in which the application was the limit: bandwidth says nothing.
        path.bbr.sampler.mark_app_limited(10 * BDP);
        for _ in 0..2 {
            let at = path.send(BDP, 0);
            path.now = path.now.after_micros(RTT_US);
            for _ in 0..ranges {
                path.lose(100, at);
            }
            let mut ack = path.ack(BDP - ranges * 100, at);
            ack.recovering = true;
            path.bbr.on_delivered(&mut path.window, &ack);
        }
        assert_eq!(path.bbr.full_bw_reached, ends, "{ranges}");
        assert_eq!(path.bbr.inflight_longterm != INFINITY, ends);
        assert_eq!(path.bbr.undo_state, ends.then_some(BbrState::Startup));
    }
}

#[test]
fn a_spurious_recovery_takes_startup_back() {
    let mut path = Path::new();
    for _ in 0..2 {
        path.round();
    }
    path.bbr.sampler.mark_app_limited(10 * BDP);
    for _ in 0..2 {
        let at = path.send(BDP, 0);
        path.now = path.now.after_micros(RTT_US);
        for _ in 0..6 {
            path.lose(100, at);
        }
        let mut ack = path.ack(BDP - 600, at);
        ack.recovering = true;
        path.bbr.on_delivered(&mut path.window, &ack);
    }
    assert_ne!(path.bbr.state, BbrState::Startup);
    let before = path.bbr.prior_cwnd;
    path.window.cwnd = MSS;
    path.bbr.on_undo(&mut path.window, path.now);
    assert_eq!(path.bbr.state, BbrState::Startup);
    assert!(!path.bbr.full_bw_reached && !path.bbr.is_loss_in_round);
    assert_eq!(path.bbr.inflight_longterm, INFINITY);
    assert_eq!(path.window.cwnd, before);
}

#[test]
fn too_much_loss_in_up_ends_the_probe_and_sets_the_bound() {
    let mut path = Path::new();
    path.until(BbrState::ProbeBwUp);
    assert_eq!(path.bbr.state.cwnd_gain(), 225);
    let at = path.send(12_000, 0);
    path.now = path.now.after_micros(RTT_US);
    // 2 % of 12 000 is 240.
    path.lose(200, at);
    assert_eq!(path.bbr.state, BbrState::ProbeBwUp);
    path.lose(1000, at);
    assert_eq!(path.bbr.state, BbrState::ProbeBwDown);
    assert!(path.bbr.prev_probe_too_high && !path.bbr.is_bw_probe_sample);
    // Where losses crossed the threshold: 11 000 + (0.02 * 11 000 - 200) / 0.98.
    assert_eq!(path.bbr.inflight_longterm, 11_020);
    // 15 % of it are left free.
    assert_eq!(path.bbr.inflight_with_headroom(), 11_020 - 1_653);
    // Taken back, the pipe is filled again and probed.
    path.bbr.on_undo(&mut path.window, path.now);
    assert_eq!(path.bbr.state, BbrState::ProbeBwRefill);
    assert_eq!(path.bbr.inflight_longterm, INFINITY);
}

#[test]
fn loss_while_cruising_lowers_the_short_term_bounds_to_what_is_delivered_but_not_below_beta() {
    let mut path = Path::new();
    path.until(BbrState::ProbeBwCruise);
    let bandwidth = path.bbr.max_bw;
    let at = path.send(BDP, 0);
    path.now = path.now.after_micros(RTT_US);
    path.lose(1000, at);
    let mut ack = path.ack(BDP - 1000, at);
    ack.recovering = true;
    path.bbr.on_delivered(&mut path.window, &ack);
    path.volume = 9_000;
    path.round();
    assert_eq!(path.bbr.max_bw, bandwidth);
    let short = path.bbr.bw_shortterm;
    assert!(
        short >= bandwidth / 100 * 70 && short <= bandwidth,
        "{short}"
    );
    assert!(path.bbr.inflight_shortterm != INFINITY);
    assert_eq!(path.bbr.bw, short);
    // The next probe forgets them.
    path.volume = BDP;
    path.until(BbrState::ProbeBwRefill);
    assert_eq!(
        (path.bbr.bw_shortterm, path.bbr.inflight_shortterm),
        (u64::MAX, INFINITY)
    );
}

#[test]
fn the_next_probe_comes_after_two_or_three_seconds_or_as_many_rounds_as_segments() {
    let mut path = Path::new();
    path.until(BbrState::ProbeBwUp);
    path.until(BbrState::ProbeBwDown);
    // Ten segments of BDP: the rounds are fewer than two seconds have.
    let stamp = path.bbr.cycle_stamp;
    assert!((2_000_000..3_000_000).contains(&path.bbr.bw_probe_wait_us));
    path.until(BbrState::ProbeBwRefill);
    let waited = path.now.micros_since(stamp, u32::MAX);
    assert!((80_000..150_000).contains(&waited), "{waited}");
    path.round();
    assert_eq!(path.bbr.state, BbrState::ProbeBwUp);
}

#[test]
fn probe_rtt_comes_every_five_seconds_and_lasts_a_fifth_of_one() {
    let mut path = Path::new();
    path.until(BbrState::ProbeBwCruise);
    path.until(BbrState::ProbeRtt);
    let entered = path.now;
    let least = path.bbr.probe_rtt_min_stamp;
    assert_eq!(path.bbr.probe_rtts, 1);
    // Half of the BDP; no less than four segments.
    assert!(path.window.cwnd <= BDP / 2, "{}", path.window.cwnd);
    path.volume = 4_000;
    while path.bbr.state == BbrState::ProbeRtt {
        path.round();
    }
    let lasted = path.now.micros_since(entered, u32::MAX);
    assert!((200_000..230_000).contains(&lasted), "{lasted}");
    assert_eq!(path.bbr.state, BbrState::ProbeBwCruise);
    assert!(path.bbr.probe_rtt_min_stamp > least);
    // The window is what it was.
    assert!(path.window.cwnd > BDP, "{}", path.window.cwnd);
    // What was delivered meanwhile is no bandwidth.
    assert!(path.bbr.max_bw > 980_000, "{}", path.bbr.max_bw);
}

#[test]
fn idleness_is_a_probe_of_the_round_trip() {
    let mut path = Path::new();
    path.until(BbrState::ProbeBwCruise);
    path.bbr.sampler.mark_app_limited(0);
    path.now = path.now.after_millis(30_000);
    path.round();
    assert_eq!(path.bbr.probe_rtts, 0);
    assert!(!path.bbr.idle_restart);
}

#[test]
fn the_greatest_bandwidth_is_that_of_two_cycles() {
    let mut path = Path::new();
    path.until(BbrState::ProbeBwCruise);
    let before = path.bbr.max_bw;
    path.bbr.advance_max_bw_filter();
    // No sample in this cycle: what is known stays.
    path.bbr.advance_max_bw_filter();
    assert_eq!(path.bbr.max_bw, before);
    path.bbr.max_bw_filter[1] = before / 2;
    path.bbr.advance_max_bw_filter();
    assert_eq!(path.bbr.max_bw, before / 2);
}

#[test]
fn aggregated_acks_widen_the_window() {
    let mut path = Path::new();
    path.until(BbrState::ProbeBwCruise);
    path.bbr.min_rtt_us = RTT_US;
    let plain = path.bbr.max_inflight;
    // Two round trips' worth is acknowledged at once.
    let at = path.send(2 * BDP, 0);
    path.now = path.now.after_micros(RTT_US);
    let ack = path.ack(2 * BDP, at);
    path.bbr.on_delivered(&mut path.window, &ack);
    let extra = path.bbr.extra_acked_filter.get();
    assert!(extra >= BDP - 1000, "{extra}");
    assert!(
        path.bbr.max_inflight > plain,
        "{} {plain}",
        path.bbr.max_inflight
    );
}

#[test]
fn another_clock_changes_nothing() {
    let run = |jump: bool| {
        let mut path = Path::new();
        path.until(BbrState::ProbeBwCruise);
        if jump {
            let to = Instant::from_secs(9_999);
            path.bbr.change_clock(path.now, to);
            path.now = to;
        }
        let mut states = Vec::new();
        for _ in 0..600 {
            path.round();
            states.push((path.bbr.state, path.window.cwnd, path.bbr.pacing_rate));
        }
        states
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn an_rto_leaves_one_segment_and_its_end_restores_the_window() {
    let mut path = Path::new();
    path.until(BbrState::ProbeBwCruise);
    let before = path.window.cwnd;
    path.bbr.on_rto(&mut path.window, path.now, BDP, MSS);
    assert_eq!(path.window.cwnd, MSS);
    path.volume = 4_000;
    path.round();
    assert!(path.window.cwnd >= before / 2, "{}", path.window.cwnd);
}

#[test]
fn other_controllers_have_no_model() {
    use crate::config::Algorithm;
    let now = Instant::from_secs(1);
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let controller = Controller::new(algorithm, now, 0);
        assert!(!controller.is_model() && controller.bbr_info().is_none());
    }
    assert!(Controller::new(Algorithm::Bbr, now, 0).is_model());
}
