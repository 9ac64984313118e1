//! Pacing from the timer wheel, and controllers of sockets.

use std::time::Duration;

use sidecore_stack::SocketOption;
use sidecore_tcp::Algorithm;
use sidecore_testkit::{A, B, Link, NodeConfig, Pair};

#[test]
fn data_that_must_wait_waits_on_the_wheel_and_nobody_polls_for_it() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    let conn = pair.nodes[A].conn(client);
    let stack = &mut pair.nodes[A].stack;
    assert!(stack.set_option(conn, SocketOption::MaxPacingRate(Some(1_000_000))));
    let (began, fired) = (pair.now(), pair.nodes[A].count("timers_fired"));
    pair.nodes[A].write(client, &[7; 200_000]);
    let mut turns = 0;
    pair.run_until(|pair| {
        turns += 1;
        // What waits for its time is in no list: the caller may sleep.
        assert!(!pair.nodes[A].stack.has_work());
        let waits = pair.nodes[A].acknowledged(client) < 200_000;
        assert!(!waits || pair.nodes[A].stack.next_timeout().is_some());
        pair.nodes[B].received(server).len() == 200_000
    });
    let took = pair.now() - began;
    assert!(
        (Duration::from_millis(190)..Duration::from_millis(215)).contains(&took),
        "{took:?}"
    );
    // 138 segments, each with its ACK and its time.
    let fired = pair.nodes[A].count("timers_fired") - fired;
    assert!(fired < 250 && turns < 1000, "{fired} {turns}");
}

#[test]
fn a_bound_of_the_stack_is_not_exceeded_and_a_socket_may_ask_for_less() {
    let mut configs = [NodeConfig::new(1), NodeConfig::new(2)];
    configs[A].stack.tcp.max_pacing_rate = Some(500_000);
    let mut pair = Pair::new(configs, Link::default(), 0);
    let (client, _) = pair.establish(80);
    let bound = |pair: &Pair| pair.nodes[A].tcp(client).unwrap().max_pacing_rate();
    assert_eq!(bound(&pair), Some(500_000));
    let conn = pair.nodes[A].conn(client);
    for (asked, given) in [
        (Some(2_000_000), 500_000),
        (Some(100_000), 100_000),
        (None, 500_000),
    ] {
        let option = SocketOption::MaxPacingRate(asked);
        assert!(pair.nodes[A].stack.set_option(conn, option));
        assert_eq!(bound(&pair), Some(given));
    }
}

#[test]
fn a_socket_chooses_bbr() {
    let link = Link {
        delay: Duration::from_millis(10),
        rate: 2_500_000,
        queue: 100,
        ..Link::default()
    };
    let mut pair = Pair::new([NodeConfig::new(1), NodeConfig::new(2)], link, 5);
    pair.nodes[A].socket.congestion = Some(Algorithm::Bbr);
    let (client, server) = pair.establish(80);
    let tcp = pair.nodes[A].tcp(client).unwrap();
    assert_eq!(tcp.algorithm(), Algorithm::Bbr);
    assert!(tcp.pacing_rate().is_some());
    let began = pair.now();
    pair.nodes[A].write(client, &vec![9; 3_000_000]);
    pair.run_until(|pair| {
        let received = pair.nodes[B].received(server).len();
        pair.nodes[B].read(server, received);
        pair.nodes[A].acknowledged(client) == 3_000_000
    });
    let took = (pair.now() - began).as_secs_f64();
    // 1.2 s at the rate of the link; the queue would take 60 ms.
    assert!(took < 1.45, "{took}");
    let tcp = pair.nodes[A].tcp(client).unwrap();
    let info = tcp.bbr_info().unwrap();
    assert!((2_200_000..2_500_000).contains(&info.bandwidth), "{info:?}");
    assert_eq!(tcp.info().timeouts, 0);
}
