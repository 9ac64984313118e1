//! Records packed into reports.

use sidecore_wire::groups::{self, GroupAddress, report_len};
use sidecore_wire::{GroupRecord, RecordKind};

/// What a report says of one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record<A> {
    pub(crate) kind: RecordKind,
    pub(crate) group: A,
    pub(crate) sources: Vec<A>,
}

/// Packs records into as few reports as hold them, each of `room` bytes at most, and hands out one after the other.
///
/// RFC 3376 section 4.2.16, RFC 3810 section 5.2.15: a record that does not fit is told in parts; one of the sources that are not
/// listened to is not, since each part would mean "all others".
pub(crate) fn pack<A: GroupAddress>(
    records: &[Record<A>],
    room: usize,
    mut send: impl FnMut(&[GroupRecord<'_, A>]),
) {
    let head = report_len::<A>(&[]) + groups::record_head_len::<A>();
    let most = (room.saturating_sub(head) / A::LEN).max(1);
    let mut message: Vec<GroupRecord<'_, A>> = Vec::new();
    for record in records {
        let all_others = matches!(record.kind, RecordKind::IsExclude | RecordKind::ToExclude);
        let parts = record.sources.len().div_ceil(most).max(1);
        for part in 0..if all_others { 1 } else { parts } {
            let rest = record.sources.get(part * most..).unwrap_or_default();
            let part = GroupRecord {
                kind: record.kind,
                group: record.group,
                sources: &rest[..rest.len().min(most)],
            };
            if !message.is_empty() && report_len(&message) + part.len() > room {
                send(&message);
                message.clear();
            }
            message.push(part);
        }
    }
    if !message.is_empty() {
        send(&message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn record(kind: RecordKind, group: u8, sources: u32) -> Record<Ipv4Addr> {
        Record {
            kind,
            group: Ipv4Addr::new(239, 0, 0, group),
            sources: (1..=sources)
                .map(|n| Ipv4Addr::from_bits(0x0a00_0000 + n))
                .collect(),
        }
    }

    fn packed(records: &[Record<Ipv4Addr>], room: usize) -> Vec<Vec<(RecordKind, usize)>> {
        let mut all = Vec::new();
        pack(records, room, |message| {
            assert!(report_len(message) <= room);
            all.push(message.iter().map(|r| (r.kind, r.sources.len())).collect());
        });
        all
    }

    #[test]
    fn rfc_3376_section_4_2_16_records_that_do_not_fit() {
        use RecordKind::*;
        // A header of 8, records of 8 and 4 a source.
        let small = [record(ToExclude, 1, 0), record(Allow, 2, 3)];
        assert_eq!(packed(&small, 36), [[(ToExclude, 0), (Allow, 3)]]);
        assert_eq!(packed(&small, 35), [[(ToExclude, 0)], [(Allow, 3)]]);
        let large = [record(Block, 1, 10)];
        assert_eq!(
            packed(&large, 32),
            [[(Block, 4)], [(Block, 4)], [(Block, 2)]]
        );
        // What would say that all others are wanted is said once, cut off.
        assert_eq!(packed(&[record(IsExclude, 1, 10)], 32), [[(IsExclude, 4)]]);
        assert!(packed(&[], 100).is_empty());
    }
}
