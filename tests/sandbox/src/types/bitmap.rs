//! BITMAP values: sets of unsigned 64-bit numbers, and the bytes in which a server stores and sends them.
//!
//! A serialised bitmap is one type byte and its body: empty; one number of 32 or 64 bits; a Roaring bitmap of 32-bit
//! numbers in the portable format; several of them, each behind the upper half of its numbers; or a short list.

use roaring::{RoaringBitmap, RoaringTreemap};

const EMPTY: u8 = 0;
const SINGLE32: u8 = 1;
const BITMAP32: u8 = 2;
const SINGLE64: u8 = 3;
const BITMAP64: u8 = 4;
const SET: u8 = 5;

/// A set of unsigned 64-bit numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bitmap(RoaringTreemap);

impl FromIterator<u64> for Bitmap {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Bitmap {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number.
    pub fn insert(&mut self, value: u64) {
        self.0.insert(value);
    }

    /// How many numbers the set has.
    pub fn cardinality(&self) -> u64 {
        self.0.len()
    }

    /// Whether the set has the number.
    pub fn contains(&self, value: u64) -> bool {
        self.0.contains(value)
    }

    /// The numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter()
    }

    /// The smallest number.
    pub fn min(&self) -> Option<u64> {
        self.0.min()
    }

    /// The largest number.
    pub fn max(&self) -> Option<u64> {
        self.0.max()
    }

    /// Adds the numbers of another set.
    pub fn union_with(&mut self, other: &Self) {
        self.0 |= &other.0;
    }

    /// Keeps the numbers that both sets have.
    pub fn intersect_with(&mut self, other: &Self) {
        self.0 &= &other.0;
    }

    /// Takes the numbers of another set away.
    pub fn subtract(&mut self, other: &Self) {
        self.0 -= &other.0;
    }

    /// Keeps the numbers that exactly one of the sets has.
    pub fn symmetric_difference_with(&mut self, other: &Self) {
        self.0 ^= &other.0;
    }

    /// `1,2,3`
    pub fn to_text(&self) -> String {
        let numbers: Vec<String> = self.0.iter().map(|value| value.to_string()).collect();
        numbers.join(",")
    }

    /// Reads `1,2,3`; blanks around numbers are allowed, the empty text is the empty set. `None` for anything else.
    pub fn from_text(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return Some(Self::new());
        }
        text.split(',').map(|part| part.trim().parse::<u64>().ok()).collect::<Option<RoaringTreemap>>().map(Self)
    }

    /// The bytes a server stores.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (Some(min), Some(max)) = (self.min(), self.max()) else { return vec![EMPTY] };
        if min == max {
            return match u32::try_from(min) {
                Ok(value) => [&[SINGLE32][..], &value.to_le_bytes()].concat(),
                Err(_) => [&[SINGLE64][..], &min.to_le_bytes()].concat(),
            };
        }
        let mut out = Vec::new();
        let append = |out: &mut Vec<u8>, bitmap: &RoaringBitmap| {
            // Writing to a vector does not fail.
            let _ = bitmap.serialize_into(out);
        };
        if u32::try_from(max).is_ok() {
            out.push(BITMAP32);
            self.0.bitmaps().for_each(|(_, bitmap)| append(&mut out, bitmap));
            return out;
        }
        out.push(BITMAP64);
        put_varint(&mut out, self.0.bitmaps().count() as u64);
        for (upper, bitmap) in self.0.bitmaps() {
            out.extend(upper.to_le_bytes());
            append(&mut out, bitmap);
        }
        out
    }

    /// Reads the bytes a server stores; `None` when they are no bitmap.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, mut body) = bytes.split_first()?;
        let mut set = RoaringTreemap::new();
        match *kind {
            EMPTY => {}
            SINGLE32 => {
                set.insert(u64::from(take_u32(&mut body)?));
            }
            SINGLE64 => {
                set.insert(take_u64(&mut body)?);
            }
            BITMAP32 => {
                let bitmap = RoaringBitmap::deserialize_from(&mut body).ok()?;
                set = RoaringTreemap::from_bitmaps([(0, bitmap)]);
            }
            BITMAP64 => {
                let count = take_varint(&mut body)?;
                let mut parts = Vec::new();
                for _ in 0..count {
                    let upper = take_u32(&mut body)?;
                    parts.push((upper, RoaringBitmap::deserialize_from(&mut body).ok()?));
                }
                set = RoaringTreemap::from_bitmaps(parts);
            }
            SET => {
                let (count, rest) = body.split_first()?;
                body = rest;
                for _ in 0..*count {
                    set.insert(take_u64(&mut body)?);
                }
            }
            _ => return None,
        }
        body.is_empty().then_some(Self(set))
    }
}

/// The union of two serialised bitmaps: what BITMAP_UNION stores. `None` when one of them is no bitmap.
pub fn union_bytes(left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
    let mut out = Bitmap::from_bytes(left)?;
    out.union_with(&Bitmap::from_bytes(right)?);
    Some(out.to_bytes())
}

/// The bytes of the empty bitmap.
pub fn empty_bytes() -> Vec<u8> {
    vec![EMPTY]
}

fn take_u32(body: &mut &[u8]) -> Option<u32> {
    let (head, rest) = body.split_first_chunk::<4>()?;
    *body = rest;
    Some(u32::from_le_bytes(*head))
}

fn take_u64(body: &mut &[u8]) -> Option<u64> {
    let (head, rest) = body.split_first_chunk::<8>()?;
    *body = rest;
    Some(u64::from_le_bytes(*head))
}

/// Seven bits per byte, lowest first; the high bit says that more follow.
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(body: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = body.split_first()?;
        *body = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_survives_its_bytes() {
        let cases: [(&str, u8); 6] = [
            ("", EMPTY),
            ("7", SINGLE32),
            ("4294967296", SINGLE64),
            ("1,2,4294967295", BITMAP32),
            ("0,4294967296,18446744073709551615", BITMAP64),
            ("18446744073709551615", SINGLE64),
        ];
        for (text, kind) in cases {
            let bitmap = Bitmap::from_text(text).unwrap();
            let bytes = bitmap.to_bytes();
            assert_eq!(bytes[0], kind, "{text}");
            assert_eq!(Bitmap::from_bytes(&bytes), Some(bitmap.clone()), "{text}");
            assert_eq!(bitmap.to_text(), text);
            let cut = &bytes[..bytes.len() - 1];
            assert_eq!(Bitmap::from_bytes(cut), None, "{text} cut");
        }
    }

    #[test]
    fn short_lists_of_newer_servers_are_read() {
        let mut bytes = vec![SET, 2];
        bytes.extend(5_u64.to_le_bytes());
        bytes.extend((1_u64 << 40).to_le_bytes());
        assert_eq!(Bitmap::from_bytes(&bytes).unwrap().to_text(), "5,1099511627776");
        assert_eq!(Bitmap::from_bytes(&[9]), None);
        assert_eq!(Bitmap::from_bytes(&[]), None);
    }

    #[test]
    fn unions_of_bytes() {
        let a = Bitmap::from_text("1, 2").unwrap().to_bytes();
        let b = Bitmap::from_text("2,4294967296").unwrap().to_bytes();
        let both = union_bytes(&a, &b).unwrap();
        assert_eq!(Bitmap::from_bytes(&both).unwrap().to_text(), "1,2,4294967296");
        assert_eq!(union_bytes(&a, &empty_bytes()).unwrap(), a);
        assert_eq!(union_bytes(&a, b"x"), None);
        for text in ["-1", "1,,2", "a", "1.5", "18446744073709551616"] {
            assert_eq!(Bitmap::from_text(text), None, "{text}");
        }
    }
}
