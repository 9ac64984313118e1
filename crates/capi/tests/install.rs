//! `make install-dusi`, a part of `make install`: what lies where, and that a program is built with it by pkg-config.

mod cc;

use std::path::Path;
use std::process::Command;

fn run(command: &mut Command) -> String {
    let answer = command.output().unwrap();
    let errors = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success(), "{errors}");
    String::from_utf8(answer.stdout).unwrap()
}

/// Installs this build's libraries below a folder.
fn install(to: &Path) {
    let built = cc::library("so");
    let built = built.parent().unwrap();
    run(Command::new("make")
        .current_dir(cc::folder().join("../.."))
        .args([
            "--no-print-directory",
            "install-dusi",
            "PREFIX=/opt/sidecore",
        ])
        .arg(format!("DESTDIR={}", to.display()))
        .arg(format!("CAPI_BUILT={}", built.display()))
        .env_remove("MAKEFLAGS"));
}

#[test]
fn what_is_installed_is_found_by_pkg_config() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path());
    let prefix = folder.path().join("opt/sidecore");
    for path in [
        "lib/libsidecore_dusi.a",
        "lib/libsidecore_dusi.so",
        "lib/libsidecore_dusi.so.0",
        concat!("lib/libsidecore_dusi.so.", env!("CARGO_PKG_VERSION")),
        "include/dusi.h",
        "share/man/man3/Dusi_Send.3",
        "share/man/man7/dusi.7",
    ] {
        assert!(prefix.join(path).exists(), "{path}");
    }
    let config = |words: &[&str]| {
        run(Command::new("pkg-config")
            .args(words)
            .arg("sidecore-dusi")
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", folder.path()))
    };
    assert_eq!(config(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let flags = config(&["--cflags", "--libs"]);
    let source = folder.path().join("version.c");
    let text =
        "#include <dusi.h>\nint main(void) { return Dusi_Version() == DUSI_VERSION ? 0 : 1; }\n";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("version");
    run(Command::new("cc")
        .arg(&source)
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program));
    run(Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib")));
}
