//! `cargo xtask header`: each C interface's header from its Rust source, and its man pages from the header.
//!
//! The header comes from the program cbindgen, which is not needed for anything else: header and pages are committed, and tests hold them to the
//! library and to each other.

mod c;
mod man;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

/// Where man pages lie in an interface's crate.
const MAN: &str = "man";

/// A C interface.
#[derive(Debug)]
struct Interface {
    /// Its crate.
    folder: &'static str,
    /// How programs include its header, which lies below `include` of the crate.
    include: &'static str,
    /// How programs are linked.
    library: &'static str,
    /// The man page of all of it.
    page: &'static str,
    /// What that page says it is.
    about: &'static str,
    title: &'static str,
    marks: c::Marks,
}

const INTERFACES: [Interface; 2] = [
    Interface {
        folder: "crates/capi",
        include: "dusi.h",
        library: "sidecore_dusi",
        page: "dusi",
        about: "asynchronous sockets on a Sidecore engine",
        title: "Direct User Sockets Interface",
        marks: c::Marks {
            constant: "DUSI_",
            call: "Dusi_",
        },
    },
    Interface {
        folder: "crates/exs",
        include: "sys/exs.h",
        library: "exs",
        page: "exs",
        about: "asynchronous calls on sockets, the kernel's and a Sidecore engine's",
        title: "Extended Sockets API",
        marks: c::Marks {
            constant: "EXS_",
            call: "exs_",
        },
    },
];

impl Interface {
    fn header(&self) -> String {
        format!("include/{}", self.include)
    }
}

/// Makes headers and man pages anew.
///
/// # Errors
/// If cbindgen is missing or fails, a header cannot be read as one, or a file cannot be written.
pub(crate) fn run(root: &Path) -> io::Result<()> {
    INTERFACES
        .iter()
        .try_for_each(|interface| make(root, interface))
}

fn make(root: &Path, interface: &Interface) -> io::Result<()> {
    let folder = root.join(interface.folder);
    let header = c::tidy(&cbindgen(&folder)?);
    let path = folder.join(interface.header());
    std::fs::create_dir_all(path.parent().unwrap_or(&folder))?;
    std::fs::write(path, &header)?;
    let pages = pages(&header, interface)?;
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
    let Interface {
        folder, include, ..
    } = interface;
    println!(
        "{folder}/include/{include} and {} pages in {folder}/{MAN}",
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
fn pages(header: &str, interface: &Interface) -> io::Result<BTreeMap<String, String>> {
    let header = c::Header::parse(header, interface.marks).map_err(io::Error::other)?;
    let name = format!("{}.7", interface.page);
    let overview = (name, man::overview(&header, interface));
    let calls = header.calls.iter();
    let pages = calls.map(|call| {
        let name = format!("{}.3", call.name);
        (name, man::page(call, &header, interface))
    });
    Ok(pages.chain([overview]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(interface: &Interface) -> String {
        let folder = crate::workspace_root().join(interface.folder);
        std::fs::read_to_string(folder.join(interface.header())).unwrap()
    }

    #[test]
    fn the_committed_pages_are_those_of_the_committed_headers() {
        for (interface, least) in INTERFACES.iter().zip([40, 15]) {
            let folder = crate::workspace_root().join(interface.folder);
            let pages = pages(&committed(interface), interface).unwrap();
            assert!(pages.len() > least);
            for (name, text) in &pages {
                let committed = std::fs::read_to_string(folder.join(MAN).join(name)).unwrap();
                assert_eq!(&committed, text, "{name}: run `cargo xtask header`");
            }
            let committed = std::fs::read_dir(folder.join(MAN)).unwrap().count();
            assert_eq!(committed, pages.len(), "pages of calls that are gone");
        }
    }

    #[test]
    fn every_call_says_what_it_must() {
        for interface in &INTERFACES {
            let header = c::Header::parse(&committed(interface), interface.marks).unwrap();
            for call in header.calls {
                says_what_it_must(&call, interface);
            }
        }
    }

    fn says_what_it_must(call: &c::Call, interface: &Interface) {
        let has = |title: &str| call.section(title).is_some();
        assert!(has("Blocking"), "{}", call.name);
        if call.prototype.starts_with("Dusi_Status ") {
            assert!(has("Statuses") && has("Paper"), "{}", call.name);
        }
        if interface.page == "exs" {
            assert!(has("Errors") && has("Origin"), "{}", call.name);
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
