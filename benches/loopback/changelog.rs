//! Changes read and written on, beside the same changes only read.

use datafusion::prelude::SessionContext;

use crate::common::measure::Series;
use crate::common::{Outcome, Server, amount, backlog};
use crate::report::{Bar, Report};

/// Changes of each second of the backlog.
const ROWS: u64 = 200_000;
/// Seconds of the backlog.
const SECONDS: u64 = 10;

/// Measures the backlog.
pub async fn measure(server: &mut Server, runs: u64, report: &mut Report) -> Outcome<()> {
    let rows = (ROWS * amount("LOOPBACK_PERCENT", 100)? / 100).max(1);
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
        "{changes} changes; only read {:.0}/s; {:.2} CPU s, only read {:.2}; spread {:.0} %",
        changes as f64 / read.wall(),
        written.cpu(),
        read.cpu(),
        written.spread()
    );
    report.add(
        "changelog: changes read and written",
        changes as f64 / written.wall(),
        "1/s",
        Bar::Least(500_000.0),
        beside,
    );
    Ok(())
}

/// Makes the backlog: a transaction in each second.
async fn fill(server: &mut Server, context: &SessionContext, rows: u64) -> Outcome<()> {
    let create = |name: &str, columns: &str, properties: &str| {
        format!(
            "CREATE TABLE bench.{name} ({columns}) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 4
             PROPERTIES ('replication_num' = '1'{properties})"
        )
    };
    server.doris(&create("source", backlog::COLUMNS, ", 'changelog.enable' = 'true'")).await?;
    let history = format!("{}, kind VARCHAR(2)", backlog::COLUMNS);
    server.doris(&create("history", &history, ", 'sandbox.discard' = 'true'")).await?;
    server.declare(context, "source", "source", "").await?;
    server.declare(context, "history", "history", ", 'sink.properties.compress_type' ''").await?;
    let start = backlog::fill(server, context, rows, SECONDS).await?;
    let options = format!(
        ", 'source.scan.mode' 'from-timestamp', 'source.scan.timestamp' '{start}', 'source.scan.bounded-mode' 'latest',
         'source.changelog.max-window' '1s'"
    );
    server.declare(context, "changes", "source", &options).await
}

/// The number in the answer.
async fn counted(context: &SessionContext, sql: &str) -> Outcome<u64> {
    let batches = datafusion_doris::sql(context, sql).await?.collect().await?;
    let column = batches.first().ok_or("no answer")?.column(0);
    let text = arrow::util::display::array_value_to_string(column, 0)?;
    Ok(text.parse()?)
}
