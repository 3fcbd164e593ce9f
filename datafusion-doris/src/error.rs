//! The crate's error type, what a caller may do about each error, and the one conversion to DataFusion's.

use datafusion::error::DataFusionError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Everything that can go wrong between DataFusion and Doris.
///
/// Each variant names the object it is about (option, table, label, host) and keeps its source. Whether a caller
/// may try again is answered by [`Error::retry`] alone, never by the message text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is missing, malformed or in conflict with another one.
    #[error("option '{option}': {reason}")]
    Config {
        /// Option key as the user typed it, or its canonical name.
        option: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// An option key that this crate does not know.
    #[error("unknown option '{option}'{}", suggestion.as_ref().map(|s| format!(", did you mean '{s}'?")).unwrap_or_default())]
    UnknownOption {
        /// Option key as the user typed it.
        option: String,
        /// Nearest known key.
        suggestion: Option<String>,
    },
    /// A statement or plan that this crate refuses, with advice.
    #[error("{what}: {advice}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What to do instead.
        advice: String,
    },
    /// Doris refused the credentials or the privilege.
    #[error("access to {host} refused: {message}")]
    Auth {
        /// `host:port` that refused.
        host: String,
        /// The server's text.
        message: String,
    },
    /// A table or column is missing or has a type that does not fit.
    #[error("table {table}: {reason}")]
    Schema {
        /// `db.table`.
        table: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A value cannot be written exactly in the format of the load.
    #[error("table {table}, column '{column}', row {row} of the batch: {reason}")]
    Encode {
        /// `db.table`.
        table: String,
        /// Column name.
        column: String,
        /// Zero-based row in the record batch.
        row: usize,
        /// What is wrong and what to do.
        reason: String,
    },
    /// Connecting, sending or receiving failed.
    #[error("{operation} at {host} failed: {source}")]
    Transport {
        /// `host:port`.
        host: String,
        /// What was attempted.
        operation: String,
        /// Whether the request may be repeated.
        retry: Retry,
        /// The transport's error.
        source: Source,
    },
    /// Doris answered a statement or a metadata request with an error.
    #[error("{host} answered '{message}' to {operation}")]
    Server {
        /// `host:port` that answered.
        host: String,
        /// What was asked.
        operation: String,
        /// Doris error code, when one was sent (for example 1105 or 5101).
        code: Option<u32>,
        /// The server's text.
        message: String,
    },
    /// A Stream Load was refused or failed.
    #[error("stream load of table {table} with label {label} failed: {message}{}", details(error_url.as_deref(), first_error.as_deref()))]
    StreamLoad {
        /// `db.table`.
        table: String,
        /// Label of the load.
        label: String,
        /// The server's message.
        message: String,
        /// Where the server keeps the rejected rows.
        error_url: Option<String>,
        /// First rejected row and its reason.
        first_error: Option<String>,
        /// Whether the load may be repeated.
        retry: Retry,
    },
    /// A two-phase-commit transaction is not in the state it must be in.
    #[error("{operation} of transaction {} (label {label}) failed: {reason}", txn_id.map(|t| t.to_string()).unwrap_or_else(|| "?".into()))]
    Transaction {
        /// `commit`, `abort` or `resolve`.
        operation: String,
        /// Label of the load.
        label: String,
        /// Transaction id, when known.
        txn_id: Option<i64>,
        /// What was observed and what to do.
        reason: String,
        /// Whether the operation may be repeated.
        retry: Retry,
    },
    /// The epoch protocol was violated or a checkpoint cannot be used.
    #[error("checkpoint: {reason}")]
    Checkpoint {
        /// What is wrong and what to do.
        reason: String,
    },
    /// The place where checkpoints are kept failed.
    #[error("{operation} {object} failed: {source}")]
    CheckpointStore {
        /// `listing`, `reading`, `creating`, `writing` or `removing`.
        operation: &'static str,
        /// Path or URL.
        object: String,
        /// Whether the operation may be repeated.
        retry: Retry,
        /// The store's error.
        source: Source,
    },
    /// The object store in which rows are staged failed.
    #[error("{operation} {object} failed: {source}")]
    Staging {
        /// `writing`, `listing`, `finding` or `removing`.
        operation: &'static str,
        /// URI of the object, without credentials.
        object: String,
        /// Whether the statement may be run again.
        retry: Retry,
        /// The store's error, without credentials.
        source: Source,
    },
    /// Doris has run the INSERT of a staged load to a good end and read no row of its objects: the label is used up, and none
    /// of the rows is in the table. The state of the label tells success, and is no proof of the rows then.
    #[error(
        "Doris read no rows of {objects}: its INSERT into {table} ended well and none of the staged rows is in the table. Label \
         {label} is used up: the rows are to be written again, under a new label. See what became of the objects, which are \
         left as they are ({answer})"
    )]
    NothingRead {
        /// `db.table`.
        table: String,
        /// Label of the load.
        label: String,
        /// URIs of the objects, without credentials.
        objects: String,
        /// What the server told of the INSERT.
        answer: String,
    },
    /// The changelog cannot be read any further.
    #[error("changelog of {table}: {reason}")]
    Changelog {
        /// `db.table`.
        table: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// DataFusion or Arrow failed underneath.
    #[error(transparent)]
    DataFusion(Box<DataFusionError>),
}

/// Whether what failed may work later, without anybody's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// The same again.
    Permanent,
    /// Doris answered with an error of its own, which may be a node that just died or a column that is gone.
    Unclear,
    /// A connection or a node was lost, or the server is busy.
    Passing,
}

/// What a caller may do after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The same request gives the same error.
    Never,
    /// Nothing happened at the server, or the request is idempotent: repeat it (with the same label).
    SameLabel,
    /// As [`Retry::SameLabel`], but not soon: the server has more open work than it takes.
    Later,
    /// A load holds the label: see what it is and end it, then repeat under the same label.
    LabelTaken,
    /// The outcome is unknown: ask the label's state before anything else.
    AskLabelState,
    /// The outcome is unknown and nothing tells it: a repetition may write rows a second time.
    CannotTell,
}

impl Error {
    /// What a caller may do now.
    pub fn retry(&self) -> Retry {
        match self {
            Error::Transport { retry, .. }
            | Error::StreamLoad { retry, .. }
            | Error::Transaction { retry, .. }
            | Error::CheckpointStore { retry, .. }
            | Error::Staging { retry, .. } => *retry,
            _ => Retry::Never,
        }
    }

    /// Whether work that ended with this error may be done again later, from its beginning.
    pub fn outlook(&self) -> Outlook {
        match self {
            Error::DataFusion(error) => match error.find_root() {
                DataFusionError::External(inner) => {
                    inner.downcast_ref::<Error>().map_or(Outlook::Permanent, Error::outlook)
                }
                DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) => Outlook::Unclear,
                _ => Outlook::Permanent,
            },
            Error::Server { .. } => Outlook::Unclear,
            error if error.retry() == Retry::Never => Outlook::Permanent,
            _ => Outlook::Passing,
        }
    }

    /// A [`Error::Config`] for `option`.
    pub fn config(option: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Config { option: option.into(), reason: reason.into() }
    }

    /// A [`Error::Unsupported`].
    pub fn unsupported(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Error::Unsupported { what: what.into(), advice: advice.into() }
    }

    /// A [`Error::Schema`] for `table`.
    pub fn schema(table: impl ToString, reason: impl Into<String>) -> Self {
        Error::Schema { table: table.to_string(), reason: reason.into() }
    }
}

fn details(error_url: Option<&str>, first_error: Option<&str>) -> String {
    let mut out = String::new();
    if let Some(first) = first_error {
        out.push_str(", first rejected row: ");
        out.push_str(first);
    }
    if let Some(url) = error_url {
        out.push_str(", rejected rows: ");
        out.push_str(url);
    }
    out
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        Error::DataFusion(Box::new(error))
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Error::DataFusion(Box::new(error.into()))
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Config { .. } | Error::UnknownOption { .. } => DataFusionError::Configuration(error.to_string()),
            Error::Unsupported { .. } => DataFusionError::NotImplemented(error.to_string()),
            Error::DataFusion(inner) => *inner,
            other => DataFusionError::External(Box::new(other)),
        }
    }
}
