//! Joins of a stream with a table that is asked for the rows of the stream's keys.
//!
//! ```text
//! batch of the stream ─▶ distinct keys without NULL ─▶ kept? ─▶ else RowSource: `lookup.jdbc.read.batch.size` keys each
//!   ─▶ the rows of all keys ─▶ DataFusion's own hash join of those rows with the batch ─▶ its rows, in the batch's order
//! ```
//!
//! The rows are those of the moment of the lookup (or of the cache, up to its age): a stream that is read again may be
//! joined with other rows. Everything about the result of the join (its type, NULL keys, doubled keys, conditions) is
//! DataFusion's, since its join runs on the rows that were found.

mod cache;
mod exec;
mod keys;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;

use std::fmt;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::BoxStream;

pub use exec::LookupJoinExec;
pub(crate) use keys::{KeyColumn, casts_one_to_one};

use crate::error::Result;

/// Gives rows by their keys.
#[async_trait]
pub trait RowSource: fmt::Debug + Send + Sync {
    /// Schema of the rows.
    fn schema(&self) -> SchemaRef;

    /// At least all rows whose key columns equal a row of `keys`, which holds distinct keys without NULL, one column for
    /// each key column. What is read ahead is counted beside `memory`; what the stream gives is its taker's to count.
    async fn rows(
        &self,
        keys: &RecordBatch,
        memory: &MemoryReservation,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>>;

    /// What is asked, as text without keys and secrets.
    fn text(&self) -> String;
}
