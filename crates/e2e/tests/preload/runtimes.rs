//! Programs on other people's runtimes: Node.js, Java, Python's threads, Rust's std and tokio. Servers and clients, each with the kernel's
//! side and with each other.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available, program};
use sidecore_e2e::preload::{Meter, Server, command, finish, have, python_with};
use sidecore_e2e::service::hex;

use crate::{body, curl, engine, script};

/// Bytes of what is fetched and posted.
const LARGE: usize = 2_000_000;

/// `serve` listens at the engine's port 8000 and answers GET with the file, POST with the SHA-256 of what came; `fetch`, given the file and
/// URLs, asks each and says how many answers were right.
fn serves_and_fetches(
    ground: &Ground,
    serve: Command,
    mut fetch: Command,
    answers: usize,
) -> Result<()> {
    let whole = body(LARGE);
    let file = ground.folder().join("whole");
    let near = format!("http://{ENGINE}:8000/");
    ground.ip(&["link", "set", "lo", "up"])?;
    let server = Server::start(ground, serve, engine(8000))?;
    // Six at once.
    let mut several = curl(ground, &["-Z"]);
    let taken = |n: usize| ground.folder().join(format!("taken{n}"));
    for n in 0..6 {
        several.arg("-o").arg(taken(n)).arg(&near);
    }
    finish(several)?;
    for n in 0..6 {
        assert!(std::fs::read(taken(n))? == whole, "transfer {n}");
    }
    // Two over one connection.
    let mut two = curl(ground, &[&near, &near]);
    two.arg("-v");
    let two = finish(two)?;
    assert!(two.stdout == [&whole[..], &whole[..]].concat());
    let said = String::from_utf8_lossy(&two.stderr).into_owned();
    assert!(said.contains("Re-using existing connection"), "{said}");
    let mut upload = curl(ground, &["-H", "Expect:", "--data-binary"]);
    upload.arg(format!("@{}", file.display())).arg(&near);
    let name = hex(&Sha256::new_with_prefix(&whole));
    assert_eq!(String::from_utf8_lossy(&finish(upload)?.stdout), name);
    server.assert_fast(ground)?;
    // A server on the kernel's side, and the one above, for the client.
    let mut far = ground.command("python3");
    far.arg(script("http_server.py"));
    far.args([&HOST.to_string(), "8001"]).arg(&file);
    let _far = Server::start(ground, far, (HOST, 8001).into())?;
    let meter = Meter::new(ground);
    fetch.args([near, format!("http://{HOST}:8001/")]);
    let told = finish(fetch)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told, format!("same {answers}\n"));
    assert!(meter.connections() >= 2 && meter.bytes() >= (answers * LARGE / 2) as u64);
    Ok(())
}

/// The file that is served and posted; gives its path as an argument.
fn file(ground: &Ground) -> Result<std::path::PathBuf> {
    let file = ground.folder().join("whole");
    std::fs::write(&file, body(LARGE))?;
    Ok(file)
}

#[test]
fn node_serves_and_fetches() -> Result<()> {
    if !available() || !have(&["node", "python3", "curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let file = file(&ground)?;
    let mut serve = command(&ground, "node");
    serve.arg(script("http.js")).arg("serve");
    serve.args([&ENGINE.to_string(), "8000"]).arg(&file);
    let mut fetch = command(&ground, "node");
    fetch.arg(script("http.js")).arg("fetch").arg(&file);
    serves_and_fetches(&ground, serve, fetch, 24)
}

#[test]
fn java_serves_and_fetches() -> Result<()> {
    if !available() || !have(&["java", "javac", "python3", "curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let file = file(&ground)?;
    // Compiled once, and not by the library's bearer.
    let mut compile = Command::new("javac");
    compile
        .arg("-d")
        .arg(ground.folder())
        .arg(script("Http.java"));
    finish(compile)?;
    let java = || {
        let mut java = command(&ground, "java");
        java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
        java.arg(ground.folder()).arg("Http");
        java
    };
    let mut serve = java();
    serve
        .args(["serve", &ENGINE.to_string(), "8000"])
        .arg(&file);
    let mut fetch = java();
    fetch.arg("fetch").arg(&file);
    serves_and_fetches(&ground, serve, fetch, 24)
}

#[test]
fn pythons_threads_serve_and_requests_fetches() -> Result<()> {
    if !available() || !have(&["python3", "curl"]) {
        return Ok(());
    }
    let Some(python) = python_with("requests") else {
        return Ok(());
    };
    let ground = Ground::new()?;
    let file = file(&ground)?;
    let mut serve = command(&ground, "python3");
    serve.arg(script("http_server.py"));
    serve.args([&ENGINE.to_string(), "8000"]).arg(&file);
    let mut fetch = command(&ground, &python);
    fetch.arg(script("http_requests.py")).arg(&file);
    serves_and_fetches(&ground, serve, fetch, 48)
}

/// A program of this package, as if it were somebody else's.
fn net(ground: Option<&Ground>) -> Result<Command> {
    let path = program("sidecore-e2e-net");
    let path = path.to_str().context("its path")?;
    Ok(match ground {
        Some(ground) => command(ground, path),
        None => Command::new(path),
    })
}

#[test]
fn rusts_std_and_tokio_echo_and_join() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let far = SocketAddr::from((HOST, 8100));
    let mut kernel = ground.command(program("sidecore-e2e-net").to_str().context("its path")?);
    kernel.args(["std", &far.to_string()]);
    let _kernel = Server::start(&ground, kernel, far)?;
    for (at, runtime) in [(8000, "std"), (8010, "tokio")] {
        let (echo, proxy, onward) = (engine(at), engine(at + 1), engine(at + 2));
        let serve = |arguments: &[String]| -> Result<Server> {
            let mut serve = net(Some(&ground))?;
            serve.arg(runtime).args(arguments);
            Server::start(&ground, serve, arguments[0].parse()?)
        };
        let echoes = serve(&[echo.to_string()])?;
        // To the echo beside it, over the engine's loopback; and to the kernel's.
        let joins = serve(&[proxy.to_string(), echo.to_string()])?;
        let leads = serve(&[onward.to_string(), far.to_string()])?;
        for to in [echo, proxy, onward] {
            let mut client = ground.command(program("sidecore-e2e-net").to_str().context("path")?);
            client.args(["client", &to.to_string(), "6", "300000"]);
            let told = finish(client).with_context(|| format!("{runtime} at {to}"))?;
            assert_eq!(told.stdout, b"same\n", "{runtime} at {to}");
        }
        for server in [&echoes, &joins, &leads] {
            server.assert_fast(&ground)?;
        }
        let meter = Meter::new(&ground);
        for to in [proxy, far] {
            let mut client = net(Some(&ground))?;
            client.args(["client", &to.to_string(), "6", "300000"]);
            assert_eq!(finish(client)?.stdout, b"same\n", "{runtime} to {to}");
        }
        assert!(meter.connections() >= 12 && meter.bytes() >= 2 * 2 * 6 * 300_000);
    }
    ground.eventually("the clients' connections are over", |stat| {
        let all = stat["connections"].as_array();
        all.is_some_and(|all| all.iter().all(|c| c["state"] != "Established"))
    });
    Ok(())
}
