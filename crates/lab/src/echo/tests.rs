//! The kernel servers under the load generator.

use std::time::Duration;

use super::*;
use crate::load::{self, Ask, LoadConfig, Unwatched};

fn start(config: EchoConfig) -> SocketAddr {
    let (ready, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || serve(&config, &mut |it| ready.send(it.address).unwrap()));
    address
        .recv_timeout(Duration::from_secs(5))
        .expect("the server is ready")
}

fn kernel(cores: Vec<usize>) -> KernelEcho {
    KernelEcho {
        listen: "127.0.0.1:0".parse().unwrap(),
        cores,
        congestion: Some("reno".to_owned()),
        spin: false,
    }
}

fn load(address: SocketAddr, bytes: usize, connections: usize) -> load::LoadReport {
    let mut config = LoadConfig::closed(address, Ask::Echo(bytes), connections);
    config.warm_up = Duration::from_millis(10);
    load::answered(|measure| {
        config.measure = measure;
        load::run(&config, &mut Unwatched).unwrap()
    })
}

fn check(make: fn(KernelEcho) -> EchoConfig) {
    let address = start(make(kernel(Vec::new())));
    let small = load(address, 64, 16);
    assert_eq!(small.reconnects, 0, "{small:?}");
    // More than the sockets' buffers hold: both directions stall and go on.
    let large = load(address, 8 << 20, 2);
    assert_eq!(large.reconnects, 0, "{large:?}");
    // Connections that ended left no trace.
    let again = load(address, 64, 16);
    assert_eq!(again.reconnects, 0, "{again:?}");
}

#[test]
fn epoll_echoes() {
    check(EchoConfig::Epoll);
}

#[test]
fn io_uring_echoes() {
    check(EchoConfig::IoUring);
}

#[test]
fn two_threads_share_a_port() {
    let cores = sidecore_sys::affinity::allowed_cores().unwrap();
    let address = start(EchoConfig::Epoll(kernel(vec![cores[0], cores[0]])));
    assert_eq!(load(address, 64, 8).reconnects, 0);
}

#[test]
fn a_taken_address_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let config = KernelEcho {
        listen,
        cores: Vec::new(),
        congestion: None,
        spin: false,
    };
    let error = serve(&EchoConfig::Epoll(config), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains(&listen.to_string()));
}

#[test]
fn a_spinning_server_echoes() {
    let mut config = kernel(Vec::new());
    config.spin = true;
    let address = start(EchoConfig::Epoll(config));
    assert_eq!(load(address, 64, 2).reconnects, 0);
}
