//! `format: parquet`: the body is written to a temporary file first, for its index stands at the end.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use arrow::array::new_null_array;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::intake::Intake;
use super::mapping::Missing;
use super::reply::Failure;
use super::worker::input_failure;
use crate::types::ColumnBuilder;

/// Rows per batch.
const BATCH_ROWS: usize = 8192;

/// Reads one file; its columns are matched by name without case, and columns it lacks take their default.
pub(super) fn read(input: impl Read, intake: &mut Intake<'_>) -> Result<(), Failure> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(spool(input)?).map_err(|e| broken_parquet(&e))?;
    let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(|e| broken_parquet(&e))?;
    for batch in reader {
        let batch = batch.map_err(|e| broken_parquet(&e))?;
        let rows = batch.num_rows();
        let schema = batch.schema();
        let mapping = intake.mapping;
        let mut arrays = Vec::with_capacity(mapping.sources.len());
        for source in &mapping.sources {
            let found = schema.fields().iter().position(|f| f.name().eq_ignore_ascii_case(&source.name));
            arrays.push(match (found, &source.missing) {
                (Some(i), _) => std::sync::Arc::clone(batch.column(i)),
                (None, Missing::Default(text)) => {
                    let mut builder = ColumnBuilder::in_zone(&source.ty, mapping.zone);
                    for _ in 0..rows {
                        builder.append_text(text).map_err(|e| Failure::new("INTERNAL_ERROR", e.to_string()))?;
                    }
                    builder.finish()
                }
                (None, Missing::Null | Missing::Refused) => new_null_array(&source.ty.storage(), rows),
            });
        }
        intake.arrays(arrays, rows, "the parquet file")?;
    }
    Ok(())
}

pub(super) fn broken_parquet(error: &dyn std::fmt::Display) -> Failure {
    Failure::new("INTERNAL_ERROR", format!("Read parquet file failed, reason = {error}"))
}

/// The body in a file, from its start.
pub(super) fn spool(mut input: impl Read) -> Result<File, Failure> {
    let failed = |e: io::Error| Failure::new("IO_ERROR", format!("cannot spool the body: {e}"));
    let mut file = spool_file().map_err(failed)?;
    io::copy(&mut input, &mut file).map_err(|e| input_failure(&e))?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(file)
}

/// A file without a name: it is gone when it is closed.
fn spool_file() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("doris-sandbox-load-{}", crate::random::uuid()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
