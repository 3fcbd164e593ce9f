//! The messages of an Arrow IPC stream, checked before the decoder trusts the lengths they name.

use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::{Message, RecordBatch as BatchMessage, root_as_message};

/// Before the length of each message, since format version 0.15.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Longest description of a message.
const MAX_METADATA: usize = 64 << 20;
/// Longest buffer of a column, unpacked.
const MAX_BUFFER: i64 = 1 << 30;

/// The end of a stream.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The bytes of a message, and which of them are its metadata.
type Framed = (Vec<u8>, Range<usize>);

/// Reads the batches of a stream.
pub(super) struct Batches<R> {
    input: R,
    decoder: StreamDecoder,
    schema: SchemaRef,
    /// What the decoder has not taken yet.
    pending: Buffer,
    ended: bool,
}

impl<R: Read> Batches<R> {
    /// Reads up to the schema.
    ///
    /// # Errors
    /// When the stream does not begin with one.
    pub(super) fn open(input: R) -> Result<Self, ArrowError> {
        let mut batches = Self {
            input,
            decoder: StreamDecoder::new(),
            schema: Arc::new(Schema::empty()),
            pending: Buffer::default(),
            ended: false,
        };
        let (first, metadata) = batches.read_message()?.ok_or_else(|| malformed("it is empty"))?;
        batches.schema = guarded(|| {
            let message = root_as_message(&first[metadata]).map_err(|error| malformed(format!("{error:?}")))?;
            let schema = message.header_as_schema().ok_or_else(|| malformed("its first message is no schema"))?;
            Ok(Arc::new(fb_to_schema(schema)))
        })?;
        batches.pending = Buffer::from_vec(first);
        Ok(batches)
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// When the stream is cut off or malformed.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        loop {
            let (decoder, pending) = (&mut self.decoder, &mut self.pending);
            if let Some(batch) = guarded(|| decoder.decode(pending))? {
                return Ok(Some(batch));
            }
            if self.ended {
                return Ok(None);
            }
            self.pending = match self.read_message()? {
                Some((bytes, _)) => Buffer::from_vec(bytes),
                // The decoder takes a message without a body when it sees what follows.
                None => {
                    self.ended = true;
                    Buffer::from_vec(END.to_vec())
                }
            };
        }
    }

    /// One message as it stands in the stream, its lengths checked, and where its metadata is.
    fn read_message(&mut self) -> Result<Option<Framed>, ArrowError> {
        let mut bytes = Vec::new();
        match self.take(&mut bytes, 4)? {
            0 => return Ok(None),
            4 => {}
            _ => return Err(cut_off()),
        }
        if bytes == CONTINUATION && self.take(&mut bytes, 4)? != 4 {
            return Err(cut_off());
        }
        let [.., a, b, c, d] = bytes[..] else { return Err(cut_off()) };
        let metadata = i32::from_le_bytes([a, b, c, d]);
        if metadata == 0 {
            return Ok(None);
        }
        let metadata = usize::try_from(metadata)
            .ok()
            .filter(|length| *length <= MAX_METADATA)
            .ok_or_else(|| malformed(format!("a message names {metadata} bytes of metadata")))?;
        let start = bytes.len();
        if self.take(&mut bytes, metadata)? != metadata {
            return Err(cut_off());
        }
        let body = {
            let message = root_as_message(&bytes[start..]).map_err(|error| malformed(format!("{error:?}")))?;
            usize::try_from(message.bodyLength())
                .map_err(|_| malformed(format!("a message names {} bytes of body", message.bodyLength())))?
        };
        let body_start = bytes.len();
        if self.take(&mut bytes, body)? != body {
            return Err(cut_off());
        }
        let message = root_as_message(&bytes[start..body_start]).map_err(|error| malformed(format!("{error:?}")))?;
        check_unpacked(&message, &bytes[body_start..])?;
        Ok(Some((bytes, start..body_start)))
    }

    /// Appends up to `wanted` bytes; memory grows with what is there, not with what is named.
    fn take(&mut self, bytes: &mut Vec<u8>, wanted: usize) -> Result<usize, ArrowError> {
        match (&mut self.input).take(wanted as u64).read_to_end(bytes) {
            Ok(read) => Ok(read),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(cut_off()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Runs the decoder, which trusts lengths within a message and panics over some that cannot be.
fn guarded<T>(work: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(malformed("a message does not hold what it names")))
}

/// Checks the unpacked lengths that compressed buffers name.
fn check_unpacked(message: &Message<'_>, body: &[u8]) -> Result<(), ArrowError> {
    let batch: Option<BatchMessage<'_>> = message
        .header_as_record_batch()
        .or_else(|| message.header_as_dictionary_batch().and_then(|batch| batch.data()));
    let Some(batch) = batch.filter(|batch| batch.compression().is_some()) else { return Ok(()) };
    for buffer in batch.buffers().into_iter().flatten() {
        let start = usize::try_from(buffer.offset()).ok();
        let packed = start.and_then(|start| body.get(start..)?.get(..usize::try_from(buffer.length()).ok()?));
        let packed = packed.ok_or_else(|| malformed("a buffer of a message is out of its bounds"))?;
        let Some(length) = packed.first_chunk().map(|bytes| i64::from_le_bytes(*bytes)) else { continue };
        // -1: not compressed after all.
        if !(-1..=MAX_BUFFER).contains(&length) {
            return Err(malformed(format!("a buffer of {} bytes names {length} bytes unpacked", packed.len())));
        }
    }
    Ok(())
}

fn malformed(what: impl std::fmt::Display) -> ArrowError {
    ArrowError::IpcError(format!("the stream is malformed: {what}"))
}

fn cut_off() -> ArrowError {
    ArrowError::IpcError("the stream ends inside of a message".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};

    use super::*;

    fn stream(compression: Option<CompressionType>) -> Vec<u8> {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let names: ArrayRef = Arc::new(StringArray::from_iter_values((0..1000).map(|i| format!("name {i}"))));
        let batch = RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap();
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    fn rows(bytes: &[u8]) -> Result<usize, ArrowError> {
        let mut batches = Batches::open(bytes)?;
        let mut rows = 0;
        while let Some(batch) = batches.next()? {
            rows += batch.num_rows();
        }
        Ok(rows)
    }

    #[test]
    fn whole_streams_are_read_packed_or_not() {
        for compression in [None, Some(CompressionType::ZSTD), Some(CompressionType::LZ4_FRAME)] {
            assert_eq!(rows(&stream(compression)).unwrap(), 2000, "{compression:?}");
        }
        assert!(rows(b"").unwrap_err().to_string().contains("it is empty"));
    }

    /// Neither a cut nor a turned bit makes the reader panic, or reserve what is only named.
    #[test]
    fn damaged_streams_are_refused() {
        let whole = stream(Some(CompressionType::ZSTD));
        for end in (1..whole.len() - 8).step_by(97) {
            let read = rows(&whole[..end]);
            assert!(read.as_ref().is_err() || read.as_ref().is_ok_and(|rows| rows % 1000 == 0), "{end}: {read:?}");
        }
        for compression in [None, Some(CompressionType::ZSTD)] {
            let whole = stream(compression);
            for bit in (0..whole.len() * 8).step_by(131) {
                let mut damaged = whole.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let _ = rows(&damaged);
            }
        }
    }

    #[test]
    fn lengths_beyond_all_bounds_are_named() {
        let whole = stream(Some(CompressionType::ZSTD));
        // The unpacked length stands before the magic number of the frame.
        let frame = whole.windows(4).position(|bytes| bytes == [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
        let mut damaged = whole;
        damaged[frame - 8..frame].copy_from_slice(&(1_i64 << 46).to_le_bytes());
        let error = rows(&damaged).unwrap_err().to_string();
        assert!(error.contains("names 70368744177664 bytes unpacked"), "{error}");
    }
}
