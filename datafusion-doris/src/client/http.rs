//! HTTP: one request in, one answer out, with credentials, time limits and the redirect rule.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

use super::redirect::{MAX_REDIRECTS, target};
use crate::error::{Error, Result, Retry};
use crate::options::ConnectionOptions;

/// Largest answer that is read; schemas, tablet lists and load answers are far below.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// What a path segment or query value keeps unescaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Escapes one path segment or query value.
pub(super) fn escape(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// The host of `host:port`, brackets of IPv6 kept.
pub(super) fn host_of(authority: &str) -> &str {
    let without_scheme = authority.split_once("://").map_or(authority, |(_, rest)| rest);
    without_scheme.rsplit_once(':').map_or(without_scheme, |(host, _)| host)
}

/// `host:port` of a URL: what errors may show of it.
pub(super) fn authority(url: &Url) -> String {
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_string(),
        (None, _) => url.scheme().to_string(),
    }
}

/// `path` (with its leading slash, escaped) on `node`, which is `host:port`, with or without a scheme.
pub(super) fn url(node: &str, path: &str) -> Result<Url> {
    let base = if node.contains("://") { node.to_string() } else { format!("http://{node}") };
    Url::parse(&format!("{}{path}", base.trim_end_matches('/')))
        .map_err(|error| Error::config("fenodes", format!("'{node}' is no host:port ({error})")))
}

/// One request. The body is kept, so that a redirect can repeat it.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    pub(super) fn get() -> Self {
        Self { method: Method::GET, headers: HeaderMap::new(), body: Bytes::new() }
    }

    pub(super) fn post_json(body: &serde_json::Value) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { method: Method::POST, headers, body: Bytes::from(body.to_string()) }
    }

    pub(super) fn put(headers: HeaderMap) -> Self {
        Self { method: Method::PUT, headers, body: Bytes::new() }
    }
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// `host:port` that gave it, after redirects.
    pub(super) host: String,
    pub(super) status: StatusCode,
    pub(super) body: String,
}

/// Headers from name and value texts; a value may hold UTF-8, as column lists do.
pub(super) fn header_map<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let bad =
            |what: &str| Error::config(format!("sink.properties.{name}"), format!("{what} cannot be sent in a header"));
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("the name"))?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad("the value"))?;
        headers.insert(key, value);
    }
    Ok(headers)
}

/// The two connection pools: metadata requests reuse connections; a load takes a new one, since it cannot be
/// repeated when a kept connection turns out to be closed.
#[derive(Debug)]
pub(super) struct Http {
    metadata: reqwest::Client,
    load: reqwest::Client,
    authorization: HeaderValue,
    read_timeout: Duration,
}

impl Http {
    pub(super) fn try_new(options: &ConnectionOptions) -> Result<Self> {
        let build = |pool: bool| {
            let builder = reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .connect_timeout(options.connect_timeout)
                .tcp_nodelay(true)
                .tcp_keepalive(Duration::from_secs(30))
                .http1_only();
            let builder = if pool { builder } else { builder.pool_max_idle_per_host(0) };
            builder.build().map_err(|error| Error::config("fenodes", format!("cannot set up http: {error}")))
        };
        let credentials = BASE64_STANDARD.encode(format!("{}:{}", options.username, options.password.reveal()));
        let mut authorization = HeaderValue::from_str(&format!("Basic {credentials}"))
            .map_err(|_| Error::config("password", "cannot be sent in a header"))?;
        authorization.set_sensitive(true);
        Ok(Self { metadata: build(true)?, load: build(false)?, authorization, read_timeout: options.read_timeout })
    }

    /// Sends `request` to `path` of `node`, follows redirects by our own rule, and reads the answer.
    ///
    /// # Errors
    /// [`Error::Transport`] with `retry` as the caller says the request is: [`Retry::SameLabel`] also when the
    /// connection could not be made at all, else `when_lost`.
    pub(super) fn send<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
        operation: &'a str,
        request: Request,
        when_lost: Retry,
    ) -> BoxFuture<'a, Result<Answer>> {
        async move {
            let mut url = url(node, path)?;
            for _ in 0..=MAX_REDIRECTS {
                let host = authority(&url);
                let exchange = async {
                    let response = self.start(&self.metadata, &url, &request).send().await?;
                    let status = response.status();
                    if status.is_redirection() {
                        return Ok(Step::Redirect(location(response.headers())));
                    }
                    Ok(Step::Answer(status, read_body(response).await?))
                };
                let step = match tokio::time::timeout(self.read_timeout, exchange).await {
                    Ok(step) => step.map_err(|error| transport_error(&host, operation, when_lost, error)),
                    Err(elapsed) => Err(Error::Transport {
                        host: host.clone(),
                        operation: operation.to_string(),
                        retry: when_lost,
                        source: Box::new(elapsed),
                    }),
                };
                match step? {
                    Step::Answer(status, body) => return Ok(Answer { host, status, body }),
                    Step::Redirect(location) => url = target(&url, location.as_deref())?,
                }
            }
            Err(too_many_redirects(&url, operation))
        }
        .boxed()
    }

    /// Asks `node` where a load to `path` goes, without sending any of its body.
    ///
    /// The request has the `Expect` header that the FE demands and an empty body, so nothing of the load can get
    /// stuck at the FE. A node that answers itself (a refusal) gives `Err` with its answer.
    pub(super) fn resolve_load<'a>(
        &'a self,
        node: &'a str,
        path: &'a str,
        operation: &'a str,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<std::result::Result<Url, Answer>>> {
        async move {
            let url = url(node, path)?;
            let host = authority(&url);
            let mut request = Request::put(headers.clone());
            request.headers.insert(http::header::EXPECT, HeaderValue::from_static("100-continue"));
            let exchange = async {
                let response = self.start(&self.load, &url, &request).send().await?;
                let status = response.status();
                if status.is_redirection() {
                    return Ok(Step::Redirect(location(response.headers())));
                }
                Ok(Step::Answer(status, read_body(response).await?))
            };
            // Nothing was loaded yet: whatever happens here, the load may be tried again.
            let step = tokio::time::timeout(self.read_timeout, exchange)
                .await
                .map_err(|elapsed| Error::Transport {
                    host: host.clone(),
                    operation: operation.to_string(),
                    retry: Retry::SameLabel,
                    source: Box::new(elapsed),
                })?
                .map_err(|error| transport_error(&host, operation, Retry::SameLabel, error))?;
            match step {
                Step::Redirect(location) => Ok(Ok(target(&url, location.as_deref())?)),
                Step::Answer(status, body) => Ok(Err(Answer { host, status, body })),
            }
        }
        .boxed()
    }

    /// Sends a load's body to `url` and reads the answer; no time limit of its own.
    pub(super) fn put_stream<'a>(
        &'a self,
        url: Url,
        operation: &'a str,
        mut headers: HeaderMap,
        body: reqwest::Body,
    ) -> BoxFuture<'a, Result<Answer>> {
        async move {
            let host = authority(&url);
            headers.insert(AUTHORIZATION, self.authorization.clone());
            headers.insert(http::header::EXPECT, HeaderValue::from_static("100-continue"));
            let exchange = async {
                let response = self.load.put(url.clone()).headers(headers).body(body).send().await?;
                let status = response.status();
                if status.is_redirection() {
                    return Ok(Step::Redirect(location(response.headers())));
                }
                Ok(Step::Answer(status, read_body(response).await?))
            };
            match exchange.await.map_err(|error| transport_error(&host, operation, Retry::AskLabelState, error))? {
                Step::Answer(status, body) => Ok(Answer { host, status, body }),
                // The body is under way and cannot be repeated.
                Step::Redirect(_) => Err(Error::Transport {
                    host,
                    operation: operation.to_string(),
                    retry: Retry::Never,
                    source: "the node redirected a load that was under way; list backends, not frontends, in 'benodes'"
                        .into(),
                }),
            }
        }
        .boxed()
    }

    /// The first `limit` bytes of what is at `url`, or a little more. No credentials are sent, no redirect is followed.
    pub(super) async fn get_start(&self, url: Url, limit: usize) -> Result<String, reqwest::Error> {
        let mut response = self.load.get(url).send().await?.error_for_status()?;
        let mut body = BytesMut::new();
        while body.len() < limit
            && let Some(chunk) = response.chunk().await?
        {
            body.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn start(&self, client: &reqwest::Client, url: &Url, request: &Request) -> reqwest::RequestBuilder {
        let builder = client
            .request(request.method.clone(), url.clone())
            .headers(request.headers.clone())
            .header(AUTHORIZATION, self.authorization.clone());
        if request.body.is_empty() && request.method != Method::GET {
            builder.header(http::header::CONTENT_LENGTH, 0)
        } else {
            builder.body(request.body.clone())
        }
    }
}

enum Step {
    Answer(StatusCode, String),
    Redirect(Option<String>),
}

fn location(headers: &HeaderMap) -> Option<String> {
    headers.get(LOCATION).and_then(|value| String::from_utf8(value.as_bytes().to_vec()).ok())
}

/// Why an exchange failed below the level of an answer.
#[derive(Debug)]
enum ExchangeError {
    Http(reqwest::Error),
    TooLarge,
}

impl From<reqwest::Error> for ExchangeError {
    fn from(error: reqwest::Error) -> Self {
        // The URL may hold names of tables, and the error names the host already.
        Self::Http(error.without_url())
    }
}

async fn read_body(mut response: reqwest::Response) -> Result<String, ExchangeError> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(ExchangeError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

fn transport_error(host: &str, operation: &str, when_lost: Retry, error: ExchangeError) -> Error {
    let (retry, source): (Retry, Box<dyn std::error::Error + Send + Sync>) = match error {
        ExchangeError::Http(error) if error.is_connect() => (Retry::SameLabel, chain(error)),
        ExchangeError::Http(error) => (when_lost, chain(error)),
        ExchangeError::TooLarge => (Retry::Never, format!("the answer is larger than {MAX_ANSWER_BYTES} bytes").into()),
    };
    Error::Transport { host: host.to_string(), operation: operation.to_string(), retry, source }
}

/// reqwest prints "error sending request" and hides the reason in its sources: the last one is the one to read.
fn chain(error: reqwest::Error) -> Box<dyn std::error::Error + Send + Sync> {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text.into()
}

fn too_many_redirects(url: &Url, operation: &str) -> Error {
    Error::Transport {
        host: authority(url),
        operation: operation.to_string(),
        retry: Retry::Never,
        source: format!("more than {MAX_REDIRECTS} redirects").into(),
    }
}
