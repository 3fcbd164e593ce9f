//! What the reader asks of Doris.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use crate::client::{DorisClient, FlightSession};
use crate::error::Result;
use crate::scan::{ScanPlan, open_session, plan_scan};
use crate::types::TableIdent;

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
    /// The statements that together read the table's current rows.
    async fn snapshot_statements(&self) -> Result<Vec<String>>;
    /// Runs a statement.
    async fn query(&self, sql: &str) -> Result<Rows>;
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
}

#[async_trait]
impl ChangelogServer for DorisServer {
    async fn now_ms(&self) -> Result<i64> {
        Ok(self.client.current_tso().await?.physical_ms())
    }

    async fn snapshot_statements(&self) -> Result<Vec<String>> {
        let plan = ScanPlan {
            table: self.table.clone(),
            columns: self.columns.to_vec(),
            filter: None,
            limit: None,
            splits: vec![],
        };
        let plan = plan_scan(&self.client, plan, usize::MAX, self.tablets_per_split).await?;
        Ok(plan.splits.iter().map(|split| plan.sql(split)).collect())
    }

    async fn query(&self, sql: &str) -> Result<Rows> {
        let kept = self.idle.lock().take();
        let reused = kept.is_some();
        let mut session = match kept {
            Some(session) => session,
            None => open_session(&self.client).await?,
        };
        let query = match session.query(sql).await {
            Ok(query) => query,
            // An idle session may have been ended by the server; a read may be asked again on a new one.
            Err(error) if reused && !matches!(error, crate::error::Error::Server { .. }) => {
                tracing::debug!(%error, "idle session is gone, opening another one");
                session = open_session(&self.client).await?;
                session.query(sql).await?
            }
            Err(error) => {
                // The session itself is fine.
                *self.idle.lock() = Some(session);
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
