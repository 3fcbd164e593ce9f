//! `_schema` and `_query_plan` of a table.

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::{Value, json};

use super::Peer;
use super::envelope::{BAD_REQUEST, ERROR, OK, envelope};
use super::fe::{Ctx, MAX_JSON_BODY, Reply, allowed, flatten, login};
use crate::engine::{Privilege, Profile, TableMeta, TabletInfo};
use crate::shared::Shared;
use crate::storage::Column;
use crate::types::DorisType;

/// Thrift port that the first BE names in query plans; the next ones follow by hundreds. Nobody listens there.
const BE_THRIFT_PORT: usize = 9060;

pub(super) async fn schema(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path((db, table)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    flatten(table_schema(&shared, &headers, peer, &db, &table))
}

pub(super) async fn schema_in_catalog(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path((catalog, db, table)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Response {
    if catalog != "internal" {
        return match login(&shared, &headers, peer) {
            Ok(_) => envelope(ERROR, format!("errCode = 2, detailMessage = Unknown catalog '{catalog}'")),
            Err(refusal) => *refusal,
        };
    }
    flatten(table_schema(&shared, &headers, peer, &db, &table))
}

fn table_schema(shared: &Shared, headers: &HeaderMap, peer: Peer, db: &str, table: &str) -> Reply {
    let credentials = login(shared, headers, peer)?;
    allowed(shared, &credentials, db, table, Privilege::Select)?;
    let meta = shared.engine.table_meta(db, table).map_err(|e| Box::new(envelope(ERROR, e.message)))?;
    Ok(envelope(OK, schema_data(&meta, shared.profile())))
}

fn schema_data(meta: &TableMeta, profile: Profile) -> Value {
    let properties: Vec<Value> =
        meta.columns.iter().enumerate().map(|(i, column)| property(i, column, profile)).collect();
    let keys_type = meta.keys_type.rest_name();
    let mut data = json!({"status": 200, "keysType": keys_type, "properties": properties});
    if profile >= Profile::V5_0Changelog {
        data["schema_version"] = 0.into();
        data["materialized_indexes"] = json!({
            &meta.name: {
                "index_id": meta.id,
                "keys_type": keys_type,
                "schema_version": 0,
                "schema_hash": 0,
                "storage_type": "COLUMN",
                "columns": properties,
            }
        });
    } else if profile <= Profile::V3_1 {
        data["tableType"] = "Doris".into();
    }
    data
}

fn property(uid: usize, column: &Column, profile: Profile) -> Value {
    let mut property = json!({
        "name": column.name,
        "type": column.ty.primitive_name(),
        "comment": column.comment,
        "aggregation_type": column.aggregation_type(),
    });
    // Only decimals have these two, and as strings.
    if let DorisType::Decimal { precision, scale } = column.ty {
        property["precision"] = precision.to_string().into();
        property["scale"] = scale.to_string().into();
    }
    if profile >= Profile::V5_0Changelog {
        let yes_no = |yes| if yes { "Yes" } else { "No" };
        property["column_uid"] = uid.to_string().into();
        property["type_sql"] = column.ty.desc_name().into();
        property["type_desc"] = type_description(&column.ty);
        property["is_nullable"] = yes_no(column.nullable).into();
        property["is_key"] = yes_no(column.key).into();
    }
    property
}

/// A type with its parts, as newest builds describe it.
fn type_description(ty: &DorisType) -> Value {
    let mut described = json!({"kind": ty.primitive_name(), "sql": ty.desc_name()});
    match ty {
        DorisType::Decimal { precision, scale } => {
            described["precision"] = (*precision).into();
            described["scale"] = (*scale).into();
        }
        DorisType::DateTime(scale) | DorisType::Time(scale) | DorisType::TimestampTz(scale) => {
            described["scale"] = (*scale).into();
        }
        DorisType::Char(length) | DorisType::Varchar(length) => described["length"] = (*length).into(),
        DorisType::Array(item) => {
            described["contains_null"] = true.into();
            described["element"] = type_description(item);
        }
        DorisType::Map(key, value) => {
            described["key_contains_null"] = true.into();
            described["value_contains_null"] = true.into();
            described["key"] = type_description(key);
            described["value"] = type_description(value);
        }
        DorisType::Struct(fields) => {
            let field = |(name, ty): &(String, DorisType)| json!({"name": name, "contains_null": true, "type": type_description(ty)});
            described["fields"] = fields.iter().map(field).collect();
        }
        _ => {}
    }
    described
}

pub(super) async fn query_plan(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path((db, table)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    flatten(plan(&shared, &headers, peer, &db, &table, body).await)
}

async fn plan(shared: &Shared, headers: &HeaderMap, peer: Peer, db: &str, table: &str, body: Body) -> Reply {
    let credentials = login(shared, headers, peer)?;
    allowed(shared, &credentials, db, table, Privilege::Select)?;
    let bytes = axum::body::to_bytes(body, MAX_JSON_BODY).await.unwrap_or_default();
    let sql = serde_json::from_slice::<Value>(&bytes)
        .ok()
        .and_then(|root| root.get("sql").and_then(Value::as_str).map(str::to_owned))
        .filter(|sql| !sql.trim().is_empty())
        .ok_or_else(|| Box::new(envelope(BAD_REQUEST, "POST body must contains [sql] root object")))?;
    match shared.engine.plan_tablets(db, table, &sql).await {
        Ok(tablets) => Ok(envelope(OK, plan_data(shared, &tablets, &sql))),
        // Refusals of a plan travel inside a successful envelope.
        Err(error) => Ok(envelope(OK, json!({"status": 400, "exception": error.text()}))),
    }
}

fn plan_data(shared: &Shared, tablets: &[TabletInfo], sql: &str) -> Value {
    let backends = shared.cluster.backends.len();
    let routing = |t: &TabletInfo| {
        let port = BE_THRIFT_PORT + 100 * t.backend.checked_rem(backends).unwrap_or_default();
        format!("{}:{port}", shared.host)
    };
    let partitions: serde_json::Map<String, Value> = tablets
        .iter()
        .map(|t| (t.id.to_string(), json!({"routings": [routing(t)], "version": t.version, "schemaHash": 0})))
        .collect();
    json!({"partitions": partitions, "opaqued_query_plan": STANDARD.encode(sql), "status": 200})
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::types::parse_type;

    #[test]
    fn types_are_described_with_their_parts() {
        for (ddl, expected) in [
            ("INT", json!({"kind": "INT", "sql": "int"})),
            ("DECIMAL(10,2)", json!({"kind": "DECIMAL64", "sql": "decimal(10,2)", "precision": 10, "scale": 2})),
            ("VARCHAR(5)", json!({"kind": "VARCHAR", "sql": "varchar(5)", "length": 5})),
            ("DATETIME(3)", json!({"kind": "DATETIMEV2", "sql": "datetime(3)", "scale": 3})),
            (
                "ARRAY<INT>",
                json!({"kind": "ARRAY", "sql": "array<int>", "contains_null": true,
                    "element": {"kind": "INT", "sql": "int"}}),
            ),
            (
                "MAP<INT,CHAR(2)>",
                json!({"kind": "MAP", "sql": "map<int,char(2)>", "key_contains_null": true, "value_contains_null": true,
                    "key": {"kind": "INT", "sql": "int"},
                    "value": {"kind": "CHAR", "sql": "char(2)", "length": 2}}),
            ),
            (
                "STRUCT<a:INT>",
                json!({"kind": "STRUCT", "sql": "struct<a:int>",
                    "fields": [{"name": "a", "contains_null": true, "type": {"kind": "INT", "sql": "int"}}]}),
            ),
        ] {
            assert_eq!(type_description(&parse_type(ddl).expect(ddl)), expected, "{ddl}");
        }
    }
}
