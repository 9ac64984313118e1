//! `sidecore lab link`: joins two TAP devices through the link model, so that any two stacks can be compared over the same bad link.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use sidecore_nic::link::{Link, LinkCounters, LinkModel};
use sidecore_nic::tap::{Tap, TapConfig};
use sidecore_nic::{Nic, RxBurst, TxFrame};

use crate::interrupt;

/// Most bytes of a frame that the driver copies as its header; the rest is gathered as payload.
const HEADER: usize = 14;

/// One end of a link: a TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Interface name.
    pub name: String,
    /// Namespace of the kernel's side; none: ours.
    pub netns: Option<String>,
    /// The kernel's address on it.
    pub address: Option<(Ipv4Addr, u8)>,
}

impl std::str::FromStr for End {
    type Err = String;

    /// `NAME[@NETNS][=ADDRESS/PREFIX]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (device, address) = match text.split_once('=') {
            Some((device, address)) => (device, Some(parse_cidr(address)?)),
            None => (text, None),
        };
        let (name, netns) = match device.split_once('@') {
            Some((name, netns)) => (name, Some(netns.to_owned())),
            None => (device, None),
        };
        if name.is_empty() || netns.as_deref() == Some("") {
            return Err(format!(
                "'{text}' is not NAME[@NETNS][=ADDRESS/PREFIX], like left@ns1=10.0.0.1/24"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            netns,
            address,
        })
    }
}

fn parse_cidr(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let prefix = prefix.parse::<u8>().ok().filter(|prefix| *prefix <= 32)?;
        Some((address.parse().ok()?, prefix))
    });
    parsed.ok_or_else(|| format!("'{text}' is not ADDRESS/PREFIX, like 10.0.0.1/24"))
}

/// What a link did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Traffic {
    /// Frames given to it.
    pub sent: u64,
    /// Frames that arrived, duplicates among them.
    pub arrived: u64,
    /// Lost on the line.
    pub lost: u64,
    /// Dropped because a queue was full.
    pub dropped: u64,
    /// Held back so that others overtook them.
    pub reordered: u64,
    /// Arrived twice.
    pub duplicated: u64,
    /// Arrived with flipped bits.
    pub corrupted: u64,
}

impl From<&LinkCounters> for Traffic {
    fn from(counters: &LinkCounters) -> Self {
        Self {
            sent: counters.pushed,
            arrived: counters.popped,
            lost: counters.lost,
            dropped: counters.queue_dropped + counters.full,
            reordered: counters.reordered,
            duplicated: counters.duplicated,
            corrupted: counters.corrupted,
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sent, {} arrived, {} lost, {} dropped, {} reordered, {} duplicated, {} corrupted",
            self.sent,
            self.arrived,
            self.lost,
            self.dropped,
            self.reordered,
            self.duplicated,
            self.corrupted
        )
    }
}

/// One direction: from a device through a model to the other.
struct Direction {
    link: Link,
}

impl Direction {
    fn new(model: LinkModel) -> Self {
        Self {
            link: Link::new(model),
        }
    }

    /// Everything that waits at `from` goes onto the line.
    fn take(&mut self, now: u64, from: &mut Tap, burst: &mut RxBurst) {
        while from.receive(burst) > 0 {
            for frame in burst.frames() {
                self.link.push(now, from.frame(frame));
            }
            from.release(burst);
        }
    }

    /// Everything that has arrived goes to `to`.
    fn give(&mut self, now: u64, to: &mut Tap) {
        while let Some(frame) = self.link.pop(now) {
            send(to, &frame.bytes);
            self.link.recycle(frame);
        }
        to.flush();
    }
}

fn send(to: &mut Tap, bytes: &[u8]) {
    let Some((header, payload)) = bytes.split_at_checked(HEADER) else {
        return;
    };
    let payload = [sidecore_nic::MemRef::from_bytes(payload)];
    to.submit(&TxFrame {
        header,
        payload: &payload,
        payload_len: (bytes.len() - HEADER) as u32,
        checksum: None,
        segment_size: 0,
    });
}

/// Joins two ends until a signal comes or `at_most` has passed. What each direction did (first: from the first end). `ready` runs once
/// both devices are there.
pub fn run(
    ends: [&End; 2],
    models: [LinkModel; 2],
    at_most: Option<Duration>,
    ready: impl FnOnce(),
) -> anyhow::Result<[Traffic; 2]> {
    let mut taps = [create(ends[0])?, create(ends[1])?];
    let mut directions = models.map(Direction::new);
    let mut burst = RxBurst::default();
    let start = Instant::now();
    ready();
    while !interrupt::asked() {
        let now = start.elapsed();
        if at_most.is_some_and(|most| now >= most) {
            break;
        }
        let nanos = now.as_nanos() as u64;
        let [a, b] = &mut taps;
        let [there, back] = &mut directions;
        there.take(nanos, a, &mut burst);
        back.take(nanos, b, &mut burst);
        there.give(nanos, b);
        back.give(nanos, a);
        let next = [there, back]
            .into_iter()
            .filter_map(|direction| direction.link.next_arrival_ns())
            .min();
        wait(&taps, next.map(|next| next.saturating_sub(nanos)))?;
    }
    Ok([&directions[0], &directions[1]].map(|direction| direction.link.counters().into()))
}

fn create(end: &End) -> anyhow::Result<Tap> {
    let address = end
        .address
        .map(|(address, prefix)| (IpAddr::V4(address), prefix));
    let config = TapConfig {
        name: end.name.clone(),
        host_addresses: address.into_iter().collect(),
        netns: end.netns.clone(),
        // Every frame on its own and complete, as on a line.
        offload: false,
        ..TapConfig::default()
    };
    Tap::create(config).with_context(|| format!("TAP device {}", end.name))
}

/// Sleeps until a frame comes, or so many nanoseconds, but looks for signals ten times a second.
fn wait(taps: &[Tap; 2], nanos: Option<u64>) -> anyhow::Result<()> {
    let nanos = nanos.unwrap_or(u64::MAX).min(100_000_000);
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: nanos as i64,
    };
    let mut fds = Vec::with_capacity(2);
    for fd in taps.iter().filter_map(Nic::sleep_fd) {
        fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
    }
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("poll"),
    }
}

/// A probability: `0.01` or `1%`.
pub fn parse_probability(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let value = number.trim().parse::<f64>().map(|number| number / scale);
    match value {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(format!("'{text}' is not a probability, like 0.01 or 1%")),
    }
}

/// A time: `250us`, `10ms`, `2s`.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    scaled(text, &units)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("'{text}' is not a time with its unit, like 250us, 10ms or 2s"))
}

/// Bits per second: `100mbit`, `2.5gbit`.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
    scaled(text, &units)
        .map(|bits| bits as u64)
        .ok_or_else(|| format!("'{text}' is not a rate with its unit, like 100mbit or 2.5gbit"))
}

/// Bytes: `1500`, `64k`, `2m`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [("k", 1024.0), ("m", 1024.0 * 1024.0), ("", 1.0)];
    scaled(text, &units)
        .map(|bytes| bytes as u64)
        .ok_or_else(|| format!("'{text}' is not a number of bytes, like 1500, 64k or 2m"))
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let number =
        |(unit, scale): &(&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * scale);
    units
        .iter()
        .find_map(number)
        .filter(|value| value.is_finite() && *value >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_with_their_units() {
        assert_eq!(parse_probability("1%"), Ok(0.01));
        assert_eq!(parse_probability("0.5"), Ok(0.5));
        assert_eq!(parse_time("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_rate("100mbit"), Ok(100_000_000));
        assert_eq!(parse_bytes("64k"), Ok(65_536));
        assert_eq!(parse_bytes("1500"), Ok(1500));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for bad in ["2", "-1", "150%", "x", ""] {
            assert!(
                parse_probability(bad).unwrap_err().contains("like"),
                "{bad}"
            );
        }
        for bad in ["10", "-1s", "NaNs", "s", ""] {
            assert!(parse_time(bad).unwrap_err().contains("like"), "{bad}");
        }
        assert!(parse_rate("fast").is_err() && parse_bytes("-1k").is_err());
    }

    #[test]
    fn ends_are_read() {
        let end: End = "left@ns1=10.0.0.1/24".parse().unwrap();
        let expected = End {
            name: "left".into(),
            netns: Some("ns1".into()),
            address: Some((Ipv4Addr::new(10, 0, 0, 1), 24)),
        };
        assert_eq!(end, expected);
        assert_eq!("tap".parse::<End>().unwrap().netns, None);
        for bad in ["", "@ns", "a@", "a=10.0.0.1", "a=x/1", "a=10.0.0.1/33"] {
            assert!(bad.parse::<End>().is_err(), "{bad}");
        }
    }

    #[test]
    fn two_kernels_talk_over_a_slow_link() {
        if !sidecore_sys::privileges::can_administer_network() {
            eprintln!("skipped: needs CAP_NET_ADMIN");
            return;
        }
        let (left, right) = (
            crate::ground::Namespace::create("ll").unwrap(),
            crate::ground::Namespace::create("lr").unwrap(),
        );
        let end = |namespace: &crate::ground::Namespace, address: &str| -> End {
            format!("sclink0@{}={address}", namespace.name())
                .parse()
                .unwrap()
        };
        let ends = [end(&left, "10.79.0.1/24"), end(&right, "10.79.0.2/24")];
        let (ready, is_ready) = std::sync::mpsc::channel();
        let model = LinkModel {
            delay: Duration::from_millis(20),
            ..LinkModel::default()
        };
        let run = move || {
            let tell = move || ready.send(()).unwrap();
            run(
                [&ends[0], &ends[1]],
                [model; 2],
                Some(Duration::from_millis(700)),
                tell,
            )
        };
        let link = std::thread::spawn(run);
        is_ready.recv().unwrap();
        let listen = || std::net::TcpListener::bind("10.79.0.2:0").unwrap();
        let listener = sidecore_sys::netns::with_netns(right.name(), listen).unwrap();
        let target = listener.local_addr().unwrap();
        let connect = || {
            let start = Instant::now();
            std::net::TcpStream::connect_timeout(&target, Duration::from_secs(1))
                .map(|_| start.elapsed())
        };
        let took = sidecore_sys::netns::with_netns(left.name(), connect)
            .unwrap()
            .unwrap();
        assert!(took >= Duration::from_millis(40), "{took:?}");
        let [there, back] = link.join().unwrap().unwrap();
        assert!(there.arrived >= 2 && back.arrived >= 1, "{there} / {back}");
    }
}
