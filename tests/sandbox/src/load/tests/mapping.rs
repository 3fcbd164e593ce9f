//! Headers that map, select and delete rows.

use super::*;

const TSTATUS: &str = "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = ";

/// Tables (id, v, n): n has no default in `d.need`.
async fn with_tables() -> Sandbox {
    let s = sandbox().await;
    s.execute(
        r#"CREATE TABLE d.wide (k INT NULL, s STRING NULL, b BIGINT NULL, dt DATETIME NULL DEFAULT CURRENT_TIMESTAMP,
             d DECIMAL(10, 2) NULL, arr ARRAY<INT> NULL)
           DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2 PROPERTIES ("replication_num" = "1");
           CREATE TABLE d.need (id INT NULL, v VARCHAR(5) NULL, n BIGINT NOT NULL)
           DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ("replication_num" = "1");"#,
    )
    .await
    .expect("tables");
    s
}

#[tokio::test]
async fn columns_are_renamed_skipped_and_computed() {
    let s = with_tables().await;
    let columns = ("columns", "tmp, `k`, name, b = tmp * 10 + k, s = concat(upper(name), ',', tmp), d = b / 4");
    let answer = load(&s, "wide", &[CSV, columns], "1,2,ab\n3,4,c\n\\N,5,d\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 3, 0, 0]), "{answer}");
    assert_eq!(
        query(&s, "SELECT k, s, b, d, arr FROM d.wide ORDER BY k").await,
        ["2|AB,1|12|3.00|NULL", "4|C,3|34|8.50|NULL", "5|NULL|NULL|NULL|NULL"]
    );
    assert_eq!(query(&s, "SELECT count(*) FROM d.wide WHERE dt IS NULL").await, ["0"], "defaults are filled");
}

#[tokio::test]
async fn a_column_may_be_computed_from_itself_and_without_a_list() {
    let s = with_tables().await;
    let answer = load(&s, "dup", &[CSV, ("columns", "id, v, n, n = n + 1")], "1,a,1\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    let answer = load(&s, "dup", &[CSV, ("columns", "v = upper(v)")], "2,b,1\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup ORDER BY id").await, ["1|a|2", "2|B|1"]);
}

#[tokio::test]
async fn strict_mode_is_about_source_values_not_about_results() {
    let s = with_tables().await;
    let strict = ("strict_mode", "true");
    let answer = load(&s, "dup", &[CSV, strict, ("columns", "id, x, n = 1, v = nullif(x, 'a')")], "1,a\n2,b\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [2, 2, 0, 0]), "{answer}");
    let columns = ("columns", "id, x, n = 1, v = x");
    let ratio = ("max_filter_ratio", "0.5");
    let answer = load(&s, "dup", &[CSV, strict, ratio, columns], "3,b\nx,c\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [2, 1, 1, 0]), "{answer}");
    let answer = load(&s, "dup", &[CSV, ratio, ("columns", "x, id = x, n = x")], "4\ny\n").await;
    assert_eq!(counts(&answer), [2, 1, 1, 0], "a NULL result for a NOT NULL column: {answer}");
    assert!(error_log(&answer).await.contains("src line [y]"), "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup ORDER BY id").await, ["1|NULL|1", "2|b|1", "3|b|1", "4|NULL|4"]);
}

#[tokio::test]
async fn where_selects_among_the_target_columns() {
    let s = with_tables().await;
    let answer = load(&s, "dup", &[CSV, ("where", "n >= 10 and v <> 'x'")], "1,a,9\n2,b,10\n3,x,11\n4,\\N,12\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [4, 1, 0, 3]), "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup").await, ["2|b|10"]);
    // The ratio is one of the selected rows; a row that is not selected cannot be bad for its NULL.
    let headers = [CSV, ("where", "id > 1"), ("max_filter_ratio", "0.4"), ("columns", "id,v,n")];
    let answer = load(&s, "dup", &headers, "1,a,\\N\n2,b,\\N\n3,c,1\n").await;
    assert_eq!(message(&answer), "[DATA_QUALITY_ERROR]too many filtered rows");
    assert_eq!(counts(&answer), [3, 0, 1, 1]);
    // Everything unselected is a success without rows.
    let answer = load(&s, "dup", &[CSV, ("where", "false")], "1,a,1\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [1, 0, 0, 1]), "{answer}");
}

#[tokio::test]
async fn merge_deletes_where_the_condition_holds() {
    let s = with_tables().await;
    load(&s, "uniq", &[CSV], "1,a,1\n2,b,2\n3,c,3\n").await;
    let headers = [CSV, ("columns", "id, v, n, op"), ("merge_type", "merge"), ("delete", "op = 'd' or n > 100")];
    let answer = load(&s, "uniq", &headers, "1,x,1,d\n2,B,2,u\n3,c,101,u\n4,d,4,\\N\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [4, 4, 0, 0]), "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.uniq ORDER BY id").await, ["2|B|2", "4|d|4"]);
    let answer = load(&s, "dup", &headers, "1,x,1,d\n").await;
    assert_eq!(message(&answer), format!("{TSTATUS}load by MERGE or DELETE is only supported in unique tables."));
}

#[tokio::test]
async fn deletes_need_no_more_than_the_key() {
    let s = with_tables().await;
    load(&s, "uniq", &[CSV], "1,a,1\n2,b,2\n").await;
    let answer = load(&s, "uniq", &[("merge_type", "DELETE"), ("columns", "id")], "1\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT id FROM d.uniq").await, ["2"]);
}

#[tokio::test]
async fn the_delete_sign_travels_in_json_too() {
    let s = with_tables().await;
    load(&s, "uniq", &[CSV], "1,a,1\n2,b,2\n3,c,3\n").await;
    let headers = [("format", "json"), ("hidden_columns", "__DORIS_DELETE_SIGN__")];
    let body = "{\"id\":1,\"n\":1,\"__DORIS_DELETE_SIGN__\":1}\n{\"id\":2,\"v\":\"B\",\"n\":2}\n{\"id\":3,\"n\":1,\"__DORIS_DELETE_SIGN__\":\"1\"}";
    let answer = load(&s, "uniq", &headers, body).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 3, 0, 0]), "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.uniq").await, ["2|B|2"]);
    let columns = ("columns", "id, op, n, __DORIS_DELETE_SIGN__ = if(op = 'x', 1, 0)");
    let answer = load(&s, "uniq", &[CSV, columns], "2,x,2\n5,y,5\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT id FROM d.uniq").await, ["5"]);
}

#[tokio::test]
async fn headers_that_do_not_fit_the_table_are_refused_by_the_planner() {
    let s = with_tables().await;
    for (table, headers, expected) in [
        ("dup", vec![("columns", "id,v,n,x=")], "Syntax error in columns: id,v,n,x="),
        ("dup", vec![("columns", "id,v,n=nope+1")], "Unknown column 'nope' in 'table list'"),
        ("need", vec![("columns", "id,v")], "Column has no default value, column=n"),
        (
            "dup",
            vec![("where", "tmp > 1"), ("columns", "id,tmp,n")],
            "unknown column reference in where statement, reference=tmp",
        ),
        ("dup", vec![("where", "n + 1")], "where statement is not a valid statement return bool"),
        ("dup", vec![("merge_type", "DELETE")], "load by MERGE or DELETE is only supported in unique tables."),
        (
            "dup",
            vec![("hidden_columns", "__DORIS_DELETE_SIGN__")],
            "load by MERGE or DELETE is only supported in unique tables.",
        ),
        ("uniq", vec![("hidden_columns", "__DORIS_OTHER__")], "Unknown column '__DORIS_OTHER__' in 'uniq'"),
        ("uniq", vec![("function_column.sequence_col", "n")], "There is no sequence column in the table uniq"),
        ("dup", vec![("negative", "true")], "Column is not SUM AggregateType. column:v"),
        (
            "uniq",
            vec![("negative", "true"), ("merge_type", "DELETE")],
            "Negative is only used when merge type is append.",
        ),
        ("dup", vec![("partial_columns", "true")], "Only unique key merge on write support partial update"),
        (
            "uniq",
            vec![("partial_columns", "true"), ("columns", "v,n")],
            "Partial update should include all key columns, missing: id",
        ),
        (
            "dup",
            vec![("load_to_single_tablet", "true")],
            "if load_to_single_tablet set to true, the olap table must be with random distribution",
        ),
        ("dup", vec![("timezone", "Mars/Base")], "Mars/Base"),
    ] {
        let answer = load(&s, table, &headers, "1\n").await;
        let message = message(&answer);
        assert!(message.starts_with(TSTATUS) && message.contains(expected), "{headers:?}: {message}");
        assert!(answer["TxnId"].as_i64().expect("id") > 0, "a transaction had begun: {answer}");
    }
    assert_eq!(s.running_transactions(), 0);
}

#[tokio::test]
async fn a_load_into_no_table_begins_no_transaction() {
    let s = sandbox().await;
    let answer = load(&s, "nothing", &[CSV], "1\n").await;
    assert_eq!(message(&answer), format!("{TSTATUS}unknown table, tables=[nothing]"));
    assert_eq!(answer["TxnId"], -1);
}
