//! `sink.change-format` = `debezium-json`: change events as input.

use datafusion::prelude::SessionContext;

use crate::harness::{Cluster, refusal, run};

const FORMAT: (&str, &str) = ("sink.change-format", "debezium-json");

/// A target of events with some rows, declared as `events`.
async fn target(more: &[(&str, &str)]) -> (Cluster, SessionContext) {
    let cluster = Cluster::start().await;
    let columns = "id INT NOT NULL, name VARCHAR(20), price DECIMAL(10, 2), at DATETIME(6), ok BOOLEAN";
    cluster.unique_table("orders", columns, "").await;
    cluster.doris("INSERT INTO {db}.orders VALUES (1, 'old', 1, NULL, NULL), (7, 'x', 7, NULL, NULL)").await;
    let ctx = cluster.context();
    let options: Vec<(&str, &str)> = std::iter::once(FORMAT).chain(more.iter().copied()).collect();
    cluster.declare(&ctx, "events", "orders", &options).await;
    (cluster, ctx)
}

/// Inserts events in their order.
fn insert(events: &[&str]) -> String {
    let rows: Vec<String> = events.iter().map(|event| format!("('{}')", event.replace('\'', "''"))).collect();
    format!("INSERT INTO events VALUES {}", rows.join(", "))
}

async fn orders(cluster: &Cluster) -> Vec<String> {
    let rows = cluster.doris("SELECT id, name, price, at, ok FROM {db}.orders ORDER BY id").await;
    let cell = |cell: Option<String>| cell.unwrap_or_else(|| "NULL".into());
    rows.into_iter().map(|row| row.into_iter().map(cell).collect::<Vec<_>>().join(" ")).collect()
}

const EVENTS: [&str; 6] = [
    r#"{"op":"u","before":{"id":1},"after":{"id":1,"name":"it's","price":"12.50","at":"2024-01-01T10:00:00.000001Z","ok":1}}"#,
    r#"{"op":"c","before":null,"after":{"id":2,"name":null,"price":0.1,"at":null,"ok":false}}"#,
    r#"{"op":"c","before":null,"after":{"id":3,"name":"gone soon","price":3,"at":null,"ok":null}}"#,
    r#"{"op":"d","before":{"id":3,"name":"gone soon","price":3,"at":null,"ok":null},"after":null}"#,
    r#"{"op":"u","before":{"id":7,"name":"x"},"after":{"id":8,"name":"x","price":8,"at":null,"ok":true}}"#,
    r#"{"op":"m","message":{}}"#,
];

#[tokio::test]
async fn events_insert_update_delete_and_change_keys_in_every_format() {
    for format in ["csv", "json"] {
        let (cluster, ctx) = target(&[("sink.properties.format", format)]).await;
        run(&ctx, &insert(&EVENTS)).await;
        let expected = ["1 it's 12.50 2024-01-01 10:00:00.000001 1", "2 NULL 0.10 NULL 0", "8 x 8.00 NULL 1"];
        assert_eq!(orders(&cluster).await, expected, "{format}");
        // Applied once more: the same.
        run(&ctx, &insert(&EVENTS)).await;
        assert_eq!(orders(&cluster).await, expected, "{format}");
    }
}

#[tokio::test]
async fn events_with_schema_tell_their_types() {
    let (cluster, ctx) = target(&[("sink.debezium.time-zone", "Asia/Shanghai")]).await;
    let field = |name: &str, of: &str| format!(r#"{{"field":"{name}",{of}}}"#);
    let fields = [
        field("id", r#""type":"int32""#),
        field("name", r#""type":"string""#),
        field("price", r#""type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}"#),
        field("at", r#""type":"int64","name":"io.debezium.time.MicroTimestamp""#),
        field("ok", r#""type":"boolean""#),
    ];
    let event = format!(
        r#"{{"schema":{{"type":"struct","fields":[{{"type":"struct","field":"after","fields":[{}]}}]}},
            "payload":{{"op":"c","before":null,"after":{{"id":4,"name":"d","price":"MDk=","at":1704067200000001,"ok":true}}}}}}"#,
        fields.join(",")
    );
    let instant = r#"{"op":"c","after":{"id":5,"name":null,"price":null,"at":"2024-01-01T00:00:00Z","ok":null}}"#;
    run(&ctx, &insert(&[&event, instant])).await;
    let rows = orders(&cluster).await;
    assert_eq!(rows[1], "4 d 123.45 2024-01-01 00:00:00.000001 1");
    assert_eq!(rows[2], "5 NULL NULL 2024-01-01 08:00:00.000000 NULL");
}

#[tokio::test]
async fn a_bad_event_is_an_error_and_nothing_of_the_statement_is_visible() {
    let (cluster, ctx) = target(&[]).await;
    let before = orders(&cluster).await;
    for (event, reason) in [
        (r#"{"op":"c","after":{"id":9,"name":"a","price":1.005,"at":null,"ok":null}}"#, "column 'price', row 1"),
        (
            r#"{"op":"c","after":{"id":9,"name":"a","price":1,"at":1704067200000,"ok":null}}"#,
            "sink.debezium.time-precision",
        ),
        (r#"{"op":"t"}"#, "truncated"),
        (r#"{"id":9}"#, "ExtractNewRecordState"),
    ] {
        let message = refusal(&ctx, &insert(&[EVENTS[1], event])).await;
        assert!(message.contains(reason), "{message}");
        assert_eq!(orders(&cluster).await, before, "{event}");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_when_declared_or_planned() {
    let (cluster, ctx) = target(&[]).await;
    let message = refusal(&ctx, "SELECT * FROM events").await;
    assert!(message.contains("declare it a second time without 'sink.change-format'"), "{message}");
    // Several partitions, no order.
    run(&ctx, "SET datafusion.execution.target_partitions = 4").await;
    let several = "INSERT INTO events SELECT '{\"op\":\"m\"}' UNION ALL SELECT '{\"op\":\"m\"}'";
    let message = refusal(&ctx, several).await;
    assert!(message.contains("target_partitions = 1") && message.contains("overtake"), "{message}");
    // ORDER BY makes one, and is kept.
    let parts: Vec<String> = (0..40)
        .map(|at| {
            let event = format!(r#"{{"op":"u","after":{{"id":1,"name":"{at}","price":null,"at":null,"ok":null}}}}"#);
            format!("SELECT {} AS at, '{event}' AS event", (at * 7) % 40)
        })
        .collect();
    run(&ctx, &format!("INSERT INTO events SELECT event FROM ({}) ORDER BY at", parts.join(" UNION ALL "))).await;
    // 17 * 7 = 119, the greatest position.
    assert_eq!(orders(&cluster).await[0], "1 17 NULL NULL NULL");
    cluster.duplicate_table("history", "id INT NOT NULL", "").await;
    for (table, options, reason) in [
        ("history", vec![FORMAT], "needs a UNIQUE KEY table"),
        ("orders", vec![("sink.change-format", "canal")], "use debezium-json"),
        ("orders", vec![FORMAT, ("sink.enable-delete", "false")], "sink.enable-delete"),
        ("orders", vec![("sink.debezium.time-precision", "ms")], "sink.change-format"),
        ("orders", vec![FORMAT, ("sink.debezium.time-precision", "s")], "is not ms, us or ns"),
        ("orders", vec![FORMAT, ("sink.debezium.time-zone", "Mars")], "no time zone"),
    ] {
        let message = refusal(&ctx, &cluster.ddl("other", table, &options)).await;
        assert!(message.contains(reason), "{message}");
    }
}
