//! Connections by number, told apart over time.

/// Names one connection, never another that comes to the same place later: place in the low half, generation in the high half.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    fn new(index: usize, generation: u32) -> Self {
        Self(index as u64 | (generation as u64) << 32)
    }

    /// The place.
    pub(crate) fn index(self) -> usize {
        self.0 as u32 as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table whose places are used again.
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

/// Generations stay below this, so that tokens with a greater one are free for other uses.
const GENERATIONS: u32 = 1 << 24;

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn insert(&mut self, value: T) -> Token {
        if let Some(index) = self.vacant.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Token::new(index as usize, slot.generation);
        }
        self.slots.push(Slot {
            generation: 0,
            value: Some(value),
        });
        Token::new(self.slots.len() - 1, 0)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index())?;
        if slot.generation != token.generation() {
            return None;
        }
        slot.value.as_mut()
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.index())?;
        if slot.generation != token.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        self.vacant.push(token.index() as u32);
        Some(value)
    }

    /// The tokens of all that is there.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.value.is_some())
            .map(|(index, slot)| Token::new(index, slot.generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_but_tokens_are_not() {
        let mut slab = Slab::new();
        let a = slab.insert('a');
        let b = slab.insert('b');
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        let c = slab.insert('c');
        assert_eq!(c.index(), a.index());
        assert_ne!(c, a);
        assert!(slab.get_mut(a).is_none());
        assert_eq!(slab.get_mut(c), Some(&mut 'c'));
        assert_eq!(slab.len(), 2);
        assert_eq!(slab.tokens().collect::<Vec<_>>(), [c, b]);
        assert!(slab.get_mut(Token(u64::MAX)).is_none());
    }
}
