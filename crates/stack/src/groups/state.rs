//! What is to be said of groups, and when (RFC 3376 sections 5 and 7.2, RFC 3810 sections 6 and 8.2).

use core::time::Duration;

use sidecore_tcp::Instant;
use sidecore_wire::{GroupQuery, GroupVersion, RecordKind};

use super::filter::{Filter, Mode};
use super::report::Record;
use super::{Group, Groups, Reported};

/// RFC 3376 section 8.1, RFC 3810 section 9.1: how often what may be lost is said.
const ROBUSTNESS: u8 = 2;
/// RFC 3376 section 8.2, RFC 3810 section 9.2.
const QUERY_INTERVAL: Duration = Duration::from_secs(125);
/// A router may say another interval, up to what eight bits can say.
const QUERY_INTERVAL_MAX: u32 = 31_744;

/// Time to say what changed again, at most: IGMPv3 and MLDv2 (RFC 3376 section 8.11, RFC 3810 section 9.11).
const UNSOLICITED: Duration = Duration::from_secs(1);
/// The same of older versions (RFC 2236 section 8.10, RFC 2710 section 7.10).
const UNSOLICITED_OLD: Duration = Duration::from_secs(10);

/// What routers say of times, and which versions they speak.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// QRV of the last query.
    robustness: u8,
    /// QQIC of the last query.
    interval: Duration,
    /// Until then there is a router that speaks version 1, and one that speaks version 2.
    old_until: [Instant; 2],
    /// What was spoken last.
    spoken: GroupVersion,
}

impl Timing {
    pub(super) const fn new() -> Self {
        Self {
            robustness: ROBUSTNESS,
            interval: QUERY_INTERVAL,
            old_until: [Instant::ZERO; 2],
            spoken: GroupVersion::V3,
        }
    }

    /// Host compatibility mode (RFC 3376 section 7.2.1).
    fn version(&self, now: Instant) -> GroupVersion {
        let [v1, v2] = self.old_until.map(|until| now < until);
        match (v1, v2) {
            (true, _) => GroupVersion::V1,
            (_, true) => GroupVersion::V2,
            _ => GroupVersion::V3,
        }
    }

    /// Time until what changed is said again.
    fn repetition(&self) -> Duration {
        match self.spoken {
            GroupVersion::V3 => UNSOLICITED,
            _ => UNSOLICITED_OLD,
        }
    }

    /// What a query says of these times, and of its sender.
    fn note<A: Reported>(&mut self, now: Instant, query: &GroupQuery<'_, A>) {
        if query.version == GroupVersion::V3 {
            // As the routers' own default if they say none.
            self.robustness = if query.robustness == 0 {
                ROBUSTNESS
            } else {
                query.robustness
            };
            self.interval = match query.interval_s.min(QUERY_INTERVAL_MAX) {
                0 => QUERY_INTERVAL,
                seconds => Duration::from_secs(u64::from(seconds)),
            };
            return;
        }
        // RFC 3376 section 8.12, RFC 3810 section 9.12: Older Version Querier Present Timeout.
        let response = Duration::from_millis(u64::from(query.max_response_ms));
        let until = now + self.interval * u32::from(self.robustness) + response;
        match query.version {
            GroupVersion::V1 => self.old_until[0] = until,
            // Section 7.2.1: "whenever an IGMPv2 General Query is received"; RFC 3810 section 8.2.1 likewise.
            _ if query.group == A::ANY => self.old_until[1] = until,
            _ => {}
        }
    }
}

/// What is due to be said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said<A> {
    /// Records, for reports of version 3.
    Records(Vec<Record<A>>),
    /// Groups, one message each, of this older version: listened to, or left.
    Old(GroupVersion, Vec<(A, bool)>),
}

impl<A: Reported> Groups<A> {
    /// Some time of at most `most`, different each time, and nobody's to guess.
    fn random(&mut self, most: Duration) -> Duration {
        self.drawn = self.drawn.wrapping_add(1);
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let drawn = self.hasher.hash(u64::from(self.drawn), A::LEN as u32);
        Duration::from_nanos(drawn.checked_rem(nanos).unwrap_or(0))
    }

    /// Speaks the version that is now to be spoken. RFC 3376 section 7.2.1: "Whenever a host changes its compatibility mode, it
    /// cancels all its pending responses and retransmission timers."
    pub(super) fn refresh(&mut self, now: Instant) -> GroupVersion {
        let version = self.timing.version(now);
        if version != self.timing.spoken {
            self.timing.spoken = version;
            self.answer = None;
            for group in &mut self.groups {
                (group.answer, group.mode_reports) = (None, 0);
                group.asked.clear();
                group.changed.clear();
            }
            self.groups.retain(|group| !group.is_over());
        }
        version
    }

    /// The sockets of a group have changed what they listen to: what is to be said of that (RFC 3376 section 5.1). True if the
    /// group is forgotten, as nothing is.
    pub(super) fn settle(&mut self, now: Instant, at: usize) -> bool {
        let (version, robustness) = (self.timing.spoken, self.timing.robustness);
        let group = &mut self.groups[at];
        let new = group.merged();
        let old = core::mem::replace(&mut group.state, new);
        if group.state != old && group.address.is_reported() {
            match version {
                GroupVersion::V3 => group.note_change(&old, robustness),
                _ => group.note_old_change(&old, version),
            }
            if group.has_changes() {
                group.next_change = now;
            }
        }
        let over = group.is_over();
        if over {
            self.groups.remove(at);
        }
        over
    }

    /// All groups are to be told once more, as by a change: the address that reports come from is another now (RFC 3590).
    pub(crate) fn tell_again(&mut self, now: Instant) {
        let robustness = self.timing.robustness;
        for group in &mut self.groups {
            if group.address.is_reported() && !group.state.is_nobody() {
                group.mode_reports = robustness;
                group.changed.clear();
                group.next_change = now;
            }
        }
        self.reschedule();
    }

    /// A router asks (RFC 3376 section 5.2, RFC 3810 section 6.2).
    pub(crate) fn query(&mut self, now: Instant, query: &GroupQuery<'_, A>) {
        self.note_query(now, query);
        self.reschedule();
    }

    fn note_query(&mut self, now: Instant, query: &GroupQuery<'_, A>) {
        self.timing.note(now, query);
        let version = self.refresh(now);
        let most = Duration::from_millis(u64::from(query.max_response_ms));
        let at = now + self.random(most);
        if version < GroupVersion::V3 {
            return self.query_old(now, query, most);
        }
        // "1. If there is a pending response to a previous General Query scheduled sooner than the selected delay, no
        // additional response needs to be scheduled."
        if self.answer.is_some_and(|pending| pending <= at) {
            return;
        }
        if query.group == A::ANY {
            // "2. … Any previously pending response to a General Query is canceled."
            self.answer = Some(at);
            return;
        }
        let limit = self.config.sources;
        let Ok(place) = self.place(query.group) else {
            return;
        };
        let group = &mut self.groups[place];
        if group.state.is_nobody() || !group.address.is_reported() {
            return;
        }
        group.ask(at, query, limit);
    }

    /// The same as older hosts do it: each group has its own time (RFC 2236 section 3, RFC 2710 section 4).
    fn query_old(&mut self, now: Instant, query: &GroupQuery<'_, A>, most: Duration) {
        for index in 0..self.groups.len() {
            let group = &self.groups[index];
            let asked = query.group == A::ANY || query.group == group.address;
            if !asked || group.state.is_nobody() || !group.address.is_reported() {
                continue;
            }
            // "If a timer for the group is already running, it is reset to the random value only if the requested Max Response
            // Time is less than the remaining value of the running timer."
            let soon = group.answer.is_some_and(|at| at <= now + most);
            if !soon {
                let at = now + self.random(most);
                self.groups[index].answer = Some(at);
            }
        }
    }

    /// Another host said that it listens to a group: in older versions that is answer enough for all (RFC 2236 section 3).
    pub(crate) fn heard(&mut self, now: Instant, address: A) {
        if self.refresh(now) == GroupVersion::V3 {
            return;
        }
        if let Ok(at) = self.place(address) {
            let group = &mut self.groups[at];
            group.answer = None;
            if !group.state.is_nobody() {
                group.mode_reports = 0;
            }
        }
        self.reschedule();
    }

    /// Finds out anew when something is due.
    pub(super) fn reschedule(&mut self) {
        let of_groups = self.groups.iter().flat_map(|group| {
            let change = group.has_changes().then_some(group.next_change);
            change.into_iter().chain(group.answer)
        });
        let next = of_groups.chain(self.answer).min();
        self.next = next.unwrap_or(Instant::NEVER);
    }

    /// What is due now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Said<A>> {
        if self.next > now {
            return None;
        }
        let version = self.refresh(now);
        let said = match version {
            GroupVersion::V3 => Said::Records(self.due_records(now)),
            older => Said::Old(older, self.due_old(now)),
        };
        self.groups.retain(|group| !group.is_over());
        self.reschedule();
        Some(said)
    }

    fn due_records(&mut self, now: Instant) -> Vec<Record<A>> {
        let mut records = Vec::new();
        let all = self.answer.is_some_and(|at| at <= now);
        if all {
            self.answer = None;
        }
        let most = self.timing.repetition();
        for index in 0..self.groups.len() {
            // Drawn for each, used by those that need it.
            let again = now + self.random(most);
            let group = &mut self.groups[index];
            if group.has_changes() && group.next_change <= now {
                group.changes_into(&mut records);
                group.next_change = again;
            }
            let asked = group.answer.is_some_and(|at| at <= now);
            if asked {
                group.answer = None;
            }
            let sources = if asked {
                core::mem::take(&mut group.asked)
            } else {
                Vec::new()
            };
            if all || asked && sources.is_empty() {
                records.extend(group.present());
            } else if asked {
                records.extend(group.present_of(sources));
            }
        }
        records
    }

    fn due_old(&mut self, now: Instant) -> Vec<(A, bool)> {
        let mut said = Vec::new();
        let most = self.timing.repetition();
        for index in 0..self.groups.len() {
            let again = now + self.random(most);
            let group = &mut self.groups[index];
            let listened = !group.state.is_nobody();
            let changed = group.has_changes() && group.next_change <= now;
            let asked = group.answer.is_some_and(|at| at <= now);
            if changed {
                group.mode_reports = group.mode_reports.saturating_sub(1);
                group.next_change = again;
            }
            if asked {
                group.answer = None;
            }
            if changed || asked && listened {
                said.push((group.address, listened));
            }
        }
        said
    }
}

impl<A: Reported> Group<A> {
    /// RFC 3376 section 5.1: a change of the mode is told with all sources, one of sources with those.
    fn note_change(&mut self, old: &Filter<A>, robustness: u8) {
        if old.mode != self.state.mode {
            self.mode_reports = robustness;
            // They are all in these reports.
            self.changed.clear();
            return;
        }
        for source in old.difference(&self.state) {
            self.changed.retain(|(other, _)| *other != source);
            self.changed.push((source, robustness));
        }
    }

    /// Older routers know of no sources: a group is joined or left.
    fn note_old_change(&mut self, old: &Filter<A>, version: GroupVersion) {
        match (old.is_nobody(), self.state.is_nobody()) {
            (true, false) => self.mode_reports = ROBUSTNESS,
            // IGMPv1 has no word for it.
            (false, true) if version == GroupVersion::V1 => self.mode_reports = 0,
            (false, true) => self.mode_reports = 1,
            _ => {}
        }
        if self.state.is_nobody() {
            self.answer = None;
        }
    }

    /// The records of a state-change report (RFC 3376 section 5.1).
    fn changes_into(&mut self, records: &mut Vec<Record<A>>) {
        if self.mode_reports > 0 {
            self.mode_reports -= 1;
            let kind = match self.state.mode {
                Mode::Include => RecordKind::ToInclude,
                Mode::Exclude => RecordKind::ToExclude,
            };
            records.push(Record {
                kind,
                group: self.address,
                sources: self.state.sources.clone(),
            });
            return;
        }
        for (kind, wanted) in [(RecordKind::Allow, true), (RecordKind::Block, false)] {
            let of_kind = self.changed.iter().map(|(source, _)| *source);
            let mut sources: Vec<A> = of_kind
                .filter(|source| self.state.admits(*source) == wanted)
                .collect();
            sources.sort_unstable();
            // "If the computed source list for either an ALLOW or a BLOCK record is empty, that record is omitted".
            if !sources.is_empty() {
                records.push(Record {
                    kind,
                    group: self.address,
                    sources,
                });
            }
        }
        for (_, left) in &mut self.changed {
            *left -= 1;
        }
        self.changed.retain(|(_, left)| *left > 0);
    }

    /// A query for this group is to be answered then, or earlier (RFC 3376 section 5.2, rules 3 to 5).
    fn ask(&mut self, at: Instant, query: &GroupQuery<'_, A>, limit: usize) {
        let for_all = self.answer.is_some() && self.asked.is_empty();
        if query.sources.is_empty() || for_all {
            self.asked.clear();
        } else {
            for source in query.sources.iter() {
                if !self.asked.contains(&source) {
                    self.asked.push(source);
                }
                if self.asked.len() > limit {
                    // More than is kept: all of the group is the answer, which says that and more.
                    self.asked.clear();
                    break;
                }
            }
        }
        self.answer = Some(self.answer.map_or(at, |pending| pending.min(at)));
    }

    /// A current-state record; none if nobody listens.
    fn present(&self) -> Option<Record<A>> {
        let kind = match self.state.mode {
            Mode::Include => RecordKind::IsInclude,
            Mode::Exclude => RecordKind::IsExclude,
        };
        let told = !self.state.is_nobody() && self.address.is_reported();
        told.then(|| Record {
            kind,
            group: self.address,
            sources: self.state.sources.clone(),
        })
    }

    /// Which of these sources are listened to (RFC 3376 section 5.2): none is no answer.
    fn present_of(&self, mut sources: Vec<A>) -> Option<Record<A>> {
        sources.retain(|source| self.state.admits(*source));
        (!sources.is_empty()).then_some(Record {
            kind: RecordKind::IsInclude,
            group: self.address,
            sources,
        })
    }
}
