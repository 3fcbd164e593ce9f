//! Memory of batches that were read and not taken yet.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::error::Result;

/// The account of a session's memory pool that batches are counted on while they are read ahead; by default none.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadMemory(Option<Arc<MemoryReservation>>);

impl ReadMemory {
    /// Counted beside `reservation`, for the same consumer.
    pub fn beside(reservation: &MemoryReservation) -> Self {
        Self(Some(Arc::new(reservation.new_empty())))
    }

    /// What one reader holds besides the batches it has given away.
    pub(super) fn coming(&self) -> Coming {
        Coming { memory: self.clone(), held: self.0.as_ref().map(|account| account.new_empty()) }
    }
}

/// A reader's share: the batch that it decodes or fills, taken to be as large as the last one.
#[derive(Debug)]
pub(super) struct Coming {
    memory: ReadMemory,
    held: Option<MemoryReservation>,
}

impl Coming {
    /// Counts as much as `batch` for the next one; `batch` itself is taken at once.
    ///
    /// # Errors
    /// The pool's, when it does not fit.
    pub fn passed(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if let Some(held) = &self.held {
            held.try_resize(get_record_batch_memory_size(&batch))?;
        }
        Ok(batch)
    }

    /// Counts `batch` until somebody takes it, and as much for the next one.
    ///
    /// # Errors
    /// The pool's, when it does not fit.
    pub fn counted(&self, batch: RecordBatch) -> Result<Counted> {
        let (Some(account), Some(held)) = (&self.memory.0, &self.held) else {
            return Ok(Counted { batch, _memory: None });
        };
        let bytes = get_record_batch_memory_size(&batch);
        let memory = account.new_empty();
        memory.try_grow(bytes)?;
        held.try_resize(bytes)?;
        Ok(Counted { batch, _memory: Some(memory) })
    }
}

/// A batch on its way to the one who takes it.
#[derive(Debug)]
pub(super) struct Counted {
    batch: RecordBatch,
    _memory: Option<MemoryReservation>,
}

impl Counted {
    /// From here on it is the taker's to count.
    pub fn taken(self) -> RecordBatch {
        self.batch
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};

    use super::*;

    fn numbers(count: i64) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(0..count))]).unwrap()
    }

    #[test]
    fn each_batch_is_counted_until_it_is_taken_and_one_more_for_its_reader() {
        let one = get_record_batch_memory_size(&numbers(100));
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(3 * one));
        let memory = ReadMemory::beside(&MemoryConsumer::new("scan").register(&pool));
        let coming = memory.coming();
        let first = coming.counted(numbers(100)).unwrap();
        assert_eq!(pool.reserved(), 2 * one);
        let second = coming.counted(numbers(100)).unwrap();
        assert_eq!(pool.reserved(), 3 * one);
        let refused = coming.counted(numbers(100)).unwrap_err().to_string();
        assert!(refused.contains("scan"), "{refused}");
        assert_eq!(first.taken(), numbers(100));
        assert_eq!(coming.passed(numbers(100)).unwrap(), numbers(100));
        assert_eq!(pool.reserved(), 2 * one);
        drop((second, coming, memory));
        assert_eq!(pool.reserved(), 0);
    }
}
