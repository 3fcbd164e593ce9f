//! `LOCATION 'doris://fe:8030[,fe2:8030]/db/table'`.

use percent_encoding::percent_decode_str;

use super::value::parse_nodes;
use crate::error::{Error, Result};
use crate::types::TableIdent;

/// What a location names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// FE addresses.
    pub(super) fenodes: Vec<String>,
    /// Names in the path.
    path: Vec<String>,
}

impl Location {
    /// `None` for an empty location.
    pub(super) fn parse(text: &str) -> Result<Option<Self>> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let fail = |reason: String| Error::config("LOCATION", reason);
        let shape = "is not of the form 'doris://fe-host:8030/database/table'";
        let rest = text
            .get(..8)
            .filter(|scheme| scheme.eq_ignore_ascii_case("doris://"))
            .map(|scheme| &text[scheme.len()..])
            .ok_or_else(|| fail(shape.into()))?;
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let fenodes = parse_nodes(hosts).map_err(fail)?;
        let decode = |part: &str| {
            percent_decode_str(part)
                .decode_utf8()
                .map(|name| name.into_owned())
                .map_err(|_| fail("has a name that is not UTF-8 after percent-decoding".into()))
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        let parts: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
        if parts.iter().any(|part| part.is_empty()) {
            return Err(fail(shape.into()));
        }
        let path = parts.into_iter().map(decode).collect::<Result<_>>()?;
        Ok(Some(Self { fenodes, path }))
    }

    /// The table, when the path names one: `/db/table`, or `/catalog/db/table` in an external catalog.
    pub(super) fn table(&self) -> Result<Option<TableIdent>> {
        match self.path.as_slice() {
            [] => Ok(None),
            [database, table] => Ok(Some(TableIdent::new(database, table))),
            [catalog, database, table] => Ok(Some(TableIdent::new(database, table).in_catalog(catalog))),
            _ => Err(Error::config("LOCATION", "is not of the form 'doris://fe-host:8030/database/table'")),
        }
    }

    /// The default database of a catalog, when the path names one.
    pub(super) fn database(&self) -> Result<Option<String>> {
        match self.path.as_slice() {
            [] => Ok(None),
            [database] => Ok(Some(database.clone())),
            _ => Err(Error::config("LOCATION", "of a catalog is not of the form 'doris://fe-host:8030[/database]'")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn location_names_hosts_and_table() {
        assert_eq!(Location::parse(" ").unwrap(), None);
        let location = Location::parse("doris://fe:8030,fe2:8030/my%20db/t%2F1").unwrap().unwrap();
        assert_eq!(location.fenodes, ["fe:8030", "fe2:8030"]);
        assert_eq!(location.table().unwrap(), Some(TableIdent::new("my db", "t/1")));
        assert!(location.database().is_err());
        assert_eq!(Location::parse("DORIS://fe:8030/").unwrap().unwrap().table().unwrap(), None);
        let external = Location::parse("doris://fe:8030/hive/db/t").unwrap().unwrap();
        assert_eq!(external.table().unwrap(), Some(TableIdent::new("db", "t").in_catalog("hive")));
        let database = Location::parse("doris://fe:8030/sales").unwrap().unwrap();
        assert_eq!(database.database().unwrap().as_deref(), Some("sales"));
        assert!(database.table().is_err());
    }

    #[test]
    fn malformed_location_is_refused_without_showing_a_password() {
        for text in ["fe:8030/db/t", "doris://fe/db/t", "doris://fe:8030//t", "s3://b/x"] {
            assert!(Location::parse(text).is_err(), "{text}");
        }
        assert!(Location::parse("doris://fe:8030/a/b/c/d").unwrap().unwrap().table().is_err());
        let error = Location::parse("doris://root:pa55@fe:8030/db/t").unwrap_err().to_string();
        assert!(!error.contains("pa55") && error.contains("username"), "{error}");
    }
}
