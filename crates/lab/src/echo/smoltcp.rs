//! Echo on smoltcp over a TAP, as good as it is given: checksums left to the receiver on both sides, no Nagle, one buffer for all.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::bail;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

use super::tap::{CHECKSUM_LEFT, MAX_FRAME, RawTap, VNET};
use super::{Announcement, SmoltcpEcho};

/// Bytes of each direction's buffer of a socket.
const SOCKET_BUFFER: usize = 16 * 1024;

/// Serves until the process ends.
pub fn serve(
    config: &SmoltcpEcho,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    let mut device = Wire {
        tap: RawTap::create(&config.tap)?,
        receive: vec![0; MAX_FRAME],
        send: vec![0; MAX_FRAME],
    };
    let mac = EthernetAddress(device.tap.mac());
    let mut interface = Interface::new(
        Config::new(HardwareAddress::Ethernet(mac)),
        &mut device,
        Instant::now(),
    );
    let address = IpCidr::new(config.tap.address.into(), config.tap.prefix);
    let mut added = false;
    interface.update_ip_addrs(|addresses| added = addresses.push(address).is_ok());
    if !added {
        bail!("smoltcp takes no address");
    }
    let mut sockets = SocketSet::new(Vec::with_capacity(config.connections));
    let mut handles = Vec::with_capacity(config.connections);
    for _ in 0..config.connections {
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        handles.push(sockets.add(socket));
    }
    echo_all(&mut sockets, &handles, config.port);
    ready(Announcement::plain(SocketAddr::from((
        config.tap.address,
        config.port,
    ))));
    loop {
        let now = Instant::now();
        interface.poll(now, &mut device, &mut sockets);
        if echo_all(&mut sockets, &handles, config.port) {
            interface.poll_egress(now, &mut device, &mut sockets);
        } else if !config.spin {
            let delay = interface.poll_delay(now, &sockets);
            device
                .tap
                .wait(delay.map(|delay| delay.total_micros() * 1000))?;
        }
    }
}

fn buffer() -> tcp::SocketBuffer<'static> {
    tcp::SocketBuffer::new(vec![0; SOCKET_BUFFER])
}

/// Sends back what every socket has received, and lets closed ones listen again. Whether there was anything to send.
fn echo_all(sockets: &mut SocketSet<'_>, handles: &[SocketHandle], port: u16) -> bool {
    let mut any = false;
    for handle in handles {
        let socket = sockets.get_mut::<tcp::Socket<'_>>(*handle);
        if socket.can_recv() {
            any |= echo(socket);
        } else if !socket.is_open() {
            // Cannot fail: the port is not 0 and the socket is closed.
            let _ = socket.listen(port);
        } else if socket.state() == tcp::State::CloseWait && socket.send_queue() == 0 {
            socket.close();
            any = true;
        }
    }
    any
}

fn echo(socket: &mut tcp::Socket<'_>) -> bool {
    let mut bytes = [0; 4096];
    let room = bytes
        .len()
        .min(socket.send_capacity() - socket.send_queue());
    match socket.recv_slice(&mut bytes[..room]) {
        Ok(read @ 1..) => socket.send_slice(&bytes[..read]).is_ok(),
        _ => false,
    }
}

/// The TAP device as smoltcp sees one.
struct Wire {
    tap: RawTap,
    receive: Vec<u8>,
    send: Vec<u8>,
}

struct Received<'a>(&'a [u8]);

struct ToSend<'a> {
    tap: &'a RawTap,
    frame: &'a mut [u8],
}

impl Device for Wire {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = ToSend<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Received<'_>, ToSend<'_>)> {
        let length = self.tap.read(&mut self.receive).ok()??;
        let send = ToSend {
            tap: &self.tap,
            frame: &mut self.send,
        };
        Some((Received(self.receive.get(VNET..length)?), send))
    }

    fn transmit(&mut self, _now: Instant) -> Option<ToSend<'_>> {
        Some(ToSend {
            tap: &self.tap,
            frame: &mut self.send,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities.checksum.tcp = Checksum::None;
        capabilities
    }
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for ToSend<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let frame = &mut self.frame[..VNET + len];
        let result = f(&mut frame[VNET..]);
        let is_tcp =
            frame.get(VNET + 12..VNET + 14) == Some(&[8, 0]) && frame.get(VNET + 23) == Some(&6);
        frame[..VNET].copy_from_slice(if is_tcp { &CHECKSUM_LEFT } else { &[0; VNET] });
        self.tap.write(frame);
        result
    }
}
