//! Files to streams: the bytes are read where they are sent from.

use std::io;
use std::os::fd::BorrowedFd;

use super::group::lock;
use super::raw::{RawSocket, check_write};
use super::send::{Reserved, Stop};
use super::wakers::wake_all;
use sidecore_abi::command::flags;

impl RawSocket {
    /// Sends up to `most` bytes of a file, from its byte `at` on, as many as there is room for: 0 at the file's end. They are copied once, by the
    /// system, into the memory that the engine sends from. Blocks as reading the file does, and else as little as [`Self::write`], whose errors
    /// and `how` ([`flags::MORE`]) it has, beside the file's.
    pub fn send_file(
        &self,
        file: BorrowedFd<'_>,
        at: u64,
        most: usize,
        how: u8,
    ) -> io::Result<usize> {
        if most == 0 {
            return Ok(0);
        }
        let group = self.0.group();
        let (reserved, most) = self.reserve(most)?;
        let read = group.memory.read_file((&reserved, most), file, at);
        let done = match read {
            Ok(n) if n > 0 => return self.post_reserved(&reserved, n as u32, how & flags::MORE),
            done => done,
        };
        self.put_back(&reserved);
        done
    }

    /// Memory to be filled, and how much of it may be.
    fn reserve(&self, most: usize) -> io::Result<(Reserved, u32)> {
        let (group, socket) = (self.0.group(), self.0.socket());
        let mut state = lock(&socket.state);
        check_write(&mut state, group.is_dead())?;
        let window = state.send_window(group.config.stream_bytes.max(1));
        let room = window.map_or(0, |window| state.sends.may_send(window));
        let most = most.min(room);
        if most > 0 {
            let reserved = state
                .sends
                .reserve(&group.memory, most, || socket.room_waker());
            if let Some(reserved) = reserved {
                let most = most.min(reserved.room() as usize);
                return Ok((reserved, most as u32));
            }
        }
        state.wants_room = true;
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn post_reserved(&self, reserved: &Reserved, n: u32, how: u8) -> io::Result<usize> {
        let (group, socket) = (self.0.group(), self.0.socket());
        let mut begun = None;
        loop {
            let mut state = lock(&socket.state);
            // It may have begun to move while the file was read: these bytes go where it went, by another call.
            let posted = check_write(&mut state, group.is_dead());
            let posted = posted.map(|()| {
                let mut lane = lock(&group.lane);
                let sends = &mut state.sends;
                let posted = sends.fill(&group.memory, &mut lane, socket.dti, (reserved, n), how);
                lane.flush();
                posted
            });
            match posted {
                Ok(true) => {
                    state.written += u64::from(n);
                    return Ok(n as usize);
                }
                Ok(false) => drop(state),
                Err(error) => {
                    drop(state);
                    self.put_back(reserved);
                    return Err(error);
                }
            }
            if let Err(error) = self.no_room(Stop::Lane, &mut begun) {
                self.put_back(reserved);
                return Err(error);
            }
        }
    }

    fn put_back(&self, reserved: &Reserved) {
        let (group, socket) = (self.0.group(), self.0.socket());
        let mut wake = Vec::new();
        lock(&socket.state)
            .sends
            .put_back(&group.memory, reserved, &mut wake);
        wake_all(&mut wake);
    }
}
