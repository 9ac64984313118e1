//! Giving up what is no longer needed.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

/// Drops every capability of the calling thread for good: effective, permitted, inheritable, ambient and bounding sets are emptied and
/// `no_new_privs` is set.
///
/// Capabilities belong to threads: call it before others are started (they inherit), or on each. The user id stays; as root without
/// capabilities, files of root are still root's.
pub fn drop_privileges() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    // The bounding set can only be cut by who has CAP_SETPCAP; without it, it is of no use either (no_new_privs).
    for number in 0..64 {
        // SAFETY: plain integers.
        let result =
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number as libc::c_ulong, 0, 0, 0) };
        if result < 0 {
            break;
        }
    }
    // SAFETY: plain integers.
    crate::check(unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong,
            0,
            0,
            0,
        )
    })?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// Whether the calling thread may configure networks (CAP_NET_ADMIN).
pub fn can_administer_network() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_privileges_has_none() {
        let before = can_administer_network();
        std::thread::spawn(|| {
            drop_privileges().unwrap();
            assert!(!can_administer_network());
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
                let line = status.lines().find(|l| l.starts_with(set)).unwrap();
                assert!(line.ends_with("0000000000000000"), "{line}");
            }
            assert!(status.contains("NoNewPrivs:\t1"));
        })
        .join()
        .unwrap();
        assert_eq!(can_administer_network(), before, "of that thread alone");
    }
}
