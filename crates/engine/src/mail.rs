//! The engine reads its mail: UALs come and go, regions are registered, somebody asks for figures, it is time to stop.

use sidecore_abi::event::Event;
use sidecore_abi::{DtiHandle, EventKind, RegionId, Status};
use sidecore_shm::Shared;
use sidecore_tcp::Instant;
use std::collections::HashSet;
use std::time::Duration;

use crate::commands::{Context, heirs, socket};
use crate::config::DeathPolicy;
use crate::cycles::{Bin, Stopwatch};
use crate::dti::{Dti, Role, flag};
use crate::engine::Engine;
use crate::mailbox::Message;
use crate::ual::{NewUal, Ual};

/// How often slow things are looked at: vanished memory, captures, UALs that can be forgotten.
const CHORES: Duration = Duration::from_millis(10);

impl Engine {
    #[inline]
    pub(crate) fn take_mail(&mut self, now: Instant, watch: &mut Stopwatch) -> usize {
        let nothing = !self.inbox.may_have_mail() && self.tables.regions_gone.is_empty();
        if nothing && now < self.next_chore {
            return 0;
        }
        self.do_mail(now, watch)
    }

    #[cold]
    fn do_mail(&mut self, now: Instant, watch: &mut Stopwatch) -> usize {
        let mut taken = 0;
        if self.inbox.may_have_mail() {
            self.inbox.clear_flag();
            while let Some(message) = self.inbox.take() {
                self.handle(now, message);
                taken += 1;
            }
        }
        if now >= self.next_chore {
            self.next_chore = now + CHORES;
            self.chores(now);
        }
        if !self.tables.regions_gone.is_empty() {
            for gone in self.tables.regions_gone.drain(..) {
                let _ = self.inbox.regions_gone.send(gone);
            }
        }
        if taken > 0 {
            watch.lap(&mut self.counters, Bin::Agent);
        }
        taken
    }

    /// Between doorbells: an application that was told its region's id may have used it in a command before the turn's mail
    /// was read again. Takes in regions; all else waits for its time.
    #[cold]
    pub(crate) fn take_regions(&mut self, now: Instant) {
        self.inbox.clear_flag();
        while let Some(message) = self.inbox.take_new() {
            match message {
                Message::Region { ual, .. } if self.ual_slots.contains_key(&ual) => {
                    self.handle(now, message);
                }
                _ => self.inbox.defer(message),
            }
        }
    }

    fn handle(&mut self, now: Instant, message: Message) {
        match message {
            Message::Open(new) => self.open(*new),
            Message::Gone {
                ual,
                spread,
                kept,
                done,
            } => {
                self.outlived(ual, spread);
                self.application_gone(now, ual, &kept);
                if let Some(done) = done {
                    // The agent may have lost its patience.
                    let _ = done.send(());
                }
            }
            Message::Custodian(id) => {
                self.tables.custodian = self.ual_slots.get(&id).copied();
            }
            Message::Sweep(id) => self.sweep(id),
            Message::Shared { number, shared } => {
                if shared {
                    self.tables.shared_numbers.insert(number);
                } else {
                    self.tables.shared_numbers.remove(&number);
                }
            }
            Message::Region {
                ual,
                id,
                memory,
                answer,
            } => self.add_region(ual, id, memory, answer),
            Message::WaitSocket { ual, cell, waker } => {
                if let Some(ual) = self
                    .ual_slots
                    .get(&ual)
                    .and_then(|slot| self.tables.ual(*slot))
                {
                    // An event may have come between the application's announcement and this message: its wake-up had no
                    // socket to go to. One byte too many does no harm.
                    waker.wake();
                    ual.control.set_wait_socket(cell, waker);
                }
            }
            Message::Stat(reply) => {
                let _ = reply.send(self.stat_json());
            }
            Message::Addresses(reply) => {
                let lines = self.stack.networks().into_iter();
                let _ = reply.send(
                    lines
                        .map(|(ip, prefix)| format!("{ip}/{prefix}\n"))
                        .collect(),
                );
            }
            Message::Capture(capture) => self.captures.add(capture),
            Message::Stop => self.begin_to_end(now),
        }
    }

    /// A region of a UAL, if that is still there; with queue and cookie when an event answers.
    fn add_region(&mut self, ual: u64, id: RegionId, memory: Shared, answer: Option<(u16, u64)>) {
        let slot = self.ual_slots.get(&ual);
        let Some(ual) = slot.and_then(|slot| self.tables.ual(*slot)) else {
            return;
        };
        let inserted = ual.regions.insert(id, memory);
        if let Some((evq, cookie)) = answer {
            let status = if inserted {
                Status::Ok
            } else {
                Status::NoResources
            };
            let mut event = Event::new(EventKind::Registered, DtiHandle::default(), cookie, status);
            event.body[0] = u64::from(id.0);
            ual.emit(evq, &event);
        }
    }

    fn open(&mut self, new: NewUal) {
        let id = new.id;
        let ual = Ual::new(new, &self.tables.policy);
        self.idle.watch(&ual.sleeper);
        let slot = match self.tables.uals.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.tables.uals.push(None);
                self.tables.uals.len() - 1
            }
        };
        self.tables.uals[slot] = Some(ual);
        self.ual_slots.insert(id, slot as u32);
    }

    /// The other end of the agent's socket has closed: everything of that application ends.
    pub(crate) fn application_gone(&mut self, now: Instant, id: u64, kept: &[u64]) {
        let Some(slot) = self.ual_slots.remove(&id) else {
            return;
        };
        let Some(ual) = self.tables.ual(slot) else {
            return;
        };
        let death = ual.death;
        // First of all, so that full event queues keep nothing back.
        ual.gone = true;
        ual.overflow.iter_mut().for_each(|queue| queue.clear());
        ual.overflowing = 0;
        // Whoever sleeps there sees that the engine has closed its side.
        ual.control.wake_all();
        self.idle.unwatch(&ual.sleeper);
        if !ual.condemned {
            // Commands that it posted before it died count: data that it sent is data that it sent.
            self.drain_before_death(now, slot);
        }
        if self.tables.custodian == Some(slot) {
            self.tables.custodian = None;
        }
        self.keep_for_others(slot, id, kept);
        self.pass_on_untaken(now, slot);
        self.end_dtis(now, slot, |dti| {
            // What it had closed itself ends as every closed connection does.
            let closed = dti.has(flag::CLOSE);
            death == DeathPolicy::Reset && !closed || !matches!(dti.role, Role::Connected(_))
        });
        self.forget_gone();
    }

    /// Others may have the datagram sockets of a UAL that is gone, if it has `spread`.
    fn outlived(&mut self, id: u64, spread: bool) {
        let Some(slot) = self.ual_slots.get(&id).copied().filter(|_| spread) else {
            return;
        };
        let slots = self.tables.ual(slot).map(|ual| ual.named_slots());
        for slot in slots.unwrap_or_default() {
            if let Some(dti) = self.tables.dtis.get_mut(slot)
                && !dti.has(flag::CLOSE)
                && let Role::Datagram { .. } = dti.role
            {
                dti.flags |= flag::OUTLIVED;
            }
        }
    }

    /// Closes what a UAL that is gone gave to the custodian, and nobody attached.
    fn sweep(&mut self, from: u64) {
        let Some(custodian) = self.tables.custodian else {
            return;
        };
        let Some(ual) = self.tables.ual(custodian) else {
            return;
        };
        let mut slots = Vec::new();
        ual.arrived.retain(|(giver, _), (slot, _)| {
            let stays = *giver != from;
            if !stays {
                slots.push(*slot);
            }
            stays
        });
        for slot in slots {
            self.abort_unnamed(slot);
        }
    }

    /// Resets a connection that no application knows.
    fn abort_unnamed(&mut self, slot: u32) {
        if let Some(conn) = self.tables.dtis.get(slot).and_then(Dti::conn) {
            self.stack.abort(conn);
        }
        self.tables.remove_dti(slot);
    }

    /// What others hold goes to the custodian. What cannot ends as everything else of its UAL.
    fn keep_for_others(&mut self, ual: u32, id: u64, kept: &[u64]) {
        let Some(custodian) = self.tables.custodian.filter(|_| !kept.is_empty()) else {
            return;
        };
        let kept: HashSet<u64> = kept.iter().copied().collect();
        let slots = self.tables.ual(ual).map(|ual| ual.all_slots());
        for slot in slots.unwrap_or_default() {
            let number = self.tables.dtis.get(slot).map_or(0, |dti| dti.number);
            if number != 0
                && kept.contains(&number)
                && let Err(status) = self.tables.move_dti(slot, custodian, (id, number))
            {
                tracing::debug!(
                    number,
                    ?status,
                    "a dead application's connection cannot be kept"
                );
            }
        }
    }

    /// What its program had not taken goes to the other copies of its listeners.
    fn pass_on_untaken(&mut self, now: Instant, ual: u32) {
        let Some(slots) = self.tables.ual(ual).map(|ual| ual.named_slots()) else {
            return;
        };
        let mut cx = Context {
            tables: &mut self.tables,
            stack: &mut self.stack,
            now,
            ual,
        };
        heirs::leave_to_copies(&mut cx, &slots);
    }

    /// Closes all DTIs of a UAL, or resets those that `reset` says.
    pub(crate) fn end_dtis(&mut self, now: Instant, ual: u32, reset: impl Fn(&Dti) -> bool) {
        let slots = self
            .tables
            .ual(ual)
            .map(|ual| ual.all_slots())
            .unwrap_or_default();
        for slot in slots {
            if self
                .tables
                .dtis
                .get(slot)
                .is_some_and(|dti| !dti.is_named())
            {
                self.abort_unnamed(slot);
                continue;
            }
            let mut cx = Context {
                tables: &mut self.tables,
                stack: &mut self.stack,
                now,
                ual,
            };
            if cx.tables.dtis.get(slot).is_some_and(&reset) {
                socket::abort_slot(&mut cx, slot);
            } else {
                socket::close_slot(&mut cx, slot);
            }
        }
    }

    fn chores(&mut self, now: Instant) {
        self.captures.flush();
        self.clock.correct();
        for id in self.tables.sockets.take_orphans(|_, until| until <= now) {
            self.stack.udp_close(id);
        }
        self.tables.hand_out_waiting();
        let condemned: Vec<u64> = self
            .tables
            .uals
            .iter_mut()
            .flatten()
            .filter(|ual| !ual.gone && !ual.condemned && ual.broke_rules())
            .map(|ual| {
                ual.condemned = true;
                ual.disconnect();
                ual.id
            })
            .collect();
        for id in condemned {
            tracing::warn!(
                ual = id,
                "it broke the rules of shared memory, or its memory vanished: closing it"
            );
            self.tables.counters.condemned += 1;
            self.application_gone(now, id, &[]);
        }
        self.forget_gone();
    }

    /// Forgets UALs whose last DTI has ended; their memory is unmapped here, when no frame refers to it.
    fn forget_gone(&mut self) {
        use sidecore_nic::Nic;
        // Frames of the loopback name DTIs that are no more; they refer to no memory.
        if self.nic.in_flight() {
            return;
        }
        for place in &mut self.tables.uals {
            if place.as_ref().is_some_and(|ual| ual.gone && ual.dtis == 0) {
                *place = None;
            }
        }
    }
}
