//! Changelogs written to tables whose key is not that of the source.

use datafusion::prelude::SessionContext;

use crate::harness::{Cluster, lines, refusal, run};

const KIND: (&str, &str) = ("sink.change-kind-column", "__change_kind");
const COLUMNS: &str = "id INT NOT NULL, mail VARCHAR(20) NOT NULL, n INT";

/// A source with the key `id` and what changes it, and a context that reads its changes as `changes` and, as net changes,
/// as `net`.
async fn changed_source(old_values: bool) -> (Cluster, SessionContext) {
    let cluster = Cluster::start().await;
    let properties = cluster.recording(old_values);
    cluster.unique_table("source", COLUMNS, properties).await;
    let ctx = cluster.context();
    let start = cluster.scalar("SELECT DATE_FORMAT(NOW(), '%Y-%m-%d %H:%i:%s')").await;
    let detail = [
        ("source.scan.mode", "from-timestamp"),
        ("source.scan.timestamp", start.as_str()),
        ("source.scan.bounded-mode", "latest"),
    ];
    cluster.declare(&ctx, "changes", "source", &detail).await;
    if old_values {
        let net = [&detail[..], &[("source.changelog.increment-type", "min_delta")][..]].concat();
        cluster.declare(&ctx, "net", "source", &net).await;
    }
    cluster.doris("INSERT INTO {db}.source VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)").await;
    // Keys of the target go round: `a` passes from row 1 to row 2 and `b` from row 2 to row 1.
    cluster.doris("UPDATE {db}.source SET mail = 'x' WHERE id = 1").await;
    cluster.doris("UPDATE {db}.source SET mail = 'a' WHERE id = 2").await;
    cluster.doris("UPDATE {db}.source SET mail = 'b', n = 10 WHERE id = 1").await;
    cluster.doris("DELETE FROM {db}.source WHERE id = 3").await;
    cluster.next_second().await;
    (cluster, ctx)
}

/// The two tables agree, by mail.
async fn assert_copied(cluster: &Cluster, target: &str) {
    let source = cluster.doris("SELECT mail, id, n FROM {db}.source ORDER BY mail").await;
    let target = cluster.doris(&format!("SELECT mail, id, n FROM {{db}}.{target} ORDER BY mail")).await;
    assert_eq!(source.len(), 2);
    assert_eq!(source, target);
}

#[tokio::test]
async fn an_update_that_moves_a_row_to_another_key_takes_the_old_row_away() {
    let (cluster, ctx) = changed_source(true).await;
    cluster.unique_table("by_mail", "mail VARCHAR(20) NOT NULL, id INT, n INT", "").await;
    cluster.declare(&ctx, "by_mail", "by_mail", &[KIND]).await;
    let columns = "mail, id, n, __change_kind";
    run(&ctx, &format!("INSERT INTO by_mail SELECT {columns} FROM changes")).await;
    assert_copied(&cluster, "by_mail").await;

    // Net changes of different rows of the source keep no order, and here they meet at one key.
    let message = refusal(&ctx, &format!("INSERT INTO by_mail SELECT {columns} FROM net")).await;
    assert!(message.contains("source.changelog.increment-type"), "{message}");
    // Nor behind an operator that leaves halves of updates alone.
    let filtered = "FROM net WHERE n > random() - 1";
    let message = refusal(&ctx, &format!("INSERT INTO by_mail SELECT {columns} {filtered}")).await;
    assert!(message.contains("source.changelog.increment-type"), "{message}");
    cluster.declare(&ctx, "ignoring", "by_mail", &[KIND, ("sink.ignore.update-before", "true")]).await;
    let message = refusal(&ctx, &format!("INSERT INTO ignoring SELECT {columns} FROM changes")).await;
    assert!(message.contains("sink.ignore.update-before") && message.contains("'mail'"), "{message}");
}

#[tokio::test]
async fn a_key_with_that_of_the_source_and_more_takes_net_changes_too() {
    let (cluster, ctx) = changed_source(true).await;
    for (read, target) in [("changes", "of_changes"), ("net", "of_net")] {
        cluster
            .doris(&format!(
                "CREATE TABLE {{db}}.{target} (id INT NOT NULL, mail VARCHAR(20) NOT NULL, n INT) UNIQUE KEY(id, mail)
                 DISTRIBUTED BY HASH(id) BUCKETS 2
                 PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true')"
            ))
            .await;
        cluster.declare(&ctx, target, target, &[KIND]).await;
        run(&ctx, &format!("INSERT INTO {target} SELECT id, mail, n, __change_kind FROM {read}")).await;
        assert_copied(&cluster, target).await;
    }
}

#[tokio::test]
async fn the_key_of_the_source_leaves_old_halves_of_updates_out() {
    let (cluster, ctx) = changed_source(true).await;
    // The key is computed, but from the key of the source alone.
    cluster.unique_table("copy", "id BIGINT NOT NULL, mail VARCHAR(20), n INT", "").await;
    for sql in ["SELECT id + 100, mail, n, __change_kind FROM", "SELECT id, upper(mail), n, __change_kind FROM"] {
        for (read, options) in [("changes", &[KIND][..]), ("changes", &[KIND, ("sink.ignore.update-before", "true")])] {
            cluster.doris("TRUNCATE TABLE {db}.copy").await;
            cluster.declare(&ctx, "copy", "copy", options).await;
            run(&ctx, &format!("INSERT INTO copy {sql} {read}")).await;
            assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.copy").await, "2");
            run(&ctx, "DROP TABLE copy").await;
        }
    }
    cluster.doris("TRUNCATE TABLE {db}.copy").await;
    cluster.declare(&ctx, "copy", "copy", &[KIND]).await;
    run(&ctx, "INSERT INTO copy SELECT id, mail, n, __change_kind FROM net").await;
    assert_copied(&cluster, "copy").await;
}

#[tokio::test]
async fn a_source_without_old_values_cannot_move_rows() {
    let (cluster, ctx) = changed_source(false).await;
    cluster.unique_table("by_mail", "mail VARCHAR(20) NOT NULL, id INT, n INT", "").await;
    cluster.declare(&ctx, "by_mail", "by_mail", &[KIND]).await;
    let message = refusal(&ctx, "INSERT INTO by_mail SELECT mail, id, n, __change_kind FROM changes").await;
    assert!(message.contains("need_historical_value") && message.contains("'mail'"), "{message}");
    // By the source's key all is found.
    cluster.unique_table("copy", COLUMNS, "").await;
    cluster.declare(&ctx, "copy", "copy", &[KIND]).await;
    run(&ctx, "INSERT INTO copy SELECT id, mail, n, __change_kind FROM changes").await;
    assert_copied(&cluster, "copy").await;
}

#[tokio::test]
async fn a_partial_update_takes_changes_by_the_key_of_the_source_alone() {
    let (cluster, ctx) = changed_source(true).await;
    let partial = [KIND, ("sink.properties.partial_columns", "true")];
    cluster.unique_table("copy", "id INT NOT NULL, mail VARCHAR(20), n INT, mine VARCHAR(10)", "").await;
    cluster.doris("INSERT INTO {db}.copy VALUES (1, NULL, NULL, 'kept'), (3, NULL, NULL, 'gone')").await;
    cluster.declare(&ctx, "copy", "copy", &partial).await;
    run(&ctx, "INSERT INTO copy (id, mail, n, __change_kind) SELECT id, mail, n, __change_kind FROM changes").await;
    assert_copied(&cluster, "copy").await;
    let mine = lines(&run(&ctx, "SELECT id, mine FROM copy ORDER BY id").await);
    assert_eq!(mine, ["1 | kept", "2 | NULL"]);

    cluster.unique_table("by_mail", "mail VARCHAR(20) NOT NULL, id INT, n INT, mine VARCHAR(10)", "").await;
    cluster.declare(&ctx, "by_mail", "by_mail", &partial).await;
    let sql = "INSERT INTO by_mail (mail, id, n, __change_kind) SELECT mail, id, n, __change_kind FROM changes";
    let message = refusal(&ctx, sql).await;
    assert!(message.contains("partial update"), "{message}");
}
