//! Connections that no program took yet, when the process that would have taken them closes its copy of the listener, or dies.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::preload::{Server, command, finish, have};

use super::web::{ids, nginx};
use super::{body, engine};

const RELOADS: usize = 8;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A parent that listens and never accepts, and children that poll the listener, and accept once they are told to.
const WORKERS: &str = r#"
import os, select, signal, socket, sys, time
listener = socket.create_server((sys.argv[1], 8080), backlog=100)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
for number in range(3):
    if os.fork() == 0:
        select.select([listener], [], [], 0)
        with open(f"{sys.argv[2]}/pid{number}.new", "w") as file: file.write(str(os.getpid()))
        os.rename(file.name, f"{sys.argv[2]}/pid{number}")
        signal.sigwait({signal.SIGUSR1})
        while True:
            connection, _ = listener.accept()
            said = connection.recv(100)
            if said: connection.sendall(b"%d heard " % number + said)
            connection.close()
time.sleep(1000)
"#;

/// The pid of a child, once it waits.
fn child(ground: &Ground, number: usize) -> Result<Pid> {
    let file = ground.folder().join(format!("pid{number}"));
    ground.eventually("the child waits", |_| file.is_file());
    let pid = std::fs::read_to_string(file)?.trim().parse()?;
    Pid::from_raw(pid).context("a pid")
}

#[test]
fn what_killed_children_had_not_accepted_is_answered_by_another() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut python = command(&ground, "python3");
    python.args(["-c", WORKERS, &ENGINE.to_string()]);
    python.arg(ground.folder());
    let _server = Server::start(&ground, python, engine(8080))?;
    let children: Vec<Pid> = (0..3)
        .map(|number| child(&ground, number))
        .collect::<Result<_>>()?;
    let mut clients = Vec::new();
    for number in 0..90 {
        let mut stream = ground.inside(|| TcpStream::connect(engine(8080)))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("client {number}").as_bytes())?;
        clients.push(stream);
    }
    ground.eventually("all have said their word", |stat| {
        let all = stat["connections"].as_array();
        all.is_some_and(|all| all.len() >= clients.len())
    });
    kill_process(children[0], Signal::KILL)?;
    kill_process(children[2], Signal::KILL)?;
    kill_process(children[1], Signal::USR1)?;
    for (number, stream) in clients.iter_mut().enumerate() {
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .with_context(|| format!("client {number}"))?;
        assert_eq!(answer, format!("1 heard client {number}"));
    }
    let stat = ground.stat();
    let gone_on = stat["tables"]["gone_on"].as_u64();
    assert!(gone_on.is_some_and(|gone_on| gone_on > 0), "{gone_on:?}");
    Ok(())
}

/// Workers that accept, and serve one connection to its end before they accept again.
const BUSY: &str = r#"
import os, socket, sys
listener = socket.create_server((sys.argv[1], 8080), backlog=100)
for number in range(3):
    if os.fork() == 0:
        while True:
            connection, _ = listener.accept()
            while said := connection.recv(100): connection.sendall(b"heard " + said)
            connection.close()
os.wait()
"#;

/// A parent that sees by polling that a connection waits, and then starts who accepts, which polls, too. Later the parent only looks.
const LOOKING: &str = r#"
import os, select, socket, sys, time
listener = socket.create_server((sys.argv[1], 8080), backlog=100)
select.select([listener], [], [])
if os.fork() == 0:
    listener.setblocking(False)
    while True:
        select.select([listener], [], [])
        connection, _ = listener.accept()
        said = connection.recv(100)
        if said: connection.sendall(b"heard " + said)
        connection.close()
while True:
    select.select([listener], [], [], 0)
    time.sleep(0.001)
"#;

/// A server in Python, and somebody who asks it: what is answered, and the connection.
fn asked(ground: &Ground, text: &str) -> Result<(String, TcpStream)> {
    let mut stream = ground.inside(|| TcpStream::connect(engine(8080)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(text.as_bytes())?;
    let mut answer = [0; 100];
    let len = stream.read(&mut answer).context("no answer")?;
    Ok((String::from_utf8_lossy(&answer[..len]).into_owned(), stream))
}

#[test]
fn who_is_busy_keeps_no_connection_from_others() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut python = command(&ground, "python3");
    python.args(["-c", BUSY, &ENGINE.to_string()]);
    let _server = Server::start(&ground, python, engine(8080))?;
    let mut held = Vec::new();
    for number in 0..2 {
        for quick in 0..12 {
            let text = format!("quick {number} {quick}");
            assert_eq!(asked(&ground, &text)?.0, format!("heard {text}"));
        }
        let (answer, stream) = asked(&ground, "stays")?;
        assert_eq!(answer, "heard stays");
        held.push(stream);
    }
    for last in 0..12 {
        let text = format!("last {last}");
        assert_eq!(asked(&ground, &text)?.0, format!("heard {text}"));
    }
    Ok(())
}

#[test]
fn what_one_process_saw_by_polling_another_accepts() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut python = command(&ground, "python3");
    python.args(["-c", LOOKING, &ENGINE.to_string()]);
    let _server = Server::start(&ground, python, engine(8080))?;
    for number in 0..20 {
        let text = format!("client {number}");
        assert_eq!(asked(&ground, &text)?.0, format!("heard {text}"));
    }
    Ok(())
}

#[test]
fn nginx_reloaded_again_and_again_refuses_nobody() -> Result<()> {
    if !available() || !have(&["nginx", "ab"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let configuration = nginx(&ground, ENGINE.to_string(), "worker_processes 2;")?;
    let mut nginx = command(&ground, "nginx");
    nginx.arg("-c").arg(&configuration);
    let mut server = Server::start(&ground, nginx, engine(8080))?;
    ground.eventually("both workers listen", |stat| ids(stat).len() == 3);
    let master = Pid::from_raw(server.pid() as i32).context("its pid")?;
    let over = AtomicBool::new(false);
    let served = std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<usize> {
            let mut served = 0;
            while !over.load(Ordering::Relaxed) {
                served += fetch(&ground)?;
            }
            Ok(served)
        });
        let reloaded = (0..RELOADS).try_for_each(|_| -> Result<()> {
            let before = ids(&ground.stat());
            kill_process(master, Signal::HUP)?;
            ground.eventually("new workers have taken over", |stat| {
                let now = ids(stat);
                now.len() == 3 && now.iter().filter(|ual| before.contains(ual)).count() == 1
            });
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        let served = load.join().expect("the load");
        reloaded.and(served)
    })?;
    assert!(served >= 500);
    server.end();
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["uals"].as_array().is_some_and(Vec::is_empty)
    });
    Ok(())
}

/// Requests on connections of their own, each of which must be answered; how many.
fn fetch(ground: &Ground) -> Result<usize> {
    const REQUESTS: usize = 500;
    let mut ab = ground.command("ab");
    let page = format!("http://{ENGINE}:8080/page");
    ab.args(["-q", "-n", &REQUESTS.to_string(), "-c", "16", &page]);
    let told = finish(ab)?.stdout;
    let told = String::from_utf8_lossy(&told);
    let figure = |name: &str| -> Option<usize> {
        let line = told.lines().find(|line| line.starts_with(name))?;
        line.split(':').nth(1)?.trim().parse().ok()
    };
    let whole = (REQUESTS * body(1024).len()).to_string();
    let good = figure("Complete requests") == Some(REQUESTS)
        && figure("Failed requests") == Some(0)
        && !told.contains("Non-2xx")
        && told.contains(&format!("HTML transferred:       {whole} bytes"));
    ensure!(good, "{told}");
    Ok(REQUESTS)
}
