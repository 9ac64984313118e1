//! Servers for clients on the kernel's side.

use std::time::Duration;

use anyhow::Result;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{Server, command, end_serving, finish, have, serve};

use crate::web::nginx_of_the_kernel;
use crate::{body, curl, engine, fetch};

#[test]
fn a_wildcard_listener_serves_both_sides() -> Result<()> {
    if !available() || !have(&["curl", "python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let whole = body(1_000_000);
    std::fs::write(ground.folder().join("file"), &whole)?;
    let port = free_port()?;
    let mut python = command(&ground, "python3");
    python.args(["-m", "http.server", &port.to_string(), "--directory"]);
    python.arg(ground.folder());
    let _server = Server::start(&ground, python, engine(port))?;
    let far = curl(&ground, &[&format!("http://{ENGINE}:{port}/file")]);
    assert!(finish(far)?.stdout == whole, "from the engine's side");
    let near = std::process::Command::new("curl");
    let near = fetch(near, &[&format!("http://127.0.0.1:{port}/file")]);
    assert!(finish(near)?.stdout == whole, "from the kernel's side");
    Ok(())
}

#[test]
fn a_wildcard_listener_serves_both_versions() -> Result<()> {
    if !available() || !have(&["curl", "python3"]) {
        return Ok(());
    }
    let ground = Ground::with(|config| {
        config.ipv6.enabled = true;
        config.ipv6.dad_transmits = 0;
        let address = "fd77::2/64".parse().expect("a network");
        config.ipv6.addresses.push(address);
    })?;
    let device = ground.name().to_owned();
    ground.ip(&["-6", "addr", "add", "fd77::1/64", "dev", &device, "nodad"])?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let whole = body(1_000_000);
    std::fs::write(ground.folder().join("file"), &whole)?;
    let port = free_port()?;
    let mut python = command(&ground, "python3");
    python.args([
        "-m",
        "http.server",
        &port.to_string(),
        "--bind",
        "::",
        "--directory",
    ]);
    python.arg(ground.folder());
    let _server = Server::start(&ground, python, engine(port))?;
    for host in [ENGINE.to_string(), "[fd77::2]".into()] {
        let far = curl(&ground, &["-g", &format!("http://{host}:{port}/file")]);
        assert!(finish(far)?.stdout == whole, "{host}");
    }
    // And as a client.
    let listener = ground.inside(|| std::net::TcpListener::bind("[fd77::1]:0"))?;
    let address = listener.local_addr()?;
    let server = serve(listener, whole.clone(), || {});
    let near = command(&ground, "curl");
    let near = fetch(near, &["-g", &format!("http://{address}/")]);
    assert!(finish(near)?.stdout == whole, "as a client");
    end_serving(&ground, address, server)
}

/// A port of the test's own: the kernel's side is where the tests run.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port())
}

#[test]
fn haproxy_reloads_under_load() -> Result<()> {
    if !available() || !have(&["haproxy", "nginx", "wrk", "curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let _kernel = nginx_of_the_kernel(&ground)?;
    let file = ground.folder().join("haproxy.cfg");
    // Without that option idle connections are closed while a request may be on its way, and the client cannot know.
    let text = format!(
        "global\n  nbthread 2\n\
         defaults\n  mode http\n  timeout client 30s\n  timeout server 30s\n  timeout connect 30s\n  \
         option idle-close-on-response\n\
         frontend f\n  bind {ENGINE}:8085\n  default_backend b\n\
         backend b\n  server s {HOST}:8080\n"
    );
    std::fs::write(&file, text)?;
    let haproxy = |old: Option<u32>| -> Result<Server> {
        let mut haproxy = command(&ground, "haproxy");
        haproxy.args(["-db", "-f"]).arg(&file);
        haproxy.args(
            old.iter()
                .flat_map(|pid| ["-sf".to_owned(), pid.to_string()]),
        );
        Server::start(&ground, haproxy, engine(8085))
    };
    let mut first = haproxy(None)?;
    let mut wrk = ground.command("wrk");
    let url = format!("http://{ENGINE}:8085/page");
    // What wrk calls a timeout is an answer that came, but late: on a busy machine that says nothing. What is never answered it does not count.
    wrk.args(["--timeout", "30s", "-c", "20", "-t", "1", "-d", "4", &url]);
    let load = std::thread::spawn(move || finish(wrk));
    // So each of these must be answered.
    let asked: Vec<_> = (0..60).map(|_| curl(&ground, &[&url])).collect();
    let asking = std::thread::spawn(move || {
        asked.into_iter().try_for_each(|curl| {
            std::thread::sleep(Duration::from_millis(30));
            finish(curl).map(drop)
        })
    });
    std::thread::sleep(Duration::from_millis(1000));
    first.assert_fast(&ground)?;
    let second = haproxy(Some(first.pid()))?;
    // It finishes what it has, and ends; the next requests are the second's.
    assert!(first.wait()?.success());
    asking.join().expect("curl")?;
    let told = load.join().expect("wrk")?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        told.contains("requests in") && !told.contains("Socket errors"),
        "{told}"
    );
    second.assert_fast(&ground)
}

#[test]
fn haproxy_joins_both_sides() -> Result<()> {
    if !available() || !have(&["haproxy", "curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let whole = body(1_000_000);
    let listener = ground.listen()?;
    let address = listener.local_addr()?;
    let server = serve(listener, whole.clone(), || {});
    let file = ground.folder().join("haproxy.cfg");
    let text = format!(
        "global\n  nbthread 2\n\
         defaults\n  mode http\n  timeout client 30s\n  timeout server 30s\n  timeout connect 30s\n\
         frontend f\n  bind {ENGINE}:8085\n  default_backend b\n\
         backend b\n  server s {address}\n"
    );
    std::fs::write(&file, text)?;
    let mut haproxy = command(&ground, "haproxy");
    haproxy.args(["-db", "-f"]).arg(&file);
    let _server = Server::start(&ground, haproxy, engine(8085))?;
    for _ in 0..10 {
        let fetched = finish(curl(&ground, &[&format!("http://{ENGINE}:8085/")]))?;
        assert!(fetched.stdout == whole);
    }
    end_serving(&ground, address, server)
}
