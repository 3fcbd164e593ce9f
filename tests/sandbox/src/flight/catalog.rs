//! Metadata commands of Flight SQL.

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTables, SqlInfo, SqlSupportedCaseSensitivity,
};
use tonic::Status;

use crate::engine::Profile;
use crate::shared::Shared;
use crate::types::{SessionZone, wire};

/// The only catalog.
const CATALOG: &str = "internal";

fn failed(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

pub(super) fn sql_info_schema() -> SchemaRef {
    std::sync::Arc::new(SqlInfoDataBuilder::schema().clone())
}

pub(super) fn sql_info(query: CommandGetSqlInfo, profile: Profile) -> Result<RecordBatch, Status> {
    let data = known_info(profile).map_err(failed)?;
    query.into_builder(&data).build().map_err(failed)
}

fn known_info(profile: Profile) -> Result<SqlInfoData, FlightError> {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "DorisFE");
    info.append(SqlInfo::FlightSqlServerVersion, profile.version());
    info.append(SqlInfo::FlightSqlServerArrowVersion, "17.0.0");
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "`");
    info.append(SqlInfo::SqlDdlCatalog, true);
    info.append(SqlInfo::SqlDdlSchema, true);
    info.append(SqlInfo::SqlDdlTable, true);
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
        Ok(meta) => Schema::new(
            meta.columns
                .iter()
                .map(|c| wire::wire_field(&c.name, &c.ty, c.nullable, shared.profile(), &SessionZone::UTC))
                .collect::<Vec<_>>(),
        ),
        Err(_) => Schema::empty(),
    }
}
