//! ARP, IPv4, IPv6, ICMP, UDP, flow table, listeners and timers around [`sidecore_tcp`]: frames in, frames and events out.
//!
//! A [`Stack`] never blocks, reads no clock, knows nothing of shared memory, and touches no payload byte but to verify a
//! checksum that no device has verified. One belongs to each engine thread. Its caller, the [`Host`], stores what is
//! received and keeps what is sent; frames leave through a [`FrameSink`].
//!
//! ```text
//!   handle_frame ───►┌───────┐──► Host: room? store, readable, acknowledged, incoming, connected, closed, datagram
//!   handle_timers ──►│ Stack │◄── listen, connect, set_send_limit, set_receive_limit, close, …
//!   transmit ───────►└───────┘──► FrameSink: headers, and which bytes of whom follow them
//! ```
//!
//! A turn is: frames in, then the caller's own calls, then timers, then [`Stack::transmit`], which sends everything that is
//! due: so acknowledgments ride on the answers. Then the caller may sleep until [`Stack::next_timeout`], unless
//! [`Stack::has_work`].
//!
//! | file | what |
//! |---|---|
//! | `stack` | the struct, its turn |
//! | `input` | Ethernet, IPv4, and on to TCP, UDP, ICMP |
//! | `segment` | a TCP segment and its connection; what its outcome means for the host |
//! | `listen`, `socket`, `udp` | what the caller asks for |
//! | `syn_cookie` | handshakes of which nothing is kept |
//! | `limiter`, `challenge` | how often strangers are answered |
//! | `output`, `frame`, `control` | what goes out |
//! | `connections`, `flow`, `wheel`, `list` | the slab, the flow table, timers, intrusive lists |
//! | `arp`, `icmp`, `reassembly` | the neighbour cache, ICMP, fragments |
//! | `dhcp` | the address, when it is asked for |
//! | `path_mtu` | what paths carry |
//! | `v6` | all that IPv6 does differently |
//!
//! Whatever comes from the network is hostile: no input panics, every table has a limit, and what does not fit is
//! counted in [`Counters`]. Nothing is allocated per packet.

#![forbid(unsafe_code)]

mod address;
mod arp;
mod challenge;
mod config;
mod connections;
mod control;
mod counters;
mod dhcp;
mod error;
mod fast_open;
mod flow;
mod frame;
mod groups;
mod hash;
mod host;
mod icmp;
mod id;
mod incarnation;
mod info;
mod input;
mod limiter;
mod list;
mod listen;
mod marking;
mod output;
mod path_mtu;
mod ports;
mod reassembly;
mod segment;
mod sink;
mod socket;
mod stack;
mod syn_cookie;
mod timers;
mod udp;
mod v6;
mod wheel;

pub use address::{CidrParseError, Ipv4Cidr};
pub use config::{
    ArpConfig, MtuDiscovery, ReassemblyConfig, SocketOption, SocketOptions, StackConfig, SynCookies,
};
pub use counters::Counters;
pub use dhcp::DhcpLease;
pub use error::StackError;
pub use frame::MAX_HEADER_LEN;
pub use groups::{GroupChange, GroupConfig};
pub use host::{DatagramError, Envelope, Host};
pub use id::{ConnId, DETACHED, ListenerId, UdpId, User};
pub use info::{ConnectionInfo, ListenerInfo, UdpInfo};
pub use input::{FlowHint, FrameMeta, RxChecksum};
pub use limiter::Rate;
pub use sink::{FrameSink, SinkCaps, TxOffload, TxPayload};
pub use stack::Stack;
pub use v6::{InterfaceId, Ipv6Cidr, Ipv6Config, NeighborConfig};
