//! Tables of many tablets, scans of many splits, jobs of many epochs: what each of them costs the client, in time, in
//! requests and in memory. `docs/scale.md` calculates with it.
//!
//! `cargo bench --bench scale`; `SCALE_TABLETS` names the sizes of the tables (`1,2000,10000`), `SCALE_ONLY` the parts to
//! run (`tablets`, `loads`, `epochs`).

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_doris::job::SyncJob;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Builder;

use common::table::Table;
use common::usage::{cpu_of_threads, peak_mb, restart_peak};
use common::{Outcome, Server, backlog, server};

/// Buckets of a partition at most: the server takes 768.
const BUCKETS: u64 = 500;
/// Rows of each table.
const ROWS: u64 = 200_000;
/// Statements at once: the default of `source.max-connections`.
const AT_ONCE: usize = 32;
/// Epochs of the job, each of one second of changes.
const EPOCHS: u64 = 30;
/// Changes of each.
const CHANGES: u64 = 1_000;
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at a job's progress.
const LOOK: Duration = Duration::from_millis(2);
/// Seconds for which the job is watched that has nothing to do.
const IDLE_SECONDS: u64 = 20;
/// Loads that are measured one after the other.
const LOADS: u64 = 50;

fn main() -> Outcome<()> {
    // No thread ends: the kernel forgets what an ended one has used.
    let runtime = Builder::new_multi_thread().enable_all().thread_keep_alive(Duration::from_secs(86_400)).build()?;
    if server::is_server() {
        return runtime.block_on(server::serve());
    }
    let mut server = Server::start()?;
    runtime.block_on(measure(&mut server))
}

async fn measure(server: &mut Server) -> Outcome<()> {
    let sizes = std::env::var("SCALE_TABLETS").unwrap_or_else(|_| "1,2000,10000".into());
    let sizes: Vec<u64> = sizes.split(',').map(|size| size.trim().parse()).collect::<Result<_, _>>()?;
    let only = std::env::var("SCALE_ONLY").unwrap_or_default();
    let wanted = |part: &str| only.is_empty() || only.split(',').any(|name| name.trim() == part);
    server.doris("CREATE DATABASE bench").await?;
    let head = ["what", "number", "wall s", "each ms", "CPU s", "requests", "each", "RSS + MB", "of which"];
    let mut costs = Costs { begun: Instant::now(), table: Table::new(&head) };
    if wanted("tablets") {
        for tablets in sizes {
            scans(server, tablets, &mut costs).await?;
        }
    }
    if wanted("loads") {
        loads(server, &mut costs).await?;
    }
    if wanted("epochs") {
        epochs(server, &mut costs).await?;
    }
    println!("{}", costs.table.render());
    Ok(())
}

/// What was measured so far.
struct Costs {
    begun: Instant,
    table: Table,
}

impl Costs {
    /// Takes one measurement of something that is done `number` times.
    async fn take<T>(
        &mut self,
        server: &mut Server,
        what: &str,
        number: u64,
        run: impl Future<Output = Outcome<T>>,
    ) -> Outcome<T> {
        server.requests()?;
        let resident = restart_peak()?;
        let (before, started) = (cpu_of_threads()?, Instant::now());
        let outcome = run.await.map_err(|error| format!("{what}: {error}"))?;
        let wall = started.elapsed().as_secs_f64();
        let cpu = cpu_of_threads()?.zip(before).map(|(after, before)| after - before);
        let grown = peak_mb()?.zip(resident).map(|(peak, resident)| peak - resident);
        let (seen, mut kinds) = server.requests()?;
        // A statement over HTTP is noted a second time, as a statement. Not all of many requests are kept: by their share.
        let known: u64 = kinds.iter().map(|(_, count)| count).sum();
        kinds.retain(|(kind, _)| !kind.ends_with("STATEMENT"));
        let share = |count: u64| count as f64 / known.max(1) as f64 * seen as f64;
        let requests = share(kinds.iter().map(|(_, count)| count).sum());
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let kinds =
            kinds.iter().take(4).map(|(kind, count)| format!("{kind} {:.1}", share(*count) / number.max(1) as f64));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let shown = |value: Option<f64>, digits: usize| match value {
            Some(value) => format!("{value:.digits$}"),
            None => "-".to_owned(),
        };
        let each = |value: f64| value / number.max(1) as f64;
        let row = vec![
            what.to_owned(),
            number.to_string(),
            format!("{wall:.3}"),
            format!("{:.3}", each(wall) * 1e3),
            shown(cpu, 3),
            format!("{requests:.0}"),
            format!("{:.2}", each(requests)),
            shown(grown, 0),
            kinds,
        ];
        eprintln!("[{:4.0} s] {}", self.begun.elapsed().as_secs_f64(), row.join(" | "));
        self.table.row(row);
        Ok(outcome)
    }
}

/// Makes a table of so many tablets, with rows in all of them.
async fn create(server: &Server, table: &str, tablets: u64) -> Outcome<()> {
    let buckets = tablets.min(BUCKETS);
    let partitions = tablets.div_ceil(buckets);
    let step = ROWS / partitions + 1;
    server
        .doris(&format!(
            "CREATE TABLE bench.{table} (id BIGINT NOT NULL, name VARCHAR(40), amount DOUBLE) DUPLICATE KEY(id)
             PARTITION BY RANGE(id) (FROM ('0') TO ('{}') INTERVAL {step})
             DISTRIBUTED BY HASH(id) BUCKETS {buckets} PROPERTIES ('replication_num' = '1')",
            partitions * step,
        ))
        .await?;
    Ok(())
}

/// A session of so many partitions, with the table declared so that as many statements may run.
async fn session(server: &Server, table: &str, partitions: usize) -> Outcome<SessionContext> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
    datafusion_doris::register(&context)?;
    server.declare(&context, table, table, &format!(", 'source.max-connections' '{partitions}'")).await?;
    Ok(context)
}

async fn planned(context: &SessionContext, sql: &str) -> Outcome<Arc<dyn ExecutionPlan>> {
    Ok(datafusion_doris::sql(context, sql).await?.create_physical_plan().await?)
}

/// Writes, plans and reads one table: by two statements as by default, and by one for each tablet.
async fn scans(server: &mut Server, tablets: u64, costs: &mut Costs) -> Outcome<()> {
    let table = format!("t{tablets}");
    let table = table.as_str();
    create(server, table, tablets).await?;
    let few = session(server, table, 2).await?;
    let insert = format!(
        "INSERT INTO {table} SELECT value, concat('name ', value), value / 3.0 FROM generate_series(1, {ROWS})"
    );
    let named = |what: &str| format!("{what}, {tablets} tablets");
    let written = async { Ok(datafusion_doris::sql(&few, &insert).await?.collect().await?) };
    costs.take(server, &named("INSERT of 200,000 rows"), 1, written).await?;
    let sql = format!("SELECT * FROM {table}");
    let plan = costs.take(server, &named("plan of a scan, 2 splits at most"), 1, planned(&few, &sql)).await?;
    let read = async {
        let rows =
            execute_stream(plan, few.task_ctx())?.try_fold(0, |rows, batch| async move { Ok(rows + batch.num_rows()) });
        check(rows.await? as u64)
    };
    costs.take(server, &named("scan of 200,000 rows, 2 splits at most"), 1, read).await?;
    if tablets < 2 {
        return Ok(());
    }
    let many = session(server, table, usize::try_from(tablets)?).await?;
    let plan = costs.take(server, &named("plan of a scan, a split each"), tablets, planned(&many, &sql)).await?;
    let again = costs.take(server, &named("the same again"), tablets, planned(&many, &sql)).await?;
    let scan = scan_of(&again).ok_or("no scan in the plan")?;
    let splits = scan.output_partitioning().partition_count();
    if splits as u64 != tablets {
        return Err(format!("{splits} splits of {tablets} tablets").into());
    }
    let read = async {
        // As many at once as may run by default: nobody opens 10,000 sessions.
        let parts = stream::iter(0..splits).map(|partition| {
            let (scan, task) = (Arc::clone(&scan), many.task_ctx());
            async move {
                let rows = scan.execute(partition, task)?;
                let rows = rows.try_fold(0, |rows, batch| async move { Ok(rows + batch.num_rows()) }).await?;
                Outcome::Ok(rows as u64)
            }
        });
        let rows = parts.buffer_unordered(AT_ONCE).try_fold(0, |all, rows| async move { Ok(all + rows) });
        check(rows.await?)
    };
    costs.take(server, &named("scan, a statement each, 32 at once"), tablets, read).await?;
    drop(plan);
    server.doris(&format!("DROP TABLE bench.{table}")).await?;
    Ok(())
}

fn check(rows: u64) -> Outcome<()> {
    if rows == ROWS { Ok(()) } else { Err(format!("{rows} rows instead of {ROWS}").into()) }
}

fn scan_of(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    if plan.name() == "DorisScanExec" {
        return Some(Arc::clone(plan));
    }
    plan.children().into_iter().find_map(scan_of)
}

/// One statement after the other, each a transaction of one row.
async fn loads(server: &mut Server, costs: &mut Costs) -> Outcome<()> {
    server
        .doris(
            "CREATE TABLE bench.small (id BIGINT NOT NULL) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
             PROPERTIES ('replication_num' = '1')",
        )
        .await?;
    let context = datafusion_doris::session_context();
    server.declare(&context, "small", "small", "").await?;
    let one = "INSERT INTO small VALUES (1)";
    datafusion_doris::sql(&context, one).await?.collect().await?;
    let run = async {
        for _ in 0..LOADS {
            datafusion_doris::sql(&context, one).await?.collect().await?;
        }
        Ok(())
    };
    costs.take(server, "INSERT of one row", LOADS, run).await
}

/// A job with checkpoints that works through seconds of changes, an epoch each, and then waits.
async fn epochs(server: &mut Server, costs: &mut Costs) -> Outcome<()> {
    let context = datafusion_doris::session_context();
    backlog::tables(server, &context, "").await?;
    let start = backlog::fill(server, &context, CHANGES, EPOCHS).await?;
    backlog::declare_changes(server, &context, &start, ", 'source.changelog.poll-interval' '1s'").await?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().to_str().ok_or("an odd path")?;
    let begin = SyncJob::builder("epochs").checkpoint_dir(path).checkpoint_interval(INTERVAL);
    let run = async {
        let job = begin.submit(&context, "INSERT INTO history SELECT * FROM changes").await?;
        while job.status().rows < CHANGES * EPOCHS {
            if let Some(error) = job.status().error {
                return Err(error.into());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(job)
    };
    let job = costs.take(server, "epoch of 1,000 changes", EPOCHS, run).await?;
    job.caught_up().await?;
    let run = async {
        tokio::time::sleep(Duration::from_secs(IDLE_SECONDS)).await;
        Ok(())
    };
    costs.take(server, "second of an idle job", IDLE_SECONDS, run).await?;
    job.stop().await?;
    Ok(())
}
