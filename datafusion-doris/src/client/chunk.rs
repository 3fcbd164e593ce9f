//! A piece of a load's body.

use bytes::Bytes;

/// Bytes that go into a body one after the other. They need not lie together: columns of a batch go out from where they are.
#[derive(Debug, Clone, Default)]
pub struct Chunk {
    pieces: Vec<Bytes>,
    len: usize,
}

impl Chunk {
    /// Adds bytes at the end.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }

    /// Bytes of all pieces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All bytes together; they are copied only if they do not lie together.
    pub fn into_bytes(mut self) -> Bytes {
        match self.pieces.len() {
            0 | 1 => self.pieces.pop().unwrap_or_default(),
            _ => self.pieces.concat().into(),
        }
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        let mut chunk = Self::default();
        chunk.push(bytes);
        chunk
    }
}

impl IntoIterator for Chunk {
    type Item = Bytes;
    type IntoIter = std::vec::IntoIter<Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_text_in_order() {
        let mut chunk = Chunk::from(Bytes::from_static(b"a"));
        chunk.push(Bytes::new());
        chunk.push(Bytes::from_static(b"bc"));
        assert_eq!((chunk.len(), chunk.is_empty(), Chunk::default().is_empty()), (3, false, true));
        assert_eq!(chunk.clone().into_iter().count(), 2);
        assert_eq!(chunk.into_bytes(), "abc");
        let one = Bytes::from_static(b"abc");
        assert_eq!(Chunk::from(one.clone()).into_bytes().as_ptr(), one.as_ptr());
        assert!(Chunk::default().into_bytes().is_empty());
    }
}
