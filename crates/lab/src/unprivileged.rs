//! Doing without root: user, mount and network namespaces of our own, in which we are root over networks.

use anyhow::Context;
use rustix::mount::{MountFlags, mount};
use sidecore_sys::netns;

/// Moves this process into namespaces of its own, with a `/run` of its own for the names of further ones. The process must have one thread.
pub fn enter() -> anyhow::Result<()> {
    netns::unshare_user_and_net().context(
        "no permission to make network namespaces, nor a user namespace in which that would be allowed: run it as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)",
    )?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).context("a /run of our own")
}
