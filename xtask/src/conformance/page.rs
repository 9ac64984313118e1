//! The tables of a page: which requirement, what is done about it, and what shows it.

/// One row of a table whose head begins with `label`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// From 1.
    pub(crate) line: usize,
    /// The labels of RFC 9293 (`MUST-1`), or whatever another page calls its rows.
    pub(crate) label: String,
    pub(crate) status: Status,
    /// The last column: names of tests and scripts.
    pub(crate) shown_by: Vec<String>,
    /// The last column without them.
    pub(crate) reason: String,
}

/// What we do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Yes,
    Partly,
    No,
    DoesNotApply,
}

impl Status {
    fn parse(cell: &str) -> Option<Self> {
        Some(match cell {
            "yes" => Self::Yes,
            "partly" => Self::Partly,
            "no" => Self::No,
            "does not apply" => Self::DoesNotApply,
            _ => return None,
        })
    }
}

/// What is wrong with a line.
pub(crate) type Fault = (usize, String);

/// The head of every table: what a row must tell.
const HEAD: [&str; 5] = [
    "label",
    "section",
    "requirement",
    "here",
    "shown by, or why not",
];

/// The rows of a page, and its lines that are none though they should be.
pub(crate) fn rows(text: &str) -> (Vec<Row>, Vec<Fault>) {
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    let mut in_table = false;
    for (number, line) in text.lines().enumerate() {
        let line_number = number + 1;
        let Some(cells) = cells(line) else {
            in_table = false;
            continue;
        };
        if !in_table {
            // Tables of other heads are text.
            in_table = cells == HEAD;
            continue;
        }
        if cells.iter().all(|cell| cell.chars().all(|c| c == '-')) {
            continue;
        }
        match row(line_number, &cells) {
            Ok(row) => rows.push(row),
            Err(fault) => faults.push((line_number, fault)),
        }
    }
    (rows, faults)
}

/// The cells of a line of a table. A `|` within code is written `\|`.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for c in inner.chars() {
        if c == '|' && !escaped {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            cell.push(c);
        }
        escaped = c == '\\';
    }
    Some(cells.iter().map(|cell| cell.trim().to_owned()).collect())
}

fn row(line: usize, cells: &[String]) -> Result<Row, String> {
    let [label, section, requirement, here, last] = cells else {
        return Err(format!("{} cells, not {}", cells.len(), HEAD.len()));
    };
    for (cell, name) in [(label, HEAD[0]), (section, HEAD[1]), (requirement, HEAD[2])] {
        if cell.is_empty() {
            return Err(format!("no {name}"));
        }
    }
    let status = Status::parse(here)
        .ok_or_else(|| format!("`{here}` is none of: yes, partly, no, does not apply"))?;
    let (shown_by, reason) = split(last)?;
    Ok(Row {
        line,
        label: label.clone(),
        status,
        shown_by,
        reason,
    })
}

/// Tells names (in backticks, of tests or scripts) from prose; other code is prose.
fn split(cell: &str) -> Result<(Vec<String>, String), String> {
    let mut names = Vec::new();
    let mut reason = String::new();
    let pieces: Vec<&str> = cell.split('`').collect();
    if pieces.len().is_multiple_of(2) {
        return Err("a backtick without its fellow".to_owned());
    }
    for (number, piece) in pieces.iter().enumerate() {
        if number % 2 == 1 && is_name(piece) {
            names.push((*piece).to_owned());
        } else {
            reason.push_str(piece);
        }
    }
    let reason = reason.trim_matches(|c: char| c.is_whitespace() || ",;.".contains(c));
    Ok((names, reason.to_owned()))
}

/// `sidecore-tcp::handshake active_open`, or `crates/stack/tests/scripts/close/simultaneous.pkt`.
fn is_name(code: &str) -> bool {
    is_script(code) || (code.starts_with("sidecore-") && code.split(' ').count() == 2)
}

/// Whether this names a script rather than a test.
pub(crate) fn is_script(name: &str) -> bool {
    name.starts_with("crates/") && name.ends_with(".pkt")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# A page

| label | section | requirement | here | shown by, or why not |
|---|---|---|---|---|
| MUST-1 | 3.1 | a \\| b | yes | `sidecore-tcp::handshake active_open`, `crates/stack/tests/scripts/close/a.pkt` |
| MUST-2 | 3.1 | c | no | being built; see `docs/stack.md` |

| other | table |
|---|---|
| MUST-3 | x |
";

    #[test]
    fn rows_are_read() {
        let (rows, faults) = rows(TABLE);
        assert_eq!(faults, []);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].line, rows[0].status), (5, Status::Yes));
        assert_eq!(
            rows[0].shown_by,
            [
                "sidecore-tcp::handshake active_open",
                "crates/stack/tests/scripts/close/a.pkt"
            ]
        );
        assert_eq!(rows[0].reason, "");
        assert_eq!(
            (rows[1].label.as_str(), rows[1].status),
            ("MUST-2", Status::No)
        );
        assert!(rows[1].shown_by.is_empty());
        assert_eq!(rows[1].reason, "being built; see docs/stack.md");
    }

    #[test]
    fn what_is_no_row_is_told() {
        let head = "| label | section | requirement | here | shown by, or why not |\n|---|---|---|---|---|\n";
        for (row, told) in [
            ("| MUST-1 | 3.1 | a | yes |", "4 cells, not 5"),
            (
                "| MUST-1 | 3.1 | a | maybe | so |",
                "`maybe` is none of: yes, partly, no, does not apply",
            ),
            ("| MUST-1 | | a | yes | so |", "no section"),
            ("| MUST-1 | 3.1 | | yes | so |", "no requirement"),
            ("| | 3.1 | a | yes | so |", "no label"),
            (
                "| MUST-1 | 3.1 | a | yes | `so |",
                "a backtick without its fellow",
            ),
        ] {
            let (rows, faults) = rows(&format!("{head}{row}\n"));
            assert_eq!(rows, [], "{row}");
            assert_eq!(faults, [(3, told.to_owned())], "{row}");
        }
    }
}
