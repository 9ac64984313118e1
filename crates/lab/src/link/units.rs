//! Probabilities, times, rates and sizes as people write them.

use std::time::Duration;

use sidecore_nic::link::Outage;

/// So much of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// Bytes of frames.
    Bytes(u64),
    /// Frames.
    Frames(u32),
}

/// A probability: `0.01` or `1%`.
pub(super) fn parse_probability(text: &str) -> Result<f64, String> {
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
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    scaled(text, &units)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("'{text}' is not a time with its unit, like 250us, 10ms or 2s"))
}

/// Bits per second: `100mbit`, `2.5gbit`.
pub(super) fn parse_rate(text: &str) -> Result<u64, String> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
    scaled(text, &units)
        .map(|bits| bits as u64)
        .ok_or_else(|| format!("'{text}' is not a rate with its unit, like 100mbit or 2.5gbit"))
}

/// Frames or bytes: `100p`, `1500`, `64k`, `2m`.
pub(super) fn parse_amount(text: &str) -> Result<Amount, String> {
    let bytes = [("k", 1024.0), ("m", 1024.0 * 1024.0), ("", 1.0)];
    let amount = match text.strip_suffix('p') {
        Some(number) => number.parse().ok().map(Amount::Frames),
        None => scaled(text, &bytes).map(|bytes| Amount::Bytes(bytes as u64)),
    };
    amount
        .filter(|amount| !matches!(amount, Amount::Bytes(0) | Amount::Frames(0)))
        .ok_or_else(|| {
            format!("'{text}' is neither frames, like 100p, nor bytes, like 1500, 64k or 2m")
        })
}

/// Bytes of an IP packet.
pub(super) fn parse_mtu(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(mtu) if mtu >= 68 => Ok(mtu),
        _ => Err(format!("'{text}' is not an MTU in bytes, from 68 to 65535")),
    }
}

/// When nothing passes: `2s+500ms`, or again and again `2s+500ms/10s`.
pub(super) fn parse_outage(text: &str) -> Result<Outage, String> {
    let times = || {
        let (after, rest) = text.split_once('+')?;
        let (length, every) = rest.split_once('/').unwrap_or((rest, "0s"));
        let outage = Outage {
            after: parse_time(after).ok()?,
            length: parse_time(length).ok()?,
            every: parse_time(every).ok()?,
        };
        let repeats_too_soon = !outage.every.is_zero() && outage.every <= outage.length;
        (!repeats_too_soon).then_some(outage)
    };
    times().ok_or_else(|| {
        format!("'{text}' is not AFTER+LENGTH[/EVERY], like 2s+500ms or 2s+500ms/10s (EVERY longer than LENGTH)")
    })
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
        assert_eq!(parse_amount("64k"), Ok(Amount::Bytes(65_536)));
        assert_eq!(parse_amount("1500"), Ok(Amount::Bytes(1500)));
        assert_eq!(parse_amount("20p"), Ok(Amount::Frames(20)));
        assert_eq!(parse_mtu("1400"), Ok(1400));
        let outage = Outage {
            after: Duration::from_secs(2),
            length: Duration::from_millis(500),
            every: Duration::ZERO,
        };
        assert_eq!(parse_outage("2s+500ms"), Ok(outage));
        let every = Duration::from_secs(10);
        assert_eq!(parse_outage("2s+500ms/10s"), Ok(Outage { every, ..outage }));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for bad in ["2", "-1", "150%", "x", ""] {
            let error = parse_probability(bad).unwrap_err();
            assert!(error.contains("like"), "{bad}");
        }
        for bad in ["10", "-1s", "NaNs", "s", ""] {
            assert!(parse_time(bad).unwrap_err().contains("like"), "{bad}");
        }
        for bad in ["-1k", "0", "0p", "1.5p", "p", "many"] {
            assert!(parse_amount(bad).unwrap_err().contains("like"), "{bad}");
        }
        for bad in ["2s", "2s+", "+1s", "1s+2s/1s", "1s+2s/2s"] {
            assert!(parse_outage(bad).unwrap_err().contains("like"), "{bad}");
        }
        assert!(parse_rate("fast").is_err());
        assert!(parse_mtu("67").is_err() && parse_mtu("65536").is_err());
    }
}
