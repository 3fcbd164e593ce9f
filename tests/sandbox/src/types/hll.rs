//! HLL values: HyperLogLog sketches of 16384 registers, and the bytes in which a server stores them.
//!
//! A small sketch keeps its hashes themselves, so that it counts exactly; beyond 160 it becomes registers, which are
//! stored sparse while few are set.

use std::collections::BTreeSet;

const REGISTERS: usize = 16_384;
/// Bits of a hash that choose the register.
const PRECISION: u32 = 14;
/// Hashes a sketch keeps before it becomes registers.
const EXPLICIT_MAX: usize = 160;
/// Registers up to which the sparse form is the shorter one.
const SPARSE_MAX: usize = 4096;

const EMPTY: u8 = 0;
const EXPLICIT: u8 = 1;
const SPARSE: u8 = 2;
const FULL: u8 = 3;

/// Seed with which texts are hashed.
const SEED: u64 = 0xadc8_3b19;

/// A HyperLogLog sketch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hll {
    /// The hashes of the values; empty at first.
    Explicit(BTreeSet<u64>),
    /// One byte per register.
    Registers(Vec<u8>),
}

impl Default for Hll {
    fn default() -> Self {
        Self::Explicit(BTreeSet::new())
    }
}

impl Hll {
    /// A sketch that saw nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A sketch that saw one value.
    pub fn of_value(value: &[u8]) -> Self {
        let mut sketch = Self::new();
        sketch.add(value);
        sketch
    }

    /// Adds a value.
    pub fn add(&mut self, value: &[u8]) {
        let hash = murmur64(value, SEED);
        // Zero stands for nothing in the stored form.
        if hash != 0 {
            self.add_hash(hash);
        }
    }

    fn add_hash(&mut self, hash: u64) {
        match self {
            Self::Explicit(hashes) => {
                hashes.insert(hash);
                if hashes.len() > EXPLICIT_MAX {
                    *self = Self::Registers(self.registers());
                }
            }
            Self::Registers(registers) => set_register(registers, hash),
        }
    }

    fn registers(&self) -> Vec<u8> {
        match self {
            Self::Registers(registers) => registers.clone(),
            Self::Explicit(hashes) => {
                let mut registers = vec![0; REGISTERS];
                hashes.iter().for_each(|hash| set_register(&mut registers, *hash));
                registers
            }
        }
    }

    /// Adds what another sketch saw.
    pub fn union_with(&mut self, other: &Self) {
        match (&mut *self, other) {
            (_, Self::Explicit(hashes)) => hashes.iter().for_each(|hash| self.add_hash(*hash)),
            (Self::Registers(mine), Self::Registers(theirs)) => {
                mine.iter_mut().zip(theirs).for_each(|(a, b)| *a = (*a).max(*b));
            }
            (Self::Explicit(_), Self::Registers(theirs)) => {
                let mut registers = self.registers();
                registers.iter_mut().zip(theirs).for_each(|(a, b)| *a = (*a).max(*b));
                *self = Self::Registers(registers);
            }
        }
    }

    /// The estimate of how many distinct values the sketch saw.
    pub fn cardinality(&self) -> i64 {
        let registers = match self {
            Self::Explicit(hashes) => return hashes.len() as i64,
            Self::Registers(registers) => registers,
        };
        let m = REGISTERS as f64;
        let sum: f64 = registers.iter().map(|rank| 2_f64.powi(-i32::from(*rank))).sum();
        let zeros = registers.iter().filter(|rank| **rank == 0).count();
        let mut estimate = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        if zeros > 0 && estimate <= m * 2.5 {
            estimate = m * (m / zeros as f64).ln();
        } else if estimate < 72_000.0 {
            // A polynomial fit of the bias between linear counting and the asymptotic estimate.
            let bias = 5.9119e-18 * estimate.powi(4) - 1.4253e-12 * estimate.powi(3) + 1.2940e-7 * estimate.powi(2)
                - 5.2921e-3 * estimate
                + 83.3216;
            estimate -= estimate * (bias / 100.0);
        }
        (estimate + 0.5) as i64
    }

    /// The bytes a server stores.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Explicit(hashes) if hashes.is_empty() => vec![EMPTY],
            Self::Explicit(hashes) => {
                let mut out = vec![EXPLICIT, hashes.len() as u8];
                hashes.iter().for_each(|hash| out.extend(hash.to_le_bytes()));
                out
            }
            Self::Registers(registers) => {
                let set: Vec<(usize, u8)> =
                    registers.iter().copied().enumerate().filter(|(_, rank)| *rank > 0).collect();
                if set.len() > SPARSE_MAX {
                    return [&[FULL][..], registers].concat();
                }
                let mut out = vec![SPARSE];
                out.extend((set.len() as i32).to_le_bytes());
                for (index, rank) in set {
                    out.extend((index as u16).to_le_bytes());
                    out.push(rank);
                }
                out
            }
        }
    }

    /// Reads the bytes a server stores; `None` when they are no sketch.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, body) = bytes.split_first()?;
        match *kind {
            EMPTY => body.is_empty().then(Self::new),
            EXPLICIT => {
                let (count, body) = body.split_first()?;
                if body.len() != usize::from(*count) * 8 {
                    return None;
                }
                let (hashes, _) = body.as_chunks::<8>();
                Some(Self::Explicit(hashes.iter().map(|hash| u64::from_le_bytes(*hash)).collect()))
            }
            SPARSE => {
                let (count, body) = body.split_first_chunk::<4>()?;
                let count = usize::try_from(i32::from_le_bytes(*count)).ok()?;
                if body.len() != count.checked_mul(3)? {
                    return None;
                }
                let mut registers = vec![0; REGISTERS];
                for [low, high, rank] in body.as_chunks::<3>().0 {
                    *registers.get_mut(usize::from(u16::from_le_bytes([*low, *high])))? = *rank;
                }
                Some(Self::Registers(registers))
            }
            FULL => (body.len() == REGISTERS).then(|| Self::Registers(body.to_vec())),
            _ => None,
        }
    }
}

/// The union of two serialised sketches: what HLL_UNION stores. `None` when one of them is no sketch.
pub fn union_bytes(left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
    let mut out = Hll::from_bytes(left)?;
    out.union_with(&Hll::from_bytes(right)?);
    Some(out.to_bytes())
}

/// The bytes of the empty sketch.
pub fn empty_bytes() -> Vec<u8> {
    vec![EMPTY]
}

/// The low bits choose the register, which keeps the longest run of zeros seen in the rest.
fn set_register(registers: &mut [u8], hash: u64) {
    let index = (hash % REGISTERS as u64) as usize;
    // The guard bit bounds the run.
    let rest = (hash >> PRECISION) | (1 << (64 - PRECISION));
    let rank = rest.trailing_zeros() as u8 + 1;
    registers[index] = registers[index].max(rank);
}

/// The 64-bit Murmur hash (variant A).
fn murmur64(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut last = [0_u8; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> R)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn sketch(values: std::ops::Range<u32>) -> Hll {
        let mut out = Hll::new();
        values.for_each(|value| out.add(value.to_string().as_bytes()));
        out
    }

    #[test]
    fn small_sketches_count_exactly_and_large_ones_closely() {
        assert_eq!(Hll::new().cardinality(), 0);
        assert_eq!(sketch(0..160).cardinality(), 160);
        for count in [1000_u32, 20_000, 100_000] {
            let estimate = sketch(0..count).cardinality() as f64;
            let error = (estimate / f64::from(count) - 1.0).abs();
            assert!(error < 0.03, "{count}: {estimate}");
        }
    }

    #[test]
    fn every_form_survives_its_bytes() {
        for (count, kind) in [(0, EMPTY), (1, EXPLICIT), (160, EXPLICIT), (161, SPARSE), (50_000, FULL)] {
            let hll = sketch(0..count);
            let bytes = hll.to_bytes();
            assert_eq!(bytes[0], kind, "{count}");
            assert_eq!(Hll::from_bytes(&bytes), Some(hll), "{count}");
            if count > 0 {
                assert_eq!(Hll::from_bytes(&bytes[..bytes.len() - 1]), None, "{count} cut");
            }
        }
        assert_eq!(Hll::from_bytes(&[]), None);
        assert_eq!(Hll::from_bytes(&[7]), None);
    }

    #[test]
    fn a_union_equals_the_sketch_of_all_values() {
        for (a, b, c) in [(0, 50, 100), (0, 100, 300), (0, 300, 350), (0, 9000, 20_000)] {
            let both = union_bytes(&sketch(a..b).to_bytes(), &sketch(b..c).to_bytes()).unwrap();
            assert_eq!(Hll::from_bytes(&both), Some(sketch(a..c)), "{a} {b} {c}");
        }
        assert_eq!(union_bytes(&empty_bytes(), b"\x09"), None);
    }

    #[test]
    fn the_hash_is_the_published_function() {
        // Values of the reference implementation.
        assert_eq!(murmur64(b"", 0), 0);
        assert_ne!(murmur64(b"a", SEED), murmur64(b"b", SEED));
        assert_ne!(murmur64(b"12345678", SEED), murmur64(b"123456789", SEED));
    }
}
