//! Options of writing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::change_format::ChangeFormat;
use super::csv_format::{CsvFormat, CsvProperties, parse_separator, parse_single_byte};
use super::entries::{Entries, parse_name};
use super::flush::FlushOptions;
use super::group_commit::{GroupCommit, check_properties};
use super::key::OptionKey;
use super::load_columns::{self, LoadColumns};
use super::s3::S3Options;
use super::update_mode::{UpdateMode, check_together};
use super::value::{Parsed, parse_bool, parse_count, parse_duration, parse_size};
use super::write_mode::WriteMode;
use crate::error::{Error, Result};

/// Most loads at once of one statement or epoch.
pub const MAX_PARALLELISM: u32 = 64;

/// Longest timeout of a load (`max_stream_load_timeout_second`).
const MAX_TIMEOUT_SECONDS: u32 = 259_200;

/// `sink.properties.format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkFormat {
    /// Separated text; Stream Load only.
    Csv,
    /// One JSON object per line.
    Json,
    /// One Arrow IPC stream; Stream Load only.
    Arrow,
    /// Parquet files; TVF mode only.
    Parquet,
}

impl SinkFormat {
    /// Value of the header `format`.
    pub fn header(self) -> &'static str {
        match self {
            SinkFormat::Csv => "csv",
            SinkFormat::Json => "json",
            SinkFormat::Arrow => "arrow",
            SinkFormat::Parquet => "parquet",
        }
    }
}

/// `sink.properties.compress_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    None,
    /// gzip.
    Gz,
    /// Deflate in the frame of zlib.
    Deflate,
    /// LZ4 frames; in arrow format the buffers inside of the stream.
    Lz4,
    /// Zstandard, which Doris takes since 4.0; in arrow format the buffers inside of the stream.
    Zstd,
}

impl Compression {
    /// Value of the header `compress_type`.
    pub fn header(self) -> Option<&'static str> {
        match self {
            Compression::None => None,
            Compression::Gz => Some("gz"),
            Compression::Deflate => Some("deflate"),
            Compression::Lz4 => Some("lz4"),
            Compression::Zstd => Some("zstd"),
        }
    }
}

/// Options of the sink.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// `sink.write-mode`, default [`WriteMode::StreamLoad`].
    pub write_mode: WriteMode,
    /// `sink.s3.*`, for [`WriteMode::Tvf`].
    pub s3: Option<S3Options>,
    /// `sink.label-prefix`, default `datafusion_doris`.
    pub label_prefix: String,
    /// `sink.enable-2pc`. `None`: see [`Self::two_phase`].
    pub two_phase_commit: Option<bool>,
    /// `sink.enable-delete`, default true: send the delete sign to unique tables.
    pub enable_delete: bool,
    /// `sink.ignore.update-before`: false writes an update-before as a delete of its key. `None` = true, except where an
    /// operator between changelog and sink may drop one half of an update.
    pub ignore_update_before: Option<bool>,
    /// `sink.change-kind-column`: name of the input column that holds `+I`, `-U`, `+U`, `-D`.
    pub change_kind_column: Option<String>,
    /// `sink.change-format`: what the input is, when it is not rows.
    pub change_format: Option<ChangeFormat>,
    /// `sink.max-retries`, default 3: further attempts of a commit, and of a load that was refused for a reason that
    /// passes.
    pub max_retries: usize,
    /// `sink.visible-wait-timeout`, default 0 s = not at all: how long a statement or epoch that is committed waits until
    /// its rows can be read.
    pub visible_wait: Duration,
    /// `sink.properties.format`; `None` = csv for flat schemas, json otherwise and in TVF mode.
    pub format: Option<SinkFormat>,
    /// `sink.properties.compress_type`, `''` = none. `None` = gz for csv and json, none for arrow, zstd for Parquet.
    pub compression: Option<Compression>,
    /// Separators and quoting, for csv.
    pub csv: CsvFormat,
    /// All other `sink.properties.*`, sent as Stream Load headers; keys in lower case. Those that shape csv are in
    /// [`Self::csv`].
    pub properties: BTreeMap<String, String>,
    /// `sink.buffer-size`, default 1 MB: bytes per body chunk.
    pub buffer_bytes: usize,
    /// `sink.buffer-count`, default 3: chunks in flight.
    pub buffer_count: usize,
    /// `sink.parallelism`, default 1, at most [`MAX_PARALLELISM`]: loads at once of a statement or epoch. Each has buffers
    /// of its own.
    pub parallelism: u32,
    /// When the batch mode sends what it has.
    pub flush: FlushOptions,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self {
            write_mode: WriteMode::StreamLoad,
            s3: None,
            label_prefix: "datafusion_doris".into(),
            two_phase_commit: None,
            enable_delete: true,
            ignore_update_before: None,
            change_kind_column: None,
            change_format: None,
            max_retries: 3,
            visible_wait: Duration::ZERO,
            format: None,
            compression: None,
            csv: CsvFormat::default(),
            properties: BTreeMap::new(),
            buffer_bytes: 1 << 20,
            buffer_count: 3,
            parallelism: 1,
            flush: FlushOptions::default(),
        }
    }
}

impl SinkOptions {
    /// Sets [`Self::write_mode`] to [`WriteMode::Tvf`], by way of this place.
    pub fn with_stage(mut self, place: S3Options) -> Self {
        (self.write_mode, self.s3) = (WriteMode::Tvf, Some(place));
        self
    }

    /// Sets [`Self::label_prefix`].
    pub fn with_label_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.label_prefix = prefix.into();
        self
    }

    /// Sets [`Self::write_mode`].
    pub fn with_write_mode(mut self, mode: WriteMode) -> Self {
        self.write_mode = mode;
        self
    }

    /// Sets [`Self::flush`].
    pub fn with_flush(mut self, flush: FlushOptions) -> Self {
        self.flush = flush;
        self
    }

    /// Whether loads are committed together, at the end of their statement or epoch: as told, else yes, but in batch mode
    /// only in a job that keeps `checkpoints`, and without group commit. There loads are visible as they land otherwise.
    pub fn two_phase(&self, checkpoints: bool) -> bool {
        self.two_phase_commit.unwrap_or(match self.write_mode {
            WriteMode::StreamLoadBatch => checkpoints && !self.group_commit().is_on(),
            WriteMode::StreamLoad | WriteMode::Tvf => true,
        })
    }

    /// Sets [`Self::two_phase_commit`].
    pub fn with_two_phase_commit(mut self, enabled: bool) -> Self {
        self.two_phase_commit = Some(enabled);
        self
    }

    /// Sets [`Self::enable_delete`].
    pub fn with_enable_delete(mut self, enabled: bool) -> Self {
        self.enable_delete = enabled;
        self
    }

    /// Sets [`Self::ignore_update_before`].
    pub fn with_ignore_update_before(mut self, ignore: bool) -> Self {
        self.ignore_update_before = Some(ignore);
        self
    }

    /// Sets [`Self::change_kind_column`].
    pub fn with_change_kind_column(mut self, name: Option<String>) -> Self {
        self.change_kind_column = name;
        self
    }

    /// Sets [`Self::change_format`].
    pub fn with_change_format(mut self, format: Option<ChangeFormat>) -> Self {
        self.change_format = format;
        self
    }

    /// Sets [`Self::max_retries`].
    pub fn with_max_retries(mut self, retries: usize) -> Self {
        self.max_retries = retries;
        self
    }

    /// Sets [`Self::visible_wait`].
    pub fn with_visible_wait(mut self, limit: Duration) -> Self {
        self.visible_wait = limit;
        self
    }

    /// Sets [`Self::format`].
    pub fn with_format(mut self, format: Option<SinkFormat>) -> Self {
        self.format = format;
        self
    }

    /// Sets [`Self::compression`].
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Compression of a load in `format`.
    pub fn compression_of(&self, format: SinkFormat) -> Compression {
        match (self.compression, format) {
            (Some(compression), _) => compression,
            (None, SinkFormat::Csv | SinkFormat::Json) => Compression::Gz,
            (None, SinkFormat::Arrow) => Compression::None,
            (None, SinkFormat::Parquet) => Compression::Zstd,
        }
    }

    /// Sets [`Self::csv`].
    pub fn with_csv(mut self, csv: CsvFormat) -> Self {
        self.csv = csv;
        self
    }

    /// Sets [`Self::buffer_bytes`] and [`Self::buffer_count`].
    pub fn with_buffers(mut self, bytes: usize, count: usize) -> Self {
        self.buffer_bytes = bytes;
        self.buffer_count = count;
        self
    }

    /// Sets [`Self::parallelism`], brought into its bounds.
    pub fn with_parallelism(mut self, loads: u32) -> Self {
        self.parallelism = loads.clamp(1, MAX_PARALLELISM);
        self
    }

    /// What becomes of columns that a load does not bring.
    ///
    /// # Errors
    /// [`Error::Config`] when the properties contradict each other.
    pub fn update_mode(&self) -> Result<UpdateMode> {
        UpdateMode::of(&self.properties)
    }

    /// `sink.properties.columns`, if it is given.
    ///
    /// # Errors
    /// [`Error::Config`] when it is no list of columns.
    pub fn load_columns(&self) -> Result<Option<LoadColumns>> {
        let list = self.properties.get("columns").map(|text| LoadColumns::parse(text)).transpose();
        list.map_err(|reason| Error::config("sink.properties.columns", reason))
    }

    /// Refuses properties that contradict each other in a load of this format; `None` = the format is still open.
    ///
    /// # Errors
    /// [`Error::Config`] that names the property.
    pub(crate) fn check_together(&self, format: Option<SinkFormat>) -> Result<()> {
        let changes = match (&self.change_kind_column, self.change_format) {
            (_, Some(_)) => Some(OptionKey::ChangeFormat),
            (Some(_), None) => Some(OptionKey::ChangeKindColumnSink),
            (None, None) => None,
        };
        check_together(&self.properties, changes.as_ref().map(AsRef::as_ref), format)
    }

    /// Whether a server takes the compression in this format.
    ///
    /// # Errors
    /// [`Error::Config`] when it does not.
    pub(crate) fn check_compression(&self, format: SinkFormat) -> Result<()> {
        match (format, self.compression) {
            (SinkFormat::Arrow, Some(Compression::Gz | Compression::Deflate)) => Err(Error::config(
                "sink.properties.compress_type",
                "an arrow stream is compressed inside: use zstd, lz4 or '' with 'sink.properties.format' = 'arrow'",
            )),
            (SinkFormat::Parquet, Some(Compression::Deflate)) => Err(Error::config(
                "sink.properties.compress_type",
                "a Parquet file is compressed inside: use zstd, lz4, gz or '' with 'sink.properties.format' = 'parquet'",
            )),
            _ => Ok(()),
        }
    }

    /// Takes `properties` as if they were given as `sink.properties.*`: checked, and in place of earlier ones.
    ///
    /// # Errors
    /// [`Error::Config`] for a property that this crate sets itself or that would make rows wrong.
    pub fn with_properties(mut self, properties: BTreeMap<String, String>) -> Result<Self> {
        self.apply_properties(properties)?;
        Ok(self)
    }

    pub(super) fn from_entries(entries: &mut Entries) -> Result<Self> {
        let defaults = Self::default();
        let mut sink = Self {
            write_mode: WriteMode::from_entries(entries)?,
            label_prefix: entries.parse(OptionKey::LabelPrefix, parse_name)?.unwrap_or(defaults.label_prefix),
            two_phase_commit: entries.parse(OptionKey::Enable2pc, parse_bool)?,
            enable_delete: entries.parse(OptionKey::EnableDelete, parse_bool)?.unwrap_or(defaults.enable_delete),
            ignore_update_before: entries.parse(OptionKey::IgnoreUpdateBefore, parse_bool)?,
            change_kind_column: entries.parse(OptionKey::ChangeKindColumnSink, parse_name)?,
            change_format: ChangeFormat::from_entries(entries)?,
            max_retries: entries.parse(OptionKey::MaxRetries, parse_count)?.unwrap_or(defaults.max_retries),
            visible_wait: entries
                .parse(OptionKey::SinkVisibleWaitTimeout, parse_duration)?
                .unwrap_or(defaults.visible_wait),
            buffer_bytes: entries.parse(OptionKey::BufferSize, parse_buffer_size)?.unwrap_or(defaults.buffer_bytes),
            buffer_count: entries.parse(OptionKey::BufferCount, parse_buffer_count)?.unwrap_or(defaults.buffer_count),
            parallelism: entries.parse(OptionKey::SinkParallelism, parse_parallelism)?.unwrap_or(defaults.parallelism),
            flush: FlushOptions::from_entries(entries)?,
            ..defaults
        };
        sink.s3 = S3Options::from_entries(entries, sink.write_mode == WriteMode::Tvf)?;
        sink.apply_properties(entries.take_properties())?;
        sink.check_write_mode()?;
        Ok(sink)
    }

    fn apply_properties(&mut self, properties: BTreeMap<String, String>) -> Result<()> {
        let mut csv = CsvProperties::default();
        self.properties.clear();
        for (name, value) in properties {
            let name = name.to_ascii_lowercase();
            let fail = |reason: String| Error::config(format!("sink.properties.{name}"), reason);
            match name.as_str() {
                "format" => self.format = Some(parse_format(&value).map_err(fail)?),
                "compress_type" => self.compression = Some(parse_compression(&value).map_err(fail)?),
                "column_separator" => csv.column_separator = Some(parse_separator(&value).map_err(fail)?),
                "line_delimiter" => csv.line_delimiter = Some(parse_separator(&value).map_err(fail)?),
                "enclose" => csv.enclose = Some(parse_single_byte(&value).map_err(fail)?),
                "escape" => csv.escape = Some(parse_single_byte(&value).map_err(fail)?),
                _ => {
                    if check_property(&name, &value).map_err(fail)? == Send::AsHeader {
                        self.properties.insert(name, value);
                    }
                }
            }
        }
        self.csv = csv.build()?;
        check_properties(&self.properties)?;
        self.check_group_commit()?;
        self.check_together(self.format)?;
        self.format.map_or(Ok(()), |format| self.check_compression(format))
    }
}

#[derive(PartialEq, Eq)]
enum Send {
    AsHeader,
    No,
}

/// Whether a property may be sent; those that this crate sets itself or that would make rows wrong are refused.
fn check_property(name: &str, value: &str) -> Parsed<Send> {
    let text = value.trim();
    let lower = text.to_ascii_lowercase();
    let flag = || parse_bool(text);
    match name {
        "label" => Err("labels are made by this crate, use 'sink.label-prefix'".into()),
        "two_phase_commit" => Err("use 'sink.enable-2pc'".into()),
        "group_commit" => text.parse::<GroupCommit>().map(|_| Send::AsHeader),
        "hidden_columns" => Err(
            "is set by this crate, use 'sink.change-kind-column' or name a column __DORIS_DELETE_SIGN__ in the INSERT"
                .into(),
        ),
        "columns" => load_columns::check(text).map(|()| Send::AsHeader),
        "merge_type" => match lower.as_str() {
            "append" => Ok(Send::No),
            "delete" | "merge" => Ok(Send::AsHeader),
            _ => Err(format!("'{text}' is not APPEND, DELETE or MERGE")),
        },
        "partial_update_new_key_behavior" => match lower.as_str() {
            "append" | "error" => Ok(Send::AsHeader),
            _ => Err(format!("'{text}' is not APPEND or ERROR")),
        },
        // Rows are written one object per line.
        "read_json_by_line" | "trim_double_quotes" => match flag()? {
            true => Ok(Send::No),
            false => Err("must be true, the rows written depend on it".into()),
        },
        "strip_outer_array" | "fuzzy_parse" => match flag()? {
            true => Err("must be false, rows are written one JSON object per line".into()),
            false => Ok(Send::No),
        },
        "jsonpaths" | "json_root" => Err("is not supported, rows are JSON objects keyed by column name".into()),
        "skip_lines" if text == "0" => Ok(Send::No),
        "skip_lines" => Err("would drop rows, remove it".into()),
        "max_filter_ratio" => match text.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Send::AsHeader),
            _ => Err(format!("'{text}' is not a number from 0 to 1")),
        },
        "timeout" => match text.parse::<u32>() {
            Ok(seconds) if (1..=MAX_TIMEOUT_SECONDS).contains(&seconds) => Ok(Send::AsHeader),
            _ => Err(format!("'{text}' is not a number of seconds from 1 to {MAX_TIMEOUT_SECONDS}")),
        },
        "strict_mode"
        | "partial_columns"
        | "num_as_string"
        | "empty_field_as_null"
        | "load_to_single_tablet"
        | "negative"
        | "memtable_on_sink_node"
        | "enable_profile" => flag().map(|_| Send::AsHeader),
        "exec_mem_limit" | "send_batch_parallelism" | "load_stream_per_node" => match text.parse::<u64>() {
            Ok(1..) => Ok(Send::AsHeader),
            _ => Err(format!("'{text}' is not a whole number above zero")),
        },
        "authorization" | "token" | "expect" | "host" | "content-length" | "content-type" | "content-encoding"
        | "transfer-encoding" | "connection" | "sql" => Err("is set by this crate, remove it".into()),
        _ => {
            let name_is_valid = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
            if !name_is_valid {
                return Err("is not a valid header name".into());
            }
            if value.chars().any(char::is_control) {
                return Err("has a control character, which a header cannot carry".into());
            }
            Ok(Send::AsHeader)
        }
    }
}

fn parse_format(text: &str) -> Parsed<SinkFormat> {
    match text.trim().to_ascii_lowercase().as_str() {
        "csv" => Ok(SinkFormat::Csv),
        "json" => Ok(SinkFormat::Json),
        "arrow" => Ok(SinkFormat::Arrow),
        "parquet" => Ok(SinkFormat::Parquet),
        _ => Err(format!("'{text}' cannot be written, use csv, json or arrow, or in TVF mode json or parquet")),
    }
}

fn parse_compression(text: &str) -> Parsed<Compression> {
    match text.trim().to_ascii_lowercase().as_str() {
        "gz" => Ok(Compression::Gz),
        "deflate" => Ok(Compression::Deflate),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd),
        "" => Ok(Compression::None),
        _ => Err(format!("'{text}' cannot be written, use gz, lz4, zstd or deflate, or '' for none")),
    }
}

fn parse_buffer_size(text: &str) -> Parsed<usize> {
    match parse_size(text)? {
        bytes if bytes < 1024 => Err("must be at least 1kb".into()),
        bytes => Ok(bytes),
    }
}

fn parse_buffer_count(text: &str) -> Parsed<usize> {
    match parse_count(text)? {
        count if count < 2 => Err("must be at least 2".into()),
        count => Ok(count),
    }
}

fn parse_parallelism(text: &str) -> Parsed<u32> {
    match u32::try_from(parse_count(text)?) {
        Ok(loads) if (1..=MAX_PARALLELISM).contains(&loads) => Ok(loads),
        _ => Err(format!("must be from 1 to {MAX_PARALLELISM}")),
    }
}
