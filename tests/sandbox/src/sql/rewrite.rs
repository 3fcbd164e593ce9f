//! The parsed query, rewritten so that DataFusion's planner gives it Doris's meaning.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, DataType as SqlType, ExceptSelectItem, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, UnaryOperator, Value, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};

use super::functions::direct;
use crate::error::SqlError;
use crate::types::{DorisType, SessionZone, parse_datetime, parse_type};

/// Marks the suffix that keeps equal labels apart until the output.
pub(super) const LABEL_MARK: char = '\u{1}';

/// What a session puts in for functions without arguments.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) database: Option<String>,
    pub(super) user: String,
    pub(super) connection_id: u64,
    pub(super) version: String,
    /// Wall clock, with six digits of fraction.
    pub(super) now: String,
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
}

fn ident(name: &str) -> Ident {
    Ident::with_quote('`', name)
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: vec![] }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

fn text(value: impl Into<String>) -> Expr {
    Expr::value(Value::SingleQuotedString(value.into()))
}

fn number(value: impl ToString) -> Expr {
    Expr::value(Value::Number(value.to_string(), false))
}

fn cast(expr: Expr, ty: &str) -> Expr {
    call("__doris_cast", vec![expr, text(ty)])
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }))
}

/// A tree of ORs of logarithmic depth.
fn balanced_or(mut terms: Vec<Expr>) -> Expr {
    while terms.len() > 1 {
        let mut next = Vec::with_capacity(terms.len().div_ceil(2));
        let mut rest = terms.into_iter();
        while let Some(left) = rest.next() {
            next.push(match rest.next() {
                Some(right) => binary(left, BinaryOperator::Or, right),
                None => left,
            });
        }
        terms = next;
    }
    terms.pop().unwrap_or_else(|| Expr::value(Value::Boolean(false)))
}

/// Type text of CAST as the Doris parser reads it.
fn type_text(data_type: &SqlType) -> Result<DorisType, SqlError> {
    let printed = match data_type {
        SqlType::SignedInteger | SqlType::Signed => "BIGINT".to_owned(),
        SqlType::Character(_) | SqlType::Char(None) => "VARCHAR(65533)".to_owned(),
        SqlType::Timestamp(precision, _) => format!("DATETIME({})", precision.unwrap_or(0)),
        other => other.to_string(),
    };
    parse_type(&printed).map_err(SqlError::detail)
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(
        names: HashMap<String, String>,
        spellings: HashSet<String>,
        hidden: &'a HashMap<String, Vec<String>>,
        facts: &'a Facts,
    ) -> Self {
        Self { names, spellings, hidden, facts, session_function: false, depth: 0 }
    }

    /// Applies everything to a query.
    pub(super) fn rewrite(&mut self, query: &mut Query) -> Result<(), SqlError> {
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

    fn spell(&self, name: &mut Ident) {
        if self.spellings.contains(&name.value) {
            return;
        }
        if let Some(spelling) = self.names.get(&name.value.to_lowercase()) {
            name.value.clone_from(spelling);
        }
    }

    fn function(&mut self, function: &mut Function) -> Result<Option<Expr>, SqlError> {
        let name = function.name.to_string().replace('`', "").to_lowercase();
        if name.starts_with("__doris_") {
            return Ok(None);
        }
        let mut args: Vec<Expr> = match &function.args {
            FunctionArguments::List(list) => list
                .args
                .iter()
                .filter_map(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e.clone()),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        let arity = |n: usize| {
            if args.len() == n {
                Ok(())
            } else {
                Err(SqlError::detail(format!("Can not found function '{name}' which has {} arity", args.len())))
            }
        };
        let facts = self.facts;
        let constant = match name.as_str() {
            "database" | "schema" => Some(text(facts.database.clone().unwrap_or_default())),
            "version" => Some(text(facts.version.clone())),
            "connection_id" => Some(number(facts.connection_id)),
            "user" | "current_user" | "session_user" => Some(text(format!("'{}'@'%'", facts.user))),
            "current_catalog" => Some(text("internal")),
            _ => None,
        };
        if let Some(constant) = constant {
            self.session_function = true;
            return Ok(Some(constant));
        }
        let swapped = |mut args: Vec<Expr>| {
            args.reverse();
            args
        };
        Ok(Some(match name.as_str() {
            "now" | "current_timestamp" | "localtime" | "localtimestamp" => {
                let digits = match args.first() {
                    Some(e) => e
                        .to_string()
                        .parse::<u8>()
                        .ok()
                        .filter(|d| *d <= 6)
                        .ok_or_else(|| SqlError::detail(format!("{name} takes a precision of 0 to 6")))?,
                    None => 0,
                };
                let end = if digits == 0 { 19 } else { 20 + usize::from(digits) };
                cast(text(&facts.now[..end]), &format!("DATETIME({digits})"))
            }
            "curdate" | "current_date" => cast(text(&facts.now[..10]), "DATE"),
            "instr" => {
                arity(2)?;
                call("strpos", args)
            }
            "locate" => {
                arity(2)?;
                call("strpos", swapped(args))
            }
            "date_trunc" => {
                arity(2)?;
                call("date_trunc", swapped(args))
            }
            "substr" | "substring" | "mid" => call("__doris_substr", args),
            "from_unixtime" => call("__doris_from_unixtime", args),
            "unix_timestamp" => {
                arity(1)?;
                call("__doris_unix_timestamp", args)
            }
            "date_format" => {
                arity(2)?;
                call("__doris_date_format", args)
            }
            "date" | "to_date" => {
                arity(1)?;
                cast(args.swap_remove(0), "DATE")
            }
            "year" | "month" | "day" | "dayofmonth" | "hour" | "minute" | "second" => {
                arity(1)?;
                let part = if name == "dayofmonth" { "day" } else { name.as_str() };
                let ty = if part == "year" { "SMALLINT" } else { "TINYINT" };
                cast(call("date_part", vec![text(part), cast(args.swap_remove(0), "DATETIME(6)")]), ty)
            }
            "if" => {
                arity(3)?;
                let (otherwise, then, condition) = (args.swap_remove(2), args.swap_remove(1), args.swap_remove(0));
                Expr::Case {
                    case_token: datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
                    end_token: datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
                    operand: None,
                    conditions: vec![CaseWhen { condition, result: then }],
                    else_result: Some(Box::new(otherwise)),
                }
            }
            "array" => call("make_array", args),
            "named_struct" => call("named_struct", args),
            "concat" => {
                // NULL as soon as one argument is NULL.
                let nulls = args.iter().cloned().map(|e| Expr::IsNull(Box::new(e)));
                let Some(any) = nulls.reduce(|a, b| binary(a, BinaryOperator::Or, b)) else {
                    return Err(SqlError::detail("Can not found function 'concat' which has 0 arity"));
                };
                let texts = args.into_iter().map(|e| cast(e, "STRING")).collect();
                Expr::Case {
                    case_token: datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
                    end_token: datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
                    operand: None,
                    conditions: vec![CaseWhen { condition: any, result: Expr::value(Value::Null) }],
                    else_result: Some(Box::new(call("concat", texts))),
                }
            }
            "sum" | "avg" => {
                arity(1)?;
                let input = call(if name == "sum" { "__doris_sum_input" } else { "__doris_avg_input" }, args);
                set_args(function, vec![input]);
                function.name = ObjectName::from(vec![Ident::new(&name)]);
                return Ok(None);
            }
            "group_concat" => {
                let separator = if args.len() > 1 { args.swap_remove(1) } else { text(", ") };
                let value =
                    args.into_iter().next().ok_or_else(|| SqlError::detail("group_concat needs an argument"))?;
                set_args(function, vec![cast(value, "STRING"), separator]);
                function.name = ObjectName::from(vec![Ident::new("string_agg")]);
                return Ok(None);
            }
            _ => match direct(&name) {
                Some(target) => {
                    function.name = ObjectName::from(vec![Ident::new(target)]);
                    return Ok(None);
                }
                None => return Err(SqlError::detail(format!("Can not found function '{name}'"))),
            },
        }))
    }

    fn expr(&mut self, expr: &mut Expr) -> Result<(), SqlError> {
        let placeholder = || Expr::value(Value::Null);
        match expr {
            Expr::Identifier(name) => self.spell(name),
            Expr::CompoundIdentifier(parts) => {
                if let Some(last) = parts.last_mut() {
                    self.spell(last);
                }
            }
            Expr::Function(function) => {
                if let Some(replaced) = self.function(function)? {
                    *expr = replaced;
                }
            }
            Expr::Cast { expr: inner, data_type, .. } => {
                let ty = type_text(data_type)?;
                let inner = std::mem::replace(inner.as_mut(), placeholder());
                *expr = cast(inner, &ty.to_string());
            }
            Expr::Convert { .. } => return Err(SqlError::not_served("CONVERT")),
            Expr::TypedString(typed) => {
                let value = typed.value.value.clone().into_string().unwrap_or_default();
                let date = matches!(typed.data_type, SqlType::Date);
                if parse_datetime(&value, 6, &SessionZone::UTC).is_none() {
                    return Err(SqlError::detail(format!("date/datetime literal [{value}] is invalid")));
                }
                let digits = value.rsplit_once('.').map_or(0, |(_, f)| f.len().min(6));
                *expr = cast(text(value), &if date { "DATE".to_owned() } else { format!("DATETIME({digits})") });
            }
            Expr::Between { expr: inner, negated, low, high } => {
                let value = std::mem::replace(inner.as_mut(), placeholder());
                let low = std::mem::replace(low.as_mut(), placeholder());
                let high = std::mem::replace(high.as_mut(), placeholder());
                let inside = binary(
                    binary(value.clone(), BinaryOperator::GtEq, low),
                    BinaryOperator::And,
                    binary(value, BinaryOperator::LtEq, high),
                );
                *expr = if *negated {
                    Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(inside) }))
                } else {
                    inside
                };
            }
            Expr::InList { expr: inner, list, negated } => {
                // Each comparison converts as `=` does; bare numbers need no conversion.
                let bare = |e: &Expr| matches!(e, Expr::Value(v) if matches!(v.value, Value::Number(..)));
                if list.iter().all(bare) || list.is_empty() {
                    return Ok(());
                }
                let value = std::mem::replace(inner.as_mut(), placeholder());
                let equal = |item: Expr| binary(value.clone(), BinaryOperator::Eq, item);
                let any = balanced_or(std::mem::take(list).into_iter().map(equal).collect());
                *expr = if *negated {
                    Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(any) }))
                } else {
                    any
                };
            }
            Expr::RLike { negated, expr: inner, pattern, .. } => {
                let value = std::mem::replace(inner.as_mut(), placeholder());
                let pattern = std::mem::replace(pattern.as_mut(), placeholder());
                let found = call("regexp_like", vec![value, pattern]);
                *expr = if *negated {
                    Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(found) }))
                } else {
                    found
                };
            }
            Expr::Substring { expr: inner, substring_from, substring_for, .. } => {
                let value = std::mem::replace(inner.as_mut(), placeholder());
                let mut args = vec![value];
                args.push(substring_from.take().map_or_else(|| number(1), |e| *e));
                if let Some(length) = substring_for.take() {
                    args.push(*length);
                }
                *expr = call("__doris_substr", args);
            }
            Expr::ILike { .. } | Expr::SimilarTo { .. } | Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => {
                return Err(SqlError::syntax(format!("mismatched input at `{expr}`")));
            }
            _ => {}
        }
        Ok(())
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

fn set_args(function: &mut Function, values: Vec<Expr>) {
    let args = values.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect();
    match &mut function.args {
        FunctionArguments::List(list) => list.args = args,
        other => {
            *other = FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: vec![] });
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

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
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

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match self.expr(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Labels unnamed outputs with their text, keeps equal labels apart, and gives bare integer literals their smallest type.
fn label_outputs(body: &mut SetExpr) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { left, .. } => return label_outputs(left),
        _ => return,
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    for item in &mut select.projection {
        let (mut expr, label) = match item {
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
        let repeated = *count > 1;
        let plain = matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)));
        if let Expr::Value(value) = &expr
            && let Value::Number(digits, _) = &value.value
            && let Ok(value) = digits.parse::<i64>()
        {
            let ty = match value {
                v if i8::try_from(v).is_ok() => "TINYINT",
                v if i16::try_from(v).is_ok() => "SMALLINT",
                v if i32::try_from(v).is_ok() => "INT",
                _ => "BIGINT",
            };
            expr = cast(expr, ty);
        } else if plain && !repeated {
            continue;
        }
        let name = if repeated { format!("{label}{LABEL_MARK}{count}") } else { label };
        *item = SelectItem::ExprWithAlias { expr, alias: ident(&name) };
    }
}
