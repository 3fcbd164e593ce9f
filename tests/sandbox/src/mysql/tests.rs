#![allow(clippy::unwrap_used, clippy::expect_used)]

use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, Error, Opts, OptsBuilder, Params, Row, Value};

use crate::faults::{Action, Fault, Site};
use crate::sandbox::Sandbox;
use crate::testing::sandbox;

fn options(sandbox: &Sandbox, password: Option<&str>) -> OptsBuilder {
    let address = sandbox.addresses().mysql;
    OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .prefer_socket(false)
        .user(Some("root"))
        .pass(password)
}

async fn connect(sandbox: &Sandbox) -> Conn {
    Conn::new(Opts::from(options(sandbox, Some("pw")))).await.expect("connection")
}

/// Code, state and text of a server error.
fn refusal(error: Error) -> (u16, String, String) {
    match error {
        Error::Server(e) => (e.code, e.state, e.message),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_wrong_password_is_1045() {
    let s = sandbox().await;
    for (password, used) in [(Some("no"), "YES"), (None, "NO")] {
        let error = Conn::new(Opts::from(options(&s, password))).await.expect_err("refused");
        let text = format!("Access denied for user 'root@127.0.0.1' (using password: {used})");
        assert_eq!(refusal(error), (1045, "28000".to_owned(), text));
    }
}

#[tokio::test]
async fn an_unknown_database_at_login_is_1049() {
    let s = sandbox().await;
    let error = Conn::new(Opts::from(options(&s, Some("pw")).db_name(Some("none")))).await.expect_err("refused");
    assert_eq!(refusal(error).0, 1049);
    let mut conn = Conn::new(Opts::from(options(&s, Some("pw")).db_name(Some("d")))).await.expect("connection");
    let db: Option<String> = conn.query_first("SELECT DATABASE()").await.expect("query");
    assert_eq!(db.as_deref(), Some("d"));
}

#[tokio::test]
async fn the_chatter_of_drivers_is_answered() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    assert_eq!(conn.server_version(), (5, 7, 99));
    conn.ping().await.expect("ping");
    for sql in [
        "SELECT @@version_comment LIMIT 1",
        "SELECT @@max_allowed_packet, @@wait_timeout, @@socket",
        "SET NAMES utf8mb4",
        "SET autocommit=1",
        "SET sql_mode='STRICT_TRANS_TABLES'",
        "SHOW VARIABLES LIKE 'time_zone'",
        "SELECT DATABASE()",
        "SELECT CONNECTION_ID()",
        "USE d",
    ] {
        conn.query_drop(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
    assert!(conn.reset().await.expect("reset"), "COM_RESET_CONNECTION is answered with OK");
    let db: Option<String> = conn.query_first("SELECT DATABASE()").await.expect("query");
    assert_eq!(db.as_deref(), Some("d"), "a reset keeps the database");
}

#[tokio::test]
async fn rows_nulls_affected_rows_and_column_types() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    conn.query_drop("INSERT INTO d.dup VALUES (1, 'a', 10), (2, NULL, 20)").await.expect("insert");
    assert_eq!(conn.affected_rows(), 2);
    assert!(conn.info().contains("'status':'visible'"), "{}", conn.info());
    let rows: Vec<(i32, Option<String>, i64)> = conn.query("SELECT * FROM d.dup ORDER BY id").await.expect("query");
    assert_eq!(rows, [(1, Some("a".to_owned()), 10), (2, None, 20)]);
    let row: Row = conn.query_first("SELECT id, v, n FROM d.dup").await.expect("query").expect("row");
    let types: Vec<String> = row.columns_ref().iter().map(|c| format!("{:?}", c.column_type())).collect();
    assert_eq!(types, ["MYSQL_TYPE_LONG", "MYSQL_TYPE_STRING", "MYSQL_TYPE_LONGLONG"]);
    let none: Vec<Row> = conn.query("SELECT * FROM d.dup WHERE id > 5").await.expect("query");
    assert!(none.is_empty());
}

#[tokio::test]
async fn errors_carry_code_state_and_text_and_the_connection_lives_on() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    let (code, state, text) = refusal(conn.query_drop("SELECT * FROM d.none").await.expect_err("refused"));
    assert_eq!((code, state.as_str()), (1105, "HY000"));
    assert_eq!(text, "errCode = 2, detailMessage = Table [none] does not exist in database [d].");
    let (code, ..) = refusal(conn.query_drop("USE none").await.expect_err("refused"));
    assert_eq!(code, 1049);
    let (code, _, text) = refusal(conn.prep("SELECT * FROM d.none WHERE id = ?").await.expect_err("refused"));
    assert_eq!(
        (code, text.as_str()),
        (1105, "errCode = 2, detailMessage = Table [none] does not exist in database [d].")
    );
    let one: Option<i64> = conn.query_first("SELECT 1").await.expect("query");
    assert_eq!(one, Some(1));
}

#[tokio::test]
async fn several_statements_in_one_command_give_several_results() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    let sql = "USE d; INSERT INTO dup VALUES (1, 'a', 1); SELECT id FROM dup; SELECT v FROM dup";
    let mut result = conn.query_iter(sql).await.expect("query");
    let mut seen = Vec::new();
    while !result.is_empty() {
        let rows: Vec<Row> = result.collect().await.expect("rows");
        seen.push(rows.len());
    }
    drop(result);
    assert_eq!(seen.iter().sum::<usize>(), 2, "{seen:?}");
    conn.ping().await.expect("the connection is in order");
}

#[tokio::test]
async fn a_result_of_many_rows_arrives_whole() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    let values: Vec<String> = (0..5000).map(|i| format!("({i}, 'v', {i})")).collect();
    conn.query_drop(format!("INSERT INTO d.dup VALUES {}", values.join(","))).await.expect("insert");
    let rows: Vec<(i64, i64)> = conn.query("SELECT id, n FROM d.dup").await.expect("query");
    assert_eq!((rows.len(), rows.iter().map(|(_, n)| n).sum::<i64>()), (5000, 12_497_500));
}

#[tokio::test]
async fn a_fault_fails_a_statement_and_statements_are_seen() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    let body = "errCode = 2, detailMessage = asked for".to_owned();
    s.faults().push(Fault::new(Action::Status { code: 1105, body }).at(Site::Mysql).when("select 42"));
    assert_eq!(
        refusal(conn.query_drop("SELECT 42").await.expect_err("refused")).2,
        "errCode = 2, detailMessage = asked for"
    );
    conn.query_drop("SELECT 42").await.expect("once only");
    assert_eq!(s.requests().matching(Site::Mysql, "SELECT 42").len(), 2);
}

#[tokio::test]
async fn prepared_statements_take_and_give_values_of_every_type() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    conn.query_drop(
        "CREATE TABLE d.p (i INT NULL, b BIGINT NULL, t TINYINT NULL, f DOUBLE NULL, n DECIMAL(10,2) NULL, d DATE NULL,
         ts DATETIME(6) NULL, v VARCHAR(50) NULL, l LARGEINT NULL) DUPLICATE KEY(i) DISTRIBUTED BY HASH(i) BUCKETS 1
         PROPERTIES (\"replication_num\" = \"1\")",
    )
    .await
    .expect("table");
    let insert = conn.prep("INSERT INTO d.p VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)").await.expect("prepare");
    assert_eq!(insert.num_params(), 9);
    let row = Params::Positional(vec![
        7_i32.into(),
        (-9_000_000_000_i64).into(),
        (-5_i8).into(),
        1.5_f64.into(),
        "12.34".into(),
        Value::Date(2024, 1, 2, 0, 0, 0, 0),
        Value::Date(2024, 1, 2, 3, 4, 5, 6),
        "it's a \\ and a ?".into(),
        "170141183460469231731687303715884105727".into(),
    ]);
    conn.exec_drop(&insert, row).await.expect("insert");
    conn.exec_drop(&insert, vec![Value::NULL; 9]).await.expect("nulls");
    let select =
        conn.prep("SELECT * FROM d.p WHERE i = ? OR (i IS NULL AND v <=> ?) ORDER BY i").await.expect("prepare");
    let rows: Vec<Row> = conn.exec(&select, (7, Option::<String>::None)).await.expect("rows");
    assert_eq!(rows.len(), 2);
    assert!((0..9).all(|i| rows[0][i] == Value::NULL));
    let values: Vec<Value> = rows[1].clone().unwrap();
    assert_eq!(
        values,
        [
            Value::Int(7),
            Value::Int(-9_000_000_000),
            Value::Int(-5),
            Value::Double(1.5),
            "12.34".into(),
            Value::Date(2024, 1, 2, 0, 0, 0, 0),
            Value::Date(2024, 1, 2, 3, 4, 5, 6),
            "it's a \\ and a ?".into(),
            "170141183460469231731687303715884105727".into(),
        ]
    );
    let limited = conn.prep("SELECT i FROM d.p ORDER BY i LIMIT ?").await.expect("prepare");
    let rows: Vec<Option<i32>> = conn.exec(&limited, (1,)).await.expect("rows");
    assert_eq!(rows, [None]);
    conn.close(limited).await.expect("close");
    let error = conn.prep("SELECT * FROM d.none WHERE k = ?").await.expect_err("unknown table");
    assert_eq!(refusal(error).2, "errCode = 2, detailMessage = Table [none] does not exist in database [d].");
}

#[tokio::test]
async fn long_texts_go_both_ways() {
    let s = sandbox().await;
    let wide = options(&s, Some("pw")).max_allowed_packet(Some(64 * 1024 * 1024));
    let mut conn = Conn::new(Opts::from(wide)).await.expect("connection");
    let long = "x".repeat(17 * 1024 * 1024);
    let got: Option<String> = conn.query_first(format!("SELECT '{long}' AS a")).await.expect("query");
    assert_eq!(got.map(|text| text.len()), Some(long.len()));
    let got: Option<String> = conn.exec_first("SELECT ? AS a", (long.clone(),)).await.expect("query");
    assert_eq!(got.map(|text| text.len()), Some(long.len()));
}

#[tokio::test]
async fn another_user_may_take_over_the_connection() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    conn.query_drop("CREATE USER reader IDENTIFIED BY 'r'; GRANT SELECT_PRIV ON d.* TO reader").await.expect("user");
    let opts = ChangeUserOpts::default()
        .with_user(Some("reader".to_owned()))
        .with_pass(Some("r".to_owned()))
        .with_db_name(Some("d".to_owned()));
    conn.change_user(opts).await.expect("change");
    let who: Option<String> = conn.query_first("SELECT DATABASE()").await.expect("query");
    assert_eq!(who.as_deref(), Some("d"));
    let error = conn.query_drop("INSERT INTO d.dup VALUES (1, 'a', 1)").await.expect_err("no LOAD");
    assert_eq!(refusal(error).0, 1142);
    let opts = ChangeUserOpts::default().with_user(Some("reader".to_owned())).with_pass(Some("wrong".to_owned()));
    let error = conn.change_user(opts).await.expect_err("refused");
    assert_eq!(refusal(error).0, 1045);
}

#[tokio::test]
async fn connections_are_limited_killed_and_closed_when_idle() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    conn.query_drop("CREATE USER few; SET PROPERTY FOR 'few' 'max_user_connections' = '1'").await.expect("user");
    let few = || Opts::from(options(&s, None).user(Some("few")));
    let mut first = Conn::new(few()).await.expect("first");
    let error = Conn::new(few()).await.expect_err("second");
    let (code, _, text) = refusal(error);
    assert_eq!(code, 1203);
    assert!(text.starts_with("Reach limit of connections. Total: 1024, User: 1, Current: 2"), "{text}");
    let id: Option<u64> = first.query_first("SELECT CONNECTION_ID()").await.expect("id");
    assert_eq!(id, Some(u64::from(first.id())), "the greeting tells the number that KILL takes");
    conn.query_drop(format!("KILL {}", id.expect("id"))).await.expect("kill");
    assert!(first.query_drop("SELECT 1").await.is_err(), "the connection is gone");
    conn.query_drop("SET wait_timeout = 1").await.expect("set");
    let processes = || s.engine().processes.list().into_iter().filter(|p| p.user == "root").count();
    while processes() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(conn.query_drop("SELECT 1").await.is_err());
}

#[tokio::test]
async fn commits_of_inserts_meet_faults() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    s.faults().push(Fault::new(Action::FailCommit("no space left".to_owned())).at(Site::Mysql).when("insert"));
    let error = conn.query_drop("INSERT INTO d.dup VALUES (1, 'a', 1)").await.expect_err("failed");
    assert_eq!(refusal(error), (1105, "HY000".to_owned(), "errCode = 2, detailMessage = no space left".to_owned()));
    s.faults().push(Fault::new(Action::PublishTimeout).at(Site::Mysql).when("insert"));
    conn.query_drop("INSERT INTO d.dup VALUES (2, 'b', 2)").await.expect("insert");
    assert!(conn.info().contains("'status':'committed'"), "{}", conn.info());
    s.until(|s| s.engine().unpublished_transactions().is_empty()).await;
    let ids: Vec<i32> = conn.query("SELECT id FROM d.dup").await.expect("rows");
    assert_eq!(ids, [2]);
}

#[tokio::test]
async fn records_of_statements_hold_no_passwords() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    conn.query_drop("CREATE USER u IDENTIFIED BY 'geheim'").await.expect("user");
    s.faults().push(Fault::new(Action::Delay(std::time::Duration::ZERO)).at(Site::Mysql).when("geheim2"));
    conn.query_drop("SET PASSWORD FOR 'u' = PASSWORD('geheim2')").await.expect("password");
    let url = format!("http://{}/api/query/default_cluster/d", s.fenodes());
    let body = r#"{"stmt": "ALTER USER u IDENTIFIED BY 'geheim3'"}"#;
    let json = ("content-type", "application/json");
    crate::testing::send(reqwest::Method::POST, url, &[json], body).await;
    let seen = format!("{:?} {:?}", s.requests().all(), s.faults().applied());
    assert_eq!(s.faults().applied().len(), 1);
    assert!(seen.contains("ALTER USER u IDENTIFIED BY '***'") && !seen.contains("geheim"), "{seen}");
}

#[tokio::test]
async fn a_command_without_a_byte_is_malformed() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let s = Sandbox::builder().start().await.expect("sandbox");
    let mut stream = tokio::net::TcpStream::connect(s.addresses().mysql).await.expect("connect");
    let mut greeting = [0; 4];
    stream.read_exact(&mut greeting).await.expect("greeting");
    let mut rest = vec![0; usize::from(greeting[0])];
    stream.read_exact(&mut rest).await.expect("greeting");
    // Protocol 4.1 and secure connection, no password.
    let mut login = (0x200_u32 | 0x8000).to_le_bytes().to_vec();
    login.extend_from_slice(&[0; 28]);
    login.extend_from_slice(b"root\0\0");
    let mut packet = vec![login.len() as u8, 0, 0, 1];
    packet.extend_from_slice(&login);
    stream.write_all(&packet).await.expect("login");
    stream.write_all(&[0, 0, 0, 0]).await.expect("command");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("answer");
    let text = String::from_utf8_lossy(&answer);
    assert!(text.ends_with("#HY000Malformed communication packet"), "{text}");
}

#[tokio::test]
async fn filtered_rows_are_warnings_and_their_log_is_named() {
    let s = sandbox().await;
    let mut conn = connect(&s).await;
    let table = "CREATE TABLE d.w (k INT, v VARCHAR(3)) DUPLICATE KEY(k) PARTITION BY RANGE(k) \
                 (PARTITION p VALUES LESS THAN ('10')) DISTRIBUTED BY HASH(k) BUCKETS 1";
    conn.query_drop(table).await.expect("created");
    let rows = "(k, v) VALUES (1, 'abc'), (20, 'x'), (30, 'y')";
    let (code, _, text) = refusal(conn.query_drop(format!("INSERT INTO d.w {rows}")).await.expect_err("strict"));
    let (said, url) = text.rsplit_once(". url: ").expect("an address");
    assert_eq!(code, 1105);
    assert!(said.contains("Insert has filtered data in strict mode"), "{said}");
    let get = |url: &str| crate::testing::send(reqwest::Method::GET, url.to_owned(), &[], "");
    let log = get(url).await;
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.starts_with("Reason: ") && log.contains("partition"), "{log}");

    conn.query_drop("SET enable_insert_strict = false").await.expect("set");
    conn.query_drop(format!("INSERT INTO d.w WITH LABEL some {rows}")).await.expect("written");
    assert_eq!((conn.affected_rows(), conn.get_warnings()), (1, 2));
    let last: Row = conn.query_first("SHOW LAST INSERT").await.expect("query").expect("a row");
    assert_eq!(last.get::<String, _>("FilteredRows").as_deref(), Some("2"));
    let job: Row = conn.query_first("SHOW LOAD FROM d WHERE LABEL = 'some'").await.expect("query").expect("a row");
    let url: String = job.get("URL").expect("an address");
    let log = get(&url).await;
    assert_eq!(log.lines().count(), 2, "{log}");
    conn.query_drop("INSERT INTO d.w WITH LABEL none VALUES (4, 'd')").await.expect("written");
    assert_eq!(conn.get_warnings(), 0);
    let job: Row = conn.query_first("SHOW LOAD FROM d WHERE LABEL = 'none'").await.expect("query").expect("a row");
    assert_eq!(job.get::<String, _>("URL").as_deref(), Some(""));
}
