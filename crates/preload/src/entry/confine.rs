//! A program confines itself: after chroot(2) the agent cannot be reached by its path, and a filter of system calls may forbid what the library does.

use std::sync::Arc;

use libc::{c_char, c_int, c_ulong};

use crate::guard::{is_inside, within};
use crate::process::{Process, existing};
use crate::real;
use crate::socket::Socket;
use crate::table::Thing;

/// The sockets of a process, each once.
fn sockets(process: &Process) -> Vec<Arc<Socket>> {
    let mut known: Vec<Arc<Socket>> = Vec::new();
    for fd in process.table.used(0, c_int::MAX) {
        if let Some(Thing::Socket(socket)) = process.get(fd)
            && !known.iter().any(|other| Arc::ptr_eq(other, &socket))
        {
            known.push(socket);
        }
    }
    known
}

/// This process's, unless the library itself calls, or a child of vfork does.
fn ours() -> Option<&'static Process> {
    existing().filter(|process| !is_inside() && process.pid == std::process::id())
}

/// chroot(2). What was inherited and not used yet is asked for before, and the engine opened: afterwards nobody could.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn chroot(path: *const c_char) -> c_int {
    if let Some(process) = ours() {
        within((), || {
            sockets(process).iter().for_each(|socket| socket.ask_now());
            process.reach();
        });
    }
    // SAFETY: as libc's.
    unsafe { real::chroot(path) }
}

/// prctl(2). Before a filter of system calls is set, connections go to the custodian, and the library steps aside: from here on the descriptors are
/// the system's, and need no calls but the program's own. A process with something that only the library can serve goes on as before.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    if option == libc::PR_SET_SECCOMP
        && let Some(process) = ours()
    {
        within((), || step_aside(process));
    }
    // SAFETY: as libc's.
    unsafe { real::prctl(option, second, third, fourth, fifth) }
}

/// seccomp(2), which libc has no function for, is about to set a filter.
pub(super) fn before_seccomp(operation: usize) {
    let sets = matches!(
        operation as libc::c_uint,
        libc::SECCOMP_SET_MODE_STRICT | libc::SECCOMP_SET_MODE_FILTER
    );
    if sets && let Some(process) = ours() {
        within((), || step_aside(process));
    }
}

fn step_aside(process: &Process) {
    let all = sockets(process);
    if all.iter().any(|socket| socket.needs_library()) {
        return;
    }
    if all.iter().all(|socket| socket.goes_to_descriptor()) {
        process.step_aside();
    }
}
