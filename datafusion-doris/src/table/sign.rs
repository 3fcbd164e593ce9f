//! A table with a delete sign that it does not declare.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::logical_expr::Expr;

use super::DorisTable;
use super::defaults::with_defaults;
use super::schema::KindColumn;
use crate::error::{Error, Result};
use crate::protocol::DELETE_SIGN;
use crate::sink::check_sign_column;

impl DorisTable {
    /// The table with the delete sign as its last column, as if it were declared as `name` TINYINT: for an INSERT that
    /// names it. `None` when it is declared, or when the table is no target of rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when no row can be deleted by its key, [`Error::Config`] when rows tell deletes by another
    /// column.
    pub(crate) fn with_delete_sign(&self, name: &str) -> Result<Option<Self>> {
        match self.bound.kind() {
            _ if self.options.sink.change_format.is_some() || self.is_changelog() => return Ok(None),
            KindColumn::Sign(_) | KindColumn::Source(..) => return Ok(None),
            KindColumn::Sink(kind) => {
                let reason = format!("names column '{kind}', and {DELETE_SIGN} tells deletes too: use one of them");
                return Err(Error::config("sink.change-kind-column", reason));
            }
            KindColumn::None => {}
        }
        let sign = Field::new(name, DataType::Int8, true);
        check_sign_column(&self.doris, &sign)?;
        let bound = self.bound.with_sign(&self.doris, sign);
        let zero = bound.kind().of_rows().map(|value| (name.to_string(), Expr::Literal(value, None)));
        let defaults = with_defaults(Arc::clone(&self.defaults), zero);
        Ok(Some(Self { bound, defaults, ..self.clone() }))
    }
}
