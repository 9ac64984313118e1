//! Programs that use the Extended Sockets API: their descriptors are the engine's, and sends from memory that it shares are not copied.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{command, exs, finish, have};

/// Builds a program of `crates/exs`.
fn build(ground: &Ground, path: &str) -> Result<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../exs");
    let source = folder.join(path);
    let program = ground.folder().join(source.file_stem().unwrap_or_default());
    let wanted = ground.folder().join("libexs.so.0");
    if !wanted.exists() {
        std::os::unix::fs::symlink(exs(), &wanted)?;
    }
    let output = Command::new("cc")
        .args(["-std=c11", "-g", "-O1", "-pthread", "-I"])
        .arg(folder.join("include"))
        .arg(source)
        .arg(exs())
        .arg(format!("-Wl,-rpath,{}", ground.folder().display()))
        .arg("-o")
        .arg(&program)
        .output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{path}: {words}");
    Ok(program)
}

/// A program with both ends of its connections on the engine.
fn fine(path: &str) -> Result<()> {
    if !available() || !have(&["cc"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let program = build(&ground, path)?;
    let mut program = command(&ground, &program.to_string_lossy());
    program
        .arg(ENGINE.to_string())
        .arg(ground.folder().join("file"));
    assert_eq!(finish(program)?.stdout, b"fine\n");
    Ok(())
}

#[test]
fn wrong_arguments_are_answered() -> Result<()> {
    fine("tests/programs/bad.c")
}

#[test]
fn bytes_go_both_ways() -> Result<()> {
    fine("tests/programs/streams.c")
}

#[test]
fn queues_threads_signals_and_forks() -> Result<()> {
    fine("tests/programs/queues.c")
}

#[test]
fn the_engine_reads_registered_memory_itself() -> Result<()> {
    if !available() || !have(&["cc"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let program = build(&ground, "examples/exs_echo_client.c")?;
    let listener = ground.listen()?;
    let port = listener.local_addr()?.port().to_string();
    let mut client = command(&ground, &program.to_string_lossy());
    client.args([&HOST.to_string(), &port, "2000"]);
    let client = std::thread::spawn(move || finish(client));
    let (mut stream, _) = listener.accept()?;
    let mut bytes = vec![0; 16384];
    stream.read_exact(&mut bytes)?;
    // The memory that the program's plain writes are copied to, and the program's own.
    let stat = ground.stat();
    assert_eq!(stat["uals"][0]["regions"], 2, "{stat:#}");
    assert!(bytes.iter().all(|byte| *byte == 0), "the first message");
    stream.write_all(&bytes)?;
    let echoed = std::io::copy(&mut &stream, &mut &stream)?;
    assert_eq!(echoed, 1999 * 16384);
    let said = client.join().expect("the client")?.stdout;
    let wanted = "2000 messages of 16384 bytes came back unchanged\n";
    assert_eq!(String::from_utf8(said)?, wanted);
    Ok(())
}
