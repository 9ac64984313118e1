//! Programs in C that make the same calls with the library and without, once to the engine and once to the kernel: what they print must be the
//! same, line by line.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::available;
use sidecore_e2e::preload::{command, finish, have};

/// A program of the folder `calls`, compiled.
fn compile(folder: &Path, name: &str) -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload/calls");
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"]);
    cc.arg(&program).arg(sources.join(format!("{name}.c")));
    let status = cc.status().context("cc")?;
    ensure!(status.success(), "{name}.c: {status}");
    Ok(program)
}

/// Runs one on the kernel's loopback and on the engine's, and compares.
fn agree(name: &str) -> Result<()> {
    if !available() || !have(&["cc"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let program = compile(&ground.folder(), name)?;
    let kernel = ground.inside(|| finish(Command::new(&program)))?;
    let mut with_library = command(&ground, &program.display().to_string());
    with_library.env("SIDECORE_TAKE", "all");
    let before = loopback_packets(&ground)?;
    let engine = ground.inside(|| finish(with_library))?;
    let (kernel, engine) = (text(&kernel.stdout), text(&engine.stdout));
    let mut lines = kernel.lines().zip(engine.lines()).enumerate();
    if let Some((at, (kernel, engine))) = lines.find(|(_, (kernel, engine))| kernel != engine) {
        panic!(
            "{name}, line {}: the kernel\n{kernel}\nthe engine\n{engine}",
            at + 1
        );
    }
    assert_eq!(kernel.lines().count(), engine.lines().count());
    assert!(kernel.lines().count() > 20, "{kernel}");
    assert_eq!(
        loopback_packets(&ground)?,
        before,
        "the kernel's loopback was used"
    );
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Packets that the namespace's loopback device has carried.
fn loopback_packets(ground: &Ground) -> Result<u64> {
    crate::cpython::loopback_packets(ground)
}

#[test]
fn options_and_bad_arguments_are_answered_as_by_the_kernel() -> Result<()> {
    agree("options")
}

#[test]
fn streams_answer_as_the_kernels() -> Result<()> {
    agree("streams")
}

#[test]
fn datagrams_answer_as_the_kernels() -> Result<()> {
    agree("datagrams")
}

#[test]
fn forks_of_every_kind_are_as_the_kernels() -> Result<()> {
    agree("forks")
}

#[test]
fn threads_and_signals_end_calls_as_with_the_kernel() -> Result<()> {
    agree("threads")
}

#[test]
fn handlers_use_sockets_and_leave_calls_as_with_the_kernel() -> Result<()> {
    agree("signals")
}

/// Calls by their numbers, and what is refused so that programs do without it.
const BY_NUMBER: &str = r#"
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
read, write = {"x86_64": (0, 1), "aarch64": (63, 64)}[os.uname().machine]
io_uring_setup = 425
def call(number, *arguments):
    return libc.syscall(*map(ctypes.c_long, (number, *arguments)))
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
data = ctypes.create_string_buffer(b"by number", 16)
assert call(write, client.fileno(), ctypes.addressof(data), 9) == 9
room = ctypes.create_string_buffer(16)
assert call(read, server.fileno(), ctypes.addressof(room), 16) == 9 and room.value == b"by number"
assert call(io_uring_setup, 8, ctypes.addressof(ctypes.create_string_buffer(120))) == -1
assert ctypes.get_errno() == errno.ENOSYS
assert call(read, -1, 0, 0) == -1 and ctypes.get_errno() == errno.EBADF
zero_copy = 60
for s in (client, socket.socket()):
    try:
        s.setsockopt(socket.SOL_SOCKET, zero_copy, 1)
        raise SystemExit("zero copy is promised")
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP, error
    s.setsockopt(socket.SOL_SOCKET, zero_copy, 0)
assert client.getsockopt(socket.SOL_SOCKET, zero_copy) == 0
print("done")
"#;

#[test]
fn calls_by_number_are_answered_and_rings_and_zero_copy_refused() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut python = command(&ground, "python3");
    python.env("SIDECORE_TAKE", "all").args(["-c", BY_NUMBER]);
    assert_eq!(ground.inside(|| finish(python))?.stdout, b"done\n");
    Ok(())
}

/// A listener that is both the kernel's and the engine's: a handler with SA_RESTART does not end its accept, another does.
const BOTH: &str = r#"
import os, select, signal, socket, sys, threading, time
s = socket.create_server(("0.0.0.0", int(sys.argv[1])))
def accepts(restart):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, not restart)
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    done = libc.accept(s.fileno(), None, None)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return done, ctypes.get_errno()
import errno
assert accepts(False) == (-1, errno.EINTR)
def later():
    time.sleep(1)
    socket.create_connection(("10.77.0.2", int(sys.argv[1])))
threading.Thread(target=later).start()
begun = time.monotonic()
fd, error = accepts(True)
assert fd >= 0 and time.monotonic() - begun > 0.5, (fd, error)
print("done")
"#;

#[test]
fn restarting_handlers_do_not_end_accepts_of_both() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut python = command(&ground, "python3");
    python.args(["-c", BOTH, "7707"]);
    assert_eq!(ground.inside(|| finish(python))?.stdout, b"done\n");
    Ok(())
}

/// Groups: joined before and after binding, sent to, left.
const GROUPS: &str = r#"
import socket, struct, sys
group, engine, host = "239.77.1.2", "10.77.0.2", "10.77.0.1"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
change = socket.inet_aton(group) + socket.inet_aton(engine)
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, change)
s.setsockopt(socket.IPPROTO_IP, socket.IP_PKTINFO if hasattr(socket, "IP_PKTINFO") else 8, 1)
s.bind((engine, 0))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(engine))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 3)
assert s.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 3
assert s.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, 4) == socket.inet_aton(engine)
w = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
w.bind(("", 0))
w.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, change)
try: w.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, change); raise SystemExit("joined twice")
except OSError: pass
s.settimeout(30); w.settimeout(30)
s.sendto(b"to the group", (group, w.getsockname()[1]))
data, messages, _, sender = w.recvmsg(100, 100)
assert (data, sender) == (b"to the group", s.getsockname()), (data, sender)
w.setsockopt(socket.IPPROTO_IP, 8, 1)
s.sendto(b"once more", (group, w.getsockname()[1]))
data, messages, _, _ = w.recvmsg(100, 100)
level, kind, info = messages[0]
assert (level, kind, info[8:]) == (socket.IPPROTO_IP, 8, socket.inet_aton(group)), messages
w.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, change)
try: w.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, change); raise SystemExit("left twice")
except OSError: pass
print("done")
"#;

#[test]
fn groups_are_joined_sent_to_and_left() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut python = command(&ground, "python3");
    python.env("SIDECORE_TAKE", "all").args(["-c", GROUPS]);
    assert_eq!(ground.inside(|| finish(python))?.stdout, b"done\n");
    Ok(())
}
