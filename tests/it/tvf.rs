//! `sink.write-mode` = `TVF`: rows are staged in an object store, and one INSERT takes them from there.

use std::time::Duration;

use datafusion::prelude::SessionContext;
use doris_sandbox::s3_endpoint::{S3Endpoint, S3Settings};
use doris_sandbox::{Action, Fault, Site};

use crate::cli::shell;
use crate::harness::{Cluster, lines, refusal, run, text, try_run};

pub const PATIENCE: Duration = Duration::from_secs(120);
/// The statement, as the sandbox keeps it.
const INSERT_SELECT: &str = "insert into";
const BUCKET: &str = "lake";

/// A cluster, an object store, and a context.
pub struct Staging {
    pub cluster: Cluster,
    pub s3: S3Endpoint,
    pub ctx: SessionContext,
}

impl Staging {
    pub async fn start() -> Self {
        Self::with(S3Settings::default()).await
    }

    pub async fn with(settings: S3Settings) -> Self {
        let (cluster, s3) = (Cluster::sandbox().await, S3Endpoint::start(settings).await.expect("endpoint"));
        let ctx = cluster.context();
        Self { cluster, s3, ctx }
    }

    /// An object store beside a cluster.
    pub async fn on(cluster: Cluster) -> Self {
        let (s3, ctx) = (S3Endpoint::start(S3Settings::default()).await.expect("endpoint"), cluster.context());
        Self { cluster, s3, ctx }
    }

    /// The options of a target of staged rows, but for the cluster.
    fn sink_options(&self, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let url = self.s3.url();
        let base = [
            ("sink.write-mode", "TVF"),
            ("sink.s3.endpoint", url.as_str()),
            ("sink.s3.region", "us-east-1"),
            ("sink.s3.bucket", BUCKET),
            ("sink.s3.prefix", "stage"),
            ("sink.s3.access-key", "sandbox-access"),
            ("sink.s3.secret-key", "top-secret"),
        ];
        let given = |key: &str| more.iter().any(|(known, _)| *known == key);
        let kept = base.into_iter().filter(|(key, _)| !given(key)).chain(more.iter().copied());
        kept.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// All options of table `name` as a target of staged rows.
    pub fn options(&self, name: &str, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let cluster = [
            ("fenodes", self.cluster.fenodes().to_owned()),
            ("jdbc-url", self.cluster.jdbc_url().to_owned()),
            ("table.identifier", self.cluster.table(name)),
            ("username", self.cluster.username().to_owned()),
            ("password", self.cluster.password().to_owned()),
        ];
        cluster.map(|(key, value)| (key.to_owned(), value)).into_iter().chain(self.sink_options(more)).collect()
    }

    /// The statement that declares table `name` as a target of staged rows.
    pub fn ddl(&self, name: &str, more: &[(&str, &str)]) -> String {
        let options = self.sink_options(more);
        let options: Vec<(&str, &str)> = options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        self.cluster.ddl(name, name, &options)
    }

    /// Declares table `name` as a target of staged rows.
    pub async fn declare(&self, name: &str, more: &[(&str, &str)]) {
        run(&self.ctx, &self.ddl(name, more)).await;
    }

    /// A unique table `t (id BIGINT, s VARCHAR(40))` as target.
    pub async fn unique(more: &[(&str, &str)]) -> Self {
        let staging = Self::start().await;
        staging.cluster.unique_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
        staging.declare("t", more).await;
        staging
    }

    /// The same as a duplicate table.
    pub async fn duplicate(more: &[(&str, &str)]) -> Self {
        let staging = Self::start().await;
        staging.cluster.duplicate_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
        staging.declare("t", more).await;
        staging
    }

    pub async fn rows(&self) -> String {
        self.cluster.scalar("SELECT COUNT(*) FROM {db}.t").await
    }

    pub fn keys(&self) -> Vec<String> {
        self.s3.keys(BUCKET)
    }

    /// The INSERTs that the server got.
    pub fn inserts(&self) -> Vec<String> {
        let seen = self.cluster.server().requests().all();
        let statements = seen.into_iter().filter(|request| request.site == Site::Mysql);
        statements.map(|request| request.target).filter(|sql| sql.contains("WITH LABEL")).collect()
    }

    fn fault(&self, action: Action) -> Fault {
        Fault::new(action).at(Site::Mysql).when(INSERT_SELECT)
    }
}

/// Waits until a fault acts beside the `met` that have.
pub async fn fault_is_met(cluster: &Cluster, met: usize) {
    while cluster.server().faults().applied().len() == met {
        cluster.doris("SELECT 1").await;
    }
}

const INSERT: &str = "INSERT INTO t SELECT value, concat('v', value) FROM generate_series(1, 100)";

#[tokio::test]
async fn rows_are_staged_and_taken_by_one_statement_in_both_formats() {
    for (format, extension) in [("json", "json.gz"), ("parquet", "parquet")] {
        let staging = Staging::duplicate(&[("sink.properties.format", format)]).await;
        let plan = text(&run(&staging.ctx, &format!("EXPLAIN {INSERT}")).await);
        let told = format!("write_mode=TVF, stage=s3://lake/stage, format={format}");
        assert!(plan.contains(&told) && plan.contains("guarantee=all-or-nothing"), "{plan}");
        assert!(!plan.contains("sandbox-access") && !plan.contains("top-secret"), "{plan}");
        assert_eq!(lines(&run(&staging.ctx, INSERT).await), ["100"]);
        assert_eq!(
            staging.cluster.scalar("SELECT COUNT(DISTINCT s) FROM {db}.t WHERE s = concat('v', id)").await,
            "100"
        );
        let (keys, inserts) = (staging.keys(), staging.inserts());
        assert_eq!((keys.len(), inserts.len()), (1, 1), "{keys:?} {inserts:?}");
        let label = keys[0].split('/').nth(1).expect("a label");
        assert!(keys[0].starts_with("stage/datafusion_doris_") && keys[0].ends_with(extension), "{keys:?}");
        assert!(
            inserts[0].contains(&format!("WITH LABEL `{label}` (`id`, `s`) SELECT `id`, `s` FROM S3(")),
            "{inserts:?}"
        );
        assert!(inserts[0].contains(&format!("'uri' = 's3://lake/{}'", keys[0])), "{inserts:?}");
    }
}

#[tokio::test]
async fn several_writers_stage_objects_for_one_statement() {
    let staging = Staging::duplicate(&[("sink.parallelism", "3")]).await;
    run(&staging.ctx, "SET datafusion.execution.batch_size = 100").await;
    let insert = INSERT.replace("100)", "5000)");
    let plan = text(&run(&staging.ctx, &format!("EXPLAIN {insert}")).await);
    assert!(plan.contains("parallelism=3 by turns, guarantee=all-or-nothing"), "{plan}");
    assert_eq!(lines(&run(&staging.ctx, &insert).await), ["5000"]);
    assert_eq!(staging.cluster.scalar("SELECT COUNT(DISTINCT id) FROM {db}.t").await, "5000");
    assert_eq!((staging.keys().len(), staging.inserts().len()), (3, 1), "{:?}", staging.keys());
}

#[tokio::test]
async fn the_last_of_many_rows_with_one_key_wins() {
    for format in ["json", "parquet"] {
        let staging = Staging::unique(&[("sink.parallelism", "4"), ("sink.properties.format", format)]).await;
        run(&staging.ctx, "SET datafusion.execution.batch_size = 64").await;
        run(&staging.ctx, "SET datafusion.execution.target_partitions = 1").await;
        let insert = "INSERT INTO t SELECT value % 40, concat('v', value) FROM generate_series(0, 19999)";
        assert_eq!(lines(&run(&staging.ctx, insert).await), ["20000"]);
        let wrong = staging.cluster.scalar("SELECT COUNT(*) FROM {db}.t WHERE s <> concat('v', 19960 + id)").await;
        assert_eq!((staging.rows().await.as_str(), wrong.as_str()), ("40", "0"), "{format}");
        assert_eq!(staging.keys().len(), 4);
    }
}

#[tokio::test]
async fn keys_are_compared_as_the_table_does_and_deletes_delete() {
    let staging = Staging::start().await;
    let columns = "k DECIMAL(9, 2) NOT NULL, at DATETIME(3) NOT NULL, v VARCHAR(9) NULL";
    staging
        .cluster
        .doris(&format!(
            "CREATE TABLE {{db}}.t ({columns}) UNIQUE KEY(k, at) DISTRIBUTED BY HASH(k) BUCKETS 2
             PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true')"
        ))
        .await;
    staging.declare("t", &[("sink.change-kind-column", "kind")]).await;
    let at = "TIMESTAMP '2024-02-29 01:02:03.5'";
    let insert = format!(
        "INSERT INTO t VALUES (1, {at}, 'a', '+I'), (1.00, {at}, 'b', '-U'), (1.00, {at}, 'c', '+U'), (2, {at}, 'x', '+I'),
         (2.0, {at}, NULL, '-D'), (3, {at}, 'd', '-D'), (3, {at}, 'e', '+I')"
    );
    assert_eq!(lines(&run(&staging.ctx, &insert).await), ["6"]);
    let rows = staging.cluster.doris("SELECT k, v FROM {db}.t ORDER BY k").await;
    let rows: Vec<String> =
        rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(rows, ["1.00 c", "3.00 e"]);
}

#[tokio::test]
async fn a_sequence_column_goes_before_the_order_of_arrival() {
    let staging = Staging::start().await;
    let more = "'function_column.sequence_col' = 'seq'";
    staging.cluster.unique_table("t", "id BIGINT NOT NULL, seq INT, s VARCHAR(20)", more).await;
    staging.declare("t", &[]).await;
    run(&staging.ctx, "INSERT INTO t VALUES (1, 9, 'kept'), (1, 8, 'late'), (2, 1, 'old'), (2, 1, 'same, later')")
        .await;
    let rows = staging.cluster.doris("SELECT id, s FROM {db}.t ORDER BY id").await;
    let texts: Vec<_> = rows.into_iter().flatten().flatten().collect();
    assert_eq!(texts, ["1", "kept", "2", "same, later"]);
}

#[tokio::test]
async fn no_rows_are_no_object_and_no_statement() {
    let staging = Staging::unique(&[]).await;
    assert_eq!(lines(&run(&staging.ctx, "INSERT INTO t SELECT 1, 'x' WHERE 1 = 0").await), ["0"]);
    assert_eq!(staging.s3.requests().len(), 0);
    assert_eq!(staging.inserts(), Vec::<String>::new());
}

#[tokio::test]
async fn staged_objects_are_removed_when_so_asked() {
    let staging = Staging::duplicate(&[("sink.s3.clean-up", "true"), ("sink.parallelism", "2")]).await;
    run(&staging.ctx, "SET datafusion.execution.batch_size = 10").await;
    assert_eq!(lines(&run(&staging.ctx, INSERT).await), ["100"]);
    assert_eq!(staging.rows().await, "100");
    assert_eq!(staging.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn an_object_is_cut_by_size_and_uploaded_in_parts() {
    let staging = Staging::start().await;
    staging.cluster.duplicate_table("t", "id BIGINT NOT NULL, s VARCHAR(4000)", "").await;
    staging.declare("t", &[("sink.s3.object-size", "12mb"), ("sink.properties.compress_type", "")]).await;
    let insert = "INSERT INTO t SELECT value, repeat('x', 3000) FROM generate_series(1, 10000)";
    assert_eq!(lines(&run(&staging.ctx, insert).await), ["10000"]);
    assert_eq!(staging.cluster.scalar("SELECT COUNT(DISTINCT id) FROM {db}.t").await, "10000");
    let sizes: Vec<usize> =
        staging.keys().iter().map(|key| staging.s3.get(BUCKET, key).expect("object").len()).collect();
    assert_eq!(sizes.len(), 2, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size < 16 << 20), "{sizes:?}");
    let parts = staging.s3.requests().iter().filter(|request| request.query.contains("partNumber")).count();
    assert!(parts >= 4, "{parts} parts");
    assert_eq!(staging.s3.open_uploads(), 0);
}

#[tokio::test]
async fn wrong_credentials_are_told_without_them_and_leave_nothing() {
    let staging = Staging::unique(&[("sink.s3.access-key", "no-such-key")]).await;
    let message = refusal(&staging.ctx, INSERT).await;
    assert!(message.contains("refused") && message.contains("s3://lake/stage/"), "{message}");
    assert!(!message.contains("no-such-key") && !message.contains("top-secret"), "{message}");
    assert_eq!((staging.rows().await.as_str(), staging.inserts().len()), ("0", 0));
}

#[tokio::test]
async fn a_missing_bucket_is_told_by_name() {
    let settings = S3Settings { buckets: Some(vec!["other".to_owned()]), ..S3Settings::default() };
    let staging = Staging::with(settings).await;
    staging.cluster.unique_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    staging.declare("t", &[]).await;
    let message = refusal(&staging.ctx, INSERT).await;
    assert!(message.contains("is there a bucket 'lake'?"), "{message}");
    assert_eq!(staging.inserts(), Vec::<String>::new());
}

#[tokio::test]
async fn a_store_that_fails_for_a_moment_is_asked_again() {
    let staging = Staging::unique(&[]).await;
    staging.s3.refuse_next("PUT", "stage/", 503);
    assert_eq!(lines(&run(&staging.ctx, INSERT).await), ["100"]);
    assert_eq!(staging.rows().await, "100");
}

#[tokio::test]
async fn dropping_an_insert_leaves_no_upload_and_no_object() {
    for parallelism in ["1", "3"] {
        let more =
            [("sink.properties.compress_type", ""), ("sink.parallelism", parallelism), ("sink.s3.object-size", "9mb")];
        let staging = Staging::duplicate(&more).await;
        let endless = "INSERT INTO t SELECT value, repeat('x', 40) FROM generate_series(1, 1000000000)";
        let frame = datafusion_doris::sql(&staging.ctx, endless).await.expect("plans");
        {
            let running = frame.collect();
            tokio::pin!(running);
            // An object that is done, and one on its way.
            let begun = staging.s3.until(|s3| s3.open_uploads() > 0 && !s3.keys(BUCKET).is_empty());
            tokio::select! {
                result = &mut running => panic!("ended: {result:?}"),
                begun = tokio::time::timeout(PATIENCE, begun) => begun.expect("uploads are begun"),
            }
        }
        let gone = staging.s3.until(|s3| s3.open_uploads() == 0 && s3.keys(BUCKET).is_empty());
        tokio::time::timeout(PATIENCE, gone).await.expect("nothing stays in the store");
        assert_eq!((staging.rows().await.as_str(), staging.inserts().len()), ("0", 0));
    }
}

#[tokio::test]
async fn a_failing_input_leaves_nothing() {
    let staging = Staging::unique(&[]).await;
    let late = "CAST(CAST(CASE WHEN value > 90000 THEN 'x' ELSE '1' END AS INT) AS VARCHAR)";
    refusal(&staging.ctx, &format!("INSERT INTO t SELECT value, {late} FROM generate_series(1, 100000)")).await;
    assert_eq!((staging.keys(), staging.inserts()), (vec![], vec![]));
}

#[tokio::test]
async fn a_row_that_doris_refuses_is_told_and_leaves_nothing() {
    let staging = Staging::unique(&[]).await;
    let message = refusal(&staging.ctx, "INSERT INTO t VALUES (1, repeat('x', 41)), (2, 'y')").await;
    assert!(message.contains("column_name: s"), "{message}");
    assert!(!message.contains("top-secret") && !message.contains("sandbox-access"), "{message}");
    assert_eq!((staging.rows().await.as_str(), staging.keys()), ("0", vec![]));
}

#[tokio::test]
async fn options_that_do_not_fit_are_refused_by_name() {
    let staging = Staging::start().await;
    staging.cluster.unique_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    let url = staging.s3.url();
    let base = [
        ("sink.write-mode", "TVF"),
        ("sink.s3.endpoint", url.as_str()),
        ("sink.s3.region", "r"),
        ("sink.s3.bucket", "b"),
        ("sink.s3.prefix", "p"),
        ("sink.s3.access-key", "a"),
        ("sink.s3.secret-key", "s"),
    ];
    let refused = async |options: Vec<(&str, &str)>| {
        let ddl = staging.cluster.ddl("x", "t", &options);
        try_run(&staging.ctx, &ddl).await.expect_err("refused").to_string()
    };
    for left_out in &base[1..] {
        let message = refused(base.iter().filter(|option| option.0 != left_out.0).copied().collect()).await;
        assert!(message.contains(&format!("'{}': is required", left_out.0)), "{message}");
    }
    for (option, value) in [
        ("sink.s3.prefix", "a/*.json"),
        ("sink.properties.format", "csv"),
        ("sink.properties.format", "arrow"),
        ("sink.enable-2pc", "false"),
        ("sink.properties.columns", "id, s"),
        ("sink.s3.object-size", "1mb"),
    ] {
        let more = base.iter().filter(|known| known.0 != option).copied().chain([(option, value)]).collect();
        let message = refused(more).await;
        assert!(message.contains(&format!("'{option}'")), "{message}");
    }
    let message = refused(vec![("sink.properties.format", "parquet")]).await;
    assert!(message.contains("TVF mode"), "{message}");
}

#[tokio::test]
async fn an_aggregate_table_is_refused() {
    let staging = Staging::start().await;
    staging
        .cluster
        .doris(
            "CREATE TABLE {db}.t (id BIGINT, s BIGINT REPLACE) AGGREGATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
             PROPERTIES ('replication_num' = '1')",
        )
        .await;
    staging.declare("t", &[]).await;
    let message = refusal(&staging.ctx, "INSERT INTO t VALUES (1, 2)").await;
    assert!(message.contains("STREAM_LOAD"), "{message}");
}

/// The last row of a key is found by the key, of which Doris would make a part.
#[tokio::test]
async fn a_key_column_that_doris_fills_is_refused() {
    let staging = Staging::start().await;
    staging
        .cluster
        .doris(
            "CREATE TABLE {db}.t (region BIGINT NOT NULL, id BIGINT NOT NULL AUTO_INCREMENT, v BIGINT)
             UNIQUE KEY(region, id) DISTRIBUTED BY HASH(region) BUCKETS 1 PROPERTIES ('replication_num' = '1')",
        )
        .await;
    staging.declare("t", &[]).await;
    let message = refusal(&staging.ctx, "INSERT INTO t (region, v) VALUES (1, 2), (1, 3)").await;
    assert!(message.contains("key column 'id' is left out"), "{message}");
}

#[tokio::test]
async fn the_example_runs_against_the_sandbox() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tvf_write.sql");
    let run = shell(&["--sandbox", "-q", "-f", example]).await;
    assert_eq!(run.code, 0, "{} {}", run.out, run.err);
    assert!(run.out.contains("bolt") && !run.out.contains("rivet"), "{}", run.out);
}

#[tokio::test]
async fn c066_object_key_with_odd_characters_is_the_same_for_both() {
    for parallelism in ["1", "3"] {
        let prefix = "stage/dt=2026-01-01/run+1:2/a b/";
        let staging = Staging::duplicate(&[("sink.s3.prefix", prefix), ("sink.parallelism", parallelism)]).await;
        run(&staging.ctx, "SET datafusion.execution.batch_size = 1").await;
        assert_eq!(lines(&run(&staging.ctx, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')").await), ["3"]);
        assert_eq!(staging.rows().await, "3");
        assert!(staging.keys().iter().all(|key| key.starts_with(prefix)), "{:?}", staging.keys());
        let inserts = staging.inserts();
        assert!(inserts[0].contains(&format!("'uri' = 's3://lake/{prefix}")), "{inserts:?}");
    }
}

#[tokio::test]
async fn c067_upload_and_statement_use_the_same_style() {
    let staging = Staging::with(S3Settings { path_style_only: true, ..S3Settings::default() }).await;
    staging.cluster.duplicate_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    let more = [("sink.s3.path-style-access", "true"), ("sink.s3.bucket", "data.lake")];
    staging.declare("t", &more).await;
    assert_eq!(lines(&run(&staging.ctx, "INSERT INTO t VALUES (1, 'a')").await), ["1"]);
    assert_eq!(staging.rows().await, "1");
    let inserts = staging.inserts();
    assert!(inserts[0].contains("'use_path_style' = 'true'") && inserts[0].contains("s3://data.lake/"), "{inserts:?}");
    assert!(staging.s3.requests().iter().all(|request| request.bucket == "data.lake" && !request.virtual_host));

    let tls = [("sink.s3.endpoint", "https://s3.example.com"), ("sink.s3.bucket", "data.lake")];
    let options = [&[("sink.write-mode", "TVF"), ("sink.s3.region", "r"), ("sink.s3.prefix", "p")][..], &tls].concat();
    let keys = [("sink.s3.access-key", "a"), ("sink.s3.secret-key", "s")];
    let ddl = staging.cluster.ddl("x", "t", &[&options[..], &keys].concat());
    let message = try_run(&staging.ctx, &ddl).await.expect_err("refused").to_string();
    assert!(
        message.contains("'sink.s3.bucket'") && message.contains("'sink.s3.path-style-access' = 'true'"),
        "{message}"
    );
}

#[tokio::test]
async fn c068_properties_of_stream_load_are_mapped_or_refused_by_name() {
    let more = [("sink.properties.strict_mode", "true"), ("sink.properties.timeout", "60")];
    let staging = Staging::duplicate(&more).await;
    assert_eq!(lines(&run(&staging.ctx, "INSERT INTO t VALUES (1, 'a')").await), ["1"]);
    let seen = staging.cluster.server().requests().all();
    let sets: Vec<String> = seen
        .into_iter()
        .filter(|request| request.site == Site::Mysql && request.target.contains("enable_insert_strict"))
        .map(|request| request.target)
        .collect();
    assert_eq!(sets, ["SET sql_mode = '', enable_insert_strict = true, insert_timeout = 60"]);

    for (name, strict) in [("max_filter_ratio", true), ("load_to_single_tablet", false), ("exec_mem_limit", false)] {
        let property = format!("sink.properties.{name}");
        let url = staging.s3.url();
        let mut options = vec![
            ("sink.write-mode", "TVF"),
            ("sink.s3.endpoint", url.as_str()),
            ("sink.s3.region", "r"),
            ("sink.s3.bucket", "b"),
            ("sink.s3.prefix", "p"),
            ("sink.s3.access-key", "a"),
            ("sink.s3.secret-key", "s"),
            (property.as_str(), if name == "load_to_single_tablet" { "true" } else { "0.1" }),
        ];
        if strict {
            options.push(("sink.properties.strict_mode", "true"));
        }
        let message = try_run(&staging.ctx, &staging.cluster.ddl("x", "t", &options)).await;
        let message = message.expect_err("refused").to_string();
        assert!(message.contains(&format!("'{property}'")), "{message}");
    }
}

#[tokio::test]
async fn c068_a_ratio_of_filtered_rows_is_the_servers() {
    let staging = Staging::start().await;
    staging
        .cluster
        .doris(
            "CREATE TABLE {db}.t (id BIGINT, s VARCHAR(40)) DUPLICATE KEY(id)
             PARTITION BY RANGE(id) (PARTITION p VALUES LESS THAN ('100'))
             DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ('replication_num' = '1')",
        )
        .await;
    staging.declare("t", &[("sink.properties.max_filter_ratio", "0.1")]).await;
    // Row 7 is in no partition.
    let insert = "INSERT INTO t SELECT CASE WHEN value = 7 THEN 100 ELSE value END, 'x' FROM generate_series(1, 20)";
    run(&staging.ctx, insert).await;
    assert_eq!(staging.rows().await, "19");
    let message = refusal(&staging.ctx, &insert.replace("20)", "9)").replace("'x'", "'y'")).await;
    assert!(message.contains("too many filtered data 1/9"), "{message}");
}

#[tokio::test]
async fn c069_secrets_with_backslash_and_quote_arrive_and_are_in_no_text() {
    let (access, secret, token) = ("k'e\"y\\", "s'e\"cret\\", "to'k\"en\\");
    let settings = S3Settings {
        access_key: Some(access.to_owned()),
        session_token: Some(token.to_owned()),
        ..S3Settings::default()
    };
    let staging = Staging::with(settings).await;
    staging.cluster.duplicate_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    let more = [("sink.s3.access-key", access), ("sink.s3.secret-key", secret), ("sink.s3.session-token", token)];
    staging.declare("t", &more).await;
    // Doris reads the objects by the same credentials, so it has read them out of the statement.
    assert_eq!(lines(&run(&staging.ctx, "INSERT INTO t VALUES (1, 'a')").await), ["1"]);
    assert_eq!(staging.rows().await, "1");
    let plan = text(&run(&staging.ctx, "EXPLAIN VERBOSE INSERT INTO t VALUES (1, 'a')").await);
    let body = format!("near 's3.secret_key' = 's''e\"cret\\\\', access {access} token {token}");
    staging.cluster.server().faults().push(staging.fault(Action::Status { code: 1105, body }));
    let error = try_run(&staging.ctx, "INSERT INTO t VALUES (2, 'b')").await.expect_err("refused");
    let table = staging.ctx.table_provider("t").await.expect("declared");
    for shown in [plan, error.to_string(), format!("{error:?}"), format!("{table:?}")] {
        assert!(!shown.contains("cret\\") && !shown.contains("k'e\"y") && !shown.contains("to'k"), "{shown}");
    }
    assert!(error.to_string().contains("near 's3.secret_key' = '***', access *** token ***"), "{error}");
    assert_eq!(staging.rows().await, "1");
}

#[tokio::test]
async fn c070_a_connection_lost_after_the_insert_neither_loses_nor_doubles() {
    let staging = Staging::duplicate(&[]).await;
    let server = staging.cluster.server();
    server.faults().push(staging.fault(Action::DropAnswer));
    assert_eq!(lines(&run(&staging.ctx, INSERT).await), ["100"]);
    assert_eq!(server.faults().armed(), 0, "the fault was used");
    assert_eq!((staging.rows().await.as_str(), staging.inserts().len()), ("100", 1));
}

#[tokio::test]
async fn c070_a_failed_insert_is_run_again_from_the_same_objects_under_the_same_label() {
    let staging = Staging::duplicate(&[]).await;
    let server = staging.cluster.server();
    // The answer of the first is lost, and its transaction was aborted.
    server.faults().push(staging.fault(Action::DropAnswer));
    server.faults().push(staging.fault(Action::FailCommit("no space left".to_owned())));
    assert_eq!(lines(&run(&staging.ctx, INSERT).await), ["100"]);
    assert_eq!(server.faults().armed(), 0, "the faults were used");
    let inserts = staging.inserts();
    assert_eq!((staging.rows().await.as_str(), inserts.len()), ("100", 2));
    assert_eq!(inserts[0], inserts[1]);
    assert_eq!(staging.keys().len(), 1);
}

#[tokio::test]
async fn c070_an_insert_that_runs_is_waited_for() {
    let staging = Staging::duplicate(&[]).await;
    let server = staging.cluster.server();
    let signal = std::sync::Arc::new(tokio::sync::Notify::new());
    server.faults().push(staging.fault(Action::HoldPublish(std::sync::Arc::clone(&signal))));
    // Committed is as good as visible.
    assert_eq!(lines(&run(&staging.ctx, INSERT).await), ["100"]);
    signal.notify_one();
    let visible = async {
        while staging.rows().await != "100" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, visible).await.expect("becomes visible");
}

#[tokio::test]
async fn objects_that_are_gone_before_the_insert_are_told_and_nothing_is_run() {
    let staging = Staging::duplicate(&[]).await;
    // The answer of the first is lost before it has done anything, and then somebody cleans up.
    let server = staging.cluster.server();
    let signal = std::sync::Arc::new(tokio::sync::Notify::new());
    server.faults().push(staging.fault(Action::Wait(std::sync::Arc::clone(&signal))));
    let frame = datafusion_doris::sql(&staging.ctx, INSERT).await.expect("plans");
    let running = frame.collect();
    tokio::pin!(running);
    let asked = fault_is_met(&staging.cluster, 0);
    tokio::select! {
        result = &mut running => panic!("ended: {result:?}"),
        asked = tokio::time::timeout(PATIENCE, asked) => asked.expect("the statement comes"),
    }
    for key in staging.keys() {
        staging.s3.remove(BUCKET, &key);
    }
    signal.notify_one();
    let error = running.await.expect_err("the rows are gone").to_string();
    assert!(error.contains("read no rows of s3://lake/stage/") || error.contains("Unknown column"), "{error}");
    assert_eq!(staging.rows().await, "0");
}
