//! One request to the S3 endpoint.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State as Shared};
use axum::response::Response;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, Method, StatusCode, Uri};
use percent_encoding::percent_decode_str;

use super::{S3Request, State};

/// Largest body of one request.
const MAX_BODY: usize = 512 * 1024 * 1024;

/// What a request is about.
struct Target {
    bucket: String,
    key: String,
    query: BTreeMap<String, String>,
    virtual_host: bool,
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

impl Target {
    fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        let host = headers.get(http::header::HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let name = host.split(':').next().unwrap_or_default();
        let path = uri.path().trim_start_matches('/');
        // An address is never a bucket; `bucket.localhost` and `bucket.some.host` are.
        let labelled = name.parse::<std::net::IpAddr>().is_err() && name.contains('.');
        let (bucket, key) = match name.split_once('.') {
            Some((bucket, _)) if labelled => (bucket.to_owned(), decoded(path)),
            _ => match path.split_once('/') {
                Some((bucket, key)) => (decoded(bucket), decoded(key)),
                None => (decoded(path), String::new()),
            },
        };
        let query = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decoded(name), decoded(&value.replace('+', " ")))
            })
            .collect();
        Self { bucket, key, query, virtual_host: labelled }
    }

    fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn plain(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
}

fn xml(status: StatusCode, body: String) -> Response {
    let mut response = plain(status, format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}"));
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/xml"));
    response
}

fn error(status: StatusCode, code: &str, target: &Target) -> Response {
    let resource = escape(&format!("/{}/{}", target.bucket, target.key));
    xml(status, format!("<Error><Code>{code}</Code><Message>{code}</Message><Resource>{resource}</Resource></Error>"))
}

fn with_header(mut response: Response, name: &'static str, value: &str) -> Response {
    if let Ok(value) = http::HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}

pub(super) async fn answer(Shared(state): Shared<Arc<State>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = Target::of(&parts.uri, &parts.headers);
    let signed = parts.headers.contains_key(http::header::AUTHORIZATION);
    let range = parts.headers.get(http::header::RANGE).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let method = parts.method.clone();
    if !target.key.is_empty() && state.stalled.lock().iter().any(|part| target.key.contains(part)) {
        std::future::pending::<()>().await;
    }
    let response = match refusal(&state, &method, &target, &parts.headers) {
        Some(response) => response,
        None => match axum::body::to_bytes(body, MAX_BODY).await {
            Ok(body) => run(&state, &method, &target, &parts.headers, range.as_deref(), body),
            Err(_) => error(StatusCode::BAD_REQUEST, "IncompleteBody", &target),
        },
    };
    state.seen.lock().push(S3Request {
        method: method.to_string(),
        bucket: target.bucket,
        key: target.key,
        query: parts.uri.query().unwrap_or_default().to_owned(),
        range,
        signed,
        virtual_host: target.virtual_host,
        status: response.status().as_u16(),
    });
    state.answered.send_modify(|answers| *answers += 1);
    response
}

/// A refusal armed by a test, or one of the credentials.
fn refusal(state: &State, method: &Method, target: &Target, headers: &HeaderMap) -> Option<Response> {
    {
        let mut refusals = state.refusals.lock();
        let armed = refusals.iter().position(|r| method.as_str() == r.method && target.key.contains(&r.key_part));
        if let Some(at) = armed {
            let status = StatusCode::from_u16(refusals.remove(at).status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Some(error(status, "InternalError", target));
        }
    }
    if target.virtual_host && state.settings.path_style_only {
        return Some(error(StatusCode::BAD_REQUEST, "InvalidRequest", target));
    }
    if state.settings.buckets.as_ref().is_some_and(|buckets| !buckets.contains(&target.bucket)) {
        return Some(error(StatusCode::NOT_FOUND, "NoSuchBucket", target));
    }
    let Some(key) = &state.settings.access_key else { return None };
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let authorization = text("authorization");
    let Some(fields) = authorization.strip_prefix("AWS4-HMAC-SHA256 ") else {
        return Some(error(StatusCode::FORBIDDEN, "AccessDenied", target));
    };
    let field = |name: &str| fields.split(',').find_map(|f| f.trim().strip_prefix(name)).unwrap_or_default();
    if field("Credential=").split('/').next() != Some(key) {
        return Some(error(StatusCode::FORBIDDEN, "InvalidAccessKeyId", target));
    }
    let complete = field("Signature=").len() == 64 && !field("SignedHeaders=").is_empty();
    if !complete || text("x-amz-date").is_empty() {
        return Some(error(StatusCode::FORBIDDEN, "SignatureDoesNotMatch", target));
    }
    if state.settings.session_token.as_deref().is_some_and(|token| token != text("x-amz-security-token")) {
        return Some(error(StatusCode::FORBIDDEN, "InvalidToken", target));
    }
    None
}

fn run(
    state: &State,
    method: &Method,
    target: &Target,
    headers: &HeaderMap,
    range: Option<&str>,
    body: Bytes,
) -> Response {
    let has = |name: &str| target.query.contains_key(name);
    match (method.as_str(), target.key.is_empty()) {
        ("GET", true) if has("list-type") => list(state, target),
        ("HEAD", true) if state.objects.lock().has_bucket(&target.bucket) => plain(StatusCode::OK, ""),
        ("POST", true) if has("delete") => delete_many(state, target, &body),
        ("GET" | "HEAD", false) => read(state, target, range),
        ("POST", false) if has("uploads") => {
            let id = state.objects.lock().begin_upload(&target.bucket, &target.key);
            xml(
                StatusCode::OK,
                format!(
                    "<InitiateMultipartUploadResult><Bucket>{}</Bucket><Key>{}</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>",
                    escape(&target.bucket),
                    escape(&target.key)
                ),
            )
        }
        ("PUT", false) if has("uploadId") => {
            let number = target.parameter("partNumber").parse().unwrap_or(0);
            match state.objects.lock().put_part(target.parameter("uploadId"), number, body) {
                Some(etag) => with_header(plain(StatusCode::OK, ""), "etag", &format!("\"{etag}\"")),
                None => error(StatusCode::NOT_FOUND, "NoSuchUpload", target),
            }
        }
        ("POST", false) if has("uploadId") => complete(state, target, &body),
        ("DELETE", false) if has("uploadId") => match state.objects.lock().abort_upload(target.parameter("uploadId")) {
            true => plain(StatusCode::NO_CONTENT, ""),
            false => error(StatusCode::NOT_FOUND, "NoSuchUpload", target),
        },
        ("PUT", false) => {
            let mut objects = state.objects.lock();
            let exists = objects.get(&target.bucket, &target.key).is_some();
            if exists && headers.get(http::header::IF_NONE_MATCH).is_some_and(|v| v == "*") {
                return error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", target);
            }
            let etag = objects.put(&target.bucket, &target.key, body);
            with_header(plain(StatusCode::OK, ""), "etag", &format!("\"{etag}\""))
        }
        ("DELETE", false) => {
            state.objects.lock().delete(&target.bucket, &target.key);
            plain(StatusCode::NO_CONTENT, "")
        }
        _ => error(StatusCode::NOT_IMPLEMENTED, "NotImplemented", target),
    }
}

fn list(state: &State, target: &Target) -> Response {
    let objects = state.objects.lock();
    if !objects.has_bucket(&target.bucket) {
        return error(StatusCode::NOT_FOUND, "NoSuchBucket", target);
    }
    let limit = target.parameter("max-keys").parse().unwrap_or(1000).min(state.settings.page).max(1);
    let after = match target.parameter("continuation-token") {
        "" => target.parameter("start-after"),
        token => token,
    };
    let (prefix, delimiter) = (target.parameter("prefix"), target.parameter("delimiter"));
    let page = objects.list(&target.bucket, prefix, delimiter, after, limit);
    let mut body = format!(
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>{}</Name><Prefix>{}</Prefix><KeyCount>{}</KeyCount><MaxKeys>{limit}</MaxKeys><IsTruncated>{}</IsTruncated>",
        escape(&target.bucket),
        escape(prefix),
        page.objects.len() + page.prefixes.len(),
        page.next.is_some()
    );
    if let Some(next) = &page.next {
        body.push_str(&format!("<NextContinuationToken>{}</NextContinuationToken>", escape(next)));
    }
    for (key, object) in &page.objects {
        let modified = DateTime::<Utc>::from(object.modified).format("%Y-%m-%dT%H:%M:%S%.3fZ");
        body.push_str(&format!(
            "<Contents><Key>{}</Key><LastModified>{modified}</LastModified><ETag>&quot;{}&quot;</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            escape(key),
            object.etag,
            object.body.len()
        ));
    }
    for prefix in &page.prefixes {
        body.push_str(&format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escape(prefix)));
    }
    xml(StatusCode::OK, body + "</ListBucketResult>")
}

/// `bytes=a-b`, `bytes=a-`, `bytes=-n`; `None` when nothing of it lies in the object.
fn byte_range(text: &str, length: usize) -> Option<Range<usize>> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let range = if from.is_empty() {
        length.saturating_sub(to.parse().ok()?)..length
    } else {
        let end = if to.is_empty() { length } else { to.parse::<usize>().ok()?.saturating_add(1) };
        from.parse().ok()?..end.min(length)
    };
    (range.start < range.end).then_some(range)
}

fn read(state: &State, target: &Target, range: Option<&str>) -> Response {
    let Some(object) = state.objects.lock().get(&target.bucket, &target.key).cloned() else {
        return error(StatusCode::NOT_FOUND, "NoSuchKey", target);
    };
    let length = object.body.len();
    let response = match range {
        None => {
            let length = length.to_string();
            with_header(plain(StatusCode::OK, object.body), "content-length", &length)
        }
        Some(text) => match byte_range(text, length) {
            None => return error(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", target),
            Some(range) => {
                let shown = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                let size = range.len().to_string();
                let part = plain(StatusCode::PARTIAL_CONTENT, object.body.slice(range));
                with_header(with_header(part, "content-range", &shown), "content-length", &size)
            }
        },
    };
    let modified = DateTime::<Utc>::from(object.modified).format("%a, %d %b %Y %H:%M:%S GMT").to_string();
    with_header(with_header(response, "etag", &format!("\"{}\"", object.etag)), "last-modified", &modified)
}

/// Texts between `<tag>` and `</tag>`.
fn elements<'a>(text: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    text.split(open.as_str()).skip(1).filter_map(|rest| rest.split(close.as_str()).next()).collect()
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

fn complete(state: &State, target: &Target, body: &[u8]) -> Response {
    let text = String::from_utf8_lossy(body);
    let parts: Vec<u32> = elements(&text, "PartNumber").iter().filter_map(|n| n.trim().parse().ok()).collect();
    match state.objects.lock().complete_upload(target.parameter("uploadId"), &parts) {
        Some(etag) => xml(
            StatusCode::OK,
            format!(
                "<CompleteMultipartUploadResult><Bucket>{}</Bucket><Key>{}</Key><ETag>&quot;{etag}&quot;</ETag></CompleteMultipartUploadResult>",
                escape(&target.bucket),
                escape(&target.key)
            ),
        ),
        None => error(StatusCode::NOT_FOUND, "NoSuchUpload", target),
    }
}

fn delete_many(state: &State, target: &Target, body: &[u8]) -> Response {
    let text = String::from_utf8_lossy(body);
    let mut objects = state.objects.lock();
    let mut out = "<DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">".to_owned();
    for key in elements(&text, "Key") {
        objects.delete(&target.bucket, &unescape(key));
        out.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
    }
    xml(StatusCode::OK, out + "</DeleteResult>")
}
