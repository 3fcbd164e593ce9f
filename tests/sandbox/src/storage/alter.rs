//! Changes of a definition: rows and change records follow at once.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::nullif;
use arrow::datatypes::{Field, Schema};

use super::definition::{Definition, TableSpec};
use super::rowset::{Rowset, RowsetEntry};
use super::table::{AlterJob, Table};
use super::{Catalog, Column};
use crate::changelog::{ChangeBatch, RawOp};
use crate::error::SqlError;

/// A definition under change.
#[derive(Debug, Clone)]
pub(crate) struct Redefinition {
    /// What the table will be; columns change through the methods.
    pub(crate) spec: TableSpec,
    ids: Vec<u32>,
    next_id: u32,
    columns_changed: bool,
}

impl Redefinition {
    /// Adds a column at a position.
    pub(crate) fn add(&mut self, at: usize, column: Column) {
        self.spec.columns.insert(at, column);
        self.ids.insert(at, self.next_id);
        self.next_id += 1;
        self.columns_changed = true;
    }

    /// Drops the column at a position.
    pub(crate) fn drop(&mut self, at: usize) {
        self.spec.columns.remove(at);
        self.ids.remove(at);
        self.columns_changed = true;
    }

    /// Replaces the column at a position; its values stay.
    pub(crate) fn replace(&mut self, at: usize, column: Column) {
        let old = std::mem::replace(&mut self.spec.columns[at], column);
        let new = self.spec.columns[at].name.clone();
        let same = |name: &str| name.eq_ignore_ascii_case(&old.name);
        let partition = self.spec.partitioning.iter_mut().flat_map(|p| &mut p.columns);
        let sequence = self.spec.sequence.iter_mut().filter_map(|s| s.column.as_mut());
        for name in self.spec.hash_columns.iter_mut().chain(partition).chain(sequence).filter(|name| same(name)) {
            name.clone_from(&new);
        }
        if let Some(name) = self.spec.properties.get_mut("function_column.sequence_col").filter(|name| same(name)) {
            *name = new;
        }
        self.columns_changed = true;
    }
}

impl Table {
    /// The current definition, to be changed.
    pub(crate) fn redefinition(&self) -> Redefinition {
        let def = Arc::clone(&self.shared.state.read().def);
        Redefinition {
            spec: def.spec.clone(),
            ids: def.ids.clone(),
            next_id: def.next_column_id,
            columns_changed: false,
        }
    }

    /// Puts a changed definition in force and gives the handle for it; `job` is the id of the change. Snapshots keep the rows
    /// they were taken with.
    pub(crate) fn redefine(&self, change: Redefinition, job: u64, now_ms: i64) -> Result<Table, SqlError> {
        let mut state = self.shared.state.write();
        let old = Arc::clone(&state.def);
        let schema_version = old.schema_version + u32::from(change.columns_changed);
        let def = Definition::with_ids(change.spec, change.ids, change.next_id, schema_version);
        if change.columns_changed {
            // Everything that can fail comes before the first change.
            let mut rowsets = Vec::new();
            for tablet in state.tablets() {
                for entry in &tablet.rowsets {
                    rowsets.push(RowsetEntry {
                        rowset: Arc::new(rewrite(&entry.rowset, &old, &def, now_ms)?),
                        died: entry.died.clone(),
                    });
                }
            }
            let changes = state
                .changes
                .iter()
                .map(|batch| rewrite_changes(batch, &old, &def, now_ms).map(Arc::new))
                .collect::<Result<Vec<_>, _>>()?;
            let mut rowsets = rowsets.into_iter();
            for tablet in state.tablets_mut() {
                for (entry, new) in tablet.rowsets.iter_mut().zip(&mut rowsets) {
                    *entry = new;
                }
            }
            state.changes = changes;
            self.shared.jobs.lock().push(AlterJob { id: job, at_ms: now_ms, schema_version });
        }
        if old.spec.name != def.spec.name && def.spec.partitioning.is_none() {
            // The only partition is named as the table.
            let name: Arc<str> = def.spec.name.as_str().into();
            state.partitions.iter_mut().for_each(|p| p.name = Arc::clone(&name));
        }
        state.def = Arc::clone(&def);
        drop(state);
        Ok(self.with_definition(def))
    }
}

fn rewrite(rowset: &Rowset, old: &Definition, def: &Definition, now_ms: i64) -> Result<Rowset, SqlError> {
    Ok(Rowset {
        version: rowset.version,
        tso: rowset.tso,
        first_lsn: rowset.first_lsn,
        batch: def.adapt(old, &rowset.batch, now_ms)?,
        has_delete_sign: rowset.has_delete_sign,
        versions: rowset.versions.clone(),
    })
}

/// Older records show the default in new columns, as rows written before do; deletes show nothing but what they had.
fn rewrite_changes(
    batch: &ChangeBatch,
    old: &Definition,
    def: &Definition,
    now_ms: i64,
) -> Result<ChangeBatch, SqlError> {
    let fields: Vec<Field> =
        def.schema.fields()[..def.base()].iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let image = |source: &RecordBatch, hide: Option<&BooleanArray>| -> Result<RecordBatch, SqlError> {
        let mut columns: Vec<ArrayRef> = def.adapt_base(old, source, now_ms)?;
        for (column, id) in columns.iter_mut().zip(&def.ids) {
            if let Some(hide) = hide.filter(|_| !old.ids.contains(id)) {
                *column = nullif(column, hide).map_err(SqlError::detail)?;
            }
        }
        RecordBatch::try_new(Arc::clone(&schema), columns).map_err(SqlError::detail)
    };
    let deleted: BooleanArray = batch.ops.iter().map(|op| Some(*op == RawOp::Delete)).collect();
    let after = image(&batch.after, Some(&deleted).filter(|d| d.true_count() > 0))?;
    Ok(ChangeBatch {
        tso: batch.tso,
        first_lsn: batch.first_lsn,
        partition: batch.partition,
        tablet: batch.tablet,
        ops: batch.ops.clone(),
        after,
        before: batch.before.as_ref().map(|before| image(before, None)).transpose()?,
    })
}

impl Catalog {
    /// Puts a handle in the place of the table named `old`, under its own name.
    ///
    /// # Errors
    /// 1050 when the new name is taken.
    pub(crate) fn put_table(&self, db: &str, old: &str, table: Table) -> Result<(), SqlError> {
        self.edit_tables(db, |tables, taken| {
            if table.name() != old && taken(table.name()) {
                return Err(SqlError::coded(1050, format!("Table '{}' already exists", table.name())));
            }
            tables.remove(old);
            tables.insert(table.name().to_owned(), Arc::new(table));
            Ok(())
        })
    }

    /// Two tables change their names; the second is dropped unless it is kept.
    ///
    /// # Errors
    /// 1105 when one of them is not there.
    pub(crate) fn replace_table(&self, first: Table, second: Table, db: &str, keep: bool) -> Result<(), SqlError> {
        self.edit_tables(db, |tables, _| {
            tables.insert(first.name().to_owned(), Arc::new(first));
            if keep {
                tables.insert(second.name().to_owned(), Arc::new(second));
            } else {
                tables.remove(second.name());
                second.mark_dropped();
            }
            Ok(())
        })
    }
}
