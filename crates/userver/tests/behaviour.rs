//! The same behaviour on every back-end: over real sockets on the kernel's, over an engine's loopback on the engine's.

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use common::*;
use sidecore_userver::Io;

macro_rules! on_every_back_end {
    ($($name:ident,)*) => {
        mod epoll {
            $(#[test] fn $name() { super::$name(super::Io::Epoll); })*
        }
        mod sendfile {
            $(#[test] fn $name() { super::$name(super::Io::Sendfile); })*
        }
        mod io_uring {
            $(#[test] fn $name() { super::$name(super::Io::IoUring); })*
        }
        mod sidecore {
            $(#[test] fn $name() { super::$name(super::Io::Sidecore); })*
        }
    };
}

on_every_back_end! {
    keep_alive,
    pipelining,
    deep_pipelining_with_slow_reading,
    requests_in_pieces,
    head,
    ranges,
    conditional,
    directories_and_errors,
    traversal,
    huge_head,
    connection_close,
    http_1_0,
    half_close,
    large_file,
    large_file_to_a_slow_reader,
    file_without_room_in_memory,
    changed_file,
    idle_client,
    slow_head,
    reader_that_stops,
    abrupt_disconnects,
    content_that_is_not_read,
    connection_limit,
    many_connections,
    several_workers,
    access_log,
    encryption,
    end_with_answers_under_way,
}

fn keep_alive(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    for _ in 0..100 {
        let answer = client.get("/small.txt");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, pattern(1000));
        assert_eq!(
            answer.field("Content-Type"),
            Some("text/plain; charset=utf-8")
        );
        let date = answer.field("Date").unwrap();
        let age = std::time::SystemTime::now()
            .duration_since(parse_date(date))
            .unwrap();
        assert!(age < Duration::from_secs(3), "{date}");
    }
    assert_eq!(client.get("/empty").body, b"");
    assert_eq!(client.get("/").body, b"<p>index");
    drop(client);
    eventually("closing", || site.server.counters().closed == 1);
    let counters = site.stop();
    assert_eq!((counters.requests, counters.accepted), (102, 1));
    assert_eq!((counters.errors, counters.broken), (0, 0));
    assert_eq!(counters.cache_loads, 3);
}

fn parse_date(text: &str) -> std::time::SystemTime {
    httpdate::parse_http_date(text).unwrap()
}

fn pipelining(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    let paths = ["/small.txt", "/", "/none", "/empty", "/dir/", "/large.bin"];
    let requests: String = paths.iter().cycle().take(60).map(|p| get(p)).collect();
    client.send(&requests);
    for round in 0..10 {
        let bodies: Vec<_> = paths.iter().map(|_| client.answer()).collect();
        let lens: Vec<_> = bodies.iter().map(|a| (a.status, a.body.len())).collect();
        assert_eq!(lens[0], (200, 1000), "{round}");
        assert_eq!(lens[1], (200, 8));
        assert_eq!(lens[2].0, 404);
        assert_eq!(lens[3], (200, 0));
        assert_eq!(bodies[4].body, b"<p>dir");
        assert!(bodies[5].body == pattern(LARGE));
    }
    assert_eq!(site.stop().requests, 60);
}

fn deep_pipelining_with_slow_reading(io: Io) {
    // More answers than sockets hold, so that requests wait behind answers that wait.
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    let count = 40;
    let requests = get("/large.bin") + &get("/small.txt");
    client.send(&requests.repeat(count));
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..count {
        assert!(client.answer().body == pattern(LARGE));
        assert!(client.answer().body == pattern(1000));
    }
    assert_eq!(site.stop().requests as usize, 2 * count);
}

fn requests_in_pieces(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    let request = "GET /small.txt HTTP/1.1\r\nHost: somewhere\r\nX: y\r\n\r\n";
    for cut in [1, 5, 20, 40, request.len() - 1] {
        client.send(&request[..cut]);
        client.expect_silence(Duration::from_millis(20));
        client.send(&request[cut..]);
        assert_eq!(client.answer().body.len(), 1000);
    }
    for byte in request.bytes() {
        client.stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(client.answer().body.len(), 1000);
    // One and a half, then the other half.
    client.send(&(request.to_owned() + &request[..30]));
    assert_eq!(client.answer().body.len(), 1000);
    client.send(&request[30..]);
    assert_eq!(client.answer().body.len(), 1000);
    assert_eq!(site.stop().requests, 8);
}

fn head(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    for (path, status) in [("/large.bin", 200), ("/none", 404), ("/small.txt", 200)] {
        client.send(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let answer = client.head_answer();
        assert_eq!(answer.status, status);
        if path == "/large.bin" {
            assert_eq!(answer.field("Content-Length"), Some("5000000"));
        }
    }
    // Nothing of a body came: the next answer follows at once.
    assert_eq!(client.get("/small.txt").body.len(), 1000);
}

fn ranges(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    let whole = pattern(LARGE);
    let mut ask = |path: &str, range: &str| {
        client.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nRange: {range}\r\n\r\n"
        ));
        client.answer()
    };
    for (range, start, end) in [
        ("bytes=0-0", 0, 1),
        ("bytes=1000000-3999999", 1_000_000, 4_000_000),
        ("bytes=-10", LARGE - 10, LARGE),
        ("bytes=4999999-", LARGE - 1, LARGE),
        ("bytes=262000-263000", 262_000, 263_001),
    ] {
        let answer = ask("/large.bin", range);
        assert_eq!(answer.status, 206);
        let expected = format!("bytes {start}-{}/{LARGE}", end - 1);
        assert_eq!(answer.field("Content-Range"), Some(expected.as_str()));
        assert!(answer.body == whole[start..end], "{range}");
    }
    assert_eq!(ask("/large.bin", "bytes=5000000-").status, 416);
    assert_eq!(ask("/large.bin", "lines=1-2").status, 200);
    let parts = ask("/small.txt", "bytes=0-9,500-509, -1");
    assert_eq!(parts.status, 206);
    assert!(
        parts
            .field("Content-Type")
            .is_some_and(|t| t.starts_with("multipart/byteranges; boundary="))
    );
    let small = pattern(1000);
    for part in [&small[..10], &small[500..510], &small[999..]] {
        let found = parts.body.windows(part.len()).any(|w| w == part);
        assert!(found);
    }
    assert!(parts.body.ends_with(b"--\r\n"));
    assert!(ask("/large.bin", "bytes=0-4000000,500-600").body.len() > 4_000_101);
}

fn conditional(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    let first = client.get("/small.txt");
    let date = first.field("Last-Modified").unwrap();
    client.send(&format!(
        "GET /small.txt HTTP/1.1\r\nHost: x\r\nIf-Modified-Since: {date}\r\n\r\n"
    ));
    let second = client.answer();
    assert_eq!(second.status, 304);
    assert_eq!(second.field("Content-Length"), None);
    assert_eq!(second.field("ETag"), first.field("ETag"));
    // Without a body: the connection stays in step.
    assert_eq!(client.get("/small.txt").status, 200);
}

fn directories_and_errors(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    assert_eq!(client.get("/dir/").body, b"<p>dir");
    let moved = client.get("/dir");
    assert_eq!(
        (moved.status, moved.field("Location")),
        (301, Some("/dir/"))
    );
    assert_eq!(client.get("/dir/sub/").status, 403);
    assert_eq!(client.get("/none").status, 404);
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    let refused = client.answer();
    assert_eq!(refused.status, 405);
    assert_eq!(refused.field("Allow"), Some("GET, HEAD"));
    assert_eq!(site.stop().errors, 3);
}

fn traversal(io: Io) {
    let site = Site::start(io, |_| {});
    for path in [
        "/../secret",
        "/dir/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/link",
        "//../secret",
        "/dir/%2e%2e/%2e%2e/secret",
    ] {
        let answer = site.ask(&get(path));
        assert!(
            matches!(answer.status, 400 | 403),
            "{path}: {}",
            answer.status
        );
        assert!(!answer.body.windows(6).any(|w| w == b"secret"), "{path}");
    }
    assert_eq!(site.ask(&get("/dir/../small.txt")).status, 200);
}

fn huge_head(io: Io) {
    let site = Site::start(io, |c| c.max_head = 4096);
    let mut client = site.client();
    let long = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(100_000)
    );
    // The server may stop reading before all is written; the answer must come through all the same.
    let _ = client.stream.write_all(long.as_bytes());
    let answer = client.answer();
    assert_eq!(answer.status, 431);
    assert_eq!(answer.field("Connection"), Some("close"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    client.expect_end();
    let fits = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(4000)
    );
    assert_eq!(site.ask(&fits).status, 200);
    assert_eq!(site.ask(&"/".repeat(5000)).status, 400);
    assert_eq!(site.ask(&format!("GET /{}", "a".repeat(5000))).status, 414);
}

fn connection_close(io: Io) {
    let site = Site::start(io, |_| {});
    for path in ["/small.txt", "/large.bin", "/none"] {
        let mut client = site.client();
        client.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        ));
        let answer = client.answer();
        assert_eq!(answer.field("Connection"), Some("close"));
        client.expect_end();
    }
    // A request behind it is not answered, and does not cost the answer.
    let mut client = site.client();
    client.send(&("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned() + &get("/")));
    assert_eq!(client.answer().status, 200);
    client.expect_end();
    eventually("closing", || site.server.counters().closed >= 3);
}

fn http_1_0(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    client.send("GET /small.txt HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("Connection"), Some("close"));
    assert_eq!(answer.body, pattern(1000));
    client.expect_end();
    let mut client = site.client();
    for _ in 0..3 {
        client.send("GET /small.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let answer = client.answer();
        assert_eq!(answer.field("Connection"), Some("keep-alive"));
    }
}

fn half_close(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    client.send(&(get("/small.txt") + &get("/large.bin")));
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.answer().body.len(), 1000);
    assert!(client.answer().body == pattern(LARGE));
    client.expect_end();
}

fn large_file(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    for _ in 0..5 {
        assert!(client.get("/large.bin").body == pattern(LARGE));
    }
    assert!(site.stop().bytes_sent > 5 * LARGE as u64);
}

fn large_file_to_a_slow_reader(io: Io) {
    let site = Site::start(io, |_| {});
    let mut slow = site.client();
    slow.send(&get("/large.bin"));
    // Others are served meanwhile.
    let mut quick = site.client();
    let mut body = Vec::new();
    let mut chunk = vec![0; 200_000];
    while body.len() < LARGE {
        let n = slow.stream.read(&mut chunk).unwrap();
        assert!(n > 0);
        body.extend_from_slice(&chunk[..n]);
        assert_eq!(quick.get("/small.txt").body.len(), 1000);
    }
    let at = body.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    while body.len() < at + LARGE {
        let n = slow.stream.read(&mut chunk).unwrap();
        assert!(n > 0);
        body.extend_from_slice(&chunk[..n]);
    }
    assert!(body[at..] == pattern(LARGE));
}

fn file_without_room_in_memory(io: Io) {
    let site = Site::start(io, |c| c.cache_bytes = 1 << 20);
    let mut client = site.client();
    assert!(client.get("/large.bin").body == pattern(LARGE));
    client.send("GET /large.bin HTTP/1.1\r\nHost: x\r\nRange: bytes=300000-900000\r\n\r\n");
    assert!(client.answer().body == pattern(LARGE)[300_000..=900_000]);
    assert_eq!(client.get("/small.txt").body, pattern(1000));
}

fn changed_file(io: Io) {
    let site = Site::start(io, |c| c.recheck = Duration::ZERO);
    let path = site.dir.path().join("root/changing.txt");
    let mut client = site.client();
    for content in ["one", "three", "", "seven"] {
        // Replaced by name, as it should be done.
        let new = site.dir.path().join("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert_eq!(client.get("/changing.txt").body, content.as_bytes());
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(client.get("/changing.txt").status, 404);
}

fn idle_client(io: Io) {
    let site = Site::start(io, |c| c.idle_timeout = Duration::from_secs(1));
    let start = Instant::now();
    let mut silent = site.client();
    let mut after_one = site.client();
    assert_eq!(after_one.get("/small.txt").status, 200);
    silent.expect_end();
    after_one.expect_end();
    let time = start.elapsed();
    assert!(time > Duration::from_millis(900), "{time:?}");
    assert!(time < Duration::from_secs(5), "{time:?}");
    assert_eq!(site.stop().timed_out, 2);
}

fn slow_head(io: Io) {
    // One byte at a time keeps no connection alive.
    let site = Site::start(io, |c| c.idle_timeout = Duration::from_secs(1));
    let mut client = site.client();
    let start = Instant::now();
    let pause = Some(Duration::from_millis(50));
    client.stream.set_read_timeout(pause).unwrap();
    while start.elapsed() < LONG && client.stream.write_all(b"G").is_ok() {
        match client.stream.read(&mut [0; 16]) {
            Err(error) if is_timeout(&error) => {}
            _ => break,
        }
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    // A client that is slow, but gets somewhere, is served.
    let mut client = site.client();
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(client.get("/empty").status, 200);
    }
    assert_eq!(site.stop().timed_out, 1);
}

fn reader_that_stops(io: Io) {
    let site = Site::start(io, |c| c.idle_timeout = Duration::from_secs(1));
    let mut client = site.client();
    client.send(&get("/large.bin").repeat(4));
    eventually("giving up", || site.server.counters().timed_out == 1);
    assert_eq!(site.stop().closed, 1);
}

fn abrupt_disconnects(io: Io) {
    let site = Site::start(io, |_| {});
    for n in 0..50 {
        let mut client = site.client();
        match n % 5 {
            0 => {}
            1 => client.send("GET /sm"),
            2 => client.send(&get("/large.bin")),
            3 => client.send(&get("/large.bin").repeat(20)),
            _ => {
                client.send(&get("/large.bin"));
                client.stream.read_exact(&mut [0; 1000]).unwrap();
            }
        }
        // With unread bytes this is a reset.
        drop(client);
    }
    assert_eq!(site.ask(&get("/small.txt")).body, pattern(1000));
    eventually("closing", || site.server.counters().closed >= 50);
    assert!(site.stop().accepted >= 51);
}

fn content_that_is_not_read(io: Io) {
    let site = Site::start(io, |_| {});
    let mut client = site.client();
    let body = "x".repeat(300_000);
    client.send("PUT /small.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n");
    let _ = client.stream.write_all(body.as_bytes());
    let answer = client.answer();
    assert_eq!(answer.status, 405);
    assert_eq!(answer.field("Connection"), Some("close"));
    assert_eq!(site.ask(&get("/small.txt")).body, pattern(1000));
}

fn connection_limit(io: Io) {
    let site = Site::start(io, |c| c.max_connections = 3);
    let mut clients: Vec<Client> = (0..3).map(|_| site.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/empty").status, 200);
    }
    // A fourth waits in the kernel until one goes.
    let mut waiting = site.client();
    waiting.send(&get("/small.txt"));
    waiting.expect_silence(Duration::from_millis(100));
    clients.pop();
    assert_eq!(waiting.answer().body.len(), 1000);
    let counters = site.stop();
    assert_eq!(counters.accepted, 4);
    assert!(counters.accept_pauses >= 1);
}

fn many_connections(io: Io) {
    let site = Site::start(io, |_| {});
    let mut clients: Vec<Client> = (0..300).map(|_| site.client()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.send(&get("/small.txt"));
        }
        for client in &mut clients {
            assert_eq!(client.answer().body.len(), 1000);
        }
    }
    drop(clients);
    eventually("closing", || site.server.counters().closed == 300);
    assert_eq!(site.stop().requests, 900);
}

fn several_workers(io: Io) {
    let site = Site::start(io, |c| c.workers = 3);
    let mut clients: Vec<Client> = (0..60).map(|_| site.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/small.txt").body, pattern(1000));
    }
    let mut ids: Vec<i32> = site.server.thread_ids().collect();
    ids.dedup();
    assert!(ids.len() == 3 && ids.iter().all(|id| *id > 0));
    let counters = site.stop();
    assert_eq!((counters.requests, counters.accepted), (60, 60));
    assert!(counters.cache_loads > 1, "connections spread over workers");
}

fn access_log(io: Io) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_owned();
    let site = Site::start(io, |c| c.access_log = Some(path));
    let mut client = site.client();
    client.send("GET /small.txt?q HTTP/1.1\r\nHost: x\r\nUser-Agent: me\r\nReferer: there\r\n\r\n");
    client.answer();
    client.get("/none");
    drop(client);
    site.ask("nonsense\r\n\r\n");
    site.stop();
    let text = std::fs::read_to_string(log.path()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    let host = if io == Io::Sidecore {
        "10.9.0.1"
    } else {
        "127.0.0.1"
    };
    assert!(
        lines[0].starts_with(&format!("{host} - - [")),
        "{}",
        lines[0]
    );
    assert!(
        lines[0].ends_with("\"GET /small.txt?q HTTP/1.1\" 200 1000 \"there\" \"me\""),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains("\"GET /none HTTP/1.1\" 404 "));
    assert!(lines[2].contains("\"nonsense\" 400 "));
}

fn encryption(io: Io) {
    let key = [9; 16];
    let site = Site::start(io, |c| {
        c.encrypt_percent = 100;
        c.encrypt_key = Some(key);
    });
    let mut client = site.client();
    for _ in 0..3 {
        let mut answer = client.get("/small.txt");
        assert_ne!(answer.body, pattern(1000));
        let cipher = answer.field("X-Userver-Cipher").unwrap();
        let vector = cipher.strip_prefix("aes-128-ctr; iv=").unwrap();
        let vector = u128::from_str_radix(vector, 16).unwrap().to_be_bytes();
        sidecore_userver::encrypt::Encryption::new(100, &key, 0).apply(&vector, &mut answer.body);
        assert_eq!(answer.body, pattern(1000));
    }
    assert!(client.get("/large.bin").body == pattern(LARGE));
}

fn end_with_answers_under_way(io: Io) {
    let site = Site::start(io, |_| {});
    let mut idle = site.client();
    assert_eq!(idle.get("/empty").status, 200);
    let mut busy = site.client();
    busy.send(&get("/large.bin"));
    eventually("answering", || site.server.counters().requests == 2);
    let stopper = site.server.stopper();
    stopper.stop();
    assert!(busy.answer().body == pattern(LARGE));
    busy.expect_end();
    idle.expect_end();
    let start = Instant::now();
    let counters = site.stop();
    assert!(start.elapsed() < Duration::from_secs(4));
    assert_eq!(counters.closed, counters.accepted);
}
