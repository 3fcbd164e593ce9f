//! The 307 of an FE to a BE.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONNECTION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::auth::Credentials;
use super::envelope::load_refusal;
use crate::engine::Profile;
use crate::shared::Shared;

/// What Java's URI builder leaves as it is in user info.
const USER_INFO: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b';')
    .remove(b':')
    .remove(b'&')
    .remove(b'=')
    .remove(b'+')
    .remove(b'$')
    .remove(b',');

/// Redirects to the BE; the request body stays unread.
pub(super) fn to_backend(shared: &Shared, uri: &Uri, credentials: &Credentials) -> Response {
    let location =
        location(&shared.host_port(shared.addresses.be_http), uri, credentials, shared.profile() == Profile::V2_1);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html;charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    match HeaderValue::from_str(&location) {
        Ok(value) => headers.insert(LOCATION, value),
        Err(_) => return load_refusal("the request path cannot be redirected"),
    };
    response
}

/// `http://<user>:<password>@<be><path>[?<query>]`; builds of 2.x leave a trailing `?`.
fn location(backend: &str, uri: &Uri, credentials: &Credentials, trailing_mark: bool) -> String {
    let user_info = format!("{}:{}", credentials.user, credentials.password);
    let query = match uri.query() {
        Some(query) => format!("?{query}"),
        None if trailing_mark => "?".to_owned(),
        None => String::new(),
    };
    format!("http://{}@{backend}{}{query}", utf8_percent_encode(&user_info, USER_INFO), uri.path())
}

/// Refuses redirect policies that need an endpoint no BE here has.
pub(super) fn check_policy(headers: &HeaderMap) -> Result<(), Box<Response>> {
    let policy = headers.get("redirect-policy").and_then(|v| v.to_str().ok()).unwrap_or_default().trim();
    match policy.to_ascii_lowercase().as_str() {
        "" | "direct" | "random-be" => Ok(()),
        "public" | "public-private" => {
            Err(Box::new(load_refusal("public endpoint is null, please check be public endpoint config")))
        }
        "private" => Err(Box::new(load_refusal("private endpoint is null, please check be private endpoint config"))),
        other => Err(Box::new(load_refusal(format!("the sandbox does not implement redirect-policy {other}")))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn location_of(user: &str, password: &str, uri: &str, mark: bool) -> String {
        let credentials = Credentials { user: user.into(), password: password.into() };
        location("127.0.0.1:8040", &uri.parse().expect("uri"), &credentials, mark)
    }

    #[test]
    fn user_info_is_percent_encoded() {
        assert_eq!(
            location_of("root", "p@ss/w?#%:ü", "/api/d/t/_stream_load", false),
            "http://root:p%40ss%2Fw%3F%23%25:%C3%BC@127.0.0.1:8040/api/d/t/_stream_load"
        );
    }

    #[test]
    fn the_query_is_kept_and_old_builds_leave_a_mark() {
        assert_eq!(
            location_of("root", "", "/api/d/t/_stream_load?a=b", true),
            "http://root:@127.0.0.1:8040/api/d/t/_stream_load?a=b"
        );
        assert_eq!(
            location_of("root", "", "/api/d/t/_stream_load", true),
            "http://root:@127.0.0.1:8040/api/d/t/_stream_load?"
        );
    }
}
