//! Table streams: what they tell, and when their offsets move.

use super::Fixture;
use crate::engine::{Engine, EngineConfig, Profile, Protocol};

async fn fixture() -> Fixture {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE o (id BIGINT, status STRING, n INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2 \
         PROPERTIES('changelog.enable'='true', 'changelog.need_historical_value'='true'); \
         CREATE TABLE target (id BIGINT, status STRING) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1; \
         INSERT INTO o VALUES (1,'created',100),(2,'created',200),(3,'created',300)",
    )
    .await;
    f
}

/// The writes behind a stream's start in the server's manual.
const WRITES: &str = "INSERT INTO o VALUES (1,'paid',100); DELETE FROM o WHERE id = 2; INSERT INTO o VALUES (4,'created',400); \
                      INSERT INTO o VALUES (5,'created',500); DELETE FROM o WHERE id = 5";

fn read(stream: &str) -> String {
    format!(
        "SELECT id, status, n, __DORIS_STREAM_CHANGE_TYPE_COL__ FROM {stream} \
         ORDER BY __DORIS_STREAM_SEQUENCE_COL__, __DORIS_STREAM_LSN_COL__, __DORIS_STREAM_CHANGE_TYPE_COL__ DESC"
    )
}

#[tokio::test]
async fn the_types_of_consumption_fold_as_documented() {
    let cases: [(&str, &[&str]); 3] = [
        ("append_only", &["4|created|400|APPEND", "5|created|500|APPEND"]),
        (
            "min_delta",
            &["1|created|100|UPDATE_BEFORE", "1|paid|100|UPDATE_AFTER", "2|created|200|DELETE", "4|created|400|APPEND"],
        ),
        (
            "detail",
            &[
                "1|created|100|UPDATE_BEFORE",
                "1|paid|100|UPDATE_AFTER",
                "2|created|200|DELETE",
                "4|created|400|APPEND",
                "5|created|500|APPEND",
                "5|created|500|DELETE",
            ],
        ),
    ];
    for (kind, rows) in cases {
        let mut f = fixture().await;
        f.run(&format!("CREATE STREAM s ON TABLE o PROPERTIES('type'='{kind}')")).await;
        assert!(f.rows("SELECT * FROM s").await.is_empty());
        f.run(WRITES).await;
        assert_eq!(f.sorted(&read("s")).await, rows, "{kind}");
        // Reading moves nothing; `*` has the columns of the table.
        assert_eq!(f.rows("SELECT * FROM s").await.len(), rows.len());
        assert_eq!(f.rows("SELECT * FROM s LIMIT 1").await[0].split('|').count(), 3);
    }
}

#[tokio::test]
async fn a_write_from_a_stream_moves_its_offset_with_it() {
    let mut f = fixture().await;
    f.run("CREATE STREAM s ON TABLE o").await;
    f.run(WRITES).await;
    let image = ["1|created|100", "2|created|200", "3|created|300"];
    assert_eq!(f.sorted("SELECT * FROM s@snapshot()").await, image);
    assert_eq!(f.sorted("SELECT id FROM s@reset()").await, ["1", "3", "4"]);
    // A statement that fails moves nothing.
    f.error("INSERT INTO target SELECT id FROM s").await;
    let lag = "SELECT UNIT, LAG > 0, LAST_CONSUMPTION_TIME FROM information_schema.table_stream_consumption";
    assert_eq!(f.rows(lag).await, ["o|1|-1"]);
    f.run(
        "INSERT INTO target (id, status) SELECT id, status FROM s WHERE __DORIS_STREAM_CHANGE_TYPE_COL__ IN ('APPEND','UPDATE_AFTER')",
    )
    .await;
    assert_eq!(f.sorted("SELECT * FROM target").await, ["1|paid", "4|created"]);
    // Filtered rows are skipped for good.
    assert!(f.rows("SELECT * FROM s").await.is_empty());
    assert_eq!(f.rows(lag).await, [format!("o|0|{}", super::START_MS)]);
    assert_eq!(f.sorted("SELECT id FROM s@snapshot()").await, ["1", "3", "4"]);
    f.run("INSERT INTO o VALUES (4,'paid',400)").await;
    assert_eq!(f.sorted(&read("s")).await, ["4|created|400|UPDATE_BEFORE", "4|paid|400|UPDATE_AFTER"]);
    // A snapshot moves nothing, a reset skips what is pending.
    f.run("INSERT INTO target SELECT id, status FROM s@snapshot()").await;
    assert_eq!(f.rows("SELECT * FROM s").await.len(), 2);
    f.run("INSERT INTO target SELECT id, status FROM s@reset() WHERE id > 100").await;
    assert!(f.rows("SELECT * FROM s").await.is_empty());
    // The table named twice is read and moved once.
    f.run(
        "INSERT INTO o VALUES (9,'new',1); INSERT INTO target SELECT a.id, b.status FROM s a JOIN s b ON a.id = b.id",
    )
    .await;
    assert_eq!(f.rows("SELECT status FROM target WHERE id = 9").await, ["new"]);
}

#[tokio::test]
async fn of_two_consumers_the_later_one_fails() {
    let mut f = fixture().await;
    f.run("CREATE STREAM s ON TABLE o").await;
    f.run(WRITES).await;
    let stream = f.engine.streams.get("d", "s").unwrap();
    let partition = super::super::changes::partitions(&f.engine.table_handle("d", "o").unwrap())[0].0;
    let mut late = crate::changelog::Consumption::default();
    late.add(&stream, partition, stream.offset(partition).map(|o| o.tso), i64::MAX);
    f.run("INSERT INTO target SELECT id, status FROM s").await;
    let refused = late.commit(0, async { Ok(()) }).await.unwrap_err();
    assert!(refused.text().starts_with(&format!("target offset already consumed: d-s-{partition}-")), "{refused}");
}

#[tokio::test]
async fn initial_rows_are_told_once() {
    let mut f = fixture().await;
    f.run("CREATE STREAM s ON TABLE o PROPERTIES('show_initial_rows'='true')").await;
    f.run("UPDATE o SET status = 'paid' WHERE id = 1").await;
    assert_eq!(f.sorted(&read("s")).await, ["1|paid|100|APPEND", "2|created|200|APPEND", "3|created|300|APPEND"]);
    assert!(f.rows("SELECT * FROM s@snapshot()").await.is_empty());
    f.run("INSERT INTO target SELECT id, status FROM s").await;
    assert!(f.rows("SELECT * FROM s").await.is_empty());
    f.run("DELETE FROM o WHERE id = 3").await;
    assert_eq!(f.rows(&read("s")).await, ["3|created|300|DELETE"]);
}

#[tokio::test]
async fn streams_are_shown_altered_and_dropped() {
    let mut f = fixture().await;
    f.run("CREATE STREAM s ON TABLE o COMMENT 'sync'").await;
    f.run("CREATE STREAM IF NOT EXISTS s ON TABLE o").await;
    assert_eq!(f.rows("SHOW STREAMS").await, ["s"]);
    assert_eq!(
        f.rows("SHOW CREATE STREAM s").await,
        [
            "s|CREATE STREAM `s`\nON TABLE internal.d.o\nCOMMENT 'sync'\nPROPERTIES (\n\"type\" = \"MIN_DELTA\",\n\"show_initial_rows\" = \"false\"\n);"
        ]
    );
    f.run("ALTER STREAM s SET COMMENT 'other'").await;
    assert!(f.rows("SHOW CREATE STREAM s").await[0].contains("COMMENT 'other'"));
    assert_eq!(f.rows("DESC s").await.len(), 3);
    let status = "SELECT STREAM_NAME, CONSUME_TYPE, BASE_TABLE_DB, BASE_TABLE_NAME, ENABLED, IS_STALE, STALE_REASON \
                  FROM information_schema.table_streams WHERE DB_NAME = 'd'";
    assert_eq!(f.rows(status).await, ["s|MIN_DELTA|d|o|1|0|N/A"]);
    assert_eq!(f.error("DROP TABLE s").await.text(), "'d.s' is not TABLE. Use 'DROP STREAM d.s'");
    f.run("DROP TABLE o").await;
    f.error("SELECT * FROM s").await;
    f.error("DROP STREAM s").await;
    f.run("DROP STREAM s FORCE; DROP STREAM IF EXISTS s").await;
    assert_eq!(f.error("DROP STREAM s").await.code, 1051);
}

#[tokio::test]
async fn streams_refuse_what_the_server_refuses() {
    let mut f = fixture().await;
    f.run("CREATE TABLE bare (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    f.run("CREATE TABLE flat (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES('changelog.enable'='true')").await;
    f.run("CREATE STREAM s ON TABLE o").await;
    for (sql, text) in [
        ("CREATE STREAM x ON TABLE o PROPERTIES('type'='full')", "not supported type: full"),
        ("CREATE STREAM x ON TABLE o PROPERTIES('kind'='detail')", "Unknown properties: {kind=detail}"),
        ("CREATE OR REPLACE STREAM x ON TABLE o", "do not support replace currently"),
        ("CREATE STREAM x ON TABLE bare", "Base Olap table bare need to enable row binlog for table stream"),
        (
            "CREATE STREAM x ON TABLE flat",
            "MIN_DELTA table stream requires base mow table to enable changelog.need_historical_value=true",
        ),
        ("CREATE STREAM s ON TABLE o", "Table 's' already exists"),
        ("CREATE STREAM o ON TABLE o", "Table 'o' already exists"),
        ("SELECT * FROM s@incr()", "Invalid param type for olap table stream"),
        ("SELECT * FROM o@snapshot()", "Invalid param type for olap table"),
        ("SELECT * FROM s PARTITION(p9)", "Partition: p9 is not exists on table o"),
    ] {
        assert_eq!(f.error(sql).await.text(), text, "{sql}");
    }
    f.run("CREATE STREAM a ON TABLE flat PROPERTIES('type'='append_only')").await;
    let engine = Engine::new(EngineConfig { enable_table_stream: false, ..EngineConfig::default() });
    let mut session = engine.open_session("root", "127.0.0.1", Protocol::Mysql);
    let refused = session.execute("CREATE STREAM s ON TABLE d.o").await.unwrap_err();
    assert_eq!(refused.text(), "Table Stream is experimental. Please set enable_table_stream=true to enable it.");
    let mut older = Fixture::new(Profile::V4_0);
    assert!(older.error("SHOW STREAMS").await.text().contains("does not implement STREAM statements"));
}
