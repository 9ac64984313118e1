//! `make install-exs`: what lies where, and that a program is built with it by pkg-config.

mod library;

use library::LIBRARY;
use sidecore_clibs::Installation;

#[test]
fn what_is_installed_is_found_by_pkg_config() {
    LIBRARY.check_installation(&Installation {
        target: "install-exs",
        package: "sidecore-exs",
        version: env!("CARGO_PKG_VERSION"),
        man_pages: &["man3/exs_send.3", "man7/exs.7"],
        program: "#include <sys/exs.h>\nint main(void) { return exs_init(EXS_VERSION); }\n",
    });
}
