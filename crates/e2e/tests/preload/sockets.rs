//! Calls and their answers, as Python shows them.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{command, end_serving, finish, have, serve};

use crate::fetch;

/// Blocking sockets with their timeouts, options and errors, as Python shows them.
const SOCKETS: &str = r#"
import errno, os, signal, socket, struct, sys, threading
host, port, closed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
s = socket.create_connection((host, port))
assert s.getpeername() == (host, port) and s.getsockname()[0] == "10.77.0.2", s
assert os.fstat(s.fileno()) and s.type == socket.SOCK_STREAM
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
assert info[0] == 1, "TCP_ESTABLISHED"
s.settimeout(0.05)
try: s.recv(1); raise SystemExit("bytes from nowhere")
except TimeoutError: pass
s.setblocking(False)
try: s.recv(1); raise SystemExit("bytes from nowhere")
except BlockingIOError: pass
s.setblocking(True)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 20000))
try: s.recv(1); raise SystemExit("bytes from nowhere")
except BlockingIOError: pass
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
# A handler without SA_RESTART ends a blocked call; Python calls it again.
seen = []
signal.signal(signal.SIGALRM, lambda *_: (seen.append(1), s.sendall(b"hello")))
signal.setitimer(signal.ITIMER_REAL, 0.05)
assert s.recv(5, socket.MSG_PEEK | socket.MSG_WAITALL) == b"hello" and seen
d = s.dup()
s.close()
assert d.recv(3, socket.MSG_WAITALL) == b"hel" and d.recv(100) == b"lo"
sent = os.urandom(2_000_000)
writer = threading.Thread(target=lambda: (d.sendall(sent), d.shutdown(socket.SHUT_WR)))
writer.start()
got = b""
while piece := d.recv(65536): got += piece
writer.join()
assert got == sent
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
try: d.sendall(b"x"); raise SystemExit("sent after the end")
except BrokenPipeError: pass
d.close()
try: socket.create_connection((host, closed)); raise SystemExit("connected")
except ConnectionRefusedError: pass
n = socket.socket(); n.setblocking(False)
assert n.connect_ex((host, closed)) == errno.EINPROGRESS
import select
p = select.poll(); p.register(n, select.POLLOUT)
assert p.poll(5000)[0][1] & (select.POLLERR | select.POLLHUP)
assert n.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
# The kernel's are the kernel's.
a = socket.create_server(("127.0.0.1", 0)); b = socket.create_connection(a.getsockname())
c, _ = a.accept(); b.sendall(b"kernel"); assert c.recv(6) == b"kernel"
print("done")
"#;

#[test]
fn blocking_sockets_behave() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let listener = ground.listen()?;
    let address = listener.local_addr()?;
    let closed = ground.listen()?.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<u64> {
        let (stream, _) = listener.accept()?;
        std::io::copy(&mut &stream, &mut &stream)
    });
    let mut python = command(&ground, "python3");
    let (port, closed) = (address.port().to_string(), closed.port().to_string());
    python.args(["-c", SOCKETS, &HOST.to_string(), &port, &closed]);
    assert_eq!(finish(python)?.stdout, b"done\n");
    let echoed = echo.join().expect("the echo")?;
    assert_eq!(echoed, 2_000_005);
    Ok(())
}

/// A server and its clients in one loop, TCP and UDP: both ends are the engine's.
const ASYNCIO: &str = r#"
import asyncio, sys
host = sys.argv[1]
async def echo(r, w):
    while piece := await r.read(65536):
        w.write(piece); await w.drain()
    w.close()
async def client(n, port):
    r, w = await asyncio.open_connection(host, port)
    sent = bytes([n]) * 200000
    w.write(sent)
    assert await r.readexactly(len(sent)) == sent
    w.close(); await w.wait_closed()
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, t): self.t = t
    def datagram_received(self, d, a): self.t.sendto(d, a)
class Asker(asyncio.DatagramProtocol):
    def __init__(self, answer): self.answer = answer
    def connection_made(self, t): t.sendto(b"ping")
    def datagram_received(self, d, a): self.answer.set_result(d)
async def main():
    server = await asyncio.start_server(echo, host, 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*[client(n, port) for n in range(20)])
    server.close(); await server.wait_closed()
    loop = asyncio.get_running_loop()
    t, _ = await loop.create_datagram_endpoint(Echo, local_addr=(host, 0))
    answer = loop.create_future()
    make = lambda: Asker(answer)
    u, _ = await loop.create_datagram_endpoint(make, remote_addr=t.get_extra_info("sockname"))
    assert await asyncio.wait_for(answer, 20) == b"ping"
    t.close(); u.close()
    print("done")
asyncio.run(main())
"#;

#[test]
fn asyncio_serves_itself() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut python = command(&ground, "python3");
    python.args(["-c", ASYNCIO, &ENGINE.to_string()]);
    assert_eq!(finish(python)?.stdout, b"done\n");
    // The same with everything taken, over the engine's own loopback.
    let mut python = command(&ground, "python3");
    python
        .env("SIDECORE_TAKE", "all")
        .args(["-c", ASYNCIO, "127.0.0.1"]);
    assert_eq!(finish(python)?.stdout, b"done\n");
    Ok(())
}

#[test]
fn without_an_engine_the_kernels_sockets_are_used() -> Result<()> {
    if !available() || !have(&["curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let nowhere = ground.folder().join("nothing");
    let listener = ground.listen()?;
    let address = listener.local_addr()?;
    let url = format!("http://{address}/");
    let server = serve(listener, b"kernel".to_vec(), || {});
    let mut curl = command(&ground, "curl");
    curl.env("SIDECORE_SOCKET", &nowhere);
    let curl = fetch(curl, &[&url]);
    let inside = ground.inside(|| finish(curl))?;
    assert_eq!(inside.stdout, b"kernel");
    let said = String::from_utf8_lossy(&inside.stderr).into_owned();
    assert_eq!(said.matches("no engine at").count(), 1, "{said}");
    let mut curl = command(&ground, "curl");
    curl.env("SIDECORE_SOCKET", &nowhere)
        .env("SIDECORE_NO_ENGINE", "exit");
    let curl = fetch(curl, &[&url]);
    let error = ground.inside(|| finish(curl)).unwrap_err().to_string();
    assert!(
        error.contains("exit status: 1") && error.contains("no engine at"),
        "{error}"
    );
    end_serving(&ground, address, server)
}

/// What a program sees when its engine goes away; then the kernel's sockets go on.
const BEREFT: &str = r#"
import errno, select, socket, sys, threading
host, port = sys.argv[1], int(sys.argv[2])
a, b = (socket.create_connection((host, port)) for _ in range(2))
listener = socket.create_server(("10.77.0.2", 0))
p = select.epoll(); p.register(b, select.EPOLLIN)
ends = []
def blocked():
    try: ends.append(a.recv(1))
    except OSError as error: ends.append(error.errno)
thread = threading.Thread(target=blocked); thread.start()
print("ready", flush=True)
assert p.poll(30), "a poll that does not end"
thread.join(30)
assert ends == [errno.ECONNRESET], ends
try: b.send(b"x"); raise SystemExit("sent to nobody")
except ConnectionResetError: pass
try: b.recv(1); raise SystemExit("received from nobody")
except OSError as error: assert error.errno == errno.ENOTCONN, error
try: listener.accept(); raise SystemExit("accepted nobody")
except OSError: pass
for s in (a, b, listener): s.close()
c = socket.create_server(("127.0.0.1", 0)); d = socket.create_connection(c.getsockname())
d.sendall(b"kernel"); assert c.accept()[0].recv(6) == b"kernel"
print("done")
"#;

#[test]
fn an_engine_that_goes_away_is_told_and_nothing_hangs() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let mut ground = Ground::new()?;
    let listener = ground.listen()?;
    let address = listener.local_addr()?;
    let mut python = command(&ground, "python3");
    python.args(["-c", BEREFT, &HOST.to_string(), &address.port().to_string()]);
    python.stdout(Stdio::piped());
    let mut child = python.spawn()?;
    let mut said = BufReader::new(child.stdout.take().context("its output")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    assert_eq!(line, "ready\n");
    ground.stop_engine();
    line.clear();
    said.read_line(&mut line)?;
    assert_eq!(line, "done\n");
    assert!(child.wait()?.success());
    Ok(())
}

/// Threads: calls that others end, and one epoll set that four wait on.
const THREADS: &str = r#"
import select, socket, sys, threading, time
host = sys.argv[1]
out = []
def attempt(call):
    try: out.append(call())
    except OSError as error: out.append(error.errno)
listener = socket.create_server((host, 0))
c = socket.create_connection(listener.getsockname()); s, _ = listener.accept()
for call, end in ((lambda: c.recv(10), c), (listener.accept, listener)):
    thread = threading.Thread(target=attempt, args=(call,)); thread.start(); time.sleep(0.1)
    end.shutdown(socket.SHUT_RDWR); thread.join(30); assert not thread.is_alive()
assert out == [b"", 22] and s.recv(10) == b"", out
listener = socket.create_server((host, 0)); listener.setblocking(False)
once = select.EPOLLIN | select.EPOLLONESHOT
events = select.epoll(); events.register(listener, once)
ended, held, done = [], {}, []
stop, stopper = socket.socketpair(); events.register(stop, select.EPOLLIN)
def serve(fd):
    if fd == listener.fileno():
        while True:
            try: x, _ = listener.accept()
            except BlockingIOError: break
            x.setblocking(False); held[x.fileno()] = x; events.register(x, once)
        events.modify(listener, once)
    else:
        x = held[fd]; data = x.recv(4096)
        if data: x.sendall(data); events.modify(x, once)
        else: ended.append(fd); x.close()
def worker():
    while True:
        for fd, _ in events.poll(30):
            if fd == stop.fileno(): return
            serve(fd)
def client(n):
    k = socket.create_connection(listener.getsockname())
    for j in range(50):
        k.sendall(b"%d" % j); assert k.recv(10) == b"%d" % j
    k.close(); done.append(n)
workers = [threading.Thread(target=worker) for _ in range(4)]
clients = [threading.Thread(target=client, args=(n,)) for n in range(20)]
for thread in workers + clients: thread.start()
for thread in clients: thread.join(30)
while len(ended) < 20 and any(t.is_alive() for t in workers): time.sleep(0.01)
stopper.sendall(b"x")
for thread in workers: thread.join(30)
assert len(done) == 20 and not any(t.is_alive() for t in workers)
print("done")
"#;

#[test]
fn threads_share_sockets_and_sets() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut python = command(&ground, "python3");
    python.args(["-c", THREADS, &ENGINE.to_string()]);
    assert_eq!(finish(python)?.stdout, b"done\n");
    Ok(())
}

/// Connections that come and go. The inode of a descriptor tells which pair of the agent's it is of.
const COMING_AND_GOING: &str = r#"
import os, select, socket, sys
host, port = sys.argv[1], int(sys.argv[2])
def inode(s): return os.fstat(s.fileno()).st_ino
def echo(s):
    s.sendall(b"hello")
    assert s.recv(5, socket.MSG_WAITALL) == b"hello"
seen = set()
for n in range(60):
    s = socket.create_connection((host, port))
    seen.add(inode(s))
    echo(s)
    if n % 2:
        # The next one blocks all the same.
        s.setblocking(False)
    s.close()
assert len(seen) <= 4, f"{len(seen)} descriptors"
# Two at a time are two.
a, b = (socket.create_connection((host, port)) for _ in range(2))
assert inode(a) != inode(b)
echo(a); echo(b)
# One that a child holds serves nobody else, as long as it does.
r, w = os.pipe()
if os.fork() == 0:
    os.close(w); b.close()
    os.read(r, 1)
    echo(a)
    os._exit(0)
kept = inode(a)
a.close()
b.close()
later = [socket.create_connection((host, port)) for _ in range(12)]
assert kept not in map(inode, later)
for s in later: echo(s)
os.write(w, b"x")
assert os.wait()[1] == 0
print("done")
"#;

#[test]
fn descriptors_serve_one_connection_after_the_other() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let listener = ground.listen()?;
    let address = listener.local_addr()?;
    let _echo = std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let mut python = command(&ground, "python3");
    let port = address.port().to_string();
    python.args(["-c", COMING_AND_GOING, &HOST.to_string(), &port]);
    assert_eq!(finish(python)?.stdout, b"done\n");
    Ok(())
}
