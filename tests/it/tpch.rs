//! TPC-H: all 22 queries over tables of Doris give what they give over the generated rows in memory, and a table of the
//! bytes that travel with pushdown and without.
//!
//! `TPCH_SCALE` sets the scale factor. The rows are written by this crate's sink.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::q_and_a::queries::query;
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow, SupplierArrow,
};

use crate::harness::{Cluster, lines, run};

/// The parameters of each query, as the specification gives them for its validation, and its LIMIT.
const PARAMETERS: [(&[&str], Option<usize>); 22] = [
    (&["90"], None),
    (&["15", "BRASS", "EUROPE"], Some(100)),
    (&["BUILDING", "1995-03-15"], Some(10)),
    (&["1993-07-01"], None),
    (&["ASIA", "1994-01-01"], None),
    (&["1994-01-01", "0.06", "24"], None),
    (&["FRANCE", "GERMANY"], None),
    (&["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"], None),
    (&["green"], None),
    (&["1993-10-01"], Some(20)),
    (&["GERMANY", "0.0001"], None),
    (&["MAIL", "SHIP", "1994-01-01"], None),
    (&["special", "requests"], None),
    (&["1995-09-01"], None),
    (&["1996-01-01"], None),
    (&["Brand#45", "MEDIUM POLISHED", "49", "14", "23", "45", "19", "3", "36", "9"], None),
    (&["Brand#23", "MED BOX"], None),
    (&["300"], Some(100)),
    (&["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"], None),
    (&["forest", "1994-01-01", "CANADA"], None),
    (&["SAUDI ARABIA"], Some(100)),
    (&["13", "31", "23", "29", "30", "18", "17"], None),
];

/// The statements of a query; the second of three is the one with rows.
fn statements(number: usize) -> Vec<String> {
    let (parameters, limit) = PARAMETERS[number - 1];
    let text = query(i32::try_from(number).expect("small")).expect("there are 22");
    let mut text = text.replace(" day (3)", " day").replace("revenue:s", "revenue0");
    // The last first: `:1` begins `:10`.
    for (index, value) in parameters.iter().enumerate().rev() {
        text = text.replace(&format!(":{}", index + 1), value);
    }
    let mut statements: Vec<String> =
        text.split(';').map(str::trim).filter(|text| !text.is_empty()).map(str::to_string).collect();
    if let (Some(limit), Some(last)) = (limit, statements.last_mut()) {
        last.push_str(&format!(" limit {limit}"));
    }
    statements
}

fn read(rows: impl Iterator<Item = Result<RecordBatch, ArrowError>>) -> Vec<RecordBatch> {
    rows.collect::<Result<_, _>>().expect("generated")
}

fn tables(scale: f64) -> Vec<(&'static str, Vec<RecordBatch>)> {
    vec![
        ("region", read(RegionArrow::new(RegionGenerator::new(scale, 1, 1)))),
        ("nation", read(NationArrow::new(NationGenerator::new(scale, 1, 1)))),
        ("supplier", read(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1)))),
        ("customer", read(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1)))),
        ("part", read(PartArrow::new(PartGenerator::new(scale, 1, 1)))),
        ("partsupp", read(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1)))),
        ("orders", read(OrderArrow::new(OrderGenerator::new(scale, 1, 1)))),
        ("lineitem", read(LineItemArrow::new(LineItemGenerator::new(scale, 1, 1)))),
    ]
}

fn ddl(name: &str, schema: &SchemaRef) -> String {
    let doris = |data_type: &DataType| match data_type {
        DataType::Int64 => "BIGINT".to_string(),
        DataType::Int32 => "INT".to_string(),
        DataType::Date32 => "DATE".to_string(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Utf8View => "VARCHAR(200)".to_string(),
        other => panic!("{other} in {name}"),
    };
    let columns: Vec<String> =
        schema.fields().iter().map(|field| format!("{} {} NOT NULL", field.name(), doris(field.data_type()))).collect();
    let key = schema.field(0).name();
    format!(
        "CREATE TABLE {{db}}.{name} ({}) DUPLICATE KEY({key}) DISTRIBUTED BY HASH({key}) BUCKETS 4
         PROPERTIES ('replication_num' = '1')",
        columns.join(", ")
    )
}

#[derive(Debug, Default)]
struct Moved {
    lines: Vec<String>,
    rows: usize,
    bytes: usize,
    seconds: f64,
}

async fn execute(ctx: &SessionContext, number: usize) -> Moved {
    fn sum(plan: &Arc<dyn ExecutionPlan>, metric: &str) -> usize {
        let own = plan.metrics().and_then(|metrics| metrics.sum_by_name(metric)).map_or(0, |value| value.as_usize());
        own + plan.children().into_iter().map(|child| sum(child, metric)).sum::<usize>()
    }
    let mut moved = Moved::default();
    let start = Instant::now();
    for statement in statements(number) {
        let failed =
            |error: datafusion::error::DataFusionError| -> ! { panic!("query {number}: {error}\n{statement}") };
        let frame = datafusion_doris::sql(ctx, &statement).await.unwrap_or_else(|error| failed(error));
        let plan = frame.create_physical_plan().await.unwrap_or_else(|error| failed(error));
        let batches = collect(Arc::clone(&plan), ctx.task_ctx()).await.unwrap_or_else(|error| failed(error));
        moved.lines.extend(lines(&batches));
        moved.rows += sum(&plan, "rows_received");
        moved.bytes += sum(&plan, "bytes_received");
    }
    moved.seconds = start.elapsed().as_secs_f64();
    moved.lines.sort();
    moved
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_queries_equal_those_over_the_generated_rows() {
    let scale: f64 = std::env::var("TPCH_SCALE").map_or(0.1, |text| text.parse().expect("TPCH_SCALE is a number"));
    let cluster = Cluster::start().await;
    let (local, on, off) = (cluster.context(), cluster.context(), cluster.context());
    for kind in ["filter", "limit", "topk", "aggregate", "join", "dynamic_filter"] {
        run(&off, &format!("SET doris.pushdown.{kind} = false")).await;
    }
    let start = Instant::now();
    let mut sizes = HashMap::new();
    for (name, batches) in tables(scale) {
        let schema = batches[0].schema();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        cluster.doris(&ddl(name, &schema)).await;
        let memory = Arc::new(MemTable::try_new(schema, vec![batches]).expect("one schema"));
        local.register_table(name, memory).expect("registers");
        cluster
            .declare(
                &local,
                &format!("{name}_sink"),
                name,
                &[("sink.label-prefix", name), ("sink.properties.format", "arrow")],
            )
            .await;
        run(&local, &format!("INSERT INTO {name}_sink SELECT * FROM {name}")).await;
        cluster.declare(&on, name, name, &[]).await;
        cluster.declare(&off, name, name, &[]).await;
        sizes.insert(name, rows);
    }
    println!(
        "scale factor {scale}, {} rows of lineitem, loaded in {:.1} s",
        sizes["lineitem"],
        start.elapsed().as_secs_f64()
    );
    println!("query |   rows |      bytes | rows without | bytes without | seconds, without, in memory");
    let (mut total, mut total_without) = (0, 0);
    for number in 1..=22 {
        let expected = execute(&local, number).await;
        let pushed = execute(&on, number).await;
        let kept = execute(&off, number).await;
        assert_eq!(pushed.lines, expected.lines, "query {number} with pushdown");
        assert_eq!(kept.lines, expected.lines, "query {number} without pushdown");
        println!(
            "{number:5} | {:6} | {:10} | {:12} | {:13} | {:.2}, {:.2}, {:.2}",
            pushed.rows, pushed.bytes, kept.rows, kept.bytes, pushed.seconds, kept.seconds, expected.seconds
        );
        total += pushed.bytes;
        total_without += kept.bytes;
    }
    println!("  all |        | {total:10} |              | {total_without:13}");
    assert!(total * 4 < total_without, "pushdown saves little: {total} of {total_without} bytes");
}
