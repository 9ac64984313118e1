//! A C header as cbindgen writes it: its comments brought into shape, and what they say taken out again.

/// Longest line of a comment that stands on one line.
const SHORT: usize = 150;

/// Brings comments into the usual shape, and the section that Rust calls Safety under a name that means something in C.
pub(super) fn tidy(header: &str) -> String {
    let mut out = String::new();
    let mut lines = header.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() != "/*" {
            // cbindgen leaves more than one empty line where it leaves something out.
            if !(line.is_empty() && out.ends_with("\n\n")) {
                out.push_str(line);
                out.push('\n');
            }
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let block = lines.by_ref().take_while(|line| line.trim() != "*/");
        let text: Vec<&str> = block.map(str::trim).collect();
        out.push_str(&comment(indent, &text));
    }
    out
}

fn comment(indent: &str, text: &[&str]) -> String {
    if let [line] = text
        && indent.len() + line.len() + 6 <= SHORT
    {
        return format!("{indent}/* {line} */\n");
    }
    let mut out = format!("{indent}/*\n");
    for line in text {
        out.push_str(indent);
        match *line {
            "" => out.push_str(" *"),
            "# Safety" => out.push_str(" * Pointers:"),
            line => {
                out.push_str(" * ");
                out.push_str(line);
            }
        }
        out.push('\n');
    }
    out.push_str(indent);
    out.push_str(" */\n");
    out
}

/// How the names of an interface begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    /// Those of constants.
    pub(super) constant: &'static str,
    /// Those of calls and types.
    pub(super) call: &'static str,
}

/// What a header declares.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// Functions, in the header's order.
    pub(super) calls: Vec<Call>,
    /// Enumerations: name, description, and members (name, number, description).
    pub(super) enums: Vec<Enumeration>,
    /// Structures and unions, with their members (name and type, nothing, description).
    pub(super) structures: Vec<Enumeration>,
    /// Constants.
    pub(super) constants: Vec<Member>,
    /// What the header begins with, paragraph by paragraph.
    pub(super) preface: Vec<String>,
}

/// An enumeration.
#[derive(Debug)]
pub(super) struct Enumeration {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) members: Vec<Member>,
}

/// A constant, or a member of an enumeration.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) text: String,
}

/// A function.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    /// As it stands in the header, without the semicolon.
    pub(super) prototype: String,
    /// One sentence.
    pub(super) brief: String,
    /// Paragraphs.
    pub(super) description: Vec<String>,
    /// Names, and what they are for.
    pub(super) parameters: Vec<(String, String)>,
    sections: Vec<(String, String)>,
}

/// Paragraphs of a call's comment that have a title of their own.
const TITLES: [&str; 6] = [
    "Blocking", "Statuses", "Errors", "Paper", "Origin", "Pointers",
];

impl Call {
    /// A paragraph by its title.
    pub(super) fn section(&self, title: &str) -> Option<&str> {
        let found = self.sections.iter().find(|(name, _)| name == title);
        found.map(|(_, text)| text.as_str())
    }

    fn new(prototype: String, comment: &[String]) -> Result<Self, String> {
        let name = prototype.split('(').next().unwrap_or_default();
        let name = name.rsplit([' ', '*']).next().unwrap_or_default();
        let mut paragraphs = comment.split(String::is_empty);
        let brief = paragraphs.next().unwrap_or_default().join(" ");
        if brief.is_empty() {
            return Err(format!("{name} has no comment"));
        }
        let mut call = Self {
            name: name.to_string(),
            prototype,
            brief,
            description: Vec::new(),
            parameters: Vec::new(),
            sections: Vec::new(),
        };
        for paragraph in paragraphs {
            call.add(paragraph)?;
        }
        Ok(call)
    }

    fn add(&mut self, paragraph: &[String]) -> Result<(), String> {
        let text = paragraph.join(" ");
        if text.starts_with("Parameters:") {
            for line in &paragraph[1..] {
                let item = line
                    .strip_prefix("- `")
                    .and_then(|line| line.split_once("`: "));
                match (item, self.parameters.last_mut()) {
                    (Some((name, text)), _) => {
                        self.parameters.push((name.to_string(), text.to_string()));
                    }
                    (None, Some((_, text))) => {
                        text.push(' ');
                        text.push_str(line);
                    }
                    (None, None) => return Err(format!("{}: no parameter: {line}", self.name)),
                }
            }
            return Ok(());
        }
        let titled = text
            .split_once(": ")
            .filter(|(title, _)| TITLES.contains(title));
        match titled {
            Some((title, text)) => self.sections.push((title.to_string(), text.to_string())),
            None => self.description.push(text),
        }
        Ok(())
    }
}

impl Header {
    /// Takes a tidied header apart.
    pub(super) fn parse(text: &str, marks: Marks) -> Result<Self, String> {
        let mut header = Self::default();
        let mut lines = text.lines();
        let mut comment: Vec<String> = Vec::new();
        while let Some(line) = lines.next() {
            if let Some(start) = line.trim_start().strip_prefix("/*") {
                comment = read_comment(start, &mut lines);
                if header.preface.is_empty() {
                    let paragraphs = comment.split(String::is_empty).map(|p| p.join(" "));
                    header.preface = paragraphs.filter(|p| !p.is_empty()).collect();
                }
            } else if let Some(constant) = line
                .strip_prefix("#define ")
                .filter(|constant| constant.starts_with(marks.constant))
            {
                if let Some((name, value)) = constant.split_once(' ') {
                    header.constants.push(member(name, value, &comment));
                }
            } else if let Some(name) = line.strip_prefix("enum ") {
                header.enumeration(name.trim(), &comment, marks, &mut lines);
            } else if let Some(name) = structure(line) {
                let structure = read_structure(name, &comment, &mut lines);
                header.structures.push(structure);
            } else if line.contains(marks.call)
                && line.contains('(')
                && !line.starts_with("typedef")
            {
                let mut prototype = line.to_string();
                while !prototype.ends_with(';') {
                    let more = lines.next().ok_or("a prototype without an end")?;
                    prototype = format!("{prototype}\n{more}");
                }
                prototype.pop();
                header.calls.push(Call::new(prototype, &comment)?);
            }
        }
        Ok(header)
    }

    fn enumeration<'a>(
        &mut self,
        name: &str,
        comment: &[String],
        marks: Marks,
        lines: &mut impl Iterator<Item = &'a str>,
    ) {
        let mut members = Vec::new();
        let mut about: Vec<String> = Vec::new();
        while let Some(line) = lines.next() {
            let line = line.trim();
            if line == "};" {
                break;
            }
            if let Some(start) = line.strip_prefix("/*") {
                about = read_comment(start, lines);
            } else if let Some((name, value)) = line.split_once(" = ")
                && name.starts_with(marks.constant)
            {
                members.push(member(name, value.trim_end_matches(','), &about));
            }
        }
        self.enums.push(Enumeration {
            name: name.to_string(),
            text: comment.join(" "),
            members,
        });
    }
}

fn member(name: &str, value: &str, comment: &[String]) -> Member {
    Member {
        name: name.to_string(),
        value: value.to_string(),
        text: comment.join(" "),
    }
}

/// The name of the structure or union whose definition begins here.
fn structure(line: &str) -> Option<&str> {
    let begun = line.strip_prefix("typedef struct ");
    let begun = begun.or_else(|| line.strip_prefix("typedef union "))?;
    begun.strip_suffix(" {")
}

/// A structure, up to its end.
fn read_structure<'a>(
    name: &str,
    comment: &[String],
    lines: &mut impl Iterator<Item = &'a str>,
) -> Enumeration {
    let mut members = Vec::new();
    let mut about: Vec<String> = Vec::new();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line.starts_with('}') {
            break;
        }
        if let Some(start) = line.strip_prefix("/*") {
            about = read_comment(start, lines);
        } else if let Some(declared) = line.strip_suffix(';') {
            members.push(member(declared, "", &about));
        }
    }
    Enumeration {
        name: name.to_string(),
        text: comment.join(" "),
        members,
    }
}

/// The lines of a comment, of which `start` is what stands behind its opening.
fn read_comment<'a>(start: &str, lines: &mut impl Iterator<Item = &'a str>) -> Vec<String> {
    if let Some(whole) = start.strip_suffix("*/") {
        return vec![whole.trim().to_string()];
    }
    let first = start.trim();
    let rest = lines.take_while(|line| line.trim() != "*/");
    let rest = rest.map(|line| line.trim().trim_start_matches('*').trim().to_string());
    let first = (!first.is_empty()).then(|| first.to_string());
    first.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: Marks = Marks {
        constant: "DUSI_",
        call: "Dusi_",
    };

    const RAW: &str = "#define DUSI_NOTHING\n\n\n\n/*\n A number.\n */\n#define DUSI_ONE 1\n\n/*\n Kinds.\n */\nenum Dusi_Kind\n  : int32_t\n {\n  \
                       /*\n   First.\n   */\n  DUSI_FIRST = 0,\n};\n\n/*\n Two.\n */\ntypedef struct Dusi_Two {\n  /*\n   A.\n   */\n  int a;\n} \
                       Dusi_Two;\n\n/*\n Does a thing.\n\n More of it.\n\n Parameters:\n - `a`: this\n   and that\n - \
                       `b`: other\n\n Blocking: no.\n\n # Safety\n `b` points.\n */\nDusi_Status Dusi_Do(int a,\n                    int *b);\n";

    #[test]
    fn comments_get_their_shape() {
        let tidied = tidy(RAW);
        assert!(tidied.contains("#define DUSI_NOTHING\n\n/* A number. */\n#define DUSI_ONE 1\n"));
        assert!(tidied.contains("  /* First. */\n  DUSI_FIRST = 0,\n"));
        assert!(tidied.contains("/*\n * Does a thing.\n *\n * More of it.\n"));
        assert!(tidied.contains(" *\n * Pointers:\n * `b` points.\n */\n"));
    }

    #[test]
    fn what_comments_say_is_found() {
        let header = Header::parse(&tidy(RAW), MARKS).unwrap();
        let [call] = &header.calls[..] else {
            panic!("{header:?}")
        };
        assert_eq!(
            (call.name.as_str(), call.brief.as_str()),
            ("Dusi_Do", "Does a thing.")
        );
        assert_eq!(call.description, ["More of it."]);
        let parameters = [("a", "this and that"), ("b", "other")];
        assert_eq!(
            call.parameters,
            parameters.map(|(n, t)| (n.to_string(), t.to_string()))
        );
        assert_eq!(call.section("Blocking"), Some("no."));
        assert_eq!(call.section("Pointers"), Some("`b` points."));
        assert_eq!(header.constants[0].name, "DUSI_ONE");
        let kinds = &header.enums[0];
        assert_eq!(
            (kinds.name.as_str(), kinds.text.as_str()),
            ("Dusi_Kind", "Kinds.")
        );
        assert_eq!(kinds.members[0].text, "First.");
        let two = &header.structures[0];
        assert_eq!((two.name.as_str(), two.text.as_str()), ("Dusi_Two", "Two."));
        assert_eq!(
            (two.members[0].name.as_str(), two.members[0].text.as_str()),
            ("int a", "A.")
        );
    }

    #[test]
    fn a_call_without_a_comment_is_refused() {
        assert!(Header::parse("Dusi_Status Dusi_Do(void);\n", MARKS).is_err());
    }
}
