//! Reads that are sent from encoded bytes.

use std::collections::BTreeMap;

use super::*;
use crate::flight::FlightConfig;

async fn start(properties: &str, rows: usize, change: impl FnOnce(&mut FlightConfig)) -> Sandbox {
    let mut flight = FlightConfig { result_sink_buffer_size_rows: 10, ..FlightConfig::default() };
    change(&mut flight);
    let s = builder().flight(flight).start().await.expect("sandbox");
    s.execute(&format!(
        "CREATE TABLE d.r (id INT, v VARCHAR(5), n BIGINT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 4 \
         PROPERTIES (\"replication_num\" = \"1\", \"sandbox.replay\" = \"true\"{properties})"
    ))
    .await
    .expect("table");
    insert(&s, 0, rows).await;
    s
}

async fn insert(s: &Sandbox, from: usize, to: usize) {
    let values: Vec<String> = (from..to).map(|i| format!("({i}, 'v', {i})")).collect();
    s.execute(&format!("INSERT INTO d.r VALUES {}", values.join(","))).await.expect("insert");
}

async fn read(s: &Sandbox, fe: &mut Client, sql: &str) -> Vec<RecordBatch> {
    let info = fe.execute(sql.into(), None).await.expect("info");
    rows(s, &info).await
}

fn sizes(batches: &[RecordBatch]) -> Vec<usize> {
    batches.iter().map(RecordBatch::num_rows).collect()
}

#[tokio::test]
async fn a_frozen_read_gives_the_rows_of_a_plain_one() {
    let s = start("", 25, |_| {}).await;
    let mut fe = login(&s).await;
    for _ in 0..2 {
        let batches = read(&s, &mut fe, "SELECT id, v FROM d.r").await;
        assert_eq!((sizes(&batches), ids(&batches)), (vec![10, 10, 5], (0..25).collect()));
        assert_eq!(batches[0].schema().fields().len(), 2);
    }
    // A read with a filter is an ordinary one.
    assert_eq!(ids(&read(&s, &mut fe, "SELECT id FROM d.r WHERE id < 3").await), [0, 1, 2]);
    assert_eq!(ids(&read(&s, &mut fe, "SELECT id FROM d.r ORDER BY id LIMIT 1").await), [0]);
}

#[tokio::test]
async fn a_commit_freezes_anew() {
    let s = start("", 5, |_| {}).await;
    let mut fe = login(&s).await;
    assert_eq!(read(&s, &mut fe, "SELECT * FROM d.r").await[0].num_rows(), 5);
    insert(&s, 5, 8).await;
    assert_eq!(ids(&read(&s, &mut fe, "SELECT * FROM d.r").await), (0..8).collect::<Vec<_>>());
    s.execute("TRUNCATE TABLE d.r").await.expect("truncate");
    assert!(read(&s, &mut fe, "SELECT * FROM d.r").await.is_empty());
}

#[tokio::test]
async fn rows_are_repeated_to_the_number_asked_for() {
    for (target, expected) in [
        (7, vec![7]),
        (25, vec![10, 10, 5]),
        (33, vec![10, 10, 5, 8]),
        (60, vec![10, 10, 5, 10, 10, 5, 10]),
        (0, vec![]),
    ] {
        let s = start(&format!(", \"sandbox.replay.rows\" = \"{target}\""), 25, |_| {}).await;
        let mut fe = login(&s).await;
        let batches = read(&s, &mut fe, "SELECT id FROM d.r").await;
        assert_eq!(sizes(&batches), expected, "{target}");
        let mut times: BTreeMap<i32, usize> = BTreeMap::new();
        for id in ids(&batches) {
            *times.entry(id).or_default() += 1;
        }
        assert!(times.values().all(|n| (target / 25..=target / 25 + 1).contains(n)), "{target}: {times:?}");
    }
}

#[tokio::test]
async fn endpoints_and_tablets_share_the_rows() {
    let s = start(", \"sandbox.replay.rows\" = \"1000\"", 25, |c| c.parallel_endpoints = 3).await;
    let mut fe = login(&s).await;
    fe.execute("SET enable_parallel_result_sink = true".into(), None).await.expect("set");
    let info = fe.execute("SELECT id FROM d.r".into(), None).await.expect("info");
    assert_eq!(info.endpoint.len(), 3);
    assert_eq!(sizes(&rows(&s, &info).await).iter().sum::<usize>(), 1000);
    fe.execute("SET enable_parallel_result_sink = false".into(), None).await.expect("set");
    let tablets = s.engine().tablets("d", "r").expect("tablets");
    let filled: Vec<u64> = tablets.iter().filter(|t| t.rows > 0).map(|t| t.id).collect();
    let sql = format!("SELECT id FROM d.r TABLET({})", filled[0]);
    assert_eq!(sizes(&read(&s, &mut fe, &sql).await).iter().sum::<usize>(), 250);
}

#[tokio::test]
async fn frozen_results_obey_the_rules_of_results() {
    let s = start("", 25, |_| {}).await;
    let mut fe = login(&s).await;
    let sql = "SELECT id FROM d.r";
    let first = fe.execute(sql.into(), None).await.expect("info");
    let second = fe.execute(sql.into(), None).await.expect("info");
    let mut be = client(s.addresses().be_flight).await;
    assert!(fetch(&mut be, ticket(&first, 0)).await.is_err(), "dropped by the next statement");
    assert_eq!(fetch(&mut be, ticket(&second, 0)).await.expect("rows").len(), 3);
    assert!(fetch(&mut be, ticket(&second, 0)).await.is_err(), "fetched once only");
    assert_eq!(s.requests().matching(Site::BeFlight, sql).len(), 3, "each call is seen");
    let fault = Action::FlightErrorAfterBatches { batches: 1, message: "gone".into() };
    s.faults().push(Fault::new(fault).at(Site::BeFlight));
    let info = fe.execute(sql.into(), None).await.expect("info");
    let mut stream = be.do_get(ticket(&info, 0)).await.expect("stream");
    assert_eq!(stream.try_next().await.expect("batch").expect("batch").num_rows(), 10);
    assert_eq!(status(stream.try_next().await.expect_err("gone")).message(), "gone");
    s.faults().push(Fault::new(Action::FlightSchemaOnly).at(Site::BeFlight));
    let info = fe.execute(sql.into(), None).await.expect("info");
    assert!(fetch(&mut be, ticket(&info, 0)).await.expect("schema only").is_empty());
}

#[tokio::test]
async fn properties_are_checked() {
    let s = sandbox().await;
    for bad in ["\"sandbox.replay\" = \"perhaps\"", "\"sandbox.replay.rows\" = \"many\""] {
        let sql = format!(
            "CREATE TABLE d.bad (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ({bad})"
        );
        let error = s.execute(&sql).await.expect_err("refused");
        assert!(error.text().starts_with("Invalid value for property sandbox.replay"), "{error}");
    }
}
