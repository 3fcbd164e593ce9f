//! Snapshot scans over Arrow Flight SQL.
//!
//! ```text
//! projection, exact filters, limit ─▶ ScanPlan: SQL text per split ─▶ DorisScanExec: one partition per split
//!   per partition, at its first poll: login ─▶ statement ─▶ batches ─▶ conform to the declared schema ─▶ count
//! ```
//!
//! A split is a group of tablets. Each split's statement reads its own version of the table: a scan of several
//! splits is no common snapshot.

mod conform;
mod exec;
mod plan;
mod stream;

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use crate::client::{DorisClient, FlightSession};
use crate::error::Result;

pub use exec::DorisScanExec;
pub(crate) use exec::cut_at;
pub use plan::{ScanPlan, ScanSplit};

pub(crate) use conform::{Conformer, check_readable};
pub(crate) use plan::plan_scan;
pub(crate) use stream::MeteredStream;

/// What a node of this module reads, as text that is the same at every start of a job
/// ([`crate::checkpoint::fingerprint::SourceText`]): columns and conditions, not where they are asked for.
pub(crate) fn scan_text(plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
    let scan = plan.downcast_ref::<DorisScanExec>()?;
    Some(format!("{}[{}]", plan.name(), scan.statement()))
}

/// A Flight session for reading: values and texts of times must not depend on the server's settings, and a backslash
/// in a literal is an escape.
pub(crate) async fn open_session(client: &DorisClient) -> Result<FlightSession> {
    let query_timeout = client.options().query_timeout.as_secs().to_string();
    let variables = [("time_zone", "'+00:00'"), ("sql_mode", "''"), ("query_timeout", query_timeout.as_str())];
    client.open_flight(&variables).await
}
