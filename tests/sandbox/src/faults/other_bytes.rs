//! Bytes of rows that travel as others.

/// As many bytes as those in whose place they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtherBytes {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl OtherBytes {
    /// `None` when the lengths differ: lengths stand elsewhere in the message.
    pub fn new(from: Vec<u8>, to: Vec<u8>) -> Option<Self> {
        (!from.is_empty() && from.len() == to.len()).then_some(Self { from, to })
    }

    /// Puts them into a message.
    pub fn put_into(&self, message: &mut [u8]) {
        let mut at = 0;
        while let Some(rest) = message.get_mut(at..at + self.from.len()) {
            if *rest == *self.from {
                rest.copy_from_slice(&self.to);
                at += self.from.len();
            } else {
                at += 1;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn all_places_change_and_no_length_does() {
        let other = OtherBytes::new(b"ab".to_vec(), vec![0xff, 0xfe]).expect("equal lengths");
        let mut message = b"xababa".to_vec();
        other.put_into(&mut message);
        assert_eq!(message, [b'x', 0xff, 0xfe, 0xff, 0xfe, b'a']);
        assert_eq!(OtherBytes::new(b"ab".to_vec(), vec![1]), None);
        assert_eq!(OtherBytes::new(vec![], vec![]), None);
    }
}
