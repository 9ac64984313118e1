//! Files that are not in memory, part by part through a small room that all who read such files share.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{Connection, Core, Held, Stopped};

/// Bytes of one send of a file that is not in memory, at most and at least: the more such files go out at a time, the smaller.
const STREAM: u64 = 128 * 1024;
const STREAM_LEAST: u64 = 16 * 1024;

impl Core {
    /// Reads a part of a file that is not in memory and sends it. All connections that do so have equal shares of the room, and who has
    /// none yet gets it first: a fast reader must not keep the others waiting.
    pub(super) fn send_part(
        &mut self,
        connection: &mut Connection,
        file: &File,
        start: u64,
        len: u64,
        more: bool,
    ) -> Result<u64, Stopped> {
        // A quarter stays for what is made.
        let room = self.room.capacity() / 4 * 3;
        let newcomers = self.queued as u64 + u64::from(connection.streamed == 0);
        let share = room / (self.streams + newcomers).max(1);
        let count = len.min((share / 2).clamp(STREAM_LEAST, STREAM));
        if connection.streamed > 0 && connection.streamed + count > share {
            return Err(Stopped::Enough);
        }
        let others_turn = self.queued > 0 && !self.serving_queue;
        if others_turn || self.streamed + count > room {
            return Err(Stopped::Starved);
        }
        let block = self.room.allocate(count).ok_or(Stopped::Starved)?;
        self.step.resize(STREAM as usize, 0);
        let step = &mut self.step[..count as usize];
        file.read_exact_at(step, start)
            .map_err(|_| Stopped::Broken)?;
        let extent = self.put(block.offset(), &self.step[..count as usize])?;
        let sent = self.post(connection, extent, more || count < len, Held::Stream(block))?;
        self.streams += u64::from(connection.streamed == 0);
        self.streamed += count;
        connection.streamed += count;
        Ok(sent)
    }

    /// What a connection held of the room is free again.
    pub(super) fn unstream(&mut self, connection: &mut Connection, count: u64) {
        self.streamed -= count;
        connection.streamed -= count;
        self.streams -= u64::from(connection.streamed == 0 && count > 0);
    }

    /// A connection is gone, and what it waited for or held with it.
    pub(in super::super) fn forget(&mut self, connection: &mut Connection) {
        self.unblock(connection);
        self.unstream(connection, connection.streamed);
    }
}
