//! The same random queries on tables of Doris, with everything pushed down and with each kind of it switched off, and on
//! the same rows in memory: equal results.
//!
//! `DIFFERENTIAL_SEED` and `DIFFERENTIAL_QUERIES` set the seed (printed) and the number of queries. A kind that leaves no trace
//! in the plan of a query makes no other plan when it is off, so such a run is not made, except for each twentieth
//! query, which is run with every kind off. Printed are the queries, how many of them were pushed whole, partly or not with
//! everything on, and the same of the runs with each kind off.

mod data;
mod queries;
mod random;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::SessionContext;
use doris_sandbox::{FlightConfig, OldForms, Profile, Sandbox, SandboxBuilder};

use self::queries::{Generator, Query, TABLES};
use self::random::Random;
use crate::harness::{Cluster, run};

const KINDS: [&str; 6] = ["filter", "limit", "topk", "aggregate", "join", "dynamic_filter"];

/// Rows in memory.
const LOCAL: &str = "l";
/// Tables of Doris.
const REMOTE: &str = "r";

type Rows = Vec<Vec<String>>;

/// A cell as text in which equal values are equal: doubles to nine digits, one zero, one NaN.
fn cells(batches: &[RecordBatch]) -> Rows {
    let float = |value: f64| match value {
        value if value.is_nan() => "NaN".to_string(),
        value => format!("{:.8e}", value + 0.0),
    };
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let formatters: Vec<ArrayFormatter> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).expect("printable"))
            .collect();
        for row in 0..batch.num_rows() {
            let cell = |(column, formatter): (&Arc<dyn Array>, &ArrayFormatter)| match column.data_type() {
                DataType::Float64 if column.is_valid(row) => float(column.as_primitive::<Float64Type>().value(row)),
                DataType::Float32 if column.is_valid(row) => {
                    float(column.as_primitive::<Float32Type>().value(row).into())
                }
                _ => formatter.value(row).to_string(),
            };
            rows.push(batch.columns().iter().zip(&formatters).map(cell).collect());
        }
    }
    rows
}

fn counted(rows: &Rows) -> BTreeMap<&Vec<String>, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row).or_default() += 1;
    }
    counts
}

/// What a query gives on the rows in memory.
struct Expected {
    /// All rows, without ORDER BY and LIMIT.
    all: Rows,
    /// The sort keys of the rows that are wanted, in order.
    keys: Option<Rows>,
}

fn check(query: &Query, expected: &Expected, found: &Rows) -> Result<(), String> {
    let Some(limit) = query.limit else {
        return if counted(&expected.all) == counted(found) { Ok(()) } else { Err("other rows".into()) };
    };
    let wanted = expected.all.len().min(limit);
    if found.len() != wanted {
        return Err(format!("{} rows instead of {wanted}", found.len()));
    }
    let all = counted(&expected.all);
    if counted(found).into_iter().any(|(row, count)| all.get(row).is_none_or(|there| *there < count)) {
        return Err("rows that are not there".into());
    }
    // Of rows with equal keys, which stand first in a row, any may come.
    let keys: Option<Rows> =
        expected.keys.as_ref().map(|_| found.iter().map(|row| row[..query.order.len()].to_vec()).collect());
    if keys == expected.keys { Ok(()) } else { Err(format!("keys {keys:?} instead of {:?}", expected.keys)) }
}

/// How much of a query Doris did, by its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Done {
    Whole,
    Partly,
    Not,
}

fn done(plan: &str) -> Done {
    let above = plan.lines().map(str::trim_start).filter(|line| !line.starts_with("DorisScanExec"));
    let passive = [
        "ProjectionExec",
        "CoalescePartitionsExec",
        "SortPreservingMergeExec",
        "SortExec: TopK",
        "GlobalLimitExec",
        "CooperativeExec",
        "RepartitionExec: partitioning=RoundRobin",
    ];
    let whole = above.filter(|line| !line.is_empty()).all(|line| passive.iter().any(|node| line.starts_with(node)));
    let pushed = [" WHERE ", " LIMIT ", "GROUP BY", "COUNT(", "SUM(", "MIN(", "MAX(", "dynamic=["];
    match (whole && plan.matches("DorisScanExec").count() == 1, pushed.iter().any(|part| plan.contains(part))) {
        (true, true) => Done::Whole,
        (_, true) => Done::Partly,
        // A bare scan is whole too, when nothing is asked for beside it.
        (true, false) if !plan.contains("SortExec") => Done::Whole,
        _ => Done::Not,
    }
}

/// Kinds without which the plan would be another.
fn touched(plan: &str) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    let scans = plan.contains("COUNT(") || plan.contains("SUM(") || plan.contains("MIN(") || plan.contains("MAX(");
    let aggregates = plan.contains("GROUP BY") || scans;
    for (kind, there) in [
        ("filter", plan.contains(" WHERE ")),
        ("limit", plan.contains(" LIMIT ")),
        ("topk", plan.contains(" ORDER BY ")),
        ("aggregate", aggregates),
        ("join", plan.contains("AS `t1`")),
        ("dynamic_filter", plan.contains("dynamic=[")),
    ] {
        if there {
            kinds.push(kind);
        }
    }
    kinds
}

async fn execute(ctx: &SessionContext, sql: &str) -> Result<(Rows, String), String> {
    let failed = |error: datafusion::error::DataFusionError| error.to_string();
    let frame = datafusion_doris::sql(ctx, sql).await.map_err(failed)?;
    let plan = frame.create_physical_plan().await.map_err(failed)?;
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    let batches = collect(plan, ctx.task_ctx()).await.map_err(failed)?;
    Ok((cells(&batches), shown))
}

/// One context per setting: everything on, then each kind off.
struct Contexts {
    local: SessionContext,
    on: SessionContext,
    off: Vec<(&'static str, SessionContext)>,
}

/// A context with the tables of `other`.
async fn sharing(cluster: &Cluster, other: &SessionContext) -> SessionContext {
    let ctx = cluster.context();
    for table in TABLES {
        for side in [LOCAL, REMOTE] {
            let name = format!("{side}{table}");
            let provider = other.table_provider(name.as_str()).await.expect("declared");
            ctx.register_table(name.as_str(), provider).expect("registers");
        }
    }
    // The context with everything on reads one of the tables in parts.
    ctx.state_ref().write().config_mut().options_mut().execution.target_partitions = 1;
    ctx
}

async fn contexts(cluster: &Cluster) -> Contexts {
    let on = cluster.context();
    for table in TABLES {
        cluster.declare(&on, &format!("{REMOTE}{table}"), &format!("d{table}"), &[]).await;
        run(&on, &format!("CREATE TABLE {LOCAL}{table} AS SELECT * FROM {REMOTE}{table}")).await;
    }
    let local = sharing(cluster, &on).await;
    let mut off = Vec::new();
    for kind in KINDS {
        let ctx = sharing(cluster, &on).await;
        run(&ctx, &format!("SET doris.pushdown.{kind} = false")).await;
        off.push((kind, ctx));
    }
    Contexts { local, on, off }
}

/// Queries by how much of them Doris did.
#[derive(Debug, Default)]
struct Pushed {
    whole: AtomicUsize,
    partly: AtomicUsize,
    not: AtomicUsize,
}

impl Pushed {
    fn note(&self, plan: &str) {
        let count = match done(plan) {
            Done::Whole => &self.whole,
            Done::Partly => &self.partly,
            Done::Not => &self.not,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn numbers(&self) -> [usize; 3] {
        [&self.whole, &self.partly, &self.not].map(|count| count.load(Ordering::Relaxed))
    }

    fn print(&self, what: &str) {
        let [whole, partly, not] = self.numbers();
        println!("{what:24} {:>6} | {whole:>6} | {partly:>6} | {not:>6}", whole + partly + not);
    }
}

#[derive(Debug, Default)]
struct Totals {
    queries: AtomicUsize,
    runs: AtomicUsize,
    /// With everything on.
    on: Pushed,
    /// With one kind off, as in [`KINDS`].
    off: [Pushed; KINDS.len()],
    rows: AtomicUsize,
    /// Queries that DataFusion cannot answer, as a sum that overflows.
    refused: AtomicUsize,
}

async fn compare(contexts: &Contexts, query: &Query, every_kind: bool, totals: &Totals) -> Result<(), String> {
    let one = |totals: &AtomicUsize| totals.fetch_add(1, Ordering::Relaxed);
    one(&totals.queries);
    let all = match execute(&contexts.local, &query.bare(LOCAL)).await {
        Ok((all, _)) => all,
        Err(error) => {
            if one(&totals.refused) < 3 {
                println!("refused: {}\n  {}", query.bare(LOCAL), error.lines().next().unwrap_or_default());
            }
            return match execute(&contexts.on, &query.bare(REMOTE)).await {
                Err(_) => Ok(()),
                // DataFusion cuts timestamps to nanoseconds there, in which the years 1 and 9999 have no place.
                Ok(_) if query.bare(LOCAL).contains("date_trunc") && error.contains("out of range") => Ok(()),
                Ok(_) => Err(format!("only the rows in memory fail: {error}")),
            };
        }
    };
    let keys = match (query.order.is_empty(), query.limit) {
        (false, Some(_)) => {
            let (sorted, _) = execute(&contexts.local, &query.text(LOCAL)).await?;
            Some(sorted.into_iter().map(|row| row[..query.order.len()].to_vec()).collect())
        }
        _ => None,
    };
    let expected = Expected { all, keys };
    totals.rows.fetch_add(expected.all.len(), Ordering::Relaxed);
    let sql = query.text(REMOTE);
    let (found, plan) = execute(&contexts.on, &sql).await?;
    one(&totals.runs);
    check(query, &expected, &found)
        .map_err(|what| format!("{what}\nin memory: {:?}\nfound: {found:?}\n{plan}", expected.all))?;
    totals.on.note(&plan);
    let touched = touched(&plan);
    for ((kind, ctx), pushed) in contexts.off.iter().zip(&totals.off) {
        if !every_kind && !touched.contains(kind) {
            continue;
        }
        let (found, plan) = execute(ctx, &sql).await.map_err(|error| format!("without {kind}: {error}"))?;
        one(&totals.runs);
        pushed.note(&plan);
        check(query, &expected, &found).map_err(|what| {
            format!("without {kind}: {what}\nin memory: {:?}\nfound: {found:?}\n{plan}", expected.all)
        })?;
    }
    Ok(())
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushed_queries_give_what_they_give_in_memory() {
    equal_results(Sandbox::builder(), setting("DIFFERENTIAL_QUERIES", 2_000)).await;
}

/// An old build, whose types travel in the forms before those of today, and which answers what it can in the FE, as text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushed_queries_of_an_old_build_give_what_they_give_in_memory() {
    let old_forms =
        OldForms { largeint_bytes: true, date_text: true, datetime_text: true, ipv4_text: true, ..OldForms::default() };
    let flight = FlightConfig { old_forms, answers_in_fe: true, ..FlightConfig::default() };
    let builder = Sandbox::builder().profile(Profile::V2_1).flight(flight).time_zone("Asia/Shanghai");
    equal_results(builder, setting("DIFFERENTIAL_QUERIES", 2_000) / 10).await;
}

async fn equal_results(builder: SandboxBuilder, wanted: u64) {
    let seed = setting("DIFFERENTIAL_SEED", 20_261_130);
    println!("seed {seed}, {wanted} queries");
    let cluster = Cluster::of(builder).await;
    let mut random = Random::new(seed);
    for table in TABLES {
        data::create(&cluster, table, &mut random).await;
    }
    let contexts = Arc::new(contexts(&cluster).await);
    let totals = Arc::new(Totals::default());
    let mut failures = Vec::new();
    let workers = 4;
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..workers {
        let (contexts, totals) = (Arc::clone(&contexts), Arc::clone(&totals));
        tasks.spawn(async move {
            let mut failures = Vec::new();
            for number in (worker..wanted).step_by(workers as usize) {
                // Each query has a seed of its own, so that it can be run alone.
                let query =
                    Generator::new(Random::new(seed ^ (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))).query();
                if let Err(what) = compare(&contexts, &query, number % 20 == 0, &totals).await {
                    failures.push(format!("query {number}: {}\n{what}", query.text(REMOTE)));
                    if failures.len() > 5 {
                        break;
                    }
                }
            }
            failures
        });
    }
    while let Some(found) = tasks.join_next().await {
        failures.extend(found.expect("a worker"));
    }
    let number = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    println!(
        "{} queries in {} runs against doris, {} rows compared, {} refused in memory",
        number(&totals.queries),
        number(&totals.runs),
        number(&totals.rows),
        number(&totals.refused),
    );
    println!("{:24} {:>6} | {:>6} | {:>6} | {:>6}", "runs", "all", "whole", "partly", "not");
    totals.on.print("everything on");
    for (kind, pushed) in KINDS.iter().zip(&totals.off) {
        pushed.print(&format!("{kind} off"));
        assert!(pushed.numbers().iter().sum::<usize>() > 0, "{kind} was never switched off");
    }
    assert!(failures.is_empty(), "{} failures, seed {seed}\n{}", failures.len(), failures.join("\n\n"));
    assert!(number(&totals.refused) * 20 <= number(&totals.queries), "too many queries say nothing");
    assert!(totals.on.numbers()[0] > number(&totals.queries) / 4, "little is pushed");
}
