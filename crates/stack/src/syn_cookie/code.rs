//! What a cookie is made of, and what a timestamp carries beside it.
//!
//! ```text
//!   ISS = F(base key, addresses, ports) + IRS + [ period mod 256 | size: 3 bits | G(period's key, addresses, ports, IRS, size): 21 bits ]
//! ```
//!
//! Nearly as in Linux, so that initial sequence numbers grow with time between the same ports (F and the period: RFC 6528), and nobody
//! can make one up (of 2^32 values 16 are good: 8 sizes in two periods). Unlike there, G has another key in each period, so that what
//! is learnt of one is of no use in the next, and covers the size, so that of the values next to a cookie none is one.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use sidecore_tcp::Instant;
use sidecore_wire::{SeqNumber, TcpFlags, TcpHeader, WindowScale};
use siphasher::sip::SipHasher24;

/// How long a key makes cookies, in seconds.
const PERIOD: u64 = 64;
/// Cookies of the current period and so many before it are good: for 64 to 128 seconds.
const PERIODS_BEFORE: u8 = 1;
/// For how long after a cookie was sent another may come back.
pub(crate) const LIFETIME_SECS: u64 = PERIOD * (PERIODS_BEFORE as u64 + 1);

/// Segment sizes that a cookie can tell: what is kept is the largest that is not above the peer's. Common ones: 1460 and 1440 of
/// Ethernet, less with tunnels (1360, 1220), 536 of those who say nothing, 8940 of jumbo frames.
const SIZES: [u16; 8] = [88, 216, 536, 1220, 1360, 1440, 1460, 8940];

const SIZE_SHIFT: u32 = 21;
const PROOF_MASK: u32 = (1 << SIZE_SHIFT) - 1;

/// Bits of a timestamp that say what its SYN offered: the shift of the window scale, 15 for none; SACK; ECN.
const OPTION_BITS: u32 = 6;
const OPTION_MASK: u32 = (1 << OPTION_BITS) - 1;
const SCALE_MASK: u32 = 0xf;
const SACK_BIT: u32 = 1 << 4;
const ECN_BIT: u32 = 1 << 5;

/// Makes cookies, and tells good ones.
#[derive(Clone, Debug)]
pub(crate) struct Codec {
    base: [u8; 16],
    secret: [u8; 16],
}

/// Who wants to be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// The peer's initial sequence number.
    pub(crate) irs: SeqNumber,
}

impl Codec {
    pub(crate) const fn new(base: [u8; 16], secret: [u8; 16]) -> Self {
        Self { base, secret }
    }

    /// The initial sequence number that keeps the peer's segment size.
    pub(crate) fn encode(&self, now: Instant, request: &Request, mss: u16) -> SeqNumber {
        let period = period_at(now);
        let size = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0) as u32;
        let fields =
            u32::from(period as u8) << 24 | size << SIZE_SHIFT | self.proof(period, request, size);
        SeqNumber(self.base(request).wrapping_add(fields))
    }

    /// The segment size that a cookie keeps; `None` if it is none of ours, or too old.
    pub(crate) fn decode(&self, now: Instant, request: &Request, cookie: SeqNumber) -> Option<u16> {
        let fields = cookie.0.wrapping_sub(self.base(request));
        let current = period_at(now);
        let age = (current as u8).wrapping_sub((fields >> 24) as u8);
        if age > PERIODS_BEFORE {
            return None;
        }
        let period = current.checked_sub(u64::from(age))?;
        let size = fields >> SIZE_SHIFT & 7;
        let good = fields & PROOF_MASK == self.proof(period, request, size);
        SIZES.get(size as usize).copied().filter(|_| good)
    }

    /// F + IRS: nothing that changes with time.
    fn base(&self, request: &Request) -> u32 {
        let hash = hash_of(&self.base, request, None);
        (hash as u32).wrapping_add(request.irs.0)
    }

    /// G.
    fn proof(&self, period: u64, request: &Request, size: u32) -> u32 {
        let half = |which: u8| {
            let mut hasher = SipHasher24::new_with_key(&self.secret);
            hasher.write_u8(which);
            hasher.write_u64(period);
            hasher.finish().to_le_bytes()
        };
        let mut key = [0; 16];
        key[..8].copy_from_slice(&half(0));
        key[8..].copy_from_slice(&half(1));
        hash_of(&key, request, Some(size)) as u32 & PROOF_MASK
    }
}

const fn period_at(now: Instant) -> u64 {
    now.as_nanos() / (PERIOD * 1_000_000_000)
}

/// Of addresses and ports; with a size, of that and the peer's sequence number too.
fn hash_of(key: &[u8; 16], request: &Request, size: Option<u32>) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    for address in [request.local, request.remote] {
        match address.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write(&address.port().to_be_bytes());
    }
    if let Some(size) = size {
        hasher.write(&request.irs.0.to_be_bytes());
        hasher.write(&size.to_be_bytes());
    }
    hasher.finish()
}

/// What a SYN offered, as far as a timestamp keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Offered {
    pub(crate) window_scale: Option<WindowScale>,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
}

impl Offered {
    /// What of the SYN's options the SYN-ACK agrees to.
    pub(crate) fn agreed(syn: &TcpHeader, syn_ack: &TcpHeader) -> Self {
        let scaled = syn_ack.options.window_scale.is_some();
        Self {
            window_scale: syn.options.window_scale.filter(|_| scaled),
            sack: syn_ack.options.sack_permitted,
            ecn: syn_ack.flags.contains(TcpFlags::ECE),
        }
    }

    /// The latest value of a timestamp clock at `clock`, in milliseconds, that says so in its lowest bits, and does not lie in the
    /// future: it is up to 64 ms old.
    pub(crate) fn into_clock(self, clock: u32) -> u32 {
        let scale = self.window_scale.map_or(SCALE_MASK, |s| s.shift().into());
        let sack = if self.sack { SACK_BIT } else { 0 };
        let ecn = if self.ecn { ECN_BIT } else { 0 };
        let bits = scale & SCALE_MASK | sack | ecn;
        let latest = clock & !OPTION_MASK | bits;
        if bits > clock & OPTION_MASK {
            latest.wrapping_sub(1 << OPTION_BITS)
        } else {
            latest
        }
    }

    /// The other way.
    pub(crate) fn from_clock(clock: u32) -> Self {
        let scale = clock & SCALE_MASK;
        Self {
            window_scale: (scale != SCALE_MASK).then(|| WindowScale::new(scale as u8)),
            sack: clock & SACK_BIT != 0,
            ecn: clock & ECN_BIT != 0,
        }
    }
}
