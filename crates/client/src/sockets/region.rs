//! Sends from memory of the program's own: registered, and not copied.

use std::io;

use sidecore_abi::command::flags;
use sidecore_abi::{Command, DtiHandle, Operation};

use super::Sockets;
use super::group::lock;
use super::raw::{RawSocket, write_error};
use super::receipt::Receipt;
use super::send::Stop;
use super::socket::Kind;
use crate::{OutOfRange, Region};

impl Sockets {
    /// A number that no other group of this process has.
    pub fn number(&self) -> u64 {
        self.group.number
    }

    /// Gives a region of the UAL back, once nothing refers to it any more. Does not wait for that.
    pub fn deregister(&self, region: &Region) {
        let group = &self.group;
        let mut command = Command::new(Operation::Deregister, DtiHandle::default(), group.cookie());
        command.evq = group.evq.index();
        command.body[0] = u64::from(region.id().0);
        group.post_surely(command, None, true);
    }
}

impl RawSocket {
    /// The number of its group ([`Sockets::number`]).
    pub fn group_number(&self) -> u64 {
        self.0.group().number
    }

    /// Sends `len` bytes of a region of this UAL from `offset` on over a stream, without copying, whole or not at all. `then` is called once, by whoever
    /// looks after the event queue and with no lock held: when the peer has acknowledged them, or with the reason why it will not. Until then the
    /// bytes must stay as they are. `more`: others follow at once. Unlike written bytes they do not count against what a stream may have in flight.
    ///
    /// `WouldBlock` when too many sends are in flight, or the lane is full; then, and with every other error, `then` is not called. `BrokenPipe` once the
    /// direction has ended; `InvalidInput` for bytes that are not in the region; `Unsupported` for what is no stream.
    pub fn send_region(
        &self,
        region: &Region,
        (offset, len): (u64, u32),
        more: bool,
        then: impl Fn(io::Result<()>) + Send + Sync + 'static,
    ) -> io::Result<()> {
        let (group, socket) = (self.0.group(), self.0.socket());
        if socket.kind != Kind::Stream || len == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let data = region.extent(offset, len);
        let data = data.map_err(|OutOfRange| io::ErrorKind::InvalidInput)?;
        let bits = if more { flags::MORE } else { 0 };
        let receipt = Receipt::new(then);
        let mut begun = None;
        loop {
            let mut state = lock(&socket.state);
            write_error(&mut state, group.is_dead())?;
            let stop = {
                let mut lane = lock(&group.lane);
                let stop = state
                    .sends
                    .region(&mut lane, socket.dti, (data, bits), &receipt);
                lane.flush();
                stop
            };
            if stop == Stop::Done {
                state.written += u64::from(len);
                return Ok(());
            }
            state.wants_room = true;
            drop(state);
            self.no_room(stop, &mut begun)?;
        }
    }
}
