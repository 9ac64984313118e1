//! Datagrams out.

use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;

use rustix::io::Errno;
use sidecore_client::{Opt, RawSocket};

use super::{Deadline, Outcome, at_once, nowhere, wait};
use crate::control::Asked;
use crate::errors::errno;
use crate::socket::{Route, Socket, canonical};
use crate::{process, segments};

impl Socket {
    pub(super) fn send_datagram(
        &self,
        data: &[IoSlice<'_>],
        flags: i32,
        to: Option<SocketAddr>,
        asked: &Asked,
    ) -> Result<Outcome, Errno> {
        let raw = match (self.route(), to) {
            (Route::Engine(raw), _) => raw,
            (Route::Descriptor | Route::Nowhere, _) => return Err(nowhere()),
            (_, None) => return Ok(Outcome::Kernel),
            (Route::Both(_) | Route::Kernel, Some(to)) => {
                let addresses = process::process().addresses();
                let ours = addresses.is_some_and(|addresses| {
                    addresses.takes(to) || self.sends_to_group(to, &addresses.own)
                });
                if !ours {
                    return Ok(Outcome::Kernel);
                }
                self.datagram_beside()?
            }
        };
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let raw = self.at_an_engine(raw)?;
        let held = self.settings(|settings| settings.corked.take());
        let more = flags & libc::MSG_MORE != 0 || self.settings(|settings| settings.is_corked());
        let gathered: Vec<u8>;
        let (bytes, to): (&[u8], _) = match (data, held) {
            ([one], None) if !more => (one, to),
            (pieces, held) => {
                // As Linux has it, a datagram that is begun goes where its first part was to go.
                let (mut all, first) = held.unwrap_or((Vec::new(), to));
                pieces.iter().for_each(|piece| all.extend_from_slice(piece));
                gathered = all;
                (&gathered, first)
            }
        };
        if bytes.len() > 65507 {
            return Err(Errno::MSGSIZE);
        }
        let len = data.iter().map(|piece| piece.len()).sum();
        if more {
            let begun = (bytes.to_vec(), to);
            self.settings(|settings| settings.corked = Some(begun));
            return Ok(Outcome::Done(len));
        }
        self.send_whole(&raw, bytes, flags, to, asked)?;
        Ok(Outcome::Done(len))
    }

    /// The same socket, or what took its place when its engine went. `NETDOWN` while there is none.
    fn at_an_engine(&self, raw: RawSocket) -> Result<RawSocket, Errno> {
        if !raw.is_over() {
            return Ok(raw);
        }
        process::process().tend();
        let now = self.raw().filter(|raw| !raw.is_over());
        now.ok_or(Errno::NETDOWN)
    }

    fn send_whole(
        &self,
        raw: &RawSocket,
        bytes: &[u8],
        flags: i32,
        to: Option<SocketAddr>,
        asked: &Asked,
    ) -> Result<(), Errno> {
        self.check_source(asked, to)?;
        let size = asked
            .segment
            .map_or_else(|| self.settings(|s| s.segment()), usize::from);
        let size = segments::cut(bytes.len(), size)?;
        let (now, deadline) = (at_once(self, flags), Deadline::of(self, true));
        let to = to.map(canonical);
        let changes = [
            (Opt::HopLimit, asked.hops),
            (Opt::TrafficClass, asked.class),
        ];
        let mut before = Vec::new();
        for (option, value) in changes {
            let Some(value) = value else { continue };
            // The engine takes options and datagrams in order: this one alone has them.
            before.push((option, self.option_as_set(option)));
            raw.set_option(option, value.into());
        }
        let sent = wait(raw, &deadline, now, || raw.send_each_to(bytes, size, to));
        for (option, value) in before {
            raw.set_option(option, value);
        }
        match sent {
            Err(error) if error.kind() == ErrorKind::NotConnected => Err(Errno::DESTADDRREQ),
            sent => sent.map(|_| ()).map_err(|e| errno(&e)),
        }
    }

    /// The engine chooses where datagrams come from. A program may name what it would choose; another is refused.
    fn check_source(&self, asked: &Asked, to: Option<SocketAddr>) -> Result<(), Errno> {
        let Some(source) = asked.source else {
            return Ok(());
        };
        let to = match to {
            Some(to) => Some(to),
            None => self.peer().ok(),
        };
        let loopback = source.is_loopback() && to.is_none_or(|to| to.ip().is_loopback());
        let bound = self
            .local()
            .is_ok_and(|local| local.ip().to_canonical() == source);
        let addresses = process::process().addresses();
        let only = addresses.is_some_and(|addresses| {
            let mut own = addresses.own.iter().map(|(own, _)| *own);
            let alike = own.by_ref().filter(|own| own.is_ipv4() == source.is_ipv4());
            alike.collect::<Vec<_>>() == [source]
        });
        match loopback || bound || only {
            true => Ok(()),
            false => Err(Errno::INVAL),
        }
    }
}
