#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MINIMAL: [(&str, &str); 3] = [("fenodes", "fe:8030"), ("table.identifier", "db.t"), ("username", "root")];

pub(super) fn parse(extra: &[(&str, &str)]) -> Result<DorisOptions> {
    let pairs = MINIMAL.iter().chain(extra);
    DorisOptions::from_map(pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

pub(super) fn reason(extra: &[(&str, &str)]) -> String {
    parse(extra).expect_err(&format!("{extra:?}")).to_string()
}

#[test]
fn defaults_are_those_of_the_option_table() {
    let options = parse(&[]).unwrap();
    assert_eq!(options.table, TableIdent::new("db", "t"));
    assert_eq!(options.connection.fenodes, ["fe:8030"]);
    assert_eq!(options.connection.password.reveal(), "");
    assert_eq!(options.connection.flight_port, None);
    assert!(options.connection.auto_redirect);
    assert_eq!(options.read.mode, ScanMode::Snapshot);
    assert_eq!(options.read.poll_interval, Duration::from_secs(10));
    assert_eq!(options.read.change_kind_column, "__change_kind");
    assert_eq!(options.sink.label_prefix, "datafusion_doris");
    assert!(options.sink.two_phase(false) && options.sink.enable_delete && options.sink.ignore_update_before.is_none());
    assert_eq!(options.sink.compression_of(SinkFormat::Csv), Compression::Gz);
    assert_eq!(options.sink.compression_of(SinkFormat::Json), Compression::Gz);
    assert_eq!(options.sink.compression_of(SinkFormat::Arrow), Compression::None);
    assert_eq!(options.sink.csv, CsvFormat::default());
    assert_eq!((options.sink.buffer_bytes, options.sink.buffer_count), (1 << 20, 3));
}

#[test]
fn every_default_text_of_the_table_is_accepted_and_changes_nothing() {
    let expected = format!("{:?}", parse(&[]).unwrap());
    for key in OptionKey::all() {
        let text = key.default_text();
        let of_catalogs = matches!(key, OptionKey::CatalogName | OptionKey::CatalogTtl);
        if text.is_empty() || text.starts_with('(') || of_catalogs {
            continue;
        }
        // Batch mode tells two phases that were asked for from those by default.
        if key == OptionKey::Enable2pc {
            let sink = |options: &[(&str, &str)]| parse(options).unwrap().sink;
            assert_eq!(sink(&[(key.as_ref(), text)]).two_phase(false), sink(&[]).two_phase(false));
            continue;
        }
        let found = parse(&[(key.as_ref(), text)]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(format!("{found:?}"), expected, "{}", key.as_ref());
    }
}

#[test]
fn values_reach_their_fields() {
    let options = parse(&[
        ("format.password", "it's secret"),
        ("benodes", "be1:8040,be2:8040"),
        ("jdbc-url", "jdbc:mysql://fe:9030/db?user=x&password=pa55"),
        ("Source.Flight-SQL-Port", "9090"),
        ("doris.auto-redirect", "FALSE"),
        ("doris.request.connect.timeout", "5 s"),
        ("doris.request.tablet.size", "-4"),
        ("doris.flight.max-message-size", "64mb"),
        ("source.scan.mode", " Initial "),
        ("source.scan.bounded-mode", "latest"),
        ("source.binlog.poll-interval", "1 min"),
        ("source.changelog.visible-wait-timeout", "0s"),
        ("sink.change-kind-column", "__change_kind"),
        ("sink.enable-2pc", "false"),
        ("sink.properties.format", "json"),
        ("sink.properties.compress_type", ""),
        ("sink.properties.max_filter_ratio", "0.1"),
        ("sink.properties.columns", "a,B,c=a+1"),
        ("sink.buffer-size", "64 kb"),
        ("sink.parallelism", " 4 "),
    ])
    .unwrap();
    assert_eq!(options.connection.password.reveal(), "it's secret");
    assert_eq!(options.connection.benodes, ["be1:8040", "be2:8040"]);
    assert_eq!(options.connection.flight_port, Some(9090));
    assert!(!options.connection.auto_redirect);
    assert_eq!(options.connection.connect_timeout, Duration::from_secs(5));
    assert_eq!(options.connection.flight_max_message_bytes, 64 << 20);
    assert_eq!((options.read.mode, options.read.bounded), (ScanMode::Initial, Some(BoundedMode::Latest)));
    assert_eq!(options.read.poll_interval, Duration::from_secs(60));
    assert_eq!(options.read.visible_wait_timeout, Duration::ZERO);
    assert_eq!(options.read.tablets_per_split, 1);
    assert_eq!(options.sink.change_kind_column.as_deref(), Some("__change_kind"));
    assert_eq!((options.sink.format, options.sink.compression), (Some(SinkFormat::Json), Some(Compression::None)));
    assert_eq!(options.sink.properties["max_filter_ratio"], "0.1");
    assert_eq!(options.sink.properties["columns"], "a,B,c=a+1");
    assert_eq!((options.sink.buffer_bytes, options.sink.parallelism), (64 << 10, 4));
    assert!(!format!("{options:?}").contains("pa55"), "{options:?}");
}

#[test]
fn write_modes_and_their_limits_are_read_as_the_connector_reads_them() {
    for (entries, mode) in [
        (vec![], WriteMode::StreamLoad),
        (vec![("sink.write-mode", "stream_load_batch")], WriteMode::StreamLoadBatch),
        (vec![("sink.enable.batch-mode", "true")], WriteMode::StreamLoadBatch),
        (vec![("sink.enable.batch-mode", "TRUE"), ("sink.write-mode", "TVF")], WriteMode::StreamLoadBatch),
        (vec![("sink.enable.batch-mode", "false")], WriteMode::StreamLoad),
    ] {
        let options = parse(&entries).unwrap().sink;
        assert_eq!((options.write_mode, options.flush), (mode, FlushOptions::default()), "{entries:?}");
        let batch = mode == WriteMode::StreamLoadBatch;
        assert_eq!((options.two_phase(false), options.two_phase(true)), (!batch, true), "{entries:?}");
        for told in [true, false] {
            let told_options = options.clone().with_two_phase_commit(told);
            assert_eq!((told_options.two_phase(false), told_options.two_phase(true)), (told, told), "{entries:?}");
        }
    }
    let entries = [
        ("sink.buffer-flush.max-rows", "10000"),
        ("sink.buffer-flush.max-bytes", "10MB"),
        ("sink.buffer-flush.interval", "1 s"),
        ("sink.flush.queue-size", "1"),
    ];
    let limits =
        FlushOptions { max_rows: 10_000, max_bytes: 10 << 20, interval: Duration::from_secs(1), queue_size: 1 };
    assert_eq!(parse(&entries).unwrap().sink.flush, limits);
    for (key, value) in
        [("sink.buffer-flush.max-rows", "0"), ("sink.buffer-flush.interval", "0s"), ("sink.flush.queue-size", "-1")]
    {
        assert!(reason(&[(key, value)]).contains(&format!("'{key}'")), "{key}");
    }
}

#[test]
fn options_that_would_change_results_and_are_not_built_yet_are_refused_by_name() {
    for (key, value) in [("doris.enable.tls", "true"), ("sink.ignore.commit-error", "true")] {
        let text = reason(&[(key, value)]);
        assert!(text.contains(&format!("'{key}'")) && text.contains("not supported yet"), "{text}");
    }
}

#[test]
fn formats_and_compressions_that_no_server_takes_together_are_refused_by_name() {
    let (format, compress) = ("sink.properties.format", "sink.properties.compress_type");
    for (text, expected) in [
        ("gz", Some(Compression::Gz)),
        ("ZSTD", Some(Compression::Zstd)),
        ("lz4", Some(Compression::Lz4)),
        ("deflate", Some(Compression::Deflate)),
        ("", Some(Compression::None)),
    ] {
        for name in ["csv", "json", "arrow"] {
            let given = [(format, name), (compress, text)];
            if name == "arrow" && matches!(text, "gz" | "deflate") {
                let text = reason(&given);
                assert!(text.contains(compress) && text.contains("arrow"), "{text}");
            } else {
                assert_eq!(parse(&given).unwrap().sink.compression, expected, "{name} {text}");
            }
        }
    }
    for given in [(format, "parquet"), (format, "orc"), (compress, "bz2"), (compress, "lz4_block"), (compress, "lzo")] {
        let text = reason(&[given]);
        assert!(text.contains(given.0) && text.contains(given.1), "{text}");
    }
}

#[test]
fn bad_values_are_refused_by_the_name_the_user_typed() {
    for (key, value) in [
        ("source.binlog.poll-interval", "999 ms"),
        ("source.changelog.visible-wait-timeout", "-1s"),
        ("source.scan.mode", "from_timestamp"),
        ("source.binlog.max-window", "999ms"),
        ("source.changelog.on-expired", "warn"),
        ("source.changelog.metadata-columns", "tso,csn"),
        ("source.changelog.metadata-columns", "tso,tso"),
        ("source.changelog.hidden-columns", "__T__, __L__"),
        ("source.changelog.hidden-columns", "__T__, , __O__"),
        ("source.binlog.hidden-columns", "__T__, __L__, __t__"),
        ("source.changelog.increment-type", "delta"),
        ("sink.buffer-count", "1"),
        ("sink.parallelism", "0"),
        ("sink.parallelism", "65"),
        ("sink.parallelism", "two"),
        ("sink.enable-2pc", "yes"),
        ("doris.fenodes", "https://fe:8443"),
        ("benodes", "be"),
        ("jdbc-url", "mysql:fe"),
        ("connector", "jdbc"),
        ("source.flight-sql-port", "70000"),
        ("doris.request.read.timeout", "0s"),
        ("doris.flight.max-message-size", "1kb"),
    ] {
        // fenodes stands in the minimal map already: that one is tested as a contradiction below.
        let map = MINIMAL.into_iter().filter(|(name, _)| !key.ends_with(name)).chain([(key, value)]);
        let error = DorisOptions::from_map(map.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
            .expect_err(key)
            .to_string();
        assert!(error.starts_with(&format!("option '{key}': ")), "{error}");
    }
}

#[test]
fn properties_in_conflict_are_refused_by_name() {
    for (name, value) in [
        ("label", "mine"),
        ("two_phase_commit", "true"),
        ("group_commit", "async_mode"),
        ("hidden_columns", "__DORIS_DELETE_SIGN__"),
        ("merge_type", "MERGE"),
        ("delete", "a = 1"),
        ("read_json_by_line", "false"),
        ("strip_outer_array", "true"),
        ("jsonpaths", "[\"$.a\"]"),
        ("skip_lines", "1"),
        ("unique_key_update_mode", "UPDATE_SOME"),
        ("partial_update_new_key_behavior", "KEEP"),
        ("merge_type", "UPSERT"),
        ("columns", "a,,b"),
        ("max_filter_ratio", "1.5"),
        ("timeout", "soon"),
        ("timeout", "259201"),
        ("negative", "maybe"),
        ("exec_mem_limit", "2gb"),
        ("send_batch_parallelism", "0"),
        ("authorization", "Basic x"),
        ("expect", "x"),
        ("a b", "x"),
        ("comment", "two\nlines"),
        ("enclose", "ab"),
        ("column_separator", ""),
        ("column_separator", "\\xZZ"),
        ("column_separator", "\n"),
        ("escape", ""),
    ] {
        let key = format!("sink.properties.{name}");
        let text = reason(&[(&key, value)]);
        assert!(text.contains("sink.properties."), "{name}: {text}");
    }
    let one_phase = ("sink.enable-2pc", "false");
    let group = parse(&[("sink.properties.group_commit", "Sync_Mode"), one_phase]).unwrap();
    assert_eq!(group.sink.group_commit(), GroupCommit::Sync);
    let text = reason(&[("sink.properties.group_commit", "async"), one_phase]);
    assert!(text.contains("use off_mode, sync_mode or async_mode"), "{text}");
    let partial = ("sink.properties.partial_columns", "true");
    let text = reason(&[("sink.properties.group_commit", "async_mode"), one_phase, partial]);
    assert!(text.contains("'sink.properties.partial_columns': excludes group commit"), "{text}");
    for (name, value) in [
        ("group_commit", "off_mode"),
        ("merge_type", "append"),
        ("merge_type", "delete"),
        ("read_json_by_line", "true"),
        ("strict_mode", "true"),
        ("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS"),
        ("partial_update_new_key_behavior", "ERROR"),
    ] {
        parse(&[(&format!("sink.properties.{name}"), value)]).unwrap();
    }
}

#[test]
fn csv_shape_follows_the_properties() {
    let csv = |extra: &[(&str, &str)]| parse(extra).unwrap().sink.csv;
    let separator = ("sink.properties.column_separator", "\\x01");
    let plain = csv(&[separator, ("sink.properties.line_delimiter", "\\x0203")]);
    assert_eq!((plain.column_separator.as_slice(), plain.line_delimiter.as_slice()), (&[1][..], &[2, 3][..]));
    assert_eq!((plain.enclose, plain.escape), (None, None));
    let enclosed = csv(&[separator, ("sink.properties.enclose", "'")]);
    assert_eq!((enclosed.enclose, enclosed.escape), (Some(b'\''), Some(b'\\')));
    assert_eq!(csv(&[("sink.properties.enclose", "")]).enclose, None);
    assert_eq!(csv(&[("sink.properties.column_separator", "\\t||")]).column_separator, b"\t||");
}

#[test]
fn location_and_options_must_agree() {
    let read = |location: &str, pairs: &[(&str, &str)]| {
        let map = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        DorisOptions::from_location_and_map(location, map)
    };
    let located = read("doris://fe:8030,fe2:8030/db/t", &[("format.username", "root")]).unwrap();
    assert_eq!((located.connection.fenodes.len(), located.table), (2, TableIdent::new("db", "t")));
    read("doris://fe:8030/db/t", &MINIMAL).unwrap();
    for location in ["doris://other:8030/db/t", "doris://fe:8030/db/other"] {
        assert!(read(location, &MINIMAL).unwrap_err().to_string().contains("contradicts LOCATION"), "{location}");
    }
}

#[test]
fn spellings_of_one_option_must_agree() {
    parse(&[("doris.fenodes", "fe:8030")]).unwrap();
    assert!(reason(&[("doris.fenodes", "other:8030")]).contains("contradicts"));
    let text = reason(&[("source.binlog.poll-interval", "2s"), ("source.changelog.poll-interval", "3s")]);
    assert!(text.contains("contradicts 'source.binlog.poll-interval'"), "{text}");
}

#[test]
fn required_options_are_named() {
    for (missing, _) in MINIMAL {
        let map: HashMap<String, String> = MINIMAL
            .iter()
            .filter(|(key, _)| *key != missing)
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let error = DorisOptions::from_map(map).unwrap_err().to_string();
        assert!(error.contains(missing) && error.contains("required"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_map_panics_and_no_password_shows(
        pairs in proptest::collection::vec((any::<proptest::sample::Index>(), "\\PC{0,24}"), 0..6)
    ) {
        let keys: Vec<OptionKey> = OptionKey::all().collect();
        let mut map: HashMap<String, String> = pairs
            .into_iter()
            .map(|(key, value)| (key.get(&keys).as_ref().replace('*', "x"), value))
            .collect();
        map.insert("password".into(), "S3cr3t-Text".into());
        let shown = match DorisOptions::from_map(map) {
            Ok(options) => format!("{options:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        prop_assert!(!shown.contains("S3cr3t-Text"));
    }
}

#[test]
fn start_and_end_of_a_changelog_are_a_mode_and_its_timestamp() {
    let time = |text| crate::types::LocalTime::parse(text).unwrap();
    let options = parse(&[
        ("source.scan.mode", "FROM-TIMESTAMP"),
        ("source.scan.timestamp", "2026-01-01 00:00:00"),
        ("source.scan.bounded-mode", "timestamp"),
        ("source.scan.bounded-timestamp", "2026-01-02 00:00:00"),
        ("source.binlog.increment-type", "Min_Delta"),
        ("source.changelog.max-window", "90500 ms"),
        ("source.changelog.metadata-columns", "commit-time, tso"),
        ("source.binlog.hidden-columns", "__T__ ,__L__, __O__"),
    ]);
    let read = options.unwrap().read;
    let hidden = read.hidden_columns.as_ref().map(|hidden| [&*hidden.tso, &*hidden.lsn, &*hidden.op]);
    assert_eq!(hidden, Some(["__T__", "__L__", "__O__"]));
    assert_eq!(read.mode, ScanMode::FromTimestamp(time("2026-01-01 00:00:00")));
    assert_eq!(read.bounded, Some(BoundedMode::Timestamp(time("2026-01-02 00:00:00"))));
    assert_eq!(read.increment_type, crate::sql::IncrementType::MinDelta);
    assert_eq!(read.max_window, Duration::from_secs(90), "windows are whole seconds");
    assert_eq!(read.metadata, [MetadataColumn::CommitTime, MetadataColumn::Tso]);
    for (extra, wanted) in [
        (vec![("source.scan.mode", "from-timestamp")], "'source.scan.timestamp': is required by mode from-timestamp"),
        (vec![("source.scan.timestamp", "2026-01-01 00:00:00")], "is only valid in mode from-timestamp"),
        (
            vec![("source.scan.mode", "from-timestamp"), ("source.scan.timestamp", "2026-02-30 00:00:00")],
            "'source.scan.timestamp': '2026-02-30 00:00:00' must match yyyy-MM-dd HH:mm:ss: there is no such day",
        ),
        (vec![("source.scan.bounded-mode", "timestamp")], "'source.scan.bounded-timestamp': is required"),
        (
            vec![("source.scan.bounded-mode", "latest"), ("source.scan.bounded-timestamp", "2026-01-01 00:00:00")],
            "is only valid with 'source.scan.bounded-mode' = 'timestamp'",
        ),
    ] {
        let text = reason(&extra);
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn offset_table_needs_a_consumer_a_changelog_and_the_mysql_protocol() {
    let table = ("source.binlog.offset-table", "db.o");
    let consumer = ("source.changelog.consumer-id", "job 1");
    let (mode, url) = (("source.scan.mode", "latest"), ("jdbc-url", "jdbc:mysql://fe:9030"));
    let read = parse(&[table, consumer, mode, url]).unwrap().read;
    let expected = OffsetOptions { table: TableIdent::new("db", "o"), consumer_id: "job 1".into() };
    assert_eq!(read.offset, Some(expected));
    let long = ("source.changelog.consumer-id", &*"x".repeat(257));
    for (extra, wanted) in [
        (vec![table, mode, url], "'source.changelog.consumer-id': must be given together"),
        (vec![consumer, mode, url], "'source.changelog.offset-table': must be given together"),
        (vec![table, consumer, url], "is only valid for changelogs"),
        (vec![table, consumer, mode], "'jdbc-url': is required when"),
        (vec![table, long, mode, url], "256 bytes"),
        (vec![("source.changelog.offset-table", "o"), consumer, mode, url], "'o' is not of the form database.table"),
    ] {
        let text = reason(&extra);
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn query_timeout_is_whole_seconds_and_a_bare_number_by_the_old_spelling() {
    for (key, value, seconds) in [
        ("doris.request.query.timeout", "90s", 90),
        ("doris.request.query.timeout", "1500", 2),
        ("doris.request.query.timeout.s", "1500", 1500),
        ("doris.request.query.timeout.s", "5 min", 300),
    ] {
        let options = parse(&[(key, value)]).unwrap();
        assert_eq!(options.connection.query_timeout.as_secs(), seconds, "{key} = {value}");
    }
    assert!(reason(&[("doris.request.query.timeout.s", "0")]).contains("longer than zero"));
}

#[test]
fn read_options_of_the_connector_reach_their_fields() {
    let options = parse(&[
        ("source.use-flight-sql", "false"),
        ("source.max-connections", "5"),
        ("source.overflow-connections", "0"),
        ("doris.filter.query", " a = ')' AND (b > 1 or `c;` = \"--\") "),
        ("doris.read.field", "b, `a`"),
        ("doris.batch.size", "100000"),
        ("doris.exec.mem.limit", "2 gb"),
        ("doris.flight.host-map", "10.0.0.1=localhost:1"),
    ])
    .unwrap();
    assert!(!options.connection.use_flight);
    assert_eq!((options.connection.max_connections, options.connection.overflow_connections), (5, 0));
    assert_eq!(options.connection.flight_host_map.resolve("10.0.0.1", 2), ("localhost".into(), 1));
    assert_eq!(options.read.filter_query.as_deref(), Some("a = ')' AND (b > 1 or `c;` = \"--\")"));
    assert_eq!(options.read.read_fields, Some(vec!["b".to_string(), "a".to_string()]));
    assert_eq!((options.read.batch_rows, options.read.exec_mem_limit), (Some(65_535), Some(2 << 30)));
}

#[test]
fn lookup_options_are_read_as_the_connector_reads_them() {
    let lookup = |extra: &[(&str, &str)]| parse(extra).unwrap().read.lookup;
    assert_eq!(lookup(&[]), LookupOptions::default());
    assert_eq!(lookup(&[("lookup.jdbc.read.thread-size", "5")]).statements_at_once, 1);
    assert_eq!(lookup(&[("lookup.jdbc.async", "true")]).statements_at_once, 3);
    let seconds = |ttl| Some(LookupCache { max_rows: 9, ttl: Duration::from_secs(ttl) });
    for (rows, ttl, cache) in [
        ("9", None, seconds(10)),
        ("9", Some("1 min"), seconds(60)),
        ("9", Some("-1"), None),
        ("9", Some("0s"), None),
        ("-1", Some("1s"), None),
        ("0", Some("1s"), None),
    ] {
        let mut given = vec![("lookup.cache.max-rows", rows)];
        given.extend(ttl.map(|ttl| ("lookup.cache.ttl", ttl)));
        assert_eq!(lookup(&given).cache, cache, "{rows} {ttl:?}");
    }
    for (key, value) in
        [("lookup.jdbc.read.batch.size", "0"), ("lookup.jdbc.read.batch.size", "1001"), ("lookup.cache.max-rows", "-2")]
    {
        assert!(reason(&[(key, value)]).contains(key));
    }
}

#[test]
fn conditions_that_cannot_stand_in_parentheses_are_refused() {
    for text in ["", "a = 1) OR (1 = 1", "(a = 1", "a = 'x", "a = 1; b", "a = 1 -- b", "a /* b */", "a # b"] {
        let reason = reason(&[("doris.filter.query", text)]);
        assert!(reason.contains("doris.filter.query"), "{reason}");
    }
    for (key, value) in [("doris.filter.query", "a = 1"), ("source.use-flight-sql", "false")] {
        let reason = reason(&[(key, value), ("source.scan.mode", "latest")]);
        assert!(reason.contains(key) && !reason.contains("not supported yet"), "{reason}");
    }
}
