//! An engine that is told to stop while it is at work.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::ENGINE;
use sidecore_e2e::ground::available;
use sidecore_e2e::service::{Kind, Service, hex};
use sidecore_e2e::transfers::{Set, web_config, web_server, write_files};

/// Two files of a size that takes a moment, and more than all buffers on the way hold.
const FILES: Set = Set {
    files: 2,
    largest: 16_000_000,
    giants: 2,
    at_a_time: 1,
};
const CLIENTS: usize = 4;

/// How long the engine lets transfers go on.
const DRAIN: Duration = Duration::from_secs(8);

fn ask(stream: &mut TcpStream, path: &str) -> Result<()> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: e\r\n\r\n");
    Ok(stream.write_all(request.as_bytes())?)
}

/// Reads a response to its end, slowly; its body's digest.
fn read_slowly(mut stream: TcpStream, size: u64) -> Result<String> {
    let (mut head, mut block) = (Vec::new(), vec![0; 1 << 17]);
    let mut digest = Sha256::new();
    let mut body = 0;
    while body < size {
        let n = stream.read(&mut block)?;
        ensure!(n > 0, "the stream ends after {body} of {size} bytes");
        let mut part = &block[..n];
        if body == 0 {
            head.extend_from_slice(part);
            let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") else {
                continue;
            };
            part = &part[n - (head.len() - end - 4)..];
        }
        digest.update(part);
        body += part.len() as u64;
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(hex(&digest))
}

#[test]
fn transfers_end_and_the_rest_is_reset() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let mut ground = Ground::with(|config| config.drain = DRAIN)?;
    let root = ground.folder().join("www");
    let digests = write_files(&FILES, &root)?;
    let server = web_server(&ground, web_config(&root, 80))?;
    let transfers = (0..CLIENTS)
        .map(|client| {
            let file = client % FILES.files;
            let mut stream = ground.connect(80)?;
            ask(&mut stream, &format!("/{file}.bin"))?;
            let reader = std::thread::spawn(move || read_slowly(stream, FILES.largest));
            Ok((file, reader))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut idle = ground.connect(80)?;
    let mut stuck = ground.connect(80)?;
    ask(&mut stuck, "/0.bin")?;
    ground.eventually("all have begun", |stat| {
        stat["stack"]["passive_established"].as_u64() == Some(CLIENTS as u64 + 2)
            && stat["stack"]["tcp_bytes_out"].as_u64() > Some(1 << 20)
    });
    let begun = Instant::now();
    ground.engine().control().request_stop();
    ground.eventually("listeners are closed", |_| {
        let refused = ground.connect(80).err();
        refused.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    for (file, reader) in transfers {
        let digest = reader.join().expect("a reader panicked")?;
        assert_eq!(digest, digests[file]);
    }
    ground.stop_engine();
    assert!(
        begun.elapsed() >= DRAIN,
        "it did not wait for the stuck one"
    );
    assert!(begun.elapsed() < 3 * DRAIN);
    // The idle one was told in an orderly way, the stuck one gets what has crossed, and then no false end.
    assert_eq!(idle.read(&mut [0])?, 0);
    let mut block = vec![0; 1 << 16];
    let end = loop {
        match stuck.read(&mut block) {
            Ok(0) => panic!("a part was passed for the whole"),
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(end, ErrorKind::ConnectionReset);
    let gone = ground.ip(&["link", "show", ground.name()]);
    assert!(gone.is_err(), "the TAP is still there");
    assert!(!ground.socket().exists(), "the socket is still there");
    // The web server knows, too: it ends, one way or the other.
    let _ = server.stop();
    Ok(())
}

#[test]
fn silence_ends_it_early() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let mut ground = Ground::with(|config| config.drain = Duration::from_secs(60))?;
    let echo = Service::start(ground.ual()?, (ENGINE, 7).into(), Kind::Echo)?;
    let mut idle = ground.connect(7)?;
    idle.write_all(b"x")?;
    idle.read_exact(&mut [0])?;
    let closing = std::thread::spawn(move || {
        let end = idle.read(&mut [0]);
        drop(idle);
        end
    });
    let begun = Instant::now();
    ground.stop_engine();
    assert!(begun.elapsed() < Duration::from_secs(40));
    assert_eq!(closing.join().expect("it panicked")?, 0);
    drop(echo);
    Ok(())
}
