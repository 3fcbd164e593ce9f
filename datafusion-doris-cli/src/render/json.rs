//! JSON arrays and JSON lines, by arrow's writer. NaN and the infinities, which JSON lacks, are `null`.

use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{JsonArray, JsonFormat, LineDelimited, Writer, WriterBuilder};
use datafusion::arrow::record_batch::RecordBatch;

use super::ResultWriter;

pub(super) struct JsonWriter<F: JsonFormat> {
    writer: Writer<Vec<u8>, F>,
    /// Written after the end of the stream.
    end: &'static [u8],
}

impl JsonWriter<JsonArray> {
    pub(super) fn array() -> Self {
        Self { writer: builder().build(Vec::new()), end: b"\n" }
    }
}

impl JsonWriter<LineDelimited> {
    pub(super) fn lines() -> Self {
        Self { writer: builder().build(Vec::new()), end: b"" }
    }
}

fn builder() -> WriterBuilder {
    WriterBuilder::new().with_explicit_nulls(true)
}

impl<F: JsonFormat + Send> ResultWriter for JsonWriter<F> {
    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        self.writer.write(batch)?;
        out.append(self.writer.get_mut());
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        self.writer.finish()?;
        out.append(self.writer.get_mut());
        out.extend_from_slice(self.end);
        Ok(())
    }
}
