//! How soon a change is in the body of a load after it has reached this machine.
//!
//! The answers of the server and the body of the load go through connections of this process, which notes when each row
//! passes: so the time between is all that the client does, and nothing of the server or of the proxies.

use std::time::Duration;

use datafusion_doris::job::{JobState, SyncJob};

use crate::common::{Outcome, Server, backlog};
use crate::report::{Bar, Figure, Report};
use crate::share;
use crate::wire::{Watched, Wire, mark};

/// Transactions of the source, one after the other.
const TRANSACTIONS: u64 = 100;
/// Rows of each.
const ROWS: u32 = 10;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two epochs of the job.
const INTERVAL: Duration = Duration::from_secs(1);
/// Rows that must have been seen on both ways; a mark may be cut by a frame of HTTP.
const SEEN: f64 = 0.9;

/// Measures a live job.
pub async fn measure(server: &Server, report: &mut Report) -> Outcome<()> {
    let answers = Wire::start(&server.be_flight, Watched::Answers).await?;
    let loads = Wire::start(&server.be_http, Watched::Requests).await?;
    let context = datafusion_doris::session_context();
    let options = format!(", 'sink.properties.compress_type' '', 'benodes' '{}'", loads.address);
    backlog::tables(server, &context, &options).await?;
    let options = format!(
        ", 'source.scan.mode' 'latest', 'source.changelog.max-window' '1s', 'source.changelog.poll-interval' '1s',
         'doris.flight.host-map' '{}={}'",
        server.be_flight, answers.address
    );
    server.declare(&context, "changes", "source", &options).await?;
    let dir = tempfile::tempdir()?;
    let job = SyncJob::builder("latency")
        .checkpoint_dir(dir.path().to_str().ok_or("an odd path")?)
        .checkpoint_interval(INTERVAL)
        .submit(&context, "INSERT INTO history SELECT * FROM changes")
        .await?;
    job.caught_up().await?;
    let transactions = share(TRANSACTIONS, 20)?;
    let mut number = 0;
    for _ in 0..transactions {
        let rows: Vec<String> = (0..ROWS)
            .map(|row| format!("({0}, '{1}', 1.5, '2026-01-01 00:00:00')", number + row, mark(number + row)))
            .collect();
        server.doris(&format!("INSERT INTO bench.source VALUES {}", rows.join(", "))).await?;
        number += ROWS;
        tokio::time::sleep(PAUSE).await;
    }
    job.caught_up().await?;
    let status = job.status();
    if status.state != JobState::Running || status.rows != u64::from(number) {
        return Err(format!("{} of {number} changes were written: {:?}", status.rows, status.error).into());
    }
    job.stop().await?;
    let (reached, sent) = (answers.seen(), loads.seen());
    let mut times: Vec<f64> = reached
        .iter()
        .filter_map(|(number, reached)| sent.get(number).map(|sent| sent.saturating_duration_since(*reached)))
        .map(|time| time.as_secs_f64() * 1e3)
        .collect();
    times.sort_by(f64::total_cmp);
    if (times.len() as f64) < f64::from(number) * SEEN {
        return Err(format!("only {} of {number} rows were seen on both ways", times.len()).into());
    }
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).or(times.last()).copied();
    let worst = at(0.99).ok_or("no rows")?;
    let beside = format!(
        "median {:.1} ms, longest {:.1} ms; {} epochs of {transactions} transactions",
        at(0.5).unwrap_or(f64::NAN),
        times.last().copied().unwrap_or(f64::NAN),
        status.epochs
    );
    let figure = Figure::new("changelog: a row is in the load after it came, p99", worst, "ms", Bar::Most(50.0));
    report.add(figure.moved(None, times.len() as u64).slack(10.0).beside(beside));
    for table in ["source", "history"] {
        server.doris(&format!("DROP TABLE bench.{table}")).await?;
    }
    Ok(())
}
