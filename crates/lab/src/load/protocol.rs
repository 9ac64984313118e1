//! What is asked and how an answer is recognised: echo and HTTP/1.1. One request is outstanding on a connection at a time.

use memchr::memmem;

/// Longest HTTP response head that is accepted.
const MAX_HEAD: usize = 16 * 1024;

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// Bytes that belong to no request, or echoed bytes that are not those sent.
    Unexpected,
    /// A response head that cannot be read or has no length.
    BadHead,
}

/// How far a response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are to come.
    Partial,
    /// Complete; `ok` is false when the server answered with an error of its own.
    Complete {
        /// The status was 200.
        ok: bool,
    },
}

/// A request-response protocol. Static dispatch: one worker speaks one protocol.
pub trait Protocol {
    /// What is kept for each connection.
    type State: Default;

    /// Chooses the next request of a connection and returns its bytes.
    fn next_request(&mut self, state: &mut Self::State) -> &[u8];

    /// The bytes of the request that was chosen last on this connection.
    fn request<'a>(&'a self, state: &'a Self::State) -> &'a [u8];

    /// Takes what was received.
    fn receive(&mut self, state: &mut Self::State, bytes: &[u8])
    -> Result<Progress, ProtocolError>;
}

/// Sends a message and expects the same bytes back.
pub struct Echo {
    message: Vec<u8>,
}

impl Echo {
    /// Messages of this many bytes (at least 1).
    pub fn new(bytes: usize) -> Self {
        let message = (0..bytes.max(1)).map(|i| (i % 251) as u8).collect();
        Self { message }
    }
}

impl Protocol for Echo {
    /// How many bytes have come back.
    type State = usize;

    fn next_request(&mut self, state: &mut usize) -> &[u8] {
        *state = 0;
        &self.message
    }

    fn request<'a>(&'a self, _state: &'a usize) -> &'a [u8] {
        &self.message
    }

    #[inline]
    fn receive(&mut self, state: &mut usize, bytes: &[u8]) -> Result<Progress, ProtocolError> {
        let end = *state + bytes.len();
        if self.message.get(*state..end) != Some(bytes) {
            return Err(ProtocolError::Unexpected);
        }
        *state = end;
        if end < self.message.len() {
            return Ok(Progress::Partial);
        }
        Ok(Progress::Complete { ok: true })
    }
}

/// Sends messages in turn, each of which has one answer.
pub struct Exact {
    exchanges: Vec<(Vec<u8>, Vec<u8>)>,
    next: usize,
}

/// Which exchange a connection is in, and how much of the answer has come.
#[derive(Default)]
pub struct ExactState {
    exchange: usize,
    received: usize,
}

impl Exact {
    /// Requests and answers, none of them empty, beginning at number `first` (wraps).
    pub fn new(exchanges: &[(String, String)], first: usize) -> Self {
        let bytes = |(request, answer): &(String, String)| {
            (request.clone().into_bytes(), answer.clone().into_bytes())
        };
        Self {
            exchanges: exchanges.iter().map(bytes).collect(),
            next: first % exchanges.len().max(1),
        }
    }
}

impl Protocol for Exact {
    type State = ExactState;

    fn next_request(&mut self, state: &mut ExactState) -> &[u8] {
        *state = ExactState {
            exchange: self.next,
            received: 0,
        };
        self.next = (self.next + 1) % self.exchanges.len();
        &self.exchanges[state.exchange].0
    }

    fn request<'a>(&'a self, state: &'a ExactState) -> &'a [u8] {
        &self.exchanges[state.exchange].0
    }

    fn receive(&mut self, state: &mut ExactState, bytes: &[u8]) -> Result<Progress, ProtocolError> {
        let answer = &self.exchanges[state.exchange].1;
        let end = state.received + bytes.len();
        if answer.get(state.received..end) != Some(bytes) {
            return Err(ProtocolError::Unexpected);
        }
        state.received = end;
        if end < answer.len() {
            return Ok(Progress::Partial);
        }
        Ok(Progress::Complete { ok: true })
    }
}

/// Sends a long message and expects one byte back.
pub struct Upload {
    message: Vec<u8>,
}

impl Upload {
    /// Messages of this many bytes (at least 1).
    pub fn new(bytes: usize) -> Self {
        Self {
            message: vec![b'u'; bytes.max(1)],
        }
    }
}

impl Protocol for Upload {
    type State = ();

    fn next_request(&mut self, (): &mut ()) -> &[u8] {
        &self.message
    }

    fn request<'a>(&'a self, (): &'a ()) -> &'a [u8] {
        &self.message
    }

    fn receive(&mut self, (): &mut (), bytes: &[u8]) -> Result<Progress, ProtocolError> {
        match bytes.len() {
            1 => Ok(Progress::Complete { ok: true }),
            _ => Err(ProtocolError::Unexpected),
        }
    }
}

/// `GET` with keep-alive; paths are taken in turn.
pub struct Http {
    requests: Vec<Vec<u8>>,
    next: usize,
    /// The head seen last and what it said: heads of one second and file are equal.
    known_head: Vec<u8>,
    known: Head,
}

/// What a response head says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    ok: bool,
    body: u64,
}

/// Where a connection stands in its response.
#[derive(Default)]
pub struct HttpState {
    request: usize,
    /// Bytes of a head that came in pieces; empty (and never allocated) otherwise.
    partial: Vec<u8>,
    /// In the body: bytes to come.
    body: Option<(Head, u64)>,
}

impl Http {
    /// Requests for these paths of this host, beginning at path number `first` (wraps).
    pub fn new(host: &str, paths: &[String], first: usize) -> Self {
        let request = |path: &String| {
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sidecore-lab\r\nAccept: */*\r\n\r\n").into_bytes()
        };
        let mut requests: Vec<_> = paths.iter().map(request).collect();
        if requests.is_empty() {
            requests.push(request(&"/".to_owned()));
        }
        let next = first % requests.len();
        Self {
            requests,
            next,
            known_head: Vec::new(),
            known: Head::default(),
        }
    }

    /// Finds the end of the head in `bytes` and reads it: its length and meaning.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<(usize, Head)>, ProtocolError> {
        if !self.known_head.is_empty() && bytes.starts_with(&self.known_head) {
            return Ok(Some((self.known_head.len(), self.known)));
        }
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
            return if bytes.len() > MAX_HEAD {
                Err(ProtocolError::BadHead)
            } else {
                Ok(None)
            };
        };
        let head = &bytes[..end + 4];
        let parsed = parse_head(head).ok_or(ProtocolError::BadHead)?;
        self.known_head.clear();
        self.known_head.extend_from_slice(head);
        self.known = parsed;
        Ok(Some((head.len(), parsed)))
    }
}

/// Reads status and `Content-Length` of a complete head.
fn parse_head(head: &[u8]) -> Option<Head> {
    let mut lines = head.split(|b| *b == b'\n');
    let status = lines.next()?;
    if !status.starts_with(b"HTTP/1.") {
        return None;
    }
    let ok = status.get(9..12)? == b"200";
    const NAME: &[u8] = b"content-length:";
    let line = lines.find(|line| {
        line.get(..NAME.len())
            .is_some_and(|name| name.eq_ignore_ascii_case(NAME))
    })?;
    let value = line.get(NAME.len()..)?.trim_ascii();
    let body = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(Head { ok, body })
}

impl Protocol for Http {
    type State = HttpState;

    fn next_request(&mut self, state: &mut HttpState) -> &[u8] {
        state.request = self.next;
        self.next = if self.next + 1 < self.requests.len() {
            self.next + 1
        } else {
            0
        };
        &self.requests[state.request]
    }

    fn request<'a>(&'a self, state: &'a HttpState) -> &'a [u8] {
        &self.requests[state.request]
    }

    fn receive(&mut self, state: &mut HttpState, bytes: &[u8]) -> Result<Progress, ProtocolError> {
        let (head, arrived) = match state.body {
            Some((head, left)) => (head, (head.body - left) + bytes.len() as u64),
            None if state.partial.is_empty() => match self.head(bytes)? {
                Some((length, head)) => (head, (bytes.len() - length) as u64),
                None => {
                    state.partial.extend_from_slice(bytes);
                    return Ok(Progress::Partial);
                }
            },
            None => {
                state.partial.extend_from_slice(bytes);
                match self.head(&state.partial)? {
                    Some((length, head)) => {
                        let body = (state.partial.len() - length) as u64;
                        state.partial.clear();
                        (head, body)
                    }
                    None => return Ok(Progress::Partial),
                }
            }
        };
        if arrived > head.body {
            return Err(ProtocolError::Unexpected);
        }
        if arrived == head.body {
            state.body = None;
            return Ok(Progress::Complete { ok: head.ok });
        }
        state.body = Some((head, head.body - arrived));
        Ok(Progress::Partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Progress = Progress::Complete { ok: true };

    #[test]
    fn echo_wants_its_own_bytes_back_in_any_pieces() {
        let mut echo = Echo::new(64);
        let mut state = 0;
        let message = echo.next_request(&mut state).to_vec();
        assert_eq!(message.len(), 64);
        assert_eq!(
            echo.receive(&mut state, &message[..10]),
            Ok(Progress::Partial)
        );
        assert_eq!(echo.receive(&mut state, &message[10..]), Ok(OK));
        echo.next_request(&mut state);
        assert_eq!(
            echo.receive(&mut state, &[9; 64]),
            Err(ProtocolError::Unexpected)
        );
        echo.next_request(&mut state);
        let more = [&message[..], &[0]].concat();
        assert_eq!(
            echo.receive(&mut state, &more),
            Err(ProtocolError::Unexpected)
        );
    }

    fn http() -> Http {
        Http::new("h", &["/a".to_owned(), "/b".to_owned()], 0)
    }

    #[test]
    fn http_asks_for_the_paths_in_turn() {
        let mut http = http();
        let mut state = HttpState::default();
        for path in ["/a", "/b", "/a"] {
            let request = String::from_utf8(http.next_request(&mut state).to_vec()).unwrap();
            let start = format!("GET {path} HTTP/1.1\r\nHost: h\r\n");
            assert!(
                request.starts_with(&start) && request.ends_with("\r\n\r\n"),
                "{request}"
            );
        }
    }

    #[test]
    fn http_responses_are_recognised_in_any_pieces() {
        let response = b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-LENGTH:  5\r\n\r\nhello";
        let mut http = http();
        for cut in 0..response.len() {
            let mut state = HttpState::default();
            http.next_request(&mut state);
            if cut > 0 {
                let first = http.receive(&mut state, &response[..cut]);
                assert_eq!(first, Ok(Progress::Partial), "cut at {cut}");
            }
            let last = http.receive(&mut state, &response[cut..]);
            assert_eq!(last, Ok(OK), "cut at {cut}");
        }
    }

    #[test]
    fn http_errors_are_told_from_nonsense() {
        let mut http = http();
        let mut state = HttpState::default();
        let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(
            http.receive(&mut state, missing),
            Ok(Progress::Complete { ok: false })
        );
        let lengthless = b"HTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(
            http.receive(&mut state, lengthless),
            Err(ProtocolError::BadHead)
        );
        let mut state = HttpState::default();
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab";
        assert_eq!(
            http.receive(&mut state, long),
            Err(ProtocolError::Unexpected)
        );
        let mut state = HttpState::default();
        assert_eq!(
            http.receive(&mut state, b"SSH-2.0\r\n\r\n"),
            Err(ProtocolError::BadHead)
        );
        let mut state = HttpState::default();
        assert_eq!(
            http.receive(&mut state, &[b'x'; MAX_HEAD + 1]),
            Err(ProtocolError::BadHead)
        );
    }
}
