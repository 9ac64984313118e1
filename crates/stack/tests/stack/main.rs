//! The stack as its callers see it.

#![forbid(unsafe_code)]

mod accept_queue;
mod adversary;
mod arp;
mod attacks;
mod close;
mod dhcp;
mod ecn;
mod fast_open;
mod groups;
mod handshake;
mod icmp;
mod ip;
mod limits;
mod loopback;
mod options;
mod pacing;
mod path_mtu;
mod random;
mod raw;
mod rfc9293;
mod six;
mod smoltcp_device;
mod smoltcp_peer;
mod syn_cookies;
mod transfer;
mod udp;
