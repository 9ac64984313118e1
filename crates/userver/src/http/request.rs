//! One request head (RFC 9112) out of received bytes.

use core::mem::MaybeUninit;

use super::status::Status;

/// Header fields of one request at most; more are answered with 431.
pub const MAX_FIELDS: usize = 64;

/// The method, as far as the server tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// A method of RFC 9110 or RFC 5789 that files do not have: 405.
    Other,
    /// Unknown: 501.
    Unknown,
}

/// The fields of RFC 9110 section 13 and 14 that decide between 200, 206, 304, 412 and 416.
#[derive(Clone, Copy, Default, Debug)]
pub struct Conditions<'a> {
    /// If-Match.
    pub if_match: Option<&'a [u8]>,
    /// If-None-Match.
    pub if_none_match: Option<&'a [u8]>,
    /// If-Modified-Since.
    pub if_modified_since: Option<&'a [u8]>,
    /// If-Unmodified-Since.
    pub if_unmodified_since: Option<&'a [u8]>,
    /// If-Range.
    pub if_range: Option<&'a [u8]>,
    /// Range.
    pub range: Option<&'a [u8]>,
}

impl Conditions<'_> {
    /// Whether none of them was sent: nearly every request.
    pub fn is_empty(&self) -> bool {
        self.if_match.is_none()
            && self.if_none_match.is_none()
            && self.if_modified_since.is_none()
            && self.if_unmodified_since.is_none()
            && self.range.is_none()
    }
}

/// A request head; everything borrows from the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method.
    pub method: Method,
    /// Request target as it came.
    pub target: &'a [u8],
    /// 1 for HTTP/1.1, 0 for HTTP/1.0.
    pub minor: u8,
    /// Whether the client wants (RFC 9112, section 9.3), and its framing allows, another request on this connection.
    pub keep_alive: bool,
    /// Whether content follows the head. It is not read.
    pub has_content: bool,
    /// Conditional fields and Range.
    pub conditions: Conditions<'a>,
    /// Referer, for the log.
    pub referer: Option<&'a [u8]>,
    /// User-Agent, for the log.
    pub user_agent: Option<&'a [u8]>,
    /// The request line without its end, for the log.
    pub line: &'a [u8],
}

/// What a buffer starts with.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// A whole head of so many bytes.
    Complete(Request<'a>, usize),
    /// Part of a head, still within the limit.
    Partial,
    /// Something that must be answered with this status, and the connection closed: where the next request would begin is not known.
    Refused(Status),
}

/// Parses the head at the start of `input`; a head of more than `limit` bytes is refused. Never panics, allocates nothing.
pub fn parse(input: &[u8], limit: usize) -> Parsed<'_> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(input, &mut fields) {
        Ok(httparse::Status::Complete(len)) if len <= limit => match examine(&parsed, input) {
            Ok(request) => Parsed::Complete(request, len),
            Err(status) => Parsed::Refused(status),
        },
        Ok(httparse::Status::Partial) if input.len() < limit => Parsed::Partial,
        Ok(_) if input.contains(&b'\n') => Parsed::Refused(Status::HEAD_TOO_LARGE),
        Ok(_) => Parsed::Refused(Status::URI_TOO_LONG),
        Err(httparse::Error::TooManyHeaders) => Parsed::Refused(Status::HEAD_TOO_LARGE),
        Err(httparse::Error::Version) => Parsed::Refused(Status::VERSION_NOT_SUPPORTED),
        Err(_) => Parsed::Refused(Status::BAD_REQUEST),
    }
}

/// Whether bytes that came after the first `seen` can have completed the head; spares parsing a slow client's head anew for
/// each byte.
pub fn may_be_complete(input: &[u8], seen: usize) -> bool {
    // A head ends with an empty line: LF LF or LF CR LF.
    let from = seen.saturating_sub(2);
    input.get(from..).is_none_or(|tail| {
        tail.windows(2).any(|w| w == b"\n\n") || tail.windows(3).any(|w| w == b"\n\r\n")
    })
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH" | "TRACE" | "CONNECT" => Method::Other,
        _ => Method::Unknown,
    }
}

/// Fields that only matter for framing and routing.
#[derive(Default)]
struct Framing {
    hosts: u32,
    content_length: Option<u64>,
    transfer_encoding: bool,
    close: bool,
    keep_alive: bool,
}

fn examine<'a>(parsed: &httparse::Request<'_, 'a>, input: &'a [u8]) -> Result<Request<'a>, Status> {
    let (Some(name), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(Status::BAD_REQUEST);
    };
    let mut request = Request {
        method: method(name),
        target: target.as_bytes(),
        minor,
        keep_alive: false,
        has_content: false,
        conditions: Conditions::default(),
        referer: None,
        user_agent: None,
        line: request_line(input),
    };
    let mut framing = Framing::default();
    for field in parsed.headers.iter() {
        take_field(field, &mut request, &mut framing)?;
    }
    // RFC 9112, section 3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that
    // lacks a Host header field and to any request message that contains more than one Host header field line".
    if framing.hosts > 1 || (framing.hosts == 0 && minor == 1) {
        return Err(Status::BAD_REQUEST);
    }
    // RFC 9112, section 6.1: both at once ought to be handled as an error (request smuggling).
    if framing.transfer_encoding && framing.content_length.is_some() {
        return Err(Status::BAD_REQUEST);
    }
    // Content of a request is not read, so nothing can follow it on this connection.
    request.has_content =
        framing.transfer_encoding || framing.content_length.is_some_and(|n| n > 0);
    let wanted = if minor == 1 {
        !framing.close
    } else {
        framing.keep_alive && !framing.close
    };
    request.keep_alive = wanted && !request.has_content;
    Ok(request)
}

fn take_field<'a>(
    field: &httparse::Header<'a>,
    request: &mut Request<'a>,
    framing: &mut Framing,
) -> Result<(), Status> {
    let name = field.name.as_bytes();
    let is = |text: &[u8]| name.eq_ignore_ascii_case(text);
    let value = field.value;
    let conditions = &mut request.conditions;
    // By length first: most fields are not ours and cost one comparison of integers.
    match name.len() {
        4 if is(b"host") => framing.hosts += 1,
        5 if is(b"range") => conditions.range = conditions.range.or(Some(value)),
        7 if is(b"referer") => request.referer = Some(value),
        8 if is(b"if-match") => conditions.if_match = Some(value),
        8 if is(b"if-range") => conditions.if_range = Some(value),
        10 if is(b"connection") => connection_options(value, framing),
        10 if is(b"user-agent") => request.user_agent = Some(value),
        13 if is(b"if-none-match") => conditions.if_none_match = Some(value),
        14 if is(b"content-length") => {
            let length = decimal(value).ok_or(Status::BAD_REQUEST)?;
            if framing
                .content_length
                .replace(length)
                .is_some_and(|earlier| earlier != length)
            {
                return Err(Status::BAD_REQUEST);
            }
        }
        17 if is(b"if-modified-since") => conditions.if_modified_since = Some(value),
        17 if is(b"transfer-encoding") => framing.transfer_encoding = true,
        19 if is(b"if-unmodified-since") => conditions.if_unmodified_since = Some(value),
        _ => {}
    }
    Ok(())
}

fn connection_options(value: &[u8], framing: &mut Framing) {
    for option in value.split(|b| *b == b',') {
        let option = option.trim_ascii();
        framing.close |= option.eq_ignore_ascii_case(b"close");
        framing.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
    }
}

/// Digits and nothing else, as RFC 9110 has them; `None` when there are others, none, or too many.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10)
            .then(|| sum.checked_mul(10)?.checked_add(digit as u64))
            .flatten()
    })
}

/// The first line that is not empty, without its end (httparse allows empty lines before the request line).
fn request_line(input: &[u8]) -> &[u8] {
    let start = input
        .iter()
        .position(|b| !matches!(b, b'\r' | b'\n'))
        .unwrap_or(0);
    let rest = input.get(start..).unwrap_or_default();
    let end = rest
        .iter()
        .position(|b| matches!(b, b'\r' | b'\n'))
        .unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
