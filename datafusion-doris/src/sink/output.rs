//! What an encoder has written and nobody has taken yet.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayData};
use arrow::buffer::Buffer;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::client::Chunk;

/// Least bytes of a buffer that is sent from where it is: shorter ones are copied sooner than they are managed.
const SHARED_BYTES: usize = 16 << 10;
/// Most bytes that a shared buffer may keep in memory, for each byte of it that is sent.
const KEPT_BYTES: usize = 2;
/// Buffers that are kept to be used again.
const SPARES: usize = 4;
/// Most bytes of each: larger ones are those of a format that writes much at once.
const SPARE_BYTES: usize = 4 << 20;

/// Encoded bytes, in order.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Behind all pieces.
    tail: Vec<u8>,
    pieces: Chunk,
    /// Buffers of Arrow may be sent from where they are.
    shares: bool,
    spares: Spares,
}

impl Output {
    /// Where text is written to the end.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Sets whether buffers may be sent from where they are.
    pub(super) fn share(&mut self, shares: bool) {
        self.shares = shares;
    }

    /// Adds a buffer at the end.
    pub(super) fn push(&mut self, buffer: Buffer) {
        if !self.shares || buffer.len() < SHARED_BYTES {
            return self.tail.extend_from_slice(&buffer);
        }
        self.pieces.push(Bytes::copy_from_slice(&self.tail));
        self.tail.clear();
        self.pieces.push(Bytes::from_owner(Shared(buffer)));
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len() + self.tail.len()
    }

    /// All bytes so far.
    pub(super) fn take(&mut self) -> Chunk {
        let mut chunk = std::mem::take(&mut self.pieces);
        chunk.push(self.spares.lend(&mut self.tail));
        chunk
    }
}

/// A buffer as it is.
struct Shared(Buffer);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Memory of chunks that were sent, for the next ones: fresh memory costs a fault of each page.
#[derive(Debug, Default)]
pub(super) struct Spares(Arc<Mutex<Vec<Vec<u8>>>>);

/// Bytes of a chunk, whose memory is given back when it is dropped.
struct Lent {
    bytes: Vec<u8>,
    spares: Weak<Mutex<Vec<Vec<u8>>>>,
}

impl Spares {
    /// Takes the bytes out of `buffer`, which is empty afterwards and has as much room.
    pub(super) fn lend(&self, buffer: &mut Vec<u8>) -> Bytes {
        if buffer.is_empty() {
            return Bytes::new();
        }
        let spare = self.0.lock().pop().unwrap_or_else(|| Vec::with_capacity(buffer.capacity()));
        let bytes = std::mem::replace(buffer, spare);
        Bytes::from_owner(Lent { bytes, spares: Arc::downgrade(&self.0) })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(spares) = self.spares.upgrade() else { return };
        let mut spares = spares.lock();
        if spares.len() < SPARES && self.bytes.capacity() <= SPARE_BYTES {
            self.bytes.clear();
            spares.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// Whether the buffers of `batch` keep little more in memory than its rows take. Those of a few rows of a large batch do
/// not: they would keep all of it.
pub(super) fn is_compact(batch: &RecordBatch) -> bool {
    let columns: Vec<ArrayData> = batch.columns().iter().map(|column| column.to_data()).collect();
    let taken: usize = columns.iter().map(|column| column.get_slice_memory_size().unwrap_or(0)).sum();
    let mut kept = HashMap::new();
    columns.iter().for_each(|column| allocations(column, &mut kept));
    kept.values().sum::<usize>() <= KEPT_BYTES * taken
}

/// The allocations behind an array, with their sizes.
fn allocations(array: &ArrayData, kept: &mut HashMap<usize, usize>) {
    let nulls = array.nulls().map(|nulls| nulls.buffer());
    for buffer in array.buffers().iter().chain(nulls) {
        kept.insert(buffer.data_ptr().as_ptr() as usize, buffer.capacity());
    }
    array.child_data().iter().for_each(|child| allocations(child, kept));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let columns: [(&str, ArrayRef); 2] = [
            ("a", Arc::new(Int64Array::from_iter_values(0..rows))),
            ("b", Arc::new(StringArray::from_iter_values((0..rows).map(|row| row.to_string())))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn few_rows_of_a_large_batch_are_not_compact() {
        assert!(is_compact(&batch(1000)));
        assert!(is_compact(&batch(1000).slice(0, 600)));
        assert!(!is_compact(&batch(1000).slice(990, 10)));
    }

    #[test]
    fn large_buffers_go_out_from_where_they_are_and_order_is_kept() {
        let large = Buffer::from(vec![7u8; SHARED_BYTES]);
        for shares in [false, true] {
            let mut output = Output::default();
            output.share(shares);
            output.tail().extend_from_slice(b"head");
            output.push(large.clone());
            output.push(Buffer::from(b"small".to_vec()));
            output.push(large.clone());
            output.tail().extend_from_slice(b"end");
            assert_eq!(output.len(), 4 + 5 + 3 + 2 * large.len());
            let chunk = output.take();
            assert_eq!(output.len(), 0);
            let at: Vec<_> = chunk.clone().into_iter().map(|piece| piece.as_ptr()).collect();
            assert_eq!(at.contains(&large.as_ptr()), shares);
            let bytes = chunk.into_bytes();
            let expected = [b"head", large.as_slice(), b"small", large.as_slice(), b"end"].concat();
            assert!(bytes == expected, "{shares}");
        }
    }

    #[test]
    fn memory_of_sent_chunks_is_used_again_and_only_so_much_is_kept() {
        let mut output = Output::default();
        output.tail().extend_from_slice(&[1; 100]);
        let sent = output.take().into_bytes();
        let memory = sent.as_ptr();
        drop(sent);
        output.tail().extend_from_slice(&[2; 50]);
        drop(output.take());
        output.tail().extend_from_slice(&[3; 50]);
        assert_eq!(output.tail().as_ptr(), memory);
        let chunks: Vec<Chunk> = (0..10)
            .map(|_| {
                output.tail().push(0);
                output.take()
            })
            .collect();
        drop(chunks);
        assert_eq!(output.spares.0.lock().len(), SPARES);
    }
}
