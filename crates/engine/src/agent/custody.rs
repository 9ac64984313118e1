//! Connections that more than one process holds: who has them, who wants them, and what the custodian is told.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::SocketAddrUnix;
use sidecore_abi::agent::{
    CONNECTION, DATAGRAM, Reply, Request, adopted, may_be_set, parse_descriptor_name, release,
};
use sidecore_abi::command::Opt;
use sidecore_abi::custody::{ABANDONED, CUSTODY_BYTES, Custody, CustodyKind, OVER};
use sidecore_abi::{Address, Status};
use sidecore_sys::memfd::check_sealed;
use sidecore_sys::unix::{Stream, close_aside};

use super::Shared;
use super::descriptors::Standing;
use super::session::{Answer, refuse};
use crate::mailbox::Message;

/// Bytes that were delivered and not read, of one connection.
const UNREAD_MAX: u64 = 64 << 20;

/// In place of a UAL: who asks has none.
pub(crate) const NOBODY: u64 = 0;

/// Messages read from the custodian at a time.
const MESSAGES: usize = 256;

/// The custodian, as the agent knows it.
pub(crate) struct Custodian {
    ual: u64,
    socket: Stream,
    /// What it has not taken yet.
    outbox: VecDeque<(Custody, Vec<OwnedFd>)>,
}

impl Custodian {
    /// A custodian, and its end of the conversation.
    pub(crate) fn new(ual: u64) -> std::io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = Stream::pair()?;
        ours.set_blocking(false)?;
        let custodian = Self {
            ual,
            socket: ours,
            outbox: VecDeque::new(),
        };
        Ok((custodian, theirs.into_fd()))
    }

    fn tell(&mut self, message: Custody, fds: Vec<OwnedFd>) {
        self.outbox.push_back((message, fds));
        self.flush();
    }

    /// Sends what waits, as far as it is taken.
    fn flush(&mut self) {
        while let Some((message, fds)) = self.outbox.front() {
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            let sent = self
                .socket
                .try_send_with_fds(&message.to_bytes(), &borrowed);
            match sent {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // It has gone; its session's end will say so.
                Err(_) | Ok(()) => self.outbox.pop_front(),
            };
        }
    }

    /// Whether something waits to be sent.
    pub(crate) fn is_behind(&self) -> bool {
        !self.outbox.is_empty()
    }
}

impl AsFd for Custodian {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An answer that a session waits for.
pub(crate) struct Late {
    pub(crate) ual: u64,
    pub(crate) answer: Answer,
}

/// Epoch and number of the descriptor that this is, if it is one.
fn number_of(fd: &OwnedFd) -> Option<(u64, u64)> {
    let peer = rustix::net::getpeername(fd).ok().flatten()?;
    let peer = SocketAddrUnix::try_from(peer).ok()?;
    parse_descriptor_name(peer.abstract_name()?)
}

impl Shared {
    /// A UAL gave its connection to the custodian.
    pub(crate) fn release(&mut self, ual: u64, request: &Request, mut fds: Vec<OwnedFd>) -> Status {
        let [number, flags, rest] = request.args;
        let Some(custodian) = self.custodian.as_mut() else {
            close_aside(fds);
            return Status::NotSupported;
        };
        let Some(pair) = self
            .descriptors
            .get_mut(number)
            .filter(|pair| pair.standing == Standing::Fast(ual))
        else {
            close_aside(fds);
            // What it gave is for nobody. It can only have given what was its own.
            let drop = Custody {
                flags: ABANDONED,
                ual,
                ..Custody::new(CustodyKind::Take, number)
            };
            custodian.tell(drop, Vec::new());
            return Status::WrongState;
        };
        let bytes = u64::from(request.dtis);
        let fits = |fd: &OwnedFd| check_sealed(fd).is_ok_and(|len| len >= bytes);
        let good = match &fds[..] {
            [] => bytes == 0,
            [memory] => bytes > 0 && bytes <= UNREAD_MAX && fits(memory),
            _ => false,
        };
        let Ok(end) = pair.end().map_err(|_| ()) else {
            close_aside(fds);
            return Status::NoResources;
        };
        let known = release::OVER | release::LEFT | release::STAYS;
        if !good || flags & !known != 0 {
            close_aside(fds);
            return Status::BadExtent;
        }
        pair.standing = Standing::Proxied;
        pair.stays |= flags & release::STAYS != 0;
        pair.addresses = request.more;
        pair.add_others(rest & 0xffff_ffff);
        if flags & release::LEFT != 0 {
            pair.holders.retain(|holder| *holder != ual);
        }
        let over = flags & release::OVER != 0;
        let take = Custody {
            flags: if over { OVER } else { 0 },
            ual,
            bytes,
            status: Status::from_raw((rest >> 32) as u16),
            addresses: request.more,
            ..Custody::new(CustodyKind::Take, number)
        };
        fds.insert(0, end);
        custodian.tell(take, fds);
        self.tell_shared(number);
        Status::Ok
    }

    /// A holder wishes to have a connection for itself; `None`: it is answered when the custodian has.
    pub(crate) fn adopt(
        &mut self,
        ual: u64,
        request: &Request,
        mut fds: Vec<OwnedFd>,
    ) -> Option<Answer> {
        let [number, unknown, asks] = request.args;
        let proof = match &fds[..] {
            [fd] => number_of(fd),
            _ => None,
        };
        let epoch = self.epoch;
        if proof != Some((epoch, number)) {
            close_aside(fds);
            return Some(refuse(Status::NotPermitted));
        }
        // An end of our own: closing it cannot hang.
        fds.clear();
        let Some(pair) = self.descriptors.get_mut(number) else {
            return Some(refuse(Status::BadHandle));
        };
        pair.add_others(unknown);
        if let Standing::Listener {
            address,
            backlog,
            key,
            more: [d, e, f],
            flags,
        } = pair.standing
        {
            let [a, b, c] = address;
            return Some((
                Reply {
                    args: [adopted::LISTENER, backlog, key],
                    more: [a, b, c, d, e, f],
                    dtis: flags,
                    ..Reply::new(Status::Ok)
                },
                Vec::new(),
            ));
        }
        if ual != NOBODY {
            pair.add_holder(ual);
        }
        let alone = pair.count() == 1 && !pair.stays && asks == 0;
        let standing = pair.standing;
        let answer = match standing {
            Standing::Lost => refuse(Status::BadHandle),
            Standing::Fast(owner) if owner == ual => refuse(Status::WrongState),
            Standing::Fast(owner) => {
                self.recall(number, owner);
                self.shared_answer(number)
            }
            Standing::Proxied if alone && self.give(number, ual) => return None,
            _ => self.shared_answer(number),
        };
        self.tell_shared(number);
        Some(answer)
    }

    /// A holder sets an option of a connection in custody, or asks for one; `None`: it is answered when the custodian has.
    pub(crate) fn option(
        &mut self,
        ual: u64,
        request: &Request,
        fds: Vec<OwnedFd>,
    ) -> Option<Answer> {
        let [number, option, value] = request.args;
        let proof = match &fds[..] {
            [fd] => number_of(fd),
            _ => None,
        };
        close_aside(fds);
        if proof != Some((self.epoch, number)) {
            return Some(refuse(Status::NotPermitted));
        }
        let known = Opt::from_raw(option);
        if !known.is_some_and(|option| request.dtis == 1 || may_be_set(option)) {
            return Some(refuse(Status::NotSupported));
        }
        let standing = self.descriptors.get_mut(number).map(|pair| pair.standing);
        let (Some(Standing::Proxied), Some(custodian)) = (standing, self.custodian.as_mut()) else {
            return Some(refuse(Status::WrongState));
        };
        let ask = Custody {
            ual,
            addresses: [option, value, request.dtis.into(), 0, 0, 0],
            ..Custody::new(CustodyKind::Ask, number)
        };
        custodian.tell(ask, Vec::new());
        None
    }

    /// Tells the custodian to give a connection to a UAL; false when there is no custodian.
    fn give(&mut self, number: u64, to: u64) -> bool {
        let (Some(custodian), Some(pair)) =
            (self.custodian.as_mut(), self.descriptors.get_mut(number))
        else {
            return false;
        };
        pair.standing = Standing::Giving(to);
        let give = Custody {
            ual: to,
            ..Custody::new(CustodyKind::Give, number)
        };
        custodian.tell(give, Vec::new());
        true
    }

    fn shared_answer(&mut self, number: u64) -> Answer {
        let addresses = self.descriptors.get_mut(number).map(|pair| pair.addresses);
        let reply = Reply {
            args: [adopted::SHARED, 0, 0],
            more: addresses.unwrap_or_default(),
            ..Reply::new(Status::Ok)
        };
        (reply, Vec::new())
    }

    /// Asks a UAL to give a connection away.
    pub(crate) fn recall(&self, number: u64, owner: u64) {
        if let Some(bell) = self.bells.get(&owner) {
            // If it cannot be told now, it is with the next wish.
            let _ = bell.try_send_with_fds(&number.to_le_bytes(), &[]);
        }
    }

    /// A process has no number for a descriptor any more.
    pub(crate) fn leave(&mut self, ual: u64, request: &Request) -> Status {
        let [number, unknown, passed] = request.args;
        let Some(pair) = self.descriptors.get_mut(number) else {
            return Status::BadHandle;
        };
        if !pair.holders.contains(&ual) {
            return Status::WrongState;
        }
        pair.holders.retain(|holder| *holder != ual);
        pair.add_others(unknown);
        pair.others += u64::from(passed == 1);
        self.tell_shared(number);
        Status::Ok
    }

    /// A descriptor stands for a listener, or a UDP socket.
    pub(crate) fn describe(&mut self, ual: u64, request: &Request, fds: Vec<OwnedFd>) -> Status {
        let [number, backlog, key] = request.args;
        let proof = match &fds[..] {
            [fd] => number_of(fd) == Some((self.epoch, number)),
            _ => false,
        };
        close_aside(fds);
        let Some(pair) = self.descriptors.get_mut(number) else {
            return Status::BadHandle;
        };
        let ours = pair.standing == Standing::Fast(ual);
        let again = matches!(pair.standing, Standing::Listener { .. });
        // What was inherited, and is given on, before anybody else asked for it.
        let proven = proof && matches!(pair.standing, Standing::Fast(_) | Standing::Lost);
        let known = again && (proof || pair.holders.contains(&ual));
        if !(ours || known || proven && request.dtis & DATAGRAM != 0) {
            return Status::WrongState;
        }
        if request.dtis & CONNECTION != 0 {
            pair.standing = Standing::Fast(ual);
            pair.add_holder(ual);
            return Status::Ok;
        }
        let [a, b, c, more @ ..] = request.more;
        let address = [a, b, c];
        if Address(address).get().is_none() {
            return Status::Invalid;
        }
        pair.standing = Standing::Listener {
            address,
            backlog,
            key,
            more,
            flags: request.dtis,
        };
        Status::Ok
    }

    /// The engine's figures say of connections in custody whether they are shared.
    fn tell_shared(&mut self, number: u64) {
        let count = match self.descriptors.get_mut(number) {
            Some(pair) if matches!(pair.standing, Standing::Proxied) => pair.count(),
            _ => 0,
        };
        let shared = count > 1;
        let changed = if shared {
            self.shared_numbers.insert(number)
        } else {
            self.shared_numbers.remove(&number)
        };
        if changed {
            self.mailbox.send(Message::Shared { number, shared });
        }
    }

    /// A UAL is gone. Its connections that others hold go to the custodian.
    pub(crate) fn ual_gone(&mut self, ual: u64, spread: bool) {
        self.bells.remove(&ual);
        let is_custodian = self.custodian.as_ref().is_some_and(|c| c.ual == ual);
        if is_custodian {
            self.custodian = None;
        }
        let kept = self.descriptors.forget_ual(ual, spread);
        if kept.is_empty() || self.custodian.is_none() {
            self.mailbox.send(Message::Gone {
                ual,
                spread,
                kept: Vec::new(),
                done: None,
            });
            self.sweep(ual);
            return;
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        self.mailbox.send(Message::Gone {
            ual,
            spread,
            kept: kept.clone(),
            done: Some(sender),
        });
        // They must be there before the custodian asks for them.
        let _ = receiver.recv_timeout(super::session::PATIENCE);
        for number in kept {
            self.take_orphan(number, ual);
        }
        self.sweep(ual);
    }

    /// What a UAL that is gone gave, and did not tell of, is to end; when the custodian has taken what it told of.
    fn sweep(&mut self, ual: u64) {
        if let Some(custodian) = self.custodian.as_mut() {
            let sweep = Custody {
                ual,
                ..Custody::new(CustodyKind::Sweep, 0)
            };
            custodian.tell(sweep, Vec::new());
        }
    }

    fn take_orphan(&mut self, number: u64, from: u64) {
        let (Some(custodian), Some(pair)) =
            (self.custodian.as_mut(), self.descriptors.get_mut(number))
        else {
            return;
        };
        let Ok(end) = pair.end() else { return };
        pair.standing = Standing::Proxied;
        let take = Custody {
            ual: from,
            ..Custody::new(CustodyKind::Take, number)
        };
        custodian.tell(take, vec![end]);
        self.tell_shared(number);
    }

    /// What the custodian has to say; answers that sessions wait for.
    pub(crate) fn hear_custodian(&mut self) -> Vec<Late> {
        let mut late = Vec::new();
        for _ in 0..MESSAGES {
            let Some(custodian) = self.custodian.as_mut() else {
                break;
            };
            custodian.flush();
            let mut bytes = [0; CUSTODY_BYTES + 1];
            let Ok((n, fds)) = custodian.socket.recv_with_fds(&mut bytes) else {
                break;
            };
            let Some(message) = Custody::from_bytes(&bytes[..n]) else {
                break;
            };
            late.extend(self.hear(&message, fds));
        }
        late
    }

    fn hear(&mut self, message: &Custody, fds: Vec<OwnedFd>) -> Option<Late> {
        let number = message.number;
        if message.kind == CustodyKind::Sweep {
            self.mailbox.send(Message::Sweep(message.ual));
            return None;
        }
        if message.kind == CustodyKind::Answer {
            let reply = Reply {
                args: [message.addresses[0].max(message.bytes), 0, 0],
                ..Reply::new(message.status)
            };
            let (ual, answer) = (message.ual, (reply, fds));
            return Some(Late { ual, answer });
        }
        let pair = self.descriptors.get_mut(number)?;
        let mut late = None;
        match message.kind {
            CustodyKind::Taken => pair.addresses = message.addresses,
            CustodyKind::Given => late = self.given(message, fds),
            CustodyKind::Done => {
                if let Standing::Giving(ual) = pair.standing {
                    let answer = refuse(Status::BadHandle);
                    late = Some(Late { ual, answer });
                }
                self.descriptors.remove(number);
            }
            CustodyKind::Take
            | CustodyKind::Give
            | CustodyKind::Sweep
            | CustodyKind::Ask
            | CustodyKind::Answer => {}
        }
        self.tell_shared(number);
        late
    }

    /// The custodian has given a connection away, or not.
    fn given(&mut self, message: &Custody, fds: Vec<OwnedFd>) -> Option<Late> {
        let pair = self.descriptors.get_mut(message.number)?;
        let Standing::Giving(ual) = pair.standing else {
            if message.status == Status::Ok {
                // Its new owner, the only holder, died meanwhile.
                self.descriptors.remove(message.number);
            }
            return None;
        };
        if message.status != Status::Ok {
            pair.standing = Standing::Proxied;
            let answer = self.shared_answer(message.number);
            return Some(Late { ual, answer });
        }
        pair.standing = Standing::Fast(ual);
        let reply = Reply {
            args: [
                adopted::YOURS,
                self.custodian.as_ref().map_or(0, |c| c.ual),
                message.bytes,
            ],
            more: pair.addresses,
            ..Reply::new(Status::Ok)
        };
        let answer = (reply, fds);
        Some(Late { ual, answer })
    }
}
