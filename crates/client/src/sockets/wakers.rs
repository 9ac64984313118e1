//! Who wants to be woken.

use std::task::Waker;

/// Wakers of tasks or threads that wait for one thing. Usually none or one.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Adds one, unless it would wake somebody who is here already.
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|other| other.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Moves all to `out`: to be woken when no lock is held any more.
    pub(crate) fn take_into(&mut self, out: &mut Vec<Waker>) {
        out.append(&mut self.0);
    }
}

/// Wakes everybody.
pub(crate) fn wake_all(wakers: &mut Vec<Waker>) {
    wakers.drain(..).for_each(Waker::wake);
}
