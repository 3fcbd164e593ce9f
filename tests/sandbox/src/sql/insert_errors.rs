//! Rows that an INSERT filters: counted, and told in a log that the BEs serve.

use crate::engine::Engine;
use crate::error::SqlError;
use crate::load::ErrorRows;

/// Characters of the first reason that newer builds put into their answer.
const SHOWN: usize = 512;

/// The rows that the table did not take.
#[derive(Debug, Default)]
pub(super) struct Filtered {
    pub rows: u64,
    log: ErrorRows,
}

impl Filtered {
    /// Notes a row. The log of an INSERT has reasons and no source lines.
    pub fn push(&mut self, reason: &str) {
        self.rows += 1;
        self.log.push(reason, "");
    }

    /// Keeps the log, for one row at least; its address.
    pub fn keep(&self, engine: &Engine) -> Option<String> {
        self.log.first()?;
        let topology = engine.topology();
        let backend = topology.backends.iter().find(|backend| backend.alive)?;
        let host = match backend.host.contains(':') {
            true => format!("[{}]", backend.host),
            false => backend.host.clone(),
        };
        let scheme = if backend.tls { "https" } else { "http" };
        let file = engine.insert_logs.keep(&self.log);
        Some(format!("{scheme}://{host}:{}/api/_load_error_log?file={file}", backend.http_port))
    }

    /// The end of an INSERT that may not go on, with what there is to look at. Older builds name the log alone.
    pub fn refusal(&self, engine: &Engine, text: String) -> SqlError {
        let mut text = text;
        if engine.profile().has_changes()
            && let Some(first) = self.log.first()
        {
            text.push_str(". first error: ");
            text.extend(first.chars().take(SHOWN));
        }
        if let Some(url) = self.keep(engine) {
            text.push_str(". url: ");
            text.push_str(&url);
        }
        SqlError::detail(text)
    }
}

/// One row that ends an INSERT in strict mode.
pub(super) fn strict(engine: &Engine, reason: &str) -> SqlError {
    let mut filtered = Filtered::default();
    filtered.push(reason);
    filtered.refusal(engine, "Insert has filtered data in strict mode".to_owned())
}
