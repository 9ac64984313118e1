use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::heap::{HeapEdition, HeapStore};
use super::load::open_root;
use super::*;

const MIB: u64 = 1 << 20;

struct Fixture {
    dir: tempfile::TempDir,
    cache: Cache<HeapStore>,
    clock: Clock,
}

fn fixture_with(limit: u64, files: usize, recheck: u64) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let config = CacheConfig {
        files,
        recheck,
        index: vec!["index.html".into()],
    };
    let cache = Cache::new(
        open_root(&root).unwrap(),
        config,
        None,
        HeapStore::new(limit),
    );
    Fixture {
        dir,
        cache,
        clock: Clock::at(1_000_000, 0),
    }
}

fn fixture() -> Fixture {
    fixture_with(16 * MIB, 100, 1)
}

impl Fixture {
    fn root(&self) -> std::path::PathBuf {
        self.dir.path().join("root")
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn find(&mut self, path: &str) -> Result<FileId, Miss> {
        self.cache.find(path.as_bytes(), &self.clock)
    }

    /// What a plain answer sends.
    fn answer(&mut self, path: &str) -> Vec<u8> {
        let id = self.find(path).unwrap();
        match &**self.cache.dated_edition(id, &self.clock).unwrap() {
            HeapEdition::Memory(lease) => lease.value.to_vec(),
            HeapEdition::Open(_) => panic!("{path} is not in memory"),
        }
    }

    fn edition(&mut self, path: &str) -> Rc<HeapEdition> {
        let id = self.find(path).unwrap();
        Rc::clone(self.cache.dated_edition(id, &self.clock).unwrap())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_file_lies_behind_its_head() {
    let mut f = fixture();
    f.write("a/b.html", "content");
    let answer = text(&f.answer("/a/b.html"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(answer.contains("\r\nContent-Length: 7\r\n"));
    assert!(answer.contains("\r\nDate: Mon, 12 Jan 1970 13:46:40 GMT\r\n"));
    assert!(answer.ends_with("\r\n\r\ncontent"));
    let id = f.find("/a/b.html").unwrap();
    let entry = f.cache.entry(id).unwrap();
    assert_eq!(entry.content_at as usize, answer.len() - 7);
    assert_eq!(entry.head_len as u64, entry.content_at);
}

#[test]
fn the_date_moves_on_in_place_or_in_a_copy() {
    let mut f = fixture_with(16 * MIB, 100, 1000);
    f.write("a", "content");
    f.answer("/a");
    f.clock = Clock::at(1_000_001, 1);
    assert!(text(&f.answer("/a")).contains("13:46:41 GMT"));
    assert_eq!(f.cache.counters().reissues, 0);

    let held = f.edition("/a");
    f.clock = Clock::at(1_000_002, 2);
    assert!(text(&f.answer("/a")).contains("13:46:42 GMT"));
    assert_eq!(f.cache.counters().reissues, 1);
    let HeapEdition::Memory(old) = &*held else {
        panic!()
    };
    assert!(
        text(&old.value).contains("13:46:41 GMT"),
        "what is being sent does not change"
    );
    let both = f.cache.store.alive();
    drop(held);
    assert_eq!(f.cache.store.alive() * 2, both);
    assert_eq!(f.cache.counters().loads, 1);
}

#[test]
fn changes_are_seen_after_the_interval() {
    let mut f = fixture_with(16 * MIB, 100, 5);
    f.write("a", "one");
    assert!(f.answer("/a").ends_with(b"one"));
    f.write("a", "three");
    f.clock = Clock::at(1_000_004, 4);
    assert!(f.answer("/a").ends_with(b"one"));
    f.clock = Clock::at(1_000_005, 5);
    assert!(f.answer("/a").ends_with(b"three"));
    fs::remove_file(f.root().join("a")).unwrap();
    f.clock = Clock::at(1_000_010, 10);
    assert_eq!(f.find("/a"), Err(Miss::NotFound));
    assert!(f.cache.map.is_empty());
}

#[test]
fn directories_have_an_index_or_none() {
    let mut f = fixture();
    f.write("with/index.html", "index");
    fs::create_dir(f.root().join("without")).unwrap();
    f.write("file", "x");
    assert!(f.answer("/with/").ends_with(b"index"));
    assert_eq!(f.find("/with"), Err(Miss::Directory));
    assert_eq!(f.find("/without/"), Err(Miss::Forbidden));
    assert_eq!(f.find("/"), Err(Miss::Forbidden));
    assert_eq!(f.find("/none/"), Err(Miss::NotFound));
    assert_eq!(f.find("/file/"), Err(Miss::NotFound));
    let id = f.find("/with/").unwrap();
    assert_eq!(
        f.cache.entry(id).unwrap().media_type,
        "text/html; charset=utf-8"
    );
}

#[test]
fn nothing_outside_the_root_is_reached() {
    let mut f = fixture();
    let outside = f.dir.path().join("secret");
    fs::write(&outside, "secret").unwrap();
    f.write("in/file", "inside");
    symlink(&outside, f.root().join("absolute")).unwrap();
    symlink("../secret", f.root().join("relative")).unwrap();
    symlink("..", f.root().join("up")).unwrap();
    symlink("/proc/self/root", f.root().join("magic")).unwrap();
    symlink("in/file", f.root().join("good")).unwrap();
    symlink("loop", f.root().join("loop")).unwrap();
    assert!(f.answer("/good").ends_with(b"inside"));
    for path in [
        "/absolute",
        "/relative",
        "/up/secret",
        "/magic/etc/passwd",
        "/loop",
    ] {
        assert_eq!(f.find(path), Err(Miss::Forbidden), "{path}");
    }
}

#[test]
fn a_link_that_turns_outward_is_noticed() {
    let mut f = fixture();
    fs::write(f.dir.path().join("secret"), "secret").unwrap();
    f.write("file", "inside");
    symlink("file", f.root().join("link")).unwrap();
    assert!(f.answer("/link").ends_with(b"inside"));
    fs::remove_file(f.root().join("link")).unwrap();
    symlink("../secret", f.root().join("link")).unwrap();
    f.clock = Clock::at(1_000_001, 1);
    assert_eq!(f.find("/link"), Err(Miss::Forbidden));
}

#[test]
fn special_files_do_not_hang_the_server() {
    let mut f = fixture();
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        f.root().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from(0o600),
        0,
    );
    made.unwrap();
    assert_eq!(f.find("/fifo"), Err(Miss::Forbidden));
    std::os::unix::net::UnixListener::bind(f.root().join("socket")).unwrap();
    assert_eq!(f.find("/socket"), Err(Miss::Forbidden));
}

#[test]
fn memory_is_bounded_and_the_unused_goes_first() {
    let mut f = fixture_with(8 * MIB, 100, 1000);
    for n in 0..20 {
        f.write(&format!("{n}"), vec![n as u8; 900_000]);
    }
    for n in 0..20 {
        f.answer(&format!("/{n}"));
        f.answer("/0");
        assert!(f.cache.store.alive() <= 8 * MIB);
    }
    assert!(f.cache.counters().evictions >= 11);
    let loads = f.cache.counters().loads;
    f.answer("/0");
    f.answer("/19");
    assert_eq!(f.cache.counters().loads, loads, "used ones have stayed");
}

#[test]
fn files_are_bounded_in_number() {
    let mut f = fixture_with(8 * MIB, 10, 1000);
    for n in 0..50 {
        f.write(&format!("{n}"), "x");
        f.answer(&format!("/{n}"));
        assert!(f.cache.map.len() <= 10);
    }
    assert!(f.cache.entries.len() <= 11);
}

#[test]
fn what_has_no_room_is_served_from_its_open_file() {
    let mut f = fixture_with(2 * MIB, 100, 1000);
    f.write("large", vec![0; 2 * MIB as usize]);
    let id = f.find("/large").unwrap();
    assert!(f.cache.dated_edition(id, &Clock::at(5, 5)).is_none());
    let entry = f.cache.entry(id).unwrap();
    assert_eq!(entry.content_at, 0);
    assert!(matches!(&entry.content, Content::Edition(e) if matches!(**e, HeapEdition::Open(_))));

    // Editions that are being sent count, although they are not in the cache any more.
    let mut held = Vec::new();
    for n in 0..40 {
        f.write(&format!("{n}"), vec![1; 200_000]);
        let id = f.find(&format!("/{n}")).unwrap();
        if let Content::Edition(edition) = &f.cache.entry(id).unwrap().content {
            held.push(Rc::clone(edition));
        }
        assert!(f.cache.store.alive() <= 2 * MIB);
    }
    assert!(f.cache.counters().uncached > 1);
}

#[test]
fn names_are_bytes() {
    let mut f = fixture();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(f.root().join(Path::new(name)), "x").unwrap();
    assert!(f.cache.find(b"/caf\xe9", &f.clock).is_ok());
    let long = format!("/{}", "a".repeat(5000));
    assert_eq!(f.find(&long), Err(Miss::NotFound));
}

use std::os::unix::ffi::OsStrExt;
