//! What a connection says of itself: `struct tcp_info` of Linux, so that a library in place of the C library's socket calls can hand it
//! on as it is. TCP fills it in, and it goes to applications as it is.
//!
//! The layout is Linux's (`include/uapi/linux/tcp.h`, as of 6.7), in the machine's byte order, and its versions are Linux's too: fields
//! are only ever added at the end, and the answer says how many bytes there are. What this engine does not count is 0; where that is no
//! usual value, the field says so.

macro_rules! layout {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty,)+) => {
        /// See the module. Sizes that Linux counts in segments are whole segments of `snd_mss`, rounded up (the windows: down).
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[repr(C)]
        pub struct TcpInfo {
            $($(#[doc = $doc])+ pub $name: $kind,)+
        }

        impl TcpInfo {
            /// As it lies in memory.
            pub fn to_bytes(&self) -> [u8; Self::LEN] {
                let mut bytes = [0; Self::LEN];
                $({
                    let at = core::mem::offset_of!(Self, $name);
                    let value = self.$name.to_ne_bytes();
                    bytes[at..at + value.len()].copy_from_slice(&value);
                })+
                bytes
            }

            /// From as many bytes as an engine has written; what a shorter answer does not have is 0.
            pub fn from_bytes(bytes: &[u8]) -> Self {
                let mut info = Self::default();
                $({
                    let at = core::mem::offset_of!(Self, $name);
                    let mut value = info.$name.to_ne_bytes();
                    if let Some(found) = bytes.get(at..at + value.len()) {
                        value.copy_from_slice(found);
                        info.$name = <$kind>::from_ne_bytes(value);
                    }
                })+
                info
            }
        }
    };
}

layout! {
    /// Linux's number of the state: 1 ESTABLISHED, 2 SYN-SENT, 3 SYN-RECEIVED, 4 FIN-WAIT-1, 5 FIN-WAIT-2, 6 TIME-WAIT, 7 CLOSED,
    /// 8 CLOSE-WAIT, 9 LAST-ACK, 10 LISTEN, 11 CLOSING.
    state: u8,
    /// 0 open, 1 disorder, 3 recovery, 4 loss.
    ca_state: u8,
    /// Timeouts in a row.
    retransmits: u8,
    /// Zero-window or keepalive probes in a row.
    probes: u8,
    /// How often the retransmission timeout was doubled.
    backoff: u8,
    /// What was agreed: [`options`].
    options: u8,
    /// Shift of the windows that we receive (low half) and that we send (high half).
    wscale: u8,
    /// Always 0.
    flags: u8,
    /// Retransmission timeout, microseconds.
    rto: u32,
    /// Delay of an acknowledgement, microseconds.
    ato: u32,
    /// Payload of a full segment that we send.
    snd_mss: u32,
    /// The same of the peer, as far as seen.
    rcv_mss: u32,
    /// Segments sent and not acknowledged.
    unacked: u32,
    /// Of these, selectively acknowledged.
    sacked: u32,
    /// … deemed lost.
    lost: u32,
    /// … sent again and out.
    retrans: u32,
    /// Always 0, as with Linux since 4.15.
    fackets: u32,
    /// Milliseconds since data was sent.
    last_data_sent: u32,
    /// Always 0, as with Linux.
    last_ack_sent: u32,
    /// Milliseconds since anything was received.
    last_data_recv: u32,
    /// The same.
    last_ack_recv: u32,
    /// Path MTU in bytes.
    pmtu: u32,
    /// Receive window, bytes.
    rcv_ssthresh: u32,
    /// Smoothed round-trip time, microseconds.
    rtt: u32,
    /// Its variation, microseconds.
    rttvar: u32,
    /// Slow start threshold in segments; 0x7fffffff: none yet.
    snd_ssthresh: u32,
    /// Congestion window in segments.
    snd_cwnd: u32,
    /// The MSS that we announced.
    advmss: u32,
    /// Segments by which one must be overtaken to count as lost, where loss is found by count: 3.
    reordering: u32,
    /// Round-trip time as the receiver sees it, microseconds.
    rcv_rtt: u32,
    /// What the receive window is tuned to, bytes.
    rcv_space: u32,
    /// Segments sent again, in all.
    total_retrans: u32,
    /// Bytes a second; 0: not paced.
    pacing_rate: u64,
    /// All ones: no limit.
    max_pacing_rate: u64,
    /// Bytes acknowledged.
    bytes_acked: u64,
    /// Bytes received in order.
    bytes_received: u64,
    /// Not counted: 0.
    segs_out: u32,
    /// Not counted: 0.
    segs_in: u32,
    /// Bytes written and not sent.
    notsent_bytes: u32,
    /// Least round-trip time, microseconds; all ones: not known.
    min_rtt: u32,
    /// Not counted: 0.
    data_segs_in: u32,
    /// Not counted: 0.
    data_segs_out: u32,
    /// Bytes a second that the path carries, as BBR has measured it; 0 with other controllers.
    delivery_rate: u64,
    /// Not measured: 0.
    busy_time: u64,
    /// Not measured: 0.
    rwnd_limited: u64,
    /// Not measured: 0.
    sndbuf_limited: u64,
    /// Not counted: 0.
    delivered: u32,
    /// Acknowledgments that echoed congestion.
    delivered_ce: u32,
    /// Bytes sent, those sent again included.
    bytes_sent: u64,
    /// Bytes sent again.
    bytes_retrans: u64,
    /// Not counted: 0.
    dsack_dups: u32,
    /// 1: segments were seen to overtake each other.
    reord_seen: u32,
    /// Segments received out of order.
    rcv_ooopack: u32,
    /// The peer's window, bytes.
    snd_wnd: u32,
    /// Our window, bytes.
    rcv_wnd: u32,
    /// Always 0.
    rehash: u32,
    /// Retransmission timeouts, in all.
    total_rto: u16,
    /// Not counted: 0.
    total_rto_recoveries: u16,
    /// Not measured: 0.
    total_rto_time: u32,
}

impl TcpInfo {
    /// Bytes of all of it.
    pub const LEN: usize = size_of::<Self>();
}

/// Bits of [`TcpInfo::options`].
pub mod options {
    /// Timestamps.
    pub const TIMESTAMPS: u8 = 1;
    /// Selective acknowledgments.
    pub const SACK: u8 = 2;
    /// Window scaling.
    pub const WSCALE: u8 = 4;
    /// Explicit congestion notification.
    pub const ECN: u8 = 8;
    /// … and the peer used it.
    pub const ECN_SEEN: u8 = 16;
    /// Data with the SYN was acknowledged (RFC 7413).
    pub const SYN_DATA: u8 = 32;
}

const _: () = {
    use core::mem::offset_of;
    assert!(TcpInfo::LEN == 248);
    assert!(offset_of!(TcpInfo, rto) == 8);
    assert!(offset_of!(TcpInfo, rtt) == 68);
    assert!(offset_of!(TcpInfo, snd_cwnd) == 80);
    assert!(offset_of!(TcpInfo, total_retrans) == 100);
    assert!(offset_of!(TcpInfo, bytes_acked) == 120);
    assert!(offset_of!(TcpInfo, min_rtt) == 148);
    assert!(offset_of!(TcpInfo, bytes_sent) == 200);
    assert!(offset_of!(TcpInfo, snd_wnd) == 228);
    assert!(offset_of!(TcpInfo, total_rto) == 240);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back_whatever_the_length() {
        let info = TcpInfo {
            state: 1,
            rtt: 0x0102_0304,
            bytes_acked: 1 << 40,
            total_rto_time: 9,
            ..TcpInfo::default()
        };
        let bytes = info.to_bytes();
        assert_eq!(bytes[68..72], 0x0102_0304u32.to_ne_bytes());
        assert_eq!(TcpInfo::from_bytes(&bytes), info);
        // An older engine's answer.
        let older = TcpInfo::from_bytes(&bytes[..104]);
        assert_eq!(
            (older.rtt, older.bytes_acked, older.total_rto_time),
            (info.rtt, 0, 0)
        );
        assert_eq!(TcpInfo::from_bytes(&[]), TcpInfo::default());
    }
}
