//! What a sink tells of its loads: EXPLAIN ANALYZE, the `metrics` facade, refused rows with their reason.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use datafusion::prelude::SessionContext;
use datafusion_doris::sink::SINK_METRICS;
use doris_sandbox::Profile;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use crate::cli::shell;
use crate::harness::{Cluster, run, text};
use crate::write::{FORMATS, insert};

async fn table(profile: Profile, options: &[(&str, &str)]) -> (Cluster, SessionContext) {
    let cluster = Cluster::sandbox_as(profile).await;
    cluster.duplicate_table("t", "id INT, s VARCHAR(5)", "").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", options).await;
    (cluster, ctx)
}

const BAD: &str = "INSERT INTO t VALUES (1, 'a'), (2, 'much too long'), (3, 'c'), (4, 'd')";
/// One of four rows is refused, one of the others is left out.
const LENIENT: [(&str, &str); 2] = [("sink.properties.max_filter_ratio", "0.5"), ("sink.properties.where", "id <> 4")];

#[tokio::test]
async fn explain_analyze_shows_rows_times_and_the_first_reason() {
    for format in FORMATS {
        let (_cluster, ctx) = table(Profile::default(), &[format, &LENIENT].concat()).await;
        let plan = text(&run(&ctx, &format!("EXPLAIN ANALYZE {BAD}")).await);
        for metric in SINK_METRICS {
            assert!(plan.contains(&format!("{}=", metric.name)), "{format:?}: no {} in {plan}", metric.name);
        }
        for part in [
            "total_rows=4",
            "loaded_rows=2",
            "filtered_rows=1",
            "unselected_rows=1",
            "loads_succeeded=1",
            "loads_failed=0",
            "begin_txn_time={count=1 ",
            "first_filtered_row=",
            "schema length: 5",
        ] {
            assert!(plan.contains(part), "{format:?}: no {part} in {plan}");
        }
    }
}

#[tokio::test]
async fn the_reason_is_read_from_the_log_where_the_answer_does_not_tell_it() {
    let (cluster, ctx) = table(Profile::V2_1, &LENIENT).await;
    let plan = text(&run(&ctx, &format!("EXPLAIN ANALYZE {BAD}")).await);
    assert!(plan.contains("schema length: 5"), "{plan}");
    let logs = cluster.server().requests().matching(doris_sandbox::Site::Be, "_load_error_log");
    assert_eq!(logs.len(), 1);
    assert_eq!(logs[0].header("authorization"), None, "no credentials");

    cluster.declare(&ctx, "strict", "t", &[]).await;
    let message = crate::harness::refusal(&ctx, "INSERT INTO strict VALUES (1, 'much too long')").await;
    assert!(message.contains("schema length: 5") && message.contains("_load_error_log"), "{message}");
}

/// Sums of counters and numbers of recorded times, by name and table.
#[derive(Debug, Clone, Default)]
pub struct Recorded(Arc<Mutex<BTreeMap<String, u64>>>);

#[derive(Debug)]
struct One(Recorded, String);

impl One {
    fn add(&self, value: u64) {
        *self.0.0.lock().expect("not poisoned").entry(self.1.clone()).or_default() += value;
    }
}

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.add(value);
    }
    fn absolute(&self, _: u64) {}
}

impl HistogramFn for One {
    fn record(&self, seconds: f64) {
        assert!((0.0..60.0).contains(&seconds), "{seconds} are no seconds");
        self.add(1);
    }
}

impl Recorded {
    /// What was recorded of a table.
    pub fn of(&self, name: &str, table: &str) -> Option<u64> {
        self.0.lock().expect("not poisoned").get(&format!("{name}{{table={table}}}")).copied()
    }

    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(One(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.0.lock().expect("not poisoned").insert(format!("described {}", name.as_str()), 1);
    }
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        assert_eq!(unit, Some(Unit::Seconds));
        self.0.lock().expect("not poisoned").insert(format!("described {}", name.as_str()), 1);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

#[tokio::test]
async fn a_recorder_of_the_facade_gets_every_metric() {
    let recorded = Recorded::default();
    // The test's own thread runs all of its tasks.
    let _recorder = metrics::set_default_local_recorder(&recorded);
    datafusion_doris::sink::describe_sink_metrics();
    let (cluster, ctx) = table(Profile::default(), &LENIENT).await;
    assert_eq!(insert(&ctx, BAD).await, 2);
    let seen = recorded.0.lock().expect("not poisoned").clone();
    let of = |name: &str| recorded.of(name, &cluster.table("t"));
    for metric in SINK_METRICS {
        assert!(seen.contains_key(&format!("described {}", metric.facade)), "{}", metric.facade);
        if metric.name != "loads_failed" {
            assert!(of(metric.facade).is_some(), "no {} in {seen:?}", metric.facade);
        }
    }
    assert_eq!(of("doris_sink_total_rows"), Some(4));
    assert_eq!(of("doris_sink_loaded_rows"), Some(2));
    assert_eq!(of("doris_sink_filtered_rows"), Some(1));
    assert_eq!(of("doris_sink_load_seconds"), Some(1), "one load");
}

#[tokio::test]
async fn the_shell_warns_of_rows_that_doris_refused() {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id INT, s VARCHAR(5)", "").await;
    let script = format!("{};\n{BAD};", cluster.ddl("t", "t", &LENIENT));
    let run = shell(&["-c", &script]).await;
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("warning: 1 row was refused by Doris, first: "), "{}", run.err);
}
