//! Cases C058 to C065, which are of loads, where rows are staged: as far as they apply to a statement of the server.
//!
//! C061 is about a counter of buffered bytes that is raised by the client's bytes and lowered by the server's: there is
//! none here, a writer holds the parts on their way, and they are its own. C065 is about the redirect of a Stream Load:
//! nothing is sent to `_stream_load`, which is what its test shows.

use std::io::Read;
use std::time::Duration;

use doris_sandbox::{Action, Fault, Profile, Site};
use flate2::read::GzDecoder;

use crate::batch::rows_to;
use crate::harness::{Cluster, refusal, run, text};
use crate::tvf::{PATIENCE, Staging};
use crate::write::insert;

/// Each format as it is by default, and JSON without compression.
const FORMATS: [&[(&str, &str)]; 3] = [
    &[("sink.properties.format", "json")],
    &[("sink.properties.format", "json"), ("sink.properties.compress_type", "")],
    &[("sink.properties.format", "parquet")],
];
const STATEMENT: &str = "with label";
const BUCKET: &str = "lake";

fn at_statement(action: Action) -> Fault {
    Fault::new(action).at(Site::Mysql).when(STATEMENT)
}

/// Questions for the state of a label.
fn questions(staging: &Staging) -> usize {
    staging.cluster.server().requests().matching(Site::Fe, "get_load_state").len()
}

/// The label in a statement.
fn label(statement: &str) -> &str {
    statement.split('`').find(|part| part.starts_with("datafusion_doris_")).expect("a label")
}

#[tokio::test]
async fn c058_answer_lost_after_commit() {
    for format in FORMATS {
        let staging = Staging::duplicate(format).await;
        staging.cluster.server().faults().push(at_statement(Action::DropAnswer));
        let before = questions(&staging);
        assert_eq!(insert(&staging.ctx, &rows_to(1000)).await, 1000, "{format:?}");
        assert_eq!(staging.cluster.server().faults().armed(), 0, "the fault was used");
        assert_eq!((staging.inserts().len(), staging.rows().await.as_str()), (1, "1000"), "{format:?}");
        assert!(questions(&staging) > before + 1, "the label is asked for again");
    }
}

#[tokio::test]
async fn c058_a_statement_whose_transaction_was_aborted_is_run_again_under_its_label() {
    for format in FORMATS {
        let staging = Staging::duplicate(format).await;
        staging.cluster.server().faults().push(at_statement(Action::DropAnswer));
        staging.cluster.server().faults().push(at_statement(Action::FailCommit("told to fail".to_owned())));
        assert_eq!(insert(&staging.ctx, &rows_to(1000)).await, 1000, "{format:?}");
        let inserts = staging.inserts();
        assert_eq!((inserts.len(), staging.rows().await.as_str()), (2, "1000"), "{format:?}");
        assert_eq!(inserts[0], inserts[1], "the same label and objects");
        assert_eq!(staging.keys().len(), 1, "staged once");
    }
}

#[tokio::test]
async fn c059_publish_timeout() {
    for format in FORMATS {
        let staging = Staging::duplicate(format).await;
        staging.cluster.server().faults().push(at_statement(Action::PublishTimeout));
        assert_eq!(insert(&staging.ctx, &rows_to(10)).await, 10, "{format:?}");
        assert_eq!(staging.cluster.server().faults().armed(), 0, "the fault was used");
        assert_eq!(staging.inserts().len(), 1, "{format:?}");
        let visible = async { while staging.rows().await != "10" {} };
        tokio::time::timeout(PATIENCE, visible).await.expect("it becomes visible");
    }
}

/// What ends an object is its size; the last one is as full as it is.
#[tokio::test]
async fn c060_last_partial_object() {
    for (compression, extension) in [("", "json"), ("gz", "json.gz")] {
        let staging = Staging::start().await;
        staging.cluster.duplicate_table("t", "id BIGINT NOT NULL, s VARCHAR(8000)", "").await;
        let options = [("sink.s3.object-size", "5mb"), ("sink.properties.compress_type", compression)];
        staging.declare("t", &options).await;
        // Each 1024 rows are 6 MB, and the size is looked at then.
        let rows = "SELECT value, repeat('x', 6000) FROM generate_series(1, 2500)";
        assert_eq!(insert(&staging.ctx, &format!("INSERT INTO t {rows}")).await, 2500);
        assert_eq!(staging.cluster.scalar("SELECT COUNT(DISTINCT id) FROM {db}.t").await, "2500");
        assert_eq!(staging.inserts().len(), 1);
        let lines = |key: &String| {
            assert!(key.ends_with(extension), "{key}");
            let body = staging.s3.get(BUCKET, key).expect("an object");
            let mut text = String::new();
            match compression {
                "gz" => GzDecoder::new(&body[..]).read_to_string(&mut text).expect("gzip"),
                _ => (&body[..]).read_to_string(&mut text).expect("UTF-8"),
            };
            text.lines().count()
        };
        let counts: Vec<usize> = staging.keys().iter().map(lines).collect();
        let expected: &[usize] = if compression.is_empty() { &[1024, 1024, 452] } else { &[2500] };
        assert_eq!(counts, expected, "{compression}");
    }
}

#[tokio::test]
async fn c061_many_batches_are_staged_without_a_stop() {
    for format in FORMATS {
        let staging = Staging::duplicate(&[format, &[("sink.buffer-count", "2")]].concat()).await;
        run(&staging.ctx, "SET datafusion.execution.batch_size = 50").await;
        let insert = format!("EXPLAIN ANALYZE {}", rows_to(200 * 50));
        let written = tokio::time::timeout(Duration::from_secs(30), run(&staging.ctx, &insert));
        let plan = text(&written.await.expect("it does not wait for ever"));
        assert!(plan.contains("buffered_bytes=0") && plan.contains("loads=1"), "{plan}");
        assert_eq!(staging.rows().await, "10000", "{format:?}");
    }
}

/// The background is the uploads: one that fails ends the statement, which is not run.
#[tokio::test]
async fn c062_background_upload_fails() {
    for parallelism in ["1", "2"] {
        let staging = Staging::start().await;
        staging.cluster.duplicate_table("t", "id BIGINT NOT NULL, s VARCHAR(8000)", "").await;
        let options = [
            ("sink.s3.object-size", "5mb"),
            ("sink.properties.compress_type", ""),
            ("sink.parallelism", parallelism),
            ("sink.s3.clean-up", "true"),
        ];
        staging.declare("t", &options).await;
        staging.s3.refuse_next("PUT", "-00001", 403);
        let five = "INSERT INTO t SELECT value, repeat('x', 6000) FROM generate_series(1, 5000)";
        let failed = tokio::time::timeout(Duration::from_secs(5), refusal(&staging.ctx, five));
        let message = failed.await.expect("it fails soon");
        assert!(message.contains("s3://lake/stage/") && message.contains("-00001.json"), "{message}");
        assert_eq!((staging.inserts().len(), staging.rows().await.as_str()), (0, "0"), "nothing is run");
        assert_eq!((staging.keys(), staging.s3.open_uploads()), (vec![], 0), "nothing is left");
        assert_eq!(insert(&staging.ctx, &rows_to(10)).await, 10, "the table works again");
        assert_eq!((staging.rows().await.as_str(), staging.keys().len()), ("10", 0));
    }
}

#[tokio::test]
async fn c062_statement_fails() {
    for format in FORMATS {
        let staging = Staging::duplicate(format).await;
        staging.cluster.server().faults().push(at_statement(Action::FailCommit("told to fail".to_owned())));
        let message = refusal(&staging.ctx, &rows_to(50)).await;
        let inserts = staging.inserts();
        assert!(message.contains("told to fail") && message.contains(label(&inserts[0])), "{message}");
        assert_eq!((inserts.len(), staging.rows().await.as_str(), staging.keys().len()), (1, "0", 0), "{format:?}");
        assert_eq!(insert(&staging.ctx, &rows_to(10)).await, 10, "the table works again");
        assert_eq!(staging.cluster.server().running_transactions(), 0);
    }
}

#[tokio::test]
async fn c063_many_small_batches_of_the_input_are_one_object_and_one_statement() {
    let staging = Staging::duplicate(&[]).await;
    run(&staging.ctx, "SET datafusion.execution.batch_size = 1").await;
    run(&staging.ctx, "SET datafusion.execution.target_partitions = 1").await;
    assert_eq!(insert(&staging.ctx, &rows_to(1000)).await, 1000);
    assert_eq!((staging.rows().await.as_str(), staging.keys().len(), staging.inserts().len()), ("1000", 1, 1));
}

#[tokio::test]
async fn c063_too_many_versions_are_waited_for() {
    let versions = || {
        let text = "[E-235]failed to init rowset builder. version count: 2001, exceed limit: 2000, tablet: 10";
        at_statement(Action::FailCommit(text.to_owned()))
    };
    for format in FORMATS {
        let staging = Staging::duplicate(format).await;
        staging.cluster.server().faults().push(versions());
        assert_eq!(insert(&staging.ctx, &rows_to(1000)).await, 1000, "{format:?}");
        let inserts = staging.inserts();
        assert_eq!((inserts.len(), staging.rows().await.as_str()), (2, "1000"), "{format:?}");
        assert_eq!(inserts[0], inserts[1], "the same rows under the same label");
    }
    let staging = Staging::duplicate(&[("sink.max-retries", "1")]).await;
    staging.cluster.server().faults().push(versions().always());
    let message = refusal(&staging.ctx, &rows_to(1000)).await;
    let inserts = staging.inserts();
    assert_eq!(inserts.len(), 2);
    for part in ["-235", label(&inserts[0]), "refused 2 times in ", "write fewer and larger ones"] {
        assert!(message.contains(part), "no {part} in {message}");
    }
    assert_eq!((staging.rows().await.as_str(), staging.keys().len()), ("0", 0));
}

#[tokio::test]
async fn c064_rows_filtered_with_reason() {
    // There is no partition for it.
    let bad = "INSERT INTO t VALUES (500, 'x')";
    // Older builds name nothing but the log.
    for profile in [Profile::default(), Profile::V3_1] {
        for format in FORMATS {
            let staging = Staging::on(Cluster::sandbox_as(profile).await).await;
            let table = "CREATE TABLE {db}.t (id BIGINT NOT NULL, s VARCHAR(40)) DUPLICATE KEY(id)
                 PARTITION BY RANGE(id) (PARTITION p VALUES LESS THAN ('100'))
                 DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ('replication_num' = '1')";
            staging.cluster.doris(table).await;
            staging.declare("t", format).await;
            let requests = staging.cluster.server().requests();
            let message = refusal(&staging.ctx, bad).await;
            let inserts = staging.inserts();
            for part in [
                label(&inserts[0]),
                "the INSERT of 1 staged rows",
                "filtered data in strict mode",
                "_load_error_log?file=",
                "Reason: ",
                "partition",
                "src line",
            ] {
                assert!(message.contains(part), "{profile:?} {format:?}: no {part} in {message}");
            }
            let asked = requests.matching(Site::Be, "_load_error_log");
            assert_eq!((asked.len(), asked[0].header("authorization")), (1, None), "asked for without credentials");

            let gone = Action::Status { code: 404, body: "it is gone".to_owned() };
            staging.cluster.server().faults().push(Fault::new(gone).at(Site::Be).when("_load_error_log"));
            let message = refusal(&staging.ctx, bad).await;
            assert_eq!(staging.cluster.server().faults().armed(), 0, "the fault was used");
            assert!(
                message.contains("filtered data in strict mode") && message.contains("_load_error_log"),
                "{message}"
            );
            assert!(!message.contains("it is gone"), "{message}");

            run(&staging.ctx, "DROP TABLE t").await;
            let lenient = ("sink.properties.max_filter_ratio", "1");
            staging.declare("t", &[format, &[lenient]].concat()).await;
            assert_eq!(insert(&staging.ctx, bad).await, 0, "{format:?}: a filtered row is not counted");
            assert_eq!(staging.rows().await, "0");
        }
    }
}

/// A log may be anywhere, as far as the text of an error goes.
#[tokio::test]
async fn c064_a_log_is_asked_of_backends_only() {
    let staging = Staging::duplicate(&[]).await;
    let url = format!("{}/api/_load_error_log?file=x", staging.s3.url());
    let text = format!("Insert has filtered data in strict mode. url: {url}");
    let error = Action::Status { code: 1105, body: text };
    staging.cluster.server().faults().push(at_statement(error));
    let message = refusal(&staging.ctx, &rows_to(10)).await;
    assert!(message.contains(&url), "{message}");
    let asked =
        staging.s3.requests().into_iter().filter(|request| request.bucket == "api" || request.key.contains("api"));
    assert_eq!(asked.count(), 0, "nobody else is asked");
}

#[tokio::test]
async fn c065_no_redirect() {
    let staging = Staging::duplicate(&[]).await;
    assert_eq!(insert(&staging.ctx, &rows_to(1000)).await, 1000);
    let requests = staging.cluster.server().requests();
    assert_eq!(
        requests.matching(Site::Fe, "_stream_load").len() + requests.matching(Site::Be, "_stream_load").len(),
        0
    );
}
