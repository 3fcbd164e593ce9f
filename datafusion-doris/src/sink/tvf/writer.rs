//! Writers that share an attempt to stage the rows of a load, each with objects of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;
use chrono::Utc;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::upload::Upload;
use super::{Stage, store};
use crate::checkpoint::chain::unique;
use crate::checkpoint::{Committable, Staged, StagedObject};
use crate::error::{Error, Result};
use crate::failpoints;
use crate::options::{OptionKey, SinkFormat};
use crate::sink::body::{Body, SLICE_ROWS};
use crate::sink::run::{Labels, LoadRun};

/// One attempt to stage the rows of a load.
#[derive(Debug)]
pub(in crate::sink) struct Attempt {
    stage: Arc<Stage>,
    load: Committable,
    /// In the keys of its objects.
    name: String,
    next: AtomicU32,
    rows: AtomicU64,
    objects: Mutex<Vec<StagedObject>>,
    /// Nothing of an earlier attempt is under the label.
    free: OnceCell<()>,
}

impl Attempt {
    /// An attempt for `load`, of which nothing is staged yet.
    pub(in crate::sink) fn new(stage: &Arc<Stage>, load: Committable) -> Self {
        let staged = Staged::unknown(&stage.place.bucket, stage.folder(&load.label));
        Self {
            stage: Arc::clone(stage),
            load: Committable { staged: Some(staged), ..load },
            name: unique(),
            next: AtomicU32::new(0),
            rows: AtomicU64::new(0),
            objects: Mutex::default(),
            free: OnceCell::new(),
        }
    }

    /// The load: enough to take back what is staged.
    pub(in crate::sink) fn load(&self) -> &Committable {
        &self.load
    }

    /// Something may be staged.
    pub(in crate::sink) fn has_begun(&self) -> bool {
        self.next.load(Ordering::Relaxed) > 0
    }

    /// Sees to it that the label is free, once for all writers.
    async fn free_label(&self, run: &LoadRun) -> Result<()> {
        if run.labels.kind == Labels::New {
            return Ok(());
        }
        // It may be one of two phases: the mode of writing was another then.
        let load = Committable { staged: None, ..self.load.clone() };
        let free = self.free.get_or_try_init(|| async { run.target.committer.clear_leftover(&load).await.map(drop) });
        free.await?;
        Ok(())
    }

    fn key(&self, name: &str) -> String {
        let (folder, extension) = (self.stage.folder(&self.load.label), self.stage.extension());
        format!("{folder}{}-{name}.{extension}", self.name)
    }

    /// The load with its rows and their number, when all writers have ended. `None` = there were no rows.
    ///
    /// # Errors
    /// Only by failpoints.
    pub(in crate::sink) fn finish(&self) -> Result<Option<(u64, Committable)>> {
        let mut objects = std::mem::take(&mut *self.objects.lock());
        objects.sort();
        let keys = match objects.as_slice() {
            [] => return Ok(None),
            [only] => only.key.clone(),
            _ => self.key("*"),
        };
        failpoints::request(failpoints::STAGED)?;
        let rows = self.rows.load(Ordering::Relaxed);
        let names: Vec<&str> = objects.iter().map(|object| object.key.as_str()).collect();
        let bucket = &self.stage.place.bucket;
        tracing::info!(label = %self.load.label, bucket, rows, objects = ?names, "rows are staged");
        let format = match self.stage.format {
            SinkFormat::Parquet => "parquet",
            _ => "json",
        };
        let staged = Staged {
            keys,
            rows: Some(rows),
            objects,
            format: format.to_string(),
            compression: self.stage.compress_type().map(str::to_string),
            staged_ms: Utc::now().timestamp_millis(),
            ..Staged::unknown(bucket, self.stage.folder(&self.load.label))
        };
        Ok(Some((rows, Committable { staged: Some(staged), ..self.load.clone() })))
    }
}

/// An object that is being written.
struct Open {
    key: String,
    body: Body,
    upload: Upload,
}

/// Writes rows into objects. Memory is that of the parts on their way and, in Parquet, of one row group.
pub(in crate::sink) struct StageWriter {
    run: Arc<LoadRun>,
    attempt: Arc<Attempt>,
    open: Option<Open>,
}

impl StageWriter {
    /// # Errors
    /// [`Error::Config`] when the sink has no stage.
    pub(in crate::sink) fn new(run: &Arc<LoadRun>) -> Result<Self> {
        let Some(attempt) = run.attempt.clone() else {
            return Err(Error::config(OptionKey::S3Endpoint.as_ref(), "is required with 'sink.write-mode' = 'TVF'"));
        };
        Ok(Self { run: Arc::clone(run), attempt, open: None })
    }

    /// Takes rows.
    ///
    /// # Errors
    /// That a value cannot be written, or that the store failed.
    pub(in crate::sink) async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        for start in (0..batch.num_rows()).step_by(SLICE_ROWS) {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.begin().await?,
            };
            open.body.append(batch, start, SLICE_ROWS.min(batch.num_rows() - start))?;
            if let Some(chunk) = open.body.full_chunk() {
                self.push(&mut open, chunk.into_bytes()).await?;
            }
            if open.upload.bytes() >= self.attempt.stage.place.object_bytes as u64 {
                self.end(open).await?;
            } else {
                self.open = Some(open);
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Ends the last object. Without rows there is none.
    ///
    /// # Errors
    /// That the store failed.
    pub(in crate::sink) async fn finish(mut self) -> Result<()> {
        match self.open.take() {
            Some(open) => self.end(open).await,
            None => Ok(()),
        }
    }

    async fn begin(&mut self) -> Result<Open> {
        self.attempt.free_label(&self.run).await?;
        failpoints::request(failpoints::STAGE_OBJECT)?;
        let stage = &self.attempt.stage;
        let number = self.attempt.next.fetch_add(1, Ordering::Relaxed);
        let key = self.attempt.key(&format!("{number:05}"));
        let upload = Upload::new(
            self.run.target.client.clone(),
            Arc::clone(&stage.store),
            store::path(&key)?,
            self.run.target.options.buffer_count,
        );
        Ok(Open { key, body: Body::new(&self.run.target)?, upload })
    }

    async fn push(&mut self, open: &mut Open, chunk: bytes::Bytes) -> Result<()> {
        self.run.target.metrics.bytes.add(chunk.len());
        let pushed = open.upload.push(chunk).await;
        pushed.map_err(|error| self.attempt.stage.failed("writing", &open.key, &error))
    }

    async fn end(&mut self, open: Open) -> Result<()> {
        let Open { key, body, mut upload } = open;
        let rows = body.rows();
        if rows == 0 {
            return Ok(());
        }
        let rest = body.finish()?.into_bytes();
        self.run.target.metrics.bytes.add(rest.len());
        let failed = |error| self.attempt.stage.failed("writing", &key, &error);
        upload.push(rest).await.map_err(failed)?;
        let bytes = upload.finish().await.map_err(failed)?;
        self.attempt.rows.fetch_add(rows, Ordering::Relaxed);
        self.attempt.objects.lock().push(StagedObject { key, bytes });
        Ok(())
    }
}
