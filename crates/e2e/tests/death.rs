//! Applications that are killed in the middle of their work.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_engine::DeathPolicy;

/// An application in a process of its own; killed when it is dropped.
struct App {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl App {
    fn start(ground: &Ground, port: u16, role: &[&str]) -> Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sidecore-e2e-app"))
            .arg(ground.socket())
            .arg(SocketAddr::from((ENGINE, port)).to_string())
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = BufReader::new(child.stdout.take().context("its output")?);
        let mut app = Self { child, said };
        app.expect("ready")?;
        Ok(app)
    }

    fn expect(&mut self, what: &str) -> Result<()> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        ensure!(line.trim_end() == what, "the application said {line:?}");
        Ok(())
    }

    /// SIGKILL.
    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The tests count what is mapped in this process: where they share it, one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Mappings of UALs' memory in this process, which is the engine's.
fn mappings() -> Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    Ok(maps.matches("/memfd:sidecore-").count())
}

/// Resident memory of this process in bytes.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib.context("VmRSS")?.parse()?;
    Ok(kib << 10)
}

/// Echoes until the connection breaks; counts itself when the first bytes come back.
fn echo_until_the_end(mut stream: TcpStream, served: &AtomicUsize) -> Result<()> {
    let mut first = true;
    let mut block = [0; 8192];
    loop {
        if stream.write_all(&[7; 8192]).is_err() {
            return Ok(());
        }
        match stream.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                served.fetch_add(usize::from(first), Ordering::Relaxed);
                first = false;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                anyhow::bail!("neither bytes nor an end")
            }
            Err(_) => return Ok(()),
        }
    }
}

/// Times that an application is killed, and clients that it serves then.
const TIMES: usize = 20;
const CLIENTS: usize = 8;
/// After so many times everything has reached its size.
const SETTLED: usize = 5;

#[test]
fn a_killed_application_leaves_nothing_behind() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = Ground::new()?;
    let before = mappings()?;
    let mut settled = 0;
    for time in 0..TIMES {
        // At once after the last one's death, at the same port.
        let app = App::start(&ground, 7, &["echo"])?;
        let mut first = ground.connect(7)?;
        first.write_all(b"hello")?;
        let mut back = [0; 5];
        first.read_exact(&mut back)?;
        assert_eq!(&back, b"hello", "time {time}");
        let served = Arc::new(AtomicUsize::new(0));
        let clients = (0..CLIENTS)
            .map(|_| {
                let (stream, served) = (ground.connect(7)?, Arc::clone(&served));
                Ok(std::thread::spawn(move || {
                    echo_until_the_end(stream, &served)
                }))
            })
            .collect::<Result<Vec<_>>>()?;
        ground.eventually("all are served", |_| {
            served.load(Ordering::Relaxed) == CLIENTS
        });
        assert!(mappings()? > before);
        app.kill()?;
        // Each connection is reset, whatever it did.
        let error = first.read(&mut back).expect_err("no reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        for client in clients {
            client.join().expect("a client panicked")?;
        }
        ground.eventually("nothing is left", |stat| {
            stat["dtis"] == 0
                && stat["descriptors"] == 0
                && stat["uals"].as_array().is_some_and(Vec::is_empty)
        });
        assert_eq!(mappings()?, before, "time {time}");
        if time == SETTLED {
            settled = resident()?;
        }
    }
    let grown = resident()?.saturating_sub(settled);
    assert!(
        grown < 8 << 20,
        "{grown} bytes more than after {SETTLED} times"
    );
    Ok(())
}

/// Bytes that the application has posted when it is killed: more than the client's window takes.
const BURST: usize = 12 << 20;

/// The client reads only after the application's death; how many bytes it got, and how that ended.
fn read_after_death(policy: DeathPolicy) -> Result<(usize, Result<(), ErrorKind>)> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = Ground::with(|config| config.policy.death = policy)?;
    let before = mappings()?;
    let mut app = App::start(&ground, 6, &["burst", &BURST.to_string()])?;
    let mut stream = ground.connect(6)?;
    app.expect("sent")?;
    app.kill()?;
    ground.eventually("the engine knows", |stat| {
        stat["uals"]
            .as_array()
            .is_some_and(|uals| uals.iter().all(|ual| ual["gone"] == true))
    });
    if policy == DeathPolicy::Linger {
        assert!(
            mappings()? > before,
            "what is still to be sent stays mapped"
        );
    }
    std::thread::sleep(Duration::from_millis(200));
    let (mut total, mut block) = (0, vec![0; 1 << 16]);
    let end = loop {
        match stream.read(&mut block) {
            Ok(0) => break Ok(()),
            Ok(n) => {
                for (i, byte) in block[..n].iter().enumerate() {
                    let at = total + i;
                    let expected = if at % 4096 < 4 {
                        ((at / 4096) as u32).to_le_bytes()[at % 4096]
                    } else {
                        0
                    };
                    assert_eq!(*byte, expected, "byte {at}");
                }
                total += n;
            }
            Err(error) => break Err(error.kind()),
        }
    };
    drop(stream);
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["uals"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(mappings()?, before);
    Ok((total, end))
}

#[test]
fn what_a_killed_application_had_sent_may_linger() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let (total, end) = read_after_death(DeathPolicy::Linger)?;
    assert_eq!((total, end), (BURST, Ok(())));
    Ok(())
}

#[test]
fn or_is_reset() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let (total, end) = read_after_death(DeathPolicy::Reset)?;
    assert!(total < BURST, "all of it came");
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    Ok(())
}
