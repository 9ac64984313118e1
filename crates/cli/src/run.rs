//! `sidecore run`: a program as it is, with its sockets on the engine.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use sidecore_abi::agent::{Request, RequestKind};

use crate::{agent, socket, usage};

/// Name of the library that is loaded into the program.
const LIBRARY: &str = "libsidecore_preload.so";

/// Exit codes when there is no such program, and when it cannot be run, as shells and env(1) have them.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// The bit of a file's mode (S_ISUID).
const SET_USER_ID: u32 = 0o4000;

/// Bytes at the beginning of a program in which its table of segments is looked for.
const HEAD: usize = 4096;

/// Runs a program whose connections to and from the engine's addresses are the engine's; all others stay the kernel's
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sidecore run -- curl http://10.77.0.1/
  sidecore run -- redis-server --bind 10.77.0.2 --protected-mode no
  sidecore run --take-all -- nginx -g 'daemon off;'

The engine's are: destinations on the networks of its addresses (see --take), and listeners on its addresses. A listener on 0.0.0.0 or :: \
is both the kernel's and the engine's. Programs must be dynamically linked, and not set-user-ID.")]
pub(crate) struct Options {
    /// The engine's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Destinations that are the engine's, in place of the networks of its addresses; may be repeated
    #[arg(
        long,
        value_name = "ADDR/BITS",
        value_delimiter = ',',
        conflicts_with = "take_all"
    )]
    take: Vec<String>,
    /// Every internet socket is the engine's, 127.0.0.0/8 and ::1 included
    #[arg(long)]
    take_all: bool,
    /// What the library tells on standard error
    #[arg(long, value_name = "LEVEL", default_value = "error")]
    log: Log,
    /// How long a call that waits polls before the thread sleeps
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    spin: u64,
    /// What to do when there is no engine: the kernel's sockets, or end with an error
    #[arg(long, value_name = "WHAT", default_value = "kernel")]
    no_engine: NoEngine,
    /// The library to load; else it is looked for beside this program, and in ../lib/sidecore
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Log {
    /// Nothing
    Off,
    /// That there is no engine, and faults
    Error,
    /// What is decided, too
    Info,
    /// Everything
    Debug,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NoEngine {
    /// The kernel's sockets
    Kernel,
    /// End with an error
    Exit,
}

fn name_of(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Does not return when all goes well: the program is this process.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let take = take(options)?;
    let library = library(options.library.as_deref())?;
    let Some((program, arguments)) = options.program.split_first() else {
        return Err(usage("no program is named: sidecore run -- PROGRAM ARGS"));
    };
    let socket = std::path::absolute(socket::path(options.socket.as_deref())?)?;
    let mut command = Command::new(program);
    command.args(arguments);
    if engine_is_there(options, &socket)? {
        let mut preload = library.into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        command.env("LD_PRELOAD", preload);
        if options.log != Log::Off
            && let Some(why) = out_of_reach(program)
        {
            let program = Path::new(program).display();
            eprintln!("sidecore: {program} uses the kernel's sockets: {why}");
        }
    }
    let error = command
        .env("SIDECORE_SOCKET", socket)
        .env("SIDECORE_TAKE", take)
        .env("SIDECORE_LOG", name_of(&options.log))
        .env("SIDECORE_SPIN", options.spin.to_string())
        .env("SIDECORE_NO_ENGINE", name_of(&options.no_engine))
        .exec();
    let code = match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    };
    let program = Path::new(program).display();
    Err(anyhow::Error::new(Exit(code, error)).context(format!("cannot run {program}")))
}

/// The program cannot be run: with which code to end, as shells and env(1) have it, and why.
#[derive(Debug)]
pub(crate) struct Exit(pub(crate) u8, std::io::Error);

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.1.fmt(f)
    }
}

impl std::error::Error for Exit {}

/// Why a file's sockets will be the kernel's whatever is loaded; `None` if nobody can tell, or they will not.
fn out_of_reach(program: &OsStr) -> Option<&'static str> {
    let named = Path::new(program);
    let path = match named.components().count() {
        1 if !program.as_encoded_bytes().contains(&b'/') => {
            let folders = std::env::var_os("PATH")?;
            let mut files = std::env::split_paths(&folders).map(|folder| folder.join(named));
            files.find(|file| file.is_file())?
        }
        _ => named.to_owned(),
    };
    let metadata = std::fs::metadata(&path).ok()?;
    let (mode, owner) = (metadata.mode(), metadata.uid());
    if mode & SET_USER_ID != 0 && owner != rustix::process::geteuid().as_raw() {
        return Some("it is set-user-ID, and the system loads nothing into such programs");
    }
    let mut head = [0; HEAD];
    let len = File::open(&path)
        .and_then(|mut file| file.read(&mut head))
        .ok()?;
    match is_static(&head[..len]) {
        true => Some("it is statically linked, and nothing can be loaded into it"),
        false => None,
    }
}

/// Whether this is the beginning of a program of 64 bits that asks for no dynamic linker. What cannot be read is not.
fn is_static(head: &[u8]) -> bool {
    /// Of an entry of the table of segments: it names the dynamic linker.
    const INTERPRETER: u32 = 3;
    let word = |at: usize, len: usize| -> Option<u64> {
        let bytes = head.get(at..at.checked_add(len)?)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        )
    };
    if head.get(..6) != Some(b"\x7fELF\x02\x01") {
        return false;
    }
    let table = || {
        let (at, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
        let place = |n: u64| usize::try_from(at.checked_add(n.checked_mul(size)?)?).ok();
        let kinds = (0..count).map(|n| word(place(n)?, 4));
        kinds.collect::<Option<Vec<_>>>()
    };
    table().is_some_and(|kinds| !kinds.is_empty() && !kinds.contains(&INTERPRETER.into()))
}

/// The destinations as the library reads them.
fn take(options: &Options) -> anyhow::Result<String> {
    if options.take_all {
        return Ok("all".into());
    }
    for text in &options.take {
        if !is_network(text) {
            return Err(usage(format!(
                "--take '{text}' is not ADDR/BITS, like 10.77.0.0/24 or 2001:db8::/64"
            )));
        }
    }
    Ok(options.take.join(","))
}

fn is_network(text: &str) -> bool {
    let (address, bits) = text.split_once('/').unwrap_or((text, "0"));
    let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), bits.parse::<u8>()) else {
        return false;
    };
    bits <= if address.is_ipv4() { 32 } else { 128 }
}

/// Where the library is.
fn library(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        return match path.is_file() {
            true => Ok(std::path::absolute(path)?),
            false => Err(usage(format!("--library {}: no such file", path.display()))),
        };
    }
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.join(LIBRARY),
        folder.join("../lib/sidecore").join(LIBRARY),
    ];
    let found = places.iter().find(|path| path.is_file());
    found.cloned().ok_or_else(|| {
        usage(format!(
            "{LIBRARY} is not in {}: build it (cargo build -p sidecore-preload), or name it by --library",
            folder.display()
        ))
    })
}

/// Whether there is an engine. Tells once, before the program begins, when there is none.
fn engine_is_there(options: &Options, socket: &Path) -> anyhow::Result<bool> {
    let Err(error) = agent::ask(socket, &Request::new(RequestKind::Addresses)) else {
        return Ok(true);
    };
    if options.no_engine == NoEngine::Exit {
        return Err(error);
    }
    if options.log != Log::Off {
        let program = options.program.first().map(OsString::as_os_str);
        let program = program.unwrap_or(OsStr::new("")).display();
        eprintln!("sidecore: {error:#}: {program} uses the kernel's sockets");
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a program with segments of these kinds.
    fn program(kinds: &[u32]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[32] = 64;
        head[54] = 56;
        head[56] = kinds.len() as u8;
        for kind in kinds {
            head.extend(kind.to_le_bytes());
            head.extend([0; 52]);
        }
        head
    }

    #[test]
    fn programs_into_which_nothing_can_be_loaded_are_known() {
        assert!(is_static(&program(&[1, 1, 6])));
        assert!(!is_static(&program(&[6, 3, 1])));
        assert!(!is_static(&program(&[])));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&own[..HEAD]));
        // What cannot be read to its end is not judged.
        let whole = program(&[1, 1]);
        assert!((0..whole.len() - 55).all(|len| !is_static(&whole[..len])));
        let mut far = program(&[1, 1]);
        far[32..40].fill(0xff);
        assert!(!is_static(&far));
        assert!(!is_static(b"#!/bin/sh\n"));
    }

    #[test]
    fn programs_are_looked_for_where_they_will_be_found() {
        assert_eq!(out_of_reach(OsStr::new("sh")), None);
        assert_eq!(out_of_reach(OsStr::new("/nonexistent/program")), None);
        assert_eq!(out_of_reach(OsStr::new("no such program")), None);
    }
}
