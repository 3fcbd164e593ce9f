//! What a job is, as facts that a person can read and compare.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, displayable};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::StaticSideExec;
use crate::error::{Error, Result};

/// Facts by name, in order. What may change between two starts (intervals, timeouts, buffers, the scan mode) is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(BTreeMap<String, String>);

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Fingerprint {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(facts: T) -> Self {
        Self(facts.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// A fact that is not what it was; `None` = it was, or is, not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Name of the fact.
    pub fact: String,
    /// In the checkpoint.
    pub old: Option<String>,
    /// Now.
    pub new: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.as_ref().map_or_else(|| "(none)".to_string(), |v| format!("'{v}'"));
        write!(f, "{}: {} -> {}", self.fact, text(&self.old), text(&self.new))
    }
}

impl Fingerprint {
    /// Adds a fact.
    pub fn insert(&mut self, fact: impl Into<String>, value: impl Into<String>) {
        self.0.insert(fact.into(), value.into());
    }

    /// True when nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The facts, by name.
    pub fn facts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(fact, value)| (fact.as_str(), value.as_str()))
    }

    /// Which facts of `self`, a checkpoint's, are others in `new`. A checkpoint without facts differs in none.
    pub fn differences(&self, new: &Self) -> Vec<Difference> {
        if self.is_empty() {
            return vec![];
        }
        let names: std::collections::BTreeSet<&String> = self.0.keys().chain(new.0.keys()).collect();
        let differences = names.into_iter().map(|fact| Difference {
            fact: fact.clone(),
            old: self.0.get(fact).cloned(),
            new: new.0.get(fact).cloned(),
        });
        differences.filter(|difference| difference.old != difference.new).collect()
    }

    /// Refuses a job that is not the one of the checkpoint.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with every difference, old -> new.
    pub fn check(&self, new: &Self, job: &str) -> Result<()> {
        let differences = self.differences(new);
        if differences.is_empty() {
            return Ok(());
        }
        let list: Vec<String> = differences.iter().map(Difference::to_string).collect();
        Err(Error::Checkpoint {
            reason: format!(
                "job {job} is not the one that wrote its checkpoint: {}; undo the change, or begin anew under another \
                 job name",
                list.join("; ")
            ),
        })
    }
}

/// What a source of a plan reads, as text that is the same in every run; `None` for sources that are not known.
pub type SourceText = fn(&Arc<dyn ExecutionPlan>) -> Option<String>;

/// A plan as text that is the same in every run: operators and expressions, without what the machine or the moment adds.
///
/// Of its sources, those with epochs are told by their columns (the rest are facts of their own), others by
/// `source_text`, or else by their columns and the expressions they evaluate: other tables may have grown.
pub fn plan_text(plan: &Arc<dyn ExecutionPlan>, source_text: SourceText) -> String {
    let children = plan.children();
    if let [child] = children.as_slice()
        && (plan.is::<CooperativeExec>() || plan.is::<CoalescePartitionsExec>() || plan.is::<StaticSideExec>())
    {
        return plan_text(child, source_text);
    }
    if children.is_empty() {
        return source_text(plan).unwrap_or_else(|| source_columns(plan));
    }
    let inputs: Vec<String> = children.into_iter().map(|input| plan_text(input, source_text)).collect();
    format!("{}({})", displayable(plan.as_ref()).one_line().to_string().trim(), inputs.join(", "))
}

fn source_columns(source: &Arc<dyn ExecutionPlan>) -> String {
    let columns: Vec<String> = source.schema().fields().iter().map(|field| field.name().clone()).collect();
    if source.boundedness().is_unbounded() {
        return format!("changes[{}]", columns.join(", "));
    }
    let mut expressions = Vec::new();
    // The closure never fails, so neither does the walk.
    let _ = source.apply_expressions(&mut |expression| {
        expressions.push(expression.to_string());
        Ok(TreeNodeRecursion::Continue)
    });
    let expressions = if expressions.is_empty() { String::new() } else { format!(" where {}", expressions.join(", ")) };
    format!("{}[{}]{expressions}", source.name(), columns.join(", "))
}

/// A name for a job that was given none: the same for the same target and plan.
pub fn default_job_name(target: &str, plan: &str) -> String {
    let mut hasher = Sha256::new();
    for part in [target, plan] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    let digits: String = hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("insert-{digits}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shown_old_to_new() {
        let old = Fingerprint::from_iter([("query", "a"), ("sink format", "csv"), ("source 1 columns", "id INT")]);
        assert!(old.check(&old.clone(), "j").is_ok());
        let new = Fingerprint::from_iter([("query", "a"), ("sink format", "json"), ("source 2 columns", "id INT")]);
        let differences = old.differences(&new);
        let text: Vec<String> = differences.iter().map(Difference::to_string).collect();
        let expected = [
            "sink format: 'csv' -> 'json'",
            "source 1 columns: 'id INT' -> (none)",
            "source 2 columns: (none) -> 'id INT'",
        ];
        assert_eq!(text, expected);
        let message = old.check(&new, "orders").unwrap_err().to_string();
        assert!(expected.iter().all(|part| message.contains(part)) && message.contains("job orders"), "{message}");
    }

    #[test]
    fn checkpoint_without_facts_fits_every_job() {
        let new = Fingerprint::from_iter([("query", "a")]);
        assert!(Fingerprint::default().check(&new, "j").is_ok());
        assert!(new.check(&Fingerprint::default(), "j").is_err());
    }

    #[test]
    fn static_source_is_told_by_its_own_text_and_kept_rows_change_nothing() {
        let schema = Arc::new(arrow::datatypes::Schema::new(vec![arrow::datatypes::Field::new(
            "id",
            arrow::datatypes::DataType::Int64,
            true,
        )]));
        let source: Arc<dyn ExecutionPlan> = Arc::new(datafusion::physical_plan::empty::EmptyExec::new(schema));
        let kept: Arc<dyn ExecutionPlan> =
            Arc::new(StaticSideExec::new(Arc::clone(&source), std::time::Duration::from_secs(1)));
        assert_eq!(plan_text(&kept, |_| None), "EmptyExec[id]");
        assert_eq!(plan_text(&kept, |_| Some("SELECT 1".into())), "SELECT 1");
    }

    #[test]
    fn default_name_depends_on_target_and_plan() {
        let name = default_job_name("db.t", "plan");
        assert_eq!(name, default_job_name("db.t", "plan"));
        assert_ne!(name, default_job_name("db.tp", "lan"));
        assert_ne!(name, default_job_name("db.t", "plan2"));
        assert!(name.starts_with("insert-") && name.len() == 23, "{name}");
    }
}
