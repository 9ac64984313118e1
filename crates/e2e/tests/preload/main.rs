//! Unmodified programs on the engine, by the preload library: as clients, and as servers for the kernel's side.

mod calls;
mod clients;
mod cpython;
mod servers;
mod sockets;
mod web;

use std::net::SocketAddr;

use serde_json::Value;
use sidecore_e2e::ground::ENGINE;

/// Bytes that no two places have alike.
pub(crate) fn body(len: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(crate) fn engine(port: u16) -> SocketAddr {
    (ENGINE, port).into()
}

/// Whether the engine has a connection with this peer.
pub(crate) fn connected(stat: &Value, peer: SocketAddr) -> bool {
    let peer = peer.to_string();
    let connections = stat["connections"].as_array();
    connections.is_some_and(|all| all.iter().any(|c| c["remote"] == peer.as_str()))
}
