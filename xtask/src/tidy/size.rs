//! How long files and functions may be.

use proc_macro2::{Delimiter, TokenTree};

use super::source::{
    SourceFile, as_group, for_each_token, is_ident, is_punct, last_line_of, line_of,
};
use crate::Finding;

/// Lines of a file without its tests.
const FILE_LINES: usize = 600;
/// Lines of a file of tests.
const TEST_FILE_LINES: usize = 1500;
/// Lines of a function, from `fn` to the closing brace.
const FUNCTION_LINES: usize = 60;

/// A comment that starts so, goes on with a reason, and stands above a function lets it be long.
const EXCUSE: &str = "// tidy: long function because ";

/// Files and functions.
pub(super) fn check(file: &SourceFile<'_>, findings: &mut Vec<Finding>) {
    check_file_length(file, findings);
    for_each_token(&file.tokens, &mut |token, rest| {
        if let Some(function) = Function::starting_at(token, rest) {
            check_function(file, &function, findings);
        }
    });
}

fn check_file_length(file: &SourceFile<'_>, findings: &mut Vec<Finding>) {
    let all = file.lines.len();
    let (lines, limit, mend) = if file.is_test_file() {
        (all, TEST_FILE_LINES, "split the tests by subject")
    } else {
        (
            all - file.test_line_count(),
            FILE_LINES,
            "split the file by meaning",
        )
    };
    if lines > limit {
        let what = format!("a file of {lines} lines, above {limit}");
        findings.push(Finding::new(file.path, limit + 1, what, mend));
    }
}

/// Where a function with a body lies.
struct Function {
    name: String,
    first_line: usize,
    last_line: usize,
}

impl Function {
    /// The function whose `fn` this token is; none for types, declarations and names made by macros.
    fn starting_at(token: &TokenTree, rest: &[TokenTree]) -> Option<Self> {
        if !is_ident(Some(token), "fn") {
            return None;
        }
        let Some(TokenTree::Ident(name)) = rest.first() else {
            return None;
        };
        let is_end = |token: &&TokenTree| {
            is_punct(Some(token), ';') || as_group(Some(token), Delimiter::Brace).is_some()
        };
        let body = rest
            .iter()
            .find(is_end)
            .filter(|end| !is_punct(Some(end), ';'))?;
        let (first_line, last_line) = (line_of(token), last_line_of(body));
        Some(Self {
            name: name.to_string(),
            first_line,
            last_line,
        })
    }
}

fn check_function(file: &SourceFile<'_>, function: &Function, findings: &mut Vec<Finding>) {
    let lines = function.last_line - function.first_line + 1;
    let excuse = |comment: &str| {
        let reason = comment.strip_prefix(EXCUSE);
        reason.is_some_and(|reason| reason.split_whitespace().count() >= 3)
    };
    if lines <= FUNCTION_LINES
        || file.is_test_line(function.first_line)
        || file.comment_above(function.first_line, excuse)
    {
        return;
    }
    let what = format!(
        "function `{}` of {lines} lines, above {FUNCTION_LINES}",
        function.name
    );
    let mend = "split it into named steps, or put `// tidy: long function because …` above it";
    findings.push(Finding::new(file.path, function.first_line, what, mend));
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::found;

    const FLAGS: &str = "crates/tcp/src/flags.rs";

    /// A function of that many lines.
    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    call();\n".repeat(lines - 2))
    }

    fn constants(lines: usize) -> String {
        "const A: u8 = 0;\n".repeat(lines)
    }

    #[test]
    fn a_long_file() {
        assert_eq!(found(FLAGS, &constants(600)), [""; 0]);
        assert_eq!(
            found(FLAGS, &constants(601)),
            ["601: a file of 601 lines, above 600"]
        );
    }

    #[test]
    fn tests_do_not_count_into_a_file() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", constants(900));
        assert_eq!(found(FLAGS, &(constants(600) + &tests)), [""; 0]);
        let after = constants(300) + &tests + &constants(301);
        assert_eq!(
            found(FLAGS, &after),
            ["601: a file of 601 lines, above 600"]
        );
    }

    #[test]
    fn a_long_test_file() {
        for path in [
            "crates/tcp/src/receive/tests.rs",
            "crates/tcp/tests/pair.rs",
        ] {
            assert_eq!(found(path, &constants(1500)), [""; 0]);
            let found = found(path, &constants(1501));
            assert_eq!(found, ["1501: a file of 1501 lines, above 1500"]);
        }
    }

    #[test]
    fn a_long_function() {
        assert_eq!(found(FLAGS, &function(60)), [""; 0]);
        let long = ["1: function `long` of 61 lines, above 60"];
        assert_eq!(found(FLAGS, &function(61)), long);
        let method = format!("impl A {{\n{}}}\n", function(70));
        assert_eq!(
            found(FLAGS, &method),
            ["2: function `long` of 70 lines, above 60"]
        );
        let in_macro = format!("m! {{\n{}}}\n", function(70));
        assert_eq!(
            found(FLAGS, &in_macro),
            ["2: function `long` of 70 lines, above 60"]
        );
    }

    #[test]
    fn attributes_and_docs_do_not_count_into_a_function() {
        let documented = "/// Docs.\n".repeat(20) + "#[inline]\n" + &function(60);
        assert_eq!(found(FLAGS, &documented), [""; 0]);
    }

    #[test]
    fn a_long_test_is_allowed() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(100));
        assert_eq!(found(FLAGS, &tests), [""; 0]);
        assert_eq!(found("crates/tcp/tests/pair.rs", &function(100)), [""; 0]);
    }

    #[test]
    fn a_long_function_may_have_a_reason() {
        let excuse = "// tidy: long function because it is a table of the RFC's states\n";
        let excused = format!("/// Docs.\n{excuse}#[inline]\npub {}", function(61));
        assert_eq!(found(FLAGS, &excused), [""; 0]);
        let without_reason = format!("// tidy: long function because\n{}", function(61));
        assert_eq!(
            found(FLAGS, &without_reason),
            ["2: function `long` of 61 lines, above 60"]
        );
        let of_another = format!("{excuse}fn short() {{}}\n\n{}", function(61));
        assert_eq!(
            found(FLAGS, &of_another),
            ["4: function `long` of 61 lines, above 60"]
        );
    }

    #[test]
    fn declarations_and_types_are_not_functions() {
        let text = format!("trait A {{ fn a(); }}\ntype B = fn();\n{}", constants(100));
        assert_eq!(found(FLAGS, &text), [""; 0]);
    }
}
