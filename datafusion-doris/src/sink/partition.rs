//! Which load takes a row: rows of one key always take the same one, in the order of the input. Pure.
//!
//! A later load does not replace what an earlier one wrote unless both are committed in that order, and loads that run at
//! once are committed in any. In tables that keep one row per key (UNIQUE, AGGREGATE) all changes of a key must therefore
//! be in one load. A DUPLICATE table keeps every row and no order between them, so whole batches take turns.
//!
//! What counts is the key that Doris stores, not its bytes in Arrow: a key column takes part by its logical value, and only
//! if equal keys in Doris come from values that are hashed alike. Columns where that is not certain are left out. That
//! is always right: rows of the same key agree in each of its columns. Without any column left there is one load.

use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use arrow::record_batch::RecordBatch;

use crate::error::Result;
use crate::types::{DorisType, KeyModel, TableSchema};

/// How the rows of a sink are shared out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Routing {
    /// Whole batches, one after the other.
    Turns,
    /// By these columns.
    Key(Vec<KeyColumn>),
    /// All rows go into one load, because of this.
    One(&'static str),
}

/// A column whose value says where a row goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyColumn {
    pub(super) name: String,
    /// Index in the batch.
    at: usize,
    kind: Kind,
}

/// What makes two values the same key in Doris.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    /// The number, at this scale and with at most so many digits; beyond them Doris has no value but NULL.
    Number {
        scale: i8,
        digits: u32,
    },
    /// Whole numbers of so many bits, with sign.
    Integer {
        bits: u8,
    },
    /// The day.
    Date,
    /// The instant, rounded half up to so many digits, as Doris does.
    Instant {
        digits: u8,
    },
    /// The bytes, without blanks and zero bytes at the end: padding of CHAR.
    Text,
}

impl Routing {
    /// How rows of `schema` go into `target`. `mapped` = the load computes columns of the target by expressions.
    pub(super) fn of(target: &TableSchema, schema: &Schema, mapped: bool) -> Self {
        match target.model {
            Some(KeyModel::Duplicate) => return Routing::Turns,
            Some(KeyModel::Unique | KeyModel::Aggregate) => {}
            None => return Routing::One("the model of the table is not known"),
        }
        if mapped {
            return Routing::One("'sink.properties.columns' may compute the key");
        }
        let keys = schema.fields().iter().enumerate().filter_map(|(at, field)| {
            let column = target.column(field.name()).filter(|column| column.key)?;
            let kind = Kind::of(&column.doris_type, field.data_type())?;
            Some(KeyColumn { name: column.name.clone(), at, kind })
        });
        let keys: Vec<KeyColumn> = keys.collect();
        if keys.is_empty() { Routing::One("no key column can be compared") } else { Routing::Key(keys) }
    }
}

impl Kind {
    /// How values of `data_type` are compared once they are in a column of `doris_type`; `None` = not certain.
    fn of(doris_type: &DorisType, data_type: &DataType) -> Option<Self> {
        use DataType::*;
        let data_type = match data_type {
            Dictionary(_, values) => values.as_ref(),
            RunEndEncoded(_, values) => values.data_type(),
            other => other,
        };
        let integer_from = matches!(data_type, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64);
        let scale_from = match data_type {
            Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) | Decimal256(_, scale) => Some(*scale),
            _ => integer_from.then_some(0),
        };
        let integer = |bits| (scale_from == Some(0)).then_some(Kind::Integer { bits });
        match doris_type {
            DorisType::Boolean => matches!(data_type, Boolean).then_some(Kind::Boolean),
            DorisType::TinyInt => integer(8),
            DorisType::SmallInt => integer(16),
            DorisType::Int => integer(32),
            DorisType::BigInt => integer(64),
            DorisType::LargeInt => integer(128),
            DorisType::Decimal(digits, scale) => {
                let scale = i8::try_from(*scale).ok()?;
                // More digits after the point than the column has would be rounded.
                let fits = scale_from.is_some_and(|from| (0..=scale).contains(&from));
                fits.then_some(Kind::Number { scale, digits: u32::from(*digits) })
            }
            DorisType::Date => matches!(data_type, Date32 | Date64).then_some(Kind::Date),
            DorisType::DateTime(digits) | DorisType::TimestampTz(digits) => match data_type {
                Timestamp(_, zone) => {
                    // Two instants of another zone may have one wall clock.
                    let plain = zone.as_deref().is_none_or(|zone| matches!(zone, "UTC" | "+00:00" | "Z"));
                    plain.then_some(Kind::Instant { digits: *digits })
                }
                _ => None,
            },
            DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String => {
                matches!(data_type, Utf8 | LargeUtf8 | Utf8View).then_some(Kind::Text)
            }
            _ => None,
        }
    }

    /// Mixes the values of `array` into `hashes`, one for each row.
    fn mix(self, array: &ArrayRef, hashes: &mut [u64]) -> Result<()> {
        let array = match array.data_type() {
            DataType::Dictionary(_, values) => cast(array, values)?,
            DataType::RunEndEncoded(_, values) => cast(array, values.data_type())?,
            _ => ArrayRef::clone(array),
        };
        match self {
            Kind::Text => mix_texts(&array, hashes)?,
            Kind::Boolean => {
                let values = array.as_boolean();
                mix_each(&array, hashes, |row| Some(i256::from_i128(i128::from(values.value(row)))));
            }
            Kind::Integer { bits } => {
                let half = i256::ONE << bits.saturating_sub(1);
                let fits = |value: &i256| *value < half && *value >= half.wrapping_neg();
                numbers(&array, |value| Some(value).filter(fits), hashes);
            }
            Kind::Number { scale, digits } => {
                let from = match array.data_type() {
                    DataType::Decimal32(_, from)
                    | DataType::Decimal64(_, from)
                    | DataType::Decimal128(_, from)
                    | DataType::Decimal256(_, from) => *from,
                    _ => 0,
                };
                let ten = i256::from_i128(10);
                let factor =
                    u32::try_from(scale.saturating_sub(from)).ok().and_then(|exponent| ten.checked_pow(exponent));
                let limit = ten.checked_pow(digits);
                let scaled = |value: i256| {
                    let value = value.checked_mul(factor?)?;
                    let magnitude = if value.is_negative() { value.wrapping_neg() } else { value };
                    limit.is_none_or(|limit| magnitude < limit).then_some(value)
                };
                numbers(&array, scaled, hashes);
            }
            Kind::Date => match array.data_type() {
                DataType::Date64 => {
                    let values = array.as_primitive::<Date64Type>();
                    mix_each(&array, hashes, |row| Some(whole(values.value(row).div_euclid(86_400_000))));
                }
                _ => {
                    let values = array.as_primitive::<Date32Type>();
                    mix_each(&array, hashes, |row| Some(whole(values.value(row))));
                }
            },
            Kind::Instant { digits } => {
                let unit = 10_i128.pow(9_u32.saturating_sub(u32::from(digits)));
                // Nanoseconds fit whatever the unit was.
                let rounded = |value: i64, nanos: i128| {
                    Some(i256::from_i128((i128::from(value) * nanos + unit / 2).div_euclid(unit)))
                };
                macro_rules! instants {
                    ($type:ty, $nanos:expr) => {{
                        let values = array.as_primitive::<$type>();
                        mix_each(&array, hashes, |row| rounded(values.value(row), $nanos));
                    }};
                }
                match array.data_type() {
                    DataType::Timestamp(TimeUnit::Second, _) => instants!(TimestampSecondType, 1_000_000_000),
                    DataType::Timestamp(TimeUnit::Millisecond, _) => instants!(TimestampMillisecondType, 1_000_000),
                    DataType::Timestamp(TimeUnit::Microsecond, _) => instants!(TimestampMicrosecondType, 1000),
                    _ => instants!(TimestampNanosecondType, 1),
                }
            }
        }
        Ok(())
    }
}

fn whole(value: impl Into<i128>) -> i256 {
    i256::from_i128(value.into())
}

/// Mixes whole numbers and unscaled decimals, after `normal`.
fn numbers(array: &ArrayRef, normal: impl Fn(i256) -> Option<i256>, hashes: &mut [u64]) {
    macro_rules! of {
        ($type:ty, $wide:expr) => {{
            let values = array.as_primitive::<$type>();
            mix_each(array, hashes, |row| normal($wide(values.value(row))));
        }};
    }
    match array.data_type() {
        DataType::Int8 => of!(Int8Type, whole),
        DataType::Int16 => of!(Int16Type, whole),
        DataType::Int32 => of!(Int32Type, whole),
        DataType::Int64 => of!(Int64Type, whole),
        DataType::UInt8 => of!(UInt8Type, whole),
        DataType::UInt16 => of!(UInt16Type, whole),
        DataType::UInt32 => of!(UInt32Type, whole),
        DataType::UInt64 => of!(UInt64Type, whole),
        DataType::Decimal32(..) => of!(Decimal32Type, whole),
        DataType::Decimal64(..) => of!(Decimal64Type, whole),
        DataType::Decimal128(..) => of!(Decimal128Type, whole),
        DataType::Decimal256(..) => of!(Decimal256Type, |value: i256| value),
        // Planned as one of the above: whatever else comes is one key.
        _ => {}
    }
}

/// Mixes one number for each row; NULL, and what Doris would make NULL, count as one value.
fn mix_each(array: &ArrayRef, hashes: &mut [u64], value: impl Fn(usize) -> Option<i256>) {
    for (row, hash) in hashes.iter_mut().enumerate() {
        let value = if array.is_null(row) { None } else { value(row) };
        *hash = value.map_or_else(
            || mixed(*hash, u64::MAX - 1),
            |value| {
                let (low, high) = value.to_parts();
                let high = high as u128;
                // The halves of a small number are its sign: nothing is lost by folding them.
                [low as u64, (low >> 64) as u64 ^ high as u64, (high >> 64) as u64].into_iter().fold(*hash, mixed)
            },
        );
    }
}

fn mix_texts(array: &ArrayRef, hashes: &mut [u64]) -> Result<()> {
    let array = cast(array, &DataType::Utf8View)?;
    let values = array.as_string_view();
    for (row, hash) in hashes.iter_mut().enumerate() {
        *hash = if values.is_null(row) { mixed(*hash, u64::MAX - 1) } else { mixed_text(*hash, values.value(row)) };
    }
    Ok(())
}

fn mixed_text(hash: u64, text: &str) -> u64 {
    let text = text.trim_end_matches([' ', '\0']).as_bytes();
    let (words, rest) = text.as_chunks::<8>();
    let hash = words.iter().fold(mixed(hash, text.len() as u64), |hash, word| mixed(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| mixed(hash, u64::from(*byte)))
}

fn mixed(hash: u64, value: u64) -> u64 {
    (hash.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// Rows of a batch that go into one load, in the order of the input.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) batch: RecordBatch,
    /// Row of the input's batch for each row; `None` = the batch is whole.
    pub(super) rows: Option<UInt32Array>,
}

/// Shares out the batches of one statement or epoch.
#[derive(Debug)]
pub(super) struct Partitioner<'a> {
    routing: &'a Routing,
    writers: usize,
    turn: usize,
}

impl<'a> Partitioner<'a> {
    pub(super) fn new(routing: &'a Routing, writers: usize) -> Self {
        Self { routing, writers: writers.max(1), turn: 0 }
    }

    /// The writers that get rows of `batch`, and which.
    ///
    /// # Errors
    /// When Arrow cannot pick rows of the batch.
    pub(super) fn split(&mut self, batch: RecordBatch) -> Result<Vec<(usize, Part)>> {
        let whole = |batch| Part { batch, rows: None };
        let keys = match self.routing {
            _ if batch.num_rows() == 0 => return Ok(vec![]),
            Routing::Key(keys) if self.writers > 1 => keys,
            Routing::Key(_) | Routing::One(_) => return Ok(vec![(0, whole(batch))]),
            Routing::Turns => {
                let writer = self.turn;
                self.turn = (self.turn + 1) % self.writers;
                return Ok(vec![(writer, whole(batch))]);
            }
        };
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.writers];
        for (row, writer) in (0_u32..).zip(self.writers_of(keys, &batch)?) {
            rows[writer].push(row);
        }
        let mut parts = Vec::with_capacity(self.writers);
        for (writer, rows) in rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            if rows.len() == batch.num_rows() {
                return Ok(vec![(writer, whole(batch))]);
            }
            let rows = UInt32Array::from(rows);
            let part = take_record_batch(&batch, &rows)?;
            parts.push((writer, Part { batch: part, rows: Some(rows) }));
        }
        Ok(parts)
    }

    /// The writer of each row.
    fn writers_of(&self, keys: &[KeyColumn], batch: &RecordBatch) -> Result<Vec<usize>> {
        let mut hashes = vec![0_u64; batch.num_rows()];
        for key in keys {
            key.kind.mix(batch.column(key.at), &mut hashes)?;
        }
        let writers = self.writers as u64;
        let writer = |hash: u64| {
            // The low bits of a product are weak.
            let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            ((hash ^ (hash >> 32)) % writers) as usize
        };
        Ok(hashes.into_iter().map(writer).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
