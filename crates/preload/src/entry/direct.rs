//! What `libexs`, in the same process, finds here ([`sidecore_client::abi::direct`]).

use libc::c_int;
use sidecore_client::abi::direct::{Done, Table, VERSION};

use super::socket_of;
use crate::guard::{Edge, within};
use crate::lent::{self, Sent};
use crate::process::process;

static TABLE: Table = Table {
    version: VERSION,
    lend,
    take_back,
    send,
};

/// Gives the table. It lives as long as this library.
#[unsafe(no_mangle)]
pub extern "C" fn sidecore_direct() -> *const Table {
    &raw const TABLE
}

extern "C" fn lend(memory: c_int, len: u64) -> u64 {
    within(0, || {
        let process = process();
        let memory = lent::keep(process, memory);
        memory.map_or(0, |memory| process.loans.add(memory, len))
    })
}

extern "C" fn take_back(number: u64) {
    within((), || {
        let process = process();
        process.loans.remove(process, number);
    });
}

extern "C" fn send(
    fd: c_int,
    number: u64,
    offset: u64,
    len: u32,
    more: c_int,
    done: Done,
    context: usize,
) -> c_int {
    let _edge = Edge::begin();
    let Some(socket) = socket_of(fd) else {
        return 1;
    };
    within(libc::EIO, || {
        let told = move |errno| done(context, errno);
        match lent::send(process(), &socket, number, (offset, len), more != 0, told) {
            Ok(Sent::Posted) => 0,
            Ok(Sent::Elsewhere) => 1,
            Err(error) => error.raw_os_error(),
        }
    })
}
