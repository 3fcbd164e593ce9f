//! `INSERT INTO t (id, v, __DORIS_DELETE_SIGN__) …`: a delete sign that only the statement names.
//!
//! DataFusion plans an INSERT over the columns that its table declares. Where the list of a statement names the delete sign
//! and the table does not have it, the statement is planned over the same table with that column: it stands under another
//! name, that of a catalog which exists in this plan only.

use std::sync::Arc;

use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider,
    SchemaProvider,
};
use datafusion::common::{Result, TableReference};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{Ident, Insert, ObjectName, Statement, TableObject};

use crate::protocol::DELETE_SIGN;
use crate::sink::is_delete_sign;
use crate::table::DorisTable;

/// Name of the catalog of one statement. EXPLAIN shows it.
const CATALOG: &str = "with_delete_sign";

/// Plans one statement of DataFusion's SQL.
///
/// # Errors
/// Those of DataFusion; [`crate::Error`] for a table that takes no delete sign.
pub(crate) async fn plan(context: &SessionContext, statement: &str) -> Result<LogicalPlan> {
    let state = context.state();
    if !statement.to_ascii_uppercase().contains(DELETE_SIGN) {
        return state.create_logical_plan(statement).await;
    }
    let mut parsed = state.sql_to_statement(statement, &state.config_options().sql_parser.dialect)?;
    let Some((target, table)) = target_without_sign(&state, &mut parsed).await? else {
        return state.statement_to_plan(parsed).await;
    };
    let schema = MemorySchemaProvider::new();
    schema.register_table(target.table().to_string(), Arc::new(table))?;
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(target.schema().unwrap_or_default(), Arc::new(schema))?;
    let catalogs = MemoryCatalogProviderList::new();
    for name in state.catalog_list().catalog_names() {
        if let Some(known) = state.catalog_list().catalog(&name) {
            catalogs.register_catalog(name, known);
        }
    }
    catalogs.register_catalog(CATALOG.to_string(), Arc::new(catalog));
    let state = SessionStateBuilder::new_from_existing(state).with_catalog_list(Arc::new(catalogs)).build();
    state.statement_to_plan(parsed).await
}

/// The table of an INSERT whose list names the delete sign, with that column, where the table does not declare it. The
/// statement then names it in [`CATALOG`].
async fn target_without_sign(
    state: &SessionState,
    statement: &mut DfStatement,
) -> Result<Option<(TableReference, DorisTable)>> {
    let Some(insert) = insert_of(statement) else { return Ok(None) };
    let normal = state.config_options().sql_parser.enable_ident_normalization;
    let Some(sign) = insert.columns.iter().find_map(|column| sign_in(column, normal)) else { return Ok(None) };
    let TableObject::TableName(name) = &insert.table else { return Ok(None) };
    let reference = object_name_to_table_reference(name.clone(), normal)?;
    let table = reference.table().to_string();
    // Tables that are not there, or are none of Doris, are DataFusion's to refuse.
    let Ok(schema) = state.schema_for_ref(reference.clone()) else { return Ok(None) };
    let Some(provider) = schema.table(&table).await? else { return Ok(None) };
    let Some(with_sign) =
        provider.downcast_ref::<DorisTable>().map(|table| table.with_delete_sign(&sign)).transpose()?
    else {
        return Ok(None);
    };
    let Some(with_sign) = with_sign else { return Ok(None) };
    let schema = reference.schema().unwrap_or(&state.config_options().catalog.default_schema).to_string();
    insert.table = TableObject::TableName(ObjectName::from(
        [CATALOG, schema.as_str(), table.as_str()].map(|part| Ident::with_quote('"', part)).to_vec(),
    ));
    Ok(Some((TableReference::full(CATALOG, schema, table), with_sign)))
}

/// The INSERT that a statement is, or explains.
fn insert_of(statement: &mut DfStatement) -> Option<&mut Insert> {
    match statement {
        DfStatement::Statement(statement) => match &mut **statement {
            Statement::Insert(insert) => Some(insert),
            _ => None,
        },
        DfStatement::Explain(explain) => insert_of(&mut explain.statement),
        _ => None,
    }
}

/// The delete sign as a list names it.
fn sign_in(column: &ObjectName, normal: bool) -> Option<String> {
    let [part] = column.0.as_slice() else { return None };
    let name = part.as_ident().filter(|name| is_delete_sign(&name.value))?;
    Some(if normal && name.quote_style.is_none() { name.value.to_lowercase() } else { name.value.clone() })
}
