//! The `userver` program.
#![forbid(unsafe_code)]

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use sidecore_userver::{Config, Error, Io, Server, default_socket, raise_descriptor_limit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Serves the files of a directory over HTTP/1.1, on the engine or on the kernel.
#[derive(Parser)]
#[command(name = "userver", version, max_term_width = 110)]
struct Arguments {
    /// Directory to serve; nothing outside it is served, whatever symbolic links say
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Address and port to listen on; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// What carries the connections: sidecore, epoll, sendfile or io-uring
    #[arg(long, value_name = "IO")]
    io: Io,
    /// Socket of the engine, for --io sidecore [default: /run/sidecore.sock, or in $XDG_RUNTIME_DIR without root]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Microseconds for which a worker looks for events before it sleeps, for --io sidecore
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 5)]
    spin: u64,
    /// Worker threads, each with its own cache
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Core of a worker; repeat it for more workers
    #[arg(long = "core", value_name = "N", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Append an access log in combined format
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Connections at most; more wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    max_connections: usize,
    /// Seconds after which a connection without requests or progress is closed
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle_timeout: u64,
    /// Bytes of a request head at most
    #[arg(long, value_name = "BYTES", default_value_t = 8192)]
    max_head: usize,
    /// MiB of memory for files, each worker
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    cache: u64,
    /// Encrypt this percentage of the files of at most 7500 bytes anew for every answer
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    encrypt_percent: u8,
    /// Print the counters as JSON when the server ends
    #[arg(long)]
    counters: bool,
}

impl Arguments {
    fn config(&self) -> Config {
        Config {
            socket: self.socket.clone().unwrap_or_else(default_socket),
            spin: Duration::from_micros(self.spin),
            workers: self.workers,
            cores: self.cores.clone(),
            access_log: self.access_log.clone(),
            max_connections: self.max_connections,
            idle_timeout: Duration::from_secs(self.idle_timeout),
            max_head: self.max_head,
            cache_bytes: self.cache.saturating_mul(1 << 20),
            encrypt_percent: self.encrypt_percent,
            ..Config::new(&self.root, self.listen, self.io)
        }
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            eprintln!("userver: {}; see --help", first_paragraph(&error));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("userver: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn serve(arguments: &Arguments) -> Result<(), Error> {
    let defect = |what, error: std::io::Error| Error::Defect {
        what,
        message: error.to_string(),
    };
    raise_descriptor_limit();
    let mut signals =
        Signals::new([SIGTERM, SIGINT]).map_err(|e| defect("waiting for signals", e))?;
    let server = Server::start(arguments.config())?;
    let mut out = std::io::stdout();
    // Nobody reads it: no reason not to serve.
    let _ = writeln!(
        out,
        "ready listen={} io={} workers={} root={}",
        server.address(),
        arguments.io,
        arguments.workers,
        arguments.root.display()
    )
    .and_then(|()| out.flush());
    let (stopper, handle) = (server.stopper(), signals.handle());
    let waiter = std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    });
    let result = server.join();
    handle.close();
    let _ = waiter.join();
    let counters = result?;
    if arguments.counters {
        let fields: Vec<String> = counters
            .iter()
            .map(|(name, value)| format!("\"{name}\":{value}"))
            .collect();
        let _ = writeln!(out, "{{{}}}", fields.join(","));
    }
    Ok(())
}

/// What clap has to say, in one line.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(str::trim)
        .collect();
    let line = lines.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}
