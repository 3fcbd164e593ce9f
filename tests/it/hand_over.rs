//! Changelogs that are written elsewhere than into Doris: at-least-once, with the position behind the rows.

use crate::harness::{Cluster, lines, run, text, try_run};

#[tokio::test]
async fn a_changelog_written_to_files_goes_on_behind_what_is_in_them() {
    let cluster = Cluster::start().await;
    cluster.changing_table("t", "id INT NOT NULL, v VARCHAR(20)").await;
    cluster.offset_table().await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b')").await;
    let ctx = cluster.context();
    let offsets = cluster.table("offsets");
    let options = [
        ("source.scan.mode", "initial"),
        ("source.scan.bounded-mode", "latest"),
        ("source.changelog.poll-interval", "1s"),
        ("source.changelog.offset-table", offsets.as_str()),
        ("source.changelog.consumer-id", "files"),
    ];
    cluster.declare(&ctx, "changes", "t", &options).await;
    let dir = tempfile::tempdir().expect("a directory");
    let files = format!(
        "CREATE EXTERNAL TABLE files (id INT, v VARCHAR, kind VARCHAR) STORED AS CSV LOCATION '{}/' OPTIONS
         ('format.has_header' 'false')",
        dir.path().display()
    );
    run(&ctx, &files).await;
    let insert = "INSERT INTO files SELECT id, v, __change_kind FROM changes";
    let shown = text(&run(&ctx, &format!("EXPLAIN {insert}")).await);
    assert!(shown.contains("delivery=at-least-once (position published at the end of the statement)"), "{shown}");

    // What fails on its way publishes nothing.
    let fails = "INSERT INTO files SELECT id, CAST(CAST(v AS INT) AS VARCHAR), __change_kind FROM changes";
    try_run(&ctx, fails).await.expect_err("'a' is no number");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.offsets").await, "0");

    run(&ctx, insert).await;
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.offsets").await, "1");
    cluster.next_second().await;
    cluster.doris("INSERT INTO {db}.t VALUES (3, 'c')").await;
    cluster.next_second().await;
    run(&ctx, insert).await;
    let rows = lines(&run(&ctx, "SELECT * FROM files ORDER BY id").await);
    assert_eq!(rows, ["1 | a | +I", "2 | b | +I", "3 | c | +I"], "each once: no statement was cut off");

    let follow = [("source.scan.mode", "latest"), options[3], options[4]];
    cluster.declare(&ctx, "followed", "t", &follow).await;
    let shown = text(&run(&ctx, "EXPLAIN SELECT * FROM followed").await);
    assert!(shown.contains("delivery=at-least-once (position published after hand-over)"), "{shown}");
}
