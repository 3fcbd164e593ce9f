//! Staged objects that go, or change, between the client's look at them and the INSERT: Doris reads fewer rows than were
//! staged, or none, and its label is visible all the same.

use std::sync::Arc;

use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion_doris::Error;
use datafusion_doris::error::Retry;
use doris_sandbox::{Action, Fault, Profile, Site};
use tokio::sync::Notify;

use crate::checkpoint::{caught_up, history, job};
use crate::harness::{run, text};
use crate::tvf::{PATIENCE, Staging, fault_is_met};
use crate::tvf_jobs::{HISTORY, source_and_history_with};
use crate::tvf_outcomes::{bounded, rows, write};

const BUCKET: &str = "lake";
const STATEMENT: &str = "with label";
const CLEAN_UP: (&str, &str) = ("sink.s3.clean-up", "true");
const PARQUET: (&str, &str) = ("sink.properties.format", "parquet");
const PLAIN: (&str, &str) = ("sink.properties.compress_type", "");

/// Holds the next INSERT of staged rows at the server.
struct Held<'a> {
    staging: &'a Staging,
    signal: Arc<Notify>,
    before: usize,
}

fn hold(staging: &Staging) -> Held<'_> {
    let (signal, faults) = (Arc::new(Notify::new()), staging.cluster.server().faults());
    let before = faults.applied().len();
    faults.push(Fault::new(Action::Wait(Arc::clone(&signal))).at(Site::Mysql).when(STATEMENT));
    Held { staging, signal, before }
}

impl Held<'_> {
    /// What comes of `running`, when `change` acts while the INSERT is held.
    async fn changed<T>(self, running: impl Future<Output = T>, change: impl FnOnce(&Staging)) -> T {
        tokio::pin!(running);
        let met = fault_is_met(&self.staging.cluster, self.before);
        tokio::select! {
            _ = &mut running => panic!("it ended before its INSERT came"),
            met = tokio::time::timeout(PATIENCE, met) => met.expect("the INSERT comes"),
        }
        change(self.staging);
        self.signal.notify_one();
        tokio::time::timeout(PATIENCE, running).await.expect("it ends")
    }
}

/// Puts Parquet files with the same columns and no rows in the place of all objects.
fn empty_all(staging: &Staging) {
    for key in staging.keys() {
        let file = staging.s3.get(BUCKET, &key).expect("an object");
        let schema = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet").schema().clone();
        let mut empty = Vec::new();
        ArrowWriter::try_new(&mut empty, schema, None).expect("a writer").close().expect("written");
        staging.s3.put(BUCKET, &key, empty);
    }
}

/// Leaves one row of each JSON object.
fn cut_all(staging: &Staging) {
    for key in staging.keys() {
        let file = staging.s3.get(BUCKET, &key).expect("an object");
        let end = file.iter().position(|byte| *byte == b'\n').expect("a line");
        staging.s3.put(BUCKET, &key, file.slice(..=end));
    }
}

#[tokio::test]
async fn an_insert_that_read_nothing_is_an_error_though_its_label_is_visible() {
    let more = [PARQUET, CLEAN_UP];
    for (unique, timeout) in [(false, false), (false, true), (true, false)] {
        let staging = if unique { Staging::unique(&more).await } else { Staging::duplicate(&more).await };
        let recorded = crate::metrics::Recorded::default();
        // The test's own thread runs all of its tasks.
        let _recorder = metrics::set_default_local_recorder(&recorded);
        let of = |name: &str| recorded.of(name, &staging.cluster.table("t"));
        if timeout {
            // The answer tells that it is committed, and not visible yet.
            let faults = staging.cluster.server().faults();
            faults.push(Fault::new(Action::PublishTimeout).at(Site::Mysql).when(STATEMENT));
        }
        let writing = write(&staging, &more, rows(0..20));
        let error = hold(&staging).changed(writing, empty_all).await.expect_err("nothing was read");
        assert!(matches!(&error, Error::NothingRead { .. }) && error.retry() == Retry::Never, "{error:?}");
        let (told, kept) = (error.to_string(), staging.keys());
        let state = if timeout { "'status':'committed'" } else { "'status':'visible'" };
        let table = staging.cluster.table("t");
        for part in [format!("s3://{BUCKET}/{}", kept[0]).as_str(), &table, "Label datafusion_doris_", "used up", state]
        {
            assert!(told.contains(part), "no {part} in {told}");
        }
        assert_eq!((kept.len(), staging.rows().await.as_str(), staging.inserts().len()), (1, "0", 1), "{told}");
        assert_eq!((of("doris_sink_loads_failed"), of("doris_sink_loads_succeeded")), (Some(1), None));

        let report = write(&staging, &more, rows(0..20)).await.expect("written under another label");
        assert_eq!((report.rows, staging.rows().await.as_str()), (20, "20"));
        assert_eq!(staging.keys(), kept, "the objects of the first are left as they are");
    }
}

#[tokio::test]
async fn rows_that_were_not_read_are_told_and_their_objects_stay() {
    let more = [PLAIN, CLEAN_UP];
    let staging = bounded(Profile::default(), &more).await;
    let recorded = crate::metrics::Recorded::default();
    // The test's own thread runs all of its tasks.
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let of = |name: &str| recorded.of(&format!("doris_sink_{name}"), &staging.cluster.table("t"));
    let complete = write(&staging, &more, rows(0..3)).await.expect("written");
    assert_eq!((complete.missing_rows, of("missing_rows"), staging.keys()), (0, Some(0), vec![]));

    let report = hold(&staging).changed(write(&staging, &more, rows(10..30)), cut_all).await.expect("written");
    assert_eq!((report.rows, report.missing_rows, report.filtered, report.uncounted.len()), (1, 19, None, 0));
    assert_eq!((of("missing_rows"), of("loaded_rows"), of("loads_succeeded")), (Some(19), Some(4), Some(2)));
    assert_eq!((staging.rows().await.as_str(), staging.keys().len()), ("4", 1), "the object stays");

    let insert = "EXPLAIN ANALYZE INSERT INTO t SELECT value, 'x' FROM generate_series(40, 49)";
    let plan = hold(&staging).changed(run(&staging.ctx, insert), cut_all).await;
    let plan = text(&plan);
    for part in ["loaded_rows=1,", "missing_rows=9", "missing_load=datafusion_doris_"] {
        assert!(plan.contains(part), "no {part} in {plan}");
    }
}

/// An object of several is removed.
#[tokio::test]
async fn the_shell_warns_of_rows_that_were_not_read() {
    let staging = bounded(Profile::default(), &[]).await;
    let ddl = staging.ddl("t", &[CLEAN_UP, ("sink.parallelism", "2")]);
    let insert = "INSERT INTO t SELECT value, 'x' FROM generate_series(1, 20)";
    let script = format!("SET datafusion.execution.batch_size = 10;\n{ddl};\n{insert};");
    let shell = ["-c", script.as_str()];
    let held = hold(&staging);
    let remove_one = |staging: &Staging| {
        assert_eq!(staging.keys().len(), 2);
        staging.s3.remove(BUCKET, &staging.keys()[1]);
    };
    let run = held.changed(crate::cli::shell(&shell), remove_one).await;
    assert_eq!(run.code, 0, "{}", run.err);
    for part in ["warning: staged rows of load datafusion_doris_", "10 in all", "s3://lake/stage/"] {
        assert!(run.err.contains(part), "no {part} in {}", run.err);
    }
    assert_eq!((staging.rows().await.as_str(), staging.keys().len()), ("10", 1));
}

#[tokio::test]
async fn a_job_whose_epoch_was_not_read_stops_and_its_next_start_writes_the_rows() {
    let (staging, dir) = source_and_history_with(&[PARQUET, CLEAN_UP]).await;
    let held = hold(&staging);
    let first = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    let told = held.changed(first.wait(), empty_all).await.expect_err("it stops").to_string();
    let kept = staging.keys();
    for part in [format!("s3://{BUCKET}/{}", kept[0]).as_str(), "is used up", "its next start reads and writes them"] {
        assert!(told.contains(part), "no {part} in {told}");
    }
    assert_eq!((kept.len(), staging.inserts().len(), history(&staging.cluster).await), (1, 1, vec![]));

    staging.cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    let second = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    assert_eq!(history(&staging.cluster).await, ["1 +I a", "2 +I b", "3 +I c", "4 +I d", "5 +I e"]);
    assert_eq!(staging.keys(), kept, "the objects of the first are left as they are");
}

#[tokio::test]
async fn a_recorded_epoch_that_is_not_read_at_the_next_start_stops_that_and_is_written_by_the_one_after() {
    let (staging, dir) = source_and_history_with(&[PARQUET]).await;
    let server = staging.cluster.server();
    // The job dies with its epoch recorded and nothing of it in the table.
    let refused = Action::Status { code: 1105, body: "not now".to_owned() };
    server.faults().push(Fault::new(refused).at(Site::Mysql).when(STATEMENT).always());
    let first = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    tokio::time::timeout(PATIENCE, fault_is_met(&staging.cluster, 0)).await.expect("the statement comes");
    drop(first);
    server.faults().clear();

    let held = hold(&staging);
    let second = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    let told = held.changed(second.wait(), empty_all).await.expect_err("it stops").to_string();
    assert!(told.contains("Doris read no rows of s3://lake/stage/"), "{told}");
    assert_eq!(history(&staging.cluster).await.len(), 0);

    let third = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&third).await;
    third.stop().await.expect("stops");
    assert_eq!(history(&staging.cluster).await, ["1 +I a", "2 +I b", "3 +I c", "4 +I d"]);
}

/// Without checkpoints there is nothing to go on from.
#[tokio::test]
async fn a_job_without_checkpoints_does_not_take_an_epoch_for_written_that_was_not_read() {
    let (staging, _dir) = source_and_history_with(&[PARQUET, CLEAN_UP]).await;
    let held = hold(&staging);
    let only = datafusion_doris::job::SyncJob::builder("history").submit(&staging.ctx, HISTORY).await.expect("starts");
    let told = held.changed(only.wait(), empty_all).await.expect_err("it stops").to_string();
    assert!(told.contains("Doris read no rows of s3://lake/stage/"), "{told}");
    assert_eq!((staging.keys().len(), history(&staging.cluster).await.len()), (1, 0));
}
