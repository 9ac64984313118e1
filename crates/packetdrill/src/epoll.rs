//! epoll, over what sockets say of their readiness.

use std::collections::BTreeMap;

use sidecore_testkit::sockets::{Errno, Fd, Sockets};

/// EPOLLERR and EPOLLHUP, which need not be asked for.
const ALWAYS: u32 = 0x8 | 0x10;
/// Everything that is an event, and no flag.
const EVENTS: u32 = 0xffff;
const EPOLLONESHOT: u32 = 1 << 30;
const EPOLLET: u32 = 1 << 31;

/// What is asked of one descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interest {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

#[derive(Debug)]
struct Item {
    socket: Fd,
    interest: Interest,
    /// What was last told: events, and bytes received by then.
    told: Option<(u32, u64)>,
    /// EPOLLONESHOT, and it was told.
    spent: bool,
}

/// An epoll instance.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    items: BTreeMap<i32, Item>,
}

impl Epoll {
    pub(crate) fn change(
        &mut self,
        fd: i32,
        socket: Fd,
        new: bool,
        interest: Option<Interest>,
    ) -> Result<(), Errno> {
        if new == self.items.contains_key(&fd) {
            return Err(if new { Errno::EEXIST } else { Errno::ENOENT });
        }
        match interest {
            None => drop(self.items.remove(&fd)),
            Some(interest) => {
                let item = Item {
                    socket,
                    interest,
                    told: None,
                    spent: false,
                };
                self.items.insert(fd, item);
            }
        }
        Ok(())
    }

    /// Events and data of what is ready, `max` of them at most.
    pub(crate) fn ready(&mut self, sockets: &mut Sockets, max: usize) -> Vec<(u32, u64)> {
        let mut events = Vec::new();
        for item in self.items.values_mut() {
            if events.len() == max {
                break;
            }
            events.extend(item.ready(sockets).map(|told| (told, item.interest.data)));
        }
        events
    }
}

impl Item {
    fn ready(&mut self, sockets: &mut Sockets) -> Option<u32> {
        let asked = self.interest.events & EVENTS | ALWAYS;
        let now = u32::from(sockets.readiness(self.socket) as u16) & asked;
        let received = sockets
            .connection(self.socket)
            .map_or(0, |tcp| tcp.receive_next());
        if self.interest.events & EPOLLET != 0
            && let Some((told, then)) = self.told
        {
            // An edge: something that was not so when it was last looked at, or more data.
            self.told = Some((told & now, then));
            if now & !told == 0 && received == then {
                return None;
            }
        }
        if now == 0 || self.spent {
            return None;
        }
        self.told = Some((now, received));
        self.spent = self.interest.events & EPOLLONESHOT != 0;
        Some(now)
    }
}
