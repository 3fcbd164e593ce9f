//! A table with some seconds of changes behind it.

use datafusion::prelude::SessionContext;

use super::{Outcome, Server};

/// Columns of the table.
pub const COLUMNS: &str = "id BIGINT NOT NULL, name VARCHAR(40), amount DECIMAL(18, 2), at DATETIME(6)";

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
