//! A whole cluster as a catalog of DataFusion.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::connection::ConnectionOptions;
use super::entries::{Entries, parse_name};
use super::key::OptionKey;
use super::location::Location;
use super::read::ReadOptions;
use super::sink::SinkOptions;
use super::value::parse_duration;
use super::{DorisOptions, table_options};
use crate::error::{Error, Result};
use crate::types::{INTERNAL_CATALOG, TableIdent};

/// Age at which what a catalog knows is read anew, unless given.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// All options of a catalog: those of the cluster, and those that each of its tables gets.
#[derive(Debug, Clone)]
pub struct CatalogOptions {
    /// Hosts, credentials and timeouts.
    pub connection: ConnectionOptions,
    /// `source.*` options of every table.
    pub read: ReadOptions,
    /// `sink.*` options of every table.
    pub sink: SinkOptions,
    /// `catalog.name`: the catalog of Doris; `None`: Doris' own tables.
    pub catalog: Option<String>,
    /// `default-database`: what `USE name` chooses.
    pub default_database: Option<String>,
    /// `catalog.ttl`, default 10 s: age at which columns and lists of names are read anew; zero: for each statement.
    pub time_to_live: Duration,
    /// `table.properties.*`: properties of created tables, without that prefix.
    pub table_properties: BTreeMap<String, String>,
}

impl CatalogOptions {
    /// Defaults for all tables of a cluster.
    pub fn new(connection: ConnectionOptions) -> Self {
        Self {
            connection,
            read: ReadOptions::default(),
            sink: SinkOptions::default(),
            catalog: None,
            default_database: None,
            time_to_live: DEFAULT_TTL,
            table_properties: BTreeMap::new(),
        }
    }

    /// Reads an option map, with a location: empty or `doris://fe:8030[,fe2:8030][/default-database]`.
    ///
    /// # Errors
    /// As [`DorisOptions::from_location_and_map`]; also for options that one table alone has.
    pub fn from_location_and_map(location: &str, map: HashMap<String, String>) -> Result<Self> {
        let located = Location::parse(location)?;
        let mut entries = Entries::resolve(map)?;
        let located_database = located.as_ref().map(Location::database).transpose()?.flatten();
        let connection = ConnectionOptions::from_entries(&mut entries, located.map(|location| location.fenodes))?;
        let (read, sink) = table_options(&mut entries, &connection)?;
        if entries.text(OptionKey::TableIdentifier).is_some() {
            return Err(Error::config("table.identifier", "names one table, leave it out of a catalog's options"));
        }
        if read.offset.is_some() {
            return Err(Error::config(
                "source.changelog.offset-table",
                "is of one table, declare that table by itself",
            ));
        }
        let given_database = entries.parse(OptionKey::DefaultDatabase, parse_name)?;
        let default_database = match (given_database, located_database) {
            (Some(given), Some(located)) if given != located => {
                return Err(Error::config("default-database", "contradicts LOCATION, give one of them"));
            }
            (given, located) => given.or(located),
        };
        let catalog = entries.parse(OptionKey::CatalogName, parse_name)?;
        let time_to_live = entries.parse(OptionKey::CatalogTtl, parse_duration)?.unwrap_or(DEFAULT_TTL);
        let table_properties = entries.take_table_properties();
        let options = Self { connection, read, sink, catalog: None, default_database, time_to_live, table_properties };
        Ok(match catalog {
            Some(catalog) => options.with_catalog(catalog),
            None => options,
        })
    }

    /// Sets [`Self::catalog`]; `internal` stands for Doris' own tables.
    pub fn with_catalog(mut self, catalog: impl Into<String>) -> Self {
        let catalog = catalog.into();
        self.catalog = (!catalog.eq_ignore_ascii_case(INTERNAL_CATALOG)).then_some(catalog);
        self
    }

    /// Sets [`Self::default_database`].
    pub fn with_default_database(mut self, database: impl Into<String>) -> Self {
        self.default_database = Some(database.into());
        self
    }

    /// Sets [`Self::time_to_live`].
    pub fn with_time_to_live(mut self, time_to_live: Duration) -> Self {
        self.time_to_live = time_to_live;
        self
    }

    /// Adds one of [`Self::table_properties`].
    pub fn with_table_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.table_properties.insert(name.into(), value.into());
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

    /// The table `table` of `database` in this catalog.
    pub fn table(&self, database: &str, table: &str) -> TableIdent {
        let ident = TableIdent::new(database, table);
        match &self.catalog {
            Some(catalog) => ident.in_catalog(catalog),
            None => ident,
        }
    }

    /// The options of one of its tables.
    pub fn table_options(&self, table: TableIdent) -> DorisOptions {
        DorisOptions { table, connection: self.connection.clone(), read: self.read.clone(), sink: self.sink.clone() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn parse(location: &str, more: &[(&str, &str)]) -> Result<CatalogOptions> {
        let mut map: HashMap<String, String> = more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        map.insert("username".into(), "root".into());
        CatalogOptions::from_location_and_map(location, map)
    }

    #[test]
    fn location_and_options_are_taken_together() {
        let options = parse(
            "doris://fe:8030/sales",
            &[("catalog.ttl", "1 min"), ("table.properties.replication_num", "1"), ("source.scan.mode", "latest")],
        )
        .unwrap();
        assert_eq!(options.connection.fenodes, ["fe:8030"]);
        assert_eq!(options.default_database.as_deref(), Some("sales"));
        assert_eq!(options.time_to_live, Duration::from_secs(60));
        assert_eq!(options.table_properties["replication_num"], "1");
        let table = options.table_options(options.table("db", "t"));
        assert_eq!(table.read.mode, crate::options::ScanMode::Latest);
        assert_eq!(table.table, TableIdent::new("db", "t"));
    }

    #[test]
    fn tables_of_another_catalog_have_three_parts() {
        let options = parse("doris://fe:8030", &[("catalog.name", "hive")]).unwrap();
        assert_eq!(options.table("db", "t").to_string(), "hive.db.t");
        let internal = parse("doris://fe:8030", &[("catalog.name", "INTERNAL")]).unwrap();
        assert_eq!(internal.table("db", "t"), TableIdent::new("db", "t"));
    }

    #[test]
    fn options_of_the_other_kind_are_refused_by_name() {
        for (location, key, value) in [
            ("doris://fe:8030", "table.identifier", "db.t"),
            ("doris://fe:8030/db/t", "catalog.ttl", "1s"),
            ("doris://fe:8030/db", "default-database", "other"),
            ("doris://fe:8030", "catalog.tll", "1s"),
        ] {
            assert!(parse(location, &[(key, value)]).is_err(), "{location} {key}");
        }
        for key in ["table.properties.replication_num", "default-database", "catalog.name", "catalog.ttl"] {
            let map = [("fenodes", "fe:1"), ("username", "u"), ("table.identifier", "a.b"), (key, "1s")];
            let map = map.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let error = DorisOptions::from_map(map).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains("catalog"), "{error}");
        }
    }
}
