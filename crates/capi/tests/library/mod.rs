//! The library that this crate makes.

use sidecore_clibs::CLibrary;

pub(crate) const LIBRARY: CLibrary = CLibrary {
    crate_folder: env!("CARGO_MANIFEST_DIR"),
    name: "libsidecore_dusi",
    header: "dusi.h",
    prefix: "Dusi_",
};
