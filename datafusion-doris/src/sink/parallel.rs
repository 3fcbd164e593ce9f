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
use futures::future::try_join_all;
use tokio::sync::mpsc;

use super::partition::{Part, Partitioner, Routing};
use super::row_writer::RowWriter;
use super::run::LoadRun;
use super::target::{InTask, Loaded, SettleOnDrop};
use crate::error::{Error, Result};

/// Parts that wait for a writer.
const QUEUE: usize = 2;

/// Writes all of `data`, to the pre-commit (or to the end, without two-phase commit). Loads without rows are not opened.
///
/// # Errors
/// The first error of the input or of a load. With two-phase commit none of the loads is left; without it those that
/// had ended are visible, and the error names them.
pub(super) async fn write(
    run: &Arc<LoadRun>,
    routing: &Routing,
    mut data: SendableRecordBatchStream,
) -> Result<Vec<Loaded>> {
    let first = loop {
        match data.next().await.transpose()? {
            Some(batch) if batch.num_rows() == 0 => {}
            first => break first,
        }
    };
    let mut writers =
        (0..run.labels.series.writers).map(|writer| RowWriter::new(run, writer)).collect::<Result<Vec<_>>>()?;
    let Some(first) = first else {
        try_join_all(writers.into_iter().map(RowWriter::finish)).await?;
        return Ok(vec![]);
    };
    let written = match (writers.len(), writers.pop()) {
        (1, Some(only)) => alone(only, first, data).await,
        (_, Some(last)) => {
            writers.push(last);
            together(run, Partitioner::new(routing, writers.len()), writers, first, data).await
        }
        (_, None) => Ok(()),
    };
    let Err(error) = written else { return Ok(run.take_ended()) };
    tracing::debug!(%error, "statement failed, its loads are cut");
    // What ended meanwhile is known after that.
    run.tasks.none().await;
    let error = give_up(run, error).await;
    // A writer that was cut while its answer was awaited has its load aborted by label, and the next attempt may use the
    // label again: not before that is over.
    if run.tasks.had_some() {
        run.target.client.cleanup().done().await;
    }
    Err(error)
}

/// One writer, in the task of the statement.
async fn alone(mut writer: RowWriter, first: RecordBatch, mut data: SendableRecordBatchStream) -> Result<()> {
    writer.write(&first).await?;
    drop(first);
    loop {
        tokio::select! {
            next = data.next() => match next.transpose()? {
                Some(batch) => writer.write(&batch).await?,
                None => return writer.finish().await,
            },
            done = writer.background() => done?,
        }
    }
}

/// Several writers, each in a task.
async fn together(
    run: &Arc<LoadRun>,
    partitioner: Partitioner<'_>,
    writers: Vec<RowWriter>,
    first: RecordBatch,
    data: SendableRecordBatchStream,
) -> Result<()> {
    let mut tasks = JoinSet::new();
    let mut queues = Vec::with_capacity(writers.len());
    for writer in writers {
        let (queue, pieces) = mpsc::channel(QUEUE);
        let in_task = InTask::new(run);
        tasks.spawn(async move {
            // Dropped after the writer.
            let _in_task = in_task;
            consume(writer, pieces).await
        });
        queues.push(queue);
    }
    let gather = async {
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(written) => written?,
                Err(error) => return Err(DataFusionError::ExecutionJoin(Box::new(error)).into()),
            }
        }
        Ok(())
    };
    match tokio::try_join!(feed(partitioner, queues, first, data), gather)? {
        (true, ()) => Ok(()),
        (false, ()) => Err(DataFusionError::Internal("a writer ended before its input".into()).into()),
    }
}

/// A writer in a task.
async fn consume(mut writer: RowWriter, mut pieces: mpsc::Receiver<Piece>) -> Result<()> {
    loop {
        tokio::select! {
            piece = pieces.recv() => match piece {
                Some(Piece::Rows(Part { batch, rows })) => {
                    writer.write(&batch).await.map_err(|error| at_input_row(error, rows.as_ref()))?;
                }
                Some(Piece::End) => return writer.finish().await,
                // Dropping the writer cuts its load.
                None => return Ok(()),
            },
            done = writer.background() => done?,
        }
    }
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
async fn give_up(run: &LoadRun, error: Error) -> Error {
    let (target, loads) = (&run.target, run.take_ended());
    if !run.two_phase {
        let visible: Vec<&str> = loads.iter().map(|load| load.load.label.as_str()).collect();
        return if visible.is_empty() { error } else { partly_visible(&error, &visible) };
    }
    // Dropped meanwhile, it tries again.
    let loads = SettleOnDrop::new(target, loads.into_iter().map(|load| load.load).collect());
    match target.committer.abort_all(loads.loads()).await {
        Ok(_) => loads.release(),
        Err(error) => tracing::warn!(%error, "not all loads of a failed statement were aborted"),
    }
    error
}

/// Labels that an error names of many.
const NAMED: usize = 8;

fn partly_visible(error: &Error, visible: &[&str]) -> Error {
    let more = match visible.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Error::Transaction {
        operation: "load".into(),
        label: visible.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ") + &more,
        txn_id: None,
        reason: format!(
            "{error}; without two-phase commit the rows of these labels are in the table already: take them back, or write \
             to a unique table and run the statement again"
        ),
        // What may pass for a load may pass for the job.
        retry: error.retry(),
    }
}

/// What a writer is handed.
#[derive(Debug)]
enum Piece {
    Rows(Part),
    /// There was all of the input.
    End,
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
