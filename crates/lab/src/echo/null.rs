//! The null responder: the floor under every stack over TAP.
//!
//! It holds no state at all. A segment with data is turned round in place (addresses, ports and numbers exchanged) and written back
//! with its own bytes or with a canned answer; SYN and FIN are answered as they must be; ARP too. Nothing is retransmitted, ordered or
//! checked. No stack can answer with fewer system calls unless it moves several frames with one.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use sidecore_wire::checksum;

use super::tap::{CHECKSUM_LEFT, MAX_FRAME, RawTap, VNET};
use super::{Announcement, NullEcho};

const IP: usize = VNET + 14;
const TCP: usize = IP + 20;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Serves until the process ends.
pub fn serve(config: &NullEcho, ready: &mut dyn FnMut(Announcement)) -> anyhow::Result<Infallible> {
    let tap = RawTap::create(&config.tap)?;
    let responder = Responder {
        mac: tap.mac(),
        address: config.tap.address,
        canned: config.canned.clone(),
    };
    ready(Announcement::plain(SocketAddr::from((
        config.tap.address,
        config.port,
    ))));
    let mut frame = vec![0; MAX_FRAME];
    loop {
        match tap.read(&mut frame)? {
            Some(length) => {
                if let Some(answer) = responder.answer(&mut frame, length) {
                    tap.write(&frame[..answer]);
                }
            }
            None if config.spin => {}
            None => tap.wait(None)?,
        }
    }
}

/// Turns frames round.
struct Responder {
    mac: [u8; 6],
    address: Ipv4Addr,
    canned: Option<Vec<u8>>,
}

impl Responder {
    /// Makes the answer to the frame (`length` bytes with its virtio-net header) in its place: the answer's length, if there is one.
    fn answer(&self, frame: &mut [u8], length: usize) -> Option<usize> {
        match frame.get(VNET + 12..VNET + 14)? {
            [0x08, 0x00] => self.answer_tcp(frame, length),
            [0x08, 0x06] => self.answer_arp(frame, length),
            _ => None,
        }
    }

    fn answer_arp(&self, frame: &mut [u8], length: usize) -> Option<usize> {
        let arp = frame.get_mut(VNET + 14..length)?.first_chunk_mut::<28>()?;
        let asks_for_us = arp[6..8] == [0, 1] && arp[24..28] == self.address.octets();
        if !asks_for_us {
            return None;
        }
        arp[7] = 2;
        arp.copy_within(8..18, 18);
        arp[8..14].copy_from_slice(&self.mac);
        arp[14..18].copy_from_slice(&self.address.octets());
        self.turn_ethernet(frame);
        frame[..VNET].fill(0);
        Some(VNET + 14 + 28)
    }

    fn turn_ethernet(&self, frame: &mut [u8]) {
        frame.copy_within(VNET + 6..VNET + 12, VNET);
        frame[VNET + 6..VNET + 12].copy_from_slice(&self.mac);
    }

    fn answer_tcp(&self, frame: &mut [u8], length: usize) -> Option<usize> {
        let header = frame.get(IP..length)?.first_chunk::<40>()?;
        let plain = header[0] == 0x45 && header[9] == 6 && header[16..20] == self.address.octets();
        if !plain {
            return None;
        }
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let offset = usize::from(header[32] >> 4) * 4;
        let flags = header[33];
        let payload = total.checked_sub(20 + offset)?;
        if IP + total > length || offset < 20 || (payload == 0 && flags & (SYN | FIN) == 0) {
            return None;
        }
        let sequence = u32::from_be_bytes(*header[24..].first_chunk()?);
        let acknowledged = *header[28..].first_chunk::<4>()?;
        let consumed = payload as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.turn_ethernet(frame);
        turn_addresses(frame);
        // Our sequence number is what the peer has acknowledged; with a SYN it is 0, as every other.
        frame[TCP + 4..TCP + 8].copy_from_slice(&acknowledged);
        frame[TCP + 8..TCP + 12].copy_from_slice(&sequence.wrapping_add(consumed).to_be_bytes());
        frame[..VNET].copy_from_slice(&CHECKSUM_LEFT);
        match &self.canned {
            _ if flags & SYN != 0 => Some(handshake(frame)),
            None if payload > 0 => {
                frame[TCP + 13] = ACK | PSH | (flags & FIN);
                Some(IP + total)
            }
            Some(canned) if payload > 0 => {
                Some(replace_payload(frame, canned, ACK | PSH | (flags & FIN)))
            }
            _ => Some(replace_payload(frame, &[], ACK | FIN)),
        }
    }
}

/// Exchanges addresses and ports; checksums do not change by that.
fn turn_addresses(frame: &mut [u8]) {
    for (first, bytes) in [(IP + 12, 4), (TCP, 2)] {
        for i in first..first + bytes {
            frame.swap(i, i + bytes);
        }
    }
}

/// SYN and ACK with a maximum segment size and nothing else: no scaling, no timestamps.
fn handshake(frame: &mut [u8]) -> usize {
    frame[TCP + 13] = SYN | ACK;
    frame[TCP + 12] = 6 << 4;
    frame[TCP + 20..TCP + 24].copy_from_slice(&[2, 4, 0x05, 0xb4]);
    set_lengths(frame, 24)
}

fn replace_payload(frame: &mut [u8], payload: &[u8], flags: u8) -> usize {
    frame[TCP + 13] = flags;
    frame[TCP + 12] = 5 << 4;
    let payload = &payload[..payload.len().min(1400)];
    frame[TCP + 20..TCP + 20 + payload.len()].copy_from_slice(payload);
    set_lengths(frame, 20 + payload.len())
}

/// Writes the IPv4 length and checksum, and the pseudo-header's sum for TCP. Returns the frame's length.
fn set_lengths(frame: &mut [u8], segment: usize) -> usize {
    frame[TCP + 14..TCP + 16].fill(0xff);
    frame[IP + 2..IP + 4].copy_from_slice(&((20 + segment) as u16).to_be_bytes());
    frame[IP + 10..IP + 12].fill(0);
    let sum = checksum::complement(checksum::sum(&frame[IP..TCP], 0));
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    let address = |at: usize| Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
    let pseudo = checksum::fold(checksum::pseudo_v4(
        address(IP + 12),
        address(IP + 16),
        6,
        segment as u32,
    ));
    frame[TCP + 16..TCP + 18].copy_from_slice(&pseudo.to_be_bytes());
    TCP + segment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn responder(canned: Option<&[u8]>) -> Responder {
        Responder {
            mac: [2; 6],
            address: Ipv4Addr::new(10, 0, 0, 2),
            canned: canned.map(<[u8]>::to_vec),
        }
    }

    /// A frame from 10.0.0.1:1000 to 10.0.0.2:7 with these flags and bytes, sequence number 100, acknowledging 500.
    fn segment(flags: u8, payload: &[u8]) -> (Vec<u8>, usize) {
        let mut frame = vec![0; MAX_FRAME];
        frame[VNET + 6..VNET + 12].fill(9);
        frame[VNET + 12] = 0x08;
        frame[IP] = 0x45;
        frame[IP + 9] = 6;
        frame[IP + 12..IP + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[TCP..TCP + 4].copy_from_slice(&[3, 0xe8, 0, 7]);
        frame[TCP + 7] = 100;
        frame[TCP + 10..TCP + 12].copy_from_slice(&[1, 0xf4]);
        let length = replace_payload(&mut frame, payload, flags);
        (frame, length)
    }

    fn check(frame: &[u8], length: usize, flags: u8, acknowledges: u8, payload: &[u8]) {
        assert_eq!(frame[VNET..VNET + 6], [9; 6]);
        assert_eq!(frame[IP + 12..IP + 20], [10, 0, 0, 2, 10, 0, 0, 1]);
        assert_eq!(frame[TCP..TCP + 4], [0, 7, 3, 0xe8]);
        assert_eq!(frame[TCP + 4..TCP + 8], [0, 0, 1, 0xf4]);
        assert_eq!(frame[TCP + 11], acknowledges);
        assert_eq!(frame[TCP + 13], flags);
        let start = TCP + usize::from(frame[TCP + 12] >> 4) * 4;
        assert_eq!(&frame[start..length], payload);
        assert_eq!(checksum::fold(checksum::sum(&frame[IP..TCP], 0)), 0xffff);
    }

    #[test]
    fn data_comes_back_in_place() {
        let (mut frame, length) = segment(ACK | PSH, b"hello");
        let answer = responder(None).answer(&mut frame, length).unwrap();
        check(&frame, answer, ACK | PSH, 105, b"hello");
    }

    #[test]
    fn a_canned_answer_replaces_the_data() {
        let (mut frame, length) = segment(ACK | PSH, b"GET /");
        let answer = responder(Some(b"200")).answer(&mut frame, length).unwrap();
        check(&frame, answer, ACK | PSH, 105, b"200");
    }

    #[test]
    fn handshake_and_end_are_answered_and_acknowledgements_are_not() {
        let (mut frame, length) = segment(SYN, b"");
        let answer = responder(None).answer(&mut frame, length).unwrap();
        check(&frame, answer, SYN | ACK, 101, b"");
        let (mut frame, length) = segment(FIN | ACK, b"");
        let answer = responder(None).answer(&mut frame, length).unwrap();
        check(&frame, answer, FIN | ACK, 101, b"");
        let (mut frame, length) = segment(ACK, b"");
        assert_eq!(responder(None).answer(&mut frame, length), None);
    }

    #[test]
    fn arp_for_our_address_is_answered() {
        let mut frame = vec![0; 128];
        frame[VNET + 6..VNET + 12].fill(9);
        frame[VNET + 12..VNET + 14].copy_from_slice(&[8, 6]);
        let arp = VNET + 14;
        frame[arp + 7] = 1;
        frame[arp + 8..arp + 18].copy_from_slice(&[9, 9, 9, 9, 9, 9, 10, 0, 0, 1]);
        frame[arp + 24..arp + 28].copy_from_slice(&[10, 0, 0, 2]);
        let length = responder(None).answer(&mut frame, VNET + 60).unwrap();
        assert_eq!(length, VNET + 42);
        assert_eq!(frame[arp + 7..arp + 18], [2, 2, 2, 2, 2, 2, 2, 10, 0, 0, 2]);
        assert_eq!(frame[arp + 18..arp + 28], [9, 9, 9, 9, 9, 9, 10, 0, 0, 1]);
    }

    #[test]
    fn nonsense_is_not_answered() {
        let (frame, length) = segment(ACK | PSH, b"hello");
        for cut in 0..length {
            let mut short = frame[..cut].to_vec();
            assert_eq!(responder(None).answer(&mut short, cut), None, "{cut}");
        }
        for at in [IP, IP + 2, IP + 9, IP + 16, TCP + 12] {
            let mut odd = frame.clone();
            odd[at] = 0xff;
            assert_eq!(responder(None).answer(&mut odd, length), None, "byte {at}");
        }
    }
}
