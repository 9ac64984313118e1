//! A Rust file as the checks see it: its lines, its tokens, and which lines are tests.
//!
//! Tokens, not a syntax tree: what is inside a macro call counts like anything else.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// One Rust file.
pub(super) struct SourceFile<'a> {
    /// From the root of the tree, with `/` between the parts.
    pub(super) path: &'a str,
    /// Without line ends. Line `n` of a message is `lines[n - 1]`.
    pub(super) lines: Vec<&'a str>,
    /// The tokens of the file; comments and white space are not among them.
    pub(super) tokens: Vec<TokenTree>,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl<'a> SourceFile<'a> {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The line that is no Rust token or where brackets do not match.
    pub(super) fn new(path: &'a str, text: &'a str) -> Result<Self, usize> {
        let stream: TokenStream = text
            .parse()
            .map_err(|e: proc_macro2::LexError| e.span().start().line.max(1))?;
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut test_lines = Vec::new();
        collect_test_lines(&tokens, &mut test_lines);
        Ok(Self {
            path,
            lines: text.lines().collect(),
            tokens,
            test_lines,
        })
    }

    /// The folder in `crates/`, `xtask` or `fuzz`: whose rules this file is under.
    pub(super) fn package(&self) -> &'a str {
        package(self.path)
    }

    /// Whether the whole file is a test.
    pub(super) fn is_test_file(&self) -> bool {
        let mut parts = self.path.split('/');
        let name = parts.next_back();
        name == Some("tests.rs") || parts.any(|folder| folder == "tests")
    }

    /// Whether this line (from 1) is compiled for tests only.
    pub(super) fn is_test_line(&self, line: usize) -> bool {
        self.is_test_file() || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// How many lines are compiled for tests only.
    pub(super) fn test_line_count(&self) -> usize {
        (1..=self.lines.len())
            .filter(|line| self.is_test_line(*line))
            .count()
    }

    /// Whether the lines right above `line` (from 1) hold a comment that `wanted` accepts. Comments,
    /// attributes and the first lines of the same statement are looked through; a blank line, or the
    /// end of another statement, ends the search.
    pub(super) fn comment_above(&self, line: usize, wanted: impl Fn(&str) -> bool) -> bool {
        /// Lines of code between a comment and what it is about.
        const STATEMENT_LINES: usize = 8;
        let mut code_lines = 0;
        for text in self.lines[..line - 1].iter().rev().map(|text| text.trim()) {
            if text.starts_with("//") {
                if wanted(text) {
                    return true;
                }
            } else if !text.starts_with("#[") {
                code_lines += 1;
                let ends = text.is_empty() || text.ends_with([';', '{', '}']);
                if ends || code_lines > STATEMENT_LINES {
                    return false;
                }
            }
        }
        false
    }
}

/// The folder in `crates/` that `path` lies in, or its first folder.
pub(super) fn package(path: &str) -> &str {
    let mut parts = path.split('/');
    match parts.next() {
        Some("crates") => parts.next().unwrap_or_default(),
        first => first.unwrap_or_default(),
    }
}

/// Calls `visit` with each token and those that follow it in the same group, groups before what is
/// in them.
pub(super) fn for_each_token(
    tokens: &[TokenTree],
    visit: &mut impl FnMut(&TokenTree, &[TokenTree]),
) {
    for (at, token) in tokens.iter().enumerate() {
        visit(token, &tokens[at + 1..]);
        if let TokenTree::Group(group) = token {
            for_each_token(&inside(group), visit);
        }
    }
}

/// The tokens between the brackets of a group.
pub(super) fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

/// Whether the token is this identifier or keyword.
pub(super) fn is_ident(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == name)
}

/// Whether the token is this character.
pub(super) fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

/// The group, if the token is one with these brackets.
pub(super) fn as_group(token: Option<&TokenTree>, brackets: Delimiter) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == brackets => Some(group),
        _ => None,
    }
}

/// The line on which a token starts, from 1.
pub(super) fn line_of(token: &TokenTree) -> usize {
    token.span().start().line
}

/// The line on which a token ends, from 1.
pub(super) fn last_line_of(token: &TokenTree) -> usize {
    token.span().end().line
}

/// Finds what stands under `#[cfg(test)]`: an item from its attribute to its body or semicolon.
fn collect_test_lines(tokens: &[TokenTree], found: &mut Vec<RangeInclusive<usize>>) {
    let mut at = 0;
    while at < tokens.len() {
        if let Some(attribute) = attribute(&tokens[at..])
            && is_cfg_test(attribute)
        {
            let end = item_end(tokens, at);
            found.push(line_of(&tokens[at])..=last_line_of(&tokens[end]));
            at = end + 1;
            continue;
        }
        if let TokenTree::Group(group) = &tokens[at] {
            collect_test_lines(&inside(group), found);
        }
        at += 1;
    }
}

/// The brackets of the outer attribute that `tokens` start with.
fn attribute(tokens: &[TokenTree]) -> Option<&Group> {
    if !is_punct(tokens.first(), '#') {
        return None;
    }
    as_group(tokens.get(1), Delimiter::Bracket)
}

/// Whether an attribute is a `cfg` that holds in tests only.
fn is_cfg_test(attribute: &Group) -> bool {
    let tokens = inside(attribute);
    let condition = as_group(tokens.get(1), Delimiter::Parenthesis);
    is_ident(tokens.first(), "cfg") && condition.is_some_and(|group| implies_test(&inside(group)))
}

/// Whether one of the conditions of an `all` is `test`; a single condition is an `all` of one.
fn implies_test(conditions: &[TokenTree]) -> bool {
    conditions
        .split(|token| is_punct(Some(token), ','))
        .any(|condition| match condition {
            [only] => is_ident(Some(only), "test"),
            [all, TokenTree::Group(group)] => {
                is_ident(Some(all), "all") && implies_test(&inside(group))
            }
            _ => false,
        })
}

/// The index of the last token of the item whose first attribute starts at `start`.
fn item_end(tokens: &[TokenTree], start: usize) -> usize {
    let mut at = start;
    while attribute(&tokens[at.min(tokens.len())..]).is_some() {
        at += 2;
    }
    let is_end = |token: &TokenTree| {
        let semicolon = is_punct(Some(token), ';') || is_punct(Some(token), ',');
        semicolon || as_group(Some(token), Delimiter::Brace).is_some()
    };
    let length = tokens.iter().skip(at).position(is_end);
    length.map_or(tokens.len() - 1, |length| at + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_lines(text: &str) -> Vec<usize> {
        let file = SourceFile::new("crates/tcp/src/x.rs", text).unwrap();
        (1..=file.lines.len())
            .filter(|line| file.is_test_line(*line))
            .collect()
    }

    #[test]
    fn lines_under_cfg_test_are_tests() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(test_lines(text), [2, 3, 4, 5]);
        assert_eq!(test_lines("#[cfg(test)]\nmod tests;\nfn a() {}\n"), [1, 2]);
        let with_more = "#[cfg(test)]\n#[allow(dead_code)]\npub(crate) fn a() {\n}\nfn b() {}\n";
        assert_eq!(test_lines(with_more), [1, 2, 3, 4]);
        assert_eq!(
            test_lines("#[cfg(all(test, not(loom)))]\nmod a {}\n"),
            [1, 2]
        );
        assert_eq!(
            test_lines("impl A {\n    #[cfg(test)]\n    fn a() {}\n}\n"),
            [2, 3]
        );
        assert_eq!(
            test_lines("fn f() {}\n#[cfg(test)]"),
            [2],
            "an attribute of nothing"
        );
    }

    #[test]
    fn other_conditions_are_not_tests() {
        for condition in ["not(test)", "any(test, loom)", "loom", "feature = \"test\""] {
            assert_eq!(
                test_lines(&format!("#[cfg({condition})]\nmod a {{}}\n")),
                [0; 0]
            );
        }
    }

    #[test]
    fn test_files_are_known_by_their_names() {
        let is_test = |path| SourceFile::new(path, "").unwrap().is_test_file();
        assert!(is_test("crates/tcp/src/receive/tests.rs"));
        assert!(is_test("crates/tcp/tests/pair/main.rs"));
        assert!(!is_test("crates/tcp/src/contests.rs"));
        assert!(!is_test("crates/tcp/src/lib.rs"));
    }

    #[test]
    fn packages() {
        assert_eq!(package("crates/tcp/src/lib.rs"), "tcp");
        assert_eq!(package("xtask/src/main.rs"), "xtask");
        assert_eq!(package("README.md"), "README.md");
    }

    #[test]
    fn errors_tell_the_line() {
        assert_eq!(
            SourceFile::new("a.rs", "fn a() {}\n\"open\n").err(),
            Some(2)
        );
    }
}
