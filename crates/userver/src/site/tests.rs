use std::fs;

use super::*;
use crate::cache::heap::{HeapEdition, HeapStore};
use crate::cache::load::open_root;
use crate::cache::{Cache, CacheConfig};
use crate::encrypt::Encryption;
use crate::http::plan::{FULL, Piece};

struct Fixture {
    dir: tempfile::TempDir,
    site: Site<HeapStore>,
    plan: Plan<HeapEdition>,
}

const KEY: [u8; 16] = [3; 16];

fn fixture(encrypt: u8) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("index.html"), "0123456789").unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    fs::create_dir(dir.path().join("a b")).unwrap();
    let config = CacheConfig {
        files: 100,
        recheck: 1,
        index: vec!["index.html".into()],
    };
    let encryption = (encrypt > 0).then(|| Encryption::new(encrypt, &KEY, 7));
    let root = open_root(dir.path()).unwrap();
    let cache = Cache::new(root, config, encryption, HeapStore::new(1 << 20));
    Fixture {
        site: Site::new(cache, None, Arc::default(), 1024),
        plan: Plan::default(),
        dir,
    }
}

impl Fixture {
    fn serve(&mut self, input: &str) -> Served {
        let peer = "192.0.2.1:1".parse().unwrap();
        self.site.serve(&peer, input.as_bytes(), &mut self.plan)
    }

    /// What would go over the wire.
    fn sent(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in self.plan.pieces() {
            match piece {
                Piece::Made { start, len } => {
                    out.extend_from_slice(self.plan.made_bytes(*start, *len));
                }
                Piece::File {
                    edition,
                    start,
                    len,
                } => match &**edition {
                    HeapEdition::Memory(lease) => {
                        let start = *start as usize;
                        out.extend_from_slice(&lease.value[start..start + *len as usize]);
                    }
                    HeapEdition::Open(_) => panic!("nothing is that large here"),
                },
            }
        }
        out
    }

    fn get(&mut self, request_line: &str, fields: &str) -> (String, Vec<u8>) {
        self.plan.clear();
        self.serve(&format!("{request_line}\r\nHost: x\r\n{fields}\r\n"));
        let sent = self.sent();
        let at = sent.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8(sent[..at].to_vec()).unwrap();
        (head, sent[at..].to_vec())
    }

    fn status(&mut self, request_line: &str, fields: &str) -> String {
        let (head, _) = self.get(request_line, fields);
        head[9..12].to_owned()
    }
}

const GET: &str = "GET / HTTP/1.1";

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (n, v) = line.split_once(": ")?;
        (n == name).then_some(v)
    })
}

#[test]
fn a_plain_answer_is_one_piece() {
    let mut f = fixture(0);
    let (head, body) = f.get(GET, "");
    assert_eq!(f.plan.pieces().len(), 1);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(field(&head, "Content-Length"), Some("10"));
    assert_eq!(field(&head, "Connection"), None);
    assert_eq!(field(&head, "Accept-Ranges"), Some("bytes"));
    assert_eq!(body, b"0123456789");
    assert!(
        f.plan.made.is_empty(),
        "the plain answer is made once, not for each request"
    );
}

#[test]
fn persistence_is_said_where_it_must_be() {
    let mut f = fixture(0);
    let (head, body) = f.get("GET / HTTP/1.0", "");
    assert_eq!(field(&head, "Connection"), Some("close"));
    assert_eq!(body, b"0123456789");
    let (head, _) = f.get("GET / HTTP/1.0", "Connection: keep-alive\r\n");
    assert_eq!(field(&head, "Connection"), Some("keep-alive"));
    let (head, _) = f.get(GET, "Connection: close\r\n");
    assert_eq!(field(&head, "Connection"), Some("close"));
    assert!(head.starts_with("HTTP/1.1 "));
}

#[test]
fn head_has_the_fields_and_no_content() {
    let mut f = fixture(0);
    let (get, _) = f.get(GET, "");
    let (head, body) = f.get("HEAD / HTTP/1.1", "");
    assert_eq!(get, head);
    assert_eq!(body, b"");
    let (head, body) = f.get("HEAD /none HTTP/1.1", "");
    assert!(head.starts_with("HTTP/1.1 404"));
    assert!(field(&head, "Content-Length").is_some_and(|n| n != "0"));
    assert_eq!(body, b"");
    assert_eq!(f.status("HEAD / HTTP/1.1", "Range: bytes=0-1\r\n"), "200");
}

#[test]
fn errors_say_which() {
    let mut f = fixture(0);
    for (line, status) in [
        ("GET /none HTTP/1.1", "404"),
        ("GET /../x HTTP/1.1", "400"),
        ("GET /%zz HTTP/1.1", "400"),
        ("GET /a%20b/ HTTP/1.1", "403"),
        ("POST / HTTP/1.1", "405"),
        ("BREW / HTTP/1.1", "501"),
        ("OPTIONS * HTTP/1.1", "405"),
        ("GET / HTTP/3.0", "505"),
    ] {
        assert_eq!(f.status(line, ""), status, "{line}");
    }
    let (head, body) = f.get("POST / HTTP/1.1", "");
    assert_eq!(field(&head, "Allow"), Some("GET, HEAD"));
    assert_eq!(
        field(&head, "Content-Length"),
        Some(body.len().to_string().as_str())
    );
    let (head, _) = f.get("GET /a%20b?q=1 HTTP/1.1", "");
    assert!(head.starts_with("HTTP/1.1 301"));
    assert_eq!(field(&head, "Location"), Some("/a%20b/?q=1"));
}

#[test]
fn conditions_are_answered() {
    let mut f = fixture(0);
    let (head, _) = f.get(GET, "");
    let date = field(&head, "Last-Modified").unwrap().to_owned();
    let etag = field(&head, "ETag").unwrap().to_owned();
    let (head, body) = f.get(GET, &format!("If-Modified-Since: {date}\r\n"));
    assert!(head.starts_with("HTTP/1.1 304"));
    assert_eq!(field(&head, "ETag"), Some(etag.as_str()));
    assert_eq!(field(&head, "Content-Length"), None);
    assert_eq!(body, b"");
    let old = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    assert_eq!(f.status(GET, old), "200");
    assert_eq!(f.status(GET, &format!("If-None-Match: {etag}\r\n")), "304");
    assert_eq!(f.status(GET, "If-None-Match: \"other\"\r\n"), "200");
    assert_eq!(f.status(GET, "If-Match: \"other\"\r\n"), "412");
    // The file changes: the validators change with it.
    fs::write(f.dir.path().join("index.html"), "changed").unwrap();
    f.site.clock.second += 2;
    let (head, body) = f.get(GET, &format!("If-None-Match: {etag}\r\n"));
    assert!(head.starts_with("HTTP/1.1 200"));
    assert_eq!(body, b"changed");
}

#[test]
fn ranges_are_answered() {
    let mut f = fixture(0);
    let (head, body) = f.get(GET, "Range: bytes=2-4\r\n");
    assert!(head.starts_with("HTTP/1.1 206 Partial Content\r\n"));
    assert_eq!(field(&head, "Content-Range"), Some("bytes 2-4/10"));
    assert_eq!(field(&head, "Content-Length"), Some("3"));
    assert_eq!(body, b"234");
    assert_eq!(f.get(GET, "Range: bytes=-3\r\n").1, b"789");
    assert_eq!(f.get(GET, "Range: bytes=7-100\r\n").1, b"789");
    let (head, _) = f.get(GET, "Range: bytes=10-\r\n");
    assert!(head.starts_with("HTTP/1.1 416"));
    assert_eq!(field(&head, "Content-Range"), Some("bytes */10"));
    assert_eq!(f.status(GET, "Range: bytes=4-2\r\n"), "200");
    assert_eq!(
        f.status(GET, "Range: bytes=0-1\r\nIf-Range: \"x\"\r\n"),
        "200"
    );
    assert_eq!(
        f.status("GET /empty HTTP/1.1", "Range: bytes=0-\r\n"),
        "416"
    );
}

#[test]
fn several_ranges_are_parts() {
    let mut f = fixture(0);
    let (head, body) = f.get(GET, "Range: bytes=0-1,8-\r\n");
    let media_type = field(&head, "Content-Type").unwrap();
    let boundary = media_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let expected = format!(
        "\r\n--{boundary}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Range: bytes 0-1/10\r\n\r\n01\
         \r\n--{boundary}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Range: bytes 8-9/10\r\n\r\n89\
         \r\n--{boundary}--\r\n"
    );
    assert_eq!(String::from_utf8(body).unwrap(), expected);
    assert_eq!(
        field(&head, "Content-Length"),
        Some(expected.len().to_string().as_str())
    );
}

#[test]
fn an_empty_file_is_an_answer_too() {
    let mut f = fixture(0);
    let (head, body) = f.get("GET /empty HTTP/1.1", "");
    assert_eq!(field(&head, "Content-Length"), Some("0"));
    assert_eq!(body, b"");
}

#[test]
fn pipelined_requests_are_answered_in_order_and_in_batches() {
    let mut f = fixture(0);
    let one = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let input = one.repeat(FULL + 5) + "GET / HT";
    let served = f.serve(&input);
    assert_eq!(served.next, Next::Again);
    assert_eq!(served.consumed, FULL * one.len());
    assert_eq!(served.requests as usize, FULL);
    let answer = f.sent().len() / FULL;
    f.plan.clear();
    let served = f.serve(&input[served.consumed..]);
    assert_eq!((served.next, served.requests), (Next::Read, 5));
    assert_eq!(served.consumed, 5 * one.len());
    assert_eq!(f.sent().len(), 5 * answer);
}

#[test]
fn what_follows_the_last_request_is_not_answered() {
    let mut f = fixture(0);
    let last = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(f.serve(last).next, Next::Close);
    f.plan.clear();
    let served = f.serve(&format!("{last}GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_eq!((served.next, served.requests), (Next::Linger, 1));
    f.plan.clear();
    let served = f.serve("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!((served.next, served.requests), (Next::Linger, 1));
    assert!(f.sent().starts_with(b"HTTP/1.1 200 OK"));
}

#[test]
fn a_head_over_the_limit_ends_the_connection() {
    let mut f = fixture(0);
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "y".repeat(1024));
    let served = f.serve(&long);
    assert_eq!((served.next, served.consumed), (Next::Linger, long.len()));
    assert!(f.sent().starts_with(b"HTTP/1.1 431 "));
    f.plan.clear();
    assert_eq!(f.serve(&long[..1000]).next, Next::Read);
    assert!(f.plan.is_empty());
}

#[test]
fn encrypted_files_differ_each_time_and_can_be_read_with_the_key() {
    let mut f = fixture(100);
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let (head, mut body) = f.get(GET, "");
        assert_eq!(field(&head, "Content-Length"), Some("10"));
        let cipher = field(&head, "X-Userver-Cipher").unwrap();
        let vector = cipher.strip_prefix("aes-128-ctr; iv=").unwrap();
        let vector = u128::from_str_radix(vector, 16).unwrap().to_be_bytes();
        assert_ne!(body, b"0123456789");
        bodies.push(body.clone());
        Encryption::new(100, &KEY, 0).apply(&vector, &mut body);
        assert_eq!(body, b"0123456789");
    }
    assert_ne!(bodies[0], bodies[1]);
    let (head, body) = f.get("HEAD / HTTP/1.1", "");
    assert_eq!(
        (field(&head, "Content-Length"), body.len()),
        (Some("10"), 0)
    );
    assert_eq!(f.status(GET, "Range: bytes=0-1\r\n"), "200");
    let (head, _) = f.get(GET, "");
    let etag = field(&head, "ETag").unwrap().to_owned();
    assert_eq!(f.status(GET, &format!("If-None-Match: {etag}\r\n")), "304");
}

proptest::proptest! {
    #[test]
    fn whatever_comes_is_answered_or_waited_for(
        cuts in proptest::collection::vec((0usize..400, proptest::prelude::any::<u8>()), 0..6),
        end in 0usize..400,
    ) {
        let mut f = fixture(0);
        let mut input = "GET /index.html?x HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1,4-\r\n\r\n\
            HEAD /%61/../empty HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"a\", *\r\n\r\n\
            GET http://x/none HTTP/1.0\r\nConnection: keep-alive\r\nIf-Range: \"a\"\r\n\r\n\
            GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
            .as_bytes()
            .to_vec();
        for (at, byte) in cuts {
            let at = at % input.len();
            input[at] = byte;
        }
        input.truncate(end);
        let peer = "192.0.2.1:1".parse().unwrap();
        let served = f.site.serve(&peer, &input, &mut f.plan);
        proptest::prop_assert!(served.consumed <= input.len());
        proptest::prop_assert_eq!(served.requests == 0, f.plan.is_empty());
        let sent = f.sent();
        proptest::prop_assert_eq!(sent.len() as u64, f.plan.remaining());
        let answers = sent.windows(9).filter(|w| w == b"HTTP/1.1 ").count();
        proptest::prop_assert_eq!(answers, served.requests as usize);
        if served.next == Next::Read {
            proptest::prop_assert!(input.len() - served.consumed < f.site.max_head());
        }
    }
}
