//! The access log in combined format, as web servers have written it since NCSA:
//!
//! ```text
//!   host - - [06/Nov/1994:08:49:37 +0000] "GET / HTTP/1.1" 200 2326 "referer" "user agent"
//! ```
//!
//! A line is written when the answer is made; its byte count is that of the answer's content. Lines are collected and written in one system
//! call, at the latest after a second. Each worker appends whole lines of its own, so workers (and log rotation by copying) do not garble each other.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use crate::clock::Clock;
use crate::http::head::put_decimal;
use crate::http::status::Status;

const FLUSH_AT: usize = 64 * 1024;

/// What a line says of a request that could be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line<'a> {
    /// Request line.
    pub request: &'a [u8],
    /// Referer.
    pub referer: Option<&'a [u8]>,
    /// User-Agent.
    pub user_agent: Option<&'a [u8]>,
}

/// One worker's log.
#[derive(Debug)]
pub struct AccessLog {
    file: File,
    lines: Vec<u8>,
    failures: u64,
}

impl AccessLog {
    /// Opens a log for appending; it is created if need be.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self {
            file,
            lines: Vec::with_capacity(FLUSH_AT + 4096),
            failures: 0,
        })
    }

    /// Adds a line. May write what was collected (blocks for as long as the disk does).
    pub fn add(
        &mut self,
        peer: &SocketAddr,
        clock: &Clock,
        line: &Line<'_>,
        status: Status,
        bytes: u64,
    ) {
        let out = &mut self.lines;
        // Writing to a vector cannot fail.
        let _ = write!(out, "{} - - ", peer.ip().to_canonical());
        out.extend_from_slice(&clock.log_time);
        out.extend_from_slice(b" \"");
        put_escaped(out, line.request);
        out.extend_from_slice(b"\" ");
        put_decimal(out, status.0 as u64);
        out.push(b' ');
        put_decimal(out, bytes);
        for text in [line.referer, line.user_agent] {
            out.extend_from_slice(b" \"");
            put_escaped(out, text.unwrap_or(b"-"));
            out.push(b'"');
        }
        out.push(b'\n');
        if out.len() >= FLUSH_AT {
            self.flush();
        }
    }

    /// Writes what was collected. A log that cannot be written loses lines, not requests; they are counted.
    pub fn flush(&mut self) {
        if !self.lines.is_empty() && self.file.write_all(&self.lines).is_err() {
            self.failures += 1;
        }
        self.lines.clear();
    }

    /// Whether lines wait to be written.
    pub fn is_dirty(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Writes that failed.
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
    }
}

/// What a client sent must not be able to end a field or a line.
fn put_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'"' | b'\\' | ..=0x1f | 0x7f.. => {
                out.extend_from_slice(b"\\x");
                out.push(b"0123456789ABCDEF"[(byte >> 4) as usize]);
                out.push(b"0123456789ABCDEF"[(byte & 15) as usize]);
            }
            _ => out.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_in_combined_format_and_cannot_be_forged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let clock = Clock::at(784_111_777, 0);
        let peer: SocketAddr = "[::ffff:192.0.2.7]:5".parse().unwrap();
        {
            let mut log = AccessLog::open(&path).unwrap();
            let line = Line {
                request: b"GET /a\"b HTTP/1.1",
                referer: None,
                user_agent: Some(b"x\n\xff\\"),
            };
            log.add(&peer, &clock, &line, Status::OK, 2326);
            assert!(log.is_dirty());
        }
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \"GET /a\\x22b HTTP/1.1\" 200 2326 \"-\" \"x\\x0A\\xFF\\x5C\"\n"
        );
    }

    #[test]
    fn a_full_buffer_is_written_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let mut log = AccessLog::open(&path).unwrap();
        let clock = Clock::at(0, 0);
        let peer: SocketAddr = "192.0.2.7:5".parse().unwrap();
        let long = vec![b'a'; FLUSH_AT];
        let line = Line {
            request: &long,
            ..Line::default()
        };
        log.add(&peer, &clock, &line, Status::OK, 0);
        assert!(!log.is_dirty());
        assert!(std::fs::metadata(&path).unwrap().len() > FLUSH_AT as u64);
        assert_eq!(log.failures(), 0);
    }
}
