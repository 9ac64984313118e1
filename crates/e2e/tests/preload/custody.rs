//! What holders of a connection in custody may do with it beside reading and writing: options, figures, urgent data; and programs that confine
//! themselves. With the kernel's sockets, and on the engine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::net::{RecvFlags, SendFlags};
use serde_json::Value;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{Server, command, have};

/// How long bytes may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parent and child hold the connection; the child uses it.
const SHARED: &str = r#"
import os, select, signal, socket, struct, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server((sys.argv[1], 8080))
first, _ = listener.accept()
first.close()
connection, _ = listener.accept()
assert connection.recv(5, socket.MSG_WAITALL) == b"hello"
def use():
    connection.sendall(b"ready")
    poll = select.poll()
    poll.register(connection, select.POLLPRI)
    assert poll.poll(20000)[0][1] & select.POLLPRI
    urgent = connection.recv(1, socket.MSG_OOB)
    poll.register(connection, select.POLLIN)
    poll.poll(20000)
    connection.sendall(urgent + connection.recv(100))
    # The mark is behind.
    assert connection.recv(1) == b"-"
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    connection.sendall(b"inline")
    said = b""
    while not said.endswith(b"."): said += connection.recv(100)
    connection.sendall(said)
    assert connection.send(b"outsidE", socket.MSG_OOB) == 7
    assert connection.recv(1) == b"?"
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    # Established, and the segment that is in force.
    connection.sendall(b"%d" % info[0])
    assert struct.unpack_from("I", info, 16)[0] >= 500
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) >= 500
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.sendall(b"set")
    assert connection.recv(1) == b"!"
child = os.fork()
if child == 0:
    listener.close()
    use()
    os._exit(0)
while True:
    try: os.kill(child, 0)
    except ProcessLookupError: break
    time.sleep(0.01)
"#;

fn read(stream: &mut TcpStream, wished: &[u8]) -> Result<()> {
    let mut bytes = vec![0; wished.len()];
    let text = String::from_utf8_lossy(wished);
    stream
        .read_exact(&mut bytes)
        .with_context(|| format!("waiting for {text}"))?;
    ensure!(
        bytes == wished,
        "{:?}, not {text}",
        String::from_utf8_lossy(&bytes)
    );
    Ok(())
}

fn use_it(stream: &mut TcpStream, in_custody: impl FnOnce()) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"hello")?;
    read(stream, b"ready")?;
    in_custody();
    // Out of band: the byte comes by itself, and then what was before it.
    rustix::net::send(&*stream, b"abcX", SendFlags::OOB)?;
    read(stream, b"Xabc")?;
    stream.write_all(b"-")?;
    read(stream, b"inline")?;
    rustix::net::send(&*stream, b"deY", SendFlags::OOB)?;
    stream.write_all(b"f.")?;
    read(stream, b"deYf.")?;
    // The other way.
    read(stream, b"outsid")?;
    let mut byte = [0; 4];
    let (n, _) = rustix::net::recv(&*stream, &mut byte[..], RecvFlags::OOB)?;
    ensure!(n == 1 && byte[0] == b'E', "{byte:?}");
    stream.write_all(b"?")?;
    read(stream, b"1set")?;
    stream.write_all(b"!")?;
    // It was set to end so.
    let ended = stream.read(&mut byte).map_err(|error| error.kind());
    ensure!(
        ended == Err(std::io::ErrorKind::ConnectionReset),
        "{ended:?}"
    );
    Ok(())
}

#[test]
fn options_figures_and_urgent_data_go_through_the_custodian() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    for on_engine in [false, true] {
        let ground = Ground::new()?;
        ground.ip(&["link", "set", "lo", "up"])?;
        let mut python = match on_engine {
            true => command(&ground, "python3"),
            false => ground.command("python3"),
        };
        let at = if on_engine { ENGINE } else { HOST };
        python.args(["-c", SHARED, &at.to_string()]);
        let at = SocketAddr::from((at, 8080));
        let mut server = Server::start(&ground, python, at)?;
        let mut stream = ground.inside(|| TcpStream::connect(at))?;
        let done = use_it(&mut stream, || {
            let shared = |stat: &Value| {
                let all = stat["connections"].as_array();
                all.is_some_and(|all| all.iter().any(|one| one["mode"] == "shared"))
            };
            if on_engine {
                ground.eventually("it is in custody", shared);
            }
        });
        done.with_context(|| format!("engine: {on_engine}\n{}", server.end()))?;
    }
    Ok(())
}

/// It takes one connection, and then has nothing but read(2), write(2) and its end.
const CONFINED: &str = r#"
#include <arpa/inet.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(8080)};
    if (count < 3 || !inet_aton(words[1], &at.sin_addr)) return 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 5)) return 2;
    close(accept(listener, 0, 0));
    int connection = accept(listener, 0, 0);
    close(listener);
    if (!strcmp(words[2], "prctl")) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 3;
    } else if (!strcmp(words[2], "seccomp")) {
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL)) return 3;
    } else {
        if (syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0)) return 3;
    }
    char bytes[4096];
    ssize_t n;
    while ((n = read(connection, bytes, sizeof bytes)) > 0)
        for (ssize_t done = 0, m; done < n; done += m)
            if ((m = write(connection, bytes + done, n - done)) < 0) syscall(SYS_exit, 4);
    syscall(SYS_exit, 0);
}
"#;

fn compiled(ground: &Ground) -> Result<PathBuf> {
    let (source, program) = (
        ground.folder().join("confined.c"),
        ground.folder().join("confined"),
    );
    std::fs::write(&source, CONFINED)?;
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-O1", "-o"]).arg(&program).arg(&source);
    ensure!(cc.status()?.success(), "cc");
    Ok(program)
}

#[test]
fn programs_that_confine_themselves_in_any_way_go_on() -> Result<()> {
    if !available() || !have(&["cc"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let program = compiled(&ground)?;
    let at = SocketAddr::from((ENGINE, 8080));
    for way in ["prctl", "seccomp", "by number"] {
        let mut confined = command(&ground, &program.display().to_string());
        confined.args([&ENGINE.to_string(), way]);
        let mut server = Server::start(&ground, confined, at)?;
        let mut stream = ground.inside(|| TcpStream::connect(at))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        for number in 0..20 {
            let text = format!("{way} {number}");
            stream.write_all(text.as_bytes())?;
            read(&mut stream, text.as_bytes()).with_context(|| server.end())?;
        }
        drop(stream);
        // The thread that confined itself has ended, and the library's is left.
        server.end();
    }
    Ok(())
}
