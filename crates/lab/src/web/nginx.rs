//! nginx as a foreign baseline, if it is installed: one worker, no log, keep-alive without end, open files kept.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Resource, getrlimit};
use sidecore_sys::netns;

/// Where the program is, if it is there.
pub fn program() -> Option<PathBuf> {
    crate::programs::find("nginx")
}

/// A running nginx. It is ended when this is dropped.
pub struct Nginx {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// Starts nginx in a namespace, its worker bound to a processor, and waits until it serves.
    pub fn start(
        program: &Path,
        namespace: &str,
        root: &Path,
        listen: SocketAddr,
        core: usize,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("sclab-nginx-").tempdir()?;
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration(folder.path(), root, listen, core))?;
        let child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .arg(program)
            .args(["-e", "stderr", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start nginx")?;
        let mut nginx = Self {
            child,
            _folder: folder,
        };
        nginx.wait_for(namespace, listen)?;
        Ok(nginx)
    }

    fn wait_for(&mut self, namespace: &str, listen: SocketAddr) -> anyhow::Result<()> {
        let last = Instant::now() + Duration::from_secs(5);
        let connect = || TcpStream::connect_timeout(&listen, Duration::from_secs(1));
        while Instant::now() < last {
            if let Some(status) = self.child.try_wait()? {
                bail!("nginx ended with {status}");
            }
            if netns::with_netns(namespace, connect)?.is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("nginx does not serve at {listen}")
    }

    /// The master and its worker.
    pub fn processes(&self) -> Vec<u32> {
        let master = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children"))
            .unwrap_or_default();
        let workers = children
            .split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok());
        std::iter::once(master).chain(workers).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM lets the master end its worker.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let last = Instant::now() + Duration::from_secs(2);
        while Instant::now() < last {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A configuration: one worker, keep-alive without end.
pub fn configuration(folder: &Path, root: &Path, listen: SocketAddr, core: usize) -> String {
    let mask = format!("1{}", "0".repeat(core));
    let (folder, root) = (folder.display(), root.display());
    // No more than it may have: it says so on standard error for each start.
    let descriptors = getrlimit(Resource::Nofile)
        .maximum
        .unwrap_or(100_000)
        .min(100_000);
    let connections = descriptors / 2;
    format!(
        "daemon off; pid {folder}/pid; user root; worker_processes 1; worker_cpu_affinity {mask}; worker_rlimit_nofile {descriptors};\n\
         events {{ worker_connections {connections}; use epoll; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush off; tcp_nodelay on; keepalive_requests 1000000000; keepalive_timeout 600;\n\
         open_file_cache max=10000 inactive=600s; open_file_cache_valid 600s; server_tokens off;\n\
         client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};\n\
         server {{ listen {listen} reuseport backlog=4096; root {root}; }} }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_processor_address_and_folder() {
        let listen = "10.0.0.2:80".parse().unwrap();
        let text = configuration(Path::new("/f"), Path::new("/r"), listen, 3);
        for part in [
            "worker_cpu_affinity 1000;",
            "listen 10.0.0.2:80 ",
            "root /r;",
            "pid /f/pid;",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }
}
