//! A library for C as its users see it: its header, its files, what it exports, programs that are linked with it, and what `make` installs.
//!
//! For tests of the crates that make such libraries. Everything here panics, with what a tool said, when that tool finds anything to complain about.
//!
//! ```text
//! const LIBRARY: CLibrary = CLibrary {
//!     crate_folder: env!("CARGO_MANIFEST_DIR"),
//!     name: "libexs",
//!     header: "sys/exs.h",
//!     prefix: "exs_",
//! };
//! ```

#![forbid(unsafe_code)]

mod install;
mod layout;

pub use install::Installation;

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a compiler must not find.
const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1"];

/// A library for C that a crate of this workspace makes.
#[derive(Clone, Copy, Debug)]
pub struct CLibrary {
    /// Folder of the crate; its header is below `include`.
    pub crate_folder: &'static str,
    /// The file's name without its ending: `libexs`.
    pub name: &'static str,
    /// As programs include it: `sys/exs.h`.
    pub header: &'static str,
    /// What the names of all its functions begin with.
    pub prefix: &'static str,
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// With the shared library.
    Shared,
    /// With the static library.
    Static,
    /// With the shared library, and AddressSanitizer and UndefinedBehaviorSanitizer in the C part.
    Sanitized,
}

impl Link {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Shared, Self::Static, Self::Sanitized];
}

/// Runs a command to its end, which must be a good one; what it says on standard output.
pub fn run(command: &mut Command) -> String {
    let answer = command.output();
    let answer = answer.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let words = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success(), "{command:?}: {words}");
    String::from_utf8(answer.stdout).expect("text")
}

impl CLibrary {
    /// A path below the crate's folder.
    pub fn path(&self, below: &str) -> PathBuf {
        Path::new(self.crate_folder).join(below)
    }

    /// The committed header.
    pub fn header_text(&self) -> String {
        let path = self.path("include").join(self.header);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The shared (`so`) or static (`a`) library of this build: it lies beside the tests.
    pub fn file(&self, kind: &str) -> PathBuf {
        let test = std::env::current_exe().expect("a test has a path");
        let found = test.with_file_name(format!("{}.{kind}", self.name));
        assert!(found.exists(), "{} is missing", found.display());
        found
    }

    /// Names of the functions that the header declares, sorted.
    pub fn declared(&self) -> Vec<String> {
        let header = self.header_text();
        let code = header
            .lines()
            .filter(|line| !line.trim_start().starts_with('*'));
        let names = code
            .filter_map(|line| line.split_once('('))
            .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
            .filter(|name| name.starts_with(self.prefix));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Names of all that the shared library exports, sorted.
    pub fn exported(&self) -> Vec<String> {
        let mut list = Command::new("nm");
        list.args(["-D", "--defined-only", "--format=posix"]);
        let listing = run(list.arg(self.file("so")));
        let names = listing.lines().filter_map(|line| line.split(' ').next());
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        names
    }

    /// The shared library bears this name with version 0, and stays loaded.
    pub fn check_name_and_flags(&self) {
        let text = run(Command::new("readelf").args(["-dW"]).arg(self.file("so")));
        assert!(text.contains(&format!("[{}.so.0]", self.name)), "{text}");
        assert!(text.contains("NODELETE"), "{text}");
    }

    fn compile_by(&self, compiler: &str, source: &Path, to: &Path, arguments: &[&str]) {
        let mut command = Command::new(compiler);
        command
            .args(WARNINGS)
            .arg("-I")
            .arg(self.path("include"))
            .arg(source)
            .arg("-o")
            .arg(to)
            .args(arguments);
        run(&mut command);
    }

    /// Compiles C11; a warning is an error.
    pub fn compile(&self, source: &Path, to: &Path, arguments: &[&str]) {
        self.compile_by("cc", source, to, &[&["-std=c11"], arguments].concat());
    }

    /// Compiles text of C as C++. `include`: where else headers may be.
    pub fn compile_as_cpp(&self, text: &str, include: &Path) {
        let place = tempfile::tempdir().expect("a temporary folder");
        let source = place.path().join("text.cc");
        std::fs::write(&source, text).expect("a file in it");
        let include = format!("-I{}", include.display());
        let arguments = ["-std=c++17", "-c", &include];
        self.compile_by("c++", &source, &place.path().join("text.o"), &arguments);
    }

    /// Builds a program of C in a folder, which is to be the caller's own.
    pub fn build(&self, source: &Path, folder: &Path, link: Link) -> PathBuf {
        let name = source.file_stem().expect("a file").to_string_lossy();
        let program = folder.join(format!("{name}-{link:?}"));
        // The name by which programs ask for it.
        let wanted = folder.join(format!("{}.so.0", self.name));
        if !wanted.exists() {
            std::os::unix::fs::symlink(self.file("so"), &wanted).expect("a link in the folder");
        }
        let kind = if link == Link::Static { "a" } else { "so" };
        let library = self.file(kind);
        let library = library.to_string_lossy();
        let rpath = format!("-Wl,-rpath,{}", folder.display());
        let mut arguments = vec![&*library, &*rpath, "-pthread"];
        match link {
            Link::Shared => {}
            Link::Static => arguments.extend(["-ldl", "-lm"]),
            Link::Sanitized => {
                arguments.extend(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
            }
        }
        self.compile(source, &program, &arguments);
        program
    }
}
