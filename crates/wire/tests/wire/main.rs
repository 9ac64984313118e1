//! Tests of the public interface: by hand, by property, and against other people's parsers.
#![allow(unreachable_pub)]

mod checksum;
mod groups;
mod headers;
mod ipv6;
mod ndp;
mod never_panic;
mod oracle;
mod oracle6;
mod seq;
mod strategies;
mod strategies6;
mod tcp;
