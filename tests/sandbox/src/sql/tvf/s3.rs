//! `S3(...)`: lists the files, finds their columns, and reads them as a stream.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, new_null_array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session as PlanSession, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use tokio::runtime::Handle;

use super::parquet;
use super::properties::{Compression, Format, S3Properties, compression_of};
use super::text::{self, ObjectReader, Rows, Stop};
use crate::error::SqlError;
use crate::types::{DorisType, SessionZone, conform_in};

/// Files that are read at the same time.
const PARALLEL_FILES: usize = 4;
/// Rows per batch of Parquet files.
const BATCH_ROWS: usize = 4096;
/// Column of a call that found no file.
const NO_COLUMNS: &str = "__dummy_col";

/// The files of one call and their columns.
#[derive(Clone)]
pub(super) struct S3Table {
    call: Arc<Call>,
    schema: SchemaRef,
    /// Files with the values that their path gives.
    files: Arc<Vec<File>>,
}

#[derive(Debug, Clone)]
struct File {
    meta: ObjectMeta,
    path_values: Vec<String>,
}

struct Call {
    properties: S3Properties,
    store: Arc<AmazonS3>,
    zone: SessionZone,
}

impl fmt::Debug for S3Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Table").field("schema", &self.schema).finish_non_exhaustive()
    }
}

fn store(properties: &S3Properties) -> Result<AmazonS3, SqlError> {
    let retry = RetryConfig { max_retries: 3, backoff: BackoffConfig::default(), ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&properties.bucket)
        .with_region(&properties.region)
        .with_retry(retry)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_virtual_hosted_style_request(!properties.path_style);
    if let Some(endpoint) = &properties.endpoint {
        let url = match endpoint.split_once("://") {
            Some((scheme, host)) if !properties.path_style => format!("{scheme}://{}.{host}", properties.bucket),
            _ => endpoint.clone(),
        };
        builder = builder.with_endpoint(url);
    }
    let secrets = &properties.secrets;
    if secrets.access_key.is_empty() {
        builder = builder.with_skip_signature(true);
    } else {
        builder = builder.with_access_key_id(&secrets.access_key).with_secret_access_key(&secrets.secret_key);
        if !secrets.token.is_empty() {
            builder = builder.with_token(&secrets.token);
        }
    }
    // Another part of the process may have chosen a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder.build().map_err(|error| SqlError::detail(properties.masked(&error.to_string())))
}

impl S3Table {
    /// Lists the files and reads what tells the columns.
    pub(super) async fn open(properties: S3Properties, zone: SessionZone) -> Result<Self, SqlError> {
        let store = Arc::new(store(&properties)?);
        let call = Arc::new(Call { properties, store, zone });
        let files = call.files().await?;
        let schema = match files.first() {
            None => Schema::new(vec![DorisType::String.storage_field(NO_COLUMNS, true)]),
            Some(first) => call.schema(first).await?,
        };
        Ok(Self { call, schema: Arc::new(schema), files: Arc::new(files) })
    }
}

impl Call {
    fn failure(&self, what: &str, error: &impl fmt::Display) -> SqlError {
        SqlError::detail(self.properties.masked(&format!("{what} s3://{}: {error}", self.properties.bucket)))
    }

    /// Files that match, empty ones left out, sorted by name.
    async fn files(&self) -> Result<Vec<File>, SqlError> {
        let glob = &self.properties.glob;
        let mut found: Vec<ObjectMeta> = Vec::new();
        if glob.is_plain() {
            let path = Path::parse(glob.prefix()).map_err(|e| self.failure("Invalid path in", &e))?;
            match self.store.head(&path).await {
                Ok(meta) => found.push(meta),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failure("failed to list", &error)),
            }
        } else {
            let folder = glob.prefix().rsplit_once('/').map_or("", |(folder, _)| folder);
            let folder = Path::parse(folder).map_err(|e| self.failure("Invalid path in", &e))?;
            let mut listing = self.store.list(Some(&folder));
            while let Some(meta) = listing.try_next().await.map_err(|e| self.failure("failed to list", &e))? {
                if glob.matches(meta.location.as_ref()) {
                    found.push(meta);
                }
            }
        }
        found.retain(|meta| meta.size > 0);
        found.sort_by(|a, b| a.location.cmp(&b.location));
        found.into_iter().map(|meta| self.with_path_values(meta)).collect()
    }

    fn with_path_values(&self, meta: ObjectMeta) -> Result<File, SqlError> {
        let value = |key: &String| {
            let found =
                meta.location.as_ref().split('/').find_map(|part| part.strip_prefix(key.as_str())?.strip_prefix('='));
            found.map(str::to_owned).ok_or_else(|| {
                SqlError::detail(format!(
                    "Fail to parse columnsFromPath, expected: {:?}, filePath: {}",
                    self.properties.partition_keys, meta.location
                ))
            })
        };
        let path_values = self.properties.partition_keys.iter().map(value).collect::<Result<_, _>>()?;
        Ok(File { meta, path_values })
    }

    fn compression(&self, key: &str) -> Result<Compression, SqlError> {
        self.properties.compression.map_or_else(|| compression_of(key), Ok)
    }

    async fn schema(self: &Arc<Self>, first: &File) -> Result<Schema, SqlError> {
        let mut fields: Vec<Arc<Field>> = match self.properties.format {
            Format::Parquet => {
                let reader = self.parquet(first);
                let builder = ParquetRecordBatchStreamBuilder::new(reader)
                    .await
                    .map_err(|e| self.failure("failed to read the footer of a file in", &e))?;
                parquet::columns(builder.schema())?
            }
            format => {
                let names = self.text_names(first, format).await?;
                names.iter().map(|name| DorisType::String.storage_field(name, true)).collect()
            }
        };
        fields.extend(self.properties.partition_keys.iter().map(|key| DorisType::String.storage_field(key, true)));
        for (i, field) in fields.iter().enumerate() {
            if fields[..i].iter().any(|known| known.name().eq_ignore_ascii_case(field.name())) {
                return Err(SqlError::detail(format!("Duplicate column name '{}' in file", field.name())));
            }
        }
        Ok(Schema::new(fields))
    }

    async fn text_names(self: &Arc<Self>, first: &File, format: Format) -> Result<Vec<String>, SqlError> {
        let call = Arc::clone(self);
        let compression = self.compression(first.meta.location.as_ref())?;
        let got =
            self.store.get(&first.meta.location).await.map_err(|e| self.failure("failed to read a file of", &e))?;
        let reader = ObjectReader::new(Handle::current(), got.into_stream());
        let task = tokio::task::spawn_blocking(move || {
            let input = reader.plain(compression)?;
            match format {
                Format::Json => text::json_names(input, &call.properties),
                _ => text::csv_names(input, &call.properties),
            }
        });
        match task.await.map_err(SqlError::detail)? {
            Ok(names) => Ok(names),
            Err(Stop::Failed(error)) => Err(SqlError::detail(self.properties.masked(error.strip_backtrace().as_str()))),
            Err(Stop::Gone) => Ok(Vec::new()),
        }
    }

    fn parquet(&self, file: &File) -> parquet::FileReader {
        let store = Arc::clone(&self.store) as Arc<dyn ObjectStore>;
        parquet::FileReader::new(store, file.meta.location.clone(), file.meta.size)
    }
}

#[async_trait]
impl TableProvider for S3Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn PlanSession,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projected = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        if self.files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(projected)));
        }
        let size = self.files.len().div_ceil(PARALLEL_FILES);
        let groups = (0..self.files.len()).step_by(size).map(|from| {
            Arc::new(FileGroup {
                table: self.clone(),
                projected: Arc::clone(&projected),
                projection: projection.cloned(),
                range: from..(from + size).min(self.files.len()),
            }) as Arc<dyn PartitionStream>
        });
        let groups: Vec<_> = groups.collect();
        Ok(Arc::new(StreamingTableExec::try_new(projected, groups, None, None, false, limit)?))
    }
}

/// Some of the files, read one after another.
struct FileGroup {
    table: S3Table,
    projected: SchemaRef,
    projection: Option<Vec<usize>>,
    range: std::ops::Range<usize>,
}

impl fmt::Debug for FileGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileGroup({} files)", self.range.len())
    }
}

impl PartitionStream for FileGroup {
    fn schema(&self) -> &SchemaRef {
        &self.projected
    }

    fn execute(&self, _ctx: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (table, projection) = (self.table.clone(), self.projection.clone());
        let projected = Arc::clone(&self.projected);
        let batches = futures::stream::iter(self.range.clone())
            .then(move |i| {
                let (table, projected) = (table.clone(), Arc::clone(&projected));
                let projection = projection.clone();
                async move {
                    match table.call.properties.format {
                        Format::Parquet => table.read_parquet(i, &projected).await,
                        _ => table.read_text(i, projection).await,
                    }
                }
            })
            .try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.projected), batches))
    }
}

impl S3Table {
    /// Rows of a text file; parsed on a blocking thread, two batches ahead at most.
    async fn read_text(&self, i: usize, projection: Option<Vec<usize>>) -> Result<SendableRecordBatchStream> {
        let file = &self.files[i];
        let call = Arc::clone(&self.call);
        let fail = |error: SqlError| DataFusionError::Execution(error.text().to_owned());
        let compression = call.compression(file.meta.location.as_ref()).map_err(fail)?;
        let got = call
            .store
            .get(&file.meta.location)
            .await
            .map_err(|e| fail(call.failure("failed to read a file of", &e)))?;
        let reader = ObjectReader::new(Handle::current(), got.into_stream());
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 2);
        let sender = stream.tx();
        let (schema, path_values) = (Arc::clone(&self.schema), file.path_values.clone());
        stream.spawn_blocking(move || {
            let mut emit = |batch| sender.blocking_send(Ok(batch)).is_ok();
            let mut rows = Rows::new(schema, &path_values, &mut emit);
            let read = reader.plain(compression).map_err(Stop::from).and_then(|input| match call.properties.format {
                Format::Json => text::read_json(input, &call.properties, &mut rows),
                _ => text::read_csv(input, &call.properties, &mut rows),
            });
            match read {
                Ok(()) | Err(Stop::Gone) => Ok(()),
                Err(Stop::Failed(error)) => {
                    Err(DataFusionError::Execution(call.properties.masked(error.strip_backtrace().as_str())))
                }
            }
        });
        let all = stream.build();
        let Some(columns) = projection else { return Ok(all) };
        let schema = Arc::new(self.schema.project(&columns)?);
        let cut = all.map(move |batch| Ok(batch?.project(&columns)?));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, cut)))
    }

    /// Rows of a Parquet file, columns found by name without case.
    async fn read_parquet(&self, i: usize, projected: &SchemaRef) -> Result<SendableRecordBatchStream> {
        let file = self.files[i].clone();
        let call = Arc::clone(&self.call);
        let broken = {
            let call = Arc::clone(&call);
            move |error: &dyn fmt::Display| {
                DataFusionError::Execution(
                    call.failure("failed to read a file of", &error.to_string()).text().to_owned(),
                )
            }
        };
        let builder = ParquetRecordBatchStreamBuilder::new(call.parquet(&file)).await.map_err(|e| broken(&e))?;
        let own = self.schema.fields().len() - file.path_values.len();
        let roots: Vec<usize> = builder
            .schema()
            .fields()
            .iter()
            .enumerate()
            .filter(|(_, field)| {
                projected.fields().iter().any(|wanted| wanted.name().eq_ignore_ascii_case(field.name()))
            })
            .map(|(i, _)| i)
            .collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let batches = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build().map_err(|e| broken(&e))?;
        let keys: Vec<(String, String)> = self.schema.fields()[own..]
            .iter()
            .zip(&file.path_values)
            .map(|(field, value)| (field.name().clone(), value.clone()))
            .collect();
        let (schema, zone) = (Arc::clone(projected), call.zone);
        let rows = batches.map(move |batch| {
            let batch = batch.map_err(|e| broken(&e))?;
            let columns = schema.fields().iter().map(|field| column(&batch, field, &keys, &zone));
            let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(projected), rows)))
    }
}

/// One column in its storage type: from the path, from the file, or NULL.
fn column(batch: &RecordBatch, field: &Field, keys: &[(String, String)], zone: &SessionZone) -> Result<ArrayRef> {
    if let Some((_, value)) = keys.iter().find(|(name, _)| name == field.name()) {
        return Ok(Arc::new(StringArray::from(vec![value.as_str(); batch.num_rows()])));
    }
    let schema = batch.schema();
    let Some(at) = schema.fields().iter().position(|f| f.name().eq_ignore_ascii_case(field.name())) else {
        return Ok(new_null_array(field.data_type(), batch.num_rows()));
    };
    let ty = DorisType::of_field(field)
        .ok_or_else(|| DataFusionError::Execution(format!("no type for column {}", field.name())))?;
    Ok(conform_in(&parquet::plain(batch.column(at), zone)?, &ty, zone)?)
}
