//! Asking an engine's agent.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use sidecore_abi::Status;
use sidecore_abi::agent::{MESSAGE_ROOM, MessageError, Reply, Request};
use sidecore_sys::unix::Stream;

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks once; the descriptor that comes with the answer. The connection stays open as long as the first of both is kept.
pub(crate) fn ask(socket: &Path, request: &Request) -> anyhow::Result<(Stream, OwnedFd)> {
    let shown = socket.display();
    let stream = Stream::connect(socket).map_err(|error| {
        let context = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                let owner = "who started the engine, or a group that may write to it";
                format!("the engine's socket {shown} is not for this user, but for {owner}")
            }
            _ => format!(
                "no engine at {shown}: start one with `sidecore engine`, or name its socket with --socket"
            ),
        };
        anyhow::Error::new(error).context(context)
    })?;
    stream
        .send_with_fds(&request.to_bytes(), &[])
        .with_context(|| format!("asking the engine at {shown}"))?;
    if !stream.wait_readable(Some(PATIENCE))? {
        bail!(
            "the engine at {shown} did not answer for {} s",
            PATIENCE.as_secs()
        );
    }
    let mut buffer = [0; MESSAGE_ROOM];
    let (length, descriptors) = stream
        .recv_with_fds(&mut buffer)
        .with_context(|| format!("the answer of {shown}"))?;
    let reply = match Reply::from_bytes(&buffer[..length]) {
        Ok(reply) => reply,
        Err(MessageError::Version(version)) => {
            bail!(
                "the engine at {shown} speaks version {version}, this program {}: use the program it came with",
                sidecore_abi::VERSION
            )
        }
        Err(_) => bail!("what listens at {shown} is not an engine of this version"),
    };
    let status = Status::from_raw(reply.status);
    if status != Status::Ok {
        bail!("the engine at {shown} refused: {status:?}");
    }
    let Some(descriptor) = descriptors.into_iter().next() else {
        bail!("the engine at {shown} sent nothing with its answer");
    };
    Ok((stream, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidecore_abi::agent::RequestKind;

    #[test]
    fn nobody_there_is_said_with_the_mend() {
        let request = Request::new(RequestKind::Stat);
        let error = ask(Path::new("/nonexistent/sidecore.sock"), &request).unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("/nonexistent/sidecore.sock") && text.contains("sidecore engine"),
            "{text}"
        );
    }
}
