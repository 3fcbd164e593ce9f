//! Every option key this crate knows, with its spellings, default and meaning.

use std::fmt::Write as _;
use std::str::FromStr;

use crate::error::{Error, Result};

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    /// Changes what this crate does.
    Used,
    /// Read for compatibility; its value changes nothing here.
    NoEffect,
    /// Only the value that asks for what this crate does anyway is accepted, any other is an error.
    Later,
}

/// One row of the option table.
struct Spec {
    key: OptionKey,
    name: &'static str,
    aliases: &'static [&'static str],
    default: &'static str,
    support: Support,
    description: &'static str,
}

/// Declares the enum and its table together, so that neither can miss a key of the other.
macro_rules! option_keys {
    ($($variant:ident = $name:literal [$($alias:literal),*], $default:literal, $support:ident, $description:literal;)*) => {
        /// One option of a Doris table.
        ///
        /// [`AsRef<str>`] gives the canonical key; [`FromStr`] also accepts the aliases, any case, one leading `format.`
        /// (DataFusion adds it to keys without a dot) and a leading `doris.` where the canonical key has none.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum OptionKey {
            $(
                #[doc = $description]
                #[doc = concat!("\n\nSupported keys: `", $name, "`" $(, ", `", $alias, "`")*)]
                $variant,
            )*
        }

        const SPECS: &[Spec] = &[
            $(Spec {
                key: OptionKey::$variant,
                name: $name,
                aliases: &[$($alias),*],
                default: $default,
                support: Support::$support,
                description: $description,
            },)*
        ];
    };
}

option_keys! {
    Connector = "connector" [], "", Later, "Always `doris`; accepted so that Flink DDL can be taken over.";
    FeNodes = "fenodes" ["frontends"], "", Used, "Required unless LOCATION names them. FE addresses `host:http_port`, comma separated, tried in order.";
    BeNodes = "benodes" ["backends"], "", Used, "BE addresses `host:http_port` that take loads directly; absent: the FE redirects each load.";
    TableIdentifier = "table.identifier" [], "", Used, "Required unless LOCATION names it. The table in Doris, `db.table`.";
    Username = "username" ["user"], "", Used, "Required. Doris user.";
    Password = "password" [], "(empty)", Used, "Password; never shown in errors, logs or EXPLAIN.";
    JdbcUrl = "jdbc-url" [], "", Used, "Address of the MySQL protocol, `jdbc:mysql://host:9030`. `INSERT OVERWRITE`, `DELETE`, `UPDATE` and `TRUNCATE` need it.";
    AutoRedirect = "auto-redirect" [], "true", Used, "Loads go to an FE that redirects them; `false`: to a BE picked from the FE's list.";
    EnableTls = "doris.enable.tls" [], "false", Later, "TLS to Doris; only `false` for now.";
    TlsCaCertificatePath = "doris.tls.ca-certificate-path" [], "", NoEffect, "CA certificates; without effect while TLS is off.";
    TlsSkipHostnameVerification = "doris.tls.skip-hostname-verification" [], "false", NoEffect, "Without effect while TLS is off.";
    TlsExcludedProtocols = "doris.tls.excluded-protocols" [], "", NoEffect, "Without effect while TLS is off.";
    ConnectTimeout = "doris.request.connect.timeout" [], "60s", Used, "Longest wait for a connection and for the FE's redirect.";
    ReadTimeout = "doris.request.read.timeout" [], "60s", Used, "Longest silence during a metadata request.";
    QueryTimeout = "doris.request.query.timeout" ["doris.request.query.timeout.s"], "21600s", Used, "Longest run of one query in Doris, in whole seconds; a bare number is milliseconds, by the second spelling seconds.";
    Retries = "doris.request.retries" [], "3", Used, "Attempts of a metadata request, the first one included.";
    TabletSize = "doris.request.tablet.size" [], "1", Used, "Least number of tablets per scan statement, of which there are at most `target_partitions`; below 1 counts as 1.";
    FlightMaxMessageSize = "doris.flight.max-message-size" [], "1gb", Used, "Largest Arrow Flight message accepted.";
    FlightHostMap = "doris.flight.host-map" [], "", Used, "Where the hosts that Flight locations name are reached, for BEs behind NAT: `internal=external[:port]` or `internal:port=external[:port]`, comma separated. Tickets and the login's token go there.";
    MaxConnections = "source.max-connections" [], "32", Used, "Statements of snapshot scans that run at once over the connections of one table, which also bounds the parts a scan is split into. A further statement waits until one of them has been read.";
    OverflowConnections = "source.overflow-connections" [], "16", Used, "Further statements that may run while all of `source.max-connections` wait for somebody to take their rows: a plan that merges more streams at once needs them. Doris gives a user 100 connections by default, older versions 50 of Arrow Flight SQL.";
    BatchSize = "doris.batch.size" [], "", Used, "Most rows of a batch of a scan, at most 65535; absent: as Doris sends them, or the session's batch size over the MySQL protocol.";
    ExecMemLimit = "doris.exec.mem.limit" [], "", Used, "Memory that one statement of a scan may take in Doris, for example `8192mb` (session variable `exec_mem_limit`); absent: as the server has it.";
    DeserializeArrowAsync = "doris.deserialize.arrow.async" [], "false", NoEffect, "Rows are decoded as the query takes them.";
    DeserializeQueueSize = "doris.deserialize.queue.size" [], "64", NoEffect, "Each statement of a scan reads ahead of the query what its connection takes: 8 MiB, or two batches of the MySQL protocol.";
    ThriftMaxMessageSize = "doris.thrift.max.message.size" [], "2147483647", NoEffect, "Of the connector's Thrift reader; see `doris.flight.max-message-size`.";
    FilterQuery = "doris.filter.query" [], "", Used, "A condition in Doris SQL that stands, in parentheses, in every scan of the table beside the conditions of the query; for mode `snapshot`.";
    ReadField = "doris.read.field" [], "", Used, "The columns that the table has here, comma separated, in this order; not together with a column list of the statement.";
    UseOldApi = "source.use-old-api" [], "false", Later, "Only `false`: there is one reader.";
    UseFlightSql = "source.use-flight-sql" [], "true", Used, "Read rows by Arrow Flight SQL where the server has it; `false`, or a server without it: by the MySQL protocol, of `jdbc-url` or the FE's query port.";
    FlightSqlPort = "source.flight-sql-port" [], "-1", Used, "Arrow Flight SQL port of the FE; 0 or below: discovered.";
    ScanMode = "source.scan.mode" [], "snapshot", Used, "`snapshot`: the table as it is; `initial`: the table, then its changes; `latest`: changes from now on; `from-timestamp`: changes from `source.scan.timestamp` on.";
    ScanTimestamp = "source.scan.timestamp" [], "", Used, "First instant of `from-timestamp`, inclusive: `yyyy-MM-dd HH:mm:ss` in the time zone that Doris gives new connections.";
    BoundedMode = "source.scan.bounded-mode" [], "", Used, "`latest`: a changelog read ends once it has caught up with the moment it started; `timestamp`: at `source.scan.bounded-timestamp`; absent: never.";
    BoundedTimestamp = "source.scan.bounded-timestamp" [], "", Used, "End of bounded mode `timestamp`, exclusive, written as `source.scan.timestamp`; one that lies ahead is waited for.";
    IncrementType = "source.changelog.increment-type" ["source.binlog.increment-type"], "detail", Used, "`detail`: every change; `min_delta`: the net change per key and window (needs old values, see `need_historical_value`); `append_only`: inserts only.";
    PollInterval = "source.changelog.poll-interval" ["source.binlog.poll-interval"], "10s", Used, "Pause between two looks for changes, at least 1s.";
    VisibleWaitTimeout = "source.changelog.visible-wait-timeout" ["source.binlog.visible-wait-timeout"], "5m", Used, "How long one window is retried while Doris waits for open transactions; `0s`: not at all.";
    ChangeKindColumnSource = "source.changelog.change-kind-column" ["source.binlog.change-kind-column"], "__change_kind", Used, "Name of the added column with `+I`, `-U`, `+U`, `-D`.";
    MaxWindow = "source.changelog.max-window" ["source.binlog.max-window"], "1h", Used, "Longest stretch of changes read, and written, at once, at least 1s; a backlog is read in such steps, one after the other.";
    OnExpired = "source.changelog.on-expired" ["source.binlog.on-expired"], "fail", Used, "What to do when changes from the start on may have been dropped by the table's `changelog.ttl_seconds`: `fail`, or `continue` with what is left, after a warning. For `detail` and `append_only`; `min_delta` fails in Doris.";
    HiddenColumns = "source.changelog.hidden-columns" ["source.binlog.hidden-columns"], "", Used, "Names of the three columns that Doris adds to each change, in this order: commit timestamp, order within a commit, operation code, for example `__DORIS_CHANGELOG_TSO__, __DORIS_CHANGELOG_LSN__, __DORIS_CHANGELOG_OP__`. Absent: found by asking, of the `CHANGELOG` and `BINLOG` spellings.";
    MetadataColumns = "source.changelog.metadata-columns" ["source.binlog.metadata-columns"], "", Used, "Further columns before the change kind, of `tso`, `lsn`, `commit-time`: `__commit_tso` BIGINT, `__commit_lsn` DECIMAL(38,0), `__commit_time` TIMESTAMP(3) in UTC; NULL for rows of the snapshot.";
    OffsetTable = "source.changelog.offset-table" ["source.binlog.offset-table"], "", Used, "Table `db.table` in which the position is published, and from which a read goes on: a row there goes before the scan mode. Needs `source.changelog.consumer-id` and `jdbc-url`.";
    ConsumerId = "source.changelog.consumer-id" ["source.binlog.consumer-id"], "", Used, "Key of the row in the offset table, one for each job.";
    LookupJoin = "lookup.join" [], "false", Used, "Joins of a stream of changes with this table, by equality of columns, ask Doris for the rows of the stream's keys as they are then, instead of reading the table.";
    LookupCacheMaxRows = "lookup.cache.max-rows" [], "-1", Used, "Looked up rows that are kept, a key without rows counts as one; -1: none.";
    LookupCacheTtl = "lookup.cache.ttl" [], "10s", Used, "Age at which kept rows are asked for again.";
    LookupMaxRetries = "lookup.max-retries" [], "1", Used, "Further attempts of a lookup, after 0, 1, 2 … seconds.";
    LookupJdbcAsync = "lookup.jdbc.async" [], "false", Used, "`true`: `lookup.jdbc.read.thread-size` statements at once for a batch of the stream, whose order is kept.";
    LookupJdbcReadBatchSize = "lookup.jdbc.read.batch.size" [], "128", Used, "Most keys of one statement, at most 1000.";
    LookupJdbcReadBatchQueueSize = "lookup.jdbc.read.batch.queue-size" [], "256", NoEffect, "Keys wait in the batch of the stream that they came with.";
    LookupJdbcReadThreadSize = "lookup.jdbc.read.thread-size" [], "3", Used, "Statements at once with `lookup.jdbc.async`.";
    LabelPrefix = "sink.label-prefix" [], "datafusion_doris", Used, "Start of every label; distinct for jobs that write the same table.";
    Enable2pc = "sink.enable-2pc" [], "true", Used, "Two-phase commit: all rows of a statement or epoch become visible together. In batch mode, unless it is given, only for jobs with checkpoints.";
    EnableDelete = "sink.enable-delete" [], "true", Used, "Send the delete sign to unique tables.";
    IgnoreUpdateBefore = "sink.ignore.update-before" [], "", Used, "`true`: update-before rows are left out, `false`: written as deletes of their key. Absent: `true`, but `false` where a join, an unnesting or a filter above the changelog may drop one half of an update, and where an update may move a row to another key of the target.";
    ChangeKindColumnSink = "sink.change-kind-column" [], "", Used, "Name of the input column that holds `+I`, `-U`, `+U`, `-D`; not written as data. Deletes may be told by a column `__DORIS_DELETE_SIGN__` (0 or 1) instead, which the list of the INSERT names, or which is declared last.";
    ChangeFormat = "sink.change-format" [], "", Used, "`debezium-json`: the table takes one text column of Debezium change events (JSON, with or without schema) and writes what they say; for UNIQUE KEY tables.";
    DebeziumTimePrecision = "sink.debezium.time-precision" [], "", Used, "Unit of numbers in DATETIME columns, for events without schema: `ms`, `us` or `ns`. Absent: such numbers are an error.";
    DebeziumTimeZone = "sink.debezium.time-zone" [], "UTC", Used, "Zone whose wall clock a DATETIME column shows of a time that comes with an offset, for example `Asia/Shanghai`.";
    MaxRetries = "sink.max-retries" [], "3", Used, "Further attempts of a commit, and of a load that was refused for a reason that passes or whose BE died; see docs/outcomes.md.";
    SinkVisibleWaitTimeout = "sink.visible-wait-timeout" [], "0s", Used, "How long a statement or epoch that is committed waits until its rows can be read, which Doris may let happen a little later (`Publish Timeout`); then it ends with a warning in the log. `0s`: not at all.";
    BufferSize = "sink.buffer-size" [], "1mb", Used, "Bytes per chunk of a load's body.";
    BufferCount = "sink.buffer-count" [], "3", Used, "Chunks in flight per load, at least 2.";
    WriteMode = "sink.write-mode" [], "STREAM_LOAD", Used, "`STREAM_LOAD`: rows flow into an open load; `STREAM_LOAD_BATCH`: they are kept until there are enough for a load; `TVF`: they are staged in an object store (`sink.s3.*`), and one INSERT over `jdbc-url` takes them from there. See Write modes. May change between two starts of a job.";
    EnableBatchMode = "sink.enable.batch-mode" [], "false", Used, "`true`: `STREAM_LOAD_BATCH`, whatever `sink.write-mode` says.";
    IgnoreCommitError = "sink.ignore.commit-error" [], "false", Later, "Only `false`. With `true` the connector goes on after a commit that failed, and its rows are lost without an error: here a commit that fails is one.";
    SinkParallelism = "sink.parallelism" [], "1", Used, "Loads at once of a statement or epoch, at most 64, each with its own label, task and buffers; may change between two starts of a job. Rows of one key of a unique or aggregate table stay in one load and in order, batches of a duplicate table take turns.";
    UseCache = "sink.use-cache" [], "false", NoEffect, "What can be sent again is kept in any case, see `sink.buffer-count`; the connector never sends its cache.";
    HttpUtf8Charset = "sink.http-utf8-charset" [], "true", NoEffect, "Headers are always sent as UTF-8.";
    CheckInterval = "sink.check-interval" [], "0ms", NoEffect, "Has no effect in the Flink connector either.";
    FlushQueueSize = "sink.flush.queue-size" [], "2", Used, "Batch mode: filled buffers that wait while one is sent; a writer holds two more.";
    BufferFlushMaxRows = "sink.buffer-flush.max-rows" [], "500000", Used, "Batch mode: rows of one load; below 10000 with a warning.";
    BufferFlushMaxBytes = "sink.buffer-flush.max-bytes" [], "100mb", Used, "Batch mode: bytes of one load before compression; below 10mb with a warning.";
    BufferFlushInterval = "sink.buffer-flush.interval" [], "10s", Used, "Batch mode: age at which rows are sent though there are not enough of them, at least 1s.";
    SinkProperties = "sink.properties.*" [], "", Used, "Stream Load headers, for example `sink.properties.format` = `csv` (the default for flat rows), `json` or `arrow`, `sink.properties.compress_type` = `gz` (the default for csv and json), `lz4`, `zstd` (Doris 4.0 on), `deflate` or `''`; an arrow stream is compressed inside, by `lz4` or `zstd`. In TVF mode the format is `json` (the default) or `parquet` (compressed inside, by `zstd` unless `lz4`, `gz` or `''` is given). `strict_mode` is `true` unless given: a value that Doris cannot convert is an error, not NULL (partial updates are sent without it). `group_commit` = `sync_mode` or `async_mode` lets Doris collect the rows of many loads (needs `sink.enable-2pc` = `false`): such a load has no label, so it is at-least-once, see the guarantees. `columns` names the columns of the rows and those that Doris computes from them; `partial_columns`, `unique_key_update_mode`, `merge_type` with `delete` and `function_column.sequence_col` are checked against the table and the rows.";
    S3Endpoint = "sink.s3.endpoint" [], "", Used, "Of the TVF mode, and required there: the object store, `https://host[:port]`; without a scheme https. This program and Doris must both reach it.";
    S3Region = "sink.s3.region" [], "", Used, "Required in TVF mode. Region of the bucket.";
    S3Bucket = "sink.s3.bucket" [], "", Used, "Required in TVF mode. Bucket of the staged objects.";
    S3Prefix = "sink.s3.prefix" [], "", Used, "Required in TVF mode. Where staged objects lie in the bucket: `prefix/label/…`; without characters that Doris reads as a pattern.";
    S3AccessKey = "sink.s3.access-key" [], "", Used, "Required in TVF mode. Never shown in errors, logs or EXPLAIN, but part of the statement that Doris gets.";
    S3SecretKey = "sink.s3.secret-key" [], "", Used, "Required in TVF mode. As the access key.";
    S3SessionToken = "sink.s3.session-token" [], "", Used, "Token of temporary credentials, in TVF mode. As the access key.";
    S3PathStyleAccess = "sink.s3.path-style-access" [], "false", Used, "The bucket stands in the path of a URL instead of its host, for this program and for Doris; as many stores other than AWS want it, and buckets with a dot over TLS.";
    S3ObjectSize = "sink.s3.object-size" [], "128mb", Used, "Size after which the next staged object is begun, at least 5mb.";
    S3CleanUp = "sink.s3.clean-up" [], "false", Used, "`true`: staged objects are removed once their rows are in the table; otherwise a life-cycle rule of the bucket does that. Those of failed statements are removed in any case, as far as possible.";
    TableProperties = "table.properties.*" [], "", Used, "Of a catalog: `PROPERTIES` of the tables that CREATE TABLE makes in it, for example `table.properties.replication_num` = `1`.";
    DefaultDatabase = "default-database" [], "", Used, "Of a catalog: the database that `USE name` chooses. LOCATION `doris://fe:8030/db` names it too.";
    CatalogName = "catalog.name" [], "internal", Used, "Of a catalog: the catalog of Doris that it shows, for example one of Hive or Iceberg; those are read only.";
    CatalogTtl = "catalog.ttl" [], "10s", Used, "Of a catalog: age at which a table's columns, and the lists of names, are read anew; `0s`: for each statement.";
}

impl OptionKey {
    /// All keys, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = OptionKey> {
        SPECS.iter().map(|spec| spec.key)
    }

    fn spec(self) -> &'static Spec {
        // The macro lists enum and table in the same order.
        &SPECS[self as usize]
    }

    /// Other accepted spellings.
    pub fn aliases(self) -> &'static [&'static str] {
        self.spec().aliases
    }

    /// Default value as text; empty = none.
    pub fn default_text(self) -> &'static str {
        self.spec().default
    }

    /// One-line meaning.
    pub fn description(self) -> &'static str {
        self.spec().description
    }

    pub(crate) fn support(self) -> Support {
        self.spec().support
    }

    /// The option table as Markdown, for the README.
    pub fn markdown_table() -> String {
        let mut out = String::from("| Option | Default | Meaning |\n| --- | --- | --- |\n");
        for spec in SPECS {
            let _ = write!(out, "| `{}`", spec.name);
            for alias in spec.aliases {
                let _ = write!(out, "<br>`{alias}`");
            }
            let default = if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) };
            let note = if spec.support == Support::NoEffect { " (no effect)" } else { "" };
            let _ = writeln!(out, " | {default} | {}{note} |", spec.description);
        }
        out
    }
}

impl AsRef<str> for OptionKey {
    fn as_ref(&self) -> &str {
        self.spec().name
    }
}

/// The key as the user wrote it: without the `format.` that DataFusion puts before keys without a dot.
pub(crate) fn as_typed(key: &str) -> &str {
    const PREFIX: &str = "format.";
    let key = key.trim();
    match key.get(..PREFIX.len()) {
        Some(prefix) if prefix.eq_ignore_ascii_case(PREFIX) => &key[PREFIX.len()..],
        _ => key,
    }
}

/// [`as_typed`] in lower case.
pub(crate) fn normalise(key: &str) -> String {
    as_typed(key).to_ascii_lowercase()
}

fn lookup(key: &str) -> Option<&'static Spec> {
    SPECS.iter().find(|spec| match spec.name.strip_suffix('*') {
        Some(prefix) => key.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()),
        None => spec.name == key || spec.aliases.contains(&key),
    })
}

impl FromStr for OptionKey {
    type Err = Error;

    fn from_str(typed: &str) -> Result<Self> {
        let key = normalise(typed);
        let found = lookup(&key).or_else(|| key.strip_prefix("doris.").and_then(lookup));
        match found {
            Some(spec) => Ok(spec.key),
            None => Err(Error::UnknownOption {
                option: as_typed(typed).to_owned(),
                suggestion: nearest(&key).map(str::to_owned),
            }),
        }
    }
}

/// The nearest known key, when it is near enough to be a plausible slip.
fn nearest(key: &str) -> Option<&'static str> {
    let bare = key.strip_prefix("doris.").unwrap_or(key);
    let distance = |name: &str| edit_distance(key, name).min(edit_distance(bare, name));
    let (name, best) = SPECS
        .iter()
        .flat_map(|spec| {
            std::iter::once((spec.name, spec.name)).chain(spec.aliases.iter().map(|alias| (*alias, spec.name)))
        })
        .map(|(spelling, canonical)| (canonical, distance(spelling)))
        .min_by_key(|(_, distance)| *distance)?;
    (best <= (key.chars().count() / 3).max(2)).then_some(name)
}

/// Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back_from_each_of_its_spellings() {
        for key in OptionKey::all() {
            let canonical = key.as_ref().replace('*', "x");
            let mut spellings = vec![canonical.clone(), canonical.to_uppercase(), format!("format.{canonical}")];
            spellings.extend(key.aliases().iter().map(|alias| (*alias).to_owned()));
            if !canonical.starts_with("doris.") {
                spellings.push(format!("doris.{canonical}"));
                spellings.push(format!("format.doris.{canonical}"));
            }
            for spelling in spellings {
                assert_eq!(spelling.parse::<OptionKey>().unwrap(), key, "{spelling}");
            }
            assert_eq!(key.spec().key, key);
        }
    }

    #[test]
    fn spellings_are_unique() {
        let mut seen = std::collections::HashSet::new();
        for spec in SPECS {
            for name in std::iter::once(&spec.name).chain(spec.aliases) {
                assert!(seen.insert(*name), "{name}");
                assert_eq!(*name, name.to_ascii_lowercase());
            }
        }
    }

    #[test]
    fn unknown_option_is_rejected_by_name_with_the_nearest_key() {
        for (typed, suggestion) in [
            ("fenode", Some("fenodes")),
            ("format.pasword", Some("password")),
            ("sink.label.prefix", Some("sink.label-prefix")),
            ("source.binlog.poll-intervall", Some("source.changelog.poll-interval")),
            ("doris.fe-nodes", Some("fenodes")),
            ("colour", None),
        ] {
            match typed.parse::<OptionKey>() {
                Err(Error::UnknownOption { option, suggestion: found }) => {
                    assert_eq!((option.as_str(), found.as_deref()), (as_typed(typed), suggestion));
                }
                other => panic!("{typed}: {other:?}"),
            }
        }
        assert!("sink.properties.".parse::<OptionKey>().is_err());
    }

    #[test]
    fn markdown_table_has_one_row_per_key() {
        let table = OptionKey::markdown_table();
        assert_eq!(table.lines().count(), OptionKey::all().count() + 2);
        assert!(table.lines().all(|line| line.starts_with("| ") && line.ends_with(" |")));
    }
}
