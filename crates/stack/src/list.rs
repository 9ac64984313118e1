//! Doubly linked lists whose links live in the elements, by index: no allocation, removal from the middle in one step.

use core::marker::PhantomData;

/// No element.
pub(crate) const NIL: u32 = u32::MAX;

/// An element's neighbours in the list of kind `L` that it is in.
#[derive(Debug)]
pub(crate) struct Links<L> {
    prev: u32,
    next: u32,
    kind: PhantomData<L>,
}

impl<L> Links<L> {
    pub(crate) const UNLINKED: Self = Self {
        prev: NIL,
        next: NIL,
        kind: PhantomData,
    };
}

/// Where the links of kind `L` are.
pub(crate) trait Linked<L> {
    fn links(&mut self, index: u32) -> &mut Links<L>;
}

/// A list through the links of kind `L`. An element is in one list of a kind at most; whoever uses the lists knows
/// in which.
#[derive(Debug)]
pub(crate) struct List<L> {
    head: u32,
    tail: u32,
    len: u32,
    kind: PhantomData<L>,
}

impl<L> List<L> {
    pub(crate) const fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
            kind: PhantomData,
        }
    }

    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// The first element.
    #[inline]
    pub(crate) const fn front(&self) -> Option<u32> {
        match self.head {
            NIL => None,
            index => Some(index),
        }
    }

    #[inline]
    pub(crate) fn push_back(&mut self, elements: &mut impl Linked<L>, index: u32) {
        let links = elements.links(index);
        links.prev = self.tail;
        links.next = NIL;
        match self.tail {
            NIL => self.head = index,
            tail => elements.links(tail).next = index,
        }
        self.tail = index;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop_front(&mut self, elements: &mut impl Linked<L>) -> Option<u32> {
        let index = self.front()?;
        self.remove(elements, index);
        Some(index)
    }

    /// Takes out an element that is in this list.
    #[inline]
    pub(crate) fn remove(&mut self, elements: &mut impl Linked<L>, index: u32) {
        let Links { prev, next, .. } = core::mem::replace(elements.links(index), Links::UNLINKED);
        match prev {
            NIL => {
                debug_assert_eq!(self.head, index);
                self.head = next;
            }
            prev => elements.links(prev).next = next,
        }
        match next {
            NIL => {
                debug_assert_eq!(self.tail, index);
                self.tail = prev;
            }
            next => elements.links(next).prev = prev,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    struct Kind;
    struct Elements(Vec<Links<Kind>>);

    impl Linked<Kind> for Elements {
        fn links(&mut self, index: u32) -> &mut Links<Kind> {
            &mut self.0[index as usize]
        }
    }

    proptest! {
        #![proptest_config(sidecore_testkit::property_config(256))]

        #[test]
        fn behaves_like_a_deque(operations in prop::collection::vec((0..3u8, 0..16u32), 0..200)) {
            let mut elements = Elements((0..16).map(|_| Links::UNLINKED).collect());
            let mut list = List::new();
            let mut model = VecDeque::new();
            for (operation, index) in operations {
                match operation {
                    0 if !model.contains(&index) => {
                        list.push_back(&mut elements, index);
                        model.push_back(index);
                    }
                    1 => prop_assert_eq!(list.pop_front(&mut elements), model.pop_front()),
                    2 => if let Some(at) = model.iter().position(|i| *i == index) {
                        list.remove(&mut elements, index);
                        model.remove(at);
                    },
                    _ => {}
                }
                prop_assert_eq!(list.len() as usize, model.len());
                prop_assert_eq!(list.front(), model.front().copied());
                prop_assert_eq!(list.is_empty(), model.is_empty());
            }
            while let Some(expected) = model.pop_front() {
                prop_assert_eq!(list.pop_front(&mut elements), Some(expected));
            }
            prop_assert_eq!(list.pop_front(&mut elements), None);
        }
    }
}
