//! The loads of one statement or epoch: one that runs in the statement itself, or several at once.
//!
//! ```text
//!                       ┌ bounded queue ─ writer 0 (task): encode ─ load under …_0 ┐
//! input ─ split by key ─┼ bounded queue ─ writer 1 (task): encode ─ load under …_1 ┼ all ended well: their loads
//!                       └ bounded queue ─ writer 2 (task): encode ─ load under …_2 ┘ else: all are aborted
//! ```
//!
//! The input is read and split by the statement's own future. A writer whose queue is full holds the input up, so memory
//! is bounded by the queues and the buffers of the loads. The tasks belong to the future: dropping it aborts them. A queue
//! that is closed without its end mark means that the statement failed or was dropped, and the load is cut.

use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::record_batch::RecordBatch;
use datafusion::common::runtime::JoinSet;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::StreamExt;
use futures::future::{join_all, try_join_all};
use tokio::sync::mpsc;

use super::partition::{Part, Partitioner, Routing};
use super::target::{InTask, LoadTarget, Loaded};
use super::writer::LoadWriter;
use crate::error::{Error, Result};

/// Parts that wait for a writer.
const QUEUE: usize = 2;

/// Whether a label may be taken already by an earlier attempt or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Labels {
    /// Nobody has used them.
    New,
    /// Looked after when rows are sent under them.
    Repeatable,
    /// An earlier attempt of this process used them, perhaps for other rows: all are freed.
    Repeated,
}

/// Writes all of `data` under `labels`, to the pre-commit (or to the end, without two-phase commit). Loads without rows
/// are not opened.
///
/// # Errors
/// The first error of the input or of a load. With two-phase commit none of the loads is left; without it those that
/// had ended are visible, and the error names them.
pub(super) async fn write(
    target: &Arc<LoadTarget>,
    routing: &Routing,
    labels: Vec<String>,
    kind: Labels,
    mut data: SendableRecordBatchStream,
) -> Result<Vec<Loaded>> {
    let first = loop {
        match data.next().await.transpose()? {
            Some(batch) if batch.num_rows() == 0 => {}
            first => break first,
        }
    };
    let mut writers = Vec::with_capacity(labels.len());
    for label in labels {
        writers.push(Writer { load: LoadWriter::new(target, label)?, kind, begun: false });
    }
    let Some(first) = first else {
        try_join_all(writers.into_iter().map(Writer::finish)).await?;
        return Ok(vec![]);
    };
    match writers.pop() {
        Some(only) if writers.is_empty() => alone(only, first, data).await,
        Some(last) => {
            writers.push(last);
            together(target, Partitioner::new(routing, writers.len()), writers, first, data).await
        }
        None => Ok(vec![]),
    }
}

/// One load, in the task of the statement.
async fn alone(mut writer: Writer, first: RecordBatch, mut data: SendableRecordBatchStream) -> Result<Vec<Loaded>> {
    let written = async {
        writer.write(&first).await?;
        drop(first);
        while let Some(batch) = data.next().await.transpose()? {
            writer.write(&batch).await?;
        }
        Ok(())
    };
    written.await.inspect_err(failed)?;
    Ok(writer.finish().await?.into_iter().collect())
}

/// Several loads, each in a task.
async fn together(
    target: &Arc<LoadTarget>,
    partitioner: Partitioner<'_>,
    writers: Vec<Writer>,
    first: RecordBatch,
    data: SendableRecordBatchStream,
) -> Result<Vec<Loaded>> {
    let mut tasks = JoinSet::new();
    let mut queues = Vec::with_capacity(writers.len());
    for writer in writers {
        let (queue, pieces) = mpsc::channel(QUEUE);
        let in_task = InTask::new(target);
        tasks.spawn(async move {
            // Dropped after the writer.
            let _in_task = in_task;
            writer.run(pieces).await
        });
        queues.push(queue);
    }
    let mut loads = Vec::new();
    let outcome = {
        let gather = async {
            while let Some(ended) = tasks.join_next().await {
                match ended {
                    Ok(load) => loads.extend(load?),
                    Err(error) => return Err(DataFusionError::ExecutionJoin(Box::new(error)).into()),
                }
            }
            Ok(())
        };
        tokio::try_join!(feed(partitioner, queues, first, data), gather)
    };
    let error = match outcome {
        Ok((true, ())) => return Ok(loads),
        Ok((false, ())) => DataFusionError::Internal("a writer ended before its input".into()).into(),
        Err(error) => error,
    };
    failed(&error);
    // The others may have ended meanwhile.
    tasks.abort_all();
    while let Some(ended) = tasks.join_next().await {
        loads.extend(ended.into_iter().flatten().flatten());
    }
    let error = give_up(target, loads, error).await;
    // A writer that was cut while its answer was awaited has its load aborted by label, and the next attempt may use the
    // label again: not before that is over.
    target.client.cleanup().done().await;
    Err(error)
}

/// Hands the input out. True when all of it was taken, and every writer told so.
async fn feed(
    mut partitioner: Partitioner<'_>,
    queues: Vec<mpsc::Sender<Piece>>,
    first: RecordBatch,
    mut data: SendableRecordBatchStream,
) -> Result<bool> {
    let mut next = Some(first);
    while let Some(batch) = next {
        for (writer, part) in partitioner.split(batch)? {
            let Some(queue) = queues.get(writer) else { continue };
            if queue.send(Piece::Rows(part)).await.is_err() {
                // The writer's own error tells.
                return Ok(false);
            }
        }
        next = data.next().await.transpose()?;
    }
    for queue in queues {
        if queue.send(Piece::End).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes back the loads of a statement that failed.
async fn give_up(target: &LoadTarget, loads: Vec<Loaded>, error: Error) -> Error {
    if !target.options.two_phase_commit {
        let visible: Vec<&str> = loads.iter().map(|load| load.load.label.as_str()).collect();
        return if visible.is_empty() { error } else { partly_visible(&error, &visible) };
    }
    let aborts = loads.into_iter().map(|load| async move {
        if let Err(error) = target.committer.abort(&load.load).await {
            tracing::warn!(label = %load.load.label, %error, "a load of a failed statement was not aborted");
            // Its guard tries again.
            return;
        }
        load.take();
    });
    join_all(aborts).await;
    error
}

fn partly_visible(error: &Error, visible: &[&str]) -> Error {
    Error::Transaction {
        operation: "load".into(),
        label: visible.join(", "),
        txn_id: None,
        reason: format!(
            "{error}; without two-phase commit the rows of these labels are in the table already: take them back, or write \
             to a unique table and run the statement again"
        ),
        // What may pass for a load may pass for the job.
        retry: error.retry(),
    }
}

fn failed(error: &Error) {
    tracing::debug!(%error, "statement failed, its loads are cut");
}

/// What a writer is handed.
#[derive(Debug)]
enum Piece {
    Rows(Part),
    /// There was all of the input.
    End,
}

/// A load, and whether its label must be freed first.
struct Writer {
    load: LoadWriter,
    kind: Labels,
    begun: bool,
}

impl Writer {
    async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() > 0 && !self.begun {
            self.begun = true;
            if self.kind != Labels::New {
                self.load.clear_leftover().await?;
            }
        }
        self.load.write(batch).await
    }

    async fn finish(mut self) -> Result<Option<Loaded>> {
        if !self.begun && self.kind == Labels::Repeated {
            self.load.clear_leftover().await?;
        }
        self.load.finish().await
    }

    async fn run(mut self, mut pieces: mpsc::Receiver<Piece>) -> Result<Option<Loaded>> {
        while let Some(piece) = pieces.recv().await {
            match piece {
                Piece::Rows(Part { batch, rows }) => {
                    self.write(&batch).await.map_err(|error| at_input_row(error, rows.as_ref()))?;
                }
                Piece::End => return self.finish().await,
            }
        }
        // Dropping the load cuts it.
        Ok(None)
    }
}

/// Rows of errors count in the batch of the input.
fn at_input_row(error: Error, rows: Option<&UInt32Array>) -> Error {
    match (error, rows) {
        (Error::Encode { table, column, row, reason }, Some(rows)) if row < rows.len() => {
            Error::Encode { table, column, row: rows.value(row) as usize, reason }
        }
        (error, _) => error,
    }
}
