//! Connections that several processes hold: over fork, exec, started programs and messages; and code that does not go through the library.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::preload::{Server, command, have};

use super::{body, engine};

/// How long bytes may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Begins a server in Python: `serve` gets each connection.
const LISTEN: &str = r#"
import os, select, signal, socket, struct, subprocess, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server((sys.argv[1], 8080), backlog=100)
def serve(connection):
    while piece := connection.recv(65536): connection.sendall(piece)
"#;

/// PostgreSQL's way: the parent accepts, forks and closes its copy.
const FORKING: &str = r#"
while True:
    connection, _ = listener.accept()
    if os.fork() == 0:
        listener.close()
        serve(connection)
        os._exit(0)
    connection.close()
"#;

fn python(ground: &Ground, script: &str) -> Result<Server> {
    let mut python = command(ground, "python3");
    python.args([
        "-c",
        &format!("{LISTEN}{script}"),
        ENGINE.to_string().as_str(),
    ]);
    Server::start(ground, python, engine(8080))
}

fn connect(ground: &Ground) -> Result<TcpStream> {
    let stream = ground.inside(|| TcpStream::connect(engine(8080)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends all of it, and reads what comes back until the end.
fn echo(stream: &TcpStream, bytes: &[u8]) -> Result<Vec<u8>> {
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> std::io::Result<()> {
            let mut out = stream;
            out.write_all(bytes)?;
            out.shutdown(Shutdown::Write)
        });
        let mut all = Vec::new();
        let mut from = stream;
        from.read_to_end(&mut all)?;
        writer.join().ok().context("the writer")??;
        Ok(all)
    })
}

/// Sends some of it, and reads as much.
fn echo_part(mut stream: &TcpStream, bytes: &[u8]) -> Result<()> {
    stream.write_all(bytes)?;
    let mut back = vec![0; bytes.len()];
    // The server's log is shown when a test panics.
    stream
        .read_exact(&mut back)
        .expect("what was sent comes back");
    assert!(back == bytes, "{} bytes came back changed", bytes.len());
    Ok(())
}

/// How the bytes of this connection go.
fn mode(stat: &Value, stream: &TcpStream) -> Option<String> {
    let peer = stream.local_addr().ok()?.to_string();
    let mut all = stat["connections"].as_array()?.iter();
    let found = all.find(|connection| connection["remote"] == peer.as_str())?;
    found["mode"].as_str().map(str::to_owned)
}

fn becomes(ground: &Ground, stream: &TcpStream, wished: &str) {
    ground.eventually(&format!("the connection is {wished}"), |stat| {
        mode(stat, stream).as_deref() == Some(wished)
    });
}

/// The same, with bytes going to and fro meanwhile: a connection is asked for when it is used.
fn becomes_in_use(ground: &Ground, stream: &TcpStream, wished: &str) -> Result<()> {
    for _ in 0..1000 {
        echo_part(stream, b"ping")?;
        if mode(&ground.stat(), stream).as_deref() == Some(wished) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("it does not become {wished}")
}

fn ready() -> bool {
    available() && have(&["python3"])
}

#[test]
fn a_child_serves_what_its_parent_accepted_and_is_fast() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _server = python(&ground, FORKING)?;
    let sent = body(3_000_000);
    let streams: Vec<TcpStream> = (0..4).map(|_| connect(&ground)).collect::<Result<_>>()?;
    for stream in &streams {
        echo_part(stream, &sent[..10_000])?;
        becomes_in_use(&ground, stream, "fast")?;
    }
    for stream in &streams {
        assert!(echo(stream, &sent)? == sent);
    }
    Ok(())
}

/// Parent and child speak in turns (the first connection is the one by which the harness sees that it listens), as the peer asks them to.
const BOTH: &str = r#"
first, _ = listener.accept()
first.close()
connection, _ = listener.accept()
assert connection.recv(3) == b"one"
child = os.fork()
if child == 0:
    # The parent has read a part, and this one goes on.
    assert connection.recv(3, socket.MSG_WAITALL) == b"two"
    connection.sendall(b"child")
    assert connection.getpeername() and connection.getsockname()[1] == 8080
    while connection.recv(1) != b"!": pass
    os._exit(0)
while True:
    # The child has what comes until it is told to end.
    try: os.kill(child, 0)
    except ProcessLookupError: break
    time.sleep(0.01)
connection.sendall(b"parent")
serve(connection)
"#;

#[test]
fn parent_and_child_use_one_connection() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _server = python(&ground, BOTH)?;
    let mut stream = connect(&ground)?;
    stream.write_all(b"onetwo")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"child");
    becomes(&ground, &stream, "shared");
    stream.write_all(b"!")?;
    let mut answer = [0; 6];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"parent");
    becomes_in_use(&ground, &stream, "fast")?;
    let sent = body(2_000_000);
    assert!(echo(&stream, &sent)? == sent);
    Ok(())
}

/// A daemon: the process that has the connections ends, and its child goes on.
const DAEMON: &str = r#"
first, _ = listener.accept()
first.close()
connection, _ = listener.accept()
assert connection.recv(5, socket.MSG_WAITALL) == b"hello"
connection.sendall(b"parent")
if os.fork() != 0: os._exit(0)
listener.close()
serve(connection)
"#;

#[test]
fn a_connection_outlives_the_process_that_accepted_it() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut server = python(&ground, DAEMON)?;
    let mut stream = connect(&ground)?;
    stream.write_all(b"hello")?;
    let mut answer = [0; 6];
    stream.read_exact(&mut answer)?;
    assert!(server.wait()?.success());
    becomes_in_use(&ground, &stream, "fast")?;
    let sent = body(2_000_000);
    assert!(echo(&stream, &sent)? == sent);
    Ok(())
}

/// As above, but what the parent is told after the fork it never reads.
const ENDING: &str = r#"
for end in os._exit, sys.exit:
    connection, _ = listener.accept()
    if os.fork() == 0:
        assert connection.recv(6, socket.MSG_WAITALL) == b"begin "
        connection.sendall(b"parent")
        if os.fork() != 0:
            select.select([connection], [], [])
            time.sleep(0.05)
            end(0)
        listener.close()
        # When the parent, which was told, has gone.
        while os.getppid() != 1: time.sleep(0.001)
        serve(connection)
        os._exit(0)
    connection.close()
time.sleep(60)
"#;

#[test]
fn what_a_process_had_not_read_when_it_ended_goes_to_who_holds_the_connection() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    // The harness connects once, to see that it listens.
    let script = ENDING.replacen("for end", "listener.accept()[0].close()\nfor end", 1);
    let _server = python(&ground, &script)?;
    for end in ["_exit", "exit"] {
        let mut stream = connect(&ground)?;
        stream.write_all(b"begin ")?;
        let mut answer = [0; 6];
        stream.read_exact(&mut answer)?;
        echo_part(&stream, b"not read by the parent").context(end)?;
        let sent = body(300_000);
        assert!(echo(&stream, &sent)? == sent, "{end}");
    }
    Ok(())
}

/// Programs that read and write their standard input and output.
fn programs_get_it_as_their_own(script: &str, wished: &str) -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _server = python(&ground, script)?;
    for _ in 0..2 {
        let stream = connect(&ground)?;
        echo_part(&stream, b"hello")?;
        becomes(&ground, &stream, wished);
        let sent = body(2_000_000);
        assert!(echo(&stream, &sent)? == sent);
    }
    Ok(())
}

#[test]
fn an_image_that_is_executed_gets_it() -> Result<()> {
    programs_get_it_as_their_own(
        r#"
while True:
    connection, _ = listener.accept()
    if os.fork() == 0:
        os.dup2(connection.fileno(), 0)
        os.dup2(connection.fileno(), 1)
        os.execvp("cat", ["cat"])
    connection.close()
"#,
        "proxied",
    )
}

#[test]
fn a_process_that_executes_another_image_hands_over_what_it_was_using() -> Result<()> {
    programs_get_it_as_their_own(
        r#"
while True:
    connection, _ = listener.accept()
    if os.fork() == 0:
        # It is this process's for a while, with bytes that were not read.
        piece = connection.recv(2)
        connection.sendall(piece)
        os.dup2(connection.fileno(), 0)
        os.dup2(connection.fileno(), 1)
        connection.close()
        os.execvp("cat", ["cat"])
    connection.close()
"#,
        "proxied",
    )
}

/// execl, execlp and execle, as the first byte says, of a connection that this process was using, under a number of no note.
const WORDS: &str = r#"
import ctypes
libc = ctypes.CDLL(None)
while True:
    connection, _ = listener.accept()
    if os.fork() == 0:
        which = connection.recv(1)
        if not which: os._exit(0)
        connection.sendall(which)
        connection.set_inheritable(True)
        line = b"test $9 = h && test ${10} = i && exec cat <&$1 >&$1"
        words = [b"sh", b"-c", line, b"sh", b"%d" % connection.fileno(), *[bytes([ch]) for ch in b"abcdefghi"], None]
        environment = [name + b"=" + value for name, value in os.environb.items()]
        environment = (ctypes.c_char_p * (len(environment) + 1))(*environment)
        if which == b"0": libc.execl(b"/bin/sh", *words)
        if which == b"1": libc.execlp(b"sh", *words)
        if which == b"2": libc.execle(b"/bin/sh", *words, environment)
        os._exit(1)
    connection.close()
"#;

#[test]
fn images_that_are_executed_with_words_as_arguments_get_it() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _server = python(&ground, WORDS)?;
    for which in [b"0", b"1", b"2"] {
        let stream = connect(&ground)?;
        echo_part(&stream, which)?;
        echo_part(&stream, b"hello")?;
        becomes(&ground, &stream, "proxied");
        let sent = body(300_000);
        assert!(echo(&stream, &sent)? == sent);
    }
    Ok(())
}

#[test]
fn a_program_that_is_started_gets_it() -> Result<()> {
    programs_get_it_as_their_own(
        r#"
while True:
    connection, _ = listener.accept()
    subprocess.Popen(["cat"], stdin=connection, stdout=connection)
    connection.close()
"#,
        "proxied",
    )
}

#[test]
fn a_program_under_a_number_of_its_own_is_fast() -> Result<()> {
    programs_get_it_as_their_own(
        r#"
script = """
import os, socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
while piece := connection.recv(65536): connection.sendall(piece)
"""
while True:
    connection, _ = listener.accept()
    number = connection.fileno()
    subprocess.Popen([sys.executable, "-c", script, str(number)], pass_fds=[number])
    connection.close()
"#,
        "fast",
    )
}

#[test]
fn pythons_forking_server_serves() -> Result<()> {
    programs_get_it_as_their_own(
        r#"
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self): serve(self.request)
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
with socketserver.ForkingTCPServer((sys.argv[1], 8080), Echo, bind_and_activate=False) as server:
    # The harness has seen that one listen; clients of a second listener might yet come to the first, and be reset when it closes.
    server.socket.close()
    server.socket = listener
    server.serve_forever()
"#,
        "fast",
    )
}

/// Connections and the listener itself go to another process by messages.
const PASSING: &str = r#"
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if os.fork() == 0:
    ours.close()
    listener.close()
    _, fds, _, _ = socket.recv_fds(theirs, 100, 4)
    connection = socket.socket(fileno=fds[0])
    _, fds, _, _ = socket.recv_fds(theirs, 100, 4)
    again = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=fds[0])
    # It listens here from now on; what comes from here on is for the child alone once the parent has closed its own.
    select.select([again], [], [], 0)
    theirs.send(b"ready")
    theirs.recv(10)
    serve(connection)
    connection.close()
    connection, _ = again.accept()
    serve(connection)
    os._exit(0)
theirs.close()
first, _ = listener.accept()
first.close()
connection, _ = listener.accept()
assert connection.recv(4, socket.MSG_WAITALL) == b"head"
socket.send_fds(ours, [b"a connection"], [connection.fileno()])
connection.close()
socket.send_fds(ours, [b"the listener"], [listener.fileno()])
ours.recv(10)
listener.close()
ours.send(b"closed")
time.sleep(1000)
"#;

#[test]
fn connections_and_listeners_go_by_messages() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _server = python(&ground, PASSING)?;
    let mut stream = connect(&ground)?;
    stream.write_all(b"head")?;
    echo_part(&stream, b"the rest")?;
    becomes_in_use(&ground, &stream, "fast")?;
    let sent = body(1_000_000);
    assert!(echo(&stream, &sent)? == sent);
    let stream = connect(&ground)?;
    assert!(echo(&stream, &sent)? == sent);
    Ok(())
}

/// Calls that the library does not see: of the system directly, and within libc.
const RAW: &str = r#"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.fdopen.restype = ctypes.c_void_p
libc.fgets.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
libc.fflush.argtypes = [ctypes.c_void_p]
first, _ = listener.accept()
first.close()
connection, _ = listener.accept()
fd = connection.fileno()
assert connection.recv(1) == b"a"
assert libc.syscall(1, fd, b"by a system call\n", 17) == 17
while connection.recv(1) != b"b": pass
stream = libc.fdopen(os.dup(fd), b"r+")
line = ctypes.create_string_buffer(100)
assert libc.fgets(line, 100, stream)
libc.fputs(b"by a stream: " + line.value, stream)
libc.fflush(stream)
time.sleep(1000)
"#;

#[test]
fn calls_that_the_library_does_not_see_reach_the_peer() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _server = python(&ground, RAW)?;
    let mut stream = connect(&ground)?;
    stream.write_all(b"a")?;
    let mut answer = [0; 17];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"by a system call\n");
    stream.write_all(b"ba line\n")?;
    let mut answer = [0; 20];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"by a stream: a line\n");
    becomes(&ground, &stream, "proxied");
    Ok(())
}

/// Exim's way: the parent makes a stream of what it accepts, forks, and closes the stream.
const STREAM: &str = r#"
import ctypes
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.fclose.argtypes = [ctypes.c_void_p]
libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
while True:
    connection, _ = listener.accept()
    fd = connection.detach()
    stream = libc.fdopen(fd, b"r+")
    if os.fork() == 0:
        listener.close()
        serve(socket.socket(fileno=fd))
        os._exit(0)
    libc.fputs(b"hello", stream)
    assert libc.fclose(stream) == 0
"#;

#[test]
fn a_stream_that_is_closed_holds_nothing() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _server = python(&ground, STREAM)?;
    for _ in 0..3 {
        let mut stream = connect(&ground)?;
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting, b"hello");
        // To the end: it comes when the child ends, and nobody else has the descriptor.
        assert!(echo(&stream, b"all of it")? == b"all of it");
    }
    Ok(())
}

/// Programs clear their environment, and write over it, before they make a socket.
const CLEARED: &str = r#"
import ctypes, sys
ctypes.CDLL(None).clearenv()
import socket
listener = socket.create_server((sys.argv[1], 8080))
while True:
    connection, _ = listener.accept()
    while piece := connection.recv(65536): connection.sendall(piece)
    connection.close()
"#;

#[test]
fn a_program_that_clears_its_environment_has_the_engine() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut python = command(&ground, "python3");
    python.args(["-c", CLEARED, &ENGINE.to_string()]);
    let server = Server::start(&ground, python, engine(8080))?;
    let stream = connect(&ground)?;
    assert!(echo(&stream, b"all of it")? == b"all of it");
    server.assert_fast(&ground)
}

/// The child waits by poll, select and epoll.
const WAITING: &str = r#"
def served(connection, wait):
    while True:
        wait()
        piece = connection.recv(65536)
        if not piece: return
        connection.sendall(piece)
while True:
    connection, _ = listener.accept()
    way = connection.recv(1)
    before = select.epoll(); before.register(connection, select.EPOLLIN)
    if os.fork() == 0:
        fd = connection.fileno()
        if way == b"p":
            poll = select.poll(); poll.register(fd, select.POLLIN); wait = poll.poll
        elif way == b"s":
            wait = lambda: select.select([fd], [], [])
        elif way == b"e":
            epoll = select.epoll(); epoll.register(fd, select.EPOLLIN); wait = epoll.poll
        else: os._exit(0)
        served(connection, wait)
        os._exit(0)
    before.close()
    connection.close()
"#;

#[test]
fn a_child_waits_for_what_it_inherited() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _server = python(&ground, WAITING)?;
    let sent = body(1_000_000);
    for way in [b"p", b"s", b"e"] {
        let mut stream = connect(&ground)?;
        stream.write_all(way)?;
        echo_part(&stream, b"to begin with")?;
        becomes_in_use(&ground, &stream, "fast")?;
        assert!(echo(&stream, &sent)? == sent);
    }
    Ok(())
}

/// A program that has no library within, and makes its calls itself: an echo between standard input and output.
const STATIC: &str = r#"
#include <unistd.h>
int main(void) {
    char bytes[65536];
    ssize_t n;
    while ((n = read(0, bytes, sizeof bytes)) > 0)
        for (ssize_t done = 0, m; done < n; done += m)
            if ((m = write(1, bytes + done, n - done)) < 0) return 1;
    return 0;
}
"#;

/// The parent keeps the connection, and does nothing with it.
const KEEPING: &str = r#"
kept = []
while True:
    connection, _ = listener.accept()
    kept.append(connection)
    if os.fork() == 0:
        os.dup2(connection.fileno(), 0)
        os.dup2(connection.fileno(), 1)
        os.execv(sys.argv[2], [sys.argv[2]])
"#;

#[test]
fn a_static_program_gets_it_though_its_parent_keeps_it() -> Result<()> {
    if !ready() || !have(&["cc"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let folder = ground.socket().parent().context("a folder")?.to_owned();
    let (source, program) = (folder.join("echo.c"), folder.join("echo"));
    std::fs::write(&source, STATIC)?;
    let mut cc = Command::new("cc");
    cc.args(["-static", "-O1", "-o"]).arg(&program).arg(&source);
    if !cc.output()?.status.success() {
        eprintln!("skipped: no static libc");
        return Ok(());
    }
    let mut python = command(&ground, "python3");
    python.args(["-c", &format!("{LISTEN}{KEEPING}")]);
    python.arg(ENGINE.to_string()).arg(&program);
    let _server = Server::start(&ground, python, engine(8080))?;
    let stream = connect(&ground)?;
    echo_part(&stream, b"hello")?;
    becomes(&ground, &stream, "shared");
    echo_part(&stream, &body(100_000))?;
    Ok(())
}

#[test]
fn socat_forks_and_starts_programs() -> Result<()> {
    if !available() || !have(&["socat"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut socat = command(&ground, "socat");
    let listen = format!("TCP-LISTEN:8080,bind={ENGINE},reuseaddr,fork");
    socat.args([listen.as_str(), "EXEC:cat"]);
    let _server = Server::start(&ground, socat, engine(8080))?;
    let sent = body(2_000_000);
    for _ in 0..3 {
        let stream = connect(&ground)?;
        echo_part(&stream, b"hello")?;
        assert!(echo(&stream, &sent)? == sent);
    }
    Ok(())
}
