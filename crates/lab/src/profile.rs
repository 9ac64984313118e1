//! Whose receive was it? Sampling tells, of the time that a processor was busy, how much the kernel spent receiving frames.
//!
//! The kernel receives a frame on the processor that sent it into a veth or TAP device: inside the sender's own call. So of a server's
//! time part is its client's TCP receive, and over veth part of the client's time is the server's. `perf` samples both processors by a timer; samples whose
//! kernel stack passes through the network's receive path are that part. Where there is no `perf`, nothing is told apart.

use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// Samples a second and processor; odd, so as not to run in step with anything.
const FREQUENCY: &str = "1999";

/// Kernel functions below which frames are received.
const RECEIVE: [&str; 3] = [
    "__netif_receive_skb",
    "netif_receive_skb",
    "process_backlog",
];

/// Samples of one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Not idle.
    pub busy: u64,
    /// Of these: in the network's receive path.
    pub receive: u64,
}

impl Samples {
    /// Receiving as a part of the busy time; 0 without samples.
    pub fn receive_share(&self) -> f64 {
        match self.busy {
            0 => 0.0,
            busy => self.receive as f64 / busy as f64,
        }
    }
}

/// Samples of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The server side's processor.
    pub server: Samples,
    /// The client's.
    pub client: Samples,
}

/// A running `perf record`.
pub struct Sampler {
    child: Child,
    cores: [usize; 2],
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Sampler {
    /// Whether there is a `perf`.
    pub fn is_there() -> bool {
        let found = Command::new("perf")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        found.is_ok_and(|status| status.success())
    }

    /// Begins to sample the server's and the client's processor.
    pub fn start(server: usize, client: usize) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("sclab-perf-").tempdir()?;
        let file = folder.path().join("samples");
        let child = Command::new("perf")
            .args([
                "record",
                "-q",
                "-F",
                FREQUENCY,
                "-e",
                "cpu-clock",
                "-g",
                "--kernel-callchains",
            ])
            .args(["-C", &format!("{server},{client}")])
            .arg("-o")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start perf")?;
        Ok(Self {
            child,
            cores: [server, client],
            file,
            _folder: folder,
        })
    }

    /// Ends it and counts. Takes a second or so.
    pub fn finish(mut self) -> anyhow::Result<Profile> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        self.child.wait()?;
        let mut script = Command::new("perf")
            .args(["script", "--no-inline", "-F", "comm,cpu,ip,sym", "-i"])
            .arg(&self.file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start perf script")?;
        let output = script.stdout.take().context("no output of perf script")?;
        let counted = count(std::io::BufReader::new(output), self.cores);
        script.wait()?;
        let profile = counted?;
        if profile.server.busy + profile.client.busy == 0 {
            bail!("perf took no samples: is sampling allowed (sysctl kernel.perf_event_paranoid)?");
        }
        Ok(profile)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Counts what `perf script` prints: for each sample a line `comm [cpu]`, then its stack, then an empty line.
fn count(lines: impl BufRead, cores: [usize; 2]) -> anyhow::Result<Profile> {
    let mut counted = [Samples::default(); 2];
    let mut sample: Option<(usize, bool)> = None;
    let mut receives = false;
    let mut end = |sample: &mut Option<(usize, bool)>, receives: &mut bool| {
        if let Some((side, idle)) = sample.take()
            && (!idle || *receives)
        {
            counted[side].busy += 1;
            counted[side].receive += u64::from(*receives);
        }
        *receives = false;
    };
    for line in lines.lines() {
        let line = line?;
        if line.starts_with(char::is_whitespace) {
            let symbol = line.split_ascii_whitespace().nth(1).unwrap_or("");
            receives |= RECEIVE.iter().any(|name| symbol.starts_with(name));
        } else if line.is_empty() {
            end(&mut sample, &mut receives);
        } else {
            end(&mut sample, &mut receives);
            sample = head(&line, cores);
        }
    }
    end(&mut sample, &mut receives);
    let [server, client] = counted;
    Ok(Profile { server, client })
}

/// Side and idleness of a sample's first line.
fn head(line: &str, cores: [usize; 2]) -> Option<(usize, bool)> {
    let (name, rest) = line.rsplit_once('[')?;
    let core: usize = rest.split(']').next()?.trim().parse().ok()?;
    let side = cores.iter().position(|of| *of == core)?;
    Some((side, name.trim() == "swapper"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_told_apart_by_processor_idleness_and_stack() {
        let text = "sidecore engine [000] \n\tffffffff81 tcp_v4_rcv\n\tffffffff82 __netif_receive_skb_one_core\n\tffffffff83 tun_get_user\n\n\
                    sidecore engine [000] \n\tffffffff81 tun_do_read\n\n\
                    swapper [000] \n\tffffffff81 default_idle\n\n\
                    swapper [000] \n\tffffffff81 process_backlog\n\n\
                    load-0 [001] \n\n\
                    other [007] \n\tffffffff81 netif_receive_skb\n\n\
                    load [x] 0 [001] \n\tffffffff81 netif_receive_skb\n";
        let profile = count(text.as_bytes(), [0, 1]).unwrap();
        let samples = |busy, receive| Samples { busy, receive };
        assert_eq!(
            (profile.server, profile.client),
            (samples(3, 2), samples(2, 1))
        );
        assert_eq!(profile.client.receive_share(), 0.5);
        assert_eq!(Samples::default().receive_share(), 0.0);
    }
}
