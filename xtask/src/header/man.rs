//! Man pages of the C interface.

use std::fmt::Write;

use super::Interface;
use super::c::{Call, Header, Member};

/// The page of one call, for section 3.
pub(super) fn page(call: &Call, header: &Header, interface: &Interface) -> String {
    let text = |paragraph: &str| text(paragraph, interface);
    let mut out = top(&call.name, 3, interface);
    let _ = writeln!(out, ".SH NAME\n{} \\- {}", call.name, lower(&call.brief));
    let prototype = escape(&call.prototype).replace('\n', "\n.br\n");
    let _ = writeln!(
        out,
        ".SH SYNOPSIS\n.nf\n.B #include <{}>\n.PP\n{};\n.fi\n.PP\nLink with\n.IR \\-l{} ;\nsee\n.BR pkg\\-config (1).",
        interface.include,
        prototype.replace("\n.br", ""),
        interface.library
    );
    out.push_str(".SH DESCRIPTION\n");
    out.push_str(&text(&call.brief));
    for paragraph in &call.description {
        let _ = write!(out, ".PP\n{}", text(paragraph));
    }
    if !call.parameters.is_empty() {
        out.push_str(".SH PARAMETERS\n");
        for (name, about) in &call.parameters {
            let _ = write!(out, ".TP\n.I {name}\n{}", text(&sentence(about)));
        }
    }
    let sections = [
        ("Statuses", "RETURN VALUE"),
        ("Errors", "ERRORS"),
        ("Blocking", "BLOCKING"),
        ("Pointers", "POINTERS"),
        ("Paper", "ORIGIN"),
        ("Origin", "ORIGIN"),
    ];
    for (title, heading) in sections {
        if let Some(section) = call.section(title) {
            let _ = write!(out, ".SH {heading}\n{}", text(&sentence(section)));
        }
    }
    out.push_str(".SH SEE ALSO\n");
    let mentioned = mentioned(call, header);
    for name in &mentioned {
        let _ = writeln!(out, ".BR {name} (3),");
    }
    let _ = writeln!(out, ".BR {} (7)", interface.page);
    out
}

/// The page of the interface as a whole, for section 7.
pub(super) fn overview(header: &Header, interface: &Interface) -> String {
    let text = |paragraph: &str| text(paragraph, interface);
    let members = |out: &mut String, all: &[Member]| members(out, all, interface);
    let mut out = top(interface.page, 7, interface);
    let _ = writeln!(out, ".SH NAME\n{} \\- {}", interface.page, interface.about);
    let _ = writeln!(
        out,
        ".SH SYNOPSIS\n.B #include <{}>\n.SH DESCRIPTION",
        interface.include
    );
    // Where the header comes from is of no use to who reads the page.
    let preface = header.preface.iter();
    for paragraph in preface.filter(|paragraph| !paragraph.starts_with("This file")) {
        let _ = writeln!(out, "{}.PP", text(paragraph));
    }
    out.push_str(".SS Calls\n");
    for call in &header.calls {
        let _ = write!(out, ".TP\n.BR {} (3)\n{}", call.name, text(&call.brief));
    }
    for kind in &header.enums {
        let _ = write!(out, ".SS {}\n{}", kind.name, text(&kind.text));
        members(&mut out, &kind.members);
    }
    for structure in &header.structures {
        let _ = write!(out, ".SS {}\n{}", structure.name, text(&structure.text));
        members(&mut out, &structure.members);
    }
    out.push_str(".SS Constants\n");
    members(&mut out, &header.constants);
    out.push_str(".SH SEE ALSO\n.BR socket (7),\n.BR tcp (7)\n");
    out
}

fn members(out: &mut String, members: &[Member], interface: &Interface) {
    for member in members {
        let text = text(&member.text, interface);
        let _ = match member.value.as_str() {
            "" => write!(out, ".TP\n.B \"{}\"\n{text}", member.name),
            value => write!(out, ".TP\n.BR {} \" ({value})\"\n{text}", member.name),
        };
    }
}

fn top(name: &str, section: u8, interface: &Interface) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        ".\\\" Made from {} by `cargo xtask header`.\n.TH {name} {section} \"\" \"Sidecore {version}\" \"{}\"\n",
        interface.include, interface.title
    )
}

/// The calls that a call's page speaks of.
fn mentioned<'a>(call: &Call, header: &'a Header) -> Vec<&'a str> {
    let sections = ["Statuses", "Errors", "Paper", "Origin"]
        .iter()
        .filter_map(|title| call.section(title));
    let parameters = call.parameters.iter().map(|(_, about)| about.as_str());
    let all: Vec<&str> = (call.description.iter().map(String::as_str))
        .chain(sections)
        .chain(parameters)
        .collect();
    let named = |name: &str| {
        all.iter().any(|text| {
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .any(|word| word == name)
        })
    };
    let others = header.calls.iter().map(|other| other.name.as_str());
    others
        .filter(|name| *name != call.name && named(name))
        .collect()
}

/// A sentence that begins large.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next();
    let names = text.starts_with('`') || text.starts_with("sizeof");
    match first {
        Some(first) if !names => first.to_uppercase().chain(letters).collect(),
        _ => text.to_string(),
    }
}

/// What stands behind the dash of a NAME line: no large letter at the beginning, no full stop.
fn lower(brief: &str) -> String {
    let brief = brief.trim_end_matches('.');
    let mut letters = brief.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    escape(&first.into_iter().chain(letters).collect::<String>())
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A paragraph: constants bold, what stands between backticks in italics; a line for each sentence.
fn text(paragraph: &str, interface: &Interface) -> String {
    let marks = [interface.marks.constant, interface.marks.call];
    let mut out = String::new();
    for (index, piece) in paragraph.split('`').enumerate() {
        if index % 2 == 1 {
            let _ = write!(out, "\\fI{}\\fR", escape(piece));
            continue;
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut rest = piece;
        while let Some(at) = rest.find(
            marks
                .iter()
                .min_by_key(|mark| rest.find(**mark).unwrap_or(usize::MAX))
                .copied()
                .unwrap_or(marks[0]),
        ) {
            let (before, name) = rest.split_at(at);
            let end = name.find(|c| !is_name(c)).unwrap_or(name.len());
            let _ = write!(out, "{}\\fB{}\\fR", escape(before), &name[..end]);
            rest = &name[end..];
        }
        out.push_str(&escape(rest));
    }
    let mut out = out.replace(". ", ".\n");
    // A line that begins with a dot or quote would be a request.
    if out.starts_with(['.', '\'']) {
        out.insert_str(0, "\\&");
    }
    out = out.replace("\n.", "\n\\&.").replace("\n'", "\n\\&'");
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::INTERFACES;

    #[test]
    fn text_is_marked_up() {
        assert_eq!(
            text("See DUSI_OK and Dusi_Send-ing `x`. 'Tis.", &INTERFACES[0]),
            "See \\fBDUSI_OK\\fR and \\fBDusi_Send\\fR\\-ing \\fIx\\fR.\n\\&'Tis.\n"
        );
        assert_eq!(text(".x", &INTERFACES[0]), "\\&.x\n");
        assert_eq!(lower("Sends bytes."), "sends bytes");
        assert_eq!(sentence("the end."), "The end.");
    }
}
