//! A lane on the heap, of any atomics.

use std::sync::Arc;

use super::ModelAtomics;
use sidecore_shm::atomics::Atomics;
use sidecore_shm::lane::LaneMemory;

struct Words<A: Atomics> {
    entries: Vec<[A::U64; 8]>,
    taken: A::U32,
    state: A::U32,
    order: u32,
}

pub(crate) struct HeapLane<A: Atomics>(Arc<Words<A>>);

impl<A: ModelAtomics> HeapLane<A> {
    pub(crate) fn new(order: u32) -> Self {
        Self(Arc::new(Words {
            entries: (0..1 << order)
                .map(|_| std::array::from_fn(|_| A::u64(0)))
                .collect(),
            taken: A::u32(0),
            state: A::u32(0),
            order,
        }))
    }
}

impl<A: ModelAtomics> Clone for HeapLane<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: ModelAtomics> LaneMemory for HeapLane<A> {
    type Atomics = A;

    fn order(&self) -> u32 {
        self.0.order
    }

    fn entry(&self, position: u64) -> &[A::U64; 8] {
        &self.0.entries[position as usize & ((1 << self.0.order) - 1)]
    }

    fn taken(&self) -> &A::U32 {
        &self.0.taken
    }

    fn state(&self) -> &A::U32 {
        &self.0.state
    }
}
