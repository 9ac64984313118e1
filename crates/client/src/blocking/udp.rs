//! A UDP socket.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::{checked, each_address};
use crate::error::Disconnected;
use crate::sockets::group::lock;
use crate::sockets::held::{Held, run};
use crate::sockets::membership::{join_v4, join_v6};
use crate::{DatagramReport, Membership, MembershipChange, Opt, Sockets};

/// A UDP socket, as [`std::net::UdpSocket`].
#[derive(Debug)]
pub struct UdpSocket {
    held: Held,
}

impl UdpSocket {
    /// Binds to the first of these addresses to which it can. Port 0: any free one.
    pub fn bind(sockets: &Sockets, local: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(local, |local| {
            let held = run(&sockets.group, Held::datagram(sockets, local, &[]))?;
            Ok(Self { held })
        })
    }

    /// As [`Self::bind`], but others that are bound so may have the port, too (SO_REUSEADDR). What is sent to a group or to all
    /// reaches each of them, what is sent to one address the one that was bound last.
    pub fn bind_shared(sockets: &Sockets, local: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(local, |local| {
            let shared = [(Opt::ReuseAddress, 1)];
            let held = run(&sockets.group, Held::datagram(sockets, local, &shared))?;
            Ok(Self { held })
        })
    }

    /// Listens to a group (IP_ADD_MEMBERSHIP). `interface` is an address of the engine's, or 0.0.0.0: it has one interface.
    ///
    /// # Errors
    /// `InvalidInput`: no group; `AddrInUse`: joined already; `AddrNotAvailable`: no such interface; `QuotaExceeded`: the engine's
    /// limits; `NotConnected`: the engine has gone.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.change(&join_v4(MembershipChange::Join, group, interface))
    }

    /// Does not listen to a group any more (IP_DROP_MEMBERSHIP).
    ///
    /// # Errors
    /// `AddrNotAvailable`: not joined; else as [`Self::join_multicast_v4`].
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.change(&join_v4(MembershipChange::Leave, group, interface))
    }

    /// Listens to a group (IPV6_JOIN_GROUP). `interface` is 0, or 1 for the engine's only one.
    ///
    /// # Errors
    /// As [`Self::join_multicast_v4`].
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.change(&join_v6(MembershipChange::Join, group, interface))
    }

    /// Does not listen to a group any more (IPV6_LEAVE_GROUP).
    ///
    /// # Errors
    /// As [`Self::leave_multicast_v4`].
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.change(&join_v6(MembershipChange::Leave, group, interface))
    }

    /// Any change of what the socket listens to: also sources that are joined or blocked (MCAST_JOIN_SOURCE_GROUP,
    /// MCAST_BLOCK_SOURCE and the like), of both versions of IP.
    ///
    /// # Errors
    /// As [`Self::join_multicast_v4`]; `InvalidInput` also where sources are joined and blocked at once.
    pub fn change_membership(&self, membership: &Membership) -> io::Result<()> {
        self.change(membership)
    }

    fn change(&self, membership: &Membership) -> io::Result<()> {
        self.held.run(self.held.membership(membership))
    }

    /// How many hops datagrams to groups of IPv4 and IPv6 go, 0 to 255; as made: 1 (IP_MULTICAST_TTL).
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.set_option(Opt::MulticastHops, u64::from(ttl))
    }

    /// See [`Self::set_multicast_ttl_v4`].
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.option(Opt::MulticastHops).map(|hops| hops as u32)
    }

    /// Whether sockets of this engine get what this one sends to groups that they are in; as made: they do (IP_MULTICAST_LOOP).
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.set_option(Opt::MulticastLoop, u64::from(on))
    }

    /// See [`Self::set_multicast_loop_v4`].
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.option(Opt::MulticastLoop).map(|on| on != 0)
    }

    /// Both versions of IP share the setting: [`Self::set_multicast_loop_v4`].
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.set_multicast_loop_v4(on)
    }

    /// See [`Self::set_multicast_loop_v4`].
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.multicast_loop_v4()
    }

    /// Sets any option, and waits for the engine's word on it.
    ///
    /// # Errors
    /// `InvalidInput`: no such value; `NotConnected`: not now, or not on a UDP socket, or the engine has gone.
    pub fn set_option(&self, option: Opt, value: u64) -> io::Result<()> {
        self.held.run(self.held.set_option(option, value))
    }

    /// What an option is set to.
    pub fn option(&self, option: Opt) -> io::Result<u64> {
        self.held.run(self.held.option(option))
    }

    /// From now on datagrams go to, and come from, `peer` alone.
    pub fn connect(&self, peer: impl ToSocketAddrs) -> io::Result<()> {
        each_address(peer, |peer| {
            self.held.run(self.held.connect_datagram(Some(peer)))
        })
    }

    /// Takes [`Self::connect`] back: datagrams come from anybody again, and [`Self::send`] has nowhere to send to. The local address stays.
    pub fn disconnect(&self) -> io::Result<()> {
        self.held.run(self.held.connect_datagram(None))
    }

    /// Sends one datagram to `peer`. Waits only for memory to send from.
    pub fn send_to(&self, data: &[u8], peer: impl ToSocketAddrs) -> io::Result<usize> {
        each_address(peer, |peer| self.post(data, Some(peer)))
    }

    /// Sends one datagram to where the socket is connected.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.post(data, None)
    }

    fn post(&self, data: &[u8], peer: Option<SocketAddr>) -> io::Result<usize> {
        let (group, socket) = (self.held.group(), self.held.socket());
        let timeout = lock(&socket.state).write_timeout;
        self.held.wait(timeout, |cx| {
            socket.poll_send_datagram(group, cx, data, peer)
        })
    }

    /// Receives one datagram, and says how long it was and whose; what does not fit is cut off.
    pub fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(out, true)
    }

    /// As [`Self::recv_from`], but the datagram stays.
    pub fn peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(out, false)
    }

    /// As [`Self::recv_from`], without the sender.
    pub fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.receive(out, true).map(|(len, _)| len)
    }

    fn receive(&self, out: &mut [u8], consume: bool) -> io::Result<(usize, SocketAddr)> {
        let (group, socket) = (self.held.group(), self.held.socket());
        let timeout = lock(&socket.state).read_timeout;
        self.held.wait(timeout, |cx| {
            socket.poll_receive_datagram(group, cx, out, consume)
        })
    }

    /// Where it is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.held.run(self.held.address(Opt::LocalAddress))
    }

    /// Where it is connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let known = self.held.socket().known_address(Opt::PeerAddress);
        known.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Another handle of the same socket.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            held: self.held.clone(),
        })
    }

    /// How long receives wait (`WouldBlock` then); `None`: for ever. Holds for all clones.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        lock(&self.held.socket().state).read_timeout = checked(timeout)?;
        Ok(())
    }

    /// How long sends wait for memory (`WouldBlock` then); `None`: for ever. Holds for all clones.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        lock(&self.held.socket().state).write_timeout = checked(timeout)?;
        Ok(())
    }

    /// Lets calls fail with `WouldBlock` instead of waiting. Holds for all clones.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        lock(&self.held.socket().state).nonblocking = on;
        Ok(())
    }

    /// Whether each ICMP error about a datagram of this socket is kept as a report (IP_RECVERR); as made: it is not, and only a connected
    /// socket hears of errors, by its next call.
    pub fn set_receive_errors(&self, on: bool) -> io::Result<()> {
        self.set_option(Opt::ReceiveErrors, u64::from(on))
    }

    /// The oldest report of what became of a datagram, if there is one (`recvmsg` with MSG_ERRQUEUE). Does not wait. The newest of more
    /// than 64 reports are not kept, and counted by [`Self::lost_error_reports`].
    ///
    /// # Errors
    /// `NotConnected`: the engine has gone, as far as this side has noticed.
    pub fn take_error_report(&self) -> io::Result<Option<DatagramReport>> {
        let group = self.held.group();
        // The engine's end is told when there is no report left.
        let _ = group.try_turn(Duration::ZERO);
        match self.held.socket().take_report() {
            None if group.is_dead() => Err(Disconnected.into()),
            report => Ok(report),
        }
    }

    /// Reports that found no room here.
    pub fn lost_error_reports(&self) -> u64 {
        self.held.socket().lost_reports()
    }

    /// What went wrong since this was last asked (SO_ERROR).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.held.socket().take_error())
    }
}
