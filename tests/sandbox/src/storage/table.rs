//! One table: its definition and the state that commits change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int8Array, RecordBatch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use parking_lot::RwLock;

use super::key::BuildIdentity;
use super::rowset::{Rowset, RowsetEntry, Snapshot, TabletSnapshot, any_delete_sign};
use super::{Column, DELETE_SIGN, DefaultValue, KeysType, LoadBuffer, delete_sign_field};
use crate::changelog::ChangeBatch;
use crate::engine::{TableMeta, TabletInfo};
use crate::error::SqlError;
use crate::types::{ColumnBuilder, DorisType, SessionZone, format_datetime};

/// Whether and how changes are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeConfig {
    /// `need_historical_value`: updates and deletes keep the image before them.
    pub before_image: bool,
    /// `ttl_seconds`: age at which records expire; `None` where the build does not clean up.
    pub ttl_seconds: Option<i64>,
}

/// Definition of a table to create.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// Database.
    pub db: String,
    /// Name.
    pub name: String,
    /// Columns, key columns first.
    pub columns: Vec<Column>,
    /// Key model.
    pub keys_type: KeysType,
    /// Distribution columns, empty for RANDOM.
    pub hash_columns: Vec<String>,
    /// Buckets.
    pub buckets: usize,
    /// `BUCKETS AUTO` was written.
    pub auto_buckets: bool,
    /// All properties, with defaults filled in.
    pub properties: BTreeMap<String, String>,
    /// Comment.
    pub comment: String,
    /// Change recording.
    pub changes: Option<ChangeConfig>,
    /// Creation time, milliseconds.
    pub created_ms: i64,
}

/// Rows to kill, `(tablet index, rowset << 32 | row)`, found by a scan of one epoch.
#[derive(Debug)]
pub struct RowVictims {
    /// Epoch of the snapshot that was scanned.
    pub epoch: u64,
    /// The rows.
    pub rows: Vec<(u32, u64)>,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    id: u64,
    partition_id: u64,
    spec: TableSpec,
    schema: SchemaRef,
    pub(super) state: RwLock<TableState>,
    /// Serialises UPDATE and DELETE statements, which read before they write.
    pub(crate) dml_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
pub(super) struct TableState {
    pub(super) version: u64,
    pub(super) version_time_ms: i64,
    pub(super) epoch: u64,
    pub(super) tablets: Vec<Tablet>,
    /// Change records, in commit order.
    pub(super) changes: Vec<Arc<ChangeBatch>>,
    /// Change records with a smaller TSO were cleaned up.
    pub(super) expired_before: i64,
    dropped: bool,
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

impl Table {
    pub(super) fn new(spec: TableSpec, first_id: u64) -> Result<Self, SqlError> {
        let mut fields: Vec<_> = spec.columns.iter().map(Column::field).collect();
        if spec.keys_type == KeysType::Unique {
            fields.push(delete_sign_field());
        }
        let tablets = (0..spec.buckets as u64).map(|i| Tablet::new(first_id + 2 + i)).collect();
        Ok(Self {
            id: first_id,
            partition_id: first_id + 1,
            schema: Arc::new(Schema::new(fields)),
            state: RwLock::new(TableState {
                version: 1,
                version_time_ms: spec.created_ms,
                epoch: 0,
                tablets,
                changes: Vec::new(),
                expired_before: 0,
                dropped: false,
            }),
            spec,
            dml_lock: tokio::sync::Mutex::new(()),
        })
    }

    /// Table id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Id of the only partition; its name is the table's.
    pub fn partition_id(&self) -> u64 {
        self.partition_id
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Database.
    pub fn database(&self) -> &str {
        &self.spec.db
    }

    /// The definition.
    pub fn spec(&self) -> &TableSpec {
        &self.spec
    }

    /// Key model.
    pub fn keys_type(&self) -> KeysType {
        self.spec.keys_type
    }

    /// Base columns.
    pub fn columns(&self) -> &[Column] {
        &self.spec.columns
    }

    /// A column by name, compared without case.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.spec.columns.iter().find(|c| c.name.eq_ignore_ascii_case(name))
    }

    /// Positions of the key columns.
    pub(crate) fn key_positions(&self) -> Vec<usize> {
        (0..self.spec.columns.len()).filter(|i| self.spec.columns[*i].key).collect()
    }

    /// Facts for REST.
    pub fn meta(&self, db: &str) -> TableMeta {
        TableMeta {
            database: db.to_owned(),
            name: self.spec.name.clone(),
            id: self.id,
            columns: self.spec.columns.clone(),
            keys_type: self.spec.keys_type,
            properties: self.spec.properties.clone(),
            hash_columns: self.spec.hash_columns.clone(),
            buckets: self.spec.buckets,
            comment: self.spec.comment.clone(),
        }
    }

    /// Tablets in id order.
    pub fn tablets(&self) -> Vec<TabletInfo> {
        let state = self.state.read();
        let info = |(i, tablet): (usize, &Tablet)| TabletInfo {
            id: tablet.id,
            partition: self.spec.name.clone(),
            version: state.version,
            rows: tablet.rows,
            backend: i,
        };
        state.tablets.iter().enumerate().map(info).collect()
    }

    /// Visible version and its time in milliseconds.
    pub fn version(&self) -> (u64, i64) {
        let state = self.state.read();
        (state.version, state.version_time_ms)
    }

    /// Rows in storage (dead ones and delete signs included) and their bytes, as the server's lagging counters show them.
    pub fn physical_size(&self) -> (u64, u64) {
        let state = self.state.read();
        let entries = state.tablets.iter().flat_map(|t| &t.rowsets);
        entries.fold((0, 0), |(rows, bytes), entry| {
            (rows + entry.physical_rows() as u64, bytes + entry.rowset.batch.get_array_memory_size() as u64)
        })
    }

    /// The table at its current version.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_of(&self.state.read())
    }

    pub(super) fn snapshot_of(&self, state: &TableState) -> Snapshot {
        let tablets = state.tablets.iter().enumerate();
        Snapshot {
            version: state.version,
            epoch: state.epoch,
            tablets: tablets
                .map(|(index, t)| TabletSnapshot { id: t.id, index: index as u32, rowsets: t.rowsets.clone() })
                .collect(),
        }
    }

    /// A buffer for a load into this table.
    pub(crate) fn buffer(&self) -> LoadBuffer {
        let hash_columns = self
            .spec
            .hash_columns
            .iter()
            .filter_map(|name| self.spec.columns.iter().position(|c| c.name.eq_ignore_ascii_case(name)))
            .collect();
        LoadBuffer::new(Arc::clone(&self.schema), hash_columns, self.spec.buckets)
    }

    /// Checks that a load into these columns can fill the others.
    pub(crate) fn check_columns(&self, list: Option<&[String]>) -> Result<(), SqlError> {
        let Some(list) = list else { return Ok(()) };
        super::load_schema(&self.spec.columns, self.spec.keys_type, Some(list))?;
        for column in &self.spec.columns {
            let listed = list.iter().any(|name| name.eq_ignore_ascii_case(&column.name));
            let fillable =
                column.nullable || matches!(column.default, DefaultValue::Text(_) | DefaultValue::CurrentTimestamp);
            if !listed && !fillable {
                return Err(SqlError::detail(format!("Column has no default value, column={}", column.name)));
            }
        }
        Ok(())
    }

    /// A batch in storage schema from one with some of the columns: defaults and the delete sign are filled in, NULLs and
    /// lengths checked.
    pub(crate) fn complete(&self, batch: &RecordBatch, delete: bool, now_ms: i64) -> Result<RecordBatch, SqlError> {
        let rows = batch.num_rows();
        let given = batch.schema();
        let find = |name: &str| {
            given.fields().iter().position(|f| f.name().eq_ignore_ascii_case(name)).map(|i| Arc::clone(batch.column(i)))
        };
        for field in given.fields() {
            let known = self.column(field.name()).is_some()
                || (self.keys_type() == KeysType::Unique && field.name().eq_ignore_ascii_case(DELETE_SIGN));
            if !known {
                return Err(SqlError::unknown_column(field.name(), "table list"));
            }
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for column in &self.spec.columns {
            let array = match find(&column.name) {
                Some(array) => {
                    if array.data_type() != &column.ty.storage() {
                        return Err(SqlError::detail(format!(
                            "column `{}` has Arrow type {}, expected {}",
                            column.name,
                            array.data_type(),
                            column.ty.storage()
                        )));
                    }
                    array
                }
                None => default_array(column, rows, now_ms)?,
            };
            if !column.nullable && array.null_count() > 0 {
                return Err(SqlError::detail(format!("null value for not null column, column={}", column.name)));
            }
            check_length(column, &array)?;
            columns.push(array);
        }
        if self.keys_type() == KeysType::Unique {
            let sign = match find(DELETE_SIGN) {
                Some(array) => crate::types::conform(&array, &DorisType::TinyInt).map_err(SqlError::detail)?,
                None => Arc::new(Int8Array::from_value(i8::from(delete), rows)) as ArrayRef,
            };
            if sign.null_count() > 0 {
                return Err(SqlError::detail(format!("null value for not null column, column={DELETE_SIGN}")));
            }
            columns.push(sign);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(SqlError::detail)
    }

    /// Makes the rows of a load visible. Callers hold the engine's commit lock and pass a fresh TSO.
    pub(crate) fn apply(&self, buffer: &LoadBuffer, tso: i64, now_ms: i64) -> Result<(), SqlError> {
        let parts = buffer.take()?;
        let mut state = self.state.write();
        if state.dropped {
            return Err(SqlError::unknown_table(&self.spec.db, &self.spec.name));
        }
        let state = &mut *state;
        let version = state.version + 1;
        // LSNs order the records of one transaction.
        let mut next_lsn = 1;
        match self.spec.keys_type {
            KeysType::Duplicate => {
                for (at, batches) in parts.into_iter().enumerate() {
                    for batch in batches {
                        let tablet = &mut state.tablets[at];
                        let first_lsn = next_lsn;
                        if self.spec.changes.is_some() {
                            let place = (self.partition_id, tablet.id);
                            let change = ChangeBatch::inserts(tso, first_lsn, place, batch.clone());
                            next_lsn += batch.num_rows() as i64;
                            state.changes.push(Arc::new(change));
                        }
                        tablet.rows += batch.num_rows() as u64;
                        tablet.rowsets.push(RowsetEntry::new(Rowset {
                            version,
                            tso,
                            first_lsn,
                            batch,
                            has_delete_sign: false,
                        }));
                    }
                }
            }
            KeysType::Unique => {
                let keys = self.key_positions();
                for (at, batches) in parts.into_iter().enumerate() {
                    if batches.is_empty() {
                        continue;
                    }
                    let changes =
                        super::unique::upsert(&mut state.tablets[at], batches, &keys, version, tso, self.spec.changes)?;
                    for mut change in changes {
                        change.partition = self.partition_id;
                        change.first_lsn = next_lsn;
                        next_lsn += change.ops.len() as i64;
                        state.changes.push(Arc::new(change));
                    }
                }
            }
        }
        state.version = version;
        state.version_time_ms = now_ms;
        Ok(())
    }

    /// Kills rows of a duplicate table (delete predicates leave no change records). Returns how many were still alive.
    pub(crate) fn kill(&self, victims: &RowVictims, now_ms: i64) -> Result<u64, SqlError> {
        let mut state = self.state.write();
        let state = &mut *state;
        if state.dropped || state.epoch != victims.epoch {
            return Err(SqlError::detail(format!(
                "table {} was truncated or dropped during the statement",
                self.spec.name
            )));
        }
        let version = state.version + 1;
        let mut killed = 0;
        for (tablet, id) in &victims.rows {
            let tablet = &mut state.tablets[*tablet as usize];
            let (rowset, row) = ((id >> 32) as usize, (id & 0xffff_ffff) as usize);
            if tablet.rowsets[rowset].is_alive(row) {
                tablet.rowsets[rowset].kill(row, version);
                tablet.rows -= 1;
                killed += 1;
            }
        }
        if killed > 0 {
            state.version = version;
            state.version_time_ms = now_ms;
        }
        Ok(killed)
    }

    /// Empties the table; pending change records are lost with the rows.
    pub(crate) fn truncate(&self, first_tablet_id: u64, now_ms: i64) {
        let mut state = self.state.write();
        let buckets = state.tablets.len() as u64;
        state.tablets = (0..buckets).map(|i| Tablet::new(first_tablet_id + i)).collect();
        state.changes.clear();
        state.epoch += 1;
        state.version += 1;
        state.version_time_ms = now_ms;
    }

    pub(super) fn mark_dropped(&self) {
        self.state.write().dropped = true;
    }
}

/// The default of a column, repeated.
fn default_array(column: &Column, rows: usize, now_ms: i64) -> Result<ArrayRef, SqlError> {
    let text = match &column.default {
        DefaultValue::Text(text) => Some(text.clone()),
        DefaultValue::CurrentTimestamp => Some(format_datetime(now_ms * 1000, 6)),
        DefaultValue::None | DefaultValue::Null => None,
    };
    let mut builder = ColumnBuilder::in_zone(&column.ty, SessionZone::UTC);
    for _ in 0..rows {
        match &text {
            Some(text) => builder.append_text(text).map_err(SqlError::detail)?,
            None => builder.append_null(),
        }
    }
    Ok(builder.finish())
}

/// CHAR(n) and VARCHAR(n) count bytes.
fn check_length(column: &Column, array: &ArrayRef) -> Result<(), SqlError> {
    let (DorisType::Char(limit) | DorisType::Varchar(limit)) = column.ty else { return Ok(()) };
    let DataType::Utf8 = array.data_type() else { return Ok(()) };
    let longest = array.as_string::<i32>().offsets().windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    if longest as i64 > i64::from(limit) {
        return Err(SqlError::detail(format!(
            "the length of input is too long than schema, column_name: {}, schema length: {limit}, actual length: {longest}",
            column.name
        )));
    }
    Ok(())
}

pub(super) fn new_rowset(batch: RecordBatch, version: u64, tso: i64) -> RowsetEntry {
    let has_delete_sign = any_delete_sign(&batch);
    RowsetEntry::new(Rowset { version, tso, first_lsn: 0, batch, has_delete_sign })
}
