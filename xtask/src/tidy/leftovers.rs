//! What must not be left lying about: unfinished code, tests switched off without a reason, marks
//! without an explanation, and paths of one person's machine.

use proc_macro2::{Delimiter, TokenTree};

use super::source::{SourceFile, as_group, for_each_token, inside, is_ident, is_punct, line_of};
use crate::Finding;

/// Words that say "mend this", and nothing else. In two halves, as this file is checked too.
const MARKS: [&str; 2] = [concat!("FIX", "ME"), concat!("X", "XX")];
/// A word that is fine with an explanation.
const LATER: &str = concat!("TO", "DO");
/// How paths start that exist on one machine only.
const LOCAL_PATHS: [&str; 3] = [
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("/tmp/", "target"),
];

/// Macros that stand for code which is not there, and tests that are switched off.
pub(super) fn check_source(file: &SourceFile<'_>, findings: &mut Vec<Finding>) {
    for_each_token(&file.tokens, &mut |token, rest| {
        check_unfinished(file, token, rest, findings);
        if is_punct(Some(token), '#')
            && let Some(attribute) = as_group(rest.first(), Delimiter::Bracket)
            && ignores_without_reason(&inside(attribute))
        {
            let mend = "say why: `#[ignore = \"…\"]`";
            let what = "a test ignored without a reason";
            findings.push(Finding::new(file.path, line_of(token), what, mend));
        }
    });
}

fn check_unfinished(
    file: &SourceFile<'_>,
    token: &TokenTree,
    rest: &[TokenTree],
    findings: &mut Vec<Finding>,
) {
    let TokenTree::Ident(name) = token else {
        return;
    };
    if (name == "todo" || name == "unimplemented") && is_punct(rest.first(), '!') {
        let what = format!("unfinished code: `{name}!`");
        findings.push(Finding::new(
            file.path,
            line_of(token),
            what,
            "write it, or return an error",
        ));
    }
}

/// Whether an attribute switches a test off, by itself or under a condition, and says nothing.
fn ignores_without_reason(attribute: &[TokenTree]) -> bool {
    if is_ident(attribute.first(), "cfg_attr") {
        let arguments = as_group(attribute.get(1), Delimiter::Parenthesis).map(inside);
        let arguments = arguments.unwrap_or_default();
        return arguments
            .split(|token| is_punct(Some(token), ','))
            .skip(1)
            .any(ignores_without_reason);
    }
    let reason = match attribute {
        [_, equals, TokenTree::Literal(reason), ..] if is_punct(Some(equals), '=') => {
            reason.to_string()
        }
        _ => String::new(),
    };
    is_ident(attribute.first(), "ignore") && reason.trim_matches('"').trim().is_empty()
}

/// Whether marks are looked for in this file: code and configuration, not prose.
pub(super) fn is_code(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    matches!(
        extension,
        "rs" | "toml" | "sh" | "yml" | "yaml" | "c" | "h" | "py" | "mk"
    ) || matches!(name, "Makefile" | "run")
}

/// Words that stand for work not done.
pub(super) fn check_marks(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        for mark in MARKS {
            if find_word(line, mark).is_some() {
                let what = format!("a `{mark}`");
                findings.push(Finding::new(path, index + 1, what, "mend it now"));
            }
        }
        if let Some(at) = find_word(line, LATER)
            && !is_explained(&line[at + LATER.len()..])
        {
            let what = format!("a `{LATER}` without an explanation");
            let mend = format!("write `{LATER}: what, and why not yet`, or do it");
            findings.push(Finding::new(path, index + 1, what, mend));
        }
    }
}

/// Whether what follows the word is a colon, perhaps behind a name in brackets, and a few words.
fn is_explained(behind: &str) -> bool {
    let behind = match behind.strip_prefix('(').and_then(|b| b.split_once(')')) {
        Some((_, behind)) => behind,
        None => behind,
    };
    behind
        .strip_prefix(':')
        .is_some_and(|why| why.split_whitespace().count() >= 3)
}

/// Where `word` stands in `line` and is not a part of a longer word.
fn find_word(line: &str, word: &str) -> Option<usize> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .map(|(at, _)| at)
        .find(|at| !line[..*at].ends_with(in_word) && !line[at + word.len()..].starts_with(in_word))
}

/// Paths that exist on one machine only, in any text.
pub(super) fn check_paths(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        for local in LOCAL_PATHS {
            // Not as the tail of another path.
            let in_path = |c: char| c.is_alphanumeric() || "_-./~}".contains(c);
            if line
                .match_indices(local)
                .any(|(at, _)| !line[..at].ends_with(in_path))
            {
                let what = format!("a path of one machine, `{local}`");
                let mend = "use a relative path or a temporary directory";
                findings.push(Finding::new(path, index + 1, what, mend));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::found;

    const FLAGS: &str = "crates/tcp/src/flags.rs";

    #[test]
    fn unfinished_code() {
        assert_eq!(
            found(FLAGS, "fn f() {\n    todo!()\n}\n"),
            ["2: unfinished code: `todo!`"]
        );
        let found_in_test = found(
            "crates/tcp/tests/a.rs",
            "fn f() { unimplemented!(\"later\") }\n",
        );
        assert_eq!(found_in_test, ["1: unfinished code: `unimplemented!`"]);
        let named_so = "fn todo() {}\nfn f(todo: bool) -> bool { !todo }\n// todo!()\n";
        assert_eq!(found(FLAGS, named_so), [""; 0]);
    }

    #[test]
    fn tests_ignored_without_a_reason() {
        let ignored = ["1: a test ignored without a reason"];
        for attribute in [
            "ignore",
            "ignore = \"\"",
            "ignore = \" \"",
            "cfg_attr(miri, ignore)",
        ] {
            let text = format!("#[{attribute}]\nfn f() {{}}\n");
            assert_eq!(found(FLAGS, &text), ignored, "{attribute}");
        }
        assert_eq!(
            found(FLAGS, "m! { #[ignore] fn f() {} }\n"),
            ignored,
            "in a macro call"
        );
        for attribute in [
            "ignore = \"needs root\"",
            "cfg_attr(miri, ignore = \"slow\")",
            "serde(ignore)",
        ] {
            let text = format!("#[{attribute}]\nfn f() {{}}\n");
            assert_eq!(found(FLAGS, &text), [""; 0], "{attribute}");
        }
    }

    #[test]
    fn marks() {
        for mark in MARKS {
            let expected = [format!("2: a `{mark}`")];
            for path in [FLAGS, ".ci/run", "Makefile", "deny.toml"] {
                let text = format!("\n# {mark}: this is wrong\n");
                let mut findings = Vec::new();
                check_marks(path, &text, &mut findings);
                assert!(is_code(path));
                let found: Vec<_> = findings
                    .iter()
                    .map(|f| format!("{}: {}", f.line, f.what))
                    .collect();
                assert_eq!(found, expected, "{path}");
            }
            let longer = format!("const {mark}X: &str = \"{mark}{mark}\";\n");
            assert_eq!(found(FLAGS, &longer), [""; 0]);
        }
        assert!(!is_code("CONTRIBUTING.md"));
    }

    #[test]
    fn work_put_off_wants_an_explanation() {
        for behind in [
            "",
            ":",
            ": later",
            " think about this more",
            "(me)",
            "(me): later",
        ] {
            let expected = [format!("1: a `{LATER}` without an explanation")];
            assert_eq!(
                found(FLAGS, &format!("// {LATER}{behind}\n")),
                expected,
                "{behind:?}"
            );
        }
        for behind in [
            ": RFC 8985, once timers allow it",
            "(me): after the next release",
        ] {
            assert_eq!(
                found(FLAGS, &format!("// {LATER}{behind}\n")),
                [""; 0],
                "{behind:?}"
            );
        }
    }

    #[test]
    fn paths_of_one_machine() {
        for local in LOCAL_PATHS {
            let expected = [format!("2: a path of one machine, `{local}`")];
            for path in [
                "README.md",
                "Makefile",
                "fuzz/corpus/a/b",
                "crates/abi/notes.txt",
            ] {
                let text = format!("\nsee {local}shared\n");
                assert_eq!(found(path, &text), expected, "{path}");
            }
            let quoted = format!("\nconst A: &str = \"{local}a\";\n");
            assert_eq!(found(FLAGS, &quoted), expected);
        }
    }

    #[test]
    fn tails_of_other_paths_are_no_paths_of_one_machine() {
        let (work, root) = (LOCAL_PATHS[0], LOCAL_PATHS[1]);
        let text = format!("frame{work}x https://example.org{root}x ${{DIR}}{work}x ..{root}x\n");
        assert_eq!(found("README.md", &text), [""; 0]);
    }
}
