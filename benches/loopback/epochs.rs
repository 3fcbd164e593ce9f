//! What an epoch costs: of a job that has a backlog, and of one that has nothing to do.

use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;
use datafusion_doris::job::{JobState, SyncJob};

use crate::common::measure::Series;
use crate::common::usage::cpu_of_threads;
use crate::common::{Outcome, Server, backlog};
use crate::report::{Bar, Figure, Report};
use crate::share;

/// Changes of each second of the backlog: an epoch has so many.
const ROWS: u64 = 150_000;
/// Seconds of the backlog, and epochs of the job with checkpoints.
const SECONDS: u64 = 8;
/// Seconds for which the idle job is watched.
const IDLE_SECONDS: u64 = 10;
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at a job's progress.
const LOOK: Duration = Duration::from_millis(2);

const MIRROR: &str = "INSERT INTO history SELECT * FROM changes";

/// Measures both.
pub async fn measure(server: &mut Server, runs: u64, report: &mut Report) -> Outcome<()> {
    let rows = share(ROWS, 100)?;
    let context = datafusion_doris::session_context();
    backlog::tables(server, &context, ", 'sink.properties.compress_type' ''").await?;
    let start = backlog::fill(server, &context, rows, SECONDS).await?;
    backlog::declare_changes(server, &context, &start, ", 'source.changelog.poll-interval' '1s'").await?;
    let changes = rows * SECONDS;
    let [mut with, mut without] = [(); 2].map(|()| Series::default());
    for run in 0..=runs {
        without.time(mirror(&context, false, changes)).await?;
        with.time(mirror(&context, true, changes)).await?;
        if run == 0 {
            with.clear();
            without.clear();
        }
    }
    let cost = with.longer_than(&without) / SECONDS as f64;
    let beside = format!(
        "{:.1} ms each; {:.0} changes/s with checkpoints and epochs, {:.0} without checkpoints ± {:.0} %",
        cost * 1e3,
        changes as f64 / with.wall(),
        changes as f64 / without.wall(),
        without.spread()
    );
    let name = "epochs: what one takes of a second, more than without checkpoints";
    let figure = Figure::new(name, cost / INTERVAL.as_secs_f64() * 100.0, "%", Bar::Most(5.0));
    report.add(figure.of(&with).moved(None, changes).slack(2.0).beside(beside));
    idle(&context, report).await?;
    for table in ["source", "history"] {
        server.doris(&format!("DROP TABLE bench.{table}")).await?;
    }
    Ok(())
}

/// Writes the backlog by a job.
async fn mirror(context: &SessionContext, checkpoints: bool, changes: u64) -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let mut job = SyncJob::builder("mirror");
    if checkpoints {
        job = job.checkpoint_dir(dir.path().to_str().ok_or("an odd path")?).checkpoint_interval(INTERVAL);
    }
    let job = job.submit(context, MIRROR).await?;
    written(&job, changes).await?;
    job.stop().await?;
    Ok(())
}

/// Waits for so many rows. Not `caught_up`, which waits for the end of the present second.
pub async fn written(job: &SyncJob, changes: u64) -> Outcome<()> {
    loop {
        let status = job.status();
        if status.state != JobState::Running {
            return Err(format!("the job ended: {:?}", status.error).into());
        }
        if status.rows >= changes {
            return match status.rows == changes {
                true => Ok(()),
                false => Err(format!("{} rows were written, not {changes}", status.rows).into()),
            };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Watches a job that looks for changes and may end an epoch every second, and finds nothing.
async fn idle(context: &SessionContext, report: &mut Report) -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let dir = dir.path().to_str().ok_or("an odd path")?;
    let job =
        SyncJob::builder("idle").checkpoint_dir(dir).checkpoint_interval(INTERVAL).submit(context, MIRROR).await?;
    job.caught_up().await?;
    let (before, first, started) = (cpu_of_threads()?, job.status().epochs, Instant::now());
    tokio::time::sleep(Duration::from_secs(share(IDLE_SECONDS, 3)?)).await;
    let (after, epochs, seconds) = (cpu_of_threads()?, job.status().epochs - first, started.elapsed().as_secs_f64());
    job.stop().await?;
    let cpu = after.zip(before).map_or(f64::NAN, |(after, before)| (after - before) * 1e3);
    let beside =
        format!("{cpu:.1} ms in {seconds:.1} s, in which it looked once a second; {epochs} epochs were recorded");
    let figure = Figure::new("epochs: CPU of an idle one, each second", cpu / seconds, "ms", Bar::Most(5.0));
    report.add(figure.slack(1.0).beside(beside));
    Ok(())
}
