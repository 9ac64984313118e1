//! UNIX sockets of type SEQPACKET: one message a packet, descriptors beside it, an end of file when the other side dies.

mod closing;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::descriptors::place;

pub use closing::{close_aside, closers_are_stuck};

/// Descriptors that one message carries at most. The most are asked for at a time by programs that accept one connection after the other.
pub const FDS_MAX: usize = 32;

/// Descriptors that a message carries at most where it may be a stranger's: see [`Stream::recv_with_fds`].
pub const FDS_FEW: usize = 4;

/// Mode of a listener's socket file when nothing else is said: its user and group may connect.
pub const DEFAULT_MODE: u32 = 0o660;

/// A listening socket; its file is removed on drop.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of our file, so that a successor's is left alone.
    file: Option<(u64, u64)>,
}

/// A connected socket.
#[derive(Debug)]
pub struct Stream(OwnedFd);

/// Who sits at the other end, as the kernel knows since connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Process (in our pid namespace; 0 when it has no number there).
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

impl Listener {
    /// Listens at a path with [`DEFAULT_MODE`]. See [`Listener::bind_with_mode`].
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bind_with_mode(path, DEFAULT_MODE)
    }

    /// Listens at a path. The socket file that a dead process left is replaced; where a live one listens: `AddrInUse`. Anything that is not a
    /// socket is left alone. Nobody can connect before the mode is set.
    ///
    /// The file appears when there is somebody who listens, so that who waits for it is not refused, and nobody takes it for a dead one's: it is
    /// bound under a name beside it, which is what `ss -x` shows of it.
    pub fn bind_with_mode(path: impl AsRef<Path>, mode: u32) -> io::Result<Self> {
        let path = path.as_ref();
        let named = |error: io::Error| crate::context(path.display(), error);
        let fd = socket().map_err(named)?;
        let address = SocketAddrUnix::new(path).map_err(|e| named(e.into()))?;
        let beside = beside(path);
        match SocketAddrUnix::new(&beside) {
            Ok(unseen) => {
                let _ = std::fs::remove_file(&beside);
                let ready =
                    listen_at(&fd, &unseen, &beside, mode).and_then(|()| show(&beside, path));
                let _ = std::fs::remove_file(&beside);
                ready
            }
            // No room for a longer name.
            Err(_) => remove_if_dead(path).and_then(|()| listen_at(&fd, &address, path, mode)),
        }
        .map_err(named)?;
        let file = std::fs::symlink_metadata(path)
            .ok()
            .map(|meta| (meta.dev(), meta.ino()));
        Ok(Self {
            fd,
            path: path.to_owned(),
            file,
        })
    }

    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<Stream> {
        loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC) {
                Ok(fd) => return Ok(Stream(fd)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether [`Listener::accept`] waits (true at first) or fails with `WouldBlock`.
    pub fn set_blocking(&self, blocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.fd, !blocking)?)
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path)
            .ok()
            .map(|meta| (meta.dev(), meta.ino()));
        if now.is_some() && now == self.file {
            // A failure leaves a dead socket file, which the next bind replaces.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

fn remove_if_dead(path: &Path) -> io::Result<()> {
    let in_use = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.file_type().is_socket() => {
            return in_use("there is a file that is not a socket");
        }
        Ok(_) => {}
    }
    let probe = socket()?;
    rustix::io::ioctl_fionbio(&probe, true)?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        _ => in_use("another process listens there"),
    }
}

/// A name beside a socket's, which no other process and no other listener of this one has.
fn beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{process}.{number}"));
    name.into()
}

fn listen_at(fd: &OwnedFd, address: &SocketAddrUnix, path: &Path, mode: u32) -> io::Result<()> {
    rustix::net::bind(fd, address)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(rustix::net::listen(fd, 128)?)
}

/// Gives a socket that is listened at its name, unless another lives there.
fn show(beside: &Path, path: &Path) -> io::Result<()> {
    let taken = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    match std::fs::hard_link(beside, path) {
        Err(error) if taken(&error) => {
            remove_if_dead(path)?;
            std::fs::hard_link(beside, path).map_err(|error| match taken(&error) {
                true => io::Error::new(io::ErrorKind::AddrInUse, "another process came first"),
                false => error,
            })
        }
        linked => linked,
    }
}

impl Stream {
    /// Connects. `ConnectionRefused`: nobody listens; `NotFound`: no such path.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let named = |error: io::Error| crate::context(path.display(), error);
        let fd = place(socket().map_err(named)?);
        let address = SocketAddrUnix::new(path).map_err(|e| named(e.into()))?;
        rustix::net::connect(&fd, &address).map_err(|e| named(e.into()))?;
        Ok(Self(fd))
    }

    /// Two ends joined.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(a), Self(b)))
    }

    /// Sends one message with at most [`FDS_MAX`] descriptors. Waits for room if the socket blocks. `BrokenPipe` when the other end is closed.
    pub fn send_with_fds(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(message, fds, SendFlags::NOSIGNAL)
    }

    /// The same without ever waiting: `WouldBlock` when the other end does not read. For a sender that serves many.
    pub fn try_send_with_fds(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(message, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if fds.len() > FDS_MAX
            || !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds))
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "too many descriptors for one message",
            ));
        }
        loop {
            match rustix::net::sendmsg(&self.0, &[IoSlice::new(message)], &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives one message, and its descriptors (close-on-exec). 0 bytes: the other end is closed (empty messages are not sent here).
    ///
    /// A message that does not fit, or carries more than [`FDS_FEW`] descriptors, is `InvalidData`; all its descriptors are closed, by threads that do
    /// nothing else ([`close_aside`]). So is any message with descriptors while [`closers_are_stuck`]. One with more than this process has numbers left
    /// for is EMFILE, and closed likewise.
    pub fn recv_with_fds(&self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_FEW))];
        self.recv(buffer, &mut space, FDS_FEW, true)
    }

    /// The same from one who is trusted, such as the agent: up to [`FDS_MAX`] descriptors, and what is too many, or has no number, is closed here and
    /// now, as it makes no calling thread wait; no other thread is needed, and the numbers are free when this returns.
    pub fn recv_with_many_fds(&self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        self.recv(buffer, &mut space, FDS_MAX, false)
    }

    /// One message with at most `most` descriptors, for which there is `space`; others are closed `aside`, or at once.
    fn recv(
        &self,
        buffer: &mut [u8],
        space: &mut [MaybeUninit<u8>],
        most: usize,
        aside: bool,
    ) -> io::Result<(usize, Vec<OwnedFd>)> {
        // Without space the kernel drops descriptors itself, and asks nobody.
        let stuck = aside && closers_are_stuck();
        let space = if stuck { &mut space[..0] } else { space };
        let mut control = RecvAncillaryBuffer::new(space);
        let received = loop {
            let mut io = [IoSliceMut::new(&mut *buffer)];
            match rustix::net::recvmsg(&self.0, &mut io, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        if received.flags.intersects(cut) || fds.len() > most {
            // The system leaves out what there is no number for, as it does what there is no space for.
            let no_number =
                !stuck && fds.len() < most && !received.flags.contains(ReturnFlags::TRUNC);
            match aside {
                true => close_aside(fds),
                false => drop(fds),
            }
            if no_number {
                return Err(Errno::MFILE.into());
            }
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message that is too long or carries too many descriptors",
            ));
        }
        Ok((received.bytes, fds.into_iter().map(place).collect()))
    }

    /// Whether calls wait (true at first) or fail with `WouldBlock`.
    pub fn set_blocking(&self, blocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.0, !blocking)?)
    }

    /// Waits until a message, or the end, can be read (true) or time is up (false).
    pub fn wait_readable(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|t| rustix::time::Timespec {
            tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: t.subsec_nanos() as i64,
        });
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(n) => Ok(n > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Who sits at the other end.
    pub fn peer_credentials(&self) -> io::Result<Credentials> {
        let mut raw = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = size_of_val(&raw) as libc::socklen_t;
        // SAFETY: `raw` and `len` live over the call and `len` is the size of `raw`.
        crate::check(unsafe {
            use std::os::fd::AsRawFd;
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut raw).cast(),
                &raw mut len,
            )
        })?;
        Ok(Credentials {
            pid: raw.pid.max(0) as u32,
            uid: raw.uid,
            gid: raw.gid,
        })
    }

    /// The descriptor itself.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Stream {
    /// A connected SEQPACKET socket that came from elsewhere.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn who_waits_for_the_file_is_not_refused_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..100 {
            let path = folder.path().join(format!("socket{n}"));
            std::thread::scope(|scope| {
                let listener = scope.spawn(|| Listener::bind(&path).unwrap());
                while !path.exists() {
                    std::hint::spin_loop();
                }
                Stream::connect(&path).expect("who is there listens");
                listener.join().unwrap();
            });
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_path_with_no_room_for_a_longer_one_is_bound_directly() {
        let folder = tempfile::tempdir().unwrap();
        let room = 107 - folder.path().as_os_str().len() - 1;
        let path = folder.path().join("s".repeat(room));
        let listener = Listener::bind(&path).unwrap();
        Stream::connect(&path).unwrap();
        let second = Listener::bind(&path).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        Listener::bind(&path).unwrap();
    }

    #[test]
    fn descriptors_travel_and_excess_is_refused() {
        let (a, b) = Stream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"hello").unwrap();
        a.send_with_fds(b"take", &[file.as_fd(), a.as_fd()])
            .unwrap();
        let mut buffer = [0u8; 16];
        let (n, mut fds) = b.recv_with_fds(&mut buffer).unwrap();
        assert_eq!((&buffer[..n], fds.len()), (&b"take"[..], 2));
        assert!(
            rustix::io::fcntl_getfd(&fds[0])
                .unwrap()
                .contains(rustix::io::FdFlags::CLOEXEC)
        );
        let mut same = std::fs::File::from(fds.remove(0));
        same.rewind().unwrap();
        let mut text = String::new();
        same.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");

        let many = [file.as_fd(); FDS_MAX + 1];
        assert!(a.send_with_fds(b"x", &many).is_err());
        a.send_with_fds(&[0; 17], &many[..1]).unwrap();
        let error = b.recv_with_fds(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "cut message");
        drop((a, fds));
        assert_eq!(b.recv_with_fds(&mut buffer).unwrap().0, 0, "end of file");
        let error = b.send_with_fds(b"x", &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn more_descriptors_than_fit_are_an_error() {
        let (a, b) = Stream::pair().unwrap();
        // The kernel rounds space for control messages up, by one descriptor.
        const MORE: usize = FDS_MAX + 5;
        let fds = [a.as_fd(); MORE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MORE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        rustix::net::sendmsg(&a, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        let error = b.recv_with_many_fds(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);

        // A stranger's: fewer.
        for (sent, fits) in [(FDS_FEW, true), (FDS_FEW + 2, false), (FDS_MAX, false)] {
            a.send_with_fds(b"x", &fds[..sent]).unwrap();
            let received = b.recv_with_fds(&mut [0; 8]);
            assert_eq!(received.is_ok_and(|(_, fds)| fds.len() == sent), fits);
            a.send_with_fds(b"x", &fds[..sent]).unwrap();
            let received = b.recv_with_many_fds(&mut [0; 8]).unwrap();
            assert_eq!(received.1.len(), sent);
        }
    }

    #[test]
    fn a_sender_that_must_not_wait_does_not() {
        let (a, b) = Stream::pair().unwrap();
        let error = loop {
            if let Err(error) = a.try_send_with_fds(&[0; 4096], &[]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(b.wait_readable(Some(Duration::ZERO)).unwrap());
    }

    #[test]
    fn stale_sockets_are_replaced_and_live_ones_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = Listener::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, DEFAULT_MODE);
        let error = Listener::bind(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        let client = Stream::connect(&path).unwrap();
        drop(first.accept().unwrap()); // The second bind's question whether anybody listens.
        let server = first.accept().unwrap();
        let credentials = server.peer_credentials().unwrap();
        assert_eq!(credentials.pid, std::process::id());
        client.send_with_fds(b"hi", &[]).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(server.recv_with_fds(&mut buffer).unwrap().0, 2);
        drop(first);
        assert!(!path.exists());

        // A process that died without cleaning up.
        let dead = socket().unwrap();
        rustix::net::bind(&dead, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        drop(dead);
        assert!(path.exists());
        drop(Listener::bind(&path).unwrap());

        std::fs::write(&path, "precious").unwrap();
        let error = Listener::bind(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        let gone = Stream::connect(dir.path().join("none")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
