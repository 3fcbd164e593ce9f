//! One table: a handle with its definition, and the state that commits change.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use parking_lot::{Mutex, RwLock};

use super::complete::{AutoIncrement, WritePlan, buffer_schema, complete};
use super::definition::{Definition, TableSpec};
use super::key::{BuildIdentity, hash_keys};
use super::partial::{self, Partial};
use super::partition::{Bounds, PartitionSpec, PartitionView, Router};
use super::rowset::{Rowset, RowsetEntry, Snapshot, TabletSnapshot, any_delete_sign, delete_sign};
use super::{Column, KeysType, LoadBuffer};
use crate::changelog::ChangeBatch;
use crate::engine::{TableMeta, TabletInfo};
use crate::error::SqlError;
use crate::txn::Overwrite;
use crate::types::DorisType;

/// Ids of a tablet: its own and that of its replica.
const IDS_PER_TABLET: u64 = 2;

/// Rows to kill, `(tablet index, rowset << 32 | row)`, found by a scan of one epoch.
#[derive(Debug)]
pub struct RowVictims {
    /// Epoch of the snapshot that was scanned.
    pub epoch: u64,
    /// The rows.
    pub rows: Vec<(u32, u64)>,
}

/// A table as it was defined when the handle was made; its rows are those of now.
#[derive(Debug)]
pub struct Table {
    id: u64,
    pub(super) def: Arc<Definition>,
    pub(super) shared: Arc<Shared>,
}

/// What all handles of a table share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: RwLock<TableState>,
    /// Serialises UPDATE and DELETE statements, which read before they write.
    pub(super) dml_lock: tokio::sync::Mutex<()>,
    pub(super) auto: AutoIncrement,
    pub(super) jobs: Mutex<Vec<AlterJob>>,
}

/// A finished change of the schema.
#[derive(Debug, Clone)]
pub(crate) struct AlterJob {
    pub(crate) id: u64,
    pub(crate) at_ms: i64,
    pub(crate) schema_version: u32,
}

#[derive(Debug)]
pub(super) struct TableState {
    pub(super) def: Arc<Definition>,
    pub(super) version: u64,
    pub(super) version_time_ms: i64,
    pub(super) epoch: u64,
    pub(super) partitions: Vec<Partition>,
    /// Change records, in commit order.
    pub(super) changes: Vec<Arc<ChangeBatch>>,
    /// Change records with a smaller TSO were cleaned up.
    pub(super) expired_before: i64,
    pub(super) dropped: bool,
}

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) id: u64,
    pub(super) name: Arc<str>,
    pub(super) bounds: Bounds,
    pub(super) version: u64,
    pub(super) version_time_ms: i64,
    pub(super) tablets: Vec<Tablet>,
}

/// Place of a row in a tablet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowRef {
    pub(super) rowset: u32,
    pub(super) row: u32,
}

#[derive(Debug)]
pub(super) struct Tablet {
    pub(super) id: u64,
    pub(super) rowsets: Vec<RowsetEntry>,
    pub(super) index: HashMap<u128, RowRef, BuildIdentity>,
    pub(super) rows: u64,
}

impl Tablet {
    fn new(id: u64) -> Self {
        Self { id, rowsets: Vec::new(), index: HashMap::default(), rows: 0 }
    }
}

impl Partition {
    /// A partition without rows; its ids start at `first_id`.
    pub(super) fn new(spec: PartitionSpec, first_id: u64, now_ms: i64) -> Self {
        let tablets = (0..spec.buckets as u64).map(|i| Tablet::new(first_id + 1 + i * IDS_PER_TABLET)).collect();
        Self { id: first_id, name: spec.name.into(), bounds: spec.bounds, version: 1, version_time_ms: now_ms, tablets }
    }

    /// The definition of this partition again.
    pub(super) fn spec(&self) -> PartitionSpec {
        PartitionSpec { name: self.name.to_string(), bounds: self.bounds.clone(), buckets: self.tablets.len() }
    }
}

/// Ids that a partition of so many buckets takes.
pub(super) fn ids_of(buckets: usize) -> u64 {
    1 + buckets as u64 * IDS_PER_TABLET
}

/// Ids that a table takes.
pub(super) fn table_ids(partitions: &[PartitionSpec]) -> u64 {
    1 + partitions.iter().map(|p| ids_of(p.buckets)).sum::<u64>()
}

impl TableState {
    pub(super) fn tablets(&self) -> impl Iterator<Item = &Tablet> {
        self.partitions.iter().flat_map(|p| &p.tablets)
    }

    pub(super) fn tablets_mut(&mut self) -> impl Iterator<Item = &mut Tablet> {
        self.partitions.iter_mut().flat_map(|p| &mut p.tablets)
    }

    pub(super) fn partition(&self, name: &str) -> Option<usize> {
        self.partitions.iter().position(|p| p.name.eq_ignore_ascii_case(name))
    }
}

impl Table {
    pub(super) fn new(spec: TableSpec, partitions: Vec<PartitionSpec>, first_id: u64) -> Self {
        let mut next = first_id + 1;
        let created_ms = spec.created_ms;
        let partitions = partitions
            .into_iter()
            .map(|partition| {
                let id = next;
                next += ids_of(partition.buckets);
                Partition::new(partition, id, created_ms)
            })
            .collect();
        let auto = AutoIncrement::new(spec.auto_increment_start);
        let def = Definition::new(spec);
        let state = TableState {
            def: Arc::clone(&def),
            version: 1,
            version_time_ms: created_ms,
            epoch: 0,
            partitions,
            changes: Vec::new(),
            expired_before: 0,
            dropped: false,
        };
        let shared =
            Shared { state: RwLock::new(state), dml_lock: tokio::sync::Mutex::new(()), auto, jobs: Mutex::default() };
        Self { id: first_id, def, shared: Arc::new(shared) }
    }

    /// Another handle of the table, under its newest definition.
    pub(super) fn with_definition(&self, def: Arc<Definition>) -> Self {
        Self { id: self.id, def, shared: Arc::clone(&self.shared) }
    }

    /// Table id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.def.spec.name
    }

    /// Database.
    pub fn database(&self) -> &str {
        &self.def.spec.db
    }

    /// The definition.
    pub fn spec(&self) -> &TableSpec {
        &self.def.spec
    }

    /// Key model.
    pub fn keys_type(&self) -> KeysType {
        self.def.spec.keys_type
    }

    /// Base columns.
    pub fn columns(&self) -> &[Column] {
        &self.def.spec.columns
    }

    /// A column by name, compared without case.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.def.spec.columns.iter().find(|c| c.name.eq_ignore_ascii_case(name))
    }

    /// Type of the sequence column of a unique table that has one.
    pub(crate) fn sequence_type(&self) -> Option<&DorisType> {
        self.def.spec.sequence.as_ref().map(|s| &s.ty)
    }

    /// Finished changes of the schema, oldest first.
    pub(crate) fn alter_jobs(&self) -> Vec<AlterJob> {
        self.shared.jobs.lock().clone()
    }

    /// Serialises UPDATE and DELETE statements.
    pub(crate) fn dml_lock(&self) -> &tokio::sync::Mutex<()> {
        &self.shared.dml_lock
    }

    /// Facts for REST.
    pub fn meta(&self, db: &str) -> TableMeta {
        let spec = &self.def.spec;
        TableMeta {
            database: db.to_owned(),
            name: spec.name.clone(),
            id: self.id,
            columns: spec.columns.clone(),
            keys_type: spec.keys_type,
            merge_on_write: spec.is_mow(),
            sequence: spec.sequence.clone(),
            partition_columns: spec.partitioning.as_ref().map(|p| p.columns.clone()).unwrap_or_default(),
            properties: spec.properties.clone(),
            hash_columns: spec.hash_columns.clone(),
            buckets: spec.buckets,
            comment: spec.comment.clone(),
        }
    }

    /// Tablets in id order.
    pub fn tablets(&self) -> Vec<TabletInfo> {
        let state = self.shared.state.read();
        let mut out: Vec<TabletInfo> = state
            .partitions
            .iter()
            .flat_map(|p| p.tablets.iter().map(move |tablet| (p, tablet)))
            .enumerate()
            .map(|(i, (partition, tablet))| TabletInfo {
                id: tablet.id,
                partition: partition.name.to_string(),
                version: partition.version,
                rows: tablet.rows,
                backend: i,
            })
            .collect();
        out.sort_by_key(|tablet| tablet.id);
        out
    }

    /// Partitions in the order of their bounds.
    pub(crate) fn partitions(&self) -> Vec<PartitionView> {
        let state = self.shared.state.read();
        let mut parts: Vec<&Partition> = state.partitions.iter().collect();
        let lower = |p: &Partition| match &p.bounds {
            Bounds::Range { lower, .. } => lower.clone(),
            _ => Vec::new(),
        };
        parts.sort_by_key(|p| lower(p));
        let view = |p: &&Partition| PartitionView {
            id: p.id,
            name: p.name.to_string(),
            bounds: p.bounds.clone(),
            buckets: p.tablets.len(),
            version: p.version,
            version_time_ms: p.version_time_ms,
            rows: p.tablets.iter().map(|t| t.rows).sum(),
            bytes: p
                .tablets
                .iter()
                .flat_map(|t| &t.rowsets)
                .map(|e| e.rowset.batch.get_array_memory_size() as u64)
                .sum(),
        };
        parts.iter().map(view).collect()
    }

    /// The ids of named partitions.
    ///
    /// # Errors
    /// The text for a partition that is not there.
    pub(crate) fn partition_ids(&self, names: &[String]) -> Result<Vec<u64>, SqlError> {
        let state = self.shared.state.read();
        names
            .iter()
            .map(|name| {
                state.partition(name).map(|at| state.partitions[at].id).ok_or_else(|| self.unknown_partition(name))
            })
            .collect()
    }

    /// The text for a partition that is not there.
    pub(crate) fn unknown_partition(&self, name: &str) -> SqlError {
        SqlError::detail(format!("Partition: {name} is not exists on table {}", self.name()))
    }

    /// Visible version and its time in milliseconds.
    pub fn version(&self) -> (u64, i64) {
        let state = self.shared.state.read();
        (state.version, state.version_time_ms)
    }

    /// Rows in storage (dead ones and delete signs included) and their bytes, as the server's lagging counters show them.
    pub fn physical_size(&self) -> (u64, u64) {
        let state = self.shared.state.read();
        let entries = state.tablets().flat_map(|t| &t.rowsets);
        entries.fold((0, 0), |(rows, bytes), entry| {
            (rows + entry.physical_rows() as u64, bytes + entry.rowset.batch.get_array_memory_size() as u64)
        })
    }

    /// The table at its current version.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_of(&self.shared.state.read())
    }

    pub(super) fn snapshot_of(&self, state: &TableState) -> Snapshot {
        let tablets = state.partitions.iter().flat_map(|p| p.tablets.iter().map(move |tablet| (p, tablet)));
        Snapshot {
            version: state.version,
            epoch: state.epoch,
            tablets: tablets
                .enumerate()
                .map(|(index, (partition, t))| TabletSnapshot {
                    id: t.id,
                    index: index as u32,
                    partition: Arc::clone(&partition.name),
                    rowsets: t.rowsets.clone(),
                })
                .collect(),
        }
    }

    /// A buffer for a load into this table, or into some of its partitions.
    ///
    /// # Errors
    /// The text for a partition that is not there.
    pub(crate) fn buffer(
        &self,
        names: Option<&[String]>,
        partial: Option<Partial>,
        overwrite: Overwrite,
    ) -> Result<LoadBuffer, SqlError> {
        let state = self.shared.state.read();
        let def = Arc::clone(&self.def);
        let chosen: Vec<&Partition> = match names {
            None => state.partitions.iter().collect(),
            Some(names) => names
                .iter()
                .map(|name| {
                    state.partition(name).map(|at| &state.partitions[at]).ok_or_else(|| self.unknown_partition(name))
                })
                .collect::<Result<_, _>>()?,
        };
        let router = match &def.spec.partitioning {
            None => Router::One,
            Some(partitioning) => {
                let columns = partitioning.columns.iter().filter_map(|name| def.spec.position(name)).collect();
                Router::new(partitioning.kind, columns, &chosen.iter().map(|p| &p.bounds).collect::<Vec<_>>())
            }
        };
        let targets: Vec<(u64, usize)> = chosen.iter().map(|p| (p.id, p.tablets.len())).collect();
        let schema = buffer_schema(&def, partial.as_ref());
        Ok(LoadBuffer::new(def, schema, partial, overwrite, router, &targets))
    }

    /// Checks that a load into these columns can fill the others.
    pub(crate) fn check_columns(&self, list: Option<&[String]>, partial: bool) -> Result<(), SqlError> {
        let Some(list) = list else { return Ok(()) };
        let spec = &self.def.spec;
        super::load_schema(&spec.columns, spec.keys_type, self.sequence_type(), Some(list))?;
        for column in &spec.columns {
            let listed = list.iter().any(|name| name.eq_ignore_ascii_case(&column.name));
            if listed || (partial && !column.key) {
                continue;
            }
            if partial {
                return Err(SqlError::detail(format!(
                    "Partial update should include all key columns, missing: {}",
                    column.name
                )));
            }
            if !column.fillable() {
                return Err(SqlError::detail(format!("Column has no default value, column={}", column.name)));
            }
        }
        Ok(())
    }

    /// A batch for the buffer from one with some of the columns.
    pub(crate) fn complete(
        &self,
        buffer: &LoadBuffer,
        batch: &RecordBatch,
        plan: &WritePlan,
        now_ms: i64,
        string_limit: u32,
    ) -> Result<RecordBatch, SqlError> {
        complete(&buffer.def, batch, plan, buffer.partial.as_ref(), (&self.shared.auto, now_ms, string_limit))
    }

    /// Refuses rows of a partial update whose key has no live row, when those are an error.
    pub(crate) fn check_new_keys(&self, buffer: &LoadBuffer, batch: &RecordBatch) -> Result<(), SqlError> {
        let errors = buffer.partial.as_ref().is_some_and(|p| p.new_key == crate::txn::NewKeyBehavior::Error);
        if !errors {
            return Ok(());
        }
        let keys: Vec<_> = buffer.def.keys.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        let state = self.shared.state.read();
        for (row, hash) in hash_keys(&keys)?.into_iter().enumerate() {
            let live = |tablet: &Tablet| {
                tablet
                    .index
                    .get(&hash)
                    .is_some_and(|at| !delete_sign(&tablet.rowsets[at.rowset as usize].rowset.batch, at.row as usize))
            };
            if !state.tablets().any(live) {
                return Err(partial::unknown_key(&buffer.def, batch.columns(), row));
            }
        }
        Ok(())
    }

    /// Kills rows by predicate (which leaves no change records). Returns how many were still alive.
    pub(crate) fn kill(&self, victims: &RowVictims, now_ms: i64) -> Result<u64, SqlError> {
        let mut state = self.shared.state.write();
        let state = &mut *state;
        if state.dropped || state.epoch != victims.epoch {
            return Err(SqlError::detail(format!(
                "table {} was truncated or dropped during the statement",
                self.name()
            )));
        }
        let version = state.version + 1;
        let def = Arc::clone(&state.def);
        let mut dead: HashMap<u32, Vec<RowRef>> = HashMap::new();
        for (tablet, id) in &victims.rows {
            dead.entry(*tablet).or_default().push(RowRef { rowset: (id >> 32) as u32, row: *id as u32 });
        }
        let mut killed = 0;
        for (at, tablet) in state.tablets_mut().enumerate() {
            let Some(mut rows) = dead.remove(&(at as u32)) else { continue };
            rows.retain(|row| tablet.rowsets[row.rowset as usize].is_alive(row.row as usize));
            if def.spec.keys_type != KeysType::Duplicate {
                super::aggregate::forget(tablet, &def, &rows)?;
            }
            for row in &rows {
                tablet.rowsets[row.rowset as usize].kill(row.row as usize, version);
            }
            tablet.rows -= rows.len() as u64;
            killed += rows.len() as u64;
        }
        if killed > 0 {
            state.version = version;
            state.version_time_ms = now_ms;
            for partition in &mut state.partitions {
                partition.version += 1;
                partition.version_time_ms = now_ms;
            }
        }
        Ok(killed)
    }

    /// The tablet with more versions than `limit`, and their number.
    pub(crate) fn crowded_tablet(&self, limit: usize) -> Option<(u64, usize)> {
        // What records changes is not compacted here, where a BE compacts it.
        if self.spec().changes.is_some() {
            return None;
        }
        let state = self.shared.state.read();
        state.tablets().filter(|t| t.rowsets.len() > limit).find_map(|tablet| {
            let mut versions: Vec<u64> = tablet.rowsets.iter().map(|e| e.rowset.version).collect();
            versions.dedup();
            (versions.len() > limit).then_some((tablet.id, versions.len()))
        })
    }

    pub(super) fn mark_dropped(&self) {
        self.shared.state.write().dropped = true;
    }
}

pub(super) fn new_rowset(batch: RecordBatch, version: u64, tso: i64) -> RowsetEntry {
    let has_delete_sign = any_delete_sign(&batch);
    RowsetEntry::new(Rowset { version, tso, first_lsn: 0, batch, has_delete_sign, versions: None })
}
