//! Snapshot scans, over Arrow Flight SQL or the MySQL protocol.
//!
//! ```text
//! projection, exact filters, limit ─▶ ScanPlan: SQL text per split ─▶ DorisScanExec: one partition per split
//!   per partition, at its first poll: session ─▶ statement ─▶ batches (of texts, made typed) ─▶ conform to the declared
//!   schema ─▶ count
//! ```
//!
//! A split is a group of tablets. Each split's statement reads its own version of the table: a scan of several
//! splits is no common snapshot.

mod bounded;
mod conform;
mod dynamic;
mod exec;
mod groups;
mod lookup;
#[doc(hidden)]
pub mod parts;
mod plan;
mod read;
mod stream;
mod text;
mod variant;

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use crate::client::{DorisClient, FlightSession};
use crate::error::Result;

pub use exec::DorisScanExec;
pub use plan::{ReadSettings, ScanPlan, ScanSplit, Transport};

pub(crate) use bounded::cut_at;
pub(crate) use conform::{Conformer, check_readable};
pub(crate) use plan::{plan_query, plan_scan, plan_snapshot};
pub(crate) use stream::MeteredStream;

/// What a node of this module reads, as text that is the same at every start of a job
/// ([`crate::checkpoint::fingerprint::SourceText`]): columns and conditions, not where they are asked for.
pub(crate) fn scan_text(plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
    let scan = plan.downcast_ref::<DorisScanExec>()?;
    Some(format!("{}[{}]", plan.name(), scan.statement()))
}

/// A Flight session for reading.
pub(crate) async fn open_session(client: &DorisClient) -> Result<FlightSession> {
    let variables = read::read_variables(client);
    let texts: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    client.open_flight(&texts).await
}
