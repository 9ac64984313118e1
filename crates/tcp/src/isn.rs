//! Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323 section 5.4).

use core::net::{IpAddr, SocketAddr};

use sidecore_wire::SeqNumber;
use siphasher::sip::SipHasher24;

use crate::time::Instant;

/// "ISN = M + F(localip, localport, remoteip, remoteport, secretkey)" (RFC 6528 section 3).
///
/// M is a clock of 4 µs; F is SipHash-2-4 under `key`, which must be random and secret.
pub fn initial_sequence_number(
    key: &[u8; 16],
    now: Instant,
    local: impl Into<SocketAddr>,
    remote: impl Into<SocketAddr>,
) -> SeqNumber {
    let clock = (now.as_nanos() / 4_000) as u32;
    let hash = keyed_hash(key, b"isn", local.into(), remote.into());
    SeqNumber((hash as u32).wrapping_add(clock))
}

/// A timestamp offset for each pair of addresses ("a random offset … on a per-connection basis", RFC 7323
/// section 5.4): the same for all ports, so that a new connection's timestamps lie after those of the one before
/// (which RFC 6191 needs for the reuse of TIME-WAIT).
pub fn timestamp_offset(
    key: &[u8; 16],
    local: impl Into<SocketAddr>,
    remote: impl Into<SocketAddr>,
) -> u32 {
    let without_port = |mut address: SocketAddr| {
        address.set_port(0);
        address
    };
    keyed_hash(
        key,
        b"tso",
        without_port(local.into()),
        without_port(remote.into()),
    ) as u32
}

/// Purpose, two addresses of IPv6 and their ports.
const HASHED_MAX: usize = 3 + 2 * (16 + 2);

fn keyed_hash(key: &[u8; 16], purpose: &[u8; 3], local: SocketAddr, remote: SocketAddr) -> u64 {
    // All at once: the hasher takes more time for each piece than for its bytes.
    let mut bytes = [0; HASHED_MAX];
    let mut len = 0;
    let mut put = |piece: &[u8]| {
        bytes[len..len + piece.len()].copy_from_slice(piece);
        len += piece.len();
    };
    put(purpose);
    for address in [local, remote] {
        match address.ip() {
            IpAddr::V4(ip) => put(&ip.octets()),
            IpAddr::V6(ip) => put(&ip.octets()),
        }
        put(&address.port().to_be_bytes());
    }
    SipHasher24::new_with_key(key).hash(&bytes[..len])
}
