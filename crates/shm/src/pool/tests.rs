use super::*;

#[test]
fn slabs_are_cut_and_become_whole_again() {
    let mut pool = PoolAllocator::new(2);
    assert_eq!((pool.size(), pool.free_bytes()), (131_072, 131_072));
    let small: Vec<u32> = (0..33).map(|_| pool.alloc_small().unwrap()).collect();
    assert!(pool.alloc_slab().is_none(), "both slabs are cut");
    assert_eq!(pool.free_bytes(), 31 * 2048);
    for chunk in &small[..32] {
        assert_eq!(pool.release(*chunk), Ok(true));
    }
    let slab = pool.alloc_slab().unwrap();
    assert_eq!(pool.place(slab), Some((slab as u64 * 2048, 65536)));
    assert_eq!(pool.place(slab + 1), None, "inside a whole slab");
    assert_eq!(pool.place(small[32]), Some((small[32] as u64 * 2048, 2048)));
    assert!(pool.alloc_slab().is_none() && pool.has_small());
    assert_eq!(pool.release(slab), Ok(true));
    assert!(pool.has_slabs(1) && !pool.has_slabs(2));
}

#[test]
fn the_pool_is_used_up_to_the_last_chunk() {
    let mut pool = PoolAllocator::new(3);
    let mut all: Vec<u32> = std::iter::from_fn(|| pool.alloc_small()).collect();
    assert!(!pool.has_small() && pool.free_bytes() == 0);
    all.sort_unstable();
    assert_eq!(all, (0..96).collect::<Vec<_>>());
}

#[test]
fn only_what_was_lent_can_be_given_back() {
    let mut pool = PoolAllocator::new(1);
    let chunk = pool.alloc_small().unwrap();
    assert_eq!(pool.take_back(chunk), Err(NotHeld), "the engine's own");
    assert!(pool.lend(chunk) && pool.lend(chunk));
    assert_eq!(pool.take_back(chunk), Ok(false));
    assert_eq!(pool.take_back(chunk), Ok(false));
    assert_eq!(pool.take_back(chunk), Err(NotHeld));
    assert!(pool.hand_over(chunk) && !pool.hand_over(chunk));
    assert_eq!(pool.release(chunk), Err(NotHeld));
    assert_eq!(pool.take_back(chunk), Ok(true), "the last reference");
    for lie in [chunk, chunk + 1, 31, 32, u32::MAX] {
        assert_eq!(pool.take_back(lie), Err(NotHeld));
        assert!(!pool.lend(lie) && !pool.add_ref(lie));
        assert_eq!(pool.references(lie), None);
    }
    let slab = pool.alloc_slab().unwrap();
    pool.hand_over(slab);
    assert_eq!(pool.take_back(slab + 1), Err(NotHeld), "its middle");
    assert_eq!(pool.take_back(slab), Ok(true));
    assert_eq!(pool.lies(), 9);
}

#[test]
fn references_do_not_overflow() {
    let mut pool = PoolAllocator::new(1);
    let chunk = pool.alloc_small().unwrap();
    pool.references[chunk as usize] = References {
        own: u32::MAX,
        lent: u32::MAX,
    };
    assert!(!pool.add_ref(chunk) && !pool.lend(chunk) && !pool.hand_over(chunk));
    assert_eq!(pool.references(chunk), Some((u32::MAX, u32::MAX)));
}
