//! What a statement in TVF mode tells of its rows: by the answer of the INSERT, or by what is known without it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion_doris::DorisWriter;
use datafusion_doris::options::DorisOptions;
use datafusion_doris::sink::WriteReport;
use doris_sandbox::{Action, Fault, Profile, Site};

use crate::checkpoint::{caught_up, job};
use crate::harness::{Cluster, lines, refusal, run, text};
use crate::tvf::Staging;

const LENIENT: (&str, &str) = ("sink.properties.max_filter_ratio", "1");
const STATEMENT: &str = "with label";

/// A table `t (id, s)` whose rows must be below 100: there is no partition for others.
pub async fn bounded(profile: Profile, more: &[(&str, &str)]) -> Staging {
    let staging = Staging::on(Cluster::sandbox_as(profile).await).await;
    staging
        .cluster
        .doris(
            "CREATE TABLE {db}.t (id BIGINT NOT NULL, s VARCHAR(40)) DUPLICATE KEY(id)
             PARTITION BY RANGE(id) (PARTITION p VALUES LESS THAN ('100'))
             DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ('replication_num' = '1')",
        )
        .await;
    staging.declare("t", more).await;
    staging
}

/// Rows with these ids.
pub fn rows(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let ids: Vec<i64> = ids.into_iter().collect();
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(ids.iter().map(|id| format!("v{id}"))));
    let ids: ArrayRef = Arc::new(Int64Array::from(ids));
    RecordBatch::try_from_iter([("id", ids), ("s", texts)]).expect("a batch")
}

pub async fn write(
    staging: &Staging,
    more: &[(&str, &str)],
    rows: RecordBatch,
) -> datafusion_doris::Result<WriteReport> {
    let options: HashMap<String, String> = staging.options("t", more).into_iter().collect();
    let options = DorisOptions::from_map(options)?;
    DorisWriter::builder(options).build(&rows.schema()).await?.write_batches(vec![rows]).await
}

#[tokio::test]
async fn rows_that_doris_refuses_are_counted_and_told_with_the_first_reason() {
    for format in ["json", "parquet"] {
        for profile in [Profile::default(), Profile::V3_1] {
            let options = [LENIENT, ("sink.properties.format", format)];
            let staging = bounded(profile, &options).await;
            let report = write(&staging, &options, rows([1, 2, 500, 3, 600])).await.expect("written");
            let filtered = report.filtered.expect("some are refused");
            let reason = filtered.first_reason.expect("a reason");
            assert_eq!((report.rows, filtered.rows, report.labels.len(), report.uncounted.len()), (3, 2, 1, 0));
            assert!(reason.contains("Reason: ") && reason.contains("partition"), "{reason}");
            assert_eq!(staging.rows().await, "3");

            let insert = "INSERT INTO t SELECT value, 'x' FROM generate_series(90, 109)";
            let plan = text(&run(&staging.ctx, &format!("EXPLAIN ANALYZE {insert}")).await);
            for part in [
                "total_rows=20",
                "loaded_rows=10",
                "filtered_rows=10",
                "loads_succeeded=1",
                "loads_failed=0",
                "loads=1",
                "load_time={count=1 ",
                "first_filtered_row=",
            ] {
                assert!(plan.contains(part), "{format}: no {part} in {plan}");
            }
            assert_eq!(lines(&run(&staging.ctx, insert).await), ["10"], "those in the table");
        }
    }
}

/// The protocol counts them by two bytes.
#[tokio::test]
async fn more_refused_rows_than_the_protocol_counts_are_counted() {
    let staging = bounded(Profile::default(), &[LENIENT]).await;
    for (all, taken) in [(70_000, 100), (65_536 + 100, 100)] {
        let report = write(&staging, &[LENIENT], rows(0..all)).await.expect("written");
        let filtered = report.filtered.expect("some are refused");
        assert_eq!((report.rows, filtered.rows), (taken, all as u64 - taken), "{all}");
        assert!(filtered.first_reason.is_some(), "{all}");
    }
}

#[tokio::test]
async fn a_statement_whose_rows_are_all_refused_is_not_one_without_objects() {
    let staging = bounded(Profile::default(), &[LENIENT]).await;
    let report = write(&staging, &[LENIENT], rows(500..520)).await.expect("nothing is wrong");
    let filtered = report.filtered.expect("all are refused");
    assert_eq!((report.rows, filtered.rows, report.labels.len()), (0, 20, 1));
    assert_eq!((staging.rows().await.as_str(), staging.inserts().len()), ("0", 1));
}

#[tokio::test]
async fn rows_of_one_key_are_counted_as_a_stream_load_counts_them() {
    let staging = Staging::unique(&[]).await;
    let report = write(&staging, &[], rows((0..100).map(|id| id % 7))).await.expect("written");
    assert_eq!((report.rows, report.filtered, report.uncounted.len()), (100, None, 0));
    assert_eq!(staging.rows().await, "7");
}

#[tokio::test]
async fn rows_of_a_lost_answer_are_known_where_none_may_be_refused_and_told_to_be_unknown_else() {
    const CASES: [(&[(&str, &str)], usize); 3] =
        [(&[], 0), (&[("sink.properties.strict_mode", "false")], 0), (&[LENIENT], 1)];
    for (more, uncounted) in CASES {
        let staging = bounded(Profile::default(), more).await;
        let faults = staging.cluster.server().faults();
        faults.push(Fault::new(Action::DropAnswer).at(Site::Mysql).when(STATEMENT));
        let ids = if uncounted == 0 { 0..20 } else { 90..110 };
        let report = write(&staging, more, rows(ids)).await.expect("written");
        assert_eq!(faults.armed(), 0, "the answer was lost");
        assert_eq!((report.rows, report.filtered, report.labels.len()), (20, None, 1), "{more:?}");
        assert_eq!(report.uncounted, report.labels[..uncounted], "{more:?}");
        let there = if uncounted == 0 { "20" } else { "10" };
        assert_eq!((staging.rows().await.as_str(), staging.inserts().len()), (there, 1), "{more:?}");
    }
}

/// Neither the answer nor the state of the label is heard, and the statement is taken back: its rows are there.
#[tokio::test]
async fn rows_that_an_abort_finds_in_the_table_are_counted_as_those_of_a_lost_answer() {
    const CASES: [(&[(&str, &str)], usize); 2] = [(&[], 0), (&[LENIENT], 1)];
    for (more, uncounted) in CASES {
        let staging = bounded(Profile::default(), more).await;
        let recorded = crate::metrics::Recorded::default();
        // The test's own thread runs all of its tasks.
        let _recorder = metrics::set_default_local_recorder(&recorded);
        let of = |name: &str| recorded.of(&format!("doris_sink_{name}"), &staging.cluster.table("t"));
        let faults = staging.cluster.server().faults();
        faults.push(Fault::new(Action::DropAnswer).at(Site::Mysql).when(STATEMENT));
        let denied = Action::Status { code: 401, body: "not now".to_owned() };
        faults.push(Fault::new(denied).at(Site::Fe).when("get_load_state").skip(1));
        let ids = if uncounted == 0 { 0..20 } else { 90..110 };
        let report = write(&staging, more, rows(ids)).await.expect("written");
        assert_eq!(faults.armed(), 0, "the faults were used");
        assert_eq!((report.rows, report.filtered, report.labels.len()), (20, None, 1), "{more:?}");
        assert_eq!(report.uncounted, report.labels[..uncounted], "{more:?}");
        let counted = [of("loads_succeeded"), of("loads_failed"), of("loaded_rows"), of("uncounted_rows")];
        let expected = [Some(1), Some(1), Some(20).filter(|_| uncounted == 0), Some(20).filter(|_| uncounted == 1)];
        assert_eq!(counted, expected, "{more:?}");
        assert_eq!(staging.inserts().len(), 1);
    }
}

#[tokio::test]
async fn a_load_by_stream_whose_answer_was_lost_is_uncounted_too() {
    for mode in ["STREAM_LOAD", "STREAM_LOAD_BATCH"] {
        let staging = bounded(Profile::default(), &[]).await;
        let more = [("sink.write-mode", mode), LENIENT, ("sink.enable-2pc", "false")];
        let report = write(&staging, &more, rows(90..110)).await.expect("written");
        assert_eq!((report.rows, report.uncounted.len(), report.labels.len()), (10, 0, 1), "{mode}");
        let faults = staging.cluster.server().faults();
        faults.push(Fault::new(Action::DropAnswer).at(Site::Be).when("_stream_load "));
        let report = write(&staging, &more, rows(90..110)).await.expect("written");
        assert_eq!((report.rows, &report.uncounted, report.filtered), (20, &report.labels, None), "{mode}");
    }
}

#[tokio::test]
async fn nothing_is_counted_before_the_statement_has_run() {
    let staging = bounded(Profile::default(), &[]).await;
    let recorded = crate::metrics::Recorded::default();
    // The test's own thread runs all of its tasks.
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let of = |name: &str| recorded.of(name, &staging.cluster.table("t"));
    let error = write(&staging, &[], rows([1, 500])).await.expect_err("refused");
    assert!(error.to_string().contains("INSERT of 2 staged rows into"), "{error}");
    assert_eq!((of("doris_sink_loads_succeeded"), of("doris_sink_loaded_rows")), (None, None));
    assert_eq!(of("doris_sink_loads_failed"), Some(1));
    // One attempt is refused for a passing reason.
    let full = Action::FailCommit("[E-235] version count: 2001, exceed limit: 2000".to_owned());
    staging.cluster.server().faults().push(Fault::new(full).at(Site::Mysql).when(STATEMENT));
    write(&staging, &[], rows([1, 2])).await.expect("written");
    assert_eq!((of("doris_sink_loads_succeeded"), of("doris_sink_loaded_rows")), (Some(1), Some(2)));
    assert_eq!((of("doris_sink_loads_failed"), of("doris_sink_total_rows")), (Some(2), Some(2)));
    let bytes: usize = staging.keys().iter().map(|key| staging.s3.get("lake", key).expect("an object").len()).sum();
    assert_eq!(of("doris_sink_load_bytes"), Some(bytes as u64), "the objects of the one that is left");
}

#[tokio::test]
async fn an_epoch_is_counted_once_it_is_taken() {
    let staging = bounded(Profile::default(), &[LENIENT]).await;
    staging.cluster.changing_table("source", "id BIGINT NOT NULL, s VARCHAR(40)").await;
    staging.cluster.doris("INSERT INTO {db}.source VALUES (1, 'a'), (200, 'b')").await;
    let initial = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
    staging.cluster.declare(&staging.ctx, "changes", "source", &initial).await;
    let recorded = crate::metrics::Recorded::default();
    // The test's own thread runs all of its tasks.
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let of = |name: &str| recorded.of(name, &staging.cluster.table("t"));
    let dir = tempfile::tempdir().expect("a directory");
    let written = job(&dir)
        .submit(&staging.ctx, "INSERT INTO t SELECT id, s FROM changes WHERE __change_kind IN ('+I', '+U')")
        .await
        .expect("starts");
    caught_up(&written).await;
    written.stop().await.expect("stops");
    assert_eq!(staging.rows().await, "1");
    assert_eq!((of("doris_sink_loads_succeeded"), of("doris_sink_loads_failed")), (Some(1), None));
    let rows = ["total", "loaded", "filtered"].map(|rows| of(&format!("doris_sink_{rows}_rows")));
    assert_eq!(rows, [Some(2), Some(1), Some(1)]);
}

#[tokio::test]
async fn a_server_that_answers_without_having_finished_is_asked_by_the_label() {
    let staging = Staging::duplicate(&[]).await;
    // A committed load is as good as a visible one, and the answer tells it.
    staging.cluster.server().faults().push(Fault::new(Action::PublishTimeout).at(Site::Mysql).when(STATEMENT));
    let report = write(&staging, &[], rows(0..10)).await.expect("written");
    assert_eq!((report.rows, report.uncounted.len()), (10, 0));
    assert_eq!(staging.inserts().len(), 1);
}

#[tokio::test]
async fn the_shell_warns_of_staged_rows_that_doris_refused() {
    let staging = bounded(Profile::default(), &[]).await;
    let ddl = staging.ddl("t", &[LENIENT]);
    let run = crate::cli::shell(&["-c", &format!("{ddl};\nINSERT INTO t VALUES (1, 'a'), (700, 'b');")]).await;
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("warning: 1 row was refused by Doris, first: "), "{}", run.err);
    assert!(run.out.contains('1'), "{}", run.out);
}

#[tokio::test]
async fn a_refused_statement_tells_label_rows_link_and_first_reason() {
    for profile in [Profile::default(), Profile::V3_1] {
        let staging = bounded(profile, &[("sink.properties.max_filter_ratio", "0.1")]).await;
        let message = refusal(&staging.ctx, "INSERT INTO t SELECT value, 'x' FROM generate_series(95, 104)").await;
        for part in [
            "under label datafusion_doris_",
            "the INSERT of 10 staged rows",
            "too many filtered data 5/10",
            "_load_error_log?file=",
            "Reason: ",
        ] {
            assert!(message.contains(part), "{profile:?}: no {part} in {message}");
        }
        assert_eq!((staging.rows().await.as_str(), staging.keys().len()), ("0", 0));
    }
}
