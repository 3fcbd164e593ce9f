//! The mapping of `INSERT INTO … SELECT … FROM http_stream(…)`.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};

use super::build::{Builder, analysis, check_filled};
use super::{Fill, Mapping, Planned, Target};
use crate::engine::{Engine, MergeType, TableMeta};
use crate::load::header::{Format, LoadPlan};
use crate::load::http_stream::StreamInsert;
use crate::load::reply::Failure;
use crate::load::{DELETE_SIGN, SEQUENCE_COL};
use crate::sql::compile_expression;
use crate::types::DorisType;

impl Mapping {
    /// Plans the statement.
    ///
    /// # Errors
    /// What the FE refuses.
    pub fn select(
        engine: &Arc<Engine>,
        user: &str,
        meta: &TableMeta,
        plan: &LoadPlan,
        insert: &StreamInsert,
        format: Format,
    ) -> Result<Planned, Failure> {
        let names: Vec<String> = match &insert.columns {
            Some(columns) => columns.clone(),
            None => meta.columns.iter().map(|c| c.name.clone()).collect(),
        };
        let sources = sources(insert, format, &names);
        let items: Vec<String> = insert
            .items
            .iter()
            .flat_map(|item| if item == "*" { sources.clone() } else { vec![item.clone()] })
            .collect();
        if items.len() != names.len() {
            return Err(analysis("insert into cols should be corresponding to the query output"));
        }
        let mut builder = Builder::new(engine, user, meta, plan, false)?;
        for name in sources {
            builder.source(name);
        }
        let scope: SchemaRef = Arc::new(Schema::new(builder.fields.clone()));
        let mut targets = Vec::with_capacity(names.len());
        for (name, item) in names.iter().zip(&items) {
            let plain = item.trim_matches('`');
            let fill = match builder.sources.iter().position(|s| s.name.eq_ignore_ascii_case(plain)) {
                Some(i) => Fill::Source(i),
                None => {
                    builder.step(String::new(), item)?;
                    Fill::Computed(builder.steps.len() - 1)
                }
            };
            let target = target(&builder, meta, name, fill)?;
            builder.check_state(&target)?;
            targets.push(target);
        }
        check_filled(meta, plan, &targets)?;
        let selection = match &insert.filter {
            None => None,
            Some(text) => Some(compile_expression(&builder.context, text, &scope).map_err(Failure::from_sql)?),
        };
        let signed = targets.iter().any(|t| t.name == DELETE_SIGN);
        let fields: Vec<FieldRef> = targets.iter().map(|t| t.ty.storage_field(&t.name, t.nullable)).collect();
        Ok(Planned {
            columns: Some(targets.iter().map(|t| t.name.clone()).collect()),
            merge_type: if signed { MergeType::Merge } else { MergeType::Append },
            sequence_column: None,
            mapping: Self {
                string_limit: engine.config().string_limit_bytes,
                open_ended: matches!(format, Format::Csv { .. }),
                sources: builder.sources,
                flexible: false,
                steps: builder.steps,
                targets,
                schema: Arc::new(Schema::new(fields)),
                selection: selection.map(|expr| (expr, scope)),
                filter: None,
                strict: plan.strict_mode,
                zone: builder.zone,
            },
        })
    }
}

/// Columns of the body that the statement can name.
fn sources(insert: &StreamInsert, format: Format, targets: &[String]) -> Vec<String> {
    let all = insert.items.iter().any(|item| item == "*");
    match format {
        Format::Json => {
            let mut names = if all { targets.to_vec() } else { Vec::new() };
            for word in &insert.words {
                if !names.iter().any(|n| n.eq_ignore_ascii_case(word)) {
                    names.push(word.clone());
                }
            }
            names
        }
        _ => {
            let number = |word: &String| {
                let digits = word.strip_prefix(['c', 'C'])?;
                digits.parse::<usize>().ok().filter(|n| (1..=4096).contains(n))
            };
            let highest = insert.words.iter().filter_map(number).max().unwrap_or(0);
            let wanted = if all { highest.max(targets.len()) } else { highest };
            (1..=wanted).map(|i| format!("c{i}")).collect()
        }
    }
}

fn target(builder: &Builder<'_>, meta: &TableMeta, name: &str, fill: Fill) -> Result<Target, Failure> {
    if let Some(column) = meta.column(name) {
        return Ok(Target {
            name: column.name.clone(),
            ty: column.ty.clone(),
            nullable: column.nullable || column.auto_increment,
            fill,
        });
    }
    if name.eq_ignore_ascii_case(DELETE_SIGN) {
        return Ok(Target { name: DELETE_SIGN.to_owned(), ty: DorisType::TinyInt, nullable: false, fill });
    }
    let known = if name.eq_ignore_ascii_case(SEQUENCE_COL) { SEQUENCE_COL } else { name };
    builder.hidden(known, fill)
}
