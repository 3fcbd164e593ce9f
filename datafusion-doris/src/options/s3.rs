//! Options of the place where rows are staged before Doris reads them: `sink.s3.*`.

use std::fmt;

use super::entries::Entries;
use super::key::OptionKey;
use super::value::{Parsed, Secret, parse_bool, parse_size};
use crate::error::{Error, Result};

/// Least size of an object before the next one is begun: parts of an upload have at least 5 MB.
const MIN_OBJECT_BYTES: usize = 5 << 20;
/// Characters that have a meaning in the paths of Doris' table function, or that its URI ends at.
const GLOB: &[char] = &['*', '?', '[', ']', '{', '}'];
const CUT: &[char] = &['#', '%', '\\', '"', '\'', '`', '<', '>', '|', '^', '~'];

/// A bucket of an object store that speaks S3, and the place in it. This program writes there, and Doris reads.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Options {
    /// `sink.s3.endpoint`: with scheme; `https://` is put before an address without one.
    pub endpoint: String,
    /// `sink.s3.region`.
    pub region: String,
    /// `sink.s3.bucket`.
    pub bucket: String,
    /// `sink.s3.prefix`: without slashes at its ends.
    pub prefix: String,
    /// `sink.s3.access-key`.
    pub access_key: Secret,
    /// `sink.s3.secret-key`.
    pub secret_key: Secret,
    /// `sink.s3.session-token`: for temporary credentials.
    pub session_token: Option<Secret>,
    /// `sink.s3.path-style-access`, default false: the bucket stands in the path instead of the host.
    pub path_style: bool,
    /// `sink.s3.object-size`, default 128 MB: bytes after which the next object is begun.
    pub object_bytes: usize,
    /// `sink.s3.clean-up`, default false: remove staged objects once their rows are in the table.
    pub clean_up: bool,
}

impl fmt::Debug for S3Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Options")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("path_style", &self.path_style)
            .field("object_bytes", &self.object_bytes)
            .field("clean_up", &self.clean_up)
            .finish_non_exhaustive()
    }
}

impl S3Options {
    /// A place with the default settings.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn new(
        endpoint: impl AsRef<str>,
        region: impl Into<String>,
        bucket: impl Into<String>,
        prefix: impl AsRef<str>,
        access_key: Secret,
        secret_key: Secret,
    ) -> Result<Self> {
        let options = Self {
            endpoint: with_scheme(endpoint.as_ref()),
            region: region.into(),
            bucket: bucket.into(),
            prefix: prefix.as_ref().trim_matches('/').to_string(),
            access_key,
            secret_key,
            session_token: None,
            path_style: false,
            object_bytes: 128 << 20,
            clean_up: false,
        };
        options.check()?;
        Ok(options)
    }

    /// Sets [`Self::session_token`].
    pub fn with_session_token(mut self, token: Option<Secret>) -> Self {
        self.session_token = token;
        self
    }

    /// Sets [`Self::path_style`].
    pub fn with_path_style(mut self, path_style: bool) -> Self {
        self.path_style = path_style;
        self
    }

    /// Sets [`Self::object_bytes`], at least 5 MB.
    pub fn with_object_bytes(mut self, bytes: usize) -> Self {
        self.object_bytes = bytes.max(MIN_OBJECT_BYTES);
        self
    }

    /// Sets [`Self::clean_up`].
    pub fn with_clean_up(mut self, clean_up: bool) -> Self {
        self.clean_up = clean_up;
        self
    }

    /// Takes all `sink.s3.*`. `wanted` = the mode of writing needs them; otherwise they have no effect.
    pub(super) fn from_entries(entries: &mut Entries, wanted: bool) -> Result<Option<Self>> {
        let mut text = |key| entries.text(key);
        let endpoint = text(OptionKey::S3Endpoint);
        let region = text(OptionKey::S3Region);
        let bucket = text(OptionKey::S3Bucket);
        let prefix = text(OptionKey::S3Prefix);
        let access_key = text(OptionKey::S3AccessKey);
        let secret_key = text(OptionKey::S3SecretKey);
        let token = text(OptionKey::S3SessionToken);
        let path_style = entries.parse(OptionKey::S3PathStyleAccess, parse_bool)?.unwrap_or(false);
        let object_bytes = entries.parse(OptionKey::S3ObjectSize, parse_object_size)?;
        let clean_up = entries.parse(OptionKey::S3CleanUp, parse_bool)?.unwrap_or(false);
        if !wanted {
            return Ok(None);
        }
        let needed = |key: OptionKey, value: Option<String>| match value.filter(|value| !value.trim().is_empty()) {
            Some(value) => Ok(value),
            None => Err(Error::config(key.as_ref(), "is required with 'sink.write-mode' = 'TVF'")),
        };
        let mut options = Self {
            endpoint: with_scheme(&needed(OptionKey::S3Endpoint, endpoint)?),
            region: needed(OptionKey::S3Region, region)?.trim().to_string(),
            bucket: needed(OptionKey::S3Bucket, bucket)?.trim().to_string(),
            prefix: needed(OptionKey::S3Prefix, prefix)?.trim().trim_matches('/').to_string(),
            access_key: Secret::new(needed(OptionKey::S3AccessKey, access_key)?),
            secret_key: Secret::new(needed(OptionKey::S3SecretKey, secret_key)?),
            session_token: token.filter(|token| !token.is_empty()).map(Secret::new),
            path_style,
            object_bytes: 128 << 20,
            clean_up,
        };
        options.object_bytes = object_bytes.unwrap_or(options.object_bytes);
        options.check()?;
        Ok(Some(options))
    }

    /// Whether this program and Doris reach the same objects by these options.
    ///
    /// # Errors
    /// [`Error::Config`] that names the option.
    pub fn check(&self) -> Result<()> {
        check_endpoint(&self.endpoint).map_err(|reason| Error::config(OptionKey::S3Endpoint.as_ref(), reason))?;
        check_bucket(&self.bucket).map_err(|reason| Error::config(OptionKey::S3Bucket.as_ref(), reason))?;
        check_prefix(&self.prefix).map_err(|reason| Error::config(OptionKey::S3Prefix.as_ref(), reason))?;
        if self.bucket.contains('.') && !self.path_style && self.endpoint.starts_with("https://") {
            return Err(Error::config(
                OptionKey::S3Bucket.as_ref(),
                format!(
                    "'{}' has a dot, and certificates of hosts fit one name only: set 'sink.s3.path-style-access' = 'true'",
                    self.bucket
                ),
            ));
        }
        Ok(())
    }

    /// The URL that requests for objects begin with: with the bucket in the host, unless it stands in the path.
    pub(crate) fn base_url(&self) -> String {
        match self.endpoint.split_once("://") {
            Some((scheme, host)) if !self.in_path() => format!("{scheme}://{}.{host}", self.bucket),
            _ => self.endpoint.clone(),
        }
    }

    /// Whether the bucket stands in the path: as asked for, and where a host is an address, which has no subdomains.
    pub(crate) fn in_path(&self) -> bool {
        let host = self.endpoint.split_once("://").map_or("", |(_, host)| host);
        let address = host.parse::<std::net::SocketAddr>().is_ok() || host.parse::<std::net::IpAddr>().is_ok();
        self.path_style || address
    }

    /// `text` without the credentials that it may repeat.
    pub(crate) fn masked(&self, text: &str) -> String {
        let token = self.session_token.as_ref();
        let secrets = [Some(&self.secret_key), token, Some(&self.access_key)];
        let mut out = text.to_string();
        for secret in secrets.into_iter().flatten().map(Secret::reveal).filter(|secret| !secret.is_empty()) {
            // As it is, and as it stands in a statement.
            let literal = crate::sql::string_literal(secret);
            out = out.replace(&literal[1..literal.len() - 1], "***").replace(secret, "***");
        }
        out
    }
}

fn with_scheme(endpoint: &str) -> String {
    let endpoint = endpoint.trim().trim_end_matches('/');
    match endpoint.split_once("://") {
        Some((scheme, rest)) => format!("{}://{rest}", scheme.to_ascii_lowercase()),
        None => format!("https://{endpoint}"),
    }
}

fn check_endpoint(endpoint: &str) -> Parsed<()> {
    let (scheme, host) = endpoint.split_once("://").unwrap_or(("", endpoint));
    if !matches!(scheme, "http" | "https") {
        return Err("is neither http nor https".into());
    }
    // What stands before an `@` may be a secret.
    if host.contains('@') {
        return Err("holds credentials; use 'sink.s3.access-key' and 'sink.s3.secret-key'".into());
    }
    if host.is_empty() || host.contains(['/', '?', '#']) || host.contains(char::is_whitespace) {
        return Err("is not of the form https://host[:port]".into());
    }
    Ok(())
}

fn check_bucket(bucket: &str) -> Parsed<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !bucket.is_empty() && bucket.chars().all(fits) {
        true => Ok(()),
        false => Err(format!("'{bucket}' is not the name of a bucket")),
    }
}

fn check_prefix(prefix: &str) -> Parsed<()> {
    if prefix.is_empty() {
        return Err("must not be empty: staged objects need a place of their own".into());
    }
    if let Some(found) = prefix.chars().find(|c| GLOB.contains(c)) {
        return Err(format!("has '{found}', which Doris reads as a pattern of names"));
    }
    if let Some(found) = prefix.chars().find(|c| CUT.contains(c) || c.is_control()) {
        return Err(format!("has {found:?}, which not every reader of a URI takes as it is"));
    }
    match prefix.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some(part) => Err(format!("has the empty or relative part '{part}'")),
        None => Ok(()),
    }
}

fn parse_object_size(text: &str) -> Parsed<usize> {
    match parse_size(text)? {
        bytes if bytes < MIN_OBJECT_BYTES => Err("must be at least 5mb".into()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn place(endpoint: &str, bucket: &str, prefix: &str) -> Result<S3Options> {
        let (access, secret) = (Secret::new("access"), Secret::new("k'ey\\"));
        S3Options::new(endpoint, "us-east-1", bucket, prefix, access, secret)
    }

    #[test]
    fn bucket_stands_in_the_host_or_in_the_path() {
        let cases = [
            ("https://s3.example.com", false, "https://b.s3.example.com", false),
            ("s3.example.com/", false, "https://b.s3.example.com", false),
            ("HTTP://s3.example.com:9000", true, "http://s3.example.com:9000", true),
            ("http://127.0.0.1:9000", false, "http://127.0.0.1:9000", true),
        ];
        for (endpoint, path_style, url, in_path) in cases {
            let place = place(endpoint, "b", "p").unwrap().with_path_style(path_style);
            assert_eq!((place.base_url().as_str(), place.in_path()), (url, in_path), "{endpoint}");
        }
    }

    #[test]
    fn prefix_keeps_odd_characters_and_loses_slashes_at_its_ends() {
        let place = place("https://h", "b", "/stage/dt=2026-01-01/run+1:2/a b/").unwrap();
        assert_eq!(place.prefix, "stage/dt=2026-01-01/run+1:2/a b");
    }

    #[test]
    fn places_that_two_readers_take_differently_are_refused_by_name() {
        let cases = [
            (place("https://h", "b", "a/*"), "sink.s3.prefix"),
            (place("https://h", "b", "a/{1}"), "sink.s3.prefix"),
            (place("https://h", "b", "a?"), "sink.s3.prefix"),
            (place("https://h", "b", "a%20b"), "sink.s3.prefix"),
            (place("https://h", "b", "a#b"), "sink.s3.prefix"),
            (place("https://h", "b", "a//b"), "sink.s3.prefix"),
            (place("https://h", "b", "a/../b"), "sink.s3.prefix"),
            (place("https://h", "b", "/"), "sink.s3.prefix"),
            (place("https://h", "b/c", "a"), "sink.s3.bucket"),
            (place("https://u:pw@h", "b", "a"), "sink.s3.endpoint"),
            (place("ftp://h", "b", "a"), "sink.s3.endpoint"),
            (place("https://h/path", "b", "a"), "sink.s3.endpoint"),
        ];
        for (place, option) in cases {
            let error = place.unwrap_err().to_string();
            assert!(error.contains(option) && !error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn dotted_bucket_needs_path_style_over_tls_only() {
        let error = place("https://h", "data.lake", "p").unwrap_err().to_string();
        assert!(error.contains("sink.s3.bucket") && error.contains("sink.s3.path-style-access"), "{error}");
        place("http://h", "data.lake", "p").unwrap();
        let options = S3Options { bucket: "data.lake".into(), ..place("https://h", "b", "p").unwrap() };
        options.with_path_style(true).check().unwrap();
    }

    #[test]
    fn secrets_are_in_no_text() {
        let place = place("https://h", "b", "p").unwrap().with_session_token(Some(Secret::new("token")));
        let text = format!("{place:?}");
        assert!(!text.contains("access\"") && !text.contains("k'ey") && !text.contains("token"), "{text}");
        assert_eq!(place.masked("of access 'k''ey\\\\' and k'ey\\ by token"), "of *** '***' and *** by ***");
    }
}
