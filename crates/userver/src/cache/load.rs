//! Reading files beneath the root.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::{AdmitError, Cache, Content, Entry, FileId, Identity, Store};
use crate::clock::Clock;
use crate::http::condition::http_date;
use crate::http::head::{HeadWriter, put_hex};
use crate::http::media_type;
use crate::http::status::Status;

/// Why a path has no file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// There is none: 404.
    NotFound,
    /// It may not be read, leads out of the root, is a directory without an index, or no regular file: 403.
    Forbidden,
    /// It is a directory, asked for without its slash: 301.
    Directory,
    /// Descriptors or memory have run out: 503.
    Unavailable,
    /// The disk failed: 500.
    Failed,
}

impl Miss {
    fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Self::NotFound,
            // XDEV: the path leaves the root (RESOLVE_BENEATH); NXIO: a socket or FIFO.
            Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::XDEV | Errno::NXIO => {
                Self::Forbidden
            }
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

fn identity(stat: &Stat) -> Identity {
    Identity {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size.max(0) as u64,
        modified: (stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// What lies at a path now; only compared, never trusted to lie beneath the root.
pub(super) fn identity_at(root: &OwnedFd, path: &CStr) -> Option<Identity> {
    let stat = rustix::fs::statat(root, path, AtFlags::empty()).ok()?;
    Some(identity(&stat))
}

/// Opens a directory to serve from.
pub fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

// Non-blocking, so that a FIFO does not hang the worker; regular files do not care.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Opens what a path names, if it lies beneath the root with all its symbolic links.
fn open_beneath(root: &OwnedFd, path: &CStr) -> Result<(OwnedFd, Stat), Miss> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    let fd = loop {
        match rustix::fs::openat2(root, path, OPEN, Mode::empty(), resolve) {
            // A rename raced with the walk; the kernel asks to try again.
            Err(Errno::AGAIN) if tries < 3 => tries += 1,
            // A sandbox or an instrumented run without this call.
            Err(Errno::NOSYS) => break open_stepwise(root, path.to_bytes()),
            other => break other,
        }
    }
    .map_err(Miss::from_errno)?;
    let stat = rustix::fs::fstat(&fd).map_err(Miss::from_errno)?;
    Ok((fd, stat))
}

/// The same where the kernel cannot check the whole path: name by name, and no symbolic link at all.
fn open_stepwise(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory: Option<OwnedFd> = None;
    let mut names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .peekable();
    while let Some(name) = names.next() {
        if name == b".." {
            return Err(Errno::XDEV);
        }
        let flags = if names.peek().is_some() {
            step
        } else {
            OPEN | OFlags::NOFOLLOW
        };
        let at = directory.as_ref().unwrap_or(root);
        directory = Some(rustix::fs::openat(at, name, flags, Mode::empty())?);
    }
    directory.ok_or(Errno::NOENT)
}

impl<S: Store> Cache<S> {
    /// Reads what a canonical path names and keeps it.
    pub(super) fn load(&mut self, path: &[u8], clock: &Clock) -> Result<FileId, Miss> {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        if path.last() != Some(&b'/') {
            return self.load_file(path, relative, clock);
        }
        for index in 0..self.config.index.len() {
            let name = self.config.index[index].as_bytes();
            let below = [relative, name].concat();
            match self.load_file(path, &below, clock) {
                Err(Miss::NotFound) => {}
                Err(Miss::Directory) => return Err(Miss::Forbidden),
                other => return other,
            }
        }
        let directory = if relative.is_empty() { b"." } else { relative };
        let directory = CString::new(directory).map_err(|_| Miss::NotFound)?;
        match open_beneath(&self.root, &directory) {
            Ok((_, stat)) if file_type(&stat) == FileType::Directory => Err(Miss::Forbidden),
            Ok(_) => Err(Miss::NotFound),
            Err(miss) => Err(miss),
        }
    }

    fn load_file(&mut self, key: &[u8], relative: &[u8], clock: &Clock) -> Result<FileId, Miss> {
        let disk = CString::new(relative).map_err(|_| Miss::NotFound)?;
        let (fd, stat) = match open_beneath(&self.root, &disk) {
            // Cached editions may hold the descriptors; give some back.
            Err(Miss::Unavailable) if self.evict() => open_beneath(&self.root, &disk)?,
            other => other?,
        };
        match file_type(&stat) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Miss::Directory),
            _ => return Err(Miss::Forbidden),
        }
        let identity = identity(&stat);
        let modified = stat.st_mtime.max(0) as u64;
        let etag = etag(&identity);
        let mut entry = Entry {
            key: Rc::from(key),
            content: Content::Secret(Box::default()),
            head_len: 0,
            content_at: 0,
            len: identity.size,
            media_type: media_type::of(Path::new(OsStr::from_bytes(relative))),
            validator_lines: validator_lines(modified, &etag),
            etag,
            modified,
            dated: clock.second,
            checked: clock.second,
            used: true,
            disk,
            identity,
        };
        let head = plain_head(&entry, clock);
        entry.head_len = head.len();
        let file = File::from(fd);
        entry.content = self.content(key, &head, file, &mut entry.checked, identity)?;
        if let Content::Edition(edition) = &entry.content
            && S::carries_head(edition)
        {
            entry.content_at = head.len() as u64;
        }
        self.counters.loads += 1;
        Ok(self.insert(entry))
    }

    fn content(
        &mut self,
        key: &[u8],
        head: &[u8],
        file: File,
        checked: &mut u64,
        identity: Identity,
    ) -> Result<Content<S::Edition>, Miss> {
        let len = identity.size;
        if self
            .encryption
            .as_ref()
            .is_some_and(|encryption| encryption.applies(key, len))
        {
            let mut plain = vec![0; len as usize].into_boxed_slice();
            file.read_exact_at(&mut plain, 0)
                .map_err(|_| Miss::Failed)?;
            return Ok(Content::Secret(plain));
        }
        let edition = loop {
            match self.store.admit(head, &file, len) {
                Ok(edition) => break edition,
                Err(AdmitError::NoRoom) if self.evict() => {}
                Err(AdmitError::NoRoom | AdmitError::TooLarge) => {
                    self.counters.uncached += 1;
                    return Ok(Content::Edition(Rc::new(self.store.open(file))));
                }
                Err(AdmitError::Io(_)) => return Err(Miss::Failed),
            }
        };
        // Changed while it was read: what was read may be a mixture, so it is checked again at the next request.
        let now = rustix::fs::fstat(file.as_fd()).map_err(Miss::from_errno)?;
        if self::identity(&now) != identity {
            *checked = 0;
        }
        Ok(Content::Edition(Rc::new(edition)))
    }
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Strong: another size or time, to the nanosecond, is another tag.
fn etag(identity: &Identity) -> Box<[u8]> {
    let mut etag = vec![b'"'];
    put_hex(&mut etag, identity.modified.0 as u64);
    etag.push(b'.');
    put_hex(&mut etag, identity.modified.1);
    etag.push(b'-');
    put_hex(&mut etag, identity.size);
    etag.push(b'"');
    etag.into_boxed_slice()
}

fn validator_lines(modified: u64, etag: &[u8]) -> Box<[u8]> {
    [
        b"Last-Modified: ".as_slice(),
        &http_date(modified),
        b"\r\nETag: ",
        etag,
        b"\r\n",
    ]
    .concat()
    .into_boxed_slice()
}

/// The head of the answer to a plain GET with HTTP/1.1 and keep-alive: by far the most common one.
fn plain_head<E>(entry: &Entry<E>, clock: &Clock) -> Vec<u8> {
    let mut head = Vec::with_capacity(320);
    HeadWriter::new(&mut head, Status::OK, &clock.date)
        .field("Content-Type", entry.media_type.as_bytes())
        .content_length(entry.len)
        .lines(&entry.validator_lines)
        .field("Accept-Ranges", b"bytes")
        .end();
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    #[test]
    fn stepping_reaches_files_and_follows_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/a/b")).unwrap();
        std::fs::write(dir.path().join("root/a/b/file"), "inside").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        symlink("..", dir.path().join("root/a/up")).unwrap();
        symlink("b/file", dir.path().join("root/a/link")).unwrap();
        let root = open_root(&dir.path().join("root")).unwrap();
        let fd = open_stepwise(&root, b"a/b/file").unwrap();
        let mut text = String::new();
        File::from(fd).read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
        assert!(open_stepwise(&root, b".").is_ok());
        for path in [
            b"a/up/a/b/file".as_slice(),
            b"a/link",
            b"../secret",
            b"a/none",
            b"a/b/file/x",
            b"",
        ] {
            assert!(open_stepwise(&root, path).is_err(), "{path:?}");
        }
    }
}
