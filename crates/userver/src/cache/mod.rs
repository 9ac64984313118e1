//! The file cache: paths to files as they are sent.
//!
//! A file is kept as an *edition*, which the back-end's [`Store`] makes: the head of the plain `200 OK` answer with the content
//! right behind it, so that both go out in one piece; or an open file. Sends hold their edition by an [`Rc`]. An edition that is
//! held is never written to: when its Date is out of date it is copied, and the old one goes when its last send is done. So
//! memory that the kernel or the engine still reads never changes, and a hot small file costs one copy a second.
//!
//! Files are checked (`stat`) when they are asked for and were not checked in the last interval, and read again when they changed.
//! Memory is bounded by the store, the number of files by [`CacheConfig::files`]; what was not asked for lately goes first (the
//! clock algorithm). What finds no room is served from its open file.

pub mod arena;
pub mod budget;
pub mod heap;
pub mod load;

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::clock::Clock;
use crate::encrypt::Encryption;
use crate::http::condition::{DATE_LEN, Validators};
use crate::http::head::DATE_AT;

pub use load::Miss;

/// Why a file was not taken in.
#[derive(Debug)]
pub enum AdmitError {
    /// No memory for it now.
    NoRoom,
    /// It will never fit.
    TooLarge,
    /// It could not be read.
    Io(io::Error),
}

impl From<io::Error> for AdmitError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How a back-end keeps files. One thread uses it.
pub trait Store {
    /// A file as it is sent.
    type Edition;

    /// Takes in a file of `len` bytes, behind the head of its plain answer. Blocks while the file is read.
    fn admit(&mut self, head: &[u8], file: &File, len: u64) -> Result<Self::Edition, AdmitError>;

    /// An edition that is only the open file.
    fn open(&mut self, file: File) -> Self::Edition;

    /// Whether the edition starts with its head. An edition that is an open file does not, and counts from the file's first byte.
    fn carries_head(edition: &Self::Edition) -> bool;

    /// Writes `date` at byte `at` of an edition that no plan holds; false when something else still reads it.
    fn set_date(&mut self, edition: &mut Self::Edition, at: usize, date: &[u8; DATE_LEN]) -> bool;

    /// A copy with another date; `None` when that is too much work or memory.
    fn reissue(
        &mut self,
        edition: &Self::Edition,
        at: usize,
        date: &[u8; DATE_LEN],
    ) -> Option<Self::Edition>;
}

/// What identifies a version of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, u64),
}

/// What a file is sent as.
#[derive(Debug)]
pub enum Content<E> {
    /// As it is.
    Edition(Rc<E>),
    /// Encrypted anew for every answer; these are the plain bytes.
    Secret(Box<[u8]>),
}

/// A cached file.
#[derive(Debug)]
pub struct Entry<E> {
    key: Rc<[u8]>,
    disk: CString,
    identity: Identity,
    /// What is sent.
    pub content: Content<E>,
    /// Bytes of the head of the plain answer.
    pub head_len: usize,
    /// First byte of the content in the edition's own count: the length of the head, if it carries it.
    pub content_at: u64,
    /// Bytes of the file.
    pub len: u64,
    /// Content-Type.
    pub media_type: &'static str,
    /// Last-Modified and ETag, as lines of a head.
    pub validator_lines: Box<[u8]>,
    etag: Box<[u8]>,
    modified: u64,
    dated: u64,
    checked: u64,
    used: bool,
}

impl<E> Entry<E> {
    /// What conditions are compared with.
    pub fn validators(&self) -> Validators<'_> {
        Validators {
            etag: &self.etag,
            modified: self.modified,
        }
    }
}

/// A file's place in the cache; good until the next [`Cache::find`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId(usize);

/// Limits.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Files at most.
    pub files: usize,
    /// Seconds for which a file is believed to be unchanged; 0: checked at every request.
    pub recheck: u64,
    /// Names tried for a path that ends in a slash.
    pub index: Vec<String>,
}

/// Counts of what the cache did.
#[derive(Clone, Copy, Default, Debug)]
pub struct CacheCounters {
    /// Found, and believed or checked.
    pub hits: u64,
    /// Read from disk, for the first time or again.
    pub loads: u64,
    /// Thrown out for room.
    pub evictions: u64,
    /// Served from the open file for want of room.
    pub uncached: u64,
    /// Copied for a new Date while an older copy was being sent.
    pub reissues: u64,
}

/// The cache of one worker.
pub struct Cache<S: Store> {
    root: OwnedFd,
    config: CacheConfig,
    encryption: Option<Encryption>,
    /// Where editions live.
    pub store: S,
    map: HashMap<Rc<[u8]>, usize>,
    entries: Vec<Option<Entry<S::Edition>>>,
    vacant: Vec<usize>,
    hand: usize,
    counters: CacheCounters,
}

impl<S: Store> Cache<S> {
    /// An empty cache of the files beneath `root`, an open directory.
    pub fn new(
        root: OwnedFd,
        config: CacheConfig,
        encryption: Option<Encryption>,
        store: S,
    ) -> Self {
        Self {
            root,
            config,
            encryption,
            store,
            map: HashMap::new(),
            entries: Vec::new(),
            vacant: Vec::new(),
            hand: 0,
            counters: CacheCounters::default(),
        }
    }

    /// Counts so far.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// The file that a canonical path names, read if need be. A hit costs one look-up; once an interval, a `stat`.
    pub fn find(&mut self, path: &[u8], clock: &Clock) -> Result<FileId, Miss> {
        let Some(id) = self.map.get(path).copied() else {
            return self.load(path, clock);
        };
        let Some(entry) = self.entries.get_mut(id).and_then(Option::as_mut) else {
            return self.load(path, clock);
        };
        let age = clock.second.wrapping_sub(entry.checked);
        if age >= self.config.recheck {
            if load::identity_at(&self.root, &entry.disk) != Some(entry.identity) {
                self.remove(id);
                return self.load(path, clock);
            }
            entry.checked = clock.second;
        }
        entry.used = true;
        self.counters.hits += 1;
        Ok(FileId(id))
    }

    /// The file; `None` after it was thrown out.
    pub fn entry(&self, id: FileId) -> Option<&Entry<S::Edition>> {
        self.entries.get(id.0)?.as_ref()
    }

    /// The file, and how it is encrypted.
    pub fn entry_and_encryption(&self, id: FileId) -> Option<(&Entry<S::Edition>, &Encryption)> {
        self.entry(id).zip(self.encryption.as_ref())
    }

    /// How encrypted files are encrypted.
    pub fn encryption(&mut self) -> Option<&mut Encryption> {
        self.encryption.as_mut()
    }

    /// The file's edition with a head that is dated now; `None` when it carries no head or none can be had now.
    pub fn dated_edition(&mut self, id: FileId, clock: &Clock) -> Option<&Rc<S::Edition>> {
        let entry = self.entries.get_mut(id.0)?.as_mut()?;
        let Content::Edition(edition) = &mut entry.content else {
            return None;
        };
        if !S::carries_head(edition) {
            return None;
        }
        if entry.dated != clock.second {
            let in_place = Rc::get_mut(edition)
                .is_some_and(|unheld| self.store.set_date(unheld, DATE_AT, &clock.date));
            if !in_place {
                let copy = self.store.reissue(edition, DATE_AT, &clock.date)?;
                *edition = Rc::new(copy);
                self.counters.reissues += 1;
            }
            entry.dated = clock.second;
        }
        Some(edition)
    }

    fn insert(&mut self, entry: Entry<S::Edition>) -> FileId {
        while self.map.len() >= self.config.files.max(1) && self.evict() {}
        let key = Rc::clone(&entry.key);
        let id = match self.vacant.pop() {
            Some(id) => {
                self.entries[id] = Some(entry);
                id
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() - 1
            }
        };
        self.map.insert(key, id);
        FileId(id)
    }

    fn remove(&mut self, id: usize) {
        if let Some(entry) = self.entries.get_mut(id).and_then(Option::take) {
            self.map.remove(&entry.key);
            self.vacant.push(id);
        }
    }

    /// Throws one file out; false when there is none.
    fn evict(&mut self) -> bool {
        // Two rounds: the first may only take marks away.
        for _ in 0..2 * self.entries.len() {
            let id = self.hand % self.entries.len();
            self.hand = id + 1;
            match self.entries[id].as_mut() {
                Some(entry) if entry.used => entry.used = false,
                Some(_) => {
                    self.remove(id);
                    self.counters.evictions += 1;
                    return true;
                }
                None => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
