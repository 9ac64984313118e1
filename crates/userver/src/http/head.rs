//! Writing response heads.

use super::condition::DATE_LEN;
use super::status::Status;

/// How the server calls itself.
pub const SERVER: &str = "userver";

const HEX: &[u8; 16] = b"0123456789abcdef";

const START: &str = "HTTP/1.1 200 OK\r\nServer: userver\r\nDate: ";

/// Where the date of a `200 OK` head written by [`HeadWriter`] stands, so that it can be brought up to date in place.
pub const DATE_AT: usize = START.len();

/// Writes one head, line by line, behind whatever `out` holds. Formats nothing but integers.
pub struct HeadWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> HeadWriter<'a> {
    /// Status line, Server and Date.
    pub fn new(out: &'a mut Vec<u8>, status: Status, date: &[u8; DATE_LEN]) -> Self {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.text().as_bytes());
        out.extend_from_slice(b"\r\nServer: ");
        out.extend_from_slice(SERVER.as_bytes());
        out.extend_from_slice(b"\r\nDate: ");
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
        Self { out }
    }

    /// Any field.
    pub fn field(self, name: &str, value: &[u8]) -> Self {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// A field whose value ends in bytes written in hexadecimal.
    pub fn hex_field(self, name: &str, start: &str, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(start.as_bytes());
        for byte in bytes {
            self.out.push(HEX[(byte >> 4) as usize]);
            self.out.push(HEX[(byte & 15) as usize]);
        }
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Lines that were written before, each with its end.
    pub fn lines(self, lines: &[u8]) -> Self {
        self.out.extend_from_slice(lines);
        self
    }

    /// Content-Length.
    pub fn content_length(self, len: u64) -> Self {
        self.out.extend_from_slice(b"Content-Length: ");
        put_decimal(self.out, len);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Content-Range of a part, or `bytes */len` for none.
    pub fn content_range(self, range: Option<&core::ops::Range<u64>>, len: u64) -> Self {
        self.out.extend_from_slice(b"Content-Range: bytes ");
        put_range(self.out, range, len);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// What the client must know about persistence (RFC 9112, section 9.3): nothing in the usual case of HTTP/1.1.
    pub fn persistence(self, minor: u8, keep_alive: bool) -> Self {
        match (minor, keep_alive) {
            (1.., true) => self,
            (0, true) => self.field("Connection", b"keep-alive"),
            (_, false) => self.field("Connection", b"close"),
        }
    }

    /// The empty line.
    pub fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends `first-last/len`, or `*/len`.
pub fn put_range(out: &mut Vec<u8>, range: Option<&core::ops::Range<u64>>, len: u64) {
    match range {
        Some(range) => {
            put_decimal(out, range.start);
            out.push(b'-');
            put_decimal(out, range.end.saturating_sub(1));
        }
        None => out.push(b'*'),
    }
    out.push(b'/');
    put_decimal(out, len);
}

/// Appends a number in decimal.
pub fn put_decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a number in hexadecimal.
pub fn put_hex(out: &mut Vec<u8>, value: u64) {
    let digits = (16 - value.leading_zeros() / 4).max(1);
    for shift in (0..digits).rev() {
        out.push(HEX[(value >> (4 * shift)) as usize & 15]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::condition::http_date;

    #[test]
    fn a_head_reads_as_it_should() {
        let mut out = b"before".to_vec();
        let date = http_date(784_111_777);
        HeadWriter::new(&mut out, Status::PARTIAL_CONTENT, &date)
            .lines(b"A: b\r\n")
            .content_length(10)
            .content_range(Some(&(5..15)), 100)
            .persistence(0, true)
            .end();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "beforeHTTP/1.1 206 Partial Content\r\nServer: userver\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             A: b\r\nContent-Length: 10\r\nContent-Range: bytes 5-14/100\r\nConnection: keep-alive\r\n\r\n"
        );
    }

    #[test]
    fn the_date_stands_where_it_is_said_to() {
        let mut out = Vec::new();
        let date = http_date(1);
        HeadWriter::new(&mut out, Status::OK, &date).end();
        assert_eq!(&out[DATE_AT..DATE_AT + DATE_LEN], &date);
    }

    #[test]
    fn numbers() {
        let text = |f: fn(&mut Vec<u8>, u64), v| {
            let mut out = Vec::new();
            f(&mut out, v);
            String::from_utf8(out).unwrap()
        };
        for v in [0, 7, 10, 999, 1_000_000, u64::MAX] {
            assert_eq!(text(put_decimal, v), v.to_string());
            assert_eq!(text(put_hex, v), format!("{v:x}"));
        }
    }
}
