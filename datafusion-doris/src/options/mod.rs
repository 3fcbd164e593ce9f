//! Options: one validated struct per concern, parsed once from a string map.
//!
//! [`DorisOptions::from_map`] is the only reader of option texts; everything behind it works on these structs.

mod catalog;
mod change_format;
mod connection;
mod csv_format;
mod entries;
mod flush;
mod group_commit;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod guide;
mod host_map;
mod insert_settings;
mod job;
mod key;
mod load_columns;
mod location;
mod lookup;
mod pushdown;
mod read;
mod s3;
mod sink;
#[cfg(test)]
mod tests;
mod update_mode;
mod value;
mod write_mode;

use std::collections::HashMap;

pub use catalog::CatalogOptions;
pub use change_format::{ChangeFormat, DebeziumOptions, TimePrecision};
pub use connection::ConnectionOptions;
pub use csv_format::CsvFormat;
pub use flush::FlushOptions;
pub use group_commit::GroupCommit;
pub use host_map::HostMap;
pub use insert_settings::InsertSettings;
pub use job::{ExecutionOptions, JobOptions};
pub use key::OptionKey;
pub use load_columns::LoadColumns;
pub use lookup::{LookupCache, LookupOptions};
pub use pushdown::PushdownOptions;
pub use read::{BoundedMode, MetadataColumn, OffsetOptions, OnExpired, ReadOptions, ScanMode};
pub use s3::S3Options;
pub use sink::{Compression, MAX_PARALLELISM, SinkFormat, SinkOptions};
pub use update_mode::UpdateMode;
pub use value::Secret;
pub use write_mode::WriteMode;

use self::entries::Entries;
use self::location::Location;
use crate::error::{Error, Result};
use crate::types::TableIdent;

/// All options of one Doris table.
#[derive(Debug, Clone)]
pub struct DorisOptions {
    /// `table.identifier`: the table in Doris.
    pub table: TableIdent,
    /// Hosts, credentials and timeouts.
    pub connection: ConnectionOptions,
    /// `source.*` options.
    pub read: ReadOptions,
    /// `sink.*` options.
    pub sink: SinkOptions,
}

impl DorisOptions {
    /// Options of `table` with defaults for reading and writing.
    pub fn new(table: TableIdent, connection: ConnectionOptions) -> Self {
        Self { table, connection, read: ReadOptions::default(), sink: SinkOptions::default() }
    }

    /// Reads an option map, for example that of `CREATE EXTERNAL TABLE … OPTIONS (…)`.
    ///
    /// # Errors
    /// [`Error::UnknownOption`] for a key that is not in [`OptionKey`], else [`Error::Config`] that names the option.
    pub fn from_map(map: HashMap<String, String>) -> Result<Self> {
        Self::from_location_and_map("", map)
    }

    /// As [`Self::from_map`], with the statement's LOCATION: empty or `doris://fe:8030[,fe2:8030]/db/table`.
    ///
    /// # Errors
    /// As [`Self::from_map`]; also when the location and an option contradict each other.
    pub fn from_location_and_map(location: &str, map: HashMap<String, String>) -> Result<Self> {
        let located = Location::parse(location)?;
        let mut entries = Entries::resolve(map)?;
        entries.refuse_catalog_options()?;
        let located_table = located.as_ref().map(Location::table).transpose()?.flatten();
        let located_nodes = located.map(|location| location.fenodes);
        let connection = ConnectionOptions::from_entries(&mut entries, located_nodes)?;
        let given = entries.parse(OptionKey::TableIdentifier, TableIdent::parse)?;
        let table = match (given, located_table) {
            (Some(given), Some(located)) if given != located => {
                return Err(Error::config("table.identifier", "contradicts LOCATION, give one of them"));
            }
            (Some(table), _) | (None, Some(table)) => table,
            (None, None) => return Err(Error::config("table.identifier", "is required, 'database.table'")),
        };
        let (read, sink) = table_options(&mut entries, &connection)?;
        Ok(Self { table, connection, read, sink })
    }

    /// Sets [`Self::connection`].
    pub fn with_connection(mut self, connection: ConnectionOptions) -> Self {
        self.connection = connection;
        self
    }

    /// Sets [`Self::read`].
    pub fn with_read(mut self, read: ReadOptions) -> Self {
        self.read = read;
        self
    }

    /// Sets [`Self::sink`].
    pub fn with_sink(mut self, sink: SinkOptions) -> Self {
        self.sink = sink;
        self
    }
}

/// The options that say how tables are read and written.
fn table_options(entries: &mut Entries, connection: &ConnectionOptions) -> Result<(ReadOptions, SinkOptions)> {
    let read = ReadOptions::from_entries(entries)?;
    if read.offset.is_some() && connection.jdbc_url.is_none() {
        return Err(Error::config(
            "jdbc-url",
            "is required when 'source.changelog.offset-table' is given, jdbc:mysql://host:9030",
        ));
    }
    if read.mode.is_changelog() && !connection.use_flight {
        return Err(Error::config(
            OptionKey::UseFlightSql.as_ref(),
            "must be true to read changes, which come by Arrow Flight SQL only",
        ));
    }
    let sink = SinkOptions::from_entries(entries)?;
    if sink.write_mode == WriteMode::Tvf && connection.jdbc_url.is_none() {
        return Err(Error::config("jdbc-url", "is required with 'sink.write-mode' = 'TVF', jdbc:mysql://host:9030"));
    }
    Ok((read, sink))
}
