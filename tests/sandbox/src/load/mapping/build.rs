//! The mapping of a load, from its headers and the table.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};

use super::{Fill, Mapping, Missing, Planned, Source, Step, Target};
use crate::engine::{Engine, MergeType, TableMeta, UpdateMode};
use crate::error::SqlError;
use crate::load::header::{ColumnItem, Format, LoadPlan, MergeKind};
use crate::load::reply::Failure;
use crate::load::{DELETE_SIGN, SEQUENCE_COL, SKIP_BITMAP_COL};
use crate::sql::{CompiledExpr, ExprContext, compile_expression};
use crate::storage::{Aggregation, Column, DefaultValue, KeysType};
use crate::types::{DorisType, SessionZone};

impl Mapping {
    /// Plans a load into `meta`; texts with a zone become the wall clock of `zone`.
    ///
    /// # Errors
    /// What the FE refuses: unknown names, expressions it cannot plan, a load that does not fit the table's model.
    pub fn plan(
        engine: &Arc<Engine>,
        user: &str,
        meta: &TableMeta,
        plan: &LoadPlan,
        format: Format,
    ) -> Result<Planned, Failure> {
        check_model(meta, plan)?;
        let sequence = sequence(meta, plan)?;
        let (source_names, mapped) = columns(meta, plan);
        let typed = matches!(format, Format::Arrow | Format::Parquet);
        let mut builder = Builder::new(engine, user, meta, plan, typed)?;
        for name in source_names {
            builder.source(name);
        }
        for (name, expr) in mapped {
            builder.step(name, &expr)?;
        }
        let merge_type = match (plan.merge, &plan.delete_on) {
            (MergeKind::Merge, Some(condition)) => {
                builder.step(DELETE_SIGN.to_owned(), &format!("CASE WHEN ({condition}) THEN 1 ELSE 0 END"))?;
                MergeType::Merge
            }
            (MergeKind::Delete, _) => MergeType::Delete,
            _ if builder.fill(DELETE_SIGN).is_some() => MergeType::Merge,
            _ => MergeType::Append,
        };
        if merge_type == MergeType::Merge && meta.keys_type != KeysType::Unique {
            return Err(analysis("load by MERGE or DELETE is only supported in unique tables."));
        }
        let flexible = plan.update_mode == UpdateMode::FlexibleColumns;
        let targets = builder.targets(plan, sequence.as_ref(), flexible)?;
        check_filled(meta, plan, &targets)?;
        let fields = |nullable: bool| -> SchemaRef {
            let of = |t: &Target| t.ty.storage_field(&t.name, t.nullable || nullable);
            Arc::new(Schema::new(targets.iter().map(of).collect::<Vec<FieldRef>>()))
        };
        let filter = match &plan.filter {
            None => None,
            Some(text) => {
                let visible = fields(true);
                Some((where_expr(&builder.context, meta, text, &visible)?, visible))
            }
        };
        let whole = targets.len() == meta.columns.len() && targets.iter().all(|t| meta.column(&t.name).is_some());
        let columns = (!whole).then(|| targets.iter().map(|t| t.name.clone()).collect());
        // What a flexible row leaves out is NULL on its way, whatever its column says.
        let schema = fields(flexible);
        Ok(Planned {
            mapping: Self {
                string_limit: engine.config().string_limit_bytes,
                open_ended: false,
                selection: None,
                sources: builder.sources,
                flexible,
                steps: builder.steps,
                targets,
                schema,
                filter,
                strict: plan.strict_mode,
                zone: builder.zone,
            },
            columns,
            merge_type,
            sequence_column: sequence.map(|s| s.target),
        })
    }
}

pub(super) fn analysis(text: impl std::fmt::Display) -> Failure {
    Failure::new("ANALYSIS_ERROR", format!("TStatus: errCode = 2, detailMessage = {text}"))
}

/// Whether the table's model takes this kind of load.
fn check_model(meta: &TableMeta, plan: &LoadPlan) -> Result<(), Failure> {
    let unique = meta.keys_type == KeysType::Unique;
    if plan.merge != MergeKind::Append && !unique {
        return Err(analysis("load by MERGE or DELETE is only supported in unique tables."));
    }
    if plan.update_mode != UpdateMode::Upsert && !(unique && meta.merge_on_write) {
        return Err(analysis("Only unique key merge on write support partial update"));
    }
    let is_true = |key: &str| meta.properties.get(key).is_some_and(|v| v.eq_ignore_ascii_case("true"));
    if plan.update_mode == UpdateMode::FlexibleColumns && !is_true("enable_unique_key_skip_bitmap_column") {
        let table = &meta.name;
        return Err(analysis(format!(
            "Flexible partial update can only support table with skip bitmap hidden column. But table {table} doesn't have it. You can use `ALTER TABLE {table} ENABLE FEATURE \"UPDATE_FLEXIBLE_COLUMNS\";` to add it to the table."
        )));
    }
    if plan.single_tablet && !meta.hash_columns.is_empty() {
        return Err(analysis("if load_to_single_tablet set to true, the olap table must be with random distribution"));
    }
    if plan.negative {
        if plan.merge != MergeKind::Append {
            return Err(analysis("Negative is only used when merge type is append."));
        }
        let other = |c: &&Column| !c.key && c.aggregation != Some(Aggregation::Sum);
        if let Some(value) = meta.columns.iter().find(other) {
            return Err(analysis(format!("Column is not SUM AggregateType. column:{}", value.name)));
        }
    }
    Ok(())
}

/// Where the sequence of a load comes from, and the target column that carries it.
struct Sequence {
    source: String,
    target: String,
}

/// What the table and the header `function_column.sequence_col` say.
fn sequence(meta: &TableMeta, plan: &LoadPlan) -> Result<Option<Sequence>, Failure> {
    let column = meta.sequence.as_ref().and_then(|sequence| sequence.column.as_ref());
    let has = meta.sequence.is_some();
    if let Some(given) = &plan.sequence_column {
        if !has {
            return Err(analysis(format!("There is no sequence column in the table {}", meta.name)));
        }
        let base = meta.column(given).map(|c| c.name.clone());
        let target = base.unwrap_or_else(|| SEQUENCE_COL.to_owned());
        return Ok(Some(Sequence { source: given.clone(), target }));
    }
    if !has || plan.update_mode != UpdateMode::Upsert {
        return Ok(None);
    }
    let missing = || analysis(format!("Table {} has sequence column, need to specify the sequence column", meta.name));
    let carried = |name: &str| match &plan.columns {
        None => plan.hidden_columns.iter().any(|n| n.eq_ignore_ascii_case(name)) || meta.column(name).is_some(),
        Some(items) => items.iter().any(|item| match item {
            ColumnItem::Source(n) | ColumnItem::Mapped { name: n, .. } => n.eq_ignore_ascii_case(name),
        }),
    };
    if carried(SEQUENCE_COL) {
        return Ok(None);
    }
    match column {
        None => Err(missing()),
        Some(name) if carried(name) => Ok(None),
        Some(name) => match meta.column(name).map(|c| &c.default) {
            Some(DefaultValue::CurrentTimestamp(_)) => Ok(None),
            _ => Err(missing()),
        },
    }
}

/// Names of the body's columns in order, and the computed columns.
fn columns(meta: &TableMeta, plan: &LoadPlan) -> (Vec<String>, Vec<(String, String)>) {
    let mut sources = Vec::new();
    let mut mapped = Vec::new();
    for item in plan.columns.iter().flatten() {
        match item {
            ColumnItem::Source(name) => sources.push(name.clone()),
            ColumnItem::Mapped { name, expr } => mapped.push((name.clone(), expr.clone())),
        }
    }
    // Expressions alone leave the columns of the body as they are without the header.
    if sources.is_empty() {
        sources.extend(meta.columns.iter().map(|c| c.name.clone()));
        sources.extend(plan.hidden_columns.iter().cloned());
        if plan.update_mode == UpdateMode::FlexibleColumns {
            sources.push(DELETE_SIGN.to_owned());
        }
    }
    (sources, mapped)
}

fn where_expr(
    context: &ExprContext,
    meta: &TableMeta,
    text: &str,
    visible: &SchemaRef,
) -> Result<CompiledExpr, Failure> {
    let expr = compile_expression(context, text, visible).map_err(|error| match unknown_name(&error) {
        Some(name) if meta.column(name).is_some() => {
            analysis(format!("the sandbox does not implement `where` on column {name} that the load does not bring"))
        }
        Some(name) => analysis(format!("unknown column reference in where statement, reference={name}")),
        None => Failure::from_sql(error),
    })?;
    match expr.doris_type() {
        DorisType::Boolean | DorisType::Null => Ok(expr),
        _ => Err(analysis("where statement is not a valid statement return bool")),
    }
}

/// The name of an unknown column, from the error about it.
fn unknown_name(error: &SqlError) -> Option<&str> {
    error.text().strip_prefix("Unknown column '").and_then(|rest| rest.split_once('\'')).map(|(name, _)| name)
}

/// Columns that the load does not fill must have a value of their own.
pub(super) fn check_filled(meta: &TableMeta, plan: &LoadPlan, targets: &[Target]) -> Result<(), Failure> {
    for column in &meta.columns {
        if targets.iter().any(|t| t.name == column.name) {
            continue;
        }
        if plan.update_mode != UpdateMode::Upsert {
            if column.key {
                return Err(analysis(format!(
                    "Partial update should include all key columns, missing: {}",
                    column.name
                )));
            }
            continue;
        }
        if !column.fillable() {
            return Err(analysis(format!("Column has no default value, column={}", column.name)));
        }
    }
    Ok(())
}

pub(super) struct Builder<'a> {
    pub(super) context: ExprContext,
    pub(super) zone: SessionZone,
    /// Wall clock in the load's zone.
    now: String,
    meta: &'a TableMeta,
    /// The body has types of its own.
    typed: bool,
    pub(super) sources: Vec<Source>,
    pub(super) steps: Vec<Step>,
    /// What the next expression sees.
    pub(super) fields: Vec<FieldRef>,
    /// Names of the steps.
    computed: Vec<String>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        engine: &Arc<Engine>,
        user: &str,
        meta: &'a TableMeta,
        plan: &LoadPlan,
        typed: bool,
    ) -> Result<Self, Failure> {
        let zone: SessionZone =
            plan.timezone.as_deref().unwrap_or(&engine.config().time_zone).parse().map_err(|e: String| analysis(e))?;
        Ok(Self {
            context: ExprContext::of_load(engine, &meta.database, user, zone),
            zone,
            now: zone.wall_of_ms(engine.config().clock.now_ms()).format("%Y-%m-%d %H:%M:%S%.6f").to_string(),
            meta,
            typed,
            sources: Vec::new(),
            steps: Vec::new(),
            fields: Vec::new(),
            computed: Vec::new(),
        })
    }

    pub(super) fn source(&mut self, name: String) {
        let column = self.meta.column(&name);
        let ty = match column {
            Some(column) if self.typed => column.ty.clone(),
            _ => DorisType::String,
        };
        let missing = match column {
            Some(column) => match self.default_text(&column.default) {
                Some(text) => Missing::Default(text),
                // Absent values of an AUTO_INCREMENT column are numbered.
                None if column.nullable || column.auto_increment => Missing::Null,
                None => Missing::Refused,
            },
            None if name.eq_ignore_ascii_case(DELETE_SIGN) => Missing::Default("0".to_owned()),
            None => Missing::Null,
        };
        let base = self.meta.columns.iter().position(|c| c.name.eq_ignore_ascii_case(&name));
        self.fields.push(ty.storage_field(&name, true));
        self.sources.push(Source {
            name,
            ty,
            missing,
            direct: None,
            key: column.is_some_and(|c| c.key),
            base: base.and_then(|i| i32::try_from(i).ok()),
        });
    }

    pub(super) fn step(&mut self, name: String, text: &str) -> Result<(), Failure> {
        let scope: SchemaRef = Arc::new(Schema::new(self.fields.clone()));
        let expr = compile_expression(&self.context, text, &scope).map_err(Failure::from_sql)?;
        // A result without a name of its own is seen by nobody.
        let seen = !name.is_empty() && !self.fields.iter().any(|f| f.name().eq_ignore_ascii_case(&name));
        if seen {
            self.fields.push(expr.doris_type().storage_field(&name, true));
        }
        self.steps.push(Step { expr, scope, seen });
        self.computed.push(name);
        Ok(())
    }

    /// What feeds a column: an expression before a column of the body.
    fn fill(&self, name: &str) -> Option<Fill> {
        let same = |n: &String| n.eq_ignore_ascii_case(name);
        if let Some(i) = self.computed.iter().rposition(same) {
            return Some(Fill::Computed(i));
        }
        self.sources.iter().position(|s| same(&s.name)).map(Fill::Source)
    }

    /// The target columns: base columns in table order, then hidden ones.
    fn targets(
        &mut self,
        plan: &LoadPlan,
        sequence: Option<&Sequence>,
        flexible: bool,
    ) -> Result<Vec<Target>, Failure> {
        let mut targets = Vec::new();
        for column in &self.meta.columns {
            if let Some(fill) = self.fill(&column.name) {
                targets.push(Target {
                    name: column.name.clone(),
                    ty: column.ty.clone(),
                    nullable: column.nullable || column.auto_increment,
                    fill,
                });
            }
        }
        if plan.merge != MergeKind::Delete
            && let Some(fill) = self.fill(DELETE_SIGN)
        {
            targets.push(Target { name: DELETE_SIGN.to_owned(), ty: DorisType::TinyInt, nullable: false, fill });
        }
        let carried = match sequence {
            Some(sequence) => {
                let fill = self
                    .fill(&sequence.source)
                    .ok_or_else(|| analysis(format!("There is no sequence column in the table {}", sequence.source)))?;
                (sequence.target == SEQUENCE_COL).then_some(fill)
            }
            None => self.fill(SEQUENCE_COL),
        };
        if let Some(fill) = carried {
            targets.push(self.hidden(SEQUENCE_COL, fill)?);
        }
        if flexible {
            targets.push(self.hidden(SKIP_BITMAP_COL, Fill::Skips)?);
        }
        for name in &plan.hidden_columns {
            if !targets.iter().any(|t| t.name.eq_ignore_ascii_case(name)) && plan.merge != MergeKind::Delete {
                return Err(analysis(format!("Unknown column '{name}' in '{}'", self.meta.name)));
            }
        }
        for target in &targets {
            self.check_state(target)?;
            if let Fill::Source(i) = target.fill {
                self.sources[i].direct = Some(target.ty.clone());
            }
        }
        Ok(targets)
    }

    /// Columns of sketches are computed, never read.
    pub(super) fn check_state(&self, target: &Target) -> Result<(), Failure> {
        let computed = match target.fill {
            Fill::Computed(i) => Some(self.steps[i].expr.doris_type()),
            Fill::Source(_) | Fill::Skips => None,
        };
        let name = &target.name;
        match &target.ty {
            DorisType::Bitmap if computed != Some(&DorisType::Bitmap) => {
                Err(analysis(format!("bitmap column {name} require the function return type is BITMAP")))
            }
            DorisType::Hll if computed != Some(&DorisType::Hll) => {
                Err(analysis(format!("HLL column must use hll_hash function, like {name}=hll_hash(xxx)")))
            }
            _ => Ok(()),
        }
    }

    /// A hidden column with the type the table gives it.
    pub(super) fn hidden(&self, name: &str, fill: Fill) -> Result<Target, Failure> {
        let schema = self.meta.load_schema(Some(&[name.to_owned()])).map_err(Failure::from_sql)?;
        let field = schema.field(0);
        let ty = DorisType::of_field(field)
            .ok_or_else(|| Failure::new("INTERNAL_ERROR", format!("no type for column {name}")))?;
        Ok(Target { name: name.to_owned(), ty, nullable: field.is_nullable(), fill })
    }

    /// Text that stands for a missing JSON key.
    fn default_text(&self, default: &DefaultValue) -> Option<String> {
        match default {
            DefaultValue::None | DefaultValue::Null | DefaultValue::Empty => None,
            DefaultValue::Text(text) => Some(text.clone()),
            DefaultValue::CurrentTimestamp(_) | DefaultValue::CurrentDate => Some(self.now.clone()),
        }
    }
}
