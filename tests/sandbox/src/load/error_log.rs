//! Error logs of loads, kept in memory and served at `/api/_load_error_log`.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::random;

/// Logs kept; the oldest goes first.
const KEPT_LOGS: usize = 256;
/// Rows noted per load.
const KEPT_ROWS: usize = 1000;
/// Bytes noted of one row.
const KEPT_ROW_BYTES: usize = 1024;

/// The rows a load filtered, with the reason of each.
#[derive(Debug, Default)]
pub(crate) struct ErrorRows(Vec<String>);

impl ErrorRows {
    pub fn push(&mut self, reason: &str, row: &str) {
        if self.0.len() < KEPT_ROWS {
            let mut end = row.len().min(KEPT_ROW_BYTES);
            while !row.is_char_boundary(end) {
                end -= 1;
            }
            self.0.push(format!("Reason: {reason}. src line [{}]; ", &row[..end]));
        }
    }

    pub fn first(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }
}

/// The logs of all loads.
#[derive(Debug, Default)]
pub(crate) struct ErrorLogs(Mutex<VecDeque<(String, String)>>);

impl ErrorLogs {
    /// Keeps a log; returns its file name.
    pub fn keep(&self, rows: &ErrorRows) -> String {
        let file = format!("__shard_0/error_log_insert_stmt_{}", random::query_id().replace('-', "_"));
        let mut text = rows.0.join("\n");
        text.push('\n');
        let mut logs = self.0.lock();
        if logs.len() == KEPT_LOGS {
            logs.pop_front();
        }
        logs.push_back((file.clone(), text));
        file
    }

    /// Text of a log.
    pub fn get(&self, file: &str) -> Option<String> {
        self.0.lock().iter().find(|(name, _)| name == file).map(|(_, text)| text.clone())
    }
}
