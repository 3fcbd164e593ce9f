//! The sink options of the Flink connector's guide: the same names, defaults and checks here, or a reason why not.

use super::tests::{parse, reason};
use super::*;

/// A default that differs from the guide's, and why.
type Different = Option<(&'static str, &'static str)>;

/// Name, default in the guide, default here where it differs.
const GUIDE: &[(&str, &str, Different)] = &[
    ("sink.label-prefix", "", Some(("datafusion_doris", "a label that begins with `_` tells nobody whose it is"))),
    ("sink.enable-2pc", "true", None),
    ("sink.enable-delete", "true", None),
    ("sink.write-mode", "STREAM_LOAD", None),
    ("sink.enable.batch-mode", "false", None),
    ("sink.max-retries", "3", None),
    ("sink.buffer-size", "1mb", None),
    ("sink.buffer-count", "3", None),
    ("sink.check-interval", "0ms", None),
    ("sink.ignore.commit-error", "false", None),
    ("sink.parallelism", "", Some(("1", "DataFusion hands a sink one input: there is no parallelism to take over"))),
    ("sink.flush.queue-size", "2", None),
    ("sink.buffer-flush.max-rows", "500000", None),
    ("sink.buffer-flush.max-bytes", "100mb", None),
    ("sink.buffer-flush.interval", "10s", None),
    ("sink.ignore.update-before", "true", Some(("", "true, except where one half of an update may be missing"))),
    ("sink.use-cache", "false", None),
    ("sink.s3.endpoint", "", None),
    ("sink.s3.region", "", None),
    ("sink.s3.bucket", "", None),
    ("sink.s3.prefix", "", None),
    ("sink.s3.access-key", "", None),
    ("sink.s3.secret-key", "", None),
    ("sink.s3.path-style-access", "false", None),
    ("sink.http-utf8-charset", "false", Some(("true", "column names are UTF-8, `?` in their place is an error"))),
];

#[test]
fn every_sink_option_of_the_guide_is_here_with_its_default() {
    for (name, guide, here) in GUIDE {
        let key: OptionKey = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(key.as_ref(), *name);
        let (default, why) = here.unwrap_or((*guide, ""));
        assert_eq!(key.default_text().to_lowercase(), default.to_lowercase(), "{name}");
        assert_eq!(why.is_empty(), here.is_none(), "{name}: a difference has a reason");
    }
    assert_eq!("sink.properties.format".parse::<OptionKey>().unwrap(), OptionKey::SinkProperties);
}

#[test]
fn sink_options_are_checked_as_in_the_guide() {
    for (name, refused, taken) in [
        ("sink.enable-2pc", &["maybe"][..], &["FALSE"][..]),
        ("sink.enable-delete", &["1.5"], &["false"]),
        ("sink.write-mode", &["COPY", "fast"], &["stream_load", "Stream_Load_Batch"]),
        ("sink.enable.batch-mode", &["yes"], &["true", "false"]),
        // The connector refuses fewer than 10000 rows and 10 MB; here that is a warning.
        ("sink.buffer-flush.max-rows", &["0", "-1"], &["1000", "10000"]),
        ("sink.buffer-flush.max-bytes", &["0", "much"], &["1mb", "10mb"]),
        ("sink.buffer-flush.interval", &["999ms"], &["1s", "1 min"]),
        ("sink.flush.queue-size", &["0"], &["1"]),
        ("sink.max-retries", &["-1", "many"], &["0", "10"]),
        ("sink.buffer-size", &["-1", "big"], &["64kb"]),
        ("sink.buffer-count", &["1", "0"], &["2"]),
        ("sink.ignore.commit-error", &["true"], &["false"]),
        ("sink.parallelism", &["0", "-2"], &["4"]),
        ("sink.ignore.update-before", &["perhaps"], &["true", "false"]),
        // Without effect, in the connector too.
        ("sink.use-cache", &[], &["true", "false"]),
        ("sink.visible-wait-timeout", &["soon", "-1s"], &["0s", "5 min"]),
    ] {
        for value in refused {
            let text = reason(&[(name, value)]);
            assert!(text.starts_with(&format!("option '{name}': ")), "{name} = {value}: {text}");
        }
        for value in taken {
            parse(&[(name, value)]).unwrap_or_else(|error| panic!("{name} = {value}: {error}"));
        }
    }
}
