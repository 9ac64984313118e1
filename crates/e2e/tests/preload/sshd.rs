//! OpenSSH's server on the engine, with its separated privileges and its sandbox as they are.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::preload::{Server, command, finish, finish_within, have};

use super::{body, engine};

const PORT: u16 = 2022;

/// Encrypting and moving this much takes a while where the machine has much else to do.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(240);

/// The test's own keys and configuration.
struct Keys {
    folder: PathBuf,
}

impl Keys {
    fn make(ground: &Ground) -> Result<Self> {
        let folder = ground.folder().join("ssh");
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            finish({
                keygen.arg(folder.join(name));
                keygen
            })?;
        }
        std::fs::copy(folder.join("user.pub"), folder.join("authorized"))?;
        let text = format!(
            "Port {PORT}\nListenAddress {ENGINE}\nHostKey {host}\nAuthorizedKeysFile {keys}\nStrictModes no\n\
             PermitRootLogin yes\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\nMaxStartups 100\n",
            host = folder.join("host").display(),
            keys = folder.join("authorized").display(),
        );
        std::fs::write(folder.join("config"), text)?;
        Ok(Self { folder })
    }

    /// ssh, scp or sftp on the kernel's side.
    fn client(&self, ground: &Ground, program: &str) -> Command {
        let mut client = ground.command(program);
        let option = |name: &str, value: &str| ["-o".to_owned(), format!("{name}={value}")];
        client.args(["-F", "/dev/null", "-i"]);
        client.arg(self.folder.join("user"));
        client.args(option("StrictHostKeyChecking", "no"));
        client.args(option("UserKnownHostsFile", "/dev/null"));
        client.args(option("IdentitiesOnly", "yes"));
        client.args(option("LogLevel", "ERROR"));
        client.args(option("Port", &PORT.to_string()));
        client
    }

    fn run(&self, ground: &Ground, line: &str) -> Result<Vec<u8>> {
        let mut ssh = self.client(ground, "ssh");
        ssh.arg(format!("root@{ENGINE}")).arg(line);
        Ok(finish_within(ssh, PATIENCE)?.stdout)
    }
}

/// The server, and nothing in it that is not Debian's.
fn start(ground: &Ground, keys: &Keys) -> Result<Server> {
    // Where its unprivileged half lives; made at boot by others.
    std::fs::create_dir_all("/run/sshd")?;
    let mut sshd = command(ground, "/usr/sbin/sshd");
    sshd.args(["-D", "-e", "-f"])
        .arg(keys.folder.join("config"));
    Server::start(ground, sshd, engine(PORT))
}

fn ready() -> bool {
    let programs = ["sshd", "ssh", "scp", "sftp", "ssh-keygen"];
    available() && have(&programs) && rustix::process::geteuid().is_root()
}

fn same(at: &Path, wished: &[u8]) -> Result<()> {
    let found = std::fs::read(at)?;
    ensure!(found == wished, "{}: {} bytes", at.display(), found.len());
    Ok(())
}

#[test]
fn sshd_runs_commands_and_moves_files() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let keys = Keys::make(&ground)?;
    let mut server = start(&ground, &keys)?;
    assert_eq!(keys.run(&ground, "echo hello; id -u")?, b"hello\n0\n");
    // The peer's address is the one that the engine knows.
    let told = String::from_utf8(keys.run(&ground, "echo $SSH_CONNECTION")?)?;
    let words: Vec<&str> = told.split_whitespace().collect();
    assert_eq!(words[2..], [ENGINE.to_string(), PORT.to_string()]);
    assert_eq!(
        keys.run(&ground, "head -c 3000000 /dev/zero")?,
        vec![0; 3_000_000]
    );
    let sent = body(20_000_000);
    let (ours, theirs, back) = (
        ground.folder().join("ours"),
        ground.folder().join("theirs"),
        ground.folder().join("back"),
    );
    std::fs::write(&ours, &sent)?;
    let remote = format!("root@{ENGINE}:{}", theirs.display());
    let mut scp = keys.client(&ground, "scp");
    scp.arg(&ours).arg(&remote);
    finish_within(scp, PATIENCE)?;
    same(&theirs, &sent)?;
    let mut sftp = keys.client(&ground, "sftp");
    sftp.arg(&remote).arg(&back);
    finish_within(sftp, PATIENCE)?;
    same(&back, &sent)?;
    server.end();
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["in_custody"] == 0
    });
    Ok(())
}

#[test]
fn sshd_serves_several_at_once() -> Result<()> {
    if !ready() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let keys = Keys::make(&ground)?;
    let _server = start(&ground, &keys)?;
    let answers: Vec<Result<Vec<u8>>> = std::thread::scope(|scope| {
        let one = |number: usize| {
            let (keys, ground) = (&keys, &ground);
            scope.spawn(move || keys.run(ground, &format!("sleep 0.3; seq {number} 20000")))
        };
        let all: Vec<_> = (0..6).map(one).collect();
        all.into_iter()
            .map(|one| one.join().expect("ssh"))
            .collect()
    });
    for (number, answer) in answers.into_iter().enumerate() {
        let wished: String = (number..=20000).map(|line| format!("{line}\n")).collect();
        assert!(answer? == wished.as_bytes(), "{number}");
    }
    Ok(())
}
