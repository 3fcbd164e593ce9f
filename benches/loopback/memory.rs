//! Peak memory of a process that reads, or writes, few rows and many.

use std::process::Command;

use datafusion::physical_plan::execute_stream;
use futures::TryStreamExt;
use serde_json::{Value, json};

use crate::common::server::declare;
use crate::common::usage::peak_mb;
use crate::common::{Outcome, Server, amount};
use crate::report::{Bar, Report};
use crate::shapes::SHAPES;

/// Argument that makes this program the process that is measured.
pub const TASK: &str = "run-task";
/// Rows of the small and of the large run.
const ROWS: [u64; 2] = [1_000_000, 30_000_000];

/// What the process does: a scan, or an INSERT of rows that are made while they are written.
pub async fn run(task: &Value) -> Outcome<()> {
    let text = |name: &str| task[name].as_str().ok_or_else(|| format!("no {name}"));
    let context = datafusion_doris::session_context();
    let table = text("table")?;
    declare(&context, text("fenodes")?, text("jdbc_url")?, table, table, "").await?;
    let plan = datafusion_doris::sql(&context, text("sql")?).await?.create_physical_plan().await?;
    let mut batches = execute_stream(plan, context.task_ctx())?;
    while batches.try_next().await?.is_some() {}
    println!("{}", json!({ "peak": peak_mb()? }));
    Ok(())
}

/// Measures both directions.
pub async fn measure(server: &Server, report: &mut Report) -> Outcome<()> {
    let share = amount("LOOPBACK_PERCENT", 100)?;
    let flights = SHAPES.iter().find(|shape| shape.name == "flights").ok_or("no such shape")?;
    for what in ["scan", "insert"] {
        let mut peaks = Vec::new();
        for rows in ROWS.map(|rows| (rows * share / 100).max(flights.base)) {
            let table = format!("memory_{what}");
            let property = match what {
                "scan" => format!(", 'sandbox.replay' = 'true', 'sandbox.replay.rows' = '{rows}'"),
                _ => ", 'sandbox.discard' = 'true'".to_owned(),
            };
            server.doris(&flights.create(&table, &property)).await?;
            let sql = match what {
                "scan" => {
                    let context = datafusion_doris::session_context();
                    server.declare(&context, &table, &table, "").await?;
                    let insert = format!("INSERT INTO {table} {}", flights.query(flights.base));
                    datafusion_doris::sql(&context, &insert).await?.collect().await?;
                    format!("SELECT * FROM {table}")
                }
                _ => format!("INSERT INTO {table} {}", flights.query(rows)),
            };
            let task = json!({ "fenodes": server.fenodes, "jdbc_url": server.jdbc_url, "table": table, "sql": sql });
            let output = Command::new(std::env::current_exe()?).args([TASK, &task.to_string()]).output()?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
            }
            let told: Value = serde_json::from_slice(&output.stdout)?;
            peaks.push(told["peak"].as_f64().unwrap_or(f64::NAN));
            server.doris(&format!("DROP TABLE bench.{table}")).await?;
        }
        if let [few, many] = peaks.as_slice() {
            let beside = format!("{few:.0} MB with a thirtieth of the rows");
            report.add(format!("{what}: peak memory"), *many, "MB", Bar::Most(256.0), beside);
            report.add(format!("{what}: growth of memory with the rows"), many / few, "x", Bar::Most(1.10), "");
        }
    }
    Ok(())
}
