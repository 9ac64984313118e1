//! Measures the ways of TAP I/O: `cargo run --release -p sidecore-nic --example tap_io`. Needs root or a user namespace
//! with access to `/dev/net/tun`.
//!
//! Two TAPs in a namespace of their own, between which the kernel forwards: frames written to the *source* wait in the
//! queue of the device under test, and only the calls to that one are timed, in processor cycles. No second thread takes
//! part, so that what is measured is the driver's own cost. Then round trips with a spinning UDP client on the other core.
//! Variants take turns every few milliseconds, so that all meet the same disturbances; a figure is the median of the
//! rounds, in nanoseconds a frame or a turn. Round trips need both cores, which other programs disturb more: there it is the
//! fastest fifth.
//!
//! An argument (`receive`, `send`, `turn`, `empty`, `trips`) selects a part.

use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use sidecore_nic::{MemRef, Nic, RxBurst, Tap, TapConfig, TapIo, TxFrame};
use sidecore_sys::interface::Interface;
use sidecore_sys::{clock, netlink, netns};
use sidecore_wire::{MacAddress, checksum};

const BURSTS: [usize; 4] = [1, 4, 16, 64];
const ROUNDS: usize = 81;
/// Frames of one sample, in bursts: some tenths of a millisecond, so that most samples run undisturbed.
const FRAMES: usize = 96;
const TRIPS_ROUNDS: usize = 101;
/// Round trips before the clock starts.
const WARM_UP: u32 = 64;
/// How long a variant answers a client before the next one does.
const SLICE: Duration = Duration::from_millis(1);
const TARGET_MAC: MacAddress = MacAddress([2, 0x5c, 0, 0, 0, 9]);
/// A station that is not the host: what is sent to it the kernel drops as early as it can.
const STRANGER: MacAddress = MacAddress([2, 0x5c, 0, 0, 0, 77]);

#[derive(Clone, Copy, PartialEq)]
struct Size {
    name: &'static str,
    payload: usize,
}

const SIZES: [Size; 3] = [
    Size {
        name: "64 B",
        payload: 64,
    },
    Size {
        name: "1460 B",
        payload: 1448,
    },
    Size {
        name: "64 KB",
        payload: 62_264,
    },
];

#[derive(Clone, Copy, PartialEq)]
struct Variant {
    name: &'static str,
    mode: TapIo,
    napi: bool,
    count: bool,
}

const VARIANTS: [Variant; 5] = [
    Variant {
        name: "read/write",
        mode: TapIo::ReadWrite,
        napi: false,
        count: false,
    },
    Variant {
        name: "counted",
        mode: TapIo::ReadWrite,
        napi: false,
        count: true,
    },
    Variant {
        name: "io_uring",
        mode: TapIo::IoUring,
        napi: false,
        count: false,
    },
    Variant {
        name: "counted, NAPI",
        mode: TapIo::ReadWrite,
        napi: true,
        count: true,
    },
    Variant {
        name: "io_uring, NAPI",
        mode: TapIo::IoUring,
        napi: true,
        count: false,
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    let namespace = netns::create_anonymous()?;
    netns::with_netns_fd(namespace, || measure().map_err(|error| error.to_string()))??;
    Ok(())
}

fn measure() -> Result<(), Box<dyn Error>> {
    let _ = sidecore_sys::pin_current_thread(0);
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    let mut source = Source::new()?;
    let mut devices = Vec::new();
    for (number, variant) in (0..).zip(VARIANTS) {
        devices.push(Device::new(number, variant)?);
    }
    println!(
        "| operation | frame | burst | {} |",
        VARIANTS.map(|v| v.name).join(" | ")
    );
    println!("|---|---|---|{}", "---|".repeat(VARIANTS.len()));
    let part = std::env::args().nth(1).unwrap_or_default();
    let wanted = |operation: &str| part.is_empty() || part.eq_ignore_ascii_case(operation);
    for operation in [Operation::Receive, Operation::Send, Operation::Turn] {
        if wanted(&format!("{operation:?}")) {
            for (size, burst) in SIZES
                .iter()
                .flat_map(|size| BURSTS.map(|burst| (*size, burst)))
            {
                if size.payload * burst <= 1 << 20 {
                    row(&mut source, &mut devices, operation, size, burst);
                }
            }
        }
    }
    if wanted("empty") {
        row(&mut source, &mut devices, Operation::Empty, SIZES[0], 1);
    }
    if wanted("trips") {
        for (payload, window) in [(64, 1), (1400, 1), (64, 16), (64, 64), (1400, 64)] {
            trips(&mut devices, payload, window)?;
        }
    }
    for device in &devices {
        assert_eq!(device.tap.counters().tx_dropped(), 0);
        assert_eq!(device.tap.device_drops()?.to_us, 0);
    }
    Ok(())
}

/// Round trips with a client of the kernel, `window` of them at a time.
fn trips(devices: &mut [Device], payload: usize, window: usize) -> Result<(), Box<dyn Error>> {
    let mut samples = VARIANTS.map(|_| Vec::with_capacity(TRIPS_ROUNDS));
    let sockets = devices
        .iter()
        .map(|device| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect((device.target, 7))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        })
        .collect::<std::io::Result<Vec<_>>>()?;
    let (send, results) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = sidecore_sys::pin_current_thread(1);
            for socket in sockets.iter().cycle().take(VARIANTS.len() * TRIPS_ROUNDS) {
                let _ = send.send(client(socket, payload, window));
            }
        });
        for round in 0..TRIPS_ROUNDS {
            for (device, samples) in devices.iter_mut().zip(&mut samples) {
                let ns = loop {
                    device.echo();
                    if let Ok(ns) = results.try_recv() {
                        break ns;
                    }
                };
                if round > 0 {
                    samples.push(ns);
                }
            }
        }
    });
    println!(
        "| Round trip | {payload} B | {window} | {} |",
        quantile(samples, 0.2, 1.0).join(" | ")
    );
    Ok(())
}

/// Keeps `window` datagrams on their way for a while, and says how many nanoseconds there were for each round trip.
fn client(socket: &UdpSocket, payload: usize, window: usize) -> f64 {
    let mut buffer = vec![0; payload];
    let (mut outstanding, mut done, mut begun) = (0, 0, Instant::now());
    // The first few warm up.
    while done < WARM_UP || begun.elapsed() < SLICE || outstanding > 0 {
        let more = done < WARM_UP || begun.elapsed() < SLICE;
        if more && outstanding < window && socket.send(&buffer).is_ok() {
            outstanding += 1;
        } else if socket.recv(&mut buffer).is_ok() {
            outstanding -= 1;
            done += 1;
            if done == WARM_UP {
                begun = Instant::now();
            }
        }
    }
    begun.elapsed().as_nanos() as f64 / f64::from(done - WARM_UP)
}

fn quantile<const N: usize>(samples: [Vec<f64>; N], at: f64, scale: f64) -> [String; N] {
    samples.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        let index = (samples.len() as f64 * at) as usize;
        format!("{:.0}", samples[index] * scale)
    })
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Operation {
    /// Receives a burst and releases it.
    Receive,
    /// Sends a burst.
    Send,
    /// Receives a burst and answers each frame by one of the same length, as an engine's turn does.
    Turn,
    /// Looks for frames and finds none.
    Empty,
}

fn row(
    source: &mut Source,
    devices: &mut [Device],
    operation: Operation,
    size: Size,
    burst: usize,
) {
    let mut samples = VARIANTS.map(|_| Vec::with_capacity(ROUNDS));
    let groups = (FRAMES / burst).clamp(1, 24);
    for round in 0..ROUNDS {
        for (device, samples) in devices.iter_mut().zip(&mut samples) {
            let cycles = device.run(source, operation, size, burst, groups);
            if round > 0 {
                samples.push(cycles as f64 / (groups * burst) as f64);
            }
        }
    }
    let ns = 1e9 / clock::cycles_per_second() as f64;
    println!(
        "| {operation:?} | {} | {burst} | {} |",
        size.name,
        quantile(samples, 0.5, ns).join(" | ")
    );
}

/// A device under test.
struct Device {
    tap: Tap,
    burst: RxBurst,
    target: Ipv4Addr,
    answers: Vec<[u8; 2048]>,
}

impl Device {
    fn new(number: u8, variant: Variant) -> Result<Self, Box<dyn Error>> {
        let name = format!("tested{number}");
        let net = 88 + number;
        let tap = Tap::create(TapConfig {
            name: name.clone(),
            host_addresses: vec![(Ipv4Addr::new(10, net, 0, 1).into(), 24)],
            mode: variant.mode,
            napi: variant.napi,
            count_arrivals: variant.count,
            ..TapConfig::default()
        })?;
        let target = Ipv4Addr::new(10, net, 0, 2);
        let index = Interface::open(&name)?.index()?;
        netlink::add_neighbour(index, target.into(), TARGET_MAC.0)?;
        let mut device = Self {
            tap,
            burst: RxBurst::new(),
            target,
            answers: vec![[0; 2048]; 64],
        };
        // What the kernel says of its own accord when an interface comes up.
        for _ in 0..100 {
            device.tap.receive(&mut device.burst);
            device.tap.release(&mut device.burst);
        }
        Ok(device)
    }

    /// Runs `groups` times and says how many cycles the calls took.
    fn run(
        &mut self,
        source: &mut Source,
        operation: Operation,
        size: Size,
        burst: usize,
        groups: usize,
    ) -> u64 {
        let header = tcp_header(STRANGER, self.target, size.payload);
        let mut cycles = 0;
        for _ in 0..groups {
            if matches!(operation, Operation::Receive | Operation::Turn) {
                source.send(self.target, size, burst);
            }
            let start = clock::cycles();
            match operation {
                Operation::Empty => {
                    self.tap.receive(&mut self.burst);
                    self.tap.release(&mut self.burst);
                }
                Operation::Send => self.send(&source.payload[..size.payload], &header, burst),
                Operation::Receive => {
                    self.receive(burst, |_, _| {});
                }
                Operation::Turn => {
                    let payload = &source.payload[..size.payload];
                    self.receive(burst, |device, n| device.send(payload, &header, n));
                }
            }
            cycles += clock::cycles().wrapping_sub(start);
        }
        cycles
    }

    /// One turn: answers the datagrams that have come.
    fn echo(&mut self) {
        if self.tap.receive(&mut self.burst) == 0 {
            return;
        }
        for (description, frame) in self.burst.into_iter().zip(&mut self.answers) {
            let bytes = self.tap.frame(description);
            let (len, frame) = (bytes.len(), &mut frame[..bytes.len()]);
            frame.copy_from_slice(bytes);
            if len < 42 || frame[23] != 17 {
                continue;
            }
            // The sum of the pseudo-header, which is in the checksum field, is the same both ways.
            for (one, other, n) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
                let (left, right) = frame.split_at_mut(other);
                left[one..one + n].swap_with_slice(&mut right[..n]);
            }
            self.tap.submit(&TxFrame {
                header: &frame[..42],
                payload: &[MemRef::from_bytes(&frame[42..])],
                payload_len: (len - 42) as u32,
                checksum: Some((34, 6)),
                segment_size: 0,
            });
        }
        self.tap.release(&mut self.burst);
        self.tap.flush();
    }

    fn receive(&mut self, burst: usize, mut each: impl FnMut(&mut Self, usize)) {
        let mut received = 0;
        while received < burst {
            let n = self.tap.receive(&mut self.burst);
            let mut sum = 0;
            for frame in &self.burst {
                sum += usize::from(self.tap.frame(frame)[47]);
            }
            std::hint::black_box(sum);
            self.tap.release(&mut self.burst);
            received += n;
            if n > 0 {
                each(self, n);
            }
        }
    }

    fn send(&mut self, payload: &[u8], header: &[u8; 54], burst: usize) {
        for _ in 0..burst {
            submit(&mut self.tap, header, payload);
        }
        self.tap.flush();
    }
}

fn submit(tap: &mut Tap, header: &[u8; 54], payload: &[u8]) {
    tap.submit(&TxFrame {
        header,
        payload: &[MemRef::from_bytes(payload)],
        payload_len: payload.len() as u32,
        checksum: Some((34, 16)),
        segment_size: if payload.len() > 1448 { 1448 } else { 0 },
    });
}

/// The device through which frames come to the one under test.
struct Source {
    tap: Tap,
    host_mac: MacAddress,
    payload: Vec<u8>,
}

impl Source {
    fn new() -> Result<Self, Box<dyn Error>> {
        let tap = Tap::create(TapConfig {
            name: "source".into(),
            host_addresses: vec![(Ipv4Addr::new(10, 87, 0, 1).into(), 24)],
            ..TapConfig::default()
        })?;
        Ok(Self {
            tap,
            host_mac: MacAddress(Interface::open("source")?.mac()?),
            payload: vec![0x5a; 1 << 16],
        })
    }

    fn send(&mut self, target: Ipv4Addr, size: Size, count: usize) {
        let header = tcp_header(self.host_mac, target, size.payload);
        for _ in 0..count {
            submit(&mut self.tap, &header, &self.payload[..size.payload]);
        }
        self.tap.flush();
    }
}

/// Headers of a segment from 10.87.0.2 to the target, with the pseudo-header's sum in the checksum field.
fn tcp_header(to: MacAddress, target: Ipv4Addr, payload: usize) -> [u8; 54] {
    let src = Ipv4Addr::new(10, 87, 0, 2);
    let mut header = [0; 54];
    header[..6].copy_from_slice(&to.0);
    header[6..12].copy_from_slice(&[2, 0x5c, 0, 0, 0, 2]);
    header[12..14].copy_from_slice(&[8, 0]);
    let ip = &mut header[14..34];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(40 + payload as u16).to_be_bytes());
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = 6;
    ip[12..16].copy_from_slice(&src.octets());
    ip[16..20].copy_from_slice(&target.octets());
    let sum = checksum::complement(checksum::sum(ip, 0));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    header[34..36].copy_from_slice(&7u16.to_be_bytes());
    header[36..38].copy_from_slice(&9u16.to_be_bytes());
    header[46] = 5 << 4;
    header[47] = 0x10;
    header[48..50].copy_from_slice(&u16::MAX.to_be_bytes());
    let pseudo = checksum::pseudo_v4(src, target, 6, 20 + payload as u32);
    header[50..52].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
    header
}
