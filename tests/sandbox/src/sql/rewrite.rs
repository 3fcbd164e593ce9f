//! The parsed query, rewritten so that the executor's planner gives it Doris's meaning.

mod ast;
mod calls;
mod exprs;
mod size;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, Expr, GroupByExpr, Ident, LimitClause, ObjectName, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use self::ast::{ident, restore_number};
use crate::error::SqlError;

/// Marks the suffix that keeps equal labels apart until the output.
pub(super) const LABEL_MARK: char = '\u{1}';
/// Marks the label of an expression that has no alias.
pub(super) const ANONYMOUS_MARK: char = '\u{2}';

/// What a session puts in for functions without arguments.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) database: Option<String>,
    pub(super) user: String,
    pub(super) connection_id: u64,
    pub(super) version: String,
    /// Wall clock, with six digits of fraction.
    pub(super) now: String,
    /// `LIKE ... ESCAPE` is known to the build.
    pub(super) like_escape: bool,
    /// Decimals may have 76 digits.
    pub(super) decimal256: bool,
    /// Seconds since the epoch.
    pub(super) epoch_seconds: i64,
    /// Wall clock in UTC, with six digits of fraction.
    pub(super) utc_now: String,
}

/// Rewrites expressions; the first refusal ends the visit.
pub(super) struct Rewriter<'a> {
    /// Lower-case column and alias names to their spelling.
    pub(super) names: HashMap<String, String>,
    /// All spellings.
    pub(super) spellings: HashSet<String>,
    /// Hidden columns that `*` of a relation leaves out, by the relation's name in the text.
    pub(super) hidden: &'a HashMap<String, Vec<String>>,
    pub(super) facts: &'a Facts,
    /// A session function was replaced: the FE answers.
    pub(super) session_function: bool,
    /// Queries around the one that is visited, with it.
    depth: usize,
    /// Expressions that were written more than once, counted by their parts.
    copied: usize,
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(
        names: HashMap<String, String>,
        spellings: HashSet<String>,
        hidden: &'a HashMap<String, Vec<String>>,
        facts: &'a Facts,
    ) -> Self {
        Self { names, spellings, hidden, facts, session_function: false, depth: 0, copied: 0 }
    }

    /// Applies everything to a query.
    pub(super) fn rewrite(&mut self, query: &mut Query) -> Result<(), SqlError> {
        size::check_query(query)?;
        label_outputs(&mut query.body);
        match query.visit(self) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// An alias that differs from a known name in case only would hide it. Inside, the alias takes the known spelling;
    /// outside it is what the client sees, and names go on meaning the column.
    fn alias(&mut self, alias: &mut Ident) {
        let known = self.names.entry(alias.value.to_lowercase()).or_insert_with(|| alias.value.clone());
        if *known == alias.value {
            self.spellings.insert(alias.value.clone());
        } else if self.depth > 1 {
            alias.value.clone_from(known);
        }
    }

    /// Applies everything to an expression outside a query.
    pub(super) fn rewrite_expr(&mut self, expr: &mut Expr) -> Result<(), SqlError> {
        size::check_expr(expr)?;
        match expr.visit(self) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    fn spell(&self, name: &mut Ident) {
        if self.spellings.contains(&name.value) {
            return;
        }
        if let Some(spelling) = self.names.get(&name.value.to_lowercase()) {
            name.value.clone_from(spelling);
        }
    }

    fn wildcard(&self, select: &mut Select) {
        let mut of_relation: Vec<(String, &Vec<String>)> = Vec::new();
        for from in &select.from {
            for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation)) {
                if let TableFactor::Table { name, alias, .. } = factor
                    && let Some(hidden) = self.hidden.get(&plain_name(name))
                {
                    let shown = alias.as_ref().map_or_else(|| plain_name(name), |a| a.name.value.clone());
                    of_relation.push((shown, hidden));
                }
            }
        }
        for item in &mut select.projection {
            let (options, hidden): (&mut WildcardAdditionalOptions, Vec<String>) = match item {
                SelectItem::Wildcard(options) => {
                    (options, of_relation.iter().flat_map(|(_, hidden)| hidden.iter().cloned()).collect())
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    let qualifier = plain_name(name);
                    let of = of_relation.iter().filter(|(shown, _)| shown.ends_with(&qualifier));
                    (options, of.flat_map(|(_, hidden)| hidden.iter().cloned()).collect())
                }
                _ => continue,
            };
            let mut names: Vec<Ident> = hidden.iter().map(|name| ident(name)).collect();
            if let Some(except) = options.opt_except.take() {
                names.push(except.first_element);
                names.extend(except.additional_elements);
            }
            if !names.is_empty() {
                let first_element = names.remove(0);
                options.opt_except = Some(ExceptSelectItem { first_element, additional_elements: names });
            }
        }
    }
}

/// A name without quotes, parts joined by dots.
pub(super) fn plain_name(name: &ObjectName) -> String {
    let parts: Vec<String> = name.0.iter().filter_map(|p| p.as_ident().map(|i| i.value.clone())).collect();
    parts.join(".")
}

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        for item in &mut select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.alias(alias);
            }
        }
        self.wildcard(select);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        // Numbers are positions here.
        if let GroupByExpr::Expressions(exprs, _) = &mut select.group_by {
            exprs.iter_mut().for_each(restore_number);
        }
        for condition in [&mut select.selection, &mut select.having].into_iter().flatten() {
            ast::make_truth(condition);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        if let Some(order_by) = &mut query.order_by
            && let OrderByKind::Expressions(exprs) = &mut order_by.kind
        {
            exprs.iter_mut().for_each(|by| restore_number(&mut by.expr));
        }
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                limit.iter_mut().for_each(restore_number);
                offset.iter_mut().for_each(|offset| restore_number(&mut offset.value));
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
                restore_number(offset);
                restore_number(limit);
            }
            None => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match self.before(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match self.expr(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Labels unnamed outputs with their text and keeps equal labels apart.
fn label_outputs(body: &mut SetExpr) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { left, .. } => return label_outputs(left),
        _ => return,
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    // What `*` gives is not known here: it may hold any name.
    let beside_all = select
        .projection
        .iter()
        .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    for item in &mut select.projection {
        let (expr, label) = match item {
            SelectItem::UnnamedExpr(expr) => {
                let label = match &*expr {
                    Expr::Identifier(name) => name.value.clone(),
                    Expr::CompoundIdentifier(parts) => parts.last().map(|p| p.value.clone()).unwrap_or_default(),
                    Expr::Value(value) => value.value.clone().into_string().unwrap_or_else(|| expr.to_string()),
                    other => other.to_string().replace('`', ""),
                };
                (expr.clone(), label)
            }
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), alias.value.clone()),
            _ => continue,
        };
        let count = seen.entry(label.to_lowercase()).or_insert(0);
        *count += 1;
        let plain = matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)));
        let repeated = *count > 1 || (plain && beside_all);
        let anonymous = matches!(item, SelectItem::UnnamedExpr(_)) && !plain;
        if plain && !repeated {
            continue;
        }
        let mut name = if repeated { format!("{label}{LABEL_MARK}{count}") } else { label };
        if anonymous {
            name.push(ANONYMOUS_MARK);
        }
        *item = SelectItem::ExprWithAlias { expr, alias: ident(&name) };
    }
}
