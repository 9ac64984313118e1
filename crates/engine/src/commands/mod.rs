//! Commands, one file for each kind. Each is checked here once, against tables that the application cannot touch.

mod custody;
mod data;
mod datagram;
pub(crate) mod heirs;
mod holders;
mod info;
mod membership;
mod options;
pub(crate) mod socket;

use sidecore_abi::command::{EVQ_OF_DTI, flags};
use sidecore_abi::event::{self, Event};
use sidecore_abi::{Command, DtiHandle, Entry, EventKind, Operation, Status};
use sidecore_stack::Stack;
use sidecore_tcp::Instant;

use crate::tables::{Tables, completion_of};

/// What commands work on.
pub(crate) struct Context<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) stack: &'a mut Stack,
    pub(crate) now: Instant,
    /// UAL that posted the command.
    pub(crate) ual: u32,
}

/// How a command ended.
pub(crate) enum Done {
    /// Done; a completion goes out only when the command asked for one.
    Quiet,
    /// Done, with this answer in the body.
    Answer([u64; 5]),
    /// Its answer comes later, or is on its way already.
    Later,
    /// Refused.
    Refused(Status),
}

impl From<Status> for Done {
    fn from(status: Status) -> Self {
        Done::Refused(status)
    }
}

/// Executes one entry of a doorbell lane.
#[inline]
pub(crate) fn execute(cx: &mut Context<'_>, entry: &Entry) {
    // What every request brings takes a way of its own, if nothing is special about it.
    const SEND: u8 = Operation::Send as u8;
    const RETURN_CHUNKS: u8 = Operation::ReturnChunks as u8;
    let done = match (entry.code(), Command::decode(entry)) {
        (SEND, Some(command)) => data::send_usual(cx, &command),
        (RETURN_CHUNKS, Some(command)) if command.flags & flags::NOTIFY == 0 => {
            data::return_chunks(cx, &command);
            true
        }
        _ => false,
    };
    if !done {
        execute_any(cx, entry);
    }
}

#[inline(never)]
fn execute_any(cx: &mut Context<'_>, entry: &Entry) {
    let Some(command) = Command::decode(entry) else {
        return unknown(cx, entry);
    };
    let done = match command.operation {
        Operation::Send => data::send(cx, &command),
        Operation::ReturnChunks => data::return_chunks(cx, &command),
        Operation::Receive => data::receive(cx, &command),
        Operation::Nop => Done::Quiet,
        Operation::CreateStream => socket::create_stream(cx, &command),
        Operation::CreateDatagram => socket::create_datagram(cx, &command),
        Operation::Bind => socket::bind(cx, &command),
        Operation::Listen => socket::listen(cx, &command),
        Operation::Accept => socket::accept(cx, &command),
        Operation::Connect => socket::connect(cx, &command),
        Operation::Shutdown => socket::shutdown(cx, &command),
        Operation::Close => socket::close(cx, &command),
        Operation::Abort => socket::abort(cx, &command),
        Operation::Cancel => socket::cancel(cx, &command),
        Operation::SetOption => options::set(cx, &command),
        Operation::SetOptions => options::set_several(cx, &command),
        Operation::GetOption => options::get(cx, &command),
        Operation::Deregister => data::deregister(cx, &command),
        Operation::Membership => membership::change(cx, &command),
        Operation::Detach => custody::detach(cx, &command),
        Operation::Attach => custody::attach(cx, &command),
    };
    match done {
        Done::Later => {}
        Done::Quiet if command.flags & flags::NOTIFY == 0 => {}
        Done::Quiet => answer(cx, &command, Status::Ok, [0; 5]),
        Done::Answer(body) => answer(cx, &command, Status::Ok, body),
        Done::Refused(status) => answer(cx, &command, status, [0; 5]),
    }
}

fn answer(cx: &mut Context<'_>, command: &Command, status: Status, body: [u64; 5]) {
    let creates = matches!(
        command.operation,
        Operation::CreateStream | Operation::CreateDatagram | Operation::Attach
    );
    let evq = if creates && command.evq == EVQ_OF_DTI {
        // There is no such DTI: to the queue that would have been its own.
        let named = command.body[0] as u16;
        cx.tables.ual(cx.ual).map_or(0, |ual| ual.clamp_evq(named))
    } else {
        evq_for(cx, command, false)
    };
    let mut event = Event::new(EventKind::Completion, command.dti, command.cookie, status);
    event.body = body;
    let event = completion_of(event, command.operation);
    if let Some(ual) = cx.tables.ual(cx.ual) {
        ual.counters.refused += u64::from(status != Status::Ok);
        ual.emit(evq, &event);
    }
}

/// An operation that this engine does not know: the answer names the operation's number as it came.
fn unknown(cx: &mut Context<'_>, entry: &Entry) {
    let mut event = Event::new(
        EventKind::Completion,
        DtiHandle::from_word(entry.0[1]),
        entry.0[2],
        Status::Invalid,
    );
    event.flags |= event::flags::FAILED;
    event.body[4] = u64::from(entry.code());
    if let Some(ual) = cx.tables.ual(cx.ual) {
        ual.counters.refused += 1;
        let evq = ual.clamp_evq(entry.aux());
        ual.emit(evq, &event);
    }
}

/// The queue for a command's answer: the one that it names, or its DTI's.
pub(crate) fn evq_for(cx: &mut Context<'_>, command: &Command, receive: bool) -> u16 {
    let named = command.evq;
    if named == EVQ_OF_DTI {
        let slot = cx.tables.find(cx.ual, command.dti);
        return slot
            .and_then(|s| cx.tables.dtis.get(s))
            .map_or(0, |dti| if receive { dti.rx_evq } else { dti.tx_evq });
    }
    cx.tables.ual(cx.ual).map_or(0, |ual| ual.clamp_evq(named))
}

/// The slot of a command's DTI, unless it was closed already.
#[inline]
pub(crate) fn slot(cx: &Context<'_>, command: &Command) -> Result<u32, Status> {
    cx.tables.find(cx.ual, command.dti).ok_or(Status::BadHandle)
}
