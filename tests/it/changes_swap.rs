//! Rows of the source that pass a key of the target to each other within one commit.

use datafusion::prelude::SessionContext;
use datafusion_doris::job::SyncJob;

use crate::harness::{Cluster, lines, run};

const KIND: (&str, &str) = ("sink.change-kind-column", "__change_kind");
const COLUMNS: &str = "mail, id, n, __change_kind";

/// Each changes rows 1 to 4, with the mails `a` to `d`, in one commit.
const CHANGES: [&str; 6] = [
    // Two rows swap, and go round.
    "UPDATE {db}.source SET mail = CASE WHEN id = 1 THEN 'b' ELSE 'a' END WHERE id IN (1, 2)",
    "UPDATE {db}.source SET mail = CASE id WHEN 1 THEN 'c' WHEN 2 THEN 'b' ELSE 'a' END WHERE id IN (1, 2, 3)",
    // A new row takes the mail of one that changes, and one that goes leaves it to one that stays.
    "INSERT INTO {db}.source VALUES (0, 'd', 5), (4, 'e', 4)",
    // Rows and deletes: the mail of row 4 passes to row 5, then that of row 0 to row 7.
    "INSERT INTO {db}.source (id, mail, n, __DORIS_DELETE_SIGN__) VALUES (5, 'e', 6, 0), (4, 'e', 4, 1)",
    "INSERT INTO {db}.source (id, mail, n, __DORIS_DELETE_SIGN__) VALUES (7, 'd', 7, 0), (0, 'd', 5, 1)",
    // All of them.
    "UPDATE {db}.source SET mail = CASE id WHEN 1 THEN 'a' WHEN 2 THEN 'c' WHEN 3 THEN 'b' WHEN 5 THEN 'd' ELSE 'e' END",
];

async fn source(cluster: &Cluster) -> SessionContext {
    let columns = "id INT NOT NULL, mail VARCHAR(20) NOT NULL, n INT";
    cluster.unique_table("source", columns, cluster.recording(true)).await;
    cluster.context()
}

async fn rows(cluster: &Cluster, table: &str) -> Vec<Vec<Option<String>>> {
    cluster.doris(&format!("SELECT mail, id, n FROM {{db}}.{table} ORDER BY mail")).await
}

#[tokio::test]
async fn rows_that_swap_their_keys_in_one_commit_are_all_there() {
    let cluster = Cluster::start().await;
    let ctx = source(&cluster).await;
    let start = cluster.scalar("SELECT DATE_FORMAT(NOW(), '%Y-%m-%d %H:%i:%s')").await;
    cluster.doris("INSERT INTO {db}.source VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4)").await;
    let read = |declared: &str| {
        let options = [
            ("source.scan.mode", "from-timestamp"),
            ("source.scan.timestamp", start.as_str()),
            ("source.scan.bounded-mode", "latest"),
        ];
        cluster.ddl(declared, "source", &options)
    };
    run(&ctx, &read("changes")).await;
    let mut targets = Vec::new();
    for (name, options) in [
        ("streamed", &[KIND][..]),
        ("side_by_side", &[KIND, ("sink.parallelism", "3"), ("sink.properties.format", "json")]),
        ("batched", &[KIND, ("sink.write-mode", "STREAM_LOAD_BATCH"), ("sink.buffer-flush.max-rows", "2")]),
    ] {
        cluster.unique_table(name, "mail VARCHAR(20) NOT NULL, id INT, n INT", "").await;
        cluster.declare(&ctx, name, name, options).await;
        targets.push(name);
    }
    // The mirror has no column of the source's key.
    cluster.unique_table("mails", "mail VARCHAR(20) NOT NULL, n INT", "").await;
    cluster.declare(&ctx, "mails", "mails", &[KIND]).await;
    for change in CHANGES {
        cluster.doris(change).await;
        cluster.next_second().await;
        let expected = rows(&cluster, "source").await;
        for target in &targets {
            cluster.doris(&format!("TRUNCATE TABLE {{db}}.{target}")).await;
            run(&ctx, &format!("INSERT INTO {target} SELECT {COLUMNS} FROM changes")).await;
            assert_eq!(rows(&cluster, target).await, expected, "{target} after {change}");
        }
        cluster.doris("TRUNCATE TABLE {db}.mails").await;
        // A condition, which the changelog evaluates over pairs of rows.
        run(&ctx, "INSERT INTO mails SELECT mail, n, __change_kind FROM changes WHERE n <> 3").await;
        let found = cluster.doris("SELECT mail, n FROM {db}.mails ORDER BY mail").await;
        let wanted = cluster.doris("SELECT mail, n FROM {db}.source WHERE n <> 3 ORDER BY mail").await;
        assert_eq!(found, wanted, "after {change}");
    }
}

#[tokio::test]
async fn a_job_by_another_key_keeps_rows_that_swap_them() {
    let cluster = Cluster::start().await;
    let ctx = source(&cluster).await;
    cluster.doris("INSERT INTO {db}.source VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4)").await;
    let initial = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
    cluster.declare(&ctx, "changes", "source", &initial).await;
    cluster.unique_table("mails", "mail VARCHAR(20) NOT NULL, n INT", "").await;
    cluster.declare(&ctx, "mails", "mails", &[KIND]).await;
    let dir = tempfile::tempdir().expect("a directory");
    let sql = "INSERT INTO mails SELECT mail, n, __change_kind FROM changes";
    for changes in CHANGES.chunks(3) {
        // Each start goes on from the checkpoint of the one before.
        let job = SyncJob::builder("mails").checkpoint_dir(dir.path().to_str().expect("text"));
        let job = job.submit(&ctx, sql).await.expect("starts");
        for change in changes {
            cluster.doris(change).await;
            job.caught_up().await.expect("is mirrored");
            let found = cluster.doris("SELECT mail, n FROM {db}.mails ORDER BY mail").await;
            let wanted = cluster.doris("SELECT mail, n FROM {db}.source ORDER BY mail").await;
            assert_eq!(found, wanted, "after {change}");
        }
        job.stop().await.expect("stops");
    }
}

#[tokio::test]
async fn commits_are_put_in_order_only_where_keys_can_meet() {
    let cluster = Cluster::start().await;
    let ctx = source(&cluster).await;
    for mode in [&[("source.scan.mode", "latest")][..], &[("source.scan.mode", "initial")]] {
        run(&ctx, "DROP TABLE IF EXISTS changes").await;
        cluster.declare(&ctx, "changes", "source", mode).await;
        for (target, columns, select, ordered) in [
            ("by_id", "id INT NOT NULL, mail VARCHAR(20), n INT", "id, mail, n, __change_kind", false),
            ("by_mail", "mail VARCHAR(20) NOT NULL, id INT, n INT", "mail, id, n, __change_kind", true),
            ("by_part", "part INT NOT NULL, mail VARCHAR(20)", "id % 10, mail, __change_kind", true),
        ] {
            cluster.doris(&format!("DROP TABLE IF EXISTS {{db}}.{target}")).await;
            cluster.unique_table(target, columns, "").await;
            run(&ctx, &format!("DROP TABLE IF EXISTS {target}")).await;
            cluster.declare(&ctx, target, target, &[KIND]).await;
            let plan = lines(&run(&ctx, &format!("EXPLAIN INSERT INTO {target} SELECT {select} FROM changes")).await);
            let shown = plan.join("\n").contains("commits=deletes first");
            assert_eq!(shown, ordered, "{target}: {plan:#?}");
        }
    }
}
