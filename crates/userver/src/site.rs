//! What a worker serves: requests in, a plan of answers out. No I/O but reading files; the same for every back-end.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::access_log::{AccessLog, Line};
use crate::cache::{Cache, Content, FileId, Miss, Store};
use crate::clock::Clock;
use crate::counters::WorkerCounters;
use crate::http::condition::{Verdict, evaluate};
use crate::http::head::{HeadWriter, put_range};
use crate::http::plan::Plan;
use crate::http::range::{Ranges, Satisfiable, parse as parse_range};
use crate::http::request::{Method, Parsed, Request, parse};
use crate::http::status::Status;
use crate::http::target::canonical;

/// Bytes of the line that separates the parts of an answer with several ranges.
const BOUNDARY_LEN: usize = 24;

/// What became of a run of received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Bytes that were used up; the others start a request that is not complete, or was not answered yet.
    pub consumed: usize,
    /// Requests answered.
    pub requests: u32,
    /// What next.
    pub next: Next,
}

/// What a connection does once the plan was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Wait for more bytes.
    Read,
    /// Offer the rest again: the plan was full.
    Again,
    /// Close: the client or HTTP/1.0 wants it so.
    Close,
    /// Close, but first read away what still comes, so that the answer is not lost to a reset (RFC 9112, section 9.6).
    Linger,
}

/// A worker's half of the server that is the same for every back-end.
pub struct Site<S: Store> {
    /// The files.
    pub cache: Cache<S>,
    /// The time; the worker ticks it once a turn.
    pub clock: Clock,
    log: Option<AccessLog>,
    pub(crate) counters: Arc<WorkerCounters>,
    max_head: usize,
    path: Vec<u8>,
    /// Separates parts; chosen at random, so that no file can be made to hold it.
    boundary: [u8; BOUNDARY_LEN],
}

impl<S: Store> Site<S> {
    pub(crate) fn new(
        cache: Cache<S>,
        log: Option<AccessLog>,
        counters: Arc<WorkerCounters>,
        max_head: usize,
    ) -> Self {
        Self {
            cache,
            clock: Clock::new(),
            log,
            counters,
            max_head,
            path: Vec::new(),
            boundary: rand::random::<[u8; BOUNDARY_LEN]>()
                .map(|byte| b"0123456789abcdefghijklmnopqrstuv"[(byte & 31) as usize]),
        }
    }

    /// Bytes of a request head at most.
    pub fn max_head(&self) -> usize {
        self.max_head
    }

    /// Whether peers' addresses are wanted.
    pub fn wants_peer(&self) -> bool {
        self.log.is_some()
    }

    /// Whether log lines wait to be written.
    pub fn log_is_dirty(&self) -> bool {
        self.log.as_ref().is_some_and(AccessLog::is_dirty)
    }

    /// Reads the clock; true when a second has passed, and then the log is written and the cache's counters shown.
    pub fn tick(&mut self) -> bool {
        if !self.clock.tick() {
            return false;
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
        self.publish_counters();
        true
    }

    pub(crate) fn publish_counters(&self) {
        let cache = self.cache.counters();
        self.counters.cache_loads.set(cache.loads);
        self.counters.cache_evictions.set(cache.evictions);
        self.counters.cache_uncached.set(cache.uncached);
        self.counters.cache_reissues.set(cache.reissues);
    }

    /// Answers the requests at the start of `input` until it holds no whole one, the plan is full or the connection must close.
    pub fn serve(
        &mut self,
        peer: &SocketAddr,
        input: &[u8],
        plan: &mut Plan<S::Edition>,
    ) -> Served {
        let mut served = Served {
            consumed: 0,
            requests: 0,
            next: Next::Read,
        };
        while let Some(rest) = input.get(served.consumed..)
            && !rest.is_empty()
        {
            if plan.is_full() {
                served.next = Next::Again;
                break;
            }
            match parse(rest, self.max_head) {
                Parsed::Partial => break,
                Parsed::Complete(request, len) => {
                    self.answer(peer, &request, plan);
                    served.consumed += len;
                    served.requests += 1;
                    if !request.keep_alive {
                        // Whatever follows is content that we do not read, or a request that must not be answered.
                        let follows = request.has_content || served.consumed < input.len();
                        served.next = if follows { Next::Linger } else { Next::Close };
                        break;
                    }
                }
                Parsed::Refused(status) => {
                    self.refuse(peer, rest, status, plan);
                    served.consumed = input.len();
                    served.requests += 1;
                    served.next = Next::Linger;
                    break;
                }
            }
        }
        if served.requests > 0 {
            self.counters.requests.add(served.requests as u64);
        }
        served
    }

    fn answer(&mut self, peer: &SocketAddr, request: &Request<'_>, plan: &mut Plan<S::Edition>) {
        let (status, bytes) = self.respond(request, plan);
        if status.0 >= 400 {
            self.counters.errors.add(1);
        }
        if let Some(log) = &mut self.log {
            let line = Line {
                request: request.line,
                referer: request.referer,
                user_agent: request.user_agent,
            };
            log.add(peer, &self.clock, &line, status, bytes);
        }
    }

    fn refuse(
        &mut self,
        peer: &SocketAddr,
        input: &[u8],
        status: Status,
        plan: &mut Plan<S::Edition>,
    ) {
        let bytes = self.error(status, 1, false, false, &[], plan);
        self.counters.errors.add(1);
        if let Some(log) = &mut self.log {
            let line = input
                .split(|b| matches!(b, b'\r' | b'\n'))
                .next()
                .and_then(|line| line.get(..line.len().min(200)))
                .unwrap_or_default();
            let line = Line {
                request: line,
                ..Line::default()
            };
            log.add(peer, &self.clock, &line, status, bytes);
        }
    }

    /// Adds the answer to one request; returns its status and the bytes of its content.
    fn respond(&mut self, request: &Request<'_>, plan: &mut Plan<S::Edition>) -> (Status, u64) {
        let head_only = match request.method {
            Method::Get => false,
            Method::Head => true,
            Method::Other => {
                let allow: &[(&str, &[u8])] = &[("Allow", b"GET, HEAD")];
                let status = Status::METHOD_NOT_ALLOWED;
                return self.failed(request, status, allow, plan);
            }
            Method::Unknown => return self.failed(request, Status::NOT_IMPLEMENTED, &[], plan),
        };
        let Ok(path) = canonical(request.target, &mut self.path) else {
            return self.failed(request, Status::BAD_REQUEST, &[], plan);
        };
        let file = match self.cache.find(path, &self.clock) {
            Ok(file) => file,
            Err(Miss::Directory) => {
                let location = redirect_target(path, request.target);
                let fields: &[(&str, &[u8])] = &[("Location", &location)];
                return self.failed(request, Status::MOVED_PERMANENTLY, fields, plan);
            }
            Err(miss) => return self.failed(request, status_of(miss), &[], plan),
        };
        // The common case: everything is in the edition, head included.
        let plain =
            request.conditions.is_empty() && request.keep_alive && request.minor == 1 && !head_only;
        if plain
            && let Some((head_len, len)) =
                self.cache.entry(file).map(|e| (e.head_len as u64, e.len))
            && let Some(edition) = self.cache.dated_edition(file, &self.clock)
        {
            plan.push_file(edition, 0, head_len + len);
            return (Status::OK, len);
        }
        self.respond_with_file(request, file, head_only, plan)
    }

    fn failed(
        &mut self,
        request: &Request<'_>,
        status: Status,
        fields: &[(&str, &[u8])],
        plan: &mut Plan<S::Edition>,
    ) -> (Status, u64) {
        let head_only = request.method == Method::Head;
        let (minor, keep) = (request.minor, request.keep_alive);
        let bytes = self.error(status, minor, keep, head_only, fields, plan);
        (status, bytes)
    }

    /// Adds an answer that says what went wrong; returns the bytes of its content.
    fn error(
        &mut self,
        status: Status,
        minor: u8,
        keep_alive: bool,
        head_only: bool,
        fields: &[(&str, &[u8])],
        plan: &mut Plan<S::Edition>,
    ) -> u64 {
        let text = status.text().as_bytes();
        let page = [
            b"<!DOCTYPE html>\n<title>".as_slice(),
            text,
            b"</title>\n<h1>",
            text,
            b"</h1>\n",
        ];
        let len: usize = page.iter().map(|part| part.len()).sum();
        let from = plan.made.len();
        let mut head = HeadWriter::new(&mut plan.made, status, &self.clock.date)
            .field("Content-Type", b"text/html; charset=utf-8")
            .content_length(len as u64);
        for (name, value) in fields {
            head = head.field(name, value);
        }
        head.persistence(minor, keep_alive).end();
        if !head_only {
            for part in page {
                plan.made.extend_from_slice(part);
            }
        }
        plan.push_made(from);
        if head_only { 0 } else { len as u64 }
    }
}

fn status_of(miss: Miss) -> Status {
    match miss {
        Miss::NotFound => Status::NOT_FOUND,
        Miss::Forbidden => Status::FORBIDDEN,
        Miss::Directory => Status::MOVED_PERMANENTLY,
        Miss::Unavailable => Status::UNAVAILABLE,
        Miss::Failed => Status::INTERNAL_ERROR,
    }
}

/// The path with its slash, encoded again, and the query that came.
fn redirect_target(path: &[u8], target: &[u8]) -> Vec<u8> {
    let mut location = Vec::with_capacity(path.len() + 16);
    for byte in path {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                location.push(*byte);
            }
            _ => {
                location.push(b'%');
                location.push(b"0123456789ABCDEF"[(byte >> 4) as usize]);
                location.push(b"0123456789ABCDEF"[(byte & 15) as usize]);
            }
        }
    }
    location.push(b'/');
    if let Some(query) = target.iter().position(|b| *b == b'?') {
        location.extend_from_slice(target.get(query..).unwrap_or_default());
    }
    location
}

mod file;

#[cfg(test)]
mod tests;
