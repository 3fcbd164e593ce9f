//! Parquet files: reading them from the store, and the types of their columns in Doris.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, FieldRef, Schema, TimeUnit, TimestampMicrosecondType};
use bytes::Bytes;
use datafusion::common::Result;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::error::SqlError;
use crate::types::{DorisType, SessionZone, cast_array};

/// A file of which only the wanted ranges are fetched.
#[derive(Debug)]
pub(super) struct FileReader {
    store: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
}

impl FileReader {
    pub(super) fn new(store: Arc<dyn ObjectStore>, path: Path, size: u64) -> Self {
        Self { store, path, size }
    }
}

fn broken(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for FileReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        Box::pin(async move { self.store.get_range(&self.path, range).await.map_err(broken) })
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        Box::pin(async move { self.store.get_ranges(&self.path, &ranges).await.map_err(broken) })
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        Box::pin(async move {
            let size = self.size;
            ParquetMetaDataReader::new().load_and_finish(self, size).await.map(Arc::new)
        })
    }
}

/// Storage fields of the columns of a file, all nullable.
pub(super) fn columns(schema: &Schema) -> Result<Vec<FieldRef>, SqlError> {
    let of = |field: &FieldRef| match doris_type(field.data_type()) {
        Some(ty) => Ok(ty.storage_field(field.name(), true)),
        None => Err(SqlError::not_served(format!("Parquet column {} of type {}", field.name(), field.data_type()))),
    };
    schema.fields().iter().map(of).collect()
}

fn doris_type(ty: &DataType) -> Option<DorisType> {
    Some(match ty {
        DataType::UInt8 => DorisType::SmallInt,
        DataType::UInt16 => DorisType::Int,
        DataType::UInt32 => DorisType::BigInt,
        DataType::UInt64 => DorisType::LargeInt,
        DataType::Float16 => DorisType::Float,
        // Bytes without a logical type are text too; a UUID shows its text.
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => DorisType::String,
        DataType::Timestamp(TimeUnit::Second, _) => DorisType::DateTime(0),
        DataType::Timestamp(TimeUnit::Millisecond, _) => DorisType::DateTime(3),
        DataType::Timestamp(_, _) => DorisType::DateTime(6),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => {
            DorisType::Decimal { precision: *p, scale: u8::try_from(*s).ok()? }
        }
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => {
            DorisType::Decimal { precision: *p, scale: u8::try_from(*s).ok()? }
        }
        DataType::List(item) | DataType::LargeList(item) => DorisType::Array(Box::new(doris_type(item.data_type())?)),
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else { return None };
            let [key, value] = fields.as_ref() else { return None };
            DorisType::Map(Box::new(doris_type(key.data_type())?), Box::new(doris_type(value.data_type())?))
        }
        DataType::Struct(fields) => DorisType::Struct(
            fields.iter().map(|f| Some((f.name().clone(), doris_type(f.data_type())?))).collect::<Option<_>>()?,
        ),
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32 => DorisType::of_arrow(ty)?,
        _ => return None,
    })
}

/// A column in a form that converts to its Doris type: instants become the wall clock of the session's zone, bytes text.
pub(super) fn plain(array: &ArrayRef, zone: &SessionZone) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Timestamp(_, Some(_)) => {
            let micros = cast_array(array, &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))?;
            let micros = micros.as_primitive::<TimestampMicrosecondType>();
            let wall: TimestampMicrosecondArray =
                micros.iter().map(|v| v.map(|v| v + zone.offset_at(v.div_euclid(1_000_000)) * 1_000_000)).collect();
            Arc::new(wall)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, None) => {
            cast_array(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?
        }
        DataType::FixedSizeBinary(16) => {
            let uuids = array.as_fixed_size_binary();
            let text = |bytes: &[u8]| {
                let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
                format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
            };
            Arc::new(uuids.iter().map(|v| v.map(text)).collect::<StringArray>())
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            let binary = cast_array(array, &DataType::Binary)?;
            let binary = binary.as_binary::<i32>();
            Arc::new(binary.iter().map(|v| v.map(String::from_utf8_lossy)).collect::<StringArray>())
        }
        DataType::Utf8View | DataType::LargeUtf8 => cast_array(array, &DataType::Utf8)?,
        DataType::UInt8 => cast_array(array, &DataType::Int16)?,
        DataType::UInt16 => cast_array(array, &DataType::Int32)?,
        DataType::UInt32 => cast_array(array, &DataType::Int64)?,
        DataType::UInt64 => cast_array(array, &DataType::Decimal256(39, 0))?,
        DataType::Float16 => cast_array(array, &DataType::Float32)?,
        _ => Arc::clone(array),
    })
}
