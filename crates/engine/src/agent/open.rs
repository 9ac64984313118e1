//! Opening a UAL: what was wished is cut to what policy allows, memory is made and sealed.

use std::os::fd::OwnedFd;

use sidecore_abi::agent::{Reply, Request, death};
use sidecore_abi::control::Geometry;
use sidecore_abi::{Status, pool};
use sidecore_shm::Shared as Memory;
use sidecore_shm::control::EngineControl;
use sidecore_sys::memfd::Memfd;
use sidecore_sys::unix::Credentials;
use sidecore_sys::wake::WakePair;

use crate::config::{DeathPolicy, Policy};
use crate::ual::NewUal;
use crate::ual::chunks::Chunks;

/// A UAL that was made, and what its application gets.
pub(crate) struct Opened {
    pub(crate) ual: NewUal,
    pub(crate) reply: Reply,
    pub(crate) fds: [OwnedFd; 3],
}

/// What is granted of what was wished.
fn grant(policy: &Policy, wish: &Request) -> (Geometry, u32, u64) {
    let geometry = Geometry {
        engines: 1,
        ..wish.geometry
    }
    .clamped();
    let slab = pool::SLAB as u64;
    let largest = (policy.pool_bytes.min(pool::MAX_BYTES) / slab * slab).max(pool::MIN_BYTES);
    let bytes = wish
        .pool_bytes
        .clamp(pool::MIN_BYTES, largest)
        .next_multiple_of(slab)
        .min(largest);
    (geometry, wish.dtis.clamp(1, policy.dtis.max(1)), bytes)
}

/// Makes a UAL.
pub(crate) fn open(
    policy: &Policy,
    wish: &Request,
    id: u64,
    epoch: u64,
    peer: &Credentials,
    session: OwnedFd,
) -> std::io::Result<Opened> {
    let (geometry, dtis, pool_bytes) = grant(policy, wish);
    let control = sealed("sidecore-control", geometry.size() as u64)?;
    let pool = sealed("sidecore-pool", pool_bytes)?;
    let (waker, sleeper) = WakePair::new()?.split();
    // The engine alone writes the pool: once it has its mapping nobody can make another writable one, nor punch holes.
    let pool_memory = Memory::map(&pool, true)?;
    pool.seal_for_readers()?;
    let ual = NewUal {
        id,
        pid: peer.pid,
        uid: peer.uid,
        control: EngineControl::new(Memory::map(&control, true)?, geometry)?,
        geometry,
        chunks: Chunks::new(pool_memory),
        dtis,
        death: match wish.args[0] {
            death::RESET => DeathPolicy::Reset,
            death::LINGER => DeathPolicy::Linger,
            _ => policy.death,
        },
        session,
        sleeper,
    };
    let reply = Reply {
        geometry,
        dtis,
        pool_bytes,
        epoch,
        args: [id, 0, 0],
        ..Reply::new(Status::Ok)
    };
    Ok(Opened {
        ual,
        reply,
        fds: [control.into_fd(), pool.into_fd(), waker.into_fd()],
    })
}

fn sealed(name: &str, len: u64) -> std::io::Result<Memfd> {
    let memfd = Memfd::create(name, len, false)?;
    memfd.seal_size()?;
    Ok(memfd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidecore_abi::agent::RequestKind;

    #[test]
    fn wishes_are_cut_to_policy_and_to_what_can_be() {
        let policy = Policy {
            dtis: 100,
            pool_bytes: 1 << 20,
            ..Policy::default()
        };
        let modest = Request::new(RequestKind::OpenUal);
        let (geometry, dtis, bytes) = grant(&policy, &modest);
        assert!(geometry.is_valid());
        assert_eq!((dtis, bytes), (1, pool::MIN_BYTES));
        let all = u32::MAX;
        let greedy = Request {
            geometry: Geometry {
                engines: all,
                lanes: all,
                lane_order: all,
                evqs: all,
                evq_order: all,
                wait_cells: all,
            },
            dtis: all,
            pool_bytes: u64::MAX,
            ..modest
        };
        let (geometry, dtis, bytes) = grant(&policy, &greedy);
        assert!(geometry.is_valid());
        assert_eq!((dtis, bytes), (100, 1 << 20));
    }
}
