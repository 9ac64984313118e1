//! Virtual time, lossy links, and two stacks with in-memory hosts that store and check real bytes. For tests only: here
//! everything allocates, and what should not happen panics.
//!
//! | file | what |
//! |---|---|
//! | `rng` | a seeded generator |
//! | `device` | what a network device does to a frame: gather, cut super-segments, complete checksums |
//! | `link` | loss, duplication, delay, reordering, corruption, rate |
//! | `too_big` | what a router says of a packet that is too long |
//! | `host` | [`TestHost`]: keeps what is written until it is acknowledged, and checks what is stored |
//! | `node` | [`Node`]: a stack with its host, its loopback, and short calls for tests |
//! | `adversary` | two stacks on a network that does what bytes say |
//! | `pair` | [`Pair`]: two nodes, two links, one clock, bounded steps |
//! | `packet`, `packet6` | frames made by hand, and frames taken apart |
//! | `script` | [`script::run`]: scripts in packetdrill's language
//! | `sockets` | [`sockets::Sockets`]: sockets with Linux's numbers and errors over one stack, IP packets in and out |

#![forbid(unsafe_code)]

pub mod adversary;
mod device;
mod host;
mod link;
pub mod marking;
mod node;
pub mod packet;
pub mod packet6;
mod pair;
mod rng;
pub mod script;
pub mod sockets;
mod too_big;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};

pub use host::{Datagram, DatagramReport, Event, SentFrame, TestHost};
pub use link::{Direction, Link, LinkCounters, Narrow};
pub use node::{Node, NodeConfig};
pub use pair::{A, B, Pair};
pub use rng::Rng;

/// `len` bytes that tell where in a stream they are from: `stream` and position decide each of them.
pub fn pattern(stream: u64, start: u64, len: usize) -> Vec<u8> {
    let byte = |at: u64| {
        let word = ((at / 8) ^ (stream << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word >> (at % 8 * 8)) as u8
    };
    (start..).take(len).map(byte).collect()
}

/// How property tests run: `cases` cases, the same in every run unless the environment names another seed
/// (`PROPTEST_RNG_SEED`), and nothing is written to disk.
pub fn property_config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(0x51de_c04e),
        given => given,
    };
    ProptestConfig {
        cases,
        rng_seed,
        failure_persistence: None,
        ..default
    }
}
