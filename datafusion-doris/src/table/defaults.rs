//! Values of columns that an INSERT leaves out.
//!
//! DataFusion widens every INSERT to all columns of its table, with defaults for those that its list does not name, and
//! then forgets the list. So that Doris' own defaults apply, and a partial update does not overwrite what the list leaves
//! alone, the default of a column is a NULL that is marked: the mark is metadata of the literal, travels into the schema of
//! the rows, and there tells which columns not to send.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::metadata::FieldMetadata;
use datafusion::logical_expr::Expr;

use crate::sink::{LEFT_OUT, is_left_out};

/// Default values by column name.
///
/// A trait object and not the map itself, since tables and builders are held by futures: proving inside of a future
/// that a map of expressions may be sent costs the compiler seconds, each time.
pub(super) trait ColumnDefaults: fmt::Debug + Send + Sync {
    /// The default of `column`.
    fn default_of(&self, column: &str) -> Option<&Expr>;
}

impl ColumnDefaults for HashMap<String, Expr> {
    fn default_of(&self, column: &str) -> Option<&Expr> {
        self.get(column)
    }
}

/// `defaults`, and `more` for columns that have none there.
pub(super) fn with_defaults(
    defaults: Arc<dyn ColumnDefaults>,
    more: impl IntoIterator<Item = (String, Expr)>,
) -> Arc<dyn ColumnDefaults> {
    Arc::new(More { defaults, more: more.into_iter().collect() })
}

#[derive(Debug)]
struct More {
    defaults: Arc<dyn ColumnDefaults>,
    more: HashMap<String, Expr>,
}

impl ColumnDefaults for More {
    fn default_of(&self, column: &str) -> Option<&Expr> {
        self.defaults.default_of(column).or_else(|| self.more.get(column))
    }
}

/// The default of a column that is not sent when an INSERT leaves it out.
pub(super) fn left_out(field: &Field) -> (String, Expr) {
    let null = ScalarValue::try_new_null(field.data_type()).unwrap_or(ScalarValue::Null);
    let mark = BTreeMap::from([(LEFT_OUT.to_string(), "true".to_string())]);
    (field.name().clone(), Expr::Literal(null, Some(FieldMetadata::from(mark))))
}

/// The columns of a table, marked where the rows to insert have none.
pub(super) fn marked(table: &SchemaRef, rows: &Schema) -> SchemaRef {
    if !rows.fields().iter().any(|field| is_left_out(field)) {
        return Arc::clone(table);
    }
    let fields = table.fields().iter().zip(rows.fields()).map(|(field, row)| {
        let mut field = field.as_ref().clone();
        if is_left_out(row) {
            field.metadata_mut().insert(LEFT_OUT.to_string(), "true".to_string());
        }
        field
    });
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}
