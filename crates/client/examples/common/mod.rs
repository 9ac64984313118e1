//! What all examples are told on their command lines.

use std::net::SocketAddr;
use std::path::PathBuf;

/// `--socket PATH`, `--listen` or `--connect ADDRESS:PORT`, `--count N`.
#[allow(dead_code, reason = "each example uses a part of it")]
pub(crate) struct Options {
    /// Where the engine's agent listens.
    pub(crate) socket: PathBuf,
    /// Where to listen, or to connect.
    pub(crate) address: SocketAddr,
    /// How often.
    pub(crate) count: u64,
}

/// Reads the command line; ends the program with status 2 when it makes no sense.
pub(crate) fn options(default: &str) -> Options {
    let wrong = |what: String| -> ! {
        eprintln!("{what}");
        eprintln!("usage: [--socket PATH] [--listen|--connect ADDRESS:PORT] [--count N]");
        std::process::exit(2)
    };
    let mut socket = PathBuf::from("/run/sidecore.sock");
    let (mut address, mut count) = (default.to_owned(), 100_000);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let Some(value) = arguments.next() else {
            wrong(format!("{name}: a value is missing"));
        };
        match name.as_str() {
            "--socket" => socket = value.into(),
            "--listen" | "--connect" => address = value,
            "--count" => match value.parse() {
                Ok(number) => count = number,
                Err(_) => wrong(format!("--count {value}: not a number")),
            },
            _ => wrong(format!("{name}: unknown")),
        }
    }
    let Ok(address) = address.parse() else {
        wrong(format!("{address}: not ADDRESS:PORT"));
    };
    Options {
        socket,
        address,
        count,
    }
}
