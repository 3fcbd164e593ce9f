//! Pieces of syntax trees.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, ObjectName, UnaryOperator, Value,
};

pub(super) fn ident(name: &str) -> Ident {
    Ident::with_quote('`', name)
}

pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
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

pub(super) fn text(value: impl Into<String>) -> Expr {
    Expr::value(Value::SingleQuotedString(value.into()))
}

/// A number with the type of a literal.
pub(super) fn number(value: impl ToString) -> Expr {
    call("__doris_number", vec![text(value.to_string())])
}

/// A number for the planner.
pub(super) fn bare_number(value: impl ToString) -> Expr {
    Expr::value(Value::Number(value.to_string(), false))
}

pub(super) fn cast(expr: Expr, ty: &str) -> Expr {
    call("__doris_cast", vec![expr, text(ty)])
}

pub(super) fn null() -> Expr {
    Expr::value(Value::Null)
}

pub(super) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }))
}

pub(super) fn not(expr: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }))
}

pub(super) fn negated(expr: Expr, negated: bool) -> Expr {
    if negated { not(expr) } else { expr }
}

pub(super) fn case(condition: Expr, then: Expr, otherwise: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result: then }],
        else_result: Some(Box::new(otherwise)),
    }
}

/// Takes an expression out of its place.
pub(super) fn take(place: &mut Expr) -> Expr {
    std::mem::replace(place, null())
}

/// Arguments of a call by name; `None` for anything else.
pub(super) fn args_of(expr: &Expr, name: &str) -> Option<Vec<Expr>> {
    let Expr::Function(function) = expr else { return None };
    if function.name.to_string() != name {
        return None;
    }
    Some(args(function))
}

/// The positional arguments of a call.
pub(super) fn args(function: &Function) -> Vec<Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let expr = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e.clone()),
        _ => None,
    };
    list.args.iter().filter_map(expr).collect()
}

pub(super) fn set_args(function: &mut Function, values: Vec<Expr>) {
    let args = values.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect();
    match &mut function.args {
        FunctionArguments::List(list) => {
            list.args = args;
            list.clauses.clear();
        }
        other => {
            *other = FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: vec![] });
        }
    }
}

/// The digits of a number with the type of a literal.
pub(super) fn written_number(expr: &Expr) -> Option<String> {
    match args_of(expr, "__doris_number")?.first() {
        Some(Expr::Value(value)) => value.value.clone().into_string(),
        _ => None,
    }
}

/// Where the planner wants a bare number, it gets one.
pub(super) fn restore_number(expr: &mut Expr) {
    if let Some(digits) = written_number(expr) {
        *expr = bare_number(digits);
    }
}

/// Whether an expression can only be a truth value.
fn is_truth(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_truth(inner),
        Expr::BinaryOp { op, .. } => matches!(
            op,
            BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
                | BinaryOperator::Spaceship
                | BinaryOperator::And
                | BinaryOperator::Or
                | BinaryOperator::Xor
        ),
        Expr::UnaryOp { op: UnaryOperator::Not, .. }
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::InSubquery { .. }
        | Expr::Exists { .. }
        | Expr::InList { .. } => true,
        Expr::Value(value) => matches!(value.value, Value::Boolean(_)),
        Expr::Function(function) => {
            matches!(
                function.name.to_string().as_str(),
                "__doris_in" | "__doris_like" | "__doris_truth" | "__doris_xor" | "regexp_like"
            )
        }
        _ => false,
    }
}

/// Converts what need not be a truth value.
pub(super) fn make_truth(expr: &mut Expr) {
    if !is_truth(expr) {
        let inner = take(expr);
        *expr = call("__doris_truth", vec![inner]);
    }
}
