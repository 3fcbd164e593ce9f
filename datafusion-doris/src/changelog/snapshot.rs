//! The snapshot before the changes: all at once, or tablet by tablet over many epochs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::Field;
use futures::StreamExt;
use tokio::task::JoinSet;

use super::control::{Armed, Piece, Progress};
use super::decode::{first_tso, snapshot_rows};
use super::drift::check_planned;
use super::reader::{Output, Reader};
use super::window::WindowPlanner;
use crate::error::{Error, Result};
use crate::protocol::Tso;

/// Statements of one snapshot that are read at the same time.
const SNAPSHOT_PARALLELISM: usize = 4;

impl Reader {
    /// The next part of the snapshot: some tablets in a run of epochs, else all of it. `None`: it is read.
    pub(super) async fn snapshot_piece(&self, then: WindowPlanner, mut done: Arc<[i64]>) -> Result<Option<Armed>> {
        let as_of = self.spec.exact_snapshot.then(|| Tso(first_tso(then.next_ms()) - 1));
        let rest =
            |tablets: Arc<[i64]>| Armed { piece: Piece::Snapshot { as_of, tablets }, then: Progress::Changes(then) };
        if !self.control.in_epochs() {
            return Ok(Some(rest([].into())));
        }
        let tablets = self.server.tablets().await?;
        if let Some(gone) = done.iter().find(|id| tablets.binary_search(id).is_err()) {
            if !self.control.by_key() {
                return Err(self.error(format!(
                    "tablet {gone}, whose rows were written, is gone (its partition was dropped, or the table was changed): \
                     rows read again would be doubled in a target without a unique key; empty the target and begin anew \
                     under another job name"
                )));
            }
            tracing::warn!(table = %self.spec.table, tablet = gone, "a tablet is gone, the snapshot is read from its beginning");
            done = [].into();
        }
        let left: Vec<i64> = tablets.iter().copied().filter(|id| done.binary_search(id).is_err()).collect();
        if left.is_empty() && !done.is_empty() {
            return Ok(None);
        }
        let most = self.control.snapshot_statements().saturating_mul(self.server.tablets_per_statement());
        if left.len() <= most {
            return Ok(Some(rest(if done.is_empty() { [].into() } else { left.into() })));
        }
        let part: Arc<[i64]> = left[..most].into();
        let mut all: Vec<i64> = done.iter().chain(part.iter()).copied().collect();
        all.sort_unstable();
        let then = Progress::Snapshot { then, done: all.into() };
        Ok(Some(Armed { piece: Piece::Snapshot { as_of, tablets: part }, then }))
    }

    /// Rows of now or of a TSO, as inserts; a few statements at a time, in no order.
    pub(super) async fn read_snapshot(&self, as_of: Option<Tso>, tablets: &[i64], output: &Output) -> Result<()> {
        let statements: Arc<[String]> = self.server.snapshot_statements(as_of, tablets).await?.into();
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..SNAPSHOT_PARALLELISM.min(statements.len()) {
            let (reader, output) = (self.clone(), output.clone());
            let (statements, next) = (Arc::clone(&statements), Arc::clone(&next));
            workers.spawn(async move {
                while let Some(sql) = statements.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let sent = reader.send_snapshot(sql, &output).await;
                    if !sent.map_err(|error| reader.explain(error))? {
                        break;
                    }
                }
                Ok::<_, Error>(())
            });
        }
        while let Some(finished) = workers.join_next().await {
            match finished {
                Ok(result) => result?,
                Err(panic) => {
                    return Err(self.error(format!("a snapshot reader stopped: {panic}")));
                }
            }
        }
        Ok(())
    }

    /// Sends the rows of one statement of the snapshot; false when nobody listens any more.
    async fn send_snapshot(&self, sql: &str, output: &Output) -> Result<bool> {
        let spec = self.spec.as_ref();
        let mut rows = self.query_when_visible(sql).await?;
        let planned: Vec<&Field> = rows.schema.fields().iter().map(AsRef::as_ref).collect();
        check_planned(spec, &planned)?;
        let mut conformer = spec.conformer()?;
        while let Some(batch) = rows.batches.next().await {
            let batch = snapshot_rows(spec, &mut conformer, &batch?)?;
            self.metrics.count(&batch);
            if batch.num_rows() > 0 && output.send(Ok(batch)).await.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
