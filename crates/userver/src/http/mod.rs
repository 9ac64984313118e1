//! HTTP/1.1 without I/O: bytes of requests in, a [`plan::Plan`] of what to send out.
//!
//! - [`request`]: one request head out of a buffer that may hold part of one, or many.
//! - [`target`]: the request target as a path that cannot leave the root.
//! - [`range`] and [`condition`]: RFC 9110 sections 14 and 13.
//! - [`head`]: writing response heads; [`status`] and [`media_type`] hold the tables.
//! - [`plan`]: what a response consists of.

pub mod condition;
pub mod head;
pub mod media_type;
pub mod plan;
pub mod range;
pub mod request;
pub mod status;
pub mod target;
