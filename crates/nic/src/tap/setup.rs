//! Making the device and configuring its host side.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::{TapConfig, sys};
use crate::NicError;

/// What the kernel dropped at a device, seen from its host side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceDrops {
    /// Frames for us that found the queue full (the host side's `tx_dropped`).
    pub to_us: u64,
    /// Frames from us that the kernel could not take (the host side's `rx_dropped`).
    pub from_us: u64,
    /// Frames from us that were malformed (the host side's `rx_errors` and `rx_frame_errors`).
    pub errors: u64,
}

/// The host side.
pub(super) struct Device {
    pub(super) name: String,
    netns: Option<File>,
}

impl Device {
    pub(super) fn drops(&self) -> Result<DeviceDrops, NicError> {
        let text = in_netns(self.netns.as_ref(), || {
            std::fs::read_to_string("/proc/thread-self/net/dev")
        })
        .map_err(|source| NicError::System {
            what: format!("statistics of {}", self.name),
            source,
        })?;
        parse_drops(&text, &self.name).ok_or_else(|| NicError::System {
            what: format!("statistics of {}", self.name),
            source: io::ErrorKind::NotFound.into(),
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
    // bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop ...
    Some(DeviceDrops {
        errors: next(2)?,
        from_us: next(0)?,
        to_us: next(7)?,
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
        Some(name) => Some(open_netns(name)?),
        None => None,
    };
    let fd = in_netns(netns.as_ref(), || sys::create(config))
        .map_err(|sys::Failed(what, source)| explain(config, what, source))?;
    let device = Device {
        name: config.name.clone(),
        netns,
    };
    Ok((fd, device))
}

fn explain(config: &TapConfig, what: &'static str, source: io::Error) -> NicError {
    let name = &config.name;
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO) if what == "open" => NicError::NoTun(source),
        Some(libc::EBUSY | libc::EINVAL) if what == "create" => NicError::NameInUse(name.clone()),
        Some(libc::EPERM | libc::EACCES) => NicError::Permission {
            what: format!("TAP device {name}: {what}"),
        },
        _ => NicError::System {
            what: format!("TAP device {name}: {what}"),
            source,
        },
    }
}

fn open_netns(name: &str) -> Result<File, NicError> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(NicError::BadConfig(format!(
            "{name:?} cannot name a network namespace"
        )));
    }
    File::open(Path::new("/run/netns").join(name)).map_err(|source| NicError::NoNamespace {
        name: name.to_owned(),
        source,
    })
}

/// Runs `work` in the namespace, on a thread of its own; without a namespace, here.
fn in_netns<T: Send, E: From<io::Error> + Send>(
    netns: Option<&File>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    let Some(netns) = netns else {
        return work();
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            rustix::thread::move_into_link_name_space(
                netns.as_fd(),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )
            .map_err(io::Error::from)?;
            work()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread panicked").into()))
    })
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
            from_us: 4,
            errors: 5,
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
