//! `cargo xtask header`: the C interface's header from its Rust source, and its man pages from the header.
//!
//! The header comes from the program cbindgen, which is not needed for anything else: header and pages are committed, and tests hold them to the
//! library and to each other.

mod c;
mod man;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

/// Where the C interface lives.
const CRATE: &str = "crates/capi";
/// Its header, inside.
const HEADER: &str = "include/dusi.h";
/// Its man pages, inside.
const MAN: &str = "man";

/// Makes header and man pages anew.
///
/// # Errors
/// If cbindgen is missing or fails, the header cannot be read as one, or a file cannot be written.
pub(crate) fn run(root: &Path) -> io::Result<()> {
    let folder = root.join(CRATE);
    let header = c::tidy(&cbindgen(&folder)?);
    std::fs::write(folder.join(HEADER), &header)?;
    let pages = pages(&header)?;
    let man = folder.join(MAN);
    std::fs::create_dir_all(&man)?;
    for entry in std::fs::read_dir(&man)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !pages.contains_key(&name) {
            std::fs::remove_file(man.join(&name))?;
        }
    }
    for (name, text) in &pages {
        std::fs::write(man.join(name), text)?;
    }
    println!(
        "{CRATE}/{HEADER} and {} pages in {CRATE}/{MAN}",
        pages.len()
    );
    Ok(())
}

/// The header as cbindgen makes it.
fn cbindgen(folder: &Path) -> io::Result<String> {
    let answer = Command::new("cbindgen")
        .args(["--quiet", "--config", "cbindgen.toml", "."])
        .current_dir(folder)
        .output();
    let answer = answer.map_err(|error| {
        let words = format!("cbindgen: {error}; `cargo install --locked cbindgen` brings it");
        io::Error::new(error.kind(), words)
    })?;
    if !answer.status.success() {
        let words = String::from_utf8_lossy(&answer.stderr).into_owned();
        return Err(io::Error::other(words));
    }
    String::from_utf8(answer.stdout).map_err(io::Error::other)
}

/// All man pages, by the name of their file.
fn pages(header: &str) -> io::Result<BTreeMap<String, String>> {
    let header = c::Header::parse(header).map_err(io::Error::other)?;
    let overview = ("dusi.7".to_string(), man::overview(&header));
    let calls = header.calls.iter();
    let pages = calls.map(|call| (format!("{}.3", call.name), man::page(call, &header)));
    Ok(pages.chain([overview]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_pages_are_those_of_the_committed_header() {
        let folder = crate::workspace_root().join(CRATE);
        let header = std::fs::read_to_string(folder.join(HEADER)).unwrap();
        let pages = pages(&header).unwrap();
        assert!(pages.len() > 40);
        for (name, text) in &pages {
            let committed = std::fs::read_to_string(folder.join(MAN).join(name)).unwrap();
            assert_eq!(&committed, text, "{name}: run `cargo xtask header`");
        }
        let committed = std::fs::read_dir(folder.join(MAN)).unwrap().count();
        assert_eq!(committed, pages.len(), "pages of calls that are gone");
    }

    #[test]
    fn every_call_says_what_it_must() {
        let folder = crate::workspace_root().join(CRATE);
        let header = std::fs::read_to_string(folder.join(HEADER)).unwrap();
        for call in c::Header::parse(&header).unwrap().calls {
            let has = |title: &str| call.section(title).is_some();
            assert!(has("Blocking"), "{}", call.name);
            if call.prototype.starts_with("Dusi_Status ") {
                assert!(has("Statuses") && has("Paper"), "{}", call.name);
            }
            let takes_something = !call.prototype.contains("(void)");
            assert_eq!(
                takes_something,
                !call.parameters.is_empty(),
                "{}",
                call.name
            );
            assert_eq!(
                call.prototype.contains('*')
                    && !call.prototype.starts_with("const char *")
                    && call.name != "Dusi_Recv"
                    && call.name != "Dusi_Get_Info",
                has("Pointers"),
                "{}",
                call.name
            );
            for (parameter, _) in &call.parameters {
                assert!(
                    call.prototype.contains(parameter.as_str()),
                    "{}: {parameter}",
                    call.name
                );
            }
        }
    }
}
