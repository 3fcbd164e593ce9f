//! The 307 of an FE: to a BE, to the master, to its own port with TLS.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::auth::Credentials;
use super::envelope::load_refusal;
use crate::engine::Profile;
use crate::shared::{Addresses, Shared};

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

/// Redirects to a BE; the request body stays unread. Loads with group commit of one table (`sticky`) go to one BE.
pub(super) fn to_backend(
    shared: &Shared,
    uri: &Uri,
    credentials: Option<&Credentials>,
    secure: bool,
    sticky: Option<&str>,
) -> Response {
    let cluster = &shared.cluster;
    let chosen = match sticky {
        None => cluster.next_backend().map(|(_, member)| member),
        Some(table) => {
            let alive: Vec<_> = cluster.alive_backends().map(|(_, member)| member).collect();
            let turn = table.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
            turn.checked_rem(alive.len()).and_then(|i| alive.get(i).copied())
        }
    };
    let Some(backend) = chosen else { return load_refusal(no_backend(shared.profile())) };
    let scheme = backend_scheme(shared.profile(), cluster.tls.be_http, secure);
    let host = cluster.host_port(backend.addresses.be_http);
    moved(&location(scheme, &host, uri, credentials, shared.profile() == Profile::V2_1))
}

/// Newer builds name `http` whatever the client speaks; older ones repeat the scheme of the request. BEs that speak TLS
/// only are named so.
fn backend_scheme(profile: Profile, be_tls: bool, secure: bool) -> &'static str {
    if be_tls || (secure && profile <= Profile::V3_1) { "https" } else { "http" }
}

fn no_backend(profile: Profile) -> String {
    let text = match profile {
        Profile::V2_1 => "No backend load available.",
        _ => "No backend available for load, please check the status of your backends.",
    };
    format!(
        "errCode = 2, detailMessage = {text}, policy: computeNode=false | query=false | load=true | schedule=false | \
         tags= | medium=null"
    )
}

/// Redirects to another FE.
pub(super) fn to_frontend(
    shared: &Shared,
    addresses: &Addresses,
    secure: bool,
    uri: &Uri,
    credentials: &Credentials,
) -> Response {
    let (scheme, address) = match addresses.fe_https.filter(|_| secure) {
        Some(address) => ("https", address),
        None => ("http", addresses.fe_http),
    };
    let host = shared.host_port(address);
    moved(&location(scheme, &host, uri, Some(credentials), shared.profile() == Profile::V2_1))
}

/// What an FE with `enable_https` answers on its plain port.
pub(super) fn to_https(shared: &Shared, headers: &HeaderMap, uri: &Uri) -> Option<Response> {
    let port = shared.addresses.fe_https?.port();
    // The name by which the client called.
    let called = headers.get(HOST).and_then(|v| v.to_str().ok()).unwrap_or(&shared.host);
    let name = match called.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => called,
    };
    Some(moved(&format!("https://{name}:{port}{}?{}", uri.path(), uri.query().unwrap_or_default())))
}

fn moved(location: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html;charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    match HeaderValue::from_str(location) {
        Ok(value) => headers.insert(LOCATION, value),
        Err(_) => return load_refusal("the request path cannot be redirected"),
    };
    response
}

/// `<scheme>://[<user>:<password>@]<host><path>[?<query>]`; builds of 2.x leave a trailing `?`.
fn location(scheme: &str, host: &str, uri: &Uri, credentials: Option<&Credentials>, trailing_mark: bool) -> String {
    let user_info = credentials.map_or_else(String::new, |c| {
        let plain = format!("{}:{}", c.user, c.password);
        format!("{}@", utf8_percent_encode(&plain, USER_INFO))
    });
    let query = match uri.query() {
        Some(query) => format!("?{query}"),
        None if trailing_mark => "?".to_owned(),
        None => String::new(),
    };
    format!("{scheme}://{user_info}{host}{}{query}", uri.path())
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
        location("http", "127.0.0.1:8040", &uri.parse().expect("uri"), Some(&credentials), mark)
    }

    #[test]
    fn user_info_is_percent_encoded() {
        assert_eq!(
            location_of("root", "p@ss/w?#%:ü", "/api/d/t/_stream_load", false),
            "http://root:p%40ss%2Fw%3F%23%25:%C3%BC@127.0.0.1:8040/api/d/t/_stream_load"
        );
    }

    #[test]
    fn a_cluster_token_leaves_no_user_info() {
        let uri = "/api/d/t/_stream_load".parse().expect("uri");
        assert_eq!(location("http", "be:1", &uri, None, false), "http://be:1/api/d/t/_stream_load");
    }

    #[test]
    fn the_scheme_towards_a_backend_depends_on_the_build() {
        for (profile, be_tls, secure, expected) in [
            (Profile::V3_1, false, false, "http"),
            (Profile::V3_1, false, true, "https"),
            (Profile::V4_0, false, true, "http"),
            (Profile::V5_0Changelog, false, true, "http"),
            (Profile::V5_0Changelog, true, false, "https"),
        ] {
            assert_eq!(backend_scheme(profile, be_tls, secure), expected, "{profile} {be_tls} {secure}");
        }
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
