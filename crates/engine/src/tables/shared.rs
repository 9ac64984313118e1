//! Listening sockets that share one address: those of a process and its forked children, or those that say so (SO_REUSEPORT). Each is a DTI of its own, in a
//! UAL of its own; the stack knows one listener. A connection goes to one that has an accept waiting, in turn.

use std::net::SocketAddr;

use sidecore_abi::command::REUSE_PORT_KEY;
use sidecore_stack::ListenerId;

use super::Tables;
use super::heirs::Family;
use crate::dti::Role;

/// The members of one address.
#[derive(Debug)]
pub(crate) struct SharedListener {
    id: ListenerId,
    /// Where they were bound, and what came of it.
    asked: SocketAddr,
    local: SocketAddr,
    /// Known to those who may join.
    key: u64,
    /// User of the first. Others must be of the same if the key is no secret.
    uid: u32,
    /// Their DTIs, and the number that copies of one socket have in common (0: it has no copies).
    members: Vec<(u32, u64)>,
    /// Whose turn it is.
    next: usize,
}

impl Tables {
    fn uid_of(&self, slot: u32) -> Option<u32> {
        let ual = self.dtis.get(slot)?.ual;
        Some(self.uals.get(ual as usize)?.as_ref()?.uid)
    }

    /// A new listener that others may join.
    pub(crate) fn share_listener(
        &mut self,
        slot: u32,
        id: ListenerId,
        asked: SocketAddr,
        local: SocketAddr,
        (key, copies): (u64, u64),
    ) {
        let Some(uid) = self.uid_of(slot) else {
            return;
        };
        self.shared_listeners.push(SharedListener {
            id,
            asked,
            local,
            key,
            uid,
            members: vec![(slot, copies)],
            next: 0,
        });
    }

    /// Joins the listener of this address, if there is one that the key and the user fit. Its name at the stack, and where it listens.
    pub(crate) fn join_listener(
        &mut self,
        slot: u32,
        asked: SocketAddr,
        (key, copies): (u64, u64),
    ) -> Option<(ListenerId, SocketAddr)> {
        let uid = self.uid_of(slot)?;
        let shared = self.shared_listeners.iter_mut().find(|shared| {
            let same = shared.asked == asked || shared.local == asked;
            // A server that gave up its rights after it listened knows the key, as its parent does.
            let may = key > REUSE_PORT_KEY || shared.uid == uid;
            same && shared.key == key && may
        })?;
        shared.members.push((slot, copies));
        Some((shared.id, shared.local))
    }

    /// Whether this is the secret of a listener at this address.
    pub(crate) fn is_secret_of_listener(&self, local: SocketAddr, key: u64) -> bool {
        let mut shared = self.shared_listeners.iter();
        key > REUSE_PORT_KEY
            && shared
                .any(|shared| shared.key == key && (shared.asked == local || shared.local == local))
    }

    /// A member goes. Who stands for all at the stack from now on; `None` when it was the last, or never shared.
    pub(crate) fn leave_listener(&mut self, slot: u32, id: ListenerId) -> Option<u32> {
        let at = self
            .shared_listeners
            .iter()
            .position(|shared| shared.id == id)?;
        let shared = &mut self.shared_listeners[at];
        shared.members.retain(|(member, _)| *member != slot);
        let first = shared.members.first().map(|(member, _)| *member);
        if first.is_none() {
            self.shared_listeners.swap_remove(at);
        }
        first
    }

    /// A listener and its copies, if it may have some.
    pub(crate) fn family_at(&self, slot: u32, id: ListenerId) -> Option<Family> {
        let shared = self
            .shared_listeners
            .iter()
            .find(|shared| shared.id == id)?;
        let mut members = shared.members.iter();
        let (_, copies) = *members.find(|(member, _)| *member == slot)?;
        (copies != 0).then_some(Family { id, copies })
    }

    /// The copies of a listening socket.
    pub(crate) fn copies(&self, family: Family) -> impl Iterator<Item = u32> {
        let mut all = self.shared_listeners.iter();
        let shared = all.find(|shared| shared.id == family.id);
        let members = shared.into_iter().flat_map(|shared| &shared.members);
        members
            .filter(move |(_, copies)| *copies == family.copies)
            .map(|(member, _)| *member)
    }

    /// The copies that a connection may go on to: first those that wait for one, then those that take some, then the others; each in turn.
    pub(crate) fn heirs(&mut self, family: Family) -> Vec<u32> {
        let mut heirs: Vec<u32> = self.copies(family).collect();
        let mut all = self.shared_listeners.iter_mut();
        if let Some(shared) = all.find(|shared| shared.id == family.id)
            && !heirs.is_empty()
        {
            let count = heirs.len();
            heirs.rotate_left(shared.next % count);
            shared.next = shared.next.wrapping_add(1);
        }
        heirs.sort_by_key(|heir| match self.dtis.get(*heir).map(|dti| &dti.role) {
            Some(Role::Listening(listening)) if !listening.accepts.is_empty() => 0,
            Some(Role::Listening(listening)) if listening.accepting => 1 + listening.waiting.len(),
            _ => usize::MAX,
        });
        heirs
    }

    /// Which member the next connection is for, and its number among them: one with an accept, else one that ever accepted.
    fn member_for(&self, listener: u32) -> Option<(u32, usize, usize)> {
        let Role::Listening(listening) = &self.dtis.get(listener)?.role else {
            return None;
        };
        let shared = &self.shared_listeners;
        let at = shared.iter().position(|shared| shared.id == listening.id)?;
        let shared = &shared[at];
        let count = shared.members.len();
        let in_turn = (0..count).map(|n| (shared.next + n) % count);
        let listening = |n: usize| match &self.dtis.get(shared.members[n].0)?.role {
            Role::Listening(listening) => Some(listening),
            _ => None,
        };
        let ready = |n: &usize| listening(*n).is_some_and(|l| !l.accepts.is_empty());
        let active = |n: &usize| {
            listening(*n).is_some_and(|l| l.accepting && l.waiting.len() < l.backlog as usize)
        };
        let chosen = in_turn.clone().find(ready);
        let chosen = chosen.or_else(|| in_turn.clone().find(active))?;
        Some((shared.members[chosen].0, at, chosen))
    }

    /// The member that the next connection of a listener is for.
    pub(crate) fn accepting_member(&self, listener: u32) -> u32 {
        if self.shared_listeners.is_empty() {
            return listener;
        }
        self.member_for(listener)
            .map_or(listener, |(member, ..)| member)
    }

    /// The same, and the next one is another's.
    pub(crate) fn take_accepting_member(&mut self, listener: u32) -> u32 {
        if self.shared_listeners.is_empty() {
            return listener;
        }
        let Some((member, at, number)) = self.member_for(listener) else {
            return listener;
        };
        self.shared_listeners[at].next = number + 1;
        member
    }
}
