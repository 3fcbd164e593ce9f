//! How a scan is cut into statements, what bounds it, and what the optimizer is told of its size.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_doris::scan::DorisScanExec;
use doris_sandbox::Site;

use crate::harness::{Cluster, count, lines, refusal, run, try_run};

/// A context with so many target partitions, and a memory limit.
fn context(partitions: usize, memory: Option<usize>) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(partitions);
    let runtime = RuntimeEnvBuilder::new();
    let runtime = match memory {
        Some(bytes) => runtime.with_memory_limit(bytes, 1.0),
        None => runtime,
    };
    let ctx = SessionContext::new_with_config_rt(config, runtime.build_arc().expect("a runtime"));
    datafusion_doris::register(&ctx).expect("registers");
    ctx
}

async fn plan(ctx: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    datafusion_doris::sql(ctx, sql).await.expect("plans").create_physical_plan().await.expect("plans")
}

fn scan(plan: &Arc<dyn ExecutionPlan>) -> &DorisScanExec {
    let mut node = plan;
    loop {
        match node.downcast_ref::<DorisScanExec>() {
            Some(scan) => return scan,
            None => node = node.children()[0],
        }
    }
}

/// A table of 4 tablets, of which one holds almost all rows.
async fn skewed(cluster: &Cluster) {
    let mut values: Vec<String> = (1..=20).map(|id| format!("({id}, 'x')")).collect();
    values.extend((0..400).map(|_| "(1, 'heavy')".to_string()));
    cluster
        .doris(&format!(
            "CREATE TABLE {{db}}.t (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 4;
             INSERT INTO {{db}}.t VALUES {}",
            values.join(", ")
        ))
        .await;
}

#[tokio::test]
async fn tablets_are_grouped_by_their_size() {
    let cluster = Cluster::sandbox().await;
    skewed(&cluster).await;
    let heavy = "SELECT COUNT(*) FROM {db}.t TABLET({id})";
    let tablets: Vec<String> =
        cluster.doris("SHOW TABLETS FROM {db}.t").await.into_iter().flat_map(|row| row[0].clone()).collect();
    let mut sizes = Vec::new();
    for id in &tablets {
        sizes.push((cluster.scalar(&heavy.replace("{id}", id)).await.parse::<u64>().expect("a count"), id.clone()));
    }
    let largest: i64 = sizes.iter().max().expect("tablets").1.parse().expect("an id");
    let ctx = context(2, None);
    cluster.declare(&ctx, "t", "t", &[]).await;
    let planned = plan(&ctx, "SELECT id FROM t").await;
    let splits = &scan(&planned).plan().splits;
    assert_eq!(splits.len(), 2);
    assert!(splits.iter().any(|split| split.tablets == [largest]), "{splits:?}");
    assert_eq!(splits.iter().map(|split| split.tablets.len()).sum::<usize>(), 4);
    assert_eq!(lines(&run(&ctx, "SELECT count(id) FROM t").await), ["420"]);
    // A user who may not see the tablets' sizes reads all the same.
    cluster.doris("CREATE USER reader IDENTIFIED BY 'r'; GRANT SELECT_PRIV ON {db}.* TO reader").await;
    cluster.declare(&ctx, "mine", "t", &[("username", "reader"), ("password", "r")]).await;
    assert_eq!(lines(&run(&ctx, "SELECT count(id) FROM mine").await), ["420"]);
}

#[tokio::test]
async fn statements_at_once_are_bounded() {
    let cluster = Cluster::sandbox().await;
    skewed(&cluster).await;
    let ctx = context(4, None);
    cluster.declare(&ctx, "two", "t", &[("source.max-connections", "2")]).await;
    let options = [
        ("source.max-connections", "1"),
        ("source.overflow-connections", "0"),
        ("doris.request.connect.timeout", "1s"),
    ];
    cluster.declare(&ctx, "one", "t", &options).await;
    assert_eq!(scan(&plan(&ctx, "SELECT id FROM two").await).plan().splits.len(), 2);
    assert_eq!(lines(&run(&ctx, "SELECT count(id) FROM two").await), ["420"]);
    // Statements whose rows nobody takes do not keep others waiting for ever.
    let mut held = plan(&ctx, "SELECT id FROM one").await.execute(0, ctx.task_ctx()).expect("runs");
    futures::StreamExt::next(&mut held).await.expect("a batch").expect("rows");
    let message = refusal(&ctx, "SELECT id FROM one").await;
    assert!(message.contains("'source.max-connections' or 'source.overflow-connections'"), "{message}");
    drop(held);
    assert_eq!(count(&run(&ctx, "SELECT id FROM one").await), 420);
}

#[tokio::test]
async fn the_small_side_of_a_join_is_collected() {
    let cluster = Cluster::start().await;
    let values = |from: usize, to: usize| (from..to).map(|id| format!("({id})")).collect::<Vec<_>>().join(", ");
    for (name, rows) in [("small", 5), ("large", 2_000)] {
        cluster
            .doris(&format!(
                "CREATE TABLE {{db}}.{name} (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2;
                 INSERT INTO {{db}}.{name} VALUES {}",
                values(0, rows)
            ))
            .await;
    }
    let ctx = context(2, None);
    cluster.declare(&ctx, "small", "small", &[]).await;
    cluster.declare(&ctx, "large", "large", &[]).await;
    for sql in ["small JOIN large ON small.id = large.id", "large JOIN small ON small.id = large.id"] {
        let text = lines(&run(&ctx, &format!("EXPLAIN FORMAT INDENT SELECT * FROM {sql}")).await).join("\n");
        let (small, large) = (text.rfind("small`").expect("read"), text.rfind("large`").expect("read"));
        assert!(small < large, "{text}");
        assert_eq!(count(&run(&ctx, &format!("SELECT * FROM {sql}")).await), 5, "{sql}");
    }
    cluster.doris("ANALYZE TABLE {db}.large WITH SYNC").await;
    let ctx = context(2, None);
    cluster.declare(&ctx, "large", "large", &[]).await;
    let planned = plan(&ctx, "SELECT id FROM large").await;
    let column =
        &scan(&planned).statistics_from_inputs(&[], &Default::default()).expect("statistics").column_statistics[0];
    let number = |value| Precision::Inexact(datafusion::common::ScalarValue::Int32(Some(value)));
    assert_eq!((column.min_value.clone(), column.max_value.clone()), (number(0), number(1_999)));
    assert_eq!(column.distinct_count, Precision::Inexact(2_000));
    let statistics = scan(&planned).statistics_from_inputs(&[], &Default::default()).expect("statistics");
    assert_eq!(statistics.num_rows, Precision::Inexact(2_000));
    let planned = plan(&ctx, "SELECT id FROM large WHERE id > 3 LIMIT 7").await;
    let statistics = scan(&planned).statistics_from_inputs(&[], &Default::default()).expect("statistics");
    assert_eq!(statistics.num_rows, Precision::Inexact(7));
}

#[tokio::test]
async fn memory_of_a_scan_is_taken_from_the_sessions_pool() {
    let cluster = Cluster::start().await;
    cluster.doris("CREATE TABLE {db}.t (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let ctx = context(1, None);
    cluster.declare(&ctx, "t", "t", &[]).await;
    run(&ctx, "INSERT INTO t SELECT value, repeat('x', 1000) FROM generate_series(1, 3000)").await;
    let tight = context(1, Some(1 << 20));
    cluster.declare(&tight, "t", "t", &[]).await;
    let message = try_run(&tight, "SELECT id, s FROM t").await.expect_err("does not fit").to_string();
    assert!(message.contains("DorisScanExec[0]"), "{message}");
    assert_eq!(tight.runtime_env().memory_pool.reserved(), 0);
    assert_eq!(lines(&run(&tight, "SELECT count(*) FROM t").await), ["3000"]);
    let wide = context(1, Some(64 << 20));
    cluster.declare(&wide, "t", "t", &[]).await;
    assert_eq!(count(&run(&wide, "SELECT id, s FROM t").await), 3000);
}

#[tokio::test]
async fn options_of_the_connectors_reader_have_their_meaning() {
    let cluster = Cluster::sandbox().await;
    skewed(&cluster).await;
    let ctx = context(2, None);
    let options = [
        ("doris.batch.size", "7"),
        ("doris.exec.mem.limit", "512mb"),
        ("doris.filter.query", "`s` = 'x' OR id > 100"),
        ("doris.read.field", "s, id"),
    ];
    for (name, transport) in [("flight", "true"), ("mysql", "false")] {
        let mut all = options.to_vec();
        all.push(("source.use-flight-sql", transport));
        cluster.declare(&ctx, name, "t", &all).await;
        let batches = run(&ctx, &format!("SELECT * FROM {name}")).await;
        assert_eq!((count(&batches), batches[0].num_columns()), (20, 2), "{name}");
        assert_eq!(batches[0].schema().field(0).name(), "s");
        assert!(batches.iter().all(|batch| batch.num_rows() <= 7), "{name}");
        assert_eq!(lines(&run(&ctx, &format!("SELECT count(*) FROM {name} WHERE id <= 10")).await), ["10"]);
    }
    let explained = lines(&run(&ctx, "EXPLAIN SELECT id FROM flight WHERE id > 3").await).join("");
    assert!(explained.contains("(`s` = 'x' OR id > 100) AND"), "{explained}");
    for site in [Site::FeFlight, Site::Mysql] {
        let set = cluster.server().requests().matching(site, "exec_mem_limit = 536870912");
        assert!(!set.is_empty(), "{site:?}");
    }
    let both = cluster.ddl("both (id INT)", "t", &[("doris.read.field", "id")]);
    assert!(refusal(&ctx, &both).await.contains("doris.read.field"));
    let unknown = cluster.ddl("unknown", "t", &[("doris.read.field", "id, nothing")]);
    assert!(refusal(&ctx, &unknown).await.contains("'nothing'"));
}
