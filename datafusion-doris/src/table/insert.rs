//! What an INSERT must be to write the changes of its input right.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::SchemaExt;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_plan::ExecutionPlan;

use super::DorisTable;
use super::changes::{carries_kind, splitting_updates};
use super::keys::{SinkKey, only_inserts};
use super::schema::KindColumn;
use crate::changelog::{DorisChangelogExec, changes_at_root};
use crate::error::{Error, Result};
use crate::options::SinkOptions;
use crate::sink::no_deletes;
use crate::sql::IncrementType;
use crate::types::KeyModel;

impl DorisTable {
    /// Refuses to write to a changelog.
    pub(super) fn check_takes_rows(&self, word: &str) -> Result<()> {
        if self.doris.table.catalog.is_some() {
            let what = format!("{word} the external {}", self.doris.table);
            return Err(Error::unsupported(what, "it can be read only, write to a table of doris itself"));
        }
        if !self.is_changelog() {
            return Ok(());
        }
        let what = format!("{word} the changelog of {}", self.doris.table);
        Err(Error::unsupported(what, "declare the table without 'source.scan.mode' to write to it"))
    }

    /// Refuses rows that would be written wrongly: other columns than the table has, or changes.
    pub(super) fn check_rows(&self, input: &Arc<dyn ExecutionPlan>) -> Result<()> {
        // A data frame is written as it is: by position.
        if let Err(mismatch) = self.schema().logically_equivalent_names_and_types(&input.schema()) {
            let reason = format!("the rows to insert do not fit its columns: {}", mismatch.strip_backtrace());
            return Err(Error::schema(&self.doris.table, reason));
        }
        self.check_changes(input)
    }

    /// Refuses inserts that would write a changelog wrongly.
    pub(super) fn check_changes(&self, input: &Arc<dyn ExecutionPlan>) -> Result<()> {
        for changelog in &changes_at_root(input) {
            let (source, target) = (changelog.table(), &self.doris.table);
            let what = format!("writing the changelog of {source} into {target}");
            let kind = &self.options.read.change_kind_column;
            let same_cluster = changelog.fenodes().iter().any(|node| self.options.connection.fenodes.contains(node));
            if source == target && same_cluster && changelog.properties().boundedness.is_unbounded() {
                return Err(Error::unsupported(
                    what,
                    "each row written would be a change to write; use another target",
                ));
            }
            if changelog.inserts_only() && changelog.overlaps() && self.doris.model != Some(KeyModel::Unique) {
                return Err(Error::unsupported(
                    what,
                    "rows that are committed while the changelog starts come with the snapshot and as changes, and \
                     would be written twice; use 'source.scan.mode' = 'latest' or a UNIQUE KEY target",
                ));
            }
            if changelog.inserts_only() {
                continue;
            }
            let advice = match (self.bound.kind(), self.doris.model) {
                (KindColumn::Sink(_), Some(KeyModel::Unique)) if carries_kind(input, self.bound.columns()) => continue,
                (KindColumn::Sink(column), Some(KeyModel::Unique)) => format!(
                    "'{column}' must be the change kind of {source} as the changelog gives it, or deletes would be \
                     written as rows; select the change kind, unchanged, as the last column"
                ),
                (KindColumn::Sink(_), _) => format!(
                    "{target} is no UNIQUE KEY table, so nothing can be updated or deleted in it; write to a unique \
                     table, or keep the history: leave out 'sink.change-kind-column', and write the change kind into a \
                     column of the table"
                ),
                // A history of all changes, with their kinds as data.
                (_, Some(KeyModel::Duplicate)) if changelog.gives_change_kind() => continue,
                _ => format!(
                    "its updates and deletes would be written as rows; declare the target with \
                     'sink.change-kind-column' = '{kind}' and select that column last, or take inserts and updates only: \
                     WHERE {kind} IN ('+I', '+U')"
                ),
            };
            return Err(Error::unsupported(what, advice));
        }
        Ok(())
    }

    /// Refuses change kinds that may delete where nothing can be deleted by its key.
    pub(super) fn check_deletes(&self, input: &Arc<dyn ExecutionPlan>) -> Result<()> {
        let KindColumn::Sink(column) = self.bound.kind() else { return Ok(()) };
        let unique = self.doris.model.is_none_or(|model| model == KeyModel::Unique);
        match unique || only_inserts(input, self.bound.columns()) {
            true => Ok(()),
            false => Err(no_deletes(&self.doris, &format!("rows that may delete, by column '{column}',"))),
        }
    }

    /// The options of a sink for `input`.
    ///
    /// A half of an update that an operator between the changelog and the sink leaves alone must be written too: the
    /// old half as a delete of its key, which the new half, when it comes, overwrites in the same load. So must the old
    /// half of an update that moves a row from one key of the target to another.
    pub(super) fn sink_options(&self, input: &Arc<dyn ExecutionPlan>) -> Result<SinkOptions> {
        let options = self.options.sink.clone();
        if !matches!(self.bound.kind(), KindColumn::Sink(_)) {
            return Ok(options);
        }
        let moving = self.moving_key(input)?;
        let (reason, advice) = if let Some(operator) = splitting_updates(input) {
            (
                format!("{operator} over a changelog"),
                "it may drop the new half of an update, whose old row would stay; leave the option out, or filter by \
                 conditions on the changelog alone",
            )
        } else if let Some(column) = moving {
            (
                format!(
                    "key column '{column}' of {}, which is not made of the key of the changelog,",
                    self.doris.table
                ),
                "an update that changes it would leave the old row behind; leave the option out",
            )
        } else {
            return Ok(options);
        };
        match options.ignore_update_before {
            Some(true) => {
                Err(Error::unsupported(format!("{reason} with 'sink.ignore.update-before' = 'true'"), advice))
            }
            _ => Ok(options.with_ignore_update_before(false)),
        }
    }

    /// `input` with the changes of each commit in an order in which no delete of a key comes behind the row that takes the
    /// key over, where rows of different keys of the source may have one key here.
    pub(super) fn with_commits_in_order(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if self.doris.model != Some(KeyModel::Unique) || !matches!(self.bound.kind(), KindColumn::Sink(_)) {
            return Ok(input);
        }
        let key = self.bound.key_columns(&self.doris);
        let target = SinkKey { input: &input, key: &key };
        let meets = |changelog: &DorisChangelogExec| {
            !changelog.inserts_only()
                && changelog.increment_type() == IncrementType::Detail
                && !target.tells_source_keys_apart(changelog)
        };
        if !changes_at_root(&input).iter().any(meets) {
            return Ok(input);
        }
        let ordered = Arc::clone(&input).transform_up(|node| {
            let ordered = node.downcast_ref::<DorisChangelogExec>().map(DorisChangelogExec::with_commits_in_order);
            Ok(match ordered.transpose()? {
                Some(changelog) => Transformed::yes(Arc::new(changelog) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        });
        Ok(ordered.data()?)
    }

    /// The key column of the target that an update of a changelog may change, and what must be so then.
    fn moving_key(&self, input: &Arc<dyn ExecutionPlan>) -> Result<Option<String>> {
        if self.doris.model != Some(KeyModel::Unique) {
            return Ok(None);
        }
        let key = self.bound.key_columns(&self.doris);
        let mut moving = None;
        for changelog in changes_at_root(input).iter().filter(|changelog| !changelog.inserts_only()) {
            let target = SinkKey { input, key: &key };
            let what = || format!("writing the changelog of {} into {}", changelog.table(), self.doris.table);
            if changelog.increment_type() == IncrementType::MinDelta && !target.tells_source_keys_apart(changelog) {
                return Err(Error::unsupported(
                    what(),
                    "net changes keep no order between rows of the source, and several of them may have one key here; \
                     set 'source.changelog.increment-type' = 'detail', or write to a table whose key has all of the \
                     source's key columns",
                ));
            }
            let Some(column) = target.moving_column() else { continue };
            let column = self.bound.schema().field(column).name();
            if !changelog.keeps_old_values() {
                return Err(Error::unsupported(
                    what(),
                    format!(
                        "key column '{column}' is not made of the source's key, and the source records no old values, so \
                         the rows that updates and deletes leave behind could not be found; create the source with \
                         'changelog.need_historical_value' = 'true'"
                    ),
                ));
            }
            moving.get_or_insert_with(|| column.clone());
        }
        Ok(moving)
    }
}
