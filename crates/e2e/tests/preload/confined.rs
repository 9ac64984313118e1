//! Programs that confine themselves: to another root, or to a few system calls.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available};
use sidecore_e2e::preload::{Server, command, have};

use crate::{accepted, compiled, engine, reach};

/// How long bytes may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn programs_that_confine_themselves_in_any_way_go_on() -> Result<()> {
    if !available() || !have(&["cc"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let program = compiled(&ground, "confined")?;
    let at = engine(8080);
    for way in ["prctl", "seccomp", "by number"] {
        let mut confined = command(&ground, &program);
        confined.args([&ENGINE.to_string(), way]);
        let mut server = Server::start(&ground, confined, at)?;
        let mut stream = ground.inside(|| TcpStream::connect(at))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        for number in 0..20 {
            let text = format!("{way} {number}");
            stream.write_all(text.as_bytes())?;
            let mut bytes = vec![0; text.len()];
            let answer = stream.read_exact(&mut bytes);
            answer.with_context(|| format!("{text}\n{}", server.end()))?;
            ensure!(bytes == text.as_bytes(), "{text}");
        }
        drop(stream);
        // The thread that confined itself has ended, and the library's is left.
        server.end();
    }
    Ok(())
}

fn is_echoed(ground: &Ground, at: SocketAddr) -> Result<()> {
    let mut stream = reach(ground, at)?;
    let sent = crate::body(20_000);
    stream.write_all(&sent)?;
    stream.shutdown(Shutdown::Write)?;
    let mut back = Vec::new();
    stream.read_to_end(&mut back)?;
    ensure!(back == sent, "{at}: {} bytes", back.len());
    Ok(())
}

#[test]
fn a_program_with_another_root_connects_listens_and_accepts() -> Result<()> {
    if !available() || !have(&["cc"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let program = compiled(&ground, "rooted")?;
    let root = ground.folder().join("root");
    std::fs::create_dir(&root)?;
    let peer = ground.listen()?;
    for calls in ["calls", "numbers"] {
        for forks in ["forks", "alone"] {
            let mut rooted = command(&ground, &program);
            rooted.args([ENGINE.to_string(), HOST.to_string()]);
            rooted.arg(peer.local_addr()?.port().to_string());
            rooted.arg(&root).arg(ground.socket());
            rooted.args([calls, forks]);
            let mut server = Server::spawn(rooted)?;
            let done = (|| {
                let mut said = String::new();
                // Only the engine leads there from where the program runs.
                accepted(&peer)?.read_to_string(&mut said)?;
                ensure!(said == "from another root", "{said}");
                is_echoed(&ground, engine(8080))?;
                is_echoed(&ground, engine(8081))?;
                ensure!(server.wait()?.success(), "its end");
                Ok(())
            })();
            done.with_context(|| format!("{calls}, {forks}\n{}", server.end()))?;
        }
    }
    Ok(())
}
