//! Runs statements and prints their results as they come.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use datafusion::sql::sqlparser::dialect::MySqlDialect;
use datafusion_doris::sink::DorisSinkExec;
use futures::{Stream, StreamExt, TryStreamExt};

use crate::context::DorisResult;
use crate::error::{Result, ShellError};
use crate::jobs;
use crate::output::Output;
use crate::render::{Format, ResultWriter};
use crate::shell::Shell;

/// How Doris reads quotes, backslashes and comments.
pub(crate) const DORIS_DIALECT: MySqlDialect = MySqlDialect {};

/// `\d`
pub(crate) const LIST_TABLES: &str = "SELECT table_catalog, table_schema, table_name, table_type \
     FROM information_schema.tables WHERE table_schema <> 'information_schema' ORDER BY 1, 2, 3";

/// Batches that may wait to be printed.
const WAITING_BATCHES: usize = 2;

/// Rows that a failed `\assert_empty` shows.
const SHOWN_ROWS: usize = 10;

/// Runs one DataFusion statement and prints its result.
pub(crate) async fn statement(shell: &mut Shell, sql: &str) -> Result<()> {
    let query = plan(shell, sql).await?;
    if query.endless && query.writes {
        // The plan is thrown away unrun: the job plans again, with the settings of jobs.
        let job = Arc::new(shell.interrupts.guard(shell.context.statement(sql)).await?);
        let stopping = shell.stopping(None);
        let rows = jobs::foreground(job, stopping, &shell.output, &mut shell.interrupts).await?;
        return shell.note(&jobs::rows_written(rows)).await;
    }
    let stream = query.run()?;
    if stream.schema().fields().is_empty() {
        // DDL and settings: running is all there is.
        return shell.interrupts.guard(stream.try_for_each(|_| async { Ok(()) })).await;
    }
    let mut writer = shell.format.writer(&stream.schema(), query.endless);
    let rows = shell.interrupts.guard(print_stream(stream, writer.as_mut(), &shell.output)).await?;
    if !query.writes {
        return shell.note(&count(rows)).await;
    }
    for warning in warnings(&query.plan) {
        shell.note(&format!("warning: {warning}")).await?;
    }
    Ok(())
}

/// What is to be said of the rows of a statement that Doris took: those that it refused, that nobody counted, and that
/// are missing.
fn warnings(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(sink) = plan.downcast_ref::<DorisSinkExec>().map(DorisSinkExec::sink) {
        warnings.extend(sink.filtered().map(|filtered| filtered.to_string()));
        warnings.extend(sink.uncounted().map(|uncounted| uncounted.to_string()));
        warnings.extend(sink.missing().map(|missing| missing.to_string()));
    }
    warnings.extend(plan.children().into_iter().flat_map(self::warnings));
    warnings
}

/// A statement that is planned and not yet run.
struct Query {
    plan: Arc<dyn ExecutionPlan>,
    task: Arc<TaskContext>,
    /// Whether the result has no end.
    endless: bool,
    /// Whether it is an INSERT, UPDATE, DELETE or COPY, whose result is a count.
    writes: bool,
}

impl Query {
    /// Starts the query.
    fn run(&self) -> Result<SendableRecordBatchStream> {
        Ok(in_background(execute_stream(Arc::clone(&self.plan), Arc::clone(&self.task))?))
    }
}

async fn plan(shell: &mut Shell, sql: &str) -> Result<Query> {
    let planning = async {
        let frame = shell.context.sql(sql).await?;
        let writes = matches!(frame.logical_plan(), LogicalPlan::Dml(_) | LogicalPlan::Copy(_));
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let endless = plan.boundedness().is_unbounded();
        Ok::<_, ShellError>(Query { plan, task, endless, writes })
    };
    shell.interrupts.guard(planning).await
}

/// Runs the query in a task of its own, so that an operator that computes for long does not keep the shell from
/// hearing Ctrl-C. Dropping the stream ends the task.
fn in_background(mut query: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let mut builder = RecordBatchReceiverStream::builder(query.schema(), WAITING_BATCHES);
    let batches = builder.tx();
    builder.spawn(async move {
        while let Some(batch) = query.next().await {
            if batches.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    });
    builder.build()
}

/// Prints batch by batch, waiting for the reader of the output after each. Gives the number of rows.
async fn print_stream<E>(
    stream: impl Stream<Item = Result<RecordBatch, E>>,
    writer: &mut dyn ResultWriter,
    output: &Output,
) -> Result<u64>
where
    ShellError: From<E>,
{
    let mut stream = std::pin::pin!(stream);
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        let mut text = Vec::new();
        writer.batch(&batch, &mut text)?;
        output.data(text).await?;
    }
    let mut text = Vec::new();
    writer.finish(&mut text)?;
    output.data(text).await?;
    Ok(rows)
}

/// Prints one batch as a whole result.
pub(crate) async fn print_batch(shell: &Shell, batch: &RecordBatch) -> Result<()> {
    print_whole(batch, shell.format, &shell.output).await
}

/// Prints one batch as a whole result in `format`.
pub(crate) async fn print_whole(batch: &RecordBatch, format: Format, output: &Output) -> Result<()> {
    let mut writer = format.writer(&batch.schema(), false);
    let whole = futures::stream::iter([Ok::<_, ShellError>(batch.clone())]);
    print_stream(whole, writer.as_mut(), output).await.map(drop)
}

fn count(rows: u64) -> String {
    format!("({rows} {})", if rows == 1 { "row" } else { "rows" })
}

/// `\doris`: sends the text to Doris and prints what it answers, all values as text.
pub(crate) async fn doris_statement(shell: &mut Shell, sql: &str) -> Result<()> {
    let results = shell.interrupts.guard(shell.context.doris(sql)).await?;
    for result in results {
        match result {
            DorisResult::Rows { columns, rows } => {
                let batch = text_batch(&columns, &rows)?;
                print_batch(shell, &batch).await?;
                shell.note(&count(rows.len() as u64)).await?;
            }
            // What DDL and settings answer too.
            DorisResult::Affected(0) => shell.note("doris: ok").await?,
            DorisResult::Affected(1) => shell.note("doris: 1 row affected").await?,
            DorisResult::Affected(rows) => shell.note(&format!("doris: {rows} rows affected")).await?,
        }
    }
    Ok(())
}

fn text_batch(columns: &[String], rows: &[Vec<Option<String>>]) -> Result<RecordBatch> {
    let fields: Vec<Field> = columns.iter().map(|name| Field::new(name, DataType::Utf8, true)).collect();
    let arrays = (0..columns.len()).map(|i| {
        let values = rows.iter().map(|row| row.get(i).and_then(Option::as_deref));
        Arc::new(values.collect::<StringArray>()) as Arc<dyn Array>
    });
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays.collect())?)
}

/// Collects up to `limit` rows of a query.
async fn first_rows(shell: &mut Shell, sql: &str, limit: usize) -> Result<Vec<RecordBatch>> {
    let query = plan(shell, sql).await?;
    if query.writes {
        return Err(ShellError::Assertion("a query is expected, not a statement that writes".to_owned()));
    }
    let mut stream = query.run()?;
    shell
        .interrupts
        .guard(async {
            let mut batches = Vec::new();
            let mut rows = 0;
            while rows < limit
                && let Some(batch) = stream.try_next().await?
            {
                let batch = batch.slice(0, batch.num_rows().min(limit - rows));
                rows += batch.num_rows();
                batches.push(batch);
            }
            Ok::<_, ShellError>(batches)
        })
        .await
}

/// `\assert_empty`: shows the first rows when there are any.
pub(crate) async fn assert_empty(shell: &mut Shell, sql: &str) -> Result<()> {
    let batches = first_rows(shell, sql, SHOWN_ROWS).await?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows == 0 {
        return Ok(());
    }
    let mut writer = shell.format.writer(&batches[0].schema(), false);
    let all = futures::stream::iter(batches.into_iter().map(Ok::<_, ShellError>));
    print_stream(all, writer.as_mut(), &shell.output).await?;
    let seen = if rows == SHOWN_ROWS { format!("at least {rows}") } else { rows.to_string() };
    Err(ShellError::Assertion(format!("the query must give no rows, it gave {seen}")))
}

/// `\assert`: the query must give one row of true values.
pub(crate) async fn assert_true(shell: &mut Shell, sql: &str) -> Result<()> {
    let batches = first_rows(shell, sql, 2).await?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows != 1 {
        let seen = if rows == 0 { "none" } else { "more" };
        return Err(ShellError::Assertion(format!("the query must give one row, it gave {seen}")));
    }
    for batch in batches.iter().filter(|batch| batch.num_rows() == 1) {
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let name = field.name();
            let Some(column) = column.as_boolean_opt() else {
                return Err(ShellError::Assertion(format!("column `{name}` is not a truth value")));
            };
            if column.is_null(0) || !column.value(0) {
                let value = if column.is_null(0) { "NULL" } else { "false" };
                print_batch(shell, batch).await?;
                return Err(ShellError::Assertion(format!("`{name}` is {value}")));
            }
        }
    }
    Ok(())
}

/// `\d TABLE`: the columns of a table; the name may be qualified and quoted.
pub(crate) async fn describe(shell: &mut Shell, table: &str) -> Result<()> {
    statement(shell, &format!("DESCRIBE {table}")).await
}
