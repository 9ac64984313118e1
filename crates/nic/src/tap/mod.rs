//! The kernel of this machine as the peer, through a TAP device.
//!
//! Every frame carries the virtio-net header, so that checksums are left to whoever needs them (mostly nobody) and TCP
//! goes in super-segments of up to 64 KiB both ways. Two ways to do the I/O, [`TapIo`], are measured in
//! `docs/tap-io.md`.
//!
//! The device exists as long as the [`Tap`]: it is not persistent. Its host side is configured by
//! [`Tap::create`]; our side is nothing but frames, and [`TapConfig::mac`] is ours, not the host side's.

mod memory;
mod readwrite;
mod setup;
#[allow(unsafe_code)]
mod sys;
mod uring;
mod vnet;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sidecore_wire::MacAddress;

pub use setup::DeviceDrops;

use crate::{Caps, Nic, NicCounters, NicError, RxBurst, RxFrame, TxFrame};
use readwrite::ReadWrite;
use uring::Uring;

/// Payload bytes of the largest super-segment: what an IPv4 packet holds beside the largest headers.
const TSO_MAX: u32 = 65_535 - 60 - 60;

/// How frames cross between the driver and the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TapIo {
    /// A `read` and a `writev` for each frame.
    #[default]
    ReadWrite,
    /// An io_uring: an armed read fills buffers that the kernel chooses from, frames to send are gathered until
    /// [`flush`](Nic::flush), and one system call does both. A turn that finds nothing makes none. Needs Linux 6.7. The
    /// device belongs to the thread that first receives or sends; dropped on another one, it vanishes a little later.
    IoUring,
}

/// What [`Tap::create`] makes. Start from [`TapConfig::default`].
#[derive(Clone, Debug)]
pub struct TapConfig {
    /// The interface's name on the host side: 1 to 15 bytes.
    pub name: String,
    /// The station address of **our** side, which [`Caps::mac`] tells. The kernel chooses the host side's.
    pub mac: MacAddress,
    /// Largest IP packet in bytes, 576 to 65 521.
    pub mtu: u16,
    /// Addresses of the host side with their prefix lengths.
    pub host_addresses: Vec<(IpAddr, u8)>,
    /// Puts the host side into this named network namespace (`ip netns add NAME`); `None`: the caller's own.
    pub netns: Option<String>,
    /// Frames that wait on their way to us before the kernel drops them (the interface's `txqueuelen`). Ten thousand connections can have two each on
    /// their way while the engine's processor does something else.
    pub queue_len: u32,
    /// Sets `IFF_NAPI`: the kernel receives our frames in its NAPI context, with GRO, which can be a thread of its own
    /// (`/sys/class/net/NAME/threaded`), and not inside our write.
    pub napi: bool,
    /// Checksum and segmentation offload, both ways. Off: every frame is complete and at most an MTU long, as a program
    /// needs that passes frames on to another device.
    pub offload: bool,
    /// How frames cross.
    pub mode: TapIo,
    /// With [`TapIo::ReadWrite`], has the kernel count the frames that come in memory of ours, by a filter program on the
    /// device, so that no call is made to find nothing. Where the system does not allow it (it takes `CAP_BPF`), the
    /// device works without; [`Tap::counts_arrivals`] tells.
    pub count_arrivals: bool,
}

impl Default for TapConfig {
    /// `sidecore0`, MTU 1500, a queue of 60 000 frames, with offload, without NAPI, no addresses.
    fn default() -> Self {
        Self {
            name: "sidecore0".into(),
            mac: MacAddress([0x02, 0x5c, 0, 0, 0, 2]),
            mtu: 1500,
            host_addresses: Vec::new(),
            netns: None,
            queue_len: 60_000,
            napi: false,
            offload: true,
            mode: TapIo::default(),
            count_arrivals: true,
        }
    }
}

/// A TAP device. The host side vanishes when this is dropped.
pub struct Tap {
    caps: Caps,
    counters: NicCounters,
    device: setup::Device,
    io: Io,
    fd: OwnedFd,
}

enum Io {
    ReadWrite(ReadWrite),
    Uring(Uring),
}

impl Tap {
    /// Makes the device, configures its host side and brings it up. Blocks for some milliseconds.
    ///
    /// # Errors
    ///
    /// See [`NicError`]: a name that is in use or impossible, no permission, no `/dev/net/tun`, no such namespace.
    pub fn create(config: TapConfig) -> Result<Self, NicError> {
        setup::check(&config)?;
        let (fd, device) = setup::open(&config)?;
        let io = match config.mode {
            TapIo::ReadWrite => {
                Io::ReadWrite(ReadWrite::new(fd.as_fd(), config.count_arrivals).map_err(
                    |source| NicError::System {
                        what: format!("memory for the frames of {}", config.name),
                        source,
                    },
                )?)
            }
            TapIo::IoUring => {
                Io::Uring(
                    Uring::new(fd.as_fd()).map_err(|source| NicError::Unsupported {
                        what: format!("io_uring for {}: {source}: choose read-write", config.name),
                    })?,
                )
            }
        };
        Ok(Self {
            caps: Caps {
                mac: config.mac,
                mtu: config.mtu,
                tso_max: if config.offload { TSO_MAX } else { 0 },
                tx_checksum: true,
                max_fragments: sys::FRAGMENTS_MAX,
            },
            counters: NicCounters::default(),
            device,
            io,
            fd,
        })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Whether a turn that finds nothing makes no system call ([`TapConfig::count_arrivals`], or an io_uring).
    pub fn counts_arrivals(&self) -> bool {
        match &self.io {
            Io::ReadWrite(io) => io.counts_arrivals(),
            Io::Uring(_) => true,
        }
    }

    /// What the kernel dropped at this device, both ways, since it was made. Reads a file: not for the packet path.
    ///
    /// # Errors
    ///
    /// The interface's statistics cannot be read, because someone removed or moved it.
    pub fn device_drops(&self) -> Result<DeviceDrops, NicError> {
        self.device.drops()
    }
}

impl Nic for Tap {
    #[inline]
    fn caps(&self) -> &Caps {
        &self.caps
    }

    #[inline]
    fn receive(&mut self, burst: &mut RxBurst) -> usize {
        match &mut self.io {
            Io::ReadWrite(io) => io.receive(self.fd.as_fd(), burst, &mut self.counters),
            Io::Uring(io) => io.receive(burst, &mut self.counters),
        }
    }

    #[inline]
    fn frame(&self, frame: &RxFrame) -> &[u8] {
        match &self.io {
            Io::ReadWrite(io) => io.frame(frame),
            Io::Uring(io) => io.frame(frame),
        }
    }

    #[inline]
    fn release(&mut self, burst: &mut RxBurst) {
        match &mut self.io {
            Io::ReadWrite(io) => io.release(burst),
            Io::Uring(io) => io.release(burst),
        }
    }

    #[inline]
    fn has_room(&self) -> bool {
        match &self.io {
            // The kernel takes a frame at once, or drops it and says so.
            Io::ReadWrite(_) => true,
            Io::Uring(io) => io.has_room(),
        }
    }

    #[inline]
    fn submit(&mut self, frame: &TxFrame<'_>) {
        if !frame.is_sound(self.caps.max_fragments) {
            self.counters.tx_dropped_invalid += 1;
            return;
        }
        match &mut self.io {
            Io::ReadWrite(io) => io.submit(self.fd.as_fd(), frame, &mut self.counters),
            Io::Uring(io) => io.submit(frame, &mut self.counters),
        }
    }

    #[inline]
    fn flush(&mut self) {
        match &mut self.io {
            Io::ReadWrite(_) => {}
            Io::Uring(io) => io.flush(&mut self.counters),
        }
    }

    #[inline]
    fn in_flight(&self) -> bool {
        match &self.io {
            Io::ReadWrite(_) => false,
            Io::Uring(io) => io.in_flight(),
        }
    }

    fn sleep_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        match &mut self.io {
            Io::ReadWrite(io) => io.prepare_sleep(),
            Io::Uring(io) => io.prepare_sleep(),
        }
    }

    fn awake(&mut self) {
        match &mut self.io {
            Io::ReadWrite(io) => io.awake(),
            Io::Uring(_) => {}
        }
    }

    fn counters(&self) -> &NicCounters {
        &self.counters
    }
}
