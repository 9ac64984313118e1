//! What holders of a connection in custody may do with it beside reading and writing: options, figures, urgent data. With the kernel's sockets, and
//! on the engine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
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
