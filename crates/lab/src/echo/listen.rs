//! Listeners of the kernel servers, one for each thread.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};

use anyhow::Context;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::{Announcement, KernelEcho};
use sidecore_sys::affinity;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// A listener that shares its port with others, with the options that its connections inherit.
pub(super) fn listen(address: SocketAddr, congestion: Option<&str>) -> anyhow::Result<TcpListener> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = net::socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(name) = congestion {
        sockopt::set_tcp_congestion(&socket, name)
            .with_context(|| format!("no congestion control named {name}"))?;
    }
    net::bind(&socket, &address).with_context(|| format!("cannot listen on {address}"))?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Runs `worker` on a thread for each core with a listener of its own; returns when one of them fails.
pub(super) fn serve_on_cores(
    config: &KernelEcho,
    ready: &mut dyn FnMut(Announcement),
    worker: fn(TcpListener) -> anyhow::Result<Infallible>,
) -> anyhow::Result<Infallible> {
    let congestion = config.congestion.as_deref();
    let first = listen(config.listen, congestion)?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..config.cores.len() {
        listeners.push(listen(address, congestion)?);
    }
    let (failed, failure) = std::sync::mpsc::channel();
    for (number, listener) in listeners.into_iter().enumerate() {
        let core = config.cores.get(number).copied();
        let failed = failed.clone();
        let run = move || {
            let bound = core.map_or(Ok(()), affinity::pin_current_thread);
            let result = bound
                .map_err(anyhow::Error::from)
                .and_then(|()| worker(listener));
            let _ = failed.send(result);
        };
        std::thread::Builder::new()
            .name(format!("echo-{number}"))
            .spawn(run)?;
    }
    ready(Announcement::plain(address));
    failure.recv().context("every echo thread panicked")?
}
