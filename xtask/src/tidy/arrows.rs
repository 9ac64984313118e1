//! Which of our crates may depend on which.

use toml::{Table, Value};

use super::source::package;
use crate::Finding;

/// What our crates are called for cargo: this and the folder's name.
const PREFIX: &str = "sidecore-";

/// May depend on any of ours.
const ANY: &[&str] = &["*"];

/// Who may use whom, by folder in `crates/`. Development dependencies are free: a test of the client
/// may start an engine, the client may not.
const ARROWS: [(&str, &[&str]); 20] = [
    ("wire", &[]),
    ("tcp", &["wire"]),
    ("stack", &["tcp", "wire"]),
    ("abi", &["wire"]),
    ("sys", &[]),
    ("shm", &["abi", "sys"]),
    ("nic", &["sys", "shm", "wire"]),
    (
        "engine",
        &["stack", "tcp", "wire", "nic", "shm", "abi", "sys"],
    ),
    ("client", &["shm", "abi", "sys"]),
    ("capi", &["client", "abi", "sys"]),
    ("preload", &["client", "abi", "sys"]),
    ("exs", &["abi", "sys"]),
    ("proxy", &["client", "abi", "sys"]),
    // The io_uring back-end needs the safe wrappers of `sys`.
    ("userver", &["client", "sys"]),
    (
        "lab",
        &[
            "client", "userver", "engine", "stack", "tcp", "nic", "wire", "sys", "shm", "abi",
        ],
    ),
    ("cli", ANY),
    ("testkit", &["stack", "tcp", "wire"]),
    ("packetdrill", &["testkit", "stack", "tcp", "wire"]),
    ("clibs", &[]),
    ("e2e", ANY),
];

/// The arrows of one `Cargo.toml`.
pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let name = package(path);
    if !path.starts_with("crates/") {
        return;
    }
    let Ok(manifest) = text.parse::<Table>() else {
        findings.push(Finding::new(path, 1, "is no TOML", "make cargo read it"));
        return;
    };
    let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
        let what = format!("crate `{name}` has no place in the table of dependencies");
        let mend = "say in xtask/src/tidy/arrows.rs what it may use";
        findings.push(Finding::new(path, 1, what, mend));
        return;
    };
    for (key, target) in ours(&manifest) {
        if *allowed != ANY && !allowed.contains(&target.as_str()) {
            let what = format!("`{name}` must not depend on `{target}`");
            let mend = match allowed {
                [] => "it may use none of ours".to_string(),
                allowed => format!("it may use {}", allowed.join(", ")),
            };
            findings.push(Finding::new(path, line_of_key(text, &key), what, mend));
        }
    }
}

/// Our crates among the dependencies and build dependencies, for all targets: the key, and the folder
/// that it stands for.
fn ours(manifest: &Table) -> Vec<(String, String)> {
    let for_targets = manifest.get("target").and_then(Value::as_table);
    let tables = for_targets
        .into_iter()
        .flat_map(Table::values)
        .filter_map(Value::as_table);
    let mut found = Vec::new();
    for table in tables.chain([manifest]) {
        for section in ["dependencies", "build-dependencies"] {
            for (key, value) in table
                .get(section)
                .and_then(Value::as_table)
                .into_iter()
                .flatten()
            {
                let renamed = value.get("package").and_then(Value::as_str);
                if let Some(folder) = renamed.unwrap_or(key).strip_prefix(PREFIX) {
                    found.push((key.clone(), folder.to_string()));
                }
            }
        }
    }
    found
}

/// The line that names a key, outside the section of development dependencies.
fn line_of_key(text: &str, key: &str) -> usize {
    let mut section = "";
    let line = text.lines().map(str::trim).position(|line| {
        if line.starts_with('[') {
            section = line;
        }
        let here = line.starts_with(key) || (line == section && line.contains(key));
        here && !section.contains("dev-dependencies")
    });
    line.map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::found;

    #[test]
    fn an_arrow_upwards() {
        let text = "[package]\nname = \"sidecore-client\"\n\n[dependencies]\n\
                    sidecore-shm.workspace = true\nsidecore-engine.workspace = true\n";
        let upwards = ["6: `client` must not depend on `engine`"];
        assert_eq!(found("crates/client/Cargo.toml", text), upwards);
    }

    #[test]
    fn every_way_to_write_a_dependency() {
        for text in [
            "[dependencies]\nsidecore-tcp = { path = \"../tcp\" }\n",
            "[dependencies]\nlower = { package = \"sidecore-tcp\", path = \"../tcp\" }\n",
            "[dependencies.sidecore-tcp]\npath = \"../tcp\"\n",
            "[build-dependencies]\nsidecore-tcp.workspace = true\n",
            "[target.'cfg(unix)'.dependencies]\nsidecore-tcp.workspace = true\n",
            "[dev-dependencies]\nsidecore-tcp = \"*\"\n[dependencies]\nsidecore-tcp = \"*\"\n",
        ] {
            let found = found("crates/wire/Cargo.toml", text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(
                found[0].ends_with(": `wire` must not depend on `tcp`"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn development_dependencies_and_those_of_others_are_free() {
        let text = "[dependencies]\nlibc = \"0.2\"\n[dev-dependencies]\nsidecore-engine = \"*\"\n";
        assert_eq!(found("crates/client/Cargo.toml", text), [""; 0]);
    }

    #[test]
    fn arrows_of_the_table_are_allowed() {
        for (from, allowed) in ARROWS {
            let allowed = if allowed == ANY { &["engine"] } else { allowed };
            let lines = allowed
                .iter()
                .map(|to| format!("{PREFIX}{to}.workspace = true\n"));
            let text = format!("[dependencies]\n{}", lines.collect::<String>());
            assert_eq!(found(&format!("crates/{from}/Cargo.toml"), &text), [""; 0]);
        }
    }

    #[test]
    fn the_table_has_no_cycle() {
        // Each crate only uses those that can be listed before it.
        let mut listed: Vec<&str> = Vec::new();
        while listed.len() < ARROWS.len() {
            let next = ARROWS.iter().find(|(from, to)| {
                let known = |to: &&str| listed.contains(to) || *to == "*";
                !listed.contains(from) && to.iter().all(known)
            });
            listed.push(next.expect("a cycle").0);
        }
    }

    #[test]
    fn a_crate_that_the_table_does_not_know() {
        let found = found("crates/novel/Cargo.toml", "[dependencies]\n");
        assert_eq!(
            found,
            ["1: crate `novel` has no place in the table of dependencies"]
        );
    }

    #[test]
    fn what_is_no_toml_is_a_finding() {
        assert_eq!(found("crates/tcp/Cargo.toml", "[[["), ["1: is no TOML"]);
    }

    #[test]
    fn other_manifests_are_free() {
        let text = "[workspace.dependencies]\nsidecore-engine = \"*\"\n";
        assert_eq!(found("Cargo.toml", text), [""; 0]);
        assert_eq!(
            found(
                "fuzz/Cargo.toml",
                "[dependencies]\nsidecore-engine = \"*\"\n"
            ),
            [""; 0]
        );
    }
}
