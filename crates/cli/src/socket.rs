//! Where the engine's agent listens.

use std::path::{Path, PathBuf};

use crate::usage;

/// The given path, or the default: `/run/sidecore.sock` for root, else `$XDG_RUNTIME_DIR/sidecore.sock`.
pub(crate) fn path(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let is_root = rustix::process::geteuid().is_root();
    default(
        is_root,
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
    )
}

fn default(is_root: bool, runtime: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if is_root {
        return Ok("/run/sidecore.sock".into());
    }
    match runtime {
        Some(folder) if folder.is_absolute() => Ok(folder.join("sidecore.sock")),
        _ => Err(usage(
            "no XDG_RUNTIME_DIR to put the socket into: name one with --socket PATH",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_depend_on_who_asks() {
        assert_eq!(path(Some(Path::new("x"))).unwrap(), Path::new("x"));
        assert_eq!(
            default(true, None).unwrap(),
            Path::new("/run/sidecore.sock")
        );
        let folder = Some(PathBuf::from("/run/user/7"));
        assert_eq!(
            default(false, folder).unwrap(),
            Path::new("/run/user/7/sidecore.sock")
        );
        assert!(default(false, None).is_err());
        assert!(default(false, Some("relative".into())).is_err());
    }
}
