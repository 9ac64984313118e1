//! `sidecore capture`: packets of an engine as pcapng.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidecore_abi::agent::{Request, RequestKind};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{agent, socket, usage};

/// The block types of pcapng that are counted or believed (draft-ietf-opsawg-pcapng, section 4).
const ENHANCED_PACKET: u32 = 6;

/// Largest block that is believed.
const MAX_BLOCK: usize = 1 << 20;

/// Options of `sidecore capture`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Write to this file, or to standard output (-)
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// End after so many packets
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// Bytes of each packet at most
    #[arg(short, long, value_name = "BYTES", default_value_t = 65_535)]
    snap: u32,
    /// The engine's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Only these: host ADDRESS, port NUMBER, or both
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

/// Which packets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Filter {
    host: Option<Ipv4Addr>,
    port: Option<u16>,
}

impl Filter {
    fn parse(words: &[String]) -> anyhow::Result<Self> {
        let mut filter = Self::default();
        let mut rest = words;
        loop {
            rest = match rest {
                [] => return Ok(filter),
                [word, tail @ ..] if word == "and" && !tail.is_empty() => tail,
                [word, value, tail @ ..] if word == "host" => {
                    let address = value
                        .parse()
                        .map_err(|_| usage(format!("'{value}' is not an IPv4 address")))?;
                    filter.host = Some(address);
                    tail
                }
                [word, value, tail @ ..] if word == "port" => {
                    let port = value.parse().ok().filter(|port| *port != 0);
                    filter.port =
                        Some(port.ok_or_else(|| usage(format!("'{value}' is not a port")))?);
                    tail
                }
                _ => {
                    let given = words.join(" ");
                    return Err(usage(format!(
                        "'{given}' is not a filter: say host ADDRESS, port NUMBER, or both"
                    )));
                }
            };
        }
    }

    fn request(&self, snap: u32) -> Request {
        let host = self
            .host
            .map_or(0, |host| u32::from_ne_bytes(host.octets()));
        let port = self.port.unwrap_or(0);
        Request {
            args: [u64::from(host), u64::from(port), u64::from(snap)],
            ..Request::new(RequestKind::Capture)
        }
    }
}

/// Captures until the count is reached, a signal comes, or the engine ends.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let request = Filter::parse(&options.filter)?.request(options.snap);
    let path = socket::path(options.socket.as_deref())?;
    let to_stdout = options.write == Path::new("-");
    if to_stdout && std::io::stdout().is_terminal() {
        return Err(usage(
            "packets are not for a terminal: write them to a file, or pipe them into a program",
        ));
    }
    let (_connection, pipe) = agent::ask(&path, &request)?;
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&end))?;
    }
    let mut blocks = Blocks::new(pipe, end);
    let packets = match to_stdout {
        true => copy(&mut blocks, &mut std::io::stdout().lock(), options.count)?,
        false => {
            let shown = options.write.display();
            let file =
                File::create(&options.write).with_context(|| format!("cannot write {shown}"))?;
            copy(&mut blocks, &mut BufWriter::new(file), options.count)
                .with_context(|| format!("writing {shown}"))?
        }
    };
    eprintln!("{packets} packets");
    Ok(())
}

/// Copies whole blocks; how many packets there were.
fn copy(blocks: &mut Blocks, out: &mut impl Write, count: Option<u64>) -> anyhow::Result<u64> {
    let mut packets = 0;
    while count.is_none_or(|count| packets < count) {
        let Some((kind, block)) = blocks.next()? else {
            break;
        };
        out.write_all(block)?;
        packets += u64::from(kind == ENHANCED_PACKET);
        if blocks.is_drained() {
            out.flush()?;
        }
    }
    out.flush()?;
    Ok(packets)
}

/// Cuts what comes from a pipe into pcapng blocks.
struct Blocks {
    pipe: File,
    end: Arc<AtomicBool>,
    buffer: Vec<u8>,
    used: usize,
}

impl Blocks {
    fn new(pipe: OwnedFd, end: Arc<AtomicBool>) -> Self {
        Self {
            pipe: pipe.into(),
            end,
            buffer: Vec::with_capacity(1 << 17),
            used: 0,
        }
    }

    /// Whether everything that was read has been given out.
    fn is_drained(&self) -> bool {
        self.used == self.buffer.len()
    }

    /// The next block and its type; none at the end. Half a block at the end is left out.
    fn next(&mut self) -> anyhow::Result<Option<(u32, &[u8])>> {
        self.buffer.drain(..self.used);
        self.used = 0;
        loop {
            if let Some((kind, length)) = self.first()? {
                self.used = length;
                return Ok(Some((kind, &self.buffer[..length])));
            }
            if !self.read()? {
                self.buffer.clear();
                return Ok(None);
            }
        }
    }

    /// Type and length of the first block, if it is complete. The engine runs on this machine: its byte order is ours.
    fn first(&self) -> anyhow::Result<Option<(u32, usize)>> {
        let Some(head) = self.buffer.first_chunk::<8>() else {
            return Ok(None);
        };
        let [k0, k1, k2, k3, l0, l1, l2, l3] = *head;
        let kind = u32::from_ne_bytes([k0, k1, k2, k3]);
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        if !(12..=MAX_BLOCK).contains(&length) {
            bail!("what the engine sends is not pcapng");
        }
        Ok((self.buffer.len() >= length).then_some((kind, length)))
    }

    /// Reads more; false at the end.
    fn read(&mut self) -> anyhow::Result<bool> {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        loop {
            if self.end.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error).context("waiting for packets"),
            }
            let mut chunk = [0; 1 << 16];
            match self.pipe.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(read) => {
                    self.buffer.extend_from_slice(&chunk[..read]);
                    return Ok(true);
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock
                    ) => {}
                Err(error) => return Err(error).context("reading packets"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn filters_are_read_in_any_order() {
        let both = Filter {
            host: Some(Ipv4Addr::new(10, 0, 0, 1)),
            port: Some(80),
        };
        for text in [
            "host 10.0.0.1 port 80",
            "port 80 host 10.0.0.1",
            "host 10.0.0.1 and port 80",
        ] {
            assert_eq!(Filter::parse(&words(text)).unwrap(), both, "{text}");
        }
        assert_eq!(Filter::parse(&[]).unwrap(), Filter::default());
        for text in [
            "host",
            "port 0",
            "port x",
            "tcp",
            "host fe80::1",
            "host 10.0.0.1 and",
        ] {
            assert!(
                Filter::parse(&words(text))
                    .unwrap_err()
                    .is::<crate::Usage>(),
                "{text}"
            );
        }
        assert_eq!(both.request(96).args[1..], [80, 96]);
    }

    fn block(kind: u32, body: usize) -> Vec<u8> {
        let length = (12 + body) as u32;
        let mut bytes = [kind.to_ne_bytes(), length.to_ne_bytes()].concat();
        bytes.resize(bytes.len() + body, 7);
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes
    }

    /// Writes in pieces of seven bytes, and closes.
    fn pipe_with(bytes: Vec<u8>) -> Blocks {
        let (read, write) = std::io::pipe().unwrap();
        std::thread::spawn(move || {
            let mut write = write;
            for piece in bytes.chunks(7) {
                let _ = write.write_all(piece);
            }
        });
        Blocks::new(read.into(), Arc::default())
    }

    #[test]
    fn whole_blocks_are_copied_and_packets_counted() {
        let stream = [
            block(0x0a0d_0d0a, 16),
            block(1, 8),
            block(6, 100),
            block(6, 4),
            block(6, 60),
        ]
        .concat();
        let mut out = Vec::new();
        assert_eq!(
            copy(&mut pipe_with(stream.clone()), &mut out, Some(2)).unwrap(),
            2
        );
        assert_eq!(out, stream[..stream.len() - 72]);
        let mut cut = stream.clone();
        cut.truncate(stream.len() - 1);
        out.clear();
        assert_eq!(copy(&mut pipe_with(cut), &mut out, None).unwrap(), 2);
        assert_eq!(out, stream[..stream.len() - 72]);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(copy(&mut pipe_with(vec![1; 100]), &mut Vec::new(), None).is_err());
    }
}
