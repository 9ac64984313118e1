//! Names of ICMP messages.

/// Version 4: name and number.
const KINDS_V4: &[(&str, u8)] = &[
    ("echo_reply", 0),
    ("unreachable", 3),
    ("source_quench", 4),
    ("redirect", 5),
    ("echo_request", 8),
    ("time_exceeded", 11),
    ("parameter_problem", 12),
];

/// Version 6.
const KINDS_V6: &[(&str, u8)] = &[
    ("unreachable", 1),
    ("packet_too_big", 2),
    ("time_exceeded", 3),
    ("parameter_problem", 4),
    ("echo_request", 128),
    ("echo_reply", 129),
];

/// Codes of version 4's "unreachable" (RFC 792, RFC 1122 section 3.2.2.1, RFC 1812 section 5.2.7.1).
const CODES_V4: &[(&str, u8)] = &[
    ("net_unreachable", 0),
    ("host_unreachable", 1),
    ("protocol_unreachable", 2),
    ("port_unreachable", 3),
    ("frag_needed", 4),
    ("source_route_failed", 5),
    ("net_unknown", 6),
    ("host_unknown", 7),
    ("source_host_isolated", 8),
    ("net_prohibited", 9),
    ("host_prohibited", 10),
    ("net_unreachable_for_tos", 11),
    ("host_unreachable_for_tos", 12),
    ("packet_filtered", 13),
    ("precedence_violation", 14),
    ("precedence_cutoff", 15),
];

/// Codes of version 6's "unreachable" (RFC 4443 section 3.1).
const CODES_V6: &[(&str, u8)] = &[
    ("no_route", 0),
    ("admin_prohibited", 1),
    ("not_neighbour", 2),
    ("address_unreachable", 3),
    ("port_unreachable", 4),
    ("failed_policy", 5),
    ("rejected_route", 6),
];

/// Codes of "time exceeded".
const CODES_EXCEEDED: &[(&str, u8)] = &[("in_transit", 0), ("reassembly", 1)];

const fn kinds(six: bool) -> &'static [(&'static str, u8)] {
    if six { KINDS_V6 } else { KINDS_V4 }
}

fn codes(six: bool, kind: &str) -> &'static [(&'static str, u8)] {
    match kind {
        "unreachable" if six => CODES_V6,
        "unreachable" => CODES_V4,
        "time_exceeded" => CODES_EXCEEDED,
        _ => &[],
    }
}

fn number(names: &[(&str, u8)], name: &str) -> Option<u8> {
    let found = names.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number).or(name.parse().ok())
}

fn name(names: &[(&str, u8)], number: u8) -> Option<String> {
    let found = names.iter().find(|(_, known)| *known == number);
    found.map(|(name, _)| (*name).to_string())
}

/// The numbers of a type and code.
pub(super) fn numbers(six: bool, kind: &str, code: Option<&str>) -> Option<(u8, u8)> {
    let codes = codes(six, kind);
    let code = code.map_or(Some(0), |code| number(codes, code))?;
    Some((number(kinds(six), kind)?, code))
}

/// The names of a type and code; numbers where there are no names.
pub(super) fn names(six: bool, kind: u8, code: u8) -> (String, Option<String>) {
    let kind = name(kinds(six), kind).unwrap_or_else(|| kind.to_string());
    let codes = codes(six, &kind);
    let code = match name(codes, code) {
        None if code == 0 => None,
        None => Some(code.to_string()),
        named => named,
    };
    (kind, code)
}
