//! Which functions exist, and what runs them. What is not listed does not exist.

mod aggregate;
mod aggregates;
mod arith;
mod bitmap;
pub(super) mod cast;
mod digest;
mod gather;
mod json;
mod literal;
mod logic;
mod math;
mod nested;
pub(super) mod row;
mod string;
mod time;
mod time_format;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use datafusion::execution::SessionStateDefaults;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::prelude::SessionConfig;

use super::env::Env;
use super::planner::operators;
use aggregate::AggDef;
use row::Def;

/// Doris name, then the name of the executor's function with the same meaning, and the type its arguments take.
const DIRECT: &[(&str, &str, Option<&str>)] = &[
    ("bool_and", "bool_and", Some("BOOLEAN")),
    ("bool_or", "bool_or", Some("BOOLEAN")),
    ("corr", "corr", Some("DOUBLE")),
    ("count", "count", None),
    ("covar", "covar_pop", Some("DOUBLE")),
    ("covar_pop", "covar_pop", Some("DOUBLE")),
    ("covar_samp", "covar_samp", Some("DOUBLE")),
    ("cume_dist", "cume_dist", None),
    ("dense_rank", "dense_rank", None),
    ("first_value", "first_value", None),
    ("lag", "lag", None),
    ("last_value", "last_value", None),
    ("lead", "lead", None),
    ("nth_value", "nth_value", None),
    ("ntile", "ntile", None),
    ("percent_rank", "percent_rank", None),
    ("rank", "rank", None),
    ("regexp", "regexp_like", Some("STRING")),
    ("row_number", "row_number", None),
    ("stddev", "stddev_pop", Some("DOUBLE")),
    ("stddev_pop", "stddev_pop", Some("DOUBLE")),
    ("stddev_samp", "stddev", Some("DOUBLE")),
    ("var_pop", "var_pop", Some("DOUBLE")),
    ("var_samp", "var", Some("DOUBLE")),
    ("variance", "var_pop", Some("DOUBLE")),
    ("variance_pop", "var_pop", Some("DOUBLE")),
    ("variance_samp", "var", Some("DOUBLE")),
];

/// Functions of Doris that the sandbox has not.
const NOT_SERVED: &[&str] = &[
    "array_apply",
    "array_count",
    "array_cum_sum",
    "array_difference",
    "array_enumerate",
    "array_exists",
    "array_filter",
    "array_first",
    "array_last",
    "array_map",
    "array_product",
    "array_shuffle",
    "array_sortby",
    "array_zip",
    "bitmap_remove",
    "convert_to",
    "decode_as_varchar",
    "domain",
    "encode_as_bigint",
    "explode",
    "explode_json_array_int",
    "explode_split",
    "extract_url_parameter",
    "format_number",
    "hll_from_base64_to",
    "histogram",
    "json_insert",
    "json_replace",
    "json_set",
    "levenshtein",
    "linear_histogram",
    "lambda",
    "mask",
    "multi_distinct_count",
    "multi_distinct_sum",
    "multi_search_all_positions",
    "ngram_search",
    "numbers",
    "parse_url",
    "quantile_percent",
    "quantile_union",
    "regexp_count",
    "regexp_extract",
    "regexp_extract_all",
    "regexp_replace",
    "regexp_replace_one",
    "retention",
    "running_difference",
    "sequence_count",
    "sequence_match",
    "sleep",
    "sm3",
    "sm4_decrypt",
    "sm4_encrypt",
    "aes_decrypt",
    "aes_encrypt",
    "soundex",
    "st_astext",
    "st_point",
    "split_by_regexp",
    "to_quantile_state",
    "topn",
    "topn_array",
    "tokenize",
    "url_decode",
    "url_encode",
    "window_funnel",
    "xpath_string",
    "xxhash_32",
    "xxhash_64",
    "murmur_hash3_32",
    "murmur_hash3_64",
];

/// What a name of a function stands for.
pub(super) enum Found {
    /// A function of rows.
    Row(&'static Def),
    /// A function that folds rows.
    Fold(&'static AggDef),
    /// A function of the executor, and the type its arguments take.
    Direct(&'static str, Option<&'static str>),
    /// A function that Doris has and the sandbox has not.
    NotServed,
}

struct Registry {
    rows: Vec<Def>,
    folds: Vec<AggDef>,
    rows_by_name: HashMap<&'static str, usize>,
    folds_by_name: HashMap<&'static str, usize>,
}

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut rows = arith::defs();
        for more in
            [string::defs(), time::defs(), math::defs(), json::defs(), bitmap::defs(), nested::defs(), logic::defs()]
        {
            rows.extend(more);
        }
        let folds = aggregates::defs();
        let names = |list: &mut dyn Iterator<Item = &'static str>| -> HashMap<&'static str, usize> {
            list.enumerate().flat_map(|(i, names)| names.split(' ').map(move |name| (name, i))).collect()
        };
        Registry {
            rows_by_name: names(&mut rows.iter().map(|def| def.names)),
            folds_by_name: names(&mut folds.iter().map(|def| def.names)),
            rows,
            folds,
        }
    })
}

/// What a lower-case name stands for; `None` when Doris has no such function.
pub(super) fn find(name: &str) -> Option<Found> {
    let registry = registry();
    if let Some(i) = registry.rows_by_name.get(name) {
        return Some(Found::Row(&registry.rows[*i]));
    }
    if let Some(i) = registry.folds_by_name.get(name) {
        return Some(Found::Fold(&registry.folds[*i]));
    }
    if let Some((_, target, ty)) = DIRECT.iter().find(|(doris, ..)| *doris == name) {
        return Some(Found::Direct(target, *ty));
    }
    NOT_SERVED.contains(&name).then_some(Found::NotServed)
}

/// A state with the functions that the executor itself serves.
fn base() -> &'static SessionState {
    static BASE: OnceLock<SessionState> = OnceLock::new();
    BASE.get_or_init(|| {
        let wanted = |name: &str| DIRECT.iter().any(|(_, known, _)| *known == name);
        let keep = |name: &str, aliases: &[String]| wanted(name) || aliases.iter().any(|alias| wanted(alias));
        let scalars = SessionStateDefaults::default_scalar_functions()
            .into_iter()
            .filter(|f| keep(f.name(), f.aliases()))
            .collect();
        let aggregates = SessionStateDefaults::default_aggregate_functions()
            .into_iter()
            .filter(|f| keep(f.name(), f.aliases()))
            .collect();
        let windows = SessionStateDefaults::default_window_functions()
            .into_iter()
            .filter(|f| keep(f.name(), f.aliases()))
            .collect();
        SessionStateBuilder::new()
            .with_scalar_functions(scalars)
            .with_aggregate_functions(aggregates)
            .with_window_functions(windows)
            .with_expr_planners(vec![])
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
    let registry = registry();
    let mut scalars: Vec<_> = base().scalar_functions().values().cloned().collect();
    scalars.extend(registry.rows.iter().map(|def| Arc::new(row::function(def, env))));
    scalars.extend(
        [cast::cast(env), cast::try_cast(env), cast::float_key_function(), literal::number_function(env)].map(Arc::new),
    );
    let mut aggregates: Vec<_> = base().aggregate_functions().values().cloned().collect();
    aggregates.extend(registry.folds.iter().map(|def| Arc::new(aggregate::function(def, env))));
    let functions: HashMap<String, _> = scalars.iter().map(|f| (f.name().to_owned(), Arc::clone(f))).collect();
    let mut planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(operators(functions, *env))];
    planners.extend(SessionStateDefaults::default_expr_planners());
    SessionStateBuilder::new_from_existing(base().clone())
        .with_config(config(database))
        .with_catalog_list(Arc::new(datafusion::catalog::MemoryCatalogProviderList::new()))
        .with_scalar_functions(scalars)
        .with_aggregate_functions(aggregates)
        .with_expr_planners(planners)
        .with_analyzer_rule(Arc::new(super::floats::FloatKeys::new(Arc::new(cast::float_key_function()))))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_defined_once() {
        let registry = registry();
        let names = registry.rows.iter().map(|def| def.names).chain(registry.folds.iter().map(|def| def.names));
        let mut all: Vec<&str> = names.flat_map(|names| names.split(' ')).collect();
        all.extend(DIRECT.iter().map(|(name, ..)| *name));
        all.extend(NOT_SERVED);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(find("nope").is_none());
        assert!(matches!(find("count"), Some(Found::Direct("count", None))));
    }
}
