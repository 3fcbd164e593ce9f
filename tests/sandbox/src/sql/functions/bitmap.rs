//! Functions of BITMAP and HLL values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::row::{Call, Def, Outcome, f, int, null, text, truth};
use crate::types::bitmap::{Bitmap, empty_bytes};
use crate::types::hll::Hll;
use crate::types::{DorisType, Value};

pub(crate) fn read(bytes: &[u8]) -> Bitmap {
    Bitmap::from_bytes(bytes).unwrap_or_default()
}

fn out(bitmap: &Bitmap) -> Outcome {
    Ok(Value::Bytes(bitmap.to_bytes()))
}

/// A number of a text or of an integer, when it is one of 64 unsigned bits.
fn member(value: &Value) -> Option<u64> {
    match value {
        Value::Int(v) => u64::try_from(*v).ok(),
        Value::Text(v) => v.trim().parse().ok(),
        Value::Bool(v) => Some(u64::from(*v)),
        _ => None,
    }
}

fn fold(c: &Call<'_>, combine: fn(&mut Bitmap, &Bitmap)) -> Bitmap {
    let mut all = read(c.bytes(0));
    (1..c.len()).for_each(|i| combine(&mut all, &read(c.bytes(i))));
    all
}

fn count(bitmap: &Bitmap) -> Outcome {
    int(i128::from(bitmap.cardinality()))
}

/// The 32-bit Murmur hash (third version).
fn murmur3(bytes: &[u8], seed: u32) -> u32 {
    let mix = |k: u32| k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, tail) = bytes.as_chunks::<4>();
    let mut hash = words.iter().fold(seed, |hash, word| {
        (hash ^ mix(u32::from_le_bytes(*word))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    if !tail.is_empty() {
        let mut last = [0_u8; 4];
        last[..tail.len()].copy_from_slice(tail);
        hash ^= mix(u32::from_le_bytes(last));
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

const HASH_SEED: u32 = 104_729;

pub(crate) fn defs() -> Vec<Def> {
    use DorisType::{BigInt, Boolean, String as Text};
    let numbers = || DorisType::Array(Box::new(BigInt));
    let mut defs = vec![
        f("to_bitmap", "a", DorisType::Bitmap, |c| {
            // What is no member gives the empty set, as NULL does.
            let single = member(&c.args[0]).map(|value| Bitmap::from_iter([value]));
            out(&single.unwrap_or_default())
        })
        .with_nulls(),
        f("to_bitmap_with_check", "a", DorisType::Bitmap, |c| match member(&c.args[0]) {
            Some(value) => out(&Bitmap::from_iter([value])),
            None if c.args[0].is_null() => out(&Bitmap::new()),
            None => Err(format!(
                "[INVALID_ARGUMENT]The input: {} is not valid, to_bitmap only support bigint value from 0 to 18446744073709551615 currently",
                c.args[0].text(&c.types[0]).unwrap_or_default()
            )),
        })
        .with_nulls(),
        f("bitmap_empty", "", DorisType::Bitmap, |_| Ok(Value::Bytes(empty_bytes()))),
        f("bitmap_from_string", "s", DorisType::Bitmap, |c| match Bitmap::from_text(c.s(0)) {
            Some(bitmap) => out(&bitmap),
            None => null(),
        }),
        f("bitmap_from_array", "a", DorisType::Bitmap, |c| {
            out(&c.list(0).iter().filter_map(member).collect::<Bitmap>())
        }),
        f("bitmap_hash", "s", DorisType::Bitmap, |c| {
            out(&Bitmap::from_iter([u64::from(murmur3(c.s(0).as_bytes(), HASH_SEED))]))
        }),
        f("bitmap_to_string", "m", Text, |c| text(read(c.bytes(0)).to_text())),
        f("bitmap_to_array", "m", numbers(), |c| {
            Ok(Value::List(read(c.bytes(0)).iter().map(|v| Value::Int(i128::from(v))).collect()))
        }),
        f("bitmap_to_base64", "m", Text, |c| text(STANDARD.encode(c.bytes(0)))),
        f("bitmap_from_base64", "s", DorisType::Bitmap, |c| {
            let bitmap = STANDARD.decode(c.s(0)).ok().and_then(|bytes| Bitmap::from_bytes(&bytes));
            bitmap.map_or_else(null, |bitmap| out(&bitmap))
        }),
        f("bitmap_count", "m", BigInt, |c| count(&read(c.bytes(0)))),
        f("bitmap_contains", "mi", Boolean, |c| {
            truth(u64::try_from(c.i(1)).is_ok_and(|value| read(c.bytes(0)).contains(value)))
        }),
        f("bitmap_has_any", "mm", Boolean, |c| {
            truth(fold(c, Bitmap::intersect_with).cardinality() > 0)
        }),
        f("bitmap_has_all", "mm", Boolean, |c| {
            let mut rest = read(c.bytes(1));
            rest.subtract(&read(c.bytes(0)));
            truth(rest.cardinality() == 0)
        }),
        f("bitmap_and", "mm+", DorisType::Bitmap, |c| out(&fold(c, Bitmap::intersect_with))),
        f("bitmap_xor", "mm+", DorisType::Bitmap, |c| out(&fold(c, Bitmap::symmetric_difference_with))),
        f("bitmap_not bitmap_and_not", "mm", DorisType::Bitmap, |c| out(&fold(c, Bitmap::subtract))),
        f("bitmap_and_count", "mm+", BigInt, |c| count(&fold(c, Bitmap::intersect_with))),
        f("bitmap_xor_count", "mm+", BigInt, |c| count(&fold(c, Bitmap::symmetric_difference_with))),
        f("bitmap_and_not_count", "mm", BigInt, |c| count(&fold(c, Bitmap::subtract))),
        f("bitmap_min", "m", BigInt, |c| Ok(read(c.bytes(0)).min().map_or(Value::Null, |v| Value::Int(v.into())))),
        f("bitmap_max", "m", BigInt, |c| Ok(read(c.bytes(0)).max().map_or(Value::Null, |v| Value::Int(v.into())))),
        f("bitmap_subset_in_range", "mii", DorisType::Bitmap, |c| {
            let range = c.i(1).max(0) as u64..c.i(2).max(0) as u64;
            out(&read(c.bytes(0)).iter().filter(|v| range.contains(v)).collect::<Bitmap>())
        }),
        f("bitmap_subset_limit", "mii", DorisType::Bitmap, |c| {
            let (from, limit) = (c.i(1).max(0) as u64, c.i(2).max(0) as usize);
            out(&read(c.bytes(0)).iter().filter(|v| *v >= from).take(limit).collect::<Bitmap>())
        }),
        f("sub_bitmap", "mii", DorisType::Bitmap, |c| {
            let bitmap = read(c.bytes(0));
            let size = bitmap.cardinality() as i64;
            let offset = if c.i(1) < 0 { size + c.i(1) } else { c.i(1) };
            if size == 0 || offset < 0 || offset >= size || c.i(2) <= 0 {
                return null();
            }
            out(&bitmap.iter().skip(offset as usize).take(c.i(2) as usize).collect::<Bitmap>())
        }),
        f("hll_hash", "s", DorisType::Hll, |c| {
            let hll = if c.args[0].is_null() { Hll::new() } else { Hll::of_value(c.s(0).as_bytes()) };
            Ok(Value::Bytes(hll.to_bytes()))
        })
        .with_nulls(),
        f("hll_empty", "", DorisType::Hll, |_| Ok(Value::Bytes(Hll::new().to_bytes()))),
        f("hll_cardinality", "h", BigInt, |c| {
            int(Hll::from_bytes(c.bytes(0)).map_or(0, |hll| hll.cardinality()))
        })
        .with_nulls(),
        f("hll_to_base64", "h", Text, |c| text(STANDARD.encode(c.bytes(0)))),
        f("hll_from_base64", "s", DorisType::Hll, |c| {
            let hll = STANDARD.decode(c.s(0)).ok().and_then(|bytes| Hll::from_bytes(&bytes));
            Ok(hll.map_or(Value::Null, |hll| Value::Bytes(hll.to_bytes())))
        }),
    ];
    // A union takes NULL for the empty set.
    defs.push(f("bitmap_or", "mm+", DorisType::Bitmap, |c| out(&fold(c, Bitmap::union_with))).with_nulls());
    defs.push(f("bitmap_or_count", "mm+", BigInt, |c| count(&fold(c, Bitmap::union_with))).with_nulls());
    defs
}

#[cfg(test)]
mod tests {
    use super::murmur3;

    #[test]
    fn the_hash_is_the_published_function() {
        assert_eq!(murmur3(b"", 0), 0);
        assert_eq!(murmur3(b"", 1), 0x514e_28b7);
        assert_eq!(murmur3(b"test", 0), 0xba6b_d213);
        assert_eq!(murmur3(b"Hello, world!", 0x9747_b28c), 0x2488_4cba);
    }
}
