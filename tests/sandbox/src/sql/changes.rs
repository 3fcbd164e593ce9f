//! Relations that read changes: `t@incr(…)`, the table function of raw records, and a table as it was.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::columns::{self, Shown};
use super::ddl;
use super::lexer::Tok;
use super::provider::{Relation, Source};
use super::relations::{RawSpec, ScanSpec};
use crate::changelog::{ChangeBatch, ChangeRows, Fence, FenceRequest, Incr, Names, Travel, raw_schema, retained_from};
use crate::engine::Profile;
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::{Table, TabletSnapshot};

/// Takes the fence that the incremental relations of a statement share; `None` without any.
pub(super) async fn fence(session: &Session, scans: &[ScanSpec]) -> Result<Option<Fence>, SqlError> {
    let engine = &session.engine;
    let mut request = FenceRequest::default();
    let mut any = false;
    for scan in scans.iter().filter(|scan| scan.incr.is_some()) {
        let (db, name) = ddl::resolve(session, scan.parts.clone())?;
        if db.eq_ignore_ascii_case("information_schema") {
            continue;
        }
        // What is no table is refused where it is bound.
        let Ok(table) = engine.table_handle(&db, &name) else { continue };
        let incr = checked(session, &table, scan)?;
        request.add(engine.catalog.database_id(&db)?, table.id(), incr.end_ms);
        any = true;
    }
    if any { request.acquire(session).await.map(Some) } else { Ok(None) }
}

fn checked(session: &Session, table: &Table, scan: &ScanSpec) -> Result<Incr, SqlError> {
    let profile = session.engine.profile();
    if !profile.has_changes() {
        return Err(SqlError::not_served(format!("@incr in profile {profile}")));
    }
    let spec = scan.incr.clone().unwrap_or_default();
    spec.check(table, profile, &session.variables.zone())
}

/// Only the records of the partitions and tablets that the relation names.
struct Places {
    partitions: Option<HashSet<u64>>,
    tablets: Option<HashSet<u64>>,
}

impl Places {
    fn of(table: &Table, scan: &ScanSpec) -> Result<Self, SqlError> {
        let tablets = scan.tablets.as_ref().map(|ids| ids.iter().copied().collect());
        Ok(Self { partitions: partition_ids(table, scan.partitions.as_deref())?, tablets })
    }

    fn keep(&self, records: &mut Vec<Arc<ChangeBatch>>) {
        records.retain(|batch| {
            self.partitions.as_ref().is_none_or(|ids| ids.contains(&batch.partition))
                && self.tablets.as_ref().is_none_or(|ids| ids.contains(&batch.tablet))
        });
    }
}

/// Ids of named partitions.
fn partition_ids(table: &Table, names: Option<&[String]>) -> Result<Option<HashSet<u64>>, SqlError> {
    let Some(names) = names else { return Ok(None) };
    Ok(Some(table.partition_ids(names)?.into_iter().collect()))
}

/// Ids and names of the partitions.
pub(super) fn partitions(table: &Table) -> Vec<(u64, String)> {
    table.partitions().into_iter().map(|partition| (partition.id, partition.name)).collect()
}

/// Name of the partition that a tablet is in.
pub(super) fn snapshot_partition<'a>(_table: &'a Table, tablet: &'a TabletSnapshot) -> &'a str {
    &tablet.partition
}

/// A relation and the columns in it that `*` leaves out.
pub(super) type Bound = (Relation, Vec<String>);

/// Hidden columns as a statement asks for them.
pub(super) struct Wanted<'a> {
    pub(super) named: &'a HashSet<String>,
    pub(super) show_hidden: bool,
}

/// `t@incr(…)`
pub(super) fn incr(
    session: &Session,
    table: &Arc<Table>,
    scan: &ScanSpec,
    fence: &Fence,
    wanted: &Wanted<'_>,
) -> Result<Bound, SqlError> {
    if scan.travel.is_some() {
        return Err(SqlError::detail("FOR VERSION/TIME AS OF cannot be used with @incr"));
    }
    let profile = session.engine.profile();
    let incr = checked(session, table, scan)?;
    let (from, to) = incr.window(table, profile, fence)?;
    let mut records = table.changes(from, to);
    Places::of(table, scan)?.keep(&mut records);
    let rows = ChangeRows::new(table, records, incr.kind, profile)?;
    let Shown { schema, hidden } = columns::of_changes(table, profile, wanted.named, wanted.show_hidden);
    Ok((Relation::new(schema, Source::Changes(Arc::new(rows))), hidden))
}

/// `t FOR TIME AS OF …`: rows of the time that are still there, and those that later changes superseded.
pub(super) fn past(
    session: &Session,
    table: &Arc<Table>,
    scan: &ScanSpec,
    travel: &Travel,
    wanted: &Wanted<'_>,
) -> Result<Bound, SqlError> {
    let engine = &session.engine;
    let profile = engine.profile();
    if !profile.has_changes() {
        return Err(SqlError::not_served(format!("FOR VERSION/TIME AS OF in profile {profile}")));
    }
    Travel::check(table, profile)?;
    if wanted.show_hidden || wanted.named.contains(crate::storage::COMMIT_TSO_COL) {
        return Err(SqlError::not_served("hidden columns of a table as it was"));
    }
    let target = travel.target(&session.variables.zone(), profile)?;
    let places = Places::of(table, scan)?;
    let (mut snapshot, mut records) = table.snapshot_with_changes(target.saturating_add(1));
    if let Some(ids) = &places.tablets
        && let Some(unknown) = ids.iter().find(|id| !snapshot.tablets.iter().any(|t| t.id == **id))
    {
        return Err(SqlError::detail(format!("Invalid tablet id: {unknown} for table {}", table.name())));
    }
    let needs_records = table.spec().changes.is_some_and(|changes| changes.before_image);
    let now = engine.tso.status();
    let created = table.spec().created_ms << crate::changelog::LOGICAL_BITS;
    // Before its creation the table is empty, whatever was cleaned up.
    if needs_records && target >= created && target.saturating_add(1) < retained_from(table, &now) {
        return Err(SqlError::detail(Names::of(profile).expired()));
    }
    places.keep(&mut records);
    snapshot.tablets.retain(|tablet| places.tablets.as_ref().is_none_or(|ids| ids.contains(&tablet.id)));
    if let Some(names) = &scan.partitions {
        snapshot.tablets.retain(|tablet| names.iter().any(|name| name.eq_ignore_ascii_case(&tablet.partition)));
    }
    for tablet in &mut snapshot.tablets {
        tablet.rowsets.retain(|rowset| rowset.tso() <= target);
    }
    let Shown { schema, hidden } = columns::of_table(table, wanted.named, false, false, false);
    let changed = if needs_records { records } else { Vec::new() };
    let source = Source::Past {
        version: snapshot.version,
        tablets: snapshot.tablets,
        superseded: Arc::new(ChangeRows::superseded(table, changed)?),
    };
    Ok((Relation::new(schema, source), hidden))
}

/// `binlog("table" = "t", …)`: records as they are stored, expired ones included until they are cleaned up.
pub(super) fn raw(session: &Session, spec: &RawSpec) -> Result<Relation, SqlError> {
    let profile = session.engine.profile();
    let mut parts: Vec<String> = spec.db.iter().cloned().collect();
    parts.push(spec.table.clone());
    let (db, name) = ddl::resolve(session, parts)?;
    let table = session.engine.table_handle(&db, &name)?;
    if table.spec().changes.is_none() {
        return Err(SqlError::detail(format!("table {name} doesn't enable row binlog")));
    }
    let scan = ScanSpec { partitions: spec.partitions.clone(), tablets: spec.tablets.clone(), ..ScanSpec::default() };
    let mut records = table.changes(0, i64::MAX);
    Places::of(&table, &scan)?.keep(&mut records);
    let rows = ChangeRows::raw(records);
    Ok(Relation::new(raw_schema(&table, profile), Source::Changes(Arc::new(rows))))
}

/// Whether a word is the table function of raw records in this build.
pub(super) fn is_raw_function(profile: Profile, word: &str) -> bool {
    profile.has_changes() && word.eq_ignore_ascii_case(Names::of(profile).stem)
}

/// `PREAGGOPEN` says that pre-aggregated rows may be read: not for incremental relations.
pub(super) fn check_hints(hints: &[String], tokens: &[Tok]) -> Result<(), SqlError> {
    let hinted = hints.iter().any(|hint| hint.trim().eq_ignore_ascii_case("PREAGGOPEN"));
    let incremental = tokens.windows(2).any(|pair| {
        pair[0].token == Token::AtSign
            && matches!(&pair[1].token, Token::Word(word) if word.value.eq_ignore_ascii_case("incr"))
    });
    if hinted && incremental {
        return Err(SqlError::detail("PREAGGOPEN hint is not supported for INCR query"));
    }
    Ok(())
}
