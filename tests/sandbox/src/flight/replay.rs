//! Results encoded once and sent often: what a table with `"sandbox.replay" = "true"` answers a plain read with.
//!
//! The first read freezes the rows as the bytes of gRPC messages. Later reads send these bytes again, without a plan,
//! without encoding and without copying. A commit to the table makes a new version, which freezes anew.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use bytes::{BufMut, Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use prost::Message as _;
use tonic::Status;

use super::encode;

/// Frozen results kept; the oldest goes first.
const KEPT: usize = 16;
/// Length of the prefix of a gRPC message.
const PREFIX: usize = 5;

/// One gRPC message with its prefix; clones share the bytes.
#[derive(Debug, Clone)]
pub(crate) struct Message(Bytes);

impl Message {
    fn new(data: &FlightData) -> Result<Self, Status> {
        let length = data.encoded_len();
        let prefix = u32::try_from(length).map_err(|_| Status::internal("a message is larger than 4 GiB"))?;
        let mut bytes = BytesMut::with_capacity(PREFIX + length);
        bytes.put_u8(0);
        bytes.put_u32(prefix);
        data.encode(&mut bytes).map_err(|e| Status::internal(e.to_string()))?;
        Ok(Self(bytes.freeze()))
    }

    /// The bytes that travel.
    pub fn bytes(self) -> Bytes {
        self.0
    }

    /// The message as a structure; its body shares the bytes.
    pub fn data(self) -> Result<FlightData, Status> {
        FlightData::decode(self.0.slice(PREFIX..)).map_err(|e| Status::internal(e.to_string()))
    }
}

/// The rows of a read, encoded.
#[derive(Debug)]
pub(crate) struct Frozen {
    schema: SchemaRef,
    head: Message,
    /// Messages of one pass over the rows.
    pass: Vec<Message>,
    /// Whole messages to send, beginning again after each pass.
    count: usize,
    /// Rows that do not fill a message of the pass.
    tail: Option<Message>,
}

impl Frozen {
    /// Encodes batches of `rows` rows; `target` repeats them until so many rows are sent.
    pub async fn new(
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        rows: usize,
        target: Option<u64>,
    ) -> Result<Self, Status> {
        let batches = regroup(&schema, batches, rows)?;
        let lengths: Vec<u64> = batches.iter().map(|b| b.num_rows() as u64).collect();
        let total: u64 = lengths.iter().sum();
        let target = if total == 0 { 0 } else { target.unwrap_or(total) };
        let mut left = if total == 0 { 0 } else { target % total };
        let mut count = target.checked_div(total).map_or(0, |times| usize::try_from(times).unwrap_or(usize::MAX));
        count = count.saturating_mul(batches.len());
        let mut tail = None;
        for (batch, length) in batches.iter().zip(&lengths) {
            if left < *length {
                tail = (left > 0).then(|| batch.slice(0, usize::try_from(left).unwrap_or(0)));
                break;
            }
            left -= length;
            count += 1;
        }
        let all = batches.into_iter().chain(tail.clone()).map(Ok);
        let mut encoded = Vec::new();
        let mut data = encode(Arc::clone(&schema), Box::pin(stream::iter(all)));
        while let Some(message) = data.next().await {
            encoded.push(Message::new(&message?)?);
        }
        if encoded.is_empty() {
            return Err(Status::internal("the encoder sent no schema"));
        }
        let head = encoded.remove(0);
        let tail = if tail.is_some() { encoded.pop() } else { None };
        Ok(Self { schema, head, pass: encoded, count, tail })
    }
}

/// Batches of exactly `rows` rows, but the last.
fn regroup(schema: &SchemaRef, batches: Vec<RecordBatch>, rows: usize) -> Result<Vec<RecordBatch>, Status> {
    let mut batches: VecDeque<RecordBatch> = batches.into_iter().filter(|b| b.num_rows() > 0).collect();
    let mut out = Vec::new();
    while !batches.is_empty() {
        let mut parts = Vec::new();
        let mut missing = rows;
        while let Some(batch) = batches.pop_front() {
            if batch.num_rows() > missing {
                batches.push_front(batch.slice(missing, batch.num_rows() - missing));
                parts.push(batch.slice(0, missing));
                break;
            }
            missing -= batch.num_rows();
            parts.push(batch);
            if missing == 0 {
                break;
            }
        }
        out.push(concat_batches(schema, &parts).map_err(|e| Status::internal(e.to_string()))?);
    }
    Ok(out)
}

/// One endpoint's share: every `step`-th message from `first` on.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    frozen: Arc<Frozen>,
    first: usize,
    step: usize,
}

impl Part {
    /// Cuts a result into shares.
    pub fn split(frozen: &Arc<Frozen>, endpoints: usize) -> Vec<Self> {
        let step = endpoints.max(1);
        (0..step).map(|first| Self { frozen: Arc::clone(frozen), first, step }).collect()
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.frozen.schema)
    }

    /// The schema and then the batches.
    pub fn into_messages(self) -> impl Iterator<Item = Message> + Send + 'static {
        let Self { frozen, first, step } = self;
        let head = frozen.head.clone();
        let tail = frozen.tail.clone().filter(|_| first + 1 == step);
        let count = frozen.count;
        let whole = (first..count).step_by(step).map(move |i| frozen.pass[i % frozen.pass.len()].clone());
        std::iter::once(head).chain(whole).chain(tail)
    }
}

/// What was frozen, by the read that asked for it.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(crate) struct Key {
    pub table: u64,
    pub version: u64,
    pub epoch: u64,
    pub zone: String,
    pub hidden: bool,
    /// Text of the statement.
    pub sql: String,
}

/// Frozen results of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    kept: Mutex<VecDeque<(Key, Arc<Frozen>)>>,
}

impl Replays {
    /// The result of a read that was made before.
    pub fn get(&self, key: &Key) -> Option<Arc<Frozen>> {
        self.kept.lock().iter().find(|(k, _)| k == key).map(|(_, frozen)| Arc::clone(frozen))
    }

    /// Keeps the result of a read; those of other versions of its table are no longer needed.
    pub fn keep(&self, key: Key, frozen: Arc<Frozen>) {
        let mut kept = self.kept.lock();
        kept.retain(|(k, _)| k.table != key.table || (k.version, k.epoch) == (key.version, key.epoch));
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back((key, frozen));
    }
}

/// All batches of a stream.
pub(crate) async fn drain(
    rows: datafusion::execution::SendableRecordBatchStream,
) -> Result<Vec<RecordBatch>, datafusion::error::DataFusionError> {
    rows.try_collect().await
}
