//! Options of writing.

use std::collections::BTreeMap;

/// `sink.properties.format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkFormat {
    /// Separated text.
    Csv,
    /// One JSON object per line.
    Json,
}

/// `sink.properties.compress_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As it is.
    None,
    /// gzip.
    #[default]
    Gz,
}

/// Options of the sink.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// `sink.label-prefix`, default `datafusion_doris`.
    pub label_prefix: String,
    /// `sink.enable-2pc`, default true.
    pub two_phase_commit: bool,
    /// `sink.enable-delete`, default true: send the delete sign to unique tables.
    pub enable_delete: bool,
    /// `sink.ignore.update-before`, default true; false writes an update-before as a delete of its key.
    pub ignore_update_before: bool,
    /// `sink.change-kind-column`: name of the input column that holds `+I`, `-U`, `+U`, `-D`.
    pub change_kind_column: Option<String>,
    /// `sink.max-retries`, default 3: further attempts of commit.
    pub max_retries: usize,
    /// `sink.properties.format`; `None` = csv for flat schemas, json otherwise.
    pub format: Option<SinkFormat>,
    /// `sink.properties.compress_type`, default gz, `''` = none.
    pub compression: Compression,
    /// All other `sink.properties.*`, sent as Stream Load headers.
    pub properties: BTreeMap<String, String>,
    /// `sink.buffer-size`, default 1 MB: bytes per body chunk.
    pub buffer_bytes: usize,
    /// `sink.buffer-count`, default 3: chunks in flight.
    pub buffer_count: usize,
}
