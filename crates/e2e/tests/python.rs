//! The Python package: its own tests, and its examples beside the kernel's sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{dusi, finish, have};

fn package() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../python")
}

/// Python with the package, which finds this build's library and the engine.
fn python(ground: &Ground) -> Command {
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", package())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SIDECORE_DUSI_LIBRARY", dusi())
        .env("SIDECORE_SOCKET", ground.socket());
    command
}

fn can() -> bool {
    available() && have(&["python3"])
}

/// Runs tests of the package, one of which has so many bytes sent back.
fn own_tests(class: &str, bytes: u64) -> Result<()> {
    if !can() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let listener = ground.listen()?;
    let peer = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<u64> {
        let (stream, _) = listener.accept()?;
        std::io::copy(&mut &stream, &mut &stream)
    });
    let mut tests = python(&ground);
    tests
        .args(["-m", "unittest", &format!("test_sockets.{class}")])
        .current_dir(package().join("tests"))
        .env("SIDECORE_TEST_ADDRESS", ENGINE.to_string())
        .env("SIDECORE_TEST_PEER", peer.to_string());
    finish(tests)?;
    assert_eq!(echo.join().expect("the echo")?, bytes);
    Ok(())
}

#[test]
fn blocking_sockets() -> Result<()> {
    own_tests("Blocking", 2_000_000)
}

#[test]
fn coroutines() -> Result<()> {
    own_tests("Coroutines", 1_000_000)
}

#[test]
fn the_example_client_asks_the_kernels_side() -> Result<()> {
    if !can() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let listener = ground.listen()?;
    let port = listener.local_addr()?.port().to_string();
    let echo = std::thread::spawn(move || -> std::io::Result<u64> {
        let (stream, _) = listener.accept()?;
        std::io::copy(&mut &stream, &mut &stream)
    });
    let mut client = python(&ground);
    client
        .arg(package().join("examples/echo_client.py"))
        .args([&HOST.to_string(), &port, "100"]);
    let said = finish(client)?.stdout;
    assert_eq!(said, b"100 messages of 16384 bytes came back unchanged\n");
    assert_eq!(echo.join().expect("the echo")?, 100 * 16384);
    Ok(())
}

#[test]
fn the_example_server_answers_the_kernels_side() -> Result<()> {
    if !can() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut server = python(&ground);
    server
        .arg(package().join("examples/echo_server.py"))
        .args([&ENGINE.to_string(), "0", "3"])
        .stdout(Stdio::piped());
    let mut server = server.spawn()?;
    let mut lines = BufReader::new(server.stdout.take().context("its output")?).lines();
    let said = lines.next().context("a line")??;
    let port = said.strip_prefix("listening on port ").context("a port")?;
    let port: u16 = port.parse()?;
    let sent: Vec<u8> = (0..500_000u32).map(|n| (n * 7 + n / 256) as u8).collect();
    for _ in 0..3 {
        let stream = ground.connect(port)?;
        let (mut writer, bytes) = (stream.try_clone()?, sent.clone());
        let writing = std::thread::spawn(move || -> std::io::Result<()> {
            writer.write_all(&bytes)?;
            writer.shutdown(std::net::Shutdown::Write)
        });
        let mut back = Vec::new();
        (&stream).read_to_end(&mut back)?;
        writing.join().expect("the writer")?;
        assert!(back == sent, "{} bytes came back", back.len());
    }
    assert!(server.wait()?.success());
    Ok(())
}

#[test]
fn pip_installs_it_without_a_network() -> Result<()> {
    if !have(&["python3"]) {
        return Ok(());
    }
    let pip = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .output()?;
    if !pip.status.success() {
        eprintln!("skipped: python3 has no pip");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let mut install = Command::new("python3");
    install
        .args(["-m", "pip", "install", "--quiet", "--no-index", "--target"])
        .arg(folder.path())
        .arg(package())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    finish(install)?;
    let mut import = Command::new("python3");
    import
        .args(["-c", "import sidecore; print(sidecore.__version__)"])
        .current_dir(folder.path())
        .env("PYTHONPATH", folder.path());
    let version = String::from_utf8(finish(import)?.stdout)?;
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    Ok(())
}
