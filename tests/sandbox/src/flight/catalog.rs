//! Metadata commands of Flight SQL.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTables, SqlInfo, SqlSupportedCaseSensitivity,
};
use tonic::Status;

use super::columns;
use crate::shared::Shared;

/// The only catalog.
const CATALOG: &str = "internal";

fn failed(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

pub(super) fn sql_info_schema() -> SchemaRef {
    Arc::new(SqlInfoDataBuilder::schema().clone())
}

pub(super) fn sql_info(query: CommandGetSqlInfo) -> Result<RecordBatch, Status> {
    let data = known_info().map_err(failed)?;
    query.into_builder(&data).build().map_err(failed)
}

fn known_info() -> Result<SqlInfoData, FlightError> {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "DorisFE");
    info.append(SqlInfo::FlightSqlServerVersion, "1.0");
    info.append(SqlInfo::FlightSqlServerArrowVersion, "18.2.0");
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "`");
    info.append(SqlInfo::SqlDdlCatalog, true);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, false);
    let insensitive = SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32;
    info.append(SqlInfo::SqlIdentifierCase, insensitive);
    info.append(SqlInfo::SqlQuotedIdentifierCase, insensitive);
    info.build()
}

pub(super) fn catalogs(query: CommandGetCatalogs) -> Result<RecordBatch, Status> {
    let mut builder = query.into_builder();
    builder.append(CATALOG);
    builder.build().map_err(failed)
}

pub(super) fn schemas(query: CommandGetDbSchemas, shared: &Shared) -> Result<RecordBatch, Status> {
    let mut builder = query.into_builder();
    for database in shared.engine.databases() {
        builder.append(CATALOG, database);
    }
    builder.build().map_err(failed)
}

pub(super) async fn tables(query: CommandGetTables, shared: &Shared, user: &str) -> Result<RecordBatch, Status> {
    // Doris honours the first entry of the type list only.
    let mut query = query;
    query.table_types.truncate(1);
    let with_schema = query.include_schema;
    let mut builder = query.into_builder();
    let sql = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.tables \
               ORDER BY TABLE_SCHEMA, TABLE_NAME";
    let (_, rows) = shared.text_rows(user, "127.0.0.1", sql).await.map_err(failed)?;
    for row in rows {
        let [database, table, kind] = row.as_slice() else { continue };
        let schema = if with_schema { table_schema(shared, database, table) } else { Schema::empty() };
        builder.append(CATALOG, database, table, kind, &schema).map_err(|e: FlightError| failed(e))?;
    }
    builder.build().map_err(failed)
}

/// Arrow schema of a table; empty for system tables, whose types the FE does not describe.
fn table_schema(shared: &Shared, database: &str, table: &str) -> Schema {
    match shared.engine.table_meta(database, table) {
        Ok(meta) => columns::table_schema(&meta, shared.profile()),
        Err(_) => Schema::empty(),
    }
}

/// `GetPrimaryKeys` of Flight SQL.
pub(super) fn primary_keys_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("key_name", DataType::Utf8, true),
    ]))
}

/// `GetImportedKeys`, `GetExportedKeys` and `GetCrossReference` of Flight SQL.
pub(super) fn foreign_keys_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("pk_catalog_name", DataType::Utf8, true),
        Field::new("pk_db_schema_name", DataType::Utf8, true),
        Field::new("pk_table_name", DataType::Utf8, false),
        Field::new("pk_column_name", DataType::Utf8, false),
        Field::new("fk_catalog_name", DataType::Utf8, true),
        Field::new("fk_db_schema_name", DataType::Utf8, true),
        Field::new("fk_table_name", DataType::Utf8, false),
        Field::new("fk_column_name", DataType::Utf8, false),
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("fk_key_name", DataType::Utf8, true),
        Field::new("pk_key_name", DataType::Utf8, true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}

/// `GetXdbcTypeInfo` of Flight SQL.
pub(super) fn type_info_schema() -> Result<SchemaRef, Status> {
    XdbcTypeInfoDataBuilder::new().build().map(|data| data.schema()).map_err(failed)
}
