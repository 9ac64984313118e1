//! Where programs and libraries of this kind are known to break: many descriptors, the last bytes before the end, exits in the midst of
//! things, numbers of descriptors that run out, and wake-ups among threads.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available, program};
use sidecore_e2e::preload::{Meter, Server, command, finish, have};

use crate::{accepted, compiled, engine, reach, script};

/// An echo server on the kernel's side.
fn echo(ground: &Ground, port: u16) -> Result<(Server, SocketAddr)> {
    ground.ip(&["link", "set", "lo", "up"])?;
    let at = SocketAddr::from((HOST, port));
    let net = program("sidecore-e2e-net");
    let mut echo = ground.command(net.to_str().context("its path")?);
    echo.args(["tokio", &at.to_string()]);
    Ok((Server::start(ground, echo, at)?, at))
}

fn output(command: Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&finish(command)?.stdout).into_owned())
}

#[test]
fn three_thousand_connections_are_as_the_kernels() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let (_echo, at) = echo(&ground, 9000)?;
    let run = |mut python: Command| {
        python.arg(script("many.py"));
        python.args([at.ip().to_string(), at.port().to_string()]);
        output(python)
    };
    let meter = Meter::new(&ground);
    let engines = run(command(&ground, "python3"))?;
    assert!(meter.connections() >= 3000);
    let kernels = run(ground.command("python3"))?;
    assert_eq!(engines, kernels);
    assert_eq!(kernels.lines().count(), 5, "{kernels}");
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["agent"]["descriptors"] == 0
    });
    Ok(())
}

/// What the peer of a program that sends and ends gets: how many bytes, and whether a reset.
fn last_words(
    listener: &TcpListener,
    mut python: Command,
    end: &str,
    bytes: usize,
    unread: bool,
) -> Result<(usize, bool)> {
    let at = listener.local_addr()?;
    python.arg(script("last_words.py"));
    python.args([at.ip().to_string(), at.port().to_string(), end.into()]);
    python.args([bytes.to_string(), u8::from(unread).to_string()]);
    let mut server = Server::spawn(python)?;
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    if unread {
        stream.write_all(b"unread")?;
    }
    // It has written everything, and has ended.
    let mut taken = Vec::new();
    let mut piece = vec![0; 65536];
    let reset = loop {
        match stream.read(&mut piece) {
            Ok(0) => break false,
            Ok(n) => taken.extend_from_slice(&piece[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break true,
            Err(error) => return Err(error).context(format!("{end}, {bytes}, {unread}")),
        }
    };
    server.wait()?;
    let right = taken.iter().enumerate().all(|(at, byte)| *byte == at as u8);
    assert!(right, "{end}, {bytes}, {unread}");
    Ok((taken.len(), reset))
}

#[test]
fn last_words_arrive_and_unread_ones_are_told() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let listener = ground.listen()?;
    const LARGE: usize = 1 << 20;
    for (end, bytes) in [
        ("close", LARGE),
        ("shut", LARGE),
        ("exit", LARGE),
        ("kill", LARGE),
    ] {
        let engines = last_words(&listener, command(&ground, "python3"), end, bytes, false)?;
        let kernels = last_words(&listener, ground.command("python3"), end, bytes, false)?;
        assert_eq!(
            (engines, kernels),
            ((bytes, false), (bytes, false)),
            "{end}"
        );
    }
    // With something unread the kernel resets, and what was not sent by then is lost. So does the engine when the program closes.
    for bytes in [1024, LARGE] {
        let engines = last_words(&listener, command(&ground, "python3"), "close", bytes, true)?;
        let kernels = last_words(&listener, ground.command("python3"), "close", bytes, true)?;
        assert!(engines.1 && kernels.1, "{engines:?} {kernels:?}");
    }
    // What a program leaves behind that ended without closing, the engine sends to the last byte.
    for end in ["exit", "kill"] {
        let engines = last_words(&listener, command(&ground, "python3"), end, LARGE, true)?;
        assert_eq!(engines.0, LARGE, "{end}");
        let kernels = last_words(&listener, ground.command("python3"), end, LARGE, true)?;
        assert!(kernels.1, "{kernels:?}");
    }
    ground.eventually("nothing is left", |stat| stat["dtis"] == 0);
    Ok(())
}

#[test]
fn programs_end_in_the_midst_of_everything() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    // It takes what fits, and never reads.
    let listener = ground.listen()?;
    let at = listener.local_addr()?;
    for way in ["return", "_exit", "abort", "signal", "exec", "fork"] {
        let mut python = command(&ground, "python3");
        python.arg(script("exits.py"));
        python.args([at.ip().to_string(), at.port().to_string(), way.to_owned()]);
        let begun = Instant::now();
        let mut server = Server::spawn(python)?;
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(listener.accept()?.0);
        }
        let status = server.wait()?;
        let expected = (way != "abort").then_some(3);
        assert_eq!(status.code(), expected, "{way}: {status}\n{}", server.end());
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{way} took its time"
        );
        drop(held);
        listener.set_nonblocking(true)?;
        while listener.accept().is_ok() {}
        listener.set_nonblocking(false)?;
        ground.eventually("nothing is left", |stat| {
            stat["dtis"] == 0 && stat["uals"].as_array().is_some_and(Vec::is_empty)
        });
    }
    Ok(())
}

#[test]
fn no_wake_up_is_missed_among_threads() -> Result<()> {
    if !available() || !have(&["cc"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let (_echo, at) = echo(&ground, 9000)?;
    let stress = compiled(&ground, "stress")?;
    let meter = Meter::new(&ground);
    for (connections, rounds) in [(3, 1500), (64, 200)] {
        let mut run = command(&ground, &stress);
        run.args([at.ip().to_string(), at.port().to_string()]);
        run.args([connections.to_string(), rounds.to_string()]);
        let told = output(run)?;
        assert_eq!(told, format!("{}\n", connections * rounds));
    }
    assert_eq!(meter.connections(), 67);
    Ok(())
}

#[test]
fn numbers_that_run_out_are_told_and_no_connection_is_lost() -> Result<()> {
    if !available() || !have(&["cc", "prlimit"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let program = compiled(&ground, "few_numbers")?;
    let peer = ground.listen()?;
    // Some more than any limit here leaves room for.
    const CLIENTS: u8 = 40;
    for limit in [20, 32] {
        let mut few = command(&ground, "prlimit");
        few.args([format!("--nofile={limit}"), program.clone()]);
        few.args([ENGINE.to_string(), HOST.to_string()]);
        few.args([peer.local_addr()?.port().to_string(), CLIENTS.to_string()]);
        let mut server = Server::spawn(few)?;
        let log = |server: &mut Server, what| format!("{limit}: {what}\n{}", server.end());
        let clients: Result<Vec<_>, _> =
            (0..CLIENTS).map(|_| reach(&ground, engine(8080))).collect();
        let mut clients = clients.with_context(|| log(&mut server, "nobody is there".into()))?;
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(&[number as u8])?;
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let mut byte = [255];
            let answer = client.read_exact(&mut byte);
            answer.with_context(|| log(&mut server, format!("client {number}")))?;
            assert_eq!(
                usize::from(byte[0]),
                number,
                "{}",
                log(&mut server, String::new())
            );
        }
        let mut last = accepted(&peer)?;
        let mut bytes = String::new();
        last.read_to_string(&mut bytes)?;
        assert_eq!(bytes, "again");
        let status = server.wait()?;
        assert!(status.success(), "{}", log(&mut server, status.to_string()));
    }
    Ok(())
}

/// It has its part of the engine, and may have no more addresses than it has; its child has its own part.
const ADDRESSES: &str = r#"
import os, resource, socket, sys
at = (sys.argv[1], int(sys.argv[2]))
def size():
    with open("/proc/self/statm") as file: return int(file.read().split()[0]) * resource.getpagesize()
first = socket.create_connection(at)
parents = size()
resource.setrlimit(resource.RLIMIT_AS, (parents + (4 << 20), parents + (4 << 20)))
child = os.fork()
if child == 0:
    assert parents - size() > 100 << 20, (parents, size())
    second = socket.create_connection(at)
    second.sendall(b"child")
    second.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
first.sendall(b"parent")
"#;

#[test]
fn a_child_has_room_for_its_own_part_where_addresses_are_limited() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let peer = ground.listen()?;
    let mut python = command(&ground, "python3");
    python.args(["-c", ADDRESSES, &HOST.to_string()]);
    python.arg(peer.local_addr()?.port().to_string());
    let mut server = Server::spawn(python)?;
    let heard = || {
        let mut said = String::new();
        accepted(&peer)?.read_to_string(&mut said)?;
        anyhow::Ok(said)
    };
    // The parent's is there first, and ends last.
    let parents = accepted(&peer);
    let told = parents.and_then(|mut parents| {
        let childs = heard()?;
        let mut said = String::new();
        parents.read_to_string(&mut said)?;
        Ok((childs, said))
    });
    let told = told.with_context(|| server.end())?;
    assert_eq!(told, ("child".into(), "parent".into()));
    Ok(())
}
