//! Deletes by a column that only the list of the INSERT names.

use datafusion_doris::job::SyncJob;

use crate::harness::{Cluster, lines, refusal, run};
use crate::write::{FORMATS, insert};

const COLUMNS: &str = "id INT NOT NULL, v VARCHAR(20) NOT NULL, n INT";

#[tokio::test]
async fn a_delete_sign_in_the_list_needs_no_declaration() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", COLUMNS, "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t; INSERT INTO {db}.t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        insert(&ctx, "INSERT INTO t (id, v, __DORIS_DELETE_SIGN__) SELECT id, v, CASE WHEN n > 1 THEN 1 ELSE 0 END FROM t WHERE n < 3").await;
        // In another place of the list, quoted, of another type; keys alone are enough to delete.
        insert(&ctx, "INSERT INTO t (\"__DORIS_DELETE_SIGN__\", v, id) VALUES (false, 'd', 4), (true, NULL, 3)").await;
        // What the list leaves out has its default, as without the sign.
        let rows = lines(&run(&ctx, "SELECT id, v, n FROM t ORDER BY id").await);
        assert_eq!(rows, ["1 | a | NULL", "4 | d | NULL"], "{format:?}");
        // The table is declared as it was.
        assert_eq!(lines(&run(&ctx, "SELECT * FROM t ORDER BY id LIMIT 1").await), ["1 | a | NULL"]);
        let message = refusal(&ctx, "INSERT INTO t (id, v, __DORIS_DELETE_SIGN__) VALUES (5, 'e', 2)").await;
        assert!(message.contains("2 is neither 0"), "{message}");
    }
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[("sink.properties.partial_columns", "true")]).await;
    insert(&ctx, "INSERT INTO t (id, n, __DORIS_DELETE_SIGN__) VALUES (1, 7, 0), (4, 0, 1)").await;
    assert_eq!(lines(&run(&ctx, "SELECT * FROM t").await), ["1 | a | 7"]);
    let plan =
        lines(&run(&ctx, "EXPLAIN INSERT INTO t (id, __DORIS_DELETE_SIGN__) SELECT id, 1 FROM t").await).join("\n");
    assert!(plan.contains("columns=[`id`,__DORIS_DELETE_SIGN__]"), "{plan}");
    // A table of a catalog is not declared at all.
    run(&ctx, &cluster.catalog_ddl("doris", &[])).await;
    let name = format!("doris.{}.t", cluster.database());
    insert(&ctx, &format!("INSERT INTO {name} (id, v, __DORIS_DELETE_SIGN__) VALUES (1, '', 1), (9, 'i', 0)")).await;
    assert_eq!(lines(&run(&ctx, &format!("SELECT id, v FROM {name}")).await), ["9 | i"]);
}

#[tokio::test]
async fn a_job_may_name_the_delete_sign() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", COLUMNS, "").await;
    cluster.changing_table("source", COLUMNS).await;
    cluster
        .doris("INSERT INTO {db}.t VALUES (1, 'old', 1); INSERT INTO {db}.source VALUES (1, 'a', 1), (2, 'b', 2)")
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let options = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
    cluster.declare(&ctx, "changes", "source", &options).await;
    // New rows only; those with an odd id take the row of their key away.
    let sql =
        "INSERT INTO t (id, v, __DORIS_DELETE_SIGN__) SELECT id, v, id % 2 FROM changes WHERE __change_kind = '+I'";
    let job = SyncJob::submit(&ctx, "signs", sql).await.expect("starts");
    job.caught_up().await.expect("is written");
    cluster.doris("INSERT INTO {db}.source VALUES (3, 'c', 3), (4, 'd', 4)").await;
    job.caught_up().await.expect("is written");
    job.stop().await.expect("stops");
    assert_eq!(lines(&run(&ctx, "SELECT id, v FROM t ORDER BY id").await), ["2 | b", "4 | d"]);
}

#[tokio::test]
async fn a_delete_sign_is_refused_where_nothing_can_be_deleted_by_it() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", COLUMNS, "").await;
    cluster.duplicate_table("d", COLUMNS, "").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "d", "d", &[]).await;
    let message = refusal(&ctx, "INSERT INTO d (id, v, __DORIS_DELETE_SIGN__) VALUES (1, 'a', 1)").await;
    assert!(message.contains("no UNIQUE KEY table") && message.contains(&cluster.table("d")), "{message}");
    cluster.declare(&ctx, "kinds", "t", &[("sink.change-kind-column", "kind")]).await;
    let message = refusal(&ctx, "INSERT INTO kinds (id, v, __DORIS_DELETE_SIGN__) VALUES (1, 'a', 1)").await;
    assert!(message.contains("sink.change-kind-column") && message.contains("'kind'"), "{message}");
    let message = refusal(&ctx, "INSERT INTO nowhere (id, __DORIS_DELETE_SIGN__) VALUES (1, 1)").await;
    assert!(message.contains("nowhere"), "{message}");
    run(&ctx, "CREATE TABLE mine (id INT)").await;
    let message = refusal(&ctx, "INSERT INTO mine (id, __DORIS_DELETE_SIGN__) VALUES (1, 1)").await;
    assert!(message.to_lowercase().contains("__doris_delete_sign__"), "{message}");
}
