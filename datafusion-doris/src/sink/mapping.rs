//! Which columns of the rows a load carries, in which order, and what it says about them. Pure.
//!
//! ```text
//! columns of the rows ─┬─ body columns ── `columns` header ──┬─ columns of the table
//!                      │                                     └─ inputs of its expressions
//!                      ├─ change kind, or the delete sign ──── __DORIS_DELETE_SIGN__, last in the body
//!                      └─ left out by the INSERT ───────────── not sent: default, or the value that is there
//! ```
//!
//! All that can be told from the table, the rows' schema and the options is refused here, before a row is read.

use arrow::datatypes::{DataType, Field, Schema};

use crate::error::{Error, Result};
use crate::options::{LoadColumns, SinkFormat, SinkOptions, UpdateMode, WriteMode};
use crate::protocol::DELETE_SIGN;
use crate::sql::quote_ident;
use crate::types::{ColumnSchema, DorisType, KeyModel, TableSchema};

/// Key in the metadata of a field that an INSERT leaves out: its values are placeholders, never written.
pub(crate) const LEFT_OUT: &str = "datafusion_doris.left_out";

/// Name of the hidden column that orders the writes of a key.
const SEQUENCE: &str = "__DORIS_SEQUENCE_COL__";

/// Property of a load that names the column of the order.
const SEQUENCE_PROPERTY: &str = "function_column.sequence_col";

/// Where a row tells whether it deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changes {
    /// Nowhere: every row is written.
    None,
    /// In this column, as a change kind.
    Kind(usize),
    /// In this column, as `0` or `1`.
    Sign(usize),
}

/// The way of rows into a table.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    /// Columns of the body: place in the rows, name in the load.
    pub(super) body: Vec<(usize, String)>,
    pub(super) changes: Changes,
    /// The body ends with the delete sign.
    pub(super) delete_sign: bool,
    /// The header `columns`.
    pub(super) header: Option<String>,
    pub(super) update: UpdateMode,
    /// Place in the body of the column that orders the writes of a key.
    pub(super) sequence: Option<usize>,
    /// The type of that column, where it is none of the table.
    sequence_type: Option<DorisType>,
    /// Columns of the body that may not be NULL.
    pub(super) not_null: Vec<String>,
    /// A key column is computed by Doris.
    pub(super) computes_key: bool,
    /// Columns of the table that are written, with their types there, and expressions.
    pub(super) written: Vec<String>,
    /// The table has more.
    pub(super) partly: bool,
}

/// Whether a column is left out by the INSERT.
pub(crate) fn is_left_out(field: &Field) -> bool {
    field.metadata().contains_key(LEFT_OUT)
}

/// Whether a column of the rows is the delete sign.
pub(crate) fn is_delete_sign(name: &str) -> bool {
    name.eq_ignore_ascii_case(DELETE_SIGN)
}

/// Whether rows may have a column of this name beside those of their table: the delete sign, or an input of the load.
pub(crate) fn is_no_column_of_a_table(name: &str, options: &SinkOptions) -> Result<bool> {
    let ordering = options.properties.get(SEQUENCE_PROPERTY);
    Ok(is_delete_sign(name)
        || name.eq_ignore_ascii_case(SEQUENCE)
        || ordering.is_some_and(|ordering| ordering.eq_ignore_ascii_case(name))
        || options.load_columns()?.is_some_and(|list| list.in_body(name)))
}

/// Whether values of this type can be a delete sign.
pub(crate) fn is_sign_type(data_type: &DataType) -> bool {
    data_type.is_integer() || *data_type == DataType::Boolean
}

impl Mapping {
    /// Plans loads of rows of `schema` into `target`.
    ///
    /// # Errors
    /// [`Error::Schema`] that names a column: one that the table does not have, or that must be written and is not;
    /// [`Error::Config`] for options that contradict the rows, [`Error::Unsupported`] for deletes that the table cannot
    /// take.
    pub(super) fn plan(target: &TableSchema, schema: &Schema, options: &SinkOptions) -> Result<Self> {
        options.check_together(options.format)?;
        let list = options.load_columns()?.unwrap_or_default();
        let update = options.update_mode()?;
        let changes = changes(target, schema, options)?;
        let delete_sign = match changes {
            Changes::None => false,
            Changes::Kind(_) => options.enable_delete && target.model == Some(KeyModel::Unique),
            Changes::Sign(_) => true,
        };
        let planner = Planner { target, schema, options, list: &list };
        planner.check_sign(changes)?;
        let body = planner.body(changes)?;
        if body.is_empty() && list.computed.is_empty() {
            return Err(Error::schema(&target.table, "the input has no columns to write"));
        }
        let is_written =
            |name: &str| list.is_computed(name) || body.iter().any(|(_, written)| written.eq_ignore_ascii_case(name));
        planner.check_update(update, is_written)?;
        if update.is_partial() && delete_sign && options.ignore_update_before == Some(false) {
            return Err(Error::unsupported(
                format!("a partial update of table {} with update-before rows written as deletes", target.table),
                "a delete takes the columns with it that the load does not bring; leave out 'sink.ignore.update-before', and \
                 write changes whose key in the source is the key here, without a filter or join behind the changelog",
            ));
        }
        let sequence = planner.sequence(update, is_written)?;
        let header = (update != UpdateMode::FlexibleColumns).then(|| {
            let mut items: Vec<String> = body.iter().map(|(_, name)| quote_ident(name)).collect();
            items.extend(delete_sign.then(|| DELETE_SIGN.to_string()));
            items.extend(list.computed.iter().map(|(name, expr)| format!("{}={expr}", quote_ident(name))));
            items.join(",")
        });
        let columns = || target.columns.iter().filter(|column| is_written(&column.name));
        let mut written: Vec<String> = body.iter().filter_map(|(_, name)| typed(target.column(name)?)).collect();
        written.extend(list.computed.iter().map(|(name, expr)| format!("{name}={expr}")));
        let not_null = body.iter().map(|(_, name)| name).filter(|name| {
            let column = target.column(name).filter(|column| !column.nullable && !column.generated);
            column.is_some() && !list.is_computed(name)
        });
        let sequence_type = target.properties.get("function_column.sequence_type");
        let mapping = Self {
            not_null: not_null.cloned().collect(),
            sequence_type: sequence_type.and_then(|text| DorisType::parse(text).ok()),
            sequence: sequence
                .and_then(|name| body.iter().position(|(_, written)| written.eq_ignore_ascii_case(&name))),
            computes_key: columns().any(|column| column.key && list.is_computed(&column.name)),
            partly: columns().count() < target.columns.len(),
            body,
            changes,
            delete_sign,
            header,
            update,
            written,
        };
        if options.write_mode != WriteMode::Tvf {
            mapping.check_states(target, &list)?;
        }
        Ok(mapping)
    }

    /// The type in which a BE reads a column of the body in a format that has types.
    pub(super) fn type_in_body<'a>(&'a self, target: &'a TableSchema, name: &str) -> Option<&'a DorisType> {
        const TEXT: &DorisType = &DorisType::String;
        let ordering = self.sequence.is_some_and(|place| self.body[place].1 == name);
        let sequence = self.sequence_type.as_ref().filter(|_| ordering);
        // An input of expressions alone is text to the server.
        Some(target.column(name).map_or(sequence.unwrap_or(TEXT), |column| &column.doris_type))
    }

    /// Refuses values for a column that holds a state of an aggregation: Doris makes it by an expression.
    fn check_states(&self, target: &TableSchema, list: &LoadColumns) -> Result<()> {
        for (_, name) in &self.body {
            let Some(column) = target.column(name).filter(|column| !list.is_computed(&column.name)) else { continue };
            let DorisType::Opaque(state) = column.doris_type else { continue };
            let (name, function) = (
                &column.name,
                match state {
                    "HLL" => "hll_hash",
                    "QUANTILE_STATE" => "to_quantile_state",
                    _ => "to_bitmap",
                },
            );
            let columns = self.header.as_deref().unwrap_or_default().replace('`', "");
            return Err(Error::schema(
                &target.table,
                format!(
                    "column '{name}' is {state}, which doris computes from the rows: set 'sink.properties.columns' = \
                     '{columns},{name}={function}({name})'"
                ),
            ));
        }
        Ok(())
    }

    /// Refuses a format that the server does not read in the way that this load needs.
    pub(super) fn check_format(&self, target: &TableSchema, options: &SinkOptions, format: SinkFormat) -> Result<()> {
        options.check_together(Some(format))?;
        let state =
            |name: &str| target.column(name).is_some_and(|column| matches!(column.doris_type, DorisType::Opaque(_)));
        match self.body.iter().find(|(_, name)| format == SinkFormat::Arrow && state(name)) {
            None => Ok(()),
            Some((_, name)) => Err(Error::config(
                "sink.properties.format",
                format!(
                    "arrow cannot carry the input of column '{name}', which doris would read in the type of that column; \
                     use csv or json, or give the input a name of its own"
                ),
            )),
        }
    }
}

fn typed(column: &ColumnSchema) -> Option<String> {
    Some(format!("{} {}", column.name, column.doris_type))
}

/// Where the rows tell deletes, and whether the table can have any.
fn changes(target: &TableSchema, schema: &Schema, options: &SinkOptions) -> Result<Changes> {
    let kind = match &options.change_kind_column {
        None => None,
        Some(name) => Some(schema.index_of(name).map_err(|_| {
            let advice = format!("the input has no change-kind column '{name}' ('sink.change-kind-column')");
            Error::schema(&target.table, advice)
        })?),
    };
    let sign = schema.fields().iter().position(|field| is_delete_sign(field.name()));
    match (kind, sign) {
        (None, None) => Ok(Changes::None),
        (Some(kind), None) => Ok(Changes::Kind(kind)),
        (None, Some(sign)) => {
            check_sign_column(target, schema.field(sign))?;
            Ok(Changes::Sign(sign))
        }
        (Some(_), Some(_)) => Err(Error::config(
            "sink.change-kind-column",
            format!("and the column {DELETE_SIGN} both tell deletes, give one of them"),
        )),
    }
}

/// Whether the table takes rows with the delete sign in a column of this type.
pub(crate) fn check_sign_column(target: &TableSchema, field: &Field) -> Result<()> {
    if target.model.is_some_and(|model| model != KeyModel::Unique) {
        return Err(no_deletes(target, &format!("column {DELETE_SIGN}")));
    }
    if is_sign_type(field.data_type()) {
        return Ok(());
    }
    let reason =
        format!("column {DELETE_SIGN} is {}, it must be TINYINT, another integer or BOOLEAN", field.data_type());
    Err(Error::schema(&target.table, reason))
}

/// The refusal of deletes in a table that has none by key.
pub(crate) fn no_deletes(target: &TableSchema, what: &str) -> Error {
    Error::unsupported(
        format!("{what} for table {}", target.table),
        "it is no UNIQUE KEY table, so no row can be deleted by its key; write to a unique table, or delete by a \
         condition in Doris: DELETE FROM … WHERE …",
    )
}

struct Planner<'a> {
    target: &'a TableSchema,
    schema: &'a Schema,
    options: &'a SinkOptions,
    list: &'a LoadColumns,
}

impl Planner<'_> {
    fn fail(&self, reason: impl Into<String>) -> Error {
        Error::schema(&self.target.table, reason.into())
    }

    /// The columns of the body, in its order.
    fn body(&self, changes: Changes) -> Result<Vec<(usize, String)>> {
        let ordering = self.options.properties.get(SEQUENCE_PROPERTY);
        let mut rows = Vec::with_capacity(self.schema.fields().len());
        for (at, field) in self.schema.fields().iter().enumerate() {
            let (Changes::Kind(special) | Changes::Sign(special)) = changes else {
                rows.push((at, self.name(field, ordering)?));
                continue;
            };
            if at != special {
                rows.push((at, self.name(field, ordering)?));
            }
        }
        let left_out = |at: usize| is_left_out(self.schema.field(at));
        if self.list.body.is_empty() {
            rows.retain(|(at, _)| !left_out(*at));
            return Ok(rows);
        }
        let mut body = Vec::with_capacity(rows.len());
        for name in self.list.body.iter().filter(|name| !is_delete_sign(name)) {
            let refuse = |reason: &str| Error::config("sink.properties.columns", format!("column '{name}' {reason}"));
            match rows.iter().position(|(_, found)| found.eq_ignore_ascii_case(name)) {
                Some(place) if left_out(rows[place].0) => {
                    return Err(refuse("is not in the list of the INSERT, name it there"));
                }
                Some(place) => body.push((rows.remove(place).0, name.clone())),
                None => return Err(refuse("is not among the columns of the rows, declare it")),
            }
        }
        match rows.iter().find(|(at, _)| !left_out(*at)) {
            None => Ok(body),
            Some((_, name)) => {
                let reason = format!(
                    "does not name column '{name}', whose values would be lost: name it, or leave it out of the INSERT"
                );
                Err(Error::config("sink.properties.columns", reason))
            }
        }
    }

    /// The name of a column in the load.
    fn name(&self, field: &Field, ordering: Option<&String>) -> Result<String> {
        let name = field.name();
        if let Some(column) = self.target.column(name) {
            return Ok(column.name.clone());
        }
        if name.eq_ignore_ascii_case(SEQUENCE) {
            return Ok(SEQUENCE.to_string());
        }
        match self.list.in_body(name) || ordering.is_some_and(|ordering| ordering.eq_ignore_ascii_case(name)) {
            true => Ok(name.clone()),
            false => Err(self.fail(format!("has no column '{name}'"))),
        }
    }

    /// The list of the load and the rows must agree on where deletes are told.
    fn check_sign(&self, changes: Changes) -> Result<()> {
        let refuse = |reason: String| Err(Error::config("sink.properties.columns", reason));
        let merges = self.options.properties.contains_key("merge_type");
        let computed = self.list.is_computed(DELETE_SIGN);
        if self.list.in_body(DELETE_SIGN) && changes == Changes::None {
            return refuse(format!(
                "names {DELETE_SIGN}, which the rows do not have: name it in the list of the INSERT, or set \
                 'sink.change-kind-column'"
            ));
        }
        if computed && changes != Changes::None {
            return refuse(format!("computes {DELETE_SIGN}, which the rows tell themselves: remove one of them"));
        }
        if merges && (computed || changes != Changes::None) {
            let reason = format!("and {DELETE_SIGN} both say which rows delete, give one of them");
            return Err(Error::config("sink.properties.merge_type", reason));
        }
        if (merges || computed) && self.target.model.is_some_and(|model| model != KeyModel::Unique) {
            let what = if merges { "'sink.properties.merge_type'" } else { DELETE_SIGN };
            return Err(no_deletes(self.target, what));
        }
        Ok(())
    }

    /// Columns that are not written must have a value.
    fn check_update(&self, update: UpdateMode, is_written: impl Fn(&str) -> bool) -> Result<()> {
        let mut missing = self.target.columns.iter().filter(|column| !is_written(&column.name));
        if !update.is_partial() {
            // Of views and the like the server knows.
            let known = self.target.model.is_some();
            return match missing.find(|column| known && !column.may_be_left_out()) {
                None => Ok(()),
                Some(column) => Err(self.fail(format!(
                    "column '{}' is NOT NULL and has no default, and the rows do not have it: add it to the INSERT",
                    column.name
                ))),
            };
        }
        let unsupported =
            |advice: &str| Err(Error::unsupported(format!("a partial update of table {}", self.target.table), advice));
        if self.target.model.is_some_and(|model| model != KeyModel::Unique) {
            return unsupported("only UNIQUE KEY tables have rows to update; remove 'sink.properties.partial_columns'");
        }
        if self.target.merges_on_read() {
            return unsupported(
                "it needs 'enable_unique_key_merge_on_write' = 'true', given when the table is created",
            );
        }
        match missing.find(|column| column.key) {
            None => Ok(()),
            Some(column) => Err(self.fail(format!(
                "key column '{}' is not among the columns of the rows: a partial update finds its row by the whole key",
                column.name
            ))),
        }
    }

    /// The column that orders the writes of a key, if there is one.
    fn sequence(&self, update: UpdateMode, is_written: impl Fn(&str) -> bool) -> Result<Option<String>> {
        let property = |name: &str| self.target.properties.get(name);
        let (mapped, typed) = (property(SEQUENCE_PROPERTY), property("function_column.sequence_type"));
        let option = format!("sink.properties.{SEQUENCE_PROPERTY}");
        if let Some(given) = self.options.properties.get(SEQUENCE_PROPERTY) {
            let given = given.trim();
            // A user may not see the properties.
            if !self.target.properties.is_empty() && mapped.is_none() && typed.is_none() {
                return Err(Error::config(
                    option,
                    format!("table {} has no sequence column, remove it", self.target.table),
                ));
            }
            return match is_written(given) {
                true => Ok(Some(given.to_string())),
                false => Err(Error::config(option, format!("column '{given}' is not among the columns of the rows"))),
            };
        }
        if is_written(SEQUENCE) {
            return Ok(Some(SEQUENCE.to_string()));
        }
        match (mapped, typed) {
            (Some(mapped), _) if is_written(mapped) => Ok(Some(mapped.clone())),
            (Some(_), _) if update.is_partial() => Ok(None),
            (Some(mapped), _) => {
                let default = self.target.column(mapped).and_then(|column| column.default.as_deref());
                match default.is_some_and(|text| text.to_ascii_uppercase().starts_with("CURRENT_TIMESTAMP")) {
                    true => Ok(None),
                    false => Err(self.fail(format!(
                        "column '{mapped}' orders the writes of a key, and the rows do not have it: add it to the INSERT"
                    ))),
                }
            }
            (None, Some(_)) if !update.is_partial() => Err(self.fail(format!(
                "has a sequence column, and nothing says which column of the rows orders the writes of a key: set '{option}'"
            ))),
            (None, _) => Ok(None),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
