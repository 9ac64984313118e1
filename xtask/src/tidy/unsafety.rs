//! Where `unsafe` may stand, and what must stand beside it.

use proc_macro2::{Delimiter, TokenTree};

use super::source::{SourceFile, as_group, for_each_token, inside, is_ident, is_punct, line_of};
use crate::Finding;

/// The crates whose business it is to be unsafe inside and safe outside.
const UNSAFE_CRATES: [&str; 3] = ["sys", "shm", "preload"];
/// Crates that may have unsafe files of their own, and which: one for a driver, some for a C boundary.
const UNSAFE_FILES: [(&str, &[&str]); 4] = [
    ("nic", &["/sys.rs"]),
    ("packetdrill", &["/sys.rs"]),
    (
        "capi",
        &[
            "/src/boundary.rs",
            "/src/signal.rs",
            "/src/table.rs",
            "/src/calls/dti.rs",
            "/src/calls/evq.rs",
            "/src/calls/memory.rs",
            "/src/calls/transfer.rs",
            "/src/calls/ual.rs",
        ],
    ),
    (
        "exs",
        &[
            "/src/boundary.rs",
            "/src/direct.rs",
            "/src/process.rs",
            "/src/sys.rs",
            "/src/calls/connection.rs",
            "/src/calls/control.rs",
            "/src/calls/queue.rs",
            "/src/calls/transfer.rs",
        ],
    ),
];

/// Crate attributes, places and comments.
pub(super) fn check(file: &SourceFile<'_>, findings: &mut Vec<Finding>) {
    check_crate_attribute(file, findings);
    let allowed = may_be_unsafe(file);
    for_each_token(&file.tokens, &mut |token, rest| {
        if !is_ident(Some(token), "unsafe") {
            return;
        }
        let line = line_of(token);
        if !allowed {
            let mend = "move it behind a safe function of `sys` or `shm`";
            findings.push(Finding::new(
                file.path,
                line,
                "`unsafe` outside its crates",
                mend,
            ));
        }
        if let Some((kind, mend)) = explanation_due(rest)
            && !is_explained(file, line)
        {
            let what = format!("{kind} without a SAFETY comment");
            findings.push(Finding::new(file.path, line, what, mend));
        }
    });
}

fn may_be_unsafe(file: &SourceFile<'_>) -> bool {
    let package = file.package();
    let may = |file_end: &&str| file.path.ends_with(*file_end);
    let files = unsafe_files(package);
    files.is_some_and(|files| files.iter().any(may)) || UNSAFE_CRATES.contains(&package)
}

/// The unsafe files of a crate that has such.
fn unsafe_files(package: &str) -> Option<&'static [&'static str]> {
    let found = UNSAFE_FILES.iter().find(|(name, _)| *name == package);
    found.map(|(_, files)| *files)
}

/// A crate without unsafe code forbids it; one with unsafe files denies it, so that they can allow it.
fn check_crate_attribute(file: &SourceFile<'_>, findings: &mut Vec<Finding>) {
    let package = file.package();
    if UNSAFE_CRATES.contains(&package) || !is_crate_root(file.path) {
        return;
    }
    let levels: &[&str] = if unsafe_files(package).is_some() {
        &["forbid", "deny"]
    } else {
        &["forbid"]
    };
    let mut present = false;
    for (at, token) in file.tokens.iter().enumerate() {
        if is_punct(Some(token), '#')
            && is_punct(file.tokens.get(at + 1), '!')
            && let Some(attribute) = as_group(file.tokens.get(at + 2), Delimiter::Bracket)
        {
            present |= is_unsafe_code_lint(&inside(attribute), levels);
        }
    }
    if !present {
        let attribute = format!("`#![{}(unsafe_code)]`", levels[levels.len() - 1]);
        let mend = "put it below the crate's docs";
        findings.push(Finding::new(file.path, 1, format!("no {attribute}"), mend));
    }
}

fn is_unsafe_code_lint(attribute: &[TokenTree], levels: &[&str]) -> bool {
    let level = levels
        .iter()
        .any(|level| is_ident(attribute.first(), level));
    let lints = as_group(attribute.get(1), Delimiter::Parenthesis).map(inside);
    level && lints.is_some_and(|lints| lints.iter().any(|l| is_ident(Some(l), "unsafe_code")))
}

/// Libraries, programs and further programs of a package.
fn is_crate_root(path: &str) -> bool {
    let inside_package = match path.split_once('/') {
        Some(("crates", rest)) => rest.split_once('/').map_or("", |(_, inside)| inside),
        Some(("xtask", inside)) => inside,
        _ => "",
    };
    match inside_package.strip_prefix("src/") {
        Some("lib.rs" | "main.rs") => true,
        Some(path) => path.strip_prefix("bin/").is_some_and(|program| {
            program.ends_with("/main.rs") || (!program.contains('/') && program.ends_with(".rs"))
        }),
        None => false,
    }
}

/// What the tokens behind an `unsafe` make of it, and how to mend a lack of explanation; none where
/// there is nothing to explain (types, attributes).
fn explanation_due(rest: &[TokenTree]) -> Option<(&'static str, &'static str)> {
    const WHY: &str = "say above it in `// SAFETY:` which invariant makes it sound";
    const CONTRACT: &str = "say in its docs under `# Safety` what the caller must see to";
    // Behind the qualifiers of a function and the name of an ABI.
    let is_qualifier = |token: &&TokenTree| match token {
        TokenTree::Ident(word) => word == "extern" || word == "async",
        token => matches!(token, TokenTree::Literal(_)),
    };
    let qualifiers = rest.iter().take_while(is_qualifier).count();
    let rest = &rest[qualifiers..];
    match rest {
        [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Brace => {
            Some(("unsafe block", WHY))
        }
        [word, TokenTree::Ident(_), ..] if is_ident(Some(word), "fn") => {
            Some(("unsafe function", CONTRACT))
        }
        [word, ..] if is_ident(Some(word), "impl") => Some(("unsafe impl", WHY)),
        [word, ..] if is_ident(Some(word), "trait") => Some(("unsafe trait", CONTRACT)),
        _ => None,
    }
}

/// Whether a SAFETY comment is above, beside or first inside what starts on this line.
fn is_explained(file: &SourceFile<'_>, line: usize) -> bool {
    let is_safety = |comment: &str| comment.contains("SAFETY:") || comment.contains("# Safety");
    let beside = |line: usize| {
        let comment = file
            .lines
            .get(line - 1)
            .and_then(|text| text.split_once("//"));
        comment.is_some_and(|(_, comment)| is_safety(comment))
    };
    let first_inside = file
        .lines
        .get(line)
        .is_some_and(|text| text.trim().starts_with("//"));
    beside(line) || (first_inside && beside(line + 1)) || file.comment_above(line, is_safety)
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::found;

    const SYS: &str = "crates/sys/src/futex.rs";

    #[test]
    fn unsafe_outside_its_crates() {
        let explained = "fn f() {\n    // SAFETY: it is.\n    unsafe { g() }\n}\n";
        let outside = ["3: `unsafe` outside its crates"];
        for path in [
            "crates/tcp/src/flags.rs",
            "crates/nic/src/tap/mod.rs",
            "crates/nic/src/tap/notsys.rs",
            "crates/engine/src/sys.rs",
            "crates/capi/src/door.rs",
            "crates/capi/src/calls/other.rs",
            "crates/engine/tests/all.rs",
            "fuzz/fuzz_targets/tcp.rs",
            "xtask/src/tidy.rs",
        ] {
            assert_eq!(found(path, explained), outside, "{path}");
        }
        for path in [
            SYS,
            "crates/shm/src/lane.rs",
            "crates/capi/src/boundary.rs",
            "crates/capi/src/calls/evq.rs",
            "crates/preload/src/hooks.rs",
            "crates/nic/src/af_xdp/sys.rs",
            "crates/packetdrill/src/sys.rs",
        ] {
            assert_eq!(found(path, explained), [""; 0], "{path}");
        }
    }

    #[test]
    fn unsafe_in_a_macro_call_counts() {
        let found = found(
            "crates/tcp/src/flags.rs",
            "m! {\n    // SAFETY: x\n    unsafe {}\n}\n",
        );
        assert_eq!(found, ["3: `unsafe` outside its crates"]);
    }

    #[test]
    fn unsafe_in_text_does_not_count() {
        let text = "/// unsafe { }\nconst A: &str = \"unsafe { }\"; // unsafe {}\n";
        assert_eq!(found("crates/tcp/src/flags.rs", text), [""; 0]);
    }

    #[test]
    fn blocks_impls_functions_and_traits_want_an_explanation() {
        let cases = [
            (
                "fn f() {\n    let a = unsafe { g() };\n}\n",
                "2: unsafe block",
            ),
            ("\nunsafe impl Send for A {}\n", "2: unsafe impl"),
            ("/// Docs.\nunsafe fn f() {}\n", "2: unsafe function"),
            (
                "\npub unsafe extern \"C\" fn f() {}\n",
                "2: unsafe function",
            ),
            (
                "\nunsafe extern \"C\" {\n    fn f();\n}\n",
                "2: unsafe block",
            ),
            ("/// Docs.\nunsafe trait A {}\n", "2: unsafe trait"),
        ];
        for (text, what) in cases {
            assert_eq!(
                found(SYS, text),
                [format!("{what} without a SAFETY comment")],
                "{text}"
            );
        }
    }

    #[test]
    fn explanations_are_found() {
        for text in [
            "fn f() {\n    // SAFETY: it is.\n    // Two lines.\n    let a = unsafe { g() };\n}\n",
            "fn f() {\n    // SAFETY: it is.\n    let a = h(\n        1,\n        unsafe { g() },\n    );\n}\n",
            "fn f() {\n    unsafe { g() } // SAFETY: it is.\n}\n",
            "fn f() {\n    unsafe {\n        // SAFETY: it is.\n        g()\n    }\n}\n",
            "// SAFETY: it is.\n#[allow(dead_code)]\nunsafe impl Send for A {}\n",
            "/// Docs.\n///\n/// # Safety\n///\n/// Beware.\n#[inline]\npub unsafe fn f() {}\n",
        ] {
            assert_eq!(found(SYS, text), [""; 0], "{text}");
        }
    }

    #[test]
    fn an_explanation_of_something_else_does_not_count() {
        for text in [
            "fn f() {\n    // SAFETY: it is.\n    unsafe { g() };\n    unsafe { g() };\n}\n",
            "fn f() {\n    // SAFETY: it is.\n\n\n    unsafe { g() };\n}\n",
            "// SAFETY: it is.\nfn f() {\n    \n    \n    unsafe { g() };\n}\n",
        ] {
            let found = found(SYS, text);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].ends_with("unsafe block without a SAFETY comment"));
        }
    }

    #[test]
    fn types_and_attributes_want_no_explanation() {
        let text = "type F = unsafe extern \"C\" fn(u8);\n#[unsafe(no_mangle)]\nfn f() {}\n";
        assert_eq!(found(SYS, text), [""; 0]);
    }

    #[test]
    fn roots_forbid_unsafe_code() {
        let missing = ["1: no `#![forbid(unsafe_code)]`"];
        for path in [
            "crates/tcp/src/lib.rs",
            "crates/cli/src/main.rs",
            "crates/lab/src/bin/plot.rs",
            "crates/lab/src/bin/plot/main.rs",
            "xtask/src/main.rs",
        ] {
            assert_eq!(found(path, "//! Docs.\n"), missing, "{path}");
            assert_eq!(found(path, "#![deny(unsafe_code)]\n"), missing, "{path}");
            assert_eq!(
                found(path, "//! Docs.\n#![forbid(unsafe_code)]\n"),
                [""; 0],
                "{path}"
            );
        }
        for path in [
            "crates/tcp/src/flags.rs",
            "crates/sys/src/lib.rs",
            "crates/tcp/tests/a.rs",
        ] {
            assert_eq!(found(path, "//! Docs.\n"), [""; 0], "{path}");
        }
    }

    #[test]
    fn the_crate_of_drivers_may_deny_instead() {
        let root = "crates/nic/src/lib.rs";
        assert_eq!(
            found(root, "//! Docs.\n"),
            ["1: no `#![deny(unsafe_code)]`"]
        );
        assert_eq!(found(root, "#![deny(unsafe_code)]\n"), [""; 0]);
        assert_eq!(found(root, "#![forbid(unsafe_code)]\n"), [""; 0]);
    }
}
