//! Several datagrams by one call, as QUIC's programs have it: sends that are cut (UDP_SEGMENT), and receives that are joined (UDP_GRO).

use std::io;

use rustix::io::Errno;
use sidecore_client::RawSocket;

use crate::transfer::{Beside, Received};

/// Datagrams of one call at most (linux/udp.h: UDP_MAX_SEGMENTS).
const MOST: usize = 128;

/// The most bytes that are joined.
const JOINED_MAX: usize = 65535;

/// How long the datagrams of a send of `len` bytes are where each, but the last, is to have `size` (0: it is not to be cut). `INVAL` for too
/// many.
pub(crate) fn cut(len: usize, size: usize) -> Result<usize, Errno> {
    if size == 0 || len <= size {
        return Ok(len);
    }
    if len > size * MOST {
        return Err(Errno::INVAL);
    }
    Ok(size)
}

/// Receives a datagram, and those behind it that are of the same length, or the last that is shorter, from the same sender, as far as there
/// is room.
pub(crate) fn receive(raw: &RawSocket, room: &mut [u8]) -> io::Result<Received> {
    let first = raw.receive_datagram(room, false)?;
    let size = first.whole;
    let mut len = first.len;
    let most = room.len().min(JOINED_MAX);
    let mut count = 1;
    // One that was cut is alone, as is an empty one.
    while first.len == size && size > 0 && len + size <= most && count < MOST {
        let place = &mut room[len..len + size];
        match raw.receive_datagram(place, true) {
            Ok(next) if next.from == first.from && (1..=size).contains(&next.whole) => {}
            // No more; or an error of ICMP's, which is as good as lost.
            Ok(_) | Err(_) => break,
        }
        let Ok(next) = raw.receive_datagram(place, false) else {
            break;
        };
        len += next.len;
        count += 1;
        if next.len < size {
            break;
        }
    }
    let beside = match count {
        1 => Beside::Datagram(first),
        _ => Beside::Joined(first, size),
    };
    Ok(Received {
        len,
        whole: if count == 1 { size } else { len },
        from: Some(first.from),
        beside,
    })
}
