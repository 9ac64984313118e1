//! libc's names. Each looks whose the descriptor is, and either passes the call on as it came or makes safe types of its arguments.

// The functions are reached by their exported names.
#![allow(unreachable_pub)]

mod data;
mod direct;
mod epolls;
mod files;
mod life;
mod messages;
mod names;
mod numbers;
mod waits;

use std::sync::Arc;

use libc::c_int;

use crate::guard;
use crate::process;
use crate::socket::Socket;
use crate::table::Thing;

/// The socket that a descriptor of the program's stands for; `None`: the system's business.
#[inline]
fn socket_of(fd: c_int) -> Option<Arc<Socket>> {
    if guard::is_inside() {
        return None;
    }
    match process::existing()?.get(fd)? {
        Thing::Socket(socket) => Some(socket),
        Thing::Epoll(_) => None,
    }
}
