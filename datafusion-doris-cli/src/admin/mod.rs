//! `jobs`: what is kept of continuous INSERTs in a checkpoint directory, shown and changed.

mod args;
mod tables;

use std::env;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion_doris::checkpoint::admin::{
    self, DropOutcome, JobAdmin, JobDescription, LoadService, LoadsOutcome, ResetOutcome, ResetTarget,
};
use datafusion_doris::client::DorisClient;
use datafusion_doris::options::{ConnectionOptions, Secret};
use datafusion_doris::protocol::LabelState;
use datafusion_doris::sink::DorisLoads;
use datafusion_doris::types::{LocalTime, ServerZone};

pub use self::args::{JobsArgs, JobsCommand};
use self::tables::{Clock, OpenLoad};
use crate::context::{FENODES_VARIABLE, PASSWORD_VARIABLE, USER_VARIABLE};
use crate::error::{Result, ShellError};
use crate::exec::print_whole;
use crate::output::Output;
use crate::render::Format;

/// The server that the jobs write to.
struct Server {
    client: DorisClient,
    loads: DorisLoads,
}

impl Server {
    async fn now_ms(&self) -> Result<i64> {
        Ok(self.client.current_tso().await?.physical_ms())
    }
}

/// Runs one command of `jobs`.
///
/// # Errors
/// [`ShellError::Arguments`] for arguments that do not fit; whatever the checkpoints or the server answer.
pub(crate) async fn run(args: &JobsArgs, output: &Output) -> Result<()> {
    let Some(dir) = args.dir.as_deref() else {
        return Err(ShellError::Arguments("--dir is required: the checkpoint directory, or s3://bucket/prefix".into()));
    };
    let view = View { output, format: args.format, quiet: args.quiet };
    let server = server(args).await?;
    match &args.command {
        JobsCommand::List => view.show(None, tables::jobs(&admin::list(dir).await?)).await,
        JobsCommand::Show { name } => show(&view, &existing(dir, name).await?, server.as_ref()).await,
        JobsCommand::Reset { name, to_savepoint, to_timestamp, time_zone } => {
            existing(dir, name).await?;
            let target = match (to_savepoint, to_timestamp) {
                (Some(savepoint), _) => ResetTarget::Savepoint(savepoint.clone()),
                (None, time) => {
                    let time = time.as_deref().unwrap_or_default();
                    instant(time, time_zone.as_deref(), server.as_ref()).await?
                }
            };
            let loads = server.as_ref().map(|server| &server.loads as &dyn LoadService);
            let outcome = JobAdmin::open(dir, name)?.reset(&target, loads).await?;
            told_reset(&view, name, &outcome).await
        }
        JobsCommand::Drop { name, force, keep_savepoints } => {
            existing(dir, name).await?;
            let loads = server.as_ref().map(|server| &server.loads as &dyn LoadService);
            let outcome = JobAdmin::open(dir, name)?.drop_job(loads, *force, *keep_savepoints).await?;
            told_drop(&view, name, &outcome).await
        }
    }
}

/// The server that the arguments name, else the environment; `None` = neither does.
async fn server(args: &JobsArgs) -> Result<Option<Server>> {
    let fenodes = args.fenodes.clone().or_else(|| env::var(FENODES_VARIABLE).ok()).unwrap_or_default();
    let nodes: Vec<String> =
        fenodes.split(',').map(str::trim).filter(|node| !node.is_empty()).map(str::to_owned).collect();
    if nodes.is_empty() {
        return Ok(None);
    }
    let user = args.username.clone().or_else(|| env::var(USER_VARIABLE).ok()).unwrap_or_else(|| "root".to_owned());
    let password = match &args.password_file {
        Some(path) => {
            let read = tokio::fs::read_to_string(path).await;
            let text = read.map_err(|source| ShellError::Read { path: path.display().to_string(), source })?;
            text.trim_end_matches(['\r', '\n']).to_owned()
        }
        None => env::var(PASSWORD_VARIABLE).unwrap_or_default(),
    };
    let options = ConnectionOptions { username: user, password: Secret::new(password), ..ConnectionOptions::default() };
    let client = DorisClient::try_new(Arc::new(options.with_fenodes(nodes)))?;
    Ok(Some(Server { loads: DorisLoads::new(client.clone()), client }))
}

/// A job of which something is kept.
///
/// # Errors
/// [`ShellError::Job`] with the names that there are.
async fn existing(dir: &str, name: &str) -> Result<JobDescription> {
    let job = JobAdmin::open(dir, name)?.describe().await?;
    if job.newest().is_some() || !job.savepoints.is_empty() {
        return Ok(job);
    }
    let jobs: Vec<String> = admin::list(dir).await?.into_iter().map(|job| job.job).collect();
    let known = if jobs.is_empty() { "there are no jobs".to_owned() } else { format!("there are {}", jobs.join(", ")) };
    Err(ShellError::Job(format!("no job named `{name}` below {dir}: {known}")))
}

/// The instant of a wall clock time, in the server's zone where there is a server.
async fn instant(time: &str, zone: Option<&str>, server: Option<&Server>) -> Result<ResetTarget> {
    let wrong = |reason: String| ShellError::Arguments(format!("--to-timestamp: {reason}"));
    let time = LocalTime::parse(time).map_err(wrong)?;
    let (zone, now_ms) = match (server, zone) {
        (Some(server), None) => (server.client.time_zone().await?, server.now_ms().await?),
        (None, None) => {
            return Err(wrong(
                "it is a time of the server's zone: name the server (--fenodes), or its zone (--time-zone)".to_owned(),
            ));
        }
        (server, Some(zone)) => {
            let zone: ServerZone =
                zone.parse().map_err(|reason| ShellError::Arguments(format!("--time-zone: {reason}")))?;
            let now_ms = match server {
                Some(server) => server.now_ms().await?,
                None => local_now_ms(),
            };
            (zone, now_ms)
        }
    };
    Ok(ResetTarget::Timestamp { at_ms: time.to_epoch_ms(&zone).map_err(wrong)?, now_ms })
}

fn local_now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

async fn show(view: &View<'_>, job: &JobDescription, server: Option<&Server>) -> Result<()> {
    let clock = match server {
        Some(server) => Clock { now_ms: server.now_ms().await?, name: "server" },
        None => Clock { now_ms: local_now_ms(), name: "local" },
    };
    view.show(Some("positions"), tables::positions(job, clock)).await?;
    view.show(Some("checkpoints"), tables::records(job)).await?;
    view.show(Some("open loads"), tables::loads(&open_loads(job, server).await?)).await?;
    view.show(Some("savepoints"), tables::savepoints(job)).await?;
    view.show(Some("what it is"), tables::facts(job)).await?;
    if server.is_none() {
        view.note("no server is named: lags are by the local clock, and loads in no checkpoint are not looked for")
            .await?;
    }
    Ok(())
}

/// Loads of the newest checkpoint that are not known to be visible, and those that the server has open beside it.
async fn open_loads(job: &JobDescription, server: Option<&Server>) -> Result<Vec<OpenLoad>> {
    let mut open = Vec::new();
    for load in job.open_loads() {
        let state = match server {
            Some(server) => Some(server.loads.label_state(load).await?),
            None => None,
        };
        open.push(OpenLoad { load: load.clone(), recorded: true, state });
    }
    if let (Some(server), Some(record)) = (server, job.current()) {
        let job_name = record.label_job();
        for mut search in job.leftovers().iter().filter_map(|leftover| leftover.search(&job_name)) {
            while let Some(load) = search.next_load() {
                let state = server.loads.label_state(&load).await?;
                search.answered(state);
                if matches!(state, LabelState::Prepare | LabelState::PreCommitted) {
                    open.push(OpenLoad { load, recorded: false, state: Some(state) });
                }
            }
        }
    }
    Ok(open)
}

async fn told_reset(view: &View<'_>, name: &str, outcome: &ResetOutcome) -> Result<()> {
    view.show(None, tables::changes(&outcome.sources)).await?;
    view.loads(&outcome.loads).await?;
    for label in &outcome.loads.left {
        view.output.note(&format!("left open, the next start aborts it: {label}")).await?;
    }
    view.note(&format!("job `{name}` is reset; generation {} fences what still runs of it", outcome.generation)).await
}

async fn told_drop(view: &View<'_>, name: &str, outcome: &DropOutcome) -> Result<()> {
    view.loads(&outcome.loads).await?;
    for label in &outcome.loads.left {
        view.output.note(&format!("left open, no later start commits it: {label}")).await?;
    }
    let kept = match outcome.kept_savepoints.as_slice() {
        [] => String::new(),
        kept => format!("; kept savepoints: {}", kept.join(", ")),
    };
    view.note(&format!("job `{name}` is dropped, {} objects removed{kept}", outcome.removed)).await
}

/// Where and how results are printed.
struct View<'a> {
    output: &'a Output,
    format: Format,
    quiet: bool,
}

impl View<'_> {
    /// Prints a table, under its title where people read.
    async fn show(&self, title: Option<&str>, table: std::result::Result<RecordBatch, ArrowError>) -> Result<()> {
        if let Some(title) = title
            && matches!(self.format, Format::Table | Format::Vertical)
        {
            self.output.data(format!("== {title}\n").into_bytes()).await?;
        }
        print_whole(&table?, self.format, self.output).await
    }

    async fn note(&self, line: &str) -> Result<()> {
        if self.quiet { Ok(()) } else { self.output.note(line).await }
    }

    async fn loads(&self, loads: &LoadsOutcome) -> Result<()> {
        for (labels, what) in [
            (&loads.visible, "recorded, committed"),
            (&loads.lost, "recorded, but given up by the server: its rows are not in the table"),
            (&loads.aborted, "in no checkpoint, aborted"),
            (&loads.unrecorded_visible, "in no checkpoint, but visible: its rows are in the table"),
        ] {
            for label in labels {
                self.note(&format!("{what}: {label}")).await?;
            }
        }
        Ok(())
    }
}
