//! Looked up rows that are kept for a while.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use arrow::row::OwnedRow;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use tokio::time::Instant;

use crate::options::LookupCache;

/// Rows by key, those that were asked for first in front.
#[derive(Debug)]
pub(super) struct Cache {
    limits: LookupCache,
    entries: HashMap<OwnedRow, Entry>,
    /// Keys by age. One that was asked for again stands in it twice; the older place is of no meaning.
    ages: VecDeque<(Instant, OwnedRow)>,
    rows: usize,
    reservation: Option<MemoryReservation>,
}

#[derive(Debug)]
struct Entry {
    rows: RecordBatch,
    since: Instant,
    bytes: usize,
}

impl Entry {
    /// A key without rows takes a place too.
    fn places(&self) -> usize {
        self.rows.num_rows().max(1)
    }
}

impl Cache {
    pub fn new(limits: LookupCache) -> Self {
        Self { limits, entries: HashMap::new(), ages: VecDeque::new(), rows: 0, reservation: None }
    }

    /// Counts what is kept against `pool` from now on; later pools are ignored.
    pub fn reserve_in(&mut self, pool: &Arc<dyn MemoryPool>) {
        self.reservation.get_or_insert_with(|| MemoryConsumer::new("LookupJoinExec").register(pool));
    }

    /// The rows of a key, unless they are not kept or too old.
    pub fn get(&self, key: &OwnedRow, now: Instant) -> Option<RecordBatch> {
        let entry = self.entries.get(key)?;
        (now.duration_since(entry.since) < self.limits.ttl).then(|| entry.rows.clone())
    }

    /// Keeps the rows of a key that were asked for at `since`, in place of the oldest ones where there is no more room.
    pub fn put(&mut self, key: OwnedRow, rows: RecordBatch, since: Instant) {
        self.remove(&key);
        let bytes = get_record_batch_memory_size(&rows).saturating_add(key.row().data().len());
        let entry = Entry { rows, since, bytes };
        if entry.places() > self.limits.max_rows {
            return;
        }
        self.expire(since);
        while self.rows + entry.places() > self.limits.max_rows && self.drop_oldest() {}
        while let Some(reservation) = &self.reservation {
            match reservation.try_grow(bytes) {
                Ok(()) => break,
                Err(_) if self.drop_oldest() => {}
                // It does not fit at all.
                Err(_) => return,
            }
        }
        self.rows += entry.places();
        self.ages.push_back((since, key.clone()));
        self.entries.insert(key, entry);
    }

    fn expire(&mut self, now: Instant) {
        while self.ages.front().is_some_and(|(since, _)| now.duration_since(*since) >= self.limits.ttl)
            && let Some((since, key)) = self.ages.pop_front()
        {
            self.remove_asked_at(since, &key);
        }
    }

    /// False when the key is gone, or was asked for again since then.
    fn remove_asked_at(&mut self, since: Instant, key: &OwnedRow) -> bool {
        let is_it = self.entries.get(key).is_some_and(|entry| entry.since == since);
        if is_it {
            self.remove(key);
        }
        is_it
    }

    /// False when nothing was left to drop.
    fn drop_oldest(&mut self) -> bool {
        while let Some((since, key)) = self.ages.pop_front() {
            if self.remove_asked_at(since, &key) {
                return true;
            }
        }
        false
    }

    fn remove(&mut self, key: &OwnedRow) {
        if let Some(entry) = self.entries.remove(key) {
            self.rows -= entry.places();
            if let Some(reservation) = &self.reservation {
                reservation.shrink(entry.bytes);
            }
        }
        // Places of keys that are gone must not gather.
        if self.ages.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.ages.retain(|(since, key)| entries.get(key).is_some_and(|entry| entry.since == *since));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::row::{RowConverter, SortField};
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;

    fn key(id: i64) -> OwnedRow {
        let converter = RowConverter::new(vec![SortField::new(DataType::Int64)]).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![id]));
        converter.convert_columns(&[column]).unwrap().row(0).owned()
    }

    fn rows(count: usize) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![7; count]))]).unwrap()
    }

    fn kept(cache: &Cache, now: Instant) -> Vec<i64> {
        (0..10).filter(|id| cache.get(&key(*id), now).is_some()).collect()
    }

    #[test]
    fn oldest_keys_make_room_and_missing_ones_take_a_place() {
        let now = Instant::now();
        let mut cache = Cache::new(LookupCache { max_rows: 4, ttl: Duration::from_secs(10) });
        cache.put(key(1), rows(2), now);
        cache.put(key(2), rows(0), now);
        cache.put(key(3), rows(1), now);
        assert_eq!(kept(&cache, now), [1, 2, 3]);
        cache.put(key(4), rows(1), now);
        assert_eq!(kept(&cache, now), [2, 3, 4]);
        cache.put(key(5), rows(5), now);
        assert_eq!(kept(&cache, now), [2, 3, 4], "what does not fit at all is not kept");
    }

    #[test]
    fn rows_are_given_until_their_age() {
        let now = Instant::now();
        let mut cache = Cache::new(LookupCache { max_rows: 4, ttl: Duration::from_secs(10) });
        cache.put(key(1), rows(1), now);
        let later = now + Duration::from_secs(9);
        cache.put(key(2), rows(1), later);
        assert_eq!(kept(&cache, later), [1, 2]);
        let later = now + Duration::from_secs(10);
        assert_eq!(kept(&cache, later), [2]);
        cache.put(key(1), rows(3), later);
        assert_eq!(cache.get(&key(1), later).unwrap().num_rows(), 3);
        assert_eq!(cache.rows, 4);
    }

    #[test]
    fn memory_pool_bounds_what_is_kept() {
        let now = Instant::now();
        let one = get_record_batch_memory_size(&rows(8)) + key(1).row().data().len();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(2 * one));
        let mut cache = Cache::new(LookupCache { max_rows: 1000, ttl: Duration::from_secs(10) });
        cache.reserve_in(&pool);
        for id in 1..=5 {
            cache.put(key(id), rows(8), now);
        }
        assert_eq!(kept(&cache, now), [4, 5]);
        assert_eq!(pool.reserved(), 2 * one);
        drop(cache);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn key_that_is_asked_for_again_and_again_takes_one_place() {
        let now = Instant::now();
        let mut cache = Cache::new(LookupCache { max_rows: 2, ttl: Duration::from_secs(10) });
        for round in 0..1000 {
            cache.put(key(1), rows(1), now + Duration::from_millis(round));
        }
        assert_eq!((cache.rows, cache.entries.len()), (1, 1));
        assert!(cache.ages.len() <= 66, "{}", cache.ages.len());
    }
}
