//! Values of columns that an INSERT leaves out.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::logical_expr::Expr;

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

/// `defaults`, and `default` for `column` when they have none.
pub(super) fn with_default(defaults: Arc<dyn ColumnDefaults>, column: &str, default: Expr) -> Arc<dyn ColumnDefaults> {
    Arc::new(OneMore { defaults, column: column.to_string(), default })
}

#[derive(Debug)]
struct OneMore {
    defaults: Arc<dyn ColumnDefaults>,
    column: String,
    default: Expr,
}

impl ColumnDefaults for OneMore {
    fn default_of(&self, column: &str) -> Option<&Expr> {
        self.defaults.default_of(column).or_else(|| (column == self.column).then_some(&self.default))
    }
}
