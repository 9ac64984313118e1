//! Options of a connection that is with the custodian: set and asked for there.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sidecore_client::{Opt, RawSocket, Ual};

use super::custody::number_of;
use super::{Route, Socket};
use crate::errors::told;
use crate::process::process;
use crate::sys;
use crate::table::lock;

/// How long a connection that is on its way is waited for, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);

impl Socket {
    /// Asks for something about the connection, wherever it is: here, or with the custodian.
    pub(crate) fn ask_about<T>(
        &self,
        here: impl Fn(&RawSocket) -> std::io::Result<T>,
        there: impl Fn(&Ual, BorrowedFd<'_>, u64) -> std::io::Result<T>,
    ) -> Result<T, Errno> {
        let begun = Instant::now();
        loop {
            match self.route() {
                Route::Engine(raw) | Route::Both(raw) => return told(here(&raw)),
                Route::Descriptor => {}
                Route::Kernel | Route::Nowhere => return Err(Errno::NOTCONN),
            }
            let fd = self.first_number().ok_or(Errno::BADF)?;
            let number = number_of(fd).ok_or(Errno::NOTCONN)?;
            let link = process().link().ok_or(Errno::NOTCONN)?;
            match there(&link.ual, sys::borrow(fd), number) {
                // Its owner was asked for it just now, or it comes here.
                Err(error) if is_on_its_way(&error) && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(PAUSE);
                }
                done => return told(done),
            }
        }
    }

    /// Sets an option of the engine's, wherever the connection is.
    pub(crate) fn set_option(&self, option: Opt, value: u64) {
        if let Route::Engine(raw) | Route::Both(raw) = self.route() {
            return raw.set_option(option, value);
        }
        if !self.is_proxied() {
            return;
        }
        let here = |raw: &RawSocket| {
            raw.set_option(option, value);
            Ok(())
        };
        let there = |ual: &Ual, fd: BorrowedFd<'_>, number| {
            ual.set_option_elsewhere(fd, number, option, value)
        };
        if self.ask_about(here, there).is_err() {
            // For when it is here: the last value of each.
            let mut state = lock(&self.state);
            let unset = &mut state.custody.unset;
            unset.retain(|(known, _)| *known != option);
            unset.push((option, value));
        }
    }
}

fn is_on_its_way(error: &std::io::Error) -> bool {
    error.raw_os_error().is_none() && error.kind() == std::io::ErrorKind::NotConnected
}
