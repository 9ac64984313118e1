//! `make install-exs`: what lies where, and that a program is built with it by pkg-config.

mod cc;

use std::process::Command;

use cc::run;

#[test]
fn what_is_installed_is_found_by_pkg_config() {
    let folder = tempfile::tempdir().unwrap();
    let built = cc::library("so");
    run(Command::new("make")
        .current_dir(cc::folder().join("../.."))
        .args([
            "--no-print-directory",
            "install-exs",
            "PREFIX=/opt/sidecore",
        ])
        .arg(format!("DESTDIR={}", folder.path().display()))
        .arg(format!("CAPI_BUILT={}", built.parent().unwrap().display()))
        .env_remove("MAKEFLAGS"));
    let prefix = folder.path().join("opt/sidecore");
    for path in [
        "lib/libexs.a",
        "lib/libexs.so",
        "lib/libexs.so.0",
        concat!("lib/libexs.so.", env!("CARGO_PKG_VERSION")),
        "include/sys/exs.h",
        "share/man/man3/exs_send.3",
        "share/man/man7/exs.7",
    ] {
        assert!(prefix.join(path).exists(), "{path}");
    }
    let config = |words: &[&str]| {
        run(Command::new("pkg-config")
            .args(words)
            .arg("sidecore-exs")
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", folder.path()))
    };
    assert_eq!(config(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let flags = config(&["--cflags", "--libs"]);
    let source = folder.path().join("init.c");
    let text = "#include <sys/exs.h>\nint main(void) { return exs_init(EXS_VERSION); }\n";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("init");
    run(Command::new("cc")
        .arg(&source)
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program));
    run(Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib")));
}
