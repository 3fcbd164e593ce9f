//! Settings of what is done by Doris: `SET doris.pushdown.aggregate = false`.

use datafusion::common::config::ConfigEntry;

use super::value::{Parsed, parse_bool};

/// Which parts of a query Doris may do, each `true` by default. A part that is switched off is done by DataFusion, with
/// the same result.
///
/// | Setting | Part |
/// | --- | --- |
/// | `doris.pushdown.filter` | WHERE, and HAVING over a pushed aggregate |
/// | `doris.pushdown.limit` | LIMIT without ORDER BY |
/// | `doris.pushdown.topk` | ORDER BY … LIMIT |
/// | `doris.pushdown.aggregate` | GROUP BY, DISTINCT, COUNT, MIN, MAX, SUM, AVG |
/// | `doris.pushdown.join` | joins of tables of one cluster below a pushed aggregate or ORDER BY … LIMIT |
/// | `doris.pushdown.dynamic_filter` | conditions that DataFusion learns while it runs, as from a join's smaller side |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushdownOptions {
    /// `doris.pushdown.filter`
    pub filter: bool,
    /// `doris.pushdown.limit`
    pub limit: bool,
    /// `doris.pushdown.topk`
    pub topk: bool,
    /// `doris.pushdown.aggregate`
    pub aggregate: bool,
    /// `doris.pushdown.join`
    pub join: bool,
    /// `doris.pushdown.dynamic_filter`
    pub dynamic_filter: bool,
}

impl Default for PushdownOptions {
    fn default() -> Self {
        Self { filter: true, limit: true, topk: true, aggregate: true, join: true, dynamic_filter: true }
    }
}

impl PushdownOptions {
    /// Sets what stands behind `doris.pushdown.`; an empty value gives the default back. `None`: there is no such part.
    pub(super) fn set(&mut self, part: &str, value: &str) -> Option<Parsed<()>> {
        let switch = match part {
            "filter" => &mut self.filter,
            "limit" => &mut self.limit,
            "topk" => &mut self.topk,
            "aggregate" => &mut self.aggregate,
            "join" => &mut self.join,
            "dynamic_filter" => &mut self.dynamic_filter,
            _ => return None,
        };
        let parsed = match value.trim() {
            "" => Ok(true),
            value => parse_bool(value),
        };
        Some(parsed.map(|on| *switch = on))
    }

    pub(super) fn entries(&self) -> Vec<ConfigEntry> {
        [
            ("filter", self.filter, "Doris filters rows (WHERE)"),
            ("limit", self.limit, "Doris cuts results off (LIMIT)"),
            ("topk", self.topk, "Doris sorts and cuts off (ORDER BY … LIMIT)"),
            ("aggregate", self.aggregate, "Doris aggregates (GROUP BY, DISTINCT, COUNT, MIN, MAX, SUM, AVG)"),
            ("join", self.join, "Doris joins its own tables below an aggregate or ORDER BY … LIMIT"),
            ("dynamic_filter", self.dynamic_filter, "Doris filters by what is learnt while the query runs"),
        ]
        .map(|(part, on, description)| ConfigEntry {
            key: format!("doris.pushdown.{part}"),
            value: Some(on.to_string()),
            description,
        })
        .into()
    }
}
