//! Range requests (RFC 9110, section 14).

use core::ops::Range;

use super::request::decimal;

/// Ranges of one request at most. More, or more bytes than the file has, and the field is ignored, as section 14.2
/// allows: they would make a cheap request cause dear work.
pub const MAX_RANGES: usize = 16;

/// What a Range field asks of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ranges {
    /// Nothing that we understand: the whole file.
    Whole,
    /// No range lies in the file: 416.
    Unsatisfiable,
    /// These, in the order asked for; at least one, none empty, each within the file.
    Some(Satisfiable),
}

/// At least one and at most [`MAX_RANGES`] ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Satisfiable {
    ranges: [(u64, u64); MAX_RANGES],
    count: usize,
}

impl Satisfiable {
    /// The ranges, ends exclusive.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges
            .iter()
            .take(self.count)
            .map(|(start, end)| *start..*end)
    }

    /// The range, when there is exactly one.
    pub fn single(&self) -> Option<Range<u64>> {
        match (self.count, self.iter().next()) {
            (1, range) => range,
            _ => None,
        }
    }
}

/// Parses the value of a Range field against a file of `len` bytes.
pub fn parse(value: &[u8], len: u64) -> Ranges {
    let Some((unit, set)) = value.split_at_checked(6) else {
        return Ranges::Whole;
    };
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return Ranges::Whole;
    }
    let mut found = Satisfiable {
        ranges: [(0, 0); MAX_RANGES],
        count: 0,
    };
    let mut total = 0u64;
    for (number, spec) in set.split(|b| *b == b',').enumerate() {
        let spec = spec.trim_ascii();
        if spec.is_empty() {
            continue; // RFC 9110, section 5.6.1: empty elements of lists are ignored
        }
        let range = match range_spec(spec, len) {
            Some(range) if number < MAX_RANGES => range,
            _ => return Ranges::Whole,
        };
        if range.is_empty() {
            continue;
        }
        total += range.end - range.start;
        found.ranges[found.count] = (range.start, range.end);
        found.count += 1;
    }
    match found.count {
        0 => Ranges::Unsatisfiable,
        1 => Ranges::Some(found),
        _ if total > len => Ranges::Whole,
        _ => Ranges::Some(found),
    }
}

/// One `first-last`, `first-` or `-suffix`; empty when it lies outside the file, `None` when it is malformed.
fn range_spec(spec: &[u8], len: u64) -> Option<Range<u64>> {
    let dash = spec.iter().position(|b| *b == b'-')?;
    let (first, last) = (spec.get(..dash)?, spec.get(dash + 1..)?);
    if first.is_empty() {
        let suffix = decimal(last)?;
        return Some(len - suffix.min(len)..len);
    }
    let first = decimal(first)?;
    let end = if last.is_empty() {
        len
    } else {
        let last = decimal(last)?;
        if last < first {
            return None;
        }
        last.saturating_add(1).min(len)
    };
    Some(first.min(end)..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(value: &str, len: u64) -> Option<Vec<Range<u64>>> {
        match parse(value.as_bytes(), len) {
            Ranges::Whole => None,
            Ranges::Unsatisfiable => Some(Vec::new()),
            Ranges::Some(found) => Some(found.iter().collect()),
        }
    }

    #[test]
    fn single_ranges() {
        for (value, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-99", 0..100),
            ("bytes=0-100", 0..100),
            ("Bytes=10-", 10..100),
            ("bytes=-10", 90..100),
            ("bytes=-1000", 0..100),
            ("bytes= 5-6 ", 5..7),
            ("bytes=99-18446744073709551615", 99..100),
        ] {
            assert_eq!(ranges(value, 100), Some(vec![expected]), "{value}");
        }
    }

    #[test]
    fn what_lies_outside_is_unsatisfiable() {
        for value in [
            "bytes=100-",
            "bytes=100-200",
            "bytes=-0",
            "bytes=200-,300-",
            "bytes=",
        ] {
            assert_eq!(ranges(value, 100), Some(vec![]), "{value}");
        }
        assert_eq!(ranges("bytes=0-", 0), Some(vec![]));
        assert_eq!(ranges("bytes=-5", 0), Some(vec![]));
    }

    #[test]
    fn nonsense_is_ignored() {
        for value in [
            "",
            "bytes",
            "lines=0-1",
            "bytes=a-b",
            "bytes=1",
            "bytes=5-4",
            "bytes=--1",
            "bytes=1-2-3",
            "bytes=-",
            "bytes=18446744073709551616-",
            "bytes=0-1,x",
        ] {
            assert_eq!(ranges(value, 100), None, "{value}");
        }
    }

    #[test]
    fn many_ranges_within_reason() {
        assert_eq!(
            ranges("bytes=0-1, 50-59,-1,,200-", 100),
            Some(vec![0..2, 50..60, 99..100])
        );
        assert_eq!(ranges("bytes=0-,0-", 100), None, "more bytes than the file");
        let many = format!("bytes={}", "0-0,".repeat(MAX_RANGES) + "1-1");
        assert_eq!(ranges(&many, 100), None);
        let most = format!("bytes={}1-1", "0-0,".repeat(MAX_RANGES - 1));
        assert_eq!(ranges(&most, 100).map(|r| r.len()), Some(MAX_RANGES));
    }

    proptest! {
        #[test]
        fn ranges_lie_in_the_file(value in "bytes=[-0-9, ]{0,40}", len in 0u64..1000) {
            if let Ranges::Some(found) = parse(value.as_bytes(), len) {
                prop_assert!(found.iter().count() >= 1);
                prop_assert!(found.iter().all(|r| r.start < r.end && r.end <= len));
            }
        }
    }
}
