//! DTIs: the engine's record of each socket, and its descriptor queues.
//!
//! The papers put TX and RX descriptor queues into memory that host and engine share. Here they are the engine's own:
//! an application hands in a command, the engine checks it once, and nothing that the application does to shared memory
//! afterwards changes what was agreed.

pub(crate) mod receive;
pub(crate) mod table;
pub(crate) mod transmit;

use std::net::SocketAddr;

use sidecore_abi::DtiHandle;
use sidecore_stack::{ConnId, ListenerId, UdpId};

use crate::slab_list::List;
use crate::tables::heirs::Untaken;
use receive::ReceiveQueue;
use transmit::TransmitQueue;

/// A handle that no application has: the DTI of a connection that waits to be accepted.
pub(crate) const ANONYMOUS: DtiHandle = DtiHandle {
    index: u32::MAX,
    generation: 0,
};

/// What a DTI is at the moment.
#[derive(Debug)]
pub(crate) enum Role {
    /// A stream DTI that was just made.
    Fresh,
    /// Bound, not yet used.
    Bound(SocketAddr),
    /// A listener.
    Listening(Box<Listening>),
    /// Connect was posted; the cookie answers it.
    Connecting {
        /// The connection.
        conn: ConnId,
        /// Cookie of the connect.
        cookie: u64,
        /// This end's address.
        local: SocketAddr,
    },
    /// Established, in whatever state of closing.
    Connected(ConnId),
    /// The connection is over and the application has been (or is being) told.
    Ended,
    /// A datagram socket.
    Datagram {
        /// Bound at the stack.
        socket: Option<UdpId>,
        /// Where sends without an address go.
        peer: Option<SocketAddr>,
        /// Its number, if others may hold it, too.
        shared: Option<u32>,
    },
}

/// What a listener keeps.
#[derive(Debug)]
pub(crate) struct Listening {
    /// At the stack.
    pub(crate) id: ListenerId,
    /// Local address.
    pub(crate) local: SocketAddr,
    /// Connections that no accept was there for, oldest first (slots).
    pub(crate) waiting: std::collections::VecDeque<u32>,
    /// How many may wait.
    pub(crate) backlog: u32,
    /// Accepts that wait for a connection.
    pub(crate) accepts: List,
    /// Whether an accept was ever posted.
    pub(crate) accepting: bool,
    /// Of one with copies: its UAL was told that a connection waits at one of them, and not that none does any more.
    pub(crate) told: bool,
}

/// An accept that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PostedAccept {
    /// Handle of the child.
    pub(crate) child: DtiHandle,
    /// Cookie of the accept.
    pub(crate) cookie: u64,
    /// Queue for the answer.
    pub(crate) evq: u16,
}

/// Bits of [`Dti::flags`].
pub(crate) mod flag {
    /// Limits or orders for the stack changed; the DTI is on the dirty list.
    pub(crate) const DIRTY: u32 = 1 << 0;
    /// Events could not be put onto a full event queue; the DTI is on its UAL's stalled list.
    pub(crate) const STALLED: u32 = 1 << 1;
    /// The application posted Shutdown (sending).
    pub(crate) const SHUTDOWN: u32 = 1 << 2;
    /// The stack was told of it.
    pub(crate) const SHUTDOWN_TOLD: u32 = 1 << 3;
    /// The application posted Close.
    pub(crate) const CLOSE: u32 = 1 << 4;
    /// The stack was told of it.
    pub(crate) const CLOSE_TOLD: u32 = 1 << 5;
    /// The peer's FIN is in order.
    pub(crate) const END: u32 = 1 << 6;
    /// The application was told of it.
    pub(crate) const END_TOLD: u32 = 1 << 7;
    /// The connection is over; Closed is due once everything received was delivered.
    pub(crate) const OVER: u32 = 1 << 8;
    /// The application does not want to receive any more.
    pub(crate) const READ_SHUT: u32 = 1 << 9;
    /// Only posted buffers take data; what arrives without one waits in the pool.
    pub(crate) const POSTED_ONLY: u32 = 1 << 10;
    /// The last send said that more is to come.
    pub(crate) const MORE: u32 = 1 << 11;
    /// Abort instead of close (linger of 0).
    pub(crate) const RESET_ON_CLOSE: u32 = 1 << 12;
    /// The application wants to hear when little waits unsent.
    pub(crate) const LOWAT: u32 = 1 << 13;
    /// … and is to hear it: the DTI is on the list of those.
    pub(crate) const LOWAT_DUE: u32 = 1 << 14;
    /// The peer has urgent data, of which the application was not told.
    pub(crate) const URGENT_DUE: u32 = 1 << 15;
    /// The application has urgent data, of which the stack was not told.
    pub(crate) const URGENT_SENT: u32 = 1 << 16;
    /// Each ICMP error about a datagram is reported.
    pub(crate) const RECEIVE_ERRORS: u32 = 1 << 17;
    /// Of a datagram socket: others may come that have it.
    pub(crate) const OUTLIVED: u32 = 1 << 18;
}

/// One socket.
#[derive(Debug)]
pub(crate) struct Dti {
    /// Its UAL's slot. The UAL stays there, even when its application is gone, until its last DTI is.
    pub(crate) ual: u32,
    /// What the application calls it.
    pub(crate) handle: DtiHandle,
    /// What it is.
    pub(crate) role: Role,
    /// [`flag`].
    pub(crate) flags: u32,
    /// Queue for what is received, accepted and closed.
    pub(crate) rx_evq: u16,
    /// Queue for what was sent and connected.
    pub(crate) tx_evq: u16,
    /// Status of Closed.
    pub(crate) end_status: sidecore_abi::Status,
    /// Descriptors outstanding (sends, receives, accepts).
    pub(crate) descriptors: u32,
    /// Use of this slot: tells chunks and loopback frames of an earlier user.
    pub(crate) epoch: u32,
    /// Cookie of the command that awaits the end of sending (Shutdown or Close with NOTIFY); `u64::MAX`: none.
    pub(crate) end_cookie: Option<(u64, u16)>,
    pub(crate) tx: TransmitQueue,
    pub(crate) rx: ReceiveQueue,
    /// Datagrams to send.
    pub(crate) datagrams: List,
    /// Options that wait for a connection; a listener's are those of its children.
    pub(crate) options: Vec<sidecore_stack::SocketOption>,
    /// Keepalive times, once any was set.
    pub(crate) keepalive: Option<Box<sidecore_tcp::Keepalive>>,
    /// For how many milliseconds after Close data is kept trying; none: as long as the stack would anyway.
    pub(crate) linger_ms: Option<std::num::NonZeroU32>,
    /// Fewer bytes than this unsent are little; meaningful with [`flag::LOWAT`].
    pub(crate) notsent_lowat: u32,
    /// Number of the descriptor that stands for it; 0: none.
    pub(crate) number: u64,
    /// Of a connection that came in on a listener with copies: until a program has taken it.
    pub(crate) untaken: Option<Box<Untaken>>,
}

impl Dti {
    /// A new one.
    pub(crate) fn new(
        ual: u32,
        handle: DtiHandle,
        rx_evq: u16,
        tx_evq: u16,
        role: Role,
        epoch: u32,
    ) -> Self {
        Self {
            ual,
            handle,
            role,
            flags: 0,
            rx_evq,
            tx_evq,
            end_status: sidecore_abi::Status::Ok,
            descriptors: 0,
            epoch,
            end_cookie: None,
            tx: TransmitQueue::default(),
            rx: ReceiveQueue::default(),
            datagrams: List::default(),
            options: Vec::new(),
            keepalive: None,
            linger_ms: None,
            notsent_lowat: 0,
            number: 0,
            untaken: None,
        }
    }

    /// Whether a flag is set.
    #[inline]
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The connection, if there is one.
    #[inline]
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match self.role {
            Role::Connected(conn) | Role::Connecting { conn, .. } => Some(conn),
            _ => None,
        }
    }

    /// Sets from how few unsent bytes on the application is told; 0: it is not.
    pub(crate) fn set_notsent_lowat(&mut self, bytes: u32) {
        self.notsent_lowat = bytes;
        self.flags &= !flag::LOWAT;
        if bytes > 0 {
            self.flags |= flag::LOWAT;
        }
    }

    /// Whether the application named it (it was accepted, or made by a command).
    #[inline]
    pub(crate) fn is_named(&self) -> bool {
        self.handle.index != ANONYMOUS.index
    }
}
