//! Clients of servers on the kernel's side.

use std::time::Duration;

use anyhow::{Context, Result};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{Server, command, end_serving, finish, have, serve};

use crate::web::nginx_of_the_kernel;
use crate::{body, connected, fetch, until_it_listens};

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
    let curl = fetch(command(&ground, "curl"), &[&url]);
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

#[test]
fn load_generators_run_on_the_engine() -> Result<()> {
    if !available() || !have(&["wrk", "ab", "nginx"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let _server = nginx_of_the_kernel(&ground)?;
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
    until_it_listens(&ground);
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
    until_it_listens(&ground);
    let mut near = ground.connect(7000)?;
    std::io::Write::write_all(&mut near, &whole)?;
    drop(near);
    assert!(server.wait()?.success());
    assert!(std::fs::read(&taken)? == whole);
    Ok(())
}

/// One thread sleeps on the event queue for all; another reads once after each poll, and never until there is nothing.
const ONE_READ: &str = r#"
import hashlib, select, socket, sys, threading, time
idle = socket.create_server(("10.77.0.2", 0))
threading.Thread(target=lambda: select.select([idle], [], []), daemon=True).start()
time.sleep(0.2)
for step in (1000, 16384, 65536):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    s.setblocking(False)
    s.send(b"GET / HTTP/1.0\r\n\r\n")
    all = b""
    while True:
        if not select.select([s], [], [], 20)[0]:
            raise SystemExit(f"nothing for long after {len(all)} bytes, {step} at a time")
        data = s.recv(step)
        if not data:
            break
        all += data
    print(hashlib.sha256(all.split(b"\r\n\r\n", 1)[1]).hexdigest())
"#;

#[test]
fn a_thread_that_reads_once_after_each_poll_keeps_no_window_shut() -> Result<()> {
    if !available() || !have(&["python3", "sha256sum"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let whole = body(1_000_000);
    let listener = ground.listen()?;
    let address = listener.local_addr()?;
    let server = serve(listener, whole.clone(), || ());
    let file = ground.folder().join("whole");
    std::fs::write(&file, whole)?;
    let mut sum = std::process::Command::new("sha256sum");
    sum.arg(file);
    let sum = String::from_utf8(finish(sum)?.stdout)?;
    let sum = sum.split(' ').next().unwrap_or_default();
    let mut python = command(&ground, "python3");
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    python.args(["-c", ONE_READ, &ip, &port]);
    let told = String::from_utf8(finish(python)?.stdout)?;
    assert_eq!(told.lines().collect::<Vec<_>>(), [sum; 3]);
    end_serving(&ground, address, server)
}
