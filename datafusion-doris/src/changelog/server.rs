//! What the reader asks of Doris.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use super::idle::PartitionVersions;
use crate::client::{DorisClient, FlightSession};
use crate::error::{Error, Result};
use crate::protocol::Tso;
use crate::scan::{ReadSettings, ScanPlan, ScanSplit, open_session, plan_scan};
use crate::sql::{quote_table, string_literal};
use crate::types::{LocalTime, ServerZone, TableIdent};

/// The result of a statement.
pub(super) struct Rows {
    /// The planned schema; all that an empty result has.
    pub schema: SchemaRef,
    /// Parts of the result; more than one come in no common order.
    pub parts: usize,
    /// The batches.
    pub batches: BoxStream<'static, Result<RecordBatch>>,
}

/// The server's side of a changelog read; a trait, so that the reader can be tested with paused time.
#[async_trait]
pub(super) trait ChangelogServer: Send + Sync + std::fmt::Debug {
    /// The physical part of the server's current TSO, in epoch milliseconds.
    async fn now_ms(&self) -> Result<i64>;
    /// The time zone that the server gives new connections.
    async fn time_zone(&self) -> Result<ServerZone>;
    /// The tablets of the table, in order of their ids; none when it has none to split by.
    async fn tablets(&self) -> Result<Vec<i64>>;
    /// Tablets that one statement reads.
    fn tablets_per_statement(&self) -> usize;
    /// The statements that together read the rows of some tablets (none: of the table), as of a TSO or of now.
    async fn snapshot_statements(&self, as_of: Option<Tso>, tablets: &[i64]) -> Result<Vec<String>>;
    /// The visible versions of the table's partitions, by one small statement; `None` when the server has none.
    async fn partition_versions(&self) -> Result<Option<PartitionVersions>>;
    /// An instant after which the table was created; `None` when the server does not tell.
    async fn created_after_ms(&self) -> Result<Option<i64>>;
    /// Runs a statement.
    async fn query(&self, sql: &str) -> Result<Rows>;
    /// The same for a read of other columns.
    fn with_columns(&self, columns: Arc<[String]>) -> Arc<dyn ChangelogServer>;
}

/// Doris over the client, with one idle Flight session kept for the next window.
#[derive(Debug)]
pub(super) struct DorisServer {
    client: DorisClient,
    table: TableIdent,
    /// Columns of the snapshot.
    columns: Arc<[String]>,
    tablets_per_split: usize,
    idle: Arc<Mutex<Option<FlightSession>>>,
}

impl DorisServer {
    pub fn new(client: DorisClient, table: TableIdent, columns: Arc<[String]>, tablets_per_split: usize) -> Self {
        Self { client, table, columns, tablets_per_split, idle: Arc::default() }
    }

    fn snapshot_plan(&self, as_of: Option<Tso>) -> ScanPlan {
        ScanPlan {
            query: None,
            table: self.table.clone(),
            columns: self.columns.to_vec(),
            filter: None,
            limit: None,
            as_of,
            settings: ReadSettings::default(),
            splits: vec![],
        }
    }

    /// A session whose results come in one part, in the order asked for.
    async fn open(&self) -> Result<FlightSession> {
        let mut session = open_session(&self.client).await?;
        match session.query("SET enable_parallel_result_sink = false").await {
            Ok(_) => Ok(session),
            // A server without the variable gives one part anyway; parts are put together again if they come.
            Err(error @ Error::Server { .. }) => {
                tracing::debug!(%error, "results may come in parts");
                Ok(session)
            }
            Err(error) => Err(error),
        }
    }
}

/// The earliest instant at which a clock anywhere shows `text`: builds differ in the zone they write it in.
fn earliest_instant(text: &str) -> Option<i64> {
    let easternmost: ServerZone = "+14:00".parse().ok()?;
    LocalTime::parse(text.get(..19)?).ok()?.to_epoch_ms(&easternmost).ok()
}

/// True for an error of a session that was used before and may have ended meanwhile (idle time, KILL, restart of the
/// FE): the statement did not run, and runs on a new session. A server tells it as a refused token, or by one of these
/// texts under a general code.
fn session_is_gone(error: &Error) -> bool {
    const TEXTS: [&str; 3] = ["try reconnect", "UserSession expire", "bearer token"];
    match error {
        Error::Server { message, .. } => TEXTS.iter().any(|text| message.contains(text)),
        Error::Auth { .. } | Error::Transport { .. } => true,
        _ => false,
    }
}

#[async_trait]
impl ChangelogServer for DorisServer {
    fn with_columns(&self, columns: Arc<[String]>) -> Arc<dyn ChangelogServer> {
        let (client, table, idle) = (self.client.clone(), self.table.clone(), Arc::clone(&self.idle));
        Arc::new(Self { client, table, columns, tablets_per_split: self.tablets_per_split, idle })
    }

    async fn now_ms(&self) -> Result<i64> {
        Ok(self.client.current_tso().await?.physical_ms())
    }

    async fn time_zone(&self) -> Result<ServerZone> {
        self.client.time_zone().await
    }

    async fn tablets(&self) -> Result<Vec<i64>> {
        // A table that records changes has tablets: an answer without them is a failure, not a table read in one piece.
        let tablets = self.client.tablets(&self.table, None).await?;
        let mut ids: Vec<i64> = tablets.into_iter().map(|tablet| tablet.id).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    fn tablets_per_statement(&self) -> usize {
        self.tablets_per_split.max(1)
    }

    async fn snapshot_statements(&self, as_of: Option<Tso>, tablets: &[i64]) -> Result<Vec<String>> {
        let mut plan = self.snapshot_plan(as_of);
        if tablets.is_empty() {
            plan = plan_scan(&self.client, plan, usize::MAX, self.tablets_per_split).await?;
        } else {
            let splits = tablets.chunks(self.tablets_per_statement());
            plan.splits = splits.map(|tablets| ScanSplit { tablets: tablets.to_vec() }).collect();
        }
        Ok(plan.splits.iter().map(|split| plan.sql(split)).collect())
    }

    async fn created_after_ms(&self) -> Result<Option<i64>> {
        let sql = format!(
            "SELECT CREATE_TIME FROM information_schema.tables WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
            string_literal(&self.table.database),
            string_literal(&self.table.table)
        );
        match self.client.statement(&sql).await {
            Ok(rows) => Ok(rows.value(0, "CREATE_TIME").and_then(earliest_instant)),
            Err(error @ Error::Server { .. }) => {
                tracing::debug!(table = %self.table, %error, "the age of the table is not known");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn partition_versions(&self) -> Result<Option<PartitionVersions>> {
        let shown = self.client.statement(&format!("SHOW PARTITIONS FROM {}", quote_table(&self.table))).await?;
        let (Some(id), Some(version)) = (shown.column("PartitionId"), shown.column("VisibleVersion")) else {
            return Ok(None);
        };
        let text = |row: &[Option<String>], index: usize| row.get(index).cloned().flatten();
        let versions = shown.rows.iter().map(|row| Some((text(row, id)?, text(row, version)?)));
        Ok(versions.collect::<Option<Vec<_>>>().map(PartitionVersions::new))
    }

    async fn query(&self, sql: &str) -> Result<Rows> {
        let kept = self.idle.lock().take();
        let reused = kept.is_some();
        let mut session = match kept {
            Some(session) => session,
            None => self.open().await?,
        };
        let query = match session.query(sql).await {
            Ok(query) => query,
            // A read may be asked again.
            Err(error) if reused && session_is_gone(&error) => {
                tracing::debug!(%error, "idle session is gone, opening another one");
                session = self.open().await?;
                session.query(sql).await?
            }
            Err(error) => {
                if !session_is_gone(&error) {
                    *self.idle.lock() = Some(session);
                }
                return Err(error);
            }
        };
        let (schema, parts) = (query.schema(), query.endpoints());
        let idle = Arc::clone(&self.idle);
        // The session lives as long as its result is read, and is kept for the next statement only after the end.
        let read = (Box::pin(query.into_stream()), session);
        let batches = futures::stream::unfold(Some(read), move |read| {
            let idle = Arc::clone(&idle);
            async move {
                let (mut stream, session) = read?;
                match stream.next().await {
                    Some(Ok(batch)) => Some((Ok(batch), Some((stream, session)))),
                    Some(Err(error)) => Some((Err(error), None)),
                    None => {
                        drop(stream);
                        *idle.lock() = Some(session);
                        None
                    }
                }
            }
        });
        Ok(Rows { schema, parts, batches: batches.boxed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Retry;

    #[test]
    fn time_of_creation_is_taken_as_early_as_it_can_be() {
        let utc_ms = 1_767_225_600_000; // 2026-01-01 00:00:00
        for (text, expected) in [
            ("2026-01-01 00:00:00", Some(utc_ms - 14 * 3_600_000)),
            ("2026-01-01 00:00:00.000", Some(utc_ms - 14 * 3_600_000)),
            ("2026-01-01", None),
            ("", None),
        ] {
            assert_eq!(earliest_instant(text), expected, "{text}");
        }
    }

    #[test]
    fn ended_session_is_told_from_a_refused_statement() {
        let server = |message: &str| Error::Server {
            host: "fe:8070".into(),
            operation: "the statement".into(),
            code: None,
            message: message.into(),
        };
        let auth = Error::Auth { host: "fe:8070".into(), message: "arrow flight token not accepted".into() };
        let source = Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let broken = Error::Transport { host: "fe".into(), operation: "x".into(), retry: Retry::SameLabel, source };
        for (error, gone) in [
            (server("UserSession expire after access, try reconnect, bearer token: hidden"), true),
            (server("get or create ConnectContext failed, invalid bearer token"), true),
            (server("errCode = 2, detailMessage = Unknown table 't'"), false),
            (auth, true),
            (broken, true),
            (Error::config("fenodes", "names no FE"), false),
        ] {
            assert_eq!(session_is_gone(&error), gone, "{error}");
        }
    }
}
