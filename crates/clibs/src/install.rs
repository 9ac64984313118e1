//! What `make install-…` puts where.

use std::process::Command;

use super::{CLibrary, run};

const PREFIX: &str = "opt/sidecore";

/// What is to be installed of a library.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    /// Target of the Makefile.
    pub target: &'a str,
    /// Name for pkg-config.
    pub package: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Man pages, below `share/man`.
    pub man_pages: &'a [&'a str],
    /// A program in C that ends well when the library answers.
    pub program: &'a str,
}

impl CLibrary {
    /// Installs below a temporary folder, looks for each file there, and builds and runs the program with what pkg-config says.
    pub fn check_installation(&self, what: &Installation<'_>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let built = self.file("so");
        let built = built.parent().expect("it lies in a folder");
        run(Command::new("make")
            .current_dir(self.path("../.."))
            .args(["--no-print-directory", what.target])
            .arg(format!("PREFIX=/{PREFIX}"))
            .arg(format!("DESTDIR={}", folder.path().display()))
            .arg(format!("CAPI_BUILT={}", built.display()))
            .env_remove("MAKEFLAGS"));
        let prefix = folder.path().join(PREFIX);
        let (name, version) = (self.name, what.version);
        let mut files: Vec<String> = [".a", ".so", ".so.0"]
            .map(|ending| format!("lib/{name}{ending}"))
            .to_vec();
        files.push(format!("lib/{name}.so.{version}"));
        files.push(format!("include/{}", self.header));
        files.extend(
            what.man_pages
                .iter()
                .map(|page| format!("share/man/{page}")),
        );
        for path in &files {
            assert!(prefix.join(path).exists(), "{path}");
        }
        let config = |words: &[&str]| {
            run(Command::new("pkg-config")
                .args(words)
                .arg(what.package)
                .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
                .env("PKG_CONFIG_SYSROOT_DIR", folder.path()))
        };
        assert_eq!(config(&["--modversion"]).trim(), version);
        let flags = config(&["--cflags", "--libs"]);
        let source = folder.path().join("program.c");
        std::fs::write(&source, what.program).expect("a file in it");
        let program = folder.path().join("program");
        run(Command::new("cc")
            .arg(&source)
            .args(flags.split_whitespace())
            .arg("-o")
            .arg(&program));
        run(Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    }
}
