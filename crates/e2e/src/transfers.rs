//! Many transfers, each counted and compared: what the tests of bytes share.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use sha2::{Digest, Sha256};
use sidecore_client::Ual;
use sidecore_userver::{Config, Io, Server};

use crate::Ground;
use crate::ground::ENGINE;
use crate::service::{Kind, Service, hex};

/// A set of transfers, the same every time.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// How many.
    pub files: usize,
    /// Bytes of the largest; sizes are spread evenly over their logarithms.
    pub largest: u64,
    /// How many of the files have that size.
    pub giants: usize,
    /// Transfers at a time.
    pub at_a_time: usize,
}

/// A small generator with a seed: the same bytes every time.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Set {
    /// The sizes, from nothing to the largest.
    pub fn sizes(&self) -> Vec<u64> {
        let mut state = 0x5eed_1234_5678_9abc;
        let mut sizes: Vec<u64> = (0..self.files - self.giants)
            .map(|_| {
                let part = (next(&mut state) >> 11) as f64 / (1u64 << 53) as f64;
                ((self.largest as f64 + 1.0).powf(part) - 1.0) as u64
            })
            .collect();
        sizes.extend(std::iter::repeat_n(self.largest, self.giants));
        sizes
    }

    /// Runs a job for each size, some at a time; all failures are told.
    fn all(&self, job: impl Fn(usize, u64) -> Result<()> + Sync) -> Result<()> {
        let sizes = self.sizes();
        let (turn, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.at_a_time {
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
        ensure!(
            failures.is_empty(),
            "{} of {} failed:\n{}",
            failures.len(),
            sizes.len(),
            failures.join("\n")
        );
        Ok(())
    }
}

/// Bytes of file `index`, in pieces.
pub fn generate(index: usize, size: u64, mut piece: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
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

/// GET over a kernel socket; the digest of the body.
pub fn get(ground: &Ground, port: u16, path: &str) -> Result<(u64, Sha256)> {
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

/// A folder with the files of a set, `0.bin` and so on; their digests.
pub fn write_files(set: &Set, root: &Path) -> Result<Vec<String>> {
    std::fs::create_dir(root)?;
    let mut digests = Vec::new();
    for (index, size) in set.sizes().into_iter().enumerate() {
        let mut file = std::fs::File::create(root.join(format!("{index}.bin")))?;
        let mut digest = Sha256::new();
        generate(index, size, |piece| {
            digest.update(piece);
            Ok(file.write_all(piece)?)
        })?;
        digests.push(hex(&digest));
    }
    Ok(digests)
}

/// What the web server on the engine is told.
pub fn web_config(root: &Path, port: u16) -> Config {
    Config::new(root, SocketAddr::from((ENGINE, port)), Io::Sidecore)
}

/// The web server on a ground's engine.
pub fn web_server(ground: &Ground, config: Config) -> Result<Server> {
    let ual = Ual::open_on(
        ground.engine().connect()?,
        &sidecore_userver::ual_config(&config),
    )?;
    Server::start_on(config, &ual).map_err(|error| anyhow!("{error}"))
}

/// Downloads a file of a set from the web server at port 80 and compares every byte.
fn get_file(ground: &Ground, index: usize, size: u64, expected: &str) -> Result<()> {
    let (total, digest) = get(ground, 80, &format!("/{index}.bin"))?;
    ensure!(total == size, "{total} bytes came");
    ensure!(hex(&digest) == expected, "other bytes came");
    Ok(())
}

/// Downloads the set's largest file again and again, from a web server whose cache is too small for it.
pub fn download_large(ground: &Ground, set: &Set) -> Result<()> {
    let root = ground.folder().join("www");
    let one = Set {
        files: 1,
        giants: 1,
        ..*set
    };
    let digests = write_files(&one, &root)?;
    let config = Config {
        cache_bytes: set.largest,
        ..web_config(&root, 80)
    };
    let server = web_server(ground, config)?;
    set.all(|_, size| get_file(ground, 0, size, &digests[0]))?;
    server.stop().map_err(|error| anyhow!("{error}"))?;
    Ok(())
}

/// Downloads a set from the web server with the kernel's TCP and compares every byte.
pub fn download_all(ground: &Ground, set: &Set) -> Result<()> {
    let root = ground.folder().join("www");
    let digests = write_files(set, &root)?;
    let server = web_server(ground, web_config(&root, 80))?;
    set.all(|index, size| get_file(ground, index, size, &digests[index]))?;
    server.stop().map_err(|error| anyhow!("{error}"))?;
    Ok(())
}

/// Uploads a set with the kernel's TCP to a service that answers with the digest of what it saw.
pub fn upload_all(ground: &Ground, set: &Set) -> Result<()> {
    let address = SocketAddr::from((ENGINE, 9));
    let _sink = Service::start(ground.ual()?, address, Kind::Digest)?;
    set.all(|index, size| {
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
    })?;
    ground.eventually("all memory is given back", |stat| {
        stat["uals"][0]["pool_free"] == stat["uals"][0]["pool_bytes"] && stat["descriptors"] == 0
    });
    Ok(())
}
