//! Settings of a network device that ioctls can make.
//!
//! An [`Interface`] holds a socket of the namespace in which it was opened, and works there from any thread.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::netns;
use crate::tap::request;

/// A network device by its name.
#[derive(Debug)]
pub struct Interface {
    socket: OwnedFd,
    name: String,
}

impl Interface {
    /// A device in the calling thread's namespace. Whether there is one shows at the first use (`NotFound`-like errors of the system: ENODEV).
    pub fn open(name: &str) -> io::Result<Self> {
        request(name)?;
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Self {
            socket,
            name: name.to_owned(),
        })
    }

    /// A device in another namespace.
    pub fn open_in(name: &str, namespace: impl AsFd) -> io::Result<Self> {
        netns::with_netns_fd(namespace, || Self::open(name))?
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn call(
        &self,
        what: &str,
        number: libc::c_ulong,
        set: impl FnOnce(&mut libc::ifreq),
    ) -> io::Result<libc::ifreq> {
        let mut request = request(&self.name)?;
        set(&mut request);
        // SAFETY: all requests used here take an ifreq, which lives over the call.
        let result = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                number as libc::Ioctl,
                &raw mut request,
            )
        };
        crate::check(result)
            .map_err(|error| crate::context(format_args!("{}: {what}", self.name), error))?;
        Ok(request)
    }

    /// Number of the device.
    pub fn index(&self) -> io::Result<u32> {
        let request = self.call("index", libc::SIOCGIFINDEX, |_| {})?;
        // SAFETY: SIOCGIFINDEX fills this member.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
    }

    /// Brings the device up, or down.
    pub fn set_up(&self, up: bool) -> io::Result<()> {
        let flags = self.flags()?;
        let running = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let flags = if up {
            flags | running
        } else {
            flags & !(libc::IFF_UP as libc::c_short)
        };
        self.call("up", libc::SIOCSIFFLAGS, |r| r.ifr_ifru.ifru_flags = flags)?;
        Ok(())
    }

    /// Whether it is up.
    pub fn is_up(&self) -> io::Result<bool> {
        Ok(self.flags()? & libc::IFF_UP as libc::c_short != 0)
    }

    fn flags(&self) -> io::Result<libc::c_short> {
        let request = self.call("flags", libc::SIOCGIFFLAGS, |_| {})?;
        // SAFETY: SIOCGIFFLAGS fills this member.
        Ok(unsafe { request.ifr_ifru.ifru_flags })
    }

    /// Gives it its first IPv4 address and prefix length (at most 32). Further ones: [`crate::netlink::add_address`].
    pub fn set_address(&self, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        if prefix > 32 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{address}/{prefix}: prefix length above 32"),
            ));
        }
        let mask = u32::MAX.checked_shl(32 - prefix as u32).unwrap_or(0);
        self.call("address", libc::SIOCSIFADDR, |r| {
            r.ifr_ifru.ifru_addr = sockaddr(address);
        })?;
        self.call("netmask", libc::SIOCSIFNETMASK, |r| {
            r.ifr_ifru.ifru_netmask = sockaddr(Ipv4Addr::from(mask));
        })?;
        Ok(())
    }

    /// Largest IP packet in bytes.
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mtu = libc::c_int::try_from(mtu).unwrap_or(libc::c_int::MAX);
        self.call("mtu", libc::SIOCSIFMTU, |r| r.ifr_ifru.ifru_mtu = mtu)?;
        Ok(())
    }

    /// See [`Interface::set_mtu`].
    pub fn mtu(&self) -> io::Result<u32> {
        let request = self.call("mtu", libc::SIOCGIFMTU, |_| {})?;
        // SAFETY: SIOCGIFMTU fills this member.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    /// Frames that wait for the device (for a TAP: for its reader) before others are dropped.
    pub fn set_txqueuelen(&self, frames: u32) -> io::Result<()> {
        let frames = libc::c_int::try_from(frames).unwrap_or(libc::c_int::MAX);
        self.call("txqueuelen", libc::SIOCSIFTXQLEN, |r| {
            // The request's "metric" member is the int at the place of ifr_qlen.
            r.ifr_ifru.ifru_metric = frames;
        })?;
        Ok(())
    }

    /// Hardware address of the kernel's side.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        self.call("hardware address", libc::SIOCSIFHWADDR, |r| {
            let mut address = libc::sockaddr {
                sa_family: libc::ARPHRD_ETHER,
                sa_data: [0; 14],
            };
            for (to, from) in address.sa_data.iter_mut().zip(mac) {
                *to = from as libc::c_char;
            }
            r.ifr_ifru.ifru_hwaddr = address;
        })?;
        Ok(())
    }

    /// See [`Interface::set_mac`].
    pub fn mac(&self) -> io::Result<[u8; 6]> {
        let request = self.call("hardware address", libc::SIOCGIFHWADDR, |_| {})?;
        // SAFETY: SIOCGIFHWADDR fills this member.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        Ok(mac)
    }
}

fn sockaddr(address: Ipv4Addr) -> libc::sockaddr {
    let mut raw = libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: [0; 14],
    };
    // sockaddr_in: port (2 bytes), then the address.
    for (to, from) in raw.sa_data[2..].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_can_be_asked_and_strangers_cannot() {
        let loopback = Interface::open("lo").unwrap();
        assert!(loopback.index().unwrap() > 0);
        assert!(loopback.mtu().unwrap() > 0);
        assert_eq!(loopback.mac().unwrap(), [0; 6]);
        assert!(loopback.set_address(Ipv4Addr::LOCALHOST, 33).is_err());
        let none = Interface::open("nosuchdev0").unwrap();
        let error = none.index().unwrap_err().to_string();
        assert!(error.contains("nosuchdev0"), "{error}");
        assert!(Interface::open("").is_err());
    }
}
