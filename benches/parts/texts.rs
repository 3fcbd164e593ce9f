//! The text of statements, and options from theirs.

use std::collections::HashMap;

use criterion::Criterion;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion_doris::options::DorisOptions;
use datafusion_doris::sql::{ScanSelect, filter_sql};
use datafusion_doris::types::{ColumnSchema, DorisType, KeyModel, TableIdent, TableSchema};

use crate::Outcome;

/// All of them.
pub fn benches(criterion: &mut Criterion) -> Outcome {
    statements(criterion);
    filters(criterion)?;
    options(criterion)
}

fn statements(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sql/scan");
    let table = TableIdent::new("db", "t");
    let names: Vec<String> = (0..20).map(|column| format!("column_{column}")).collect();
    let columns: Vec<&str> = names.iter().map(String::as_str).collect();
    for count in [1, 100, 10_000] {
        let tablets: Vec<i64> = (0..count).map(|tablet| 10_000 + tablet).collect();
        let select = ScanSelect {
            table: &table,
            query: None,
            columns: &columns,
            as_of: None,
            tablets: &tablets,
            filter: Some("`column_0` > 3"),
            limit: None,
        };
        group.bench_function(format!("{count} tablets"), |bencher| bencher.iter(|| select.to_sql()));
    }
    group.finish();
}

fn filters(criterion: &mut Criterion) -> Outcome {
    let columns = ["id", "amount", "kind"].into_iter().zip([DorisType::BigInt, DorisType::Int, DorisType::Varchar(20)]);
    let schema = TableSchema {
        table: TableIdent::new("db", "t"),
        model: Some(KeyModel::Duplicate),
        columns: columns.map(|(name, doris)| ColumnSchema::new(name, doris)).collect(),
        properties: Default::default(),
    };
    let simple = col("id").gt(lit(17_i64)).and(col("kind").eq(lit("it's"))).and(col("amount").is_not_null());
    let any = (0..100_i64).map(|value| col("id").eq(lit(value)).and(col("kind").like(lit("a%"))));
    let any = any.reduce(Expr::or).ok_or("no terms")?;
    let list = col("id").in_list((0..1_000_i64).map(lit).collect(), false);
    let mut group = criterion.benchmark_group("sql/filter");
    for (name, filter) in [("three terms", simple), ("100 alternatives", any), ("IN of 1,000", list)] {
        filter_sql(&filter, &schema).ok_or_else(|| format!("{name} is not pushed"))?;
        group.bench_function(name, |bencher| bencher.iter(|| filter_sql(&filter, &schema)));
    }
    group.finish();
    Ok(())
}

fn options(criterion: &mut Criterion) -> Outcome {
    let map = [
        ("fenodes", "fe-1:8030,fe-2:8030,fe-3:8030"),
        ("jdbc-url", "jdbc:mysql://fe-1:9030"),
        ("table.identifier", "db.t"),
        ("username", "root"),
        ("password", "secret"),
        ("doris.request.connect.timeout", "30s"),
        ("source.max-connections", "64"),
        ("source.scan.mode", "initial"),
        ("source.changelog.max-window", "5m"),
        ("sink.buffer-size", "4mb"),
        ("sink.parallelism", "4"),
        ("sink.properties.format", "json"),
    ];
    let map: HashMap<String, String> = map.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    DorisOptions::from_map(map.clone())?;
    criterion.bench_function("options/12 of them", |bencher| bencher.iter(|| DorisOptions::from_map(map.clone())));
    Ok(())
}
