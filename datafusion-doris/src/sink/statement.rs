//! One bounded statement: its loads are written and committed as one.

use datafusion::physical_plan::SendableRecordBatchStream;

use super::DorisSink;
use super::metrics::FilteredRows;
use super::run::Labels;
use super::target::{Loaded, SettleOnDrop};
use super::tvf::Taken;
use crate::checkpoint::chain::unique;
use crate::checkpoint::{AbortOutcome, Committable, Epoch, Generation};
use crate::error::{Error, Result, Retry};
use crate::types::KeyModel;

/// What a statement has written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteReport {
    /// Rows that are in the table, as Doris counts them; of [`Self::uncounted`] loads those that were sent.
    pub rows: u64,
    /// Labels of the loads, in the order in which they were committed; none when there were no rows.
    pub labels: Vec<String>,
    /// Rows that Doris refused while it took the others (`sink.properties.max_filter_ratio`).
    pub filtered: Option<FilteredRows>,
    /// Labels of the loads that are in the table, and whose answer was lost: [`Self::rows`] holds all of their rows, those
    /// included that Doris may have refused.
    pub uncounted: Vec<String>,
    /// Staged rows (TVF mode) that are neither in the table nor refused: Doris has not read all of their objects, which stay
    /// ([`DorisSink::missing`] names them). Not known where the table keeps one row per key.
    pub missing_rows: u64,
}

impl WriteReport {
    fn of(loads: &[Loaded]) -> Self {
        Self {
            rows: loads.iter().map(|load| load.rows).sum(),
            labels: loads.iter().map(|load| load.load.label.clone()).collect(),
            filtered: FilteredRows::sum(loads.iter().filter_map(|load| load.filtered.as_ref())),
            uncounted: loads.iter().filter(|load| !load.counted).map(|load| load.load.label.clone()).collect(),
            missing_rows: 0,
        }
    }

    /// Staged rows are counted when they are taken.
    fn taken(mut self, taken: Vec<Taken>) -> Self {
        if !taken.is_empty() {
            self.rows = taken.iter().map(|taken| taken.rows).sum();
            self.filtered = FilteredRows::sum(taken.iter().filter_map(|taken| taken.filtered.as_ref()));
            self.missing_rows = taken.iter().map(|taken| taken.missing).sum();
            let uncounted = taken.into_iter().filter(|taken| !taken.counted);
            self.uncounted = uncounted.map(|taken| taken.label).collect();
        }
        self
    }
}

fn names(loads: &[Committable]) -> Vec<String> {
    loads.iter().map(|load| load.label.clone()).collect()
}

/// Loads of a statement that did not end as one.
fn torn(labels: &[String], reason: String) -> Error {
    let (operation, label) = ("commit".to_string(), labels.join(", "));
    Error::Transaction { operation, label, txn_id: None, reason, retry: Retry::Never }
}

impl DorisSink {
    /// Writes all rows of `data`, batches of [`DataSink::schema`](datafusion::datasource::sink::DataSink::schema), and
    /// commits them.
    ///
    /// # Errors
    /// The error of the stream; [`Error::Encode`], [`Error::StreamLoad`], [`Error::Transaction`]; in TVF mode
    /// [`Error::NothingRead`]. No row is in the table then, unless the error names loads that are.
    ///
    /// # Cancellation
    /// See [`DorisSink`].
    pub async fn write(&self, data: SendableRecordBatchStream) -> Result<WriteReport> {
        // Each call is a statement of its own.
        let two_phase = self.target.options.two_phase(false);
        let loads = self.load((&unique(), Generation(0), Epoch::FIRST), Labels::New, two_phase, data).await?;
        let report = WriteReport::of(&loads);
        if !two_phase {
            let loads: Vec<Committable> = loads.into_iter().map(|load| load.load).collect();
            self.visible(&loads).await;
            return Ok(report);
        }
        let loads = SettleOnDrop::new(&self.target, loads.into_iter().map(|load| load.load).collect());
        let (committables, committer) = (loads.loads(), &self.target.committer);
        let committed = {
            let _timer = self.target.metrics.commit_time.timer();
            committer.commit_all(committables).await
        };
        let settled = match committed {
            Ok(taken) => Ok(report.taken(taken)),
            // Nothing of it is in the table, and the state of its label tells the opposite.
            Err(error @ Error::NothingRead { .. }) => Err(error),
            // All or nothing: what could not be committed must not become visible later by somebody else's commit.
            Err(error) => match committer.abort_all(committables).await {
                Ok((AbortOutcome::Committed, taken)) => Ok(report.taken(taken)),
                Ok((AbortOutcome::RolledBack, _)) => Err(error),
                Ok((AbortOutcome::Torn { visible, gone }, _)) => {
                    let (visible, table) = (visible.join(", "), self.table());
                    let reason = format!("{error}; the rows of {visible} are in table {table}: {}", self.after_torn());
                    Err(torn(&gone, reason))
                }
                Err(abort_error) => {
                    tracing::warn!(error = %abort_error, "loads were neither committed nor aborted");
                    match committables.len() {
                        1 => Err(error),
                        _ => Err(torn(&names(committables), format!("{error}; then: {abort_error}"))),
                    }
                }
            },
        };
        let committed = committables.to_vec();
        loads.release();
        let report = settled?;
        self.visible(&committed).await;
        Ok(report)
    }

    /// What to do when a part of a statement is in the table.
    fn after_torn(&self) -> &'static str {
        match self.model {
            Some(KeyModel::Unique) => "run the statement again: it replaces the rows that are there",
            _ => "take the rows that are there back before the statement is run again",
        }
    }
}
