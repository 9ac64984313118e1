//! The request target as a path below the root.
//!
//! The canonical form starts with a slash, has its percent-encodings undone, and no empty, `.` or `..` segment. It is
//! the key of the file cache, so that a hostile client cannot fill the cache with spellings of one file. What it names is
//! opened beneath the root by the kernel's own check (`RESOLVE_BENEATH`), which also stops symbolic links that lead out.

/// Why a target names no path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetError {
    /// Neither origin-form nor absolute-form (RFC 9112, section 3.2).
    Form,
    /// A broken percent-encoding, or a NUL.
    Encoding,
    /// `..` above the root.
    AboveRoot,
}

/// The canonical path of a target. Clean targets come back as they are; others are rewritten in `scratch`.
pub fn canonical<'a>(target: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8], TargetError> {
    let path = without_query(origin_form(target)?);
    if is_clean(path) {
        return Ok(path);
    }
    scratch.clear();
    decode(path, scratch)?;
    remove_dot_segments(scratch)?;
    Ok(scratch)
}

fn origin_form(target: &[u8]) -> Result<&[u8], TargetError> {
    if target.first() == Some(&b'/') {
        return Ok(target);
    }
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| {
            let (start, rest) = target.split_at_checked(scheme.len())?;
            start
                .eq_ignore_ascii_case(scheme.as_bytes())
                .then_some(rest)
        })
        .ok_or(TargetError::Form)?;
    // An authority without a path means the root.
    Ok(rest
        .iter()
        .position(|b| matches!(b, b'/' | b'?'))
        .and_then(|at| rest.get(at..))
        .filter(|path| path.first() == Some(&b'/'))
        .unwrap_or(b"/"))
}

fn without_query(target: &[u8]) -> &[u8] {
    target
        .iter()
        .position(|b| matches!(b, b'?' | b'#'))
        .and_then(|end| target.get(..end))
        .unwrap_or(target)
}

fn is_clean(path: &[u8]) -> bool {
    let mut previous = 0;
    for byte in path {
        let dirty = match byte {
            b'%' | 0 => true,
            b'/' | b'.' => previous == b'/',
            _ => false,
        };
        if dirty {
            return false;
        }
        previous = *byte;
    }
    true
}

fn decode(path: &[u8], out: &mut Vec<u8>) -> Result<(), TargetError> {
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        let decoded = if *byte == b'%' {
            let high = bytes.next().and_then(hex_digit);
            let low = bytes.next().and_then(hex_digit);
            high.zip(low)
                .map(|(high, low)| high << 4 | low)
                .ok_or(TargetError::Encoding)?
        } else {
            *byte
        };
        if decoded == 0 {
            return Err(TargetError::Encoding);
        }
        out.push(decoded);
    }
    Ok(())
}

fn hex_digit(byte: &u8) -> Option<u8> {
    (*byte as char).to_digit(16).map(|digit| digit as u8)
}

/// RFC 3986, section 5.2.4, in place; empty segments go as well. A path that ends in `/`, `/.` or `/..` keeps its slash.
fn remove_dot_segments(path: &mut Vec<u8>) -> Result<(), TargetError> {
    let mut read = 0;
    let mut written = 0;
    let mut directory = false;
    while read < path.len() {
        // `read` is at a slash.
        let start = read + 1;
        let end = path[start..]
            .iter()
            .position(|b| *b == b'/')
            .map_or(path.len(), |n| start + n);
        let last = end == path.len();
        match &path[start..end] {
            b"" | b"." => directory = last,
            b".." => {
                if written == 0 {
                    return Err(TargetError::AboveRoot);
                }
                written = path[..written]
                    .iter()
                    .rposition(|b| *b == b'/')
                    .unwrap_or(0);
                directory = last;
            }
            segment => {
                let len = segment.len() + 1;
                path.copy_within(read..end, written);
                written += len;
            }
        }
        read = end;
    }
    path.truncate(written);
    if directory || written == 0 {
        path.push(b'/');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(target: &str) -> Result<String, TargetError> {
        let mut scratch = Vec::new();
        canonical(target.as_bytes(), &mut scratch).map(|p| String::from_utf8_lossy(p).into_owned())
    }

    #[test]
    fn targets_become_canonical_paths() {
        for (target, expected) in [
            ("/", "/"),
            ("/a/b.html", "/a/b.html"),
            ("/a/b.html?x=../..#y", "/a/b.html"),
            ("/a%20b", "/a b"),
            ("/%61", "/a"),
            ("//a///b//", "/a/b/"),
            ("/./a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/..", "/"),
            ("/.hidden", "/.hidden"),
            ("/...", "/..."),
            ("/a/..b", "/a/..b"),
            ("/dir/", "/dir/"),
            ("http://example.org/x/y", "/x/y"),
            ("HTTPS://example.org", "/"),
            ("http://example.org?q", "/"),
        ] {
            assert_eq!(path(target).as_deref(), Ok(expected), "{target}");
        }
    }

    #[test]
    fn ways_out_are_refused() {
        for target in [
            "/..",
            "/../etc/passwd",
            "/a/../../etc/passwd",
            "/%2e%2e/etc/passwd",
            "/..%2fetc/passwd",
            "/a/%2E%2E/%2e./x",
            "/./../x",
            "//../x",
        ] {
            assert_eq!(path(target), Err(TargetError::AboveRoot), "{target}");
        }
        for target in ["/%", "/%4", "/%zz", "/a%00b", "/%+1"] {
            assert_eq!(path(target), Err(TargetError::Encoding), "{target}");
        }
        for target in ["*", "", "a/b", "example.org:80", "ftp://x/y"] {
            assert_eq!(path(target), Err(TargetError::Form), "{target}");
        }
    }

    proptest! {
        #[test]
        fn canonical_paths_hold_no_way_up(target in proptest::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'%'), Just(b'2'), Just(b'e'), Just(b'f'), any::<u8>()], 0..40))
        {
            let target = [b"/".as_slice(), &target].concat();
            let mut scratch = Vec::new();
            if let Ok(path) = canonical(&target, &mut scratch) {
                prop_assert_eq!(path[0], b'/');
                prop_assert!(!path.contains(&0));
                let segments: Vec<&[u8]> = path[1..].split(|b| *b == b'/').collect();
                let inner = &segments[..segments.len() - 1];
                prop_assert!(segments.iter().all(|s| *s != b".." && *s != b"."));
                prop_assert!(inner.iter().all(|s| !s.is_empty()));
                // Canonical once decoded: canonicalising again (without a `%`, `?` or `#` in it) changes nothing.
                if !path.iter().any(|b| matches!(b, b'%' | b'?' | b'#')) {
                    let mut again = Vec::new();
                    prop_assert_eq!(canonical(path, &mut again), Ok(path));
                }
            }
        }
    }
}
