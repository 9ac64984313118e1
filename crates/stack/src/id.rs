//! Names of what the stack holds. Each is an index and the generation of the slot: a name outlives what it names, and is
//! then recognised as stale.

/// The caller's own index of a socket, handed back in every call and event.
pub type User = u32;

/// The user of what belongs to no caller (any more).
pub const DETACHED: User = u32::MAX;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name {
            index: u32,
            generation: u32,
        }

        impl $name {
            pub(crate) const fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }

            /// The slot in the stack's table.
            pub const fn index(self) -> u32 {
                self.index
            }

            /// Which use of the slot.
            pub const fn generation(self) -> u32 {
                self.generation
            }
        }
    };
}

id! {
    /// A TCP connection.
    ConnId
}
id! {
    /// A listening TCP socket.
    ListenerId
}
id! {
    /// A bound UDP socket.
    UdpId
}
