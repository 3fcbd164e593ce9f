//! Whole reads against a server that is a list of changes, with paused time.

mod drift;
mod hand_over;
mod idle;
mod plans;
mod snapshots;
mod starts;
mod windows;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int8Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use chrono::NaiveDateTime;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::exec::{ChangelogRequest, DorisChangelogExec};
use super::idle::PartitionVersions;
use super::offsets::{OffsetStore, Offsets};
use super::reader::{ChangelogSpec, read_schema};
use super::server::{ChangelogServer, Rows};
use crate::checkpoint::{Epoch, SourcePosition};
use crate::error::{Error, Result};
use crate::options::{BoundedMode, MetadataColumn, OnExpired};
use crate::protocol::Tso;
use crate::sql::{HiddenColumns, IncrementType};
use crate::types::{DorisType, LocalTime, ServerZone, TableIdent};

/// 2026-01-01 00:00:10.500 UTC.
const START: i64 = 1_767_225_610_500;

#[derive(Debug, Clone)]
struct Change {
    at_ms: i64,
    lsn: i128,
    op: i8,
    id: i64,
    name: &'static str,
}

fn insert(at_ms: i64, id: i64, name: &'static str) -> Change {
    Change { at_ms, lsn: 1, op: 0, id, name }
}

/// How the server misbehaves, or differs by version.
#[derive(Debug, Default)]
struct Manners {
    start_exclusive: bool,
    old_names: bool,
    /// Error codes of the next window queries.
    failures: Mutex<Vec<u32>>,
    /// Hands out each change as a part of its own, in reverse.
    parts: bool,
    /// Batches end, the stream does not.
    stall: bool,
    zone: Option<ServerZone>,
    /// Changes before this instant are gone.
    kept_from_ms: i64,
    /// Tablets of the table; none = it cannot be split.
    tablets: Mutex<Vec<i64>>,
    versions: Versions,
    created_ms: Option<i64>,
    /// Questions for the time that find no timestamps yet.
    uncalibrated: AtomicUsize,
    /// From this instant on the column `name` is of another type, or gone.
    altered: Option<(i64, Altered)>,
}

/// What the server tells of the partitions' versions.
#[derive(Debug, Default)]
enum Versions {
    /// One more with each change.
    #[default]
    True,
    /// Those of a frontend that lags far behind.
    Stuck,
    Refused,
    TooMany,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Altered {
    Retyped,
    Dropped,
}

#[derive(Debug)]
struct FakeServer {
    begun: Instant,
    changes: Vec<Change>,
    rows: Vec<(i64, &'static str)>,
    manners: Manners,
    log: Mutex<Vec<String>>,
    polls: AtomicUsize,
    /// When rows of a window were handed out last.
    served: Mutex<Option<Instant>>,
}

impl FakeServer {
    fn new(changes: Vec<Change>, rows: Vec<(i64, &'static str)>, manners: Manners) -> Arc<Self> {
        let log = Mutex::default();
        Arc::new(Self {
            begun: Instant::now(),
            changes,
            rows,
            manners,
            log,
            polls: AtomicUsize::new(0),
            served: Mutex::default(),
        })
    }

    fn now(&self) -> i64 {
        START + i64::try_from(self.begun.elapsed().as_millis()).unwrap()
    }

    /// Statements that read a window of the table's columns.
    fn windows(&self) -> Vec<String> {
        self.log.lock().iter().filter(|sql| sql.contains("SELECT `id`, ") && sql.contains("@incr")).cloned().collect()
    }

    /// The first TSO that is left, or one of a range.
    fn lookup(&self, sql: &str, start: i64, end: i64, stem: &str) -> Rows {
        let inside = |change: &&Change| start <= change.at_ms && change.at_ms < end;
        let mut tsos: Vec<i64> = self.kept().filter(inside).map(|change| change.at_ms << 18).collect();
        let batch = if sql.contains(" MIN(") {
            let first = Int64Array::from(vec![tsos.into_iter().min()]);
            RecordBatch::try_from_iter([("first_tso", Arc::new(first) as ArrayRef)])
        } else {
            let number = |mark: &str| -> i64 {
                let rest = &sql[sql.rfind(mark).unwrap() + mark.len()..];
                rest.split(' ').next().unwrap().parse().unwrap()
            };
            let (from, to) = (number(" >= "), number(" < "));
            tsos.retain(|tso| from <= *tso && *tso < to);
            RecordBatch::try_from_iter([(
                format!("__DORIS_{stem}_TSO__"),
                Arc::new(Int64Array::from_iter_values(tsos.into_iter().take(1))) as ArrayRef,
            )])
        };
        let batch = batch.unwrap();
        Rows { schema: batch.schema(), parts: 1, batches: futures::stream::iter([Ok(batch)]).boxed() }
    }

    fn kept(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.at_ms >= self.manners.kept_from_ms)
    }

    fn window(&self, sql: &str) -> Result<Rows> {
        let text = |key: &str| {
            let from = sql.find(&format!("'{key}' = '")).unwrap() + key.len() + 6;
            let time = NaiveDateTime::parse_from_str(&sql[from..from + 19], "%Y-%m-%d %H:%M:%S").unwrap();
            time.and_utc().timestamp_millis()
        };
        let (start, end) = (text("startTimestamp"), text("endTimestamp"));
        assert!(end < self.now(), "a window must end before the server's time");
        let stem = if self.manners.old_names { "BINLOG" } else { "CHANGELOG" };
        if sql.contains(" MIN(") || sql.ends_with("LIMIT 1") {
            assert!(sql.contains(&format!("`__DORIS_{stem}_TSO__`")), "{sql}");
            return Ok(self.lookup(sql, start, end, stem));
        }
        if !sql.contains(&format!("__DORIS_{stem}_OP__")) {
            let unknown = sql.split('`').find(|name| name.starts_with("__DORIS_") && !name.contains(stem));
            let unknown = unknown.unwrap_or_else(|| sql.split('`').find(|name| name.contains("_KIND__")).unwrap());
            return Err(server_error(1054, &format!("Unknown column '{unknown}' in 'table list'")));
        }
        let business = sql.contains("SELECT `id`, ");
        if business && let Some(code) = self.manners.failures.lock().pop() {
            return Err(server_error(code, "not now"));
        }
        let altered = self.manners.altered.filter(|(from_ms, _)| business && *from_ms <= self.now());
        let altered = altered.map(|(_, altered)| altered);
        if altered == Some(Altered::Dropped) {
            return Err(server_error(1105, "errCode = 2, detailMessage = Unknown column 'name' in 'table list'"));
        }
        let inside = |change: &&Change| match self.manners.start_exclusive {
            true => start < change.at_ms && change.at_ms <= end,
            false => start <= change.at_ms && change.at_ms < end,
        };
        let mut found: Vec<Change> = self.kept().filter(inside).cloned().collect();
        match sql.contains("'MIN_DELTA'") {
            true => found.sort_by_key(|change| (change.id, change.op)),
            false => found.sort_by_key(|change| (change.at_ms, change.lsn, change.op)),
        }
        let mut parts: Vec<Vec<Change>> = vec![found];
        if self.manners.parts {
            parts = parts.remove(0).into_iter().rev().map(|change| vec![change]).collect();
        }
        let batches: Vec<RecordBatch> = parts.iter().map(|part| change_batch(part, stem, business)).collect();
        let mut schema = change_batch(&[], stem, business).schema();
        if altered == Some(Altered::Retyped) {
            let retyped = |field: &Arc<Field>| match field.name().as_str() {
                "name" => Arc::new(Field::new("name", DataType::Int64, true)),
                _ => Arc::clone(field),
            };
            schema = Arc::new(Schema::new(schema.fields().iter().map(retyped).collect::<Vec<_>>()));
        }
        if batches.iter().any(|batch| batch.num_rows() > 0) {
            *self.served.lock() = Some(Instant::now());
        }
        let batches = futures::stream::iter(batches.into_iter().map(Ok));
        let batches = match self.manners.stall && business {
            true => batches.chain(futures::stream::pending()).boxed(),
            false => batches.boxed(),
        };
        Ok(Rows { schema, parts: parts.len(), batches })
    }
}

fn server_error(code: u32, message: &str) -> Error {
    Error::Server {
        host: "fe:8070".into(),
        operation: "the statement".into(),
        code: Some(code),
        message: message.into(),
    }
}

/// Hidden columns first, and the LSN as text: only names may matter.
fn change_batch(changes: &[Change], stem: &str, business: bool) -> RecordBatch {
    let mut columns: Vec<(String, ArrayRef)> = vec![
        (
            format!("__DORIS_{stem}_LSN__"),
            Arc::new(StringArray::from_iter_values(changes.iter().map(|change| change.lsn.to_string()))),
        ),
        (
            format!("__DORIS_{stem}_TSO__"),
            Arc::new(Int64Array::from_iter_values(changes.iter().map(|change| change.at_ms << 18))),
        ),
        (format!("__DORIS_{stem}_OP__"), Arc::new(Int8Array::from_iter_values(changes.iter().map(|change| change.op)))),
    ];
    if business {
        columns
            .insert(1, ("id".into(), Arc::new(Int64Array::from_iter_values(changes.iter().map(|change| change.id)))));
        columns
            .push(("name".into(), Arc::new(StringArray::from_iter_values(changes.iter().map(|change| change.name)))));
    }
    RecordBatch::try_from_iter(columns).unwrap()
}

#[async_trait]
impl ChangelogServer for FakeServer {
    fn with_columns(&self, columns: Arc<[String]>) -> Arc<dyn ChangelogServer> {
        panic!("it always gives the same columns, not {columns:?}")
    }

    async fn now_ms(&self) -> Result<i64> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.log.lock().push("tso".into());
        let uncalibrated = &self.manners.uncalibrated;
        if uncalibrated.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(server_error(1105, "TSO timestamp is not calibrated, please check"));
        }
        Ok(self.now())
    }

    async fn time_zone(&self) -> Result<ServerZone> {
        Ok(self.manners.zone.unwrap_or(ServerZone::UTC))
    }

    async fn tablets(&self) -> Result<Vec<i64>> {
        Ok(self.manners.tablets.lock().clone())
    }

    fn tablets_per_statement(&self) -> usize {
        1
    }

    async fn snapshot_statements(&self, as_of: Option<Tso>, tablets: &[i64]) -> Result<Vec<String>> {
        if let Some(tso) = as_of {
            self.log.lock().push(format!("as of {tso}"));
        }
        if !self.manners.tablets.lock().is_empty() {
            let all = self.manners.tablets.lock().clone();
            let tablets = if tablets.is_empty() { &all } else { tablets };
            return Ok(tablets.iter().map(|id| format!("tablet {id}")).collect());
        }
        Ok(vec!["snapshot 0".into(), "snapshot 1".into()])
    }

    async fn created_after_ms(&self) -> Result<Option<i64>> {
        Ok(self.manners.created_ms)
    }

    async fn partition_versions(&self) -> Result<Option<PartitionVersions>> {
        self.log.lock().push("versions".into());
        let published = self.changes.iter().filter(|change| change.at_ms <= self.now()).count();
        let pair = |id: usize, version: usize| (id.to_string(), version.to_string());
        Ok(Some(PartitionVersions::new(match self.manners.versions {
            Versions::True => vec![pair(1, published)],
            Versions::Stuck => vec![pair(1, 0)],
            Versions::Refused => return Err(server_error(1142, "SHOW PARTITIONS denied")),
            Versions::TooMany => (0..1001).map(|id| pair(id, published)).collect(),
        })))
    }

    async fn query(&self, sql: &str) -> Result<Rows> {
        self.log.lock().push(sql.to_string());
        let part = |prefix: &str| sql.strip_prefix(prefix).map(|part| part.parse::<i64>().unwrap());
        let (part, parts) = match (part("snapshot "), part("tablet ")) {
            (Some(split), _) => (split, 2),
            (None, Some(tablet)) => (tablet, 100),
            (None, None) => return self.window(sql),
        };
        let rows: Vec<_> = self.rows.iter().filter(|row| row.0 % parts == part).collect();
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))) as ArrayRef),
            ("name", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1))) as ArrayRef),
        ]);
        let batch = batch.unwrap();
        Ok(Rows { schema: batch.schema(), parts: 1, batches: futures::stream::iter([Ok(batch)]).boxed() })
    }
}

fn spec(snapshot: bool, bounded: bool) -> ChangelogSpec {
    let fields = vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)];
    ChangelogSpec {
        table: TableIdent::new("db", "t"),
        columns: Arc::new(["id".to_string(), "name".to_string()]),
        types: Arc::new([DorisType::BigInt, DorisType::String]),
        key: Arc::new(["id".to_string()]),
        key_types: Arc::new([DorisType::BigInt]),
        hidden: None,
        metadata: Arc::new([]),
        schema: read_schema(fields, &[], "__change_kind"),
        snapshot,
        exact_snapshot: false,
        start: None,
        end: bounded.then_some(BoundedMode::Latest),
        increment_type: IncrementType::Detail,
        poll_interval: Duration::from_secs(10),
        max_window: Duration::from_secs(3600),
        visible_wait_timeout: Duration::from_secs(300),
        time_to_live: None,
        on_expired: OnExpired::Fail,
    }
}

fn node(server: &Arc<FakeServer>, snapshot: bool, bounded: bool) -> DorisChangelogExec {
    node_of(server, spec(snapshot, bounded))
}

fn node_of(server: &Arc<FakeServer>, spec: ChangelogSpec) -> DorisChangelogExec {
    let projection = (0..spec.schema.fields().len()).collect();
    let request = ChangelogRequest {
        spec,
        filters: vec![],
        projection,
        append_only: false,
        old_values: true,
        tablets_per_split: 1,
        offsets: None,
    };
    DorisChangelogExec::with_server(Arc::clone(server) as Arc<dyn ChangelogServer>, request).unwrap()
}

fn rows_of(batch: &RecordBatch) -> Vec<String> {
    let (ids, names) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string::<i32>());
    let kinds = batch.column(2).as_string::<i32>();
    (0..batch.num_rows())
        .map(|row| {
            format!("{}{}{}", kinds.value(row), ids.value(row), if names.is_null(row) { "" } else { names.value(row) })
        })
        .collect()
}

fn execute(node: &DorisChangelogExec) -> SendableRecordBatchStream {
    node.execute(0, Arc::new(TaskContext::default())).unwrap()
}

async fn drain(node: &DorisChangelogExec) -> datafusion::error::Result<Vec<String>> {
    let mut stream = execute(node);
    let mut rows = Vec::new();
    while let Some(batch) = stream.next().await {
        rows.extend(rows_of(&batch?));
    }
    Ok(rows)
}

/// Reads the free-running `node` for some time of the paused clock.
async fn read_for(node: &DorisChangelogExec, time: Duration) -> Vec<String> {
    let mut stream = execute(node);
    let mut rows = Vec::new();
    let end = tokio::time::sleep(time);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return rows,
            batch = stream.next() => rows.extend(rows_of(&batch.unwrap().unwrap())),
        }
    }
}
