//! From what a server sends to batches of the declared types: messages of Arrow Flight, columns that come in another type,
//! texts of the MySQL protocol.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, FixedSizeBinaryArray, Int32Array, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use criterion::{Criterion, Throughput};
use datafusion_doris::scan::parts::{Conform, typed_texts};
use datafusion_doris::types::DorisType;
use futures::{TryStreamExt, stream};

use crate::Outcome;
use crate::columns::{ROWS, columns, values};

/// All of them.
pub fn benches(criterion: &mut Criterion) -> Outcome {
    messages(criterion)?;
    casts(criterion)?;
    texts(criterion)
}

fn batch_of(column: ArrayRef) -> Result<RecordBatch, arrow::error::ArrowError> {
    let schema = Schema::new(vec![Field::new("c", column.data_type().clone(), true)]);
    RecordBatch::try_new(Arc::new(schema), vec![column])
}

/// The decoder of arrow-flight, which is ours too.
fn messages(criterion: &mut Criterion) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut group = criterion.benchmark_group("decode/flight");
    group.throughput(Throughput::Elements(ROWS as u64));
    for (name, _, column) in columns()? {
        let batches = stream::iter([Ok(batch_of(column)?)]);
        let messages = FlightDataEncoderBuilder::new().build(batches).try_collect::<Vec<_>>();
        let messages = runtime.block_on(messages)?;
        let decoded = || async {
            let messages = stream::iter(messages.clone().into_iter().map(Ok::<_, FlightError>));
            let batches = FlightRecordBatchStream::new_from_flight_data(messages);
            batches.map_ok(|batch| batch.num_rows()).try_fold(0, |all, rows| async move { Ok(all + rows) }).await
        };
        if runtime.block_on(decoded())? != ROWS {
            return Err(format!("{name}: rows are missing").into());
        }
        group.bench_function(name, |bencher| bencher.iter(|| runtime.block_on(decoded())));
    }
    group.finish();
    Ok(())
}

/// Columns that do not come as they were declared.
fn casts(criterion: &mut Criterion) -> Outcome {
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    let text = |make: fn(i64) -> String| -> ArrayRef { Arc::new(values(make).collect::<StringArray>()) };
    let bytes = |make: fn(i64) -> [u8; 16]| -> Result<ArrayRef, arrow::error::ArrowError> {
        Ok(Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values(make), 16)?))
    };
    let times = || values(|value| value * 1_500_000_001).collect::<TimestampMicrosecondArray>();
    let integers: ArrayRef = Arc::new(values(|value| value as i32).collect::<Int32Array>());
    let wide = |value: i64| i128::from(value) * 170_141_183_460_469;
    let cases: Vec<(&str, DorisType, ArrayRef, DataType)> = vec![
        ("int as it is", DorisType::Int, Arc::clone(&integers), DataType::Int32),
        ("int to bigint", DorisType::Int, Arc::clone(&integers), DataType::Int64),
        (
            "largeint from text",
            DorisType::LargeInt,
            text(|value| (i128::from(value) * 170_141_183_460_469).to_string()),
            DataType::Decimal256(39, 0),
        ),
        (
            "largeint from 16 bytes",
            DorisType::LargeInt,
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                values(|value| wide(value).to_le_bytes()),
                16,
            )?),
            DataType::Decimal256(39, 0),
        ),
        (
            "date from text",
            DorisType::Date,
            text(|value| format!("2026-{:02}-{:02}", value % 12 + 1, value % 28 + 1)),
            DataType::Date32,
        ),
        (
            "datetime from text",
            DorisType::DateTime(6),
            text(|value| format!("2026-01-{:02} 12:{:02}:07.{:06}", value % 28 + 1, value % 60, value % 1_000_000)),
            micros.clone(),
        ),
        ("datetime of UTC", DorisType::DateTime(6), Arc::new(times().with_timezone("UTC")), micros.clone()),
        ("datetime of a zone", DorisType::DateTime(6), Arc::new(times().with_timezone("Europe/Berlin")), micros),
        ("ipv4 from bits", DorisType::Ipv4, Arc::clone(&integers), DataType::Utf8),
        ("ipv6", DorisType::Ipv6, text(|value| format!("2001:db8::{:x}", value % 65_536)), DataType::Utf8),
        ("uuid from bytes", DorisType::Uuid, bytes(|value| i128::from(value).to_be_bytes())?, DataType::Utf8),
    ];
    let mut group = criterion.benchmark_group("decode/cast");
    group.throughput(Throughput::Elements(ROWS as u64));
    for (name, doris, column, target) in cases {
        let schema = Arc::new(Schema::new(vec![Field::new("c", target, true)]));
        let (batch, mut conform) = (batch_of(column)?, Conform::new(schema, vec![doris]));
        conform.batch(&batch)?;
        group.bench_function(name, |bencher| bencher.iter(|| conform.batch(&batch)));
    }
    group.finish();
    Ok(())
}

/// What comes as text by the MySQL protocol.
fn texts(criterion: &mut Criterion) -> Outcome {
    let mut group = criterion.benchmark_group("decode/mysql");
    group.throughput(Throughput::Elements(ROWS as u64));
    for (name, doris, column) in columns()? {
        let column: ArrayRef = match &doris {
            DorisType::Struct(_) => continue,
            DorisType::Boolean => Arc::new(values(|value| (value % 2).abs().to_string()).collect::<StringArray>()),
            DorisType::Array(_) => Arc::new(values(|value| format!("[{value}, null, 7]")).collect::<StringArray>()),
            _ => cast(&column, &DataType::Utf8)?,
        };
        let texts = cast(&column, &DataType::Binary)?;
        let texts = texts.as_any().downcast_ref::<BinaryArray>().ok_or("no binary column")?.clone();
        let (batch, types) = (batch_of(Arc::new(texts))?, [doris]);
        typed_texts(&types, &batch)?;
        group.bench_function(name, |bencher| bencher.iter(|| typed_texts(&types, &batch)));
    }
    group.finish();
    Ok(())
}
