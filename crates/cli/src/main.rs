//! The sidecore program.
fn main() {}
