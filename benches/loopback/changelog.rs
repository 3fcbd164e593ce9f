//! Changes read and written on, beside the same changes only read.

use datafusion::prelude::SessionContext;

use crate::common::measure::Series;
use crate::common::{Outcome, Server, backlog};
use crate::report::{Bar, Figure, Report};
use crate::share;

/// Changes of each second of the backlog.
const ROWS: u64 = 200_000;
/// Seconds of the backlog.
const SECONDS: u64 = 10;

/// Measures the backlog.
pub async fn measure(server: &mut Server, runs: u64, report: &mut Report) -> Outcome<()> {
    let rows = share(ROWS, 100)?;
    let context = datafusion_doris::session_context();
    fill(server, &context, rows).await?;
    let changes = rows * SECONDS;
    let [mut written, mut read] = [(); 2].map(|()| Series::default());
    for run in 0..=runs {
        let count = read.time(counted(&context, "SELECT count(*) FROM changes")).await?;
        let sent = written.time(counted(&context, "INSERT INTO history SELECT * FROM changes")).await?;
        if (count, sent) != (changes, changes) {
            return Err(format!("{count} changes read and {sent} written, not {changes}").into());
        }
        if run == 0 {
            read.clear();
            written.clear();
        }
    }
    let beside = format!(
        "only read {:.0}/s ± {:.0} % with {:.2} CPU s; the server makes them while they are read",
        changes as f64 / read.wall(),
        read.spread(),
        read.cpu()
    );
    let rate = changes as f64 / written.wall();
    let figure = Figure::new("changelog: changes read and written", rate, "1/s", Bar::Least(500_000.0));
    report.add(figure.of(&written).moved(None, changes).beside(beside));
    for table in ["source", "history"] {
        server.doris(&format!("DROP TABLE bench.{table}")).await?;
    }
    Ok(())
}

/// Makes the backlog: a transaction in each second.
async fn fill(server: &mut Server, context: &SessionContext, rows: u64) -> Outcome<()> {
    backlog::tables(server, context, ", 'sink.properties.compress_type' ''").await?;
    let start = backlog::fill(server, context, rows, SECONDS).await?;
    backlog::declare_changes(server, context, &start, ", 'source.scan.bounded-mode' 'latest'").await
}

/// The number in the answer.
async fn counted(context: &SessionContext, sql: &str) -> Outcome<u64> {
    let batches = datafusion_doris::sql(context, sql).await?.collect().await?;
    let column = batches.first().ok_or("no answer")?.column(0);
    let text = arrow::util::display::array_value_to_string(column, 0)?;
    Ok(text.parse()?)
}
