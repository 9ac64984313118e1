//! TCP options as scripts write them, and as they lie in a segment.

use std::fmt;

/// A TCP option. Sequence numbers and timestamps are relative in scripts and live on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TcpOption {
    Nop,
    Eol,
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Sack(Vec<(u32, u32)>),
    Timestamps(u32, u32),
    /// Kind 34 (RFC 7413), with its cookie.
    FastOpen(Vec<u8>),
    /// Any other kind, with its value.
    Other(u8, Vec<u8>),
}

impl TcpOption {
    fn emit(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, value: &[u8]| {
            out.extend([kind, value.len() as u8 + 2]);
            out.extend_from_slice(value);
        };
        match self {
            Self::Nop => out.push(1),
            Self::Eol => out.push(0),
            Self::Mss(mss) => put(2, &mss.to_be_bytes()),
            Self::WindowScale(shift) => put(3, &[*shift]),
            Self::SackPermitted => put(4, &[]),
            Self::Sack(blocks) => {
                let edges = blocks.iter().flat_map(|(left, right)| [left, right]);
                let bytes: Vec<u8> = edges.flat_map(|edge| edge.to_be_bytes()).collect();
                put(5, &bytes);
            }
            Self::Timestamps(value, echo) => {
                put(8, &[value.to_be_bytes(), echo.to_be_bytes()].concat());
            }
            Self::FastOpen(cookie) => put(34, cookie),
            Self::Other(kind, value) => put(*kind, value),
        }
    }
}

/// The bytes of options, padded to words.
pub(super) fn emit(options: &[TcpOption]) -> Vec<u8> {
    let mut out = Vec::new();
    options.iter().for_each(|option| option.emit(&mut out));
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// The options of a segment. What does not parse ends them.
pub(super) fn parse(mut bytes: &[u8]) -> Vec<TcpOption> {
    let mut options = Vec::new();
    while let [kind, rest @ ..] = bytes {
        let len = match (kind, rest.first()) {
            (0, _) => {
                break;
            }
            (1, _) => {
                options.push(TcpOption::Nop);
                bytes = rest;
                continue;
            }
            (_, Some(len)) => usize::from(*len),
            (_, None) => break,
        };
        let Some(value) = bytes.get(2..len) else {
            break;
        };
        options.push(parse_one(*kind, value));
        bytes = &bytes[len..];
    }
    options
}

fn parse_one(kind: u8, value: &[u8]) -> TcpOption {
    let word = |at: usize| {
        let bytes = value[at..].first_chunk().expect("checked by length");
        u32::from_be_bytes(*bytes)
    };
    match (kind, value.len()) {
        (2, 2) => TcpOption::Mss(u16::from_be_bytes([value[0], value[1]])),
        (3, 1) => TcpOption::WindowScale(value[0]),
        (4, 0) => TcpOption::SackPermitted,
        (5, len) if len % 8 == 0 => {
            let blocks = (0..len).step_by(8).map(|at| (word(at), word(at + 4)));
            TcpOption::Sack(blocks.collect())
        }
        (8, 8) => TcpOption::Timestamps(word(0), word(4)),
        (34, _) => TcpOption::FastOpen(value.to_vec()),
        _ => TcpOption::Other(kind, value.to_vec()),
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for TcpOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nop => f.write_str("nop"),
            Self::Eol => f.write_str("eol"),
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::WindowScale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => f.write_str("sackOK"),
            Self::Sack(blocks) => {
                f.write_str("sack")?;
                let mut blocks = blocks.iter();
                blocks.try_for_each(|(left, right)| write!(f, " {left}:{right}"))
            }
            Self::Timestamps(value, echo) => write!(f, "TS val {value} ecr {echo}"),
            Self::FastOpen(cookie) if cookie.is_empty() => f.write_str("FO"),
            Self::FastOpen(cookie) => write!(f, "FO {}", hex(cookie)),
            Self::Other(kind, value) => write!(f, "kind {kind} {}", hex(value)),
        }
    }
}
