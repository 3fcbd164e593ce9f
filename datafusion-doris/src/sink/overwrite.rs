//! `INSERT OVERWRITE`: the rows are loaded into a staging table, then Doris replaces those of the target by them.
//!
//! ```text
//! CREATE TABLE staging LIKE target ─▶ loads into staging (visible) ─▶ INSERT OVERWRITE TABLE target SELECT … FROM staging
//!                                     └ error, drop ─▶ DROP TABLE staging ◀─ in all cases ┘ one statement, atomic
//! ```
//!
//! Doris fills new partitions and swaps them with the old ones in one step, so readers see the old rows or the new ones.
//! The label of that statement names only its load: a visible label tells that the new partitions are filled, the ids of
//! the table's partitions tell whether they are in place.

mod exec;
mod staging;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::SendableRecordBatchStream;
use tokio::time::Instant;

pub use self::exec::DorisOverwriteExec;
use self::staging::Staging;
use super::DorisSink;
use super::mapping::is_left_out;
use crate::checkpoint::chain::unique;
use crate::client::retry::Backoff;
use crate::client::{DorisClient, DorisConnection};
use crate::error::{Error, Result, Retry};
use crate::options::SinkOptions;
use crate::protocol::{DELETE_SIGN, LabelIdentity, LabelState};
use crate::sql::{STATEMENT_PREFIX, quote_ident, quote_table};
use crate::types::TableSchema;

/// How long loads may take to become visible, and a label to tell its end.
const PATIENCE: Duration = Duration::from_secs(600);
/// The column of sequence values that have no column of their own.
const SEQUENCE_COLUMN: &str = "__DORIS_SEQUENCE_COL__";

/// Replaces the rows of one table.
#[derive(Debug)]
pub struct Overwrite {
    client: DorisClient,
    target: Arc<TableSchema>,
    schema: SchemaRef,
    options: SinkOptions,
}

/// What is known of a statement whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The new rows are in place.
    Done,
    /// It has not begun, or was given up: the same label may be used again.
    NotDone,
    /// It is on its way.
    Wait,
}

/// The outcome of an overwrite from its label's state and whether the partitions were replaced.
fn after_lost_answer(state: LabelState, replaced: bool) -> Lost {
    match (state, replaced) {
        (LabelState::Committed | LabelState::Visible, true) => Lost::Done,
        // Filled, and not in place yet.
        (LabelState::Committed | LabelState::Visible, false) => Lost::Wait,
        (LabelState::Prepare | LabelState::PreCommitted, _) => Lost::Wait,
        // Whoever replaced them, it was not this statement.
        (LabelState::Unknown | LabelState::Aborted, _) => Lost::NotDone,
    }
}

impl Overwrite {
    /// Replaces the rows of `target` by rows of `schema`, written as a [`DorisSink`] with `options` writes them.
    ///
    /// # Errors
    /// [`Error::Config`] names the option that has no meaning here; else those of [`DorisSink::try_new`].
    pub fn try_new(
        client: DorisClient,
        target: Arc<TableSchema>,
        schema: SchemaRef,
        options: SinkOptions,
    ) -> Result<Self> {
        let what = format!("INSERT OVERWRITE of {}", target.table);
        let refuse = |option: &str, reason: &str| Err(Error::config(option, format!("{reason} ({what})")));
        if client.options().jdbc_url.is_none() {
            return refuse("jdbc-url", "is needed to send the statement; give jdbc:mysql://host:9030");
        }
        if options.change_kind_column.is_some() {
            let reason = "makes no sense where all rows are replaced: declare the table a second time without it";
            return refuse("sink.change-kind-column", reason);
        }
        for (property, reason) in [
            ("partial_columns", "makes no sense where whole rows are replaced, leave it out"),
            ("unique_key_update_mode", "makes no sense where whole rows are replaced, leave it out"),
            ("merge_type", "makes no sense where all rows are replaced, leave it out"),
            ("group_commit", "shows rows some time after the load: they could not be replaced at once; leave it out"),
            ("temporary_partitions", "is for loads into the table itself, leave it out"),
        ] {
            let off =
                |value: &String| matches!(value.to_lowercase().as_str(), "false" | "off_mode" | "upsert" | "append");
            if options.properties.get(property).is_some_and(|value| !off(value)) {
                return refuse(&format!("sink.properties.{property}"), reason);
            }
        }
        let overwrite = Self { client, target, schema, options };
        overwrite.sink(&overwrite.target)?;
        Ok(overwrite)
    }

    fn sink(&self, table: &TableSchema) -> Result<DorisSink> {
        DorisSink::try_new(self.client.clone(), table, Arc::clone(&self.schema), self.options.clone())
    }

    /// Runs the statement; gives the number of rows that are in the table now.
    async fn run(&self, sink: impl FnOnce(Arc<DorisSink>), data: SendableRecordBatchStream) -> Result<u64> {
        let staging = Staging::create(&self.client, &self.target.table).await?;
        let table = TableSchema { table: staging.table().clone(), ..self.target.as_ref().clone() };
        let writer = Arc::new(self.sink(&table)?);
        sink(Arc::clone(&writer));
        let outcome = async {
            let report = writer.write(data).await.map_err(|error| self.as_of_target(error))?;
            for label in &report.labels {
                self.wait_visible(label).await?;
            }
            self.replace(&staging).await?;
            Ok(report.rows)
        };
        let outcome = outcome.await;
        staging.remove().await;
        outcome
    }

    /// Users know the target, not the staging table.
    fn as_of_target(&self, error: Error) -> Error {
        let target = &self.target.table;
        match error {
            Error::Encode { column, row, reason, .. } => {
                Error::Encode { table: target.to_string(), column, row, reason }
            }
            Error::StreamLoad { table, label, message, error_url, first_error, retry } => {
                let table = format!("{table}, staged for {target},");
                Error::StreamLoad { table, label, message, error_url, first_error, retry }
            }
            Error::Server { host, operation, code, message } => {
                Error::Server { host, operation: format!("{operation}, staged for {target},"), code, message }
            }
            other => other,
        }
    }

    /// Waits until a load can be read.
    async fn wait_visible(&self, label: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut backoff = Backoff::new();
        loop {
            let state = self.client.label_state(&self.target.table.database, label).await?;
            if state == LabelState::Visible {
                return Ok(());
            }
            if !matches!(state, LabelState::Committed | LabelState::PreCommitted) || Instant::now() > deadline {
                let reason =
                    format!("the rows are staged, but their load is {state}; {} is unchanged", self.target.table);
                return Err(failure(label, reason, Retry::Never));
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    /// Puts the staged rows in place of those of the target. The statement is idempotent by its label.
    async fn replace(&self, staging: &Staging) -> Result<()> {
        let table = &self.target.table;
        let (database, job) = (&table.database, format!("overwrite {}", unique()));
        let identity = LabelIdentity { prefix: &self.options.label_prefix, database, table: &table.table, job: &job };
        let label = identity.label(0, 0, 0);
        let sql = self.sql(staging, &label);
        let mut connection = self.connection().await?;
        let before = self.partitions(&mut connection).await?;
        let mut lost: Option<Error> = None;
        let mut backoff = Backoff::new();
        for _ in 0..=self.options.max_retries {
            if lost.is_some() {
                tokio::time::sleep(backoff.next_pause()).await;
            }
            let answer = async {
                let mut connection = self.connection().await?;
                self.client.while_running(&mut connection, &sql).await
            };
            let error = match answer.await {
                Ok(_) => return Ok(()),
                Err(error) if error.retry() == Retry::Never && lost.is_none() => return Err(error),
                Err(error) => error,
            };
            if error.retry() != Retry::SameLabel {
                match self.resolve(&label, &before).await? {
                    Lost::Done => return Ok(()),
                    // An earlier attempt did not get so far: this is the answer.
                    _ if error.retry() == Retry::Never => return Err(error),
                    _ => {}
                }
            }
            tracing::debug!(%table, label, %error, "the rows were not replaced yet");
            lost = Some(error);
        }
        Err(lost.unwrap_or_else(|| failure(&label, "no attempt was made".into(), Retry::Never)))
    }

    /// Finds out what became of the statement.
    ///
    /// # Errors
    /// [`Error::Transaction`] with [`Retry::AskLabelState`] when that stays open.
    async fn resolve(&self, label: &str, before: &BTreeMap<String, String>) -> Result<Lost> {
        let table = &self.target.table;
        let deadline = Instant::now() + PATIENCE;
        let mut backoff = Backoff::new();
        loop {
            let seen = async {
                let state = self.client.label_state(&table.database, label).await?;
                let mut connection = self.connection().await?;
                let after = self.partitions(&mut connection).await?;
                // No partition is no proof.
                let replaced = !before.is_empty() && before.iter().all(|(name, id)| after.get(name) != Some(id));
                Ok::<_, Error>((state, replaced))
            };
            let observed = match seen.await {
                Ok((state, replaced)) => match after_lost_answer(state, replaced) {
                    Lost::Wait => format!("its load is {state} and the partitions of {table} are the old ones"),
                    known => return Ok(known),
                },
                Err(error @ Error::Auth { .. }) => return Err(error),
                Err(error) => error.to_string(),
            };
            let pause = backoff.next_pause();
            if Instant::now() + pause > deadline {
                let reason = format!(
                    "the answer to INSERT OVERWRITE was lost and {observed}; {table} holds the old rows or the new ones: \
                     look before the statement is run again"
                );
                return Err(failure(label, reason, Retry::AskLabelState));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Columns that are copied: those written, or all when the load fills others by expressions.
    fn columns(&self) -> Vec<String> {
        let mut names: Vec<String> = match self.options.properties.contains_key("columns") {
            true => self.target.columns.iter().map(|column| column.name.clone()).collect(),
            false => {
                let stored = |name: &String| self.target.column(name).map(|column| column.name.clone());
                // Those left out are filled by the table itself, such as numbers that it counts.
                let written = self.schema.fields().iter().filter(|field| !is_left_out(field));
                written.filter_map(|field| stored(field.name())).collect()
            }
        };
        if self.has_hidden_sequence() {
            names.push(SEQUENCE_COLUMN.into());
        }
        names
    }

    fn has_hidden_sequence(&self) -> bool {
        self.target.properties.contains_key("function_column.sequence_type")
    }

    fn sql(&self, staging: &Staging, label: &str) -> String {
        let columns = self.columns().iter().map(|name| quote_ident(name)).collect::<Vec<_>>().join(", ");
        let partitions = self.partition_names().map(|names| {
            let names: Vec<String> = names.iter().map(|name| quote_ident(name)).collect();
            format!(" PARTITION ({})", names.join(", "))
        });
        // A session that shows hidden columns shows deleted rows too.
        let kept = match self.has_hidden_sequence() {
            true => format!(" WHERE {} = 0", quote_ident(DELETE_SIGN)),
            false => String::new(),
        };
        format!(
            "{STATEMENT_PREFIX}INSERT OVERWRITE TABLE {}{} WITH LABEL {} ({columns}) SELECT {columns} FROM {}{kept}",
            quote_table(&self.target.table),
            partitions.unwrap_or_default(),
            quote_ident(label),
            quote_table(staging.table()),
        )
    }

    /// The partitions to replace; `None` = all.
    fn partition_names(&self) -> Option<Vec<String>> {
        let names = self.options.properties.get("partitions")?;
        Some(names.split(',').map(|name| name.trim().to_string()).collect())
    }

    /// Ids of the partitions to replace, by name.
    async fn partitions(&self, connection: &mut DorisConnection) -> Result<BTreeMap<String, String>> {
        let table = &self.target.table;
        let answer = connection.execute(&format!("SHOW PARTITIONS FROM {}", quote_table(table))).await?;
        let shown = answer.into_iter().next().unwrap_or_default();
        let at = |name: &str| shown.columns.iter().position(|column| column.eq_ignore_ascii_case(name));
        let (Some(id), Some(name)) = (at("PartitionId"), at("PartitionName")) else {
            return Err(Error::schema(table, "SHOW PARTITIONS gave no PartitionId or no PartitionName"));
        };
        let wanted = self.partition_names();
        let is_wanted = |name: &String| {
            wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(name)))
        };
        let cells = shown.rows.iter().filter_map(|row| Some((row.get(name)?.clone()?, row.get(id)?.clone()?)));
        Ok(cells.filter(|(name, _)| is_wanted(name)).collect())
    }

    async fn connection(&self) -> Result<DorisConnection> {
        let mut connection = self.client.connection().await?;
        connection.execute("SET sql_mode = ''; SET enable_insert_strict = true").await.map_err(not_begun)?;
        if self.has_hidden_sequence() {
            connection.execute("SET show_hidden_columns = true").await.map_err(not_begun)?;
        }
        // Servers before 3.0.3 do not know it: there, rows without a partition are an error of the statement.
        match connection.execute("SET enable_auto_create_when_overwrite = true").await {
            Ok(_) | Err(Error::Server { .. }) => Ok(connection),
            Err(error) => Err(not_begun(error)),
        }
    }
}

/// A setting that got no answer has done nothing.
fn not_begun(error: Error) -> Error {
    match error {
        Error::Transport { host, operation, source, .. } => {
            Error::Transport { host, operation, retry: Retry::SameLabel, source }
        }
        other => other,
    }
}

fn failure(label: &str, reason: String, retry: Retry) -> Error {
    Error::Transaction { operation: "overwrite".into(), label: label.to_string(), txn_id: None, reason, retry }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_answer_is_resolved_by_label_and_partitions() {
        use LabelState::{Aborted, Committed, PreCommitted, Prepare, Unknown, Visible};
        for (state, replaced, expected) in [
            (Visible, true, Lost::Done),
            (Committed, true, Lost::Done),
            (Visible, false, Lost::Wait),
            (Committed, false, Lost::Wait),
            (Prepare, false, Lost::Wait),
            (PreCommitted, true, Lost::Wait),
            (Aborted, false, Lost::NotDone),
            (Aborted, true, Lost::NotDone),
            (Unknown, false, Lost::NotDone),
        ] {
            assert_eq!(after_lost_answer(state, replaced), expected, "{state} {replaced}");
        }
    }
}
