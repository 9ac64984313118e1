//! Reads packets.

use super::Failure;
use super::lexer::Cursor;
use super::options::TcpOption;
use super::syntax::{Body, Icmp, Ip, Packet, Quote, Tcp, Tos, flag};

/// Reads what stands behind `<` or `>`.
pub(super) fn packet(cursor: &mut Cursor<'_>) -> Result<Packet, Failure> {
    let mut ip = Ip::default();
    while cursor.takes("[") {
        ip_info(cursor, &mut ip)?;
        cursor.expects("]")?;
    }
    if cursor.takes("(") {
        ip_info(cursor, &mut ip)?;
        cursor.expects(")")?;
    }
    if cursor.takes_word("udp") {
        let ports = ports(cursor)?;
        let body = Body::Udp(length(cursor)?);
        return Ok(Packet { ip, ports, body });
    }
    if cursor.takes_word("icmp") || cursor.takes_word("icmpv6") {
        let body = Body::Icmp(icmp(cursor)?);
        let ports = None;
        return Ok(Packet { ip, ports, body });
    }
    let ports = ports(cursor)?;
    let body = Body::Tcp(tcp(cursor)?);
    Ok(Packet { ip, ports, body })
}

/// A packet that comes in is complete: a window is not chosen for it.
pub(super) fn check_inbound(cursor: &Cursor<'_>, packet: &Packet) -> Result<(), Failure> {
    let Body::Tcp(tcp) = &packet.body else {
        return Ok(());
    };
    if tcp.options.is_none() {
        return cursor.fail("an inbound segment needs its options: <...> is for outbound ones");
    }
    if tcp.window.is_none() && tcp.flags & flag::RST == 0 {
        return cursor.fail("an inbound segment needs a window: win N");
    }
    Ok(())
}

fn ip_info(cursor: &mut Cursor<'_>, ip: &mut Ip) -> Result<(), Failure> {
    loop {
        match cursor.word()? {
            "noecn" => ip.tos = Some(Tos::Ecn(0)),
            "ect1" => ip.tos = Some(Tos::Ecn(1)),
            "ect0" => ip.tos = Some(Tos::Ecn(2)),
            "ce" => ip.tos = Some(Tos::Ecn(3)),
            "ect01" => ip.tos = Some(Tos::Ect01),
            "tos" => ip.tos = Some(Tos::Whole(cursor.number("tos")?)),
            "ttl" => ip.ttl = Some(cursor.number("ttl")?),
            "badsum" => ip.bad_checksum = true,
            other => return cursor.fail(format!("nothing is known of {other:?} in an IP header")),
        }
        if !cursor.takes(",") {
            return Ok(());
        }
    }
}

fn ports(cursor: &mut Cursor<'_>) -> Result<Option<(u16, u16)>, Failure> {
    if !cursor.rest().starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(None);
    }
    let src = cursor.number("a port")?;
    cursor.expects(">")?;
    Ok(Some((src, cursor.number("a port")?)))
}

fn length(cursor: &mut Cursor<'_>) -> Result<u16, Failure> {
    cursor.expects("(")?;
    let len = cursor.number("a length")?;
    cursor.expects(")")?;
    Ok(len)
}

/// Letters of flags. They may end with a dot, or be none.
fn flags(cursor: &mut Cursor<'_>) -> Result<u16, Failure> {
    if cursor.takes("-") {
        return Ok(0);
    }
    let mut bits = 0;
    for letter in cursor.word_ahead().chars() {
        match flag::NAMES.iter().find(|(name, _)| *name == letter) {
            Some((_, bit)) => bits |= bit,
            None => return cursor.fail(format!("{letter:?} is no flag")),
        }
    }
    if bits != 0 {
        cursor.word()?;
    }
    if cursor.takes(".") {
        bits |= flag::ACK;
    }
    if bits == 0 {
        return cursor.fail("expected flags");
    }
    Ok(bits)
}

/// `start:end(length)`.
fn sequence(cursor: &mut Cursor<'_>) -> Result<(u32, u16), Failure> {
    let start: u32 = cursor.number("a sequence number")?;
    cursor.expects(":")?;
    let end: u32 = cursor.number("a sequence number")?;
    let len = length(cursor)?;
    if start.wrapping_add(u32::from(len)) != end {
        return cursor.fail(format!("{start}:{end} are not {len} bytes"));
    }
    Ok((start, len))
}

fn tcp(cursor: &mut Cursor<'_>) -> Result<Tcp, Failure> {
    let flags = flags(cursor)?;
    let (seq, len) = sequence(cursor)?;
    let mut tcp = Tcp {
        flags,
        seq,
        len,
        ack: 0,
        window: None,
        urgent: 0,
        options: Some(Vec::new()),
    };
    if cursor.takes_word("ack") {
        tcp.ack = cursor.number("an acknowledgment")?;
    } else if flags & flag::ACK != 0 {
        return cursor.fail("an ACK without \"ack N\"");
    }
    if cursor.takes_word("win") {
        tcp.window = Some(cursor.number("a window")?);
    }
    if cursor.takes_word("urg") {
        tcp.urgent = cursor.number("an urgent pointer")?;
    }
    if cursor.takes("<") {
        tcp.options = options(cursor)?;
    }
    Ok(tcp)
}

fn options(cursor: &mut Cursor<'_>) -> Result<Option<Vec<TcpOption>>, Failure> {
    if cursor.takes("...") {
        cursor.expects(">")?;
        return Ok(None);
    }
    let mut options = Vec::new();
    loop {
        options.push(option(cursor)?);
        if cursor.takes(">") {
            return Ok(Some(options));
        }
        cursor.expects(",")?;
    }
}

fn option(cursor: &mut Cursor<'_>) -> Result<TcpOption, Failure> {
    Ok(match cursor.word()? {
        "nop" => TcpOption::Nop,
        "eol" => TcpOption::Eol,
        "mss" => TcpOption::Mss(cursor.number("an MSS")?),
        "wscale" => TcpOption::WindowScale(cursor.number("a window scale")?),
        "sackOK" => TcpOption::SackPermitted,
        "sack" => {
            let mut blocks = Vec::new();
            while cursor.rest().starts_with(|c: char| c.is_ascii_digit()) {
                let left = cursor.number("a sequence number")?;
                cursor.expects(":")?;
                blocks.push((left, cursor.number("a sequence number")?));
            }
            TcpOption::Sack(blocks)
        }
        "TS" => {
            cursor.expects("val")?;
            let value = cursor.number("a timestamp")?;
            cursor.expects("ecr")?;
            TcpOption::Timestamps(value, cursor.number("a timestamp")?)
        }
        "FO" => TcpOption::FastOpen(blob(cursor)?),
        "kind" => TcpOption::Other(cursor.number("a kind")?, blob(cursor)?),
        other => return cursor.fail(format!("{other:?} is no option")),
    })
}

/// Hexadecimal digits, or nothing.
fn blob(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, Failure> {
    let digits = cursor.word_ahead();
    if digits.is_empty() {
        return Ok(Vec::new());
    }
    let bytes: Option<Vec<u8>> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect();
    let Some(bytes) = bytes else {
        return cursor.fail(format!("{digits:?} are no bytes in hexadecimal digits"));
    };
    cursor.word()?;
    Ok(bytes)
}

fn icmp(cursor: &mut Cursor<'_>) -> Result<Icmp, Failure> {
    let mut icmp = Icmp {
        kind: cursor.word()?.to_string(),
        code: None,
        mtu: None,
        id: None,
        quote: None,
    };
    if !matches!(cursor.word_ahead(), "" | "mtu" | "id") && !at_event(cursor) {
        icmp.code = Some(cursor.word()?.to_string());
    }
    if cursor.takes_word("mtu") {
        icmp.mtu = Some(cursor.number("an MTU")?);
    }
    if cursor.takes_word("id") {
        icmp.id = Some(cursor.number("an identifier")?);
    }
    if cursor.takes("[") {
        icmp.quote = Some(if cursor.takes_word("udp") {
            Quote::Udp {
                len: length(cursor)?,
            }
        } else {
            let (seq, len) = sequence(cursor)?;
            Quote::Tcp { seq, len }
        });
        cursor.expects("]")?;
    }
    Ok(icmp)
}

/// Whether the next event's time begins here.
fn at_event(cursor: &Cursor<'_>) -> bool {
    cursor.rest().starts_with(|c: char| c.is_ascii_digit())
}
