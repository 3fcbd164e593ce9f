//! A table with some seconds of changes behind it.

use datafusion::prelude::SessionContext;

use super::{Outcome, Server};

/// Columns of the table.
pub const COLUMNS: &str = "id BIGINT NOT NULL, name VARCHAR(40), amount DECIMAL(18, 2), at DATETIME(6)";

/// Makes `bench.source`, which keeps its changes, and `bench.history`, which takes them with their kind and drops them;
/// declares both, `history` with further options (beginning with a comma).
pub async fn tables(server: &Server, context: &SessionContext, options: &str) -> Outcome<()> {
    let create = |name: &str, columns: &str, properties: &str| {
        format!(
            "CREATE TABLE bench.{name} ({columns}) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 4
             PROPERTIES ('replication_num' = '1'{properties})"
        )
    };
    server.doris(&create("source", COLUMNS, ", 'changelog.enable' = 'true'")).await?;
    let history = format!("{COLUMNS}, kind VARCHAR(2)");
    server.doris(&create("history", &history, ", 'sandbox.discard' = 'true'")).await?;
    // Its rows are soon there: as an arrow stream they take the server least.
    server.declare(context, "source", "source", ", 'sink.properties.format' 'arrow'").await?;
    server.declare(context, "history", "history", options).await
}

/// Options (beginning with a comma) for the changes of `bench.source` from `start` on, a second at once, and further ones.
pub fn changes_options(start: &str, options: &str) -> String {
    format!(
        ", 'source.scan.mode' 'from-timestamp', 'source.scan.timestamp' '{start}', 'source.changelog.max-window' '1s'
         {options}"
    )
}

/// Declares the changes of `bench.source` from `start` on as `changes`.
pub async fn declare_changes(server: &Server, context: &SessionContext, start: &str, options: &str) -> Outcome<()> {
    server.declare(context, "changes", "source", &changes_options(start, options)).await
}

/// Writes `rows` rows in each of `seconds` seconds, a transaction each, into the table declared as `source`, and goes on
/// until they are behind. Gives the second before them, as `source.scan.timestamp` takes it.
pub async fn fill(server: &mut Server, context: &SessionContext, rows: u64, seconds: u64) -> Outcome<String> {
    let start = server.doris("SELECT NOW()").await?.ok_or("no time")?;
    for second in 0..seconds {
        server.advance()?;
        let insert = format!(
            "INSERT INTO source SELECT value, concat('customer of second ', CAST({second} AS VARCHAR)),
             CAST(value AS DECIMAL(18, 2)) / 7, CAST('2026-01-01 00:00:00.123456' AS TIMESTAMP)
             FROM generate_series(1, {rows})"
        );
        datafusion_doris::sql(context, &insert).await?.collect().await?;
    }
    for _ in 0..2 {
        server.advance()?;
    }
    Ok(start.split('.').next().unwrap_or_default().to_owned())
}
