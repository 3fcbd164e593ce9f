//! What became of the rows of a staged load: by the answer of its statement, or, when that was lost, by its label.

use std::time::Duration;

use super::Stage;
use super::commit::Ran;
use crate::checkpoint::{Committable, Staged};
use crate::client::{DorisConnection, StatementOutput};
use crate::error::{Error, Result, Retry};
use crate::protocol::{InsertAnswer, LabelState, StreamLoadResponse, error_log_in, without_signatures};
use crate::sink::committer::{Committer, failure};
use crate::sink::metrics::{FilteredRows, MissingRows, UncountedRows};
use crate::sql::{quote_ident, string_literal};

/// Time for what is asked about rows that are in the table.
const PATIENCE: Duration = Duration::from_secs(5);
/// Objects that a text names of many.
const NAMED: usize = 8;

/// The rows of a staged load that are in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sink) struct Taken {
    pub label: String,
    /// Rows of the input; those count too that a later row of the same key has replaced, as in a Stream Load.
    pub rows: u64,
    /// Rows that Doris refused.
    pub filtered: Option<FilteredRows>,
    /// Doris told their number, or it cannot be another one.
    pub counted: bool,
    /// Staged rows that are neither in the table nor refused.
    pub missing: u64,
}

/// The numbers of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    /// Rows in the objects.
    staged: Option<u64>,
    affected: u64,
    filtered: u64,
}

impl Counts {
    /// Rows that were read.
    fn total(self) -> u64 {
        self.staged.unwrap_or(self.affected.saturating_add(self.filtered))
    }

    /// Rows that count as loaded. Where the statement takes the last row of each key, `affected` are the keys.
    fn loaded(self, one_per_key: bool) -> u64 {
        match self.staged {
            Some(staged) if one_per_key => staged.saturating_sub(self.filtered).max(self.affected),
            _ => self.affected,
        }
    }

    /// Rows that are neither in the table nor refused: the server has not read all that was staged.
    fn missing(self, one_per_key: bool) -> u64 {
        if one_per_key { 0 } else { self.total().saturating_sub(self.affected).saturating_sub(self.filtered) }
    }
}

/// What the server says of a load when it is asked again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Facts {
    filtered: Option<u64>,
    error_url: Option<String>,
    first_error: Option<String>,
}

impl Facts {
    /// Reads SHOW LAST INSERT, when it is about this label.
    fn read_last_insert(&mut self, answer: &StatementOutput, label: &str) {
        let cell = |row: &[Option<String>], name: &str| cell(answer, row, name);
        let of_label = answer.rows.iter().find(|row| cell(row, "Label").as_deref() == Some(label));
        self.filtered = of_label.and_then(|row| cell(row, "FilteredRows")?.trim().parse().ok());
    }

    /// Reads SHOW LOAD of a label: the job that has ended well, of those that had it.
    fn read_jobs(&mut self, answer: &StatementOutput) {
        let done = |row: &&Vec<Option<String>>| {
            cell(answer, row, "State").is_some_and(|state| state.eq_ignore_ascii_case("FINISHED"))
        };
        if let Some(job) = answer.rows.iter().rev().find(done) {
            self.error_url = cell(answer, job, "URL").filter(|url| url.starts_with("http"));
            self.first_error = cell(answer, job, "FirstErrorMsg");
        }
    }
}

/// A cell by the name of its column; `None` for NULL, an empty text, and what Doris prints for nothing.
fn cell(answer: &StatementOutput, row: &[Option<String>], name: &str) -> Option<String> {
    let at = answer.columns.iter().position(|column| column.eq_ignore_ascii_case(name))?;
    row.get(at)?.clone().filter(|text| !matches!(text.trim(), "" | "N/A" | "NULL" | "\\N"))
}

async fn ask_last_insert(connection: &mut DorisConnection, label: &str, facts: &mut Facts) -> Result<()> {
    if let Some(answer) = connection.execute("SHOW LAST INSERT").await?.first() {
        facts.read_last_insert(answer, label);
    }
    Ok(())
}

async fn ask_jobs(connection: &mut DorisConnection, load: &Committable, facts: &mut Facts) -> Result<()> {
    let sql = format!("SHOW LOAD FROM {} WHERE LABEL = {}", quote_ident(&load.db), string_literal(&load.label));
    if let Some(answer) = connection.execute(&sql).await?.first() {
        facts.read_jobs(answer);
    }
    Ok(())
}

impl Committer {
    /// What an INSERT has done that the server did not refuse.
    pub(super) async fn answered(
        &self,
        stage: &Stage,
        (load, staged): (&Committable, &Staged),
        mut connection: DorisConnection,
        told: StatementOutput,
        time: Duration,
    ) -> Ran {
        let answer = InsertAnswer::parse(&told.info);
        let info = stage.place.masked(&told.info);
        if let Some(remark) = &answer.remark {
            let remark = stage.place.masked(remark);
            tracing::warn!(label = %load.label, remark, "Doris remarks on the INSERT of staged rows");
        }
        if let Some(state) = answer.state.filter(|state| !matches!(state, LabelState::Committed | LabelState::Visible))
        {
            // Neither done nor refused: the label tells how it ends.
            let reason = format!("the INSERT was answered, and its label is {state}");
            return Ran::Lost(failure("commit", load, reason, Retry::AskLabelState));
        }
        let mut facts = Facts { filtered: Some(told.warnings.into()), ..Facts::default() };
        let exact = staged.rows == Some(told.affected) && told.warnings == 0;
        let asked = tokio::time::timeout(PATIENCE, async {
            if !exact {
                // The protocol counts warnings by two bytes.
                ask_last_insert(&mut connection, &load.label, &mut facts).await?;
            }
            if facts.filtered.is_some_and(|rows| rows > 0) {
                ask_jobs(&mut connection, load, &mut facts).await?;
            }
            Ok::<_, Error>(())
        });
        match asked.await {
            Ok(Ok(())) => {
                if let Err(error) = connection.close().await {
                    tracing::debug!(%error, "closing the connection of an INSERT");
                }
            }
            Ok(Err(error)) => tracing::debug!(%error, "what was filtered by an INSERT is not known in full"),
            Err(_) => tracing::debug!("what was filtered by an INSERT is not known in full: no answer"),
        }
        // A server that does not tell it exactly has told it roughly.
        let filtered = facts.filtered.unwrap_or(told.warnings.into());
        let counts = Counts { staged: staged.rows, affected: told.affected, filtered };
        if counts.affected == 0 && counts.filtered == 0 {
            // Doris takes a pattern without objects for an empty table, and may pass over one that is gone when it reads.
            return Ran::NothingRead(Error::NothingRead {
                table: format!("{}.{}", load.db, load.table),
                label: load.label.clone(),
                objects: objects_of(staged),
                answer: if info.is_empty() { "its answer has no text".to_string() } else { info },
            });
        }
        let reason = if filtered > 0 { self.first_reason(stage, &facts).await } else { None };
        Ran::Committed(self.counted(stage, (load, staged), counts, answer.txn_id, reason, time))
    }

    /// Counts and tells the rows of a load that is in the table.
    fn counted(
        &self,
        stage: &Stage,
        (load, staged): (&Committable, &Staged),
        counts: Counts,
        txn_id: Option<i64>,
        reason: Option<String>,
        time: Duration,
    ) -> Taken {
        let one_per_key = stage.last_of_key.is_some();
        let rows = counts.loaded(one_per_key);
        let response = StreamLoadResponse {
            txn_id,
            total_rows: counts.total(),
            loaded_rows: rows,
            filtered_rows: counts.filtered,
            load_bytes: staged.objects.iter().map(|object| object.bytes).sum(),
            load_time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            ..StreamLoadResponse::default()
        };
        let (table, label) = (format!("{}.{}", load.db, load.table), &load.label);
        tracing::info!(
            table,
            label,
            txn_id,
            kind = "Staged",
            total_rows = response.total_rows,
            loaded_rows = response.loaded_rows,
            filtered_rows = response.filtered_rows,
            affected_rows = counts.affected,
            load_bytes = response.load_bytes,
            load_time_ms = response.load_time_ms,
            "a load has ended"
        );
        stage.metrics.succeeded(&response);
        let missing = counts.missing(one_per_key);
        if missing > 0 {
            let missing = MissingRows { rows: missing, loads: 1, label: label.clone(), objects: objects_of(staged) };
            tracing::error!(table, label, missing_rows = missing.rows, "{missing}");
            stage.metrics.missing(&missing);
        }
        let refused = stage.metrics.refused(&table, label, counts.filtered, reason.as_deref());
        Taken { label: load.label.clone(), rows, filtered: refused, counted: true, missing }
    }

    /// The load is in the table, and nobody has said how many of its rows: `ran` = its statement was sent by this process,
    /// which has not counted it.
    ///
    /// A statement that has read no row of its objects ([`Error::NothingRead`]) ends with the same state of its label: where
    /// its answer was lost, or the process ended before that was recorded, nothing tells the two apart, and the rows count as
    /// taken.
    pub(super) async fn uncounted(&self, stage: &Stage, load: &Committable, staged: &Staged, ran: bool) -> Taken {
        let rows = staged.rows.unwrap_or_default();
        // Without rows that may be refused it is all of them.
        let counted = !stage.settings.filters && staged.rows.is_some();
        match (ran, counted) {
            (true, true) => stage.metrics.resolved(rows),
            (true, false) => stage.metrics.resolved_uncounted(&UncountedRows::of(load, rows)),
            (false, _) => {}
        }
        let (table, label) = (format!("{}.{}", load.db, load.table), &load.label);
        if counted {
            tracing::info!(table, label, loaded_rows = rows, "a load has ended, by its label");
        } else {
            let reason = self.reason_by_label(stage, load).await;
            tracing::warn!(
                table,
                label,
                staged_rows = rows,
                first_reason = reason,
                "staged rows are in the table by the state of their label; the answer was lost that would tell how many Doris \
                 refused"
            );
        }
        Taken { label: load.label.clone(), rows, filtered: None, counted, missing: 0 }
    }

    async fn reason_by_label(&self, stage: &Stage, load: &Committable) -> Option<String> {
        let mut facts = Facts::default();
        let asked = async {
            let mut connection = self.client.connection().await?;
            ask_jobs(&mut connection, load, &mut facts).await?;
            connection.close().await
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "what was filtered by an INSERT is not known"),
            Err(_) => tracing::debug!("what was filtered by an INSERT is not known: no answer"),
        }
        self.first_reason(stage, &facts).await
    }

    /// Why the first row was refused.
    async fn first_reason(&self, stage: &Stage, facts: &Facts) -> Option<String> {
        let rows = match &facts.error_url {
            Some(url) => self.client.refused_rows_of_statement(url).await,
            None => None,
        };
        let first = rows.and_then(|rows| rows.lines().next().map(str::to_string)).or(facts.first_error.clone());
        first.map(|reason| stage.place.masked(&reason))
    }

    /// The server's refusal, with the first rows that it refused and why.
    pub(super) async fn refused(
        &self,
        stage: &Stage,
        (load, staged): (&Committable, &Staged),
        (host, code, message): (String, Option<u32>, String),
    ) -> Error {
        let mut message = without_signatures(&stage.place.masked(&message));
        if let Some(url) = error_log_in(&message)
            && let Some(rows) = self.client.refused_rows_of_statement(url).await
            && !message.contains(&rows)
        {
            message.push_str("; first rejected rows: ");
            message.push_str(&stage.place.masked(&rows));
        }
        Error::Server { host, operation: operation(load, staged), code, message }
    }
}

/// The objects of a load, by their URIs: the first ones, when there are many.
fn objects_of(staged: &Staged) -> String {
    let uri = |key: &str| format!("s3://{}/{key}", staged.bucket);
    let named: Vec<String> = staged.objects.iter().take(NAMED).map(|object| uri(&object.key)).collect();
    match staged.objects.len().saturating_sub(NAMED) {
        // Staged by a version that did not note them.
        _ if named.is_empty() => uri(&staged.keys),
        0 => named.join(", "),
        more => format!("{} and {more} more ({})", named.join(", "), uri(&staged.keys)),
    }
}

/// What was asked of the server.
fn operation(load: &Committable, staged: &Staged) -> String {
    let rows = staged.rows.map(|rows| format!("{rows} ")).unwrap_or_default();
    format!("the INSERT of {rows}staged rows into {}.{} under label {}", load.db, load.table, load.label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::StagedObject;

    #[test]
    fn rows_are_counted_as_a_stream_load_counts_them() {
        let counts = |staged, affected, filtered| Counts { staged, affected, filtered };
        // (counts, one row per key, total, loaded, missing)
        let cases = [
            (counts(Some(10), 10, 0), false, 10, 10, 0),
            (counts(Some(10), 7, 3), false, 10, 7, 0),
            (counts(Some(10), 6, 3), false, 10, 6, 1),
            (counts(Some(10), 0, 10), false, 10, 0, 0),
            // Keys that came twice.
            (counts(Some(10), 4, 0), true, 10, 10, 0),
            (counts(Some(10), 4, 2), true, 10, 8, 0),
            (counts(Some(2), 2, 1), true, 2, 2, 0),
            // Staged by a version that did not note how many there are.
            (counts(None, 7, 3), false, 10, 7, 0),
            (counts(None, 7, 3), true, 10, 7, 0),
        ];
        for (counts, one_per_key, total, loaded, missing) in cases {
            let found = (counts.total(), counts.loaded(one_per_key), counts.missing(one_per_key));
            assert_eq!(found, (total, loaded, missing), "{counts:?} {one_per_key}");
        }
    }

    #[test]
    fn objects_are_named_and_many_are_counted() {
        let staged = |objects: usize| Staged {
            keys: "p/l/a-*.json".into(),
            objects: (0..objects).map(|at| StagedObject { key: format!("p/l/a-{at}.json"), bytes: 1 }).collect(),
            ..Staged::unknown("b", "p/l/".into())
        };
        assert_eq!(objects_of(&staged(0)), "s3://b/p/l/a-*.json");
        assert_eq!(objects_of(&staged(2)), "s3://b/p/l/a-0.json, s3://b/p/l/a-1.json");
        let many = objects_of(&staged(NAMED + 2));
        assert!(many.ends_with("s3://b/p/l/a-7.json and 2 more (s3://b/p/l/a-*.json)"), "{many}");
    }

    /// Rows of cells that are joined by `|`.
    fn output(columns: &str, rows: &[&str]) -> StatementOutput {
        let cell = |text: &str| Some(text.to_string()).filter(|text| text != "NULL");
        StatementOutput {
            columns: columns.split('|').map(str::to_string).collect(),
            rows: rows.iter().map(|row| row.split('|').map(cell).collect()).collect(),
            ..StatementOutput::default()
        }
    }

    #[test]
    fn filtered_rows_are_those_of_the_label() {
        let columns = "TransactionId|Label|LoadedRows|FilteredRows";
        let cases: [(&[&str], Option<u64>); 4] =
            [(&["7|l|1|70000"], Some(70_000)), (&["7|another|1|2"], None), (&["7|l|1|NULL"], None), (&[], None)];
        for (rows, expected) in cases {
            let mut facts = Facts { filtered: Some(4464), ..Facts::default() };
            facts.read_last_insert(&output(columns, rows), "l");
            assert_eq!(facts.filtered, expected, "{rows:?}");
        }
    }

    #[test]
    fn log_is_that_of_the_job_that_ended_well() {
        type Expected = (Option<&'static str>, Option<&'static str>);
        let columns = "JobId|State|URL|FirstErrorMsg";
        let cancelled = "1|CANCELLED|http://be:8040/api/_load_error_log?file=old|old";
        let cases: [(&[&str], Expected); 4] = [
            (&[cancelled, "2|FINISHED|http://be:8040/log?file=x|NULL"], (Some("http://be:8040/log?file=x"), None)),
            (&["2|FINISHED|N/A|Reason: r"], (None, Some("Reason: r"))),
            (&["2|FINISHED||"], (None, None)),
            (&[cancelled], (None, None)),
        ];
        for (rows, expected) in cases {
            let mut facts = Facts::default();
            facts.read_jobs(&output(columns, rows));
            assert_eq!((facts.error_url.as_deref(), facts.first_error.as_deref()), expected, "{rows:?}");
        }
    }
}
