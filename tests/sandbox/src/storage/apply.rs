//! Commits, and the changes of the set of partitions.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::buffer::{LoadBuffer, Pieces};
use super::compaction::compact;
use super::definition::Definition;
use super::partition::PartitionSpec;
use super::rowset::{Rowset, RowsetEntry};
use super::table::{Partition, Table, TableState, ids_of};
use super::{KeysType, aggregate, partial, unique};
use crate::changelog::ChangeBatch;
use crate::error::SqlError;
use crate::txn::Overwrite;

/// The moment of a commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Commit {
    /// Its TSO, greater than that of every commit before.
    pub(crate) tso: i64,
    /// Wall clock.
    pub(crate) now_ms: i64,
    /// Small rowsets may be merged.
    pub(crate) compaction: bool,
    /// First of the ids for partitions that the load replaces.
    pub(crate) first_id: u64,
}

impl Table {
    /// Whether the schema is another than the one a load was planned with.
    pub(crate) fn schema_changed_since(&self, buffer: &LoadBuffer) -> bool {
        self.shared.state.read().def.schema_version != buffer.def.schema_version
    }

    /// Makes the rows of a load visible. Callers hold the engine's commit lock.
    pub(crate) fn apply(&self, buffer: &LoadBuffer, commit: Commit) -> Result<(), SqlError> {
        let pieces = buffer.take()?;
        let mut state = self.shared.state.write();
        let state = &mut *state;
        if state.dropped {
            return Err(SqlError::unknown_table(self.database(), self.name()));
        }
        let def = Arc::clone(&state.def);
        let version = state.version + 1;
        // UPDATE and DELETE hold positions of rows between their scan and their write.
        let quiet = self.shared.dml_lock.try_lock();
        let compaction = commit.compaction
            && quiet.is_ok()
            && def.spec.changes.is_none()
            && def.spec.properties.get("disable_auto_compaction").map(String::as_str) != Some("true");
        // LSNs order the records of one transaction.
        let mut next_lsn = 1;
        let mut replaced = replace(state, buffer, &pieces, commit);
        for Pieces { partition, bucket, batches } in pieces {
            let partition = replaced.get(&partition).copied().unwrap_or(partition);
            // Rows of partitions that were dropped or truncated meanwhile are lost, as on the server.
            let Some(at) = state.partitions.iter().position(|p| p.id == partition) else { continue };
            let batches = self.prepare(state, at, bucket, buffer, batches, &def, commit)?;
            next_lsn = write(state, at, bucket, batches, &def, (version, commit.tso, next_lsn))?;
            if compaction {
                compact(&mut state.partitions[at].tablets[bucket], &def)?;
            }
        }
        for target in buffer.targets() {
            let id = replaced.remove(&target.partition).unwrap_or(target.partition);
            if let Some(partition) = state.partitions.iter_mut().find(|p| p.id == id) {
                partition.version += 1;
                partition.version_time_ms = commit.now_ms;
            }
        }
        state.version = version;
        state.version_time_ms = commit.now_ms;
        Ok(())
    }

    /// Rows of the current schema: partial ones are filled, those of an older schema follow it.
    #[allow(clippy::too_many_arguments)]
    fn prepare(
        &self,
        state: &TableState,
        at: usize,
        bucket: usize,
        buffer: &LoadBuffer,
        batches: Vec<RecordBatch>,
        def: &Definition,
        commit: Commit,
    ) -> Result<Vec<RecordBatch>, SqlError> {
        if let Some(plan) = &buffer.partial {
            let tablet = &state.partitions[at].tablets[bucket];
            return partial::resolve(tablet, def, plan, &batches, &self.shared.auto, commit.now_ms);
        }
        if buffer.def.schema_version == def.schema_version {
            return Ok(batches);
        }
        batches.iter().map(|batch| def.adapt(&buffer.def, batch, commit.now_ms)).collect()
    }

    /// Empties the table, or some of its partitions; their pending change records are lost with the rows. `ids` gives as
    /// many new ids as it is asked for.
    ///
    /// # Errors
    /// The text for a partition that is not there.
    pub(crate) fn truncate(
        &self,
        names: Option<&[String]>,
        ids: impl Fn(u64) -> u64,
        now_ms: i64,
    ) -> Result<(), SqlError> {
        let chosen = names.map(|names| self.partition_ids(names)).transpose()?;
        let mut state = self.shared.state.write();
        for at in 0..state.partitions.len() {
            let partition = &state.partitions[at];
            if chosen.as_ref().is_some_and(|chosen| !chosen.contains(&partition.id)) {
                continue;
            }
            let old = partition.id;
            let spec = partition.spec();
            let first = ids(ids_of(spec.buckets));
            state.partitions[at] = Partition::new(spec, first, now_ms);
            state.changes.retain(|batch| batch.partition != old);
        }
        state.epoch += 1;
        state.version += 1;
        state.version_time_ms = now_ms;
        Ok(())
    }

    /// Adds a partition.
    ///
    /// # Errors
    /// A partition of this name, or one that shares rows with it.
    pub(crate) fn add_partition(
        &self,
        spec: PartitionSpec,
        if_not_exists: bool,
        ids: impl Fn(u64) -> u64,
        now_ms: i64,
    ) -> Result<(), SqlError> {
        let mut state = self.shared.state.write();
        if state.partition(&spec.name).is_some() {
            return if if_not_exists {
                Ok(())
            } else {
                Err(SqlError::coded(1517, format!("Duplicate partition name {}", spec.name)))
            };
        }
        let partitioning = self.spec().partitioning.as_ref();
        if let Some(other) = spec.bounds.conflict(state.partitions.iter().map(|p| &p.bounds)) {
            return Err(SqlError::detail(format!(
                "Range {} is intersected with range: {}",
                spec.bounds.shown(partitioning),
                other.shown(partitioning)
            )));
        }
        let first = ids(ids_of(spec.buckets));
        state.partitions.push(Partition::new(spec, first, now_ms));
        Ok(())
    }

    /// Drops a partition with its rows and pending change records.
    ///
    /// # Errors
    /// The text for a partition that is not there.
    pub(crate) fn drop_partition(&self, name: &str, if_exists: bool) -> Result<(), SqlError> {
        let mut state = self.shared.state.write();
        let Some(at) = state.partition(name) else {
            return if if_exists {
                Ok(())
            } else {
                Err(SqlError::coded(1507, format!("Error in list of partitions to DROP: {name}")))
            };
        };
        let gone = state.partitions.remove(at);
        state.changes.retain(|batch| batch.partition != gone.id);
        state.epoch += 1;
        state.version += 1;
        Ok(())
    }

    /// Renames a partition.
    ///
    /// # Errors
    /// The text for a partition that is not there, or a name that is taken.
    pub(crate) fn rename_partition(&self, name: &str, new: &str) -> Result<(), SqlError> {
        let mut state = self.shared.state.write();
        if state.partition(new).is_some() {
            return Err(SqlError::coded(1517, format!("Duplicate partition name {new}")));
        }
        let at = state.partition(name).ok_or_else(|| self.unknown_partition(name))?;
        state.partitions[at].name = new.into();
        Ok(())
    }
}

/// Empties the partitions that a load replaces; gives the new id of each.
fn replace(state: &mut TableState, buffer: &LoadBuffer, pieces: &[Pieces], commit: Commit) -> HashMap<u64, u64> {
    let mut ids = HashMap::new();
    if buffer.overwrite == Overwrite::No {
        return ids;
    }
    let mut next = commit.first_id;
    for target in buffer.targets() {
        let touched = buffer.overwrite == Overwrite::Targets || pieces.iter().any(|p| p.partition == target.partition);
        let Some(at) = state.partitions.iter().position(|p| touched && p.id == target.partition) else { continue };
        let spec = state.partitions[at].spec();
        ids.insert(target.partition, next);
        state.changes.retain(|batch| batch.partition != target.partition);
        let buckets = spec.buckets;
        state.partitions[at] = Partition::new(spec, next, commit.now_ms);
        next += ids_of(buckets);
    }
    state.epoch += 1;
    ids
}

/// Adds batches of the current schema to a tablet, and their change records to the table; `moment` is version, TSO and the
/// next LSN. Gives the LSN after the last record.
fn write(
    state: &mut TableState,
    at: usize,
    bucket: usize,
    batches: Vec<RecordBatch>,
    def: &Definition,
    moment: (u64, i64, i64),
) -> Result<i64, SqlError> {
    let (version, tso, mut next_lsn) = moment;
    let partition = &mut state.partitions[at];
    let partition_id = partition.id;
    let tablet = &mut partition.tablets[bucket];
    match def.spec.keys_type {
        KeysType::Duplicate => {
            for batch in batches {
                let first_lsn = next_lsn;
                if def.spec.changes.is_some() {
                    let place = (partition_id, tablet.id);
                    state.changes.push(Arc::new(ChangeBatch::inserts(tso, first_lsn, place, batch.clone())));
                    next_lsn += batch.num_rows() as i64;
                }
                tablet.rows += batch.num_rows() as u64;
                let rowset = Rowset { version, tso, first_lsn, batch, has_delete_sign: false, versions: None };
                tablet.rowsets.push(RowsetEntry::new(rowset));
            }
        }
        KeysType::Unique => {
            for mut change in unique::upsert(tablet, batches, def, version, tso)? {
                change.partition = partition_id;
                change.first_lsn = next_lsn;
                next_lsn += change.ops.len() as i64;
                state.changes.push(Arc::new(change));
            }
        }
        KeysType::Aggregate => aggregate::merge(tablet, def, batches, version, tso)?,
    }
    Ok(next_lsn)
}
