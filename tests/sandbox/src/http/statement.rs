//! `POST /api/query/{ns}/{db}`: one statement, its rows as JSON.

use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use futures::StreamExt;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use serde_json::Value;

use super::envelope::{BAD_REQUEST, ERROR, UNAUTHORIZED, envelope, success_text};
use super::fe::{Ctx, MAX_JSON_BODY, https_first, login};
use super::{Peer, Secure};
use crate::engine::{Protocol, StatementResult};
use crate::error::SqlError;
use crate::shared::Shared;
use crate::types::{DorisType, TextStyle, text_value};

/// Rows answered when the request does not say.
const DEFAULT_LIMIT: usize = 1000;
/// Rows answered at most.
const MAX_LIMIT: usize = 10_000;

pub(super) async fn execute(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Extension(Secure(secure)): Extension<Secure>,
    Path((catalog, db)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Some(moved) = https_first(&shared, secure, &headers, &uri) {
        return moved;
    }
    let by_cookie = match headers.contains_key(AUTHORIZATION) {
        true => None,
        false => shared.web_sessions.user(&headers, shared.now_ms()),
    };
    let (user, fresh) = match by_cookie {
        Some(user) => (user, false),
        None if !headers.contains_key(AUTHORIZATION) => return envelope(UNAUTHORIZED, "Cookie is invalid"),
        None => match login(&shared, &headers, peer) {
            Ok(credentials) => (credentials.user, true),
            Err(refusal) => return *refusal,
        },
    };
    let mut response = answer(&shared, &user, peer, &catalog, &db, body).await;
    if fresh {
        shared.web_sessions.set(response.headers_mut(), &user, shared.now_ms());
    }
    response
}

async fn answer(shared: &Shared, user: &str, peer: Peer, catalog: &str, db: &str, body: Body) -> Response {
    let bytes = axum::body::to_bytes(body, MAX_JSON_BODY).await.unwrap_or_default();
    let root: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let Some(sql) = root.get("stmt").and_then(Value::as_str).filter(|s| !s.trim().is_empty()) else {
        return envelope(BAD_REQUEST, "Missing statement request body");
    };
    if root.get("is_sync").and_then(Value::as_bool) == Some(false) {
        return envelope(BAD_REQUEST, "Not support async query execution");
    }
    let limit = root.get("limit").and_then(Value::as_u64).and_then(|l| usize::try_from(l).ok());
    let limit = limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    if catalog != "default_cluster" && catalog != "internal" {
        return envelope(ERROR, format!("Failed to execute sql: Unknown catalog '{catalog}'"));
    }
    shared.requests.record(crate::faults::Site::Fe, "STATEMENT", sql, std::iter::empty());
    match run(shared, user, peer, db, sql, limit).await {
        Ok(data) => success_text(&data),
        Err(error) => envelope(ERROR, format!("Failed to execute sql: {}", error.message)),
    }
}

async fn run(shared: &Shared, user: &str, peer: Peer, db: &str, sql: &str, limit: usize) -> Result<String, SqlError> {
    let started = Instant::now();
    let mut session = shared.open_session(user, &peer.0.ip().to_string(), Protocol::Http);
    session.use_database(db)?;
    let last = session.execute(sql).await?.pop();
    let elapsed = |since: Instant| since.elapsed().as_millis();
    let Some(StatementResult::Rows { schema, mut stream, types, .. }) = last else {
        return Ok(format!(r#"{{"type":"exec_status","status":{{}},"time":{}}}"#, elapsed(started)));
    };
    let mut meta = Vec::with_capacity(types.len());
    for (field, ty) in schema.fields().iter().zip(&types) {
        meta.push(format!(r#"{{"name":{},"type":"{}"}}"#, quoted(field.name()), jdbc_name(ty)));
    }
    let mut rows: Vec<String> = Vec::new();
    while rows.len() < limit {
        let Some(batch) = stream.next().await else { break };
        let batch = batch.map_err(|e| SqlError::detail(e.to_string()))?;
        for row in 0..batch.num_rows().min(limit - rows.len()) {
            let cells: Vec<String> = batch
                .columns()
                .iter()
                .zip(&types)
                .map(|(column, ty)| cell(text_value(column.as_ref(), row, ty, TextStyle::Mysql), ty))
                .collect();
            rows.push(format!("[{}]", cells.join(",")));
        }
    }
    Ok(format!(
        r#"{{"type":"result_set","meta":[{}],"data":[{}],"status":{{}},"time":{}}}"#,
        meta.join(","),
        rows.join(","),
        elapsed(started)
    ))
}

/// Numbers stay numbers, with all their digits; everything else is a string.
fn cell(text: Option<String>, ty: &DorisType) -> String {
    let Some(text) = text else { return "null".to_owned() };
    let numeric = matches!(
        ty,
        DorisType::Boolean
            | DorisType::TinyInt
            | DorisType::SmallInt
            | DorisType::Int
            | DorisType::BigInt
            | DorisType::Float
            | DorisType::Double
            | DorisType::Decimal { .. }
    );
    // NaN and infinities have no JSON number.
    if numeric && serde_json::from_str::<serde_json::Number>(&text).is_ok() { text } else { quoted(&text) }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Type name as the JDBC driver inside the FE prints it.
fn jdbc_name(ty: &DorisType) -> &'static str {
    match ty {
        DorisType::Boolean | DorisType::TinyInt => "TINYINT",
        DorisType::SmallInt => "SMALLINT",
        DorisType::Int => "INT",
        DorisType::BigInt => "BIGINT",
        DorisType::Float => "FLOAT",
        DorisType::Double => "DOUBLE",
        DorisType::Decimal { .. } => "DECIMAL",
        DorisType::Date => "DATE",
        DorisType::DateTime(_) => "DATETIME",
        _ => "CHAR",
    }
}
