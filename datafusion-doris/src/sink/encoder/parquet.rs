//! Parquet files.

use std::fmt;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;
use datafusion::parquet::basic::{Compression as Codec, ZstdLevel};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::arrow::ArrowPlan;
use super::{Encoder, RowLayout};
use crate::error::{Error, Result};
use crate::options::Compression;
use crate::sink::output::Output;
use crate::types::DorisType;

/// Bytes of rows that are held until they are written, in their encoded form.
const ROW_GROUP_BYTES: usize = 32 << 20;
/// Digits of the decimals that every reader of Parquet knows.
const DECIMAL_DIGITS: u8 = 38;

/// One Parquet file, compressed inside.
///
/// Columns are those of the arrow format: what Parquet has no type for that Doris reads into the column's own is text.
/// Memory is that of one row group.
pub(crate) struct ParquetEncoder {
    plan: Arc<ArrowPlan>,
    compression: Compression,
    /// Since the first rows.
    file: Option<ArrowWriter<Vec<u8>>>,
}

impl ArrowPlan {
    /// Plans files of batches of `schema`; `type_of` gives the type of a column in the table.
    ///
    /// # Errors
    /// As [`Self::try_new`].
    pub(crate) fn of_files<'a>(
        layout: RowLayout,
        schema: &arrow::datatypes::Schema,
        type_of: impl Fn(&str) -> Option<&'a DorisType>,
    ) -> Result<Self> {
        let names: Vec<String> = layout.names().map(str::to_string).collect();
        let carried: Vec<_> = names.iter().map(|name| type_of(name).map(carried_as)).collect();
        let of = |name: &str| carried[names.iter().position(|known| known == name)?].as_ref();
        Self::try_new(layout, schema, of, Compression::None)
    }
}

/// The type in which values of a column travel in Parquet.
fn carried_as(doris_type: &DorisType) -> DorisType {
    match doris_type {
        DorisType::Decimal(digits, _) if *digits > DECIMAL_DIGITS => DorisType::String,
        DorisType::Array(element) => DorisType::Array(Box::new(carried_as(element))),
        DorisType::Map(key, value) => DorisType::Map(Box::new(carried_as(key)), Box::new(carried_as(value))),
        DorisType::Struct(fields) => {
            DorisType::Struct(fields.iter().map(|(name, field)| (name.clone(), carried_as(field))).collect())
        }
        other => other.clone(),
    }
}

/// Whether values of a column of this type, or parts of them, are text in Parquet although the type is none.
pub(crate) fn is_text_in_parquet(doris_type: &DorisType) -> bool {
    match doris_type {
        DorisType::Boolean
        | DorisType::TinyInt
        | DorisType::SmallInt
        | DorisType::Int
        | DorisType::BigInt
        | DorisType::Float
        | DorisType::Double
        | DorisType::Date
        | DorisType::Char(_)
        | DorisType::Varchar(_)
        | DorisType::String => false,
        DorisType::Decimal(digits, _) => *digits > DECIMAL_DIGITS,
        DorisType::Array(element) => is_text_in_parquet(element),
        DorisType::Map(key, value) => is_text_in_parquet(key) || is_text_in_parquet(value),
        DorisType::Struct(fields) => fields.iter().any(|(_, field)| is_text_in_parquet(field)),
        _ => true,
    }
}

impl ParquetEncoder {
    /// An encoder of one file; `plan` comes from [`ArrowPlan::of_files`].
    pub(crate) fn new(plan: Arc<ArrowPlan>, compression: Compression) -> Self {
        Self { plan, compression, file: None }
    }

    fn open(&self) -> Result<ArrowWriter<Vec<u8>>, ParquetError> {
        let codec = match self.compression {
            Compression::None => Codec::UNCOMPRESSED,
            Compression::Gz | Compression::Deflate => Codec::GZIP(Default::default()),
            Compression::Lz4 => Codec::LZ4_RAW,
            Compression::Zstd => Codec::ZSTD(ZstdLevel::try_new(1)?),
        };
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            // Every row is read, once.
            .set_statistics_enabled(EnabledStatistics::None)
            .build();
        // Types are those that the file itself tells.
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(self.plan.schema()), options)
    }
}

impl Encoder for ParquetEncoder {
    fn encode_to(&mut self, batch: &RecordBatch, out: &mut Output) -> Result<u64> {
        let out = out.tail();
        let batch = self.plan.convert(batch)?;
        if batch.num_rows() == 0 {
            return Ok(0);
        }
        if self.file.is_none() {
            self.file = Some(self.open().map_err(file_error)?);
        }
        if let Some(file) = &mut self.file {
            file.write(&batch).map_err(file_error)?;
            out.append(file.inner_mut());
        }
        Ok(batch.num_rows() as u64)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if let Some(mut file) = self.file.take() {
            file.finish().map_err(file_error)?;
            out.append(file.inner_mut());
        }
        Ok(())
    }
}

impl fmt::Debug for ParquetEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParquetEncoder").field("plan", &self.plan).finish_non_exhaustive()
    }
}

fn file_error(error: ParquetError) -> Error {
    Error::from(datafusion::error::DataFusionError::from(error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Decimal256Array, Int64Array, StringArray};
    use arrow::compute::concat_batches;
    use arrow::datatypes::{DataType, i256};
    use bytes::Bytes;
    use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    fn encoder(batch: &RecordBatch, types: &[(&str, &str)], kind: Option<&str>) -> ParquetEncoder {
        let types: Vec<_> = types.iter().map(|(name, text)| (*name, DorisType::parse(text).unwrap())).collect();
        let layout = super::super::tests::plan(&batch.schema(), kind, kind.is_some()).unwrap();
        let of = |name: &str| types.iter().find(|(known, _)| *known == name).map(|(_, doris_type)| doris_type);
        let plan = ArrowPlan::of_files(layout, &batch.schema(), of).unwrap();
        ParquetEncoder::new(Arc::new(plan), Compression::Zstd)
    }

    fn read(file: Vec<u8>) -> RecordBatch {
        let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file)).unwrap();
        let schema = Arc::clone(reader.schema());
        let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
        concat_batches(&schema, &batches).unwrap()
    }

    #[test]
    fn file_has_the_rows_that_the_change_kind_lets_through_with_their_sign() {
        let batch = RecordBatch::try_from_iter([
            ("k", Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef),
            ("kind", Arc::new(StringArray::from(vec!["+I", "-U", "-D"]))),
        ])
        .unwrap();
        let mut encoder = encoder(&batch, &[("k", "INT")], Some("kind"));
        let mut file = Vec::new();
        assert_eq!(encoder.encode(&batch, &mut file).unwrap(), 2);
        assert_eq!(encoder.encode(&batch, &mut file).unwrap(), 2);
        encoder.finish(&mut file).unwrap();
        let back = read(file);
        assert_eq!(back.column(0).as_primitive::<arrow::datatypes::Int32Type>().values(), &[1, 3, 1, 3]);
        assert_eq!(back.schema().field(1).name(), "__DORIS_DELETE_SIGN__");
        assert_eq!(back.column(1).as_primitive::<arrow::datatypes::Int8Type>().values(), &[0, 1, 0, 1]);
    }

    #[test]
    fn decimals_of_more_digits_than_readers_know_are_text() {
        let values = Decimal256Array::from(vec![i256::from_i128(-12345)]).with_precision_and_scale(76, 2).unwrap();
        let batch = RecordBatch::try_from_iter([("d", Arc::new(values) as ArrayRef)]).unwrap();
        let mut encoder = encoder(&batch, &[("d", "DECIMAL(76, 2)")], None);
        let mut file = Vec::new();
        encoder.encode(&batch, &mut file).unwrap();
        encoder.finish(&mut file).unwrap();
        let back = read(file);
        assert_eq!(*back.column(0).data_type(), DataType::Utf8);
        assert_eq!(back.column(0).as_string::<i32>().value(0), "-123.45");
    }

    #[test]
    fn text_in_parquet_is_what_has_no_type_there() {
        let cases = [
            ("INT", false),
            ("DECIMAL(38, 2)", false),
            ("DECIMAL(39, 2)", true),
            ("LARGEINT", true),
            ("DATETIME(3)", true),
            ("DATE", false),
            ("VARCHAR(9)", false),
            ("JSON", true),
            ("ARRAY<INT>", false),
            ("ARRAY<DATETIME>", true),
            ("MAP<STRING, LARGEINT>", true),
            ("STRUCT<a:INT, b:ARRAY<IPV4>>", true),
        ];
        for (text, expected) in cases {
            assert_eq!(is_text_in_parquet(&DorisType::parse(text).unwrap()), expected, "{text}");
        }
    }
}
