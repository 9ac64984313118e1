//! The ends of a flow.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidecore_client::blocking;

use super::BIN;

/// How long a call waits before it looks whether to stop.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// The sending end.
pub(super) enum From {
    Engine(blocking::TcpStream),
    Kernel(TcpStream),
}

impl From {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Engine(stream) => stream.write(bytes),
            Self::Kernel(stream) => stream.write(bytes),
        }
    }
}

/// Sends as much as goes until `stop`, or until the connection breaks, which its other end notices.
pub(super) fn send(mut from: From, stop: &AtomicBool) {
    let block = vec![0x5c; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        match from.write(&block) {
            Ok(_) => {}
            Err(error) if is_soon_over(&error) => {}
            Err(_) => return,
        }
    }
}

/// Takes what comes until `stop`; how many bytes in each bin from `start` on.
pub(super) fn take(mut to: &TcpStream, start: Instant, stop: &AtomicBool) -> Vec<u64> {
    let mut bins = Vec::new();
    let mut block = vec![0; 256 << 10];
    while !stop.load(Ordering::Relaxed) {
        let read = match to.read(&mut block) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if is_soon_over(&error) => continue,
            Err(_) => break,
        };
        let bin = (start.elapsed().as_nanos() / BIN.as_nanos()) as usize;
        if bins.len() <= bin {
            bins.resize(bin + 1, 0);
        }
        bins[bin] += read as u64;
    }
    bins
}

fn is_soon_over(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
