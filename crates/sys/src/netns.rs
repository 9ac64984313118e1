//! Network namespaces: named ones as `ip netns` keeps them, and nameless ones that live as long as a descriptor.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// Where named namespaces are kept.
pub const DIRECTORY: &str = "/run/netns";

/// The file that stands for a named namespace. A name is one path component.
pub fn path(name: &str) -> io::Result<PathBuf> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("network namespace {name:?}: not a name"),
        ));
    }
    Ok(Path::new(DIRECTORY).join(name))
}

/// Makes a namespace that `ip netns` sees. `AlreadyExists` when there is one of that name. Needs root (or a user namespace with a
/// writable /run).
pub fn create_named(name: &str) -> io::Result<()> {
    let path = path(name)?;
    let named = |error: io::Error| crate::context(format_args!("network namespace {name}"), error);
    prepare_directory().map_err(named)?;
    File::options()
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(named)?;
    let bound = create_anonymous().and_then(|namespace| {
        use std::os::fd::AsRawFd;
        let source = format!("/proc/self/fd/{}", namespace.as_raw_fd());
        Ok(rustix::mount::mount_bind(source, &path)?)
    });
    if bound.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    bound.map_err(named)
}

/// As `ip netns` does it: the directory is a shared mount of its own, so that other mount namespaces see what is bound there.
fn prepare_directory() -> io::Result<()> {
    std::fs::create_dir_all(DIRECTORY)?;
    let share = || {
        rustix::mount::mount_change(
            DIRECTORY,
            MountPropagationFlags::SHARED | MountPropagationFlags::REC,
        )
    };
    match share() {
        Err(Errno::INVAL) => {
            rustix::mount::mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            Ok(share()?)
        }
        other => Ok(other?),
    }
}

/// Takes the name away; the namespace itself ends with its last user. `NotFound` when there is no such name.
pub fn delete_named(name: &str) -> io::Result<()> {
    let path = path(name)?;
    let named = |error: io::Error| crate::context(format_args!("network namespace {name}"), error);
    match rustix::mount::unmount(&path, UnmountFlags::DETACH) {
        // Not mounted (any more): only the file is left.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(named(error.into())),
    }
    std::fs::remove_file(&path).map_err(named)
}

/// A descriptor of a named namespace.
pub fn open_named(name: &str) -> io::Result<OwnedFd> {
    let file = File::open(path(name)?)
        .map_err(|error| crate::context(format_args!("network namespace {name}"), error))?;
    Ok(file.into())
}

/// A new namespace without a name: it lives as long as the descriptor, a thread in it or a device's holder.
pub fn create_anonymous() -> io::Result<OwnedFd> {
    on_own_thread(|| {
        unshare(UnshareFlags::NEWNET)?;
        current()
    })
}

/// The calling thread's namespace.
pub fn current() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Moves the calling thread into a namespace, for good. Its other threads stay where they are.
pub fn enter(namespace: impl AsFd) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| crate::context("entering a network namespace", error.into()))
}

/// Runs a function inside a named namespace, on a thread of its own, and waits for it.
pub fn with_netns<T: Send>(name: &str, run: impl FnOnce() -> T + Send) -> io::Result<T> {
    with_netns_fd(open_named(name)?, run)
}

/// The same for a namespace by descriptor.
pub fn with_netns_fd<T: Send>(
    namespace: impl AsFd,
    run: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let namespace = namespace.as_fd();
    on_own_thread(move || {
        enter(namespace)?;
        Ok(run())
    })
}

fn on_own_thread<T: Send>(run: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: of the flags used here none gives this thread a descriptor table or memory apart from the others'.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Moves the process into new user, mount and network namespaces, in which it is root: so that a user without privileges can make
/// TAPs. The process must have one thread (at the start of `main`); otherwise `InvalidInput`.
///
/// Loopback is brought up. Errors name the step that the system refused.
pub fn unshare_user_and_net() -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS)
        .map_err(|error| crate::context("a new user and network namespace", error))?;
    let write = |file: &str, text: String| {
        std::fs::write(file, text).map_err(|error| crate::context(file, error))
    };
    // Before the group map, or it is refused: otherwise dropping a group could give access.
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    crate::interface::Interface::open("lo")?.set_up(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(fd: &OwnedFd) -> u64 {
        rustix::fs::fstat(fd).unwrap().st_ino
    }

    #[test]
    fn namespaces_have_names_and_end() {
        if !crate::privileges::can_administer_network() {
            eprintln!("skipped: needs CAP_NET_ADMIN");
            return;
        }
        let name = format!("sc-test-{}", std::process::id());
        create_named(&name).unwrap();
        assert_eq!(
            create_named(&name).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        let here = inode(&current().unwrap());
        let there = inode(&open_named(&name).unwrap());
        assert_ne!(here, there);
        let inside = with_netns(&name, || inode(&current().unwrap())).unwrap();
        assert_eq!(inside, there);
        assert_eq!(inode(&current().unwrap()), here, "this thread stayed");
        delete_named(&name).unwrap();
        assert_eq!(
            delete_named(&name).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(
            open_named(&name).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        let nameless = create_anonymous().unwrap();
        assert_ne!(inode(&nameless), here);
    }

    #[test]
    fn names_are_names() {
        for bad in ["", ".", "..", "a/b", "../x", "a\0"] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
        assert_eq!(path("x").unwrap(), Path::new("/run/netns/x"));
    }
}
