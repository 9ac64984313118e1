//! The ECN field: the lower two bits of IPv4's TOS octet and of IPv6's traffic class (RFC 3168 section 5).

/// Not ECN-capable.
pub const NOT_ECT: u8 = 0b00;
/// ECN-capable, ECT(1): for experiments (RFC 8311).
pub const ECT_1: u8 = 0b01;
/// ECN-capable, ECT(0).
pub const ECT_0: u8 = 0b10;
/// Congestion experienced.
pub const CE: u8 = 0b11;
/// The bits of the octet that are the ECN field.
pub const MASK: u8 = 0b11;

/// Whether the octet says that congestion was experienced.
#[inline]
pub const fn is_ce(octet: u8) -> bool {
    octet & MASK == CE
}
