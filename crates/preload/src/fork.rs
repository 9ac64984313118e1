//! What happens around fork. The child shares no memory of the UAL with its parent: it begins anew, and opens its own at first use.
//!
//! Before the fork the parent writes down what its descriptors stand for, so that the child need not look into a table whose locks threads may
//! hold that it does not have.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::config::Config;
use crate::guard::{self, Edge, Stay};
use crate::process::{self, Process, existing};
use crate::socket::Socket;
use crate::socket::custody::{has_number, number_of};
use crate::table::Thing;
use crate::{log, sys};

/// A descriptor and what it stands for in the child.
type Heirloom = (RawFd, Thing);

thread_local! {
    /// From before the fork to after it; both are on this thread.
    static HEIRLOOMS: RefCell<Vec<Heirloom>> = const { RefCell::new(Vec::new()) };
}

/// Asks the system to be told of forks.
pub(crate) fn install() {
    let _stay = Stay::begin();
    sys::at_fork(before, parent, child);
}

/// A fork that the system does not tell of: what is done around others is done around this one. `make` forks, and gives 0 in the child.
pub(crate) fn untold<T: PartialEq + From<i8>>(make: impl FnOnce() -> T) -> T {
    if guard::is_inside() || existing().is_none() {
        return make();
    }
    // Handlers may fork, too.
    let _edge = Edge::begin();
    before();
    let made = make();
    match made == T::from(0) {
        true => child(),
        false => parent(),
    }
    made
}

/// Before a fork: what the child will have is written down.
pub(crate) extern "C" fn before() {
    let heirlooms = guard::within(Vec::new(), || {
        let heirlooms = write_down();
        if let Some(process) = existing() {
            process.forks();
        }
        heirlooms
    });
    let _ = HEIRLOOMS.try_with(|place| place.replace(heirlooms));
}

fn write_down() -> Vec<Heirloom> {
    let Some(process) = existing() else {
        return Vec::new();
    };
    let mut heirlooms: Vec<Heirloom> = Vec::new();
    let mut known = HashSet::new();
    for fd in process.table.used(0, RawFd::MAX) {
        if !known.insert(fd) {
            continue;
        }
        match process.get(fd) {
            Some(Thing::Socket(socket)) => {
                let (child, numbers) = socket.inherited();
                let child = Arc::new(child);
                known.extend(&numbers);
                let each = numbers
                    .into_iter()
                    .map(|fd| (fd, Thing::Socket(Arc::clone(&child))));
                heirlooms.extend(each);
            }
            Some(Thing::Epoll(set)) => {
                let (child, numbers) = set.inherited();
                known.extend(&numbers);
                let each = numbers
                    .into_iter()
                    .map(|fd| (fd, Thing::Epoll(Arc::clone(&child))));
                heirlooms.extend(each);
            }
            None => {}
        }
    }
    heirlooms
}

/// Takes what was written down. In the parent it is dropped.
fn take() -> Vec<Heirloom> {
    HEIRLOOMS.try_with(RefCell::take).unwrap_or_default()
}

/// After it, in the parent.
pub(crate) extern "C" fn parent() {
    guard::within((), || drop(take()));
}

/// After it, in the child.
pub(crate) extern "C" fn child() {
    guard::within((), || {
        let Some((old, new)) = process::renew() else {
            return;
        };
        // The parent's link to the agent is its sign of life: the child must not keep it up.
        for fd in old.all_kept() {
            sys::close(fd);
        }
        for (fd, thing) in take() {
            new.table.put(fd, thing);
        }
    });
}

/// Runs when the library is loaded, in every image: the environment is as it was given, and descriptors of the engine that were inherited over
/// exec are known for what they are.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    guard::within((), || {
        log::begin();
        Config::get();
        let Ok(folder) = std::fs::read_dir("/proc/self/fd") else {
            return;
        };
        let names = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let numbers: Vec<RawFd> = names.collect();
        numbers.into_iter().for_each(receive);
    });
}

/// A descriptor that came from elsewhere is known for what it is. Those of one connection are one socket.
pub(crate) fn receive(fd: RawFd) {
    if existing().is_some_and(Process::is_aside) {
        return;
    }
    let Some(number) = number_of(fd) else { return };
    let process = process::process();
    let mut things = process.table.used(0, RawFd::MAX).into_iter();
    let known = things.find_map(|other| has_number(&process.get(other)?, number));
    let socket = match known {
        Some(socket) => {
            socket.add_number(fd);
            socket
        }
        None => Arc::new(Socket::of_another(fd)),
    };
    process.table.put(fd, Thing::Socket(socket));
}
