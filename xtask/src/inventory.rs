//! Which tests there are, read from the sources: building them only to list them would take minutes.
//!
//! Names are those of `cargo nextest list`: `sidecore-tcp::handshake active_open`, `sidecore-tcp prr::tests::…` for the library's own.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The tests of all crates below `root/crates`, and those of `root/xtask`.
///
/// # Errors
/// If a file or folder cannot be read, or is no Rust.
pub(crate) fn tests(root: &Path) -> io::Result<BTreeSet<String>> {
    let mut tests = BTreeSet::new();
    for krate in folders(&root.join("crates"))? {
        tests_of_crate(&krate, &mut tests)?;
    }
    if root.join("xtask/Cargo.toml").exists() {
        tests_of_crate(&root.join("xtask"), &mut tests)?;
    }
    Ok(tests)
}

fn folders(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(parent)? {
        let path = entry?.path();
        if path.join("Cargo.toml").exists() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn tests_of_crate(krate: &Path, tests: &mut BTreeSet<String>) -> io::Result<()> {
    let manifest = std::fs::read_to_string(krate.join("Cargo.toml"))?;
    let package = package_name(&manifest)
        .ok_or_else(|| io::Error::other(format!("{}: no package name", krate.display())))?;
    let lib = krate.join("src/lib.rs");
    if lib.exists() {
        Walk::new(&package, tests).file(&lib, &[])?;
    }
    let main = krate.join("src/main.rs");
    if main.exists() {
        // The binary's name: the package's, unless the manifest has another.
        let name = bin_name(&manifest).unwrap_or_else(|| package.clone());
        Walk::new(&format!("{package}::bin/{name}"), tests).file(&main, &[])?;
    }
    let Ok(targets) = std::fs::read_dir(krate.join("tests")) else {
        return Ok(());
    };
    for target in targets {
        let path = target?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let target = format!("{package}::{stem}");
        if path.extension().is_some_and(|ext| ext == "rs") {
            Walk::new(&target, tests).file(&path, &[])?;
        } else if path.join("main.rs").exists() {
            Walk::new(&target, tests).file(&path.join("main.rs"), &[])?;
        }
    }
    Ok(())
}

/// `name` of `[package]`.
fn package_name(manifest: &str) -> Option<String> {
    let manifest: toml::Table = manifest.parse().ok()?;
    Some(manifest.get("package")?.get("name")?.as_str()?.to_owned())
}

fn bin_name(manifest: &str) -> Option<String> {
    let manifest: toml::Table = manifest.parse().ok()?;
    let bins = manifest.get("bin")?.as_array()?;
    let main = |bin: &&toml::Value| {
        let path = bin.get("path").and_then(toml::Value::as_str);
        path.is_none_or(|path| path == "src/main.rs")
    };
    let name = bins.iter().find(main)?.get("name")?;
    Some(name.as_str()?.to_owned())
}

/// The way through the modules of one target.
struct Walk<'a> {
    target: &'a str,
    tests: &'a mut BTreeSet<String>,
}

impl<'a> Walk<'a> {
    fn new(target: &'a str, tests: &'a mut BTreeSet<String>) -> Self {
        Self { target, tests }
    }

    fn file(&mut self, path: &Path, module: &[String]) -> io::Result<()> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        let tokens: TokenStream = text
            .parse()
            .map_err(|e| io::Error::other(format!("{}: {e}", path.display())))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let parent = path.parent().unwrap_or(Path::new(""));
        // Where its modules are: beside a root and a mod.rs, else in a folder of its own name.
        let is_root = module.is_empty() || name == "mod.rs";
        let folder = if is_root {
            parent.to_path_buf()
        } else {
            parent.join(name.trim_end_matches(".rs"))
        };
        self.tokens(tokens, &folder, module)
    }

    fn tokens(&mut self, tokens: TokenStream, folder: &Path, module: &[String]) -> io::Result<()> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut is_test = false;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(hash) if hash.as_char() == '#' => {
                    if let Some(TokenTree::Group(group)) = tokens.get(at + 1) {
                        is_test |= group.stream().to_string() == "test";
                        at += 1;
                    }
                }
                TokenTree::Ident(word) if word == "mod" => {
                    let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
                        at += 1;
                        continue;
                    };
                    let mut inner = module.to_vec();
                    inner.push(name.to_string());
                    self.module(tokens.get(at + 2), folder, &inner)?;
                    at += 2;
                }
                TokenTree::Ident(word) if word == "fn" => {
                    if let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
                        && core::mem::take(&mut is_test)
                    {
                        let path = [module, &[name.to_string()]].concat().join("::");
                        self.tests.insert(format!("{} {path}", self.target));
                    }
                    at += 1;
                }
                // The bodies of functions, and of macros: `proptest!` has tests in it.
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    self.tokens(group.stream(), folder, module)?;
                }
                _ => {}
            }
            at += 1;
        }
        Ok(())
    }

    /// What follows `mod name`: a block, or a semicolon, and then it is a file.
    fn module(
        &mut self,
        body: Option<&TokenTree>,
        folder: &Path,
        module: &[String],
    ) -> io::Result<()> {
        let name = module.last().map(String::as_str).unwrap_or_default();
        if let Some(TokenTree::Group(group)) = body {
            return self.tokens(group.stream(), &folder.join(name), module);
        }
        let flat = folder.join(format!("{name}.rs"));
        if flat.exists() {
            return self.file(&flat, module);
        }
        let nested = folder.join(name).join("mod.rs");
        if nested.exists() {
            return self.file(&nested, module);
        }
        // Elsewhere (`#[path]`), or of another platform: no tests that a page could name.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_where_cargo_finds_them() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let files = [
            ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
            (
                "a/src/lib.rs",
                "mod x;\nmod y;\n#[test]\nfn top() {}\nfn no() {}\n",
            ),
            (
                "a/src/x.rs",
                "mod deep;\n#[cfg(test)]\nmod tests { #[test] fn in_x() {} }\n",
            ),
            (
                "a/src/x/deep.rs",
                "#[test]\n#[should_panic]\nfn down() {}\n",
            ),
            ("a/src/y/mod.rs", "mod z;\n"),
            (
                "a/src/y/z.rs",
                "proptest! {\n #[test]\n fn any(x in 0..1) {}\n}\n",
            ),
            (
                "a/tests/flat.rs",
                "mod common;\n#[test]\nfn f() { fn inner() {} }\n",
            ),
            ("a/tests/common/mod.rs", "// #[test] fn comment() {}\n"),
            ("a/tests/many/main.rs", "mod one;\n"),
            (
                "a/tests/many/one.rs",
                "const S: &str = \"#[test] fn text() {}\";\n#[test]\nfn g() {}\n",
            ),
            (
                "b/Cargo.toml",
                "[package]\nname = \"b\"\n[[bin]]\nname = \"prog\"\npath = \"src/main.rs\"\n",
            ),
            ("b/src/main.rs", "#[test]\nfn h() {}\n"),
        ];
        for (path, text) in files {
            let path = root.path().join("crates").join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let found: Vec<_> = tests(root.path()).expect("readable").into_iter().collect();
        assert_eq!(
            found,
            [
                "a top",
                "a x::deep::down",
                "a x::tests::in_x",
                "a y::z::any",
                "a::flat f",
                "a::many one::g",
                "b::bin/prog h",
            ]
        );
    }

    #[test]
    fn what_is_no_rust_is_an_error() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let src = root.path().join("crates/a/src");
        std::fs::create_dir_all(&src).expect("a folder");
        std::fs::write(
            root.path().join("crates/a/Cargo.toml"),
            "[package]\nname = \"a\"\n",
        )
        .expect("a file");
        std::fs::write(src.join("lib.rs"), "fn f( {").expect("a file");
        assert!(tests(root.path()).is_err());
    }
}
