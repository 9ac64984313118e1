//! Executing and starting programs, and streams of C: what uses descriptors without this library.

use libc::{FILE, c_char, c_int};

use super::numbers::{forget, is_visitor};
use super::socket_of;
use crate::guard::{Edge, is_inside, within};
use crate::process::existing;
use crate::real;
use crate::socket::Socket;
use crate::table::Thing;
use std::sync::Arc;

/// Another image takes the place of this one: its connections are handed over if it has their descriptors. In a child of vfork, whose memory is
/// its parent's, the parent goes on having them.
fn before_exec() {
    if is_inside() {
        return;
    }
    let Some(process) = existing() else { return };
    within((), || {
        if std::process::id() != process.pid {
            return process.spawns_by(std::process::id());
        }
        let mut known: Vec<Arc<Socket>> = Vec::new();
        for fd in process.table.used(0, c_int::MAX) {
            if let Some(Thing::Socket(socket)) = process.get(fd)
                && !known.iter().any(|other| Arc::ptr_eq(other, &socket))
            {
                known.push(socket);
            }
        }
        known.iter().for_each(|socket| socket.before_exec());
    });
}

/// A program is started that has what is inheritable.
fn before_spawn() {
    if !is_inside()
        && let Some(process) = existing()
    {
        within((), || process.spawns());
    }
}

macro_rules! images {
    ($($before:ident: $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = concat!(stringify!($name), ".")]
        ///
        /// # Safety
        ///
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            $before();
            // SAFETY: as libc's.
            unsafe { real::$name($($argument),*) }
        }
    )*};
}

type List = *const *const c_char;

images! {
    before_exec: execve(path: *const c_char, arguments: List, environment: List);
    before_exec: execv(path: *const c_char, arguments: List);
    before_exec: execvp(file: *const c_char, arguments: List);
    before_exec: execvpe(file: *const c_char, arguments: List, environment: List);
    before_exec: fexecve(fd: c_int, arguments: List, environment: List);
    before_exec: execveat(fd: c_int, path: *const c_char, arguments: List, environment: List, flags: c_int);
    before_spawn: posix_spawn(pid: *mut libc::pid_t, path: *const c_char, actions: *const libc::posix_spawn_file_actions_t, attributes: *const libc::posix_spawnattr_t, arguments: List, environment: List);
    before_spawn: posix_spawnp(pid: *mut libc::pid_t, file: *const c_char, actions: *const libc::posix_spawn_file_actions_t, attributes: *const libc::posix_spawnattr_t, arguments: List, environment: List);
    before_spawn: system(command: *const c_char);
}

/// popen(3).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    before_spawn();
    // SAFETY: as libc's.
    unsafe { real::popen(command, mode) }
}

/// fdopen(3). libc reads and writes such a stream's descriptor by itself.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    let _edge = Edge::begin();
    if let Some(socket) = socket_of(fd).filter(|socket| socket.is_engines()) {
        within((), || socket.stays());
    }
    // SAFETY: as libc's.
    unsafe { real::fdopen(fd, mode) }
}

/// libc is about to close a stream's descriptor by itself: the number stands for nothing of ours from here on. What comes of it is to be dropped
/// when the descriptor is closed.
///
/// # Safety
///
/// It is a stream.
unsafe fn before_stream_closes(stream: *mut FILE) -> Option<Thing> {
    let _edge = Edge::begin();
    let process = existing().filter(|process| !is_inside() && !is_visitor(process))?;
    // SAFETY: the caller's promise.
    let fd = unsafe { libc::fileno(stream) };
    process.get(fd)?;
    // What was written goes while this is still a holder.
    // SAFETY: the caller's promise.
    unsafe { libc::fflush(stream) };
    within(None, || forget(process, fd))
}

/// Its descriptor is closed.
fn after_stream_closed(thing: Option<Thing>) {
    if let Some(Thing::Socket(socket)) = thing {
        within((), || {
            socket.after_last_close();
            drop(socket);
        });
    }
}

/// fclose(3).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the program's promise.
    let thing = unsafe { before_stream_closes(stream) };
    // SAFETY: as libc's.
    let done = unsafe { real::fclose(stream) };
    after_stream_closed(thing);
    done
}

macro_rules! reopened {
    ($($name:ident;)*) => {$(
        #[doc = concat!(stringify!($name), "(3).")]
        ///
        /// # Safety
        ///
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
            // Without a path its descriptor stays.
            let thing = match path.is_null() {
                true => None,
                // SAFETY: the program's promise.
                false => unsafe { before_stream_closes(stream) },
            };
            // SAFETY: as libc's.
            let again = unsafe { real::$name(path, mode, stream) };
            after_stream_closed(thing);
            again
        }
    )*};
}

reopened! {
    freopen;
    freopen64;
}
