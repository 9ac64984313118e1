//! `sidecore stat`: a look into an engine.

mod tcp_info;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::Value;
use sidecore_abi::agent::{Request, RequestKind};

use crate::{agent, socket};

/// Options of `sidecore stat`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print the engine's own JSON document
    #[arg(long)]
    json: bool,
    /// Show counters that are 0, too
    #[arg(long)]
    all: bool,
    /// Show what TCP knows of each connection, as `ss -ti` does
    #[arg(long, short)]
    info: bool,
    /// The engine's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Shows connections, counters and cycles.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let path = socket::path(options.socket.as_deref())?;
    let (_connection, memory) = agent::ask(&path, &Request::new(RequestKind::Stat))?;
    let mut document = File::from(memory);
    let mut text = String::new();
    document.rewind()?;
    document
        .read_to_string(&mut text)
        .context("reading the engine's document")?;
    let value: Value = serde_json::from_str(text.trim_end_matches('\0'))
        .context("the engine's document is not JSON")?;
    let shown = match options.json {
        true => serde_json::to_string_pretty(&value)?,
        false => page(&value, options.all, options.info),
    };
    writeln!(std::io::stdout().lock(), "{}", shown.trim_end())?;
    Ok(())
}

/// The page for people.
fn page(value: &Value, all: bool, info: bool) -> String {
    let mut text = String::new();
    text.push_str(&connections(value, info));
    text.push_str(&cycles(value));
    for (title, part) in [
        ("NIC", &value["nic"]),
        ("Stack", &value["stack"]),
        ("Tables", &value["tables"]),
    ] {
        text.push_str(&counters(title, part, all));
    }
    for ual in value["uals"].as_array().into_iter().flatten() {
        let title = format!("UAL {} (pid {})", ual["id"], ual["pid"]);
        text.push_str(&counters(&title, ual, all));
    }
    text
}

/// Columns of the table of connections: heading, and where the value is.
const COLUMNS: [(&str, &str); 12] = [
    ("State", "/state"),
    ("Recv-Q", "/receive_queue"),
    ("Send-Q", "/send_queue"),
    ("Local address", "/local"),
    ("Peer address", "/remote"),
    ("UAL", "/ual"),
    ("Mode", "/mode"),
    ("RTT µs", "/info/srtt_us"),
    ("cwnd", "/info/cwnd"),
    ("MSS", "/info/effective_mss"),
    ("retrans", "/info/retransmissions"),
    ("ECN", "/info/ecn"),
];

fn connections(value: &Value, info: bool) -> String {
    let lists = [value["sockets"].as_array(), value["connections"].as_array()];
    let cell = |connection: &Value, path: &str| match connection.pointer(path) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(value) => plain(value),
    };
    let head = COLUMNS.map(|(name, _)| name.to_owned());
    let all = || lists.into_iter().flatten().flatten();
    let rows = all().map(|connection| COLUMNS.map(|(_, path)| cell(connection, path)));
    let details = std::iter::once(None).chain(all().map(|c| tcp_info::line(c).filter(|_| info)));
    let rows: Vec<[String; COLUMNS.len()]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(width);
    let mut text = String::new();
    for (row, detail) in rows.iter().zip(details) {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
        if let Some(detail) = detail {
            text.push_str(&format!("      {detail}\n"));
        }
    }
    text
}

/// Where the engine's time went.
fn cycles(value: &Value) -> String {
    let of = |name: &str| value["loop"][name].as_f64().unwrap_or(0.0);
    let (useful, polling, asleep) = (
        of("productive_cycles"),
        of("polling_cycles"),
        of("sleep_cycles"),
    );
    let sum = useful + polling + asleep;
    let percent = |part: f64, whole: f64| {
        if whole > 0.0 {
            100.0 * part / whole
        } else {
            0.0
        }
    };
    let mut text = format!(
        "\nLoop: {} turns, {} productive; {} frames in, {} out; {} commands; {} sleeps, {} naps\n",
        of("turns"),
        of("productive_turns"),
        of("frames_in"),
        of("frames_out"),
        of("commands"),
        of("sleeps"),
        of("naps")
    );
    text.push_str(&format!(
        "Cycles: {:.1} % useful, {:.1} % polling, {:.1} % asleep; of the useful ones\n",
        percent(useful, sum),
        percent(polling, sum),
        percent(asleep, sum)
    ));
    let bins = value["loop"]["bins"].as_object();
    let mut bins: Vec<(&String, f64)> = bins
        .into_iter()
        .flatten()
        .map(|(name, n)| (name, n.as_f64().unwrap_or(0.0)))
        .collect();
    bins.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, cycles) in bins.into_iter().filter(|bin| bin.1 > 0.0) {
        text.push_str(&format!("  {name:<12} {:5.1} %\n", percent(cycles, useful)));
    }
    text
}

/// Counters of a part, one a line; nested ones with their path.
fn counters(title: &str, value: &Value, all: bool) -> String {
    let mut lines = Vec::new();
    flatten("", value, &mut lines);
    let shown = lines.iter().filter(|(_, value)| all || !is_nothing(value));
    let lines: String = shown
        .map(|(name, value)| format!("  {name:<32} {}\n", plain(value)))
        .collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!("\n{title}\n{lines}"),
    }
}

fn flatten<'a>(prefix: &str, value: &'a Value, lines: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if prefix.is_empty() {
                    name.clone()
                } else {
                    format!("{prefix}.{name}")
                };
                flatten(&name, value, lines);
            }
        }
        value => lines.push((prefix.to_owned(), value)),
    }
}

fn is_nothing(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false)) || value.as_f64() == Some(0.0)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_shows_connections_cycles_and_counters_that_are_not_0() {
        let document = json!({
            "loop": {
                "turns": 10, "productive_turns": 4, "frames_in": 3, "frames_out": 3, "commands": 5, "sleeps": 1, "naps": 2,
                "productive_cycles": 300, "polling_cycles": 100, "sleep_cycles": 600,
                "bins": { "driver": 100, "receive": 200, "agent": 0 },
            },
            "nic": { "rx_frames": 3, "tx_dropped": 0, "device_drops": { "to_engine": 7 } },
            "uals": [ { "id": 1, "pid": 42, "gone": false, "dtis": 2 } ],
            "connections": [
                { "state": "Established", "local": "10.0.0.2:80", "remote": "10.0.0.1:5", "ual": 1, "mode": "proxied", "send_queue": 9,
                  "receive_queue": 0, "info": { "srtt_us": 55, "retransmissions": 3 } },
            ],
            "sockets": [
                { "state": "Listen", "local": "10.0.0.2:80", "ual": 1, "send_queue": 128, "receive_queue": 4 },
            ],
        });
        let page = page(&document, false, false);
        for expected in [
            "Listen       4       128     10.0.0.2:80    -             1    -",
            "Established  0       9       10.0.0.2:80    10.0.0.1:5    1    proxied  55      -     -    3        -\n",
            "30.0 % useful, 10.0 % polling, 60.0 % asleep",
            "receive       66.7 %",
            "device_drops.to_engine",
            "UAL 1 (pid 42)",
        ] {
            assert!(
                page.contains(expected),
                "{expected:?} is missing in:\n{page}"
            );
        }
        assert!(
            !page.contains("tx_dropped") && !page.contains("agent") && !page.contains("gone"),
            "{page}"
        );
    }

    #[test]
    fn an_empty_document_makes_an_empty_page() {
        let page = page(&json!({}), true, true);
        assert!(page.starts_with("State"), "{page}");
    }
}
