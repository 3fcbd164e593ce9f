//! What earlier connectors got wrong about the values they wrote: cases C039 to C049, in each format.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Float64Type;
use doris_sandbox::{Profile, Site};

use crate::harness::{Cluster, lines, refusal, run};
use crate::write::{FORMATS, insert};

#[tokio::test]
async fn c039_separators_quotes_and_control_characters_arrive_as_they_are() {
    let cluster = Cluster::start().await;
    cluster.doris("CREATE TABLE {db}.t (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let value = "a\tb\n\\\",\u{1}\rz";
    assert_eq!(value.chars().count(), 10);
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        assert_eq!(insert(&ctx, &format!("INSERT INTO t VALUES (1, '{value}'), (2, '中文, ''x''')")).await, 2);
        let back = run(&ctx, "SELECT s FROM t ORDER BY id").await;
        let texts: Vec<String> = back.iter().flat_map(strings).collect();
        assert_eq!(texts, [value, "中文, 'x'"], "{format:?}");
    }
}

#[tokio::test]
async fn c039_csv_with_own_separators_refuses_a_value_that_holds_one() {
    let cluster = Cluster::start().await;
    cluster.doris("CREATE TABLE {db}.t (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let ctx = cluster.context();
    let options = [
        ("sink.properties.format", "csv"),
        ("sink.properties.column_separator", "\\x01"),
        ("sink.properties.line_delimiter", "\\x02"),
    ];
    cluster.declare(&ctx, "t", "t", &options).await;
    assert_eq!(insert(&ctx, "INSERT INTO t VALUES (1, 'tab\tcomma,newline\n\\x01')").await, 1);
    assert_eq!(
        run(&ctx, "SELECT s FROM t").await.iter().flat_map(strings).collect::<Vec<_>>(),
        ["tab\tcomma,newline\n\\x01"]
    );
    for separator in ['\u{1}', '\u{2}'] {
        let message = refusal(&ctx, &format!("INSERT INTO t VALUES (2, 'x{separator}y')")).await;
        assert!(message.contains("column 's'"), "{message}");
    }
    let message = refusal(&ctx, "INSERT INTO t VALUES (2, '\\N')").await;
    assert!(message.contains("column 's'"), "{message}");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t").await, "1");
}

#[tokio::test]
async fn c040_null_empty_text_and_backslash_n_stay_apart() {
    let cluster = Cluster::start().await;
    cluster.doris("CREATE TABLE {db}.t (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        insert(&ctx, "INSERT INTO t VALUES (1, NULL), (2, ''), (3, '\\N'), (4, 'null')").await;
        let back = run(&ctx, "SELECT s, octet_length(s) FROM t ORDER BY id").await;
        assert_eq!(lines(&back), ["NULL | NULL", " | 0", "\\N | 2", "null | 4"], "{format:?}");
    }
}

#[tokio::test]
async fn c041_big_numbers_keep_every_digit() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.t (b BIGINT, l LARGEINT, d DECIMAL(38, 10)) DUPLICATE KEY(b)
             DISTRIBUTED BY HASH(b) BUCKETS 1",
        )
        .await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        insert(
            &ctx,
            "INSERT INTO t SELECT 9007199254740993,
               arrow_cast('-170141183460469231731687303715884105728', 'Decimal256(39, 0)'),
               arrow_cast('9999999999999999999999999999.9999999999', 'Decimal128(38, 10)')",
        )
        .await;
        let server = cluster.doris("SELECT b, l, d FROM {db}.t").await;
        let row: Vec<&str> = server[0].iter().map(|cell| cell.as_deref().unwrap_or("NULL")).collect();
        let expected =
            ["9007199254740993", "-170141183460469231731687303715884105728", "9999999999999999999999999999.9999999999"];
        assert_eq!(row, expected, "{format:?}");
        assert_eq!(lines(&run(&ctx, "SELECT * FROM t").await), [expected.join(" | ")], "{format:?}");
    }
}

#[tokio::test]
async fn c042_doubles_keep_their_bits() {
    let cluster = Cluster::start().await;
    cluster.duplicate_table("t", "id INT, x DOUBLE", "").await;
    let values = [0.000499999999, 0.30000000000000004, 5e-324, f64::MAX, -0.0];
    let list: Vec<String> = values.iter().enumerate().map(|(id, x)| format!("({id}, {x:e})")).collect();
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        insert(&ctx, &format!("INSERT INTO t VALUES {}", list.join(", "))).await;
        let back = run(&ctx, "SELECT x FROM t ORDER BY id").await;
        let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let back: Vec<f64> =
            back.iter().flat_map(|batch| batch.column(0).as_primitive::<Float64Type>().values()).copied().collect();
        assert_eq!(bits(&back), bits(&values), "{format:?}");
    }
}

#[tokio::test]
async fn c043_varchar_counts_bytes() {
    let cluster = Cluster::start().await;
    cluster.duplicate_table("t", "id INT, s VARCHAR(10)", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        assert_eq!(insert(&ctx, "INSERT INTO t VALUES (1, '\u{20bb7}\u{91ce}\u{5bb6}')").await, 1);
        let message = refusal(&ctx, "INSERT INTO t VALUES (2, '\u{1f980}\u{1f980}\u{1f980}')").await;
        for expected in ["too many filtered rows", "[s]", "schema length: 10", "actual length: 12", "_load_error_log"] {
            assert!(message.contains(expected), "{format:?}: {message}");
        }
        assert_eq!(lines(&run(&ctx, "SELECT s FROM t").await), ["\u{20bb7}\u{91ce}\u{5bb6}"], "{format:?}");
    }
}

#[tokio::test]
async fn c044_chinese_column_names_are_utf8_in_the_header() {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "`\u{7f16}\u{53f7}` INT, `\u{540d}\u{79f0}` STRING", "").await;
    for (count, format) in FORMATS.iter().enumerate() {
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        cluster.server().requests().clear();
        insert(&ctx, "INSERT INTO t VALUES (1, 'x')").await;
        let loads = cluster.server().requests().matching(Site::Be, "_stream_load");
        let columns: Vec<_> = loads.iter().filter_map(|load| load.header("columns")).collect();
        assert_eq!(columns, ["`\u{7f16}\u{53f7}`,`\u{540d}\u{79f0}`"], "{format:?}");
        let back = lines(&run(&ctx, "SELECT \"\u{540d}\u{79f0}\", \"\u{7f16}\u{53f7}\" FROM t").await);
        assert_eq!(back, vec!["x | 1"; count + 1], "{format:?}");
    }
}

#[tokio::test]
async fn c045_struct_fields_keep_their_order_and_map_values_their_quotes() {
    let cluster = Cluster::start().await;
    cluster.duplicate_table("t", "id INT, s STRUCT<b:INT,a:STRING>, m MAP<STRING,STRING>", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        let row = "named_struct('b', 1, 'a', 'x'), MAP {'k': 'say \"a:b\", ok'}";
        insert(&ctx, &format!("INSERT INTO t SELECT 1, {row}")).await;
        let back = run(&ctx, "SELECT s, m FROM t").await;
        let fields = back[0].column(0).as_struct();
        assert_eq!(fields.column_names(), ["b", "a"], "{format:?}");
        assert_eq!(lines(&back), ["{b: 1, a: x} | {k: say \"a:b\", ok}"], "{format:?}");
    }
}

#[tokio::test]
async fn c046_sql_null_json_null_and_broken_json_stay_apart() {
    let cluster = Cluster::start().await;
    cluster.duplicate_table("t", "id INT, j JSON", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        insert(&ctx, "INSERT INTO t VALUES (1, NULL), (2, 'null'), (3, '{\"a\":1}')").await;
        let null = cluster.doris("SELECT id FROM {db}.t WHERE j IS NULL").await;
        assert_eq!(null, [[Some("1".to_string())]], "{format:?}");
        assert_eq!(cluster.scalar("SELECT JSON_EXTRACT(j, '$.a') FROM {db}.t WHERE id = 3").await, "1", "{format:?}");
        let message = refusal(&ctx, "INSERT INTO t VALUES (4, '{y:')").await;
        assert!(message.contains("too many filtered rows"), "{format:?}: {message}");
        assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t").await, "3", "{format:?}");
    }
}

#[tokio::test]
async fn c047_microseconds_are_written() {
    let cluster = Cluster::start().await;
    cluster.duplicate_table("t", "id INT, ts DATETIME(6)", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        let values = "(1, TIMESTAMP '2027-01-15 08:00:00.1234'), (2, TIMESTAMP '2027-01-15 08:00:00')";
        insert(&ctx, &format!("INSERT INTO t VALUES {values}")).await;
        let server = cluster.doris("SELECT ts FROM {db}.t ORDER BY id").await;
        let server: Vec<_> = server.iter().flatten().flatten().map(String::as_str).collect();
        assert_eq!(server, ["2027-01-15 08:00:00.123400", "2027-01-15 08:00:00.000000"], "{format:?}");
        let back = lines(&run(&ctx, "SELECT ts FROM t ORDER BY id").await);
        assert_eq!(back, ["2027-01-15T08:00:00.123400", "2027-01-15T08:00:00"], "{format:?}");
    }
}

/// Builds up to 4.0 take the integer of an Arrow timestamp for an instant and show it in the zone of the load.
#[tokio::test]
async fn c047_no_build_shifts_the_wall_clock() {
    for profile in [Profile::V2_1, Profile::V4_0, Profile::V5_0Changelog] {
        let cluster = Cluster::sandbox_as(profile).await;
        cluster.duplicate_table("t", "id INT, ts DATETIME(6), l ARRAY<DATETIME>", "").await;
        for format in FORMATS {
            cluster.doris("TRUNCATE TABLE {db}.t").await;
            let ctx = cluster.context();
            let mut options =
                vec![("sink.properties.timezone", "Asia/Shanghai"), ("sink.properties.compress_type", "")];
            options.push(format[0]);
            cluster.declare(&ctx, "t", "t", &options).await;
            let time = "TIMESTAMP '2027-01-15 08:00:00.5'";
            insert(&ctx, &format!("INSERT INTO t SELECT 1, {time}, [date_trunc('second', {time})]")).await;
            let back = lines(&run(&ctx, "SELECT ts, l FROM t").await);
            assert_eq!(back, ["2027-01-15T08:00:00.500 | [2027-01-15T08:00:00]"], "{profile:?} {format:?}");
        }
    }
}

#[tokio::test]
async fn a_compression_that_the_build_does_not_take_is_refused_by_it() {
    let cluster = Cluster::sandbox_as(Profile::V3_1).await;
    cluster.duplicate_table("t", "id INT", "").await;
    let refused = [("csv", "zstd"), ("json", "gz")];
    for (format, compression) in
        [("csv", "gz"), ("csv", "lz4"), ("csv", "deflate"), ("arrow", "zstd")].iter().chain(&refused)
    {
        let ctx = cluster.context();
        let options = [("sink.properties.format", *format), ("sink.properties.compress_type", *compression)];
        cluster.declare(&ctx, "t", "t", &options).await;
        if refused.contains(&(*format, *compression)) {
            let message = refusal(&ctx, "INSERT INTO t VALUES (1)").await;
            assert!(message.contains("unknown data format"), "{format} {compression}: {message}");
        } else {
            assert_eq!(insert(&ctx, "INSERT INTO t VALUES (1)").await, 1, "{format} {compression}");
        }
    }
}

#[tokio::test]
async fn c048_deletes_name_their_flag_in_the_columns_header() {
    let cluster = Cluster::sandbox().await;
    cluster.unique_table("t", "id INT, v STRING", "").await;
    for format in FORMATS {
        cluster.doris("TRUNCATE TABLE {db}.t; INSERT INTO {db}.t VALUES (5, 'five')").await;
        let ctx = cluster.context();
        let options = [format, &[("sink.change-kind-column", "kind")]].concat();
        cluster.declare(&ctx, "t", "t", &options).await;
        cluster.server().requests().clear();
        let rows = insert(&ctx, "INSERT INTO t VALUES (6, 'six', '+I'), (5, NULL, '-D')").await;
        assert_eq!(rows, 2, "{format:?}");
        let loads = cluster.server().requests().matching(Site::Be, "_stream_load");
        let columns: Vec<_> = loads.iter().filter_map(|load| load.header("columns")).collect();
        assert_eq!(columns, ["`id`,`v`,__DORIS_DELETE_SIGN__"], "{format:?}");
        let rows = cluster.doris("SELECT id, v FROM {db}.t").await;
        assert_eq!(rows, [[Some("6".to_string()), Some("six".to_string())]], "{format:?}");
    }
}

#[tokio::test]
async fn c049_an_update_of_the_key_deletes_the_old_one_unless_told_not_to() {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", "id INT, v STRING", "").await;
    for format in FORMATS {
        for (ignore, expected) in [("false", vec!["8"]), ("true", vec!["7", "8"])] {
            cluster.doris("TRUNCATE TABLE {db}.t; INSERT INTO {db}.t VALUES (7, 'x')").await;
            let ctx = cluster.context();
            let options = [("sink.change-kind-column", "kind"), ("sink.ignore.update-before", ignore)];
            cluster.declare(&ctx, "t", "t", &[format, &options].concat()).await;
            insert(&ctx, "INSERT INTO t VALUES (7, 'x', '-U'), (8, 'x', '+U')").await;
            let ids = cluster.doris("SELECT id FROM {db}.t ORDER BY id").await;
            let ids: Vec<_> = ids.iter().flatten().flatten().map(String::as_str).collect();
            assert_eq!(ids, expected, "{format:?}, ignore {ignore}");
        }
    }
}

fn strings(batch: &datafusion::arrow::array::RecordBatch) -> Vec<String> {
    let column = datafusion::arrow::compute::cast(batch.column(0), &datafusion::arrow::datatypes::DataType::Utf8)
        .expect("text column");
    let column = column.as_string::<i32>().clone();
    (0..column.len()).map(|row| column.value(row).to_string()).collect()
}
