//! Reading a changelog: `initial`, `latest`, bounded and free-running.

use std::time::Duration;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::SessionContext;
use doris_sandbox::Profile;
use futures::StreamExt;

use crate::harness::{Cluster, lines, on_both_builds, refusal, run};

const INITIAL: [(&str, &str); 2] = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
const CAUGHT_UP: [(&str, &str); 3] = [INITIAL[0], INITIAL[1], ("source.scan.bounded-mode", "latest")];

/// How long a test waits for a signal before it calls the wait a failure.
const PATIENCE: Duration = Duration::from_secs(60);

const COLUMNS: &str = "id INT NOT NULL, v VARCHAR(20), n BIGINT";

on_both_builds!(
    the_snapshot_comes_first_then_each_change_with_its_kind,
    latest_starts_with_the_next_change,
    a_bounded_read_ends_when_it_has_caught_up_with_its_start,
    a_filter_holds_no_small_batch_back,
    a_join_with_a_static_table_holds_no_small_batch_back,
    a_limit_ends_an_endless_read,
    an_aggregate_over_an_endless_read_is_refused,
    a_duplicate_table_gives_its_inserts,
    a_table_without_changelog_is_refused_with_the_property_to_set,
    a_condition_on_values_needs_the_old_values,
    dropping_a_read_closes_its_flight_sessions,
);

async fn changed_table(profile: Profile) -> (Cluster, SessionContext) {
    let cluster = Cluster::start_as(profile).await;
    cluster.changing_table("t", COLUMNS).await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30)").await;
    let ctx = cluster.context();
    (cluster, ctx)
}

/// Reads rows until `stream` gave `wanted` of them.
async fn take(stream: &mut SendableRecordBatchStream, wanted: usize) -> Vec<String> {
    let mut rows = Vec::new();
    while rows.len() < wanted {
        let batch = tokio::time::timeout(PATIENCE, stream.next())
            .await
            .unwrap_or_else(|_| panic!("only {rows:?} arrived"))
            .expect("the changelog does not end")
            .expect("batch");
        rows.extend(lines(&[batch]));
    }
    rows
}

async fn the_snapshot_comes_first_then_each_change_with_its_kind(profile: Profile) {
    let (cluster, ctx) = changed_table(profile).await;
    cluster.declare(&ctx, "changes", "t", &INITIAL).await;
    let frame = datafusion_doris::sql(&ctx, "SELECT * FROM changes").await.expect("plans");
    let names: Vec<&str> = frame.schema().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "v", "n", "__change_kind"]);
    let mut stream = frame.execute_stream().await.expect("runs");
    let mut snapshot = take(&mut stream, 3).await;
    snapshot.sort();
    assert_eq!(snapshot, ["1 | a | 10 | +I", "2 | b | 20 | +I", "3 | c | 30 | +I"]);

    cluster.doris("UPDATE {db}.t SET v = 'bb' WHERE id = 2").await;
    let mut changes = take(&mut stream, 2).await;
    // a window that starts in the second of the snapshot may show its rows again
    while changes.first().is_some_and(|row| row.ends_with("+I")) {
        changes.remove(0);
        let missing = 2usize.saturating_sub(changes.len());
        changes.extend(take(&mut stream, missing).await);
    }
    assert_eq!(changes[changes.len() - 2..], ["2 | b | 20 | -U", "2 | bb | 20 | +U"]);

    cluster.doris("DELETE FROM {db}.t WHERE id = 1").await;
    assert_eq!(take(&mut stream, 1).await, ["1 | a | 10 | -D"]);
    cluster.doris("INSERT INTO {db}.t VALUES (4, 'd', 40)").await;
    assert_eq!(take(&mut stream, 1).await, ["4 | d | 40 | +I"]);
}

async fn latest_starts_with_the_next_change(profile: Profile) {
    let (cluster, ctx) = changed_table(profile).await;
    // positions are whole seconds: the rows above must lie in an earlier one
    cluster.next_second().await;
    let options = [("source.scan.mode", "latest"), ("source.changelog.poll-interval", "1s")];
    cluster.declare(&ctx, "changes", "t", &options).await;
    let mut stream = datafusion_doris::sql(&ctx, "SELECT id, v, __change_kind FROM changes")
        .await
        .expect("plans")
        .execute_stream()
        .await
        .expect("runs");
    // the position is taken at the first poll
    let first = tokio::time::timeout(PATIENCE, async {
        let mut value = 100;
        loop {
            let insert = format!("INSERT INTO {{db}}.t VALUES ({value}, 'x', 0)");
            tokio::select! {
                batch = stream.next() => break lines(&[batch.expect("does not end").expect("batch")]),
                _ = cluster.doris(&insert) => value += 1,
            }
        }
    })
    .await
    .expect("a change arrives");
    assert!(first.iter().all(|row| row.ends_with("| x | +I")), "{first:?}");
}

async fn a_bounded_read_ends_when_it_has_caught_up_with_its_start(profile: Profile) {
    let (cluster, ctx) = changed_table(profile).await;
    cluster.doris("UPDATE {db}.t SET n = 31 WHERE id = 3").await;
    cluster.declare(&ctx, "changes", "t", &CAUGHT_UP).await;
    let rows = lines(&run(&ctx, "SELECT * FROM changes WHERE id = 3").await);
    // The update is part of the snapshot or follows it, by the second in which it was committed.
    let last = rows.last().expect("a row");
    assert!(["3 | c | 31 | +I", "3 | c | 31 | +U"].contains(&last.as_str()), "{rows:?}");
}

async fn a_filter_holds_no_small_batch_back(profile: Profile) {
    let (cluster, ctx) = changed_table(profile).await;
    cluster.declare(&ctx, "changes", "t", &INITIAL).await;
    for filter in ["id = 2", "lower(v) = 'b'", "v LIKE 'b%' AND n > 1 AND __change_kind = '+I'"] {
        let sql = format!("SELECT id, upper(v) FROM changes WHERE {filter}");
        let mut stream = datafusion_doris::sql(&ctx, &sql).await.expect("plans").execute_stream().await.expect("runs");
        assert_eq!(take(&mut stream, 1).await, ["2 | B"], "{filter}");
    }
}

async fn a_join_with_a_static_table_holds_no_small_batch_back(profile: Profile) {
    let (cluster, ctx) = changed_table(profile).await;
    cluster.declare(&ctx, "changes", "t", &INITIAL).await;
    run(&ctx, "CREATE TABLE names AS VALUES (1, 'one'), (2, 'two')").await;
    let sql =
        "SELECT c.id, names.column2 FROM changes c JOIN names ON c.id = names.column1 WHERE names.column2 = 'two'";
    let mut stream = datafusion_doris::sql(&ctx, sql).await.expect("plans").execute_stream().await.expect("runs");
    assert_eq!(take(&mut stream, 1).await, ["2 | two"]);
}

async fn a_limit_ends_an_endless_read(profile: Profile) {
    let (cluster, ctx) = changed_table(profile).await;
    cluster.declare(&ctx, "changes", "t", &INITIAL).await;
    let rows = tokio::time::timeout(PATIENCE, run(&ctx, "SELECT id FROM changes LIMIT 3")).await.expect("ends");
    let mut rows = lines(&rows);
    rows.sort();
    assert_eq!(rows, ["1", "2", "3"]);
}

async fn an_aggregate_over_an_endless_read_is_refused(profile: Profile) {
    let (cluster, ctx) = changed_table(profile).await;
    cluster.declare(&ctx, "changes", "t", &INITIAL).await;
    for sql in ["SELECT count(*) FROM changes", "SELECT * FROM changes ORDER BY n"] {
        refusal(&ctx, sql).await;
    }
}

async fn a_duplicate_table_gives_its_inserts(profile: Profile) {
    let cluster = Cluster::start_as(profile).await;
    cluster.duplicate_table("t", "id INT, v VARCHAR(20)", cluster.recording(false)).await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "changes", "t", &INITIAL).await;
    let mut stream = datafusion_doris::sql(&ctx, "SELECT * FROM changes")
        .await
        .expect("plans")
        .execute_stream()
        .await
        .expect("runs");
    let ((), rows) = tokio::join!(
        async {
            cluster.doris("INSERT INTO {db}.t VALUES (7, 'x'), (7, 'x')").await;
        },
        take(&mut stream, 2)
    );
    assert_eq!(rows, ["7 | x | +I", "7 | x | +I"]);
}

async fn a_table_without_changelog_is_refused_with_the_property_to_set(profile: Profile) {
    let cluster = Cluster::start_as(profile).await;
    cluster.unique_table("plain", "id INT", "").await;
    let ctx = cluster.context();
    let message = refusal(&ctx, &cluster.ddl("changes", "plain", &INITIAL)).await;
    assert!(message.contains("changelog.enable"), "{message}");
}

async fn a_condition_on_values_needs_the_old_values(profile: Profile) {
    let cluster = Cluster::start_as(profile).await;
    cluster.unique_table("t", COLUMNS, cluster.recording(false)).await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a', 10), (2, 'b', 20)").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "changes", "t", &CAUGHT_UP).await;
    let message = refusal(&ctx, "SELECT id FROM changes WHERE n > 10").await;
    assert!(message.contains("'n'") && message.contains("changelog.need_historical_value"), "{message}");
    for filter in ["id > 1", "n > 10 AND __change_kind IN ('+I', '+U')"] {
        let rows = lines(&run(&ctx, &format!("SELECT id FROM changes WHERE {filter}")).await);
        assert!(!rows.is_empty() && rows.iter().all(|row| row == "2"), "{filter}: {rows:?}");
    }
}

async fn dropping_a_read_closes_its_flight_sessions(profile: Profile) {
    let cluster = Cluster::sandbox_as(profile).await;
    cluster.changing_table("t", COLUMNS).await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a', 10)").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "changes", "t", &INITIAL).await;
    let mut stream = datafusion_doris::sql(&ctx, "SELECT * FROM changes")
        .await
        .expect("plans")
        .execute_stream()
        .await
        .expect("runs");
    take(&mut stream, 1).await;
    drop(stream);
    drop(ctx);
    tokio::time::timeout(PATIENCE, cluster.server().until(|server| server.open_flight_tokens() == 0))
        .await
        .expect("all sessions are closed");
}
