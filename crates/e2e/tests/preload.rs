//! Unmodified programs on the engine, by the preload library: as clients, and as servers for the kernel's side.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{Server, command, end_serving, finish, have, serve};

/// Bytes that no two places have alike.
fn body(len: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    };
    (0..len).map(|_| next()).collect()
}

fn engine(port: u16) -> SocketAddr {
    (ENGINE, port).into()
}

/// Whether the engine has a connection with this peer.
fn connected(stat: &Value, peer: SocketAddr) -> bool {
    let peer = peer.to_string();
    let connections = stat["connections"].as_array();
    connections.is_some_and(|all| all.iter().any(|c| c["remote"] == peer.as_str()))
}

#[test]
fn clients_fetch_from_the_kernels_side() -> Result<()> {
    if !available() || !have(&["curl", "wget", "python3"]) {
        return Ok(());
    }
    let ground = std::sync::Arc::new(Ground::new()?);
    ground.ip(&["link", "set", "lo", "up"])?;
    let whole = body(3_000_000);
    let listener = ground.listen()?;
    let address = listener.local_addr()?;
    let asked = std::sync::Arc::downgrade(&ground);
    let server = serve(listener, whole.clone(), move || {
        let ground = asked.upgrade().expect("the ground");
        ground.eventually("the connection is the engine's", |stat| {
            connected(stat, address)
        });
    });
    let url = format!("http://{address}/");
    let mut curl = command(&ground, "curl");
    curl.args(["--silent", "--show-error", "--max-time", "50", &url]);
    assert!(finish(curl)?.stdout == whole, "curl");
    let mut wget = command(&ground, "wget");
    wget.args(["--quiet", "--tries=1", "--output-document=-", &url]);
    assert!(finish(wget)?.stdout == whole, "wget");
    let mut python = command(&ground, "python3");
    let script = "import sys, urllib.request\n\
        sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())";
    python.args(["-c", script, &url]);
    assert!(finish(python)?.stdout == whole, "python");
    end_serving(&ground, address, server)?;
    ground.eventually("nothing is left", |stat| stat["dtis"] == 0);
    Ok(())
}

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
fn redis_serves_its_benchmark() -> Result<()> {
    if !available() || !have(&["redis-server", "redis-benchmark"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut redis = command(&ground, "redis-server");
    redis.args(["--port", "6379", "--bind", &ENGINE.to_string()]);
    redis.args(["--protected-mode", "no", "--save", "", "--dir"]);
    redis.arg(ground.folder());
    let _server = Server::start(&ground, redis, engine(6379))?;
    let mut benchmark = ground.command("redis-benchmark");
    benchmark.args([
        "-h",
        &ENGINE.to_string(),
        "-p",
        "6379",
        "-t",
        "set,get,lpush",
    ]);
    benchmark.args(["-n", "5000", "-c", "50", "-q"]);
    let told = finish(benchmark)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.matches("requests per second").count(), 3, "{told}");
    Ok(())
}

/// Sets and gets over many connections at once.
const MEMCACHED: &str = r#"
import socket, sys, threading
def client(n):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    f = s.makefile("rwb")
    for i in range(200):
        value = b"%d-%d-" % (n, i) * 100
        f.write(b"set k%d 0 0 %d\r\n%s\r\nget k%d\r\n" % (n, len(value), value, n)); f.flush()
        assert f.readline() == b"STORED\r\n"
        assert f.readline() == b"VALUE k%d 0 %d\r\n" % (n, len(value))
        assert f.read(len(value) + 7) == value + b"\r\nEND\r\n"
    done.append(n)
done = []
all = [threading.Thread(target=client, args=(n,)) for n in range(16)]
[t.start() for t in all]; [t.join() for t in all]
print(len(done))
"#;

#[test]
fn memcached_serves_with_its_threads() -> Result<()> {
    if !available() || !have(&["memcached", "python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut memcached = command(&ground, "memcached");
    memcached.args(["-u", "root", "-t", "4", "-p", "11211", "-U", "0", "-l"]);
    memcached.arg(ENGINE.to_string());
    let _server = Server::start(&ground, memcached, engine(11211))?;
    let mut client = ground.command("python3");
    client.args(["-c", MEMCACHED, &ENGINE.to_string(), "11211"]);
    assert_eq!(finish(client)?.stdout, b"16\n");
    Ok(())
}

#[test]
fn a_wildcard_listener_serves_both_sides() -> Result<()> {
    if !available() || !have(&["curl", "python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let whole = body(1_000_000);
    std::fs::write(ground.folder().join("file"), &whole)?;
    // A port of the test's own: the kernel's side is where the tests run.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let mut python = command(&ground, "python3");
    python.args(["-m", "http.server", &port.to_string(), "--directory"]);
    python.arg(ground.folder());
    let _server = Server::start(&ground, python, engine(port))?;
    let mut far = ground.command("curl");
    far.args([
        "-sS",
        "--max-time",
        "50",
        &format!("http://{ENGINE}:{port}/file"),
    ]);
    assert!(finish(far)?.stdout == whole, "from the engine's side");
    let mut near = std::process::Command::new("curl");
    near.args([
        "-sS",
        "--max-time",
        "50",
        &format!("http://127.0.0.1:{port}/file"),
    ]);
    assert!(finish(near)?.stdout == whole, "from the kernel's side");
    Ok(())
}

#[test]
fn iperf3_runs_in_both_roles() -> Result<()> {
    if !available() || !have(&["iperf3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    for (port, more) in [
        ("5201", &["-P", "2"][..]),
        ("5202", &["-R"]),
        ("5203", &["-u", "-b", "5M"]),
    ] {
        let mut server = ground.command("iperf3");
        server.args(["-s", "-1", "-p", port, "-B", &HOST.to_string()]);
        let mut server = Server::spawn(server)?;
        // The one test of one connection cannot be tried out before.
        std::thread::sleep(Duration::from_millis(500));
        let mut client = command(&ground, "iperf3");
        client
            .args(["-c", &HOST.to_string(), "-p", port, "-n", "2M"])
            .args(more);
        finish(client).with_context(|| format!("client {more:?}"))?;
        assert!(server.wait()?.success(), "client {more:?}");
    }
    let mut server = command(&ground, "iperf3");
    server.args(["-s", "-1", "-p", "5204", "-B", &ENGINE.to_string()]);
    let mut server = Server::spawn(server)?;
    ground.eventually("it listens", |stat| {
        stat["sockets"].as_array().is_some_and(|s| !s.is_empty())
    });
    let mut client = ground.command("iperf3");
    client.args([
        "-c",
        &ENGINE.to_string(),
        "-p",
        "5204",
        "-n",
        "2M",
        "-P",
        "3",
    ]);
    finish(client).context("server")?;
    assert!(server.wait()?.success(), "server");
    Ok(())
}

#[test]
fn netcat_and_socat_carry_bytes() -> Result<()> {
    if !available() || !have(&["nc", "socat"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let whole = body(500_000);
    let (given, taken) = (ground.folder().join("given"), ground.folder().join("taken"));
    std::fs::write(&given, &whole)?;
    for program in ["nc", "socat"] {
        let listener = ground.listen()?;
        let address = listener.local_addr()?;
        let far = std::thread::spawn(move || -> std::io::Result<Vec<u8>> {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut listener.accept()?.0, &mut all)?;
            Ok(all)
        });
        let mut client = command(&ground, program);
        let port = address.port().to_string();
        if program == "nc" {
            client.args(["-N", &HOST.to_string(), &port]);
        } else {
            client.args(["-u", "-", &format!("TCP:{address}")]);
        }
        client.stdin(std::fs::File::open(&given)?);
        finish(client)?;
        assert!(far.join().expect("the reader")? == whole, "{program}");
    }
    let mut server = command(&ground, "socat");
    server.args(["-u", &format!("TCP-LISTEN:7000,bind={ENGINE}")]);
    server.arg(format!("CREATE:{}", taken.display()));
    let mut server = Server::spawn(server)?;
    ground.eventually("it listens", |stat| {
        stat["sockets"].as_array().is_some_and(|s| !s.is_empty())
    });
    let mut near = ground.connect(7000)?;
    std::io::Write::write_all(&mut near, &whole)?;
    drop(near);
    assert!(server.wait()?.success());
    assert!(std::fs::read(&taken)? == whole);
    Ok(())
}

#[test]
fn load_generators_run_on_the_engine() -> Result<()> {
    if !available() || !have(&["wrk", "ab", "nginx"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let configuration = nginx(&ground, HOST.to_string(), "master_process off;")?;
    let mut kernel = ground.command("nginx");
    kernel.arg("-c").arg(configuration);
    let _server = Server::start(&ground, kernel, (HOST, 8080).into())?;
    let url = format!("http://{HOST}:8080/page");
    let mut wrk = command(&ground, "wrk");
    wrk.args(["-c", "20", "-t", "2", "-d", "1", &url]);
    let told = finish(wrk)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        told.contains("requests in") && !told.contains("Socket errors"),
        "{told}"
    );
    let mut ab = command(&ground, "ab");
    ab.args(["-q", "-n", "300", "-c", "10", &url]);
    let told = finish(ab)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("Complete requests:      300"), "{told}");
    assert!(told.contains("Failed requests:        0"), "{told}");
    Ok(())
}

/// A configuration of nginx at port 8080, with its files in the ground's folder; `page` is there to be fetched.
fn nginx(ground: &Ground, address: String, more: &str) -> Result<std::path::PathBuf> {
    let folder = ground.folder();
    let shown = folder.display();
    std::fs::write(folder.join("page"), body(1024))?;
    std::fs::write(folder.join("large"), body(3_000_000))?;
    let text = format!(
        "daemon off; {more} pid {shown}/pid; error_log {shown}/errors info; user root;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; sendfile on; client_body_temp_path {shown}/b;\n\
         proxy_temp_path {shown}/p; fastcgi_temp_path {shown}/f; uwsgi_temp_path {shown}/u;\n\
         scgi_temp_path {shown}/s;\n\
         server {{ listen {address}:8080; root {shown}; }} }}\n"
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, text)?;
    Ok(path)
}

#[test]
fn nginx_serves_from_one_process() -> Result<()> {
    if !available() || !have(&["nginx", "wrk", "curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let configuration = nginx(&ground, ENGINE.to_string(), "master_process off;")?;
    let mut nginx = command(&ground, "nginx");
    nginx.arg("-c").arg(configuration);
    let mut server = Server::start(&ground, nginx, engine(8080))?;
    let mut curl = ground.command("curl");
    curl.args([
        "-sS",
        "--max-time",
        "50",
        &format!("http://{ENGINE}:8080/large"),
    ]);
    assert!(finish(curl)?.stdout == body(3_000_000));
    let mut wrk = ground.command("wrk");
    wrk.args([
        "-c",
        "50",
        "-t",
        "2",
        "-d",
        "1",
        &format!("http://{ENGINE}:8080/page"),
    ]);
    let told = finish(wrk)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        told.contains("requests in") && !told.contains("Socket errors"),
        "{told}"
    );
    // SIGKILL with connections open: nothing is left.
    let open = ground.connect(8080)?;
    server.end();
    drop(open);
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["uals"].as_array().is_some_and(Vec::is_empty)
    });
    Ok(())
}

#[test]
fn nginx_serves_from_workers_and_reloads() -> Result<()> {
    if !available() || !have(&["nginx", "wrk", "curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let configuration = nginx(&ground, ENGINE.to_string(), "worker_processes 2;")?;
    let mut nginx = command(&ground, "nginx");
    nginx.arg("-c").arg(&configuration);
    let mut server = Server::start(&ground, nginx, engine(8080))?;
    // The master's listener takes nothing; each worker opened it once more.
    ground.eventually("both workers listen", |stat| {
        let sockets = stat["sockets"].as_array();
        sockets.is_some_and(|all| all.iter().filter(|s| s["state"] == "Listen").count() == 3)
    });
    for _ in 0..20 {
        let mut curl = ground.command("curl");
        curl.args([
            "-sS",
            "--max-time",
            "50",
            &format!("http://{ENGINE}:8080/page"),
        ]);
        assert!(finish(curl)?.stdout == body(1024));
    }
    // New workers take over, with nothing lost on the way.
    let load = {
        let mut wrk = ground.command("wrk");
        wrk.args([
            "-c",
            "20",
            "-t",
            "1",
            "-d",
            "3",
            &format!("http://{ENGINE}:8080/page"),
        ]);
        std::thread::spawn(move || finish(wrk))
    };
    std::thread::sleep(Duration::from_millis(700));
    let before = uals(&ground);
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).context("its pid")?;
    rustix::process::kill_process(pid, rustix::process::Signal::HUP)?;
    ground.eventually("new workers are there, and the old ones gone", |stat| {
        let now = ids(stat);
        now.len() == 3 && now.iter().filter(|ual| before.contains(ual)).count() == 1
    });
    let told = load.join().expect("wrk")?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("requests in"), "{told}");
    let mut curl = ground.command("curl");
    curl.args([
        "-sS",
        "--max-time",
        "50",
        &format!("http://{ENGINE}:8080/large"),
    ]);
    assert!(finish(curl)?.stdout == body(3_000_000));
    server.end();
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["uals"].as_array().is_some_and(Vec::is_empty)
    });
    Ok(())
}

/// The UALs that there are.
fn ids(stat: &Value) -> Vec<u64> {
    let uals = stat["uals"].as_array();
    uals.map_or_else(Vec::new, |all| {
        all.iter().filter_map(|ual| ual["id"].as_u64()).collect()
    })
}

fn uals(ground: &Ground) -> Vec<u64> {
    ids(&ground.stat())
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
    let server = serve(listener, b"kernel".to_vec(), || {});
    let mut curl = command(&ground, "curl");
    curl.env("SIDECORE_SOCKET", &nowhere);
    curl.args([
        "--silent",
        "--max-time",
        "50",
        &format!("http://{address}/"),
    ]);
    let inside = ground.inside(|| finish(curl))?;
    assert_eq!(inside.stdout, b"kernel");
    let said = String::from_utf8_lossy(&inside.stderr).into_owned();
    assert_eq!(said.matches("no engine at").count(), 1, "{said}");
    let mut curl = command(&ground, "curl");
    curl.env("SIDECORE_SOCKET", &nowhere)
        .env("SIDECORE_NO_ENGINE", "exit");
    curl.args([
        "--silent",
        "--max-time",
        "50",
        &format!("http://{address}/"),
    ]);
    let error = ground.inside(|| finish(curl)).unwrap_err().to_string();
    assert!(
        error.contains("exit status: 1") && error.contains("no engine at"),
        "{error}"
    );
    end_serving(&ground, address, server)
}
