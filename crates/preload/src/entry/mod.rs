//! libc's names. Each looks whose the descriptor is, and either passes the call on as it came or makes safe types of its arguments.

// The functions are reached by their exported names.
#![allow(unreachable_pub)]

mod confine;
mod data;
mod direct;
mod endings;
mod epolls;
mod files;
mod forks;
mod images;
mod life;
mod lists;
mod messages;
mod names;
mod numbers;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod raw;
mod waits;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use libc::{c_int, ssize_t};
use rustix::io::Errno;

use crate::cancel::point;
use crate::errors::ELSEWHERE;
use crate::guard::{self, Edge};
use crate::process;
use crate::socket::Socket;
use crate::socket::custody::DescriptorCall;
use crate::sys;
use crate::table::Thing;

/// Whether a call is to be made again: its socket was handed over while it was within.
#[inline]
fn is_to_repeat(done: i64) -> bool {
    done == -1 && sys::errno() == ELSEWHERE.raw_os_error()
}

thread_local! {
    /// Calls on descriptors in which this thread is, each with where on its stack; the innermost is last. A thread that leaves one by `longjmp`
    /// takes it back with the next that it makes at the same depth, or from less deep.
    static CALLS: RefCell<Vec<(usize, DescriptorCall)>> = const { RefCell::new(Vec::new()) };
}

/// While this lives its thread is in a call of the system's, on the descriptor as it is.
struct OnDescriptor(usize);

impl OnDescriptor {
    fn begin(call: DescriptorCall) -> Self {
        let here = &raw const call as usize;
        let left = CALLS.try_with(|calls| {
            let mut calls = calls.borrow_mut();
            let outer = calls.iter().take_while(|(at, _)| *at > here).count();
            let left = calls.split_off(outer);
            calls.push((here, call));
            left
        });
        drop(left);
        Self(here)
    }
}

impl Drop for OnDescriptor {
    fn drop(&mut self) {
        guard::within((), || {
            let over = CALLS.try_with(|calls| {
                let mut calls = calls.borrow_mut();
                let outer = calls.iter().take_while(|(at, _)| *at > self.0).count();
                calls.split_off(outer)
            });
            drop(over);
        });
    }
}

/// Before a call that moves bytes: while this lives the call is the system's, on the descriptor as it is.
#[inline]
fn on_descriptor(fd: c_int) -> Option<OnDescriptor> {
    let _edge = Edge::begin();
    let socket = socket_of(fd)?;
    if !socket.may_be_elsewhere() {
        return None;
    }
    guard::within(None, || socket.descriptor_call().map(OnDescriptor::begin))
}

/// Makes the call at the system, on the descriptor as it is, if the socket's bytes go through it; `None`: they do not.
fn elsewhere<T>(fd: c_int, system: impl Fn() -> T) -> Option<T> {
    let _call = on_descriptor(fd)?;
    Some(system())
}

/// Whether a descriptor of the program's stands for a socket that is, or may become, the engine's.
fn is_socket(fd: c_int) -> bool {
    let _edge = Edge::begin();
    socket_of(fd).is_some()
}

/// A cancellation point that moves bytes: by `ours`, if the descriptor is a socket of ours and it does not decline; at the system else; on the
/// descriptor, if the socket's bytes go through that; and again when the socket was handed over while the call was within.
fn call(
    fd: c_int,
    ours: impl Fn(&Arc<Socket>) -> Option<ssize_t>,
    system: impl Fn() -> ssize_t,
) -> ssize_t {
    let perhaps = Cell::new(false);
    let here = || {
        let socket = socket_of(fd)?;
        perhaps.set(socket.may_be_elsewhere());
        if perhaps.get() { None } else { ours(&socket) }
    };
    loop {
        // What may have gone elsewhere is rare, and is looked at with care.
        let done = point(here, || match perhaps.get() {
            true => call_with_care(fd, &ours, &system),
            false => system(),
        });
        if !is_to_repeat(done as i64) {
            return done;
        }
    }
}

/// One attempt of [`call`], where the connection may be elsewhere.
#[cold]
fn call_with_care(
    fd: c_int,
    ours: impl Fn(&Arc<Socket>) -> Option<ssize_t>,
    system: impl Fn() -> ssize_t,
) -> ssize_t {
    match elsewhere(fd, &system) {
        Some(done) => done,
        None => point(|| ours(&socket_of(fd)?), system),
    }
}

/// A question about a socket, and again when the socket was handed over meanwhile: then the answer is elsewhere.
fn ask(question: impl Fn() -> Result<i64, Errno>) -> c_int {
    loop {
        let done = guard::answer(&question);
        if !is_to_repeat(done) {
            return done as c_int;
        }
        // It is for as long as the agent takes to be told.
        guard::within((), || std::thread::sleep(Duration::from_millis(1)));
    }
}

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
