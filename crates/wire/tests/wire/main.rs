//! Tests of the public interface: by hand, by property, and against other people's parsers.
#![allow(unreachable_pub)]

mod checksum;
mod headers;
mod never_panic;
mod oracle;
mod seq;
mod strategies;
mod tcp;
