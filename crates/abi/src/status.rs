//! How the engine says what became of a command.

/// Result of a command or reason of an event, in the `aux` field of an event.
///
/// Values are stable; applications map them to errors (`sidecore-client` does so to `std::io::ErrorKind`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u16)]
pub enum Status {
    /// Done.
    #[default]
    Ok = 0,
    /// The entry made no sense: unknown operation, unknown option, reserved bits.
    Invalid = 1,
    /// The handle names no DTI of this UAL.
    BadHandle = 2,
    /// An extent lies outside its region, or there is no such region, or it may not be used so.
    BadExtent = 3,
    /// The handle is in use already.
    HandleInUse = 4,
    /// The DTI is in a state in which this cannot be done (not connected, not listening, already bound …).
    WrongState = 5,
    /// Address or port in use.
    AddressInUse = 6,
    /// Not an address of this engine.
    AddressNotAvailable = 7,
    /// Policy forbids it.
    NotPermitted = 8,
    /// A quota of the UAL or a table of the engine is full.
    NoResources = 9,
    /// A queue of this DTI is full; try again after a completion.
    QueueFull = 10,
    /// The peer refused the connection.
    ConnectionRefused = 11,
    /// The peer reset the connection.
    ConnectionReset = 12,
    /// The connection or attempt timed out.
    TimedOut = 13,
    /// No route to the peer, or ICMP said so.
    Unreachable = 14,
    /// The connection was aborted on this side.
    Aborted = 15,
    /// The operation was cancelled, or its DTI closed, before it was done.
    Cancelled = 16,
    /// This engine does not do that (yet).
    NotSupported = 17,
    /// A datagram is larger than can be sent.
    MessageTooLarge = 18,
    /// The UAL broke the rules of shared memory and is being closed.
    Condemned = 19,
}

impl Status {
    /// From its number; unknown numbers (a newer engine's) read as [`Status::Invalid`].
    pub const fn from_raw(raw: u16) -> Self {
        use Status::*;
        const ALL: [Status; 20] = [
            Ok,
            Invalid,
            BadHandle,
            BadExtent,
            HandleInUse,
            WrongState,
            AddressInUse,
            AddressNotAvailable,
            NotPermitted,
            NoResources,
            QueueFull,
            ConnectionRefused,
            ConnectionReset,
            TimedOut,
            Unreachable,
            Aborted,
            Cancelled,
            NotSupported,
            MessageTooLarge,
            Condemned,
        ];
        if (raw as usize) < ALL.len() {
            ALL[raw as usize]
        } else {
            Invalid
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn numbers_round_trip() {
        for raw in 0..=19 {
            assert_eq!(Status::from_raw(raw) as u16, raw);
        }
        assert_eq!(Status::from_raw(20), Status::Invalid);
        assert_eq!(Status::from_raw(u16::MAX), Status::Invalid);
    }
}
