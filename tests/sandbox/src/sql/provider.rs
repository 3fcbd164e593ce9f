//! Snapshots, change windows and system tables as DataFusion tables.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

use crate::changelog::ChangeRows;
use crate::storage::TabletSnapshot;

/// Rows per batch of a scan.
const BATCH_ROWS: usize = 8192;
/// Rowsets below this many rows are joined to larger batches.
const SMALL_ROWS: usize = 1024;

/// Where the rows of a relation are.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Tablets at one version.
    Tablets { version: u64, tablets: Vec<TabletSnapshot>, show_deleted: bool },
    /// A past moment: tablets with the rowsets of the time, and rows that later changes superseded.
    Past { version: u64, tablets: Vec<TabletSnapshot>, superseded: Arc<ChangeRows> },
    /// A window of changes.
    Changes(Arc<ChangeRows>),
    /// Rows made for the statement.
    Rows(RecordBatch),
}

/// A relation of one statement.
#[derive(Clone)]
pub(super) struct Relation {
    schema: SchemaRef,
    source: Source,
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relation").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Relation {
    pub(super) fn new(schema: SchemaRef, source: Source) -> Self {
        Self { schema, source }
    }
}

#[async_trait]
impl TableProvider for Relation {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        let partitions: Vec<Arc<dyn PartitionStream>> = match &self.source {
            Source::Tablets { version, tablets, show_deleted } => {
                scans(&schema, *version, tablets, *show_deleted).collect()
            }
            Source::Past { version, tablets, superseded } => {
                let changes = ChangeScan { schema: Arc::clone(&schema), rows: Arc::clone(superseded) };
                scans(&schema, *version, tablets, false)
                    .chain([Arc::new(changes) as Arc<dyn PartitionStream>])
                    .collect()
            }
            Source::Changes(rows) => {
                vec![Arc::new(ChangeScan { schema: Arc::clone(&schema), rows: Arc::clone(rows) })]
            }
            Source::Rows(batch) => {
                let batch = match projection {
                    Some(columns) => batch.project(columns)?,
                    None => batch.clone(),
                };
                vec![Arc::new(BatchScan { schema: Arc::clone(&schema), batch })]
            }
        };
        if partitions.is_empty() {
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, None, false, limit)?))
    }
}

fn scans(
    schema: &SchemaRef,
    version: u64,
    tablets: &[TabletSnapshot],
    show_deleted: bool,
) -> impl Iterator<Item = Arc<dyn PartitionStream>> {
    tablets.iter().filter(|tablet| !tablet.rowsets.is_empty()).map(move |tablet| {
        let tablet = tablet.clone();
        Arc::new(TabletScan { schema: Arc::clone(schema), version, tablet, show_deleted }) as Arc<dyn PartitionStream>
    })
}

fn adapt(
    schema: &SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch>> + Send + 'static,
) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), futures::stream::iter(batches)))
}

struct TabletScan {
    schema: SchemaRef,
    version: u64,
    tablet: TabletSnapshot,
    show_deleted: bool,
}

impl fmt::Debug for TabletScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TabletScan({})", self.tablet.id)
    }
}

impl PartitionStream for TabletScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _ctx: Arc<TaskContext>) -> SendableRecordBatchStream {
        let reader = TabletReader {
            schema: Arc::clone(&self.schema),
            version: self.version,
            tablet: self.tablet.clone(),
            show_deleted: self.show_deleted,
            next: 0,
            current: None,
        };
        adapt(&self.schema, reader)
    }
}

/// Reads a tablet rowset by rowset, joining small ones and cutting large ones.
struct TabletReader {
    schema: SchemaRef,
    version: u64,
    tablet: TabletSnapshot,
    show_deleted: bool,
    next: usize,
    current: Option<(RecordBatch, usize)>,
}

impl TabletReader {
    fn load(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let mut small: Vec<RecordBatch> = Vec::new();
        let mut rows = 0;
        while self.next < self.tablet.rowsets.len() {
            let entry = &self.tablet.rowsets[self.next];
            if rows > 0 && entry.physical_rows() >= SMALL_ROWS {
                break;
            }
            let index = self.next as u32;
            self.next += 1;
            let batch = entry.read(self.version, self.tablet.index, index, &self.schema, self.show_deleted)?;
            let Some(batch) = batch else { continue };
            if entry.physical_rows() >= SMALL_ROWS {
                return Ok(Some(batch));
            }
            rows += batch.num_rows();
            small.push(batch);
            if rows >= BATCH_ROWS {
                break;
            }
        }
        match small.len() {
            0 => Ok(None),
            1 => Ok(small.pop()),
            _ if self.schema.fields().is_empty() => {
                let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(Arc::clone(&self.schema), vec![], &options).map(Some)
            }
            _ => concat_batches(&self.schema, &small).map(Some),
        }
    }
}

impl Iterator for TabletReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((batch, at)) = &mut self.current {
                let left = batch.num_rows() - *at;
                if left > 0 {
                    let piece = batch.slice(*at, left.min(BATCH_ROWS));
                    *at += piece.num_rows();
                    return Some(Ok(piece));
                }
                self.current = None;
            }
            match self.load() {
                Ok(Some(batch)) => self.current = Some((batch, 0)),
                Ok(None) => return None,
                Err(error) => {
                    self.next = self.tablet.rowsets.len();
                    return Some(Err(DataFusionError::from(error)));
                }
            }
        }
    }
}

struct ChangeScan {
    schema: SchemaRef,
    rows: Arc<ChangeRows>,
}

impl fmt::Debug for ChangeScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangeScan")
    }
}

impl PartitionStream for ChangeScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _ctx: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = Arc::clone(&self.rows);
        let schema = Arc::clone(&self.schema);
        let read = move |chunk: usize| {
            rows.read(chunk, &schema).map_err(|error| DataFusionError::Execution(error.text().to_owned()))
        };
        adapt(&self.schema, (0..self.rows.chunks()).map(read))
    }
}

struct BatchScan {
    schema: SchemaRef,
    batch: RecordBatch,
}

impl fmt::Debug for BatchScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BatchScan")
    }
}

impl PartitionStream for BatchScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _ctx: Arc<TaskContext>) -> SendableRecordBatchStream {
        adapt(&self.schema, std::iter::once(Ok(self.batch.clone())))
    }
}
