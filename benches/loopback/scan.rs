//! Scans against a bare Arrow Flight client that reads the same endpoints, and against `mysql_async`.

use std::time::Instant;

use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;

use crate::bare::{Flight, Mysql, Read};
use crate::common::measure::Series;
use crate::common::{Outcome, Server};
use crate::report::{Bar, Figure, Report};
use crate::shapes::{SHAPES, Shape};
use crate::share;

/// Measures the scan of each shape.
pub async fn measure(server: &Server, runs: u64, report: &mut Report) -> Outcome<()> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    datafusion_doris::register(&context)?;
    for shape in SHAPES {
        one(server, &context, shape, runs, report).await?;
    }
    Ok(())
}

async fn one(server: &Server, context: &SessionContext, shape: &Shape, runs: u64, report: &mut Report) -> Outcome<()> {
    let total = share(shape.total, shape.base)?;
    let name = shape.name;
    let table = format!("scan_{name}");
    let replayed = format!(", 'sandbox.replay' = 'true', 'sandbox.replay.rows' = '{total}'");
    server.doris(&shape.create(&table, &replayed)).await?;
    server.declare(context, &table, &table, "").await?;
    let insert = format!("INSERT INTO {table} {}", shape.query(shape.base));
    datafusion_doris::sql(context, &insert).await?.collect().await?;
    let columns: Vec<String> = shape.names().iter().map(|name| format!("`{name}`")).collect();
    let sql = format!("SELECT {} FROM bench.{table}", columns.join(", "));
    let (mut bare, mut mysql) = (Flight::connect(server).await?, Mysql::connect(server).await?);
    let [mut ours, mut theirs, mut first_ours, mut first_theirs, mut texts] = [(); 5].map(|()| Series::default());
    let mut bytes = 0;
    for run in 0..=runs {
        let flight = theirs.time(bare.read(&sql)).await?;
        let scanned = ours.time(scan(context, &format!("SELECT * FROM {table}"))).await?;
        // The MySQL protocol gives the rows that the server holds, not as often as the replay.
        let text = texts.time(mysql.read(&sql)).await?;
        if (flight.rows, scanned.rows, text.rows) != (total, total, shape.base) {
            return Err(format!("{table}: {flight:?} bare, {scanned:?} scanned, {text:?} by the MySQL protocol").into());
        }
        bytes = flight.bytes;
        first_theirs.push(flight.first);
        first_ours.push(scanned.first);
        if run == 0 {
            // The first read freezes the table.
            let all = [&mut ours, &mut theirs, &mut first_ours, &mut first_theirs, &mut texts];
            all.into_iter().for_each(Series::clear);
        }
    }
    let gigabytes = bytes as f64 / 1e9;
    let figure = |what: &str, value, unit, bar| Figure::new(format!("scan {name}: {what}"), value, unit, bar);
    let rate = theirs.ratio_to(&ours, |sample| sample.wall);
    let beside = format!(
        "{:.2} GB/s, bare DoGet {:.2} GB/s ± {:.0} %",
        gigabytes / ours.wall(),
        gigabytes / theirs.wall(),
        theirs.spread()
    );
    let rate = figure("rate over bare DoGet", rate, "x", Bar::Least(0.90));
    report.add(rate.of(&ours).moved(Some(bytes), total).beside(beside));
    let cpu = ours.ratio_to(&theirs, |sample| sample.cpu);
    let beside = format!("{:.3} CPU s per GB, bare DoGet {:.3}", ours.cpu() / gigabytes, theirs.cpu() / gigabytes);
    report.add(figure("CPU over bare DoGet", cpu, "x", Bar::Most(1.15)).beside(beside));
    let later = first_ours.longer_than(&first_theirs) * 1e3;
    let beside = format!("{:.1} ms, bare DoGet {:.1} ms", first_ours.wall() * 1e3, first_theirs.wall() * 1e3);
    report.add(figure("first batch after the bare client's", later, "ms", Bar::Most(5.0)).slack(3.0).beside(beside));
    let times = (total as f64 / ours.wall()) / (shape.base as f64 / texts.wall());
    let beside = format!(
        "{:.1} M rows/s, mysql_async {:.2} M rows/s from the same server",
        total as f64 / 1e6 / ours.wall(),
        shape.base as f64 / 1e6 / texts.wall()
    );
    report.add(figure("rows over mysql_async", times, "x", Bar::More).beside(beside));
    server.doris(&format!("DROP TABLE bench.{table}")).await?;
    Ok(())
}

/// Plans and reads a statement. The first batch counts from the executed plan on.
pub async fn scan(context: &SessionContext, sql: &str) -> Outcome<Read> {
    let plan = datafusion_doris::sql(context, sql).await?.create_physical_plan().await?;
    let started = Instant::now();
    let (mut read, mut first) = (Read::default(), None);
    let mut batches = execute_stream(plan, context.task_ctx())?;
    while let Some(batch) = batches.try_next().await? {
        first.get_or_insert_with(|| started.elapsed());
        read.rows += batch.num_rows() as u64;
    }
    read.first = first.unwrap_or_default().as_secs_f64();
    Ok(read)
}
