//! Unmodified programs on the engine, by the preload library: as clients, and as servers for the kernel's side.

mod calls;
mod clients;
mod confined;
mod cpython;
mod custody;
mod daemons;
mod exs;
mod gone;
mod heirs;
mod holders;
mod killed;
mod limits;
mod passed;
mod postgres;
mod remote;
mod runtimes;
mod servers;
mod sharing;
mod sockets;
mod sshd;
mod stores;
mod web;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::ENGINE;
use sidecore_e2e::preload::finish;

/// Bytes that no two places have alike.
pub(crate) fn body(len: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A program of ours in another language.
pub(crate) fn script(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("tests/preload/programs").join(name)
}

/// One of those in C, compiled.
pub(crate) fn compiled(ground: &Ground, name: &str) -> Result<String> {
    let program = ground.folder().join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    cc.arg(&program).arg(script(&format!("{name}.c")));
    finish(cc)?;
    Ok(program.display().to_string())
}

/// The next connection of a listener on the kernel's side, if one comes within a minute.
pub(crate) fn accepted(listener: &TcpListener) -> Result<TcpStream> {
    let begun = Instant::now();
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        anyhow::ensure!(begun.elapsed().as_secs() < 60, "nobody connects");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Connects as soon as somebody listens there.
pub(crate) fn reach(ground: &Ground, at: SocketAddr) -> Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match ground.inside(|| TcpStream::connect(at)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                return Ok(stream);
            }
            Err(error) => anyhow::ensure!(begun.elapsed().as_secs() < 60, "{at}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// curl on the kernel's side.
pub(crate) fn curl(ground: &Ground, arguments: &[&str]) -> Command {
    fetch(ground.command("curl"), arguments)
}

/// curl as it was started, which says what goes wrong and gives up after a while.
pub(crate) fn fetch(mut curl: Command, arguments: &[&str]) -> Command {
    curl.args(["-sS", "--max-time", "50"]).args(arguments);
    curl
}

/// Waits for the first socket that listens.
pub(crate) fn until_it_listens(ground: &Ground) {
    ground.eventually("it listens", |stat| {
        stat["sockets"].as_array().is_some_and(|s| !s.is_empty())
    });
}

pub(crate) fn engine(port: u16) -> SocketAddr {
    (ENGINE, port).into()
}

/// Whether the engine has a connection with this peer.
pub(crate) fn connected(stat: &Value, peer: SocketAddr) -> bool {
    let peer = peer.to_string();
    let connections = stat["connections"].as_array();
    connections.is_some_and(|all| all.iter().any(|c| c["remote"] == peer.as_str()))
}
