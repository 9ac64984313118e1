//! PostgreSQL: a server that forks for each connection.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::preload::{Server, command, finish, have};

use super::engine;

/// Where Debian keeps the server's programs.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// What it is told beside the defaults.
const SETTINGS: &str = "
listen_addresses = '10.77.0.2'
port = 5432
fsync = off
shared_buffers = 16MB
max_connections = 40
";

/// User and group of the server, which does not run as root.
fn user() -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// A database in `folder`.
fn initialize(folder: &Path, (uid, gid): (u32, u32)) -> Result<()> {
    std::fs::create_dir(folder)?;
    chown(folder, Some(uid), Some(gid))?;
    let mut initdb = Command::new(format!("{PROGRAMS}/initdb"));
    initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "-D"]);
    initdb.arg(folder).uid(uid).gid(gid);
    finish(initdb)?;
    let append = |name: &str, text: &str| -> Result<()> {
        let path = folder.join(name);
        let known = std::fs::read_to_string(&path)?;
        Ok(std::fs::write(path, known + text)?)
    };
    let sockets = format!("unix_socket_directories = '{}'\n", folder.display());
    append("postgresql.conf", &(SETTINGS.to_owned() + &sockets))?;
    append("pg_hba.conf", "host all all 10.77.0.0/24 trust\n")
}

/// How many of the server's connections go so.
fn connections(stat: &Value, mode: &str) -> usize {
    let ours = |connection: &&Value| {
        let local = connection["local"].as_str();
        local.is_some_and(|local| local.ends_with(":5432")) && connection["mode"] == mode
    };
    let all = stat["connections"].as_array();
    all.map_or(0, |all| all.iter().filter(ours).count())
}

#[test]
fn postgresql_serves_its_benchmark_and_each_of_its_processes_is_fast() -> Result<()> {
    if !available() || !have(&["pgbench", "psql"]) {
        return Ok(());
    }
    let Some(user) = user().filter(|_| Path::new(PROGRAMS).exists()) else {
        eprintln!("skipped: no PostgreSQL 15 (make setup-test installs it)");
        return Ok(());
    };
    let ground = Ground::new()?;
    // Its user may open a UAL.
    let folder = ground.socket().parent().context("a folder")?.to_owned();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755))?;
    std::fs::set_permissions(ground.socket(), PermissionsExt::from_mode(0o666))?;
    let data = folder.join("data");
    initialize(&data, user)?;
    let mut postgres = command(&ground, &format!("{PROGRAMS}/postgres"));
    postgres.arg("-D").arg(&data).uid(user.0).gid(user.1);
    let _server = Server::start(&ground, postgres, engine(5432))?;
    let host = ENGINE.to_string();
    let to_it = ["-h", host.as_str(), "-U", "postgres"];
    let mut fill = ground.command("pgbench");
    fill.args(to_it).args(["-i", "-q", "-s", "1", "postgres"]);
    finish(fill)?;
    let load = {
        let mut bench = ground.command("pgbench");
        bench
            .args(to_it)
            .args(["-c", "6", "-j", "2", "-T", "5", "postgres"]);
        std::thread::spawn(move || finish(bench))
    };
    ground.eventually("six connections are fast", |stat| {
        connections(stat, "fast") == 6
    });
    let told = load.join().ok().context("pgbench")??;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("number of failed transactions: 0 "), "{told}");
    // The figures add up in what it wrote.
    let mut sum = ground.command("psql");
    let query = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)";
    sum.args(to_it).args(["-At", "-c", query, "postgres"]);
    assert_eq!(finish(sum)?.stdout, b"t\n");
    // A result of many segments.
    let mut large = ground.command("psql");
    let query = "select repeat('0123456789', 1000) from generate_series(1, 1000)";
    large.args(to_it).args(["-At", "-c", query, "postgres"]);
    let all = finish(large)?.stdout;
    assert!(all == ("0123456789".repeat(1000) + "\n").repeat(1000).as_bytes());
    ground.eventually("nothing is left in custody", |stat| {
        stat["in_custody"] == 0 && connections(stat, "fast") == 0
    });
    Ok(())
}
