//! Urgent data between the engine's TCP and the kernel's, both ways (RFC 9293 section 3.8.5, RFC 6093).

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::net::sockopt::set_socket_oobinline;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sidecore_client::blocking;
use sidecore_e2e::ground::available;
use sidecore_e2e::interop::{Meeting, Role, Version};
use sidecore_nic::LinkModel;
use sidecore_sys::mark::at_mark;

/// Longer than anything here takes.
const STUCK: Duration = Duration::from_secs(20);

fn meet(version: Version, role: Role) -> Result<Option<(Meeting, TcpStream, blocking::TcpStream)>> {
    if !available() {
        return Ok(None);
    }
    let line = LinkModel {
        delay: Duration::from_millis(1),
        ..LinkModel::default()
    };
    let meeting = Meeting::on([line, line], version)?;
    let (kernel, engine) = meeting.connect(role, 0, 0)?;
    Ok(Some((meeting, kernel, engine)))
}

/// Asks again while the answer is "not yet".
fn soon<T>(mut ask: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let last = Instant::now() + STUCK;
    loop {
        match ask() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < last => {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer => return answer,
        }
    }
}

/// The kernel's `recv` with MSG_OOB, which does not wait.
fn kernel_octet(kernel: &TcpStream) -> Result<u8> {
    let mut octet = [0];
    soon(|| match recv(kernel, &mut octet, RecvFlags::OOB) {
        // EINVAL: nothing is known of it yet.
        Err(rustix::io::Errno::INVAL) => Err(ErrorKind::WouldBlock.into()),
        other => Ok(other?),
    })?;
    Ok(octet[0])
}

#[test]
fn the_kernel_gets_the_octet_out_of_band() -> Result<()> {
    for (version, role) in [(Version::Four, Role::Kernel), (Version::Six, Role::Engine)] {
        let Some((_meeting, mut kernel, mut engine)) = meet(version, role)? else {
            return Ok(());
        };
        engine.write_all(b"before ")?;
        assert_eq!(engine.send_urgent(b"now!")?, 4);
        engine.write_all(b" after")?;
        assert_eq!(kernel_octet(&kernel)?, b'!');
        // "Reads stop before the mark", which is where the octet was.
        let mut bytes = [0; 10];
        kernel.read_exact(&mut bytes)?;
        assert_eq!(&bytes, b"before now");
        assert!(at_mark(kernel.as_fd())?);
        let mut bytes = [0; 6];
        kernel.read_exact(&mut bytes)?;
        assert_eq!(&bytes, b" after");
        assert!(!at_mark(kernel.as_fd())?);
    }
    Ok(())
}

#[test]
fn the_kernel_gets_it_in_line() -> Result<()> {
    let Some((_meeting, mut kernel, mut engine)) = meet(Version::Four, Role::Engine)? else {
        return Ok(());
    };
    set_socket_oobinline(&kernel, true)?;
    // Much, so that there are several segments, and a pointer for each.
    let long = vec![b'x'; 100_000];
    engine.write_all(&long)?;
    assert_eq!(engine.send_urgent(b"!")?, 1);
    engine.write_all(b"rest")?;
    let mut read = Vec::new();
    let last = Instant::now() + STUCK;
    while !(at_mark(kernel.as_fd())? && read.len() == long.len()) {
        let mut piece = vec![0; long.len() - read.len()];
        let n = kernel.read(&mut piece)?;
        read.extend_from_slice(&piece[..n]);
        assert!(Instant::now() < last, "no mark after {} bytes", read.len());
    }
    assert_eq!(read, long);
    let mut rest = [0; 5];
    kernel.read_exact(&mut rest)?;
    assert_eq!(&rest, b"!rest");
    Ok(())
}

#[test]
fn the_engine_gets_the_kernels_urgent_data_in_line() -> Result<()> {
    for (version, role) in [(Version::Four, Role::Engine), (Version::Six, Role::Kernel)] {
        let Some((_meeting, mut kernel, mut engine)) = meet(version, role)? else {
            return Ok(());
        };
        kernel.write_all(b"before ")?;
        assert_eq!(send(&kernel, b"now!", SendFlags::OOB)?, 4);
        kernel.write_all(b" after")?;
        // It is told without a read, and how far the mark is.
        assert_eq!(engine.wait_urgent()?, Some(11));
        let mut bytes = [0; 10];
        engine.read_exact(&mut bytes)?;
        assert_eq!(&bytes, b"before now");
        assert!(engine.at_mark()?);
        assert_eq!(engine.urgent_left()?, Some(1));
        let mut bytes = [0; 7];
        engine.read_exact(&mut bytes)?;
        assert_eq!(&bytes, b"! after");
        assert_eq!((engine.at_mark()?, engine.urgent_left()?), (false, None));
    }
    Ok(())
}

#[test]
fn the_engine_gets_the_kernels_octet_out_of_band() -> Result<()> {
    let Some((_meeting, mut kernel, mut engine)) = meet(Version::Four, Role::Kernel)? else {
        return Ok(());
    };
    engine.set_oob_inline(false)?;
    assert_eq!(
        engine.read_urgent(true).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    kernel.write_all(b"before ")?;
    send(&kernel, b"!", SendFlags::OOB)?;
    kernel.write_all(b"after")?;
    assert_eq!(engine.wait_urgent()?, Some(8));
    assert_eq!(soon(|| engine.read_urgent(true))?, Some(b'!'));
    kernel.shutdown(std::net::Shutdown::Write)?;
    let mut all = String::new();
    engine.read_to_string(&mut all)?;
    assert_eq!(all, "before after");
    Ok(())
}

#[test]
fn a_kernel_that_reads_nothing_hears_of_urgent_data() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let line = LinkModel::default();
    let meeting = Meeting::on([line, line], Version::Four)?;
    let (kernel, engine) = meeting.connect(Role::Kernel, 1, 0)?;
    engine.set_write_timeout(Some(Duration::from_millis(300)))?;
    // Until its window is closed and nothing more may be in flight.
    let piece = [b'x'; 32_768];
    while (&engine).write(&piece).is_ok() {}
    assert_eq!(
        engine.send_urgent(b"!")?,
        1,
        "there is room for urgent data"
    );
    // The octet has not come, but that it will: EAGAIN where it was EINVAL.
    let last = Instant::now() + STUCK;
    let mut octet = [0];
    while recv(&kernel, &mut octet, RecvFlags::OOB) != Err(rustix::io::Errno::AGAIN) {
        assert!(Instant::now() < last, "the kernel was not told");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
