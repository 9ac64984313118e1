//! Making the device and configuring its host side.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;

use sidecore_sys::interface::Interface;
use sidecore_sys::tap::{TapOptions, TapQueue, offload};
use sidecore_sys::{netlink, netns};

use super::{TapConfig, vnet};
use crate::NicError;

const _: () = assert!(vnet::LEN == sidecore_sys::tap::VNET_HEADER);

/// What the kernel dropped at a device, seen from its host side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceDrops {
    /// Frames for us that found the queue full (the host side's `tx_dropped`).
    pub to_us: u64,
    /// Frames for us that the device could not pass (the host side's `tx_errors`).
    pub to_us_errors: u64,
    /// Frames from us that the kernel could not take (the host side's `rx_dropped`).
    pub from_us: u64,
    /// Frames from us that were malformed (the host side's `rx_errors`).
    pub from_us_errors: u64,
}

/// The host side.
pub(super) struct Device {
    pub(super) name: String,
    /// `/proc/net/dev` of the device's namespace. Reading it needs no privilege, from whatever namespace.
    statistics: File,
}

impl Device {
    pub(super) fn drops(&self) -> Result<DeviceDrops, NicError> {
        let mut text = String::new();
        let mut file = &self.statistics;
        file.rewind()
            .and_then(|()| file.read_to_string(&mut text))
            .and_then(|_| {
                parse_drops(&text, &self.name).ok_or_else(|| io::ErrorKind::NotFound.into())
            })
            .map_err(|source| NicError::System {
                what: format!("statistics of {}", self.name),
                source,
            })
    }
}

/// Finds `name` in the text of `/proc/net/dev`: eight receive counters, then eight transmit counters.
fn parse_drops(text: &str, name: &str) -> Option<DeviceDrops> {
    let fields = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let mut numbers = fields.split_whitespace().map(|n| n.parse::<u64>().ok());
    let mut next = |skip| numbers.nth(skip).flatten();
    // bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop …
    Some(DeviceDrops {
        from_us_errors: next(2)?,
        from_us: next(0)?,
        to_us_errors: next(6)?,
        to_us: next(0)?,
    })
}

pub(super) fn check(config: &TapConfig) -> Result<(), NicError> {
    let name = &config.name;
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if !(1..=15).contains(&name.len()) || !name.bytes().all(fine) || name == "." || name == ".." {
        return Err(NicError::BadName(name.clone()));
    }
    if !(576..=65_521).contains(&config.mtu) {
        return Err(NicError::BadConfig(format!(
            "{name}: an MTU of {} is impossible: use 576 to 65521",
            config.mtu
        )));
    }
    for (address, prefix) in &config.host_addresses {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if *prefix > longest {
            return Err(NicError::BadConfig(format!(
                "{name}: {address}/{prefix} has no such prefix length: use at most {longest}"
            )));
        }
    }
    Ok(())
}

/// Makes the device inside its namespace, so that its name collides with nothing outside, and configures it there.
/// The descriptor works from any namespace.
pub(super) fn open(config: &TapConfig) -> Result<(OwnedFd, Device), NicError> {
    let netns = match &config.netns {
        Some(name) => {
            let open = netns::open_named(name).map_err(|source| NicError::NoNamespace {
                name: name.clone(),
                source,
            });
            Some(open?)
        }
        None => None,
    };
    let made = in_netns(netns.as_ref(), || make(config))
        .map_err(|source| Step::Enter.error(config, source))?;
    let (fd, statistics) = made.map_err(|(step, source)| step.error(config, source))?;
    let device = Device {
        name: config.name.clone(),
        statistics,
    };
    Ok((fd, device))
}

fn may_open_tun() -> bool {
    use rustix::fs::{Access, access};
    access("/dev/net/tun", Access::READ_OK | Access::WRITE_OK).is_ok()
}

/// A step of making the device: what an error means depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Enter,
    Open,
    Configure,
}

impl Step {
    fn error(self, config: &TapConfig, source: io::Error) -> NicError {
        use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied, ResourceBusy};
        let name = &config.name;
        match (self, source.kind()) {
            (Self::Open, PermissionDenied) if !may_open_tun() => NicError::TunDenied,
            (_, PermissionDenied) => NicError::Permission {
                what: format!("making TAP device {name}"),
            },
            // TUNSETIFF answers EINVAL if the name is another kind of interface.
            (Self::Open, ResourceBusy | InvalidInput) => NicError::NameInUse(name.clone()),
            (Self::Open, NotFound) => NicError::NoTun(source),
            _ => NicError::System {
                what: format!("making TAP device {name}"),
                source,
            },
        }
    }
}

/// Makes and configures the device in the caller's namespace. Gives its descriptor and its statistics.
fn make(config: &TapConfig) -> Result<(OwnedFd, File), (Step, io::Error)> {
    let options = TapOptions {
        multi_queue: false,
        vnet_hdr: true,
        napi: config.napi,
    };
    let queue = TapQueue::open(&config.name, options).map_err(|error| (Step::Open, error))?;
    let statistics = configure(config, &queue)
        .and_then(|()| File::open("/proc/thread-self/net/dev"))
        .map_err(|error| (Step::Configure, error))?;
    Ok((queue.into_fd(), statistics))
}

fn configure(config: &TapConfig, queue: &TapQueue) -> io::Result<()> {
    if config.offload {
        let all = offload::CHECKSUM | offload::TSO4 | offload::TSO6 | offload::TSO_ECN;
        queue.set_offload(all)?;
    }
    let interface = Interface::open(queue.name())?;
    let index = interface.index()?;
    interface.set_mtu(config.mtu.into())?;
    set_queue_len(index, config.queue_len)?;
    for (address, prefix) in &config.host_addresses {
        netlink::add_address(index, *address, *prefix)?;
    }
    interface.set_up(true)
}

/// Sets the length of the queue to us by route-netlink (`RTM_NEWLINK` with `IFLA_TXQLEN`, rtnetlink(7)): the ioctl of that
/// purpose is refused in a user namespace.
fn set_queue_len(index: u32, frames: u32) -> io::Result<()> {
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
    };
    const LEN: u32 = 16 + 16 + 8;
    const NEW_LINK: u32 = 16;
    const REQUEST_ACK: u32 = 1 | 4;
    const QUEUE_LEN: u32 = 13;
    let words = [
        // struct nlmsghdr: length, type and flags, sequence, port.
        LEN.to_ne_bytes(),
        halves(NEW_LINK, REQUEST_ACK),
        1u32.to_ne_bytes(),
        [0; 4],
        // struct ifinfomsg: family, type, index, flags, change.
        [0; 4],
        index.to_ne_bytes(),
        [0; 4],
        [0; 4],
        // struct rtattr: length and type; value.
        halves(8, QUEUE_LEN),
        frames.to_ne_bytes(),
    ];
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None, // 0: NETLINK_ROUTE
    )?;
    send(&socket, words.as_flattened(), SendFlags::empty())?;
    let mut answer = [0; 256];
    recv(&socket, &mut answer, RecvFlags::empty())?;
    // struct nlmsgerr behind the header: 0 or a negative error.
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
    }
}

/// Two 16-bit fields.
fn halves(first: u32, second: u32) -> [u8; 4] {
    let [a, b] = (first as u16).to_ne_bytes();
    let [c, d] = (second as u16).to_ne_bytes();
    [a, b, c, d]
}

/// Runs `work` in the namespace, on a thread of its own; without a namespace, here.
fn in_netns<T: Send>(netns: Option<&OwnedFd>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    match netns {
        None => Ok(work()),
        Some(netns) => netns::with_netns_fd(netns, work),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found_in_the_kernels_table() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n  \
            tap1:     7       6    5    4    3     0          0         0       90      80    1    2    0     0       0          0\n";
        let drops = DeviceDrops {
            to_us: 2,
            to_us_errors: 1,
            from_us: 4,
            from_us_errors: 5,
        };
        assert_eq!(parse_drops(text, "tap1"), Some(drops));
        assert_eq!(parse_drops(text, "lo"), Some(DeviceDrops::default()));
        assert_eq!(parse_drops(text, "tap"), None);
        assert_eq!(parse_drops(text, "eth0"), None);
    }

    #[test]
    fn impossible_configurations_are_refused() {
        let with_name = |name: &str| TapConfig {
            name: name.into(),
            ..TapConfig::default()
        };
        for name in ["", "sixteen-bytes-xx", "a/b", "a b", "tap%d", ".."] {
            assert!(
                matches!(check(&with_name(name)), Err(NicError::BadName(_))),
                "{name}"
            );
        }
        assert!(check(&with_name("side-core_0.1")).is_ok());
        let mtu = TapConfig {
            mtu: 500,
            ..TapConfig::default()
        };
        assert!(matches!(check(&mtu), Err(NicError::BadConfig(_))));
        let prefix = TapConfig {
            host_addresses: vec![("10.0.0.1".parse().unwrap(), 33)],
            ..TapConfig::default()
        };
        assert!(matches!(check(&prefix), Err(NicError::BadConfig(_))));
    }
}
