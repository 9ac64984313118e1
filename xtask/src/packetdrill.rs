//! Runs packetdrill's own TCP scripts against the stack, those that `crates/packetdrill/eligible.toml` names.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use toml::{Table, Value};

/// A script that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the suite's own runner gives a script over each version of IP.
const V4: &[&str] = &[
    "--gateway_ip=192.168.0.1",
    "--netmask_ip=255.255.0.0",
    "-DTFO_COOKIE=3021b9d889017eeb",
    "-DCODE=host_unreachable",
];
const V6: &[&str] = &[
    "--ip_version=ipv6",
    "--local_ip=fd3d:0a0b:17d6::1",
    "--gateway_ip=fd3d:0a0b:17d6:8888::1",
    "--remote_ip=fd3d:fa7b:d17d::1",
    "-DTFO_COOKIE=c1d1e9742a47a9bc",
];
/// Which addresses there are if a script names none.
const V4_ADDRESSES: [(&str, &str); 2] = [
    ("--local_ip", "--local_ip=192.168.0.1"),
    ("--remote_ip", "--remote_ip=192.0.2.1"),
];
/// What packetdrill itself says to a script that is not for IPv6, before it runs any of it.
const REFUSED: &str = "semantic error: bad ICMP code";
const VARIANTS: [&str; 3] = ["ipv4", "ipv4-mapped-ipv6", "ipv6"];

/// What the command line says.
#[derive(Debug, Default)]
pub(crate) struct Request {
    bin: PathBuf,
    gtests: PathBuf,
    markdown: Option<PathBuf>,
    only: String,
}

impl Request {
    /// Reads the words behind `packetdrill`; none: wrong usage.
    pub(crate) fn of(words: &[&str]) -> Option<Self> {
        let mut request = Self::default();
        for pair in words.chunks(2) {
            match *pair {
                ["--bin", path] => request.bin = path.into(),
                ["--gtests", path] => request.gtests = path.into(),
                ["--markdown", path] => request.markdown = Some(path.into()),
                ["--only", part] => request.only = part.to_string(),
                _ => return None,
            }
        }
        let complete =
            !request.bin.as_os_str().is_empty() && !request.gtests.as_os_str().is_empty();
        complete.then_some(request)
    }
}

/// Runs all and prints a table. The exit code says whether they ran, not whether they passed.
pub(crate) fn run(root: &Path, request: &Request) -> ExitCode {
    match run_all(root, request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("packetdrill: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_all(root: &Path, request: &Request) -> Result<(), String> {
    let list = root.join("crates/packetdrill/eligible.toml");
    let list =
        std::fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let list: Table = list
        .parse()
        .map_err(|error| format!("eligible.toml: {error}"))?;
    let library = build(root)?;
    let (mut table, mut passed, mut total) = (String::new(), 0, 0);
    table.push_str("| script | IPv4 | mapped | IPv6 | where it fails, and why that may be |\n|---|---|---|---|---|\n");
    for name in scripts(&list)
        .iter()
        .filter(|name| name.contains(&request.only))
    {
        let results = run_script(request, &library, name)?;
        let failure = results.iter().find_map(|(_, failure)| failure.as_deref());
        total += 1;
        passed += usize::from(failure.is_none());
        let told = |variant| match results.iter().find(|(ran, _)| *ran == variant) {
            None => "–",
            Some((_, None)) => "ok",
            Some((_, Some(_))) => "**no**",
        };
        let cells = VARIANTS.map(told).join(" | ");
        let note = |table: &str| list.get(table)?.get(name.as_str())?.as_str();
        let why = note("permitted").or(note("open")).unwrap_or_default();
        let why = failure.map_or(String::new(), |line| format!("{line}. {why}"));
        let line = format!("| {name} | {cells} | {} |", why.replace('|', "/"));
        println!("{line}");
        let _ = writeln!(table, "{line}");
    }
    println!("{passed} of {total} pass in every variant");
    if let Some(path) = &request.markdown {
        std::fs::write(path, table).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn scripts(list: &Table) -> Vec<String> {
    let names = list.get("in").and_then(|scripts| scripts.get("scripts"));
    let names = names.and_then(Value::as_array).into_iter().flatten();
    names
        .filter_map(Value::as_str)
        .map(str::to_string)
        .collect()
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "-q", "-p", "sidecore-packetdrill"])
        .current_dir(root);
    let built = build.status().map_err(|error| error.to_string())?;
    if !built.success() {
        return Err("the library does not build".to_string());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("debug/libsidecore_packetdrill.so"))
}

/// Each variant that the script is for, and how it failed.
fn run_script(
    request: &Request,
    library: &Path,
    name: &str,
) -> Result<Vec<(&'static str, Option<String>)>, String> {
    let path = request.gtests.join(format!("net/tcp/{name}.pkt"));
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let named = |option: &str| text.lines().any(|line| line.starts_with(option));
    let own_addresses = V4_ADDRESSES.iter().any(|(option, _)| named(option));
    let mut results = Vec::new();
    for variant in VARIANTS {
        let six = variant == "ipv6";
        // As the suite's own runner; and addresses that a script names are of IPv4.
        if name.ends_with(if six { "v4" } else { "v6" }) || own_addresses && variant != "ipv4" {
            continue;
        }
        let mut command = Command::new(&request.bin);
        command.args(["--send_omit_free", "--code_command=/usr/bin/python3"]);
        // The MSS of 1460 that scripts expect; one of them has another.
        let mtu = if six && !text.contains("mss 1440") {
            1520
        } else {
            1500
        };
        if six {
            command.args(V6).arg(format!("--mtu={mtu}"));
        } else {
            command.arg(format!("--ip_version={variant}")).args(V4);
            let missing = V4_ADDRESSES.iter().filter(|(option, _)| !named(option));
            command.args(missing.map(|(_, argument)| argument));
        }
        command
            .arg(format!("--so_filename={}", library.display()))
            .arg(format!("--so_flags=mtu={mtu}"))
            .arg(path.file_name().unwrap_or_default())
            .current_dir(path.parent().unwrap_or(&request.gtests))
            .env("LD_PRELOAD", library);
        let failure = failure(&mut command)?;
        let refused = failure
            .as_deref()
            .is_some_and(|line| line.contains(REFUSED));
        if !refused {
            results.push((variant, failure));
        }
    }
    Ok(results)
}

/// Runs a script; how it failed.
fn failure(command: &mut Command) -> Result<Option<String>, String> {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    let end = Instant::now() + PATIENCE;
    while child
        .try_wait()
        .map_err(|error| error.to_string())?
        .is_none()
    {
        if Instant::now() > end {
            child.kill().map_err(|error| error.to_string())?;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // The script's line; packetdrill shows the script's own text below it.
    let line = said.lines().find(|line| line.contains(".pkt:"));
    let line = line.or(said.lines().next()).unwrap_or("killed");
    let at = line.split(".pkt:").nth(1).unwrap_or(line);
    Ok(Some(format!("line {}", at.trim())))
}
