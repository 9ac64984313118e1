//! Answers that are not the plain one: conditions, ranges, HEAD, HTTP/1.0, closing, encrypted files.

use core::ops::Range;

use super::*;
use crate::cache::Entry;

/// The parts of one request that shape its head.
#[derive(Clone, Copy)]
struct Shape {
    minor: u8,
    keep_alive: bool,
    head_only: bool,
}

impl<S: Store> Site<S> {
    pub(super) fn respond_with_file(
        &mut self,
        request: &Request<'_>,
        file: FileId,
        head_only: bool,
        plan: &mut Plan<S::Edition>,
    ) -> (Status, u64) {
        let Some(entry) = self.cache.entry(file) else {
            return self.failed(request, Status::INTERNAL_ERROR, &[], plan);
        };
        let shape = Shape {
            minor: request.minor,
            keep_alive: request.keep_alive,
            head_only,
        };
        let range_allowed = match evaluate(&request.conditions, &entry.validators()) {
            Verdict::Failed => return self.failed(request, Status::PRECONDITION_FAILED, &[], plan),
            Verdict::NotModified => {
                let from = plan.made.len();
                HeadWriter::new(&mut plan.made, Status::NOT_MODIFIED, &self.clock.date)
                    .lines(&entry.validator_lines)
                    .persistence(shape.minor, shape.keep_alive)
                    .end();
                plan.push_made(from);
                return (Status::NOT_MODIFIED, 0);
            }
            Verdict::Proceed { range_allowed } => range_allowed,
        };
        if matches!(entry.content, Content::Secret(_)) {
            return self.respond_encrypted(shape, file, plan);
        }
        // RFC 9110, section 14.2: "A server MUST ignore a Range header field received with a request method that is
        // unrecognized or for which range handling is not defined", and it is defined for GET alone.
        let ranges = match request.conditions.range {
            Some(range) if range_allowed && !head_only => parse_range(range, entry.len),
            _ => Ranges::Whole,
        };
        match ranges {
            Ranges::Whole => whole(entry, &self.clock, shape, plan),
            Ranges::Some(ranges) => match ranges.single() {
                Some(range) => part(entry, &self.clock, shape, range, plan),
                None => parts(entry, &self.clock, shape, &ranges, &self.boundary, plan),
            },
            Ranges::Unsatisfiable => {
                let mut value = b"bytes ".to_vec();
                put_range(&mut value, None, entry.len);
                let fields: &[(&str, &[u8])] = &[("Content-Range", &value)];
                self.failed(request, Status::RANGE_NOT_SATISFIABLE, fields, plan)
            }
        }
    }

    fn respond_encrypted(
        &mut self,
        shape: Shape,
        file: FileId,
        plan: &mut Plan<S::Edition>,
    ) -> (Status, u64) {
        let Some(vector) = self.cache.encryption().map(|e| e.next_vector()) else {
            return (Status::INTERNAL_ERROR, 0);
        };
        let Some((entry, encryption)) = self.cache.entry_and_encryption(file) else {
            return (Status::INTERNAL_ERROR, 0);
        };
        let Content::Secret(plain) = &entry.content else {
            return (Status::INTERNAL_ERROR, 0);
        };
        let from = plan.made.len();
        HeadWriter::new(&mut plan.made, Status::OK, &self.clock.date)
            .field("Content-Type", entry.media_type.as_bytes())
            .content_length(entry.len)
            .lines(&entry.validator_lines)
            .hex_field("X-Userver-Cipher", "aes-128-ctr; iv=", &vector)
            .persistence(shape.minor, shape.keep_alive)
            .end();
        if !shape.head_only {
            let start = plan.made.len();
            plan.made.extend_from_slice(plain);
            if let Some(content) = plan.made.get_mut(start..) {
                encryption.apply(&vector, content);
            }
        }
        plan.push_made(from);
        (Status::OK, if shape.head_only { 0 } else { entry.len })
    }
}

/// The whole file under a head of its own; to HEAD the head alone.
fn whole<E>(entry: &Entry<E>, clock: &Clock, shape: Shape, plan: &mut Plan<E>) -> (Status, u64) {
    let from = plan.made.len();
    HeadWriter::new(&mut plan.made, Status::OK, &clock.date)
        .field("Content-Type", entry.media_type.as_bytes())
        .content_length(entry.len)
        .lines(&entry.validator_lines)
        .field("Accept-Ranges", b"bytes")
        .persistence(shape.minor, shape.keep_alive)
        .end();
    plan.push_made(from);
    if shape.head_only {
        return (Status::OK, 0);
    }
    push_content(entry, &(0..entry.len), plan);
    (Status::OK, entry.len)
}

/// One range.
fn part<E>(
    entry: &Entry<E>,
    clock: &Clock,
    shape: Shape,
    range: Range<u64>,
    plan: &mut Plan<E>,
) -> (Status, u64) {
    let len = range.end - range.start;
    let from = plan.made.len();
    HeadWriter::new(&mut plan.made, Status::PARTIAL_CONTENT, &clock.date)
        .field("Content-Type", entry.media_type.as_bytes())
        .content_length(len)
        .content_range(Some(&range), entry.len)
        .lines(&entry.validator_lines)
        .persistence(shape.minor, shape.keep_alive)
        .end();
    plan.push_made(from);
    push_content(entry, &range, plan);
    (Status::PARTIAL_CONTENT, len)
}

/// Several ranges, as `multipart/byteranges` (RFC 9110, section 14.6).
fn parts<E>(
    entry: &Entry<E>,
    clock: &Clock,
    shape: Shape,
    ranges: &Satisfiable,
    boundary: &[u8],
    plan: &mut Plan<E>,
) -> (Status, u64) {
    let mut scratch = Vec::new();
    let mut len = 0;
    for range in ranges.iter() {
        scratch.clear();
        part_head(&mut scratch, entry, &range, boundary);
        len += scratch.len() as u64 + (range.end - range.start);
    }
    len += 8 + boundary.len() as u64; // CR LF -- boundary -- CR LF
    let media_type = [b"multipart/byteranges; boundary=".as_slice(), boundary].concat();
    let mut from = plan.made.len();
    HeadWriter::new(&mut plan.made, Status::PARTIAL_CONTENT, &clock.date)
        .field("Content-Type", &media_type)
        .content_length(len)
        .lines(&entry.validator_lines)
        .persistence(shape.minor, shape.keep_alive)
        .end();
    for range in ranges.iter() {
        part_head(&mut plan.made, entry, &range, boundary);
        plan.push_made(from);
        push_content(entry, &range, plan);
        from = plan.made.len();
    }
    for text in [b"\r\n--".as_slice(), boundary, b"--\r\n"] {
        plan.made.extend_from_slice(text);
    }
    plan.push_made(from);
    (Status::PARTIAL_CONTENT, len)
}

fn part_head<E>(out: &mut Vec<u8>, entry: &Entry<E>, range: &Range<u64>, boundary: &[u8]) {
    for text in [
        b"\r\n--".as_slice(),
        boundary,
        b"\r\nContent-Type: ",
        entry.media_type.as_bytes(),
        b"\r\nContent-Range: bytes ",
    ] {
        out.extend_from_slice(text);
    }
    put_range(out, Some(range), entry.len);
    out.extend_from_slice(b"\r\n\r\n");
}

fn push_content<E>(entry: &Entry<E>, range: &Range<u64>, plan: &mut Plan<E>) {
    if let Content::Edition(edition) = &entry.content {
        plan.push_file(
            edition,
            entry.content_at + range.start,
            range.end - range.start,
        );
    }
}
