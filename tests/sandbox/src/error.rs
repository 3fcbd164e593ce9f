//! What the engine answers when it refuses: MySQL-coded statement errors and Stream Load refusals.

use std::fmt;

use crate::txn::TxnState;

/// A statement error: MySQL error number, SQL state and text, as they travel in an ERR packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// MySQL (or Doris) error number, 1105 for planner and execution failures.
    pub code: u16,
    /// Five-character SQL state.
    pub state: &'static str,
    /// The text as the server prints it, with `errCode = 2, detailMessage = ` where Doris puts it.
    pub message: String,
    /// Name of the code for the errors that carry one over Flight (`ERR_INCR_WINDOW_NOT_READY`, ...).
    pub name: Option<&'static str>,
}

impl SqlError {
    /// An error with a MySQL code, whose text Doris sends behind `errCode = 2, detailMessage = `.
    pub fn coded(code: u16, text: impl fmt::Display) -> Self {
        Self { code, state: state_of(code), message: format!("errCode = 2, detailMessage = {text}"), name: None }
    }

    /// An error whose text travels bare (access refusals, system variables).
    pub fn bare(code: u16, text: impl fmt::Display) -> Self {
        Self { code, state: state_of(code), message: text.to_string(), name: None }
    }

    /// A planner or execution failure: code 1105.
    pub fn detail(text: impl fmt::Display) -> Self {
        Self::coded(1105, text)
    }

    /// Something Doris serves and this sandbox does not.
    pub fn not_served(what: impl fmt::Display) -> Self {
        Self::detail(format!("the sandbox does not implement {what}"))
    }

    /// A text the parser cannot read.
    pub fn syntax(text: impl fmt::Display) -> Self {
        Self::detail(format!("{text}"))
    }

    /// 1049.
    pub fn unknown_database(db: &str) -> Self {
        Self::coded(1049, format!("Unknown database '{db}'"))
    }

    /// 1105 with the Nereids text for a table that is not there.
    pub fn unknown_table(db: &str, table: &str) -> Self {
        Self::detail(format!("Table [{table}] does not exist in database [{db}]."))
    }

    /// 1046.
    pub fn no_database() -> Self {
        Self::coded(1046, "No database selected")
    }

    /// 1054.
    pub fn unknown_column(column: &str, place: &str) -> Self {
        Self::coded(1054, format!("Unknown column '{column}' in '{place}'"))
    }

    /// The text without the `errCode = 2, detailMessage = ` prefix.
    pub fn text(&self) -> &str {
        self.message.strip_prefix("errCode = 2, detailMessage = ").unwrap_or(&self.message)
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SqlError {}

fn state_of(code: u16) -> &'static str {
    match code {
        1044 | 1049 | 1050 | 1051 | 1054 | 1064 | 1142 | 1227 => match code {
            1049 | 1044 | 1227 | 1064 | 1142 => "42000",
            1050 => "42S01",
            1051 => "42S02",
            _ => "42S22",
        },
        1045 => "28000",
        1046 => "3D000",
        _ => "HY000",
    }
}

/// Why a load was refused; maps to `Status` and `Message` of the Stream Load reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// `Status: Label Already Exists`, `TxnId: -1`.
    LabelExists {
        /// The label of the request.
        label: String,
        /// The transaction that owns the label (stands in the text only).
        txn_id: i64,
        /// Its state, for `ExistingJobStatus`.
        state: TxnState,
        /// Text without the leading `[CODE_NAME]`.
        message: String,
    },
    /// `Status: Fail`.
    Refused {
        /// Doris status code name, `ANALYSIS_ERROR` for what the FE refuses.
        code_name: &'static str,
        /// Text without the leading `[CODE_NAME]`; FE texts start with `TStatus: errCode = 2, detailMessage = `.
        message: String,
    },
}

impl LoadError {
    /// A refusal of the FE: `ANALYSIS_ERROR` and the `TStatus` prefix.
    pub fn frontend(text: impl fmt::Display) -> Self {
        Self::Refused { code_name: "ANALYSIS_ERROR", message: format!("TStatus: errCode = 2, detailMessage = {text}") }
    }

    /// A refusal of the BE with its own status code name.
    pub fn backend(code_name: &'static str, text: impl fmt::Display) -> Self {
        Self::Refused { code_name, message: text.to_string() }
    }

    /// The whole `Message` member: `[CODE_NAME]text`.
    pub fn response_message(&self) -> String {
        match self {
            Self::LabelExists { message, .. } => format!("[LABEL_ALREADY_EXISTS]{message}"),
            Self::Refused { code_name, message } => format!("[{code_name}]{message}"),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.response_message())
    }
}

impl std::error::Error for LoadError {}

impl From<LoadError> for SqlError {
    /// A load refusal as an INSERT statement reports it: FE texts lose their `TStatus` prefix.
    fn from(error: LoadError) -> Self {
        let message = match error {
            // Numbered codes of the BE stay in the text.
            LoadError::Refused { code_name, message } if code_name.starts_with("E-") => {
                format!("[{code_name}]{message}")
            }
            LoadError::LabelExists { message, .. } | LoadError::Refused { message, .. } => message,
        };
        let text = message.strip_prefix("TStatus: errCode = 2, detailMessage = ").unwrap_or(&message);
        SqlError::detail(text)
    }
}
