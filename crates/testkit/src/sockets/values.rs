//! What was set with `setsockopt` and the like.

use std::num::NonZeroU8;
use std::time::Duration;

use sidecore_stack::SocketOptions;
use sidecore_tcp::{Algorithm, Keepalive};

/// The options of a socket.
#[derive(Clone, Debug)]
pub(super) struct Values {
    /// AF_INET or AF_INET6.
    pub(super) domain: i32,
    pub(super) non_blocking: bool,
    pub(super) reuse_addr: bool,
    pub(super) reuse_port: bool,
    pub(super) broadcast: bool,
    pub(super) oob_inline: bool,
    pub(super) v6_only: bool,
    pub(super) linger: Option<Duration>,
    /// Bytes that may be written and not acknowledged.
    pub(super) send_buffer: usize,
    /// Bytes that may be received and not read.
    pub(super) receive_buffer: usize,
    pub(super) receive_low: usize,
    pub(super) no_delay: Option<bool>,
    pub(super) cork: bool,
    pub(super) quick_ack: Option<bool>,
    pub(super) keep_alive: bool,
    pub(super) keepalive: Keepalive,
    pub(super) user_timeout: Option<Duration>,
    pub(super) congestion: Option<Algorithm>,
    pub(super) mss: Option<u16>,
    pub(super) syn_retries: Option<u8>,
    /// TCP_FASTOPEN of a listener.
    pub(super) fast_open_queue: Option<u32>,
    /// TCP_FASTOPEN_CONNECT.
    pub(super) fast_open: bool,
    pub(super) fin_wait_2: Option<Duration>,
    pub(super) defer_accept: Option<Duration>,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: Option<NonZeroU8>,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            domain: super::AF_INET,
            non_blocking: false,
            reuse_addr: false,
            reuse_port: false,
            broadcast: false,
            oob_inline: false,
            v6_only: false,
            linger: None,
            send_buffer: 1 << 20,
            receive_buffer: 65535,
            receive_low: 1,
            no_delay: None,
            cork: false,
            quick_ack: None,
            keep_alive: false,
            keepalive: Keepalive::default(),
            user_timeout: None,
            congestion: None,
            mss: None,
            syn_retries: None,
            fast_open_queue: None,
            fast_open: false,
            fin_wait_2: None,
            defer_accept: None,
            traffic_class: 0,
            hop_limit: None,
        }
    }
}

impl Values {
    /// Those of a connection that this listener gets.
    pub(super) fn inherited(&self) -> Self {
        Self {
            non_blocking: false,
            quick_ack: None,
            ..self.clone()
        }
    }

    pub(super) fn for_stack(&self) -> SocketOptions {
        SocketOptions {
            no_delay: self.no_delay,
            keepalive: self.keep_alive.then_some(self.keepalive),
            user_timeout: self.user_timeout,
            congestion: self.congestion,
            ecn: None,
            mss: self.mss,
            syn_retries: self.syn_retries,
            receive_window: self.receive_buffer.try_into().unwrap_or(u32::MAX),
            v6_only: self.v6_only,
            fast_open_queue: self.fast_open_queue.unwrap_or(0),
            fast_open: self.fast_open,
            fin_wait_2: self.fin_wait_2,
            defer_accept: self.defer_accept,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            max_pacing_rate: None,
            ..SocketOptions::default()
        }
    }
}
