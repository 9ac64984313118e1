//! The library that this crate makes.

use sidecore_clibs::CLibrary;

pub(crate) const LIBRARY: CLibrary = CLibrary {
    crate_folder: env!("CARGO_MANIFEST_DIR"),
    name: "libexs",
    header: "sys/exs.h",
    prefix: "exs_",
};
