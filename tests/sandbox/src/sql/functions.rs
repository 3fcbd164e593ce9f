//! Which functions exist, and under which DataFusion function each runs. What is not listed does not exist.

use std::sync::{Arc, OnceLock};

use datafusion::execution::SessionStateDefaults;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::prelude::SessionConfig;

use super::env::Env;
use super::planner::operators;
use super::udf::{self, Arithmetic, TimeKind};
use crate::types::{civil_from_days, format_datetime};

/// Doris name, then the name of the DataFusion function with the same meaning and argument order.
const DIRECT: &[(&str, &str)] = &[
    ("abs", "abs"),
    ("acos", "acos"),
    ("approx_count_distinct", "approx_distinct"),
    ("array_agg", "array_agg"),
    ("array_contains", "array_has"),
    ("array_size", "array_length"),
    ("ascii", "ascii"),
    ("asin", "asin"),
    ("atan", "atan"),
    ("avg", "avg"),
    ("bit_length", "bit_length"),
    ("bool_and", "bool_and"),
    ("bool_or", "bool_or"),
    ("ceil", "ceil"),
    ("ceiling", "ceil"),
    ("char_length", "character_length"),
    ("character_length", "character_length"),
    ("coalesce", "coalesce"),
    ("concat", "concat"),
    ("concat_ws", "concat_ws"),
    ("cos", "cos"),
    ("count", "count"),
    ("dense_rank", "dense_rank"),
    ("ends_with", "ends_with"),
    ("exp", "exp"),
    ("first_value", "first_value"),
    ("floor", "floor"),
    ("group_bit_and", "bit_and"),
    ("group_bit_or", "bit_or"),
    ("group_bit_xor", "bit_xor"),
    ("ifnull", "coalesce"),
    ("initcap", "initcap"),
    ("lag", "lag"),
    ("last_value", "last_value"),
    ("lcase", "lower"),
    ("lead", "lead"),
    ("left", "left"),
    ("length", "octet_length"),
    ("ln", "ln"),
    ("log10", "log10"),
    ("log2", "log2"),
    ("lower", "lower"),
    ("lpad", "lpad"),
    ("ltrim", "ltrim"),
    ("max", "max"),
    ("min", "min"),
    ("ndv", "approx_distinct"),
    ("ntile", "ntile"),
    ("nullif", "nullif"),
    ("nvl", "coalesce"),
    ("pow", "power"),
    ("power", "power"),
    ("rank", "rank"),
    ("regexp", "regexp_like"),
    ("repeat", "repeat"),
    ("replace", "replace"),
    ("reverse", "reverse"),
    ("right", "right"),
    ("round", "round"),
    ("row_number", "row_number"),
    ("rpad", "rpad"),
    ("rtrim", "rtrim"),
    ("sign", "signum"),
    ("sin", "sin"),
    ("size", "array_length"),
    ("split_part", "split_part"),
    ("sqrt", "sqrt"),
    ("starts_with", "starts_with"),
    ("stddev", "stddev_pop"),
    ("stddev_pop", "stddev_pop"),
    ("stddev_samp", "stddev"),
    ("strleft", "left"),
    ("strright", "right"),
    ("sum", "sum"),
    ("tan", "tan"),
    ("trim", "btrim"),
    ("ucase", "upper"),
    ("upper", "upper"),
    ("var_pop", "var_pop"),
    ("var_samp", "var"),
    ("variance", "var_pop"),
    ("variance_samp", "var"),
];

/// DataFusion's name for a Doris function that needs no more than another name.
pub(super) fn direct(name: &str) -> Option<&'static str> {
    DIRECT.binary_search_by(|(doris, _)| (*doris).cmp(name)).ok().map(|i| DIRECT[i].1)
}

/// DataFusion functions that rewrites call beside the direct ones.
const INTERNAL: &[&str] =
    &["strpos", "date_trunc", "date_part", "regexp_like", "string_agg", "make_array", "named_struct", "get_field"];

fn wanted(name: &str) -> bool {
    DIRECT.iter().any(|(_, known)| *known == name) || INTERNAL.contains(&name)
}

/// A state with exactly the functions above. Time functions depend on the zone and are added per statement.
fn base() -> &'static SessionState {
    static BASE: OnceLock<SessionState> = OnceLock::new();
    BASE.get_or_init(|| {
        let keep = |names: Vec<&str>| names.into_iter().any(wanted);
        let mut scalars: Vec<_> = SessionStateDefaults::default_scalar_functions()
            .into_iter()
            .filter(|f| keep(std::iter::once(f.name()).chain(f.aliases().iter().map(String::as_str)).collect()))
            .collect();
        scalars.extend(
            [
                udf::cast(),
                udf::arithmetic(Arithmetic::Divide),
                udf::arithmetic(Arithmetic::Modulo),
                udf::arithmetic(Arithmetic::IntDivide),
                udf::aggregate_input(false),
                udf::aggregate_input(true),
                udf::substr_function(),
            ]
            .map(Arc::new),
        );
        let aggregates = SessionStateDefaults::default_aggregate_functions()
            .into_iter()
            .filter(|f| keep(std::iter::once(f.name()).chain(f.aliases().iter().map(String::as_str)).collect()))
            .collect();
        let windows = SessionStateDefaults::default_window_functions()
            .into_iter()
            .filter(|f| keep(std::iter::once(f.name()).chain(f.aliases().iter().map(String::as_str)).collect()))
            .collect();
        let mut planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(operators())];
        planners.extend(SessionStateDefaults::default_expr_planners());
        SessionStateBuilder::new()
            .with_scalar_functions(scalars)
            .with_aggregate_functions(aggregates)
            .with_window_functions(windows)
            .with_expr_planners(planners)
            .build()
    })
}

/// Configuration with Doris's parsing rules and NULL order.
fn config(database: &str) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema("internal", database)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(false)
        .with_target_partitions(2);
    let options = config.options_mut();
    options.sql_parser.enable_ident_normalization = false;
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.default_null_ordering = "nulls_min".to_owned();
    config
}

/// The state in which a statement is planned.
pub(super) fn state(database: &str, env: &Env) -> SessionState {
    let mut scalars: Vec<_> = base().scalar_functions().values().cloned().collect();
    for kind in [TimeKind::FromUnixtime, TimeKind::UnixTimestamp, TimeKind::DateFormat] {
        scalars.push(Arc::new(udf::time_function(kind, &env.zone)));
    }
    SessionStateBuilder::new_from_existing(base().clone())
        .with_config(config(database))
        .with_catalog_list(Arc::new(datafusion::catalog::MemoryCatalogProviderList::new()))
        .with_scalar_functions(scalars)
        .build()
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// MySQL's `date_format` over microseconds of a wall clock.
pub(super) fn date_format(micros: i64, format: &str) -> String {
    let text = format_datetime(micros, 6);
    let days = micros.div_euclid(86_400_000_000);
    let (year, month, day) = civil_from_days(days);
    let hour: u32 = text[11..13].parse().unwrap_or(0);
    let hour12 = if hour.is_multiple_of(12) { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out.push_str(&format!("{year:04}")),
            Some('y') => out.push_str(&format!("{:02}", year % 100)),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('c') => out.push_str(&month.to_string()),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('e') => out.push_str(&day.to_string()),
            Some('H') => out.push_str(&text[11..13]),
            Some('k') => out.push_str(&hour.to_string()),
            Some('h' | 'I') => out.push_str(&format!("{hour12:02}")),
            Some('l') => out.push_str(&hour12.to_string()),
            Some('i') => out.push_str(&text[14..16]),
            Some('s' | 'S') => out.push_str(&text[17..19]),
            Some('f') => out.push_str(&text[20..26]),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('T') => out.push_str(&text[11..19]),
            Some('r') => out.push_str(&format!("{hour12:02}{} {}", &text[13..19], if hour < 12 { "AM" } else { "PM" })),
            Some('M') => out.push_str(MONTHS[(month - 1) as usize]),
            Some('b') => out.push_str(&MONTHS[(month - 1) as usize][..3]),
            Some('W') => out.push_str(DAYS[(days + 4).rem_euclid(7) as usize]),
            Some('a') => out.push_str(&DAYS[(days + 4).rem_euclid(7) as usize][..3]),
            Some('w') => out.push_str(&(days + 4).rem_euclid(7).to_string()),
            Some(other) => out.push(other),
            None => out.push('%'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_for_the_search() {
        assert!(DIRECT.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(direct("length"), Some("octet_length"));
        assert_eq!(direct("nope"), None);
    }

    #[test]
    fn date_format_prints_each_part() {
        let micros = 1_704_067_199_123_456; // 2023-12-31 23:59:59.123456, a Sunday
        assert_eq!(date_format(micros, "%Y-%m-%d %H:%i:%s.%f"), "2023-12-31 23:59:59.123456");
        assert_eq!(date_format(micros, "%W %M %e %l:%i %p %%"), "Sunday December 31 11:59 PM %");
    }
}
