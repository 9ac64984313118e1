//! Gives the shared library its name: programs linked with one version of the interface run with every later library of that version.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Version 0 as long as the interface may change between releases.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libexs.so.0");
    // The handler for forks, and the thread that serves descriptors, must not be unloaded under their callers.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
