//! What a link is told on the command line: for both directions, and for each by itself.

use std::time::Duration;

use clap::{Args, FromArgMatches, Parser};
use sidecore_nic::link::{LinkModel, Outage};

use super::units::{
    Amount, parse_amount, parse_mtu, parse_outage, parse_probability, parse_rate, parse_time,
};
use super::{End, Usage};

/// What waits for a line with a rate, unless something else is said.
const QUEUE: Amount = Amount::Bytes(256 << 10);

/// A link.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LinkOptions {
    /// First end, a TAP device that is made: NAME[@NETNS][=ADDRESS/PREFIX[,ADDRESS/PREFIX…]]
    pub a: End,
    /// Second end
    pub b: End,
    /// What holds for both directions.
    #[command(flatten)]
    pub both: Way,
    /// What is different from the first end to the second: the options above without their dashes, like loss=1%,delay=20ms
    #[arg(long, value_name = "OPTION=VALUE,…", value_parser = parse_way)]
    pub there: Option<Box<Way>>,
    /// What is different from the second end to the first
    #[arg(long, value_name = "OPTION=VALUE,…", value_parser = parse_way)]
    pub back: Option<Box<Way>>,
    /// Seed of all chance; each direction has its own part of it
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub time: Option<Duration>,
    /// Print what happened as one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Shown below the options.
const EXAMPLES: &str = "\
Each device is one end of the line; its other side is the kernel's, in the namespace NETNS, and vanishes with this program. Frames pass one by one as \
they are: there is no segmentation offload on such a device. What happened to them is told at the end.

Two kernels with 100 ms of delay and 1 % of loss between them:
  ip netns add left; ip netns add right
  sidecore lab link l0@left=10.9.0.1/24 r0@right=10.9.0.2/24 --delay 50ms --loss 1%

An engine instead of a kernel on the left: a bridge joins its device to the line's.
  sidecore engine --tap e0 --netns left --addr 10.9.0.1/24 …
  ip -n left link add br0 type bridge
  for port in e0 l0; do ip -n left link set $port master br0; done
  ip -n left link set br0 up

A slow line that marks above 20 frames, and loses only what goes there:
  sidecore lab link l0@left r0@right --rate 20mbit --queue 200p --mark-above 20p --there loss=0.5%";

/// How one direction is to behave; what is not said is left open.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct Way {
    /// Probability that a frame is lost, like 1% or 0.01
    #[arg(long, value_name = "CHANCE", value_parser = parse_probability)]
    pub loss: Option<f64>,
    /// Probability that a frame arrives twice
    #[arg(long, value_name = "CHANCE", value_parser = parse_probability)]
    pub duplicate: Option<f64>,
    /// Probability that a frame is overtaken by later ones
    #[arg(long, value_name = "CHANCE", value_parser = parse_probability)]
    pub reorder: Option<f64>,
    /// How many overtake it (3 unless said; after 5 ms it waits no longer)
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub reorder_by: Option<u32>,
    /// Probability that one bit of a frame is flipped
    #[arg(long, value_name = "CHANCE", value_parser = parse_probability)]
    pub corrupt: Option<f64>,
    /// Time on the line, each way
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub delay: Option<Duration>,
    /// Largest additional time on the line
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub jitter: Option<Duration>,
    /// Whether frames overtake each other by jitter (else none is faster than the one before it)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub jitter_reorders: Option<bool>,
    /// Bits a second, like 20mbit; without it, as fast as this program is
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// What waits for the line before frames are dropped, with --rate: bytes, or frames as in 100p (256k unless said)
    #[arg(long, value_name = "AMOUNT", value_parser = parse_amount)]
    pub queue: Option<Amount>,
    /// Probability that a packet is marked "congestion experienced" if its transport is ECN-capable, and dropped if not
    #[arg(long, value_name = "CHANCE", value_parser = parse_probability)]
    pub mark: Option<f64>,
    /// The same for every packet that finds so much waiting for the line, with --rate
    #[arg(long, value_name = "AMOUNT", value_parser = parse_amount)]
    pub mark_above: Option<Amount>,
    /// Largest IP packet that passes, in bytes; senders of larger ones are told by ICMP
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u16>,
    /// With --mtu: nobody is told; what is too big vanishes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub mtu_silent: Option<bool>,
    /// When nothing passes, counted from the start: once, like 2s+500ms, or again and again, like 2s+500ms/10s
    #[arg(long, value_name = "AFTER+LENGTH", value_parser = parse_outage)]
    pub outage: Option<Outage>,
}

/// A direction's options as the value of one.
#[derive(Parser)]
#[command(
    no_binary_name = true,
    disable_help_flag = true,
    disable_version_flag = true
)]
struct WayAlone {
    #[command(flatten)]
    way: Way,
}

fn parse_way(text: &str) -> Result<Box<Way>, String> {
    let arguments = text.split(',').map(|setting| format!("--{setting}"));
    let matches = <WayAlone as clap::CommandFactory>::command().try_get_matches_from(arguments);
    let alone = matches.and_then(|matches| WayAlone::from_arg_matches(&matches));
    alone
        .map(|alone| Box::new(alone.way))
        .map_err(|error| first_line(&error.to_string()))
}

/// What a message of clap's says, without its advice.
fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

impl LinkOptions {
    /// The models there and back.
    ///
    /// # Errors
    ///
    /// Options that do nothing without another one.
    pub fn models(&self) -> Result<[LinkModel; 2], Usage> {
        let open = Way::default();
        let ways = [&self.there, &self.back].map(|own| {
            let own = own.as_deref().unwrap_or(&open);
            own.or(&self.both)
        });
        let [there, back] = [
            ways[0].model(self.seed.wrapping_mul(2))?,
            ways[1].model(self.seed.wrapping_mul(2).wrapping_add(1))?,
        ];
        Ok([there, back])
    }
}

impl Way {
    /// This, and what it leaves open as the other says.
    fn or(&self, other: &Self) -> Self {
        Self {
            loss: self.loss.or(other.loss),
            duplicate: self.duplicate.or(other.duplicate),
            reorder: self.reorder.or(other.reorder),
            reorder_by: self.reorder_by.or(other.reorder_by),
            corrupt: self.corrupt.or(other.corrupt),
            delay: self.delay.or(other.delay),
            jitter: self.jitter.or(other.jitter),
            jitter_reorders: self.jitter_reorders.or(other.jitter_reorders),
            rate: self.rate.or(other.rate),
            queue: self.queue.or(other.queue),
            mark: self.mark.or(other.mark),
            mark_above: self.mark_above.or(other.mark_above),
            mtu: self.mtu.or(other.mtu),
            mtu_silent: self.mtu_silent.or(other.mtu_silent),
            outage: self.outage.or(other.outage),
        }
    }

    fn check(&self) -> Result<(), Usage> {
        let rate = self.rate.unwrap_or(0);
        let needs = [
            ("queue", self.queue.is_some(), "rate", rate > 0),
            ("mark-above", self.mark_above.is_some(), "rate", rate > 0),
            (
                "reorder-by",
                self.reorder_by.is_some(),
                "reorder",
                self.reorder.is_some(),
            ),
            (
                "jitter-reorders",
                self.jitter_reorders == Some(true),
                "jitter",
                self.jitter.is_some(),
            ),
            (
                "mtu-silent",
                self.mtu_silent == Some(true),
                "mtu",
                self.mtu.is_some(),
            ),
        ];
        match needs.iter().find(|(_, given, _, there)| *given && !there) {
            Some((option, _, other, _)) => Err(Usage(format!(
                "--{option} does nothing without --{other}: give that too"
            ))),
            None => Ok(()),
        }
    }

    fn model(&self, seed: u64) -> Result<LinkModel, Usage> {
        self.check()?;
        let rate_bps = self.rate.unwrap_or(0);
        let (queue_bytes, queue_frames) = parts(Some(self.queue.unwrap_or(QUEUE)));
        let (mark_bytes, mark_frames) = parts(self.mark_above);
        let perfect = LinkModel::default();
        Ok(LinkModel {
            loss: self.loss.unwrap_or(0.0),
            duplicate: self.duplicate.unwrap_or(0.0),
            reorder: self.reorder.unwrap_or(0.0),
            reorder_distance: self.reorder_by.unwrap_or(perfect.reorder_distance),
            corrupt: self.corrupt.unwrap_or(0.0),
            delay: self.delay.unwrap_or_default(),
            jitter: self.jitter.unwrap_or_default(),
            jitter_reorders: self.jitter_reorders.unwrap_or(false),
            rate_bps,
            queue_bytes,
            queue_frames,
            mark: self.mark.unwrap_or(0.0),
            mark_bytes,
            mark_frames,
            mtu: self.mtu.unwrap_or(0),
            tell_too_big: !self.mtu_silent.unwrap_or(false),
            outage: self.outage,
            seed,
            ..perfect
        })
    }
}

/// Bytes and frames of an amount; 0: not in this unit.
fn parts(amount: Option<Amount>) -> (u64, u32) {
    match amount {
        None => (0, 0),
        Some(Amount::Bytes(bytes)) => (bytes, 0),
        Some(Amount::Frames(frames)) => (0, frames),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        link: LinkOptions,
    }

    fn models(arguments: &str) -> Result<[LinkModel; 2], String> {
        let words = "program a b".split(' ').chain(arguments.split_whitespace());
        let program = Program::try_parse_from(words).map_err(|error| error.to_string())?;
        program.link.models().map_err(|Usage(what)| what)
    }

    #[test]
    fn each_direction_may_be_different() {
        let [there, back] =
            models("--loss 1% --delay 10ms --there loss=2%,jitter=1ms,jitter-reorders --back rate=20mbit,queue=30p")
                .unwrap();
        assert_eq!((there.loss, back.loss), (0.02, 0.01));
        assert_eq!(
            (there.delay, back.delay),
            ([10; 2].map(Duration::from_millis)).into()
        );
        assert!(there.jitter_reorders && !back.jitter_reorders);
        assert_eq!((there.rate_bps, back.rate_bps), (0, 20_000_000));
        assert_eq!((back.queue_frames, back.queue_bytes), (30, 0));
        assert_ne!(there.seed, back.seed);
        let [there, back] = models("--mtu 1400 --back mtu-silent --outage 1s+2s").unwrap();
        assert!(there.tell_too_big && !back.tell_too_big);
        assert_eq!(there.outage, back.outage);
        let perfect = models("").unwrap();
        assert!(perfect.iter().all(LinkModel::is_perfect));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_mend() {
        for (arguments, says) in [
            ("--queue 10p", "--rate"),
            ("--there mark-above=10p", "--rate"),
            ("--mtu-silent", "--mtu"),
            ("--jitter-reorders", "--jitter"),
            ("--reorder-by 5", "--reorder"),
            ("--there loss=2", "like 0.01 or 1%"),
            ("--there colour=red", "--colour"),
            ("--back loss", "--loss"),
            ("--rate 20", "like 100mbit"),
            ("--reorder 1% --reorder-by 0", "0"),
        ] {
            let error = models(arguments).unwrap_err();
            assert!(error.contains(says), "{arguments}: {error}");
        }
    }
}
