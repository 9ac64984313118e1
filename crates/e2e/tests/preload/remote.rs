//! OpenSSH's clients on the engine, to a server on the kernel's side.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{HOST, available};
use sidecore_e2e::preload::{Meter, Server, command, finish, have};

use crate::body;

/// Where the server listens.
const PORT: u16 = 2222;

/// Bytes that are copied.
const LARGE: usize = 20_000_000;

/// A server with keys of its own, which lets one key in.
fn sshd(ground: &Ground) -> Result<Server> {
    let folder = ground.folder();
    let shown = folder.display();
    for key in ["host", "key"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
        keygen.arg(folder.join(key));
        finish(keygen)?;
    }
    std::fs::copy(folder.join("key.pub"), folder.join("authorized"))?;
    let text = format!(
        "ListenAddress {HOST}:{PORT}\nHostKey {shown}/host\nAuthorizedKeysFile {shown}/authorized\n\
         PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         UsePAM no\nStrictModes no\nPidFile none\nSubsystem sftp internal-sftp\n"
    );
    std::fs::write(folder.join("sshd_config"), text)?;
    // Where it locks its children in.
    std::fs::create_dir_all("/run/sshd")?;
    std::fs::set_permissions("/run/sshd", Permissions::from_mode(0o755))?;
    // It wants its whole name.
    let mut sshd = ground.command("/usr/sbin/sshd");
    sshd.args(["-D", "-e", "-f"])
        .arg(folder.join("sshd_config"));
    Server::start(ground, sshd, SocketAddr::from((HOST, PORT)))
}

/// ssh or scp, with nothing of this machine's own settings.
fn client(ground: &Ground, program: &str) -> Command {
    let mut client = command(ground, program);
    client.args([
        "-F",
        "none",
        "-o",
        "BatchMode=yes",
        "-o",
        "IdentitiesOnly=yes",
    ]);
    client.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]);
    client.args([
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        &format!("Port={PORT}"),
        "-i",
    ]);
    client.arg(ground.folder().join("key"));
    client
}

#[test]
fn ssh_and_scp_reach_the_kernels_side() -> Result<()> {
    if !available() || !have(&["ssh", "scp", "ssh-keygen", "sshd"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let _server = sshd(&ground)?;
    let whole = body(LARGE);
    let file = |name: &str| -> PathBuf { ground.folder().join(name) };
    std::fs::write(file("given"), &whole)?;
    let meter = Meter::new(&ground);
    let mut ssh = client(&ground, "ssh");
    ssh.args([&format!("root@{HOST}"), "exit 7"]);
    let status = finish(ssh)
        .expect_err("the far program's status")
        .to_string();
    assert!(status.contains("exit status: 7"), "{status}");
    // Both directions at once.
    let mut ssh = client(&ground, "ssh");
    ssh.args([&format!("root@{HOST}"), "cat"]);
    ssh.stdin(std::fs::File::open(file("given"))?);
    assert!(finish(ssh)?.stdout == whole, "ssh");
    let there = |name: &str| format!("root@{HOST}:{}", file(name).display());
    let mut scp = client(&ground, "scp");
    scp.arg(file("given")).arg(there("sent"));
    finish(scp)?;
    assert!(std::fs::read(file("sent"))? == whole, "sent");
    let mut scp = client(&ground, "scp");
    scp.arg(there("given")).arg(file("fetched"));
    finish(scp)?;
    assert!(std::fs::read(file("fetched"))? == whole, "fetched");
    assert!(meter.connections() == 4 && meter.bytes() > 4 * LARGE as u64);
    Ok(())
}
