//! `make install-dusi`, a part of `make install`: what lies where, and that a program is built with it by pkg-config.

mod library;

use library::LIBRARY;
use sidecore_clibs::Installation;

#[test]
fn what_is_installed_is_found_by_pkg_config() {
    LIBRARY.check_installation(&Installation {
        target: "install-dusi",
        package: "sidecore-dusi",
        version: env!("CARGO_PKG_VERSION"),
        man_pages: &["man3/Dusi_Send.3", "man7/dusi.7"],
        program: "#include <dusi.h>\nint main(void) { return Dusi_Version() == DUSI_VERSION ? 0 : 1; }\n",
    });
}
