//! Changelogs of tables whose schema changes while they are read, and what an idle read costs. On both builds.

use std::time::Duration;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::SessionContext;
use datafusion_doris::job::SyncJob;
use doris_sandbox::{Profile, SeenRequest, Site};
use futures::StreamExt;

use crate::harness::{Cluster, lines, refusal, run, try_run};

const PROFILES: [Profile; 2] = [Profile::V5_0Changelog, Profile::V5_0Binlog];
const INITIAL: [(&str, &str); 2] = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
/// How long a test waits for a signal before it calls the wait a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster with `t (id INT, n INT, v VARCHAR(20))`, which holds the row `(1, 10, 'a')` and records its changes.
async fn table(profile: Profile) -> (Cluster, SessionContext) {
    let cluster = Cluster::sandbox_as(profile).await;
    cluster.changing_table("t", "id INT NOT NULL, n INT, v VARCHAR(20)").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 10, 'a')").await;
    let ctx = cluster.context();
    (cluster, ctx)
}

async fn stream(ctx: &SessionContext, sql: &str) -> SendableRecordBatchStream {
    datafusion_doris::sql(ctx, sql).await.expect("plans").execute_stream().await.expect("runs")
}

/// The next rows, or the error that ends the stream.
async fn next(stream: &mut SendableRecordBatchStream) -> Result<Vec<String>, String> {
    let batch = tokio::time::timeout(PATIENCE, stream.next()).await.expect("something comes").expect("no end");
    batch.map(|batch| lines(&[batch])).map_err(|error| error.to_string())
}

/// Reads until `row` comes. Rows of the snapshot may come again as changes.
async fn until(stream: &mut SendableRecordBatchStream, row: &str) {
    loop {
        let rows = next(stream).await.unwrap_or_else(|error| panic!("before '{row}': {error}"));
        if rows.iter().any(|found| found == row) {
            return;
        }
        assert!(rows.iter().all(|found| found.ends_with("+I")), "before '{row}': {rows:?}");
    }
}

/// Reads until the stream fails.
async fn failure(stream: &mut SendableRecordBatchStream) -> String {
    loop {
        if let Err(error) = next(stream).await {
            return error;
        }
    }
}

fn assert_tells(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "no '{part}' in: {error}");
    }
}

#[tokio::test]
async fn columns_that_are_not_read_may_come_and_go() {
    for profile in PROFILES {
        let (cluster, ctx) = table(profile).await;
        cluster.declare(&ctx, "changes", "t", &INITIAL).await;
        let mut all = stream(&ctx, "SELECT * FROM changes").await;
        let mut some = stream(&ctx, "SELECT id, v, __change_kind FROM changes").await;
        until(&mut all, "1 | 10 | a | +I").await;
        until(&mut some, "1 | a | +I").await;
        cluster.doris("ALTER TABLE {db}.t ADD COLUMN extra INT DEFAULT '7'").await;
        cluster.doris("INSERT INTO {db}.t VALUES (2, 20, 'b', 8)").await;
        until(&mut all, "2 | 20 | b | +I").await;
        until(&mut some, "2 | b | +I").await;
        cluster.doris("ALTER TABLE {db}.t DROP COLUMN extra, DROP COLUMN n").await;
        cluster.doris("INSERT INTO {db}.t VALUES (3, 'c')").await;
        until(&mut some, "3 | c | +I").await;
        assert_tells(&failure(&mut all).await, &[&cluster.table("t"), "column 'n'", "dropped or renamed", "declare"]);
    }
}

#[tokio::test]
async fn column_of_another_type_ends_the_read_unless_the_declared_type_holds_it() {
    for profile in PROFILES {
        let (cluster, ctx) = table(profile).await;
        cluster.declare(&ctx, "narrow", "t", &INITIAL).await;
        let wide = cluster.ddl("wide", "t", &INITIAL);
        let wide = wide.replace("EXTERNAL TABLE wide", "EXTERNAL TABLE wide (id INT, n BIGINT, v VARCHAR)");
        run(&ctx, &wide).await;
        let mut narrow = stream(&ctx, "SELECT id, n, __change_kind FROM narrow").await;
        let mut wide = stream(&ctx, "SELECT id, n, v, __change_kind FROM wide").await;
        until(&mut narrow, "1 | 10 | +I").await;
        until(&mut wide, "1 | 10 | a | +I").await;
        // The only way to another type on a table that records its changes.
        for refused in ["MODIFY COLUMN n BIGINT", "RENAME COLUMN n m"] {
            let error = cluster.try_doris(&format!("ALTER TABLE {{db}}.t {refused}")).await.expect_err("refused");
            assert!(error.to_string().contains("Not allowed to perform current operation"), "{error}");
        }
        cluster
            .doris(
                "ALTER TABLE {db}.t DROP COLUMN n, DROP COLUMN v, ADD COLUMN n BIGINT AFTER id, ADD COLUMN v VARCHAR(99)",
            )
            .await;
        cluster.doris("INSERT INTO {db}.t VALUES (2, 5000000000, 'b')").await;
        let error = failure(&mut narrow).await;
        assert_tells(&error, &[&cluster.table("t"), "column 'n' was INT", "Int64", "declare the table again"]);
        until(&mut wide, "2 | 5000000000 | b | +I").await;
        cluster.doris("ALTER TABLE {db}.t DROP COLUMN v, ADD COLUMN v INT").await;
        cluster.doris("INSERT INTO {db}.t VALUES (3, 30, 7)").await;
        assert_tells(&failure(&mut wide).await, &["column 'v' was VARCHAR(20)", "Int32"]);
    }
}

#[tokio::test]
async fn a_mirror_goes_on_when_a_column_comes_and_ends_with_the_name_of_the_one_that_goes() {
    for profile in PROFILES {
        let (cluster, ctx) = table(profile).await;
        cluster
            .doris(
                "CREATE TABLE {db}.mirror (id INT NOT NULL, n INT, v VARCHAR(20)) UNIQUE KEY(id) DISTRIBUTED BY
                 HASH(id) BUCKETS 1 PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true')",
            )
            .await;
        cluster.declare(&ctx, "changes", "t", &INITIAL).await;
        cluster.declare(&ctx, "mirror", "mirror", &[("sink.change-kind-column", "__change_kind")]).await;
        let job = SyncJob::submit(&ctx, "mirror", "INSERT INTO mirror SELECT * FROM changes").await.expect("starts");
        tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
        cluster.doris("ALTER TABLE {db}.t ADD COLUMN extra INT DEFAULT '7'").await;
        cluster.doris("UPDATE {db}.t SET v = 'b', extra = 8 WHERE id = 1").await;
        tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
        assert_eq!(cluster.scalar("SELECT v FROM {db}.mirror WHERE id = 1").await, "b", "{profile}");
        cluster.doris("ALTER TABLE {db}.t DROP COLUMN v").await;
        cluster.doris("INSERT INTO {db}.t VALUES (2, 20, 8)").await;
        let error = tokio::time::timeout(PATIENCE, job.wait()).await.expect("in time").expect_err("ends").to_string();
        assert_tells(&error, &[&cluster.table("t"), "column 'v' is read but was dropped or renamed"]);
        assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "1", "the epoch is rolled back");
    }
}

#[tokio::test]
async fn schema_that_changed_after_the_declaration_is_told_from_the_snapshot_on() {
    for profile in PROFILES {
        let (cluster, ctx) = table(profile).await;
        cluster.declare(&ctx, "changes", "t", &INITIAL).await;
        cluster.doris("ALTER TABLE {db}.t DROP COLUMN v").await;
        let error = failure(&mut stream(&ctx, "SELECT * FROM changes").await).await;
        assert_tells(&error, &[&cluster.table("t"), "column 'v' is read but was dropped or renamed"]);
        cluster.doris("ALTER TABLE {db}.t ADD COLUMN v DATE").await;
        let error = failure(&mut stream(&ctx, "SELECT * FROM changes").await).await;
        assert_tells(&error, &["column 'v' was VARCHAR(20)", "Date32"]);
        let mut ids = stream(&ctx, "SELECT id, __change_kind FROM changes").await;
        until(&mut ids, "1 | +I").await;
        cluster.doris("ALTER TABLE {db}.t RENAME moved").await;
        assert_tells(&failure(&mut ids).await, &[&cluster.table("t"), "it was dropped or renamed"]);
    }
}

#[tokio::test]
async fn net_changes_notice_another_schema_too() {
    for profile in PROFILES {
        let (cluster, ctx) = table(profile).await;
        let net = [INITIAL[0], INITIAL[1], ("source.changelog.increment-type", "min_delta")];
        cluster.declare(&ctx, "changes", "t", &net).await;
        let mut changes = stream(&ctx, "SELECT * FROM changes").await;
        until(&mut changes, "1 | 10 | a | +I").await;
        cluster.doris("ALTER TABLE {db}.t DROP COLUMN n").await;
        cluster.doris("INSERT INTO {db}.t VALUES (2, 'b')").await;
        assert_tells(&failure(&mut changes).await, &["column 'n' is read but was dropped or renamed"]);
    }
}

#[tokio::test]
async fn hidden_columns_may_be_named_by_an_option() {
    for (profile, stem, other) in
        [(Profile::V5_0Changelog, "CHANGELOG", "BINLOG"), (Profile::V5_0Binlog, "BINLOG", "CHANGELOG")]
    {
        let (cluster, ctx) = table(profile).await;
        let names = |stem: &str| ["TSO", "LSN", "OP"].map(|name| format!("__DORIS_{stem}_{name}__")).join(", ");
        let bounded = ("source.scan.bounded-mode", "latest");
        let right = names(stem);
        let options = [INITIAL[0], INITIAL[1], bounded, ("source.changelog.hidden-columns", &*right)];
        cluster.declare(&ctx, "changes", "t", &options).await;
        let rows = lines(&run(&ctx, "SELECT id, __change_kind FROM changes").await);
        assert!(rows.iter().all(|row| row == "1 | +I") && !rows.is_empty(), "{rows:?}");
        assert!(cluster.server().requests().matching(Site::FeFlight, "LIMIT 0").is_empty(), "nothing is probed");
        let wrong = names(other);
        let options = [INITIAL[0], INITIAL[1], bounded, ("source.binlog.hidden-columns", &*wrong)];
        cluster.declare(&ctx, "wrong", "t", &options).await;
        let error = try_run(&ctx, "SELECT id FROM wrong").await.expect_err("unknown names").to_string();
        assert_tells(&error, &[&format!("__DORIS_{other}_"), "'source.changelog.hidden-columns'"]);
        let two = cluster.ddl("two", "t", &[INITIAL[0], ("source.changelog.hidden-columns", "a, b")]);
        assert_tells(&refusal(&ctx, &two).await, &["'source.changelog.hidden-columns'", "must hold three names"]);
    }
}

/// Requests of the reader, the last first; statements over HTTP are noted twice, as requests and as statements.
fn latest(cluster: &Cluster) -> Vec<SeenRequest> {
    let mut seen = cluster.server().requests().all();
    seen.retain(|request| request.site != Site::Mysql && request.method != "STATEMENT");
    seen.reverse();
    seen
}

#[tokio::test]
async fn idle_poll_costs_one_request() {
    const POLLS: usize = 4;
    for profile in PROFILES {
        let (cluster, ctx) = table(profile).await;
        cluster.declare(&ctx, "changes", "t", &INITIAL).await;
        let mut changes = stream(&ctx, "SELECT * FROM changes").await;
        until(&mut changes, "1 | 10 | a | +I").await;
        // A full poll asks a frontend twice, and then over Flight.
        let idle = |seen: &[SeenRequest]| seen.iter().take_while(|request| request.site == Site::Fe).count();
        tokio::time::timeout(PATIENCE, async {
            while idle(&latest(&cluster)) < POLLS + 2 {
                let more = tokio::time::timeout(Duration::from_millis(100), changes.next()).await;
                if let Ok(rows) = more {
                    let rows = lines(&[rows.expect("no end").expect("a batch")]);
                    assert_eq!(rows, ["1 | 10 | a | +I"], "the row of the snapshot may come again");
                }
            }
        })
        .await
        .expect("the read comes to rest");
        let statements = cluster.server().requests().all();
        let statements: Vec<&SeenRequest> = statements.iter().filter(|seen| seen.method == "STATEMENT").collect();
        for statement in &statements[statements.len() - POLLS..] {
            assert_eq!(statement.target, format!("SHOW PARTITIONS FROM `{}`.`t`", cluster.database()), "{profile}");
        }
        cluster.doris("INSERT INTO {db}.t VALUES (2, 20, 'b')").await;
        until(&mut changes, "2 | 20 | b | +I").await;
        cluster.doris("UPDATE {db}.t SET v = 'c' WHERE id = 2").await;
        assert_eq!(next(&mut changes).await.expect("rows"), ["2 | 20 | b | -U", "2 | 20 | c | +U"], "{profile}");
    }
}

#[tokio::test]
async fn each_publish_gives_its_partition_another_visible_version() {
    for profile in PROFILES {
        let (cluster, _) = table(profile).await;
        let versions = async || {
            let rows = cluster.doris("SHOW PARTITIONS FROM {db}.t").await;
            rows.into_iter().map(|row| (row[0].clone(), row[2].clone())).collect::<Vec<_>>()
        };
        let mut before = versions().await;
        assert_eq!(versions().await, before, "nothing was published");
        for statement in [
            "INSERT INTO {db}.t VALUES (2, 20, 'b')",
            "UPDATE {db}.t SET v = 'c' WHERE id = 2",
            "DELETE FROM {db}.t WHERE id = 1",
        ] {
            cluster.doris(statement).await;
            let after = versions().await;
            assert_ne!(after, before, "{profile}: {statement}");
            before = after;
        }
    }
}
