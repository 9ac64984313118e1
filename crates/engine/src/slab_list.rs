//! Singly linked lists whose nodes come from one bounded pool.
//!
//! Every DTI has a few short queues, most of them empty most of the time. A `VecDeque` each would keep its
//! memory for ever after one burst; lists in one pool cost an idle DTI twelve bytes a queue, allocate nothing in the steady
//! state, and give one place where a limit holds.

/// No node.
const NIL: u32 = u32::MAX;

/// One list. It must be used with the one pool that it began with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
        }
    }
}

impl List {
    /// Number of nodes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no node.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first node, for [`ListPool::get`] and [`ListPool::next`].
    #[inline]
    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }
}

#[derive(Debug)]
struct Node<T> {
    value: T,
    next: u32,
}

/// The nodes of all lists of one kind.
#[derive(Debug)]
pub(crate) struct ListPool<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    limit: u32,
    used: u32,
}

impl<T: Copy> ListPool<T> {
    /// A pool of at most `limit` nodes; memory grows as they are first used.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            limit: limit.min(NIL - 1),
            used: 0,
        }
    }

    /// Nodes in use.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Whether `n` more nodes can be had.
    #[inline]
    pub(crate) fn has_room(&self, n: u32) -> bool {
        self.limit - self.used >= n
    }

    #[inline]
    fn take(&mut self, value: T) -> Option<u32> {
        let index = self.free;
        if let Some(node) = self.nodes.get_mut(index as usize) {
            self.free = node.next;
            *node = Node { value, next: NIL };
            self.used += 1;
            return Some(index);
        }
        self.grow(value)
    }

    #[cold]
    fn grow(&mut self, value: T) -> Option<u32> {
        if self.used >= self.limit {
            return None;
        }
        let index = self.nodes.len() as u32;
        self.nodes.push(Node { value, next: NIL });
        self.used += 1;
        Some(index)
    }

    /// Appends; false when the pool is exhausted.
    #[inline]
    pub(crate) fn push_back(&mut self, list: &mut List, value: T) -> bool {
        let Some(index) = self.take(value) else {
            return false;
        };
        if list.tail == NIL {
            list.head = index;
        } else {
            self.nodes[list.tail as usize].next = index;
        }
        list.tail = index;
        list.len += 1;
        true
    }

    /// Inserts before the first node for which `before(new, node)` holds; false when the pool is exhausted.
    pub(crate) fn insert_sorted(
        &mut self,
        list: &mut List,
        value: T,
        before: impl Fn(&T, &T) -> bool,
    ) -> bool {
        let (mut previous, mut at) = (NIL, list.head);
        // Most often the new one belongs at the end.
        if list.tail != NIL && !before(&value, &self.nodes[list.tail as usize].value) {
            return self.push_back(list, value);
        }
        while at != NIL && !before(&value, &self.nodes[at as usize].value) {
            (previous, at) = (at, self.nodes[at as usize].next);
        }
        let Some(index) = self.take(value) else {
            return false;
        };
        self.nodes[index as usize].next = at;
        if previous == NIL {
            list.head = index;
        } else {
            self.nodes[previous as usize].next = index;
        }
        if at == NIL {
            list.tail = index;
        }
        list.len += 1;
        true
    }

    /// Takes the first node out.
    #[inline]
    pub(crate) fn pop_front(&mut self, list: &mut List) -> Option<T> {
        let value = *self.front(list)?;
        self.drop_front(list);
        Some(value)
    }

    /// Takes the first node out, if there is one.
    #[inline]
    pub(crate) fn drop_front(&mut self, list: &mut List) {
        let index = list.head;
        let Some(node) = self.nodes.get_mut(index as usize) else {
            return;
        };
        list.head = std::mem::replace(&mut node.next, self.free);
        if list.head == NIL {
            list.tail = NIL;
        }
        list.len -= 1;
        self.free = index;
        self.used -= 1;
    }

    /// Takes out every node for which `remove` holds, in order, and hands it to `removed`.
    pub(crate) fn extract(
        &mut self,
        list: &mut List,
        remove: impl Fn(&T) -> bool,
        mut removed: impl FnMut(T),
    ) {
        let mut kept = List::default();
        while let Some(value) = self.pop_front(list) {
            if remove(&value) {
                removed(value);
            } else {
                // The node that was just given back is there.
                self.push_back(&mut kept, value);
            }
        }
        *list = kept;
    }

    /// The first value.
    #[inline]
    pub(crate) fn front(&self, list: &List) -> Option<&T> {
        list.head().map(|i| &self.nodes[i as usize].value)
    }

    /// The first value, to change.
    #[inline]
    pub(crate) fn front_mut(&mut self, list: &List) -> Option<&mut T> {
        list.head().map(|i| &mut self.nodes[i as usize].value)
    }

    /// The last value, to change.
    #[inline]
    pub(crate) fn back_mut(&mut self, list: &List) -> Option<&mut T> {
        (list.tail != NIL).then(|| &mut self.nodes[list.tail as usize].value)
    }

    /// The value of a node that is in a list.
    #[inline]
    pub(crate) fn get(&self, node: u32) -> &T {
        &self.nodes[node as usize].value
    }

    /// The node after this one.
    #[inline]
    pub(crate) fn next(&self, node: u32) -> Option<u32> {
        let next = self.nodes[node as usize].next;
        (next != NIL).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pool: &ListPool<u32>, list: &List) -> Vec<u32> {
        let mut out = Vec::new();
        let mut at = list.head();
        while let Some(node) = at {
            out.push(*pool.get(node));
            at = pool.next(node);
        }
        assert_eq!(out.len() as u32, list.len());
        out
    }

    #[test]
    fn two_lists_share_one_bounded_pool() {
        let mut pool = ListPool::new(4);
        let (mut a, mut b) = (List::default(), List::default());
        assert!(
            pool.push_back(&mut a, 1) && pool.push_back(&mut b, 10) && pool.push_back(&mut a, 2)
        );
        assert!(pool.push_back(&mut a, 3));
        assert!(!pool.push_back(&mut b, 11), "the fifth does not fit");
        assert_eq!(values(&pool, &a), [1, 2, 3]);
        assert_eq!(pool.pop_front(&mut a), Some(1));
        assert!(pool.push_back(&mut b, 11));
        assert_eq!(values(&pool, &b), [10, 11]);
        while pool.pop_front(&mut a).is_some() {}
        assert!(a.is_empty() && pool.push_back(&mut a, 7));
        assert_eq!(values(&pool, &a), [7]);
        assert_eq!(pool.used(), 3);
    }

    #[test]
    fn sorted_insert_keeps_order_and_tail() {
        let mut pool = ListPool::new(16);
        let mut list = List::default();
        for v in [5, 1, 9, 5, 7, 0, 10] {
            assert!(pool.insert_sorted(&mut list, v, |a, b| a < b));
        }
        assert_eq!(values(&pool, &list), [0, 1, 5, 5, 7, 9, 10]);
        assert_eq!(pool.back_mut(&list).copied(), Some(10));
        let mut out = Vec::new();
        pool.extract(&mut list, |v| *v >= 7, |v| out.push(v));
        assert_eq!(
            (values(&pool, &list), out),
            (vec![0, 1, 5, 5], vec![7, 9, 10])
        );
        assert_eq!(pool.back_mut(&list).copied(), Some(5));
    }
}
