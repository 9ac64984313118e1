//! An option's value as it is told when asked for.

use std::ops::Deref;

/// Bytes of a value that is kept in place: a `struct timeval`, a name of congestion control.
const SHORT: usize = 16;

/// The bytes of a value. Nearly all are short, and servers set several on each connection: those take no memory of their own.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Short([u8; SHORT], u8),
    Long(Box<[u8]>),
}

impl Value {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Self::Short(short, bytes.len() as u8)
            }
            None => Self::Long(bytes.into()),
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(bytes, len) => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Value {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_length_are_kept() {
        let bytes: Vec<u8> = (0..40).collect();
        for len in [0, 1, 4, SHORT, SHORT + 1, 40] {
            assert_eq!(&Value::new(&bytes[..len])[..], &bytes[..len]);
        }
        assert_ne!(Value::new(&[0]), Value::new(&[0, 0]));
    }
}
