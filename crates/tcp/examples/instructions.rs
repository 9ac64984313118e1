//! Counts the instructions of the steady state: `valgrind --tool=callgrind` on runs of different length.
//!
//! ```text
//! cargo build --release -p sidecore-tcp --example instructions
//! for n in 1000 2000; do valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!     target/release/examples/instructions rpc $n; done
//! ```
//!
//! The difference of the two counts ("Collected"), divided by that of the numbers, is one step. The kinds of steps: see
//! `main`; `nothing` is the loop itself.

use core::hint::black_box;

use sidecore_tcp::{Config, Connection, Instant, Outcome, RangePool, TxLimits, TxSegment};
use sidecore_wire::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps, UnscaledWindow};

struct Bench {
    connection: Connection,
    ranges: RangePool,
    now: Instant,
    tx: TxLimits,
    header: TcpHeader,
}

const ISS: SeqNumber = SeqNumber(1000);
const IRS: SeqNumber = SeqNumber(5000);

impl Bench {
    fn new() -> Self {
        let now = Instant::from_secs(10);
        let config = Config {
            // Super-segments from the start.
            initial_window_segments: 100,
            no_delay: true,
            ..Config::default()
        };
        let options = TcpOptions {
            mss: Some(1460),
            window_scale: Some(sidecore_wire::WindowScale::new(7)),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 5, echo: 0 }),
            ..TcpOptions::NONE
        };
        let syn = TcpHeader {
            seq: IRS,
            flags: TcpFlags::SYN,
            window: UnscaledWindow(64_000),
            options,
            ..TcpHeader::default()
        };
        let mut connection = Connection::accept(now, &config, ISS, &syn);
        connection.set_receive_limit(1 << 20);
        let mut ranges = RangePool::new(16);
        let tx = TxLimits {
            max_segments_bytes: 65_000,
        };
        assert!(connection.poll_transmit(now, &tx, &mut ranges).is_some());
        let header = TcpHeader {
            seq: IRS.add(1),
            ack: ISS.add(1),
            flags: TcpFlags::ACK,
            window: UnscaledWindow(32_000),
            options: TcpOptions {
                timestamps: Some(Timestamps { value: 6, echo: 0 }),
                ..TcpOptions::NONE
            },
            ..TcpHeader::default()
        };
        let mut bench = Self {
            connection,
            ranges,
            now,
            tx,
            header,
        };
        let outcome = bench.receive(0);
        assert!(outcome.established);
        bench
    }

    #[inline(never)]
    fn receive(&mut self, len: u32) -> Outcome {
        self.connection
            .handle_segment(self.now, &self.header, len, true, &mut self.ranges)
    }

    #[inline(never)]
    fn transmit(&mut self) -> Option<TxSegment> {
        self.connection
            .poll_transmit(self.now, &self.tx, &mut self.ranges)
    }

    /// A request comes in.
    fn request(&mut self, len: u32) {
        let outcome = self.receive(len);
        assert!(outcome.accept.is_some());
        self.header.seq += len;
        self.now = Instant::from_nanos(self.now.as_nanos() + 10_000);
    }

    /// A response goes out, and nothing more.
    fn response(&mut self, len: u32) {
        let end = self.connection.send_nxt() + u64::from(len);
        self.connection.set_send_limit(end);
        let segment = black_box(self.transmit()).expect("a segment");
        assert_eq!(segment.payload.end, end);
        self.header.ack += len;
    }

    /// With eight super-segments under way: an ACK for the oldest, then the next one.
    fn pipe(&mut self, first: bool) {
        const LEN: u32 = 14_480;
        let (acked, under_way) = (self.header.ack, if first { 8 } else { 0 });
        for _ in 0..under_way {
            self.response(LEN);
        }
        self.header.ack = acked.add(LEN);
        self.now = Instant::from_nanos(self.now.as_nanos() + 10_000);
        assert!(self.receive(0).acked);
        self.response(LEN);
        self.header.ack = acked.add(LEN);
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "rpc".into());
    let steps: u32 = arguments
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1000);
    let mut bench = Bench::new();
    for step in 0..steps {
        let edge = bench.connection.receive_next() + (1 << 20);
        match kind.as_str() {
            "nothing" => {
                black_box(edge);
            }
            // Receive 64 bytes, send 64 bytes, be asked whether there is more.
            "rpc" => {
                bench.connection.set_receive_limit(edge);
                bench.request(64);
                bench.response(64);
                assert!(!black_box(bench.connection.wants_transmit()));
                black_box(bench.connection.next_timeout());
            }
            // As that, with another request: the difference is what receiving takes.
            "request" => {
                bench.connection.set_receive_limit(edge);
                bench.request(64);
                bench.request(64);
                bench.response(64);
                assert!(!black_box(bench.connection.wants_transmit()));
                black_box(bench.connection.next_timeout());
            }
            // As `rpc`, with another response: the difference is what sending takes.
            "response" => {
                bench.connection.set_receive_limit(edge);
                bench.request(64);
                bench.response(64);
                bench.response(64);
                assert!(!black_box(bench.connection.wants_transmit()));
                black_box(bench.connection.next_timeout());
            }
            // A bulk receiver: super-segments in, ACKs out.
            "bulk-in" => {
                bench.connection.set_receive_limit(edge);
                bench.request(60_000);
                assert!(black_box(bench.transmit()).is_some());
            }
            // A bulk sender: super-segments out, ACKs in.
            "bulk-out" => {
                bench.response(57_920);
                let outcome = bench.receive(0);
                assert!(outcome.acked);
            }
            // As that, with more under way.
            "pipe" => bench.pipe(step == 0),
            _ => panic!("nothing, rpc, request, response, bulk-in, bulk-out or pipe"),
        }
    }
    black_box(&bench.connection);
}
