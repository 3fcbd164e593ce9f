//! What the server tests share: a sandbox with tables, an HTTP client that follows nothing, raw requests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::redirect::Policy;
use reqwest::{Client, Method};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::sandbox::{Outcome, Sandbox, SandboxBuilder};
use crate::types::{DorisType, TextStyle, text_value};

/// Databases and tables of the tests: `d.dup` and `d.uniq`, both (id INT, v VARCHAR(5), n BIGINT NOT NULL DEFAULT 7).
pub(crate) const SEED: &str = r#"
CREATE DATABASE d;
CREATE TABLE d.dup (id INT NULL, v VARCHAR(5) NULL, n BIGINT NOT NULL DEFAULT "7")
DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2 PROPERTIES ("replication_num" = "1");
CREATE TABLE d.uniq (id INT NOT NULL, v VARCHAR(5) NULL, n BIGINT NOT NULL DEFAULT "7")
UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true");
"#;

pub(crate) fn builder() -> SandboxBuilder {
    Sandbox::builder().password("pw").seed_sql(SEED)
}

pub(crate) async fn sandbox() -> Sandbox {
    builder().start().await.expect("sandbox")
}

pub(crate) fn http() -> Client {
    // Another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().redirect(Policy::none()).build().expect("client")
}

pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// A request as root; the body as text.
pub(crate) async fn send(
    method: Method,
    url: String,
    headers: &[(&str, &str)],
    body: impl Into<reqwest::Body>,
) -> String {
    let mut request = http().request(method, url).basic_auth("root", Some("pw")).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.expect("answer").text().await.expect("text")
}

pub(crate) async fn send_json(
    method: Method,
    url: String,
    headers: &[(&str, &str)],
    body: impl Into<reqwest::Body>,
) -> Value {
    let text = send(method, url, headers, body).await;
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A Stream Load straight to the BE.
pub(crate) async fn load(
    sandbox: &Sandbox,
    table: &str,
    headers: &[(&str, &str)],
    body: impl Into<reqwest::Body>,
) -> Value {
    let url = format!("http://{}/api/d/{table}/_stream_load", sandbox.backend(0).http());
    send_json(Method::PUT, url, headers, body).await
}

/// The second phase of a load.
pub(crate) async fn second_phase(sandbox: &Sandbox, headers: &[(&str, &str)]) -> (String, String) {
    let url = format!("http://{}/api/d/_stream_load_2pc", sandbox.backend(0).http());
    let answer = send_json(Method::PUT, url, headers, "").await;
    let text = |key: &str| answer[key].as_str().expect("text").to_owned();
    (text("status"), text("msg"))
}

/// Cells of a query as texts, rows joined by `|`, NULL as `NULL`.
pub(crate) async fn query(sandbox: &Sandbox, sql: &str) -> Vec<String> {
    let outcome = sandbox.execute(sql).await.expect("query").pop().expect("result");
    let Outcome::Rows { schema, batches } = outcome else { panic!("{sql} has no rows") };
    let types: Vec<DorisType> = schema.fields().iter().map(|f| DorisType::of_field(f).expect("type")).collect();
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = batch
                .columns()
                .iter()
                .zip(&types)
                .map(|(c, ty)| text_value(c.as_ref(), row, ty, TextStyle::Mysql).unwrap_or("NULL".into()))
                .collect();
            rows.push(cells.join("|"));
        }
    }
    rows
}

/// Sends bytes and reads until the server closes.
pub(crate) async fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    stream.write_all(request.as_bytes()).await.expect("write");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("read");
    String::from_utf8(answer).expect("text")
}
