//! Says how the rows of a free-running changelog are handed on, and sees to it that no position runs ahead of them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::batch_size::BatchSizeExec;
use super::rebuild;
use crate::changelog::{DorisChangelogExec, HandOver, publish_at_end};
use crate::error::Error;
use crate::lookup::LookupJoinExec;
use crate::sink::DorisSinkExec;

/// Decides when the changelogs of a plan publish their positions (`source.changelog.offset-table`).
///
/// Continuous inserts into Doris publish what is committed; elsewhere a position may be published once the rows before it
/// were taken. Where every operator gives all rows of a batch before it asks for the next, that is the next poll. Where
/// one holds rows back, it is the end of the plan, or, when that never comes, an error. Sinks of others hold rows back: a
/// `DataSink` promises nothing before it ends, and one of files closes none until then.
#[derive(Debug)]
pub struct PublishPositions;

impl PhysicalOptimizerRule for PublishPositions {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let ends = !plan.boundedness().is_unbounded();
        // Several partitions are gathered by whoever runs the plan, through a queue.
        let gathered = plan.output_partitioning().partition_count() > 1;
        let above = Above { ends, holds: gathered.then(|| "the merge of partitions".to_string()), ..Above::default() };
        Ok(publish_at_end(note(plan, &above)?))
    }

    fn name(&self) -> &str {
        "doris_publish_positions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What stands between a node and whoever takes the rows.
#[derive(Debug, Clone, Default)]
struct Above {
    /// The whole plan ends.
    ends: bool,
    /// The plan is executed in epochs, whose run publishes.
    epochs: bool,
    /// An operator that may keep rows when it asks for more.
    holds: Option<String>,
    /// Not all rows may be asked for.
    limited: bool,
}

fn note(node: Arc<dyn ExecutionPlan>, above: &Above) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(changelog) = node.downcast_ref::<DorisChangelogExec>() {
        let noted = note_changelog(changelog, above)?;
        return Ok(noted.map_or(node, |changelog| Arc::new(changelog) as _));
    }
    if node.children().is_empty() {
        return Ok(node);
    }
    let mut below = above.clone();
    below.epochs |= node.is::<DorisSinkExec>() && node.boundedness().is_unbounded();
    below.limited |= node.fetch().is_some();
    let children = node.children().into_iter().enumerate().map(|(index, child)| {
        let mut below = below.clone();
        if below.holds.is_none() && !passes_at_once(&node, index) {
            below.holds = Some(node.name().to_string());
        }
        note(Arc::clone(child), &below)
    });
    let children = children.collect::<Result<Vec<_>>>()?;
    let unchanged = children.iter().zip(node.children()).all(|(new, old)| Arc::ptr_eq(new, old));
    if unchanged { Ok(node) } else { rebuild(node, children) }
}

fn note_changelog(changelog: &DorisChangelogExec, above: &Above) -> Result<Option<DorisChangelogExec>> {
    let table = changelog.table();
    if above.epochs {
        if changelog.keeps_position() && !changelog.properties().boundedness.is_unbounded() {
            let what = format!("the bounded changelog of {table} with 'source.changelog.offset-table' in a job");
            let advice = "it is read anew in each epoch and has no position of its own; leave the option out";
            return Err(Error::unsupported(what, advice).into());
        }
        return Ok(None);
    }
    let hand_over = match &above.holds {
        None => HandOver::AtOnce,
        Some(_) if above.ends && above.limited => HandOver::Unknown,
        Some(_) if above.ends => HandOver::AtEnd,
        Some(_) if !changelog.keeps_position() => HandOver::AtOnce,
        Some(operator) => {
            let what = format!("{operator} over the changelog of {table} with 'source.changelog.offset-table'");
            let advice = "it may hold changes back, and the position would be published before they are handed on; use \
                          filters, projections and inner joins that name the static table first over one changelog, \
                          bound the read by 'source.scan.bounded-mode', or leave the offset table out";
            return Err(Error::unsupported(what, advice).into());
        }
    };
    Ok(Some(changelog.clone().handed_over(hand_over)))
}

/// True when `node` has given all rows made of a batch of child `index` before it asks that child for the next one.
fn passes_at_once(node: &Arc<dyn ExecutionPlan>, index: usize) -> bool {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        // It gathers so many rows.
        return filter.batch_size() == 1;
    }
    if node.is::<HashJoinExec>() {
        // The probe side of a join that has the batch size 1, as `StreamLatency` leaves it.
        return index == 1 && node.children().iter().all(|child| child.is::<BatchSizeExec>());
    }
    if node.is::<CoalescePartitionsExec>() {
        return node.children().iter().all(|input| input.output_partitioning().partition_count() == 1);
    }
    node.is::<ProjectionExec>()
        || node.is::<BatchSizeExec>()
        || node.is::<CooperativeExec>()
        || node.is::<LookupJoinExec>()
        || node.is::<UnnestExec>()
        || node.is::<UnionExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<LocalLimitExec>()
}
