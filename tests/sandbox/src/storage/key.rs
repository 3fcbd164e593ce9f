//! Hashes of key values: 128 bits stand for a key in the index, 64 bits choose the bucket.

use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

use arrow::array::ArrayRef;
use arrow::row::{RowConverter, SortField};

use crate::error::SqlError;

/// Passes a 128-bit hash on: it is uniform already.
#[derive(Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0_u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
}

pub(super) type BuildIdentity = BuildHasherDefault<Identity>;

fn rows(columns: &[ArrayRef]) -> Result<arrow::row::Rows, SqlError> {
    let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    RowConverter::new(fields).and_then(|converter| converter.convert_columns(columns)).map_err(SqlError::detail)
}

/// One 128-bit hash per row over the columns.
pub(crate) fn hash_keys(columns: &[ArrayRef]) -> Result<Vec<u128>, SqlError> {
    Ok(rows(columns)?
        .iter()
        .map(|row| {
            let bytes = row.as_ref();
            let mut low = DefaultHasher::new();
            low.write(bytes);
            let mut high = DefaultHasher::new();
            high.write_u8(1);
            high.write(bytes);
            (u128::from(high.finish()) << 64) | u128::from(low.finish())
        })
        .collect())
}

/// Bucket of each row.
pub(super) fn bucket_of(columns: &[ArrayRef], buckets: usize) -> Result<Vec<u32>, SqlError> {
    Ok(rows(columns)?
        .iter()
        .map(|row| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(2);
            hasher.write(row.as_ref());
            (hasher.finish() % buckets as u64) as u32
        })
        .collect())
}
