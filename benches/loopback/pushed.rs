//! Queries that Doris computes: what the client does for them must not depend on the size of the table.

use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;

use crate::bare::Flight;
use crate::common::measure::Series;
use crate::common::{Outcome, Server};
use crate::report::{Bar, Figure, Report};
use crate::shapes::{Shape, flights};
use crate::share;

/// Rows of the small and of the large table.
const ROWS: [u64; 2] = [100_000, 3_000_000];
/// Queries of one measurement: one alone takes too little CPU time to tell.
const QUERIES: u64 = 10;
/// The most that the CPU time may differ. It takes milliseconds, of which a scheduler gives or takes some.
const MOST: f64 = 1.25;

/// A query here, and what it must become in Doris.
struct Pushed {
    name: &'static str,
    here: &'static str,
    there: &'static str,
}

const PUSHED: [Pushed; 3] = [
    Pushed { name: "COUNT(*)", here: "SELECT count(*) FROM {table}", there: "SELECT COUNT(*) AS c FROM bench.{table}" },
    Pushed {
        name: "top-k",
        here: "SELECT id, at, origin FROM {table} ORDER BY id DESC LIMIT 10",
        there: "SELECT `id`, `at`, `origin` FROM bench.{table} ORDER BY `id` DESC LIMIT 10",
    },
    Pushed {
        name: "GROUP BY",
        here: "SELECT origin, count(*), sum(delay), max(at) FROM {table} GROUP BY origin",
        there: "SELECT `origin`, COUNT(*) AS c, SUM(`delay`) AS s, MAX(`at`) AS m FROM bench.{table} GROUP BY `origin`",
    },
];

/// Measures the queries.
pub async fn measure(server: &Server, runs: u64, report: &mut Report) -> Outcome<()> {
    let context = datafusion_doris::session_context();
    let tables = ["pushed_small", "pushed_large"];
    let rows = [share(ROWS[0], 1_000)?, share(ROWS[1], 30_000)?];
    for (table, rows) in tables.into_iter().zip(rows) {
        fill(server, &context, flights()?, table, rows).await?;
    }
    let mut bare = Flight::connect(server).await?;
    for query in &PUSHED {
        let [mut small, mut large, mut there] = [(); 3].map(|()| Series::default());
        let mut answers = [0; 2];
        for run in 0..=runs {
            for ((series, table), answer) in [&mut small, &mut large].into_iter().zip(tables).zip(&mut answers) {
                let sql = query.here.replace("{table}", table);
                *answer = series.time(repeated(&context, &sql)).await?;
            }
            let sql = query.there.replace("{table}", tables[1]);
            let rows = there.time(repeated_there(&mut bare, &sql)).await?;
            if answers != [rows; 2] {
                return Err(format!("{}: {answers:?} rows, bare DoGet {rows}", query.name).into());
            }
            if run == 0 {
                [&mut small, &mut large, &mut there].into_iter().for_each(Series::clear);
            }
        }
        let cpu = large.ratio_to(&small, |sample| sample.cpu);
        let name = format!("pushed {}: CPU at {} rows over {}", query.name, rows[1], rows[0]);
        let each = |seconds: f64| seconds / QUERIES as f64 * 1e3;
        let beside = format!(
            "{:.2} ms of CPU each, at the small table {:.2}; {:.1} ms by the clock, bare DoGet of its statement {:.1}",
            each(large.cpu()),
            each(small.cpu()),
            each(large.wall()),
            each(there.wall())
        );
        report.add(Figure::new(name, cpu, "x", Bar::Most(MOST)).of(&large).moved(None, answers[1]).beside(beside));
    }
    for table in tables {
        server.doris(&format!("DROP TABLE bench.{table}")).await?;
    }
    Ok(())
}

/// Makes a table with rows in it.
async fn fill(server: &Server, context: &SessionContext, shape: &Shape, table: &str, rows: u64) -> Outcome<()> {
    server.doris(&shape.create(table, "")).await?;
    server.declare(context, table, table, ", 'sink.properties.format' 'arrow'").await?;
    let insert = format!("INSERT INTO {table} {}", shape.query(rows));
    datafusion_doris::sql(context, &insert).await?.collect().await?;
    Ok(())
}

/// Runs a statement several times; rows of one answer, which must be all the rows that came from Doris.
async fn repeated(context: &SessionContext, sql: &str) -> Outcome<u64> {
    let mut rows = 0;
    for _ in 0..QUERIES {
        let plan = datafusion_doris::sql(context, sql).await?.create_physical_plan().await?;
        let batches = collect(Arc::clone(&plan), context.task_ctx()).await?;
        rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let received = received(&plan);
        if received != rows {
            return Err(format!("{sql}: {received} rows came from the server for an answer of {rows}").into());
        }
    }
    Ok(rows)
}

async fn repeated_there(bare: &mut Flight, sql: &str) -> Outcome<u64> {
    let mut rows = 0;
    for _ in 0..QUERIES {
        rows = bare.read(sql).await?.rows;
    }
    Ok(rows)
}

/// Rows that the scans of a plan have received.
fn received(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let own = plan.metrics().and_then(|metrics| metrics.sum_by_name("rows_received")).map_or(0, |sum| sum.as_usize());
    own as u64 + plan.children().into_iter().map(received).sum::<u64>()
}
