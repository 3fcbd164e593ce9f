//! A sandbox whose clock is moved by hand, and a reader of a changelog that polls when it is told.

use std::sync::Arc;
use std::time::Duration;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::temporal_conversions::timestamp_ms_to_datetime;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use datafusion_doris::changelog::{ChangelogControl, changelogs};
use doris_sandbox::engine::ManualClock;
use doris_sandbox::{Profile, Sandbox, SeenRequest, Site};
use futures::StreamExt;

use crate::harness::{Cluster, lines, run};

/// How long a test waits for a signal before it calls the wait a failure.
const PATIENCE: Duration = Duration::from_secs(30);

/// 2026-01-01 10:00:00 UTC.
pub const T0: i64 = 1_767_261_600_000;

/// A cluster whose clock stands still unless it is moved.
pub struct Timed {
    pub cluster: Cluster,
    pub ctx: SessionContext,
    clock: Arc<ManualClock>,
    now_ms: i64,
}

impl Timed {
    pub async fn start(profile: Profile, zone: &str, now_ms: i64) -> Self {
        let clock = Arc::new(ManualClock::new(now_ms));
        let builder = Sandbox::builder().profile(profile).time_zone(zone).clock(Arc::clone(&clock) as _);
        let cluster = Cluster::of(builder).await;
        let ctx = cluster.context();
        Self { cluster, ctx, clock, now_ms }
    }

    /// [`Timed::start`] with a unique table `t (id, v)` that records its changes with their old values.
    pub async fn with_table(profile: Profile, zone: &str, now_ms: i64) -> Self {
        let timed = Self::start(profile, zone, now_ms).await;
        timed.cluster.changing_table("t", "id INT NOT NULL, v VARCHAR(20)").await;
        timed
    }

    /// The server's time.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Moves the clock on to an instant.
    pub fn at(&mut self, ms: i64) {
        self.clock.advance(ms - self.now_ms);
        self.now_ms = ms;
    }

    pub async fn declare(&self, name: &str, options: &[(&str, &str)]) {
        self.cluster.declare(&self.ctx, name, "t", options).await;
    }

    pub async fn rows(&self, sql: &str) -> Vec<String> {
        lines(&run(&self.ctx, sql).await)
    }
}

/// A question for the changes of a window, as the server received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub order: u64,
    /// The bounds in the statement, epoch milliseconds.
    pub start_ms: i64,
    pub end_ms: i64,
    pub statement: String,
}

/// The questions for columns of the table `name` that arrived from the request `from` on.
pub fn asked(server: &Sandbox, name: &str, from: u64) -> Vec<Asked> {
    let read = |request: SeenRequest| {
        let columns = request.target.contains("SELECT `id`, ") && request.target.contains(&format!("`{name}`@incr"));
        (columns && request.method == "GetFlightInfo" && request.order >= from).then(|| Asked {
            order: request.order,
            start_ms: bound(&request.target, "startTimestamp"),
            end_ms: bound(&request.target, "endTimestamp"),
            statement: request.target,
        })
    };
    server.requests().matching(Site::FeFlight, "@incr").into_iter().filter_map(read).collect()
}

fn bound(statement: &str, key: &str) -> i64 {
    let from = statement.find(&format!("'{key}' = '")).expect("a window has bounds") + key.len() + 6;
    string_to_timestamp_nanos(&statement[from..from + 19]).expect("a time") / 1_000_000
}

/// An instant as text in UTC.
pub fn utc(ms: i64) -> String {
    timestamp_ms_to_datetime(ms).expect("an instant").to_string()
}

/// The number of the next request.
pub fn next_request(server: &Sandbox) -> u64 {
    server.requests().all().last().map_or(0, |request| request.order + 1)
}

/// A free-running read of a changelog of the table `t`, which polls when it is told.
pub struct Follower {
    stream: SendableRecordBatchStream,
    control: Arc<ChangelogControl>,
    reached_ms: Option<i64>,
    /// The first request that may be its own.
    pub begun: u64,
}

impl Follower {
    /// Options that keep it from polling by itself.
    pub const PATIENT: (&'static str, &'static str) = ("source.changelog.poll-interval", "1h");

    /// Starts a read; its first poll comes at once.
    pub async fn start(timed: &Timed, sql: &str) -> Self {
        let frame = datafusion_doris::sql(&timed.ctx, sql).await.expect("plans");
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await.expect("plans");
        let control = Arc::clone(changelogs(&plan).first().expect("a changelog").control());
        let begun = next_request(timed.cluster.server());
        let stream = execute_stream(plan, context).expect("runs");
        Self { stream, control, reached_ms: None, begun }
    }

    /// Waits until it knows where it starts.
    pub async fn has_started(&mut self, server: &Sandbox) {
        let control = Arc::clone(&self.control);
        let started = move |_: &Sandbox| control.position().changelog_ms().is_some();
        assert_eq!(self.take(server, 0, started).await, Vec::<String>::new());
    }

    /// Tells it to poll now. It does so until it has come further.
    pub fn poll(&self) {
        // A window that was asked for may still be read.
        let next_ms = self.control.position().changelog_ms().max(self.reached_ms);
        self.control.hurry(next_ms.expect("it has started") + 1);
    }

    /// Takes `rows` rows, and more that come before the server is as `done` tells.
    pub async fn take(&mut self, server: &Sandbox, rows: usize, done: impl Fn(&Sandbox) -> bool) -> Vec<String> {
        let mut taken = Vec::new();
        let taking = async {
            let mut waiting = true;
            while waiting || taken.len() < rows {
                tokio::select! {
                    batch = self.stream.next() => {
                        taken.extend(lines(&[batch.expect("the changelog does not end").expect("batch")]));
                    }
                    () = server.until(&done), if waiting => waiting = false,
                }
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, taking).await.is_ok();
        assert!(in_time, "{rows} rows expected, then a condition: {taken:?}");
        taken
    }

    /// Takes `rows` rows, until it has asked for a window that ends at `end_ms`.
    pub async fn reach(&mut self, server: &Sandbox, end_ms: i64, rows: usize) -> Vec<String> {
        let begun = self.begun;
        let reached = |server: &Sandbox| asked(server, "t", begun).iter().any(|window| window.end_ms == end_ms);
        let taken = self.take(server, rows, reached).await;
        self.reached_ms = Some(end_ms);
        taken
    }

    /// Stops it after what it reads, and gives the rows that were left.
    pub async fn stop(mut self) -> Vec<String> {
        self.control.stop();
        let mut rows = Vec::new();
        while let Some(batch) = self.stream.next().await {
            rows.extend(lines(&[batch.expect("batch")]));
        }
        rows
    }
}
