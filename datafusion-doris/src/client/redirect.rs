//! Where a redirect may lead.
//!
//! An FE sends loads and two-phase-commit requests to a BE with `307` and a `Location` that may hold user info. The
//! user info is dropped: our own `Authorization` goes to the host that the FE named, and to no other. Path and query
//! stay as they are, byte for byte.

use reqwest::Url;

use crate::error::{Error, Result, Retry};
use crate::protocol::parse_redirect;

/// Redirects followed for one request: FE to master FE, to BE, and one to spare.
pub(super) const MAX_REDIRECTS: usize = 3;

/// The next URL of a request that `from` answered with a redirect to `location`.
///
/// # Errors
/// [`Error::Transport`] when `location` is missing or malformed, or goes from https to http.
pub(super) fn target(from: &Url, location: Option<&str>) -> Result<Url> {
    let refuse = |reason: String| Error::Transport {
        host: super::http::authority(from),
        operation: "following the redirect".into(),
        retry: Retry::Never,
        source: reason.into(),
    };
    let location = location.ok_or_else(|| refuse("the answer has no Location header".into()))?;
    let target = parse_redirect(location).map_err(|malformed| refuse(malformed.to_string()))?;
    if from.scheme() == "https" && target.scheme != "https" {
        return Err(refuse(format!(
            "the redirect to {} leaves https, credentials are not sent there",
            target.authority()
        )));
    }
    Url::parse(&target.url()).map_err(|error| refuse(format!("the Location of the redirect is no URL: {error}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn follow(from: &str, location: &str) -> Result<String> {
        target(&Url::parse(from).unwrap(), Some(location)).map(String::from)
    }

    #[test]
    fn user_info_is_removed_and_path_and_query_are_kept_byte_for_byte() {
        let location = "http://app_rw:x%40y@127.0.0.1:8040/api/d%2Fb/t/_stream_load?k=%20v";
        let url = follow("http://fe:8030/api/d%2Fb/t/_stream_load?k=%20v", location).unwrap();
        assert_eq!(url, "http://127.0.0.1:8040/api/d%2Fb/t/_stream_load?k=%20v");
    }

    #[test]
    fn trailing_question_mark_of_older_servers_is_accepted() {
        let url = follow("http://fe:8030/x", "http://root:@be:8040/api/d/t/_stream_load?").unwrap();
        assert_eq!(url, "http://be:8040/api/d/t/_stream_load");
    }

    #[test]
    fn unsafe_targets_are_refused_without_showing_credentials() {
        for location in ["http://u:secret@be:8040/x", "ftp://u:secret@be/x", "http://", "file:///etc/passwd"] {
            let error = follow("https://fe:8030/x", location).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(target(&Url::parse("http://fe:1/x").unwrap(), None).is_err());
    }
}
