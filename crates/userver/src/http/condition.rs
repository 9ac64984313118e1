//! Conditional requests (RFC 9110, section 13).

use std::time::{Duration, UNIX_EPOCH};

use super::request::Conditions;

/// The validators of a file: what conditions are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// Entity tag with its quotes; strong.
    pub etag: &'a [u8],
    /// Last-Modified as seconds since 1970.
    pub modified: u64,
}

/// What the conditions come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Send the file, or the ranges of it if `range_allowed`.
    Proceed {
        /// Whether If-Range lets a Range count.
        range_allowed: bool,
    },
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates the conditions in the order of section 13.2.2.
pub fn evaluate(conditions: &Conditions<'_>, file: &Validators<'_>) -> Verdict {
    if let Some(tags) = conditions.if_match {
        if !any_tag(tags, file.etag, false) {
            return Verdict::Failed;
        }
    } else if let Some(date) = conditions.if_unmodified_since.and_then(seconds)
        && file.modified > date
    {
        return Verdict::Failed;
    }
    if let Some(tags) = conditions.if_none_match {
        if any_tag(tags, file.etag, true) {
            return Verdict::NotModified;
        }
    } else if let Some(date) = conditions.if_modified_since.and_then(seconds)
        && file.modified <= date
    {
        return Verdict::NotModified;
    }
    let range_allowed = match conditions.if_range.map(<[u8]>::trim_ascii) {
        None => true,
        // Section 13.1.5: a tag by strong comparison, or a date by exact match.
        Some(value) if value.first() == Some(&b'"') => value == file.etag,
        Some(value) => seconds(value) == Some(file.modified),
    };
    Verdict::Proceed { range_allowed }
}

/// Whether a list of entity tags, or `*`, names ours. Weak comparison ignores the `W/` of theirs; ours is strong.
fn any_tag(list: &[u8], etag: &[u8], weak: bool) -> bool {
    list.trim_ascii() == b"*"
        || list.split(|b| *b == b',').any(|tag| {
            let tag = tag.trim_ascii();
            let tag = if weak {
                tag.strip_prefix(b"W/").unwrap_or(tag)
            } else {
                tag
            };
            tag == etag
        })
}

/// An HTTP date as seconds since 1970; `None` for what is none (which makes the field void).
fn seconds(value: &[u8]) -> Option<u64> {
    let time = httpdate::parse_http_date(core::str::from_utf8(value).ok()?.trim()).ok()?;
    time.duration_since(UNIX_EPOCH)
        .map(|since| since.as_secs())
        .ok()
}

/// Writes seconds since 1970 as an HTTP date (29 bytes). Years beyond 9999 are written as the last second of 9999.
pub fn http_date(seconds: u64) -> [u8; DATE_LEN] {
    use std::io::Write;
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799));
    let mut date = [b' '; DATE_LEN];
    // The text is always 29 bytes long; were it not, the rest would stay blank.
    let _ = write!(&mut date[..], "{}", httpdate::HttpDate::from(time));
    date
}

/// Bytes of an HTTP date.
pub const DATE_LEN: usize = 29;

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Validators<'static> = Validators {
        etag: b"\"a-1\"",
        modified: 784_111_777, // Sun, 06 Nov 1994 08:49:37 GMT
    };
    const SAME: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &[u8] = b"Sunday, 06-Nov-94 08:49:38 GMT";
    const SEND: Verdict = Verdict::Proceed {
        range_allowed: true,
    };

    fn check(set: impl FnOnce(&mut Conditions<'static>)) -> Verdict {
        let mut conditions = Conditions::default();
        set(&mut conditions);
        evaluate(&conditions, &FILE)
    }

    #[test]
    fn dates() {
        assert_eq!(check(|c| c.if_modified_since = Some(BEFORE)), SEND);
        assert_eq!(
            check(|c| c.if_modified_since = Some(SAME)),
            Verdict::NotModified
        );
        assert_eq!(
            check(|c| c.if_modified_since = Some(AFTER)),
            Verdict::NotModified
        );
        assert_eq!(check(|c| c.if_modified_since = Some(b"yesterday")), SEND);
        assert_eq!(
            check(|c| c.if_unmodified_since = Some(BEFORE)),
            Verdict::Failed
        );
        assert_eq!(check(|c| c.if_unmodified_since = Some(SAME)), SEND);
    }

    #[test]
    fn tags() {
        assert_eq!(
            check(|c| c.if_none_match = Some(b"\"x\", W/\"a-1\"")),
            Verdict::NotModified
        );
        assert_eq!(
            check(|c| c.if_none_match = Some(b"*")),
            Verdict::NotModified
        );
        assert_eq!(check(|c| c.if_match = Some(b"W/\"a-1\"")), Verdict::Failed);
        assert_eq!(check(|c| c.if_match = Some(b"\"b\",\"a-1\"")), SEND);
        let tag_wins = check(|c| {
            c.if_none_match = Some(b"\"x\"");
            c.if_modified_since = Some(AFTER);
        });
        assert_eq!(tag_wins, SEND, "If-None-Match overrides If-Modified-Since");
    }

    #[test]
    fn if_range() {
        let no = Verdict::Proceed {
            range_allowed: false,
        };
        assert_eq!(check(|c| c.if_range = Some(b"\"a-1\"")), SEND);
        assert_eq!(check(|c| c.if_range = Some(b"W/\"a-1\"")), no);
        assert_eq!(check(|c| c.if_range = Some(SAME)), SEND);
        assert_eq!(check(|c| c.if_range = Some(AFTER)), no);
        assert_eq!(check(|c| c.if_range = Some(b"nonsense")), no);
    }

    #[test]
    fn dates_are_written_as_they_are_read() {
        assert_eq!(&http_date(784_111_777), SAME);
        assert_eq!(http_date(u64::MAX)[12..16], *b"9999");
    }
}
