//! Reading a table stream: its pending changes, the base table where they begin, the base table of now.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};

use super::changes::{Bound, Wanted, partitions, snapshot_partition};
use super::columns::{self, Shown};
use super::provider::{Relation, Source};
use super::relations::{ScanSpec, StreamParam};
use super::streams::base_table;
use crate::changelog::{ChangeRows, Consumption, IncrType, Names, TableStream, Travel, retained_from};
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::Table;

/// What a row of a stream is.
const CHANGE_TYPE: &str = "__DORIS_STREAM_CHANGE_TYPE_COL__";
/// Commit TSO of a row of a stream.
const SEQUENCE: &str = "__DORIS_STREAM_SEQUENCE_COL__";
/// Order inside one transaction.
const LSN: &str = "__DORIS_STREAM_LSN_COL__";

/// Texts of the change types, by op.
const CHANGE_TYPES: [&str; 4] = ["APPEND", "DELETE", "UPDATE_BEFORE", "UPDATE_AFTER"];

/// Binds a stream. What a consuming statement would move goes to `consumption`.
pub(super) fn bind(
    session: &Session,
    stream: &Arc<TableStream>,
    scan: &ScanSpec,
    wanted: &Wanted<'_>,
    consumption: &mut Consumption,
) -> Result<Bound, SqlError> {
    if scan.incr.is_some() {
        return Err(SqlError::detail("Invalid param type for olap table stream"));
    }
    if scan.travel.is_some() || scan.tablets.is_some() {
        return Err(SqlError::not_served("tablets or past versions of a table stream"));
    }
    let table = base_table(session, stream)?;
    let read = Read::new(session, stream, &table, scan)?;
    match scan.stream_param {
        None => {
            for (partition, _) in &read.partitions {
                let from = stream.offset(*partition).map(|offset| offset.tso);
                consumption.add(stream, *partition, from, read.upper);
            }
            let batch = read.pending()?;
            let hidden: Vec<String> = [CHANGE_TYPE, SEQUENCE, LSN].iter().map(|name| (*name).to_owned()).collect();
            Ok((Relation::new(batch.schema(), Source::Rows(batch)), hidden))
        }
        Some(StreamParam::Snapshot) => {
            let Shown { schema, hidden } = columns::of_table(&table, wanted.named, false, false, false);
            Ok((Relation::new(schema, read.image()?), hidden))
        }
        Some(StreamParam::Reset) => {
            for (partition, _) in &read.partitions {
                let from = stream.offset(*partition).map(|offset| offset.tso);
                consumption.add(stream, *partition, from, read.upper);
            }
            let Shown { schema, hidden } = columns::of_table(&table, wanted.named, false, false, false);
            let (version, tablets) = (read.snapshot.version, read.snapshot.tablets);
            Ok((Relation::new(schema, Source::Tablets { version, tablets, show_deleted: false }), hidden))
        }
    }
}

/// The base table at one moment, with all its records.
struct Read<'a> {
    session: &'a Session,
    stream: &'a TableStream,
    table: &'a Arc<Table>,
    /// Ids and names of the partitions that are read.
    partitions: Vec<(u64, String)>,
    snapshot: crate::storage::Snapshot,
    records: Vec<Arc<crate::changelog::ChangeBatch>>,
    /// The TSO of the moment.
    upper: i64,
}

impl<'a> Read<'a> {
    fn new(
        session: &'a Session,
        stream: &'a TableStream,
        table: &'a Arc<Table>,
        scan: &ScanSpec,
    ) -> Result<Self, SqlError> {
        let engine = &session.engine;
        let mut partitions = partitions(table);
        if let Some(names) = &scan.partitions {
            let has = |list: &[String], name: &str| list.iter().any(|known| known.eq_ignore_ascii_case(name));
            let known: Vec<String> = partitions.iter().map(|(_, name)| name.clone()).collect();
            if let Some(unknown) = names.iter().find(|name| !has(&known, name)) {
                return Err(SqlError::detail(format!("Partition: {unknown} is not exists on table {}", table.name())));
            }
            partitions.retain(|(_, name)| has(names, name));
        }
        let (upper, snapshot, records) = {
            let _order = engine.commit_lock.lock();
            let (snapshot, records) = table.snapshot_with_changes(0);
            (engine.tso.status().current_tso, snapshot, records)
        };
        let mut read = Self { session, stream, table, partitions, snapshot, records, upper };
        let ids: Vec<u64> = read.partitions.iter().map(|(id, _)| *id).collect();
        let names: Vec<String> = read.partitions.iter().map(|(_, name)| name.clone()).collect();
        read.records.retain(|batch| ids.contains(&batch.partition));
        read.snapshot.tablets.retain(|tablet| names.iter().any(|name| name == snapshot_partition(table, tablet)));
        Ok(read)
    }

    /// The first TSO of a partition that is not consumed; `None`: all its rows are new.
    fn start(&self, partition: u64) -> Option<i64> {
        match self.stream.offset(partition) {
            Some(offset) => Some(offset.tso + 1),
            None if self.stream.initial_rows => None,
            None => Some(0),
        }
    }

    /// Changes behind the offsets, with the virtual columns.
    fn pending(&self) -> Result<RecordBatch, SqlError> {
        let profile = self.session.engine.profile();
        let retained = retained_from(self.table, &self.session.engine.tso.status());
        let starts: HashMap<u64, Option<i64>> = self.partitions.iter().map(|(id, _)| (*id, self.start(*id))).collect();
        let expired = starts.values().flatten().any(|start| *start > 0 && *start < retained);
        if expired && self.stream.kind == IncrType::MinDelta {
            return Err(SqlError::detail(Names::of(profile).expired()));
        }
        let mut records = self.records.clone();
        records.retain(|batch| {
            let start = starts.get(&batch.partition).copied().flatten();
            start.is_some_and(|start| batch.tso >= start.max(retained) && batch.tso <= self.upper)
        });
        let rows = ChangeRows::new(self.table, records, self.stream.kind, profile)?;
        let plain = self.schema(&[
            ("__DORIS_STREAM_TSO__", DataType::Int64),
            ("__DORIS_STREAM_LSN__", DataType::Int64),
            ("__DORIS_STREAM_OP__", DataType::Int64),
        ]);
        let schema = self.schema(&[(CHANGE_TYPE, DataType::Utf8), (SEQUENCE, DataType::Int64), (LSN, DataType::Int64)]);
        let mut batches = Vec::new();
        for chunk in 0..rows.chunks() {
            let batch = rows.read(chunk, &plain)?;
            let base = batch.num_columns() - 3;
            let ops = batch.column(base + 2).as_primitive::<Int64Type>();
            let kinds: StringArray = ops.values().iter().map(|op| CHANGE_TYPES.get(*op as usize).copied()).collect();
            let mut arrays = batch.columns()[..base].to_vec();
            arrays.extend([
                Arc::new(kinds) as ArrayRef,
                Arc::clone(batch.column(base)),
                Arc::clone(batch.column(base + 1)),
            ]);
            batches.push(RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(SqlError::detail)?);
        }
        for (id, name) in &self.partitions {
            if starts.get(id).copied().flatten().is_none() {
                batches.extend(self.initial(name, &schema)?);
            }
        }
        concat_batches(&schema, &batches).map_err(SqlError::detail)
    }

    /// All rows of a partition as appended, under the TSO of its last commit.
    fn initial(&self, partition: &str, schema: &SchemaRef) -> Result<Vec<RecordBatch>, SqlError> {
        let base = Arc::new(Schema::new(schema.fields()[..self.table.columns().len()].to_vec()));
        let tablets: Vec<_> =
            self.snapshot.tablets.iter().filter(|t| snapshot_partition(self.table, t) == partition).collect();
        let tso = tablets.iter().flat_map(|t| &t.rowsets).map(|rowset| rowset.tso()).max().unwrap_or_default();
        let mut out = Vec::new();
        let mut lsn = 1;
        for tablet in tablets {
            for (i, rowset) in tablet.rowsets.iter().enumerate() {
                let read = rowset.read(self.snapshot.version, tablet.index, i as u32, &base, false);
                let Some(batch) = read.map_err(SqlError::detail)? else { continue };
                let rows = batch.num_rows();
                let mut arrays = batch.columns().to_vec();
                arrays.push(Arc::new(StringArray::from(vec![CHANGE_TYPES[0]; rows])));
                arrays.push(Arc::new(Int64Array::from_value(tso, rows)));
                arrays.push(Arc::new(Int64Array::from_iter_values(lsn..lsn + rows as i64)));
                lsn += rows as i64;
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let batch = RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options);
                out.push(batch.map_err(SqlError::detail)?);
            }
        }
        Ok(out)
    }

    /// The base table at the offsets; partitions without one are empty.
    fn image(self) -> Result<Source, SqlError> {
        let profile = self.session.engine.profile();
        Travel::check(self.table, profile)?;
        let retained = retained_from(self.table, &self.session.engine.tso.status());
        let names: HashMap<&str, u64> = self.partitions.iter().map(|(id, name)| (name.as_str(), *id)).collect();
        let offset = |id: u64| self.stream.offset(id).map(|offset| offset.tso);
        let imaged = self.table.spec().changes.is_some_and(|changes| changes.before_image);
        let expired = self.partitions.iter().filter_map(|(id, _)| offset(*id)).any(|tso| tso + 1 < retained);
        if imaged && expired {
            return Err(SqlError::detail(Names::of(profile).expired()));
        }
        let mut records = self.records.clone();
        records.retain(|batch| imaged && offset(batch.partition).is_some_and(|tso| batch.tso > tso));
        let mut tablets = self.snapshot.tablets.clone();
        for tablet in &mut tablets {
            let id = names.get(snapshot_partition(self.table, tablet)).copied();
            let at = id.and_then(offset);
            tablet.rowsets.retain(|rowset| at.is_some_and(|tso| rowset.tso() <= tso));
        }
        let superseded = Arc::new(ChangeRows::superseded(self.table, records)?);
        Ok(Source::Past { version: self.snapshot.version, tablets, superseded })
    }

    /// Base columns, values nullable, and three more.
    fn schema(&self, more: &[(&str, DataType)]) -> SchemaRef {
        let mut fields: Vec<Field> = self
            .table
            .columns()
            .iter()
            .map(|c| c.field().as_ref().clone().with_nullable(c.nullable || !c.key))
            .collect();
        fields.extend(more.iter().map(|(name, ty)| Field::new(*name, ty.clone(), true)));
        Arc::new(Schema::new(fields))
    }
}
