//! A table as a part of a larger statement of Doris.

use super::DorisTable;
use crate::client::DorisClient;
use crate::options::{PushdownOptions, ScanMode};
use crate::scan::ReadSettings;
use crate::sql::{is_text, quote_ident, quote_table};
use crate::types::{DorisType, TableIdent};

/// What a statement can read, in the place of a table.
#[derive(Debug)]
pub(crate) struct RemoteSource<'a> {
    pub client: &'a DorisClient,
    /// The table, or the first one of a query.
    pub table: &'a TableIdent,
    /// Text that stands in FROM.
    pub from: String,
    /// One per column of the provider's schema.
    pub columns: Vec<RemoteColumn>,
    /// How statements are run; the protocol is decided later.
    pub settings: ReadSettings,
    pub pushdown: PushdownOptions,
    /// It gives at most so many rows.
    pub limited: Option<usize>,
}

/// A column of a [`RemoteSource`].
#[derive(Debug, Clone)]
pub(crate) struct RemoteColumn {
    pub stored: String,
    pub doris_type: DorisType,
    /// Expressions on it mean the same in Doris.
    pub alike: bool,
}

impl DorisTable {
    /// The table under other settings.
    pub(crate) fn with_pushdown(&self, pushdown: PushdownOptions) -> Self {
        Self { pushdown, ..self.clone() }
    }

    /// The settings under which it is read.
    pub(crate) fn pushdown(&self) -> PushdownOptions {
        self.pushdown
    }

    /// The cluster.
    pub(crate) fn client(&self) -> &DorisClient {
        &self.client
    }

    /// The table for a statement around it; `None` where a scan gives something else than its rows.
    pub(crate) fn remote(&self) -> Option<RemoteSource<'_>> {
        let snapshot = self.options.read.mode == ScanMode::Snapshot && self.options.sink.change_format.is_none();
        if !snapshot {
            return None;
        }
        let columns = (0..self.bound.columns()).filter_map(|index| {
            let (stored, doris_type, alike) = self.bound.stored(index)?;
            // Another system compares texts as it likes.
            let alike = alike && (self.doris.table.catalog.is_none() || !is_text(doris_type));
            Some(RemoteColumn { stored: stored.to_string(), doris_type: doris_type.clone(), alike })
        });
        Some(RemoteSource {
            client: &self.client,
            table: &self.doris.table,
            from: self.remote_text(),
            columns: columns.collect(),
            settings: ReadSettings {
                batch_rows: self.options.read.batch_rows,
                exec_mem_limit: self.options.read.exec_mem_limit,
                ..ReadSettings::default()
            },
            pushdown: self.pushdown,
            limited: None,
        })
    }

    /// The table in FROM, with its own condition.
    fn remote_text(&self) -> String {
        let table = quote_table(&self.doris.table);
        let Some(condition) = self.own_condition() else { return table };
        let columns: Vec<String> =
            (0..self.bound.columns()).filter_map(|index| Some(quote_ident(self.bound.stored(index)?.0))).collect();
        format!("(SELECT {} FROM {table} WHERE {condition})", columns.join(", "))
    }
}
