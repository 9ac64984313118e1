//! UDP sockets that several processes hold: each program runs with the kernel's sockets and on the engine, and is to answer alike.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{Server, command, finish, have};

/// Where the programs serve.
const PORT: u16 = 9090;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Begins each program: a socket at the address that is given, or at all.
const BIND: &str = r#"
import os, select, signal, socket, socketserver, subprocess, sys, time
served = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def say(text, to): served.sendto(b"%d %s" % (os.getpid(), text), to)
def serve():
    while True:
        text, to = served.recvfrom(2000)
        say(text, to)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
served.bind((sys.argv[1], 9090))
"#;

/// A program and the side that it serves.
struct Place {
    ground: Ground,
    server: Server,
    client: UdpSocket,
}

impl Place {
    fn new(on_engine: bool, script: &str, everywhere: bool) -> Result<Self> {
        let ground = Ground::new()?;
        ground.ip(&["link", "set", "lo", "up"])?;
        let mut python = match on_engine {
            true => command(&ground, "python3"),
            false => ground.command("python3"),
        };
        let at = if on_engine { ENGINE } else { HOST };
        let bound = match everywhere {
            true => "0.0.0.0".to_owned(),
            false => at.to_string(),
        };
        python.args(["-c", &format!("{BIND}{script}"), &bound]);
        let client = ground.udp()?;
        client.set_read_timeout(Some(Duration::from_millis(200)))?;
        client.connect(SocketAddr::from((at, PORT)))?;
        let server = Server::spawn(python)?;
        Ok(Self {
            ground,
            server,
            client,
        })
    }

    /// The next answer: who gave it, and what it says.
    fn answer(&self) -> Result<(i32, String)> {
        let mut bytes = [0; 2000];
        let n = self.client.recv(&mut bytes)?;
        let text = std::str::from_utf8(&bytes[..n])?;
        let (pid, said) = text.split_once(' ').context("an answer")?;
        Ok((pid.parse()?, said.to_owned()))
    }

    /// Asks until it is answered, for the program may not be there yet.
    fn first(&self) -> Result<i32> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            // A refusal says that it is not there yet.
            let _ = self.client.send(b"first");
            if let Ok((pid, _)) = self.answer() {
                // What else was asked meanwhile is answered, too.
                while self.answer().is_ok() {}
                return Ok(pid);
            }
        }
        anyhow::bail!("no answer")
    }

    /// Asks once.
    fn ask(&self, text: &str) -> Result<i32> {
        self.client.set_read_timeout(Some(PATIENCE))?;
        self.client.send(text.as_bytes())?;
        let (pid, said) = self
            .answer()
            .with_context(|| format!("{text}: no answer"))?;
        ensure!(said == text, "{said}, not {text}");
        Ok(pid)
    }
}

/// With the kernel's sockets, and on the engine.
fn both(script: &str, everywhere: bool, test: impl Fn(&mut Place) -> Result<()>) -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    for on_engine in [false, true] {
        let mut place = Place::new(on_engine, script, everywhere)?;
        let done = test(&mut place);
        let log = place.server.end();
        done.with_context(|| format!("engine: {on_engine}\n{log}"))?;
    }
    Ok(())
}

/// A daemon: it binds, forks and ends, and the child takes its time before it looks at the socket.
const DAEMON: &str = r#"
ready, says = os.pipe()
if os.fork() != 0:
    os.read(ready, 1)
    os._exit(0)
served.getsockname()
os.write(says, b"!")
time.sleep(1)
serve()
"#;

fn a_daemon_is_reached(everywhere: bool) -> Result<()> {
    both(DAEMON, everywhere, |place| {
        ensure!(place.server.wait()?.success());
        // The child has not looked at it: what comes waits.
        for number in 0..5 {
            place.client.send(format!("{number}").as_bytes())?;
        }
        place.client.set_read_timeout(Some(PATIENCE))?;
        let answers: Vec<_> = (0..5).map(|_| place.answer()).collect::<Result<_>>()?;
        let pid = answers[0].0;
        for (number, answer) in answers.iter().enumerate() {
            ensure!(*answer == (pid, number.to_string()), "{answers:?}");
        }
        ensure!(pid != place.server.pid() as i32);
        for number in 0..100 {
            ensure!(place.ask(&format!("again {number}"))? == pid);
        }
        Ok(())
    })
}

#[test]
fn a_daemon_serves_what_its_parent_bound() -> Result<()> {
    a_daemon_is_reached(false)
}

#[test]
fn a_daemon_serves_at_all_addresses() -> Result<()> {
    a_daemon_is_reached(true)
}

const FORKING: &str = r#"
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
served.close()
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        text, at = self.request
        at.sendto(b"%d %s" % (os.getpid(), text), self.client_address)
with socketserver.ForkingUDPServer((sys.argv[1], 9090), Echo) as server: server.serve_forever()
"#;

#[test]
fn pythons_forking_server_answers_from_its_children() -> Result<()> {
    both(FORKING, false, |place| {
        place.first()?;
        let parent = place.server.pid() as i32;
        let mut children = HashSet::new();
        for number in 0..30 {
            children.insert(place.ask(&format!("{number}"))?);
        }
        ensure!(children.len() == 30 && !children.contains(&parent));
        Ok(())
    })
}

/// The parent only waits, and its children receive: blocked, by poll and by epoll.
const WORKERS: &str = r#"
def polled():
    poll = select.poll(); poll.register(served, select.POLLIN)
    return lambda: poll.poll()
def by_epoll():
    epoll = select.epoll(); epoll.register(served, select.EPOLLIN)
    return lambda: epoll.poll()
for number in range(3):
    if os.fork() == 0:
        wait = [lambda: (lambda: None), polled, by_epoll][number]()
        if number > 0: served.setblocking(False)
        while True:
            wait()
            try: text, to = served.recvfrom(2000)
            except BlockingIOError: continue
            say(text, to)
signal.pause()
"#;

fn workers_share(everywhere: bool) -> Result<()> {
    both(WORKERS, everywhere, |place| {
        place.first()?;
        let mut workers = HashSet::new();
        for number in 0..300 {
            workers.insert(place.ask(&format!("{number}"))?);
        }
        // Each once, also when many come.
        for number in 0..100 {
            place.client.send(format!("{number}").as_bytes())?;
        }
        let mut answers = HashSet::new();
        for _ in 0..100 {
            let (pid, said) = place.answer()?;
            workers.insert(pid);
            ensure!(answers.insert(said.clone()), "{said} twice");
        }
        ensure!(!workers.contains(&(place.server.pid() as i32)));
        place
            .client
            .set_read_timeout(Some(Duration::from_millis(300)))?;
        ensure!(place.answer().is_err(), "one was answered twice");
        Ok(())
    })
}

#[test]
fn a_datagram_goes_to_one_of_those_who_receive() -> Result<()> {
    workers_share(false)?;
    workers_share(true)
}

/// Children that are blocked in a receive.
const BLOCKED: &str = r#"
for number in range(3):
    if os.fork() == 0: serve()
signal.pause()
"#;

#[test]
fn what_a_killed_holder_had_not_received_goes_to_another() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let mut place = Place::new(true, BLOCKED, false)?;
    place.first()?;
    let mut workers = HashSet::new();
    while workers.len() < 3 {
        workers.insert(place.ask("who")?);
    }
    let stopped = *workers.iter().next().context("a worker")?;
    let stopped = Pid::from_raw(stopped).context("a pid")?;
    kill_process(stopped, Signal::STOP)?;
    for number in 0..20 {
        place.client.send(format!("{number}").as_bytes())?;
    }
    place
        .client
        .set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut said = HashSet::new();
    while let Ok((_, text)) = place.answer() {
        ensure!(said.insert(text.clone()), "{text} twice");
    }
    // The stopped one may have been given one, and no more.
    ensure!(said.len() >= 19, "{said:?}");
    kill_process(stopped, Signal::KILL)?;
    place.client.set_read_timeout(Some(PATIENCE))?;
    while said.len() < 20 {
        ensure!(said.insert(place.answer()?.1));
    }
    drop(place.server.end());
    place.ground.eventually("its port is free again", |stat| {
        stat["sockets"].as_array().is_some_and(Vec::is_empty)
    });
    Ok(())
}

/// It goes to another image: as standard input of a program that is started, and by exec; both processes use it.
const IMAGES: &str = r#"
script = """
import os, socket, sys
served = socket.socket(fileno=int(sys.argv[1]))
assert served.type == socket.SOCK_DGRAM and served.getsockname()[1] == 9090
text = b""
while text != b"next":
    text, to = served.recvfrom(2000)
    served.sendto(b"%d %s" % (os.getpid(), text), to)
if sys.argv[2] == "exec":
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[3], "0", "", ""])
"""
served.set_inheritable(True)
# What becomes of it is to be known.
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
subprocess.run([sys.executable, "-c", script, "0", "exec", script], stdin=served, check=True)
serve()
"#;

#[test]
fn images_that_are_started_and_executed_get_it() -> Result<()> {
    both(IMAGES, false, |place| {
        let (parent, started) = (place.server.pid() as i32, place.first()?);
        ensure!(started != parent, "it is not the started one that answers");
        // It executes its next image, which ends, and then there is the parent alone.
        for text in ["next", "0", "1", "next"] {
            ensure!(place.ask(text)? == started, "{text}");
        }
        ensure!(place.ask("last")? == parent);
        Ok(())
    })
}

/// It goes by a message to a process that has nothing else of it, and its owner ends.
const PASSED: &str = r#"
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if os.fork() == 0:
    served.close()
    ours.close()
    _, fds, _, _ = socket.recv_fds(theirs, 100, 4)
    served = socket.socket(fileno=fds[0])
    assert served.getsockname()[1] == 9090
    theirs.send(b"!")
    served.settimeout(10)
    serve()
theirs.close()
socket.send_fds(ours, [b"it"], [served.fileno()])
served.close()
ours.recv(1)
"#;

#[test]
fn it_goes_by_a_message() -> Result<()> {
    both(PASSED, false, |place| {
        ensure!(place.server.wait()?.success());
        let parent = place.server.pid() as i32;
        for number in 0..10 {
            ensure!(place.ask(&format!("{number}"))? != parent);
        }
        Ok(())
    })
}

/// A client with its peer, and its options: parent and child ask in turns.
const CLIENT: &str = r#"
child = os.fork()
if child == 0:
    text, to = served.recvfrom(2000)
    served.connect(to)
    served.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)
    served.send(b"%d %s" % (os.getpid(), text))
    if os.fork() != 0: os._exit(0)
    assert served.getpeername() == to
    assert served.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 9
    while True: served.send(b"%d %s" % (os.getpid(), served.recv(2000)))
signal.pause()
"#;

#[test]
fn peer_and_options_are_inherited() -> Result<()> {
    both(CLIENT, false, |place| {
        let first = place.first()?;
        let second = place.ask("again")?;
        ensure!(first != second && second == place.ask("and again")?);
        // Another is not heard.
        let stranger = place.ground.udp()?;
        stranger.set_read_timeout(Some(Duration::from_millis(300)))?;
        stranger.send_to(b"stranger", place.client.peer_addr()?)?;
        ensure!(stranger.recv(&mut [0; 9]).is_err());
        ensure!(place.ask("still")? == second);
        Ok(())
    })
}

/// A client that says one word and is gone, before anybody knows where its peer is.
const WORD: &str = r#"
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.sendto(b"word", (sys.argv[1], int(sys.argv[2])))
if len(sys.argv) > 3: client.close()
"#;

#[test]
fn what_was_sent_before_a_close_or_an_end_goes_out() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    for closes in [true, false] {
        let ground = Ground::new()?;
        let peer = ground.udp()?;
        let mut python = command(&ground, "python3");
        python.args(["-c", WORD, &HOST.to_string()]);
        python.arg(peer.local_addr()?.port().to_string());
        if closes {
            python.arg("closes");
        }
        finish(python)?;
        let mut bytes = [0; 10];
        let n = peer.recv(&mut bytes)?;
        ensure!(&bytes[..n] == b"word");
        ground.eventually("nothing is left", |stat| stat["dtis"] == 0);
    }
    Ok(())
}
