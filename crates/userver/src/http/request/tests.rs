use super::*;
use proptest::prelude::*;

const LIMIT: usize = 8192;

fn complete(text: &str) -> (Request<'_>, usize) {
    match parse(text.as_bytes(), LIMIT) {
        Parsed::Complete(request, len) => (request, len),
        other => panic!("{text:?}: {other:?}"),
    }
}

fn refused(text: &str) -> Status {
    match parse(text.as_bytes(), LIMIT) {
        Parsed::Refused(status) => status,
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn a_request_is_taken_apart() {
    let text = "GET /a?b HTTP/1.1\r\nHost: x\r\nUser-Agent: u\r\nReferer: r\r\nRange: bytes=0-1\r\nIf-Range: \"e\"\r\n\
                IF-MODIFIED-SINCE: d\r\nIf-None-Match: *\r\n\r\nrest";
    let (request, len) = complete(text);
    assert_eq!(len, text.len() - 4);
    assert_eq!(request.method, Method::Get);
    assert_eq!(request.target, b"/a?b");
    assert_eq!(request.line, b"GET /a?b HTTP/1.1");
    assert_eq!(request.user_agent, Some(b"u".as_slice()));
    assert_eq!(request.referer, Some(b"r".as_slice()));
    assert_eq!(request.conditions.range, Some(b"bytes=0-1".as_slice()));
    assert_eq!(request.conditions.if_range, Some(b"\"e\"".as_slice()));
    assert_eq!(request.conditions.if_modified_since, Some(b"d".as_slice()));
    assert_eq!(request.conditions.if_none_match, Some(b"*".as_slice()));
    assert!(!request.conditions.is_empty());
    assert!(request.keep_alive);
}

#[test]
fn every_prefix_is_partial() {
    let text = "\r\nHEAD / HTTP/1.1\r\nHost: x\r\n\r\n";
    for end in 0..text.len() {
        assert!(
            matches!(parse(&text.as_bytes()[..end], LIMIT), Parsed::Partial),
            "{end}"
        );
    }
    let (request, len) = complete(text);
    assert_eq!((request.method, len), (Method::Head, text.len()));
    assert_eq!(request.line, b"HEAD / HTTP/1.1");
}

#[test]
fn persistence_follows_version_and_connection() {
    let keeps = |version: &str, fields: &str| {
        complete(&format!("GET / HTTP/{version}\r\nHost: x\r\n{fields}\r\n"))
            .0
            .keep_alive
    };
    assert!(keeps("1.1", ""));
    assert!(keeps("1.1", "Connection: foo, Keep-Alive\r\n"));
    assert!(!keeps("1.1", "Connection: Foo , CLOSE\r\n"));
    assert!(!keeps("1.0", ""));
    assert!(keeps("1.0", "Connection: keep-alive\r\n"));
    assert!(!keeps("1.0", "Connection: keep-alive, close\r\n"));
    assert!(keeps("1.1", "Content-Length: 0\r\n"));
    assert!(!keeps("1.1", "Content-Length: 3\r\n"));
    assert!(!keeps("1.1", "Transfer-Encoding: chunked\r\n"));
}

#[test]
fn broken_requests_are_refused() {
    for (text, status) in [
        ("GET / HTTP/1.1\r\n\r\n", Status::BAD_REQUEST),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            Status::BAD_REQUEST,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            Status::BAD_REQUEST,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
            Status::BAD_REQUEST,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            Status::BAD_REQUEST,
        ),
        (
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            Status::VERSION_NOT_SUPPORTED,
        ),
        ("\0\0\0\0", Status::BAD_REQUEST),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nbad header: x\r\n\r\n",
            Status::BAD_REQUEST,
        ),
    ] {
        assert_eq!(refused(text), status, "{text:?}");
    }
    assert_eq!(
        complete("GET / HTTP/1.0\r\n\r\n").0.minor,
        0,
        "HTTP/1.0 needs no Host"
    );
}

#[test]
fn limits_hold() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(LIMIT));
    assert_eq!(refused(&long), Status::HEAD_TOO_LARGE);
    assert_eq!(refused(&long[..LIMIT]), Status::URI_TOO_LONG);
    let fields = "X: y\r\n".repeat(MAX_FIELDS + 1);
    assert_eq!(
        refused(&format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n")),
        Status::HEAD_TOO_LARGE
    );
    let big = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "b".repeat(LIMIT));
    assert_eq!(refused(&big), Status::HEAD_TOO_LARGE);
    assert!(matches!(
        parse(&big.as_bytes()[..LIMIT - 1], LIMIT),
        Parsed::Partial
    ));
}

#[test]
fn methods_are_told_apart() {
    for (name, expected) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Other),
        ("get", Method::Unknown),
        ("BREW", Method::Unknown),
    ] {
        let text = format!("{name} / HTTP/1.0\r\n\r\n");
        assert_eq!(complete(&text).0.method, expected);
    }
}

#[test]
fn decimals_are_digits_alone() {
    assert_eq!(decimal(b"0"), Some(0));
    assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
    for bad in ["", "18446744073709551616", "-1", "+1", " 1", "1a", "0x1"] {
        assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn an_end_is_found_wherever_the_input_was_cut() {
    for end in ["\r\n\r\n", "\n\n", "\n\r\n"] {
        let text = format!("GET / HTTP/1.0{end}");
        for seen in 0..text.len() {
            assert!(may_be_complete(text.as_bytes(), seen), "{end:?} {seen}");
        }
    }
    assert!(!may_be_complete(b"GET / HTTP/1.0\r\nHost: x\r\nabc", 26));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Parsed::Complete(_, len) = parse(&bytes, LIMIT) {
            prop_assert!(len <= bytes.len());
        }
    }

    #[test]
    fn mutated_requests_never_panic(at in 0usize..80, byte in any::<u8>(), cut in 0usize..90) {
        let mut bytes = b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nRange: bytes=1-\r\n\r\n".to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(cut.min(bytes.len()));
        let _ = parse(&bytes, LIMIT);
    }
}
