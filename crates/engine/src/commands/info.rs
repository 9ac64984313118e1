//! TCP_INFO: what the stack knows of a connection, as Linux would say it.

use sidecore_abi::{Command, Extent, Status};
use sidecore_shm::MemRef;

use super::{Context, Done};

/// GetOption with option Info: writes to the extent that the command names.
pub(super) fn get(cx: &mut Context<'_>, command: &Command, slot: u32) -> Done {
    let conn = cx.tables.dtis.get(slot).and_then(|dti| dti.conn());
    let Some(info) = conn.and_then(|conn| cx.stack.tcp_info(conn, cx.now)) else {
        return Status::WrongState.into();
    };
    let bytes = info.to_bytes();
    let extent = Extent::from_words([command.body[1], command.body[2]]);
    let len = bytes.len().min(extent.len as usize);
    let Some(ual) = cx.tables.ual(cx.ual) else {
        return Status::BadHandle.into();
    };
    let to = ual
        .regions
        .slice_mut(extent.region.0, extent.offset, len as u32);
    let written = to.is_some_and(|to| to.write(0, MemRef::from_bytes(&bytes[..len])));
    if !written {
        return Status::BadExtent.into();
    }
    Done::Answer([len as u64, 0, 0, 0, 0])
}
