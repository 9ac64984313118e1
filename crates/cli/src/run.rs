//! `sidecore run`: a program as it is, with its sockets on the engine.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::ops::Range;
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
    let head = &head[..len];
    if is_static(head) {
        return Some("it is statically linked, and nothing can be loaded into it");
    }
    is_of_go(head).then_some("it is a Go program, and those make their system calls themselves")
}

/// Of an entry of the table of segments: it names the dynamic linker.
const INTERPRETER: u64 = 3;

/// Of an entry of the table of segments: what tools have noted about the program.
const NOTES: u64 = 4;

/// A number in the beginning of a program.
fn word(head: &[u8], at: u64, len: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = head.get(at..at.checked_add(len)?)?;
    let joined = |word, byte: &u8| word << 8 | u64::from(*byte);
    Some(bytes.iter().rev().fold(0, joined))
}

/// The segments of a program of 64 bits of which this is the beginning: of each its kind, and where it is in the file. `None` if that cannot be read.
fn segments(head: &[u8]) -> Option<Vec<(u64, Range<u64>)>> {
    if head.get(..6) != Some(b"\x7fELF\x02\x01") {
        return None;
    }
    let (at, size, count) = (word(head, 32, 8)?, word(head, 54, 2)?, word(head, 56, 2)?);
    let segment = |n: u64| {
        let entry = at.checked_add(n.checked_mul(size)?)?;
        let field = |offset: u64, len| word(head, entry.checked_add(offset)?, len);
        let (begin, len) = (field(8, 8)?, field(32, 8)?);
        Some((field(0, 4)?, begin..begin.checked_add(len)?))
    };
    (0..count).map(segment).collect()
}

/// Whether this is the beginning of a program that asks for no dynamic linker. What cannot be read is not.
fn is_static(head: &[u8]) -> bool {
    segments(head)
        .is_some_and(|all| !all.is_empty() && all.iter().all(|(kind, _)| *kind != INTERPRETER))
}

/// Whether this is the beginning of a program whose build Go's tools have noted. Others of Go's are not known.
fn is_of_go(head: &[u8]) -> bool {
    let notes = segments(head).unwrap_or_default().into_iter();
    let mut notes = notes.filter(|(kind, _)| *kind == NOTES);
    notes.any(|(_, place)| has_note(head, place, b"Go\0\0"))
}

/// Whether there is a note of this owner's. Each has the lengths of its owner's name and of its text, a kind, and then both, filled up to words.
fn has_note(head: &[u8], place: Range<u64>, owner: &[u8]) -> bool {
    const HEADER: usize = 12;
    let within = |at| usize::try_from(at).map_or(head.len(), |at| at.min(head.len()));
    let (mut at, end) = (within(place.start), within(place.end));
    while at < end {
        let length = |offset: usize| word(head, (at + offset) as u64, 4);
        let (Some(name), Some(text)) = (length(0), length(4)) else {
            return false;
        };
        let begin = at + HEADER;
        if head.get(begin..begin + name as usize) == Some(owner) {
            return true;
        }
        at = begin + (name.next_multiple_of(4) + text.next_multiple_of(4)) as usize;
    }
    false
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
    fn programs_of_go_are_known_by_their_note() {
        let mut head = program(&[1, 4, 3]);
        let at = head.len() as u64;
        let note = |owner: &[u8], text: &[u8]| {
            let mut note = Vec::new();
            for number in [owner.len(), text.len(), 4] {
                note.extend((number as u32).to_le_bytes());
            }
            for part in [owner, text] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let others = note(b"GNU\0", b"a build");
        let all = [others.clone(), note(b"Go\0\0", b"another")].concat();
        // Where the second segment is, and how long.
        head[128..136].copy_from_slice(&at.to_le_bytes());
        head[152..160].copy_from_slice(&(others.len() as u64).to_le_bytes());
        let without = [head.clone(), all.clone()].concat();
        assert!(!is_of_go(&without));
        head[152..160].copy_from_slice(&(all.len() as u64).to_le_bytes());
        let with = [head.clone(), all].concat();
        assert!(is_of_go(&with) && !is_static(&with));
        // What cannot be read is not judged.
        assert!(!is_of_go(&with[..with.len() - 12]));
        for (place, len) in [
            (u64::MAX, 1),
            (0, u64::MAX),
            (at, u64::MAX),
            (u64::MAX - 2, 2),
        ] {
            let mut odd = [head.clone(), vec![0xff; 64]].concat();
            odd[128..136].copy_from_slice(&place.to_le_bytes());
            odd[152..160].copy_from_slice(&len.to_le_bytes());
            assert!(!is_of_go(&odd), "{place} {len}");
        }
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_of_go(&own[..HEAD]));
    }

    #[test]
    fn programs_are_looked_for_where_they_will_be_found() {
        assert_eq!(out_of_reach(OsStr::new("sh")), None);
        assert_eq!(out_of_reach(OsStr::new("/nonexistent/program")), None);
        assert_eq!(out_of_reach(OsStr::new("no such program")), None);
    }
}
