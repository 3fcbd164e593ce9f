//! The encoders of loads, without compression.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use criterion::{Criterion, Throughput};
use datafusion_doris::client::DorisClient;
use datafusion_doris::options::DorisOptions;
use datafusion_doris::sink::DorisSink;
use datafusion_doris::types::{ColumnSchema, DorisType, KeyModel, TableSchema};

use crate::Outcome;
use crate::columns::{ROWS, columns};

/// A column of each type in each format.
pub fn benches(criterion: &mut Criterion) -> Outcome {
    for format in ["csv", "json", "arrow"] {
        let mut group = criterion.benchmark_group(format!("encode/{format}"));
        group.throughput(Throughput::Elements(ROWS as u64));
        for (name, doris, column) in columns()? {
            let (sink, batch) = sink(format, doris, column)?;
            // An encoder that refuses a value is no bench.
            encoded(&sink, &batch)?;
            group.bench_function(name, |bencher| bencher.iter(|| encoded(&sink, &batch)));
        }
        group.finish();
    }
    Ok(())
}

fn encoded(sink: &DorisSink, batch: &RecordBatch) -> datafusion_doris::Result<usize> {
    let mut body = sink.body()?;
    body.write(batch)?;
    Ok(body.finish()?.len())
}

/// A sink of a table of one column, and a batch for it. Making it talks to nobody.
fn sink(
    format: &str,
    doris: DorisType,
    column: ArrayRef,
) -> Result<(DorisSink, RecordBatch), Box<dyn std::error::Error>> {
    let options = [
        ("fenodes", "nowhere:8030"),
        ("username", "root"),
        ("table.identifier", "db.t"),
        ("sink.properties.format", format),
        ("sink.properties.compress_type", ""),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = DorisOptions::from_map(options.into())?;
    let target = TableSchema {
        table: options.table.clone(),
        model: Some(KeyModel::Duplicate),
        columns: vec![ColumnSchema::new("c", doris)],
        properties: Default::default(),
    };
    let schema = Arc::new(Schema::new(vec![Field::new("c", column.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column])?;
    let client = DorisClient::try_new(Arc::new(options.connection))?;
    Ok((DorisSink::try_new(client, &target, schema, options.sink)?, batch))
}
