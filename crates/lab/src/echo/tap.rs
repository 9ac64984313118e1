//! A TAP device for servers that do their own frame I/O: every frame with its virtio-net header, one call a frame.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sidecore_nic::Nic;
use sidecore_nic::tap::{Tap, TapConfig};

/// Bytes of the virtio-net header that stands before every frame.
pub const VNET: usize = 10;

/// A header that leaves the TCP checksum of an IPv4 frame without options to the receiver.
pub const CHECKSUM_LEFT: [u8; VNET] = {
    let start = 34u16.to_ne_bytes();
    let offset = 16u16.to_ne_bytes();
    [1, 0, 0, 0, 0, 0, start[0], start[1], offset[0], offset[1]]
};

/// The largest frame with its header.
pub const MAX_FRAME: usize = VNET + 14 + 65_535;

/// A TAP device between the kernel of a namespace and a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapSpec {
    /// Interface name.
    pub name: String,
    /// Namespace of the kernel's side; none: ours.
    pub netns: Option<String>,
    /// Address of the kernel's side.
    pub host: Ipv4Addr,
    /// Address of the stack's side.
    pub address: Ipv4Addr,
    /// Length of both addresses' prefix.
    pub prefix: u8,
}

impl TapSpec {
    /// What the driver is to make of it.
    pub fn config(&self) -> TapConfig {
        TapConfig {
            name: self.name.clone(),
            host_addresses: vec![(IpAddr::V4(self.host), self.prefix)],
            netns: self.netns.clone(),
            ..TapConfig::default()
        }
    }
}

/// The device, read and written by hand.
pub struct RawTap {
    tap: Tap,
}

impl RawTap {
    /// Makes the device and brings its host side up.
    pub fn create(spec: &TapSpec) -> anyhow::Result<Self> {
        let tap =
            Tap::create(spec.config()).with_context(|| format!("TAP device {}", spec.name))?;
        Ok(Self { tap })
    }

    /// Our station address.
    pub fn mac(&self) -> [u8; 6] {
        self.tap.caps().mac.0
    }

    #[inline]
    fn fd(&self) -> BorrowedFd<'_> {
        match self.tap.sleep_fd() {
            Some(fd) => fd,
            None => unreachable!("a TAP device is a descriptor"),
        }
    }

    /// Reads one frame with its header; none: there is none, or it is too short to be one.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> anyhow::Result<Option<usize>> {
        match rustix::io::read(self.fd(), buffer) {
            Ok(read) if read > VNET + 14 => Ok(Some(read)),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error).context("reading from the TAP device"),
        }
    }

    /// Writes one frame with its header; a frame that the kernel refuses is lost.
    #[inline]
    pub fn write(&self, frame: &[u8]) {
        let _ = rustix::io::write(self.fd(), frame);
    }

    /// Sleeps until a frame is there, at most so many nanoseconds.
    pub fn wait(&self, nanos: Option<u64>) -> anyhow::Result<()> {
        let timeout = nanos.map(|nanos| Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        });
        let fd = self.fd();
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("poll"),
        }
    }
}
