//! Sockets of TCP that are passed on (SCM_RIGHTS) before there is a connection: bound, connected from where they were bound, or being connected.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{Server, command, have};
use sidecore_nic::LinkModel;

use crate::{accepted, engine, reach};

/// The parent makes a socket, passes it to its child, and closes it; both are told what to do.
const PASSES: &str = r#"
import errno, os, select, socket, sys
here, there = ("10.77.0.2", 8080), (sys.argv[1], int(sys.argv[2]))
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
def make():
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made
def bound():
    made = make(); made.bind(here)
    return made
def connected():
    made = bound(); made.connect(there)
    return made
def connecting():
    made = make(); made.setblocking(False)
    assert made.connect_ex(there) == errno.EINPROGRESS
    return made
def received():
    _, fds, _, _ = socket.recv_fds(theirs, 100, 4)
    made = socket.socket(fileno=fds[0])
    made.settimeout(20)
    return made
def not_connected(made):
    try: made.getpeername(); raise SystemExit("a peer")
    except OSError as error: assert error.errno == errno.ENOTCONN, error
def listens(made):
    assert made.getsockname() == here
    not_connected(made)
    made.settimeout(None)
    try: made.accept(); raise SystemExit("it listens")
    except OSError as error: assert error.errno == errno.EINVAL, error
    made.listen(5)
    echoes(made.accept()[0])
def connects(made):
    assert made.getsockname() == here
    made.connect(there)
    echoes(made)
def writes_when_it_can(made):
    made.setblocking(False)
    assert select.select([], [made], [], 20)[1]
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert made.getpeername() == there
    made.setblocking(True)
    echoes(made)
def echoes(made):
    made.settimeout(20)
    while said := made.recv(65536): made.sendall(said)
    made.close()
def fails(made):
    made.setblocking(False)
    select.select([made], [made], [], 20)
    try: assert made.recv(10) == b""
    except BlockingIOError: raise
    except OSError: pass
make_it, use_it = globals()[sys.argv[3]], globals()[sys.argv[4]]
if os.fork() == 0:
    ours.close()
    made = received()
    use_it(made)
    os._exit(0)
theirs.close()
made = make_it()
socket.send_fds(ours, [b"it"], [made.fileno()])
made.close()
ours.close()
pid, status = os.wait()
assert status == 0, status
"#;

/// The bytes come back, to the end.
fn is_echoed(mut stream: std::net::TcpStream) -> Result<()> {
    let sent = crate::body(300_000);
    let mut writer = stream.try_clone()?;
    let bytes = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&bytes)?;
        writer.shutdown(Shutdown::Write)
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back)?;
    writing.join().expect("the writer")?;
    ensure!(back == sent, "{} bytes", back.len());
    Ok(())
}

/// Runs the program and what its peer does.
fn passes(
    ground: &Ground,
    port: u16,
    [makes, uses]: [&str; 2],
    peer: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut python = command(ground, "python3");
    python.args(["-c", PASSES, &HOST.to_string(), &port.to_string()]);
    python.args([makes, uses]);
    let mut server = Server::spawn(python)?;
    let done = peer().and_then(|()| {
        ensure!(server.wait()?.success(), "its end");
        Ok(())
    });
    done.with_context(|| format!("{makes}, {uses}\n{}", server.end()))?;
    ground.eventually("nothing is left", |stat| stat["dtis"] == 0);
    Ok(())
}

#[test]
fn who_gets_a_bound_socket_may_listen_or_connect() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let peer = ground.listen()?;
    let port = peer.local_addr()?.port();
    passes(&ground, port, ["bound", "listens"], || {
        is_echoed(reach(&ground, engine(8080))?)
    })?;
    for way in [["bound", "connects"], ["connected", "echoes"]] {
        passes(&ground, port, way, || {
            let stream = accepted(&peer)?;
            ensure!(stream.peer_addr()? == (ENGINE, 8080).into());
            is_echoed(stream)
        })?;
    }
    Ok(())
}

#[test]
fn who_gets_a_socket_that_is_connecting_has_the_connection() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    // So slow that it is passed on long before it is there.
    let ground = Ground::over(LinkModel {
        delay: Duration::from_millis(200),
        ..LinkModel::default()
    })?;
    let peer = ground.listen()?;
    let port = peer.local_addr()?.port();
    passes(&ground, port, ["connecting", "writes_when_it_can"], || {
        is_echoed(accepted(&peer)?)
    })?;
    drop(peer);
    passes(&ground, port, ["connecting", "fails"], || Ok(()))
}
