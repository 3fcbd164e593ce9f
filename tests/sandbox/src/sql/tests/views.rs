use super::Fixture;

const TABLE: &str = "CREATE TABLE t (k INT NULL, v VARCHAR(10) NULL) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2
    PROPERTIES (\"replication_num\" = \"1\");
    INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'it''s')";

async fn fixture() -> Fixture {
    let mut f = Fixture::with_database().await;
    f.run(TABLE).await;
    f
}

#[tokio::test]
async fn a_view_reads_its_tables_under_its_own_column_names() {
    let mut f = fixture().await;
    f.run("CREATE VIEW v (a COMMENT 'the key', b) COMMENT 'two columns' AS SELECT k + 1, upper(v) FROM t WHERE k < 3")
        .await;
    assert_eq!(f.sorted("SELECT a, b FROM v").await, ["2|A", "3|B"]);
    assert_eq!(f.sorted("SELECT x.b FROM v AS x WHERE x.a = 3").await, ["B"]);
    f.run("INSERT INTO t VALUES (0, 'z')").await;
    assert_eq!(f.rows("SELECT count(*) FROM v").await, ["3"]);
    assert_eq!(f.rows("DESC v").await[1], "b|text|Yes|false|NULL|", "types come from the query");
    assert_eq!(f.rows("SHOW FULL TABLES").await, ["t|BASE TABLE|NONE", "v|VIEW|NONE"]);
    assert_eq!(
        f.rows("SELECT TABLE_TYPE, TABLE_COMMENT FROM information_schema.tables WHERE TABLE_NAME = 'v'").await,
        ["VIEW|two columns"]
    );
    assert_eq!(
        f.rows("SELECT COLUMN_NAME, COLUMN_COMMENT FROM information_schema.columns WHERE TABLE_NAME = 'v'").await,
        ["a|the key", "b|"]
    );
}

#[tokio::test]
async fn views_stand_in_views_and_read_other_databases() {
    let mut f = fixture().await;
    f.run("CREATE DATABASE e; CREATE VIEW e.w AS SELECT k, v FROM d.t; USE e").await;
    f.run("CREATE VIEW x AS WITH c AS (SELECT k FROM w) SELECT c.k AS k, o.v FROM c JOIN d.t o ON c.k = o.k").await;
    f.run("USE d").await;
    assert_eq!(f.sorted("SELECT * FROM e.x").await, ["1|a", "2|b", "3|it's"]);
    let shown = f.rows("SHOW CREATE VIEW e.x").await;
    assert_eq!(
        shown,
        [
            "x|CREATE VIEW `x` (`k`, `v`) AS WITH c AS (SELECT k FROM `internal`.`e`.`w`) SELECT c.k AS k, o.v FROM c JOIN \
          `internal`.`d`.`t` o ON c.k = o.k;|utf8mb4|utf8mb4_0900_bin"
        ]
    );
    assert_eq!(f.rows("SHOW CREATE TABLE e.x").await, shown);
    assert_eq!(f.rows("SHOW VIEW FROM t").await.len(), 2);
    assert_eq!(
        f.rows("SELECT VIEW_DEFINITION, IS_UPDATABLE FROM information_schema.views WHERE TABLE_NAME = 'w'").await,
        ["SELECT k, v FROM `internal`.`d`.`t`|NO"]
    );
}

#[tokio::test]
async fn what_a_view_printed_creates_it_again() {
    let mut f = fixture().await;
    f.run(r"CREATE VIEW v AS SELECT q.k AS k, concat(q.v, 'it''s \\ a \'b\'') AS s FROM (SELECT k, v FROM t) q, t AS p WHERE p.k = q.k").await;
    let before = f.sorted("SELECT * FROM v").await;
    let text = f.rows("SHOW CREATE VIEW v").await[0].split('|').nth(1).expect("text").to_owned();
    f.run("DROP VIEW v").await;
    f.run(&text).await;
    assert_eq!(f.sorted("SELECT * FROM v").await, before);
    assert_eq!(before.len(), 3);
}

#[tokio::test]
async fn replace_alter_and_drop() {
    let mut f = fixture().await;
    f.run("CREATE VIEW v COMMENT 'one' AS SELECT k FROM t; CREATE VIEW IF NOT EXISTS v AS SELECT v FROM t").await;
    assert_eq!(f.rows("SELECT max(k) FROM v").await, ["3"]);
    f.run("CREATE OR REPLACE VIEW v AS SELECT v AS w FROM t").await;
    assert_eq!(f.rows("SELECT max(w) FROM v").await, ["it's"]);
    f.run("ALTER VIEW v (z) AS SELECT k * 2 FROM t; ALTER VIEW v MODIFY COMMENT 'three'").await;
    assert_eq!(f.rows("SELECT max(z) FROM v").await, ["6"]);
    assert!(f.rows("SHOW CREATE VIEW v").await[0].contains("COMMENT 'three'"));
    f.run("DROP VIEW v; DROP VIEW IF EXISTS v").await;
    assert_eq!(f.error("SELECT * FROM v").await.text(), "Table [v] does not exist in database [d].");
    f.run("CREATE VIEW v AS SELECT 1 AS one; DROP DATABASE d; CREATE DATABASE d; USE d").await;
    assert!(f.rows("SHOW TABLES").await.is_empty());
}

#[tokio::test]
async fn refusals_about_views() {
    let mut f = fixture().await;
    f.run("CREATE VIEW v AS SELECT k FROM t").await;
    for (sql, code, text) in [
        ("CREATE VIEW v AS SELECT k FROM t", 1050, "Table 'v' already exists"),
        ("CREATE VIEW t AS SELECT 1 AS a", 1050, "Table 't' already exists"),
        (
            "CREATE TABLE v (k INT) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\"=\"1\")",
            1050,
            "Table 'v' already exists",
        ),
        (
            "CREATE VIEW w (a, b) AS SELECT k FROM t",
            1353,
            "View's SELECT and view's field list have different column counts",
        ),
        ("CREATE VIEW w AS SELECT k, v AS k FROM t", 1060, "Duplicate column name 'k'"),
        ("CREATE VIEW w AS SELECT k FROM none", 1105, "Table [none] does not exist in database [d]."),
        ("CREATE VIEW x.w AS SELECT k FROM t", 1049, "Unknown database 'x'"),
        ("DROP VIEW t", 1347, "'d.t' is not VIEW"),
        ("DROP VIEW w", 1051, "Unknown table 'w'"),
        ("DROP TABLE v", 1347, "'d.v' is not BASE TABLE"),
        ("ALTER VIEW t AS SELECT 1 AS a", 1347, "'d.t' is not VIEW"),
        ("SHOW CREATE VIEW t", 1347, "'d.t' is not VIEW"),
        ("INSERT INTO v VALUES (1)", 1347, "'d.v' is not BASE TABLE"),
        ("DELETE FROM v WHERE k = 1", 1347, "'d.v' is not BASE TABLE"),
        ("TRUNCATE TABLE v", 1347, "'d.v' is not BASE TABLE"),
    ] {
        let error = f.error(sql).await;
        assert_eq!((error.code, error.text()), (code, text), "{sql}");
    }
    f.run("DROP TABLE t").await;
    assert_eq!(f.error("SELECT * FROM v").await.text(), "Table [t] does not exist in database [d].");
}

#[tokio::test]
async fn a_view_that_reads_itself_ends_in_a_refusal() {
    let mut f = fixture().await;
    f.run("CREATE VIEW v AS SELECT k FROM t; CREATE VIEW w AS SELECT k FROM v; ALTER VIEW v AS SELECT k FROM w").await;
    assert!(f.error("SELECT * FROM w").await.text().contains("nested deeper"));
}
