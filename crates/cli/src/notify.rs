//! Telling systemd that the service is up (`sd_notify`).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `READY=1` to `NOTIFY_SOCKET`, if there is one. That nobody listens is no error.
pub(crate) fn ready() {
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send(&name, b"READY=1");
    }
}

fn send(name: &OsStr, text: &[u8]) -> std::io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(text, &address)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_address_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstract_name = format!("sidecore-notify-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_abstract_name(abstract_name.as_bytes()).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        let names = [path.into_os_string(), format!("@{abstract_name}").into()];
        for (name, receiver) in names.iter().zip([by_path, by_name]) {
            send(name, b"READY=1").unwrap();
            let mut buffer = [0; 16];
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1");
        }
        assert!(send(OsStr::new("/nonexistent/x"), b"READY=1").is_err());
    }
}
