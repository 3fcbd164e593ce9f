//! Properties of `S3(...)`: where the files are, who reads them, and how.

use std::collections::BTreeMap;

use super::glob::Glob;
use super::text::separator;
use crate::engine::Profile;
use crate::error::SqlError;
use crate::load::CsvOptions;

/// Schemes that name a bucket as `scheme://bucket/key`.
const BUCKET_SCHEMES: &[&str] = &["s3", "s3a", "s3n", "oss", "cos", "cosn", "bos", "obs", "gs", "azure"];

/// Format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Separated text, with so many lines of names and types.
    Csv {
        header_lines: usize,
    },
    Json,
    Parquet,
}

/// How files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Plain,
    Gz,
    Lz4Frame,
    Zstd,
    Deflate,
}

/// How JSON is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JsonOptions {
    pub(super) by_line: bool,
    pub(super) strip_outer_array: bool,
    pub(super) root: Option<String>,
    pub(super) paths: Vec<String>,
}

/// Credentials; never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Secrets {
    pub(super) access_key: String,
    pub(super) secret_key: String,
    pub(super) token: String,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// All of a call.
#[derive(Debug, Clone)]
pub(super) struct S3Properties {
    pub(super) bucket: String,
    pub(super) glob: Glob,
    /// `scheme://host[:port]` without the bucket; `None` is AWS of the region.
    pub(super) endpoint: Option<String>,
    pub(super) region: String,
    pub(super) path_style: bool,
    pub(super) secrets: Secrets,
    pub(super) format: Format,
    /// `None`: by the suffix of each file.
    pub(super) compression: Option<Compression>,
    pub(super) csv: CsvOptions,
    pub(super) json: JsonOptions,
    pub(super) partition_keys: Vec<String>,
}

/// Takes properties by any of their names; keys have no case.
struct Bag(BTreeMap<String, String>);

impl Bag {
    fn take(&mut self, names: &[&str]) -> Option<String> {
        let mut found = None;
        for name in names {
            let value = self.0.remove(*name);
            found = found.or(value);
        }
        found.filter(|value| !value.is_empty())
    }

    fn flag(&mut self, name: &str, default: bool) -> Result<bool, SqlError> {
        match self.take(&[name]).map(|v| v.to_ascii_lowercase()).as_deref() {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) => Err(SqlError::detail(format!("{name} should be true or false"))),
        }
    }
}

impl S3Properties {
    pub(super) fn new(given: &BTreeMap<String, String>, profile: Profile) -> Result<Self, SqlError> {
        let mut bag = Bag(given.iter().map(|(k, v)| (k.trim().to_ascii_lowercase(), v.clone())).collect());
        let uri = bag.take(&["uri"]).ok_or_else(|| SqlError::detail("Missing required property: uri"))?;
        let endpoint = bag.take(&["s3.endpoint", "aws_endpoint", "endpoint", "aws.endpoint"]);
        let region = bag.take(&["s3.region", "aws_region", "region", "aws.region"]);
        let secrets = Secrets {
            access_key: bag.take(&["s3.access_key", "aws_access_key", "access_key"]).unwrap_or_default(),
            secret_key: bag.take(&["s3.secret_key", "aws_secret_key", "secret_key"]).unwrap_or_default(),
            token: bag.take(&["s3.session_token", "aws_token", "session_token"]).unwrap_or_default(),
        };
        if bag.take(&["resource"]).is_some() {
            return Err(SqlError::not_served("the S3 property resource"));
        }
        bag.take(&["provider", "s3.provider"]);
        let path_style = bag.flag("use_path_style", false)?;
        bag.flag("force_parsing_by_standard_uri", false)?;
        check_keys(&secrets, profile)?;
        let format = format(&bag.take(&["format"]).unwrap_or_default())?;
        let compression = compression(&bag.take(&["compress_type"]).unwrap_or_else(|| "UNKNOWN".to_owned()))?;
        let (csv, json) = (csv(&mut bag, format)?, json(&mut bag)?);
        let partition_keys = bag
            .take(&["path_partition_keys"])
            .map(|keys| keys.split(',').map(|key| key.trim().to_owned()).collect())
            .unwrap_or_default();
        if bag.flag("enable_mapping_varbinary", false)? {
            return Err(SqlError::not_served("enable_mapping_varbinary"));
        }
        if bag.take(&["hive.parquet.time-zone"]).is_some() {
            return Err(SqlError::not_served("hive.parquet.time-zone"));
        }
        if let Some(name) = bag.0.keys().next() {
            // The name only: a misspelt key may carry a secret.
            return Err(SqlError::detail(format!("Invalid property of S3 table function: {name}")));
        }
        let place = place(&uri, endpoint, path_style)?;
        let region = match (region, &place.endpoint) {
            (Some(region), _) => region,
            (None, Some(_)) => "us-east-1".to_owned(),
            (None, None) => return Err(SqlError::detail("Missing required property: s3.region or s3.endpoint")),
        };
        let glob = Glob::new(&place.key).map_err(SqlError::detail)?;
        Ok(Self {
            bucket: place.bucket,
            glob,
            endpoint: place.endpoint,
            region,
            path_style: place.path_style,
            secrets,
            format,
            compression,
            csv,
            json,
            partition_keys,
        })
    }

    /// A text of the store without credentials that it may repeat.
    pub(super) fn masked(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for secret in [&self.secrets.secret_key, &self.secrets.token, &self.secrets.access_key] {
            if !secret.is_empty() {
                out = out.replace(secret.as_str(), "***");
            }
        }
        out
    }
}

fn check_keys(secrets: &Secrets, profile: Profile) -> Result<(), SqlError> {
    let missing = |name: &str| SqlError::detail(format!("Missing [{name}] in properties."));
    match (secrets.access_key.is_empty(), secrets.secret_key.is_empty()) {
        (false, false) => Ok(()),
        (false, true) => Err(missing("s3.secret_key")),
        (true, false) => Err(missing("s3.access_key")),
        // Older builds have no anonymous access.
        (true, true) if profile == Profile::V2_1 => Err(missing("s3.access_key")),
        (true, true) => Ok(()),
    }
}

fn format(text: &str) -> Result<Format, SqlError> {
    match text.to_ascii_lowercase().as_str() {
        "csv" => Ok(Format::Csv { header_lines: 0 }),
        "csv_with_names" => Ok(Format::Csv { header_lines: 1 }),
        "csv_with_names_and_types" => Ok(Format::Csv { header_lines: 2 }),
        "json" => Ok(Format::Json),
        "parquet" => Ok(Format::Parquet),
        served @ ("orc" | "text" | "avro" | "hive_text" | "wal" | "lance") => {
            Err(SqlError::not_served(format!("files of format {served}")))
        }
        _ => Err(SqlError::detail(format!("format:{text} is not supported."))),
    }
}

fn compression(text: &str) -> Result<Option<Compression>, SqlError> {
    match text.to_ascii_uppercase().as_str() {
        "UNKNOWN" => Ok(None),
        "PLAIN" => Ok(Some(Compression::Plain)),
        "GZ" => Ok(Some(Compression::Gz)),
        "LZ4FRAME" | "LZ4" => Ok(Some(Compression::Lz4Frame)),
        "ZSTD" => Ok(Some(Compression::Zstd)),
        "DEFLATE" => Ok(Some(Compression::Deflate)),
        served @ ("LZO" | "BZ2" | "SNAPPYBLOCK" | "LZ4BLOCK" | "LZOP" | "SNAPPY") => {
            Err(SqlError::not_served(format!("compress_type {served}")))
        }
        _ => Err(SqlError::detail(format!("Unknown compression type: {text}"))),
    }
}

/// Compression that the name of a file tells.
pub(super) fn compression_of(key: &str) -> Result<Compression, SqlError> {
    let suffix = key.rsplit_once('.').map_or("", |(_, suffix)| suffix).to_ascii_lowercase();
    match suffix.as_str() {
        "gz" => Ok(Compression::Gz),
        "lz4" => Ok(Compression::Lz4Frame),
        "zst" | "zstd" => Ok(Compression::Zstd),
        "deflate" => Ok(Compression::Deflate),
        "bz2" | "lzo" | "snappy" => Err(SqlError::not_served(format!("files compressed as .{suffix}"))),
        _ => Ok(Compression::Plain),
    }
}

fn csv(bag: &mut Bag, format: Format) -> Result<CsvOptions, SqlError> {
    let text = |bag: &mut Bag, name: &str, default: &str| {
        let given = bag.take(&[name]);
        separator(given.as_deref().unwrap_or(default))
            .ok_or_else(|| SqlError::detail(format!("{name} can not be empty.")))
    };
    let byte = |bag: &mut Bag, name: &str| match bag.take(&[name]) {
        None => Ok(None),
        Some(text) if text.len() == 1 => Ok(Some(text.as_bytes()[0])),
        Some(_) => Err(SqlError::detail(format!("{name} should not be longer than one byte."))),
    };
    let separator = text(bag, "column_separator", "\t")?;
    let delimiter = text(bag, "line_delimiter", "\n")?;
    let (enclose, escape) = (byte(bag, "enclose")?, byte(bag, "escape")?);
    let trim_double_quotes = bag.flag("trim_double_quotes", false)?;
    let skip_lines = match bag.take(&["skip_lines"]) {
        None => 0,
        Some(text) => text.parse().map_err(|_| SqlError::detail("skip_lines should be a number"))?,
    };
    // Formats with names say by themselves how many lines are none.
    let skip_lines = if matches!(format, Format::Csv { header_lines } if header_lines > 0) { 0 } else { skip_lines };
    Ok(CsvOptions {
        separator,
        delimiter,
        enclose,
        escape,
        skip_lines,
        trim_double_quotes,
        empty_field_as_null: bag.flag("empty_field_as_null", false)?,
    })
}

fn json(bag: &mut Bag) -> Result<JsonOptions, SqlError> {
    let strip_outer_array = bag.flag("strip_outer_array", false)?;
    let by_line = bag.flag("read_json_by_line", !strip_outer_array)?;
    // Values keep their digits in any case, and rows are matched by name in any case.
    bag.flag("num_as_string", false)?;
    bag.flag("fuzzy_parse", false)?;
    let root = bag.take(&["json_root"]);
    let paths = match bag.take(&["jsonpaths"]) {
        None => Vec::new(),
        Some(text) => serde_json::from_str(&text)
            .map_err(|_| SqlError::detail("Invalid json path: jsonpaths should be an array of strings"))?,
    };
    Ok(JsonOptions { by_line, strip_outer_array, root, paths })
}

struct Place {
    bucket: String,
    key: String,
    endpoint: Option<String>,
    path_style: bool,
}

/// Bucket, key and endpoint of a URI.
fn place(uri: &str, endpoint: Option<String>, path_style: bool) -> Result<Place, SqlError> {
    let invalid = || SqlError::detail(format!("Invalid uri: {uri}"));
    let (scheme, rest) = uri.split_once("://").ok_or_else(invalid)?;
    let scheme = scheme.to_ascii_lowercase();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    // Credentials in a URI would be shown with it.
    if host.contains('@') {
        return Err(SqlError::detail("Invalid uri: user information is not allowed"));
    }
    let with_scheme = |endpoint: String| match endpoint.contains("://") {
        true => endpoint,
        false => format!("http://{endpoint}"),
    };
    let endpoint = endpoint.map(with_scheme).map(|e| e.trim_end_matches('/').to_owned());
    let (bucket, key, endpoint) = if BUCKET_SCHEMES.contains(&scheme.as_str()) {
        (host, path, endpoint)
    } else if scheme == "http" || scheme == "https" {
        if path_style || is_address(host) {
            let (bucket, key) = path.split_once('/').ok_or_else(invalid)?;
            (bucket, key, endpoint.or_else(|| Some(format!("{scheme}://{host}"))))
        } else {
            let (bucket, domain) = host.split_once('.').ok_or_else(invalid)?;
            (bucket, path, endpoint.or_else(|| Some(format!("{scheme}://{domain}"))))
        }
    } else {
        return Err(SqlError::detail(format!("Invalid uri scheme: {scheme}")));
    };
    if bucket.is_empty() || key.is_empty() {
        return Err(invalid());
    }
    // An address has no subdomains: S3 clients fall back to paths there.
    let by_address = endpoint.as_deref().and_then(|e| e.split_once("://")).is_some_and(|(_, host)| is_address(host));
    Ok(Place { bucket: bucket.to_owned(), key: key.to_owned(), endpoint, path_style: path_style || by_address })
}

fn is_address(host: &str) -> bool {
    host.parse::<std::net::SocketAddr>().is_ok() || host.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<S3Properties, SqlError> {
        let given = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        S3Properties::new(&given, Profile::default())
    }

    #[test]
    fn places_are_read_in_every_form() {
        for (uri, endpoint, style, want) in [
            ("s3://b/d/*.csv", "127.0.0.1:9000", "false", ("b", "d/", "http://127.0.0.1:9000", true)),
            ("S3A://b/k", "https://s3.host", "false", ("b", "k", "https://s3.host", false)),
            ("oss://b/k", "https://s3.host/", "true", ("b", "k", "https://s3.host", true)),
            ("http://b.s3.host:90/d/k", "", "false", ("b", "d/k", "http://s3.host:90", false)),
            ("https://s3.host/b/d/k", "", "true", ("b", "d/k", "https://s3.host", true)),
            ("http://127.0.0.1:9000/b/k", "", "false", ("b", "k", "http://127.0.0.1:9000", true)),
        ] {
            let read = read(&[("URI", uri), ("s3.endpoint", endpoint), ("use_path_style", style), ("format", "csv")])
                .expect(uri);
            let got = (read.bucket.as_str(), read.glob.prefix(), read.endpoint.as_deref().expect(uri), read.path_style);
            assert_eq!(got, want, "{uri}");
        }
    }

    #[test]
    fn older_names_and_any_case_are_understood() {
        let read = read(&[
            ("uri", "s3://b/k"),
            ("AWS_ENDPOINT", "h.example"),
            ("AWS_ACCESS_KEY", "ak"),
            ("Secret_Key", "s-k"),
            ("AWS_TOKEN", "tk"),
            ("AWS_REGION", "eu"),
            ("FORMAT", "PARQUET"),
            ("Compress_Type", "gz"),
        ])
        .expect("properties");
        assert_eq!(read.secrets.access_key, "ak");
        assert_eq!((read.secrets.secret_key.as_str(), read.secrets.token.as_str()), ("s-k", "tk"));
        assert_eq!((read.region.as_str(), read.format), ("eu", Format::Parquet));
        assert_eq!(read.compression, Some(Compression::Gz));
        assert!(!format!("{read:?}").contains("s-k"));
        assert_eq!(read.masked("no ak, no s-k"), "no ***, no ***");
    }

    #[test]
    fn refusals_name_the_property_and_no_value() {
        for (extra, text) in [
            (
                &[("format", "csv"), ("s3.scret_key", "hidden")][..],
                "Invalid property of S3 table function: s3.scret_key",
            ),
            (&[("format", "xml")], "format:xml is not supported."),
            (&[], "format: is not supported."),
            (&[("format", "orc")], "the sandbox does not implement files of format orc"),
            (&[("format", "csv"), ("s3.access_key", "hidden")], "Missing [s3.secret_key] in properties."),
            (&[("format", "csv"), ("compress_type", "rar")], "Unknown compression type: rar"),
            (&[("format", "csv"), ("use_path_style", "yes")], "use_path_style should be true or false"),
        ] {
            let mut pairs = vec![("uri", "s3://b/k"), ("s3.endpoint", "h.example")];
            pairs.extend(extra);
            assert_eq!(read(&pairs).expect_err(text).text(), text);
        }
        assert_eq!(read(&[("format", "csv")]).expect_err("uri").text(), "Missing required property: uri");
        assert!(read(&[("uri", "s3://b"), ("format", "csv"), ("s3.endpoint", "h.example")]).is_err());
        assert!(read(&[("uri", "ftp://b/k"), ("format", "csv")]).is_err());
        assert!(read(&[("uri", "s3://b/k"), ("format", "csv")]).is_err(), "neither endpoint nor region");
    }
}
