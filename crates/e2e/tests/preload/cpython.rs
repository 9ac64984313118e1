//! CPython's own tests with the library in them and everything taken: both ends of each connection are the engine's. They run in a namespace
//! whose loopback device drops and counts what is sent to it, and it must have counted nothing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::available;
use sidecore_e2e::preload::{command, finish_within, have};

/// Debian's, and its tests (package libpython3.11-testsuite).
const PYTHON: &str = "/usr/bin/python3.11";
const TESTS: &str = "/usr/lib/python3.11/test/test_socket.py";

/// How long one of the tests here may take: less than what nextest gives it. They wait more than they work, a minute or so each.
const PATIENCE: Duration = Duration::from_secs(840);

/// Cases that are left out, by a pattern of their name. `docs/cpython-tests.md` has the reason of each.
const LEFT_OUT: &[&str] = &[
    // UDP-Lite is no protocol of the engine's.
    "*UDPLITE*",
    // Virtual machines' sockets are none of the internet, and block on some hosts.
    "*VSOCK*",
    // Hold for one kernel and its loopback: a reset has reached the peer before close returns, and bytes before send does.
    "test_preauth_data_to_tls_*",
    "test_control_and_wait",
    // Nothing of sockets: collects garbage a thousand times, for minutes.
    "test_task_del_collect",
];

/// What the loopback device drops: every packet, counted.
const RULES: &str = r#"
table inet leaks {
  counter dropped { }
  chain out { type filter hook output priority 0; oifname "lo" counter name "dropped" drop; }
}
"#;

/// Packets that the namespace's loopback device has carried.
pub(crate) fn loopback_packets(ground: &Ground) -> Result<u64> {
    let shown = ground.command("cat").arg("/proc/net/dev").output()?;
    let shown = String::from_utf8(shown.stdout)?;
    let line = shown
        .lines()
        .find_map(|line| line.trim().strip_prefix("lo:"));
    // Received: bytes, packets, …
    let packets = line.and_then(|line| line.split_whitespace().nth(1));
    packets
        .context("no loopback device")?
        .parse()
        .context("packets")
}

/// Drops what is sent to the loopback device.
fn drop_loopback(ground: &Ground) -> Result<()> {
    let rules = ground.folder().join("rules");
    std::fs::write(&rules, RULES)?;
    let status = ground.command("nft").arg("-f").arg(&rules).status()?;
    ensure!(status.success(), "nft: {status}");
    Ok(())
}

/// Packets that were dropped.
fn dropped(ground: &Ground) -> Result<u64> {
    let shown = ground
        .command("nft")
        .args(["-j", "list", "counters"])
        .output()?;
    let shown: Value = serde_json::from_slice(&shown.stdout)?;
    let packets = shown
        .pointer("/nftables/1/counter/packets")
        .and_then(Value::as_u64);
    packets.with_context(|| format!("no counter: {shown}"))
}

/// Whether a packet to the kernel's loopback is counted: a rule that counts nothing proves nothing.
fn counts(ground: &Ground) -> Result<bool> {
    let before = dropped(ground)?;
    let sent = ground.inside(|| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        socket.send_to(b"leak", ("127.0.0.1", 9))
    });
    // The drop may be told to the sender.
    drop(sent);
    Ok(dropped(ground)? == before + 1 && loopback_packets(ground)? == 0)
}

/// Runs modules of CPython's tests.
fn run(modules: &[&str]) -> Result<()> {
    if !available() || !have(&["nft"]) {
        return Ok(());
    }
    if !Path::new(PYTHON).is_file() || !Path::new(TESTS).is_file() {
        eprintln!(
            "skipped: libpython3.11-testsuite is not installed (make setup-test installs it)"
        );
        return Ok(());
    }
    let ground = Ground::with(|config| {
        config.ipv6.enabled = true;
        config.ipv6.dad_transmits = 0;
    })?;
    ground.ip(&["link", "set", "lo", "up"])?;
    drop_loopback(&ground)?;
    assert!(counts(&ground)?, "the rule does not count");
    let before = dropped(&ground)?;
    let mut python: Command = command(&ground, PYTHON);
    python
        .env("SIDECORE_TAKE", "all")
        .current_dir(ground.folder());
    python.args(["-X", "faulthandler", "-m", "test", "-v"]);
    for pattern in LEFT_OUT {
        python.args(["-i", pattern]);
    }
    python.args(modules);
    let output = ground.inside(|| finish_within(python, PATIENCE))?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Tests result: SUCCESS"), "{said}");
    assert_eq!(dropped(&ground)?, before, "packets went to the kernel");
    assert_eq!(loopback_packets(&ground)?, 0);
    Ok(())
}

#[test]
fn sockets() -> Result<()> {
    run(&["test_socket"])
}

#[test]
fn waiting() -> Result<()> {
    run(&["test_select", "test_poll", "test_epoll", "test_selectors"])
}

#[test]
fn protocols() -> Result<()> {
    run(&[
        "test_socketserver",
        "test_httpservers",
        "test_httplib",
        "test_ftplib",
        "test_smtplib",
    ])
}

#[test]
fn tls() -> Result<()> {
    run(&["test_ssl"])
}

/// Modules of test_asyncio, in parts that run side by side.
fn asyncio(modules: &[&str]) -> Result<()> {
    let modules: Vec<_> = modules
        .iter()
        .map(|module| format!("test.test_asyncio.test_{module}"))
        .collect();
    run(&modules.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn asyncio_events() -> Result<()> {
    asyncio(&["events"])
}

#[test]
fn asyncio_loops() -> Result<()> {
    asyncio(&["base_events", "selector_events", "unix_events"])
}

#[test]
fn asyncio_streams() -> Result<()> {
    asyncio(&["sock_lowlevel", "server", "streams", "buffered_proto"])
}

#[test]
fn asyncio_files() -> Result<()> {
    asyncio(&["sendfile", "transports", "protocols"])
}

#[test]
fn asyncio_processes() -> Result<()> {
    asyncio(&["subprocess"])
}

#[test]
fn asyncio_tls() -> Result<()> {
    asyncio(&["ssl", "sslproto"])
}

#[test]
fn asyncio_tasks() -> Result<()> {
    asyncio(&[
        "context",
        "futures",
        "futures2",
        "locks",
        "pep492",
        "proactor_events",
        "queues",
        "runners",
        "taskgroups",
        "tasks",
        "threads",
        "timeouts",
        "waitfor",
        "windows_events",
        "windows_utils",
    ])
}
