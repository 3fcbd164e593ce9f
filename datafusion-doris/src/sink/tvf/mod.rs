//! Rows by way of an object store: staged as objects, then taken into the table by one statement.
//!
//! ```text
//! input ─ position of each row ─┬ writer 0: encode ─ objects {prefix}/{label}/{attempt}-00000.json.gz ─┐
//!                               ├ writer 1: encode ─ objects {prefix}/{label}/{attempt}-00001.json.gz ─┤ committable
//!                               └ …                                                                    ┘
//! commit: INSERT INTO t WITH LABEL label (…) SELECT … FROM S3('uri' = '…/{attempt}-*.json.gz', …)
//! ```
//!
//! The pre-commit of such a load is that all of its objects are there; nothing of it is in Doris before the commit. The
//! server takes a label once, so the statement is run again under the same label until the label's state tells that its
//! rows are in the table (`step`).
//!
//! Doris reads objects side by side, in no order. Where a table keeps one row per key, each row therefore carries its
//! position in the input, and the statement takes the last one of each key.
//!
//! Every attempt has a name of its own in its objects' keys: what an earlier one has left is not read.

mod answer;
mod commit;
mod ordered;
mod refusals;
mod step;
mod store;
mod upload;
mod writer;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_plan::SendableRecordBatchStream;
use object_store::ObjectStore;
use parking_lot::Mutex;

pub(super) use self::answer::Taken;
use self::ordered::with_positions;
pub(super) use self::writer::{Attempt, StageWriter};
use super::encoder::{RowLayout, is_text_in_parquet};
use super::metrics::SinkMetrics;
use super::parallel;
use super::partition::Routing;
use super::run::LoadRun;
use super::target::Loaded;
use crate::checkpoint::StagePlace;
use crate::error::{Error, Result};
use crate::options::{Compression, InsertSettings, OptionKey, S3Options, SinkFormat, SinkOptions};
use crate::sql::{LastOfKey, StagedColumn};
use crate::types::{DorisType, KeyModel, TableSchema};

/// Staged column with the position of a row in the input.
pub(super) const POSITION: &str = "__staged_position";

/// Where the loads of a sink are staged, and the statement that takes them from there.
pub(super) struct Stage {
    pub(super) place: S3Options,
    store: Arc<dyn ObjectStore>,
    columns: Vec<StagedColumn>,
    delete_sign: bool,
    last_of_key: Option<LastOfKey>,
    /// Column that fills the hidden sequence column.
    sequence: Option<String>,
    settings: InsertSettings,
    compression: Compression,
    format: SinkFormat,
    metrics: Arc<SinkMetrics>,
    /// Labels whose statement was sent by this process, and which is not known to have ended.
    in_doubt: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for Stage {
    /// Without the store, which has the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("place", &self.place).field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Stage {
    /// A stage for rows of `layout`, with the positions where [`Self::keeps_positions`] says so.
    ///
    /// # Errors
    /// [`Error::Config`] for options that do not fit, [`Error::Schema`] for a table that cannot be written this way.
    pub(super) fn try_new(
        target: &TableSchema,
        options: &SinkOptions,
        layout: &RowLayout,
        format: SinkFormat,
        metrics: &Arc<SinkMetrics>,
    ) -> Result<Self> {
        let Some(place) = options.s3.clone() else {
            return Err(Error::config(OptionKey::S3Endpoint.as_ref(), "is required with 'sink.write-mode' = 'TVF'"));
        };
        place.check()?;
        let settings = InsertSettings::of(options)?;
        if target.column(POSITION).is_some() {
            return Err(Error::schema(&target.table, format!("a column '{POSITION}' is in the way: use STREAM_LOAD")));
        }
        let mut columns = Vec::new();
        for name in layout.names().filter(|name| *name != POSITION) {
            let Some(column) = target.column(name) else {
                return Err(Error::schema(&target.table, format!("has no column '{name}'")));
            };
            if let DorisType::Opaque(state) = &column.doris_type {
                let reason = format!(
                    "column '{name}' is {state}, which staged rows cannot carry: use 'sink.write-mode' = 'STREAM_LOAD' with \
                     'sink.properties.columns'"
                );
                return Err(Error::schema(&target.table, reason));
            }
            let text = matches!(column.doris_type, DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String);
            let as_text = match format {
                SinkFormat::Parquet => is_text_in_parquet(&column.doris_type),
                _ => !text,
            };
            let (name, doris_type) = (name.to_string(), column.doris_type.clone());
            columns.push(StagedColumn { name, doris_type, key: column.key, as_text });
        }
        // The table's own sequence goes before the order of arrival.
        let named = settings.sequence.as_ref().or_else(|| target.properties.get("function_column.sequence_col"));
        let found = named.and_then(|name| columns.iter().find(|column| column.name.eq_ignore_ascii_case(name)));
        let sequence = found.map(|column| column.name.clone());
        if let (Some(name), None) = (&settings.sequence, &sequence) {
            let reason = format!("names '{name}', which is none of the columns that are written");
            return Err(Error::config("sink.properties.function_column.sequence_col", reason));
        }
        let positions = keeps_positions(target)?;
        // The last row of a key is found by the whole of it: numbers that Doris makes are not known before.
        let written = |name: &str| columns.iter().any(|column| column.name == name);
        if positions && let Some(key) = target.columns.iter().find(|column| column.key && !written(&column.name)) {
            let reason = format!(
                "key column '{}' is left out, so rows with the same key cannot be told apart in 'sink.write-mode' = 'TVF': \
                 write it, or use STREAM_LOAD",
                key.name
            );
            return Err(Error::schema(&target.table, reason));
        }
        let last_of_key = positions.then(|| LastOfKey { order: POSITION.to_string(), sequence: sequence.clone() });
        let store = store::open(&place, options.max_retries)?;
        Ok(Self {
            store,
            columns,
            delete_sign: layout.has_delete_sign(),
            last_of_key,
            // A table whose sequence is one of its columns takes it from there.
            sequence: match target.properties.contains_key("function_column.sequence_type") {
                true => sequence,
                false => None,
            },
            settings,
            compression: options.compression_of(format),
            format,
            metrics: Arc::clone(metrics),
            in_doubt: Mutex::default(),
            place,
        })
    }

    /// What a record needs to find the objects of a label.
    pub(super) fn stage_place(&self) -> StagePlace {
        StagePlace { bucket: self.place.bucket.clone(), prefix: self.place.prefix.clone() }
    }

    fn folder(&self, label: &str) -> String {
        self.stage_place().folder(label)
    }

    /// What the names of objects end with.
    fn extension(&self) -> &'static str {
        match (self.format, self.compression) {
            (SinkFormat::Parquet, _) => "parquet",
            (_, Compression::None) => "json",
            (_, Compression::Gz) => "json.gz",
            (_, Compression::Lz4) => "json.lz4",
            (_, Compression::Zstd) => "json.zst",
            (_, Compression::Deflate) => "json.deflate",
        }
    }

    /// Compression of objects as a whole, by its name in the statement.
    fn compress_type(&self) -> Option<&'static str> {
        match (self.format, self.compression) {
            (SinkFormat::Parquet, _) => None,
            (_, Compression::None) => Some("plain"),
            (_, Compression::Gz) => Some("gz"),
            (_, Compression::Lz4) => Some("lz4frame"),
            (_, Compression::Zstd) => Some("zstd"),
            (_, Compression::Deflate) => Some("deflate"),
        }
    }
}

/// Stages all of `data` as one load. Without rows there is none.
///
/// # Errors
/// The first error of the input or of the store. Nothing that was staged is left then, as far as possible.
///
/// # Cancellation
/// Dropping the future aborts uploads and removes what is staged, in the background.
pub(super) async fn write(
    run: &Arc<LoadRun>,
    stage: &Stage,
    routing: &Routing,
    data: SendableRecordBatchStream,
) -> Result<Vec<Loaded>> {
    let data = if stage.last_of_key.is_some() { with_positions(data) } else { data };
    let guard = RemoveOnDrop(Some(Arc::clone(run)));
    let staged = async {
        parallel::write(run, routing, data).await?;
        run.attempt.as_ref().map_or(Ok(None), |attempt| attempt.finish())
    };
    match staged.await {
        Ok(Some((rows, load))) => {
            guard.release();
            // The statement tells what becomes of them.
            Ok(vec![Loaded { rows, load, filtered: None, counted: false }])
        }
        Ok(None) => {
            guard.release();
            Ok(vec![])
        }
        Err(error) => {
            run.target.metrics.failed();
            drop(guard);
            // The next attempt may use the label: not before nothing is left of this one.
            run.target.client.cleanup().done().await;
            run.target.client.cleanup().done().await;
            Err(error)
        }
    }
}

/// Removes what an attempt has staged, when nobody takes it.
struct RemoveOnDrop(Option<Arc<LoadRun>>);

impl RemoveOnDrop {
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        let Some(run) = self.0.take() else { return };
        let Some(attempt) = run.attempt.clone().filter(|attempt| attempt.has_begun()) else { return };
        let client = run.target.client.clone();
        client.cleanup().later("wait for uploads", async move {
            run.tasks.none().await;
            let (client, committer) = (run.target.client.clone(), run.target.committer.clone());
            // After what the writers leave behind.
            client.cleanup().later("remove staged objects", async move {
                if let Err(error) = committer.abort(attempt.load()).await {
                    tracing::warn!(label = %attempt.load().label, %error, "staged objects were not removed");
                }
            });
        });
    }
}

/// Whether rows carry their positions: where the table keeps one row per key.
///
/// # Errors
/// [`Error::Schema`] for tables of which it is not known what several rows of one key mean, or that cannot be told the
/// order of them.
pub(super) fn keeps_positions(target: &TableSchema) -> Result<bool> {
    let refuse = |reason: &str| {
        let advice = format!("{reason}: use 'sink.write-mode' = 'STREAM_LOAD'");
        Err(Error::schema(&target.table, advice))
    };
    match target.model {
        Some(KeyModel::Duplicate) => Ok(false),
        Some(KeyModel::Unique) => Ok(true),
        Some(KeyModel::Aggregate) => {
            refuse("keeps aggregates, which may depend on the order of rows, and staged objects are read in no order")
        }
        None => refuse("has no known model, so what several staged rows of one key become cannot be told"),
    }
}

/// The schema of rows with their positions.
pub(super) fn positioned(schema: &Schema) -> SchemaRef {
    let position = Arc::new(Field::new(POSITION, DataType::Int64, false));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([position]).collect::<Vec<_>>()))
}
