//! Calls of functions.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident,
    ObjectName, OrderByExpr, WindowFrameBound, WindowType,
};

use super::Rewriter;
use super::ast::{args, args_of, call, case, cast, make_truth, number, restore_number, set_args, text};
use super::exprs::{bare, shift};
use crate::error::SqlError;
use crate::sql::functions::row::{Def, arity, class, inner_name};
use crate::sql::functions::{Found, find};

fn unknown(name: &str, count: usize) -> SqlError {
    SqlError::detail(format!("Can not found function '{name}' which has {count} arity"))
}

/// The name as written, without quotes, in lower case.
fn plain(function: &Function) -> String {
    function.name.to_string().replace('`', "").to_lowercase()
}

fn rename(function: &mut Function, name: &str) {
    function.name = ObjectName::from(vec![Ident::new(name)]);
}

/// Frames take bare numbers.
fn restore_frame(function: &mut Function) {
    let Some(WindowType::WindowSpec(spec)) = &mut function.over else { return };
    let Some(frame) = &mut spec.window_frame else { return };
    let bounds = std::iter::once(&mut frame.start_bound).chain(frame.end_bound.as_mut());
    for bound in bounds {
        if let WindowFrameBound::Preceding(Some(rows)) | WindowFrameBound::Following(Some(rows)) = bound {
            restore_number(rows);
        }
    }
}

/// Sort keys of an aggregate's own ORDER BY as arguments: key, then the way.
fn sort_keys(order_by: &[OrderByExpr]) -> Vec<Expr> {
    let key = |by: &OrderByExpr| [by.expr.clone(), text(if by.options.asc == Some(false) { "desc" } else { "asc" })];
    order_by.iter().flat_map(key).collect()
}

/// The clauses inside the parentheses of an aggregate.
#[derive(Default)]
struct Clauses {
    order_by: Vec<OrderByExpr>,
    separator: Option<String>,
}

fn clauses(function: &Function) -> Result<Clauses, SqlError> {
    let mut out = Clauses::default();
    let FunctionArguments::List(list) = &function.args else { return Ok(out) };
    for clause in &list.clauses {
        match clause {
            FunctionArgumentClause::OrderBy(by) => out.order_by.clone_from(by),
            FunctionArgumentClause::Separator(value) => {
                out.separator = value.value.clone().into_string();
            }
            other => return Err(SqlError::syntax(format!("mismatched input '{other}'"))),
        }
    }
    Ok(out)
}

fn distinct(function: &Function) -> bool {
    matches!(&function.args, FunctionArguments::List(list) if list.duplicate_treatment == Some(DuplicateTreatment::Distinct))
}

impl Rewriter<'_> {
    /// Units stand where expressions stand, but are no columns.
    pub(super) fn before_call(&mut self, function: &mut Function) {
        if !matches!(plain(function).as_str(), "timestampdiff" | "timestampadd") {
            return;
        }
        if let FunctionArguments::List(list) = &mut function.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = list.args.first_mut()
            && let Expr::Identifier(unit) = first
        {
            *first = text(unit.value.to_ascii_uppercase());
        }
    }

    /// What replaces a call; `None` when it was changed in place.
    pub(super) fn function(&mut self, function: &mut Function) -> Result<Option<Expr>, SqlError> {
        let name = plain(function);
        if name.starts_with("__doris_") || name == "regexp_like" && args(function).len() == 2 && is_rewritten(function)
        {
            return Ok(None);
        }
        restore_frame(function);
        let given = args(function);
        if let Some(replaced) = self.session_call(&name, &given)? {
            return Ok(Some(replaced));
        }
        if let Some(replaced) = self.special_call(&name, given.clone())? {
            return Ok(Some(replaced));
        }
        match find(&name) {
            Some(Found::Row(def)) => row_call(function, &name, def, given).map(|()| None),
            Some(Found::Fold(def)) => fold_call(function, &name, def.names, def.args, given).map(|()| None),
            Some(Found::Direct(target, ty)) => direct_call(function, &name, target, ty, given).map(|()| None),
            Some(Found::NotServed) => Err(SqlError::not_served(format!("function {name}"))),
            None => Err(SqlError::detail(format!("Can not found function '{name}'"))),
        }
    }

    /// Functions whose value the session knows.
    fn session_call(&mut self, name: &str, given: &[Expr]) -> Result<Option<Expr>, SqlError> {
        let facts = self.facts;
        let constant = match name {
            "database" | "schema" => text(facts.database.clone().unwrap_or_default()),
            "version" => text(facts.version.clone()),
            "connection_id" => number(facts.connection_id),
            "user" | "current_user" | "session_user" => text(format!("'{}'@'%'", facts.user)),
            "current_catalog" => text("internal"),
            "now" | "current_timestamp" | "localtime" | "localtimestamp" | "utc_timestamp" => {
                let digits = match given.first() {
                    Some(e) => super::ast::written_number(e)
                        .and_then(|digits| digits.parse::<u8>().ok())
                        .filter(|d| *d <= 6)
                        .ok_or_else(|| SqlError::detail(format!("{name} takes a precision of 0 to 6")))?,
                    None => 0,
                };
                let end = if digits == 0 { 19 } else { 20 + usize::from(digits) };
                let now = if name == "utc_timestamp" { &facts.utc_now } else { &facts.now };
                return Ok(Some(cast(text(&now[..end]), &format!("DATETIME({digits})"))));
            }
            "curdate" | "current_date" => return Ok(Some(cast(text(&facts.now[..10]), "DATE"))),
            "utc_date" => return Ok(Some(cast(text(&facts.utc_now[..10]), "DATE"))),
            "curtime" | "current_time" => return Ok(Some(cast(text(&facts.now[11..19]), "TIME"))),
            "unix_timestamp" if given.is_empty() => return Ok(Some(number(facts.epoch_seconds))),
            _ => return Ok(None),
        };
        self.session_function = true;
        Ok(Some(constant))
    }

    /// Calls that are other expressions.
    fn special_call(&mut self, name: &str, mut given: Vec<Expr>) -> Result<Option<Expr>, SqlError> {
        let count = given.len();
        Ok(Some(match name {
            "if" => {
                let [condition, then, otherwise] = three(name, given)?;
                let mut condition = condition;
                make_truth(&mut condition);
                case(condition, then, otherwise)
            }
            "date_add" | "adddate" | "date_sub" | "subdate" => {
                if count != 2 {
                    return Err(unknown(name, count));
                }
                let minus = name.contains("sub");
                let amount = given.remove(1);
                // A number alone counts days.
                let interval = args_of(&amount, "__doris_interval").unwrap_or_else(|| vec![amount, text("DAY")]);
                shift(given.remove(0), interval, minus)
            }
            "timestampadd" => {
                let [unit, amount, date] = three(name, given)?;
                shift(date, vec![amount, unit], false)
            }
            "date_trunc" => {
                if count != 2 {
                    return Err(unknown(name, count));
                }
                call("__doris_date_trunc", given)
            }
            "regexp" | "regexp_like" | "rlike" => {
                if count != 2 {
                    return Err(unknown(name, count));
                }
                call("regexp_like", given.into_iter().map(|e| cast(e, "STRING")).collect())
            }
            "array" if count == 0 => call("__doris_empty_array", vec![]),
            "map" if count == 0 => call("__doris_empty_map", vec![]),
            "isnotnull" | "is_not_null_pred" => {
                call("__doris_truth", vec![Expr::IsNotNull(Box::new(only(name, given)?))])
            }
            _ => return Ok(None),
        }))
    }
}

/// A pattern match that a rewrite made has casts for arguments.
fn is_rewritten(function: &Function) -> bool {
    args(function).iter().all(|e| args_of(e, "__doris_cast").is_some())
}

fn only(name: &str, mut given: Vec<Expr>) -> Result<Expr, SqlError> {
    if given.len() == 1 { Ok(given.remove(0)) } else { Err(unknown(name, given.len())) }
}

fn three(name: &str, given: Vec<Expr>) -> Result<[Expr; 3], SqlError> {
    let count = given.len();
    given.try_into().map_err(|_| unknown(name, count))
}

fn row_call(function: &mut Function, name: &str, def: &Def, given: Vec<Expr>) -> Result<(), SqlError> {
    let (least, most) = def.arity();
    if !(least..=most).contains(&given.len()) {
        return Err(unknown(name, given.len()));
    }
    if function.over.is_some() || distinct(function) || function.filter.is_some() {
        return Err(SqlError::detail(format!("{name} is not an aggregate function")));
    }
    // Where the type is fixed the planner sees the number itself, which some result types depend on.
    let plain_number = |i: usize| {
        matches!(class(def.args, i), 'i' | 'L' | 'f' | 't' | 's') || (def.names == "struct_element" && i == 1)
    };
    let values = given.into_iter().enumerate().map(|(i, e)| if plain_number(i) { bare(e) } else { e }).collect();
    set_args(function, values);
    rename(function, &def.inner_name());
    Ok(())
}

fn fold_call(
    function: &mut Function,
    name: &str,
    names: &str,
    specification: &str,
    given: Vec<Expr>,
) -> Result<(), SqlError> {
    let Clauses { order_by, separator } = clauses(function)?;
    let count = given.len();
    let mut values = given;
    match names.split(' ').next().unwrap_or_default() {
        "group_concat" => {
            if !(1..=2).contains(&count) {
                return Err(unknown(name, count));
            }
            if values.len() < 2 {
                values.push(text(separator.unwrap_or_else(|| ", ".to_owned())));
            }
            values.extend(sort_keys(&order_by));
        }
        "array_agg" | "collect_list" => {
            if count != 1 {
                return Err(unknown(name, count));
            }
            values.extend(sort_keys(&order_by));
        }
        "collect_set" if count == 1 => {}
        "percentile" => {
            // The third argument of the approximate form sets its precision.
            if !(2..=3).contains(&count) {
                return Err(unknown(name, count));
            }
            values.truncate(2);
        }
        _ => {
            let (least, most) = arity(specification);
            if !(least..=most).contains(&count) {
                return Err(unknown(name, count));
            }
        }
    }
    set_args(function, values);
    rename(function, &inner_name(names));
    Ok(())
}

fn direct_call(
    function: &mut Function,
    name: &str,
    target: &str,
    ty: Option<&str>,
    given: Vec<Expr>,
) -> Result<(), SqlError> {
    rename(function, target);
    if let Some(ty) = ty {
        if given.is_empty() {
            return Err(unknown(name, 0));
        }
        set_args(function, given.into_iter().map(|e| cast(e, ty)).collect());
        return Ok(());
    }
    match name {
        "count" if distinct(function) => {
            if given.is_empty() {
                return Err(unknown(name, 0));
            }
            let key = if given.len() == 1 { "__doris_key" } else { "__doris_count_key" };
            set_args(function, vec![call(key, given)]);
        }
        "count" if given.len() > 1 => return Err(unknown(name, given.len())),
        // Offsets, bucket numbers and defaults are read as they are written.
        "lag" | "lead" | "ntile" | "nth_value" => {
            let first = usize::from(name != "ntile");
            let values = given.into_iter().enumerate().map(|(i, e)| if i >= first { bare(e) } else { e }).collect();
            set_args(function, values);
        }
        _ => {}
    }
    Ok(())
}
