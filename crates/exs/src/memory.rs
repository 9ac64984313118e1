//! Registered memory.
//!
//! The system's sockets need none: a handle then only says where bytes may lie. The engine reads memory that it shares with the program. So
//! where the preload library is in the process, memory that was shared already (MAP_SHARED | MAP_ANONYMOUS), or may be (EXS_MRF_SHARED), moves to a
//! memfd of its own, at the same addresses, which the engine can have.

use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

use rustix::io::Errno;
use sidecore_sys::memfd::Memfd;

use crate::direct::{self, Direct};
use crate::queue::lock;
use crate::sys::{self, Bytes};

/// What the memory is called in /proc/self/maps.
const NAME: &str = "sidecore-exs";
const OURS: &str = "/memfd:sidecore-exs (deleted)";
const ANONYMOUS: &str = "/dev/zero (deleted)";

/// Memory that the engine can have.
struct Lent {
    range: Range<usize>,
    number: u64,
    direct: Direct,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.direct.take_back(self.number);
    }
}

/// Registered memory. It is in use while there are clones.
pub(crate) struct Registration {
    bytes: Bytes,
    lent: Option<Arc<Lent>>,
}

/// What is lent now, so that nothing is moved away from under it.
static LENT: Mutex<Vec<Weak<Lent>>> = Mutex::new(Vec::new());

impl Registration {
    /// `shared`: it may become shared.
    pub(crate) fn new(bytes: Bytes, shared: bool) -> Self {
        let lent = direct::get().and_then(|direct| lend(direct, bytes, shared).ok());
        Self { bytes, lent }
    }

    /// `FAULT` for bytes that do not lie in it.
    pub(crate) fn check(&self, piece: Bytes) -> Result<(), Errno> {
        let begins = piece.address.checked_sub(self.bytes.address);
        let fits = begins.is_some_and(|skip| {
            skip.checked_add(piece.len)
                .is_some_and(|end| end <= self.bytes.len)
        });
        if fits { Ok(()) } else { Err(Errno::FAULT) }
    }

    /// What the engine calls bytes of it: memory and offset; and how to tell the engine.
    pub(crate) fn lent(&self, piece: Bytes) -> Option<(Direct, u64, u64)> {
        let lent = self.lent.as_ref()?;
        let offset = piece.address.checked_sub(lent.range.start)?;
        Some((lent.direct, lent.number, offset as u64))
    }
}

fn lend(direct: Direct, bytes: Bytes, shared: bool) -> Result<Arc<Lent>, Errno> {
    let page = sys::page();
    let end = bytes.address.checked_add(bytes.len).ok_or(Errno::FAULT)?;
    let range = bytes.address..end.checked_next_multiple_of(page).ok_or(Errno::FAULT)?;
    let mut all = lock(&LENT);
    all.retain(|lent| lent.strong_count() > 0);
    for lent in all.iter().filter_map(Weak::upgrade) {
        if lent.range.start <= range.start && range.end <= lent.range.end {
            return Ok(lent);
        }
        if lent.range.start < range.end && range.start < lent.range.end {
            return Err(Errno::BUSY);
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| Errno::NOSYS)?;
    let whole = bytes.len.is_multiple_of(page);
    let may = |map: &Map<'_>| map.is_shared() || shared && whole && map.is_private();
    if !range.start.is_multiple_of(page) || !covered(&maps, &range, may) {
        return Err(Errno::OPNOTSUPP);
    }
    let len = range.len();
    let make = || -> std::io::Result<Memfd> {
        let memory = Memfd::create(NAME, len as u64, false)?;
        memory.seal_size()?;
        Ok(memory)
    };
    let memory = make().map_err(|_| Errno::NOMEM)?;
    sys::move_to(&memory, range.start, len)?;
    let number = direct.lend(&memory, len).ok_or(Errno::NOMEM)?;
    let lent = Arc::new(Lent {
        range,
        number,
        direct,
    });
    all.push(Arc::downgrade(&lent));
    Ok(lent)
}

/// A line of /proc/self/maps.
#[derive(Debug)]
struct Map<'a> {
    range: Range<usize>,
    rights: &'a str,
    path: &'a str,
}

impl<'a> Map<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        // Addresses, rights, offset, device, inode, and a path that may have blanks in it.
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |hex: &str| usize::from_str_radix(hex, 16).ok();
        Some(Self {
            range: number(start)?..number(end)?,
            rights: words.next()?,
            path: words.nth(3).unwrap_or_default().trim(),
        })
    }

    /// Of nobody but this process and its children.
    fn is_shared(&self) -> bool {
        self.rights == "rw-s" && (self.path == ANONYMOUS || self.path == OURS)
    }

    /// Of this process alone, and neither its heap nor a stack.
    fn is_private(&self) -> bool {
        self.rights == "rw-p" && (self.path.is_empty() || self.path.starts_with("[anon"))
    }
}

/// Whether a range is mapped throughout, so as `may` says.
fn covered(maps: &str, range: &Range<usize>, may: impl Fn(&Map<'_>) -> bool) -> bool {
    let mut at = range.start;
    for map in maps.lines().filter_map(Map::parse) {
        if at < range.end && map.range.contains(&at) {
            if !may(&map) {
                return false;
            }
            at = map.range.end;
        }
    }
    at >= range.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
10000-12000 rw-s 00000000 00:01 7                          /dev/zero (deleted)
12000-13000 rw-s 00000000 00:01 9                          /memfd:sidecore-exs (deleted)
13000-14000 rw-p 00000000 00:00 0
14000-15000 r--p 00000000 00:00 0
16000-17000 rw-p 00000000 00:00 0                          [heap]
17000-18000 rw-s 00000000 08:01 3                          /tmp/a file
";

    #[test]
    fn only_anonymous_memory_is_moved() {
        let shared = |range: Range<usize>| covered(MAPS, &range, |map| map.is_shared());
        assert!(shared(0x10000..0x13000));
        assert!(shared(0x11000..0x12000));
        assert!(!shared(0x12000..0x14000), "private");
        assert!(!shared(0x17000..0x18000), "a file");
        assert!(!shared(0x15000..0x16000), "nothing there");
        let private = |range: Range<usize>| covered(MAPS, &range, |map| map.is_private());
        assert!(private(0x13000..0x14000));
        assert!(!private(0x13000..0x15000), "not writable");
        assert!(!private(0x16000..0x17000), "the heap");
    }

    #[test]
    fn bytes_must_lie_in_it() {
        let at = |address, len| Bytes { address, len };
        let memory = Registration::new(at(1000, 100), false);
        assert_eq!(memory.check(at(1000, 100)), Ok(()));
        assert_eq!(memory.check(at(1099, 1)), Ok(()));
        for (address, len) in [(999, 1), (1099, 2), (1000, 101), (1050, usize::MAX), (0, 0)] {
            assert_eq!(memory.check(at(address, len)), Err(Errno::FAULT));
        }
        assert!(
            memory.lent(at(1000, 1)).is_none(),
            "nothing of the engine's is here"
        );
    }
}
