//! TAP devices: one descriptor is one queue.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// Bytes of the virtio-net header that precedes each frame.
pub const VNET_HEADER: usize = 10;

/// What the device may hand over, or take, unfinished ([`TapQueue::set_offload`]).
pub mod offload {
    /// Checksums may be missing (TUN_F_CSUM). Needed by the others.
    pub const CHECKSUM: u32 = 0x01;
    /// TCP over IPv4 segments larger than the MTU (TUN_F_TSO4).
    pub const TSO4: u32 = 0x02;
    /// The same over IPv6 (TUN_F_TSO6).
    pub const TSO6: u32 = 0x04;
    /// Such segments with ECN bits (TUN_F_TSO_ECN).
    pub const TSO_ECN: u32 = 0x08;
}

/// How a queue is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TapOptions {
    /// Further queues may be opened on the same device.
    pub multi_queue: bool,
    /// Each frame is preceded by a virtio-net header of [`VNET_HEADER`] bytes.
    pub vnet_hdr: bool,
    /// Frames written go through NAPI (GRO, threaded NAPI) instead of straight into the stack.
    pub napi: bool,
}

/// One queue of a TAP device. When the last is closed the device is gone.
#[derive(Debug)]
pub struct TapQueue {
    fd: OwnedFd,
    name: String,
}

impl TapQueue {
    /// Makes the device (or, with `multi_queue`, adds a queue to it) in the calling thread's namespace. A `%d` in the name is replaced by a
    /// number; [`TapQueue::name`] says which. Reads and writes never block.
    ///
    /// `ResourceBusy`: the name is in use. `PermissionDenied`: no CAP_NET_ADMIN, or no access to /dev/net/tun. `NotFound`: there is no /dev/net/tun.
    pub fn open(name: &str, options: TapOptions) -> io::Result<Self> {
        let device = c"/dev/net/tun";
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(device, flags, Mode::empty())
            .map_err(|error| crate::context("/dev/net/tun", error.into()))?;
        let mut request = request(name)?;
        let mut kind = libc::IFF_TAP | libc::IFF_NO_PI;
        for (wanted, flag) in [
            (options.vnet_hdr, libc::IFF_VNET_HDR),
            (options.multi_queue, libc::IFF_MULTI_QUEUE),
            (options.napi, libc::IFF_NAPI),
        ] {
            if wanted {
                kind |= flag;
            }
        }
        request.ifr_ifru.ifru_flags = kind as libc::c_short;
        // SAFETY: TUNSETIFF takes an ifreq, which lives over the call.
        crate::check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
            .map_err(|error| crate::context(format_args!("TAP {name}"), error))?;
        let queue = Self {
            fd,
            name: name_of(&request),
        };
        if options.vnet_hdr {
            queue.set_int(
                libc::TUNSETVNETHDRSZ,
                VNET_HEADER as libc::c_int,
                "header size",
            )?;
        }
        Ok(queue)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel may leave to us in frames that we read: [`offload`] bits.
    pub fn set_offload(&self, flags: u32) -> io::Result<()> {
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        let result = unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::TUNSETOFFLOAD,
                flags as libc::c_ulong,
            )
        };
        crate::check(result)
            .map(|_| ())
            .map_err(|error| crate::context(format_args!("TAP {}: offload", self.name), error))
    }

    /// Bytes that may be on their way into the kernel before writes fail with `WouldBlock`.
    pub fn set_send_buffer(&self, bytes: i32) -> io::Result<()> {
        self.set_int(libc::TUNSETSNDBUF, bytes, "send buffer")
    }

    fn set_int(&self, what: libc::Ioctl, value: libc::c_int, name: &str) -> io::Result<()> {
        // SAFETY: these requests take a pointer to an int, which lives over the call.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), what, &raw const value) };
        crate::check(result)
            .map(|_| ())
            .map_err(|error| crate::context(format_args!("TAP {}: {name}", self.name), error))
    }

    /// The descriptor itself.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for TapQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An ifreq with a name and nothing else.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    if name.is_empty() || name.len() > room || name.contains(['/', '\0', ' ']) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is no name of a network device (1 to {room} bytes)"),
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn name_of(request: &libc::ifreq) -> String {
    // SAFETY: the kernel ends the name with a zero, and ours was shorter than the field.
    unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Interface;
    use crate::{netlink, netns};
    use std::net::{IpAddr, Ipv4Addr};

    fn options() -> TapOptions {
        TapOptions {
            vnet_hdr: true,
            ..TapOptions::default()
        }
    }

    /// In a namespace of its own, or not at all.
    fn inside(run: impl FnOnce() + Send) {
        if !crate::privileges::can_administer_network() {
            eprintln!("skipped: needs CAP_NET_ADMIN");
            return;
        }
        let namespace = netns::create_anonymous().unwrap();
        netns::with_netns_fd(namespace, run).unwrap();
    }

    #[test]
    fn a_tap_is_made_configured_and_gone() {
        inside(|| {
            let tap = TapQueue::open("sc0", options()).unwrap();
            tap.set_offload(offload::CHECKSUM | offload::TSO4 | offload::TSO6)
                .unwrap();
            tap.set_send_buffer(1 << 20).unwrap();
            let error = TapQueue::open("sc0", options()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
            let card = Interface::open(tap.name()).unwrap();
            card.set_mac([2, 0, 0, 0, 0, 7]).unwrap();
            card.set_mtu(1400).unwrap();
            card.set_txqueuelen(10_000).unwrap();
            let address = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
            card.set_address(Ipv4Addr::new(10, 77, 0, 1), 24).unwrap();
            netlink::add_address(card.index().unwrap(), "10.78.0.1".parse().unwrap(), 24).unwrap();
            card.set_up(true).unwrap();
            assert_eq!(card.mac().unwrap(), [2, 0, 0, 0, 0, 7]);
            assert_eq!(card.mtu().unwrap(), 1400);
            assert!(card.is_up().unwrap());
            // Both addresses are ours: binding to them works.
            std::net::UdpSocket::bind((address, 0)).unwrap();
            std::net::UdpSocket::bind("10.78.0.1:0").unwrap();
            netlink::add_neighbour(
                card.index().unwrap(),
                "10.77.0.9".parse().unwrap(),
                [2, 0, 0, 0, 0, 9],
            )
            .unwrap();
            let peer = std::net::UdpSocket::bind("10.77.0.1:0").unwrap();
            peer.send_to(b"ping", "10.77.0.9:9").unwrap();
            let mut frame = [0u8; 2048];
            let n = loop {
                let n = rustix::io::read(&tap, &mut frame).unwrap();
                // IPv6 chatter aside: the datagram to our neighbour, behind the header.
                if frame[VNET_HEADER..VNET_HEADER + 6] == [2, 0, 0, 0, 0, 9] {
                    break n;
                }
            };
            assert_eq!(&frame[n - 4..n], b"ping");
            let statistics = netlink::statistics(card.index().unwrap()).unwrap();
            assert!(statistics.tx_packets >= 1);
            drop(tap);
            assert!(card.index().is_err(), "gone with its last queue");
        });
    }

    #[test]
    fn a_tap_moves_into_another_namespace() {
        inside(|| {
            let tap = TapQueue::open("sc%d", options()).unwrap();
            assert_eq!(tap.name(), "sc0");
            let there = netns::create_anonymous().unwrap();
            let card = Interface::open(tap.name()).unwrap();
            netlink::move_to_netns(card.index().unwrap(), &there).unwrap();
            assert!(card.index().is_err(), "no longer here");
            let card = Interface::open_in(tap.name(), &there).unwrap();
            card.set_up(true).unwrap();
            assert!(card.is_up().unwrap());
        });
    }

    #[test]
    fn names_are_checked() {
        for bad in ["", "a name", "far-too-long-a-name", "a/b"] {
            assert!(request(bad).is_err(), "{bad:?}");
        }
        assert!(TapQueue::open("a/b", options()).is_err());
    }

    #[test]
    fn several_queues_of_one_device() {
        inside(|| {
            let options = TapOptions {
                multi_queue: true,
                ..options()
            };
            let first = TapQueue::open("sc0", options).unwrap();
            let second = TapQueue::open(first.name(), options).unwrap();
            assert_eq!(first.name(), second.name());
        });
    }
}
