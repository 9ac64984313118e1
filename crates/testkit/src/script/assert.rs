//! `%{ … }%`: comparisons of what TCP_INFO tells.

use super::names;

/// Fields of `struct tcp_info`: name, first byte, size in bytes.
const FIELDS: &[(&str, usize, usize)] = &[
    ("tcpi_state", 0, 1),
    ("tcpi_ca_state", 1, 1),
    ("tcpi_retransmits", 2, 1),
    ("tcpi_probes", 3, 1),
    ("tcpi_backoff", 4, 1),
    ("tcpi_options", 5, 1),
    ("tcpi_rto", 8, 4),
    ("tcpi_ato", 12, 4),
    ("tcpi_snd_mss", 16, 4),
    ("tcpi_rcv_mss", 20, 4),
    ("tcpi_unacked", 24, 4),
    ("tcpi_sacked", 28, 4),
    ("tcpi_lost", 32, 4),
    ("tcpi_retrans", 36, 4),
    ("tcpi_last_data_recv", 52, 4),
    ("tcpi_pmtu", 60, 4),
    ("tcpi_rtt", 68, 4),
    ("tcpi_rttvar", 72, 4),
    ("tcpi_snd_ssthresh", 76, 4),
    ("tcpi_snd_cwnd", 80, 4),
    ("tcpi_advmss", 84, 4),
    ("tcpi_reordering", 88, 4),
    ("tcpi_total_retrans", 100, 4),
    ("tcpi_pacing_rate", 104, 8),
    ("tcpi_bytes_acked", 120, 8),
    ("tcpi_bytes_received", 128, 8),
    ("tcpi_segs_out", 136, 4),
    ("tcpi_segs_in", 140, 4),
    ("tcpi_notsent_bytes", 144, 4),
    ("tcpi_min_rtt", 148, 4),
    ("tcpi_data_segs_in", 152, 4),
    ("tcpi_data_segs_out", 156, 4),
    ("tcpi_delivery_rate", 160, 8),
    ("tcpi_delivered", 192, 4),
    ("tcpi_delivered_ce", 196, 4),
    ("tcpi_bytes_sent", 200, 8),
    ("tcpi_bytes_retrans", 208, 8),
    ("tcpi_dsack_dups", 216, 4),
    ("tcpi_reord_seen", 220, 4),
    ("tcpi_rcv_ooopack", 224, 4),
    ("tcpi_snd_wnd", 228, 4),
    ("tcpi_rcv_wnd", 232, 4),
];

/// One of TCP_INFO's fields.
fn field(info: &[u8], name: &str) -> Option<i64> {
    let (_, at, size) = FIELDS.iter().find(|(known, ..)| *known == name)?;
    let mut bytes = [0; 8];
    bytes[..*size].copy_from_slice(info.get(*at..at + size)?);
    Some(u64::from_le_bytes(bytes) as i64)
}

/// Runs a block: `pass`, or `assert a == b` with `and` between comparisons. `counter` knows the stack's counters, under names
/// that begin with `stack_`.
///
/// # Errors
/// What does not hold, or cannot be read.
pub(super) fn run(
    block: &str,
    info: &[u8],
    counter: impl Fn(&str) -> Option<i64>,
) -> Result<(), String> {
    let value = |term: &str| {
        let parsed = term.parse().ok().or_else(|| names::number(term));
        let parsed = parsed.or_else(|| field(info, term));
        let parsed = parsed.or_else(|| counter(term.strip_prefix("stack_")?));
        parsed.ok_or_else(|| format!("{term:?} is neither a number nor a field"))
    };
    let statements = block.split(['\n', ';']);
    for statement in statements.map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if matches!(statement, "" | "pass") {
            continue;
        }
        let Some(condition) = statement.strip_prefix("assert ") else {
            return Err(format!("{statement:?}: only assertions are run here"));
        };
        // Behind a comma stands what to say.
        let condition = condition.split(',').next().unwrap_or_default();
        for comparison in condition.split(" and ") {
            compare(comparison.trim(), value)?;
        }
    }
    Ok(())
}

fn compare(comparison: &str, value: impl Fn(&str) -> Result<i64, String>) -> Result<(), String> {
    for operator in ["==", "!=", "<=", ">=", "<", ">"] {
        let Some((left, right)) = comparison.split_once(operator) else {
            continue;
        };
        let (left, right) = (left.trim(), right.trim());
        let (a, b) = (value(left)?, value(right)?);
        let holds = match operator {
            "==" => a == b,
            "!=" => a != b,
            "<=" => a <= b,
            ">=" => a >= b,
            "<" => a < b,
            _ => a > b,
        };
        if holds {
            return Ok(());
        }
        return Err(format!("{comparison} does not hold: {left} is {a}"));
    }
    Err(format!("{comparison:?} is no comparison"))
}
