//! The end of the program, by itself: a connection that others hold goes on there, with what this process had not read.
//!
//! The system would close all descriptors. So does the library, of those that matter to somebody else: the custodian gets the connection before the
//! engine has to find out that its owner is gone. Whoever is killed, or ends by the call's number, leaves that to the engine.

use std::time::{Duration, Instant};

use libc::c_int;

use super::numbers::is_visitor;
use super::raw::instruction;
use crate::guard::{is_inside, within};
use crate::process::existing;
use crate::signals::is_handling;
use crate::table::Thing;

/// After this nothing more is handed over: the program is to end, be there ever so many.
const MOST: Duration = Duration::from_secs(1);

/// Not in a signal handler, from which `_exit` may be called whatever the thread was at: handing over allocates. (Handlers of faults are not
/// known here: for these it is done only if somebody else may hold a connection.)
fn hand_over_what_others_hold() {
    if is_inside() || is_handling() {
        return;
    }
    let Some(process) = existing().filter(|process| process.has_spread()) else {
        return;
    };
    if is_visitor(process) {
        return;
    }
    within((), || {
        let begun = Instant::now();
        process.table.each(|thing| {
            if let Thing::Socket(socket) = thing
                && begun.elapsed() < MOST
            {
                socket.before_exit();
            }
        });
    });
}

fn end(status: c_int) -> ! {
    hand_over_what_others_hold();
    loop {
        let arguments = [status as usize, 0, 0, 0, 0, 0];
        // SAFETY: the call has no other argument, and does not come back.
        unsafe { instruction(libc::SYS_exit_group, arguments) };
    }
}

/// _exit(2).
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    end(status)
}

/// _Exit(3), which is the same.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    end(status)
}

/// Runs in exit(3), after what the program wants to be run then: libc's own `_exit` is not seen from here.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    hand_over_what_others_hold();
}
