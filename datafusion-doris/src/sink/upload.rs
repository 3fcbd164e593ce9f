//! One load: chunks in, answered and settled.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::metrics::UncountedRows;
use super::run::LoadRun;
use super::target::{AbortOnDrop, Loaded};
use crate::checkpoint::Committable;
use crate::client::retry::Backoff;
use crate::client::{Chunk, OpenLoad, StreamLoad};
use crate::error::{Error, Result, Retry};
use crate::failpoints;
use crate::protocol::{LoadKind, LoadRequest, NextStep, PendingOperation, StreamLoadHeaders, StreamLoadResponse};

/// Sends one load. It is opened with the first chunk.
///
/// The chunks of a whole body are kept until the load has ended. Of a body that is sent while it is made, the first ones
/// are kept, until there are more than may wait for the network. While those that are kept are all there is, a load that
/// the server refused for a passing reason, or whose BE died, is sent again under the same label.
pub(super) struct Upload {
    run: Arc<LoadRun>,
    headers: StreamLoadHeaders,
    open: Option<OpenLoad>,
    /// All chunks so far; `None` = some are gone.
    replay: Option<Vec<Chunk>>,
    /// Bytes of the body, when it is whole.
    length: Option<u64>,
    attempts_left: usize,
    backoff: Backoff,
    /// For a server that has to get rid of work first.
    patient: Backoff,
    first_refusal: Option<Instant>,
    load: Committable,
}

impl Upload {
    /// A load whose body is sent while it is made: the only one of a writer.
    pub(super) fn streamed(run: &Arc<LoadRun>, writer: u32) -> Result<Self> {
        Self::new(run, writer, writer, Vec::new(), None)
    }

    /// A load whose whole body is there: [`Self::finish`] sends it. `number`: see [`super::run::LabelSet::label`].
    pub(super) fn whole(run: &Arc<LoadRun>, number: u32, writer: u32, chunks: Vec<Chunk>) -> Result<Self> {
        let length = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self::new(run, number, writer, chunks, Some(length))
    }

    fn new(run: &Arc<LoadRun>, number: u32, writer: u32, chunks: Vec<Chunk>, length: Option<u64>) -> Result<Self> {
        let target = &run.target;
        let label = run.labels.label(number);
        let headers = StreamLoadHeaders::build(&LoadRequest {
            table: &target.table,
            options: &target.options,
            columns: target.columns.as_deref(),
            format: target.format,
            delete_sign: target.layout.has_delete_sign(),
            label: &label,
            two_phase_commit: run.two_phase,
        })?;
        Ok(Self {
            run: Arc::clone(run),
            headers,
            open: None,
            replay: Some(chunks),
            length,
            attempts_left: target.options.max_retries,
            backoff: Backoff::new(),
            patient: Backoff::patient(),
            first_refusal: None,
            load: target.load(label, writer),
        })
    }

    /// Frees the label, which an earlier attempt or process may have left with a load.
    pub(super) async fn clear_leftover(&mut self) -> Result<()> {
        if self.headers.kind() == LoadKind::Group {
            // It has no label.
            return Ok(());
        }
        self.run.target.committer.clear_leftover(&self.load).await.map(drop)
    }

    /// Sends a piece of the body.
    ///
    /// # Errors
    /// The server's refusal or a lost connection, when the load cannot be sent again.
    pub(super) async fn send(&mut self, chunk: Chunk) -> Result<()> {
        self.run.target.metrics.bytes.add(chunk.len());
        if let Some(replay) = &mut self.replay {
            if replay.len() < self.run.target.options.buffer_count.max(1) {
                replay.push(chunk.clone());
            } else {
                self.replay = None;
            }
        }
        loop {
            let sent = match &mut self.open {
                Some(open) => match failpoints::request(failpoints::BODY_CHUNK) {
                    Ok(()) => open.send(chunk.clone()).await,
                    Err(error) => Err(error),
                },
                // The chunk is among those to replay.
                None => self.open_and_replay().await,
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.run.target.metrics.failed();
                    let was_open = self.open.take().is_some();
                    self.prepare_retry(error, was_open).await?;
                }
            }
        }
    }

    /// Opens the load and sends what is kept, which is everything so far.
    async fn open_and_replay(&mut self) -> Result<()> {
        failpoints::request(failpoints::BODY_BEGIN)?;
        let target = &self.run.target;
        let load = StreamLoad {
            table: target.table.clone(),
            label: self.load.label.clone(),
            headers: self.headers.clone(),
            buffer_count: target.options.buffer_count,
            length: self.length,
        };
        let open = self.open.insert(target.client.stream_load(load).await?);
        target.metrics.loads.add(1);
        self.load.host = open.host().to_string();
        let whole = self.length.is_some();
        let chunks = self.replay.as_deref().unwrap_or_default();
        for (at, chunk) in chunks.iter().enumerate() {
            if whole {
                failpoints::request(failpoints::BODY_CHUNK)?;
                if at + 1 == chunks.len() {
                    failpoints::request(failpoints::BODY_LAST)?;
                }
                // Each time it is sent.
                target.metrics.bytes.add(chunk.len());
            }
            open.send(chunk.clone()).await?;
        }
        Ok(())
    }

    /// Makes ready to send the load again, where [`crate::protocol::after_load`] says so; gives the error back when not.
    /// `was_open` = the server knew it.
    async fn prepare_retry(&mut self, error: Error, was_open: bool) -> Result<()> {
        let (pause, soon) = match error.retry() {
            Retry::SameLabel => (self.backoff.next_pause(), true),
            Retry::Later | Retry::LabelTaken => (self.patient.next_pause(), false),
            Retry::Never | Retry::AskLabelState => return Err(error),
            Retry::CannotTell => return Err(self.outcome_unknown(&error)),
        };
        let waited = self.first_refusal.get_or_insert_with(Instant::now).elapsed();
        let patient = waited + pause <= self.run.target.committer.patience;
        if self.replay.is_none() || self.attempts_left == 0 || !(soon || patient) {
            return Err(self.given_up(error, waited));
        }
        self.attempts_left -= 1;
        tracing::debug!(label = %self.load.label, %error, ?pause, "sending the load again under the same label");
        tokio::time::sleep(pause).await;
        // The server may not have noticed yet that the first attempt is over.
        if was_open || error.retry() == Retry::LabelTaken {
            self.clear_leftover().await?;
        }
        Ok(())
    }

    fn outcome_unknown(&self, error: &Error) -> Error {
        Error::StreamLoad {
            table: self.run.target.table.to_string(),
            label: "of the server (group commit)".into(),
            message: format!(
                "{error}; nothing tells whether its rows are in the table, so look before the statement is run again"
            ),
            error_url: None,
            first_error: None,
            retry: Retry::CannotTell,
        }
    }

    /// Says how often a load was refused that passes by itself, as a rule.
    fn given_up(&self, error: Error, waited: Duration) -> Error {
        let attempts = self.run.target.options.max_retries - self.attempts_left + 1;
        match error {
            Error::StreamLoad { table, label, message, error_url, first_error, retry: Retry::Later } => {
                let why = match self.replay {
                    Some(_) => format!("refused {attempts} times in {} s", waited.as_secs()),
                    None => "a part of the rows was sent already and is not kept: run the statement again".to_string(),
                };
                let message = format!("{message} ({why})");
                Error::StreamLoad { table, label, message, error_url, first_error, retry: Retry::Later }
            }
            error => error,
        }
    }

    /// Ends the load of `rows` rows.
    ///
    /// # Errors
    /// The server's refusal, or that the outcome could not be found out.
    pub(super) async fn finish(mut self, rows: u64) -> Result<Loaded> {
        let run = Arc::clone(&self.run);
        // A whole body was sent under this label: a load that holds it is ours.
        let mut sent = false;
        loop {
            let opened = match self.open {
                Some(_) => Ok(()),
                None => self.open_and_replay().await,
            };
            let (error, was_open) = match (opened, self.open.take()) {
                (Ok(()), Some(open)) => {
                    let finish = async {
                        failpoints::request(failpoints::PRE_COMMIT)?;
                        let response = open.finish().await?;
                        failpoints::answer(failpoints::PRE_COMMITTED)?;
                        Ok::<_, Error>(response)
                    };
                    match AbortOnDrop::during(&run, &self.load, finish).await {
                        Ok(response) => return self.ended(response, rows),
                        Err(error) => (error, true),
                    }
                }
                (Ok(()), None) => continue,
                (Err(error), open) => (error, open.is_some()),
            };
            run.target.metrics.failed();
            let ask = match error.retry() {
                Retry::AskLabelState => true,
                Retry::LabelTaken => sent,
                _ => false,
            };
            sent |= was_open;
            if !ask {
                self.prepare_retry(error, was_open).await?;
            } else if self.resolve(error).await? {
                return Ok(self.ended_unheard(rows));
            }
        }
    }

    /// The load of `rows` rows ended well, as its label tells, which does not count them.
    fn ended_unheard(self, rows: u64) -> Loaded {
        let target = &self.run.target;
        // Without leave to refuse rows Doris takes all of them or none.
        if self.allowed_share() == 0.0 && self.headers.get("where").is_none() {
            target.metrics.resolved(rows);
            return Loaded { rows, load: self.load, filtered: None, counted: true };
        }
        let uncounted = UncountedRows::of(&self.load, rows);
        tracing::warn!(table = %target.table, label = %self.load.label, rows, "{uncounted}");
        target.metrics.resolved_uncounted(&uncounted);
        Loaded { rows, load: self.load, filtered: None, counted: false }
    }

    /// The load of `rows` rows ended well: tells so, and about the rows that Doris refused.
    ///
    /// # Errors
    /// [`Error::StreamLoad`] when a load by group commit refused more rows than it may: Doris does not check that there.
    fn ended(mut self, response: StreamLoadResponse, rows: u64) -> Result<Loaded> {
        let (target, kind) = (&self.run.target, self.headers.kind());
        self.load.txn_id = response.txn_id;
        if kind == LoadKind::Group {
            self.load.label.clone_from(&response.label);
        }
        let Committable { label, txn_id, .. } = &self.load;
        let (table, times) = (&target.table, &response.times_ms);
        tracing::info!(
            %table,
            label,
            txn_id,
            ?kind,
            total_rows = response.total_rows,
            loaded_rows = response.loaded_rows,
            filtered_rows = response.filtered_rows,
            unselected_rows = response.unselected_rows,
            load_bytes = response.load_bytes,
            load_time_ms = response.load_time_ms,
            begin_txn_time_ms = times.begin_txn,
            put_data_time_ms = times.stream_load_put,
            read_data_time_ms = times.read_data,
            write_data_time_ms = times.write_data,
            commit_and_publish_time_ms = times.commit_and_publish,
            "a load has ended"
        );
        target.metrics.succeeded(&response);
        let filtered = response.filtered_rows;
        let refused = target.metrics.refused(table, label, filtered, response.first_error.as_deref());
        let selected = response.total_rows.saturating_sub(response.unselected_rows);
        if kind == LoadKind::Group && filtered as f64 > selected as f64 * self.allowed_share() {
            return Err(Error::StreamLoad {
                table: table.to_string(),
                label: label.clone(),
                message: format!(
                    "{filtered} of {selected} rows were refused; with group commit the others are in the table all the same"
                ),
                error_url: response.error_url,
                first_error: response.first_error,
                retry: Retry::Never,
            });
        }
        let dropped = filtered.saturating_add(response.unselected_rows);
        Ok(Loaded { rows: rows.saturating_sub(dropped), load: self.load, filtered: refused, counted: true })
    }

    /// Share of the rows that may be refused.
    fn allowed_share(&self) -> f64 {
        self.headers.get("max_filter_ratio").and_then(|ratio| ratio.trim().parse().ok()).unwrap_or(0.0)
    }

    /// Finds out by the label what became of a load whose answer was lost: true = it is done, false = it is to be sent
    /// again. Gives the error back when that cannot be.
    async fn resolve(&mut self, error: Error) -> Result<bool> {
        let operation = match self.run.two_phase {
            true => PendingOperation::PreCommit,
            false => PendingOperation::Load,
        };
        tracing::warn!(label = %self.load.label, %error, "the answer to a load was lost, asking for its state");
        let settled = self.run.target.committer.settle(operation, &self.load);
        match AbortOnDrop::during(&self.run, &self.load, settled).await? {
            NextStep::Done => Ok(true),
            // Nothing of it is in Doris: the first failure decides whether there is something to send again.
            NextStep::Resend if self.replay.is_some() && self.attempts_left > 0 => {
                self.attempts_left -= 1;
                Ok(false)
            }
            _ => Err(error),
        }
    }
}
