//! The packet processing engine: one thread, one loop.

use std::collections::HashMap;
use std::time::Duration;

use sidecore_abi::Address;
use sidecore_nic::{AnyNic, BURST, Nic, RxBurst};
use sidecore_stack::{FlowHint, FrameMeta, RxChecksum, Stack, StackError, TxPayload};
use sidecore_tcp::Instant;

use crate::capture::Captures;
use crate::clock::EngineClock;
use crate::commands::{self, Context};
use crate::config::{Budgets, EngineConfig};
use crate::cycles::{Bin, LoopCounters, Stopwatch};
use crate::idle::Idle;
use crate::loopback::Loopback;
use crate::mailbox::Inbox;
use crate::output::{Input, Output};
use crate::shutdown::Shutdown;
use crate::tables::Tables;
use crate::tables::datagram::Piece;
use crate::tables::frame::{Frame, StreamRange};

/// Frames that the internal loopback holds at most.
const LOOPBACK_FRAMES: usize = 4096;

/// Turns that find a lane empty before the engine looks at it only when its bell rings.
const PARK_AFTER: u32 = 4096;

/// What a turn found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Something was done.
    Productive,
    /// There was nothing to do.
    Idle,
    /// The engine was told to stop and has nothing left to do.
    Stopped,
}

/// An engine. Made by [`Engine::new`], driven by [`Engine::turn`] or [`Engine::run`].
pub struct Engine {
    pub(crate) nic: AnyNic,
    pub(crate) stack: Stack,
    pub(crate) tables: Tables,
    pub(crate) loopback: Loopback,
    pub(crate) captures: Captures,
    pub(crate) inbox: Inbox,
    pub(crate) idle: Idle,
    pub(crate) counters: LoopCounters,
    pub(crate) clock: EngineClock,
    pub(crate) core: Option<usize>,
    pub(crate) ual_slots: HashMap<u64, u32>,
    pub(crate) stopping: Option<Shutdown>,
    pub(crate) drain: Duration,
    pub(crate) ended: bool,
    pub(crate) next_chore: Instant,
    burst: RxBurst,
    /// Of each frame of the burst.
    hints: [FlowHint; BURST],
    budgets: Budgets,
    scratch: Vec<u8>,
    datagram_scratch: Vec<u8>,
    agent: Option<crate::agent::AgentThread>,
}

impl Engine {
    /// Makes an engine and starts its agent (a thread of its own, if the engine has a socket or can be connected to).
    pub(crate) fn assemble(
        config: EngineConfig,
        nic: AnyNic,
        stack: Stack,
        inbox: Inbox,
        agent: crate::agent::AgentThread,
    ) -> std::io::Result<Self> {
        let clock = EngineClock::new(config.clock_slowdown);
        let idle = Idle::new(&config, &nic, &inbox)?;
        Ok(Self {
            tables: Tables::new(&config),
            loopback: Loopback::new(LOOPBACK_FRAMES),
            captures: Captures::default(),
            counters: LoopCounters::default(),
            ual_slots: HashMap::new(),
            stopping: None,
            drain: config.drain,
            ended: false,
            next_chore: Instant::default(),
            burst: RxBurst::new(),
            hints: [FlowHint::NONE; BURST],
            budgets: config.budgets,
            scratch: vec![0; 1 << 17],
            datagram_scratch: vec![0; 1 << 16],
            core: config.core,
            agent: Some(agent),
            nic,
            stack,
            inbox,
            idle,
            clock,
        })
    }

    /// One turn of the loop: looks at every source once and never blocks.
    pub fn turn(&mut self) -> Turn {
        let cycles = sidecore_sys::clock::cycles();
        let now = Instant::from_nanos(self.clock.nanos_at(cycles));
        let mut watch = Stopwatch::start(cycles);
        let mut found = 0;
        found += self.take_mail(now, &mut watch);
        found += self.receive(now, &mut watch);
        found += self.receive_loopback(now, &mut watch);
        found += self.ring_doorbells(now, &mut watch);
        found += self.expire_timers(now, &mut watch);
        if self.has_something_to_send() {
            found += self.transmit(now, &mut watch);
        }
        found += self.deliver_and_wake(&mut watch);
        watch.finish(&mut self.counters, found > 0);
        if self.stopping.is_some() && self.try_end(now) {
            return Turn::Stopped;
        }
        if found > 0 {
            self.idle.was_productive(now);
            Turn::Productive
        } else {
            Turn::Idle
        }
    }

    /// Turns until it is told to stop; sleeps as the idle policy says.
    pub fn run(mut self) {
        if let Some(core) = self.core {
            let _ = sidecore_sys::affinity::pin_current_thread(core);
        }
        loop {
            match self.turn() {
                Turn::Productive => {}
                Turn::Stopped => break,
                Turn::Idle => self.rest(),
            }
        }
        if let Some(agent) = self.agent.take() {
            agent.stop();
        }
    }

    #[inline]
    fn receive(&mut self, now: Instant, watch: &mut Stopwatch) -> usize {
        if self.idle.holds_back(now) {
            return 0;
        }
        let mut frames = 0;
        for _ in 0..self.budgets.receive_bursts {
            let taken = self.nic.receive(&mut self.burst);
            if taken == 0 {
                break;
            }
            watch.lap(&mut self.counters, Bin::Driver);
            self.handle_burst(now);
            frames += taken;
            watch.lap(&mut self.counters, Bin::Receive);
            if taken < BURST {
                // There were no more; what has come since is the next turn's.
                break;
            }
        }
        self.idle.received(now, frames);
        self.counters.frames_in += frames as u64;
        frames
    }

    fn handle_burst(&mut self, now: Instant) {
        // A frame alone would be waited for at once.
        let hinted = self.burst.len() > 1;
        if hinted {
            for (frame, hint) in self.burst.frames().iter().zip(&mut self.hints) {
                *hint = self.stack.prefetch(self.nic.frame(frame));
            }
        }
        for (frame, hint) in self.burst.frames().iter().zip(&self.hints) {
            let bytes = self.nic.frame(frame);
            if hinted {
                self.stack.expect(*hint);
            }
            self.captures.incoming(bytes);
            let checksum = if frame.checksum_valid {
                RxChecksum::Valid
            } else {
                RxChecksum::Unchecked
            };
            let meta = FrameMeta {
                len: bytes.len(),
                checksum,
                loopback: false,
            };
            let mut input = Input {
                tables: &mut self.tables,
                frame: Frame::Device(bytes),
            };
            self.stack.handle_frame(now, &meta, bytes, &mut input);
        }
        self.nic.release(&mut self.burst);
    }

    #[inline]
    fn receive_loopback(&mut self, now: Instant, watch: &mut Stopwatch) -> usize {
        // Only what was there when the turn began: what is sent in answer waits for the next turn.
        let frames = self.loopback.len().min(self.budgets.loopback_frames);
        if frames > 0 {
            self.handle_loopback(now, frames);
            watch.lap(&mut self.counters, Bin::Loopback);
        }
        frames
    }

    fn handle_loopback(&mut self, now: Instant, frames: usize) {
        for _ in 0..frames {
            let Some(frame) = self.loopback.pop() else {
                break;
            };
            self.tables.counters.loopback_frames += 1;
            if let Some(bytes) = &frame.bytes {
                let whole = [frame.header(), bytes].concat();
                let meta = FrameMeta {
                    len: whole.len(),
                    checksum: RxChecksum::Valid,
                    loopback: true,
                };
                let mut input = Input {
                    tables: &mut self.tables,
                    frame: Frame::Device(&whole),
                };
                self.stack.handle_frame(now, &meta, &whole, &mut input);
                continue;
            }
            let header = frame.header();
            let none = StreamRange {
                slot: u32::MAX,
                epoch: 0,
                start: 0,
                len: 0,
            };
            let payload = frame.payload.unwrap_or(none);
            if payload.len > 0 && !self.tables.seek(payload) {
                self.tables.counters.loopback_stale += 1;
                continue;
            }
            let meta = FrameMeta {
                len: header.len() + payload.len as usize,
                checksum: RxChecksum::Valid,
                loopback: true,
            };
            let place = Frame::Loopback {
                header_len: header.len() as u32,
                payload,
            };
            let mut input = Input {
                tables: &mut self.tables,
                frame: place,
            };
            self.stack.handle_frame(now, &meta, header, &mut input);
        }
    }

    #[inline]
    fn ring_doorbells(&mut self, now: Instant, watch: &mut Stopwatch) -> usize {
        let mut commands = 0;
        for ual in 0..self.tables.uals.len() as u32 {
            commands += self.drain_ual(now, ual);
        }
        if commands > 0 {
            self.counters.commands += commands as u64;
            watch.lap(&mut self.counters, Bin::Doorbells);
        }
        commands
    }

    /// Reads a UAL's lanes, as far as its event queues keep up.
    #[inline]
    fn drain_ual(&mut self, now: Instant, slot: u32) -> usize {
        let Some(ual) = self.tables.ual(slot) else {
            return 0;
        };
        if ual.gone || ual.condemned || ual.overflowing > 0 {
            return 0;
        }
        ual.take_bells();
        let first = std::mem::take(&mut ual.first_lane);
        let budget = self.budgets.commands_per_ual.max(1);
        let mut left = budget;
        // From where the last turn stopped to the end, then from the start.
        for (mut index, end) in [(first, usize::MAX), (0, first)] {
            while let Some(lane) = self
                .tables
                .ual(slot)
                .filter(|_| index < end)
                .and_then(|ual| ual.next_lane(&mut index, PARK_AFTER))
            {
                left -= self.drain_lane(now, slot, lane, left.min(self.budgets.commands_per_lane));
                if left == 0 {
                    if let Some(ual) = self.tables.ual(slot) {
                        ual.first_lane = index;
                    }
                    self.tables.counters.budgets_used_up += 1;
                    return budget;
                }
            }
        }
        budget - left
    }

    fn drain_lane(&mut self, now: Instant, slot: u32, lane: u16, budget: usize) -> usize {
        let mut read = 0;
        while read < budget {
            let Some(ual) = self.tables.ual(slot) else {
                break;
            };
            if ual.overflowing > 0 {
                break;
            }
            let Some(entry) = ual.control.lane(lane as usize).and_then(|lane| lane.pop()) else {
                break;
            };
            read += 1;
            if self.inbox.has_new_mail() {
                self.take_regions(now);
            }
            let mut cx = Context {
                tables: &mut self.tables,
                stack: &mut self.stack,
                now,
                ual: slot,
            };
            commands::execute(&mut cx, &entry);
        }
        if let Some(ual) = self.tables.ual(slot) {
            ual.counters.commands += read as u64;
        }
        read
    }

    /// Reads what is left on the lanes of an application that has died.
    pub(crate) fn drain_before_death(&mut self, now: Instant, slot: u32) {
        let Some((lanes, entries)) = self
            .tables
            .ual(slot)
            .map(|ual| (ual.geometry.lanes, 1usize << ual.geometry.lane_order))
        else {
            return;
        };
        for lane in 0..lanes as u16 {
            // No more than one lane's worth each: nobody writes any more.
            self.drain_lane(now, slot, lane, entries);
        }
    }

    #[inline]
    fn expire_timers(&mut self, now: Instant, watch: &mut Stopwatch) -> usize {
        if !self.stack.timers_may_be_due(now) {
            return 0;
        }
        self.fire_timers(now, watch)
    }

    #[inline(never)]
    fn fire_timers(&mut self, now: Instant, watch: &mut Stopwatch) -> usize {
        let mut output = Output {
            tables: &mut self.tables,
            nic: &mut self.nic,
            loopback: &mut self.loopback,
            captures: &mut self.captures,
            scratch: &mut self.scratch,
        };
        let fired = self
            .stack
            .handle_timers(now, &mut output, self.budgets.timers);
        if fired > 0 {
            watch.lap(&mut self.counters, Bin::Timers);
        }
        fired
    }

    #[inline]
    fn has_something_to_send(&self) -> bool {
        !self.tables.dirty.is_empty()
            || !self.tables.datagram_senders.is_empty()
            || self.stack.has_work()
    }

    /// After the doorbells, so that acknowledgements ride on responses.
    pub(crate) fn transmit(&mut self, now: Instant, watch: &mut Stopwatch) -> usize {
        if !self.tables.dirty.is_empty() {
            self.tables.tell_stack(&mut self.stack);
        }
        let datagrams = if self.tables.datagram_senders.is_empty() {
            0
        } else {
            self.send_datagrams(now)
        };
        if !self.stack.has_work() && datagrams == 0 {
            self.tell_writable();
            return 0;
        }
        let mut output = Output {
            tables: &mut self.tables,
            nic: &mut self.nic,
            loopback: &mut self.loopback,
            captures: &mut self.captures,
            scratch: &mut self.scratch,
        };
        let sent = datagrams
            + self
                .stack
                .transmit(now, &mut output, self.budgets.transmit_frames);
        self.nic.flush();
        self.counters.frames_out += sent as u64;
        self.tell_writable();
        watch.lap(&mut self.counters, Bin::Transmit);
        sent
    }

    #[inline]
    fn tell_writable(&mut self) {
        if !self.tables.lowat.is_empty() {
            self.tables.tell_writable(&self.stack);
        }
    }

    #[cold]
    fn send_datagrams(&mut self, now: Instant) -> usize {
        let Self {
            tables,
            stack,
            nic,
            loopback,
            captures,
            datagram_scratch,
            ..
        } = self;
        let sent = tables.send_datagrams(datagram_scratch, |tables, (slot, id), piece| {
            let (to, bytes) = match piece {
                Piece::Datagram(to, bytes) => (to, bytes),
                Piece::Change(option) => {
                    stack.udp_set_option(id, option);
                    return Ok(());
                }
            };
            let mut output = Output {
                tables,
                nic,
                loopback,
                captures,
                scratch: &mut [],
            };
            let sent = stack.udp_send(now, id, to, TxPayload::Bytes(bytes), &mut output);
            // The scratch memory is used again for the next datagram.
            output.nic.flush();
            if sent == Err(StackError::MessageTooLarge) {
                let mtu = stack.path_mtu(now, to.ip()).unwrap_or_default();
                tables.datagram_too_large(slot, Address::new(to), mtu.into());
            }
            sent
        });
        for (slot, id) in self.tables.take_closed_datagram_sockets() {
            if let Some(id) = id {
                self.stack.udp_close(id);
            }
            self.tables.tell_over(slot);
        }
        sent
    }

    /// What could not be delivered is tried again; whoever sleeps on a queue that got something is woken.
    #[inline]
    fn deliver_and_wake(&mut self, watch: &mut Stopwatch) -> usize {
        let mut woke = 0;
        for slot in 0..self.tables.uals.len() as u32 {
            let Some(ual) = self.tables.ual(slot) else {
                continue;
            };
            if ual.has_backlog() {
                self.deliver_backlog(slot);
            }
            let Some(ual) = self.tables.ual(slot) else {
                continue;
            };
            if !ual.touched.is_empty() {
                if ual.wake_touched() {
                    self.idle.has_woken();
                }
                woke += 1;
            }
        }
        if woke > 0 {
            watch.lap(&mut self.counters, Bin::Wake);
        }
        woke
    }

    #[cold]
    fn deliver_backlog(&mut self, slot: u32) {
        let Some(ual) = self.tables.ual(slot) else {
            return;
        };
        if ual.overflowing > 0 {
            ual.drain_overflow();
        }
        if !ual.stalled.is_empty() {
            self.tables.retry_stalled(slot);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.stop();
        }
    }
}
