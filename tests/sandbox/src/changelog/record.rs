//! What a commit records.

use arrow::array::RecordBatch;

/// What a write did to a key; the record's raw op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawOp {
    /// A new row.
    Insert,
    /// A live key got a new row.
    Update,
    /// A live key was deleted.
    Delete,
}

impl RawOp {
    /// The code in raw records; `@incr` has other ones.
    pub(crate) fn code(self) -> i64 {
        match self {
            Self::Insert => 0,
            Self::Update => 1,
            Self::Delete => 2,
        }
    }
}

/// The change records of one commit in one rowset.
#[derive(Debug)]
pub struct ChangeBatch {
    /// Commit TSO, the same for all records.
    pub tso: i64,
    /// LSN of the first record in its transaction; the others follow.
    pub first_lsn: i64,
    /// Id of the partition the rows are in.
    pub partition: u64,
    /// Id of the tablet the rows are in.
    pub tablet: u64,
    /// Raw op of each record.
    pub ops: Vec<RawOp>,
    /// Rows after the change; of deletes the key columns only.
    pub after: RecordBatch,
    /// Rows before the change where the table keeps them; NULL rows for inserts.
    pub before: Option<RecordBatch>,
}

impl ChangeBatch {
    /// Records of a batch in which every row is new; `place` is its partition and tablet.
    pub(crate) fn inserts(tso: i64, first_lsn: i64, place: (u64, u64), batch: RecordBatch) -> Self {
        let (partition, tablet) = place;
        let ops = vec![RawOp::Insert; batch.num_rows()];
        Self { tso, first_lsn, partition, tablet, ops, after: batch, before: None }
    }
}
