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

mod model {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Small,
        Slab,
        AddRef(usize),
        Release(usize),
        Lend(usize),
        HandOver(usize),
        TakeBack(usize),
        Lie(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Small),
            2 => Just(Step::Slab),
            1 => any::<usize>().prop_map(Step::AddRef),
            3 => any::<usize>().prop_map(Step::Release),
            1 => any::<usize>().prop_map(Step::Lend),
            2 => any::<usize>().prop_map(Step::HandOver),
            3 => any::<usize>().prop_map(Step::TakeBack),
            1 => prop_oneof![0..200u32, any::<u32>()].prop_map(Step::Lie),
        ]
    }

    /// Chunk: is it a slab, the engine's own references, lent ones.
    type Held = BTreeMap<u32, (bool, u32, u32)>;

    fn pick(held: &Held, n: usize) -> Option<u32> {
        held.keys().nth(n % held.len().max(1)).copied()
    }

    fn apply(pool: &mut PoolAllocator, held: &mut Held, step: &Step) {
        let add = |held: &mut Held, chunk: u32, slab: bool| {
            assert!(held.insert(chunk, (slab, 1, 0)).is_none(), "given twice");
        };
        match *step {
            Step::Small => {
                if let Some(chunk) = pool.alloc_small() {
                    add(held, chunk, false);
                } else {
                    assert!(!pool.has_small());
                }
            }
            Step::Slab => {
                let could = pool.has_slabs(1);
                let chunk = pool.alloc_slab();
                assert_eq!(chunk.is_some(), could);
                chunk.into_iter().for_each(|chunk| add(held, chunk, true));
            }
            Step::AddRef(n) => {
                if let Some(chunk) = pick(held, n) {
                    assert!(pool.add_ref(chunk));
                    held.get_mut(&chunk).unwrap().1 += 1;
                }
            }
            Step::Lend(n) => {
                if let Some(chunk) = pick(held, n) {
                    assert!(pool.lend(chunk));
                    held.get_mut(&chunk).unwrap().2 += 1;
                }
            }
            Step::HandOver(n) => {
                if let Some(chunk) = pick(held, n) {
                    let entry = held.get_mut(&chunk).unwrap();
                    assert_eq!(pool.hand_over(chunk), entry.1 > 0);
                    if entry.1 > 0 {
                        *entry = (entry.0, entry.1 - 1, entry.2 + 1);
                    }
                }
            }
            Step::Release(n) => give_back(pool, held, pick(held, n), true),
            Step::TakeBack(n) => give_back(pool, held, pick(held, n), false),
            Step::Lie(chunk) => {
                if held.get(&chunk).is_none_or(|(_, _, lent)| *lent == 0) {
                    assert_eq!(pool.take_back(chunk), Err(NotHeld));
                }
            }
        }
    }

    fn give_back(pool: &mut PoolAllocator, held: &mut Held, chunk: Option<u32>, own: bool) {
        let Some(chunk) = chunk else { return };
        let entry = held.get_mut(&chunk).unwrap();
        let count = if own { &mut entry.1 } else { &mut entry.2 };
        let result = if own {
            pool.release(chunk)
        } else {
            pool.take_back(chunk)
        };
        if *count == 0 {
            assert_eq!(result, Err(NotHeld));
            return;
        }
        *count -= 1;
        let last = entry.1 == 0 && entry.2 == 0;
        assert_eq!(result, Ok(last));
        if last {
            held.remove(&chunk);
        }
    }

    fn check(pool: &PoolAllocator, held: &Held, slabs: u64) {
        let used: u64 = held
            .values()
            .map(|(slab, ..)| if *slab { SLAB as u64 } else { SMALL as u64 })
            .sum();
        assert_eq!(pool.free_bytes(), slabs * SLAB as u64 - used);
        let mut end = 0;
        for (chunk, (slab, own, lent)) in held {
            let (at, len) = pool.place(*chunk).unwrap();
            assert_eq!(len as usize, if *slab { SLAB } else { SMALL });
            assert!(at >= end, "chunks do not overlap");
            end = at + len as u64;
            assert_eq!(pool.references(*chunk), Some((*own, *lent)));
        }
        assert!(end <= pool.size());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 300 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn the_allocator_does_what_its_model_does(
            slabs in 1..4usize,
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let mut pool = PoolAllocator::new(slabs);
            let mut held = Held::new();
            for step in &steps {
                apply(&mut pool, &mut held, step);
                check(&pool, &held, slabs as u64);
            }
            // Everything given back, everything is free and whole.
            for (chunk, (_, own, lent)) in std::mem::take(&mut held) {
                for _ in 0..own {
                    pool.release(chunk).unwrap();
                }
                for _ in 0..lent {
                    pool.take_back(chunk).unwrap();
                }
            }
            prop_assert!(pool.has_slabs(slabs));
        }
    }
}
