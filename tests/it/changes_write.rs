//! What an INSERT does to the rows that are there: columns that it leaves out, deletes, partial updates, computed columns.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use doris_sandbox::Site;

use crate::harness::{Cluster, lines, refusal, run};
use crate::write::{FORMATS, insert};

const PARTIAL: (&str, &str) = ("sink.properties.partial_columns", "true");
const FLEXIBLE: (&str, &str) = ("sink.properties.unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS");

/// Rows of a statement in Doris, one line each.
async fn doris_lines(cluster: &Cluster, sql: &str) -> Vec<String> {
    let line = |row: Vec<Option<String>>| {
        row.into_iter().map(|cell| cell.unwrap_or_else(|| "NULL".into())).collect::<Vec<_>>().join(" | ")
    };
    cluster.doris(sql).await.into_iter().map(line).collect()
}

/// Declares table `name` with a list of columns of its own.
async fn declare(cluster: &Cluster, ctx: &SessionContext, name: &str, columns: &str, options: &[(&str, &str)]) {
    run(ctx, &with_columns(&cluster.ddl(name, name, options), name, columns)).await;
}

fn with_columns(ddl: &str, name: &str, columns: &str) -> String {
    ddl.replace(&format!("TABLE {name} "), &format!("TABLE {name} ({columns}) "))
}

/// A context without anything of this crate but its table `name`, taken from `ctx`.
async fn plain_context(ctx: &SessionContext, name: &str) -> SessionContext {
    let plain = SessionContext::new();
    plain.register_table(name, ctx.table_provider(name).await.expect("is declared")).expect("registers");
    plain
}

#[tokio::test]
async fn columns_that_an_insert_leaves_out_get_the_defaults_of_doris() {
    let cluster = Cluster::start().await;
    cluster
        .duplicate_table(
            "t",
            "id INT NOT NULL, name VARCHAR(20) NOT NULL DEFAULT 'nobody', n INT DEFAULT '7', v INT",
            "",
        )
        .await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        assert_eq!(insert(&ctx, "INSERT INTO t (v, id) VALUES (5, 1)").await, 1);
        // An explicit NULL is one.
        assert_eq!(insert(&ctx, "INSERT INTO t (id, n) SELECT 2, NULL").await, 1);
        let plain = plain_context(&ctx, "t").await;
        plain.sql("INSERT INTO t (id) VALUES (3), (4)").await.expect("plans").collect().await.expect("writes");
        let rows = doris_lines(&cluster, "SELECT * FROM {db}.t ORDER BY id").await;
        let expected =
            ["1 | nobody | 7 | 5", "2 | nobody | NULL | NULL", "3 | nobody | 7 | NULL", "4 | nobody | 7 | NULL"];
        assert_eq!(rows, expected, "{format:?}");
        let message = refusal(&ctx, "INSERT INTO t (v) VALUES (1)").await;
        assert!(message.contains("column 'id' is NOT NULL"), "{message}");
        assert!(message.contains(&cluster.table("t")), "{message}");
    }
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let plan = lines(&run(&ctx, "EXPLAIN INSERT INTO t (v, id) SELECT n, id FROM t").await).join("\n");
    assert!(plan.contains("columns=[`id`,`v`]"), "{plan}");
    // A default of the declaration is a value.
    let ddl = cluster.ddl("d", "t", &[]).replace("TABLE d ", "TABLE d (id INT, name VARCHAR DEFAULT 'me', n INT) ");
    run(&ctx, &ddl).await;
    insert(&ctx, "INSERT INTO d (id) VALUES (9)").await;
    assert_eq!(doris_lines(&cluster, "SELECT name, n FROM {db}.t WHERE id = 9").await, ["me | 7"]);
}

#[tokio::test]
async fn a_partial_update_keeps_what_its_list_leaves_out() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", "id INT NOT NULL, a VARCHAR(20), b INT, c INT NOT NULL DEFAULT '7'", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t; INSERT INTO {db}.t VALUES (1, 'x', 10, 100), (2, 'y', 20, 200)").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", &[format, &[PARTIAL][..]].concat()).await;
        insert(&ctx, "INSERT INTO t (b, id) VALUES (11, 1), (31, 3)").await;
        let plain = plain_context(&ctx, "t").await;
        plain.sql("INSERT INTO t (id, a) SELECT 2, NULL").await.expect("plans").collect().await.expect("writes");
        // A table with some of the columns loads only those.
        let few = with_columns(&cluster.ddl("few", "t", &[format, &[PARTIAL][..]].concat()), "few", "id INT, c INT");
        run(&ctx, &few).await;
        insert(&ctx, "INSERT INTO few VALUES (2, 201)").await;
        let rows = doris_lines(&cluster, "SELECT * FROM {db}.t ORDER BY id").await;
        assert_eq!(rows, ["1 | x | 11 | 100", "2 | NULL | 20 | 201", "3 | NULL | 31 | 7"], "{format:?}");
        let message = refusal(&ctx, "INSERT INTO t (a, b) VALUES ('z', 1)").await;
        assert!(message.contains("key column 'id'"), "{message}");
    }
}

#[tokio::test]
async fn a_partial_update_deletes_too_and_asks_of_new_keys_what_it_is_told() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", "id INT NOT NULL, a VARCHAR(20), b INT NOT NULL", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t; INSERT INTO {db}.t VALUES (1, 'x', 10), (2, 'y', 20)").await;
        let ctx = cluster.context();
        let options = [format, &[PARTIAL, ("sink.change-kind-column", "kind")][..]].concat();
        cluster.declare(&ctx, "t", "t", &options).await;
        insert(&ctx, "INSERT INTO t (id, a, kind) VALUES (1, 'xx', '+U'), (2, NULL, '-D')").await;
        assert_eq!(doris_lines(&cluster, "SELECT * FROM {db}.t").await, ["1 | xx | 10"], "{format:?}");
        // A new key needs the columns that have no default.
        let message = refusal(&ctx, "INSERT INTO t (id, a) VALUES (3, 'z')").await;
        assert!(message.contains("unmentioned column `b`"), "{message}");
        let ctx = cluster.context();
        let options = [format, &[PARTIAL, ("sink.properties.partial_update_new_key_behavior", "ERROR")][..]].concat();
        cluster.declare(&ctx, "t", "t", &options).await;
        let message = refusal(&ctx, "INSERT INTO t (id, b) VALUES (4, 1)").await;
        assert!(message.contains("Can't append new rows in partial update"), "{message}");
        assert_eq!(doris_lines(&cluster, "SELECT * FROM {db}.t").await, ["1 | xx | 10"], "{format:?}");
    }
}

#[tokio::test]
async fn a_partial_update_is_refused_where_rows_are_not_merged_on_write() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.merged (id INT, v INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
             PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'false')",
        )
        .await;
    cluster.duplicate_table("rows", "id INT, v INT", "").await;
    for (table, expected) in [("merged", "enable_unique_key_merge_on_write"), ("rows", "only UNIQUE KEY tables")] {
        for mode in [PARTIAL, FLEXIBLE] {
            let ctx = cluster.context();
            cluster.declare(&ctx, "t", table, &[mode]).await;
            let message = refusal(&ctx, "INSERT INTO t VALUES (1, 1)").await;
            assert!(message.contains(expected) && message.contains(&cluster.table(table)), "{message}");
        }
    }
}

#[tokio::test]
async fn a_flexible_update_leaves_out_what_is_null_row_by_row() {
    let cluster = Cluster::start().await;
    let columns = "id INT NOT NULL, a VARCHAR(20), b INT NOT NULL DEFAULT '5', c INT";
    cluster.unique_table("t", columns, "'enable_unique_key_skip_bitmap_column' = 'true'").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'x', 10, 100), (2, 'y', 20, 200), (3, 'z', 30, 300)").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[FLEXIBLE, ("sink.change-kind-column", "kind")]).await;
    let rows = "(1, NULL, 11, NULL, '+I'), (2, 'yy', NULL, 201, '+U'), (3, NULL, NULL, NULL, '-D'), (4, 'n', NULL, NULL, '+I')";
    assert_eq!(insert(&ctx, &format!("INSERT INTO t VALUES {rows}")).await, 4);
    let rows = doris_lines(&cluster, "SELECT * FROM {db}.t ORDER BY id").await;
    assert_eq!(rows, ["1 | x | 11 | 100", "2 | yy | 20 | 201", "4 | n | 5 | NULL"]);
    // A column that the list leaves out is left out of every row.
    insert(&ctx, "INSERT INTO t (id, c) VALUES (1, 101)").await;
    assert_eq!(doris_lines(&cluster, "SELECT * FROM {db}.t WHERE id = 1").await, ["1 | x | 11 | 101"]);
    for (name, value) in [("format", "csv"), ("format", "arrow"), ("columns", "id,a"), ("merge_type", "DELETE")] {
        let name = format!("sink.properties.{name}");
        let message = refusal(&ctx, &cluster.ddl("no", "t", &[FLEXIBLE, (&name, value)])).await;
        assert!(message.contains(&name), "{message}");
    }
    // Which tables take it, the server knows.
    cluster.unique_table("other", columns, "").await;
    cluster.declare(&ctx, "other", "other", &[FLEXIBLE]).await;
    let message = refusal(&ctx, "INSERT INTO other (id, a) VALUES (1, 'x')").await;
    assert!(message.contains("ENABLE FEATURE"), "{message}");
}

#[tokio::test]
async fn rows_with_the_delete_sign_delete_their_keys() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", "id INT NOT NULL, v VARCHAR(10) NOT NULL", "").await;
    let columns = "id INT, v VARCHAR, __DORIS_DELETE_SIGN__";
    for format in FORMATS {
        for sign in ["TINYINT", "BOOLEAN", "BIGINT"] {
            cluster.doris("TRUNCATE TABLE {db}.t; INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')").await;
            let ctx = cluster.context();
            declare(&cluster, &ctx, "t", &format!("{columns} {sign}"), format).await;
            // Deletes need their key only; the list may name the columns in any order.
            let rows = "(1, 1, NULL), (0, 4, 'd'), (0, 2, 'bb')";
            let sql = format!(
                "INSERT INTO t (__DORIS_DELETE_SIGN__, id, v) SELECT CAST(column1 AS {sign}), column2, column3 FROM (VALUES {rows})"
            );
            assert_eq!(insert(&ctx, &sql).await, 3, "{format:?}");
            // Without the sign rows are written.
            insert(&ctx, "INSERT INTO t (id, v) VALUES (5, 'e')").await;
            let expected = ["2 | bb", "3 | c", "4 | d", "5 | e"];
            assert_eq!(doris_lines(&cluster, "SELECT * FROM {db}.t ORDER BY id").await, expected, "{format:?} {sign}");
            let read = lines(&run(&ctx, "SELECT id, __DORIS_DELETE_SIGN__ FROM t WHERE id = 4").await);
            assert_eq!(read, [if sign == "BOOLEAN" { "4 | false" } else { "4 | 0" }]);
        }
        let ctx = cluster.context();
        declare(&cluster, &ctx, "t", &format!("{columns} TINYINT"), format).await;
        for (value, told) in [("2", "2 is neither 0"), ("-1", "-1 is neither 0"), ("NULL", "NULL is neither 0")] {
            let message = refusal(&ctx, &format!("INSERT INTO t VALUES (6, 'f', 0), (7, 'g', {value})")).await;
            assert!(message.contains(told) && message.contains("row 1"), "{message}");
        }
        let message = refusal(&ctx, "INSERT INTO t VALUES (6, NULL, 0)").await;
        assert!(message.contains("column 'v'") && message.contains("NOT NULL"), "{message}");
        assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t").await, "4");
    }
}

#[tokio::test]
async fn the_delete_sign_is_refused_where_it_has_no_meaning() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", "id INT NOT NULL, v VARCHAR(10)", "").await;
    cluster.duplicate_table("rows", "id INT, v VARCHAR(10)", "").await;
    cluster
        .doris(
            "CREATE TABLE {db}.sums (id INT, v INT SUM) AGGREGATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
             PROPERTIES ('replication_num' = '1')",
        )
        .await;
    let ctx = cluster.context();
    let sign = "id INT, v VARCHAR, __DORIS_DELETE_SIGN__ TINYINT";
    for (table, options, columns, expected) in [
        ("t", &[("sink.change-kind-column", "kind")][..], sign, "both tell deletes"),
        ("t", &[("sink.change-format", "debezium-json")], sign, "both tell deletes"),
        ("t", &[], "__DORIS_DELETE_SIGN__ TINYINT, id INT", "must be the last one"),
        ("t", &[], "id INT, __DORIS_DELETE_SIGN__ VARCHAR", "must be TINYINT"),
        ("rows", &[], sign, "no UNIQUE KEY table"),
        ("sums", &[], sign, "no UNIQUE KEY table"),
    ] {
        let ddl = with_columns(&cluster.ddl("x", table, options), "x", columns);
        let message = refusal(&ctx, &ddl).await;
        assert!(message.contains(expected), "{table} {options:?}: {message}");
    }
    // Change kinds that may delete are refused before a row is read, and events always may.
    for table in ["rows", "sums"] {
        let name = format!("kinds_of_{table}");
        cluster.declare(&ctx, &name, table, &[("sink.change-kind-column", "kind")]).await;
        let message = refusal(&ctx, &format!("INSERT INTO {name} VALUES (1, '2', '-D')")).await;
        assert!(message.contains("no UNIQUE KEY table") && message.contains("DELETE FROM"), "{message}");
        assert_eq!(insert(&ctx, &format!("INSERT INTO {name} (id, v) VALUES (1, '2')")).await, 1);
        assert_eq!(insert(&ctx, &format!("INSERT INTO {name} SELECT 1, '2', '+I'")).await, 1);
        let message = refusal(&ctx, &cluster.ddl("events", table, &[("sink.change-format", "debezium-json")])).await;
        assert!(message.contains("UNIQUE KEY table"), "{message}");
    }
}

#[tokio::test]
async fn the_server_computes_columns_of_a_load() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.uv (dt DATE, page VARCHAR(20), user_id BITMAP BITMAP_UNION) AGGREGATE KEY(dt, page)
             DISTRIBUTED BY HASH(dt) BUCKETS 1 PROPERTIES ('replication_num' = '1')",
        )
        .await;
    let list = ("sink.properties.columns", "page,dt,user_id,user_id=to_bitmap(user_id)");
    let columns = "dt DATE, page VARCHAR, user_id BIGINT";
    let rows = "VALUES ('2027-01-01', 'home', 1), ('2027-01-01', 'home', 2), ('2027-01-01', 'home', 1), ('2027-01-02', 'shop', 9)";
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.uv").await;
        let ctx = cluster.context();
        declare(&cluster, &ctx, "uv", columns, &[format, &[list][..]].concat()).await;
        let sql = format!("INSERT INTO uv SELECT CAST(column1 AS DATE), column2, column3 FROM ({rows})");
        if format.contains(&("sink.properties.format", "arrow")) {
            let message = refusal(&ctx, &sql).await;
            assert!(message.contains("arrow cannot carry the input of column 'user_id'"), "{message}");
            // An input with a name of its own is text to the server.
            run(&ctx, "DROP TABLE uv").await;
            let list = ("sink.properties.columns", "dt,page,seen,user_id=to_bitmap(seen)");
            declare(&cluster, &ctx, "uv", "dt DATE, page VARCHAR, seen BIGINT", &[format, &[list][..]].concat()).await;
        }
        insert(&ctx, &sql).await;
        let counted = "SELECT page, BITMAP_UNION_COUNT(user_id) FROM {db}.uv GROUP BY page ORDER BY page";
        assert_eq!(doris_lines(&cluster, counted).await, ["home | 2", "shop | 1"], "{format:?}");
        let message = refusal(&ctx, "SELECT * FROM uv").await;
        assert!(message.contains("which is only written"), "{message}");
        let message = refusal(&ctx, "INSERT INTO uv (page, dt) VALUES ('x', DATE '2027-01-01')").await;
        assert!(message.contains("not in the list of the INSERT"), "{message}");
        assert_eq!(lines(&run(&ctx, "SELECT DISTINCT page FROM uv ORDER BY page").await), ["home", "shop"]);
    }
    let ctx = cluster.context();
    declare(&cluster, &ctx, "uv", columns, &[("sink.properties.columns", "dt,page,users,user_id=to_bitmap(users)")])
        .await;
    let message = refusal(&ctx, "INSERT INTO uv VALUES (DATE '2027-01-01', 'x', 1)").await;
    assert!(message.contains("column 'users' is not among"), "{message}");
}

#[tokio::test]
async fn the_body_follows_the_list_of_columns_in_every_format() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", "id INT, a VARCHAR(10), b VARCHAR(10), n INT", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t; INSERT INTO {db}.t VALUES (9, 'z', 'z', 9)").await;
        let ctx = cluster.context();
        let list = ("sink.properties.columns", "B, `a`, id, n = id * 10");
        let options = [format, &[list, ("sink.change-kind-column", "kind")][..]].concat();
        declare(&cluster, &ctx, "t", "id INT, a VARCHAR, b VARCHAR", &options).await;
        insert(&ctx, "INSERT INTO t VALUES (1, 'a1', 'b1', '+I'), (2, NULL, '', '+I'), (9, NULL, NULL, '-D')").await;
        let rows = doris_lines(&cluster, "SELECT * FROM {db}.t ORDER BY id").await;
        assert_eq!(rows, ["1 | a1 | b1 | 10", "2 | NULL |  | 20"], "{format:?}");
    }
}

#[tokio::test]
async fn rows_are_deletes_where_the_load_says_so() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", "id INT, v INT", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t; INSERT INTO {db}.t VALUES (1, 1), (2, 2), (3, 3)").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "gone", "t", &[format, &[("sink.properties.merge_type", "DELETE")][..]].concat()).await;
        insert(&ctx, "INSERT INTO gone (id) VALUES (1)").await;
        let merge = [("sink.properties.merge_type", "MERGE"), ("sink.properties.delete", "v < 0")];
        cluster.declare(&ctx, "merged", "t", &[format, &merge[..]].concat()).await;
        insert(&ctx, "INSERT INTO merged VALUES (2, -1), (3, 30), (4, 40)").await;
        assert_eq!(doris_lines(&cluster, "SELECT * FROM {db}.t ORDER BY id").await, ["3 | 30", "4 | 40"], "{format:?}");
    }
}

#[tokio::test]
async fn later_sequences_win_and_deletes_have_theirs() {
    let cluster = Cluster::start().await;
    let kind = ("sink.change-kind-column", "kind");
    cluster.unique_table("typed", "id INT, v VARCHAR(10)", "'function_column.sequence_type' = 'int'").await;
    cluster.unique_table("mapped", "id INT, v VARCHAR(10), at INT", "'function_column.sequence_col' = 'at'").await;
    for format in FORMATS {
        for table in ["typed", "mapped"] {
            cluster.doris(&format!("TRUNCATE TABLE {{db}}.{table}")).await;
            let ctx = cluster.context();
            let option = [("sink.properties.function_column.sequence_col", "at")];
            let sequence = if table == "typed" { &option[..] } else { &[] };
            let options = [format, &[kind][..], sequence].concat();
            let ddl = with_columns(&cluster.ddl("t", table, &options), "t", "id INT, v VARCHAR, at INT");
            run(&ctx, &ddl).await;
            insert(&ctx, "INSERT INTO t VALUES (1, 'a', 5, '+I'), (2, 'b', 5, '+I'), (3, 'c', 5, '+I')").await;
            // Late: neither the row nor the delete counts.
            insert(&ctx, "INSERT INTO t VALUES (1, 'late', 4, '+U'), (2, NULL, 4, '-D'), (3, NULL, 6, '-D')").await;
            let rows = doris_lines(&cluster, &format!("SELECT id, v FROM {{db}}.{table} ORDER BY id")).await;
            assert_eq!(rows, ["1 | a", "2 | b"], "{table} {format:?}");
            let message = refusal(&ctx, "INSERT INTO t VALUES (1, NULL, NULL, '-D')").await;
            assert!(message.contains("column 'at'") && message.contains("orders the writes"), "{message}");
            let message = refusal(&ctx, "INSERT INTO t (id, v) VALUES (1, 'x')").await;
            assert!(message.contains("'at'"), "{message}");
        }
    }
    let ctx = cluster.context();
    cluster.declare(&ctx, "typed", "typed", &[]).await;
    let message = refusal(&ctx, "INSERT INTO typed VALUES (1, 'x')").await;
    assert!(message.contains("sink.properties.function_column.sequence_col"), "{message}");
}

#[tokio::test]
async fn a_row_that_would_be_an_empty_line_is_never_lost() {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "s VARCHAR(10)", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        assert_eq!(insert(&ctx, "INSERT INTO t VALUES (''), (NULL), ('x'), ('\r'), ('\u{feff}y')").await, 5);
        let rows = doris_lines(&cluster, "SELECT CONCAT('<', s, '>') FROM {db}.t ORDER BY s").await;
        assert_eq!(rows, ["NULL", "<>", "<\r>", "<x>", "<\u{feff}y>"], "{format:?}");
    }
    cluster.doris("TRUNCATE TABLE {db}.t").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[("sink.properties.column_separator", "|")]).await;
    cluster.server().requests().clear();
    for (value, expected) in [("''", "empty line"), ("'x\r'", "carriage return"), ("'\u{feff}y'", "byte order mark")] {
        let message = refusal(&ctx, &format!("INSERT INTO t VALUES ('a'), ({value})")).await;
        assert!(message.contains(expected) && message.contains("row 1"), "{message}");
    }
    assert!(cluster.server().requests().matching(Site::Be, "_stream_load").is_empty());
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t").await, "0");
}

#[tokio::test]
async fn a_table_may_be_used_by_hand_made_contexts() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", "id INT, a INT, b INT", "").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 1, 1)").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[PARTIAL]).await;
    let provider = ctx.table_provider("t").await.expect("is declared");
    let plain = SessionContext::new();
    plain.register_table("target", Arc::clone(&provider)).expect("registers");
    // Whatever stands below the widening projection, what the list leaves out is not written.
    for sql in [
        "INSERT INTO target (id, b) SELECT 1, 2",
        "INSERT INTO target (id, b) VALUES (1, 3)",
        "INSERT INTO target (id, b) SELECT id, b + 1 FROM target",
        "INSERT INTO target (id, b) SELECT id, max(b) + 1 FROM target GROUP BY id",
        "INSERT INTO target (b, id) SELECT b + 1, id FROM target UNION ALL SELECT 0, 2 WHERE false",
        "INSERT INTO target (b, id) WITH x AS (SELECT id, b FROM target) SELECT x.b + 1, y.id FROM x JOIN x y USING (id)",
    ] {
        plain.sql(sql).await.expect(sql).collect().await.expect(sql);
    }
    assert_eq!(doris_lines(&cluster, "SELECT * FROM {db}.t ORDER BY id").await, ["1 | 1 | 7"]);
}
