//! Many bytes through a TAP, each counted: downloads from the web server, uploads to a service that answers with their digest.
//!
//! By default a set that is quick on two busy cores; `SIDECORE_FULL=1` runs 500 files of up to 200 MB, more than 2 GB.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::service::{Kind, Service, hex};
use sidecore_userver::{Config, Io, Server};

/// Transfers at a time.
const AT_A_TIME: usize = 64;

struct Set {
    files: usize,
    largest: u64,
    giants: usize,
}

fn set() -> Set {
    if std::env::var_os("SIDECORE_FULL").is_some() {
        Set {
            files: 500,
            largest: 200_000_000,
            giants: 3,
        }
    } else {
        Set {
            files: 150,
            largest: 8_000_000,
            giants: 2,
        }
    }
}

/// A small generator with a seed: the same bytes every time.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Sizes spread evenly over their logarithms, from nothing to the largest.
fn sizes(set: &Set) -> Vec<u64> {
    let mut state = 0x5eed_1234_5678_9abc;
    let mut sizes: Vec<u64> = (0..set.files - set.giants)
        .map(|_| {
            let part = (next(&mut state) >> 11) as f64 / (1u64 << 53) as f64;
            ((set.largest as f64 + 1.0).powf(part) - 1.0) as u64
        })
        .collect();
    sizes.extend(std::iter::repeat_n(set.largest, set.giants));
    sizes
}

/// Bytes of file `index`, in pieces.
fn generate(index: usize, size: u64, mut piece: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(index as u64 + 1);
    let mut left = size as usize;
    let mut block = vec![0u8; 1 << 18];
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&next(&mut state).to_le_bytes());
        }
        let take = left.min(block.len());
        piece(&block[..take])?;
        left -= take;
    }
    Ok(())
}

/// Runs a job for each size, some at a time; all failures are told.
fn all(sizes: &[u64], at_a_time: usize, job: impl Fn(usize, u64) -> Result<()> + Sync) {
    let (turn, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                loop {
                    let index = turn.fetch_add(1, Ordering::Relaxed);
                    let Some(size) = sizes.get(index) else { return };
                    if let Err(error) = job(index, *size) {
                        failures
                            .lock()
                            .expect("poisoned")
                            .push(format!("{index} ({size} bytes): {error:#}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("poisoned");
    assert!(
        failures.is_empty(),
        "{} of {} failed:\n{}",
        failures.len(),
        sizes.len(),
        failures.join("\n")
    );
}

/// GET over a kernel socket; the digest of the body.
fn get(ground: &Ground, port: u16, path: &str) -> Result<(u64, Sha256)> {
    let mut stream = ground.connect(port)?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let (mut digest, mut total, mut head) = (Sha256::new(), 0, Vec::new());
    let mut block = vec![0; 1 << 18];
    loop {
        let n = stream.read(&mut block)?;
        if n == 0 {
            break;
        }
        let mut body = &block[..n];
        if total == 0 && !head.ends_with(b"\r\n\r\n") {
            head.extend_from_slice(body);
            let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") else {
                continue;
            };
            let rest = head.split_off(end + 4);
            ensure!(
                head.starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(&head)
            );
            digest.update(&rest);
            total += rest.len() as u64;
            body = &[];
        }
        digest.update(body);
        total += body.len() as u64;
    }
    Ok((total, digest))
}

/// Writes the files of a set; their digests.
fn write_files(root: &Path, sizes: &[u64]) -> Result<Vec<String>> {
    std::fs::create_dir(root)?;
    let mut digests = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        let mut file = std::fs::File::create(root.join(format!("{index}.bin")))?;
        let mut digest = Sha256::new();
        generate(index, *size, |piece| {
            digest.update(piece);
            Ok(file.write_all(piece)?)
        })?;
        digests.push(hex(&digest));
    }
    Ok(digests)
}

/// The web server on the ground's engine.
fn serve(ground: &Ground, config: Config) -> Result<Server> {
    let ual = sidecore_client::Ual::open_on(
        ground.engine().connect()?,
        &sidecore_userver::ual_config(&config),
    )?;
    Server::start_on(config, &ual).map_err(|e| anyhow::anyhow!("{e}"))
}

#[test]
fn downloads_arrive_byte_for_byte() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let root = ground.folder().join("www");
    let sizes = sizes(&set());
    let digests = write_files(&root, &sizes)?;
    let config = Config::new(&root, SocketAddr::from((ENGINE, 80)), Io::Sidecore);
    let server = serve(&ground, config)?;
    all(&sizes, AT_A_TIME, |index, size| {
        let (total, digest) = get(&ground, 80, &format!("/{index}.bin"))?;
        ensure!(total == size, "{total} bytes came");
        ensure!(hex(&digest) == digests[index], "other bytes came");
        Ok(())
    });
    server.stop().map_err(|e| anyhow::anyhow!("{e}"))?;
    Ok(())
}

/// Files too large for the cache go through a small room, which all their readers share: none of them may be left waiting.
#[test]
fn many_readers_of_large_files_all_get_on() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let root = ground.folder().join("www");
    let size = 3_000_000;
    let digests = write_files(&root, &[size])?;
    let mut config = Config::new(&root, SocketAddr::from((ENGINE, 80)), Io::Sidecore);
    config.cache_bytes = 4 << 20;
    let server = serve(&ground, config)?;
    all(&[size; 200], 200, |_, size| {
        let (total, digest) = get(&ground, 80, "/0.bin")?;
        ensure!(total == size, "{total} bytes came");
        ensure!(hex(&digest) == digests[0], "other bytes came");
        Ok(())
    });
    server.stop().map_err(|e| anyhow::anyhow!("{e}"))?;
    Ok(())
}

#[test]
fn uploads_arrive_byte_for_byte() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let _sink = Service::start(ground.ual()?, SocketAddr::from((ENGINE, 9)), Kind::Digest)?;
    all(&sizes(&set()), AT_A_TIME, |index, size| {
        let mut stream = ground.connect(9)?;
        let mut digest = Sha256::new();
        generate(index, size, |piece| {
            digest.update(piece);
            stream.write_all(piece).context("write")
        })?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("answer")?;
        ensure!(answer == hex(&digest), "the service saw {answer:?}");
        Ok(())
    });
    ground.eventually("all memory is given back", |stat| {
        stat["uals"][0]["pool_free"] == stat["uals"][0]["pool_bytes"] && stat["descriptors"] == 0
    });
    Ok(())
}
