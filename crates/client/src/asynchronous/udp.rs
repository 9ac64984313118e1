//! A UDP socket.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::sockets::held::Held;
use crate::sockets::membership::{join_v4, join_v6};
use crate::{DatagramReport, Membership, MembershipChange, Opt, Sockets};

/// A UDP socket. Clones mean the same socket.
#[derive(Clone, Debug)]
pub struct UdpSocket {
    held: Held,
}

impl UdpSocket {
    /// Binds. Port 0: any free one.
    pub async fn bind(sockets: &Sockets, local: SocketAddr) -> io::Result<Self> {
        let held = Held::datagram(sockets, local, &[]).await?;
        Ok(Self { held })
    }

    /// As [`Self::bind`], but others that are bound so may have the port, too (SO_REUSEADDR). What is sent to a group or to all
    /// reaches each of them, what is sent to one address the one that was bound last.
    pub async fn bind_shared(sockets: &Sockets, local: SocketAddr) -> io::Result<Self> {
        let held = Held::datagram(sockets, local, &[(Opt::ReuseAddress, 1)]).await?;
        Ok(Self { held })
    }

    /// Listens to a group (IP_ADD_MEMBERSHIP). `interface` is an address of the engine's, or 0.0.0.0: it has one interface.
    ///
    /// # Errors
    /// `InvalidInput`: no group; `AddrInUse`: joined already; `AddrNotAvailable`: no such interface; `QuotaExceeded`: the engine's
    /// limits; `NotConnected`: the engine has gone.
    pub async fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        let join = join_v4(MembershipChange::Join, &group, &interface);
        self.held.membership(&join).await
    }

    /// Does not listen to a group any more (IP_DROP_MEMBERSHIP).
    ///
    /// # Errors
    /// `AddrNotAvailable`: not joined; else as [`Self::join_multicast_v4`].
    pub async fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        let leave = join_v4(MembershipChange::Leave, &group, &interface);
        self.held.membership(&leave).await
    }

    /// Listens to a group (IPV6_JOIN_GROUP). `interface` is 0, or 1 for the engine's only one.
    ///
    /// # Errors
    /// As [`Self::join_multicast_v4`].
    pub async fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let join = join_v6(MembershipChange::Join, group, interface);
        self.held.membership(&join).await
    }

    /// Does not listen to a group any more (IPV6_LEAVE_GROUP).
    ///
    /// # Errors
    /// As [`Self::leave_multicast_v4`].
    pub async fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let leave = join_v6(MembershipChange::Leave, group, interface);
        self.held.membership(&leave).await
    }

    /// Any change of what the socket listens to: also sources that are joined or blocked (MCAST_JOIN_SOURCE_GROUP,
    /// MCAST_BLOCK_SOURCE and the like), of both versions of IP.
    ///
    /// # Errors
    /// As [`Self::join_multicast_v4`]; `InvalidInput` also where sources are joined and blocked at once.
    pub async fn change_membership(&self, membership: &Membership) -> io::Result<()> {
        self.held.membership(membership).await
    }

    /// Sets an option ([`Opt::MulticastHops`], [`Opt::MulticastLoop`] …), and waits for the engine's word on it.
    ///
    /// # Errors
    /// `InvalidInput`: no such value; `NotConnected`: not now, or not on a UDP socket, or the engine has gone.
    pub async fn set_option(&self, option: Opt, value: u64) -> io::Result<()> {
        self.held.set_option(option, value).await
    }

    /// What an option is set to.
    pub async fn option(&self, option: Opt) -> io::Result<u64> {
        self.held.option(option).await
    }

    /// From now on datagrams go to, and come from, `peer` alone.
    pub async fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.held.connect_datagram(Some(peer)).await
    }

    /// Takes [`Self::connect`] back: datagrams come from anybody again, and [`Self::send`] has nowhere to send to. The local address stays.
    pub async fn disconnect(&self) -> io::Result<()> {
        self.held.connect_datagram(None).await
    }

    /// Sends one datagram to `peer`. Waits only for memory to send from.
    pub async fn send_to(&self, data: &[u8], peer: SocketAddr) -> io::Result<usize> {
        self.post(data, Some(peer)).await
    }

    /// Sends one datagram to where the socket is connected.
    pub async fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.post(data, None).await
    }

    async fn post(&self, data: &[u8], peer: Option<SocketAddr>) -> io::Result<usize> {
        let (group, socket) = (self.held.group(), self.held.socket());
        poll_fn(|cx| socket.poll_send_datagram(group, cx, data, peer)).await
    }

    /// Receives one datagram, and says how long it was and whose; what does not fit is cut off.
    pub async fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (group, socket) = (self.held.group(), self.held.socket());
        poll_fn(|cx| socket.poll_receive_datagram(group, cx, out, true)).await
    }

    /// Whether each ICMP error about a datagram of this socket is kept as a report (IP_RECVERR); as made: it is not, and only a connected
    /// socket hears of errors, by its next call.
    pub async fn set_receive_errors(&self, on: bool) -> io::Result<()> {
        self.set_option(Opt::ReceiveErrors, u64::from(on)).await
    }

    /// The oldest report of what became of a datagram, if there is one (`recvmsg` with MSG_ERRQUEUE). Does not wait; a receive that
    /// fails says that there is one. The newest of more than 64 reports are not kept, and counted by [`Self::lost_error_reports`].
    pub fn take_error_report(&self) -> Option<DatagramReport> {
        self.held.socket().take_report()
    }

    /// Reports that found no room here.
    pub fn lost_error_reports(&self) -> u64 {
        self.held.socket().lost_reports()
    }

    /// Where it is bound.
    pub async fn local_addr(&self) -> io::Result<SocketAddr> {
        self.held.address(Opt::LocalAddress).await
    }
}
