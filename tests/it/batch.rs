//! Write mode `STREAM_LOAD_BATCH`: rows are kept until there are enough of them for a load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use doris_sandbox::{Action, Fault, SeenRequest, Site};
use tokio::sync::{Mutex, Notify, mpsc};

use crate::cli::shell;
use crate::harness::{Cluster, refusal, run, text};
use crate::history::{HISTORY, History, caught_up};
use crate::write::{FORMATS, insert};

pub const BATCH: (&str, &str) = ("sink.write-mode", "STREAM_LOAD_BATCH");
const PLAIN: (&str, &str) = ("sink.properties.compress_type", "");
const PATIENCE: Duration = Duration::from_secs(120);
const SECOND_PHASE: &str = "_stream_load_2pc";

/// A duplicate table `t (id BIGINT, s VARCHAR(40))` that is written in batches, from one partition.
pub async fn table(options: &[(&str, &str)]) -> (Cluster, SessionContext) {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[&[BATCH], options].concat()).await;
    run(&ctx, "SET datafusion.execution.target_partitions = 1").await;
    (cluster, ctx)
}

pub fn rows_to(n: u64) -> String {
    format!("INSERT INTO t SELECT value, concat('v', value) FROM generate_series(1, {n})")
}

pub async fn count(cluster: &Cluster) -> String {
    cluster.scalar("SELECT COUNT(*) FROM {db}.t").await
}

/// The loads that the BEs got, in their order.
pub fn loads(cluster: &Cluster) -> Vec<SeenRequest> {
    let all = cluster.server().requests().matching(Site::Be, "_stream_load");
    all.into_iter().filter(|request| request.target.ends_with("_stream_load")).collect()
}

pub fn label(load: &SeenRequest) -> &str {
    load.header("label").expect("a label")
}

async fn nothing_runs(cluster: &Cluster) {
    let closed = cluster.server().until(|server| server.running_transactions() == 0);
    tokio::time::timeout(PATIENCE, closed).await.expect("no transaction stays open");
}

#[tokio::test]
async fn rows_come_in_loads_of_known_length_in_every_format() {
    for format in FORMATS {
        let (cluster, ctx) = table(&[format, &[("sink.buffer-flush.max-rows", "400")]].concat()).await;
        assert_eq!(insert(&ctx, &rows_to(1000)).await, 1000, "{format:?}");
        let right = "SELECT COUNT(DISTINCT id) FROM {db}.t WHERE s = concat('v', id)";
        assert_eq!((count(&cluster).await, cluster.scalar(right).await), ("1000".into(), "1000".into()), "{format:?}");
        let loads = loads(&cluster);
        assert_eq!(loads.len(), 3, "{format:?}");
        for (number, load) in loads.iter().enumerate() {
            assert!(label(load).ends_with(&format!("_0_1_{number}")), "{load:?}");
            assert_eq!(load.header("content-length"), Some(load.body_bytes.to_string().as_str()), "{load:?}");
            assert_eq!((load.header("transfer-encoding"), load.header("two_phase_commit")), (None, None), "{load:?}");
        }
    }
}

#[tokio::test]
async fn the_older_option_asks_for_batches_whatever_the_mode_says() {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    let ctx = cluster.context();
    let options =
        [("sink.enable.batch-mode", "true"), ("sink.write-mode", "stream_load"), ("sink.buffer-flush.max-rows", "10")];
    cluster.declare(&ctx, "t", "t", &options).await;
    assert_eq!(insert(&ctx, &rows_to(25)).await, 25);
    assert_eq!(loads(&cluster).len(), 3);
}

#[tokio::test]
async fn a_buffer_ends_with_its_bytes_before_compression() {
    for (compression, is_smaller) in [("", false), ("gz", true)] {
        let options = [("sink.buffer-flush.max-bytes", "20kb"), ("sink.properties.compress_type", compression)];
        let (cluster, ctx) = table(&options).await;
        // 20 bytes and more each: 1024 rows are a buffer.
        let rows = "SELECT value, 'abcdefghijklmn' FROM generate_series(10000, 14095)";
        assert_eq!(insert(&ctx, &format!("INSERT INTO t {rows}")).await, 4096);
        let bodies: Vec<u64> = loads(&cluster).iter().map(|load| load.body_bytes).collect();
        // Checked after each 1024 rows.
        assert_eq!(bodies.len(), 4, "{bodies:?}");
        assert_eq!(bodies.iter().all(|bytes| *bytes < 20 * 1024), is_smaller, "{bodies:?}");
        assert_eq!(count(&cluster).await, "4096");
    }
}

/// An input whose batches a test hands out.
#[derive(Debug)]
struct Fed {
    schema: SchemaRef,
    batches: Mutex<Option<mpsc::Receiver<RecordBatch>>>,
}

impl PartitionStream for Fed {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self.batches.try_lock().ok().and_then(|mut batches| batches.take()).expect("read once");
        let rows = futures::stream::unfold(batches, |mut batches| async { Some((Ok(batches.recv().await?), batches)) });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}

/// Registers `fed (id BIGINT)`; rows are given by the sender, and end with it.
fn fed(ctx: &SessionContext) -> mpsc::Sender<RecordBatch> {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let (sender, batches) = mpsc::channel(1);
    let input = Fed { schema: Arc::clone(&schema), batches: Mutex::new(Some(batches)) };
    let table = StreamingTable::try_new(schema, vec![Arc::new(input)]).expect("a table");
    ctx.register_table("fed", Arc::new(table)).expect("registers");
    sender
}

fn ids(ids: &[i64]) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(ids.to_vec()));
    RecordBatch::try_from_iter([("id", column)]).expect("a batch")
}

#[tokio::test]
async fn rows_are_sent_when_they_are_old_although_the_input_is_silent() {
    for parallelism in ["1", "2"] {
        let options = [("sink.buffer-flush.interval", "1s"), ("sink.parallelism", parallelism)];
        let (cluster, ctx) = table(&options).await;
        let input = fed(&ctx);
        let landed = |n: usize| {
            let server = cluster.server();
            let loads = server.until(move |server| {
                let loads = server.requests().matching(Site::Be, "_stream_load");
                loads.len() == n && server.running_transactions() == 0
            });
            async move { tokio::time::timeout(PATIENCE, loads).await.expect("rows are sent") }
        };
        let feed = async {
            input.send(ids(&[1, 2])).await.expect("is read");
            landed(1).await;
            assert_eq!(count(&cluster).await, "2", "visible while the statement runs");
            input.send(ids(&[3])).await.expect("is read");
            landed(2).await;
            drop(input);
        };
        let (written, ()) = tokio::join!(insert(&ctx, "INSERT INTO t SELECT id, 'x' FROM fed"), feed);
        assert_eq!((written, count(&cluster).await.as_str()), (3, "3"));
        assert_eq!(loads(&cluster).len(), 2);
    }
}

#[tokio::test]
async fn a_failed_load_ends_the_statement_although_the_input_is_silent() {
    for parallelism in ["1", "2"] {
        let options = [("sink.buffer-flush.max-rows", "2"), ("sink.parallelism", parallelism)];
        let (cluster, ctx) = table(&options).await;
        cluster.server().faults().push(Fault::new(Action::FailCommit("told to fail".into())).at(Site::Be).always());
        let input = fed(&ctx);
        input.send(ids(&[1, 2])).await.expect("waits");
        let failed = refusal(&ctx, "INSERT INTO t SELECT id, 'x' FROM fed");
        let message = tokio::time::timeout(PATIENCE, failed).await.expect("it does not wait for rows");
        assert!(message.contains("told to fail"), "{message}");
        drop(input);
    }
}

/// Inserts 12000 rows of `text`, and says how many are read while the answer of the first load is held, and in how many
/// loads they came.
async fn read_ahead(options: &[(&str, &str)], text: &str, at_least: u64) -> (u64, usize) {
    let (cluster, ctx) = table(options).await;
    let (seen, went_on) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (counter, signal) = (Arc::clone(&seen), Arc::clone(&went_on));
    let count_rows = move |args: &[ColumnarValue]| {
        if let ColumnarValue::Array(values) = &args[0] {
            counter.fetch_add(values.len() as u64, Ordering::SeqCst);
            signal.notify_one();
        }
        Ok(args[0].clone())
    };
    let types = vec![DataType::Int64];
    ctx.register_udf(create_udf("seen", types, DataType::Int64, Volatility::Volatile, Arc::new(count_rows)));
    run(&ctx, "SET datafusion.execution.batch_size = 100").await;
    let (done, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let hold = Action::HoldAnswer { done: Arc::clone(&done), release: Arc::clone(&release) };
    cluster.server().faults().push(Fault::new(hold).at(Site::Be).when("_0_1_0"));
    let watch = async {
        done.notified().await;
        while seen.load(Ordering::SeqCst) < at_least {
            went_on.notified().await;
        }
        // Whatever could go on would, on this one thread.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(loads(&cluster).len(), 1, "one load at a time");
        release.notify_one();
        seen.load(Ordering::SeqCst)
    };
    let select = format!("INSERT INTO t SELECT seen(value), '{text}' FROM generate_series(1, 12000)");
    let both = async { tokio::join!(insert(&ctx, &select), watch) };
    let (written, read) = tokio::time::timeout(PATIENCE, both).await.expect("in time");
    assert_eq!((written, count(&cluster).await.as_str()), (12_000, "12000"));
    (read, loads(&cluster).len())
}

#[tokio::test]
async fn a_full_queue_holds_the_input_up() {
    // One that is filled, two in the queue, one that is sent.
    let (read, loads) = read_ahead(&[("sink.buffer-flush.max-rows", "1000"), PLAIN], "x", 4000).await;
    assert!((4000..4400).contains(&read), "{read} rows are read ahead");
    assert_eq!(loads, 12);
}

#[tokio::test]
async fn all_buffers_of_a_writer_share_the_memory_of_one() {
    // Rows of 50 bytes: half of the memory is sent at once, and the other half is filled meanwhile.
    let text = "y".repeat(40);
    let options = [("sink.buffer-flush.max-bytes", "100kb"), ("sink.buffer-size", "5kb"), PLAIN];
    let (read, loads) = read_ahead(&options, &text, 1700).await;
    assert!((1700..2600).contains(&read), "{read} rows are read ahead");
    assert!((6..=13).contains(&loads), "{loads} loads");
}

#[tokio::test]
async fn the_last_change_of_a_key_counts_over_all_batches() {
    let csv = FORMATS[0];
    let mut tried: Vec<_> = FORMATS.iter().map(|format| ("1", "true", *format)).collect();
    tried.extend([("3", "true", csv), ("1", "false", csv), ("3", "false", csv)]);
    for (parallelism, two_phase, format) in tried {
        let what = format!("{parallelism} {two_phase} {format:?}");
        let cluster = Cluster::sandbox().await;
        cluster.unique_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
        let ctx = cluster.context();
        run(&ctx, "SET datafusion.execution.target_partitions = 1").await;
        let options = [
            BATCH,
            ("sink.buffer-flush.max-rows", "2"),
            ("sink.parallelism", parallelism),
            ("sink.enable-2pc", two_phase),
            ("sink.change-kind-column", "kind"),
        ];
        cluster.declare(&ctx, "t", "t", &[&options, format].concat()).await;
        let mut changes = Vec::new();
        for round in 0..8 {
            for id in 0..4 {
                // Each key ends in its own way.
                let kind = if (round + id) % 3 == 2 { "-D" } else { "+U" };
                changes.push(format!("({id}, 'r{round}', '{kind}')"));
            }
        }
        insert(&ctx, &format!("INSERT INTO t VALUES {}", changes.join(", "))).await;
        let rows = cluster.doris("SELECT id, s FROM {db}.t ORDER BY id").await;
        let rows: Vec<String> = rows.iter().flatten().flatten().cloned().collect();
        assert_eq!(rows, ["0", "r7", "2", "r7", "3", "r7"], "{what}");
        assert!(loads(&cluster).len() >= 16, "{what}: {}", loads(&cluster).len());
    }
}

#[tokio::test]
async fn many_writers_number_their_batches_apart() {
    let (cluster, ctx) = table(&[("sink.parallelism", "3"), ("sink.buffer-flush.max-rows", "100")]).await;
    run(&ctx, "SET datafusion.execution.batch_size = 50").await;
    assert_eq!(insert(&ctx, &rows_to(1000)).await, 1000);
    assert_eq!(count(&cluster).await, "1000");
    let loads = loads(&cluster);
    let number = |load: &SeenRequest| label(load).rsplit('_').next().and_then(|text| text.parse().ok());
    let mut numbers: Vec<u32> = loads.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), loads.len(), "each label once");
    for writer in 0..3 {
        let own: Vec<u32> = numbers.iter().copied().filter(|number| number % 3 == writer).collect();
        let expected: Vec<u32> = (0..own.len() as u32).map(|batch| batch * 3 + writer).collect();
        assert_eq!(own, expected);
        assert!(own.len() >= 3, "{numbers:?}");
    }
}

#[tokio::test]
async fn two_phases_are_as_told_and_the_plan_says_what_that_means() {
    let at_least = "at-least-once (each batch is visible as it lands)";
    for (told, two_phase, guarantee, commits) in [
        (None, "two_phase_commit=with checkpoints", at_least, 0),
        (Some("false"), "two_phase_commit=false", at_least, 0),
        (Some("true"), "two_phase_commit=true", "all-or-nothing (several commits, one after the other)", 3),
    ] {
        let told: Vec<_> = told.map(|told| ("sink.enable-2pc", told)).into_iter().collect();
        let (cluster, ctx) = table(&[&told[..], &[("sink.buffer-flush.max-rows", "400")]].concat()).await;
        let plan = text(&run(&ctx, &format!("EXPLAIN {}", rows_to(1000))).await);
        assert!(plan.contains(two_phase) && plan.contains(guarantee), "{plan}");
        assert!(plan.contains("write_mode=STREAM_LOAD_BATCH"), "{plan}");
        let (done, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let hold = Action::HoldAnswer { done: Arc::clone(&done), release: Arc::clone(&release) };
        cluster.server().faults().push(Fault::new(hold).at(Site::Be).when("_0_1_1"));
        let watch = async {
            done.notified().await;
            let visible = count(&cluster).await;
            release.notify_one();
            visible
        };
        let insert = rows_to(1000);
        let both = async { tokio::join!(crate::write::insert(&ctx, &insert), watch) };
        let (written, visible) = tokio::time::timeout(PATIENCE, both).await.expect("in time");
        assert_eq!((written, count(&cluster).await.as_str()), (1000, "1000"));
        assert_eq!(visible, if commits == 0 { "800" } else { "0" }, "{told:?}");
        assert_eq!(cluster.server().requests().matching(Site::Be, SECOND_PHASE).len(), commits);
    }
}

#[tokio::test]
async fn dropping_an_insert_sends_nothing_more() {
    for (two_phase, parallelism, visible) in [("true", "1", "0"), ("false", "1", "200"), ("true", "3", "0")] {
        let options =
            [("sink.buffer-flush.max-rows", "100"), ("sink.enable-2pc", two_phase), ("sink.parallelism", parallelism)];
        let (cluster, ctx) = table(&options).await;
        // The answer to the second load of the first writer is held back.
        let (done, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let hold = Action::HoldAnswer { done: Arc::clone(&done), release: Arc::clone(&release) };
        cluster.server().faults().push(Fault::new(hold).at(Site::Be).when(&format!("_0_1_{parallelism}")));
        let frame = datafusion_doris::sql(&ctx, &rows_to(1_000_000_000)).await.expect("plans");
        {
            let running = frame.collect();
            tokio::pin!(running);
            tokio::select! {
                result = &mut running => panic!("ended: {result:?}"),
                held = tokio::time::timeout(PATIENCE, done.notified()) => held.expect("the load is held"),
            }
        }
        release.notify_one();
        nothing_runs(&cluster).await;
        if parallelism == "1" {
            assert!(loads(&cluster).len() <= 2, "{:?}", loads(&cluster));
        }
        assert_eq!(count(&cluster).await, visible, "2pc {two_phase}, parallelism {parallelism}");
    }
}

#[tokio::test]
async fn a_first_commit_that_is_refused_takes_all_batches_back() {
    let (cluster, ctx) = table(&[("sink.buffer-flush.max-rows", "100"), ("sink.enable-2pc", "true")]).await;
    let refused = Action::Status { code: 403, body: "no".to_string() };
    cluster.server().faults().push(Fault::new(refused).at(Site::Be).when("_stream_load_2pc commit"));
    refusal(&ctx, &rows_to(500)).await;
    nothing_runs(&cluster).await;
    assert_eq!(count(&cluster).await, "0");
    assert_eq!(insert(&ctx, &rows_to(500)).await, 500);
    assert_eq!(count(&cluster).await, "500");
}

const SMALL: &[(&str, &str)] = &[BATCH, ("sink.buffer-flush.max-rows", "10")];

/// A job in batch mode that goes on in another mode.
async fn killed_at(request: &str, skip: usize, then: &[(&str, &str)]) {
    let history = History::new(SMALL).await;
    let plan = text(&run(&history.ctx, &format!("EXPLAIN {HISTORY}")).await);
    assert!(plan.contains("guarantee=at-least-once (each batch is visible as it lands)"), "{plan}");
    history.killed_at(request, skip, then).await;
}

#[tokio::test]
async fn a_job_killed_between_its_batches_leaves_none_of_them() {
    killed_at("_stream_load ", 0, SMALL).await;
    killed_at("_stream_load ", 5, &[]).await;
    killed_at("_stream_load ", 5, &[BATCH, ("sink.parallelism", "3"), ("sink.buffer-flush.max-rows", "7")]).await;
}

#[tokio::test]
async fn a_job_killed_between_the_commits_of_its_batches_makes_every_row_visible_once() {
    killed_at(SECOND_PHASE, 0, &[]).await;
    killed_at(SECOND_PHASE, 4, SMALL).await;
}

#[tokio::test]
async fn an_epoch_that_is_written_again_frees_the_labels_of_its_first_attempt() {
    let history = History::new(SMALL).await;
    let cluster = &history.cluster;
    let job = history.start(&history.ctx).await;
    caught_up(&job).await;
    // Batches 0 to 3 are pre-committed, the next one is refused for a reason that passes, more often than it is tried; some
    // of their aborts are refused at first.
    let busy = Action::FailCommit("current running txns on db 1 is 1000, larger than limit 1000".into());
    cluster.server().faults().push(Fault::new(busy).at(Site::Be).when("_stream_load ").skip(4).times(4));
    let refused = Action::Status { code: 500, body: "not now".to_string() };
    cluster.server().faults().push(Fault::new(refused).at(Site::Be).when("_stream_load_2pc abort").times(6));
    history.change_all().await;
    caught_up(&job).await;
    job.stop().await.expect("stops");
    history.assert_once().await;
}

#[tokio::test]
async fn without_two_phases_a_job_goes_on_after_a_failure_at_least_once() {
    let options = [SMALL, &[("sink.enable-2pc", "false"), ("sink.max-retries", "0")]].concat();
    let history = History::new(&options).await;
    let cluster = &history.cluster;
    let job = history.start(&history.ctx).await;
    caught_up(&job).await;
    let busy = Action::FailCommit("current running txns on db 1 is 1000, larger than limit 1000".into());
    cluster.server().faults().push(Fault::new(busy).at(Site::Be).when("_stream_load ").skip(3));
    history.change_all().await;
    caught_up(&job).await;
    job.stop().await.expect("stops");
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.history").await, "140");
    let written: u64 = cluster.scalar("SELECT SUM(n) FROM {db}.history").await.parse().expect("a number");
    assert!((140..=180).contains(&written), "{written}");
}

#[tokio::test]
async fn options_of_the_batch_mode_are_checked_by_name() {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id BIGINT NOT NULL", "").await;
    let ctx = cluster.context();
    for (key, value, reason) in [
        ("sink.buffer-flush.max-rows", "0", "above 0"),
        ("sink.buffer-flush.max-bytes", "0kb", "above 0"),
        ("sink.flush.queue-size", "0", "above 0"),
        ("sink.buffer-flush.interval", "999ms", "at least 1s"),
        ("sink.write-mode", "bulk", "'bulk' is no write mode"),
    ] {
        let message = refusal(&ctx, &cluster.ddl("t", "t", &[BATCH, (key, value)])).await;
        assert!(message.contains(key) && message.contains(reason), "{message}");
    }
}

#[tokio::test]
async fn the_example_runs() {
    let outcome = shell(&["--sandbox", "-q", "-f", "examples/batch_write.sql"]).await;
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert!(outcome.out.contains("25000"), "{}", outcome.out);
}
