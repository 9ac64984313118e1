//! The load generator against small servers of the standard library.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

/// A server with a thread per connection, whose behaviour is `answer`: bytes received so far to bytes to be
/// sent; none: it closes.
fn serve(answer: impl Fn(&mut Vec<u8>) -> Option<Vec<u8>> + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = answer.clone();
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    received.extend_from_slice(&buffer[..read]);
                    let Some(reply) = answer(&mut received) else {
                        return;
                    };
                    if !reply.is_empty() && stream.write_all(&reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn echo_server() -> SocketAddr {
    serve(|received| Some(std::mem::take(received)))
}

fn quick(mut config: LoadConfig) -> LoadConfig {
    config.warm_up = Duration::from_millis(20);
    config.measure = Duration::from_millis(150);
    config
}

/// Until there are answers.
fn patiently(mut config: LoadConfig) -> LoadReport {
    answered(|measure| {
        config.measure = measure;
        run(&config, &mut Unwatched).unwrap()
    })
}

#[test]
fn a_closed_loop_counts_answers_and_latencies() {
    let config = quick(LoadConfig::closed(echo_server(), Ask::Echo(64), 4));
    let report = patiently(config);
    assert!(report.latency.count + 8 >= report.requests);
    assert!(report.latency.p50_us > 0.0 && report.latency.p50_us <= report.latency.p99_us);
    assert_eq!(
        (report.failed, report.reconnects, report.offered),
        (0, 0, None)
    );
    assert!(report.bytes_in >= 64.0 * report.rate * 0.99);
}

#[test]
fn large_messages_and_two_threads_work() {
    let mut config = quick(LoadConfig::closed(echo_server(), Ask::Echo(3_000_000), 2));
    config.threads = 2;
    let report = patiently(config);
    assert_eq!((report.failed, report.reconnects), (0, 0));
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let mut config = quick(LoadConfig::closed(echo_server(), Ask::Echo(64), 4));
    config.measure = Duration::from_millis(400);
    config.arrivals = Arrivals::Poisson(2000.0, 1);
    let report = run(&config, &mut Unwatched).unwrap();
    // Counted by when they were due, however late this machine is.
    assert!((650..950).contains(&report.latency.count), "{report:?}");
    assert_eq!(report.unanswered, 0);
}

#[test]
fn an_open_loop_counts_the_wait_behind_a_slow_answer() {
    // Every answer takes 20 ms, on one connection that is asked every 10 ms: the queue grows, and latency must say so.
    let slow = serve(|received| {
        std::thread::sleep(Duration::from_millis(20));
        Some(std::mem::take(received))
    });
    let mut config = quick(LoadConfig::closed(slow, Ask::Echo(8), 1));
    config.measure = Duration::from_millis(400);
    config.arrivals = Arrivals::Uniform(100.0);
    let report = run(&config, &mut Unwatched).unwrap();
    assert!(report.latency.max_us > 150_000.0, "{report:?}");
}

#[test]
fn http_over_connections_that_the_server_closes() {
    let answer = |received: &mut Vec<u8>| {
        if !received.ends_with(b"\r\n\r\n") {
            return Some(Vec::new());
        }
        received.clear();
        Some(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc".to_vec())
    };
    let config = quick(LoadConfig::closed(
        serve(answer),
        Ask::Http(vec!["/".into()]),
        3,
    ));
    assert_eq!(patiently(config).failed, 0);
    let closing = serve(|_| None);
    let mut config = quick(LoadConfig::closed(closing, Ask::Http(vec!["/".into()]), 1));
    config.measure = Duration::from_secs(20);
    let error = run(&config, &mut Unwatched).unwrap_err();
    assert!(
        format!("{error:#}").contains("again and again"),
        "{error:#}"
    );
}

#[test]
fn nobody_listening_is_an_error_that_names_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = run(
        &LoadConfig::closed(address, Ask::Echo(1), 1),
        &mut Unwatched,
    )
    .unwrap_err();
    assert!(
        error.to_string().contains(&address.to_string()),
        "{error:#}"
    );
}

#[test]
fn an_io_uring_client_counts_the_same() {
    let mut config = quick(LoadConfig::closed(echo_server(), Ask::Echo(64), 8));
    config.driver = Driver::IoUring;
    let report = patiently(config.clone());
    assert!(report.latency.count + 16 >= report.requests);
    config.ask = Ask::Http(vec!["/".into()]);
    assert!(run(&config, &mut Unwatched).is_err());
}

#[test]
fn connections_come_and_go() {
    let config = quick(LoadConfig::closed(echo_server(), Ask::Churn(64), 4));
    assert_eq!(patiently(config.clone()).reconnects, 0);
    let error = run(
        &LoadConfig {
            arrivals: Arrivals::Uniform(1.0),
            ..config
        },
        &mut Unwatched,
    )
    .unwrap_err();
    assert!(error.to_string().contains("closed loops"), "{error}");
}
