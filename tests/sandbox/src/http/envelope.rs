//! The JSON shapes FE handlers answer with. The HTTP status is 200 nearly everywhere; the outcome is in the body.

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::Value;

/// Body code of success.
pub const OK: i32 = 0;
/// Body code of a common error.
pub const ERROR: i32 = 1;
/// Body code of a missing or wrong login.
pub const UNAUTHORIZED: i32 = 401;
/// Body code of a bad request: 403, not 400.
pub const BAD_REQUEST: i32 = 403;
/// Body code of a path that is not served.
pub const NOT_FOUND: i32 = 404;

/// The fixed `msg` of a code.
fn fixed_message(code: i32) -> &'static str {
    match code {
        OK => "success",
        ERROR => "Error",
        UNAUTHORIZED => "Unauthorized",
        BAD_REQUEST => "Bad Request",
        NOT_FOUND => "Not Found",
        _ => "Internal Error",
    }
}

#[derive(Serialize)]
struct Envelope {
    msg: &'static str,
    code: i32,
    data: Value,
    count: i32,
}

/// A JSON response with status 200.
pub fn json(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

/// An envelope with this code.
pub fn envelope(code: i32, data: impl Into<Value>) -> Response {
    let body = Envelope { msg: fixed_message(code), code, data: data.into(), count: 0 };
    json(serde_json::to_string(&body).unwrap_or_default())
}

/// An envelope of success around JSON text.
pub fn success_text(data: &str) -> Response {
    json(format!("{{\"msg\":\"success\",\"code\":0,\"data\":{data},\"count\":0}}"))
}

/// What load endpoints answer when the FE refuses.
pub fn load_refusal(message: impl AsRef<str>) -> Response {
    let message = serde_json::to_string(message.as_ref()).unwrap_or_default();
    json(format!("{{\"status\":\"FAILED\",\"msg\":{message}}}"))
}
