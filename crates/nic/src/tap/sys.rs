//! The driver's `unsafe` code: its pages, and the gathering write.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::frame::MemRef;

/// The most pieces of payload in one write.
pub(super) const FRAGMENTS_MAX: usize = 64;

/// Anonymous zeroed memory, on huge pages where the kernel has them.
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, like a `Box<[u8]>`.
unsafe impl Send for Pages {}

impl Pages {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new private mapping at a place that the kernel chooses touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: advice about our own mapping; it does not change what the memory holds. Refusal does no harm.
        unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialised (zeroed) bytes from `start` are ours for as long as `self` lives; writers need
        // `&mut self`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` excludes any other reference.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Writes one frame: `head` (the virtio-net header and the frame's own headers), then the payload's pieces. At most
/// [`FRAGMENTS_MAX`] pieces; more are an error. Gives the number of bytes written.
pub(super) fn write_frame(
    fd: BorrowedFd<'_>,
    head: &[u8],
    payload: &[MemRef<'_>],
) -> io::Result<usize> {
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; FRAGMENTS_MAX + 1];
    if payload.len() > FRAGMENTS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let all = core::iter::once((head.as_ptr(), head.len()))
        .chain(payload.iter().map(|piece| (piece.as_ptr(), piece.len())));
    for (slot, (start, len)) in pieces.iter_mut().zip(all) {
        slot.write(libc::iovec {
            iov_base: start.cast_mut().cast(),
            iov_len: len,
        });
    }
    // SAFETY: the first `1 + payload.len()` entries were written above. Each names memory that its borrow keeps
    // mapped for the call; the kernel only reads it, and copes with its changing meanwhile.
    let written = unsafe {
        libc::writev(
            fd.as_raw_fd(),
            pieces.as_ptr().cast(),
            (1 + payload.len()) as libc::c_int,
        )
    };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// A step of making the device that failed.
pub(super) struct Failed(pub(super) &'static str, pub(super) io::Error);

impl From<io::Error> for Failed {
    fn from(source: io::Error) -> Self {
        Self("enter the namespace", source)
    }
}

fn step(what: &'static str, result: libc::c_int) -> Result<(), Failed> {
    if result < 0 {
        Err(Failed(what, io::Error::last_os_error()))
    } else {
        Ok(())
    }
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: an all-zero ifreq is a valid value of that plain structure.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request
}

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const OFFLOADS: libc::c_ulong = 0x01 | 0x02 | 0x04 | 0x08;

/// Makes and configures the device in the caller's namespace.
pub(super) fn create(config: &super::TapConfig) -> Result<OwnedFd, Failed> {
    let fd: OwnedFd = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(|e| Failed("open", e))?
        .into();
    let raw = fd.as_raw_fd();
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if config.napi {
        flags |= libc::IFF_NAPI;
    }
    let mut req = request(&config.name);
    req.ifr_ifru.ifru_flags = flags as libc::c_short;
    let header = super::vnet::LEN as libc::c_int;
    let offloads = if config.offload { OFFLOADS } else { 0 };
    // SAFETY: each ioctl gets what it asks for: an ifreq, a pointer to an int, a number.
    unsafe {
        step("create", libc::ioctl(raw, TUNSETIFF, &raw mut req))?;
        step(
            "header size",
            libc::ioctl(raw, TUNSETVNETHDRSZ, &raw const header),
        )?;
        step("offload", libc::ioctl(raw, TUNSETOFFLOAD, offloads))?;
    }
    for (address, prefix) in &config.host_addresses {
        match address {
            IpAddr::V4(address) => set_v4(&config.name, *address, *prefix)?,
            IpAddr::V6(address) => set_v6(&config.name, *address, *prefix)?,
        }
    }
    let socket = control(libc::AF_INET)?;
    let socket = socket.as_raw_fd();
    // SAFETY: each ioctl gets an ifreq.
    unsafe {
        let mut req = request(&config.name);
        req.ifr_ifru.ifru_mtu = config.mtu.into();
        step("mtu", libc::ioctl(socket, libc::SIOCSIFMTU, &raw mut req))?;
        req.ifr_ifru.ifru_mtu = config.queue_len as libc::c_int;
        step(
            "queue length",
            libc::ioctl(socket, libc::SIOCSIFTXQLEN, &raw mut req),
        )?;
        req.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        step("up", libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw mut req))?;
    }
    Ok(fd)
}

fn control(family: libc::c_int) -> Result<OwnedFd, Failed> {
    // SAFETY: makes a descriptor, which is ours.
    unsafe {
        let fd = libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        step("socket", fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn set_v4(name: &str, address: core::net::Ipv4Addr, prefix: u8) -> Result<(), Failed> {
    let socket = control(libc::AF_INET)?;
    let mask = (u64::from(u32::MAX) << (32 - prefix)) as u32;
    for (what, code, value) in [
        ("address", libc::SIOCSIFADDR, u32::from(address)),
        ("netmask", libc::SIOCSIFNETMASK, mask),
    ] {
        let mut req = request(name);
        let mut sin: libc::sockaddr_in = libc::sockaddr_in {
            sin_family: libc::AF_INET as _,
            sin_port: 0,
            sin_addr: libc::in_addr {
                s_addr: value.to_be(),
            },
            sin_zero: [0; 8],
        };
        // SAFETY: a sockaddr_in is as large as the sockaddr of the union; the ioctl gets an ifreq.
        unsafe {
            req.ifr_ifru.ifru_addr = *(&raw mut sin).cast::<libc::sockaddr>();
            step(what, libc::ioctl(socket.as_raw_fd(), code, &raw mut req))?;
        }
    }
    Ok(())
}

fn set_v6(name: &str, address: core::net::Ipv6Addr, prefix: u8) -> Result<(), Failed> {
    let socket = control(libc::AF_INET6)?;
    let mut req = request(name);
    // SAFETY: the ioctls get an ifreq and an in6_ifreq.
    unsafe {
        step(
            "index",
            libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut req),
        )?;
        let mut req6 = libc::in6_ifreq {
            ifr6_addr: libc::in6_addr {
                s6_addr: address.octets(),
            },
            ifr6_prefixlen: prefix.into(),
            ifr6_ifindex: req.ifr_ifru.ifru_ifindex,
        };
        step(
            "address",
            libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR, &raw mut req6),
        )
    }
}
