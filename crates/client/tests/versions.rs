//! Engines of another version: whoever asks them is told which, whatever the call.

use std::path::Path;
use std::thread::JoinHandle;

use sidecore_abi::agent::Reply;
use sidecore_abi::{Status, VERSION};
use sidecore_client::{Ual, UalConfig};
use sidecore_sys::unix::Listener;

/// An agent that answers everybody, once each, with a message of another version that has so many bytes.
fn agent(path: &Path, version: u32, bytes: usize, answers: usize) -> JoinHandle<()> {
    let listener = Listener::bind(path).unwrap();
    std::thread::spawn(move || {
        for _ in 0..answers {
            let socket = listener.accept().unwrap();
            let mut request = [0; 4096];
            assert!(socket.recv_with_fds(&mut request).unwrap().0 > 0);
            let mut reply = Reply::new(Status::NotSupported).to_bytes().to_vec();
            reply[4..8].copy_from_slice(&version.to_le_bytes());
            reply.resize(bytes, 0);
            socket.send_with_fds(&reply, &[]).unwrap();
            // Its end is read: nothing is lost on the way.
            assert_eq!(socket.recv_with_fds(&mut request).unwrap().0, 0);
        }
    })
}

#[test]
fn an_engine_of_another_version_is_named_with_both_versions() {
    let folder = std::env::temp_dir().join(format!("sidecore-versions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let own = Reply::new(Status::Ok).to_bytes().len();
    // Messages were shorter once, and may be longer some day.
    for (version, bytes) in [
        (VERSION + 7, own),
        (VERSION - 1, own - 48),
        (VERSION + 1, own + 64),
    ] {
        let path = folder.join(format!("{version}.sock"));
        let agent = agent(&path, version, bytes, 4);
        let wished = format!(
            "the engine speaks version {version} of the interface, this program version {VERSION}"
        );
        let opening = Ual::open(&path, &UalConfig::default()).unwrap_err();
        assert_eq!(opening.to_string(), wished);
        let errors = [
            std::io::Error::from(opening),
            Ual::addresses(&path).unwrap_err(),
            Ual::figures(&path).unwrap_err(),
            Ual::open(&path, &UalConfig::default()).unwrap_err().into(),
        ];
        for error in errors {
            assert_eq!(error.to_string(), wished);
            assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
        }
        agent.join().unwrap();
    }
    std::fs::remove_dir(&folder).unwrap();
}
