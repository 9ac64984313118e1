//! `sidecore lab link`: joins two TAP devices through the link model, so that any two stacks can be compared over the same bad link.

mod options;
mod units;

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::setpriority_process;
use rustix::thread::set_current_timer_slack;
use serde::{Deserialize, Serialize};
use sidecore_nic::link::join::Join;
use sidecore_nic::link::{LinkCounters, LinkModel};
use sidecore_nic::tap::{Tap, TapConfig};

pub use options::{LinkOptions, Way};
pub use units::Amount;

use crate::interrupt;

/// How often a link that has nothing to do looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// What was asked for makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// One end of a link: a TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Interface name.
    pub name: String,
    /// Namespace of the kernel's side; none: ours.
    pub netns: Option<String>,
    /// The kernel's addresses on it.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl std::str::FromStr for End {
    type Err = String;

    /// `NAME[@NETNS][=ADDRESS/PREFIX[,ADDRESS/PREFIX…]]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (device, addresses) = match text.split_once('=') {
            Some((device, list)) => (
                device,
                list.split(',').map(parse_cidr).collect::<Result<_, _>>()?,
            ),
            None => (text, Vec::new()),
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
            addresses,
        })
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), String> {
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse::<u8>().ok().filter(|it| *it <= longest)?;
        Some((address, prefix))
    });
    parsed.ok_or_else(|| format!("'{text}' is not ADDRESS/PREFIX, like 10.0.0.1/24 or fd00::1/64"))
}

/// What a link did in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Frames given to it.
    pub sent: u64,
    /// Frames that arrived, duplicates among them.
    pub arrived: u64,
    /// Lost on the line.
    pub lost: u64,
    /// Lost in an outage.
    pub outage: u64,
    /// Dropped because a queue was full.
    pub dropped: u64,
    /// Dropped where others are marked, as their transport is not ECN-capable.
    pub mark_dropped: u64,
    /// Dropped because they were larger than the MTU.
    pub too_big: u64,
    /// Senders who were told so.
    pub answered: u64,
    /// Marked "congestion experienced".
    pub marked: u64,
    /// Held back so that others overtook them.
    pub reordered: u64,
    /// Arrived twice.
    pub duplicated: u64,
    /// Arrived with a flipped bit.
    pub corrupted: u64,
    /// The most bytes that waited for the line.
    pub queue_bytes_max: u64,
}

impl From<&LinkCounters> for Traffic {
    fn from(counters: &LinkCounters) -> Self {
        Self {
            sent: counters.pushed,
            arrived: counters.popped,
            lost: counters.lost,
            outage: counters.outage,
            dropped: counters.queue_dropped + counters.full,
            mark_dropped: counters.mark_dropped,
            too_big: counters.too_big,
            answered: counters.answered,
            marked: counters.marked,
            reordered: counters.reordered,
            duplicated: counters.duplicated,
            corrupted: counters.corrupted,
            queue_bytes_max: counters.queue_bytes_max,
        }
    }
}

impl fmt::Display for Traffic {
    /// The first two in any case, of the others those that happened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sent, {} arrived", self.sent, self.arrived)?;
        for (count, what) in [
            (self.lost, "lost"),
            (self.outage, "lost in an outage"),
            (self.dropped, "dropped by the full queue"),
            (self.mark_dropped, "dropped for want of ECN"),
            (self.too_big, "too big"),
            (self.answered, "senders told so"),
            (self.marked, "marked"),
            (self.reordered, "reordered"),
            (self.duplicated, "duplicated"),
            (self.corrupted, "corrupted"),
            (self.queue_bytes_max, "bytes waited at most"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// A link between two TAP devices that it has made.
pub struct TapLink {
    join: Join<Tap, Tap>,
    start: Instant,
}

impl TapLink {
    /// Makes the devices and joins them; the first model is that of the way from the first end.
    ///
    /// # Errors
    ///
    /// A device cannot be made.
    pub fn create(ends: [&End; 2], models: [LinkModel; 2]) -> anyhow::Result<Self> {
        let [a, b] = [create(ends[0])?, create(ends[1])?];
        Ok(Self {
            join: Join::new(a, b, models),
            start: Instant::now(),
        })
    }

    /// Carries frames until `stop` says so, which is asked at least ten times a second.
    ///
    /// # Errors
    ///
    /// The system does not let it wait.
    pub fn run_until(&mut self, mut stop: impl FnMut(Duration) -> bool) -> anyhow::Result<()> {
        // Sleeps of a thread end up to 50 µs late, unless it says that they must not. And what comes while others have the processor arrives all at
        // once, as no line would have it: this thread goes first, where it may.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let _ = setpriority_process(None, -20);
        loop {
            let now = self.start.elapsed();
            if stop(now) {
                return Ok(());
            }
            let nanos = now.as_nanos() as u64;
            if self.join.turn(nanos) == 0 {
                self.join.wait(nanos, LOOK).context("poll")?;
            }
        }
    }

    /// What each direction did.
    pub fn traffic(&self) -> [Traffic; 2] {
        self.join.counters().each_ref().map(Traffic::from)
    }
}

/// Joins two ends until a signal comes or `at_most` has passed. What each direction did (first: from the first end). `ready` runs once
/// both devices are there.
pub fn run(
    ends: [&End; 2],
    models: [LinkModel; 2],
    at_most: Option<Duration>,
    ready: impl FnOnce(),
) -> anyhow::Result<[Traffic; 2]> {
    let mut link = TapLink::create(ends, models)?;
    ready();
    link.run_until(|now| interrupt::asked() || at_most.is_some_and(|most| now >= most))?;
    Ok(link.traffic())
}

fn create(end: &End) -> anyhow::Result<Tap> {
    let config = TapConfig {
        name: end.name.clone(),
        host_addresses: end.addresses.clone(),
        netns: end.netns.clone(),
        // Every frame on its own and complete, as on a line.
        offload: false,
        ..TapConfig::default()
    };
    Tap::create(config).with_context(|| format!("TAP device {}", end.name))
}

#[cfg(test)]
mod tests;
